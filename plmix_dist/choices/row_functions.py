"""Row functions: predictions for each row of a store, an array or a table, as the engine computes them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.choices import given_rows
from plmix_dist.choices.most_probable import MOST_STEPS, most_probable
from plmix_dist.choices.row_places import row_places
from plmix_dist.engine.by_row import RowFunction
from plmix_dist.kernels import prepare
from plmix_dist.kernels.e_step import component_logs
from plmix_dist.posteriors import posteriors_by_ranking
from plmix_dist.rankings.tie_treatments import TIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from plmix_dist.choices.row_places import RowPlaces
    from plmix_dist.kernels import Prepared
    from plmix_dist.mixture import MixtureParams
    from plmix_dist.rankings import RankingBlock

ALL = "all"
# Pairs of items times rows held at once.
_MOST_NUMBERS = 1 << 21


class At(NamedTuple):
    """Parameters as row functions take them: log-worths (n_components, n_items), and those of the kernels."""

    log_worths: NDArray[np.float64]
    prepared: Prepared


class Given(NamedTuple):
    """How rows are read: the treatment of ties, and the component that is known, all of them ("all"), or None."""

    ties: str
    component: int | str | None

    @property
    def is_even(self) -> bool:
        """Whether all orders of tied items are equally probable, as in a fit to their linear extensions."""
        return TIES[self.ties].extends


def next_choices_of(mixture: MixtureParams, given: Given) -> RowFunction:
    """(n_rankings, n_items): the probability that each item is the next choice of each row.

    With component="all" there are n_components times as many columns, those of the first component first.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.by_row import rows_now
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams.of(np.log([[3.0, 1.0, 1.0]]), None, ["a", "b", "c"])
    >>> function = next_choices_of(mixture, Given("marginal", None))
    >>> rows_now(as_rankings([[2]], n_items=3, unranked="below"), function).round(6).tolist()
    [[0.75, 0.25, 0.0]]
    """
    return _function(mixture, given, given_rows.next_choices, mixture.n_items)


def ranks_of(mixture: MixtureParams, given: Given) -> RowFunction:
    """(n_rankings, n_items): the expected place of each item in each row.

    Examples
    --------
    >>> from plmix_dist.mixture import MixtureParams
    >>> ranks_of(MixtureParams.of([[3.0, 1.0]], None, ["a", "b"]), Given("marginal", None)).n_columns
    2
    """
    return _function(mixture, given, partial(given_rows.ranks, is_even=given.is_even), mixture.n_items)


def top_k_of(mixture: MixtureParams, given: Given, k: int) -> RowFunction:
    """(n_rankings, n_items): the probability that each item has one of the first k places of each row.

    Examples
    --------
    >>> from plmix_dist.mixture import MixtureParams
    >>> top_k_of(MixtureParams.of([[3.0, 1.0]], None, ["a", "b"]), Given("marginal", None), 1).n_columns
    2
    """
    function = partial(given_rows.top_k, k=k, is_even=given.is_even)
    return _function(mixture, given, function, mixture.n_items)


def pairs_of(mixture: MixtureParams, given: Given, items: NDArray[np.int64]) -> RowFunction:
    """(n_rankings, n * n): the probability that i comes before j in each row, for n chosen items.

    Examples
    --------
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams.of([[3.0, 1.0]], None, ["a", "b"])
    >>> pairs_of(mixture, Given("marginal", None), np.array([1, 0])).n_columns
    4
    """
    return _function(mixture, given, partial(_pairs, items, given.is_even), len(items) ** 2)


def component_logs_of(mixture: MixtureParams) -> RowFunction:
    """(n_rankings, n_components): log Pr(row | component), each row by itself; the sum over the orders of ties.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.by_row import rows_now
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams.of(np.log([[3.0, 1.0, 1.0]]), None, ["a", "b", "c"])
    >>> np.exp(rows_now(as_rankings([[0, 1, 2]]), component_logs_of(mixture))).round(6).tolist()
    [[0.3]]
    """
    return RowFunction(_component_logs, _params(mixture), _prepared, n_columns=mixture.n_components)


def mixture_logs_of(mixture: MixtureParams) -> RowFunction:
    """(n_rankings,): log Pr(row), each row by itself; the sum over the orders of ties.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.by_row import rows_now
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams.of(np.log([[3.0, 1.0], [1.0, 1.0]]), [0.5, 0.5], ["a", "b"])
    >>> np.exp(rows_now(as_rankings([[0, 1]]), mixture_logs_of(mixture))).round(6).tolist()
    [0.625]
    """
    return RowFunction(partial(_mixture_logs, mixture.log_shares), _params(mixture), _prepared)


def completions_of(mixture: MixtureParams, given: Given, search: bool) -> RowFunction:
    """(n_rankings, n_items + 1): a complete order of what was on offer, -1 after its end; then its probability.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.by_row import rows_now
    >>> from plmix_dist.mixture import MixtureParams
    >>> mixture = MixtureParams.of(np.log([[3.0, 1.0, 1.0]]), None, ["a", "b", "c"])
    >>> function = completions_of(mixture, Given("marginal", None), search=True)
    >>> rows_now(as_rankings([[2]], n_items=3, unranked="below"), function).round(6).tolist()
    [[2.0, 0.0, 1.0, 0.75]]
    """
    of_block = partial(_completions, given, search)
    return RowFunction(of_block, _params(mixture), _prepared, n_columns=mixture.n_items + 1)


def _function(
    mixture: MixtureParams, given: Given, predict: Callable[..., NDArray[np.float64]], n_columns: int
) -> RowFunction:
    n_tables = mixture.n_components if given.component == ALL else 1
    of_block = partial(_predicted, given, predict)
    return RowFunction(of_block, _params(mixture), _prepared, n_columns=n_columns * n_tables)


def _predicted(
    given: Given, predict: Callable[..., NDArray[np.float64]], block: RankingBlock, at: At
) -> NDArray[np.float64]:
    places = row_places(block)
    n_components = len(at.log_worths)
    if given.component is None:
        return predict(places, at.log_worths, posteriors_by_ranking(given.ties, block, at.prepared)[1])
    known = range(n_components) if given.component == ALL else [int(given.component)]
    ones = np.ones((block.n_rankings, 1))
    return np.concatenate([predict(places, at.log_worths[[component]], ones) for component in known], axis=1)


def _pairs(
    items: NDArray[np.int64],
    is_even: bool,
    places: RowPlaces,
    log_worths: NDArray[np.float64],
    posteriors: NDArray[np.float64],
) -> NDArray[np.float64]:
    n_rows, n_items = places.place.shape
    at_once = max(1, _MOST_NUMBERS // n_items**2)
    parts = []
    for begin in range(0, n_rows, at_once):
        part = places.rows(begin, begin + at_once)
        found = given_rows.pairs(part, log_worths, posteriors[begin : begin + at_once], is_even=is_even)
        parts.append(found[:, items[:, None], items].reshape(len(found), -1))
    return np.concatenate(parts)


def _component_logs(block: RankingBlock, at: At) -> NDArray[np.float64]:
    return component_logs(block, at.prepared)


def _mixture_logs(log_shares: NDArray[np.float64], block: RankingBlock, at: At) -> NDArray[np.float64]:
    of_person = log_shares if block.log_shares is None else block.log_shares
    logs: NDArray[np.float64] = np.logaddexp.reduce(component_logs(block, at.prepared) + of_person, axis=1)
    return logs


def _completions(given: Given, search: bool, block: RankingBlock, at: At) -> NDArray[np.float64]:
    places = row_places(block)
    if given.component is None:
        chosen = np.arange(len(at.log_worths))
        posteriors = posteriors_by_ranking(given.ties, block, at.prepared)[1]
    else:
        chosen, posteriors = np.array([int(given.component)]), np.ones((block.n_rankings, 1))
    with np.errstate(divide="ignore"):
        log_weights = np.log(posteriors) - component_logs(block, at.prepared)[:, chosen]
    log_worths = at.log_worths[chosen]
    orders, logs = given_rows.completions(places, log_worths, log_weights)
    if search and len(chosen) > 1:
        for row, place in enumerate(places.place):
            offered = np.flatnonzero(place >= 0)
            found = most_probable(
                log_worths[:, offered], log_weights[row], place[offered], most_steps=MOST_STEPS
            )
            orders[row, : len(offered)], logs[row] = offered[found.order], found.log_probability
    return np.column_stack([orders, np.exp(logs)])


def _params(mixture: MixtureParams) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return mixture.log_worths, mixture.log_shares


def _prepared(params: Any) -> At:
    return At(params[0], prepare(params[0], params[1]))
