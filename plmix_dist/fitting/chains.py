"""A whole Bayesian fit: starts, sweeps of all chains, the mode, and draws with their components relabelled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from plmix_dist.cluster.clients import Client
from plmix_dist.display.progress import Stages, stage_listener
from plmix_dist.errors import CollapsedComponentWarning, NotConvergedWarning, OptimumFoundOnceWarning, SettingsError
from plmix_dist.fitting.algorithm import counted_stage
from plmix_dist.fitting.em import Progress
from plmix_dist.fitting.fingerprint import data_fingerprint, data_record, digest_of, made_with
from plmix_dist.fitting.fit import Fit, fit_mixture
from plmix_dist.fitting.gibbs import Draws, Gibbs, GibbsState, MapEm, Mode
from plmix_dist.fitting.journal import Journal, begun
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.overview import take_overview
from plmix_dist.fitting.point import Point
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.passes import Aggregation, Passes, Rankings, Request, Residency, ask
from plmix_dist.rankings import Floats, RankingBlock, generator, membership_weight
from plmix_dist.settings import numbers, take_settings
from plmix_dist.solvers.gamma_prior import GammaPrior, Parameters
from plmix_dist.store import Checkpoint

# Where chains begin: around a fit, further apart than the posterior is wide, or at draws from the prior.

# Standard deviation of what is added to log-worths and log-shares of a fit.
_SPREAD = 0.5
# Part of every share that is made equal: a share of zero would stay zero.
_EQUAL_PART = 0.05


def _starts(
    point: Point | None, n_components: int, prior: GammaPrior, n_chains: int, seed: int
) -> Iterator[Parameters]:
    """Starts drawn from the prior, or around a point: normal numbers of standard deviation 0.5 are added to its logs.

    Components that the point lacks, because they collapsed, are drawn from the prior.
    """
    for chain in range(n_chains):
        rng = generator(seed, "gibbs-start", chain)
        drawn = prior.draw(n_components, rng)
        if point is None:
            yield drawn
            continue
        log_worths, known = drawn.log_worths, min(point.n_components, n_components)
        log_worths[:known] = point.log_worths[:known] + _SPREAD * rng.standard_normal((known, log_worths.shape[1]))
        shares = np.zeros(n_components)
        shares[:known] = np.exp(point.log_shares[:known])
        shares = (1 - _EQUAL_PART) * shares / shares.sum() + _EQUAL_PART / n_components
        log_shares = np.log(shares) + _SPREAD * rng.standard_normal(n_components)
        yield Parameters(log_worths, log_shares - np.logaddexp.reduce(log_shares))


# Label switching: components of every draw put into the order of a pivot.

_MOST_ROUNDS = 20


def _relabelling(log_worths: Floats, log_shares: Floats, pivot: int) -> NDArray[np.int64]:
    """(n_draws, n_components): which component of a draw takes the place of each component of the pivot.

    First every draw is matched with the pivot: the assignment of components with the least squared distance of
    log-worths and log-shares. Then draws are matched with the means of the relabelled draws, distances divided by their
    variances, until nothing changes: an item about which little is known then counts little.

    `log_worths` are (n_draws, n_components, n_items); the draw of number `pivot` gives the names.

    Examples
    --------
    >>> one, other = [2.0, -2.0], [-2.0, 2.0]
    >>> draws = np.array([[one, other], [other, one], [one, other]])
    >>> _relabelling(draws, np.zeros((3, 2)), pivot=0).tolist()
    [[0, 1], [1, 0], [0, 1]]
    """
    features = np.concatenate([log_worths, log_shares[..., None]], axis=2)
    n_draws, n_components, _ = features.shape
    if n_components == 1:
        return np.zeros((n_draws, 1), np.int64)
    order = _matched(features, features[pivot], np.ones_like(features[pivot]))
    for _ in range(_MOST_ROUNDS):
        named = np.take_along_axis(features, order[..., None], axis=1)
        variances = named.var(axis=0)
        # Some variance is needed where draws agree exactly.
        again = _matched(features, named.mean(axis=0), variances + 1e-6 + 1e-3 * variances.mean())
        if np.array_equal(again, order):
            break
        order = again
    # The pivot keeps its names.
    return order[:, np.argsort(order[pivot])]


def _matched(features: Floats, means: Floats, variances: Floats) -> NDArray[np.int64]:
    """The best assignment of each draw: least distances in units of variances, and their logarithms."""
    by_component = [
        ((features - mean) ** 2 / variance).sum(axis=2) + np.log(variance).sum()
        for mean, variance in zip(means, variances, strict=True)
    ]
    costs = np.stack(by_component, axis=1)  # (n_draws, component of the means, component of the draw)
    order: NDArray[np.int64] = costs.argmin(axis=2).astype(np.int64)
    for draw, own in enumerate(order.tolist()):
        if len(set(own)) < len(own):
            order[draw] = linear_sum_assignment(costs[draw])[1]
    return order


# Chains begin around a fit, so it need not be exact.
_START_TOLERANCE = 1e-5
# Chains begin around this fit. Whether these matter shows in R-hat.
_SEEN_IN_CHAINS = (CollapsedComponentWarning, NotConvergedWarning, OptimumFoundOnceWarning)
# Larger numbers of persons are not whole numbers of float64.
_LARGEST_WEIGHT = 2.0**53
# Items of copies of tied rows, in one leaf: a sweep needs about 100 bytes for each.
_MOST_COPIED = 2.0**25


@dataclass(frozen=True)
class Sampled:
    """Draws of all chains."""

    draws: Draws  # as the chains made them
    log_posterior: Floats  # (n_chains, n_draws): log-likelihood and log-prior, up to a constant
    # (n_chains, n_draws, n_components): component k of the relabelled draws is component `labels[..., k]` of a draw.
    # Largest mean share first.
    labels: NDArray[np.int64]
    mode: Mode | None  # the MAP estimate, its components in the same order; None if the prior has no mode
    stages: list[dict[str, Any]]  # what each stage cost
    about: dict[str, Any] = field(default_factory=dict)  # what was sampled from, the seed, versions
    warnings: tuple[Warning, ...] = ()  # of the journal, and of the fit around which chains begin


def sample_mixture(
    rankings: Rankings,
    settings: BayesSettings,
    given: Point | None,
    client: Client | None,
    progress: Progress | None = None,
    *,
    init: str = "fit",
    checkpoint: Checkpoint | None = None,
    any_seed: bool = False,
) -> Sampled:
    """Sample from the posterior, around a given point, a fit by EM (init="fit") or the prior (init="prior").

    With `any_seed` the seed of the checkpoint is taken.
    """
    made_here = partial(_made_from, rankings=rankings, settings=settings, given=given, init=init)
    with begun(rankings, settings, client, checkpoint, made_here, any_seed=any_seed) as (passes, journal, settings):
        gibbs = settings.gibbs(rankings.n_items)
        stages = Stages(stage_listener(progress))
        with stages.stage("survey", passes=2):
            weight = journal.stage("survey", lambda: _weight_of_whole_rows(passes))
            overview = journal.stage("look", lambda: take_overview(passes, rankings, settings.seed))
        warnings = [*journal.warnings]
        with stages.stage("start"):

            def started() -> GibbsState:
                point = given
                if point is None and init == "fit":
                    fitted = _fitted(rankings, settings, client, progress)
                    warnings.extend(each for each in fitted.warnings if not isinstance(each, _SEEN_IN_CHAINS))
                    point = fitted.run.point
                return gibbs.start(_starts(point, settings.n_components, gibbs.prior, settings.n_chains, settings.seed))

            begin = journal.stage("start", started)
        begin = journal.begin("sweeps", begin)
        report = progress if stage_listener(progress) is None else stages.iteration
        with stages.stage("sweeps", passes=gibbs.n_sweeps + 1 - begin.sweep):
            state = journal.run("sweeps", passes, gibbs, begin, partial(_report_sweep, gibbs, report))
            if state.error is not None:
                raise state.error
        with counted_stage(stages, "map", passes):
            sampled = _with_mode(passes, gibbs, gibbs.draws(state), weight, stages, journal)
    about = {"data": data_record(rankings, overview), **made_with(settings.seed)}
    return replace(sampled, about=about, warnings=tuple(warnings))


def _made_from(
    passes: Passes, rankings: Rankings, settings: BayesSettings, given: Point | None, init: str
) -> dict[str, Any]:
    """What the draws depend on: the data, the settings, where chains begin."""
    asked = {name: value for name, value in asdict(settings).items() if name != "residency"}
    asked |= {name: np.asarray(asked[name]).tolist() for name in ("worth_shape", "worth_rate")}
    begun = init if given is None else f"given {digest_of(*given)}"
    return data_fingerprint(passes, rankings) | asked | {"init": begun}


def _fitted(rankings: Rankings, settings: BayesSettings, client: Client | None, progress: Progress | None) -> Fit:
    """The fit around which chains begin."""
    fit = FitSettings(
        settings.n_components, ties="marginal", tol=_START_TOLERANCE, residency=settings.residency, seed=settings.seed
    )
    return fit_mixture(rankings, fit, None, client, progress if stage_listener(progress) is not None else None)


def _report_sweep(gibbs: Gibbs, report: Progress | None, state: GibbsState) -> None:
    """What is called after every sweep: the progress."""
    if report is not None and state.error is None:
        log_likelihood = float(state.log_likelihood.mean())
        report({"iteration": state.sweep, "n_sweeps": gibbs.n_sweeps + 1, "log_likelihood": log_likelihood})


def _with_mode(passes: Passes, gibbs: Gibbs, draws: Draws, weight: float, stages: Stages, journal: Journal) -> Sampled:
    """The draws relabelled to the best of them, and the mode that EM finds from there."""
    n_chains, n_draws, n_components, n_items = draws.log_worths.shape
    prior = gibbs.prior
    log_posterior = draws.log_likelihood + prior.log_density(draws.log_worths, draws.log_shares)
    pivot = int(log_posterior.argmax())
    log_worths = draws.log_worths.reshape(-1, n_components, n_items)
    log_shares = draws.log_shares.reshape(-1, n_components)
    labels = _relabelling(log_worths, log_shares, pivot)
    shares = np.take_along_axis(np.exp(log_shares), labels, axis=1).mean(axis=0)
    labels = labels[:, np.argsort(-shares, kind="stable")]
    mode = None
    if prior.has_mode:
        algorithm = MapEm(prior, weight)
        state = journal.run("map", passes, algorithm, algorithm.start(Parameters(log_worths[pivot], log_shares[pivot])))
        if state.error is not None:
            raise state.error
        found = algorithm.result(state)
        order = labels[pivot]  # components of the pivot, in the order of the relabelled draws
        mode = found._replace(parameters=Parameters(*(values[order] for values in found.parameters)))
    return Sampled(draws, log_posterior, labels.reshape(n_chains, n_draws, n_components), mode, stages.records)


class _Weights(NamedTuple):
    """Of all rows: persons, rows whose weight is not a whole number, such a weight, the largest weight; copied items.

    `copied` is the largest number of items of a leaf that a sweep has at a time: tied rows are drawn copy by copy.
    """

    persons: float
    n_broken: int
    broken: float
    largest: float
    copied: float


def _weights_of_leaf(_number: int, block: RankingBlock, _params: None) -> _Weights:
    weights = block.row_weights
    broken = weights[weights != np.floor(weights)]
    first, largest = float(broken[0]) if len(broken) else 0.0, float(weights.max(initial=0.0))
    ties = TiedRows.of(block)
    copied = 0.0 if ties is None else float((ties.block.row_weights * ties.block.n_listed).sum())
    return _Weights(membership_weight(block), len(broken), first, largest, copied)


def _of_both(left: _Weights, right: _Weights) -> _Weights:
    broken = left.broken if left.n_broken else right.broken
    largest, copied = max(left.largest, right.largest), max(left.copied, right.copied)
    return _Weights(left.persons + right.persons, left.n_broken + right.n_broken, broken, largest, copied)


_WEIGHTS = Aggregation("weights", leaf=_weights_of_leaf, combine=_of_both)


def _weight_of_whole_rows(passes: Passes) -> float:
    """The number of persons; an error if a weight is not a whole number, or too large to be drawn."""
    found: _Weights = ask(passes, Request(_WEIGHTS))
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


# What the user asked for in a Bayesian fit, checked.

# Numbers of all draws that are kept: 2 GB.
_MOST_NUMBERS = 1 << 28


@dataclass(frozen=True)
class BayesSettings:
    """What the user asked for; see BayesianPlackettLuceMixture."""

    n_components: int
    n_chains: int = 4
    n_warmup: int = 500
    n_draws: int = 1000
    thin: int = 1
    worth_shape: Any = 1.0
    worth_rate: Any = 1.0
    share_concentration: float = 1.0
    residency: Residency = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings of a wrong type or out of range."""
        take_settings("bayes", self)

    def gibbs(self, n_items: int) -> Gibbs:
        """The sampler for `n_items` items."""
        n_kept = self.n_chains * self.n_draws * (self.n_components * (n_items + 1) + 1)
        if n_kept > _MOST_NUMBERS:
            raise SettingsError(
                f"{self.n_chains} chains of {self.n_draws} draws of {self.n_components} x {n_items} log-worths are "
                f"{8 * n_kept / 1e9:.1f} GB, more than {8 * _MOST_NUMBERS / 1e9:.1f} GB; choose a smaller n_draws and "
                "a larger thin"
            )
        return Gibbs(self.prior(n_items), self.n_warmup, self.n_draws, self.thin, self.seed)

    def prior(self, n_items: int) -> GammaPrior:
        """The prior for `n_items` items."""
        shape, rate = (_per_item(name, getattr(self, name), n_items) for name in ("worth_shape", "worth_rate"))
        return GammaPrior(shape, rate, float(self.share_concentration))


def _per_item(name: str, given: Any, n_items: int) -> Floats:
    values = numbers(name, given)
    if values.ndim == 1 and values.shape != (n_items,):
        raise SettingsError(f"{name} has {len(values)} numbers, but there are {n_items} items")
    return np.broadcast_to(values, n_items).copy()
