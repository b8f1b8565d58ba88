"""What each group likes, how sure that is, what sets it apart, and what choices depend on: numbers for the page.

The scale is the chance that an item ranks above an item of average log-worth. It does not depend on how many items
there are, a half means average, and the ends of intervals of log-worths carry over.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from plmix_dist.display.marks import Html, label, percent
from plmix_dist.errors import SettingsError
from plmix_dist.kernels import Prepared
from plmix_dist.passes import Aggregation
from plmix_dist.prediction.choices import Reading, choice_probabilities, top_k_probabilities
from plmix_dist.prediction.posteriors import posteriors_by_ranking, prepared_first
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.groups import with_person_shares
from plmix_dist.store import MixtureParams
from plmix_dist.uncertainty.results import Coefficients, Interval, StandardErrors

# Show all items of a component up to 15, otherwise the best 10.
_SHOW_ALL = 15
_MOST_SHOWN = 10
# What sets a component apart: up to 4 items above and 4 below the mixture, if they differ by at least this chance.
_MOST_APART = 4
_APART = 0.05
_PLACES = 3
_BEGINNINGS = 3
_HEAT_ROWS = 24


class _Scale(NamedTuple):
    """Chances to rank above an average item."""

    chance: Floats  # (n_components, n_items)
    low: Floats  # (n_components, n_items): NaN without an interval
    high: Floats
    overall: Floats  # (n_items,): the mean over components by their shares
    first: Floats  # (n_components, n_items): the probability to be chosen first from all items; NaN without one
    first_overall: Floats  # (n_items,)
    by: Floats  # (n_components, n_items): what puts items in order, the best with the largest number


class _Apart(NamedTuple):
    """An item that a component ranks differently: its chance here and overall, and the ratio of first choices."""

    item: int
    here: float
    overall: float
    lift: float


class _Beginning(NamedTuple):
    """The first places of a ranking: their items, best first, and how probable these places are."""

    items: tuple[int, ...]
    probability: float


class _ComponentView(NamedTuple):
    """All that the page shows of one component."""

    number: int  # from 0, as everywhere in Python and in files
    share: float
    low: float  # interval of the share; NaN where there is none
    high: float
    shown: list[int]  # items by worth, best first
    n_more: int  # how many items are left out
    liked: list[_Apart]  # what sets it apart, the largest difference first
    disliked: list[_Apart]
    best: list[int]  # the items of largest worth
    last: int  # the item of least worth
    beginnings: list[_Beginning]  # the most probable first places


def group_names(n_components: int, given: Sequence[str] | None = None) -> list[str]:
    """What groups are called: as given, or by their numbers from 1."""
    if given is None:
        return [f"group {number}" for number in range(1, n_components + 1)]
    names = [given] if isinstance(given, str) else [str(name) for name in given]
    if len(names) != n_components or len(set(names)) != n_components or not all(name.strip() for name in names):
        raise SettingsError(
            f"names must be {n_components} different name{'s'[: n_components != 1]}, one per component, the largest "
            f"share first, but {'are' if len(names) != 1 else 'is'} {', '.join(map(repr, names)) or 'none'}"
        )
    return names


def scale_of(mixture: MixtureParams, intervals: Interval | None, reading: Reading | None = None) -> _Scale:
    """Worths on a scale that needs no statistics, as they are to be read; by default as those of plain models."""
    logs = mixture.log_worths
    chance = expit(logs)
    low = high = np.full(logs.shape, np.nan)
    if intervals is not None:
        low, high = (expit(end) for end in intervals.log_worths)
    _, by, first, _ = reading or Reading("all", logs, choice_probabilities(logs))
    first = np.full(logs.shape, np.nan) if first is None else first
    return _Scale(chance, low, high, mixture.shares @ chance, first, mixture.shares @ first, by)


def component_views(mixture: MixtureParams, scale: _Scale, intervals: Interval | None) -> list[_ComponentView]:
    """One view per component."""
    lows = highs = np.full(mixture.n_components, np.nan)
    if intervals is not None:
        lows, highs = intervals.shares
    ends = zip(lows.tolist(), highs.tolist(), strict=True)
    return [_view(number, mixture, scale, *own) for number, own in enumerate(ends)]


def _view(number: int, mixture: MixtureParams, scale: _Scale, low: float, high: float) -> _ComponentView:
    order = np.argsort(-scale.by[number], kind="stable")
    shown = order if mixture.n_items <= _SHOW_ALL else order[:_MOST_SHOWN]
    gain = scale.chance[number] - scale.overall
    by_gain = np.argsort(-gain, kind="stable")
    liked = [_apart(number, int(item), scale) for item in by_gain[:_MOST_APART] if gain[item] >= _APART]
    disliked = [_apart(number, int(item), scale) for item in by_gain[::-1][:_MOST_APART] if gain[item] <= -_APART]
    share = float(mixture.shares[number])
    best = order[:_PLACES].tolist()
    beginnings = _most_probable_beginnings(mixture.log_worths[number])
    items, n_more = shown.tolist(), len(order) - len(shown)
    return _ComponentView(number, share, low, high, items, n_more, liked, disliked, best, int(order[-1]), beginnings)


def group_sentence(view: _ComponentView, names: Sequence[str], unit: str, kind: str = "all") -> Html:
    """One group in words: how large it is, what it ranks first and last, and how it differs from all together."""
    found = f"{percent(view.share)} of the {unit}s"
    if kind == "none":
        return Html(f"{found}.")
    best, last = _SAID[kind]
    found += f". {best.format(_listed(view.best, names))}"
    if last and view.last not in view.best:
        found += f" and {_listed([view.last], names)} {last}"
    apart = [("more", view.liked), ("less", view.disliked)]
    words = [f"{_listed([one.item for one in some[:2]], names)} {how}" for how, some in apart if some]
    among = ", among those of the same slate" if kind == "slates" else ""
    return Html(f"{found}. Compared with everyone, they like {' and '.join(words)}{among}." if words else f"{found}.")


# What a group is said to like best and least, by how log-worths are read (`Reading`).
_SAID = {
    "all": ("They rank {} highest", "lowest"),
    "equal": ("At equal features, they rank {} highest", "lowest"),
    "scale": ("They like {} most", "least"),
    "slates": ("Most often they choose {} first", ""),
}


def _listed(items: Sequence[int], names: Sequence[str]) -> str:
    shown = [label(names[item]) for item in items]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _most_probable_beginnings(log_worths: Floats, n_places: int = _PLACES) -> list[_Beginning]:
    """The three most probable orders of the first places in one component, from its log-worths (n_items,).

    They use none but the best `n_places + 2` items: a better item in place of a worse one is always more probable.
    """
    n_places = min(n_places, len(log_worths))
    candidates = np.argsort(-log_worths, kind="stable")[: n_places + _BEGINNINGS - 1].tolist()
    worths = np.exp(log_worths - np.logaddexp.reduce(log_worths))
    found = []
    for items in permutations(candidates, n_places):
        taken = np.cumsum([0.0, *worths[list(items[:-1])]])
        left = np.maximum(1.0 - taken, worths[list(items)])  # rounding may leave less than the item itself
        found.append(_Beginning(items, float(np.prod(worths[list(items)] / left))))
    return sorted(found, key=lambda one: -one.probability)[:_BEGINNINGS]


def _apart(number: int, item: int, scale: _Scale) -> _Apart:
    lift = float(scale.first[number, item] / max(scale.first_overall[item], np.finfo(np.float64).tiny))
    return _Apart(item, float(scale.chance[number, item]), float(scale.overall[item]), lift)


def items_that_differ(scale: _Scale, most: int = _HEAT_ROWS) -> list[int]:
    """The items of a heat map: all of a few, else those on which components differ most; best overall first."""
    n_items = scale.chance.shape[1]
    chosen = np.arange(n_items)
    if n_items > most:
        spread = scale.chance.max(axis=0) - scale.chance.min(axis=0)
        chosen = np.sort(np.argsort(-spread, kind="stable")[:most])
    return [int(item) for item in chosen[np.argsort(-scale.overall[chosen], kind="stable")]]


# What choices and shares depend on.

_FACTOR = float(ndtri(0.975))


class _Effects(NamedTuple):
    """Numbers (n_components, n) by name, their standard errors, and ends of 95 % intervals; NaN where not known."""

    names: tuple[str, ...]
    values: Floats
    errors: Floats
    low: Floats
    high: Floats


def effects_of(model: Any, errors: StandardErrors | None) -> dict[str, _Effects]:
    """Coefficients of "features" and of "shares", and the "cohesion" of slates: what of these a model has."""
    found = {}
    if model._linear is not None:
        terms, end = model._linear
        known, first = getattr(errors, "coefficients", None), terms.n_worths
        if len(terms.names) > first:
            found["features"] = _effects(terms.names[first:], end.point.coefficients[:, first:], known, first)
        if model.cohesion_ is not None:
            found["cohesion"] = _cohesion(terms.choices.names, terms.design[terms.n_items :], model.cohesion_, known)
    shares = model._coefficients
    if shares is not None:
        numbered = [f"covariate {number}" for number in range(shares.shape[1] - 1)]
        names = ("intercept", *(getattr(model, "covariate_names_", None) or numbered))
        found["shares"] = _effects(names, shares, getattr(errors, "share_coefficients", None))
    return found


def _effects(names: tuple[str, ...], values: Floats, known: Coefficients | None, first: int = 0) -> _Effects:
    spread = np.full(values.shape, np.nan) if known is None else known.standard_errors[:, first:]
    return _Effects(names, values, spread, values - _FACTOR * spread, values + _FACTOR * spread)


def _cohesion(names: tuple[str, ...], columns: Floats, cohesion: Floats, known: Coefficients | None) -> _Effects:
    """Cohesion with errors by the delta method, on logits; `columns` (n_slates, n_columns) make utilities of slates."""
    shape = (len(cohesion), columns.shape[1])
    slopes = (columns - (cohesion @ columns)[:, None]) / (1 - cohesion)[:, :, None]  # derivatives of logits
    covariance = np.full(shape * 2, np.nan) if known is None else known.covariance.reshape(shape * 2)
    spread = np.sqrt(np.einsum("ksi,kikj,ksj->ks", slopes, covariance, slopes))
    ends = (expit(logit(cohesion) + sign * _FACTOR * spread) for sign in (-1, 1))
    return _Effects(names, cohesion, cohesion * (1 - cohesion) * spread, *ends)


# How certain memberships are, summed over all rankings in one pass.

_N_BINS = 20
# A membership is certain from this probability on.
_CERTAIN = 0.9


class MembershipSums(NamedTuple):
    """Memberships of all rankings; of all persons where rankings have groups."""

    # (n_components, n_bins): weight by the most probable component, and by its probability in bins from 0 to 1.
    histogram: Floats
    # (n_components, n_components): [k, j] is the sum of the probabilities of j over what belongs most probably to k.
    together: Floats
    certain: Floats  # (n_components,): weight of memberships of at least 90 %
    weight: Floats  # (n_components,): weight of what belongs most probably to k

    @property
    def certainty(self) -> Floats:
        """(n_components,): the mean probability of the most probable component; NaN where nothing belongs."""
        total: Floats = np.where(self.weight > 0, self.weight, np.nan)
        return np.diag(self.together) / total

    @property
    def share_certain(self) -> float:
        """The share of memberships of at least 90 %."""
        return float(self.certain.sum() / self.weight.sum())

    def next_best(self, number: int) -> int:
        """The component that takes most of what a component does not."""
        return int(np.where(np.arange(len(self.weight)) == number, -1.0, self.together[number]).argmax())


def membership_sums(posteriors: Floats, weights: Floats) -> MembershipSums:
    """Sums over memberships (n_rankings, n_components) with weights (n_rankings,)."""
    n_components = posteriors.shape[1]
    component = posteriors.argmax(axis=1)
    largest = posteriors.max(axis=1, initial=0.0)
    bins = np.minimum((largest * _N_BINS).astype(np.int64), _N_BINS - 1)
    histogram = np.zeros((n_components, _N_BINS))
    np.add.at(histogram, (component, bins), weights)
    together = np.zeros((n_components, n_components))
    np.add.at(together, component, weights[:, None] * posteriors)

    def total(of_row: NDArray[Any]) -> Floats:
        return np.bincount(component, of_row, minlength=n_components).astype(np.float64)

    return MembershipSums(histogram, together, total(weights * (largest >= _CERTAIN)), total(weights))


def _leaf(_number: int, block: RankingBlock, params: tuple[Prepared, Floats | None, str]) -> MembershipSums:
    """The memberships of one leaf; a person of several rankings counts once."""
    prepared, coefficients, ties = params
    if coefficients is not None:
        block = with_person_shares(block, coefficients)
    _, posteriors = posteriors_by_ranking(ties, block, prepared)
    if block.groups is None:
        return membership_sums(posteriors, block.row_weights)
    first = block.group_starts
    return membership_sums(posteriors[first], np.ones(int(first.sum())))


MEMBERSHIPS = Aggregation("memberships", leaf=_leaf, prepare=prepared_first)


# Where items stand, observed and expected, over the rankings that offer all items.

_MOST_PLACES = 10


class _Ranks(NamedTuple):
    """Shares of rankings with an item at a place, among those that have the place: (n_places, n_items)."""

    observed: Floats
    expected: Floats
    weight: Floats  # (n_places,): of the rankings that offer all items, have no ties and order this place

    def shown(self, most: int) -> list[int]:
        """The items to show, the best first."""
        points = np.arange(len(self.expected), 0, -1) @ self.expected
        return list(map(int, np.argsort(-points, kind="stable")[:most]))


def _leaf_ranks(_number: int, block: RankingBlock, _params: Any) -> Floats:
    """(n_places, n_items): the weight of the rankings with each item at each place."""
    row, place = block.row_of_item(), block.place_of_item()
    whole = block.below | (block.n_listed == block.n_items)
    if block.tied is not None:
        whole &= np.bincount(row, block.tied, block.n_rankings) == 0
    n_places = min(block.n_items, _MOST_PLACES)
    own = whole[row] & (place < np.minimum(block.n_ordered, n_places)[row])
    cells = place[own] * block.n_items + block.items[own].astype(np.int64)
    found = np.zeros((n_places, block.n_items))
    np.add.at(found.ravel(), cells, block.row_weights[row[own]])
    return found


_RANKS = Aggregation("ranks", leaf=_leaf_ranks)


def ranks_of(model: Any, rows: Any, **how: Any) -> _Ranks:
    """Where items stand in rankings, and where the mixture expects them."""
    mixture = model._plain_mixture()
    counts = model._total(_RANKS, rows, **how)
    weight = counts.sum(axis=1)
    if not weight[0]:
        raise SettingsError("no ranking here offers all items without ties, so places are not those of all items")
    counts, weight = counts[weight > 0], weight[weight > 0]
    within = [mixture.shares @ top_k_probabilities(mixture.log_worths, k) for k in range(len(weight) + 1)]
    return _Ranks(counts / weight[:, None], np.diff(within, axis=0), weight)
