"""MStep: one way of re-estimating the worths of a component, as a value.

An M-step names the sums over rows that it needs, the step it takes from them, and the objective that its steps raise,
if there is one. The loop of EM knows nothing else about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from plmix_dist.kernels import Prepared
from plmix_dist.rankings import Floats, RankingBlock


class Worths(NamedTuple):
    """Log-worths (n_items,) of one component, that of its ghost, and the log-weight of ties of two items, if any."""

    log_worths: Floats
    ghost: float
    log_tie: float = -math.inf

    def centred(self) -> Worths:
        """The same worths with log-worths whose mean is zero; ties are left out."""
        centre = self.log_worths.mean()
        return Worths(self.log_worths - centre, float(self.ghost - centre))


class Sums(Protocol):
    """Sums over rows, a NamedTuple of arrays: those that every E-step gives, and whatever else an M-step needs."""

    @property
    def log_likelihood(self) -> Floats:
        """(): of the observed rows, at the parameters that gave the posteriors."""
        ...

    @property
    def shares(self) -> Floats:
        """(n_components,): sums of weight times posterior."""
        ...


def square(n_items: int) -> int:
    """How many numbers per component are summed, where they are one for each pair of items."""
    return n_items * n_items


class Gradient(NamedTuple):
    """First derivatives of an objective in one component's log-worths and its ghost: wins minus expected wins.

    Expected wins also bound, coordinate by coordinate, the second derivatives that EM's own step uses. They come
    from all rows, so they hold where a sample knows nothing about an item.
    """

    # wins, expected_wins (n_items + 1,): those of the prior included; the ghost's in the last place.
    wins: Floats
    expected_wins: Floats

    @property
    def values(self) -> Floats:
        """(n_items + 1,): the derivatives."""
        return self.wins - self.expected_wins


@dataclass(frozen=True)
class Objective:
    """What an M-step raises, the log-prior added."""

    # For messages and records.
    name: str
    # From the sums over all rows to the objective of EM.
    observed: Callable[[Any], float]
    # The same with posteriors held fixed: the objective of an M-step that is solved to the end.
    expected: Callable[[Any], float]
    # From one component's statistics, its worths and alpha to the derivatives of objective + log-prior.
    gradient: Callable[[Any, Worths, float], Gradient]
    # From worths and gradient to a step that never lowers the objective.
    safe_step: Callable[[Worths, Gradient, float], Worths]


@dataclass(frozen=True)
class MStep:
    """One way of re-estimating worths. To add one, write a file beside lsr.py and list its value in `M_STEPS`."""

    # What users type as m_step.
    name: str
    # From a block, the current parameters and, in an exact M-step, those that gave the posteriors, to `Sums`.
    sums: Callable[[RankingBlock, Prepared, Prepared | None], Any]
    # From the sums over all rows and the number of a component to the statistics of that component.
    component: Callable[[Any, int], Any]
    # From these, worths and alpha to the next worths; None where the objective's safe step is the step.
    step: Callable[[Any, Worths, float], Worths] | None
    # What the steps raise. None if there is no such thing: then no step is refused, none is accelerated, and a fit
    # ends when its parameters stop moving.
    objective: Objective | None
    # How many numbers are summed per component, given the number of items.
    numbers: Callable[[int], int]
    # Whether `sums` takes rows in which items share a place.
    takes_ties: bool = False
    # For an M-step that draws: takes the place of `sums` in the passes of a fit. From a block, the current
    # parameters, those that gave the posteriors if these are held, and random numbers, which are keyed by seed,
    # start, iteration and leaf, to `Sums`. The fit then takes exactly `max_iter` iterations.
    drawn_sums: Callable[[RankingBlock, Prepared, Prepared | None, np.random.Generator], Any] | None = None
    # What the steps of such an M-step raise while its draws are held.
    objective_of_draws: Objective | None = None

    @property
    def draws(self) -> bool:
        """Whether its sums depend on random numbers."""
        return self.drawn_sums is not None

    @property
    def held_objective(self) -> Objective | None:
        """What the steps raise while posteriors, or draws from them, are held."""
        return self.objective_of_draws if self.draws else self.objective

    def __post_init__(self) -> None:
        """An M-step without a step of its own takes the safe step of its objective."""
        assert self.step is not None or self.objective is not None, "an M-step needs a step"
