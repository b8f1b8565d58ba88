"""What each component likes, how sure that is, and what sets it apart from the mixture: numbers for the page.

The scale is the chance that an item ranks above an item of average log-worth. It does not depend on how many items
there are, a half means average, and the ends of intervals of log-worths carry over.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import expit

from plmix_dist.choices import choice_probabilities

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.mixture import MixtureParams
    from plmix_dist.uncertainty.results import StandardErrors

# Up to so many items a component shows all of them; of more, so many of the best.
_SHOW_ALL = 15
_MOST_SHOWN = 10
# What sets a component apart: so many items above and below the mixture, if they differ by at least this chance.
_MOST_APART = 4
_APART = 0.05
_PLACES = 3
_BEGINNINGS = 3
_HEAT_ROWS = 24


class Scale(NamedTuple):
    """Chances to rank above an average item.

    Parameters
    ----------
    chance, low, high : (n_components, n_items)
        `low` and `high` are NaN where there is no interval.
    overall : (n_items,)
        The mean over components by their shares.
    first : (n_components, n_items)
        The probability to be chosen first from all items.
    first_overall : (n_items,)
    """

    chance: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    overall: NDArray[np.float64]
    first: NDArray[np.float64]
    first_overall: NDArray[np.float64]


class Line(NamedTuple):
    """An item in a component."""

    item: int
    chance: float
    low: float
    high: float
    first: float


class Apart(NamedTuple):
    """An item that a component ranks differently: its chance here and overall, and the ratio of first choices."""

    item: int
    here: float
    overall: float
    lift: float


class Beginning(NamedTuple):
    """The first places of a ranking: their items, best first, and how probable these places are."""

    items: tuple[int, ...]
    probability: float


class ComponentView(NamedTuple):
    """All that the page says about one component.

    Parameters
    ----------
    number
        From 0, as everywhere in Python and in files.
    share, low, high
        Its share, and the interval of it; NaN where there is none.
    lines
        Items by worth, best first.
    n_more
        How many items are left out.
    liked, disliked
        What sets it apart, the largest difference first.
    best
        The items of largest worth.
    beginnings
        The most probable first places.
    """

    number: int
    share: float
    low: float
    high: float
    lines: list[Line]
    n_more: int
    liked: list[Apart]
    disliked: list[Apart]
    best: list[int]
    beginnings: list[Beginning]


def scale_of(mixture: MixtureParams, errors: StandardErrors | None) -> Scale:
    """Worths on a scale that needs no statistics.

    Examples
    --------
    >>> from plmix_dist.mixture import MixtureParams
    >>> scale_of(MixtureParams.of(np.log([[3.0, 1.0 / 3.0]]), None, ["tea", "mate"]), None).chance.round(6).tolist()
    [[0.75, 0.25]]
    """
    logs = mixture.log_worths
    chance = expit(logs)
    low = high = np.full(logs.shape, np.nan)
    if errors is not None:
        low, high = (expit(end) for end in errors.intervals().log_worths)
    first = choice_probabilities(logs)
    return Scale(chance, low, high, mixture.shares @ chance, first, mixture.shares @ first)


def component_views(
    mixture: MixtureParams, scale: Scale, errors: StandardErrors | None
) -> list[ComponentView]:
    """One view per component.

    Examples
    --------
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams.of([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]], [0.6, 0.4], ["tea", "mate", "milk"])
    >>> views = component_views(mixture, scale_of(mixture, None), None)
    >>> views[1].beginnings[0].items, [apart.item for apart in views[1].liked]
    ((1, 2, 0), [1])
    """
    lows = highs = np.full(mixture.n_components, np.nan)
    if errors is not None:
        lows, highs = errors.intervals().shares
    return [
        _view(number, mixture, scale, float(lows[number]), float(highs[number]))
        for number in range(mixture.n_components)
    ]


def _view(number: int, mixture: MixtureParams, scale: Scale, low: float, high: float) -> ComponentView:
    order = np.argsort(-mixture.log_worths[number], kind="stable")
    shown = order if mixture.n_items <= _SHOW_ALL else order[:_MOST_SHOWN]
    lines = [
        Line(
            int(item), *(float(values[number, item]) for values in (scale.chance, scale.low, scale.high, scale.first))
        )
        for item in shown
    ]  # fmt: skip
    gain = scale.chance[number] - scale.overall
    by_gain = np.argsort(-gain, kind="stable")
    liked = [_apart(number, int(item), scale) for item in by_gain[:_MOST_APART] if gain[item] >= _APART]
    disliked = [
        _apart(number, int(item), scale) for item in by_gain[::-1][:_MOST_APART] if gain[item] <= -_APART
    ]
    share = float(mixture.shares[number])
    best = [int(item) for item in order[:_PLACES]]
    beginnings = most_probable_beginnings(mixture.log_worths[number])
    n_more = len(order) - len(shown)
    return ComponentView(number, share, low, high, lines, n_more, liked, disliked, best, beginnings)


def most_probable_beginnings(log_worths: NDArray[np.float64], n_places: int = _PLACES) -> list[Beginning]:
    """The three most probable orders of the first places in one component.

    They use none but the best `n_places + 2` items: a better item in place of a worse one is always more probable.

    Parameters
    ----------
    log_worths : (n_items,)
    n_places
        How many places.

    Examples
    --------
    >>> found = most_probable_beginnings(np.log([3.0, 2.0, 1.0]), n_places=1)
    >>> [(one.items, round(one.probability, 4)) for one in found]
    [((0,), 0.5), ((1,), 0.3333), ((2,), 0.1667)]
    """
    n_places = min(n_places, len(log_worths))
    candidates = np.argsort(-log_worths, kind="stable")[: n_places + _BEGINNINGS - 1].tolist()
    worths = np.exp(log_worths - np.logaddexp.reduce(log_worths))
    found = []
    for items in permutations(candidates, n_places):
        taken = np.cumsum([0.0, *worths[list(items[:-1])]])
        left = np.maximum(1.0 - taken, worths[list(items)])  # rounding may leave less than the item itself
        found.append(Beginning(items, float(np.prod(worths[list(items)] / left))))
    return sorted(found, key=lambda one: -one.probability)[:_BEGINNINGS]


def _apart(number: int, item: int, scale: Scale) -> Apart:
    lift = float(scale.first[number, item] / max(scale.first_overall[item], np.finfo(np.float64).tiny))
    return Apart(item, float(scale.chance[number, item]), float(scale.overall[item]), lift)


def items_that_differ(scale: Scale, most: int = _HEAT_ROWS) -> list[int]:
    """The items of a heat map: all of a few, else those on which components differ most; best overall first.

    Examples
    --------
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams.of([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]], [0.6, 0.4], ["tea", "mate", "milk"])
    >>> items_that_differ(scale_of(mixture, None), most=2)
    [0, 1]
    """
    n_items = scale.chance.shape[1]
    chosen = np.arange(n_items)
    if n_items > most:
        spread = scale.chance.max(axis=0) - scale.chance.min(axis=0)
        chosen = np.sort(np.argsort(-spread, kind="stable")[:most])
    return [int(item) for item in chosen[np.argsort(-scale.overall[chosen], kind="stable")]]
