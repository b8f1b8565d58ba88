"""Every wait for a cluster has an end: what goes wrong there is a ClusterError that says what, where and what to do."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
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

from plmix_dist.cluster import lost_workers, submission
from plmix_dist.cluster.executor import _DistributedExecutor, run_all
from plmix_dist.cluster.lost_workers import _Patience as Patience
from plmix_dist.cluster.lost_workers import patience
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import ClusterError
from plmix_dist.passes.dask import DistributedPasses
from plmix_dist.passes.request import Aggregation, Request
from plmix_dist.passes.svd import RowMaker, randomized_svd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from plmix_dist.rankings import RankingBlock

# Faults make Dask's own logs loud, and leave connections that end when they are collected.
pytestmark = [pytest.mark.promise(49), pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

N_LEAVES = 4
# Seconds that a busy machine may take to start workers and to begin with a task.
PATIENT = 240
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
    client.wait_for_workers(n_workers, timeout=PATIENT)
    with dask.config.set({"plmix.stall-timeout": PATIENT, "plmix.no-workers-timeout": PATIENT}):
        DistributedPasses(RANKINGS, client, residency="store").run([Request(Aggregation("rows", leaf=count_rows))])


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


def freeze(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def thaw(pids: Iterable[int], folder: Path) -> None:
    """Let frozen workers go on, and their tasks end."""
    (folder / "go").touch()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def wait_in_a_pass(client: Client, folder: Path) -> Any:
    passes = DistributedPasses(RANKINGS, client, residency="memory")
    return passes.run([Request(WAIT, str(folder))])[0].results


def wait_in_tasks(client: Client, folder: Path) -> Any:
    return run_all(_DistributedExecutor(client), wait_long_task, [str(folder)], "waiting")


def wait_in_svd(client: Client, folder: Path) -> Any:
    return randomized_svd([RowMaker(SlowRows(str(folder)), (10, 3))], 1, 0, client)


# --- tests ----------------------------------------------------------------------------------------------------


def test_patience__settings() -> None:
    assert patience() == (600, 60, 30)
    with dask.config.set({"plmix.stall-timeout": "1 hour"}):
        assert patience().stall == 3600
    with dask.config.set(dask.config.collect_env({"DASK_PLMIX__STALL_TIMEOUT": "2 minutes"})):
        assert patience().stall == 120


class PatientUntil:
    """Patience that ends with an event: until then a busy machine may take its time."""

    def __init__(self, event: threading.Event) -> None:
        self.event = event

    def __getattr__(self, name: str) -> float:
        return float(getattr(Patience(1, 1, 1) if self.event.is_set() else Patience(PATIENT, PATIENT, PATIENT), name))


@pytest.mark.promise(6)
@pytest.mark.parametrize("work", [wait_in_a_pass, wait_in_tasks, wait_in_svd])
def test_frozen_worker__names_task_worker_and_remedy(
    breakable: Client, tmp_path: Path, work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = {pid: address for address, pid in breakable.run(os.getpid).items()}
    frozen = threading.Event()
    monkeypatch.setattr(lost_workers, "patience", lambda: PatientUntil(frozen))
    monkeypatch.setattr(lost_workers, "_LOOK_SECONDS", 0.25)

    def freeze_all() -> None:
        freeze(addresses)
        frozen.set()

    try:
        with fault_once_begun(tmp_path, freeze_all), pytest.raises(ClusterError) as caught:
            work(breakable, tmp_path)
    finally:
        thaw(addresses, tmp_path)
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


def test_frozen_worker__a_warning_first(breakable: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    addresses = {pid: address for address, pid in breakable.run(os.getpid).items()}

    def freeze_until_warned() -> None:
        freeze(addresses)
        try:
            while not any(record.name == "plmix_dist.cluster" for record in caplog.records):
                time.sleep(0.02)
        finally:
            thaw(addresses, tmp_path)

    with dask.config.set({"plmix.warn-after": 0.5}), fault_once_begun(tmp_path, freeze_until_warned):
        assert wait_in_a_pass(breakable, tmp_path) == (RANKINGS.n_rankings,)
    warned = [record.getMessage() for record in caplog.records if record.name == "plmix_dist.cluster"]
    worker = addresses[began(tmp_path)[0]]
    assert re.search(rf"nothing has finished or reported for \d+ s; .* on worker {worker} \(last seen", warned[0])


def test_long_task__reports_while_it_works(breakable: Client) -> None:
    # Longer in all than the time after which a silent task would be given up, and each leaf much shorter.
    slow = Request(Aggregation("slow", leaf=wait_a_little), 3.0)
    passes = DistributedPasses(RANKINGS, breakable, residency="store", n_tasks=1)
    with dask.config.set({"plmix.stall-timeout": 11}):
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
        with pytest.raises(ClusterError, match="was closed before its work was done; keep it open, or connect"):
            wait_in_tasks(client, tmp_path)


def test_workers_killed__nannies_start_them_again(breakable: Client, tmp_path: Path) -> None:
    pids = set(breakable.run(os.getpid).values())

    def kill_all() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        (tmp_path / "go").touch()

    with dask.config.set({"plmix.no-workers-timeout": PATIENT}), fault_once_begun(tmp_path, kill_all):
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
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
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
    worker_options = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path / "w"))
    worker = start("worker", address, *worker_options)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with Client(address, set_as_default=False, timeout=PATIENT) as client:
        warm_up(client, 1)
        (known,) = client.run(os.getpid)
        with (
            dask.config.set({"plmix.no-workers-timeout": 1}),
            fault_once_begun(first, worker.kill),
            pytest.raises(ClusterError) as caught,
        ):
            wait_in_a_pass(client, first)
        said = str(caught.value)
        assert re.search(rf"the cluster at {address} has had no workers for \d+ s \(plmix.no-workers-timeout\)", said)
        assert f"the last ones were: {known}; not finished: " in said
        assert f"`dask worker {address}`" in said

        start("worker", address, *worker_options)
        client.wait_for_workers(1, timeout=PATIENT)
        with fault_once_begun(second, scheduler.kill), pytest.raises(ClusterError) as caught:
            wait_in_tasks(client, second)
        said = str(caught.value)
        assert f"the connection to the Dask scheduler at {address} was lost" in said
        assert "Start it again with `dask scheduler`, connect a new client" in said
        with pytest.raises(ClusterError, match=f"scheduler at {address} was lost|cluster at {address} was closed"):
            DistributedPasses(RANKINGS, client)


# --- workers of another version -----------------------------------------------------------------------------


def wait_for_workers(client: Client, n_workers: int) -> None:
    deadline = time.monotonic() + PATIENT
    while len(client.scheduler_info()["workers"]) < n_workers and time.monotonic() < deadline:
        time.sleep(0.05)


@contextlib.contextmanager
def worker_of_copy(client: Client, folder: Path, change: Callable[[Path], None]) -> Iterator[None]:
    """A worker that joins a cluster with a changed copy of the package."""
    package = Path(submission.__file__).parents[1]
    shutil.copytree(package, folder / "plmix_dist", ignore=shutil.ignore_patterns("__pycache__"))
    change(folder / "plmix_dist")
    command = [sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address, "--no-nanny"]
    path = os.pathsep.join([str(folder), str(package.parent)])
    worker = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        wait_for_workers(client, 1 + len(client.scheduler_info()["workers"]))
        yield
    finally:
        worker.kill()
        worker.wait()


def other_version(package: Path) -> None:
    """The package says that it is another version."""
    file = next(path for path in package.rglob("*.py") if re.search(r"^__version__ = ", path.read_text(), re.MULTILINE))
    file.write_text(re.sub(r"^__version__ = .*$", '__version__ = "0.0.7"', file.read_text(), flags=re.MULTILINE))


def other_kernel(package: Path) -> None:
    """The package has other kernels under the same version."""
    with (package / "kernels/plain.py").open("a") as file:
        file.write("\n# another way to add\n")


def unknown_task(package: Path) -> None:
    """The package does not have the functions that are called, as versions before it."""
    for name in ("cluster/submission.py", "passes/dask.py", "cluster/executor.py", "cluster/doctor.py"):
        file = package / name
        file.write_text(file.read_text().replace("same_version", "as_once").replace("version_here", "version_once"))


@pytest.mark.promise(49)
@pytest.mark.parametrize("change", [other_version, other_kernel, unknown_task])
@pytest.mark.promise(51)
def test_version__a_worker_that_joins_with_another_is_refused(
    tmp_path: Path, breakable_client: Client, change: Callable[[Path], None]
) -> None:
    here = re.escape(submission.version_here())
    passes = DistributedPasses(RANKINGS, breakable_client)
    count = [Request(Aggregation("count", leaf=count_rows))]
    passes.run(count)
    there = {
        other_version: r"0\.0\.7 \(sources \w+\)",
        other_kernel: r"[\d.]+ \(sources \w+\)",
        unknown_task: r"of which it cannot tell the version \(.*\)",
    }[change]
    with worker_of_copy(breakable_client, tmp_path, change):
        wait_for_workers(breakable_client, 3)
        passes._looked = 0.0  # two seconds have passed
        for _ in range(2):
            with pytest.raises(ClusterError, match=rf"has plmix_dist {there}, and this process has {here}.*Install"):
                passes.run(count)
            with pytest.raises(ClusterError, match=rf"has plmix_dist {there}, and this process has {here}.*Install"):
                run_all(breakable_client, wait_long_task, ["/nowhere"], "wait")
            passes._looked = 0.0


def test_version__every_task_looks(client: Client) -> None:
    # A worker may join, and get a task, before it was asked.
    here = submission.version_here()
    assert client.submit(submission.same_version, here, abs, -1, pure=False).result() == 1
    with pytest.raises(ClusterError, match=rf"has plmix_dist {re.escape(here)}, and this process has 0\.0\.7"):
        client.submit(submission.same_version, "0.0.7", abs, -1, pure=False).result()
    passes = DistributedPasses(RANKINGS, client)
    graph = passes._graph([Request(Aggregation("count", leaf=count_rows))]).dask
    asked = [task for task in graph.values() if getattr(task, "args", ())]
    assert asked
    assert all(task.func is submission.same_version and task.args[0] == here for task in asked)


def test_version__workers_are_asked_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    DistributedPasses(RANKINGS, client)
    monkeypatch.setattr(submission, "ask", None)
    DistributedPasses(RANKINGS, client)
    assert run_all(client, abs, [-1, 2], "abs") == [1, 2]
