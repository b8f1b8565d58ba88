"""EM-LSR as published (Nguyen & Zhang, AAAI 2023), in NumPy: what a user would have without this package.

Written as well as NumPy allows, for full rankings. The order of every pair of items is kept as one dense array, so that
the chains of all components are one matrix product; they are solved as dense linear systems. What the released code
gets wrong is not repeated here.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import save
from plmix_dist.rankings.simulate import draw_rankings

Array = np.ndarray[Any, np.dtype[np.float64]]

# Worths of a component sum to one; an iteration ends when none of them moves by more than this.
TOLERANCE = 1e-6
MOST_STEPS = 200
SIZES = ((10, 3, 5_000), (50, 3, 10_000))


class Published(NamedTuple):
    """Where EM-LSR ended: worths (K, n), shares (K,), mean log-likelihood, and what it took."""

    worths: Array
    shares: Array
    mean_log_likelihood: float
    n_iterations: int
    n_lsr_steps: int
    start_seconds: float
    seconds: float


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for n_items, n_components, n_rankings in SIZES[:1] if tiny else SIZES:
        table = simulated(n_items, n_components, 500 if tiny else n_rankings)
        ended = fit(table, n_components)
        rows.append(
            {
                "n": n_items,
                "K": n_components,
                "m": len(table),
                "seconds": ended.seconds,
                "of these, start": ended.start_seconds,
                "iterations": ended.n_iterations,
                "LSR steps": ended.n_lsr_steps,
                "mean log-likelihood": ended.mean_log_likelihood,
            }
        )
    return save("paper-em-lsr", rows)


def simulated(n_items: int, n_components: int, n_rankings: int) -> np.ndarray[Any, Any]:
    """(n_rankings, n_items): full rankings of components that differ in every item, seed 0."""
    rng = np.random.default_rng(0)
    log_worths = rng.standard_normal((n_components, n_items))
    block, _ = draw_rankings(log_worths, np.full(n_components, 1 / n_components), n_rankings, rng)
    return np.ascontiguousarray(block.to_array(), np.int64)


def fit(
    rankings: np.ndarray[Any, Any], n_components: int, *, seed: int = 0, start: tuple[Array, Array] | None = None
) -> Published:
    """The whole algorithm on full rankings (m, n): spectral start, then EM with each M-step solved by LSR.

    `start` has worths (K, n) and shares (K,) to begin with in place of the spectral start.
    """
    begun = time.perf_counter()
    places = np.argsort(rankings, axis=1)
    worths, shares = spectral_start(places, n_components, seed) if start is None else start
    start_seconds = time.perf_counter() - begun
    below = _below(places)
    n_iterations = n_lsr_steps = 0
    change = np.inf
    while change >= TOLERANCE and n_iterations < MOST_STEPS:
        posterior, _ = _e_step(rankings, worths, shares)
        moved, n_steps = _m_step(rankings, places, below, posterior, worths)
        n_iterations, n_lsr_steps = n_iterations + 1, n_lsr_steps + n_steps
        shares = posterior.mean(axis=1)
        change = np.abs(moved - worths).max()
        worths = moved
    _, log_likelihood = _e_step(rankings, worths, shares)
    seconds = time.perf_counter() - begun
    mean = log_likelihood / len(rankings)
    return Published(worths, shares, mean, n_iterations, n_lsr_steps, start_seconds, seconds)


# --- the start -------------------------------------------------------------------------------------------


def spectral_start(places: np.ndarray[Any, Any], n_components: int, seed: int) -> tuple[Array, Array]:
    """Singular value decomposition of all pairs, k-means, and least squares in each cluster.

    As many directions are kept as there are components. The paper's threshold keeps one, that of the mean ranking, from
    which EM takes longer.
    """
    from sklearn.cluster import KMeans

    first, second = np.triu_indices(places.shape[1], 1)
    pairs = (places[:, first] < places[:, second]).astype(np.float64)
    left, singular, _ = np.linalg.svd(pairs, full_matrices=False)
    projected = left[:, :n_components] * singular[:n_components]
    labels = KMeans(n_components, n_init=10, random_state=seed).fit_predict(projected)
    worths = [_least_squares(pairs[labels == k], places.shape[1], first, second) for k in range(n_components)]
    return np.array(worths), np.bincount(labels, minlength=n_components) / len(labels)


def _least_squares(pairs: Array, n_items: int, first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> Array:
    """Worths whose log-ratios come closest to the log-odds of pairs: where all pairs were seen, their mean."""
    wins = pairs.sum(axis=0)
    log_odds = np.log((wins + 0.5) / (len(pairs) - wins + 0.5))
    differences = np.zeros((n_items, n_items))
    differences[first, second] = log_odds
    differences[second, first] = -log_odds
    return _normalised(np.exp(differences.mean(axis=1)))


# --- EM --------------------------------------------------------------------------------------------------


def _e_step(rankings: np.ndarray[Any, Any], worths: Array, shares: Array) -> tuple[Array, float]:
    """Posteriors (K, m) of components, and the log-likelihood of all rows."""
    joint = np.array(
        [
            np.log(share) + np.log(own).sum() - np.log(own[rankings[:, -1]]) - np.log(sums).sum(axis=1)
            for share, own, sums in zip(shares, worths, _sums_on_offer(rankings, worths), strict=True)
        ]
    )
    highest = joint.max(axis=0)
    posterior = np.exp(joint - highest)
    total = posterior.sum(axis=0)
    return posterior / total, float((highest + np.log(total)).sum())


def _sums_on_offer(rankings: np.ndarray[Any, Any], worths: Array) -> list[Array]:
    """For each component (m, n - 1): the worth of all that is on offer at each choice but the last, which is none."""
    return [np.cumsum(own[rankings[:, ::-1]], axis=1)[:, :0:-1] for own in worths]


def _m_step(
    rankings: np.ndarray[Any, Any], places: np.ndarray[Any, Any], below: Array, posterior: Array, worths: Array
) -> tuple[Array, int]:
    """The weighted maximum-likelihood estimate at these posteriors: LSR repeated until worths stand still."""
    n_steps, change = 0, np.inf
    while change >= TOLERANCE and n_steps < MOST_STEPS:
        moved = _lsr_step(rankings, places, below, posterior, worths)
        change = np.abs(moved - worths).max()
        worths, n_steps = moved, n_steps + 1
    return worths, n_steps


def _below(places: np.ndarray[Any, Any]) -> Array:
    """(n, n, m): for a winner and another item, 1 in the rows that place the other below."""
    by_item = np.ascontiguousarray(places.T)
    return np.stack([by_item > winner for winner in by_item]).astype(np.float64)


def _lsr_step(
    rankings: np.ndarray[Any, Any], places: np.ndarray[Any, Any], below: Array, posterior: Array, worths: Array
) -> Array:
    """The stationary distributions of the chains that lead from every beaten item to its winner."""
    flows = []
    for sums, own in zip(_sums_on_offer(rankings, worths), posterior, strict=True):
        rates = np.zeros(places.shape)
        rates[:, :-1] = own[:, None] / sums
        flows.append(np.take_along_axis(rates, places, axis=1).T)  # by winner, no longer by place
    chains = below @ np.stack(flows, axis=2)  # (winner, beaten, component)
    return np.array([_stationary(chains[:, :, k].T) for k in range(len(worths))])


def _stationary(rates: Array) -> Array:
    """The distribution that a chain with these rates (from, to) leaves as it is, by solving for it."""
    balance = rates.T - np.diag(rates.sum(axis=1))
    balance[-1] = 1.0  # one equation follows from the others; in its place, all sums to one
    return _normalised(np.linalg.solve(balance, np.eye(len(rates))[-1]))


def _normalised(worths: Array) -> Array:
    normalised: Array = worths / worths.sum()
    return normalised
