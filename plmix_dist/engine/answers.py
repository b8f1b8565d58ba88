"""Before and after a pass, wherever it runs: requests are checked, and results become answers."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from plmix_dist.engine.request import Answer, Timing
from plmix_dist.engine.summing import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.engine.request import Request


def check_leaves(requests: Sequence[Request], n_leaves: int) -> None:
    """An error where there is nothing to compute, or a request names leaves that are not there.

    Examples
    --------
    >>> from plmix_dist.engine.request import Aggregation, Request
    >>> check_leaves([Request(Aggregation("none", leaf=lambda number, block, params: 0), leaves=(3, 1))], 5)
    Traceback (most recent call last):
    ValueError: the leaves of the request 'none' must rise, and lie within 0 to 4
    """
    if not requests:
        raise ValueError("a pass needs at least one request")
    for request in requests:
        leaves = request.leaves
        if leaves is None:
            continue
        name = request.aggregation.name
        if not leaves:
            raise ValueError(f"the request {name!r} names no leaves")
        if leaves[0] < 0 or leaves[-1] >= n_leaves or any(low >= high for low, high in pairwise(leaves)):
            raise ValueError(
                f"the leaves of the request {name!r} must rise, and lie within 0 to {n_leaves - 1}"
            )


def answer_of(results: Sequence[Any], timing: Timing) -> Answer:
    """The answer to a request from what its finishing functions gave: their results, or the first failure.

    Examples
    --------
    >>> answer_of([1, 2], Timing(0.0, 0.0, 0.0)).results
    (1, 2)
    """
    for result in results:
        if isinstance(result, Failure):
            return Answer((), result.error, timing)
    return Answer(tuple(results), None, timing)
