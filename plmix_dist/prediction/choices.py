"""Choices, pairs, expected ranks and first places of Plackett-Luce models: functions of log-worths; items, tables."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.rankings import Floats
from plmix_dist.settings import nearest, one_of, shown


class Reading(NamedTuple):
    """How the log-worths (n_components, n_items) of a fitted mixture are read.

    They say "all" of a Plackett-Luce model; or compare items of one slate ("slates"), are a "scale" of what is chosen
    as best and worst, hold at "equal" features of rows, or are "none": items have no worths beside features of rows.
    """

    kind: str
    by: Floats  # (n_components, n_items): what puts items in order, the best with the largest number
    first: (
        Floats | None
    )  # (n_components, n_items): chances to be chosen first from all items; None where there are none
    slates: tuple[str, ...] | None = None  # (n_items,): the slate of each item


def choice_probabilities(log_worths: ArrayLike, offered: NDArray[np.bool_] | None = None) -> Floats:
    """The probability that each item is chosen from an offered set: its worth divided by the worth of the set.

    `offered` (n_sets, n_items) or (n_items,) is True for the items on offer; None offers all items. The result has the
    shape (n_components, n_sets, n_items), or (n_components, n_items) for one set: 0 for items not on offer, and only
    zeros for a set without items.

    Examples
    --------
    >>> choice_probabilities(np.log([[2.0, 1.0, 1.0]]), np.array([True, True, False])).round(4).tolist()
    [[0.6667, 0.3333, 0.0]]
    """
    table = np.atleast_2d(np.asarray(log_worths, np.float64))
    sets = np.ones(table.shape[1], np.bool_) if offered is None else np.asarray(offered, np.bool_)
    logs = np.where(sets, table.reshape(len(table), *[1] * (sets.ndim - 1), -1), -np.inf)
    largest = logs.max(axis=-1, keepdims=True, initial=-np.inf)
    worths = np.exp(logs - np.where(np.isfinite(largest), largest, 0.0))
    total = worths.sum(axis=-1, keepdims=True)
    found: Floats = worths / np.where(total > 0, total, 1.0)
    return found


def pairwise_probabilities(log_worths: ArrayLike) -> Floats:
    """(n_components, n_items, n_items): entry [k, i, j] is the probability that i comes before j in component k.

    It is w_i / (w_i + w_j), whatever else is on offer. The diagonal is 0.5.

    Examples
    --------
    >>> pairwise_probabilities(np.log([[3.0, 1.0]])).round(4).tolist()
    [[[0.5, 0.75], [0.25, 0.5]]]
    """
    from scipy.special import expit

    table = np.atleast_2d(np.asarray(log_worths, np.float64))
    found: Floats = expit(table[:, :, None] - table[:, None, :])
    return found


def expected_ranks(log_worths: ArrayLike) -> Floats:
    """(n_components, n_items): the mean place of each item among all items; 1 is the best place.

    It is 1 plus the sum over the other items j of the probability that j comes before.

    Examples
    --------
    >>> expected_ranks(np.log([[3.0, 1.0]])).round(4).tolist()
    [[1.25, 1.75]]
    """
    ranks: Floats = pairwise_probabilities(log_worths).sum(axis=1) + 0.5
    return ranks


def order_logs(log_worths: Floats, orders: NDArray[np.int64]) -> Floats:
    """(n_orders, n_components): the log-probability of each order of the items that it lists.

    `orders` (n_orders, n_places) are items, best first; -1 after the end. Nothing else is on offer.

    Examples
    --------
    >>> np.exp(order_logs(np.log([[3.0, 1.0, 1.0]]), np.array([[0, 1, -1], [0, 1, 2]]))).round(4).tolist()
    [[0.75], [0.3]]
    """
    found = np.empty((len(orders), len(log_worths)))
    listed = orders >= 0
    for component, logs in enumerate(log_worths):
        on_offer = np.logaddexp.accumulate(np.where(listed, logs[orders], -np.inf)[:, ::-1], axis=1)[:, ::-1]
        found[:, component] = np.where(listed, logs[orders] - np.where(listed, on_offer, 0.0), 0.0).sum(axis=1)
    return found


# Items as users name them: by name or by number, never both in one list.


def item_numbers(argument: str, items: Any, item_names: Sequence[str]) -> NDArray[np.int64]:
    """(n,): the numbers of some items, in the order given. Text is a name, a whole number is a number from 0.

    Repetitions, unknown names and a mixture of both are errors that name the argument.

    Examples
    --------
    >>> item_numbers("offered", ["mate", "tea"], ["tea", "coffee", "mate"]).tolist()
    [2, 0]
    >>> item_numbers("offered", ["cofee"], ["tea", "coffee", "mate"])
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: offered: 'cofee' is not an item of the model; did you mean 'coffee'?
    """
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise SettingsError(f"{argument} must be a list of item names or numbers, but is {shown(items)}")
    listed = items.tolist() if isinstance(items, np.ndarray) else list(items)
    if not listed:
        raise SettingsError(f"{argument} has no items; name at least one")
    if len({isinstance(item, str) for item in listed}) > 1:
        raise SettingsError(f"{argument} has names and numbers; items must be all names or all numbers")
    known = {name: number for number, name in enumerate(item_names)}
    numbers = [_number(argument, item, known) for item in listed]
    twice = next((item for item, number in zip(listed, numbers, strict=True) if numbers.count(number) > 1), None)
    if twice is not None:
        raise SettingsError(f"{argument} has {twice!r} more than once; name each item once")
    return np.array(numbers, np.int64)


def _number(argument: str, item: Any, known: dict[str, int]) -> int:
    if isinstance(item, str):
        if item not in known:
            hint = nearest(item, list(known)) or f"; it has {len(known)} items, the first is {next(iter(known))!r}"
            raise SettingsError(f"{argument}: {item!r} is not an item of the model{hint}")
        return known[item]
    if isinstance(item, bool | np.bool_) or not isinstance(item, int | np.integer):
        raise SettingsError(f"{argument}: expected an item's name or its number, but got {shown(item)}")
    if not 0 <= item < len(known):
        raise SettingsError(f"{argument}: item {item} is out of range; items are numbered from 0 to {len(known) - 1}")
    return int(item)


# Tables for people: a pandas frame where pandas is installed, a Polars frame, an Arrow table, or a dict of arrays.

_KINDS = ("auto", "pandas", "polars", "arrow", "dict")


def table_of(columns: Mapping[str, Any], kind: str = "auto") -> Any:
    """A table from columns of equal length; "auto" is pandas if it is installed, else a dict of arrays."""
    one_of("table", kind, _KINDS)
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    if kind == "arrow":
        import pyarrow as pa

        return pa.table({name: pa.array(values.tolist()) for name, values in arrays.items()})
    if kind == "dict":
        return arrays
    library = "polars" if kind == "polars" else "pandas"
    try:
        frames: Any = importlib.import_module(library)
    except ImportError:
        if kind != "auto":
            raise SettingsError(f'{library} is not installed; install it, or choose table="dict"') from None
        return arrays
    if kind == "polars":  # labels may be an array of Python's own text, which Polars takes as a list
        return frames.DataFrame(
            {name: values.tolist() if values.dtype.kind in "OU" else values for name, values in arrays.items()}
        )
    return frames.DataFrame(arrays)


# The probability that an item has one of the first k places, by an integral over exponential arrival times.
#
# Let item i arrive after an exponential time of rate w_i. Then items arrive in the order of a Plackett-Luce ranking.
# Item i is among the first k if at most k - 1 others arrive before it:
#
#     integral over t of w_i exp(-w_i t) Pr(at most k - 1 of the others arrived by t) dt.
#
# The number of arrivals is a sum of independent events. Its distribution without item i is the convolution of those of
# the items before i and after i, so all items take n k steps per node. In log t the integrand is smooth, and the
# trapezoid rule converges exponentially.

_TOLERANCE = 1e-7
_LARGEST_STEP, _SMALLEST_STEP = 0.5, 1 / 64
# Arrivals before exp(-41) or after exp(4) times the mean arrival time have a probability below 1e-17.
_EARLIEST, _LATEST = -41.0, 4.0
# Numbers held at once.
_MOST_NUMBERS = 1 << 22


def top_k_probabilities(log_worths: ArrayLike, k: int) -> Floats:
    """(n_models, n_items): the probability that each item has one of the first k places.

    The error is below 1e-12 in all cases that were compared with sums over all orders.

    Examples
    --------
    >>> top_k_probabilities(np.log([[3.0, 1.0, 1.0]]), 2).round(4).tolist()
    [[0.9, 0.55, 0.55]]
    """
    logs = np.atleast_2d(np.asarray(log_worths, np.float64))
    n_items = logs.shape[1]
    if k <= 0 or k >= n_items:
        return np.full(logs.shape, 0.0 if k <= 0 else 1.0)
    logs = logs - logs.max(axis=1, keepdims=True)
    n_nodes = (_LATEST - _EARLIEST - logs.min()) / _LARGEST_STEP
    at_once = max(1, int(_MOST_NUMBERS / (n_nodes * n_items * k)))
    found = [_converged(logs[begin : begin + at_once], k) for begin in range(0, len(logs), at_once)]
    return np.clip(np.concatenate(found), 0.0, 1.0)


def _converged(logs: Floats, k: int) -> Floats:
    """The integral, its step halved until the rules at the nodes and at the midpoints agree to 1e-7.

    Halving the step squares the error. So the mean of the two, which is the rule of half the step, has about 1e-14.
    """
    step = _LARGEST_STEP
    nodes = np.arange(_EARLIEST, _LATEST - logs.min() + step, step)
    integral = _sum_over(nodes, logs, k) * step
    while step >= _SMALLEST_STEP:
        midpoints = _sum_over(nodes + step / 2, logs, k) * step
        close = np.abs(integral - midpoints).max() <= _TOLERANCE
        integral = (integral + midpoints) / 2
        if close:
            break
        nodes, step = np.concatenate([nodes, nodes + step / 2]), step / 2
    return integral


def _sum_over(nodes: Floats, logs: Floats, k: int) -> Floats:
    """(n_models, n_items): the sum over nodes of log t of the integrand, some nodes at a time."""
    at_once = max(1, _MOST_NUMBERS // (logs.size * k))
    found = np.zeros(logs.shape)
    for begin in range(0, len(nodes), at_once):
        found += _integrand(nodes[begin : begin + at_once], logs, k)
    return found


def _integrand(nodes: Floats, logs: Floats, k: int) -> Floats:
    rates = np.exp(logs[:, :, None] + nodes)  # (n_models, n_items, n_nodes): rate times time
    left = np.exp(-rates)
    arrived = -np.expm1(-rates)
    n_items = logs.shape[1]
    counts = np.zeros((n_items, k, len(logs), len(nodes)))  # how many of the items before i arrived
    counts[0, 0] = 1.0
    for item in range(n_items - 1):
        counts[item + 1] = _one_more(counts[item], arrived[:, item], left[:, item])
    after = np.zeros(counts.shape[1:])
    after[0] = 1.0
    found = np.empty(logs.shape)
    for item in reversed(range(n_items)):
        at_most = np.cumsum(after, axis=0)[::-1]
        few = (counts[item] * at_most).sum(axis=0)
        found[:, item] = (rates[:, item] * left[:, item] * few).sum(axis=1)
        after = _one_more(after, arrived[:, item], left[:, item])
    return found


def _one_more(counts: Floats, arrived: Floats, left: Floats) -> Floats:
    """The distribution of the number of arrivals, up to k - 1, with one more item."""
    more = counts * left
    more[1:] += counts[:-1] * arrived
    return more
