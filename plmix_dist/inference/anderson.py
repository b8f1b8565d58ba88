"""Anderson acceleration of a fixed-point iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.inference.saved_state import savable

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEMORY = 5


@savable
class AndersonMemory(NamedTuple):
    """The last few points, and how far the map moved each: (n_kept, n_parameters) each.

    Examples
    --------
    >>> memory, point = AndersonMemory.empty(2), np.array([4.0, 1.0])
    >>> for _ in range(4):  # the map x -> x / 2, x -> x / 3 has its fixed point at 0
    ...     memory, point = propose(memory, point, point / np.array([2.0, 3.0]))
    >>> bool(np.abs(point).max() < 1e-12)
    True
    """

    points: NDArray[np.float64]
    residuals: NDArray[np.float64]

    @classmethod
    def empty(cls, n_parameters: int) -> AndersonMemory:
        """Nothing remembered."""
        return cls(np.empty((0, n_parameters)), np.empty((0, n_parameters)))


def propose(
    memory: AndersonMemory, point: NDArray[np.float64], image: NDArray[np.float64]
) -> tuple[AndersonMemory, NDArray[np.float64]]:
    """The memory with a point and its image under the map added, and the next point.

    Examples
    --------
    >>> _, first = propose(AndersonMemory.empty(1), np.array([2.0]), np.array([1.0]))
    >>> first.tolist()
    [1.0]
    """
    residual = image - point
    if not np.isfinite(residual).all():
        return AndersonMemory.empty(len(point)), image
    points = np.concatenate([memory.points[-MEMORY:], point[None]])
    residuals = np.concatenate([memory.residuals[-MEMORY:], residual[None]])
    memory = AndersonMemory(points, residuals)
    if len(points) < 2:
        return memory, image
    steps, changes = points[1:] - points[:-1], residuals[1:] - residuals[:-1]
    mixing = np.linalg.lstsq(changes.T, residual, rcond=1e-10)[0]
    proposal: NDArray[np.float64] = image - mixing @ (steps + changes)
    return memory, proposal if np.isfinite(proposal).all() else image
