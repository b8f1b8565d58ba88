"""A large fit on two workers: ballots by path, or a simulated twin of the upper house of New South Wales.

`PLMIX_BALLOTS=FILES python -m benchmarks large_ballots` reads files of ballots (a path or a glob; names that are not
listed rank below). Without it the twin is drawn: 4,600,000 ballots above the line, of 1 to 15 of 18 parties, of four
tastes. One thread and 1 GB per worker.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv as pa_csv

import plmix_dist as plm
from benchmarks.common import PeakMemory, folder_bytes, save
from benchmarks.mm_pass import worker_pids
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.errors import NotConvergedWarning

N_BALLOTS, N_PARTIES, N_COMPONENTS = 4_600_000, 18, 4
SHARES = np.array([0.4, 0.33, 0.17, 0.1])
# How many parties are numbered: most people write a 1 and no more.
LENGTHS = np.array([1, 2, 3, 5, 8, 15])
FREQUENCIES = np.array([0.65, 0.12, 0.1, 0.06, 0.04, 0.03])


def tastes() -> Any:
    """(n_components, n_parties): log-worths of the twin."""
    return np.random.default_rng(1).normal(0, 1.5, (N_COMPONENTS, N_PARTIES))


def write_twin(path: Path, n_ballots: int) -> None:
    """Ballots as CSV: one column per preference, empty after the last one."""
    rng, worths = np.random.default_rng(2), tastes()
    names = np.array([*(f"party {chr(65 + number)}" for number in range(N_PARTIES)), ""])
    columns = [f"choice{place + 1}" for place in range(LENGTHS[-1])]
    schema = pa.schema([(column, pa.string()) for column in columns])
    with pa_csv.CSVWriter(path, schema) as out:
        for begin in range(0, n_ballots, 100_000):
            n = min(100_000, n_ballots - begin)
            keys = rng.gumbel(size=(n, N_PARTIES)) + worths[rng.choice(N_COMPONENTS, n, p=SHARES)]
            orders = np.argsort(-keys, axis=1)[:, : LENGTHS[-1]]
            orders[np.arange(LENGTHS[-1]) >= rng.choice(LENGTHS, n, p=FREQUENCIES)[:, None]] = N_PARTIES
            dictionary = pa.array(names.tolist())
            cells = [pa.DictionaryArray.from_arrays(pa.array(own), dictionary).cast(pa.string()) for own in orders.T]
            out.write_table(pa.Table.from_arrays(cells, columns))


def run(tiny: bool = False) -> list[dict[str, Any]]:
    given = os.environ.get("PLMIX_BALLOTS")
    with (
        tempfile.TemporaryDirectory() as folder,
        LazyExecutor(ClusterOptions(workers=2, memory_limit="1GB")) as cluster,
    ):
        place, client = Path(folder), cluster.client()
        pids = worker_pids(client)
        if given is None:
            write_twin(place / "ballots.csv", 5_000 if tiny else N_BALLOTS)
        rows: list[dict[str, Any]] = []

        def stage(name: str, call: Any) -> Any:
            begun, before, own = time.perf_counter(), _seconds(pids), time.process_time()
            with PeakMemory(iter(pids)) as peak:
                found = call()
            row = {"stage": name, "seconds": time.perf_counter() - begun, "CPU s, workers": _seconds(pids) - before}
            rows.append(row | {"CPU s, driver": time.process_time() - own, "highest worker, MB": peak.peak / 1e6})
            print(rows[-1], flush=True)
            return found

        source = given or str(place / "ballots.csv")
        store = stage("ingest", lambda: plm.ingest(source, place / "store", unranked="below", executor=cluster))
        model = plm.PlackettLuceMixture(N_COMPONENTS, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            stage("fit", lambda: model.fit(store, client=client))
            errors = stage("standard errors", lambda: model.standard_errors(store, client=client))
        stage("check of fit", lambda: model.check_fit(store, client=client))
        shape = {"ballots": store.n_rankings, "items": store.n_items, "stored, MB": folder_bytes(place / "store") / 1e6}
        found = {f"share {number}": float(share) for number, share in enumerate(model.shares_)}
        found |= {"error of share 0": float(errors.shares[0]), "iterations": model.n_iter_}
        if given is None:
            found["distance to the truth"] = plm.metrics.matched_distance(model.log_worths_, tastes())
    return save("large_ballots", [row | shape | found for row in rows])


def _seconds(pids: list[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(one.user + one.system for one in times)
