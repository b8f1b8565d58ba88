"""Gibbs: several chains of draws from the posterior of a mixture, side by side in every pass, as an Algorithm.

A pass at the parameters of a chain draws everything hidden (`kernels/sweep_sums.py`) and gives sums; `tell` draws the
next parameters from them. Streams are keyed by (seed, chain, sweep, leaf) in the pass and by (seed, chain, sweep) in
`tell`, so that draws do not depend on workers, on other chains, or on where a run was interrupted. The same pass gives
the log-likelihood of the parameters it was asked at, so a draw is kept one pass after it was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.errors import FitError, NonFiniteError, SettingsError
from plmix_dist.inference.saved_state import savable
from plmix_dist.kernels import Prepared, SweepSums, prepare, sweep_sums
from plmix_dist.rankings.randomness import generator
from plmix_dist.solvers.gamma_prior import Parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from plmix_dist.engine.request import Answer
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.solvers.gamma_prior import GammaPrior

    Table = NDArray[np.float64]


class SweepParams(NamedTuple):
    """What travels to every task: log-worths (n_chains, K, n), log-shares (n_chains, K), the seed, and the sweep."""

    log_worths: Table
    log_shares: Table
    seed: int
    sweep: int


class _Sweep(NamedTuple):
    """The same, ready for kernels."""

    chains: list[Prepared]
    seed: int
    sweep: int


def _prepare(params: SweepParams) -> _Sweep:
    try:
        chains = [prepare(*chain) for chain in zip(params.log_worths, params.log_shares, strict=True)]
    except SettingsError as error:
        raise NonFiniteError(f"sweep {params.sweep}: {error}; choose a larger worth_shape") from None
    return _Sweep(chains, params.seed, params.sweep)


def _leaf(number: int, block: RankingBlock, params: _Sweep) -> SweepSums:
    """The sums of a leaf, with one chain after the other along the first axis."""
    found = [
        sweep_sums(block, chain, generator(params.seed, "gibbs-rows", index, params.sweep, number))
        for index, chain in enumerate(params.chains)
    ]
    return SweepSums(*(np.stack(field) for field in zip(*found, strict=True)))


SWEEP = Aggregation("gibbs", leaf=_leaf, prepare=_prepare)


class Draws(NamedTuple):
    """Draws that were kept.

    Parameters
    ----------
    log_worths : (n_chains, n_draws, n_components, n_items)
        Centred.
    log_shares : (n_chains, n_draws, n_components)
    log_likelihood : (n_chains, n_draws)
    """

    log_worths: Table
    log_shares: Table
    log_likelihood: Table


@savable
class GibbsState(NamedTuple):
    """Chains under way.

    Parameters
    ----------
    log_worths : (n_chains, n_components, n_items)
    log_shares : (n_chains, n_components)
        Where each chain stands.
    sweep
        How many sweeps led there.
    log_likelihood : (n_chains,)
        At the parameters of the last pass.
    kept : arrays (n, n_chains, n_components * n_items + n_components + 1)
        Draws so far: log-worths, log-shares, log-likelihood. Arrays of equal length are joined, so that there are few.
    error
        Why the chains cannot go on.
    """

    log_worths: Table
    log_shares: Table
    sweep: int
    log_likelihood: Table
    kept: tuple[Table, ...] = ()
    error: FitError | None = None


@dataclass(frozen=True)
class Gibbs:
    """How to sample.

    Parameters
    ----------
    prior
        The prior.
    n_warmup
        Sweeps that are dropped.
    n_draws
        How many draws each chain keeps.
    thin
        One of so many sweeps is kept.
    seed
        Key of all random numbers.
    """

    prior: GammaPrior
    n_warmup: int
    n_draws: int
    thin: int = 1
    seed: int = 0

    @property
    def n_sweeps(self) -> int:
        """Sweeps from the start to the last draw."""
        return self.n_warmup + self.n_draws * self.thin

    def start(self, chains: Sequence[Parameters]) -> GibbsState:
        """The state of chains that begin at given parameters."""
        log_worths = np.stack([chain.log_worths for chain in chains])
        log_worths = log_worths - log_worths.mean(axis=2, keepdims=True)
        log_shares = np.stack([chain.log_shares for chain in chains])
        return GibbsState(log_worths, log_shares, 0, np.full(len(chains), -np.inf))

    def ask(self, state: GibbsState) -> Sequence[Request]:
        """A pass at the parameters of all chains."""
        if state.error is not None or state.sweep > self.n_sweeps:
            return ()
        params = SweepParams(state.log_worths, state.log_shares, self.seed, state.sweep)
        return (Request(SWEEP, params),)

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
        drawn = [
            self.prior.draw_given(
                SweepSums(*(field[chain] for field in sums)),
                Parameters(state.log_worths[chain], state.log_shares[chain]),
                generator(self.seed, "gibbs-parameters", chain, state.sweep),
            )
            for chain in range(len(state.log_worths))
        ]
        return GibbsState(
            np.stack([chain.log_worths for chain in drawn]),
            np.stack([chain.log_shares for chain in drawn]),
            state.sweep + 1,
            sums.log_likelihood,
            kept,
        )

    def score(self, state: GibbsState) -> float | None:
        """The highest log-likelihood of the last pass."""
        return float(state.log_likelihood.max()) if state.sweep and state.error is None else None

    def draws(self, state: GibbsState) -> Draws:
        """The draws that were kept so far."""
        n_chains, n_components, n_items = state.log_worths.shape
        flat = np.concatenate(state.kept).transpose(1, 0, 2)
        n_worths = n_components * n_items
        log_worths = flat[:, :, :n_worths].reshape(n_chains, -1, n_components, n_items)
        return Draws(log_worths, flat[:, :, n_worths:-1].copy(), flat[:, :, -1].copy())


def _with_draw(kept: tuple[Table, ...], state: GibbsState, log_likelihood: Table) -> tuple[Table, ...]:
    """One more draw of each chain. The last two arrays are joined while they are equally long."""
    n_chains = len(log_likelihood)
    parts = [state.log_worths.reshape(n_chains, -1), state.log_shares, log_likelihood[:, None]]
    kept = (*kept, np.concatenate(parts, axis=1)[None])
    while len(kept) > 1 and len(kept[-1]) == len(kept[-2]):
        kept = (*kept[:-2], np.concatenate(kept[-2:]))
    return kept
