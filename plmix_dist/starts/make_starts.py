"""Starts of every kind: spectral, by semidefinite programming, random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.rankings.randomness import generator
from plmix_dist.starts.sdp_start import sdp_start
from plmix_dist.starts.spectral_start import SpectralStarter

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock
    from plmix_dist.stages import Stages
    from plmix_dist.starts.start_settings import StartSettings

# Hard clusters overstate the differences between items, so log-worths are shrunk to this standard deviation at most.
_MOST_SPREAD = 1.0
# With so few components a spectral start led to the best optimum on all data tried.
_FEW_COMPONENTS = 3
_MOST_RANDOM = 16
_MOST_RANKS = 4


class Start(NamedTuple):
    """Where a fit begins.

    Parameters
    ----------
    log_worths : (n_components, n_items)
    shares : (n_components,)
    about
        How it was made.
    """

    log_worths: NDArray[np.float64]
    shares: NDArray[np.float64]
    about: dict[str, Any]


class Starts(NamedTuple):
    """Starts, whether a race shall choose among them, and what is known about all of them."""

    starts: list[Start]
    uncertain: bool
    about: dict[str, Any]


def make_starts(
    sample: RankingBlock, settings: StartSettings, stages: Stages, client: Client | None = None
) -> Starts:
    """n_init starts; or more, for a race, where it is uncertain that the spectral start is the right one.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.stages import Stages
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> sample = RankingBlock.from_array([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10)
    >>> made = make_starts(sample, StartSettings(2), Stages())
    >>> [start.about for start in made.starts], made.uncertain
    ([{'method': 'spectral', 'rank': 1}], False)
    """
    if settings.init == "random":
        return Starts(_with_random([], settings.n_init, settings, sample.n_items), uncertain=False, about={})
    if settings.init == "kernel":
        log_worths, shares, about = sdp_start(sample, settings, stages)
        start = _clustered(log_worths, shares, settings, {"method": "kernel"})
        starts = _with_random([start], settings.n_init, settings, sample.n_items)
        return Starts(starts, uncertain=False, about=about)
    starter = SpectralStarter(sample, settings, stages, client)
    starts = [
        _clustered(made.log_worths, made.shares, settings, {"method": "spectral", "rank": made.rank})
        for made in map(starter.start, starter.ranks_to_try(_MOST_RANKS))
    ]
    about = {"embedding": settings.chosen_embedding, **starter.svd._asdict()}
    uncertain = not (starter.is_certain or settings.n_components <= _FEW_COMPONENTS)
    n_starts = settings.n_init
    if uncertain:
        n_starts = len(starts) + max(settings.n_init, min(2 * settings.n_components, _MOST_RANDOM))
    return Starts(_with_random(starts, n_starts, settings, sample.n_items), uncertain, about)


def random_start(settings: StartSettings, n_items: int, number: int) -> Start:
    """Standard normal log-worths, and equal shares unless they are fixed.

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


def _with_random(
    starts: list[Start], n_starts: int, settings: StartSettings, n_items: int
) -> list[Start]:
    """Random starts added until there are `n_starts`."""
    n_random = max(0, n_starts - len(starts))
    return starts + [random_start(settings, n_items, number) for number in range(n_random)]


def _clustered(
    log_worths: NDArray[np.float64],
    shares: NDArray[np.float64],
    settings: StartSettings,
    about: dict[str, Any],
) -> Start:
    """A start from the log-worths of clusters, shrunk."""
    spread = log_worths.std(axis=1, keepdims=True)
    shrunk = log_worths * np.minimum(1.0, _MOST_SPREAD / np.maximum(spread, 1e-300))
    return _with_shares(shrunk, shares, settings, about)


def _with_shares(
    log_worths: NDArray[np.float64],
    shares: NDArray[np.float64],
    settings: StartSettings,
    about: dict[str, Any],
) -> Start:
    """A start with shares of its own, or with the fixed ones: the largest cluster gets the largest, and so on."""
    if settings.shares is None:
        return Start(log_worths, shares, about)
    matched = np.empty_like(log_worths)
    matched[np.argsort(-settings.shares, kind="stable")] = log_worths[np.argsort(-shares, kind="stable")]
    return Start(matched, settings.shares, about)
