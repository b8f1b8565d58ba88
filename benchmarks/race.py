"""Whole default fits beside others on the same rankings, in turn, on one core: seconds of the processor and ratios.

The others take one start each: the paper's algorithm in NumPy, choix (one component) and R's PLMIX where R has it.
mixle has a benchmark of its own. A pass of a C kernel over all rows is the unit of `C passes`.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import choix
import numpy as np

import plmix_dist as pl
from benchmarks.c_kernel import c_pass
from benchmarks.common import save
from benchmarks.fits import one_core
from benchmarks.mm_pass import some_point
from benchmarks.paper_em_lsr import fit as fit_as_published
from benchmarks.paper_em_lsr import simulated

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

# Items, rankings, components.
SIZES = ((50, 10_000, 3), (10, 5_000, 3))
PLMIX = """
suppressMessages(library(PLMIX)); rows <- as.matrix(read.csv("{path}", header=FALSE))
cat(system.time(mapPLMIX(rows, K={n_items}, G={n_components}, n_start=1))["user.self"])
"""


def run(tiny: bool = False) -> list[dict[str, Any]]:
    sizes = ((6, 300, 2),) if tiny else SIZES
    return save("race", [_raced(*size, rounds=1 if tiny else 7) for size in sizes])


def _raced(n_items: int, n_rankings: int, n_components: int, rounds: int) -> dict[str, Any]:
    table = simulated(n_items, n_components, n_rankings)
    lists = table.tolist()
    pl.PlackettLuceMixture(n_components, random_state=0).fit(table, client=False)  # loads the kernels
    with one_core():
        ours = _shortest(rounds, lambda: pl.PlackettLuceMixture(n_components, random_state=0).fit(table, client=False))
        published = _shortest(1, lambda: fit_as_published(table, n_components))
        one = _shortest(rounds, lambda: pl.PlackettLuceMixture(1, alpha=0).fit(table, client=False))
        of_choix = _shortest(1, lambda: choix.ilsr_rankings(n_items, lists))
        unit = _c_pass_seconds(table, n_components, 3 * rounds)
        ours = min(ours, _shortest(rounds, lambda: pl.PlackettLuceMixture(n_components, random_state=0).fit(table)))
    of_plmix = _plmix_seconds(table, n_components)
    return {
        "n": n_items,
        "m": n_rankings,
        "K": n_components,
        "ours, s": ours,
        "C passes": None if unit is None else ours / unit,
        "published / ours": published / ours,
        "PLMIX / ours": None if of_plmix is None else of_plmix / ours,
        "choix / ours, K=1": of_choix / one,
    }


def _shortest(rounds: int, work: Callable[[], Any]) -> float:
    """The shortest time of the processor that some rounds took."""
    found = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


def _c_pass_seconds(table: NDArray[np.int64], n_components: int, rounds: int) -> float | None:
    one_pass = c_pass()
    if one_pass is None:
        return None
    point = some_point(n_components, table.shape[1])
    rows, shares = np.ascontiguousarray(table, np.int32), np.exp(point.log_shares)
    return _shortest(rounds, lambda: one_pass(rows, point.log_worths, shares, with_rates=False))


def _plmix_seconds(table: NDArray[np.int64], n_components: int) -> float | None:
    """What R's PLMIX takes from one random start; None where it is not installed."""
    rscript = shutil.which("Rscript")
    if rscript is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        np.savetxt(path, table + 1, "%d", ",")
        script = PLMIX.format(path=path, n_items=table.shape[1], n_components=n_components)
        done = subprocess.run([rscript, "-e", script], capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None
