"""Rates of the EM pass on one thread, against NumPy; and the LSR pass against the MM pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import best_of, save
from benchmarks.numpy_pass import numpy_pass
from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.rankings.simulate import draw_rankings

SIZES = (
    (50, 3, 20_000),
    (10, 4, 100_000),
    (20, 4, 50_000),
    (100, 4, 10_000),
    (100, 5, 10_000),
    (100, 8, 10_000),
)


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for n_items, n_components, n_rankings in SIZES:
        rng = np.random.default_rng(0)
        m = 200 if tiny else n_rankings
        # Standard normal log-worths that differ in every item: well separated for n of 20 and more.
        log_worths = rng.standard_normal((n_components, n_items))
        shares = np.full(n_components, 1 / n_components)
        block, _ = draw_rankings(log_worths, shares, m, rng)
        table = block.to_array()
        prepared = prepare(log_worths, np.log(shares))
        _same(numpy_pass(table, log_worths, np.log(shares)), em_statistics(block, prepared))
        repeats = 1 if tiny else 9
        plain, _ = best_of(
            max(1, repeats // 3), lambda t=table, w=log_worths, s=shares: numpy_pass(t, w, np.log(s))
        )
        mm, mm_slowest = best_of(repeats, lambda b=block, p=prepared: em_statistics(b, p))
        lsr, _ = best_of(repeats, lambda b=block, p=prepared: em_statistics(b, p, with_rates=True))
        unit = m * n_items * n_components / 1e9
        rows.append(
            {
                "n": n_items,
                "K": n_components,
                "numpy ns": plain / unit,
                "mm ns": mm / unit,
                "slowest": mm_slowest / unit,
                "lsr ns": lsr / unit,
                "numpy / mm": plain / mm,
                "lsr / mm": lsr / mm,
            }
        )
    return save("kernels", rows)


def _same(expected: Any, found: Any) -> None:
    """The yardstick must measure the same thing."""
    assert np.isclose(expected[0], found.log_likelihood, rtol=1e-12)
    assert np.allclose(expected[2], found.wins, rtol=1e-9)
    assert np.allclose(expected[3], found.expected_wins, rtol=1e-9)
