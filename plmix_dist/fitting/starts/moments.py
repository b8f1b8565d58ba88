"""The start init="moments": two components from the frequencies of the first three places (Zhao, Piech & Xia 2016).

With items numbered 0 to n - 1 the moments are the probabilities that i comes first (n of them), that i comes first and
j second (n (n - 1)), and that i, i + 1 and i + 2, counted around n, come first, second and third (n). They identify a
mixture of two Plackett-Luce models of four items or more. The parameters minimise the sum of squared differences
between these probabilities and their frequencies. That sum has local minima, so several starts are tried.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax

from plmix_dist.errors import SettingsError
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.rankings import Floats, RankingBlock, generator
from plmix_dist.threads import single_thread

_FEWEST_ITEMS = 4
# n (n + 1) moments in 2 n + 1 parameters: beyond this a least-squares problem takes seconds.
_MOST_ITEMS = 30
_PLACES = 3
_N_TRIED = 8
# What a log-worth of 1 counts beside frequencies. It keeps log-worths finite where an item never comes first.
_WEAK_PRIOR = 1e-5


class Moments(NamedTuple):
    """Events (n_events, 3), items in the first places or -1 where a place is free, and how often each happens."""

    events: NDArray[np.int64]
    frequencies: Floats


def moments_start(sample: RankingBlock, settings: FitSettings) -> tuple[Floats, Floats, dict[str, Any]]:
    """Log-worths (2, n_items), shares (2,), and a record: how many rankings were used, and the differences left.

    Used are rankings of all items that order at least three of them. Rankings of one person count one by one.
    """
    if not _FEWEST_ITEMS <= sample.n_items <= _MOST_ITEMS:
        raise SettingsError(
            f"init='moments' takes {_FEWEST_ITEMS} to {_MOST_ITEMS} items, but there are {sample.n_items}; choose "
            "init='spectral'"
        )
    firsts, weights = _first_places(sample)
    if not len(firsts):
        raise SettingsError(
            "init='moments' needs rankings of all items that order at least three of them, and found none; choose "
            "init='spectral'"
        )
    log_worths, shares, error = _mixture_of_moments(_observed_moments(firsts, weights, sample.n_items), settings.seed)
    return log_worths, shares, {"moment_rankings": len(firsts), "moment_error": error}


def _observed_moments(firsts: NDArray[np.int64], weights: Floats, n_items: int) -> Moments:
    """The moments of rankings, from their first three items (n_rankings, 3) and their weights (n_rankings,)."""
    items = np.arange(n_items)
    ones = np.stack([items, np.full(n_items, -1), np.full(n_items, -1)], axis=1)
    twos = np.array([[i, j, -1] for i in items for j in items if i != j])
    threes = np.stack([items, (items + 1) % n_items, (items + 2) % n_items], axis=1)
    share = weights / weights.sum()
    first, second, third = firsts.T
    counts = np.zeros((n_items, n_items))
    np.add.at(counts, (first, second), share)
    in_turn = ((second - first) % n_items == 1) & ((third - second) % n_items == 1)
    cyclic = np.bincount(first[in_turn], share[in_turn], n_items)
    frequencies = [counts.sum(axis=1), counts[twos[:, 0], twos[:, 1]], cyclic]
    return Moments(np.concatenate([ones, twos, threes]), np.concatenate(frequencies))


def _mixture_of_moments(moments: Moments, seed: int) -> tuple[Floats, Floats, float]:
    """Log-worths (2, n_items) and shares (2,) whose moments are nearest, and the root mean square of what is left."""
    from scipy.optimize import least_squares

    n_items = int(moments.events.max()) + 1
    rng = generator(seed, "moments")
    best = None
    with single_thread():
        for _ in range(_N_TRIED):
            begin = np.append(rng.standard_normal(2 * n_items), 0.0)
            found = least_squares(_residuals, begin, _jacobian, method="trf", max_nfev=200, args=(moments,))
            if best is None or found.cost < best.cost:
                best = found
    assert best is not None
    log_worths = best.x[:-1].reshape(2, n_items)
    first = float(expit(best.x[-1]))
    error = float(np.sqrt(np.mean(best.fun[: len(moments.events)] ** 2)))
    return log_worths - log_worths.mean(axis=1, keepdims=True), np.array([first, 1 - first]), error


def _moments_at(events: NDArray[np.int64], log_worths: Floats, first_share: float) -> tuple[Floats, Floats]:
    """Probabilities (n_events,) of events, and derivatives in log-worths and logit of the share (n_events, 2 n + 1)."""
    n_items = log_worths.shape[1]
    shares = (first_share, 1 - first_share)
    total, derivatives = np.zeros(len(events)), np.zeros((len(events), 2 * n_items + 1))
    slope = first_share * (1 - first_share)
    for component, (share, logs) in enumerate(zip(shares, log_softmax(log_worths, axis=1), strict=True)):
        chances, slopes = _events_at(events, logs)
        total += share * chances
        derivatives[:, component * n_items : (component + 1) * n_items] = share * slopes
        derivatives[:, -1] += (slope if component == 0 else -slope) * chances
    return total, derivatives


def _events_at(events: NDArray[np.int64], log_worths: Floats) -> tuple[Floats, Floats]:
    """Probabilities (n_events,) of events under one model, and derivatives in its log-worths (n_events, n_items)."""
    worths = np.exp(log_worths)
    left = np.ones((len(events), len(worths)))
    logs, slopes = np.zeros(len(events)), np.zeros_like(left)
    for place in range(_PLACES):
        named = np.flatnonzero(events[:, place] >= 0)
        winner = events[named, place]
        on_offer = left[named] * worths
        sums = on_offer.sum(axis=1)
        logs[named] += log_worths[winner] - np.log(sums)
        slopes[named] -= on_offer / sums[:, None]
        slopes[named, winner] += 1.0
        left[named, winner] = 0.0
    chances = np.exp(logs)
    return chances, slopes * chances[:, None]


def _residuals(parameters: Floats, moments: Moments) -> Floats:
    chances, _ = _moments_at(moments.events, parameters[:-1].reshape(2, -1), float(expit(parameters[-1])))
    return np.concatenate([chances - moments.frequencies, _WEAK_PRIOR * parameters])


def _jacobian(parameters: Floats, moments: Moments) -> Floats:
    _, derivatives = _moments_at(moments.events, parameters[:-1].reshape(2, -1), float(expit(parameters[-1])))
    return np.vstack([derivatives, _WEAK_PRIOR * np.eye(len(parameters))])


def _first_places(sample: RankingBlock) -> tuple[NDArray[np.int64], Floats]:
    """The first three items (n, 3) and the weight (n,) of every ranking of all items that orders three."""
    of_all = sample.below | (sample.n_listed == sample.n_items)
    used = np.flatnonzero(of_all & (sample.n_ordered >= _PLACES) & (sample.row_weights > 0))
    return sample.items[sample.offsets[used][:, None] + np.arange(_PLACES)].astype(np.int64), sample.row_weights[used]
