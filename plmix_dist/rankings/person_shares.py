"""Shares of a person: a multinomial logit on columns of the person.

log share_k(person) = z' gamma_k - log sum over l of exp(z' gamma_l), where z begins with 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings.block import RankingBlock


def log_shares_at(covariates: NDArray[np.float64], coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n_rows, n_components): log-shares of each row.

    Columns are added one after the other, so the bits of a row depend on nothing but the row.

    Parameters
    ----------
    covariates : (n_rows, n_columns)
    coefficients : (n_components, n_columns + 1)
        The intercept first.

    Examples
    --------
    >>> np.exp(log_shares_at(np.array([[0.0], [1.0]]), np.array([[0.0, 0.0], [0.0, np.log(3)]]))).round(6).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    # Components by rows: NumPy is slow along short last axes.
    logits = np.tile(coefficients[:, :1], (1, len(covariates)))
    for column in range(covariates.shape[1]):
        logits += coefficients[:, column + 1, None] * covariates[:, column]
    logits -= logits.max(axis=0)
    logits -= np.log(np.exp(logits).sum(axis=0))
    return np.ascontiguousarray(logits.T)


def with_person_shares(block: RankingBlock, coefficients: NDArray[np.float64]) -> RankingBlock:
    """The block with the log-shares of each row, made from its covariates.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1]]).replace(covariates=np.array([[1.0]]))
    >>> shared = with_person_shares(block, np.array([[0.0, 0.0], [0.0, np.log(3)]]))
    >>> np.exp(shared.log_shares).round(6).tolist()
    [[0.25, 0.75]]
    """
    assert block.covariates is not None, "shares of persons need covariates"
    return block.replace(log_shares=log_shares_at(block.covariates, coefficients))
