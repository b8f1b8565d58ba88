"""Rates of the EM pass on one thread, against NumPy and hand-written C; and the LSR pass against the MM pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.c_kernel import c_pass
from benchmarks.common import best_of, interleaved, save
from benchmarks.numpy_pass import numpy_pass
from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.rankings.simulate import draw_rankings

SIZES = (
    (10, 4, 100_000),
    (20, 4, 50_000),
    (50, 3, 20_000),
    (100, 4, 10_000),
    (100, 5, 10_000),
    (100, 8, 10_000),
    (1000, 4, 1_000),
)


def run(tiny: bool = False) -> list[dict[str, Any]]:
    return save("kernels", [_measure(n, k, 20 if tiny else m, 1 if tiny else 25) for n, k, m in SIZES])


def _measure(n_items: int, n_components: int, n_rankings: int, rounds: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    # Standard normal log-worths that differ in every item: well separated for n of 20 and more.
    log_worths = rng.standard_normal((n_components, n_items))
    shares = np.full(n_components, 1 / n_components)
    block, _ = draw_rankings(log_worths, shares, n_rankings, rng)
    table = np.ascontiguousarray(block.to_array(), np.int32)
    prepared = prepare(log_worths, np.log(shares))
    numpy_seconds, _ = best_of(max(1, rounds // 8), lambda: numpy_pass(table, log_worths, np.log(shares)))
    passes = {
        "mm": lambda: em_statistics(block, prepared),
        "lsr": lambda: em_statistics(block, prepared, with_rates=True),
    }
    in_c = c_pass()
    if in_c is not None:
        passes["c mm"] = lambda: in_c(table, log_worths, shares, with_rates=False)
        passes["c lsr"] = lambda: in_c(table, log_worths, shares, with_rates=True)
        _same_as_c(in_c(table, log_worths, shares, with_rates=True), passes["lsr"]())
    _same_as_numpy(numpy_pass(table, log_worths, np.log(shares)), passes["mm"]())
    seconds = interleaved(rounds, passes)
    unit = n_rankings * n_items * n_components / 1e9
    best = {name: min(taken) for name, taken in seconds.items()}
    row = {"n": n_items, "K": n_components, "numpy ns": numpy_seconds / unit}
    row |= {f"{name} ns": shortest / unit for name, shortest in best.items()}
    row |= {"numpy / mm": numpy_seconds / best["mm"], "lsr / mm": best["lsr"] / best["mm"]}
    if in_c is not None:
        for name in ("mm", "lsr"):
            # The ratio of the shortest times, and the middle half of the ratios of single rounds.
            ratios = np.divide(seconds[name], seconds[f"c {name}"])
            low, high = np.quantile(ratios, [0.25, 0.75]).tolist()
            row |= {f"{name} / C": best[name] / best[f"c {name}"], f"{name} / C from": low, f"{name} / C to": high}
    return row


def _same_as_numpy(expected: Any, found: Any) -> None:
    """The yardstick must measure the same thing."""
    assert np.isclose(expected[0], found.log_likelihood, rtol=1e-12)
    assert np.allclose(expected[2], found.wins, rtol=1e-9)
    assert np.allclose(expected[3], found.expected_wins, rtol=1e-9)


def _same_as_c(expected: Any, found: Any) -> None:
    """Both leave negligible components out of rates, which differ by that much."""
    assert np.isclose(expected.log_likelihood, found.log_likelihood, rtol=1e-12)
    for name in ("shares", "wins", "expected_wins", "rates"):
        assert np.allclose(getattr(expected, name), getattr(found, name), rtol=1e-9, atol=1e-11), name
