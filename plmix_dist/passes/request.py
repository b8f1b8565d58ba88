"""A pass over the data as a value: what each leaf gives, how two of these combine, what is made of the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from plmix_dist.errors import FitError
from plmix_dist.passes.tree import Failure, add_statistics
from plmix_dist.rankings import RankingBlock


def itself(value: Any) -> Any:
    """The value as it is."""
    return value


@dataclass(frozen=True)
class Aggregation:
    """A statistic over rows.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> rows = Aggregation("rows", leaf=lambda number, block, params: block.n_rankings)
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]])
    >>> rows.combine(rows.leaf(0, block, None), rows.leaf(1, block, None))
    4
    """

    # The name of its tasks on the dashboard.
    name: str
    # From the number of a leaf, its block and the prepared parameters to the statistic of that leaf. The number keys
    # random streams, so that draws do not depend on who computes the leaf.
    leaf: Callable[[int, RankingBlock, Any], Any]
    # From parameters as they travel to what `leaf` takes; called once per task.
    prepare: Callable[[Any], Any] = itself
    # The statistic of two neighbouring runs of leaves, left and right; by default their sum, field by field.
    combine: Callable[[Any, Any], Any] = add_statistics


class Finish(NamedTuple):
    """A named function of the statistic over all leaves; on a cluster it is a task of its own."""

    name: str
    function: Callable[[Any], Any]


_TOTAL = Finish("total", itself)


@dataclass(frozen=True)
class Request:
    """What a pass computes. Any number of requests share one pass: every block is read once for all of them."""

    aggregation: Aggregation
    # Its parameters. They travel to every task, so they are small.
    params: Any = None
    # Functions of the statistic over all leaves; their results are the answer. They run side by side.
    finish: tuple[Finish, ...] = (_TOTAL,)
    # The numbers of the leaves to go through, rising; None for all of them.
    leaves: tuple[int, ...] | None = None


class Timing(NamedTuple):
    """Seconds of a pass: in all, of the slowest task over its leaves, and of combining their statistics."""

    seconds: float
    pass_seconds: float
    reduce_seconds: float


class Answer(NamedTuple):
    """The answer to one request."""

    # What the finishing functions gave, in their order; empty where there is an error.
    results: tuple[Any, ...]
    # Why this request has no results, where its own parameters are to blame. Other requests of the pass are not
    # affected.
    error: FitError | None
    # Seconds of the pass, which is shared.
    timing: Timing

    def get(self) -> tuple[Any, ...]:
        """The results; the error is raised if there is one."""
        if self.error is not None:
            raise self.error
        return self.results


class Passes(Protocol):
    """Runs passes over one set of rankings, in this process or on a cluster, with the same bits, and counts them."""

    n_passes: int

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests in one pass: every block is read once for all of them."""
        ...

    def release(self) -> None:
        """Let go of rows that are kept in memory; a later pass reads them again."""
        ...


def ask(passes: Passes, request: Request) -> Any:
    """The one result of a request, from a pass of its own; its error is raised."""
    (answer,) = passes.run([request])
    (result,) = answer.get()
    return result


# Before and after a pass, wherever it runs: requests are checked, and results become answers.


def check_leaves(requests: Sequence[Request], n_leaves: int) -> None:
    """An error where there is nothing to compute, or a request names leaves that are not there."""
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
            raise ValueError(f"the leaves of the request {name!r} must rise, and lie within 0 to {n_leaves - 1}")


def answer_of(results: Sequence[Any], timing: Timing) -> Answer:
    """The answer to a request from what its finishing functions gave: their results, or the first failure."""
    for result in results:
        if isinstance(result, Failure):
            return Answer((), result.error, timing)
    return Answer(tuple(results), None, timing)
