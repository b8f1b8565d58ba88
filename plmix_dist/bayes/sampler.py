"""A whole Bayesian fit: starts, sweeps of all chains, the mode, and draws with their components relabelled."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.bayes.chain_starts import around, from_prior
from plmix_dist.bayes.relabelling import relabelling
from plmix_dist.engine.passes import make_passes
from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.errors import (
    CollapsedComponentWarning,
    NotConvergedWarning,
    OptimumFoundOnceWarning,
    SettingsError,
)
from plmix_dist.inference.fingerprint import data_fingerprint, digest_of
from plmix_dist.inference.fit import fit_mixture
from plmix_dist.inference.journal import open_journal
from plmix_dist.inference.map_em import MapEm
from plmix_dist.inference.settings import FitSettings
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.progress import stage_listener
from plmix_dist.rankings.groups import membership_weight
from plmix_dist.solvers.gamma_prior import Parameters
from plmix_dist.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client
    from numpy.typing import NDArray

    from plmix_dist.bayes.settings import BayesSettings
    from plmix_dist.data import Rankings
    from plmix_dist.engine.passes import Passes
    from plmix_dist.inference.gibbs import Draws, Gibbs, GibbsState
    from plmix_dist.inference.journal import Journal
    from plmix_dist.inference.map_em import Mode
    from plmix_dist.inference.point import Point
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.solvers.gamma_prior import GammaPrior
    from plmix_dist.store.checkpoints import Checkpoint

    Progress = Callable[[dict[str, Any]], None]

# Chains begin around a fit, so it need not be exact.
_START_TOLERANCE = 1e-5
# Larger numbers of persons are not whole numbers of float64.
_LARGEST_WEIGHT = 2.0**53
# Items of copies of tied rows, in one leaf: a sweep needs about 100 bytes for each.
_MOST_COPIED = 2.0**25


@dataclass(frozen=True)
class Sampled:
    """Draws of all chains.

    Parameters
    ----------
    draws
        As the chains made them.
    log_posterior : (n_chains, n_draws)
        Log-likelihood and log-prior, up to a constant.
    labels : (n_chains, n_draws, n_components)
        Component k of the relabelled draws is component `labels[..., k]` of a draw. Largest mean share first.
    mode
        The MAP estimate, its components in the same order; None if the prior has no mode.
    stages
        What each stage cost.
    """

    draws: Draws
    log_posterior: NDArray[np.float64]
    labels: NDArray[np.int64]
    mode: Mode | None
    stages: list[dict[str, Any]]


def sample_mixture(
    rankings: Rankings,
    settings: BayesSettings,
    given: Point | None,
    client: Client | None,
    progress: Progress | None = None,
    *,
    init: str = "fit",
    begin: GibbsState | None = None,
    after: Callable[[GibbsState], None] | None = None,
    checkpoint: Checkpoint | None = None,
    any_seed: bool = False,
) -> Sampled:
    """Sample from the posterior.

    Parameters
    ----------
    rankings
        With ties as they are.
    settings
        The settings.
    given
        A point around which chains begin, or None.
    client
        Where to compute.
    progress
        Hears of every sweep.
    init
        Without a given point: "fit", around a fit by EM; or "prior".
    begin
        A state to go on from, such as one that was saved; then nothing is fitted first.
    after
        Called with the state after every sweep.
    checkpoint
        Where and how often the state is saved. A run with the same data and settings goes on from there.
    any_seed
        Whether the seed was not chosen, so that that of a checkpoint is taken.

    Examples
    --------
    >>> from plmix_dist.bayes.settings import BayesSettings
    >>> from plmix_dist.data import as_rankings
    >>> rankings = as_rankings([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
    >>> settings = BayesSettings(2, n_chains=2, n_warmup=20, n_draws=50)
    >>> sample_mixture(rankings, settings, given=None, client=None).draws.log_worths.shape
    (2, 50, 2, 3)
    """
    passes = make_passes(rankings, client, settings.residency)
    try:
        fingerprint = partial(_made_from, passes, rankings, settings, given, init)
        with open_journal(checkpoint, fingerprint, free=("seed",) if any_seed else ()) as journal:
            settings = replace(settings, seed=journal.fingerprint.get("seed", settings.seed))
            gibbs = settings.gibbs(rankings.n_items)
            stages = Stages(stage_listener(progress))
            with stages.stage("survey", passes=1):
                weight = journal.stage("survey", lambda: _weight_of_whole_rows(passes))
            if begin is None:
                with stages.stage("start"):
                    begin = journal.stage(
                        "start",
                        lambda: gibbs.start(
                            _starts(rankings, settings, gibbs.prior, given, init, client, progress)
                        ),
                    )
            begin = journal.begin("sweeps", begin)
            with stages.stage("sweeps", passes=gibbs.n_sweeps + 1 - begin.sweep):
                state = journal.run("sweeps", passes, gibbs, begin, _told(gibbs, stages, progress, after))
                if state.error is not None:
                    raise state.error
            with stages.stage("map") as record:
                n_before = passes.n_passes
                sampled = _with_mode(passes, gibbs, gibbs.draws(state), weight, stages, journal)
                record["passes"] = passes.n_passes - n_before
    finally:
        passes.release()
    return sampled


def _made_from(
    passes: Passes, rankings: Rankings, settings: BayesSettings, given: Point | None, init: str
) -> dict[str, Any]:
    """What the draws depend on: the data, the settings, where chains begin."""
    told = {name: value for name, value in asdict(settings).items() if name != "residency"}
    told |= {name: np.asarray(told[name]).tolist() for name in ("worth_shape", "worth_rate")}
    return (
        data_fingerprint(passes, rankings)
        | told
        | {"init": init if given is None else f"given {digest_of(*given)}"}
    )


def _starts(
    rankings: Rankings,
    settings: BayesSettings,
    prior: GammaPrior,
    given: Point | None,
    init: str,
    client: Client | None,
    progress: Progress | None,
) -> list[Parameters]:
    n_components, n_chains, seed = settings.n_components, settings.n_chains, settings.seed
    if given is None and init == "prior":
        return from_prior(n_components, prior, n_chains, seed)
    if given is None:
        fit = FitSettings(
            n_components, ties="marginal", tol=_START_TOLERANCE, residency=settings.residency, seed=seed
        )
        with warnings.catch_warnings():
            # Chains begin around this fit. What they then do shows in R-hat.
            for said_by_the_chains in (
                CollapsedComponentWarning,
                NotConvergedWarning,
                OptimumFoundOnceWarning,
            ):
                warnings.simplefilter("ignore", said_by_the_chains)
            heard = progress if stage_listener(progress) is not None else None
            given = fit_mixture(rankings, fit, None, client, heard).run.point
    return around(given, n_components, prior, n_chains, seed)


def _told(
    gibbs: Gibbs,
    stages: Stages,
    progress: Progress | None,
    after: Callable[[GibbsState], None] | None,
) -> Callable[[GibbsState], None]:
    """What is done after every sweep: it is saved, and told."""

    def tell(state: GibbsState) -> None:
        if after is not None:
            after(state)
        if progress is not None and state.error is None:
            record = {
                "iteration": state.sweep,
                "n_sweeps": gibbs.n_sweeps + 1,
                "log_likelihood": float(state.log_likelihood.mean()),
            }
            if stage_listener(progress) is None:
                progress(record)
            else:
                stages.iteration(record)

    return tell


def _with_mode(
    passes: Passes, gibbs: Gibbs, draws: Draws, weight: float, stages: Stages, journal: Journal
) -> Sampled:
    """The draws relabelled to the best of them, and the mode that EM finds from there."""
    n_chains, n_draws, n_components, n_items = draws.log_worths.shape
    prior = gibbs.prior
    log_posterior = draws.log_likelihood + prior.log_density(draws.log_worths, draws.log_shares)
    pivot = int(log_posterior.argmax())
    log_worths = draws.log_worths.reshape(-1, n_components, n_items)
    log_shares = draws.log_shares.reshape(-1, n_components)
    labels = relabelling(log_worths, log_shares, pivot)
    shares = np.take_along_axis(np.exp(log_shares), labels, axis=1).mean(axis=0)
    labels = labels[:, np.argsort(-shares, kind="stable")]
    mode = None
    if prior.has_mode:
        algorithm = MapEm(prior, weight)
        best = Parameters(log_worths[pivot], log_shares[pivot])
        state = journal.run("map", passes, algorithm, algorithm.start(best))
        if state.error is not None:
            raise state.error
        found = algorithm.result(state)
        order = labels[pivot]  # components of the pivot, in the order of the relabelled draws
        mode = found._replace(
            parameters=Parameters(found.parameters.log_worths[order], found.parameters.log_shares[order])
        )
    return Sampled(
        draws, log_posterior, labels.reshape(n_chains, n_draws, n_components), mode, stages.records
    )


class _Weights(NamedTuple):
    """Of all rows: persons, rows whose weight is no whole number, such a weight, the largest weight; copied items.

    `copied` is the largest number of items of a leaf that a sweep has at a time: tied rows are drawn copy by copy.
    """

    persons: float
    n_broken: int
    broken: float
    largest: float
    copied: float


def _weights_of_leaf(number: int, block: RankingBlock, params: None) -> _Weights:
    del number, params
    weights = block.row_weights
    broken = weights[weights != np.floor(weights)]
    ties = TiedRows.of(block)
    copied = 0.0 if ties is None else float((ties.block.row_weights * ties.block.n_listed).sum())
    return _Weights(
        membership_weight(block),
        len(broken),
        float(broken[0]) if len(broken) else 0.0,
        float(weights.max(initial=0.0)),
        copied,
    )


def _of_both(left: _Weights, right: _Weights) -> _Weights:
    return _Weights(
        left.persons + right.persons,
        left.n_broken + right.n_broken,
        left.broken if left.n_broken else right.broken,
        max(left.largest, right.largest),
        max(left.copied, right.copied),
    )


_WEIGHTS = Aggregation("weights", leaf=_weights_of_leaf, combine=_of_both)


def _weight_of_whole_rows(passes: Passes) -> float:
    """The number of persons; an error if a weight is no whole number, or too large to be drawn."""
    (answer,) = passes.run([Request(_WEIGHTS)])
    if answer.error is not None:
        raise answer.error
    found: _Weights = answer.results[0]
    if found.n_broken:
        raise SettingsError(
            f"weights must be whole numbers, because a row of weight w stands for w persons with components of their "
            f"own, but {found.n_broken} rows have others, such as {found.broken:g}; give counts, or fit "
            "PlackettLuceMixture, which takes any weights"
        )
    if found.largest > _LARGEST_WEIGHT:
        raise SettingsError(
            f"weights must be counts of at most 2**53, but the largest is {found.largest:g}; give smaller counts, or "
            "fit PlackettLuceMixture, which takes any weights"
        )
    if found.copied > _MOST_COPIED:
        raise SettingsError(
            f"rankings with ties are drawn copy by copy, and with their weights a leaf has {found.copied:.3g} items of "
            f"such copies, where at most {_MOST_COPIED:.3g} can be held; give smaller weights to rankings with ties, "
            "or fit PlackettLuceMixture"
        )
    return found.persons
