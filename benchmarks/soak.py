"""Fits in a loop on a cluster whose workers are killed, frozen, added and removed, while the store grows (`make soak`).

A scheduler and workers run as processes of their own. In each round rankings are appended to the store, and three fits
follow: one undisturbed, one in which a worker is killed once, and one with faults of all kinds. Every fit must end, and
with the same bits as its twin in threads of another process. What a kill costs is the difference of the first two.
After some rounds the store begins anew, so that memory can be compared.
`PLMIX_SOAK_MINUTES` (20) says how long; the faults are drawn with the seed `PLMIX_SOAK_SEED` (1).
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dask
import numpy as np
import psutil
from distributed import Client

from benchmarks.common import save
from plmix_dist import PlackettLuceMixture, export, ingest, open_store, simulate
from plmix_dist.errors import NotConvergedWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLMIX = [sys.executable, "-m", "plmix_dist"]
N_WORKERS, MOST_WORKERS = 2, 3
# Dask gives a task up that has lost so many workers; faults of one fit stay below.
MOST_KILLS = 2
# Longer than any freeze; a fit that hears nothing for so long is a hang, and ends with an error.
STALL = "60s"
ROUNDS_OF_A_STORE = 10
_MB = 1e6


class Cluster:
    """A scheduler and workers, each a process of `plmix`; each worker has a nanny that starts it again."""

    def __init__(self) -> None:
        options = ["--port", "0", "--no-dashboard"]
        self._scheduler = _started("scheduler", *options)
        self.address = _said(self._scheduler, "scheduler")
        self._nannies: list[subprocess.Popen[str]] = []
        self._ended: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        every = (*self._nannies, *self._ended, self._scheduler)
        for process in every:
            process.terminate()
        for process in every:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    @property
    def scheduler(self) -> psutil.Process:
        """The process of the scheduler."""
        return psutil.Process(self._scheduler.pid)

    def scale(self, number: int) -> None:
        """Start or end workers until there are so many."""
        while len(self._nannies) > number:
            self._ended.append(self._nannies.pop())
            self._ended[-1].terminate()
        while len(self._nannies) < number:
            self._nannies.append(_started("worker", self.address, "--memory-limit", "1GB"))

    @property
    def n_workers(self) -> int:
        """How many workers were asked for."""
        return len(self._nannies)

    def worker(self, choice: random.Random) -> psutil.Process | None:
        """One of the working processes; None while there is none, because it starts."""
        nanny = psutil.Process(choice.choice(self._nannies).pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            children = [child for child in nanny.children() if child.memory_info().rss > 50 * _MB]
            return children[0] if children else None
        return None


def _started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PLMIX, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


def _said(process: subprocess.Popen[str], name: str) -> str:
    """The value of the line `name  value` that a verb prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(name):
            return line.split()[1]
    raise RuntimeError(f"the {name} has ended before it said its address")


class Faults:
    """Disturbs a cluster while this is open, and says what was done."""

    def __init__(self, cluster: Cluster, choice: random.Random, kinds: tuple[str, ...], pause: float) -> None:
        self._cluster, self._choice, self._kinds, self._pause = cluster, choice, kinds, pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._disturb, daemon=True)
        self.done: list[str] = []

    def __enter__(self) -> Faults:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _disturb(self) -> None:
        for kind in self._kinds:
            if self._stop.wait(self._choice.uniform(0.05, 0.4) * self._pause):
                return
            getattr(self, f"_{kind}")()

    def _kill(self) -> None:
        worker = self._cluster.worker(self._choice)
        if worker is not None:
            worker.send_signal(signal.SIGKILL)
            self.done.append("kill")

    def _freeze(self) -> None:
        worker = self._cluster.worker(self._choice)
        if worker is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.send_signal(signal.SIGSTOP)
            self._stop.wait(self._choice.uniform(1.0, 5.0))
            worker.send_signal(signal.SIGCONT)
            self.done.append("freeze")

    def _scale(self) -> None:
        number = self._choice.choice([n for n in range(1, MOST_WORKERS + 1) if n != self._cluster.n_workers])
        self._cluster.scale(number)
        self.done.append("scale")


class Fitted(NamedTuple):
    """The bits of a fit, and its seconds."""

    bits: tuple[bytes, ...]
    seconds: float
    n_iter: int


def _fit(store: Path, **options: Any) -> Fitted:
    settings = {name: options.pop(name) for name in ("residency", "max_iter") if name in options}
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        model = PlackettLuceMixture(3, init="random", n_init=4, random_state=1, **settings).fit(store, **options)
    history = np.array([record["log_likelihood"] for record in model.history_])
    bits = tuple(part.tobytes() for part in (model.log_worths_, model.shares_, history))
    return Fitted(bits, time.perf_counter() - begun, model.n_iter_)


def _drawn_faults(choice: random.Random) -> tuple[str, ...]:
    """Some faults of all kinds, with at most so many kills."""
    most = {"kill": MOST_KILLS, "freeze": 2, "scale": 2}
    kinds = [kind for kind, number in most.items() for _ in range(choice.randint(0, number))]
    choice.shuffle(kinds)
    return tuple(kinds or ["kill"])


class Round(NamedTuple):
    """What one round has found."""

    calm: Fitted
    killed: Fitted
    faults_of_one: list[str]
    faults: list[str]
    longest: float
    driver: float
    scheduler: float


def _one_round(
    cluster: Cluster, client: Client, others: ProcessPoolExecutor, store: Path, choice: random.Random
) -> Round:
    """Three fits to what the store holds now, and their twin; an error unless all have the same bits."""
    twin = others.submit(_fit, store, client=False).result()
    found: list[Fitted] = []
    faults: list[list[str]] = []
    for kinds in ((), ("kill",), _drawn_faults(choice)):
        cluster.scale(N_WORKERS)
        client.wait_for_workers(N_WORKERS, timeout=120)
        _fit(store, client=client, max_iter=2)  # workers that have just come import and load kernels here
        # The first fit tells how long the others would take: their faults come while they run.
        with Faults(cluster, choice, kinds, found[0].seconds if found else 0.0) as disturbed:
            found.append(_fit(store, client=client))
        faults.append(disturbed.done)
        if found[-1].bits != twin.bits:
            raise AssertionError(f"after {kinds} a fit to {store} has other bits than its twin in threads")
    driver, scheduler = (process.memory_info().rss for process in (psutil.Process(), cluster.scheduler))
    longest = max(one.seconds for one in found)
    return Round(found[0], found[1], faults[1], faults[2], longest, driver / _MB, scheduler / _MB)


@contextlib.contextmanager
def _places(n_rankings: int, n_more: int) -> Iterator[tuple[Path, Callable[[int], None]]]:
    """A store, and a function that appends new rankings to it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def begin(seed: int) -> None:
            simulate(
                folder / "store", n_rankings=n_rankings, n_items=8, n_components=3, random_state=seed, overwrite=True
            )

        def append(number: int) -> None:
            if number and number % ROUNDS_OF_A_STORE == 0:
                begin(number)
            part = folder / f"part-{number}"
            simulate(part, n_rankings=n_more, n_items=8, n_components=3, random_state=number + 2)
            export(part, folder / f"{number}.csv")
            ingest(folder / f"{number}.csv", folder / "store", append=True)

        begin(1)
        yield folder / "store", append


def run(tiny: bool = False) -> list[dict[str, Any]]:
    minutes = 0.0 if tiny else float(os.environ.get("PLMIX_SOAK_MINUTES", "20"))
    choice = random.Random(int(os.environ.get("PLMIX_SOAK_SEED", "1")))
    end = time.monotonic() + 60 * minutes
    rounds: list[Round] = []
    sizes = (20_000, 500) if tiny else (400_000, 2_000)
    with (
        dask.config.set({"plmix.stall-timeout": STALL, "plmix.no-workers-timeout": "60s"}),
        _places(*sizes) as (store, append),
        Cluster() as cluster,
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as others,
    ):
        cluster.scale(N_WORKERS)
        with Client(cluster.address, set_as_default=False) as client:
            # Before the first fault: nobody else comes or leaves.
            restart = statistics.median(_restart(cluster, client, choice) for _ in range(1 if tiny else 3))
            while not rounds or time.monotonic() < end:
                append(len(rounds))
                rounds.append(_one_round(cluster, client, others, store, choice))
            n_rankings = open_store(store).n_rankings
    return save("soak", [_table(rounds, n_rankings, restart)])


def _restart(cluster: Cluster, client: Client, choice: random.Random) -> float:
    """Seconds from the kill of an idle worker until its nanny has started another, which has imported everything."""
    cluster.scale(N_WORKERS)
    client.wait_for_workers(N_WORKERS, timeout=120)
    worker, before = None, set(client.scheduler_info(n_workers=-1)["workers"])
    while worker is None:
        worker = cluster.worker(choice)
    begun = time.perf_counter()
    worker.send_signal(signal.SIGKILL)
    while not (new := set(client.scheduler_info(n_workers=-1)["workers"]) - before):
        time.sleep(0.02)
    client.run(_import_everything, workers=list(new))
    return time.perf_counter() - begun


def _import_everything() -> None:
    importlib.import_module("plmix_dist.models.plackett_luce")


def _table(rounds: list[Round], n_rankings: int, restart: float) -> dict[str, Any]:
    kinds = [kind for one in rounds for kind in (*one.faults_of_one, *one.faults)]
    lost = [one.killed.seconds - one.calm.seconds for one in rounds if one.faults_of_one]
    passes = [one.calm.seconds / one.calm.n_iter for one in rounds]
    half = rounds[len(rounds) // 2 :]  # imports, caches and pools of memory are there after the first half
    return {
        "rounds": len(rounds),
        "fits": 3 * len(rounds),
        "rankings": n_rankings,
        "kills": kinds.count("kill"),
        "freezes": kinds.count("freeze"),
        "scalings": kinds.count("scale"),
        "fit_seconds": round(statistics.median(one.calm.seconds for one in rounds), 2),
        "longest_seconds": round(max(one.longest for one in rounds), 2),
        "pass_seconds": round(statistics.median(passes), 3),
        "restart_seconds": round(restart, 2),
        "lost_per_kill": round(statistics.median(lost), 2) if lost else 0.0,
        "driver_mb_at_half": round(half[0].driver, 1),
        "driver_mb": round(half[-1].driver, 1),
        "driver_slope_mb": round(_slope([one.driver for one in half]), 3),
        "scheduler_mb_at_half": round(half[0].scheduler, 1),
        "scheduler_mb": round(half[-1].scheduler, 1),
        "scheduler_slope_mb": round(_slope([one.scheduler for one in half]), 3),
    }


def _slope(values: list[float]) -> float:
    """By how much values rise per fit; a round has three."""
    return float(np.polyfit(3.0 * np.arange(len(values)), values, 1)[0]) if len(values) > 1 else 0.0
