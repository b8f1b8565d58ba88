"""Fits whose utilities are linear in parameters: features, slates, best and worst; as an Algorithm.

The observed log-likelihood, less a ridge, is maximised by Newton steps. Where the information of all rows in every pass
would cost too much, it is that of a sample, and follows the gradients of all rows from step to step (BFGS). A step that
lowers the objective is not taken; a shorter one, nearer to the gradient, is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from plmix_dist.errors import FitError, NotIdentifiedError
from plmix_dist.fitting.algorithm import savable
from plmix_dist.fitting.covariates import Units
from plmix_dist.kernels.utilities import LinearInformation, LinearPoint, LinearSums, linear_information, linear_sums
from plmix_dist.passes import Aggregation, Answer, Request
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.threads import single_thread

savable(LinearPoint)
savable(LinearInformation)

# A coefficient of a column of standard deviation 1 beyond this is on its way to infinity.
_LARGEST = 15.0
# So is one about which the rankings at the end say less than this share of what they would say at zero.
_LEAST_KNOWN = 1e-6
# No coefficient moves further than this in one step: second derivatives may be quite different there.
_LONGEST_STEP = 2.0
_LEAST_DAMPING, _MOST_DAMPING = 1e-4, 1e8
# Sums of millions of terms are known to about this share.
_ROUNDING = 1e-13
# Where the gradient has not come down to a tenth in this many steps, the information of all rows is computed again.
_STEPS_WATCHED = 6
_EXPECTED_FALL = 0.1


@savable
@dataclass(frozen=True)
class Columns:
    """The columns that utilities are made of: those of alternatives (`design`), then those of rows by item.

    Coefficients are those of columns divided by `scale`, so that all are of a size; so is the ridge.
    """

    # (n_alternatives, n_item_columns)
    design: Floats
    # names, one per column; and which coefficients all components share (n_columns,).
    names: tuple[str, ...]
    shared: NDArray[np.bool_]
    # scale, ridge (n_columns,)
    scale: Floats
    ridge: Floats

    @property
    def n_columns(self) -> int:
        """The number of all columns."""
        return len(self.names)


@savable
@dataclass(frozen=True)
class Layout:
    """Where coefficients stand in a vector of free parameters: those of choices, then of shares.

    The first component has coefficients of shares 0: the others are measured from it. In the vector all coefficients
    are those of columns divided by their scales, and of covariates in `units`.
    """

    columns: Columns
    n_components: int
    units: Units
    # (n_components,): logarithms of shares that are fixed, or None.
    fixed_log_shares: Floats | None = None
    # Precision of coefficients of shares, without their intercepts.
    share_ridge: float = 0.0

    @property
    def n_covariates(self) -> int:
        """The number of covariates of persons."""
        return len(self.units.centre)

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """(n_coefficients,): where every coefficient stands, component by component; -1 for those that are fixed."""
        own = ~self.columns.shared
        of_choices = np.full((self.n_components, len(own)), -1)
        of_choices[0] = np.arange(len(own))
        of_choices[1:, ~own] = of_choices[0, ~own]
        of_choices[1:, own] = len(own) + np.arange((self.n_components - 1) * own.sum()).reshape(
            self.n_components - 1, own.sum()
        )
        of_shares = np.full((self.n_components, 1 + self.n_covariates), -1)
        if self.fixed_log_shares is None:
            of_shares[1:] = of_choices.max(initial=-1) + 1 + np.arange(of_shares[1:].size).reshape(of_shares[1:].shape)
        return np.concatenate([of_choices.ravel(), of_shares.ravel()])

    @property
    def n_free(self) -> int:
        """The length of the vector."""
        return int(self.place.max(initial=-1)) + 1

    @cached_property
    def precision(self) -> Floats:
        """(n_free,): of the prior."""
        of_shares = np.full((self.n_components, 1 + self.n_covariates), self.share_ridge)
        of_shares[:, 0] = 0.0
        every = np.concatenate([np.tile(self.columns.ridge, self.n_components), of_shares.ravel()])
        found = np.zeros(self.n_free)
        found[self.place[self.place >= 0]] = every[self.place >= 0]
        return found

    @cached_property
    def to_free(self) -> Floats:
        """(n_coefficients, n_free): derivatives of all coefficients, in the user's units, in the free parameters."""
        n_worths = self.n_components * self.columns.n_columns
        found = np.zeros((len(self.place), self.n_free))
        free = np.flatnonzero(self.place >= 0)
        found[free, self.place[free]] = 1.0
        found[:n_worths] /= np.tile(self.columns.scale, self.n_components)[:, None]
        of_shares = found[n_worths:].reshape(self.n_components, -1, self.n_free)
        of_shares[:, 1:] /= self.units.scale[:, None]
        of_shares[:, 0] -= np.tensordot(of_shares[:, 1:], self.units.centre, axes=(1, 0))
        return found

    def point(self, vector: Floats) -> LinearPoint:
        """The parameters of a vector, in the user's units."""
        every = self.to_free @ vector
        n_worths = self.n_components * self.columns.n_columns
        of_shares = every[n_worths:].reshape(self.n_components, -1)
        if self.fixed_log_shares is not None:
            of_shares[:, 0] = self.fixed_log_shares
        return LinearPoint(self.columns.design, every[:n_worths].reshape(self.n_components, -1), of_shares)

    def vector(self, point: LinearPoint) -> Floats:
        """The vector of parameters; of coefficients that are shared, the mean."""
        of_shares = point.share_coefficients - point.share_coefficients[0]
        of_shares[:, 0] += of_shares[:, 1:] @ self.units.centre
        of_shares[:, 1:] *= self.units.scale
        every = np.concatenate([(point.coefficients * self.columns.scale).ravel(), of_shares.ravel()])
        found, free = np.zeros(self.n_free), self.place >= 0
        np.add.at(found, self.place[free], every[free])
        return found / np.bincount(self.place[free], minlength=self.n_free)


def _leaf_sums(_number: int, block: RankingBlock, point: LinearPoint) -> LinearSums:
    return linear_sums(block, point)


def _leaf_information(_number: int, block: RankingBlock, point: LinearPoint) -> LinearInformation:
    return linear_information(block, point)


_SUMS = Aggregation("linear", leaf=_leaf_sums)
INFORMATION = Aggregation("linear-information", leaf=_leaf_information)


@savable
class _LinearGood(NamedTuple):
    """The last point that was taken, with what is known about it."""

    vector: Floats
    objective: float
    log_likelihood: float
    # (n_free,): of the objective.
    gradient: Floats
    # (n_components,): mean posteriors.
    shares: Floats


@savable
class LinearState(NamedTuple):
    """A fit under way."""

    # The vector that the next pass evaluates.
    vector: Floats
    good: _LinearGood | None = None
    # (n_free, n_free): minus the second derivatives of the objective, as far as they are known; and their diagonal if
    # all components were known (n_free,), by which steps are damped.
    curvature: Floats | None = None
    known: Floats | None = None
    damping: float = _LEAST_DAMPING
    n_refused: int = 0
    # Whether the next pass computes the information of all rows.
    renews: bool = False
    history: tuple[dict[str, Any], ...] = ()
    ended: str | None = None
    error: FitError | None = None

    @property
    def best(self) -> _LinearGood:
        """The last good point."""
        assert self.good is not None, "nothing was evaluated"
        return self.good


@dataclass(frozen=True)
class LinearFit:
    """How to fit."""

    layout: Layout
    # weight, n_rankings: of all persons, and the number of rows.
    weight: float
    n_rankings: int
    tol: float = 1e-8
    max_iter: int = 500
    # Whether every pass computes the information of all rows too.
    always_renews: bool = True
    number: int = 0
    # The columns that users gave, for messages; all others are worths of items.
    given: frozenset[str] = frozenset()
    # What a pass adds up.
    sums: Aggregation = _SUMS

    def start(self, vector: Floats, curvature: tuple[Floats, Floats] | None = None) -> LinearState:
        """The state of a fit that begins at a vector; with the information there, if it is known of a sample."""
        if curvature is None:
            return LinearState(vector, renews=True)
        return LinearState(vector, curvature=curvature[0], known=curvature[1], renews=self.always_renews)

    def ask(self, state: LinearState) -> Sequence[Request]:
        """A pass at the vector to be evaluated."""
        if state.ended is not None or state.error is not None:
            return ()
        point = self.layout.point(state.vector)
        requests = [Request(self.sums, point)]
        return [*requests, Request(INFORMATION, point)] if state.renews else requests

    def tell(self, state: LinearState, answers: Sequence[Answer]) -> LinearState:
        """The state after a pass. An error ends this fit and no other."""
        try:
            return self._advanced(state, *answers)
        except FitError as error:
            return state._replace(error=type(error)(f"iteration {len(state.history) + 1}, {error}"))

    def score(self, state: LinearState) -> float | None:
        """The objective of the best point so far."""
        return None if state.good is None or state.error is not None else state.good.objective

    def _advanced(self, state: LinearState, answer: Answer, information: Answer | None = None) -> LinearState:
        (sums,), good = answer.get(), state.good
        here = self._good(state.vector, sums)
        slack = _ROUNDING * abs(here.objective) if good is None else _ROUNDING * abs(good.objective)
        taken = good is None or here.objective >= good.objective - slack
        step = "start" if good is None else "newton" if self.always_renews else "quasi-newton"
        change = None if good is None else here.objective - good.objective
        gradient = float(np.abs(here.gradient).max(initial=0.0)) / self.weight
        record = {
            "iteration": len(state.history) + 1, "start": self.number, "step": step, "taken": taken,
            "objective": here.objective, "change": change, "gradient": gradient,
            "log_likelihood": here.log_likelihood, **answer.timing._asdict(), "solve_seconds": 0.0,
            "rankings_per_second": self.n_rankings / max(answer.timing.seconds, 1e-9),
        }  # fmt: skip
        state = state._replace(history=(*state.history, record))
        if not taken:
            return self._shortened(state)
        self._refuse_divergence(here.vector)
        if information is not None:
            (found,) = information.get()
            curvature, known = self.curvature_of(found)
            state = state._replace(curvature=curvature, known=known, renews=self.always_renews)
        elif good is not None and state.curvature is not None:
            state = state._replace(curvature=_followed(state.curvature, here, good))
        state = state._replace(good=here, n_refused=0, damping=max(_LEAST_DAMPING, state.damping / 10))
        settled = change is not None and abs(change) <= self.tol * self.weight
        if gradient <= self.tol and (settled or not self.layout.n_free):
            self._refuse_divergence(here.vector, state.known if information is not None else None)
            return state._replace(ended="converged")
        if len(state.history) >= self.max_iter:
            return state._replace(ended="exhausted")
        if not state.renews and _is_slow(state.history):
            state = state._replace(renews=True)
        return self._stepped(state)

    def _good(self, vector: Floats, sums: LinearSums) -> _LinearGood:
        layout = self.layout
        gradient = np.concatenate([sums.gradient.ravel(), sums.share_gradient.ravel()]) @ layout.to_free
        precision, log_likelihood = layout.precision, float(sums.log_likelihood)
        objective = log_likelihood - float(precision @ vector**2) / 2
        shares = sums.shares / sums.shares.sum()
        return _LinearGood(vector, objective, log_likelihood, gradient - precision * vector, shares)

    def curvature_of(self, found: LinearInformation, times: float = 1.0) -> tuple[Floats, Floats]:
        """Minus the second derivatives of the objective, and their diagonal if all components were known.

        `times` is the weight of all rows divided by that of the rows whose information was found.
        """
        to, precision = self.layout.to_free, self.layout.precision
        with single_thread():
            return times * (to.T @ found.observed @ to) + np.diag(precision), times * (found.known @ to**2) + precision

    def _shortened(self, state: LinearState) -> LinearState:
        """Another step from the last good point, shorter and nearer to the gradient."""
        good = state.best
        if len(state.history) >= self.max_iter:
            return state._replace(ended="exhausted")
        if state.damping >= _MOST_DAMPING:
            near = float(np.abs(good.gradient).max(initial=0.0)) <= 100 * self.tol * self.weight
            return state._replace(ended="converged" if near else "stalled")
        return self._stepped(state._replace(damping=max(0.01, state.damping * 10), n_refused=state.n_refused + 1))

    def _stepped(self, state: LinearState) -> LinearState:
        assert state.curvature is not None
        assert state.known is not None
        move = damped_step(state.curvature, state.known, state.best.gradient, state.damping)
        return state._replace(vector=state.best.vector + move)

    def _refuse_divergence(self, vector: Floats, known: Floats | None = None) -> None:
        """An error if a coefficient that nothing holds back is far out, or where it has hardly an effect any more.

        `known` (n_free,) is the information where the fit ends.
        """
        layout, n = self.layout, self.layout.columns.n_columns
        place = layout.place[: layout.n_components * n].reshape(layout.n_components, n)
        wide = np.abs(vector) > _LARGEST
        if known is not None:
            wide |= known < _LEAST_KNOWN * self.weight
        lost = wide[place] & (layout.columns.ridge == 0)
        if lost.any():
            component, column = np.unravel_index(np.argmax(np.where(lost, np.abs(vector[place]), -1.0)), lost.shape)
            name = layout.columns.names[column]
            raise NotIdentifiedError(
                f"the coefficient of {name} in component {component} has no maximum-likelihood estimate: it grows "
                "without end, because this column separates what was chosen from the rest; give plm.Features(..., "
                "ridge=1.0), or choose fewer components"
                if name in self.given
                else f"worths of items in component {component} have no maximum-likelihood estimate: they grow without "
                "end, because some are always chosen before others; choose alpha above 0, or fewer components"
            )


def damped_step(curvature: Floats, known: Floats, gradient: Floats, damping: float) -> Floats:
    """(n,): a step uphill by a curvature that need not be positive; with much damping along the scaled gradient."""
    if not len(gradient):
        return gradient
    roots = np.sqrt(np.maximum(known, 1e-12 * max(float(known.max()), 1e-300)))
    scaled = curvature / np.outer(roots, roots)
    scaled = (scaled + scaled.T) / 2
    with single_thread():
        try:
            move = cho_solve(cho_factor(scaled + damping * np.eye(len(scaled))), gradient / roots) / roots
        except LinAlgError:  # it is not positive: negative values count as positive ones
            values, vectors = np.linalg.eigh(scaled)
            held = np.maximum(np.abs(values), 1e-3 * float(np.abs(values).max())) + damping
            move = (vectors @ ((vectors.T @ (gradient / roots)) / held)) / roots
    longest = float(np.abs(move).max())
    found: Floats = move * min(1.0, _LONGEST_STEP / longest) if longest > 0 else move
    return found


def _followed(curvature: Floats, here: _LinearGood, before: _LinearGood) -> Floats:
    """The curvature after a step, by what it did to the gradient (BFGS)."""
    step, fall = here.vector - before.vector, before.gradient - here.gradient
    along = float(step @ fall)
    if along <= 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(fall)):
        return curvature
    image = curvature @ step
    squared = float(step @ image)
    if squared <= 0:
        return curvature
    return curvature + np.outer(fall, fall) / along - np.outer(image, image) / squared


def _is_slow(history: Sequence[dict[str, Any]]) -> bool:
    """Whether the gradient has not come down within the steps that are watched."""
    gradients = [record["gradient"] for record in history if record["taken"]]
    return (
        len(gradients) > _STEPS_WATCHED
        and len(gradients) % _STEPS_WATCHED == 0
        and gradients[-1] > _EXPECTED_FALL * gradients[-1 - _STEPS_WATCHED]
    )
