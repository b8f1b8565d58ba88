"""What a mixture says of each ranking: the probability of each component, the most probable one, its log-likelihood."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.engine.by_row import RowFunction
from plmix_dist.errors import SettingsError
from plmix_dist.kernels import prepare, row_posteriors
from plmix_dist.rankings.linear_extensions import extend_ties
from plmix_dist.rankings.person_shares import with_person_shares
from plmix_dist.rankings.tie_treatments import TIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from plmix_dist.kernels import Prepared
    from plmix_dist.mixture import MixtureParams
    from plmix_dist.rankings import RankingBlock


def probabilities_of(mixture: MixtureParams, ties: str = "marginal") -> RowFunction:
    """(n_rankings, n_components): the probability of each component for each ranking.

    With ties="expand" the result of a ranking with ties is the mean over its linear extensions. Rankings of a group
    have the probabilities of their person.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.by_row import rows_now
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams(np.log([[3.0, 1.0], [1.0, 3.0]]), np.array([0.5, 0.5]), ("a", "b"))
    >>> rows_now(as_rankings([[0, 1]]), probabilities_of(mixture)).round(6).tolist()
    [[0.75, 0.25]]
    """
    return RowFunction(
        partial(_probabilities, ties), _params(mixture), prepared_of, n_columns=mixture.n_components
    )


def components_of(mixture: MixtureParams, ties: str = "marginal") -> RowFunction:
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
    return RowFunction(partial(_components, ties), _params(mixture), prepared_of, dtype=np.int64)


def log_likelihoods_of(mixture: MixtureParams, ties: str = "marginal") -> RowFunction:
    """(n_rankings,): the log-likelihood of each ranking; in a group, given the rankings of the person before it.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.by_row import rows_now
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams(np.log([[3.0, 1.0]]), np.array([1.0]), ("a", "b"))
    >>> np.exp(rows_now(as_rankings([[0, 1]]), log_likelihoods_of(mixture))).round(6).tolist()
    [0.75]
    """
    return RowFunction(partial(_log_likelihoods, ties), _params(mixture), prepared_of)


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


def posteriors_by_ranking(
    ties: str, block: RankingBlock, params: Prepared
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-likelihood (n_rankings,) and posterior (n_rankings, n_components) of each row, its ties treated.

    Examples
    --------
    >>> from plmix_dist.rankings import Ranking, RankingBlock
    >>> block = RankingBlock.from_rows([Ranking(((0, 1), (2,)), (), "absent", 1.0)], n_items=3)
    >>> params = prepared_of((np.zeros((1, 3)), np.zeros(1)))
    >>> [np.exp(posteriors_by_ranking(ties, block, params)[0]).round(4).tolist() for ties in ("expand", "marginal")]
    [[0.1667], [0.3333]]
    """
    if not TIES[ties].extends or not block.has_ties:
        return row_posteriors(block, params)
    extended = extend_ties(block)
    logs, posteriors = row_posteriors(extended.block, params)
    return extended.mean_by_row(logs), extended.mean_by_row(posteriors)


def _probabilities(ties: str, block: RankingBlock, params: Prepared) -> NDArray[np.float64]:
    return posteriors_by_ranking(ties, block, params)[1]


def _components(ties: str, block: RankingBlock, params: Prepared) -> NDArray[np.int64]:
    most: NDArray[np.int64] = np.argmax(posteriors_by_ranking(ties, block, params)[1], axis=1)
    return most


def _log_likelihoods(ties: str, block: RankingBlock, params: Prepared) -> NDArray[np.float64]:
    return posteriors_by_ranking(ties, block, params)[0]


def with_own_shares(function: RowFunction, coefficients: NDArray[np.float64]) -> RowFunction:
    """A row function in which each person has shares of its own, made from the covariates of the rows.

    Parameters
    ----------
    function
        One that looks at shares by posteriors alone.
    coefficients : (n_components, n_columns + 1)

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.by_row import rows_now
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams(np.zeros((2, 2)), np.array([0.5, 0.5]), ("a", "b"))
    >>> own = with_own_shares(probabilities_of(mixture), np.array([[0.0, 0.0], [0.0, np.log(3)]]))
    >>> rows_now(as_rankings([[0, 1], [0, 1]], covariates=[0.0, 1.0]), own).round(6).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    return replace(
        function,
        of_block=partial(_of_persons, function.of_block),
        params=(function.params, coefficients),
        prepare=partial(_prepare_own, function.prepare),
    )


def _prepare_own(prepare_params: Callable[[Any], Any], params: tuple[Any, NDArray[np.float64]]) -> Any:
    return prepare_params(params[0]), params[1]


def _of_persons(
    of_block: Callable[[RankingBlock, Any], NDArray[Any]],
    block: RankingBlock,
    params: tuple[Any, NDArray[np.float64]],
) -> NDArray[Any]:
    return of_block(with_person_shares(block, params[1]), params[0])


def check_columns(
    coefficients: NDArray[np.float64] | None, covariates: NDArray[np.float64] | None
) -> NDArray[np.float64] | None:
    """The coefficients of a model; an error if rankings do not come with the covariates that they are for.

    Examples
    --------
    >>> check_columns(np.zeros((2, 2)), None)
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: shares of this model depend on 1 covariates of persons; pass ...
    """
    if coefficients is None:
        if covariates is None:
            return None
        raise SettingsError(
            "this model was fitted without membership_covariates; leave them out, or fit it with them"
        )
    n_columns = coefficients.shape[1] - 1
    if covariates is None:
        if not n_columns:
            return None
        raise SettingsError(
            f"shares of this model depend on {n_columns} covariates of persons; pass membership_covariates "
            "(--covariates)"
        )
    if covariates.shape[1] != n_columns:
        raise SettingsError(
            f"membership_covariates has {covariates.shape[1]} columns, but the model was fitted with {n_columns}"
        )
    return coefficients
