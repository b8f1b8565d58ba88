"""Components that lose all their rankings: seeded again a few times, then dropped."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.errors import CollapsedComponentWarning
from plmix_dist.inference.point import Point
from plmix_dist.rankings.randomness import generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# A component with less than this share of all rankings has collapsed.
SMALLEST_SHARE = 1e-6
_MOST_RESEEDS = 3


class Mended(NamedTuple):
    """Where a fit goes on after a component has collapsed, and the event for its record."""

    point: Point
    event: dict[str, Any]


def collapsed_components(point: Point) -> NDArray[np.int64]:
    """The components with next to no share.

    Examples
    --------
    >>> collapsed_components(Point.start(np.zeros((2, 3)), np.array([1.0, 0.0]))).tolist()
    [1]
    """
    if point.n_components == 1:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.exp(point.log_shares) < SMALLEST_SHARE)


def has_collapsed(point: Point) -> bool:
    """Whether some component has next to no share.

    Examples
    --------
    >>> has_collapsed(Point.start(np.zeros((2, 3)), np.array([0.5, 0.5])))
    False
    """
    return len(collapsed_components(point)) > 0


def mend_collapsed(
    point: Point, events: Sequence[dict[str, Any]], iteration: int, key: tuple[int, int]
) -> Mended | None:
    """The point to go on from where a component has collapsed; None where none has.

    A collapsed component is seeded again near the largest one, whose share it halves. After a few times it is dropped.
    `key` is the seed and the number of the fit: random numbers depend on these and on the events so far, nothing else.

    Examples
    --------
    >>> mended = mend_collapsed(Point.start(np.zeros((2, 3)), np.array([1.0, 0.0])), [], 7, key=(0, 0))
    >>> mended.event
    {'iteration': 7, 'component': 1, 'action': 'reseed'}
    >>> np.exp(mended.point.log_shares).tolist()
    [0.5, 0.5]
    """
    if not has_collapsed(point):
        return None
    n_reseeds = sum(event["action"] == "reseed" for event in events)
    if n_reseeds >= _MOST_RESEEDS:
        return drop_collapsed(point, iteration)
    component = int(collapsed_components(point)[0])
    event = {"iteration": iteration, "component": component, "action": "reseed"}
    largest = int(np.argmax(point.log_shares))
    log_worths, ghosts, shares = point.log_worths.copy(), point.ghosts.copy(), np.exp(point.log_shares)
    log_worths[component] = log_worths[largest] + _draw(key, n_reseeds, log_worths.shape[1])
    log_worths[component] -= log_worths[component].mean()
    ghosts[component] = ghosts[largest]
    shares[component] = shares[largest] = shares[largest] / 2
    return Mended(Point(log_worths, ghosts, np.log(shares / shares.sum())), event)


def drop_collapsed(point: Point, iteration: int) -> Mended:
    """The point without the first component that has collapsed.

    Examples
    --------
    >>> drop_collapsed(Point.start(np.zeros((2, 3)), np.array([1.0, 0.0])), iteration=7).point.n_components
    1
    """
    component = int(collapsed_components(point)[0])
    keep = np.arange(point.n_components) != component
    shares = np.exp(point.log_shares[keep])
    left = Point(point.log_worths[keep], point.ghosts[keep], np.log(shares / shares.sum()))
    return Mended(left, {"iteration": iteration, "component": component, "action": "drop"})


def warn_of_collapsed(
    events: Sequence[dict[str, Any]], n_left: int, n_components: int, stacklevel: int
) -> None:
    """One warning if a finished fit has fewer components left than were asked for.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     warn_of_collapsed([{"iteration": 7, "component": 1, "action": "drop"}], 2, 3, stacklevel=2)
    >>> print(said[0].message)
    components lost all their rankings (1 dropped): 2 of 3 components are left; choose fewer, or a smaller alpha
    """
    if n_left == n_components:
        return  # a component that was seeded again and holds its own is no reason to worry
    n_seeded = sum(event["action"] == "reseed" for event in events)
    seeded = f"{n_seeded} seeded again, " if n_seeded else ""
    warnings.warn(
        f"components lost all their rankings ({seeded}{n_components - n_left} dropped): {n_left} of {n_components} "
        "components are left; choose fewer, or a smaller alpha",
        CollapsedComponentWarning,
        stacklevel=stacklevel + 1,
    )


def _draw(key: tuple[int, int], n_before: int, n_items: int) -> NDArray[np.float64]:
    """Standard normal numbers (n_items,): the stream of this fit, after what earlier reseeds have drawn."""
    seed, number = key
    drawn: NDArray[np.float64] = generator(seed, "collapse", number).standard_normal((n_before + 1, n_items))[
        -1
    ]
    return drawn
