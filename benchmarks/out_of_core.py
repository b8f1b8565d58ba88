"""Passes over a store ten times as large as all workers' memory: their rate against that of reading alone.

Two workers of 350 MB each, of which an idle one already takes more than half. Every pass reads, checks and
decompresses the whole store again.
"""

from __future__ import annotations

import itertools
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.common import PeakMemory, folder_bytes, interleaved, save
from benchmarks.mm_pass import mm_iteration, some_point, worker_pids
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.datasets.given import as_rankings
from plmix_dist.passes.dask import DistributedPasses
from plmix_dist.passes.request import Aggregation, Request
from plmix_dist.rankings.groups import default_leaf_rows
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.store import Location, WritePlan, WriteSession, write_partition

if TYPE_CHECKING:
    from plmix_dist import RankingBlock, RankingStore

N_ITEMS, N_COMPONENTS = 100, 4
WORKERS, WORKER_BYTES = 2, 350e6
TIMES_MEMORY = 10
DRAWN_LEAVES, LEAVES_A_PARTITION = 64, 256


def run(tiny: bool = False) -> list[dict[str, Any]]:
    # A row of n items, up to 256 of them, takes n bytes and a few more.
    n_rankings = 5_000 if tiny else int(TIMES_MEMORY * WORKERS * WORKER_BYTES / N_ITEMS)
    options = ClusterOptions(workers=WORKERS, memory_limit=f"{WORKER_BYTES / 1e6:.0f}MB")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        store = _written(path, n_rankings)
        n_rankings = store.n_rankings  # whole leaves
        with LazyExecutor(options) as executor:
            client = executor.client()
            passes = DistributedPasses(as_rankings(store), client, residency="store")
            timed = {
                "read": partial(passes.run, [Request(Aggregation("read", leaf=_count))]),
                "pass": partial(mm_iteration, passes, some_point(N_COMPONENTS, N_ITEMS)),
            }
            with PeakMemory(iter(worker_pids(client))) as peak:
                if tiny:
                    interleaved(1, timed)  # loads kernels, which takes longer than so few rows
                seconds = interleaved(2, timed)
        reading, passing = min(seconds["read"]), min(seconds["pass"])
        row = {
            "m": n_rankings,
            "n": N_ITEMS,
            "K": N_COMPONENTS,
            "stored MB": folder_bytes(path) / 1e6,
            "decoded MB": store.decoded_bytes / 1e6,
            "of all workers' memory": store.decoded_bytes / (WORKERS * WORKER_BYTES),
            "read, s": reading,
            "pass, s": passing,
            "read, slowest": max(seconds["read"]),
            "pass, slowest": max(seconds["pass"]),
            "rows/s read": n_rankings / reading,
            "rows/s of a pass": n_rankings / passing,
            "pass / reading": passing / reading,
            "highest worker MB": peak.peak / 1e6,
        }
    return save("out-of-core", [row])


def _written(path: Path, n_rankings: int) -> RankingStore:
    """A store of so many rows, in which some thousands of drawn rows come again and again.

    Drawing them all would take half an hour. Compression does not see that they repeat: chunks are shorter than that.
    """
    rng = np.random.default_rng(0)
    log_worths = rng.standard_normal((N_COMPONENTS, N_ITEMS))
    leaf_rows = default_leaf_rows(N_ITEMS)
    shares = np.full(N_COMPONENTS, 1 / N_COMPONENTS)
    leaves = [draw_rankings(log_worths, shares, leaf_rows, rng)[0] for _ in range(DRAWN_LEAVES)]
    n_leaves = -(-n_rankings // leaf_rows)
    n_partitions = -(-n_leaves // LEAVES_A_PARTITION)
    names = [str(number) for number in range(N_ITEMS)]
    plan = WritePlan("simulate", names, leaf_rows, n_partitions, settings={"n_rankings": n_rankings})
    with WriteSession.begin(Location.of(path), plan) as session:
        for task in session.pending():
            n_left = min(LEAVES_A_PARTITION, n_leaves - task.number * LEAVES_A_PARTITION)
            write_partition(task, itertools.islice(itertools.cycle(leaves), n_left))
        return session.finalise()


def _count(number: int, block: RankingBlock, params: None) -> int:
    del number, params
    return block.n_rankings
