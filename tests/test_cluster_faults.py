"""Every wait for a cluster has an end: what goes wrong there is a ClusterError that says what, where and what to do."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

from plmix_dist.data import as_rankings
from plmix_dist.engine import DistributedExecutor, run_all
from plmix_dist.engine.distributed import DistributedPasses
from plmix_dist.engine.linalg import RowMaker, randomized_svd
from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.engine.waiting import patience
from plmix_dist.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plmix_dist.rankings import RankingBlock

# Faults make Dask's own logs loud, and leave connections that end when they are collected.
pytestmark = [
    pytest.mark.promise(49),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

N_LEAVES = 4
RANKINGS = as_rankings(np.argsort(np.random.default_rng(0).random((N_LEAVES * 4096, 4)), axis=1))


# --- what tasks do, at the top of the module, where worker processes find it --------------------------------


def wait_long(number: int, block: RankingBlock, folder: str) -> int:
    """A leaf that takes longer than any test, unless there is a file `go`."""
    Path(folder, str(os.getpid())).touch()
    deadline = time.monotonic() + 60
    while not Path(folder, "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return block.n_rankings


def wait_a_little(number: int, block: RankingBlock, seconds: float) -> int:
    time.sleep(seconds)
    return block.n_rankings


def kill_worker(number: int, block: RankingBlock, params: Any) -> int:
    if number == N_LEAVES - 1:
        os._exit(1)
    return block.n_rankings


def count_rows(number: int, block: RankingBlock, params: Any) -> int:
    return block.n_rankings


def wait_long_task(folder: str) -> int:
    return wait_long(0, next(RANKINGS.iter_leaves()), folder)


class SlowRows:
    """Rows of a matrix that take longer than any test."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        wait_long_task(self.folder)
        return np.ones((stop - start, 3))


WAIT = Aggregation("wait", leaf=wait_long)


# --- clusters that may be broken ------------------------------------------------------------------------------


@contextlib.contextmanager
def two_workers() -> Iterator[LocalCluster]:
    """Two workers of one thread, each with a nanny that starts it again when it dies."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with two_workers() as cluster:
        yield cluster


@pytest.fixture
def breakable(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as client:
        warm_up(client, 2)
        yield client


def warm_up(client: Client, n_workers: int) -> None:
    """Let workers import what they need, which takes longer than impatient tests wait."""
    client.wait_for_workers(n_workers, timeout=30)
    DistributedPasses(RANKINGS, client, residency="store").run(
        [Request(Aggregation("rows", leaf=count_rows))]
    )


@pytest.fixture
def impatient() -> Iterator[None]:
    with dask.config.set({"plmix.stall-timeout": 3, "plmix.no-workers-timeout": 1, "plmix.warn-after": 0.5}):
        yield


def began(folder: Path) -> list[int]:
    """The processes in which a task has begun."""
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


@contextlib.contextmanager
def fault_once_begun(folder: Path, fault: Callable[[], None]) -> Iterator[None]:
    """Something that goes wrong while the work of this context is done, once a task has begun."""
    over = threading.Event()

    def cause() -> None:
        while not began(folder):
            if over.wait(0.02):
                return
        fault()

    thread = threading.Thread(target=cause)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def wait_in_a_pass(client: Client, folder: Path) -> Any:
    passes = DistributedPasses(RANKINGS, client, residency="memory")
    return passes.run([Request(WAIT, str(folder))])[0].results


def wait_in_tasks(client: Client, folder: Path) -> Any:
    return run_all(DistributedExecutor(client), wait_long_task, [str(folder)], "waiting")


def wait_in_svd(client: Client, folder: Path) -> Any:
    return randomized_svd([RowMaker(SlowRows(str(folder)), (10, 3))], 1, 0, client)


# --- tests ----------------------------------------------------------------------------------------------------


def test_patience__settings() -> None:
    assert patience() == (600, 60, 30)
    with dask.config.set({"plmix.stall-timeout": "1 hour"}):
        assert patience().stall == 3600
    with dask.config.set(dask.config.collect_env({"DASK_PLMIX__STALL_TIMEOUT": "2 minutes"})):
        assert patience().stall == 120


@pytest.mark.promise(6)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("work", [wait_in_a_pass, wait_in_tasks, wait_in_svd])
def test_frozen_worker__names_task_worker_and_remedy(
    breakable: Client, tmp_path: Path, work: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    addresses = {pid: address for address, pid in breakable.run(os.getpid).items()}

    def freeze() -> None:
        for pid in addresses:
            os.kill(pid, signal.SIGSTOP)

    try:
        with fault_once_begun(tmp_path, freeze), pytest.raises(ClusterError) as caught:
            work(breakable, tmp_path)
    finally:
        (tmp_path / "go").touch()
        for pid in addresses:
            os.kill(pid, signal.SIGCONT)
    said = str(caught.value)
    (worker,) = {addresses[pid] for pid in began(tmp_path)[:1]}
    assert re.search(r"nothing has finished or reported for \d+ s \(plmix.stall-timeout\)", said)
    assert re.search(rf"on worker {worker} \(last seen \d+ s ago\)", said)
    assert "stop it, and run this again" in said
    dump = Path(re.search(r"What the scheduler knew is in (\S+)", said)[1])
    known = json.loads(dump.read_text())
    dump.unlink()
    assert worker in known["scheduler"]["workers"]
    assert known["processing"][worker]
    if work is wait_in_a_pass:
        assert re.search(r"task wait-\w+-1-0 \(leaves 0 to 1, rows 0 to 8,191\)", said)
    warned = [record for record in caplog.records if record.name == "plmix_dist.cluster"]
    assert "nothing has finished or reported" in warned[0].getMessage()


@pytest.mark.usefixtures("impatient")
def test_long_task__reports_while_it_works(breakable: Client) -> None:
    # Longer in all than the time after which a silent task would be given up.
    slow = Request(Aggregation("slow", leaf=wait_a_little), 1.0)
    passes = DistributedPasses(RANKINGS, breakable, residency="store", n_tasks=1)
    assert passes.run([slow])[0].results == (RANKINGS.n_rankings,)


def test_client_closed__error_at_once(cluster: LocalCluster, tmp_path: Path) -> None:
    with Client(cluster, set_as_default=False) as client:
        address = client.scheduler.address
        with (
            fault_once_begun(tmp_path, client.close),
            pytest.raises(ClusterError, match=f"the client of the cluster at {address} was closed"),
        ):
            wait_in_a_pass(client, tmp_path)
        (tmp_path / "go").touch()
        with pytest.raises(
            ClusterError, match="was closed before its work was done; keep it open, or connect"
        ):
            wait_in_tasks(client, tmp_path)


def test_workers_killed__nannies_start_them_again(breakable: Client, tmp_path: Path) -> None:
    pids = set(breakable.run(os.getpid).values())

    def kill_all() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        (tmp_path / "go").touch()

    with fault_once_begun(tmp_path, kill_all):
        assert wait_in_a_pass(breakable, tmp_path) == (RANKINGS.n_rankings,)


@pytest.mark.promise(2)
@pytest.mark.parametrize("residency", ["memory", "store"])
def test_task_that_kills_its_workers__rows_worker_and_advice(residency: Any) -> None:
    # A cluster of its own: a nanny whose worker dies while it starts may give it up for good.
    with two_workers() as cluster, Client(cluster, set_as_default=False) as client:
        passes = DistributedPasses(RANKINGS, client, residency=residency)
        with pytest.raises(ClusterError) as caught:
            passes.run([Request(Aggregation("deadly", leaf=kill_worker))])
    expected = (
        r"task deadly-\w+-1-1 \(leaves 2 to 3, rows 8,192 to 16,383\) killed its worker 2 times, most likely for want "
        r"of memory; the last one was tcp://127\.0\.0\.1:\d+: give the workers more memory"
    )
    assert re.search(expected, str(caught.value))
    assert ('residency="store"' in str(caught.value)) == (residency == "memory")


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a command of Dask's in a process of its own."""
    started = []

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_workers_and_scheduler_killed(start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    scheduler = start("scheduler", "--host", address, "--dashboard-address", "127.0.0.1:0")
    worker_options = (
        "--no-nanny",
        "--nthreads",
        "1",
        "--no-dashboard",
        "--local-directory",
        str(tmp_path / "w"),
    )
    worker = start("worker", address, *worker_options)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with Client(address, set_as_default=False, timeout=30) as client:
        warm_up(client, 1)
        (known,) = client.run(os.getpid)
        with (
            dask.config.set({"plmix.no-workers-timeout": 1}),
            fault_once_begun(first, worker.kill),
            pytest.raises(ClusterError) as caught,
        ):
            wait_in_a_pass(client, first)
        said = str(caught.value)
        assert re.search(
            rf"the cluster at {address} has had no workers for \d+ s \(plmix.no-workers-timeout\)", said
        )
        assert f"the last ones were: {known}; not finished: " in said
        assert f"`dask worker {address}`" in said

        start("worker", address, *worker_options)
        client.wait_for_workers(1, timeout=30)
        with fault_once_begun(second, scheduler.kill), pytest.raises(ClusterError) as caught:
            wait_in_tasks(client, second)
        said = str(caught.value)
        assert f"the connection to the Dask scheduler at {address} was lost" in said
        assert "Start it again with `dask scheduler`, connect a new client" in said
        with pytest.raises(
            ClusterError, match=f"scheduler at {address} was lost|cluster at {address} was closed"
        ):
            DistributedPasses(RANKINGS, client)
