"""What several test files share: clusters, servers, stores, and scripts run in a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import PlackettLuceMixture, simulate
from plmix_dist.store import Location, RejectedRows, WriteSession, write_partition
from tests.helpers import marks
from tests.helpers.clusters import small_cluster, start_workers_by_forking
from tests.helpers.forked_python import ROOT, ForkedPython
from tests.helpers.oracle import PlainRankings, Ranking, full, plan_for
from tests.helpers.promise_outcomes import PromiseOutcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from distributed import Client

    from plmix_dist.store import RankingStore

# Examples that write files take as long as the disk does, which shows nothing about the code: no deadline.
marks.load_hypothesis_profile()


def pytest_configure(config: pytest.Config) -> None:
    # What a shell starts in the background ignores SIGINT, and so do its children: tests of interrupts would hang.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(PromiseOutcomes(config))


@pytest.hookimpl(tryfirst=True)  # before -m is applied
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marks.mark(items)
    start_workers_by_forking()


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """A client of two worker processes on this machine. It is not the default client: tests say where they compute."""
    with small_cluster() as client:
        yield client


@pytest.fixture
def breakable_client() -> Iterator[Client]:
    """The same on a cluster of the test's own, whose workers it may kill, freeze, add or remove."""
    with small_cluster() as client:
        yield client


@pytest.fixture(scope="session")
def graph_client() -> Iterator[Client]:
    """A client of two workers that are threads of this process: enough for graphs, names and numbers of tasks."""
    with small_cluster(processes=False) as client:
        yield client


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> RankingStore:
    """1,500 full rankings of five items, drawn from two components, which no test may alter."""
    place = tmp_path_factory.mktemp("shared") / "store"
    return simulate(place, n_rankings=1_500, n_items=5, n_components=2, random_state=1)


@pytest.fixture(scope="session")
def model(store: RankingStore) -> PlackettLuceMixture:
    """A mixture of two components that was fitted to `store`, which no test may alter."""
    return PlackettLuceMixture(2, random_state=0).fit(store, client=False)


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[dict[str, Any]]:
    """What fsspec needs to reach a pretended S3 on loopback that has a bucket named `rankings`."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "key", "secret": "secret", "endpoint_url": f"http://{host}:{port}"}
    import s3fs

    s3fs.S3FileSystem(**options).mkdir("rankings")
    yield options
    server.stop()


@pytest.fixture
def s3_place(s3_bucket: dict[str, Any]) -> Location:
    """A place in the bucket that no other test uses."""
    return Location.of(f"s3://rankings/{uuid.uuid4().hex}/store", s3_bucket)


@pytest.fixture
def memory_place() -> Iterator[Location]:
    """A place in this process's memory file system, emptied afterwards."""
    import fsspec

    name = uuid.uuid4().hex
    yield Location.of(f"memory://{name}/store")
    filesystem = fsspec.filesystem("memory")
    if filesystem.exists(f"/{name}"):
        filesystem.rm(f"/{name}", recursive=True)


EVERY_COLUMN = PlainRankings(
    n_items=6,
    rows=[
        Ranking(((0,), (1, 2), (3,)), (4,), "below", 2.5),
        Ranking(((5,), (4,)), (), "absent", 1.0),
        full(3, 2, 1, 0, 5, 4, weight=3.0),
        Ranking(((2,),), (), "below", 0.25),
        Ranking(((1, 5), (0,)), (2, 3), "absent", 7.0),
    ]
    * 4,
    ids=[f"voter {number}" for number in range(20)],
    groups=[number // 3 for number in range(20)],
)


@pytest.fixture(scope="session")
def every_column() -> PlainRankings:
    """Rows that need every column there is, but for the component of simulated ones."""
    return EVERY_COLUMN


@pytest.fixture(scope="session")
def finished_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions with every column and a rejected row each, which no test may alter: copy it first."""
    root = tmp_path_factory.mktemp("finished") / "store"
    # A name of Hangul: one changed bit makes of its bytes what UTF-8 forbids and Python's JSON lets pass.
    names = ["한", "tea", "coffee", "mate", "water", "milk"]
    plan = plan_for(6, 2, leaf_rows=5, item_names=names)
    with WriteSession.begin(Location.of(root), plan) as session:
        for task, numbers in zip(session.pending(), (range(17), range(17, 20)), strict=True):
            rejected = RejectedRows()
            rejected.add("empty", {"row": 99})
            component = np.array([number % 3 for number in numbers])
            write_partition(task, [(EVERY_COLUMN.pick(numbers).block(), component)], rejected)
        session.finalise()
    return root


def _runner(kind: type[subprocess.Popen[str]]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts scripts in processes of their own; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(script: str, *arguments: object) -> subprocess.Popen[str]:
        started.append(
            kind(
                [sys.executable, "-c", script, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)},
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def run_python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a script in a process of its own: a fork of one that has imported the package already."""
    yield from _runner(ForkedPython)


@pytest.fixture(scope="module")
def run_new_python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a script in a new interpreter: for tests of what is imported, and when."""
    yield from _runner(subprocess.Popen)


@pytest.fixture(scope="module")
def python_says(run_new_python: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Runs a script to its end in a new interpreter and gives what it printed."""

    def says(script: str, *arguments: object) -> str:
        output, errors = run_new_python(script, *arguments).communicate(timeout=240)
        assert not errors, errors
        return output

    return says
