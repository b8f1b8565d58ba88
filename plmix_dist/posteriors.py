"""What a mixture says of each ranking: the probability of each component, the most probable one, its log-likelihood."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.engine.by_row import RowFunction
from plmix_dist.kernels import prepare, row_posteriors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from plmix_dist.kernels import Prepared
    from plmix_dist.mixture import MixtureParams
    from plmix_dist.rankings import RankingBlock


def probabilities_of(mixture: MixtureParams) -> RowFunction:
    """(n_rankings, n_components): the probability of each component for each ranking.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.by_row import rows_now
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams(np.log([[3.0, 1.0], [1.0, 3.0]]), np.array([0.5, 0.5]), ("a", "b"))
    >>> rows_now(as_rankings([[0, 1]]), probabilities_of(mixture)).round(6).tolist()
    [[0.75, 0.25]]
    """
    return RowFunction(_probabilities, _params(mixture), prepared_of, n_columns=mixture.n_components)


def components_of(mixture: MixtureParams) -> RowFunction:
    """(n_rankings,): the most probable component of each ranking.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.by_row import rows_now
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams(np.log([[3.0, 1.0], [1.0, 3.0]]), np.array([0.5, 0.5]), ("a", "b"))
    >>> rows_now(as_rankings([[1, 0]]), components_of(mixture)).tolist()
    [1]
    """
    return RowFunction(_components, _params(mixture), prepared_of, dtype=np.int64)


def log_likelihoods_of(mixture: MixtureParams) -> RowFunction:
    """(n_rankings,): the log-likelihood of each ranking.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.by_row import rows_now
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams(np.log([[3.0, 1.0]]), np.array([1.0]), ("a", "b"))
    >>> np.exp(rows_now(as_rankings([[0, 1]]), log_likelihoods_of(mixture))).round(6).tolist()
    [0.75]
    """
    return RowFunction(_log_likelihoods, _params(mixture), prepared_of)


def prepared_of(params: Sequence[NDArray[np.float64]]) -> Prepared:
    """What kernels take, from log-worths (n_components, n_items) and log-shares (n_components,).

    Examples
    --------
    >>> prepared_of((np.zeros((2, 3)), np.log([0.5, 0.5]))).n_components
    2
    """
    return prepare(params[0], params[1])


def _params(mixture: MixtureParams) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return mixture.log_worths, mixture.log_shares


def _probabilities(block: RankingBlock, params: Prepared) -> NDArray[np.float64]:
    return row_posteriors(block, params)[1]


def _components(block: RankingBlock, params: Prepared) -> NDArray[np.int64]:
    most: NDArray[np.int64] = np.argmax(row_posteriors(block, params)[1], axis=1)
    return most


def _log_likelihoods(block: RankingBlock, params: Prepared) -> NDArray[np.float64]:
    return row_posteriors(block, params)[0]
