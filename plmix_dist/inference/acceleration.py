"""Anderson acceleration of a fixed-point iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Anderson:
    """Proposes the next point from the last few points and where the iteration took them.

    Examples
    --------
    >>> anderson, point = Anderson(memory=2), np.array([4.0, 1.0])
    >>> for _ in range(4):  # the map x -> x / 2, x -> x / 3 has its fixed point at 0
    ...     point = anderson.propose(point, point / np.array([2.0, 3.0]))
    >>> bool(np.abs(point).max() < 1e-12)
    True
    """

    def __init__(self, memory: int = 5) -> None:
        self.memory = memory
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._points: list[NDArray[np.float64]] = []
        self._residuals: list[NDArray[np.float64]] = []

    def propose(self, point: NDArray[np.float64], image: NDArray[np.float64]) -> NDArray[np.float64]:
        """The next point, given a point and its image under the map."""
        residual = image - point
        if not np.isfinite(residual).all():
            self.forget()
            return image
        self._points = [*self._points[-self.memory :], point]
        self._residuals = [*self._residuals[-self.memory :], residual]
        if len(self._points) < 2:
            return image
        steps = np.diff(np.array(self._points), axis=0)
        changes = np.diff(np.array(self._residuals), axis=0)
        mixing = np.linalg.lstsq(changes.T, residual, rcond=1e-10)[0]
        proposal: NDArray[np.float64] = image - mixing @ (steps + changes)
        return proposal if np.isfinite(proposal).all() else image
