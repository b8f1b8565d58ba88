"""Point: the parameters of a mixture during a fit, as arrays and as one flat vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.inference.saved_state import savable

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Log-worths of a component may range over this much during a fit; kernels can tell apart a little more.
WIDEST_POINT = 600.0


@savable
class Point(NamedTuple):
    """Parameters of a mixture during a fit.

    Parameters
    ----------
    log_worths : (n_components, n_items)
    ghosts : (n_components,)
        Log-worth of the prior's ghost item in each component; free, and unused without a prior.
    log_shares : (n_components,)
    """

    log_worths: NDArray[np.float64]
    ghosts: NDArray[np.float64]
    log_shares: NDArray[np.float64]

    @classmethod
    def start(
        cls,
        log_worths: NDArray[np.float64],
        shares: NDArray[np.float64],
        ghosts: NDArray[np.float64] | None = None,
    ) -> Point:
        """The point that a fit begins with; unknown ghosts are placed at the mean of the items.

        Examples
        --------
        >>> Point.start(np.array([[1.0, 3.0]]), np.ones(1)).log_worths.tolist()
        [[-1.0, 1.0]]
        """
        centred = log_worths - log_worths.mean(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            return cls(centred, np.zeros(len(shares)) if ghosts is None else ghosts, np.log(shares))

    @property
    def n_components(self) -> int:
        """The number of components."""
        return len(self.log_shares)

    @property
    def n_parameters(self) -> int:
        """The length of `flat`."""
        return self.log_worths.size + 2 * len(self.log_shares)

    def flat(self) -> NDArray[np.float64]:
        """(n_parameters,): log-worths component by component, ghosts, log-shares.

        Examples
        --------
        >>> Point.start(np.array([[1.0, 3.0]]), np.ones(1)).flat().tolist()
        [-1.0, 1.0, 0.0, 0.0]
        """
        return np.concatenate([self.log_worths.ravel(), self.ghosts, self.log_shares])

    def log_range(self) -> float:
        """The widest range of log-worths in any component.

        Examples
        --------
        >>> Point.start(np.array([[1.0, 3.0]]), np.ones(1)).log_range()
        2.0
        """
        return float(np.ptp(self.log_worths, axis=1).max())

    def like(self, vector: NDArray[np.float64]) -> Point:
        """The point of a flat vector, log-worths centred and shares summing to one.

        Examples
        --------
        >>> point = Point.start(np.array([[1.0, 3.0]]), np.ones(1))
        >>> point.like(point.flat() + 5.0)
        Point(log_worths=array([[-1.,  1.]]), ghosts=array([0.]), log_shares=array([0.]))
        """
        n_components, n_items = self.log_worths.shape
        worths = vector[: n_components * n_items].reshape(n_components, n_items)
        ghosts = vector[n_components * n_items : -n_components]
        log_shares = vector[-n_components:]
        centre = worths.mean(axis=1)
        total = np.logaddexp.reduce(log_shares)
        return Point(worths - centre[:, None], ghosts - centre, log_shares - total)
