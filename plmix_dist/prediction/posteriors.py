"""Row functions: memberships, likelihoods and predictions of a mixture for each row of a store, an array or a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from plmix_dist.errors import SettingsError
from plmix_dist.kernels import Prepared, prepare, row_posteriors
from plmix_dist.kernels.em_pass import component_logs, memberships_at
from plmix_dist.passes import Aggregation, RowFunction
from plmix_dist.prediction import given_rows
from plmix_dist.prediction.most_probable import MOST_STEPS, most_probable
from plmix_dist.rankings import TIES, Floats, RankingBlock
from plmix_dist.rankings.groups import membership_weight, with_person_shares
from plmix_dist.settings import shown
from plmix_dist.store import MixtureParams

ALL = "all"


def probabilities_of(mixture: MixtureParams, ties: str = "marginal") -> RowFunction:
    """(n_rankings, n_components): the probability of each component for each ranking.

    With ties="expand" the result of a ranking with ties is the mean over its linear extensions. Rankings of a group
    have the probabilities of their person.

    Examples
    --------
    >>> from plmix_dist.datasets.given import as_rankings
    >>> from plmix_dist.passes.by_row import rows_now
    >>> mixture = plm.MixtureParams(np.log([[3.0, 1.0], [1.0, 3.0]]), np.array([0.5, 0.5]), ("a", "b"))
    >>> rows_now(as_rankings([[0, 1]]), probabilities_of(mixture)).round(6).tolist()
    [[0.75, 0.25]]
    """
    return RowFunction(partial(_probabilities, ties), mixture.unnamed(), prepared_of, n_columns=mixture.n_components)


def components_of(mixture: MixtureParams, ties: str = "marginal") -> RowFunction:
    """(n_rankings,): the most probable component of each ranking."""
    return RowFunction(partial(_components, ties), mixture.unnamed(), prepared_of, dtype=np.int64)


def log_likelihoods_of(mixture: MixtureParams, ties: str = "marginal") -> RowFunction:
    """(n_rankings,): the log-likelihood of each ranking; in a group, given the rankings of the person before it."""
    return RowFunction(partial(_log_likelihoods, ties), mixture.unnamed(), prepared_of)


def prepared_of(mixture: MixtureParams) -> Any:
    """The parameters of a mixture, ready for kernels."""
    if mixture.rows is not None:
        return mixture.rows
    return prepare(mixture.log_worths, mixture.log_shares, mixture.log_ties)


def prepared_first(params: tuple[MixtureParams, *tuple[Any, ...]]) -> tuple[Prepared, *tuple[Any, ...]]:
    """Parameters of an aggregation, of which the first is a mixture, ready for kernels."""
    mixture, *more = params
    return prepared_of(mixture), *more


def posteriors_by_ranking(ties: str, block: RankingBlock, params: Prepared) -> tuple[Floats, Floats]:
    """Log-likelihood (n_rankings,) and posterior (n_rankings, n_components) of each row, its ties treated."""
    if not TIES[ties].extends or not block.has_ties:
        return row_posteriors(block, params)
    extended = TIES[ties].extended(block)
    logs, posteriors = row_posteriors(extended.block, params)
    return extended.mean_by_row(logs), extended.mean_by_row(posteriors)


def _probabilities(ties: str, block: RankingBlock, params: Prepared) -> Floats:
    return posteriors_by_ranking(ties, block, params)[1]


def _components(ties: str, block: RankingBlock, params: Prepared) -> NDArray[np.int64]:
    most: NDArray[np.int64] = np.argmax(posteriors_by_ranking(ties, block, params)[1], axis=1)
    return most


def _log_likelihoods(ties: str, block: RankingBlock, params: Prepared) -> Floats:
    return posteriors_by_ranking(ties, block, params)[0]


def with_own_shares(function: RowFunction, coefficients: Floats) -> RowFunction:
    """A row function in which each person has shares of its own, made from the covariates of the rows.

    `coefficients` are (n_components, n_columns + 1); the function takes shares into account by posteriors alone.

    Examples
    --------
    >>> from plmix_dist.datasets.given import as_rankings
    >>> from plmix_dist.passes.by_row import rows_now
    >>> mixture = plm.MixtureParams(np.zeros((2, 2)), np.array([0.5, 0.5]), ("a", "b"))
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


def _prepare_own(prepare_params: Callable[[Any], Any], params: tuple[Any, Floats]) -> Any:
    return prepare_params(params[0]), params[1]


def _of_persons(
    of_block: Callable[[RankingBlock, Any], NDArray[Any]], block: RankingBlock, params: tuple[Any, Floats]
) -> NDArray[Any]:
    return of_block(with_person_shares(block, params[1]), params[0])


def check_columns(coefficients: Floats | None, covariates: Floats | None) -> Floats | None:
    """The coefficients of a model; an error if rankings do not come with the covariates that they are for."""
    if coefficients is None:
        if covariates is None:
            return None
        raise SettingsError("this model was fitted without membership_covariates; leave them out, or fit it with them")
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


# Predictions of each row, from what it has ranked so far.


# Parameters as row functions take them: the mixture, and those of the kernels.
_At = tuple[MixtureParams, Prepared]


def predictions_of(
    mixture: MixtureParams, ties: str, component: int | str | None, predict: Callable[..., Floats], n_columns: int
) -> RowFunction:
    """(n_rankings, n_columns): what a function of `given_rows` predicts of each row.

    The component is one that is known, all of them ("all"), or None. With "all" there are n_components times as many
    columns, those of the first component first.
    """
    n_tables = mixture.n_components if component == ALL else 1
    of_block = partial(_predicted, ties, component, predict)
    return RowFunction(of_block, mixture.unnamed(), _at, n_columns=n_columns * n_tables)


def component_logs_of(mixture: MixtureParams) -> RowFunction:
    """(n_rankings, n_components): log Pr(row | component), each row by itself; the sum over the orders of ties."""
    return RowFunction(component_logs, mixture.unnamed(), prepared_of, n_columns=mixture.n_components)


def mixture_logs_of(mixture: MixtureParams) -> RowFunction:
    """(n_rankings,): log Pr(row), each row by itself; the sum over the orders of ties."""
    return RowFunction(partial(_mixture_logs, mixture.log_shares), mixture.unnamed(), prepared_of)


def completions_of(mixture: MixtureParams, ties: str, component: int | None, search: bool) -> RowFunction:
    """(n_rankings, n_items + 1): a complete order of what was on offer, -1 after its end; then its probability.

    Examples
    --------
    >>> from plmix_dist.datasets.given import as_rankings
    >>> from plmix_dist.passes.by_row import rows_now
    >>> mixture = plm.MixtureParams.of(np.log([[3.0, 1.0, 1.0]]), None, ["a", "b", "c"])
    >>> function = completions_of(mixture, "marginal", None, search=True)
    >>> rows_now(as_rankings([[2]], n_items=3, unranked="below"), function).round(6).tolist()
    [[2.0, 0.0, 1.0, 0.75]]
    """
    of_block = partial(_completions, ties, component, search)
    return RowFunction(of_block, mixture.unnamed(), _at, n_columns=mixture.n_items + 1)


def _predicted(
    ties: str, component: int | str | None, predict: Callable[..., Floats], block: RankingBlock, at: _At
) -> Floats:
    log_worths, prepared = at[0].log_worths, at[1]
    # After a fit to linear extensions all orders of tied items are equally probable.
    predict = partial(predict, given_rows.row_places(block), is_even=TIES[ties].extends)
    if component is None:
        return predict(log_worths, posteriors_by_ranking(ties, block, prepared)[1])
    known = range(len(log_worths)) if component == ALL else [int(component)]
    ones = np.ones((block.n_rankings, 1))
    return np.concatenate([predict(log_worths[[one]], ones) for one in known], axis=1)


def _mixture_logs(log_shares: Floats, block: RankingBlock, params: Prepared) -> Floats:
    of_person = log_shares if block.log_shares is None else block.log_shares
    logs: Floats = np.logaddexp.reduce(component_logs(block, params) + of_person, axis=1)
    return logs


def _completions(ties: str, component: int | None, search: bool, block: RankingBlock, at: _At) -> Floats:
    (mixture, prepared), places = at, given_rows.row_places(block)
    if component is None:
        chosen = np.arange(mixture.n_components)
        posteriors = posteriors_by_ranking(ties, block, prepared)[1]
    else:
        chosen, posteriors = np.array([component]), np.ones((block.n_rankings, 1))
    with np.errstate(divide="ignore"):
        log_posteriors = np.log(posteriors)
    log_worths = mixture.log_worths[chosen]
    if TIES[ties].extends:  # all orders of tied items are equally probable
        shares = mixture.log_shares if block.log_shares is None else block.log_shares
        own = shares[..., chosen] if block.groups is None else None
        weigh = given_rows.even_weights(places, log_worths, log_posteriors, own)
    else:
        log_weights = log_posteriors - component_logs(block, prepared)[:, chosen]

        def weigh(orders: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
            return orders, log_weights

    orders, logs = given_rows.completions(places, log_worths, posteriors, weigh)
    if search and len(chosen) > 1:
        predicted, log_weights = weigh(orders)
        for row, place in enumerate(places.place):
            at_end = np.flatnonzero(predicted[row] >= 0)
            items = np.sort(predicted[row, at_end])
            if len(items):
                found = most_probable(log_worths[:, items], log_weights[row], place[items], most_steps=MOST_STEPS)
                orders[row, at_end], logs[row] = items[found.order], found.log_probability
    return np.column_stack([orders, np.exp(logs)])


def _at(mixture: MixtureParams) -> _At:
    return mixture, prepared_of(mixture)


# Sums over all rows.


class Score(NamedTuple):
    """Sums over rows: log-likelihood and weight (with groups, persons), both of shape ()."""

    log_likelihood: Floats
    weight: Floats


def _score_leaf(_number: int, block: RankingBlock, params: tuple[Prepared, Floats | None]) -> Score:
    """Log-likelihood and weight of one leaf."""
    prepared, coefficients = params
    if coefficients is not None:
        block = with_person_shares(block, coefficients)
    log_likelihood, _ = row_posteriors(block, prepared)
    return Score(np.array((block.row_weights * log_likelihood).sum()), np.array(membership_weight(block)))


SCORE = Aggregation("score", leaf=_score_leaf, prepare=prepared_first)


def _entropy_leaf(_number: int, block: RankingBlock, params: tuple[Prepared, Floats | None]) -> tuple[Floats, Floats]:
    """Sums over persons: the entropy of memberships, and weight, both of shape ()."""
    prepared, coefficients = params
    at = memberships_at(block if coefficients is None else with_person_shares(block, coefficients), prepared)
    return np.array(-(at.weights @ xlogy(at.posteriors, at.posteriors)).sum()), np.array(at.weights.sum())


ENTROPY = Aggregation("entropy", leaf=_entropy_leaf, prepare=prepared_first)


# One component or all, of predictions without rows.


def chosen_component(component: Any, mixture: MixtureParams) -> int | str | None:
    """The argument `component`, checked: None, "all", or a number from 0."""
    if component is None or (isinstance(component, str) and component == ALL):
        return component
    is_number = isinstance(component, int | np.integer) and not isinstance(component, bool | np.bool_)
    if not is_number or not 0 <= component < mixture.n_components:
        raise SettingsError(
            f'component must be None (the mixture), "all", or a number from 0 to {mixture.n_components - 1}, but is '
            f"{shown(component)}"
        )
    return int(component)


def one_component(component: Any, mixture: MixtureParams) -> int | None:
    """The argument `component` where "all" has no meaning."""
    chosen = chosen_component(component, mixture)
    if isinstance(chosen, str):
        raise SettingsError('component must be None or a number here; call once per component instead of "all"')
    return chosen


def mixed(by_component: Floats, mixture: MixtureParams, component: Any) -> Any:
    """The mean over components by their shares, all components, or one."""
    chosen = chosen_component(component, mixture)
    if chosen is None:
        return np.tensordot(mixture.shares, by_component, axes=1)
    return by_component if chosen == ALL else by_component[int(chosen)]


def mixed_logs(logs: Any, weights: Any) -> Any:
    """(n_rankings,): the logarithm of the mean over components, from logs and weights (n_rankings, n_components)."""
    if weights.shape != logs.shape:
        raise SettingsError(
            f"given has {weights.shape[0]} rankings and X has {logs.shape[0]}; both need one row per person"
        )
    total = logs + np.log(np.maximum(weights, np.finfo(np.float64).tiny))
    largest = total.max(axis=1)
    return largest + np.log(np.exp(total - largest[:, None]).sum(axis=1))
