"""Algorithm: an iterative computation as a state and pure functions of it; `run` is the one loop that drives them.

`ask` names what the next pass computes, `tell` makes the next state from the answers. Nothing is hidden anywhere
else: the same state and the same answers give the same bits. So a checkpoint is the state written down
(`to_plain`), and algorithms of any kind share passes by asking together (`Together`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from plmix_dist import errors
from plmix_dist.display.progress import Stages
from plmix_dist.errors import DamagedStoreError, FitError
from plmix_dist.passes import Answer, Passes, Request
from plmix_dist.rankings import RankingBlock

# The state of an algorithm as arrays and JSON, and back: what a checkpoint holds. Nothing is pickled. A state is a tree
# of NamedTuples, dataclasses, tuples, lists, dicts, arrays and plain values. Classes are written by name; only those
# that were declared `savable` can be written and read.

_Plain: TypeAlias = "bool | int | float | str | list[_Plain] | dict[str, _Plain] | None"
_Class = TypeVar("_Class", bound=type)

_DTYPES = ("float64", "int64", "int32", "bool", "uint8", "uint16", "uint32", "uint64")
_KINDS = ("array", "number", "error", "dict", "tuple", "list")
_BY_NAME: dict[str, Any] = {}


def savable(known: _Class) -> _Class:
    """Declare a NamedTuple or dataclass that may be part of a saved state; a decorator."""
    name = _name_of(known)
    other = _BY_NAME.setdefault(name, known)
    assert other.__module__ == known.__module__, f"two savable classes are called {name}"
    assert name not in _KINDS
    _BY_NAME[name] = known
    return known


def _name_of(known: type) -> str:
    """The name under which a class is written: that a module keeps it to itself makes no difference."""
    return known.__name__.lstrip("_")


savable(RankingBlock)


def to_plain(state: Any) -> tuple[_Plain, dict[str, NDArray[Any]]]:
    """A state as a value for JSON, and the arrays it refers to by name."""
    arrays: dict[str, NDArray[Any]] = {}
    names: dict[int, str] = {}

    def written(value: Any) -> _Plain:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            infinite = isinstance(value, float) and not math.isfinite(value)
            return {"number": str(value)} if infinite else value  # JSON has no word for it
        if isinstance(value, np.ndarray):
            if id(value) not in names:
                names[id(value)] = str(len(arrays))
                arrays[names[id(value)]] = value
            return {"array": names[id(value)]}
        if isinstance(value, FitError):
            return {"error": [type(value).__name__, str(value)]}
        if isinstance(value, dict):
            return {"dict": [[key, written(entry)] for key, entry in value.items()]}
        if type(value) in (tuple, list):
            return {type(value).__name__: [written(entry) for entry in value]}
        if _BY_NAME.get(_name_of(type(value))) is type(value):
            return {_name_of(type(value)): [written(entry) for entry in _entries(value)]}
        raise TypeError(f"a state holds {type(value).__name__}, which cannot be saved")

    return written(state), arrays


def _entries(value: Any) -> list[Any]:
    """What an instance of a savable class is made from."""
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return list(value)


def from_plain(plain: _Plain, arrays: dict[str, NDArray[Any]]) -> Any:
    """The state that `to_plain` wrote."""
    if not isinstance(plain, dict):
        if isinstance(plain, list):
            raise DamagedStoreError("a saved state holds a list where a value is expected")
        return plain
    if len(plain) != 1:
        raise DamagedStoreError(f"a saved state holds {sorted(plain)} where one kind is expected")
    ((kind, content),) = plain.items()
    try:
        return _read(kind, content, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedStoreError(f"a saved state cannot be read: {kind!r} holds {error}") from None


def _read(kind: str, content: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if kind == "array":
        array = arrays[content]
        if array.dtype.name not in _DTYPES:
            raise DamagedStoreError(f"a saved state holds an array of {array.dtype}")
        return array
    if kind == "number":
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]
    if kind == "error":
        name, message = content
        known = getattr(errors, name)
        if not (isinstance(known, type) and issubclass(known, FitError)):
            raise DamagedStoreError(f"a saved state names the error {name!r}, which is none of a fit")
        return known(message)
    if kind == "dict":
        return {str(key): from_plain(entry, arrays) for key, entry in content}
    entries = [from_plain(entry, arrays) for entry in content]
    if kind == "list":
        return entries
    return tuple(entries) if kind == "tuple" else _BY_NAME[kind](*entries)


# Algorithms, and the loop that drives them.

State = TypeVar("State")


class Algorithm(Protocol[State]):
    """A computation that goes on from pass to pass. Its states are NamedTuples of arrays and plain values."""

    def ask(self, state: State) -> Sequence[Request]:
        """What the next pass computes; nothing when the computation has ended."""
        ...

    def tell(self, state: State, answers: Sequence[Answer]) -> State:
        """The next state, given the answers to what `ask` asked for, in the same order."""
        ...


class _Rival(Algorithm[State], Protocol[State]):
    """An algorithm that takes part in races."""

    def score(self, state: State) -> float | None:
        """How good the best point so far is, the higher the better; None before the first answer or after an error."""
        ...


def run(
    passes: Passes, algorithm: Algorithm[State], state: State, after: Callable[[State], None] | None = None
) -> State:
    """Drive an algorithm to its end. `after` is called with every new state, to report it or to save it.

    Examples
    --------
    >>> from plmix_dist.datasets.given import as_rankings
    >>> from plmix_dist.passes.request import Aggregation, Request
    >>> from plmix_dist.passes.threads import ThreadedPasses
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


@contextmanager
def counted_stage(stages: Stages, name: str, passes: Passes) -> Iterator[None]:
    """A stage of which the passes are counted."""
    with stages.stage(name) as record:
        n_before = passes.n_passes
        yield
        record["passes"] = passes.n_passes - n_before


# Together: several algorithms as one. They share every pass, and a race ends those that fall behind.

# Algorithms whose scores differ by less than this share are on the way to the same optimum.
_IN_STEP = 1e-7


@savable
class TogetherState(NamedTuple):
    """Several algorithms under way."""

    # The state of each; None for those that a race has ended.
    states: tuple[Any, ...]
    # How often all of them were answered.
    n_rounds: int = 0
    # Which were answered in this round, where not all fit into one pass.
    answered: tuple[int, ...] = ()


@dataclass(frozen=True)
class Together:
    """Runs algorithms of any kind side by side: what they ask for is computed in the same passes."""

    algorithms: tuple[_Rival[Any], ...]
    # A cut (n_rounds, n_kept) leaves, after this many rounds, the ones with the best scores. Of those that are on the
    # way to the same optimum one is kept.
    cuts: tuple[tuple[int, int], ...] = ()
    # The most algorithms that share a pass; a round takes several passes where there are more.
    at_once: int = 1 << 30

    def start(self, states: Sequence[Any]) -> TogetherState:
        """The state to begin with, from one state of each algorithm."""
        return TogetherState(tuple(states))

    def ask(self, state: TogetherState) -> Sequence[Request]:
        """What all that still run ask for, one after the other."""
        return [request for requests in self._asked(state).values() for request in requests]

    def tell(self, state: TogetherState, answers: Sequence[Answer]) -> TogetherState:
        """Each gets its own answers."""
        states, answered, first = list(state.states), list(state.answered), 0
        for number, requests in self._asked(state).items():
            own = answers[first : first + len(requests)]
            first += len(requests)
            states[number] = self.algorithms[number].tell(states[number], own)
            answered.append(number)
        state = state._replace(states=tuple(states), answered=tuple(answered))
        return state if self._asked(state, same_round=True) else self._end_round(state)

    def score(self, state: TogetherState) -> float | None:
        """The best score of any of them."""
        return max(self._scores(state).values(), default=None)

    def leading(self, state: TogetherState, n_kept: int) -> list[int]:
        """The numbers of those with the best scores, best first, and of those that are in step only the best."""
        return leading(self._scores(state), n_kept)

    def _asked(self, state: TogetherState, *, same_round: bool = False) -> Mapping[int, Sequence[Request]]:
        """The requests of the next pass, by number: of those not answered in this round, as many as share a pass."""
        asked: dict[int, Sequence[Request]] = {}
        for number, own in enumerate(state.states):
            if own is None or number in state.answered:
                continue
            if requests := self.algorithms[number].ask(own):
                asked[number] = requests
            if asked and (same_round or len(asked) == self.at_once):
                break
        return asked

    def _end_round(self, state: TogetherState) -> TogetherState:
        n_rounds = state.n_rounds + 1
        states = state.states
        for at_round, n_kept in self.cuts:
            if at_round == n_rounds:
                kept = set(self.leading(state, n_kept))
                # One that failed is not a rival; its state is kept for the record.
                states = tuple(
                    own if number in kept or own is None or self.algorithms[number].score(own) is None else None
                    for number, own in enumerate(states)
                )
        return TogetherState(states, n_rounds)

    def _scores(self, state: TogetherState) -> dict[int, float]:
        scores = {
            number: self.algorithms[number].score(own) for number, own in enumerate(state.states) if own is not None
        }
        return {number: score for number, score in scores.items() if score is not None and not math.isnan(score)}


def leading(scores: Mapping[int, float], n_kept: int) -> list[int]:
    """The numbers with the highest scores, highest first; those in step with a higher one are left out.

    Examples
    --------
    >>> leading({0: -100.0, 1: -90.0, 2: -90.0000000001, 3: -95.0}, n_kept=2)
    [1, 3]
    """
    chosen: list[int] = []
    for number in sorted(scores, key=lambda number: -scores[number]):
        in_step = any(scores[other] - scores[number] < _IN_STEP * abs(scores[other]) for other in chosen)
        if not in_step and len(chosen) < n_kept:
            chosen.append(number)
    return chosen
