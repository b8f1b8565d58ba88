"""R-hat and effective sample sizes of draws, rank-normalised (Vehtari, Gelman, Simpson, Carpenter & Buerkner 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.float64]

_TAILS = (0.05, 0.95)


def r_hat(draws: Table) -> Table:
    """(...): the larger of the rank-normalised split R-hat of draws (n_chains, n_draws, ...) and of the folded draws.

    Near 1 if all chains, and both halves of each, agree. Folded draws are distances from the median: they show chains
    that agree in location and differ in spread. NaN with fewer than 4 draws per chain.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(r_hat(draws) < 1.01), bool(r_hat(draws + np.arange(4)[:, None]) > 1.5)
    (True, True)
    """
    if draws.shape[1] < 4:
        return np.full(draws.shape[2:], np.nan)
    split = _split(draws)
    folded = np.abs(split - np.median(split, axis=(0, 1)))
    return np.fmax(_plain_r_hat(_rank_normalised(split)), _plain_r_hat(_rank_normalised(folded)))


def bulk_ess(draws: Table) -> Table:
    """(...): the effective sample size for means, from draws (n_chains, n_draws, ...).

    Examples
    --------
    >>> independent = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(1_500 < bulk_ess(independent) < 2_500)
    True
    """
    if draws.shape[1] < 4:
        return np.full(draws.shape[2:], np.nan)
    return _ess(_rank_normalised(_split(draws)))


def tail_ess(draws: Table) -> Table:
    """(...): the smaller of the effective sample sizes for the 5 % and the 95 % quantile.

    Examples
    --------
    >>> independent = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(1_000 < tail_ess(independent) < 2_500)
    True
    """
    if draws.shape[1] < 4:
        return np.full(draws.shape[2:], np.nan)
    limits = np.quantile(draws, _TAILS, axis=(0, 1))
    return np.minimum(*(_ess(_split((draws <= limit).astype(np.float64))) for limit in limits))


def _split(draws: Table) -> Table:
    """Both halves of each chain, as chains; the middle draw of an odd number is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _rank_normalised(draws: Table) -> Table:
    """Normal quantiles of the ranks over all chains."""
    flat = draws.reshape(draws.shape[0] * draws.shape[1], -1)
    ranks = rankdata(flat, method="average", axis=0)
    found: Table = ndtri((ranks - 0.375) / (len(flat) + 0.25))
    return found.reshape(draws.shape)


def _plain_r_hat(chains: Table) -> Table:
    """The root of the total variance estimate over the variance within chains; 1 where nothing varies at all."""
    n_draws = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Table = np.sqrt((n_draws - 1) / n_draws + between / within)
    return np.where((within == 0) & (between == 0), 1.0, found)


def _ess(chains: Table) -> Table:
    """The effective sample size, from autocorrelations summed by Geyer's initial monotone sequence."""
    shape = chains.shape[2:]
    columns = chains.reshape(*chains.shape[:2], -1)
    found = [_ess_of_one(columns[:, :, column]) for column in range(columns.shape[2])]
    return np.array(found).reshape(shape)


def _ess_of_one(chains: Table) -> float:
    n_chains, n_draws = chains.shape
    total = n_chains * n_draws
    if np.ptp(chains) == 0:
        return float(total)
    within, autocovariances = chains.var(axis=1, ddof=1).mean(), _autocovariances(chains).mean(axis=0)
    variance = within * (n_draws - 1) / n_draws + chains.mean(axis=1).var(ddof=1)
    correlations = 1 - (within - autocovariances) / variance
    correlations[0] = 1.0
    # Sums of neighbouring pairs are positive and fall in theory: stop at the first that is not, and let none rise.
    n_pairs = (n_draws - 1) // 2
    pairs = correlations[: 2 * n_pairs].reshape(n_pairs, 2).sum(axis=1)
    n_positive = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else n_pairs - 1
    falling = np.minimum.accumulate(pairs[:n_positive])
    time = -1 + 2 * falling.sum()
    time += max(0.0, correlations[2 * n_positive])
    return float(total / max(time, 1 / np.log10(total)))


def _autocovariances(chains: Table) -> Table:
    """(n_chains, n_draws): by lag."""
    n_draws = chains.shape[1]
    centred = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n_draws, axis=1)
    found: Table = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n_draws, axis=1)[:, :n_draws] / n_draws
    return found
