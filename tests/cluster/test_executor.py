"""Running tasks: the same meaning in this process and on a cluster, and a cluster only where it pays."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
import pytest

from plmix_dist.cluster import executor as cluster
from plmix_dist.cluster import submission
from plmix_dist.cluster.executor import (
    ClusterOptions,
    LazyExecutor,
    ThreadedExecutor,
    _DistributedExecutor,
    executor_for,
    open_client,
    run_all,
)
from plmix_dist.cluster.tls import TlsFiles, write_certificates
from plmix_dist.errors import ClusterError, SettingsError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from distributed import Client

    from plmix_dist.cluster.executor import Executor


# --- what tasks do, at the top of the module, where worker processes find it --------------------------------


def slower_first(number: int) -> int:
    """Later tasks end before earlier ones, so that results come out of order."""
    time.sleep(0.02 * (5 - number) if number < 5 else 0)
    return number * number


def fails_at_three(number: int) -> int:
    if number == 3:
        raise LookupError(f"task {number} found nothing")
    return number


def marks(task: tuple[str, int, int]) -> None:
    """Leaves a file to be counted, and fails where there are enough."""
    folder, number, enough = task
    Path(folder, str(number)).touch()
    time.sleep(0.05)
    if len(list(Path(folder).iterdir())) >= enough:
        raise LookupError(f"{enough} were enough")


def kills_its_worker(number: int) -> int:
    if number == 1:
        os._exit(1)
    return number


# A client that failed to connect leaves threads behind, which must not meet the clients of other tests.
FAILS_TO_CONNECT = """
import sys
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor, run_all
from plmix_dist.errors import PlmixError
with LazyExecutor(ClusterOptions(scheduler=sys.argv[1])) as executor:
    try:
        run_all(executor, abs, [1], "abs")
    except PlmixError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture(scope="module", autouse=True)
def unanswered(run_python: Callable[..., subprocess.Popen[str]]) -> tuple[str, subprocess.Popen[str]]:
    """Someone who calls a scheduler where none is; begun early, since it waits for ten seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    return address, run_python(FAILS_TO_CONNECT, address)


@pytest.fixture(params=["one thread", "threads", "cluster"])
def executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "cluster":
        return _DistributedExecutor(request.getfixturevalue("client"))
    return ThreadedExecutor(1 if request.param == "one thread" else 4)


def test_run_all__results_in_order_and_progress(executor: Executor) -> None:
    told: list[tuple[int, int]] = []
    results = run_all(executor, slower_first, range(7), "square", lambda done, total: told.append((done, total)))
    assert results == [0, 1, 4, 9, 16, 25, 36]
    assert told == [(done, 7) for done in range(1, 8)]


def test_run_all__no_tasks(executor: Executor) -> None:
    assert run_all(executor, fails_at_three, [], "nothing") == []


def test_run_all__one_task(executor: Executor) -> None:
    assert run_all(executor, slower_first, [6], "square") == [36]


def test_run_all__equal_tasks_are_each_run(executor: Executor) -> None:
    assert run_all(executor, slower_first, [6, 6, 6], "square") == [36, 36, 36]


def test_run_all__error_is_the_tasks_own(executor: Executor) -> None:
    with pytest.raises(LookupError, match="task 3 found nothing"):
        run_all(executor, fails_at_three, range(8), "find")


def test_run_all__first_error_stops_what_has_not_begun(tmp_path: Path, executor: Executor) -> None:
    # Uncancelled, they would keep four threads busy for ten seconds. On a busy machine the error comes late.
    tasks = [(str(tmp_path), number, 4) for number in range(800)]
    with pytest.raises(LookupError, match="4 were enough"):
        run_all(executor, marks, tasks, "mark")
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) < 700


def test_map__gives_results_as_they_come(executor: Executor) -> None:
    numbers = dict(executor.map(slower_first, range(5), "square"))
    assert numbers == {number: number * number for number in range(5)}


def test_map__left_early_cancels_the_rest(tmp_path: Path, executor: Executor) -> None:
    tasks = [(str(tmp_path), number, 999) for number in range(800)]
    results = executor.map(marks, tasks, "mark")
    next(results)
    results.close()
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) < 700


@dataclass(frozen=True)
class Order:
    """A task of a type of its own."""

    number: int
    parts: tuple[list[int], ...]


def described(task: object) -> str:
    return f"{type(task).__name__} {task}"


def test_run_all__tasks_arrive_as_they_were_given(executor: Executor) -> None:
    tasks = [(1, "a"), [1, (2,)], {"a": [1]}, {1}, "text", b"bytes", None, 1.5, Order(1, ([2], [3])), range(3)]
    assert run_all(executor, described, tasks, "describe") == [described(task) for task in tasks]


def added(task: int, values: np.ndarray) -> tuple[str, int]:
    return type(values).__name__, task + int(values.sum())


def test_run_all__inputs_are_computed_where_the_task_runs(executor: Executor) -> None:
    import dask.array

    numbers = np.arange(12).reshape(4, 3)
    lazy = dask.array.from_array(numbers, chunks=(2, 3))
    for inputs in ([numbers[:2], numbers[2:]], [lazy.blocks[0], lazy.blocks[1]]):
        results = run_all(executor, added, [100, 200], "add", inputs=inputs)
        assert results == [("ndarray", 115), ("ndarray", 251)]


def test_serial__uses_as_many_threads_as_it_was_given() -> None:
    together = threading.Barrier(3)
    # Only three threads at once let each other pass.
    assert run_all(ThreadedExecutor(3), lambda _: together.wait(timeout=120), range(3), "wait") is not None
    names = run_all(ThreadedExecutor(1), lambda _: threading.current_thread().name, range(3), "name")
    assert set(names) == {threading.current_thread().name}


def test_executor_for__client_or_none(client: Client) -> None:
    assert isinstance(executor_for(None), ThreadedExecutor)
    assert isinstance(executor_for(client), _DistributedExecutor)
    executor = ThreadedExecutor(1)
    assert executor_for(executor) is executor


def test_run_all__at_a_client(client: Client) -> None:
    assert os.getpid() not in run_all(client, _process, range(2), "process")
    assert run_all(None, _process, range(2), "process") == [os.getpid()] * 2


def test_distributed__work_is_done_elsewhere(client: Client) -> None:
    workers = run_all(_DistributedExecutor(client), _process, range(8), "process")
    assert os.getpid() not in workers
    assert len(set(workers)) == 2


def _process(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def test_distributed__nothing_stays_on_the_cluster(client: Client) -> None:
    run_all(_DistributedExecutor(client), slower_first, range(5), "square")
    deadline = time.monotonic() + 60
    while any(key.startswith("square-") for keys in client.has_what().values() for key in keys):
        assert time.monotonic() < deadline, client.has_what()
        time.sleep(0.05)


def fails_beside_another(task: tuple[str, int]) -> None:
    """The first task fails once the second has begun; the second ends when there is a file `go`."""
    folder, number = Path(task[0]), task[1]
    (folder / f"begun {number}").touch()
    deadline = time.monotonic() + 60
    awaited = folder / ("go" if number else "begun 1")
    while not awaited.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    if number == 0:
        raise LookupError("the first found nothing")
    (folder / "ended").touch()


def test_distributed__after_an_error_tasks_that_have_begun_are_waited_for(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = submission._wait_a_while

    def let_go_and_wait(*args: Any) -> None:
        # Not before: a task that nobody waits for must still be at work when the error arrives.
        (tmp_path / "go").touch()
        wait(*args)

    monkeypatch.setattr(submission, "_wait_a_while", let_go_and_wait)
    try:
        with pytest.raises(LookupError, match="the first found nothing"):
            run_all(_DistributedExecutor(client), fails_beside_another, [(str(tmp_path), 0), (str(tmp_path), 1)], "f")
        assert (tmp_path / "ended").exists(), "a task may still write after its run has failed"
    finally:
        (tmp_path / "go").touch()


# --- clusters of their own -------------------------------------------------------------------------------


@pytest.mark.promise(2)
def test_distributed__task_that_kills_its_worker_is_named() -> None:
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        executor = _DistributedExecutor(client)
        with pytest.raises(
            ClusterError, match=r"task deadly-\w+-0 killed its worker 2 times, .*memory.*--memory-limit"
        ):
            run_all(executor, kills_its_worker, [1], "deadly")
        # Dask also blames tasks that only waited at a worker that died: the guilty one must be named as well.
        with pytest.raises(ClusterError, match=r"many-\w+-1\b"):
            run_all(executor, kills_its_worker, range(3), "many")


def test_lazy__starts_a_cluster_for_large_work_and_closes_it() -> None:
    import psutil

    children = set(psutil.Process().children(recursive=True))
    with LazyExecutor(ClusterOptions(memory_limit="1GB")) as executor:
        assert run_all(executor, slower_first, range(3), "small") == [0, 1, 4]
        assert set(psutil.Process().children(recursive=True)) <= children
        workers = run_all(executor, _process, range(8), "large")
        assert os.getpid() not in workers
        # Once it is there, even small work goes to it.
        assert set(run_all(executor, _process, range(2), "small")) <= set(workers)
        scheduler = executor.client().scheduler.address
        # Another joins the same cluster by its address, and leaves it running.
        with LazyExecutor(ClusterOptions(scheduler=scheduler)) as guest:
            assert set(run_all(guest, _process, [1], "guest")) <= set(workers)
        assert set(run_all(executor, _process, range(2), "small")) <= set(workers)
    assert not any(psutil.pid_exists(worker) for worker in workers)


@pytest.mark.parametrize("options", ["ClusterOptions()", "ClusterOptions(workers=0)", "ClusterOptions(threads=2)"])
def test_lazy__small_work_does_not_even_import_dask(python_says: Callable[..., str], options: str) -> None:
    said = python_says(
        f"""
import sys
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor, run_all
n_tasks = 50 if "workers=0" in {options!r} else 3
with LazyExecutor({options}) as executor:
    print(run_all(executor, abs, [-number for number in range(n_tasks)], "abs") == list(range(n_tasks)))
print([name for name in ("distributed", "dask") if name in sys.modules])
"""
    )
    assert said == "True\n[]\n"


def test_lazy__no_tasks_start_nothing() -> None:
    with LazyExecutor(ClusterOptions(workers=3)) as executor:
        assert run_all(executor, abs, [], "nothing") == []
        assert executor._client is None


def test_lazy__scheduler_and_workers_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match="either --scheduler or --workers, not both"):
        LazyExecutor(ClusterOptions(scheduler="tcp://127.0.0.1:1", workers=2))


def test_lazy__scheduler_that_does_not_answer(unanswered: tuple[str, subprocess.Popen[str]]) -> None:
    address, process = unanswered
    said, errors = process.communicate(timeout=240)
    assert errors == ""
    expected = rf"ClusterError no Dask scheduler answers at {address} \(.*`dask scheduler`"
    assert re.match(expected, said, re.DOTALL)


@pytest.mark.parametrize("address", ["", "nonsense://127.0.0.1:1", "127.0.0.1:port"])
def test_lazy__address_that_is_none(python_says: Callable[..., str], address: str) -> None:
    said = python_says(FAILS_TO_CONNECT, address)
    assert re.match(r"(ClusterError|SettingsError) .*scheduler", said)
    assert address in said


# --- the package -----------------------------------------------------------------------------------------


def test_import__loads_nothing_heavy(python_says: Callable[..., str]) -> None:
    said = python_says(
        """
import sys
import plmix_dist
heavy = {"numba", "dask", "distributed", "zarr", "pyarrow", "numpy"}
print(sorted(heavy & set(sys.modules)))
print([name for name in plmix_dist.__all__ if getattr(plmix_dist, name).__name__ != name])
"""
    )
    assert said == "[]\n[]\n", "what is heavy was imported, or a name is not where it is said to be"


def test_import__unknown_name() -> None:
    import plmix_dist

    with pytest.raises(AttributeError, match="module 'plmix_dist' has no attribute 'no_such_name'"):
        _ = plmix_dist.no_such_name
    assert set(plmix_dist.__all__) <= set(dir(plmix_dist))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """The clusters and clients that were made, and with what."""
    noted: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def stand_in(name: str) -> None:
        @contextlib.contextmanager
        def make(*arguments: Any, **options: Any) -> Iterator[str]:
            noted.append((name, arguments, options))
            yield name
            noted.append((f"{name} closed", (), {}))

        monkeypatch.setattr(distributed, name, make)

    stand_in("LocalCluster")
    stand_in("Client")
    return noted


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (ClusterOptions(), {"n_workers": os.cpu_count(), "threads_per_worker": 1, "memory_limit": "auto"}),
        (
            ClusterOptions(workers=3, threads=2, memory_limit="2GB"),
            {"n_workers": 3, "threads_per_worker": 2, "memory_limit": "2GB"},
        ),
    ],
    ids=["default", "given"],
)
def test_local_cluster__on_loopback_with_what_was_asked_for(
    made: list[Any], options: ClusterOptions, expected: dict[str, Any]
) -> None:
    with open_client(options):
        (_, (), found), (client, (cluster,), _) = made
        assert {key: found[key] for key in expected} == expected
        assert found["host"] == "127.0.0.1"
        assert found["dashboard_address"] == "127.0.0.1:0"
        assert client == "Client"
        assert cluster is not None
    assert [name for name, *_ in made[2:]] == ["Client closed", "LocalCluster closed"]


def test_scheduler__joined_and_left(made: list[Any]) -> None:
    with open_client(ClusterOptions(scheduler="tcp://127.0.0.1:9")):
        assert made == [("Client", ("tcp://127.0.0.1:9",), {"timeout": "10s", "set_as_default": False})]
    assert [name for name, *_ in made] == ["Client", "Client closed"]


@pytest.mark.parametrize("address", ["tls://h:1", "h:1"])
def test_scheduler__with_certificates(made: list[Any], tmp_path: Path, address: str) -> None:
    files = write_certificates(tmp_path / "tls")
    ca, cert, key = (str(path) for path in files[:3])
    with open_client(ClusterOptions(scheduler=address, tls=TlsFiles(ca, cert, key))):
        assert made[0][1] == ("tls://h:1",)
        security = made[0][2]["security"]
        assert security.require_encryption
        assert (security.tls_ca_file, security.tls_client_cert, security.tls_client_key) == (ca, cert, key)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (ClusterOptions(), False),
        (ClusterOptions(workers=0), False),
        (ClusterOptions(workers=1), True),
        (ClusterOptions(scheduler="tcp://127.0.0.1:9"), True),
        (ClusterOptions(threads=2, memory_limit="1GB"), False),
    ],
    ids=str,
)
def test_client_if_asked(made: list[Any], options: ClusterOptions, asked: bool) -> None:
    with LazyExecutor(options) as executor:
        first = executor.client_if_asked()
        assert (first is not False) is asked
        assert executor.client_if_asked() is first
    assert sum(name == "Client" for name, *_ in made) == int(asked)
    assert sum(name == "Client closed" for name, *_ in made) == int(asked)


def test_threads__after_an_error_tasks_that_have_begun_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "STOP_SECONDS", 0.0)
    begun, ended = threading.Event(), []

    def work(number: int) -> None:
        if not number:
            assert begun.wait(60)
            raise LookupError
        begun.set()
        time.sleep(0.3)
        ended.append(number)

    with pytest.raises(LookupError):
        run_all(ThreadedExecutor(2), work, range(2), "work")
    assert ended == [1]


def test_threads__one_per_core_unless_told() -> None:
    assert ThreadedExecutor().n_threads == os.cpu_count()
    assert ThreadedExecutor(3).n_threads == 3


def test_lazy__four_tasks_are_worth_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cluster(options: ClusterOptions) -> Any:
        raise LookupError("a cluster was wanted")

    monkeypatch.setattr(cluster, "open_client", no_cluster)
    with LazyExecutor(ClusterOptions()) as executor:
        assert run_all(executor, abs, [-1, -2, -3], "abs") == [1, 2, 3]
        with pytest.raises(LookupError, match="a cluster was wanted"):
            run_all(executor, abs, [-1, -2, -3, -4], "abs")
