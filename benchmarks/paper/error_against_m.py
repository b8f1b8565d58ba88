"""Error and time against m: the paper's Figure 1 and, with the starts, the figure of its supplement.

n = 100, the first L = 5 items differ, K small and moderate. The claims: all methods are accurate for small K, and
EM-LSR is the most accurate for moderate K; spectral starts are better than random ones, and EM improves on them.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.common import draw, save
from benchmarks.paper.rivals import RIVALS, fitted, spectral_start, warm_up
from benchmarks.paper.trials import means, run_trials
from benchmarks.paper.truth import simulated
from plmix_dist.metrics import matched_distance

# The text gives neither the values of m nor those of K; "released" has those of the scripts, which draw N(0, 4).
GRIDS: dict[str, dict[str, Any]] = {
    "tiny": {"n": 10, "L": 5, "K": (2,), "m": (200, 400), "trials": 1, "spread": 1.0},
    "quick": {"n": 100, "L": 5, "K": (2, 5), "m": (500, 1_000, 2_000, 5_000), "trials": 2, "spread": 1.0},
    "paper": {
        "n": 100, "L": 5, "K": (2, 3, 5, 8), "m": (500, 1_000, 2_000, 5_000, 10_000), "trials": 25, "spread": 1.0,
    },
    "released": {
        "n": 100, "L": 5, "K": (2, 3, 4, 5, 6, 8, 10), "m": (100, 200, 500, 1_000, 2_000), "trials": 25, "spread": 2.0,
    },
}  # fmt: skip
_START = "spectral start alone"


def run(grid: str) -> list[dict[str, Any]]:
    chosen = GRIDS[grid]
    trials = [
        {
            "method": name,
            "n": chosen["n"],
            "L": chosen["L"],
            "K": k,
            "m": m,
            "spread": chosen["spread"],
            "seed": seed,
        }
        for k in chosen["K"]
        for m in chosen["m"]
        for seed in range(chosen["trials"])
        for name in (*RIVALS, _START)
    ]
    records = run_trials("paper-error-against-m", trials, _trial)
    table = means(records, ("K", "m", "method"), ("error", "seconds"))
    draw(picture_of(grid), 2 * len(chosen["K"]), lambda panels: _fill(panels, table, chosen["K"]))
    return save(f"paper-error-against-m-{grid}", table)


def picture_of(grid: str) -> Any:
    """Where the picture goes."""
    from benchmarks import common

    return common.RESULTS / f"paper-error-against-m-{grid}.svg"


def _trial(trial: dict[str, Any]) -> dict[str, Any]:
    warm_up()
    data = simulated(trial["m"], trial["n"], trial["L"], trial["K"], trial["seed"], trial["spread"])
    begun = time.perf_counter()
    if trial["method"] == _START:
        found: Any = spectral_start(data.table, trial["K"], trial["seed"], svd_rank=trial["K"])
    else:
        try:
            found = fitted(trial["method"], data.table, trial["K"], trial["seed"])
        except Exception as error:  # noqa: BLE001 - a fit that fails is a result, and is told
            return {"error": float("nan"), "seconds": time.perf_counter() - begun, "failed": str(error)[:200]}
    seconds = time.perf_counter() - begun
    same = found.log_worths_.shape == data.log_worths.shape
    error = matched_distance(found.log_worths_, data.log_worths) if same else float("nan")
    return {"error": float(error), "seconds": seconds}


def _fill(panels: list[Any], table: list[dict[str, Any]], n_components: tuple[int, ...]) -> None:
    for place, k in enumerate(n_components):
        for column, what in enumerate(("error", "seconds")):
            panel = panels[2 * place + column]
            for name in (*RIVALS, _START):
                own = [row for row in table if row["K"] == k and row["method"] == name]
                panel.loglog([row["m"] for row in own], [row[what] for row in own], marker="o", label=name)
            panel.set_title(f"K = {k}")
            panel.set_xlabel("m")
            panel.set_ylabel(what)
    panels[0].legend(fontsize=7)
