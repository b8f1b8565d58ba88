"""Draws from a posterior: R-hat and effective sample sizes, rank-normalised (Vehtari et al. 2021), ArviZ."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from plmix_dist.rankings import Floats
from plmix_dist.uncertainty.results import PerParameter


class PosteriorDraws(NamedTuple):
    """Draws from the posterior.

    Parameters
    ----------
    log_worths : (n_chains, n_draws, n_components, n_items)
        Centred.
    shares : (n_chains, n_draws, n_components)
    log_likelihood, log_posterior : (n_chains, n_draws)
        The log-posterior is up to a constant.
    """

    log_worths: Floats
    shares: Floats
    log_likelihood: Floats
    log_posterior: Floats


class Diagnostics(NamedTuple):
    """How well the chains have mixed: R-hat; effective sample sizes for means (bulk) and for 90 % intervals (tail)."""

    r_hat: PerParameter
    bulk_ess: PerParameter
    tail_ess: PerParameter

    @property
    def largest_r_hat(self) -> float:
        """The largest R-hat; NaN if there are fewer than 4 draws per chain."""
        return float(np.max(np.append(self.r_hat.log_worths.ravel(), self.r_hat.shares)))

    @property
    def least_ess(self) -> float:
        """The least effective sample size, bulk or tail."""
        return float(np.min([part.min() for diagnostic in (self.bulk_ess, self.tail_ess) for part in diagnostic]))


_TAILS = (0.05, 0.95)


def r_hat(draws: Floats) -> Floats:
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


def bulk_ess(draws: Floats) -> Floats:
    """(...): the effective sample size for means, from draws (n_chains, n_draws, ...)."""
    return np.full(draws.shape[2:], np.nan) if draws.shape[1] < 4 else _ess(_rank_normalised(_split(draws)))


def tail_ess(draws: Floats) -> Floats:
    """(...): the smaller of the effective sample sizes for the 5 % and the 95 % quantile."""
    if draws.shape[1] < 4:
        return np.full(draws.shape[2:], np.nan)
    limits = np.quantile(draws, _TAILS, axis=(0, 1))
    return np.minimum(*(_ess(_split((draws <= limit).astype(np.float64))) for limit in limits))


def _split(draws: Floats) -> Floats:
    """Both halves of each chain, as chains; the middle draw of an odd number is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _rank_normalised(draws: Floats) -> Floats:
    """Normal quantiles of the ranks over all chains."""
    flat = draws.reshape(draws.shape[0] * draws.shape[1], -1)
    found: Floats = ndtri((rankdata(flat, method="average", axis=0) - 0.375) / (len(flat) + 0.25))
    return found.reshape(draws.shape)


def _plain_r_hat(chains: Floats) -> Floats:
    """The root of the total variance estimate over the variance within chains; 1 where nothing varies at all."""
    n_draws = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.sqrt((n_draws - 1) / n_draws + between / within)
    return np.where((within == 0) & (between == 0), 1.0, found)


def _ess(chains: Floats) -> Floats:
    """The effective sample size, from autocorrelations summed by Geyer's initial monotone sequence."""
    shape = chains.shape[2:]
    columns = chains.reshape(*chains.shape[:2], -1)
    return np.array([_ess_of_one(columns[:, :, column]) for column in range(columns.shape[2])]).reshape(shape)


def _ess_of_one(chains: Floats) -> float:
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
    time = -1 + 2 * np.minimum.accumulate(pairs[:n_positive]).sum()
    time += max(0.0, correlations[2 * n_positive])
    return float(total / max(time, 1 / np.log10(total)))


def _autocovariances(chains: Floats) -> Floats:
    """(n_chains, n_draws): by lag."""
    n_draws = chains.shape[1]
    spectrum = np.fft.rfft(chains - chains.mean(axis=1, keepdims=True), 2 * n_draws, axis=1)
    found: Floats = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n_draws, axis=1)[:, :n_draws] / n_draws
    return found


# Draws for ArviZ, which is optional and imported here alone. Works with ArviZ 0.23 and with 1.x.


def inference_data(
    posterior: Mapping[str, Floats],
    sample_stats: Mapping[str, Floats],
    item_names: Sequence[str],
    log_likelihood: Floats | None = None,
) -> Any:
    """Draws as ArviZ holds them: an InferenceData (0.23) or a DataTree (1.x).

    `posterior` has "log_worths" (n_chains, n_draws, n_components, n_items) and "shares"; `sample_stats` has "lp", the
    log-posterior, and "deviance", minus twice the log-likelihood: (n_chains, n_draws). `log_likelihood` are those of
    persons (n_chains, n_draws, n_persons).

    Examples
    --------
    >>> draws = {"log_worths": np.zeros((2, 5, 1, 2)), "shares": np.ones((2, 5, 1))}
    >>> data = inference_data(draws, {"lp": np.zeros((2, 5))}, ["tea", "coffee"])  # doctest: +SKIP
    >>> data["posterior"]["log_worths"].dims  # doctest: +SKIP
    ('chain', 'draw', 'component', 'item')
    """
    try:
        import arviz
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("arviz"):
            raise
        raise ModuleNotFoundError(
            "to_arviz needs ArviZ, which is not installed; install it with `pip install arviz`", name=error.name
        ) from None
    from_dict: Any = arviz.from_dict
    groups = {"posterior": dict(posterior), "sample_stats": dict(sample_stats)}
    coords = {"component": list(range(posterior["shares"].shape[2])), "item": list(item_names)}
    dims = {"log_worths": ["component", "item"], "shares": ["component"]}
    if log_likelihood is not None:
        groups["log_likelihood"] = {"rankings": log_likelihood}
        dims["rankings"] = ["person"]
    if "posterior" in inspect.signature(from_dict).parameters:  # 0.23 takes groups by keyword, 1.x as one dict
        return from_dict(**groups, coords=coords, dims=dims)
    return from_dict(groups, coords=coords, dims=dims)
