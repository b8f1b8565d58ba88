"""A pass over the data as a value: what each leaf gives, how two of these combine, what is made of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.engine.tree import add_statistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from plmix_dist.errors import FitError
    from plmix_dist.rankings import RankingBlock


def itself(value: Any) -> Any:
    """The value as it is.

    Examples
    --------
    >>> itself(3)
    3
    """
    return value


@dataclass(frozen=True)
class Aggregation:
    """A statistic over rows.

    Parameters
    ----------
    name
        The name of its tasks on the dashboard.
    leaf
        From the number of a leaf, its block and the prepared parameters to the statistic of that leaf. The number keys
        random streams, so that draws do not depend on who computes the leaf.
    prepare
        From parameters as they travel to what `leaf` takes; called once per task.
    combine
        The statistic of two neighbouring runs of leaves, left and right; by default their sum, field by field.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> rows = Aggregation("rows", leaf=lambda number, block, params: block.n_rankings)
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]])
    >>> rows.combine(rows.leaf(0, block, None), rows.leaf(1, block, None))
    4
    """

    name: str
    leaf: Callable[[int, RankingBlock, Any], Any]
    prepare: Callable[[Any], Any] = itself
    combine: Callable[[Any, Any], Any] = add_statistics


class Finish(NamedTuple):
    """A named function of the statistic over all leaves; on a cluster it is a task of its own."""

    name: str
    function: Callable[[Any], Any]


TOTAL = Finish("total", itself)


@dataclass(frozen=True)
class Request:
    """What a pass shall compute. Any number of requests share one pass: every block is read once for all of them.

    Parameters
    ----------
    aggregation
        The statistic.
    params
        Its parameters. They travel to every task, so they are small.
    finish
        Functions of the statistic over all leaves; their results are the answer. They run side by side.
    leaves
        The numbers of the leaves to go through, rising; None for all of them.
    """

    aggregation: Aggregation
    params: Any = None
    finish: tuple[Finish, ...] = (TOTAL,)
    leaves: tuple[int, ...] | None = None


class Timing(NamedTuple):
    """Seconds of a pass: in all, of the slowest task over its leaves, and of combining their statistics."""

    seconds: float
    pass_seconds: float
    reduce_seconds: float


class Answer(NamedTuple):
    """The answer to one request.

    Parameters
    ----------
    results
        What the finishing functions gave, in their order; empty where there is an error.
    error
        Why this request has no results, where its own parameters are to blame. Other requests of the pass are not
        affected.
    timing
        Seconds of the pass, which is shared.
    """

    results: tuple[Any, ...]
    error: FitError | None
    timing: Timing
