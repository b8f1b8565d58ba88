"""Point: the parameters of a mixture during a fit; and components of it that lose all their rankings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import CollapsedComponentWarning
from plmix_dist.fitting.algorithm import savable
from plmix_dist.kernels import Prepared, prepare
from plmix_dist.rankings import Floats, generator
from plmix_dist.solvers import Worths

# Log-worths of a component may range over this much during a fit; kernels can tell apart a little more.
WIDEST_POINT = 600.0
_NO_TIES = np.zeros((0, 0))


@savable
class Point(NamedTuple):
    """Parameters of a mixture during a fit, whatever the algorithm."""

    # (n_components, n_items)
    log_worths: Floats
    # (n_components,): log-worth of the prior's ghost item in each component; free, and unused without a prior.
    ghosts: Floats
    # (n_components,); where shares depend on covariates, the coefficients (n_components, n_columns + 1) of log-shares,
    # intercepts first, which add up to zero over the components.
    log_shares: Floats
    # (n_components, n_orders - 1), or one line that all components share: logarithms of the weights of ties of two,
    # three and more items, where ties are outcomes; otherwise (0, 0).
    log_ties: Floats = _NO_TIES

    @classmethod
    def start(cls, log_worths: Floats, shares: Floats, ghosts: Floats | None = None) -> Point:
        """The point that a fit begins with; unknown ghosts are placed at the mean of the items."""
        centred = log_worths - log_worths.mean(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            return cls(centred, np.zeros(len(shares)) if ghosts is None else ghosts, np.log(shares))

    @classmethod
    def gathered(cls, components: Sequence[Worths], log_shares: Floats, log_ties: Floats = _NO_TIES) -> Point:
        """The point whose components have these worths."""
        return cls(
            np.array([worths.log_worths for worths in components]),
            np.array([worths.ghost for worths in components]),
            log_shares,
            log_ties,
        )

    @property
    def n_components(self) -> int:
        """The number of components."""
        return len(self.log_shares)

    @property
    def n_parameters(self) -> int:
        """The length of `flat`."""
        return self.log_worths.size + self.ghosts.size + self.log_shares.size + self.log_ties.size

    def components(self) -> list[Worths]:
        """The worths of each component."""
        ties = np.broadcast_to(self.log_ties[:, 0] if self.log_ties.size else -np.inf, len(self.ghosts))
        return [Worths(*own) for own in zip(self.log_worths, self.ghosts.tolist(), ties.tolist(), strict=True)]

    def prepared(self) -> Prepared:
        """The parameters as kernels take them."""
        return prepare(self.log_worths, self.log_shares, self.log_ties)

    def flat(self) -> Floats:
        """(n_parameters,): log-worths component by component, ghosts, log-shares, log-weights of ties."""
        return np.concatenate((self.log_worths.ravel(), self.ghosts, self.log_shares.ravel(), self.log_ties.ravel()))

    def log_range(self) -> float:
        """The widest range of log-worths in any component."""
        return float(np.ptp(self.log_worths, axis=1).max())

    def like(self, vector: Floats) -> Point:
        """The point of a flat vector, log-worths centred and shares summing to one, or their coefficients centred."""
        n_worths, n_components = self.log_worths.size, self.n_components
        worths = vector[:n_worths].reshape(self.log_worths.shape)
        ghosts = vector[n_worths : n_worths + n_components]
        log_shares = vector[n_worths + n_components : len(vector) - self.log_ties.size].reshape(self.log_shares.shape)
        log_ties = vector[len(vector) - self.log_ties.size :].reshape(self.log_ties.shape)
        centre = worths.mean(axis=1)
        total = np.logaddexp.reduce(log_shares) if log_shares.ndim == 1 else log_shares.mean(axis=0)
        return Point(worths - centre[:, None], ghosts - centre, log_shares - total, log_ties)


# Components that lose all their rankings: seeded again a few times, then dropped.

# A component with less than this share of all rankings has collapsed.
SMALLEST_SHARE = 1e-6
_MOST_RESEEDS = 3


class _Mended(NamedTuple):
    """Where a fit goes on after a component has collapsed, and the event for its record."""

    point: Point
    event: dict[str, Any]


def _collapsed_components(point: Point) -> NDArray[np.int64]:
    """The components with next to no share."""
    if point.n_components == 1:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.exp(point.log_shares) < SMALLEST_SHARE)


def has_collapsed(point: Point) -> bool:
    """Whether some component has next to no share."""
    return len(_collapsed_components(point)) > 0


def mend_collapsed(
    point: Point, events: Sequence[dict[str, Any]], iteration: int, key: tuple[int, int]
) -> _Mended | None:
    """The point to go on from where a component has collapsed; None where none has.

    A collapsed component is seeded again near the largest one, whose share it halves. After a few times it is dropped.
    `key` is the seed and the number of the fit: random numbers depend on these and on the events so far, nothing else.
    """
    if not has_collapsed(point):
        return None
    n_reseeds = sum(event["action"] == "reseed" for event in events)
    if n_reseeds >= _MOST_RESEEDS:
        return drop_collapsed(point, iteration)
    component = int(_collapsed_components(point)[0])
    event = {"iteration": iteration, "component": component, "action": "reseed"}
    largest = int(np.argmax(point.log_shares))
    log_worths, ghosts, shares = point.log_worths.copy(), point.ghosts.copy(), np.exp(point.log_shares)
    log_worths[component] = log_worths[largest] + _draw(key, n_reseeds, log_worths.shape[1])
    log_worths[component] -= log_worths[component].mean()
    ghosts[component] = ghosts[largest]
    shares[component] = shares[largest] = shares[largest] / 2
    log_ties = point.log_ties.copy()
    if len(log_ties) > 1:
        log_ties[component] = log_ties[largest]
    return _Mended(Point(log_worths, ghosts, np.log(shares / shares.sum()), log_ties), event)


def drop_collapsed(point: Point, iteration: int) -> _Mended:
    """The point without the first component that has collapsed."""
    component = int(_collapsed_components(point)[0])
    keep = np.arange(point.n_components) != component
    shares = np.exp(point.log_shares[keep])
    log_ties = point.log_ties[keep] if len(point.log_ties) > 1 else point.log_ties
    left = Point(point.log_worths[keep], point.ghosts[keep], np.log(shares / shares.sum()), log_ties)
    return _Mended(left, {"iteration": iteration, "component": component, "action": "drop"})


def collapse_warnings(events: Sequence[dict[str, Any]], n_left: int, n_components: int) -> list[Warning]:
    """One warning if a finished fit has fewer components left than were asked for."""
    if n_left == n_components:
        return []  # a component that was seeded again and keeps its rankings needs no warning
    n_seeded = sum(event["action"] == "reseed" for event in events)
    seeded = f"{n_seeded} seeded again, " if n_seeded else ""
    words = (
        f"components lost all their rankings ({seeded}{n_components - n_left} dropped): {n_left} of {n_components} "
        "components are left; choose fewer, or a smaller alpha"
    )
    return [CollapsedComponentWarning(words)]


def _draw(key: tuple[int, int], n_before: int, n_items: int) -> Floats:
    """Standard normal numbers (n_items,): the stream of this fit, after what earlier reseeds have drawn."""
    seed, number = key
    drawn: Floats = generator(seed, "collapse", number).standard_normal((n_before + 1, n_items))[-1]
    return drawn
