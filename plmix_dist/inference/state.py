"""EmState: all that an EM iteration changes, as arrays and as one flat vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Log-worths of a component may range over this much on the way; kernels can tell apart a little more.
WIDEST_STATE = 600.0


class EmState(NamedTuple):
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
    ) -> EmState:
        """The state that a fit begins with; ghosts stand at the items' mean where they are not known."""
        centred = log_worths - log_worths.mean(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            return cls(centred, np.zeros(len(shares)) if ghosts is None else ghosts, np.log(shares))

    def flat(self) -> NDArray[np.float64]:
        """One vector of everything."""
        return np.concatenate([self.log_worths.ravel(), self.ghosts, self.log_shares])

    def log_range(self) -> float:
        """The widest range of log-worths in any component."""
        return float(np.ptp(self.log_worths, axis=1).max())

    def like(self, vector: NDArray[np.float64]) -> EmState:
        """The state that `flat` made this vector of, log-worths centred and shares summing to one."""
        n_components, n_items = self.log_worths.shape
        worths = vector[: n_components * n_items].reshape(n_components, n_items)
        ghosts = vector[n_components * n_items : -n_components]
        log_shares = vector[-n_components:]
        centre = worths.mean(axis=1)
        total = np.logaddexp.reduce(log_shares)
        return EmState(worths - centre[:, None], ghosts - centre, log_shares - total)
