"""From a CSV file of 10,000 rankings to a first report, in three commands: ingest, fit, report.

Each is a process of its own, as users start it; kernels are in the cache. `seconds` is by the clock, `cpu` of
the processor.
"""

from __future__ import annotations

import csv
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import save

# Blanks, accents, a comma: names as people write them.
ITEMS = (
    "Crème brûlée",
    "Apple pie",
    "Tiramisù",
    "Rødgrød med fløde",
    "Lemon tart",
    "Jalebi",
    "Baklava",
    "Ice cream, vanilla",
    "Käsekuchen",
    "Pão de ló",
)
COMMANDS = (
    ("ingest", "desserts.csv", "desserts", "--unranked", "below"),
    ("fit", "desserts", "--components", "2", "--out", "groups"),
    ("report", "groups", "--data", "desserts"),
)


def run(tiny: bool = False) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_answers(folder / "desserts.csv", 300 if tiny else 10_000)
        rows = [_measured(command, folder) for command in COMMANDS]
        assert (folder / "groups.html").stat().st_size > 10_000
    whole = {key: sum(row[key] for row in rows) for key in ("seconds", "cpu")}
    return save("first_report", [*rows, {"command": "all three", **whole}])


def write_answers(path: Path, n_people: int) -> None:
    """Write the two to five favourites of people of two tastes, with empty cells behind them."""
    rng = np.random.default_rng(2)
    tastes = 1.2 * rng.standard_normal((2, len(ITEMS)))
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["respondent", *(f"choice {place}" for place in range(1, 6))])
        for person in range(n_people):
            taste = tastes[int(rng.random() < 0.35)]
            order = np.argsort(-(taste + rng.gumbel(size=len(ITEMS))))[: rng.integers(2, 6)]
            table.writerow([f"R{person:05d}", *(ITEMS[item] for item in order), *[""] * (5 - len(order))])


def _measured(command: tuple[str, ...], folder: Path) -> dict[str, Any]:
    begun, before = time.perf_counter(), _cpu()
    subprocess.run([sys.executable, "-m", "plmix_dist", *command], cwd=folder, check=True, capture_output=True)
    return {"command": " ".join(["plmix", *command]), "seconds": time.perf_counter() - begun, "cpu": _cpu() - before}


def _cpu() -> float:
    """Seconds of the processor that ended children have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
