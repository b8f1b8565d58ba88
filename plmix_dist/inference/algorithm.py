"""Algorithm: an iterative computation as a state and pure functions of it; `run` is the one loop that drives them.

`ask` says what the next pass shall compute, `tell` makes the next state from the answers. Nothing is hidden anywhere
else: the same state and the same answers give the same bits. So a checkpoint is the state written down
(`saved_state.py`), and algorithms of any kind share passes by asking together (`together.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plmix_dist.engine.passes import Passes
    from plmix_dist.engine.request import Answer, Request

State = TypeVar("State")


class Algorithm(Protocol[State]):
    """A computation that goes on from pass to pass. Its states are NamedTuples of arrays and plain values."""

    def ask(self, state: State) -> Sequence[Request]:
        """What the next pass shall compute; nothing when the computation has ended."""
        ...

    def tell(self, state: State, answers: Sequence[Answer]) -> State:
        """The next state, given the answers to what `ask` asked for, in the same order."""
        ...

    def score(self, state: State) -> float | None:
        """How good the best point so far is, the higher the better; None before the first answer or after an error."""
        ...


def run(
    passes: Passes, algorithm: Algorithm[State], state: State, after: Callable[[State], None] | None = None
) -> State:
    """Drive an algorithm to its end. `after` is called with every new state, to report it or to save it.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.request import Aggregation, Request
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> rows = Request(Aggregation("rows", leaf=lambda number, block, params: block.n_rankings))
    >>> class CountTwice:
    ...     def ask(self, state):
    ...         return [rows] if len(state) < 2 else []
    ...
    ...     def tell(self, state, answers):
    ...         return (*state, *answers[0].results)
    >>> run(ThreadedPasses(as_rankings([[0, 1], [1, 0]])), CountTwice(), ())
    (2, 2)
    """
    while requests := algorithm.ask(state):
        state = algorithm.tell(state, passes.run(requests))
        if after is not None:
            after(state)
    return state
