"""Makes the starts of a fit: spectral, by semidefinite programming, by moments, or random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.rankings.randomness import generator
from plmix_dist.starts.moments import moments_start
from plmix_dist.starts.sdp_start import sdp_start
from plmix_dist.starts.spectral_start import SpectralStarter
from plmix_dist.starts.whole_start import whole_start

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import NDArray

    from plmix_dist.engine.leaf_source import LeafSource
    from plmix_dist.engine.passes import Passes
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.stages import Stages
    from plmix_dist.starts.start_settings import StartSettings

# A search begins with spectral starts on at most this many ranks.
_MOST_RANKS = 4


class Start(NamedTuple):
    """Parameters to begin a fit with.

    Parameters
    ----------
    log_worths : (n_components, n_items)
    shares : (n_components,)
    about
        How the start was made: the method, and its rank or number. It becomes part of `init_`.

    Examples
    --------
    >>> Start(np.zeros((1, 3)), np.ones(1), {"method": "random", "number": 0}).about["method"]
    'random'
    """

    log_worths: NDArray[np.float64]
    shares: NDArray[np.float64]
    about: dict[str, Any]


class Starts(NamedTuple):
    """All starts of a fit.

    Parameters
    ----------
    starts
        The starts.
    searched
        Whether a search begins with them. If not, they are all there are.
    about
        What is known about all of them, such as singular values. It becomes part of `init_`.

    Examples
    --------
    >>> Starts([], searched=False, about={}).searched
    False
    """

    starts: list[Start]
    searched: bool
    about: dict[str, Any]


def make_starts(
    sample: RankingBlock, settings: StartSettings, stages: Stages, client: Client | None = None
) -> Starts:
    """n_init starts, or the spectral starts that a search begins with.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.stages import Stages
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> sample = RankingBlock.from_array([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10)
    >>> made = make_starts(sample, StartSettings(2), Stages())
    >>> [start.about for start in made.starts], made.searched
    ([{'method': 'spectral', 'rank': 1}], True)
    """
    if settings.init == "random":
        return Starts(_with_random([], settings.n_init, settings, sample.n_items), searched=False, about={})
    if settings.init == "kernel":
        log_worths, shares, about = sdp_start(sample, settings, stages)
        start = _clustered(log_worths, shares, settings, {"method": "kernel"})
        starts = _with_random([start], settings.n_init, settings, sample.n_items)
        return Starts(starts, searched=False, about=about)
    if settings.init == "moments":
        with stages.stage("moments"):
            log_worths, shares, about = moments_start(sample, settings)
        start = _with_shares(log_worths, shares, settings, {"method": "moments"})
        starts = _with_random([start], settings.n_init, settings, sample.n_items)
        return Starts(starts, searched=False, about=about)
    return _spectral_starts(SpectralStarter(sample, settings, stages, client))


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
    passes: Passes,
    source: LeafSource,
    n_items: int,
    settings: StartSettings,
    stages: Stages,
    client: Client | None,
) -> Starts:
    """The spectral start as published: one start, made from all rows.

    Parameters
    ----------
    passes, source, n_items
        The rankings, and what goes through them.
    settings
        The number of components, rank, link, estimate of worths and seed.
    stages
        Where the cost of each stage is recorded.
    client
        Where dask-ml runs; None for threads of this process.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> from plmix_dist.stages import Stages
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> rankings = as_rankings([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10)
    >>> settings = StartSettings(2, embedding="pairwise", svd_rank=2, rows="all")
    >>> made = starts_of_all_rows(ThreadedPasses(rankings), rankings, 4, settings, Stages(), None)
    >>> made.starts[0].about, made.searched
    ({'method': 'spectral', 'rank': 2}, False)
    """
    made = whole_start(passes, source, n_items, settings, stages, client)
    found = made.start
    start = _clustered(found.log_worths, found.shares, settings, {"method": "spectral", "rank": found.rank})
    about = {
        "embedding": found.embedding,
        "rows": len(found.labels),
        "singular_values": found.singular_values,
        "vectors": found.vectors,
        **made.about_rank,
    }
    return Starts([start], searched=False, about=about)


def random_start(settings: StartSettings, n_items: int, number: int) -> Start:
    """Standard normal log-worths; equal shares, or the fixed ones.

    Parameters
    ----------
    settings
        The number of components, the seed, and fixed shares.
    n_items
        The number of items.
    number
        The number of this start among random ones; it is part of the key of the random numbers.

    Examples
    --------
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> random_start(StartSettings(2), n_items=5, number=0).log_worths.shape
    (2, 5)
    """
    n_components = settings.n_components
    log_worths = generator(settings.seed, "start", number).standard_normal((n_components, n_items))
    shares = np.full(n_components, 1 / n_components)
    return _with_shares(log_worths, shares, settings, {"method": "random", "number": number})


def _with_random(starts: list[Start], n_starts: int, settings: StartSettings, n_items: int) -> list[Start]:
    """The starts, and random ones until there are `n_starts`."""
    n_random = max(0, n_starts - len(starts))
    return starts + [random_start(settings, n_items, number) for number in range(n_random)]


def _clustered(
    log_worths: NDArray[np.float64],
    shares: NDArray[np.float64],
    settings: StartSettings,
    about: dict[str, Any],
) -> Start:
    """A start from the log-worths of clusters. They are shrunk."""
    spread = log_worths.std(axis=1, keepdims=True)
    shrunk = log_worths * np.minimum(1.0, settings.most_spread / np.maximum(spread, 1e-300))
    return _with_shares(shrunk, shares, settings, about)


def _with_shares(
    log_worths: NDArray[np.float64],
    shares: NDArray[np.float64],
    settings: StartSettings,
    about: dict[str, Any],
) -> Start:
    """A start with its own shares, or with fixed shares: the largest cluster gets the largest share, and so on."""
    if settings.shares is None:
        return Start(log_worths, shares, about)
    matched = np.empty_like(log_worths)
    matched[np.argsort(-settings.shares, kind="stable")] = log_worths[np.argsort(-shares, kind="stable")]
    return Start(matched, settings.shares, about)
