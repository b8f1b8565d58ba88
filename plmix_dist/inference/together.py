"""Together: several algorithms as one. They share every pass, and a race ends those that fall behind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.inference.saved_state import savable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plmix_dist.engine.request import Answer, Request
    from plmix_dist.inference.algorithm import Algorithm

# Algorithms whose scores differ by less than this share are on the way to the same optimum.
_IN_STEP = 1e-7


@savable
class TogetherState(NamedTuple):
    """Several algorithms under way.

    Parameters
    ----------
    states
        The state of each; None for those that a race has ended.
    n_rounds
        How often all of them were answered.
    answered
        Which were answered in this round, where not all fit into one pass.
    """

    states: tuple[Any, ...]
    n_rounds: int = 0
    answered: tuple[int, ...] = ()


@dataclass(frozen=True)
class Together:
    """Runs algorithms of any kind side by side: what they ask for is computed in the same passes.

    Parameters
    ----------
    algorithms
        The algorithms.
    cuts
        A cut (n_rounds, n_kept) leaves, after so many rounds, the ones with the best scores. Of those that are on the
        way to the same optimum one is kept.
    at_once
        The most algorithms that share a pass; a round takes several passes where there are more.
    """

    algorithms: tuple[Algorithm[Any], ...]
    cuts: tuple[tuple[int, int], ...] = ()
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
                # One that failed is no rival; its state is kept for the record.
                states = tuple(
                    own
                    if number in kept or own is None or self.algorithms[number].score(own) is None
                    else None
                    for number, own in enumerate(states)
                )
        return TogetherState(states, n_rounds)

    def _scores(self, state: TogetherState) -> dict[int, float]:
        scores = {
            number: self.algorithms[number].score(own)
            for number, own in enumerate(state.states)
            if own is not None
        }
        return {
            number: score for number, score in scores.items() if score is not None and not math.isnan(score)
        }


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
