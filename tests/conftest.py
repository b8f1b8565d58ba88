"""What several test files share: clusters, servers, stores, and scripts run in a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from oracle import PlainRankings, Ranking, full, plan_for
from promise_outcomes import PromiseOutcomes

from plmix_dist.store import Location, RejectedRows, WriteSession, write_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed import Client

# Examples that write files take as long as the disk does, which says nothing of the code.
settings.register_profile("default", deadline=None, max_examples=60)
settings.load_profile("default")


def pytest_configure(config: pytest.Config) -> None:
    # What a shell starts in the background ignores SIGINT, and so do its children: tests of interrupts would hang.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(PromiseOutcomes(config))


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """A client of two worker processes on this machine. It is not the default client: tests say where they compute."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


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


@pytest.fixture(scope="module")
def run_python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a script in a process of its own; what still runs after the last test of a file is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(script: str, *arguments: object) -> subprocess.Popen[str]:
        here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]).rstrip(
            os.pathsep
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": here},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def python_says(run_python: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Runs a script to its end and gives what it printed."""

    def says(script: str, *arguments: object) -> str:
        output, errors = run_python(script, *arguments).communicate(timeout=240)
        assert not errors, errors
        return output

    return says
