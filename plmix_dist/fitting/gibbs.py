"""Gibbs: several chains of draws from the posterior of a mixture, side by side in every pass, as an Algorithm.

A pass at the parameters of a chain draws everything hidden (`kernels/draws.py`) and gives sums; `tell` draws the
next parameters from them. Streams are keyed by (seed, chain, sweep, leaf) in the pass and by (seed, chain, sweep) in
`tell`, so that draws do not depend on workers, on other chains, or on where a run was interrupted. The same pass gives
the log-likelihood of the parameters it was asked at, so a draw is kept one pass after it was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from plmix_dist.errors import FitError, NonFiniteError, SettingsError
from plmix_dist.fitting.algorithm import savable
from plmix_dist.fitting.e_step import PassParams, e_step
from plmix_dist.fitting.fixed_point import Evaluation, Iteration, Rules, advance
from plmix_dist.fitting.point import Point
from plmix_dist.kernels import EmStatistics, Prepared, SweepSums, prepare, sweep_sums
from plmix_dist.passes import Aggregation, Answer, Request
from plmix_dist.rankings import Floats, RankingBlock, generator
from plmix_dist.solvers import MM
from plmix_dist.solvers.gamma_prior import GammaPrior, Parameters


class _SweepParams(NamedTuple):
    """What travels to every task: log-worths (n_chains, K, n), log-shares (n_chains, K), the seed, and the sweep."""

    log_worths: Floats
    log_shares: Floats
    seed: int
    sweep: int


def _prepare(params: _SweepParams) -> tuple[list[Prepared], int, int]:
    try:
        chains = [prepare(*chain) for chain in zip(params.log_worths, params.log_shares, strict=True)]
    except SettingsError as error:
        raise NonFiniteError(f"sweep {params.sweep}: {error}; choose a larger worth_shape") from None
    return chains, params.seed, params.sweep


def _leaf(number: int, block: RankingBlock, params: tuple[list[Prepared], int, int]) -> SweepSums:
    """The sums of a leaf, with one chain after the other along the first axis."""
    chains, seed, sweep = params
    rngs = (generator(seed, "gibbs-rows", index, sweep, number) for index in range(len(chains)))
    found = [sweep_sums(block, chain, rng) for chain, rng in zip(chains, rngs, strict=True)]
    return SweepSums(*map(np.stack, zip(*found, strict=True)))


_SWEEP = Aggregation("gibbs", leaf=_leaf, prepare=_prepare)


class Draws(NamedTuple):
    """Draws that were kept."""

    # (n_chains, n_draws, n_components, n_items): centred.
    log_worths: Floats
    # (n_chains, n_draws, n_components)
    log_shares: Floats
    # (n_chains, n_draws)
    log_likelihood: Floats


@savable
class GibbsState(NamedTuple):
    """Chains under way."""

    # (n_chains, n_components, n_items)
    log_worths: Floats
    # (n_chains, n_components): where each chain stands.
    log_shares: Floats
    # How many sweeps led there.
    sweep: int
    # (n_chains,): at the parameters of the last pass.
    log_likelihood: Floats
    # arrays (n, n_chains, n_components * n_items + n_components + 1): Draws so far: log-worths, log-shares, log-
    # likelihood. Arrays of equal length are joined, so that there are few.
    kept: tuple[Floats, ...] = ()
    error: FitError | None = None


@dataclass(frozen=True)
class Gibbs:
    """How to sample."""

    prior: GammaPrior
    # Sweeps that are dropped.
    n_warmup: int
    # How many draws each chain keeps.
    n_draws: int
    # Every `thin`-th sweep is kept.
    thin: int = 1
    # Key of all random numbers.
    seed: int = 0

    @property
    def n_sweeps(self) -> int:
        """Sweeps from the start to the last draw."""
        return self.n_warmup + self.n_draws * self.thin

    def start(self, chains: Iterable[Parameters]) -> GibbsState:
        """The state of chains that begin at given parameters."""
        log_worths, log_shares = map(np.stack, zip(*chains, strict=True))
        log_worths = log_worths - log_worths.mean(axis=2, keepdims=True)
        return GibbsState(log_worths, log_shares, 0, np.full(len(log_worths), -np.inf))

    def ask(self, state: GibbsState) -> Sequence[Request]:
        """A pass at the parameters of all chains."""
        if state.error is not None or state.sweep > self.n_sweeps:
            return ()
        return (Request(_SWEEP, _SweepParams(state.log_worths, state.log_shares, self.seed, state.sweep)),)

    def tell(self, state: GibbsState, answers: Sequence[Answer]) -> GibbsState:
        """Keep the draws that were evaluated, if it is their turn, and draw the next ones."""
        (answer,) = answers
        if answer.error is not None:
            return state._replace(error=answer.error)
        sums: SweepSums = answer.results[0]
        kept = state.kept
        after = state.sweep - self.n_warmup
        if after > 0 and after % self.thin == 0:
            kept = _with_draw(kept, state, sums.log_likelihood)
        drawn = []
        for chain, here in enumerate(zip(state.log_worths, state.log_shares, strict=True)):
            own = SweepSums(*(field[chain] for field in sums))
            rng = generator(self.seed, "gibbs-parameters", chain, state.sweep)
            drawn.append(self.prior.draw_given(own, Parameters(*here), rng))
        log_worths, log_shares = map(np.stack, zip(*drawn, strict=True))
        return GibbsState(log_worths, log_shares, state.sweep + 1, sums.log_likelihood, kept)

    def draws(self, state: GibbsState) -> Draws:
        """The draws that were kept so far."""
        n_chains, n_components, n_items = state.log_worths.shape
        flat = np.concatenate(state.kept).transpose(1, 0, 2)
        n_worths = n_components * n_items
        log_worths = flat[:, :, :n_worths].reshape(n_chains, -1, n_components, n_items)
        return Draws(log_worths, flat[:, :, n_worths:-1].copy(), flat[:, :, -1].copy())


def _with_draw(kept: tuple[Floats, ...], state: GibbsState, log_likelihood: Floats) -> tuple[Floats, ...]:
    """One more draw of each chain. The last two arrays are joined while they are equally long."""
    parts = [state.log_worths.reshape(len(log_likelihood), -1), state.log_shares, log_likelihood[:, None]]
    kept = (*kept, np.concatenate(parts, axis=1)[None])
    while len(kept) > 1 and len(kept[-1]) == len(kept[-2]):
        kept = (*kept[:-2], np.concatenate(kept[-2:]))
    return kept


# MapEm: EM to the mode of the posterior under a gamma prior, as an Algorithm.


@savable
class _MapState(NamedTuple):
    """An iteration to the mode, and why it cannot go on, if it cannot."""

    iteration: Iteration
    error: FitError | None = None


class Mode(NamedTuple):
    """Where EM ended: the parameters, the log-likelihood and the log-posterior there, and whether it converged."""

    parameters: Parameters
    log_likelihood: float
    log_posterior: float
    converged: bool


@dataclass(frozen=True)
class MapEm:
    """How to find the mode."""

    # A prior that has a mode.
    prior: GammaPrior
    weight: float
    # tol, max_iter: it ends when gradient and change of the log-posterior, divided by the weight, are at most `tol`.
    tol: float = 1e-7
    max_iter: int = 500

    def start(self, begin: Parameters) -> _MapState:
        """The state of an iteration that begins at parameters."""
        return _MapState(Iteration.start(Point(begin.log_worths, np.zeros(len(begin.log_shares)), begin.log_shares)))

    def ask(self, state: _MapState) -> Sequence[Request]:
        """A pass of EM at the current point."""
        if state.error is not None or state.iteration.ended is not None:
            return ()
        return (Request(e_step(MM), PassParams(state.iteration.point)),)

    def tell(self, state: _MapState, answers: Sequence[Answer]) -> _MapState:
        """The state after a pass."""
        (answer,) = answers
        try:
            (sums,) = answer.get()
            evaluation = self._evaluation(state.iteration.point, sums)
            iteration, _ = advance(state.iteration, evaluation, Rules(self.tol, self.max_iter, self.weight))
        except FitError as error:
            return state._replace(error=error)
        return _MapState(iteration)

    def result(self, state: _MapState) -> Mode:
        """Where an iteration that has ended stands."""
        point, evaluation = state.iteration.best
        assert evaluation.objective is not None
        parameters, converged = Parameters(point.log_worths, point.log_shares), state.iteration.ended == "converged"
        return Mode(parameters, float(evaluation.details["log_likelihood"]), evaluation.objective, converged)

    def _evaluation(self, point: Point, sums: EmStatistics) -> Evaluation:
        here = Parameters(point.log_worths, point.log_shares)
        step, gradient = self.prior.em_step(sums, here)
        after = Point(step.log_worths, point.ghosts, step.log_shares)
        log_likelihood = float(sums.log_likelihood)
        objective = log_likelihood + float(self.prior.log_density(*here))
        residual, details = float(np.abs(gradient).max()) / self.weight, {"log_likelihood": log_likelihood}
        return Evaluation(objective, residual, gradient, None, after, after, details)
