"""CovariateEm: EM for a mixture whose shares depend on covariates of persons, as an Algorithm.

Each pass gives the sums for the worths of every component and for one Newton step on the coefficients of the shares.
The fit begins where the fit without covariates ended: there all coefficients but the intercepts are zero.

With q the posterior of a person, s its shares, w its weight and z its covariates, which begin with 1:

- the gradient in the coefficients of component k is the sum of w (q_k - s_k) z;
- the information, the negative Hessian of the expected log-likelihood, is the sum of w (diag(s) - s s') x z z'.

Covariates are centred and divided by their standard deviations first. The log-prior is that of a normal distribution
with precision RIDGE on the coefficients of each column, measured from their mean over components. So it does not depend
on which component is the reference. Intercepts have no prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from plmix_dist.errors import FitError, NonFiniteError, SettingsError
from plmix_dist.fitting.algorithm import savable
from plmix_dist.fitting.e_step import ComponentStep, PassParams, component_step, e_step, timing_of
from plmix_dist.fitting.em import Em, Progress, Run, flat_gradient, run_reported
from plmix_dist.fitting.fixed_point import Evaluation, Good, Iteration, Rules, advance
from plmix_dist.fitting.journal import NO_JOURNAL, Journal
from plmix_dist.fitting.point import Point
from plmix_dist.kernels import Prepared, memberships_at, prepare
from plmix_dist.kernels.memberships import Memberships
from plmix_dist.passes import Aggregation, Answer, Finish, Passes, Request, ask
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.groups import person_weights, with_person_shares
from plmix_dist.solvers import MStep, Sums, Worths
from plmix_dist.threads import single_thread

# A standard deviation of 10 for the coefficients of covariates of standard deviation 1.
_RIDGE = 0.01
# A Newton step moves no coefficient further than this: beyond it the quadratic approximation fails.
_LONGEST_STEP = 5.0
_DAMPING = 1e-12


class _ShareSums(NamedTuple):
    """Sums over persons."""

    # Those of the M-step of the worths.
    sums: Sums
    # members, expected (n_components, n_columns + 1): sums of w q z, and of w s z.
    members: Floats
    expected: Floats
    # (n_components, n_components, n_columns + 1, n_columns + 1)
    information: Floats
    # (n_columns + 1, n_columns + 1): sum of w z z'.
    moments: Floats


def _prepare(params: tuple[Point, Units]) -> tuple[Prepared, Floats, Units]:
    """From a point with coefficients of shares, and the units of the covariates, to what a leaf takes."""
    point, units = params
    try:
        current = prepare(point.log_worths, np.full(point.n_components, -np.log(point.n_components)))
    except SettingsError as error:  # it concerns this fit alone
        raise NonFiniteError(str(error)) from None
    return current, point.log_shares, units


def _leaf_sums(m_step: MStep, number: int, block: RankingBlock, params: tuple[Prepared, Floats, Units]) -> _ShareSums:
    current, coefficients, units = params
    block = with_person_shares(units.of_block(block), coefficients)
    sums = e_step(m_step).leaf(number, block, PassParams(current))
    at = memberships_at(block, current)
    assert block.covariates is not None
    assert block.log_shares is not None
    first = block.group_starts
    columns = block.covariates[first]
    design = np.column_stack([np.ones(len(columns)), columns])
    with single_thread():
        return _share_sums(sums, design, at, np.exp(block.log_shares[first]))


def _share_sums(sums: Sums, design: Floats, at: Memberships, shares: Floats) -> _ShareSums:
    """All sums of some persons."""
    n_components, n_columns = shares.shape[1], design.shape[1]
    weighted = at.weights[:, None] * shares
    information = np.zeros((n_components, n_components, n_columns, n_columns))
    for one in range(n_components):
        for other in range(one, n_components):
            curvature = weighted[:, one] * ((one == other) - shares[:, other])
            information[one, other] = information[other, one] = design.T @ (curvature[:, None] * design)
    members = (at.weights[:, None] * at.posteriors).T @ design
    return _ShareSums(sums, members, weighted.T @ design, information, design.T @ (at.weights[:, None] * design))


class _ShareStep(NamedTuple):
    """What an iteration needs of the sums beside the M-steps of the worths."""

    # Of all persons, with their own shares.
    log_likelihood: float
    # Of the coefficients.
    log_prior: float
    # (n_components, n_columns + 1): of the objective in the coefficients.
    gradient: Floats
    # next, safe (n_components, n_columns + 1): the coefficients after a Newton step, and after one that cannot lower
    # the objective.
    next: Floats
    safe: Floats
    # (n_components,): the mean shares.
    shares: Floats


def _share_step(coefficients: Floats, total: _ShareSums) -> _ShareStep:
    """One Newton step on the coefficients, and the safe step of Boehning's bound: diag(s) - s s' <= (I - 11'/K) / 2."""
    n_components, n_columns = coefficients.shape
    centred = coefficients - coefficients.mean(axis=0)
    penalty = np.full(n_columns, _RIDGE)
    penalty[0] = 0.0
    gradient = total.members - total.expected - penalty * centred
    # Adding the same to all components changes no share. The moments make the matrix regular in that direction.
    joined = total.information + total.moments / n_components
    matrix = joined.transpose(0, 2, 1, 3).reshape(n_components * n_columns, n_components * n_columns)
    matrix = matrix + np.diag(np.tile(penalty, n_components))
    matrix += np.diag(np.full(len(matrix), _DAMPING * float(np.trace(total.moments))))
    move = np.linalg.solve(matrix, gradient.ravel()).reshape(gradient.shape)
    move *= min(1.0, _LONGEST_STEP / max(float(np.abs(move).max()), 1e-300))
    bound = total.moments / 2 + np.diag(penalty + _DAMPING * float(np.trace(total.moments)))
    safe = np.linalg.solve(bound, gradient.T).T
    after, safe = (there - there.mean(axis=0) for there in (centred + move, centred + safe))
    log_prior = -float((penalty * centred**2).sum()) / 2
    shares = total.expected[:, 0] / float(total.moments[0, 0])
    return _ShareStep(float(total.sums.log_likelihood), log_prior, gradient, after, safe, shares)


# Units of covariates: their means and standard deviations over persons; columns without information are errors.

# A column whose standard deviation is less than this share of its largest entry is constant but for rounding.
_CONSTANT = 1e-12
# The least share of the variance of a column that the columns before it leave unexplained.
_COLLINEAR = 1e-8


@savable
class Units(NamedTuple):
    """Where covariates are centred, and what they are divided by: (n_columns,) each."""

    centre: Floats
    scale: Floats

    @classmethod
    def none(cls) -> Units:
        """Those of no covariates."""
        return cls(np.zeros(0), np.ones(0))

    def of_block(self, block: RankingBlock) -> RankingBlock:
        """The block with its covariates in these units."""
        assert block.covariates is not None
        return block.replace(covariates=(block.covariates - self.centre) / self.scale)

    def undone(self, coefficients: Floats) -> Floats:
        """(n_components, n_columns + 1): coefficients of covariates as the user gave them."""
        slopes = coefficients[:, 1:] / self.scale
        return np.column_stack([coefficients[:, 0] - slopes @ self.centre, slopes])


class Moments(NamedTuple):
    """Sums over persons in rough units: weight (), w z (n_columns,), w z z' (n_columns, n_columns)."""

    weight: Floats
    first: Floats
    second: Floats


def _leaf_moments(_number: int, block: RankingBlock, rough: Units) -> Moments:
    columns = rough.of_block(block).covariates
    assert columns is not None
    starts = block.group_starts
    weights = person_weights(block)
    columns = columns[starts]
    weighted = weights[:, None] * columns
    with single_thread():
        return Moments(np.array(weights.sum()), weighted.sum(axis=0), weighted.T @ columns)


_MOMENTS = Aggregation("moments", leaf=_leaf_moments)


def _rough_units(covariates: Floats) -> Units:
    """Units from the plain rows; an error if a column is constant."""
    centre, scale = covariates.mean(axis=0), covariates.std(axis=0)
    for column in np.flatnonzero(scale <= _CONSTANT * np.abs(covariates).max(axis=0, initial=0.0)).tolist():
        raise SettingsError(_constant(column, f" ({covariates[0, column]:g})"))
    return Units(centre, scale)


def _units_of(moments: Moments, rough: Units) -> Units:
    """Mean and standard deviation over persons; an error if columns are constant or linear combinations of others."""
    mean = moments.first / moments.weight
    covariance = moments.second / moments.weight - np.outer(mean, mean)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    for column in np.flatnonzero(deviation <= np.sqrt(_CONSTANT)).tolist():
        raise SettingsError(_constant(column, " among the persons that have a weight"))
    correlation = covariance / np.outer(deviation, deviation)
    for column in range(1, len(mean)):
        before = correlation[:column, :column]
        along = correlation[:column, column]
        if 1 - along @ np.linalg.solve(before, along) <= _COLLINEAR:
            raise SettingsError(
                f"column {column} of membership_covariates is a linear combination of the columns before it, so their "
                "coefficients cannot be told apart; leave it out (of columns that mark categories, leave one out)"
            )
    return Units(rough.centre + rough.scale * mean, rough.scale * deviation)


def take_units(passes: Passes, covariates: Floats) -> Units:
    """The units of covariates, in one pass over the persons."""
    rough = _rough_units(covariates)
    return _units_of(ask(passes, Request(_MOMENTS, rough)), rough)


def _constant(column: int, found: str) -> str:
    return f"column {column} of membership_covariates is constant{found}; leave it out: an intercept is always there"


# The algorithm.

# The information has the square of this many entries, and it travels from every task.
_MOST_COEFFICIENTS = 2000
# A component without a share begins with this one, so that its logarithm is finite.
_LEAST_SHARE = 1e-12


def _with_coefficients(point: Point, n_columns: int) -> Point:
    """The end of a fit without covariates as a point with coefficients: all but the intercepts are zero."""
    log_shares = np.maximum(point.log_shares, np.log(_LEAST_SHARE))
    coefficients = np.zeros((point.n_components, n_columns + 1))
    coefficients[:, 0] = log_shares - log_shares.mean()
    return point._replace(log_shares=coefficients)


@savable
class _CovariateState(NamedTuple):
    """A fit under way."""

    iteration: Iteration
    history: tuple[dict[str, Any], ...] = ()
    # (n_components,): the mean shares at the last good point.
    shares: Floats | None = None
    error: FitError | None = None


@dataclass(frozen=True)
class _CovariateEm:
    """How to fit shares that depend on covariates."""

    # M-step, prior, tolerance and the like.
    em: Em
    # The units of the covariates.
    units: Units
    # The number of iterations before this fit.
    n_before: int = 0

    def start(self, point: Point) -> _CovariateState:
        """The state of a fit that begins where one without covariates ended."""
        return _CovariateState(Iteration.start(_with_coefficients(point, len(self.units.centre))))

    def ask(self, state: _CovariateState) -> Sequence[Request]:
        """A pass at the point to be evaluated."""
        if state.error is not None or state.iteration.ended is not None:
            return ()
        point, em = state.iteration.point, self.em
        finish = [Finish("shares", partial(_share_step, point.log_shares))]
        for component, worths in enumerate(point.components()):
            step = partial(_component_step, em.m_step, component, worths, em.alpha)
            finish.append(Finish(f"m-step-{component}", step))
        sums = Aggregation("covariates", leaf=partial(_leaf_sums, em.m_step), prepare=_prepare)
        return (Request(sums, (point, self.units), tuple(finish)),)

    def tell(self, state: _CovariateState, answers: Sequence[Answer]) -> _CovariateState:
        """The state after a pass."""
        (answer,) = answers
        try:
            shares, *steps = answer.get()
            evaluation = self.evaluation(shares, steps, timing_of(answer, steps))
            rules = Rules(self.em.tol, self.em.max_iter, self.em.weight, self.em.accelerate)
            iteration, record = advance(state.iteration, evaluation, rules)
        except FitError as error:
            return state._replace(error=type(error)(f"iteration {self.n_before + len(state.history) + 1}, {error}"))
        numbered = {"iteration": self.n_before + len(state.history) + 1, "start": self.em.number} | record
        taken = shares.shares if record["taken"] else state.shares
        return state._replace(iteration=iteration, history=(*state.history, numbered), shares=taken)

    def evaluation(self, shares: _ShareStep, steps: Sequence[ComponentStep], timing: dict[str, float]) -> Evaluation:
        """The evaluation of a point, from the results of a pass."""
        gradient, _ = flat_gradient(steps, shares.gradient.ravel(), shares.shares)
        details = {"log_likelihood": shares.log_likelihood, **timing}
        if timing:
            details["rankings_per_second"] = self.em.n_rankings / timing["seconds"]
        objective = shares.log_likelihood + shares.log_prior + sum(step.log_prior for step in steps)
        residual = float(np.abs(gradient).max()) / self.em.weight
        after = Point.gathered([step.next for step in steps], shares.next)
        safe = Point.gathered([step.safe for step in steps if step.safe is not None], shares.safe)
        return Evaluation(objective, residual, gradient, None, after, safe, details)

    def result(self, state: _CovariateState, before: Run) -> tuple[Run, Floats]:
        """Where the fit ended, and the coefficients (n_components, n_columns + 1) of covariates as they were given."""
        point, evaluation = state.iteration.best
        assert state.shares is not None
        with np.errstate(divide="ignore"):
            mean = Good(point._replace(log_shares=np.log(state.shares)), evaluation)
        history, converged = (*before.history, *state.history), state.iteration.ended == "converged"
        found = Run.at(mean, converged=converged, history=history, events=before.events)
        return found, self.units.undone(point.log_shares)


def _component_step(m_step: MStep, component: int, worths: Worths, alpha: float, total: _ShareSums) -> ComponentStep:
    return component_step(m_step, component, worths, alpha, total.sums)


def run_with_covariates(
    passes: Passes,
    em: Em,
    before: Run,
    covariates: Floats,
    progress: Progress | None = None,
    journal: Journal = NO_JOURNAL,
) -> tuple[Run, Floats]:
    """Continue a fit without covariates, which ended at `before`: its end, coefficients (n_components, n_columns + 1).

    `passes` go over rows that carry their covariates (n_rankings, n_columns).
    """
    n_components, n_columns = before.point.n_components, covariates.shape[1]
    if n_columns == 0:
        return before, np.maximum(before.point.log_shares, np.log(_LEAST_SHARE))[:, None]
    if n_components * (n_columns + 1) > _MOST_COEFFICIENTS:
        raise SettingsError(
            f"{n_components} components and {n_columns} covariates have {n_components * (n_columns + 1)} coefficients, "
            f"and at most {_MOST_COEFFICIENTS} can be fitted; choose fewer columns"
        )
    algorithm = _CovariateEm(em, journal.stage("units", lambda: take_units(passes, covariates)), before.n_iterations)
    ended = run_reported(passes, algorithm, algorithm.start(before.point), "covariates", progress, journal)
    if ended.error is not None:
        raise ended.error
    return algorithm.result(ended, before)
