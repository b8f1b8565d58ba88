"""A scheduler forgets the spans of computations that ended long ago, and only those."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from distributed import Client, LocalCluster, span

from plmix_dist.cluster.services import _ForgetEndedSpans

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        cluster.sync(stop_heartbeats, cluster)
        yield cluster


async def stop_heartbeats(cluster: LocalCluster) -> None:
    """From here on the tests call them. A span that is forgotten at once must not be reported on afterwards: the
    scheduler would not know it, and Dask closes a worker whose heartbeat fails.
    """
    for worker in cluster.workers.values():
        worker.periodic_callbacks["heartbeat"].stop()
        await worker.heartbeat()


def compute(cluster: LocalCluster, client: Client, *numbers: int) -> None:
    """Each number is a computation of its own: nothing runs when it begins, and all that it cost is reported."""
    (worker,) = cluster.workers.values()
    for number in numbers:
        future = client.submit(abs, -number, key=f"number-{number}", pure=False)
        assert future.result() == number
        future.release()
        while future.key in client.futures:
            time.sleep(0.001)
        cluster.sync(worker.heartbeat)


def spans_of(cluster: LocalCluster) -> Any:
    scheduler: Any = cluster.scheduler
    return scheduler.extensions["spans"]


def add(cluster: LocalCluster, plugin: _ForgetEndedSpans) -> None:
    scheduler: Any = cluster.scheduler
    scheduler.add_plugin(plugin)


def test_spans__are_kept_for_ever_by_dask_and_not_by_ours(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as client:
        compute(cluster, client, *range(30))
        spans = spans_of(cluster)
        n_by_dask = len(spans.root_spans)
        assert n_by_dask > 20  # if Dask begins to forget them, this module is not needed any more
        add(cluster, _ForgetEndedSpans(kept=5, seconds=0.0))
        compute(cluster, client, *range(30, 60))
    assert len(spans.root_spans) <= 11
    assert len(spans.spans) == len(spans.root_spans) == len(spans.spans_search_by_name["default",])
    assert len(spans.spans_search_by_tag["default"]) == len(spans.spans)


def test_spans__of_tasks_that_are_still_wanted_stay(cluster: LocalCluster) -> None:
    add(cluster, _ForgetEndedSpans(kept=1, seconds=0.0))
    with Client(cluster, set_as_default=False) as client:
        with span("wanted") as number:
            held = client.submit(abs, -7, key="held")
            assert held.result() == 7
        compute(cluster, client, *range(10))
        spans = spans_of(cluster)
        assert number in spans.spans
        assert [one.id for one in spans.spans_search_by_name["wanted",]] == [number]


def test_spans__that_ended_just_now_stay(cluster: LocalCluster) -> None:
    add(cluster, _ForgetEndedSpans(kept=1, seconds=3_600.0))
    with Client(cluster, set_as_default=False) as client:
        compute(cluster, client, *range(10))
        assert len(spans_of(cluster).root_spans) >= 8
