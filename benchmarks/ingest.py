"""Ingest of Parquet and text: rate on two workers of 1 GB each, their highest memory, and rate per core."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import plmix_dist as pl
from benchmarks.common import PeakMemory, best_of, save
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor, ThreadedExecutor

CASES = (("parquet", "rankings.parquet", 10_000_000), ("orderings", "rankings.csv", 1_000_000),
         ("wide", "wide.csv", 1_000_000), ("ranks", "ranks.csv", 1_000_000),
         ("long", "long.csv", 1_000_000), ("cvr", "ballots.csv", 1_000_000))  # fmt: skip
# Enough for a rate per core; writing the text is what takes long.
ONE_CORE = 1_000_000


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    options = ClusterOptions(workers=2, memory_limit="1GB")
    with tempfile.TemporaryDirectory() as folder, LazyExecutor(options) as executor:
        pids = list(executor.client().run(_pid).values())
        for format_name, file_name, n_rankings in CASES:
            n = 5_000 if tiny else n_rankings
            source = Path(folder) / file_name
            _write_source(source, format_name, n)
            target = Path(folder) / f"to-{format_name}"

            def read(source: Path = source, target: Path = target, format_name: str = format_name) -> None:
                pl.ingest(source, target, format=format_name, header=_header(source), executor=executor)

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
                    "rankings/s and core": _rate_per_core(format_name, min(n, ONE_CORE)),
                }
            )
    rows += [_battles(kind, persons, 5_000 if tiny else ONE_CORE) for kind in ("parquet", "csv", "jsonl")
             for persons in (False, True)]  # fmt: skip
    return save("ingest", rows)


def _battles(kind: str, persons: bool, n_battles: int) -> dict[str, Any]:
    """Battles of a hundred models, of ten thousand persons or of nobody: votes per second of processor time."""
    rng = np.random.default_rng(0)
    names = np.array([f"model-{number}" for number in range(100)])
    first = rng.integers(100, size=n_battles)
    second = (first + 1 + rng.integers(99, size=n_battles)) % 100
    columns = {"model_a": names[first], "model_b": names[second],
               "winner": np.array(["model_a", "model_b", "tie"])[rng.integers(3, size=n_battles)]}  # fmt: skip
    if persons:
        columns["judge"] = rng.integers(10_000, size=n_battles)
    table = pa.table(columns)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"battles.{kind}"
        if kind == "parquet":
            pq.write_table(table, source)
        elif kind == "csv":
            pa_csv.write_csv(table, source)
        else:
            source.write_text("\n".join(map(json.dumps, table.to_pylist())))
        begun = time.process_time()
        made = pl.ingest(source, Path(folder) / "store", executor=ThreadedExecutor(1))
        seconds = time.process_time() - begun
        assert made.total_weight == n_battles
        return {
            "format": f"battles ({kind}{', persons' if persons else ''})",
            "rankings": n_battles,
            "source MB": source.stat().st_size / 1e6,
            "seconds": seconds,
            "rankings/s and core": n_battles / seconds,
        }


def _write_source(source: Path, format_name: str, n_rankings: int) -> None:
    if format_name == "cvr":
        _write_ballots(source, n_rankings)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = pl.simulate(Path(folder) / "store", n_rankings=n_rankings, n_items=10, n_components=4)
        pl.export(store, source, format=format_name)


def _write_ballots(source: Path, n_rankings: int) -> None:
    """Cast vote records: six ranks, twenty candidates, marks and repeats; the first rank always has a candidate."""
    names = np.array([f"Candidate {number}" for number in range(20)] + ["skipped"] * 6 + ["overvote"], object)
    drawn = np.random.default_rng(1).integers(0, len(names), (n_rankings, 6))
    drawn[:, 0] %= 20
    with source.open("w") as out:
        out.write("Precinct,rank1,rank2,rank3,rank4,rank5,rank6\n")
        out.writelines(f"P{number % 50},{','.join(row)}\n" for number, row in enumerate(names[drawn]))


def _header(source: Path) -> bool | None:
    """Text has a header; other files say their columns themselves."""
    return None if source.suffix == ".parquet" else True


def _rate_per_core(format_name: str, n_rankings: int) -> float:
    """Rankings per second of processor time, of one thread in this process; the better of two runs."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"source.{'parquet' if format_name == 'parquet' else 'csv'}"
        _write_source(source, format_name, n_rankings)
        rates = []
        for number in range(2):
            begun = time.process_time()
            made = pl.ingest(source, Path(folder) / f"store{number}", format=format_name, header=_header(source),
                             executor=ThreadedExecutor(1))  # fmt: skip
            rates.append(n_rankings / (time.process_time() - begun))
            assert made.n_rankings == n_rankings
    return max(rates)


def _pid() -> int:
    import os

    return os.getpid()
