"""Theory by simulation: how the error of the published start falls with m, and how it depends on L, K, n and T.

Theorem 1: where L grows with n, the distance from start to truth falls as m^-1/2 and grows as K sqrt(n log n). The
table has the distance, the share of rankings in a wrong cluster, the gap between the centres of clusters, the operator
norm of the noise beside sqrt(n (m + n)), and the likelihood after EM for several multiples of T.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import expit

from benchmarks.common import save
from benchmarks.paper.rivals import fitted_from, spectral_start
from benchmarks.paper.trials import means, run_trials
from benchmarks.paper.truth import Simulated, simulated
from plmix_dist.metrics import matched_distance

_CENTRE = {"n": 30, "L": 30, "K": 3, "m": 4_000, "T": 0.0}
# What is varied, one thing at a time; T = 0.0 stands for rank K.
_SWEEPS: dict[str, tuple[Any, ...]] = {
    "m": (1_000, 4_000, 16_000), "L": (5, 10, 30), "K": (2, 3, 5), "n": (15, 30, 60), "T": (0.05, 0.2, 1.0),
}  # fmt: skip
N_TRIALS = {"tiny": 1, "quick": 3, "paper": 25, "released": 25}


def run(grid: str) -> list[dict[str, Any]]:
    centre = _CENTRE | ({"n": 8, "L": 8, "m": 500} if grid == "tiny" else {})
    points = [centre] + ([] if grid == "tiny" else [
        centre | {name: value} | ({"L": value} if name == "n" else {})
        for name, values in _SWEEPS.items() for value in values
    ])  # fmt: skip
    distinct = [dict(point) for point in {tuple(sorted(point.items())): point for point in points}.values()]
    trials = [point | {"seed": seed} for point in distinct for seed in range(N_TRIALS[grid])]
    records = run_trials("paper-start-theory", trials, _trial)
    of = (
        "distance",
        "distance * sqrt(m)",
        "misclustered",
        "gap",
        "noise norm",
        "norm bound",
        "rank",
        "after EM",
    )
    return save(f"paper-start-theory-{grid}", means(records, ("n", "L", "K", "m", "T"), of))


def _trial(trial: dict[str, Any]) -> dict[str, Any]:
    n, n_components, m = trial["n"], trial["K"], trial["m"]
    data = simulated(m, n, trial["L"], n_components, trial["seed"])
    rule = {"svd_threshold": trial["T"]} if trial["T"] else {"svd_rank": n_components}
    start = spectral_start(data.table, n_components, trial["seed"], **rule)
    distance = float(matched_distance(start.log_worths_, data.log_worths))
    centres, noise = _centres_and_noise(data)
    gaps = [float(np.linalg.norm(centres[i] - centres[j])) for i in range(n_components) for j in range(i)]
    after = fitted_from(start, data.table, n_components)
    return {
        "distance": distance,
        "distance * sqrt(m)": distance * math.sqrt(m),
        "misclustered": _misclustered(data.components, start.labels_, n_components),
        "gap": min(gaps),
        "noise norm": float(np.linalg.norm(noise, 2)),
        "norm bound": math.sqrt(n) * math.sqrt(m + n),
        "rank": start.rank_,
        "after EM": after.log_likelihood_ / m,
    }


def _centres_and_noise(data: Simulated) -> tuple[Any, Any]:
    """Centres (K, n_pairs) of the components in the embedding, and embedded rows minus their centres."""
    first, second = np.triu_indices(data.table.shape[1], 1)
    places = np.argsort(data.table, axis=1)
    centres = expit(data.log_worths[:, first] - data.log_worths[:, second])
    return centres, (places[:, first] < places[:, second]) - centres[data.components]


def _misclustered(truth: Any, labels: Any, n_components: int) -> float:
    counts = np.zeros((n_components, n_components))
    np.add.at(counts, (truth, labels), 1)
    return float(1 - counts[linear_sum_assignment(-counts)].sum() / len(truth))
