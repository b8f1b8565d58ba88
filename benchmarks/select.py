"""Choosing K: seconds of a selection beside one fit on Irish Meath, and how often each criterion finds the true K."""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

import plmix_dist as pl
from benchmarks.common import save
from benchmarks.real_data import DATA, SOURCES
from plmix_dist.fitting import selection as all_rows
from plmix_dist.fitting.criteria import CRITERIA, choose
from plmix_dist.rankings.simulate import draw_rankings

if TYPE_CHECKING:
    from collections.abc import Callable

SHARES = np.array([0.5, 0.3, 0.2])
# Items, listed items (all or the first few), rankings, standard deviation of the log-worths.
CELLS = [
    (n_items, length, m, spread)
    for n_items, length in ((6, 6), (10, 10), (10, 4))
    for m in (300, 3_000)
    for spread in (0.7, 1.5)
]
REPEATS = 3


def run(tiny: bool = False) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that are not identifiable, or that were found once
        found = recovery(CELLS[:1] if tiny else CELLS, range(1) if tiny else range(REPEATS))
        return [*found, *cost(tiny)]


def cost(tiny: bool = False) -> list[dict[str, Any]]:
    """Seconds of the processor of a selection, and of the single fit with the largest number of components."""
    name, numbers = ("APA 1998", range(2, 4)) if tiny else ("Irish Meath", range(2, 11))
    if not DATA.exists():
        return save("select", [{"data": "not there"}])
    template = pl.PlackettLuceMixture(max(numbers), random_state=0, tol=1e-3 if tiny else 1e-8)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store = pl.ingest(DATA / SOURCES[name], Path(folder) / "s")
        pl.PlackettLuceMixture(1).fit(store)  # kernels are compiled, and the store has been read
        single, _ = _seconds(lambda: template.fit(store))
        for criterion in ("bic",) if tiny else ("bic", "held-out"):
            selection = pl.MixtureSelection(numbers, criterion=criterion, estimator=template)
            seconds, found = _seconds(lambda selection=selection: selection.fit(store))
            rows.append(
                {
                    "data": name,
                    "K": f"{min(numbers)}..{max(numbers)}",
                    "criterion": criterion,
                    "chosen": found.n_components_,
                    "passes over all rows": sum(stage["passes"] for stage in found.stages_),
                    f"fit of K={max(numbers)}, s": single,
                    "selection, s": seconds,
                    "fits": seconds / single,
                }
            )
    return save("select", rows)


def recovery(cells: list[tuple[int, int, int, float]], repeats: range) -> list[dict[str, Any]]:
    """How many of the simulated data sets of three components each criterion gives three components."""
    rows = []
    for n_items, length, m, spread in cells:
        tables = [simulated_table(n_items, length, m, spread, repeat) for repeat in repeats]
        row = {"n": n_items, "listed": length, "m": m, "spread": spread, "data sets": len(tables)}
        for name, criterion in CRITERIA.items():
            chosen = [choose(table, criterion) for table in tables]
            row[name] = sum(each is not None and each.n_components == 3 for each in chosen)
            row[f"{name}, mean K"] = float(np.mean([each.n_components for each in chosen if each is not None]))
        rows.append(row)
        print(row, flush=True)
    return save("select-recovery", rows)


def simulated_table(n_items: int, length: int, m: int, spread: float, repeat: int) -> list[dict[str, Any]]:
    """The table of a selection on rankings of three components, with all criteria.

    Searches end after their first batch: there are many data sets, and these are easy to fit.
    """
    rng = np.random.default_rng([n_items, length, m, int(10 * spread), repeat])
    truth = spread * rng.standard_normal((len(SHARES), n_items))
    partial: dict[str, Any] = {} if length == n_items else {"length": length, "unranked": "below"}
    block, _ = draw_rankings(truth, SHARES, m, rng, **partial)
    selection = pl.MixtureSelection(
        range(1, 6), also=("held-out", "paper"), estimator=pl.PlackettLuceMixture(tol=1e-5), random_state=repeat
    )
    with mock.patch.object(all_rows, "_SHARE_OF_BUDGET", 0.0):
        return selection.fit(block).table_


def _seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor, which others on the machine disturb less, and what a function gives."""
    begun = time.process_time()
    result = function()
    return time.process_time() - begun, result


if __name__ == "__main__":
    run()
