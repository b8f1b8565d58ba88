"""One EM pass in NumPy, written as well as NumPy allows: the yardstick for the compiled kernels.

Full rankings only. A component costs one gather, one reversed cumulative sum, one matrix of logarithms, one of
reciprocals, and two weighted counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def numpy_pass(
    rankings: np.ndarray[Any, Any], log_worths: np.ndarray[Any, Any], log_shares: np.ndarray[Any, Any]
) -> tuple[float, np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Log-likelihood, shares (K,), wins (K, n) and expected wins (K, n) of full rankings (m, n)."""
    n_rankings, n_items = rankings.shape
    n_components = len(log_worths)
    rows = np.empty((n_components, n_rankings))
    offers = []
    for k in range(n_components):
        scaled = log_worths[k] - log_worths[k].max()
        gathered = np.exp(scaled)[rankings]
        sums = np.cumsum(gathered[:, ::-1], axis=1)[:, :0:-1]
        rows[k] = log_shares[k] + scaled.sum() - scaled[rankings[:, -1]] - np.log(sums).sum(axis=1)
        offers.append(np.cumsum(1 / sums, axis=1))
    highest = rows.max(axis=0)
    posterior = np.exp(rows - highest)
    total = posterior.sum(axis=0)
    posterior /= total
    wins, expected = np.empty((2, n_components, n_items))
    for k in range(n_components):
        weighted = np.concatenate([offers[k], offers[k][:, -1:]], axis=1) * posterior[k][:, None]
        expected[k] = np.bincount(rankings.ravel(), weighted.ravel(), minlength=n_items)
        expected[k] *= np.exp(log_worths[k] - log_worths[k].max())
        wins[k] = posterior[k].sum() - np.bincount(rankings[:, -1], posterior[k], minlength=n_items)
    return float((highest + np.log(total)).sum()), posterior.sum(axis=1), wins, expected
