"""Complete fits, start included, against the published algorithm, choix, and figures of other packages.

Then fits of a size that only passes over chunked data can serve, in units of those passes.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import choix
import numpy as np

import plmix_dist as pl
from benchmarks.common import in_fresh_process, interleaved, save
from benchmarks.mm_pass import mm_iteration, some_point
from benchmarks.paper_em_lsr import Published, simulated
from benchmarks.paper_em_lsr import fit as fit_as_published
from plmix_dist.datasets.given import as_rankings
from plmix_dist.passes.threads import ThreadedPasses

if TYPE_CHECKING:
    from collections.abc import Iterator

N_COMPONENTS = 3


class Size(NamedTuple):
    """A data set, and the seconds that others took for one of its size."""

    n_items: int
    n_rankings: int
    authors_seconds: float
    r_plmix_seconds: float


# Seconds of the authors' released EM-LSR and of R's PLMIX 2.2 (one random start), the best of several runs on one
# thread of a machine like the one these benchmarks are run on, for other data of the same size.
SIZES = (Size(50, 10_000, 11.7, 7.8), Size(10, 5_000, 1.1, 0.43))
# Rankings, items, components of fits that are measured in passes.
LARGE = ((1_000_000, 100, 5), (10_000_000, 10, 4))


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = [_against_others(size._replace(n_rankings=400) if tiny else size, tiny) for size in SIZES]
    save("fits", rows)
    return rows + against_choix(tiny) + large(tiny)


def _against_others(size: Size, tiny: bool) -> dict[str, Any]:
    table = simulated(size.n_items, N_COMPONENTS, size.n_rankings)
    options: dict[str, Any] = {"random_state": 0, "tol": 1e-5 if tiny else 1e-8}
    models: list[pl.PlackettLuceMixture] = []
    published: list[Published] = []

    def ours() -> None:
        models.append(pl.PlackettLuceMixture(N_COMPONENTS, **options).fit(table))

    def ours_on_one_core() -> None:
        with one_core():
            ours()

    def the_published_on_one_core() -> None:
        with one_core():
            published.append(fit_as_published(table, N_COMPONENTS))

    ours()  # loads the kernels
    rounds = 1 if tiny else 7
    # One run of the published algorithm takes as long as many of ours: it is run once, between two lots of them.
    lot = {"ours": ours, "one core": ours_on_one_core}
    before = interleaved(rounds, lot)
    the_published_on_one_core()
    seconds = {name: before[name] + taken for name, taken in interleaved(rounds, lot).items()}
    best = pl.PlackettLuceMixture(N_COMPONENTS, init="random", n_init=2 if tiny else 20, **options).fit(table)
    model = models[-1]
    alone = min(seconds["one core"])
    return {
        "n": size.n_items,
        "m": size.n_rankings,
        "seconds": min(seconds["ours"]),
        "slowest": max(seconds["ours"]),
        "one core": alone,
        "one core, slowest": max(seconds["one core"]),
        "iterations": model.n_iter_,
        "mean log-likelihood": model.log_likelihood_ / size.n_rankings,
        "below best of 20": (best.objective_ - model.objective_) / size.n_rankings,
        "published, s": published[0].seconds,
        "its EM, s": published[0].seconds - published[0].start_seconds,
        "its mean log-likelihood": published[0].mean_log_likelihood,
        "published / one core": published[0].seconds / alone,
        "its EM / one core": (published[0].seconds - published[0].start_seconds) / alone,
        "authors' / one core": size.authors_seconds / alone,
        "R PLMIX / one core": size.r_plmix_seconds / alone,
    }


def against_choix(tiny: bool = False) -> list[dict[str, Any]]:
    """One component, which is all that choix fits: its iterated LSR on the same rankings."""
    n_items, n_rankings = 10, 300 if tiny else 5_000
    table = simulated(n_items, 1, n_rankings)
    lists = table.tolist()
    found: dict[str, Any] = {}

    def ours() -> None:
        found["ours"] = pl.PlackettLuceMixture(1, alpha=0).fit(table).log_worths_[0]

    def theirs() -> None:
        found["choix"] = choix.ilsr_rankings(n_items, lists)

    ours()
    seconds = interleaved(1 if tiny else 5, {"ours": ours, "choix": theirs})
    shortest = {name: min(taken) for name, taken in seconds.items()}
    return save(
        "fits-one-component",
        [
            {
                "n": n_items,
                "m": n_rankings,
                "seconds": shortest["ours"],
                "slowest": max(seconds["ours"]),
                "choix, s": shortest["choix"],
                "choix / ours": shortest["choix"] / shortest["ours"],
                "largest difference of log-worths": float(np.abs(found["ours"] - found["choix"]).max()),
            }
        ],
    )


def large(tiny: bool = False) -> list[dict[str, Any]]:
    """Fits from a store, in units of an MM pass of one thread over all rows in memory."""
    rows = []
    for n_rankings, n_items, n_components in LARGE:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "store"
            pl.simulate(path, n_rankings=5_000 if tiny else n_rankings, n_items=n_items, n_components=n_components)
            fitted, peak = in_fresh_process(_fit_store, str(path), n_components, 1e-4 if tiny else 1e-8)
            a_pass = one_pass_seconds(path, n_components, 1 if tiny else 3)
        rows.append(
            {"m": 5_000 if tiny else n_rankings, "n": n_items, "K": n_components}
            | fitted
            | {"MM pass, s": a_pass, "in MM passes": fitted["seconds"] / a_pass, "peak MB": peak / 1e6}
        )
    return save("fits-large", rows)


def _fit_store(path: str, n_components: int, tol: float) -> dict[str, Any]:
    store = pl.open_store(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Loads the kernels; a spectral start of a few rows may end anywhere.
        pl.PlackettLuceMixture(n_components, max_iter=12, tol=1e-12).fit(store.block()[:3_000])
    begun = time.perf_counter()
    model = pl.PlackettLuceMixture(n_components, random_state=0, tol=tol).fit(store)
    seconds = time.perf_counter() - begun
    return {
        "seconds": seconds,
        "iterations": model.n_iter_,
        "passes": float(sum(stage["passes"] for stage in model.init_["stages"])),
        "converged": int(model.converged_),
        "mean log-likelihood": model.log_likelihood_ / store.n_rankings,
    }


def one_pass_seconds(path: Path, n_components: int, repeats: int) -> float:
    """The shortest of some MM passes over all rows of a store, in memory, on one thread."""
    store = pl.open_store(path)
    passes = ThreadedPasses(as_rankings(store), residency="memory", n_threads=1)
    point = some_point(n_components, store.n_items)
    seconds = [mm_iteration(passes, point).timing.pass_seconds for _ in range(repeats + 1)]
    return min(seconds[1:])  # the first reads the store


@contextmanager
def one_core() -> Iterator[None]:
    """This thread, and those it starts, on one core, as the figures of others were measured."""
    from threadpoolctl import threadpool_limits

    if not hasattr(os, "sched_setaffinity"):  # not on Linux
        with threadpool_limits(1):
            yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with threadpool_limits(1):
            yield
    finally:
        os.sched_setaffinity(0, cores)
