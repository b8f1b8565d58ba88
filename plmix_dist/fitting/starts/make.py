"""Makes the starts of a fit: spectral, by semidefinite programming, by moments, or random; and those of a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.cluster.clients import Client
from plmix_dist.display.progress import Stages
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.starts.clusters import fit_models, fit_one_model, one_hot
from plmix_dist.fitting.starts.kernel import sdp_start
from plmix_dist.fitting.starts.moments import moments_start
from plmix_dist.fitting.starts.paper import start_from_all_rows
from plmix_dist.fitting.starts.spectral import SpectralStarter
from plmix_dist.kernels import prepare, row_posteriors
from plmix_dist.passes import Passes, Rankings
from plmix_dist.rankings import Floats, RankingBlock, generator, sample_rows

# A search begins with spectral starts on at most this many ranks.
_MOST_RANKS = 4
# They are made from rows that list about this many items, or 100 rows per item: the search refines them on no more.
_MOST_LISTED = 1 << 18
_ROWS_PER_ITEM = 100


class Start(NamedTuple):
    """Log-worths (n_components, n_items) and shares (n_components,) to begin with; `about` becomes part of `init_`."""

    log_worths: Floats
    shares: Floats
    about: dict[str, Any]


class Starts(NamedTuple):
    """All starts of a fit, or those that a search begins with if `searched`; `about` becomes part of `init_`."""

    starts: list[Start]
    searched: bool
    about: dict[str, Any]


def make_starts(sample: RankingBlock, settings: FitSettings, stages: Stages, client: Client | None = None) -> Starts:
    """n_init starts, or the spectral starts that a search begins with."""
    if settings.init == "random":
        return Starts(_with_random([], settings.n_init, settings, sample.n_items), searched=False, about={})
    if settings.init == "spectral":
        n_rows, n_listed = max(1, sample.n_rankings), max(1, len(sample.items))
        share = max(_MOST_LISTED / n_listed, _ROWS_PER_ITEM * sample.n_items / n_rows)
        rows = sample_rows(sample, share, generator(settings.seed, "spectral"))
        return _spectral_starts(SpectralStarter(rows, settings, stages, client))
    if settings.init == "kernel":
        log_worths, shares, about = sdp_start(sample, settings, stages)
        start = _clustered(log_worths, shares, settings, {"method": "kernel"})
    else:
        with stages.stage("moments"):
            log_worths, shares, about = moments_start(sample, settings)
        start = _with_shares(log_worths, shares, settings, {"method": "moments"})
    return Starts(_with_random([start], settings.n_init, settings, sample.n_items), searched=False, about=about)


def _spectral_starts(starter: SpectralStarter) -> Starts:
    """Spectral starts on one rank or several; one component has a single optimum, and needs one start."""
    settings = starter.settings
    starts = [
        _clustered(made.log_worths, made.shares, settings, {"method": "spectral", "rank": made.rank})
        for made in map(starter.start, starter.ranks_to_try(_MOST_RANKS))
    ]
    about = {"embedding": settings.chosen_embedding, **starter.svd._asdict(), **starter.about_rank}
    return Starts(starts, searched=settings.n_components > 1, about=about)


def starts_of_all_rows(
    passes: Passes, rankings: Rankings, settings: FitSettings, stages: Stages, client: Client | None
) -> Starts:
    """The published spectral start, from all rows. No search follows it."""
    found, about_rank = start_from_all_rows(passes, rankings, settings, stages, client)
    start = _clustered(found.log_worths, found.shares, settings, {"method": "spectral", "rank": found.rank})
    about = {"embedding": found.embedding, "rows": len(found.labels), "singular_values": found.singular_values}
    return Starts([start], searched=False, about=about | {"vectors": found.vectors, **about_rank})


def _random_start(settings: FitSettings, n_items: int, number: int) -> Start:
    """Standard normal log-worths; equal shares, or the fixed ones. `number` is part of the key of random numbers."""
    n_components = settings.n_components
    log_worths = generator(settings.seed, "start", number).standard_normal((n_components, n_items))
    shares = np.full(n_components, 1 / n_components)
    return _with_shares(log_worths, shares, settings, {"method": "random", "number": number})


def _with_random(starts: list[Start], n_starts: int, settings: FitSettings, n_items: int) -> list[Start]:
    """The starts, and random ones until there are `n_starts`."""
    return starts + [_random_start(settings, n_items, number) for number in range(max(0, n_starts - len(starts)))]


def _clustered(log_worths: Floats, shares: Floats, settings: FitSettings, about: dict[str, Any]) -> Start:
    """A start from the log-worths of clusters. They are shrunk."""
    spread = log_worths.std(axis=1, keepdims=True)
    shrunk = log_worths * np.minimum(1.0, settings.most_spread / np.maximum(spread, 1e-300))
    return _with_shares(shrunk, shares, settings, about)


def _with_shares(log_worths: Floats, shares: Floats, settings: FitSettings, about: dict[str, Any]) -> Start:
    """A start with its own shares, or with fixed shares: the largest cluster gets the largest share, and so on."""
    if settings.shares is None:
        return Start(log_worths, shares, about)
    matched = np.empty_like(log_worths)
    matched[np.argsort(-settings.shares, kind="stable")] = log_worths[np.argsort(-shares, kind="stable")]
    return Start(matched, settings.shares, about)


# Further starts for a search: random log-worths, handfuls of rankings, and the best end, partly seeded again.

# The two halves of a component that is split are drawn apart by this much: where they are equal, EM cannot part them.
_APART = 0.5
# A handful lists every item about this many times: enough to tell items apart, and few enough for handfuls to differ.
_TIMES_LISTED = 10
_STEPS_OF_HANDFULS = 5


class Proposer(NamedTuple):
    """What starts are made from: the rankings that the search looks at, the number of components, shares and seed."""

    rows: RankingBlock
    settings: FitSettings


class Mixture(NamedTuple):
    """The best end so far: log-worths (n_components, n_items) and shares (n_components,)."""

    log_worths: Floats
    shares: Floats


def random_worths(proposer: Proposer, _best: Mixture | None, number: int) -> Start:
    """Standard normal log-worths, and equal shares."""
    return _random_start(proposer.settings, proposer.rows.n_items, number)


def handfuls(proposer: Proposer, _best: Mixture | None, number: int) -> Start:
    """The log-worths of a handful of rankings for each component, drawn at random, and equal shares."""
    rows, settings = proposer
    rng = generator(settings.seed, "handfuls", number)
    n_rows = max(1, round(_TIMES_LISTED * rows.n_items * rows.n_rankings / max(1, len(rows.items))))
    chances = rows.row_weights / rows.total_weight
    drawn = [np.unique(rng.choice(rows.n_rankings, n_rows, p=chances)) for _ in range(settings.n_components)]
    component = np.repeat(np.arange(settings.n_components), [len(own) for own in drawn])
    models = fit_models(
        rows.take(np.concatenate(drawn)), one_hot(component, settings.n_components), n_steps=_STEPS_OF_HANDFULS
    )
    log_worths = np.array([model.log_worths for model in models])
    shares = np.full(len(log_worths), 1 / len(log_worths)) if settings.shares is None else settings.shares
    return Start(log_worths, shares, {"method": "handfuls", "number": number})


def worst_explained(proposer: Proposer, best: Mixture, number: int) -> Start:
    """The best end, with one component at the log-worths of rankings that the others explain worst.

    Which rankings these are is partly left to chance, so that no two starts are alike.
    """
    rows, settings = proposer
    rng = generator(settings.seed, "worst-explained", number)
    log_worths, shares, (component,) = _with_free_components(best, settings, rng, 1)
    log_likelihoods, _ = row_posteriors(rows, prepare(best.log_worths, np.log(best.shares)))
    per_choice = log_likelihoods / np.maximum(rows.n_ordered, 1)
    order = np.argsort(per_choice + per_choice.std() * rng.gumbel(size=len(per_choice)), kind="stable")
    weight_so_far = np.cumsum(rows.row_weights[order])
    n_worst = 1 + int(np.searchsorted(weight_so_far, weight_so_far[-1] / settings.n_components))
    log_worths[component] = fit_one_model(rows.take(np.sort(order[:n_worst]))).log_worths
    return Start(log_worths, shares, {"method": "worst-explained", "number": number})


def split_component(proposer: Proposer, smaller: Mixture, number: int) -> Start:
    """A mixture of fewer components, with one of its components split into two that differ at random.

    The largest component is split first: start number 0 splits it, start number 1 the second largest, and so on. Where
    more than one component is missing, the largest of those that are left are split too.
    """
    settings = proposer.settings
    rng = generator(settings.seed, "split-component", settings.n_components, number)
    log_worths, shares = smaller.log_worths, smaller.shares
    place = number
    while len(shares) < settings.n_components:
        component = int(np.argsort(-shares, kind="stable")[place % len(shares)])
        apart = _APART * rng.standard_normal(log_worths.shape[1])
        log_worths = np.concatenate([log_worths, log_worths[[component]] - apart])
        log_worths[component] += apart
        shares = np.append(shares, shares[component] / 2)
        shares[component] /= 2
        place = 0
    return Start(log_worths, shares, {"method": "split-component", "number": number})


def _one_again(proposer: Proposer, best: Mixture, number: int) -> Start:
    """The best end, with one component at random log-worths."""
    return _seeded_again(proposer, best, number, 1)


def _two_again(proposer: Proposer, best: Mixture, number: int) -> Start:
    """The best end, with two components at random log-worths."""
    return _seeded_again(proposer, best, number, 2)


def _seeded_again(proposer: Proposer, best: Mixture, number: int, n_seeded: int) -> Start:
    rng = generator(proposer.settings.seed, "seeded-again", number)
    log_worths, shares, components = _with_free_components(best, proposer.settings, rng, n_seeded)
    log_worths[components] = rng.standard_normal((len(components), log_worths.shape[1]))
    return Start(log_worths, shares, {"method": "seeded-again", "number": number})


def _with_free_components(
    best: Mixture, settings: FitSettings, rng: np.random.Generator, n_free: int
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """A copy of the best end with all its components, and the numbers of those that are to be seeded again.

    These are drawn at random and get an equal share; those that the best end has lost are among them.
    """
    n_components, (n_left, n_items) = settings.n_components, best.log_worths.shape
    log_worths, shares = rng.standard_normal((n_components, n_items)), np.full(n_components, 1 / n_components)
    log_worths[:n_left], shares[:n_left] = best
    lost = np.arange(n_left, n_components)[:n_free]
    free = np.append(lost, rng.choice(n_left, min(n_left, n_free - len(lost)), replace=False))
    shares[free] = 1 / n_components
    return log_worths, shares / shares.sum() if settings.shares is None else settings.shares, free


# One batch of a search. Starts that keep most of the best end improve it most often; the others are independent of it.
# To add a kind, write a function like these and name it here.
BATCH: tuple[Callable[..., Start], ...] = (
    random_worths,
    _two_again,
    worst_explained,
    handfuls,
    _one_again,
    worst_explained,
    random_worths,
    _two_again,
)
