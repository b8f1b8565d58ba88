"""Workers that die in every pass, come later or leave: the same bits, and latecomers get work."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

from plmix_dist import PlackettLuceMixture
from plmix_dist.datasets.given import as_rankings
from plmix_dist.passes import dask as distributed
from plmix_dist.passes.dask import DistributedPasses, _in_place_of_lost
from plmix_dist.passes.request import Aggregation, Request
from plmix_dist.passes.threads import ThreadedPasses
from tests.store.test_access import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plmix_dist.rankings import RankingBlock

N_LEAVES = 4
TABLE = np.argsort(np.random.default_rng(0).random((N_LEAVES * 4096, 4)), axis=1)
RANKINGS = as_rankings(TABLE)
# On a busy machine a worker takes long to start, because it imports a lot.
PATIENT = 240


# --- what tasks do, at the top of the module, where worker processes find it --------------------------------


def die_once(number: int, block: RankingBlock, params: tuple[str, str]) -> np.ndarray[Any, Any]:
    """A statistic whose bits depend on the order of the sums. The first time, the worker of leaf 2 dies."""
    folder, how = params
    if number == 2:
        try:
            os.close(os.open(f"{folder}/died", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            WAYS[how]()
    return np.array([np.sum(np.sqrt(block.items + 0.1 * number))])


def process_of(number: int, block: RankingBlock, params: Any) -> frozenset[int]:
    return frozenset([os.getpid()])


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(3)


def segfault() -> None:
    ctypes.string_at(0)


WAYS: dict[str, Callable[[], None]] = {"SIGKILL": kill, "exit": leave, "segfault": segfault}
HOMES = Request(Aggregation("homes", leaf=process_of, combine=frozenset.union))


@contextlib.contextmanager
def local_cluster(n_workers: int) -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as cluster:
        yield cluster


# --- workers that die ----------------------------------------------------------------------------------------


@pytest.mark.promise(1)
@pytest.mark.parametrize("residency", ["memory", pytest.param("store", marks=pytest.mark.slow)])
def test_workers_die_in_every_pass__same_bits(tmp_path: Path, residency: Any) -> None:
    with (
        dask.config.set({"plmix.no-workers-timeout": PATIENT}),
        local_cluster(2) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        passes = DistributedPasses(RANKINGS, client, residency=residency)
        for how in WAYS:
            client.wait_for_workers(2, timeout=PATIENT)  # the one that died before is started again
            folder = tmp_path / how
            folder.mkdir()
            request = Request(Aggregation("die-once", leaf=die_once), (str(folder), how))
            (answer,) = passes.run([request])
            assert (folder / "died").exists()
            (expected,) = ThreadedPasses(RANKINGS).run([request])
            assert answer.results[0].tobytes() == expected.results[0].tobytes()


# --- workers that come and leave -----------------------------------------------------------------------------


@pytest.mark.promise(7)
def test_adaptive_cluster__begins_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_LOOK_SECONDS", 0.0)
    expected = PlackettLuceMixture(2, random_state=0, max_iter=5, tol=1e-3).fit(TABLE, client=False)
    with local_cluster(0) as cluster, Client(cluster, set_as_default=False) as client:
        cluster.adapt(minimum=0, maximum=2, interval="100ms")
        model = PlackettLuceMixture(2, random_state=0, max_iter=5, tol=1e-3).fit(TABLE, client=client)
    assert model.log_worths_.tobytes() == expected.log_worths_.tobytes()


@pytest.mark.promise(7)
def test_workers_join_and_leave__each_gets_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_LOOK_SECONDS", 0.0)
    with local_cluster(1) as cluster, Client(cluster, set_as_default=False) as client:
        passes = DistributedPasses(RANKINGS, client, residency="memory")
        (first,) = passes.run([HOMES])[0].results
        ((address, pid),) = client.run(os.getpid).items()
        assert first == {pid}
        cluster.scale(2)
        client.wait_for_workers(2, timeout=PATIENT)
        (both,) = passes.run([HOMES])[0].results
        assert both == set(client.run(os.getpid).values())
        assert len(both) == 2
        client.retire_workers([address])
        (left,) = passes.run([HOMES])[0].results
        assert left == both - first


def test_tasks_per_worker__by_configuration(client: Client) -> None:
    n_workers = len(client.scheduler_info(n_workers=-1)["workers"])
    assert len(DistributedPasses(RANKINGS, client).parts) == n_workers
    with dask.config.set({"plmix.tasks-per-worker": 2}):
        assert len(DistributedPasses(RANKINGS, client).parts) == 2 * n_workers


def test_in_place_of_lost__more_and_fewer() -> None:
    before = {"a": 1, "b": 1, "c": 1}
    assert list(_in_place_of_lost(before, {"c": 1, "a": 1})) == ["a", "c"]
    assert list(_in_place_of_lost(before, {"d": 1, "a": 1, "b": 1, "c": 1})) == ["a", "b", "c", "d"]
    assert list(_in_place_of_lost({}, before)) == ["a", "b", "c"]


@pytest.mark.promise(9)
def test_a_pass_is_one_graph(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = DistributedPasses(RANKINGS, client, residency="store")
    sent = []
    submit = distributed.submit
    monkeypatch.setattr(distributed, "submit", lambda *a, **k: sent.append(a) or submit(*a, **k))
    passes.run([HOMES])
    passes.run([HOMES])
    assert len(sent) == 2


# --- workers that are cut off, and workers of unequal memory --------------------------------------------------


def roots_of(number: int, block: RankingBlock, params: Any) -> np.ndarray[Any, Any]:
    """A statistic whose bits depend on the order of the sums."""
    return np.array([np.sum(np.sqrt(block.items + 0.1 * number))])


@contextlib.contextmanager
def worker_process(address: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of its own, ended by its process id."""
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--nthreads", "1", *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(client: Client, n_workers: int) -> None:
    client.wait_for_workers(n_workers, timeout=PATIENT)


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("fault", ["cut off", "paused"])
def test_worker__cut_off_or_paused_between_passes(fault: str) -> None:
    """The scheduler hears nothing more of a worker. After its patience the others do the work, with the same bits."""
    request = [Request(Aggregation("roots", leaf=roots_of))]
    expected = ThreadedPasses(RANKINGS).run(request)[0].results[0]
    with dask.config.set({"distributed.scheduler.worker-ttl": "20s"}), local_cluster(1) as cluster:
        proxy = Proxy(cluster.scheduler_address.removeprefix("tcp://"))
        with (
            Client(cluster, set_as_default=False) as client,
            worker_process(proxy.endpoint.replace("http", "tcp")) as one,
        ):
            wait_for(client, 2)
            passes = DistributedPasses(RANKINGS, client)
            np.testing.assert_array_equal(passes.run(request)[0].results[0], expected)
            if fault == "paused":
                one.send_signal(signal.SIGSTOP)
            proxy.silent = fault == "cut off"
            for _ in range(3):
                np.testing.assert_array_equal(passes.run(request)[0].results[0], expected)
            assert len(client.scheduler_info()["workers"]) == 1
        proxy.close()


@pytest.mark.full
@pytest.mark.process
def test_workers__of_unequal_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows stay in memory only if each worker has room for its own; else they are read in every pass. Same bits."""
    request = [Request(Aggregation("roots", leaf=roots_of))]
    expected = ThreadedPasses(RANKINGS).run(request)[0].results[0]
    monkeypatch.setattr(type(RANKINGS), "decoded_bytes", 5e8)
    kept = {}
    with local_cluster(0) as cluster, Client(cluster, set_as_default=False) as client, contextlib.ExitStack() as stack:
        for n_workers, memory in ((1, "2GB"), (2, "400MB")):
            stack.enter_context(worker_process(cluster.scheduler_address, "--memory-limit", memory))
            wait_for(client, n_workers)
            passes = DistributedPasses(RANKINGS, client)
            kept[memory] = passes.in_memory
            np.testing.assert_array_equal(passes.run(request)[0].results[0], expected)
            passes.release()
    assert kept == {"2GB": True, "400MB": False}
