"""Comparisons of fits and predictions: distances, orders, partitions, log-loss, calibration, two models side by side.

Components are matched before they are compared, because their order has no meaning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import binom

from plmix_dist.errors import SettingsError
from plmix_dist.prediction.calibration import Calibration, binned
from plmix_dist.prediction.choices import item_numbers, table_of
from plmix_dist.rankings import Floats
from plmix_dist.settings import numbers, shown, whole_number
from plmix_dist.store import MixtureParams


def match_components(log_worths: ArrayLike, reference: ArrayLike) -> NDArray[np.int64]:
    """(n_components,): for each component of the reference, the number of the matching component of `log_worths`.

    The matching minimises the sum of squared differences of centred log-worths.

    Parameters
    ----------
    log_worths, reference : (n_components, n_items)
        Constants added to a component make no difference.

    Examples
    --------
    >>> match_components([[0, 1], [1, 0]], [[2, 0], [0, 2]]).tolist()
    [1, 0]
    """
    found, wanted = _centred(log_worths), _centred(reference)
    if found.shape != wanted.shape:
        raise SettingsError(
            f"cannot match components of shapes {found.shape} and {wanted.shape}; both fits need the same numbers of "
            "components and items"
        )
    return _matched(found, wanted)[1]


def matched_distance(log_worths: ArrayLike, reference: ArrayLike) -> float:
    """Frobenius norm of the difference of centred log-worths after matching (Nguyen & Zhang 2023).

    Parameters
    ----------
    log_worths, reference : (n_components, n_items)

    Examples
    --------
    >>> matched_distance([[0, 1], [1, 0]], [[5, 4], [3, 4]])
    0.0
    """
    order = match_components(log_worths, reference)
    return float(np.linalg.norm(_centred(log_worths)[order] - _centred(reference)))


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float:
    """Kendall's tau-b of two orders of the same items: 1 if they agree on all pairs, -1 if on none.

    Parameters
    ----------
    first, second : (n_items,)
        Worths or log-worths of both, or expected ranks of both. Equal numbers are ties. The result is NaN if all
        numbers of one are equal.

    Examples
    --------
    >>> round(kendall_tau([3, 2, 1], [3, 1, 2]), 4)
    0.3333
    """
    one, other = numbers("first", first), numbers("second", second)
    if one.ndim != 1 or one.shape != other.shape:
        raise SettingsError(
            f"expected one number per item of both orders, but got shapes {one.shape} and {other.shape}"
        )
    if len(one) < 2:
        raise SettingsError("an order of one item has no pairs; Kendall's tau needs two items or more")
    if (one == one[0]).all() or (other == other[0]).all():
        return float("nan")
    from scipy.stats import kendalltau

    return float(kendalltau(one, other).statistic)


def matched_taus(log_worths: ArrayLike, reference: ArrayLike) -> Floats:
    """(n_components,): Kendall's tau between each component of the reference and its matching component.

    Parameters
    ----------
    log_worths, reference : (n_components, n_items)

    Examples
    --------
    >>> matched_taus([[0, 1, 2], [2, 1, 0]], [[5, 3, 0], [0, 3, 5]]).tolist()
    [1.0, 1.0]
    """
    order = match_components(log_worths, reference)
    table, wanted = _centred(log_worths), _centred(reference)
    return np.array([kendall_tau(table[mine], line) for mine, line in zip(order, wanted, strict=True)])


def adjusted_rand_index(first: Any, second: Any, *, weights: ArrayLike | None = None) -> float:
    """The adjusted Rand index of two partitions: 1 if they are the same, near 0 if they are unrelated.

    Parameters
    ----------
    first, second : (n_rankings,)
        Components or other labels, such as `predict` gives. Dask arrays are computed.
    weights : (n_rankings,)
        Counts: a ranking of weight w stands for w rankings.

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    one, other = np.asarray(first), np.asarray(second)
    if one.ndim != 1 or one.shape != other.shape:
        raise SettingsError(f"expected two labels per ranking, but got shapes {one.shape} and {other.shape}")
    weight = _weights(weights, len(one))
    rows, columns = (np.unique(labels, return_inverse=True)[1] for labels in (one, other))
    n_columns = int(columns.max(initial=-1)) + 1
    table = np.bincount(rows * n_columns + columns, weight, (int(rows.max(initial=-1)) + 1) * n_columns)
    table = table.reshape(-1, max(n_columns, 1))
    together, in_first, in_second, total = (
        float((sums * (sums - 1) / 2).sum())
        for sums in (table, table.sum(axis=1), table.sum(axis=0), table.sum(keepdims=True))
    )
    by_chance = in_first * in_second / total if total else 0.0
    largest = (in_first + in_second) / 2
    return 1.0 if largest == by_chance else (together - by_chance) / (largest - by_chance)


def log_loss(probabilities: Any, outcomes: Any, *, weights: ArrayLike | None = None) -> float:
    """The mean of minus the logarithm of the probability of what came true. Infinite if that had probability 0.

    Parameters
    ----------
    probabilities : (n_cases, n_outcomes)
        Memberships from `predict_proba`, or choices from `choice_probabilities`. Dask arrays are computed.
    outcomes : (n_cases,)
        The true component, or the item that was chosen, by number.
    weights : (n_cases,)

    Examples
    --------
    >>> round(log_loss([[0.5, 0.5], [0.25, 0.75]], [0, 1]), 4)
    0.4904
    """
    return calibration(probabilities, outcomes, weights=weights, n_bins=1).mean_log_loss


def calibration(
    probabilities: Any, outcomes: Any, *, weights: ArrayLike | None = None, n_bins: int = 10
) -> Calibration:
    """How often what was predicted with probability p came true, by bins of p.

    Every pair of a case and a possible outcome is one event. Predictions are calibrated if frequency and mean
    probability agree in every bin.

    Parameters
    ----------
    probabilities : (n_cases, n_outcomes)
        Memberships from `predict_proba`, or choices from `choice_probabilities`. Dask arrays are computed.
    outcomes : (n_cases,)
        The true component, or the item that was chosen, by number.
    weights : (n_cases,)
    n_bins
        The number of bins of equal width.

    Returns
    -------
    calibration
        With `table()`, `error` (mean absolute difference), `brier` and `mean_log_loss`.

    Examples
    --------
    >>> found = calibration([[0.75, 0.25]] * 4, [0, 0, 0, 1], n_bins=4)
    >>> found.frequency.tolist(), found.error
    ([nan, 0.25, nan, 0.75], 0.0)
    """
    table = numbers("probabilities", np.asarray(probabilities))
    happened = np.asarray(outcomes)
    whole_number("n_bins", n_bins, at_least=1)
    if table.ndim != 2 or happened.shape != table.shape[:1]:
        raise SettingsError(
            f"expected probabilities (cases, outcomes) and one outcome per case, but got shapes {table.shape} and "
            f"{happened.shape}"
        )
    if happened.dtype.kind not in "iu" or not ((happened >= 0) & (happened < table.shape[1])).all():
        raise SettingsError(
            f"outcomes must be whole numbers from 0 to {table.shape[1] - 1}, one column of the probabilities each, but "
            f"are {shown(happened)} with values from {happened.min()} to {happened.max()}"
        )
    if not ((table >= -1e-9) & (table <= 1 + 1e-9)).all():
        raise SettingsError("probabilities must be numbers from 0 to 1; leave out rows that have NaN")
    return binned(
        np.clip(table, 0.0, 1.0), happened.astype(np.int64), weights=_weights(weights, len(table)), n_bins=int(n_bins)
    )


def compare_models(first: Any, second: Any, *, table: str = "auto") -> Any:
    """Two models side by side, components matched: one row per component.

    Items are matched by name. If one model has more components, some of its components stay without a match.

    Parameters
    ----------
    first, second
        Fitted estimators or `MixtureParams`, of the same items.
    table
        "auto", "pandas", "arrow" or "dict".

    Returns
    -------
    table
        Columns `first` and `second` (numbers of components; -1 without a match), `first share`, `second share`,
        `distance` (norm of the difference of centred log-worths), `kendall tau`, `first choice` and `second choice`
        (the items of the largest worth), `total variation` (of the choices from all items). NaN or "" without a match.

    Examples
    --------
    >>> one = MixtureParams.of([[2, 0, 1], [0, 3, 1]], [0.6, 0.4], ["tea", "mate", "milk"])
    >>> other = MixtureParams.of([[3, 0, 1], [2, 0, 1]], [0.7, 0.3], ["mate", "tea", "milk"])
    >>> found = compare_models(one, other, table="dict")
    >>> found["first"].tolist(), found["second"].tolist(), found["kendall tau"].round(2).tolist()
    ([0, 1], [1, 0], [-1.0, 1.0])
    """
    one, other = _mixture_of("first", first), _mixture_of("second", second)
    if sorted(one.item_names) != sorted(other.item_names):
        here, there = set(one.item_names) - set(other.item_names), set(other.item_names) - set(one.item_names)
        raise SettingsError(
            f"the models have different items: {len(here)} of the first alone ({_some(here)}), {len(there)} of the "
            f"second alone ({_some(there)})"
        )
    order = [other.item_names.index(name) for name in one.item_names]
    mine, theirs = _centred(one.log_worths), _centred(other.log_worths[:, order])
    matched = dict(zip(*(side.tolist() for side in _matched(theirs, mine)), strict=True))
    rows = [_compared(one, other, mine, theirs, number, matched.get(number)) for number in range(len(mine))]
    unmatched = sorted(set(range(len(theirs))) - set(matched.values()))
    rows += [_compared(one, other, mine, theirs, None, number) for number in unmatched]
    return table_of({name: [row[name] for row in rows] for name in rows[0]}, table)


_COLUMNS = ("first", "second", "first share", "second share", "distance", "kendall tau", "total variation")


def _compared(
    one: MixtureParams, other: MixtureParams, mine: Floats, theirs: Floats, first: int | None, second: int | None
) -> dict[str, Any]:
    """A row of the comparison; None for a component that has no match."""
    row: dict[str, Any] = dict.fromkeys(_COLUMNS, float("nan"))
    for side, shares, worths, number in (("first", one.shares, mine, first), ("second", other.shares, theirs, second)):
        row |= {side: -1, f"{side} choice": ""}
        if number is not None:
            choice = one.item_names[int(worths[number].argmax())]
            row |= {side: number, f"{side} share": shares[number], f"{side} choice": choice}
    if first is not None and second is not None:
        choices = [np.exp(logs - np.logaddexp.reduce(logs)) for logs in (mine[first], theirs[second])]
        row["distance"] = float(np.linalg.norm(mine[first] - theirs[second]))
        row["total variation"] = float(np.abs(choices[0] - choices[1]).sum() / 2)
        if len(one.item_names) > 1:
            row["kendall tau"] = kendall_tau(mine[first], theirs[second])
    return row


def _mixture_of(argument: str, model: Any) -> MixtureParams:
    if isinstance(model, MixtureParams):
        return model
    if not hasattr(model, "log_worths_"):
        raise SettingsError(f"{argument} must be a fitted estimator or MixtureParams, but is {shown(model)}")
    return MixtureParams(np.asarray(model.log_worths_), np.asarray(model.shares_), tuple(model.item_names_))


def _matched(found: Floats, wanted: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Components of `wanted` and the matching ones of `found`; as many as the smaller of both has."""
    costs = ((wanted[:, None, :] - found[None, :, :]) ** 2).sum(axis=2)
    rows, columns = linear_sum_assignment(costs)
    return rows, columns


def _weights(weights: ArrayLike | None, n_rows: int) -> Floats:
    found = np.ones(n_rows) if weights is None else numbers("weights", weights)
    if found.shape != (n_rows,) or not (found >= 0).all() or not np.isfinite(found).all() or not found.sum() > 0:
        raise SettingsError(f"weights must be {n_rows} numbers from 0 on, not all zero, but are {shown(weights)}")
    return found


def _some(names: set[str]) -> str:
    listed = sorted(names)
    return ", ".join(map(repr, listed[:3])) + (", ..." if len(listed) > 3 else "")


def _centred(log_worths: ArrayLike) -> Floats:
    table = np.atleast_2d(np.asarray(log_worths, np.float64))
    centred: Floats = table - table.mean(axis=1, keepdims=True)
    return centred


# Lists for people of several tastes, and people whose choices do not depend on what they are shown.


def local_stability(model: Any, order: Any, *, table: str = "auto") -> Any:
    """Whom a list passes over: for its first k items, the item outside that most people prefer to all of them.

    A list is locally stable at k if no item outside its first k is preferred to all of these by more than 1 / k of the
    people (Haghtalab, Procaccia, Shao, Wang & Yang 2026). Here people are those of the mixture: a member of component c
    prefers item i to a set with probability worth_i / (worth_i + worths of the set).

    Parameters
    ----------
    model
        A fitted mixture.
    order
        Item names or numbers, best first, such as the items of a leaderboard; not all need be listed.
    table
        As in `worths_frame`.

    Returns
    -------
    table
        Columns `k`, `item` (the one that is passed over), `share` (of the people who prefer it to the first k) and
        `ratio`, which is k times that: above 1 the list is not stable there.

    Examples
    --------
    >>> worths = np.log([[8.0, 8.0, 1.0], [1.0, 1.0, 8.0]])
    >>> model = plm.PlackettLuceMixture.from_arrays(worths, [0.6, 0.4], ["tea", "mate", "milk"])
    >>> found = local_stability(model, ["tea", "mate"], table="dict")
    >>> found["item"].tolist(), found["share"].round(3).tolist(), found["ratio"].round(2).tolist()
    (['mate', 'milk'], [0.5, 0.355], [0.5, 0.71])
    """
    mixture = model._plain_mixture()
    listed = item_numbers("order", order, mixture.item_names)
    worths = np.exp(mixture.log_worths - mixture.log_worths.max(axis=1, keepdims=True))
    first: list[tuple[int, str, float]] = []
    for k in range(1, min(len(listed), mixture.n_items - 1) + 1):
        inside = worths[:, listed[:k]].sum(axis=1, keepdims=True)
        shares = mixture.shares @ (worths / (worths + inside))
        shares[listed[:k]] = -1.0
        item = int(shares.argmax())
        first.append((k, mixture.item_names[item], float(shares[item])))
    numbers_of, items, found = (np.array(column) for column in zip(*first, strict=True))
    return table_of({"k": numbers_of, "item": items, "share": found, "ratio": numbers_of * found}, table)


def one_sidedness(left: ArrayLike, persons: ArrayLike) -> NDArray[np.float64]:
    """(n_persons,): how one-sided the choices of each person are: -log10 of the p-value of as many on one side.

    People who always take what stands left say nothing about the items. Where sides were shuffled, the number of left
    choices of anyone else is binomial with probability 1/2; the p-value is two-sided.

    Parameters
    ----------
    left : (n_choices,)
        1 where the chosen item stood left, 0 where it stood right, 0.5 or NaN for ties, which are left out.
    persons : (n_choices,)
        Who chose. Persons come in the order of their labels, as `np.unique` has them.

    Examples
    --------
    >>> one_sidedness([1] * 20 + [1, 0] * 10, ["ann"] * 20 + ["bob"] * 20).round(1).tolist()
    [5.7, 0.0]
    """
    chosen, labels = np.asarray(left, np.float64), np.asarray(persons)
    if chosen.shape != labels.shape or chosen.ndim != 1:
        raise SettingsError(f"expected one side and one person per choice, but got {chosen.shape} and {labels.shape}")
    _, person = np.unique(labels, return_inverse=True)
    counted = (chosen == 0) | (chosen == 1)
    size = int(person.max(initial=-1)) + 1
    total = np.bincount(person[counted], minlength=size)
    lefts = np.bincount(person[counted], chosen[counted], minlength=size)
    return log_p_of_sides(lefts, total - lefts)


def log_p_of_sides(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float64]:
    """(n_persons,): the same from how often each person chose the left and the right, both (n_persons,).

    Examples
    --------
    >>> log_p_of_sides(np.array([20.0, 10.0]), np.array([0.0, 10.0])).round(1).tolist()
    [5.7, 0.0]
    """
    fewer, total = np.minimum(left, right), left + right
    found: NDArray[np.float64] = np.maximum(0.0, -(np.log10(2.0) + binom.logcdf(fewer, total, 0.5) / np.log(10)))
    return found
