"""Ingest of Parquet and text on two workers under a limit of 1 GB each: rate and highest memory of a worker."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import plmix_dist as pl
from benchmarks.common import PeakMemory, best_of, save
from plmix_dist.engine import ClusterOptions, LazyExecutor

CASES = (("parquet", "rankings.parquet", 10_000_000), ("orderings", "rankings.csv", 1_000_000),
         ("wide", "wide.csv", 1_000_000), ("long", "long.csv", 200_000))  # fmt: skip


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    options = ClusterOptions(workers=2, memory_limit="1GB")
    with tempfile.TemporaryDirectory() as folder, LazyExecutor(options) as executor:
        pids = list(executor.client().run(_pid).values())
        for format_name, file_name, n_rankings in CASES:
            n = 5_000 if tiny else n_rankings
            source = Path(folder) / file_name
            pl.export(
                pl.simulate(Path(folder) / f"from-{format_name}", n_rankings=n, n_items=10, n_components=4),
                source,
                format=format_name,
            )
            target = Path(folder) / f"to-{format_name}"

            def read(source: Path = source, target: Path = target, format_name: str = format_name) -> None:
                pl.ingest(source, target, format=format_name, executor=executor)

            with PeakMemory(iter(pids)) as memory:
                seconds, _ = best_of(1, read)
            assert pl.open_store(target).n_rankings == n
            rows.append(
                {
                    "format": format_name,
                    "rankings": n,
                    "source MB": source.stat().st_size / 1e6,
                    "seconds": seconds,
                    "rankings/s": n / seconds,
                    "highest worker MB": memory.peak / 1e6,
                }
            )
    return save("ingest", rows)


def _pid() -> int:
    import os

    return os.getpid()
