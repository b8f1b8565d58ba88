"""Default fits with two seeds against the best optimum known, and their CPU time: for before and after a change.

Elections (K = 3, 5, 8) where they are there, and simulated data that `optimum` does not have. The best known score of
a set is the best that any run has reached; it is kept in benchmarks/optima.json, and only ever rises.
`python -m benchmarks default_fits`. Not part of `make bench`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.common import save
from benchmarks.fits import one_core
from benchmarks.optimum import DATA, ELECTIONS, FAR, NEAR, SIMULATED, Case, data_of, default_fit

if TYPE_CHECKING:
    from collections.abc import Iterator

KNOWN = Path(__file__).parent / "optima.json"
# Data of other elections than those of `optimum`; and the numbers of components where the items are few.
MORE = {"san francisco 1": "sanfrancisco/00021-00000001.toi", "san francisco 6": "sanfrancisco/00021-00000006.toi"}
NUMBERS = (3, 5, 8)
FEWER = {"german": (3,), "apa 1980": (3, 5), "apa 1998": (3, 5)}
DATA_SEEDS, FIT_SEEDS = (100, 101), (0, 1)
MOST_ROWS = 100_000


def sets(tiny: bool = False) -> Iterator[Case]:
    """All data sets with a number of components each."""
    if tiny:
        yield SIMULATED[2]
        return
    sources = {name: source for name, (source, _) in ELECTIONS.items()} | MORE
    for name, source in sources.items() if DATA.exists() else ():
        for n_components in FEWER.get(name, NUMBERS):
            yield Case(f"{name}, K={n_components}", n_components, source=source)
    for case in SIMULATED:
        for seed in DATA_SEEDS if case.n_rankings < MOST_ROWS else ():
            yield case._replace(name=f"{case.name}, seed {seed}", seed=seed)


def run(tiny: bool = False) -> list[dict[str, Any]]:
    best: dict[str, float] = {} if tiny or not KNOWN.exists() else json.loads(KNOWN.read_text())
    rows = []
    with one_core():
        for case in sets(tiny):
            block = data_of(case)
            for seed in FIT_SEEDS:
                begun = time.process_time()
                model, reached = default_fit(block, case.n_components, seed)
                seconds = time.process_time() - begun
                n_starts = model.init_["search"]["n_starts"]
                rows.append({"case": case.name, "seed": seed, "score": reached, "cpu": seconds, "starts": n_starts})
                best[case.name] = max(best.get(case.name, -np.inf), reached)
    for row in rows:
        row["short"] = best[row["case"]] - row["score"]
    if not tiny:
        KNOWN.write_text(json.dumps(best, indent=1) + "\n")
    save("default_fits", rows)
    short, cpu = np.array([row["short"] for row in rows]), sum(row["cpu"] for row in rows)
    print(
        f"{len(rows)} fits: {np.mean(short <= NEAR):.1%} within {NEAR:g}, {np.sum(short > FAR)} worse than {FAR:g}, "
        f"worst {short.max():.1e}; {cpu:.1f} s of CPU"
    )
    return rows
