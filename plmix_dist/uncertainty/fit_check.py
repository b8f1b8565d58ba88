"""Checks of fit: does a mixture reproduce first places and pairs? Residuals, their covariance after a fit, p-values.

An event is that an item is first, or that one item of a pair comes before the other, where a row decides that. Pass 1
sums by length of the ranking how often events happened and are expected. Pass 2 draws one copy of every row from the
fit, with the same offer and length, and sums products of events, less what is expected (D), and scores (S), and across
(A). With the inverse information J, residuals of a fit have the covariance D - A J A' - A J A' + A J S J A': a fit has
used the rankings to match these very counts. A discrepancy is then a sum of chi-square variables with known weights.

Of Bayesian fits there is also the posterior predictive value of the R package PLMIX, which does not know of the fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError, give_warnings
from plmix_dist.kernels import Prepared, prepare
from plmix_dist.passes import Aggregation, Passes, Request, add_statistics, ask
from plmix_dist.prediction.choices import choice_probabilities, item_numbers, pairwise_probabilities
from plmix_dist.rankings import TIES, Floats, RankingBlock, generator
from plmix_dist.rankings.groups import person_of_row, person_weights, row_runs, weights_within
from plmix_dist.store import MixtureParams
from plmix_dist.threads import single_thread
from plmix_dist.uncertainty import information
from plmix_dist.uncertainty.check_results import FitCheck, Length, Residual
from plmix_dist.uncertainty.information import by_unit, flat_scores, information_pass, person_scores, tied_orders
from plmix_dist.uncertainty.standard_errors import FittedPoint, is_joint, mostly_prior, solve

_Integers = NDArray[np.int64]

# Sums are kept for each number of places below this; longer rankings count as one length.
_LENGTHS = 32
# Lengths are checked one by one, or in at most this many bands.
_MOST_BANDS = 5
_MOST_PAIRED_ITEMS = 30
_MOST_PAIRS = 1_000
# Cells with fewer expected rankings do not count, as in PLMIX.
_LEAST_EXPECTED = 5.0
# Numbers of one run of rows, and of the matrices of all bands.
_MOST_NUMBERS = 1 << 20
_MOST_PRODUCTS = 1 << 22
# Rows of a leaf with weights are copied, all together, about this many times.
_COPIES = 1 << 14
_NULL_DRAWS = 9_999
# Copies of rows for draws of a posterior are of weight 1 each, at most this many in a leaf.
_MOST_COPIES = 1 << 24


class _Plan(NamedTuple):
    """What passes need; the later fields are those of pass 2."""

    mixture: MixtureParams
    ties: str
    pairs: _Integers  # (n_pairs, 2): numbers of items
    seed: int
    n_parameters: int  # log-worths, and logits of shares where these are parameters
    tables: Floats  # (32, 2 * n_pairs): what `_expected_pairs` gives
    bands: _Integers = np.zeros(_LENGTHS, np.int64)  # (32,): the band of each length
    # (n_bands, n_pairs): the chance of the first item of a pair to come before the second, where the pair is decided
    chances: Floats = np.zeros((0, 0))

    @property
    def n_events(self) -> int:
        """The number of residuals: first places and pairs."""
        return self.mixture.n_items + len(self.pairs)


_At = tuple[_Plan, Prepared]


def _prepare(plan: _Plan) -> _At:
    return plan, prepare(plan.mixture.log_worths, plan.mixture.log_shares)


# The events of rows, and what is expected of them.


class _Events(NamedTuple):
    """Events of rows: firsts, pairs one way, pairs the other way."""

    happened: Floats  # (n_rows, n_items + 2 * n_pairs)
    expected: Floats  # the same shape
    offered: NDArray[np.bool_]  # (n_rows, n_items): whether the item was on offer, where there was a choice
    length: _Integers  # (n_rows,): how many places are ordered; all of them if all but one are
    # (n_rows,): the line of the table that has its pairs: the length if only a part of all items is ordered, else 0
    line: _Integers


def _events(block: RankingBlock, plan: _Plan) -> _Events:
    """The events of rows without ties. Of rows that order a part of some items pairs do not count."""
    n_ordered, row = block.n_ordered.astype(np.int64), block.row_of_item()
    place = np.repeat(np.where(block.below, n_ordered, -1)[:, None], block.n_items, axis=1)
    place[row, block.items.astype(np.intp)] = np.minimum(block.place_of_item(), n_ordered[row])
    offered = place >= 0
    n_offered = offered.sum(axis=1)
    whole = n_ordered >= n_offered - 1
    partly = ~whole & (n_offered == block.n_items) & (n_ordered < _LENGTHS)
    offered &= ((n_offered > 1) & (n_ordered > 0))[:, None]
    one, other = plan.pairs.T
    counted = offered[:, one] & offered[:, other] & (whole | partly)[:, None]
    before, after = place[:, one] < place[:, other], place[:, other] < place[:, one]
    chosen = [(place == 0) & offered, counted & before, counted & after]
    happened = np.concatenate(chosen, axis=1, dtype=np.float64)
    firsts = np.tensordot(plan.mixture.shares, choice_probabilities(plan.mixture.log_worths, offered), 1)
    line = np.where(partly, n_ordered, 0)
    pairs = plan.tables[line] * np.concatenate([counted, counted], axis=1)
    length = np.minimum(np.where(whole, n_offered, n_ordered), _LENGTHS - 1)
    return _Events(happened, np.hstack([firsts, pairs]), offered, length, line)


def _expected_pairs(mixture: MixtureParams, pairs: _Integers, lengths: list[int]) -> Floats:
    """(32, 2 * n_pairs): the probability that the first l places of all items decide a pair; in line 0 of all places.

    A pair is decided unless both its items come later, and which of the two is first does not depend on that.
    """
    found = np.zeros((_LENGTHS, 2 * len(pairs)))
    for share, logs in zip(mixture.shares, mixture.log_worths, strict=True):
        one = pairwise_probabilities(logs)[0][tuple(pairs.T)]
        both = share * np.concatenate([one, 1 - one])
        found[0] += both
        if lengths:
            later = _both_later(np.exp(logs - logs.max()), pairs, max(lengths))
            found[lengths] += both * (1 - np.tile(later[:, lengths].T, 2))
    return found


def _both_later(worths: Floats, pairs: _Integers, most: int) -> Floats:
    """(n_pairs, most + 1): the probability that at least l others arrive before both items of a pair.

    Let items arrive after exponential times. In log time the integrand is smooth, and the trapezoid rule converges
    exponentially.
    """
    others = np.ones((len(pairs), len(worths)))
    others[np.arange(len(pairs))[:, None], pairs] = 0.0
    others *= worths / worths[pairs].sum(axis=1, keepdims=True)
    nodes = np.arange(-41.0, 5.0, 0.25)  # of log time times the rate of the pair: outside, nothing is left
    weights = np.exp(nodes - np.exp(nodes))
    found = np.zeros((len(pairs), most + 1))
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        arrived = -np.expm1(-others * np.exp(node))
        few = np.zeros((len(pairs), most))  # the probability of 0, 1, ... arrivals
        few[:, 0] = 1.0
        for came in arrived.T[:, :, None]:
            few[:, 1:] += came * (few[:, :-1] - few[:, 1:])
            few[:, :1] *= 1 - came
        found += weight * (1 - np.pad(np.cumsum(few, axis=1), ((0, 0), (1, 0))))
    return found


def _rows(block: RankingBlock, at: _At) -> tuple[RankingBlock, _Events, NDArray[np.bool_]]:
    """One order of each row, the events of the rows, and which have ties (n_rows,).

    The events of a row with ties are means over its orders: plain ones where the fit extends ties, else by the
    probabilities of the orders, given the row.
    """
    plan, params = at
    if TIES[plan.ties].extends or not block.has_ties:
        orders, row = TIES[plan.ties].extended(block)
        shares = 1 / np.bincount(row, minlength=1)[row]
    else:
        _, orders, row, joint = tied_orders(block, params)
        shares = joint.sum(axis=1)
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    base = orders if len(starts) == len(row) else orders.take(starts)
    events = _events(base, plan)
    if base is not orders:
        happened = _events(orders, plan).happened * shares[:, None]
        events = events._replace(happened=np.add.reduceat(happened, starts, axis=0))
    base = base.replace(weights=block.weights, groups=block.groups, within=None)
    return base, events, np.bincount(row, minlength=1) > 1


def _lengths(block: RankingBlock, events: _Events) -> _Integers:
    """(n_persons,): the length of the longest ranking of each person."""
    return np.maximum.reduceat(events.length, np.flatnonzero(block.group_starts))


def _runs(block: RankingBlock, plan: _Plan) -> Iterator[RankingBlock]:
    """Runs of rows whose events and scores fit into memory."""
    return row_runs(block, max(1, _MOST_NUMBERS // (plan.mixture.log_worths.size + 4 * plan.n_events)))


# Pass 1.


# Sums over rows by length (32 of them); where rows have groups, by that of the person's longest ranking: weight of rows
# or persons (32,); events that happened, and that are expected (32, n_items + 2 * n_pairs), without the pairs of rows
# that order a part of all items; rankings with a choice that offer an item (32, n_items); weight by line of the table
# (32, 32); rows with ties ().
_Observed = tuple[Floats, Floats, Floats, Floats, Floats, _Integers]


def _leaf_observed(_number: int, block: RankingBlock, at: _At) -> _Observed:
    sums: Any = None
    for part in _runs(block, at[0]):
        base, events, tied = _rows(part, at)
        lengths = _lengths(base, events)
        by_length, by_line = np.zeros((2, _LENGTHS, base.n_rankings))
        by_length[lengths[person_of_row(base)], np.arange(base.n_rankings)] = weights_within(base)
        by_line[events.line, np.arange(base.n_rankings)] = 1.0
        with single_thread():
            found = [by_length @ one for one in (*events[:3], by_line.T)]
        added = (np.bincount(lengths, person_weights(base), _LENGTHS), *found, np.array(np.count_nonzero(tied)))
        sums = added if sums is None else add_statistics(sums, added)
    return cast("_Observed", sums)


# Pass 2: a copy of every row, drawn from the mixture.


# Sums over copied rows, or persons, by band: products of residual events and scores, which stand side by side in a row
# (n_bands, size, size); how expected events depend on the parameters (n_bands, n_events, n_parameters).
_Products = tuple[Floats, Floats]


def _leaf_products(number: int, block: RankingBlock, at: _At) -> _Products:
    plan, rng = at[0], generator(at[0].seed, "check-copy", number)
    n_bands, n_events, size = len(plan.chances), plan.n_events, plan.n_events + plan.n_parameters
    sums, slopes = np.zeros((n_bands, size, size)), np.zeros((n_bands, n_events, plan.n_parameters))
    with single_thread():
        for part in _runs(block, plan):
            base, events, tied = _rows(part, at)
            person = person_of_row(base)
            is_tied = np.bincount(person, tied) > 0
            copies, of = _copied(base)
            first = 0
            for run in _runs(copies, plan):
                untied = ~is_tied[person[of[first : first + run.n_rankings][run.group_starts]]]
                first += run.n_rankings
                drawn = _drawn(run, plan.mixture, rng)
                bands, found = _residuals(drawn, _events(drawn, plan), drawn, at)
                _add(sums, bands[untied], found[untied], slice(None), slice(None))
                _add(slopes, bands, found, slice(n_events), slice(n_events, None))
            if is_tied.any():
                # Events and scores of rows with ties vary less than those of orders: they are those of the rows.
                own = is_tied[person]
                mine = _events(base.take(own), plan)._replace(happened=events.happened[own])
                _add(sums, *_residuals(base.take(own), mine, part.take(own), at), slice(None), slice(None))
    return sums, slopes


def _copied(base: RankingBlock) -> tuple[RankingBlock, _Integers]:
    """Rows of weight w as about w rows each, of less weight where that is too many; and the row of each."""
    weights, most = base.row_weights, max(_COPIES, base.n_rankings)
    copies = np.ceil(weights * min(1.0, most / max(weights.sum(), 1.0)))
    row = np.repeat(np.arange(base.n_rankings), np.maximum(copies, 1).astype(np.int64))
    return base.replace(ids=None).take(row).replace(weights=(weights / np.maximum(copies, 1))[row]), row


def _drawn(block: RankingBlock, mixture: MixtureParams, rng: np.random.Generator) -> RankingBlock:
    """The rows with new orders of what was on offer, as many places ordered as before; one component per person."""
    person, n_items = person_of_row(block), block.n_items
    numbers = rng.random(int(person[-1]) + 1)
    component = np.searchsorted(np.cumsum(mixture.shares)[:-1], numbers, side="right")[person]
    times = np.log(rng.standard_exponential((len(person), n_items))) - mixture.log_worths[component]
    offered = np.repeat(block.below[:, None], n_items, axis=1)
    offered[block.row_of_item(), block.items.astype(np.intp)] = True
    order = np.argsort(np.where(offered, times, np.inf), axis=1)
    return block.replace(items=order[np.arange(n_items) < block.n_listed[:, None]].astype(block.items.dtype))


def _residuals(block: RankingBlock, events: _Events, scored: RankingBlock, at: _At) -> tuple[_Integers, Floats]:
    """Band (n_persons,) and residual events and scores of persons, times roots of weights; rows without groups."""
    (plan, params), n_items = at, block.n_items
    bands = plan.bands[_lengths(block, events)]
    chances, differences = plan.chances[bands[person_of_row(block)]], events.happened - events.expected
    one, other = np.split(differences[:, n_items:], 2, axis=1)
    found = np.hstack([differences[:, :n_items], (1 - chances) * one - chances * other])
    if block.groups is not None:
        found = np.add.reduceat(found * weights_within(block)[:, None], np.flatnonzero(block.group_starts), axis=0)
    scores = [
        by_unit(one, flat_scores(one, plan.mixture.shares))[0] for one in person_scores(scored, params, plan.ties)
    ]
    whole = np.hstack([found, np.concatenate(scores)[:, : plan.n_parameters]])
    return bands, whole * np.sqrt(person_weights(block))[:, None]


def _add(sums: Floats, bands: _Integers, rows: Floats, left: slice, right: slice) -> None:
    """Add products of columns of rows, band by band."""
    for band in np.unique(bands).tolist():
        own = rows[bands == band]
        sums[band] += own[:, left].T @ own[:, right]


# Draws of a posterior: a copy of every row from each.


class Posterior(NamedTuple):
    """What is checked of a Bayesian fit."""

    point: FittedPoint  # its mode, or what is nearest to it
    caution: str  # why p-values at the point cannot be corrected for the fit; "" where they can be
    draws: list[MixtureParams]


# A plan, the number of its first draw, and the draws.
_AtDraws = tuple[_Plan, int, list[MixtureParams]]


def _leaf_predictive(number: int, block: RankingBlock, at: _AtDraws) -> tuple[Floats, Floats]:
    """Sums by draw: first places by length that are observed, of a copy, and expected; pairs observed, and of a copy.

    (n_draws, 3, 32, n_items) and (n_draws, 2, 2, n_pairs): one way, and the other.
    """
    (plan, first, draws), n_items, copies = at, block.n_items, block.row_weights.astype(np.int64)
    if (copies != block.row_weights).any() or copies.sum() > _MOST_COPIES:
        raise SettingsError("posterior predictive values need weights that are small whole numbers; give max_draws=0")
    rngs = [generator(plan.seed, "check-posterior", draw, number) for draw in range(first, first + len(draws))]
    firsts, pairs = np.zeros((len(draws), 3, _LENGTHS, n_items)), np.zeros((len(draws), 2, 2, len(plan.pairs)))
    copied = block.replace(ids=None).take(np.repeat(np.arange(len(copies)), copies)).replace(weights=None)
    with single_thread():
        for run in _runs(copied, plan):
            seen = _events(run, plan)
            by_length = 1.0 * (np.arange(_LENGTHS)[:, None] == seen.length)
            for draw, (mixture, rng) in enumerate(zip(draws, rngs, strict=True)):
                drawn = _events(_drawn(run, mixture, rng), plan._replace(mixture=mixture))
                of_rows = (seen.happened, drawn.happened, drawn.expected)
                firsts[draw] += [by_length @ one[:, :n_items] for one in of_rows]
                pairs[draw] += [one[:, n_items:].sum(axis=0).reshape(2, -1) for one in of_rows[:2]]
    return firsts, pairs


def _predictive(passes: Passes, plan: _Plan, draws: list[MixtureParams]) -> dict[str, float]:
    """The shares of draws whose copy differs from them as much as the rankings do, or more."""
    at_once = max(1, _MOST_PRODUCTS // (3 * _LENGTHS * plan.mixture.n_items + 4 * len(plan.pairs)))
    chunks = range(0, len(draws), at_once)
    sums = [ask(passes, Request(_PREDICTIVE, (plan, at, draws[at : at + at_once]))) for at in chunks]
    distances: dict[str, list[Any]] = {"first places": [], "pairs": []}
    for mixture, firsts, pairs in zip(draws, *(np.concatenate(one) for one in zip(*sums, strict=True)), strict=True):
        distances["first places"].append([_chi_square(one, firsts[2], _LEAST_EXPECTED) for one in firsts[:2]])
        # As in PLMIX: the chances of a pair are those of mean worths, and one of its two cells counts.
        means = mixture.shares @ choice_probabilities(mixture.log_worths)
        chances = means[plan.pairs[:, 1]] / means[plan.pairs].sum(axis=1)
        distances["pairs"].append([_chi_square(two, (one + two) * chances, 0.0) for one, two in pairs])
    used = list(distances)[: 1 + min(1, len(plan.pairs))]
    return {what: float(np.mean([own <= copy for own, copy in distances[what]])) for what in used}


def _chi_square(observed: Floats, expected: Floats, least: float) -> float:
    used = expected > least
    return float(((observed - expected)[used] ** 2 / expected[used]).sum())


_OBSERVED = Aggregation("check-observed", leaf=_leaf_observed, prepare=_prepare)
_PRODUCTS = Aggregation("check-copy", leaf=_leaf_products, prepare=_prepare)
_PREDICTIVE = Aggregation("check-posterior", leaf=_leaf_predictive)


# The check.


def check_fit(model: Any, X: Any, *, pairs: Any, seed: int, posterior: Posterior | None = None, **how: Any) -> FitCheck:
    """Check a fitted mixture against the rankings of its fit; see `PlackettLuceMixture.check_fit`."""
    if model._linear is not None:
        raise SettingsError("a check of fit is not made of models with features, slates, best-worst or maxdiff")
    fitted = FittedPoint.of(model, "checks of fit") if posterior is None else posterior.point
    if TIES[fitted.ties].order:
        raise SettingsError(f'ties="{fitted.ties}" has ties as outcomes, which are not checked; choose ties="marginal"')
    if not is_joint(fitted.mixture):
        raise SettingsError("a check of fit takes at most 2,000 log-worths together; fit fewer items or components")
    chosen_pairs = _checked_pairs(pairs, fitted.mixture)
    tables = _expected_pairs(fitted.mixture, chosen_pairs, [])
    plan = _Plan(fitted.mixture.unnamed(), fitted.ties, chosen_pairs, seed, len(fitted.layout.of_data), tables)
    with model._passes_over(X, **how) as (passes, _):
        return _checked(passes, fitted, plan, posterior)


def _checked_pairs(pairs: Any, mixture: MixtureParams) -> _Integers:
    """(n_pairs, 2): the pairs that are asked for; None is all of up to 30 items, and none of more."""
    if pairs is None:
        n_items = mixture.n_items if mixture.n_items <= _MOST_PAIRED_ITEMS else 0
        return np.stack(np.triu_indices(n_items, 1), axis=1)
    found = [item_numbers("pairs", pair, mixture.item_names) for pair in pairs]
    if any(len(pair) != 2 for pair in found) or len(found) > _MOST_PAIRS:
        raise SettingsError(f"pairs must be at most {_MOST_PAIRS} lists of two items each")
    return np.array(found, np.int64).reshape(-1, 2)


def _checked(passes: Passes, fitted: FittedPoint, plan: _Plan, posterior: Posterior | None) -> FitCheck:
    whole = Request(information_pass(fitted.ties, joint=True), plan.mixture)
    (totals,), (seen,) = (answer.get() for answer in passes.run([whole, Request(_OBSERVED, plan)]))
    ((solved, layout),) = solve(totals, fitted, "information")
    weight, *by_length, lines, n_tied = seen
    n_items, n_events = plan.mixture.n_items, plan.n_events
    partly = np.flatnonzero(lines[:, 1:].any(axis=0)) + 1
    plan = plan._replace(tables=_expected_pairs(plan.mixture, plan.pairs, partly.tolist()))
    by_length[1][:, n_items:] += lines[:, 1:] @ plan.tables[1:]
    bands = _bands(weight, _MOST_PRODUCTS // (n_events + plan.n_parameters) ** 2)
    of_bands = [bands == band for band in range(int(bands.max()) + 1)]
    observed, expected, offered = (np.stack([one[chosen].sum(axis=0) for chosen in of_bands]) for one in by_length)
    decided, likely = (one[:, n_items:n_events] + one[:, n_events:] for one in (observed, expected))
    chances = expected[:, n_items:n_events] / np.where(likely > 0, likely, 1.0)
    plan = plan._replace(bands=bands, chances=chances)
    products, slopes = ask(passes, Request(_PRODUCTS, plan))
    expected = np.hstack([expected[:, :n_items], chances * decided])
    counts = np.stack([observed[:, :n_events], expected, np.hstack([offered, decided])])
    covariance = np.zeros((len(chances), n_events) * 2)
    for band, own in enumerate(products):
        covariance[band, :, band] = own[:n_events, :n_events]
    cautions = _cautions(fitted, totals, solved, "" if posterior is None else posterior.caution)
    if not cautions:
        known = layout.of_data
        taken = (slopes @ solved.inverse[np.ix_(known, known)]).reshape(-1, plan.n_parameters)
        crossed = taken @ products[:, :n_events, n_events:].reshape(taken.shape).T
        scores = products[:, n_events:, n_events:].sum(axis=0)
        covariance += (taken @ scores @ taken.T - crossed - crossed.T).reshape(covariance.shape)
    if posterior is None or not cautions:
        give_warnings(information.far_from_maximum([solved]))
    notes, predictive = [*cautions, *_notes(fitted, totals, int(n_tied))], None
    if posterior is not None and n_tied:
        notes.append("No posterior predictive value: it is not defined for rankings with ties.")
    elif posterior is not None and posterior.draws:
        predictive = _predictive(passes, plan, posterior.draws)
    p_values, discrepancies = _tests(plan, counts, covariance)
    lengths = []
    for band in range(len(chances) if len(chances) > 1 else 0):
        own, (of_band, _) = bands == band, _tests(plan, counts[:, [band]], covariance[band][None, :, [band]])
        lengths.append(Length(_places(np.flatnonzero(own & (weight > 0))), float(weight[own].sum()), of_band))
    residuals = _residuals_of(fitted.mixture.item_names, plan, counts.sum(axis=1), covariance.sum(axis=(0, 2)))
    found = p_values, discrepancies, residuals, tuple(lengths), tuple(notes), bool(cautions or n_tied), predictive
    return FitCheck(fitted.mixture.n_components, *found)


def _bands(weight: Floats, most: int) -> _Integers:
    """(32,): a band for each length; if there are too many, neighbours share one, of about equal weight.

    Every band has weight: lengths that no ranking has go with the one before them.
    """
    most, present = max(1, min(_MOST_BANDS, most)), weight > 0
    found = np.arange(present.sum())
    if len(found) > most:
        middles = (np.cumsum(weight) - weight / 2)[present]
        _, found = np.unique(np.minimum(np.floor(most * middles / weight.sum()), most - 1), return_inverse=True)
    return np.asarray(found[np.maximum(np.cumsum(present) - 1, 0)], np.int64)


def _cautions(fitted: FittedPoint, totals: Any, solved: Any, known: str) -> list[str]:
    """Why residuals cannot be corrected for the fit; nothing where they can be."""
    why = [known] if known else []
    if fitted.alpha == 0 and solved.singular.shape[1]:
        why.append("the rankings do not determine all parameters")
    if fitted.has_free_shares and (fitted.mixture.shares * totals.weight).min() < 1:
        why.append("a component has hardly any rankings")
    return [f"Conservative: {one}, so p-values are those of given parameters, and too large." for one in why]


def _notes(fitted: FittedPoint, totals: Any, n_tied: int) -> list[str]:
    weak = int(mostly_prior(totals, fitted).sum()) if fitted.alpha > 0 else 0
    ties = f"{n_tied:,} rankings have ties, and count by their orders (ties={fitted.ties!r})."
    less = f"The prior says more than the rankings about {weak} log-worths; there the check has less power."
    return [words for words, are in ((ties, n_tied), (less, weak)) if are]


def _tests(plan: _Plan, counts: Floats, covariance: Floats) -> tuple[dict[str, float], dict[str, float]]:
    """p-values and discrepancies, from counts: observed, expected, and those they are out of (3, n_bands, n_events)."""
    (_, n_bands, _), n_items, together = counts.shape, plan.mixture.n_items, counts.sum(axis=1)
    firsts, of_firsts = counts[:, :, :n_items].reshape(3, -1), covariance[:, :n_items, :, :n_items]
    tests = {"first places": (firsts, of_firsts.reshape((n_bands * n_items,) * 2), firsts.shape[1])}
    if len(plan.pairs):
        tests["pairs"] = together[:, n_items:], covariance.sum(axis=(0, 2))[n_items:, n_items:], 0
    p_values, discrepancies = {}, {}
    for what, (parts, covariances, n_firsts) in tests.items():
        scales = _scales(parts, n_firsts)
        discrepancies[what] = float((((parts[0] - parts[1]) * scales) ** 2).sum())
        rng = generator(plan.seed, "check-null")
        p_values[what] = _p_value(discrepancies[what], covariances * np.outer(scales, scales), rng)
    return p_values, discrepancies


def _residuals_of(names: tuple[str, ...], plan: _Plan, counts: Floats, covariance: Floats) -> tuple[Residual, ...]:
    """The residuals with names, from counts (3, n_events) and their covariance."""
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    known = (errors > 1e-6 * np.sqrt(np.maximum(counts[1], 1.0))) & (_scales(counts, len(names)) > 0)
    z = np.divide(counts[0] - counts[1], errors, out=np.full(len(errors), np.nan), where=known)
    items = [(name,) for name in names] + [(names[one], names[other]) for one, other in plan.pairs.tolist()]
    return tuple(Residual(of, *row) for of, *row in zip(items, *counts.tolist(), z.tolist(), strict=True))


def _scales(counts: Floats, n_firsts: int) -> Floats:
    """What residuals are multiplied with in the discrepancy; a pair has two cells. 0 where too few are expected."""
    expected, other = counts[1], counts[2] - counts[1]
    other[:n_firsts] = np.inf
    used = np.minimum(expected, other) > _LEAST_EXPECTED
    return np.sqrt(np.where(used, 1 / np.where(used, expected, 1.0) + 1 / np.where(used, other, 1.0), 0.0))


def _p_value(discrepancy: float, covariance: Floats, rng: np.random.Generator) -> float:
    """The probability of so large a sum of squares of normal variables with this covariance."""
    with single_thread():
        weights = np.linalg.eigvalsh(covariance)
    weights = weights[weights > 1e-9 * max(weights.max(), 1e-300)]
    reached = rng.chisquare(1.0, (_NULL_DRAWS, len(weights))) @ weights >= discrepancy * (1 - 1e-12)
    return float((1 + reached.sum()) / (1 + _NULL_DRAWS)) if len(weights) else float("nan")


def _places(lengths: _Integers) -> str:
    """Lengths in words."""
    last = f"{lengths[-1]} or more" if lengths[-1] == _LENGTHS - 1 else str(lengths[-1])
    return last if len(lengths) == 1 else f"{lengths[0]} to {last}"
