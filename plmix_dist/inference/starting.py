"""Starts of every kind: as many as are asked for, or the winners of a race where one cannot be told to be right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.inference.sample_fits import Start, race
from plmix_dist.inference.state import EmState
from plmix_dist.rankings.randomness import generator
from plmix_dist.starts.sdp_start import kernel_start
from plmix_dist.starts.spectral_start import SpectralStarter

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import NDArray

    from plmix_dist.inference.em import Em
    from plmix_dist.inference.look import Look
    from plmix_dist.inference.settings import FitSettings
    from plmix_dist.stages import Stages

# Clusters are purer than components, so their worths are too sure of themselves; EM would take long to unlearn that.
_MOST_SPREAD = 1.0
# So few components end at the best optimum from a spectral start, whatever the data tried.
_FEW_COMPONENTS = 3
_MOST_RANDOM = 16
_FINALISTS = 4


def make_starts(
    look: Look, settings: FitSettings, em: Em, stages: Stages, client: Client | None
) -> tuple[list[Start], dict[str, Any]]:
    """Starts of the settings' kind, as many as are asked for or more, of which the fit shall keep the best.

    With them comes what is to be known of all of them, such as the singular values of a spectral start.
    """
    n_items = look.small_sample.n_items
    if settings.init == "random":
        return _with_random([], settings.n_init, settings, n_items), {}
    if settings.init == "kernel":
        log_worths, shares, about = kernel_start(
            look.small_sample, settings.kernel, settings.spectral, stages
        )
        start = _start_from(log_worths, shares, settings, {"method": "kernel"})
        return _with_random([start], settings.n_init, settings, n_items), about
    starter = SpectralStarter(look.small_sample, settings.spectral, stages, client)
    starts = [
        _start_from(made.log_worths, made.shares, settings, {"method": "spectral", "rank": made.rank})
        for made in map(starter.start, starter.ranks_to_try(_FINALISTS))
    ]
    about = {"embedding": settings.spectral.chosen_embedding, **starter.svd._asdict()}
    if starter.is_certain or settings.n_components <= _FEW_COMPONENTS:
        return _with_random(starts, settings.n_init, settings, n_items), about
    n_raced = len(starts) + max(settings.n_init, min(2 * settings.n_components, _MOST_RANDOM))
    starts = _with_random(starts, n_raced, settings, n_items)
    return race(starts, look.small_sample, settings, em, stages), about


def _with_random(starts: list[Start], n_starts: int, settings: FitSettings, n_items: int) -> list[Start]:
    """Random starts added until there are so many."""
    n_random = max(0, n_starts - len(starts))
    return starts + [random_start(settings, n_items, number) for number in range(n_random)]


def random_start(settings: FitSettings, n_items: int, number: int) -> Start:
    """Standard normal log-worths, and equal shares unless they are fixed."""
    n_components = settings.n_components
    log_worths = generator(settings.seed, "start", number).standard_normal((n_components, n_items))
    equal = np.full(n_components, 1 / n_components)
    return _start_from(log_worths, equal, settings, {"method": "random", "number": number}, temper=False)


def _start_from(
    log_worths: NDArray[np.float64],
    shares: NDArray[np.float64],
    settings: FitSettings,
    about: dict[str, Any],
    temper: bool = True,
) -> Start:
    if temper:
        spread = log_worths.std(axis=1, keepdims=True)
        log_worths = log_worths * np.minimum(1.0, _MOST_SPREAD / np.maximum(spread, 1e-300))
    if settings.shares is None:
        return Start(EmState.start(log_worths, shares), about)
    # The largest cluster gets the largest of the fixed shares, and so on.
    matched = np.empty_like(log_worths)
    matched[np.argsort(-settings.shares, kind="stable")] = log_worths[np.argsort(-shares, kind="stable")]
    return Start(EmState.start(matched, settings.shares), about)
