"""Data of the paper's theorem: K components of which the first L items differ, equal shares."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from plmix_dist.rankings.simulate import draw_rankings


class Simulated(NamedTuple):
    """Full rankings (m, n), their components (m,), and the log-worths (K, n) they were drawn from."""

    table: np.ndarray[Any, Any]
    components: np.ndarray[Any, Any]
    log_worths: np.ndarray[Any, Any]


def simulated(
    n_rankings: int, n_items: int, n_differing: int, n_components: int, seed: int, spread: float = 1.0
) -> Simulated:
    """Rankings of one trial. `spread` is the standard deviation of log-worths that differ; the others are 0.

    The truth is the same for every number of rankings, so that errors can be compared along it.
    """
    key = [seed, n_items, n_differing, n_components]
    rng = np.random.default_rng(key)
    log_worths = np.zeros((n_components, n_items))
    log_worths[:, :n_differing] = spread * rng.standard_normal((n_components, n_differing))
    shares = np.full(n_components, 1 / n_components)
    block, components = draw_rankings(
        log_worths, shares, n_rankings, np.random.default_rng([*key, n_rankings])
    )
    return Simulated(np.asarray(block.to_array(), np.int64), components, log_worths)
