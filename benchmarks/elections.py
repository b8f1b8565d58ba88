"""A battery of elections: 200 as large as Scottish wards, K = 1 to 5, by `plmix elections` on two workers.

`PLMIX_ELECTIONS=FOLDER python -m benchmarks elections` takes real files. Without it elections are drawn: 3,000 to
6,000 ballots, 6 to 10 candidates, one to four tastes, and ballots that end early.
"""

from __future__ import annotations

import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import save
from plmix_dist.rankings.simulate import draw_rankings

N_ELECTIONS = 200


def write_election(path: Path, seed: int) -> None:
    """One ward as a table of places, a ballot per line."""
    rng = np.random.default_rng(seed)
    n_items, n_tastes, n_ballots = rng.integers(6, 11), rng.integers(1, 5), int(rng.integers(3_000, 6_001))
    shares = np.sort(rng.dirichlet(np.full(n_tastes, 3.0)))[::-1]
    block, _ = draw_rankings(rng.normal(0, 1.2, (n_tastes, n_items)), shares, n_ballots, rng)
    lengths = np.minimum(rng.geometric(0.3, n_ballots), n_items)
    rows = [
        [f"candidate {item}" for item in row[:length]] + [""] * (n_items - length)
        for row, length in zip(block.to_array().tolist(), lengths.tolist(), strict=True)
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([[f"place {place}" for place in range(1, n_items + 1)], *rows])


def run(tiny: bool = False) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder, table = Path(os.environ.get("PLMIX_ELECTIONS", f"{name}/wards")), Path(name) / "table.csv"
        if "PLMIX_ELECTIONS" not in os.environ:
            folder.mkdir()
            for number in range(2 if tiny else N_ELECTIONS):
                write_election(folder / f"ward-{number:03}.csv", number)
        components, workers = ("1:2", "0") if tiny else ("1:5", "2")
        command = [sys.executable, "-m", "plmix_dist", "elections", str(folder), "--components", components]
        begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "--out", str(table), "--workers", workers, "--quiet"], check=True)
        after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begun
        with table.open(newline="") as file:
            lines = [line for line in csv.DictReader(file) if not line["error"]]
    whole, fits = (sum(float(line[column]) for line in lines) for column in ("seconds", "seconds_of_fits"))
    row = {
        "elections": len(lines),
        "seconds": seconds,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "of the elections, beside the fits, %": 100 * (whole - fits) / whole,
    }
    return save("elections", [row])
