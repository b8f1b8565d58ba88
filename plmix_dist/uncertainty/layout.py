"""The parameters of a mixture as one vector: log-worths, ghosts of the prior, logits of the shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.solvers.ghost import probabilities_against_ghost

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Layout:
    """Which parameters a vector has: log-worths component by component, then ghosts, then logits of the shares.

    Parameters
    ----------
    n_components, n_items
        The size of the mixture.
    ghosts
        Whether there is a prior, and so one ghost per component.
    free_shares
        Whether shares were estimated. Fixed shares are no parameters.
    shown_shares
        Whether shares are among the results; they are not in the block of one component.

    Examples
    --------
    >>> Layout(2, 3, ghosts=True, free_shares=True).size
    10
    """

    n_components: int
    n_items: int
    ghosts: bool
    free_shares: bool
    shown_shares: bool = True

    @property
    def n_worths(self) -> int:
        """The number of log-worths."""
        return self.n_components * self.n_items

    @property
    def size(self) -> int:
        """The length of the vector."""
        return self.n_worths + self.n_components * (int(self.ghosts) + int(self.free_shares))

    @property
    def of_data(self) -> NDArray[np.int64]:
        """Where the log-worths and the logits stand."""
        worths = np.arange(self.n_worths)
        if not self.free_shares:
            return worths
        return np.concatenate([worths, np.arange(self.size - self.n_components, self.size)])

    def from_data(self, information: NDArray[np.float64]) -> NDArray[np.float64]:
        """(size, size): the information in log-worths and logits, with rows for ghosts and none for fixed shares."""
        whole = np.zeros((self.size, self.size))
        n_known = len(self.of_data)
        whole[np.ix_(self.of_data, self.of_data)] = information[:n_known, :n_known]
        return whole

    def unfelt(self) -> NDArray[np.float64]:
        """(size, n_unfelt): directions that change nothing: constants on a component, and on all logits."""
        shares = int(self.free_shares)
        n_worths = self.n_components if self.n_items else 0
        found = np.zeros((self.size, n_worths + shares))
        for k in range(n_worths):
            found[k * self.n_items : (k + 1) * self.n_items, k] = 1.0
            if self.ghosts:
                found[self.n_worths + k, k] = 1.0
        if shares:
            found[-self.n_components :, -1] = 1.0
        return found

    def to_results(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_results, size): derivatives of centred log-worths and of shares in the parameters."""
        n_shares = self.n_components if self.shown_shares else 0
        found = np.zeros((self.n_worths + n_shares, self.size))
        for k in range(self.n_components if self.n_items else 0):
            place = slice(k * self.n_items, (k + 1) * self.n_items)
            found[place, place] = np.eye(self.n_items) - 1 / self.n_items
        if self.free_shares:
            found[self.n_worths :, -self.n_components :] = np.diag(shares) - np.outer(shares, shares)
        return found

    def prior(
        self, log_worths: NDArray[np.float64], ghosts: NDArray[np.float64], alpha: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The prior's own information (size, size), and its gradient (size,)."""
        information, gradient = np.zeros((self.size, self.size)), np.zeros(self.size)
        if not self.ghosts:
            return information, gradient
        for k in range(self.n_components):
            items, ghost = np.arange(k * self.n_items, (k + 1) * self.n_items), self.n_worths + k
            beats, loses = probabilities_against_ghost(log_worths[k], float(ghosts[k]))
            second = 2 * alpha * beats * loses
            information[items, items] += second
            information[items, ghost] -= second
            information[ghost, items] -= second
            information[ghost, ghost] += second.sum()
            gradient[items] += alpha * (loses - beats)
            gradient[ghost] -= alpha * float((loses - beats).sum())
        return information, gradient
