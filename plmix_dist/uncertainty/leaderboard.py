"""Leaderboards: ratings of each component and of the whole mixture, with intervals, ranks, tiers and win rates."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, logsumexp, ndtri

from plmix_dist.cluster.clients import ClientLike
from plmix_dist.datasets.given import as_rankings
from plmix_dist.display.marks import aligned
from plmix_dist.errors import SettingsError
from plmix_dist.kernels import Prepared, pairwise_wins
from plmix_dist.metrics import match_components
from plmix_dist.passes import Aggregation, BlockLeaves, Rankings, Request, ask
from plmix_dist.prediction.choices import item_numbers, table_of
from plmix_dist.prediction.posteriors import ALL, posteriors_by_ranking, prepared_of
from plmix_dist.rankings import TIES, Floats, RankingBlock, Unranked
from plmix_dist.rankings.groups import merge_if_short
from plmix_dist.settings import one_of, real_number, whole_number
from plmix_dist.store import MixtureParams
from plmix_dist.uncertainty.bootstrap import bootstrap
from plmix_dist.uncertainty.standard_errors import errors_on

_SCALES = {"elo": (1000.0, 400 / np.log(10)), "log": (0.0, 1.0)}
_INTERVALS = ("sandwich", "bootstrap")
_LEVEL = 0.95
_FACTOR = float(ndtri((1 + _LEVEL) / 2))


class _Board(NamedTuple):
    """Ratings (n_items,) on the scale of log-worths, their covariance (n_items, n_items), and the ends of intervals."""

    ratings: Floats
    covariance: Floats | None = None
    ends: tuple[Floats, Floats] | None = None

    @property
    def ranks(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First and last place that each item may have: 1 + those surely better, and those not surely worse."""
        low, high = (self.ratings, self.ratings) if self.ends is None else self.ends
        first = 1 + np.count_nonzero(low[None, :] > high[:, None], axis=1)
        last = np.count_nonzero(~(high[None, :] < low[:, None]), axis=1)
        return first, last

    @property
    def tiers(self) -> NDArray[np.int64]:
        """(n_items,): from 1; a tier has the best item that is left, and those that cannot be told apart from it."""
        assert self.covariance is not None
        variances, order = np.diag(self.covariance), np.argsort(-self.ratings, kind="stable")
        tiers, tier, best = np.ones(len(order), np.int64), 1, order[0]
        for item in order:
            error = np.sqrt(max(variances[best] + variances[item] - 2 * self.covariance[best, item], 0.0))
            if self.ratings[best] - self.ratings[item] > _FACTOR * error:
                tier, best = tier + 1, item
            tiers[item] = tier
        return tiers


def leaderboard(
    model: Any,
    X: Any = None,
    *,
    scale: str = "elo",
    interval: str = "sandwich",
    anchor: Any = None,
    against: Any = None,
    without_noise: bool = False,
    n_replicates: int = 200,
    random_state: Any = 0,
    sample_weight: ArrayLike | None = None,
    unranked: Unranked | None = None,
    client: ClientLike = None,
    membership_covariates: ArrayLike | None = None,
    features: Any = None,
    table: str = "auto",
) -> Any:
    """The leaderboard of a fitted mixture; the same as `model.leaderboard(X)`, which describes the parameters.

    Examples
    --------
    >>> battles = [["tea", "mate"]] * 30 + [["mate", "tea"]] * 10
    >>> model = plm.PlackettLuceMixture(1, alpha=0.0).fit(battles)
    >>> board = model.leaderboard(battles, table="dict")
    >>> board["item"].tolist(), board["rating"].round(1).tolist(), board["win_rate"].tolist()
    (['tea', 'mate'], [1095.4, 904.6], [0.75, 0.25])
    """
    offset, factor = _SCALES[one_of("scale", scale, tuple(_SCALES))]
    one_of("interval", interval, _INTERVALS)
    mixture = model._comparable()
    shown = _shown(model, without_noise)
    fixed = _anchor(anchor, mixture, offset)
    boards, votes = [_Board(one) for one in _lines(mixture.log_worths, mixture.shares, shown, fixed)], None
    if X is not None:
        of_rows = {"unranked": unranked, "membership_covariates": membership_covariates, "features": features}
        counted = model._rankings(X, **of_rows)
        if sample_weight is None:
            weighted = counted = _merged(counted)
        else:
            weighted = model._rankings(X, sample_weight=sample_weight, **of_rows)
        if interval == "sandwich":
            boards = _by_sandwich(model, weighted, shown, fixed, client)
        else:
            found = bootstrap(model, weighted, n_replicates, random_state=random_state, client=client)
            boards = _by_replicates(_lines(found.log_worths, found.shares, shown, fixed), boards)
        with model._passes_over(counted, client=client) as (passes, _):
            counts = Aggregation("votes", leaf=partial(_leaf_votes, model._ties), prepare=prepared_of)
            votes = ask(passes, Request(counts, mixture.unnamed()))
    level = offset if fixed is None else fixed[1]
    before = None if against is None else _before(against, mixture, shown, scale, anchor, without_noise)
    parts = []
    for number, board in enumerate(boards):
        of_all = number == len(shown)
        key: Any = ALL if of_all else shown[number]
        columns: dict[str, Any] = {"component": np.full(mixture.n_items, key, object)}
        columns |= {"item": np.array(mixture.item_names, object), "rating": level + factor * board.ratings}
        if board.ends is not None and board.covariance is not None:
            columns |= {"lower": level + factor * board.ends[0], "upper": level + factor * board.ends[1]}
        columns["rank"], columns["rank_last"] = board.ranks
        if board.covariance is not None:
            columns["tier"] = board.tiers
        if votes is not None:
            sums = [part[shown].sum(axis=0) if of_all else part[shown[number]] for part in votes]
            columns["votes"] = sums[0]
            with np.errstate(invalid="ignore"):
                columns["win_rate"] = sums[1] / sums[2]
        if before is not None:
            columns["before"] = before[number]
            columns["change"] = columns["rating"] - before[number]
        order = np.argsort(-board.ratings, kind="stable")
        parts.append({name: values[order] for name, values in columns.items()})
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if table in ("polars", "arrow"):  # whose columns have one type
        whole["component"] = whole["component"].astype(str)
    return table_of(whole, table)


def _merged(rankings: Rankings) -> Rankings:
    """Rankings in memory with equal short rows merged to counts; others as they are."""
    source = rankings.source
    if not isinstance(source, BlockLeaves) or rankings.covariates is not None or source.block.features is not None:
        return rankings
    return replace(rankings, source=BlockLeaves(merge_if_short(source.block.replace(ids=None))))


def _shown(model: Any, without_noise: bool) -> list[int]:
    """The components that have a leaderboard: that of noise, which comes last, has none where it is left out."""
    n_components = model._mixture().n_components
    if not without_noise:
        return list(range(n_components))
    if not getattr(model, "noise", False):
        raise SettingsError("this model has no noise component to leave out; fit it with noise=True")
    return list(range(n_components - 1))


def _anchor(anchor: Any, mixture: MixtureParams, offset: float) -> tuple[int, float] | None:
    """The item that is held, and its rating; None if the average item is."""
    if anchor is None:
        return None
    name, value = next(iter(anchor.items())) if isinstance(anchor, Mapping) and len(anchor) == 1 else (anchor, offset)
    return int(item_numbers("anchor", [name], mixture.item_names)[0]), real_number("anchor", value)


def _lines(log_worths: Floats, shares: Floats, shown: list[int], anchor: tuple[int, float] | None) -> Floats:
    """(n_boards, ..., n_items): log-worths of each component, then of the mixture if there are several.

    The mixture's is the log-worth whose chance against the average item is the mixture's: the mean over components.
    """
    own = [log_worths[..., k, :] for k in shown]
    if len(shown) > 1:
        with np.errstate(divide="ignore"):
            logs = np.log(shares[..., shown, None])
        worths = log_worths[..., shown, :]
        own.append(logsumexp(logs + log_expit(worths), axis=-2) - logsumexp(logs + log_expit(-worths), axis=-2))
    lines = np.stack(own)
    return lines if anchor is None else lines - lines[..., [anchor[0]]]


def _by_sandwich(
    model: Any, rankings: Rankings, shown: list[int], anchor: tuple[int, float] | None, client: ClientLike
) -> list[_Board]:
    """Boards with intervals by the sandwich, with the row or person as unit.

    Weights that were given are not counts here: a row that counts v times as much as its own weight says has v squared
    in the middle of the sandwich. With groups that follows from the scores of persons.
    """
    mixture, squared = model._mixture(), _squared_weights(rankings)
    covariance = errors_on(model, rankings, "sandwich", client, squared, "intervals of a leaderboard").covariance
    n_items, n_worths = mixture.n_items, mixture.log_worths.size
    places = [slice(k * n_items, (k + 1) * n_items) for k in shown]
    found = [covariance[place, place] for place in places]
    if len(shown) > 1:
        # By the delta method, from the chance of the mixture p to its logit.
        chances, shares = expit(mixture.log_worths[shown]), mixture.shares[shown] / mixture.shares[shown].sum()
        chance = shares @ chances
        slopes = np.zeros((n_items, len(covariance)))
        for k, place, own in zip(shown, places, chances, strict=True):
            rows = np.arange(n_items)
            slopes[rows, rows + place.start] = mixture.shares[k] * own * (1 - own)
            slopes[:, n_worths + k] = own - chance
        slopes /= (mixture.shares[shown].sum() * chance * (1 - chance))[:, None]
        found.append(slopes @ covariance @ slopes.T)
    if anchor is not None:
        found = [one - one[[anchor[0]]] - one[:, [anchor[0]]] + one[anchor[0], anchor[0]] for one in found]
    boards = []
    for line, one in zip(_lines(mixture.log_worths, mixture.shares, shown, anchor), found, strict=True):
        spread = _FACTOR * np.sqrt(np.maximum(np.diag(one), 0.0))
        boards.append(_Board(line, one, (line - spread, line + spread)))
    return boards


def _squared_weights(rankings: Rankings) -> Rankings | None:
    """The rankings with what the middle of a sandwich has for weights; None if those of the rows are right."""
    if rankings.weights is None:
        return None
    blocks = list(rankings.source.iter_leaves(0, rankings.n_leaves, labels=False))
    if any(block.groups is not None for block in blocks):
        return None
    return replace(rankings, weights=rankings.weights**2 / np.concatenate([block.row_weights for block in blocks]))


def _by_replicates(lines: Floats, at: list[_Board]) -> list[_Board]:
    """Boards with the percentiles of replicates (n_boards, n_replicates, n_items)."""
    sides = 100 * (1 - _LEVEL) / 2
    return [
        _Board(board.ratings, np.atleast_2d(np.cov(drawn.T)), tuple(np.percentile(drawn, [sides, 100 - sides], axis=0)))
        for drawn, board in zip(lines, at, strict=True)
    ]


def _leaf_votes(ties: str, _number: int, block: RankingBlock, params: Prepared) -> tuple[Floats, ...]:
    """Sums over rows, each (n_components, n_items): rankings that list an item, pairs that it won, and its pairs."""
    posteriors = posteriors_by_ranking(ties, block, params)[1]
    extended = TIES[ties].extended(block)
    wins = pairwise_wins(extended.block, posteriors[extended.row])
    weighted = (posteriors * block.row_weights[:, None])[block.row_of_item()]
    votes = [np.bincount(block.items, own, minlength=block.n_items) for own in weighted.T]
    won = wins.sum(axis=2)
    return np.array(votes), won, won + wins.sum(axis=1)


def _before(
    old: Any, mixture: MixtureParams, shown: list[int], scale: str, anchor: Any, without_noise: bool
) -> list[Floats]:
    """For each board, the ratings (n_items,) of another model; NaN for items that it does not have.

    Components are matched by their log-worths. Where the numbers of components differ, only the mixture is compared.
    """
    if not hasattr(old, "_mixture"):
        raise SettingsError(f"against must be a fitted model, but is {type(old).__name__}")
    theirs = old._comparable()
    number_of = {name: number for number, name in enumerate(theirs.item_names)}
    known = np.array([number_of.get(name, -1) for name in mixture.item_names])
    both = known >= 0
    if not both.any():
        raise SettingsError("the other model has none of the items of this one, so there is nothing to compare")
    old_shown = _shown(old, without_noise and bool(getattr(old, "noise", False)))
    offset, factor = _SCALES[scale]
    fixed = _anchor(anchor, theirs, offset)
    lines = _lines(theirs.log_worths, theirs.shares, old_shown, fixed)
    ratings = (offset if fixed is None else fixed[1]) + factor * lines
    found = np.full((len(shown) + (len(shown) > 1), mixture.n_items), np.nan)
    if len(old_shown) == len(shown):
        match = match_components(theirs.log_worths[old_shown][:, known[both]], mixture.log_worths[shown][:, both])
        found[: len(shown), both] = ratings[match][:, known[both]]
    if len(shown) > 1:
        found[-1, both] = ratings[-1, known[both]]
    return list(found)


def pair_weights(X: Any, *, min_count: float = 50, unranked: Unranked | None = None) -> Floats:
    """Weights of battles against uneven pairing, for `sample_weight`: every pair of items counts about the same.

    A battle of a pair that met N times has weight 1 / max(N, min_count), as in arena-rank; a row of weight w has w
    times that.

    Parameters
    ----------
    X, unranked
        Battles, as in `PlackettLuceMixture.fit`: every row lists two items.
    min_count
        Pairs that met less often than this count less than others.

    Returns
    -------
    weights : (n_rankings,)

    Examples
    --------
    >>> plm.pair_weights([["a", "b"], ["b", "a"], ["a", "c"]], min_count=1).tolist()
    [0.5, 0.5, 1.0]
    """
    whole_number("min_count", min_count, at_least=1)
    rankings: Rankings = as_rankings(X, unranked=unranked, default_unranked="absent")
    keys, weights, first = [], [], 0
    for block in rankings.source.iter_leaves(0, rankings.n_leaves, labels=False):
        other = np.flatnonzero((block.n_listed != 2) | block.below)
        if len(other):
            row = int(other[0])
            raise SettingsError(
                f"row {first + row} is not a battle of two items: it lists {block.n_listed[row]}"
                f"{' and has others below them' if block.below[row] else ''}; pair_weights are for pairs alone"
            )
        pairs = np.sort(block.items.reshape(-1, 2).astype(np.int64), axis=1)
        keys.append(pairs[:, 0] * rankings.n_items + pairs[:, 1])
        weights.append(block.row_weights)
        first += block.n_rankings
    own = np.concatenate(weights)
    _, pair = np.unique(np.concatenate(keys), return_inverse=True)
    return own / np.maximum(np.bincount(pair, own), min_count)[pair]


def board_cells(board: Mapping[str, Any]) -> list[list[str]]:
    """A leaderboard in words: the names of the columns, then one list of cells per row."""
    names = [name for name in board if name not in ("lower", "upper", "rank_last")]
    return [names, *([_cell(board, name, row) for name in names] for row in range(len(board["item"])))]


def board_lines(board: Mapping[str, Any], form: str = "table") -> list[str]:
    """A leaderboard as lines of text: "table" (aligned), "markdown" or "csv" (all digits)."""
    if form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(board)
        writer.writerows(zip(*(np.asarray(values).tolist() for values in board.values()), strict=True))
        return text.getvalue().splitlines()
    rows = board_cells(board)
    words = [place for place, name in enumerate(rows[0]) if name in ("component", "item")]
    if form == "markdown":
        escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        rule = ["---" if place in words else "---:" for place in range(len(rows[0]))]
        return [f"| {' | '.join(row)} |" for row in (escaped[0], rule, *escaped[1:])]
    return aligned(rows, left=words)


def _cell(board: Mapping[str, Any], name: str, row: int) -> str:
    """One cell in words; a rating has its interval, a rank its range."""
    value = board[name][row]
    if name in ("component", "item"):
        return str(value)
    if name == "rank":
        last = board["rank_last"][row]
        return f"{value}" if last <= value else f"{value}-{last}"
    if name == "win_rate":
        return "-" if np.isnan(value) else f"{100 * value:.1f} %"
    if name in ("tier", "votes"):
        return f"{value:,.0f}"
    digits = 1 if abs(float(np.nanmax(np.abs(board["rating"])))) > 100 else 3
    if name == "rating" and "lower" in board:
        ends = board["lower"][row], board["upper"][row]
        return f"{value:.{digits}f} [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"
    return "-" if np.isnan(value) else f"{value:+.{digits}f}" if name == "change" else f"{value:.{digits}f}"
