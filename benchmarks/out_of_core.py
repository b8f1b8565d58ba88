"""Passes over a store ten times as large as all workers' memory: their rate against that of reading alone.

Two workers of 400 MB each, of which an idle one already takes half. Every pass reads, checks and decompresses the whole
store again.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plmix_dist as pl
from benchmarks.common import PeakMemory, folder_bytes, interleaved, save
from benchmarks.mm_pass import mm_iteration, some_state, worker_pids
from plmix_dist.data import as_rankings
from plmix_dist.engine import ClusterOptions, LazyExecutor
from plmix_dist.engine.passes import DistributedPasses

if TYPE_CHECKING:
    from plmix_dist.rankings import RankingBlock

N_ITEMS, N_COMPONENTS = 100, 4
WORKERS, WORKER_BYTES = 2, 400e6
TIMES_MEMORY = 10


def run(tiny: bool = False) -> list[dict[str, Any]]:
    # A row of n items, up to 256 of them, takes n bytes and a few more.
    n_rankings = 5_000 if tiny else int(TIMES_MEMORY * WORKERS * WORKER_BYTES / N_ITEMS)
    options = ClusterOptions(workers=WORKERS, memory_limit=f"{WORKER_BYTES / 1e6:.0f}MB")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        with LazyExecutor(ClusterOptions(workers=WORKERS)) as executor:
            store = pl.simulate(
                path,
                n_rankings=n_rankings,
                n_items=N_ITEMS,
                n_components=N_COMPONENTS,
                executor=executor,
            )
        with LazyExecutor(options) as executor:
            client = executor.client()
            passes = DistributedPasses(as_rankings(store), client, residency="store")
            timed = {
                "read": partial(passes.gather, "read", _count),
                "pass": partial(mm_iteration, passes, some_state(N_COMPONENTS, N_ITEMS), n_rankings),
            }
            with PeakMemory(iter(worker_pids(client))) as peak:
                if tiny:
                    interleaved(1, timed)  # loads kernels, which takes longer than so few rows
                seconds = interleaved(2 if tiny else 3, timed)
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


def _count(leaf: int, block: RankingBlock) -> int:
    del leaf
    return block.n_rankings
