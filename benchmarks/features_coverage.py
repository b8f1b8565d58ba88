"""How often 95 % intervals hold the true coefficients of features: 50 items, 8 features, three tastes, 20,000 rankings.

Each ranking is of six items drawn at random. Counted are all coefficients of all sets, and shares.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

import plmix_dist as plm
from benchmarks.common import save

N_ITEMS, N_FEATURES, N_OFFERED = 50, 8, 6
SHARES = np.array([0.5, 0.3, 0.2])
Z = 1.959964


def run(tiny: bool = False) -> list[dict[str, Any]]:
    n_sets, n_rankings = (2, 2_000) if tiny else (200, 20_000)
    held: dict[str, list[Any]] = {"information": [], "sandwich": []}
    of_shares, seconds, n_best = [], [], []
    for number in range(n_sets):
        rng = np.random.default_rng([7, number])
        table = rng.normal(size=(N_ITEMS, N_FEATURES))
        truth = rng.normal(0, 0.7, (3, N_FEATURES))
        kind = rng.choice(3, n_rankings, p=SHARES)
        offered = rng.random((n_rankings, N_ITEMS)).argsort(axis=1)[:, :N_OFFERED]
        keys = (table @ truth.T)[offered, kind[:, None]] + rng.gumbel(size=offered.shape)
        rankings = np.take_along_axis(offered, np.argsort(-keys, axis=1), axis=1)
        begun = time.perf_counter()
        model = plm.PlackettLuceMixture(3, alpha=0.0, unranked="absent", random_state=0)
        model.fit(rankings, item_features=table, n_items=N_ITEMS, client=False)
        seconds.append(time.perf_counter() - begun)
        n_best.append(model.init_["search"]["n_best"])
        found = model.item_coefficients_
        assert found is not None
        orders = [list(order) for order in itertools.permutations(range(3))]
        order = min(orders, key=lambda one: float(np.abs(found[one] - truth).sum()))
        for name, these in held.items():
            errors = model.standard_errors(rankings, kind=name, client=False)  # type: ignore[arg-type]
            assert errors.coefficients is not None
            these.append(np.abs(found[order] - truth) <= Z * errors.coefficients.standard_errors[order])
            if name == "information":
                of_shares.append(np.abs(model.shares_[order] - SHARES) <= Z * np.asarray(errors.shares)[order])
    row: dict[str, Any] = {"sets": n_sets, "m": n_rankings, "fit, s": float(np.median(seconds))}
    row |= {f"{name}, %": 100 * float(np.mean(these)) for name, these in held.items()}
    row |= {"shares, %": 100 * float(np.mean(of_shares)), "best end found, least": int(min(n_best))}
    return save("features_coverage", [row])
