"""Worths from features: a whole fit, and one pass beside the two products with the features that it cannot do without.

Persons make choices among four alternatives with features of their own; three tastes.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import plmix_dist as plm
from benchmarks.common import interleaved, save
from plmix_dist.kernels.utilities import LinearPoint, linear_sums
from plmix_dist.threads import single_thread

N_OFFERED, N_COMPONENTS = 4, 3


def drawn(n_persons: int, n_choices: int, n_features: int, seed: int) -> tuple[plm.RankingBlock, Any, Any]:
    """Choices of persons as rows (chosen first), features (total listed, n_features), true coefficients."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1 / np.sqrt(n_features) * 2, (N_COMPONENTS, n_features))
    kind = rng.choice(N_COMPONENTS, n_persons, p=[0.5, 0.3, 0.2]).repeat(n_choices)
    n = len(kind)
    table = rng.standard_normal((n, N_OFFERED, n_features), np.float32)
    utility = rng.gumbel(size=(n, N_OFFERED))
    for component in range(N_COMPONENTS):
        own = kind == component
        utility[own] += table[own] @ truth[component]
    order = np.argsort(np.arange(N_OFFERED) != utility.argmax(axis=1)[:, None], axis=1, kind="stable")
    block = plm.RankingBlock(
        items=order.ravel().astype(np.uint8),
        n_listed=np.full(n, N_OFFERED, np.uint8),
        n_ordered=np.ones(n, np.uint8),
        below=np.zeros(n, np.bool_),
        n_items=N_OFFERED,
        groups=np.arange(n_persons).repeat(n_choices),
    )
    return block, np.take_along_axis(table, order[:, :, None], axis=1).reshape(-1, n_features), truth


def run(tiny: bool = False) -> list[dict[str, Any]]:
    sizes = ((100, 5, 8),) if tiny else ((20_000, 5, 16), (200_000, 5, 64))
    rows = []
    for n_persons, n_choices, n_features in sizes:
        block, table, truth = drawn(n_persons, n_choices, n_features, 0)
        begun, cpu = time.perf_counter(), time.process_time()
        model = plm.PlackettLuceMixture(N_COMPONENTS, alpha=0.0, random_state=0)
        model.fit(block, features=table, client=False)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        assert model.feature_coefficients_ is not None
        rows.append(
            {
                "rows": block.n_rankings,
                "features": n_features,
                "fit, s": seconds,
                "fit, s of CPU": cpu,
                "iterations": model.n_iter_,
                "largest error of a coefficient": float(np.abs(model.feature_coefficients_ - truth).max()),
                **_on_one_thread(block, table, model.feature_coefficients_),
            }
        )
    return save("features", rows)


def _on_one_thread(block: plm.RankingBlock, table: Any, coefficients: Any) -> dict[str, float]:
    """A pass over some rows on one thread, and the two products alone, in single and in double; the least of five."""
    n = min(block.n_rankings, 50_000)
    some = block[:n].replace(features=table[: n * N_OFFERED])
    shares = np.log([0.5, 0.3, 0.2])[:, None]
    point = LinearPoint(np.zeros((N_OFFERED, 0)), coefficients, shares)
    narrow, wide = some.features, some.features.astype(np.float64)
    with single_thread():
        seconds = interleaved(
            5,
            {
                "pass": lambda: linear_sums(some, point),
                "products, float64": lambda: (wide @ coefficients.T).T @ wide,
                "products, float32": lambda: (narrow @ coefficients.T.astype(np.float32)).T @ narrow,
            },
        )
    found = {f"{name}, ns per row": 1e9 * min(times) / n for name, times in seconds.items()}
    return found | {"ratio": found["pass, ns per row"] / found["products, float64, ns per row"]}
