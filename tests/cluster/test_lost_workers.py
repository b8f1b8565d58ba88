"""Waiting for a cluster by a clock that the test moves: when to warn, when to give up, what is a sign of life."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist.cluster import lost_workers as watching
from plmix_dist.cluster.lost_workers import Watch, WorkersReplacedError, _Patience
from plmix_dist.cluster.submission import Job
from plmix_dist.errors import ClusterError
from plmix_dist.threads import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.promise(49)


BUSY = {"tcp://a:1": ["rows-1-0"], "tcp://b:1": []}


class Cluster:
    """What a scheduler answers, and the time; both are set by the test."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.processing: dict[str, list[str]] | None = dict(BUSY)
        self.reported = [0.0]
        self.client: Any = SimpleNamespace(status="running", scheduler=SimpleNamespace(address="tcp://s:1"))

    def watch(self, homes: frozenset[str] = frozenset()) -> Watch:
        return Watch(self.client, Job("the pass 'rows'", homes=homes), [])

    def looks(self, watch: Watch, until: float, every: float = 1.0) -> None:
        """Look every second until this many seconds after the beginning."""
        while self.now < 1000 + until:
            self.now += every
            watch.look()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()

    class Scheduler:
        def processing(self, workers: Any) -> Any:
            return cluster.processing

        def identity(self, n_workers: int) -> Any:
            seen = {"status": "running", "last_seen": cluster.now - 4}
            return {"workers": dict.fromkeys(cluster.processing or {}, seen)}

    def ask(client: Any, question: Callable[[Any], Any]) -> Any:
        return question(Scheduler())

    clock = SimpleNamespace(monotonic=lambda: cluster.now, time=lambda: cluster.now)
    monkeypatch.setattr(watching, "time", clock)
    monkeypatch.setattr(watching, "ask", ask)
    monkeypatch.setattr(watching, "_reports_to", lambda client: cluster.reported)
    monkeypatch.setattr(watching, "patience", lambda: _Patience(stall=600, no_workers=60, warn=30))
    return cluster


def warnings_at(caplog: pytest.LogCaptureFixture) -> list[int]:
    """After how many seconds of silence there was a warning."""
    return [round(record.args[1]) for record in caplog.records if isinstance(record.args, tuple)]  # type: ignore[arg-type]


def test_silence__warnings_further_and_further_apart_then_an_error(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    watch = cluster.watch()
    with caplog.at_level(logging.WARNING, "plmix_dist.cluster"):
        cluster.looks(watch, 600)
        assert warnings_at(caplog) == [31, 61, 121, 241, 481]
        cluster.now += 1
        with pytest.raises(
            ClusterError,
            match=r"nothing has finished or reported for 601 s .*rows-1-0 on worker tcp://a:1 \(last seen 4 s ago\)",
        ):
            watch.look()


@pytest.mark.parametrize("sign", ["result", "report", "other tasks"])
def test_sign_of_life__begins_the_wait_anew(cluster: Cluster, caplog: pytest.LogCaptureFixture, sign: str) -> None:
    watch = cluster.watch()
    with caplog.at_level(logging.WARNING, "plmix_dist.cluster"):
        cluster.looks(watch, 500)
        caplog.clear()
        if sign == "result":
            watch.note_activity()
        elif sign == "report":
            cluster.reported[0] = cluster.now + 0.5
        else:
            cluster.processing = {"tcp://a:1": ["rows-1-1"], "tcp://b:1": []}
        cluster.looks(watch, 1100)
        assert warnings_at(caplog)[0] in (31, 30)
    cluster.now += 2
    with pytest.raises(ClusterError, match="nothing has finished or reported"):
        watch.look()


def test_no_workers__a_minute_and_no_longer(cluster: Cluster) -> None:
    watch = cluster.watch()
    cluster.looks(watch, 10)
    cluster.processing = {}
    cluster.looks(watch, 70)
    cluster.now += 1
    with pytest.raises(ClusterError, match=r"has had no workers for 61 s .*the last ones were: tcp://a:1, tcp://b:1"):
        watch.look()


def test_no_workers__one_that_comes_back_counts(cluster: Cluster) -> None:
    watch = cluster.watch()
    for _ in range(4):
        cluster.processing = {}
        cluster.looks(watch, cluster.now - 1000 + 50)
        cluster.processing = dict(BUSY)
        cluster.looks(watch, cluster.now - 1000 + 1)


def test_scheduler__that_does_not_answer(cluster: Cluster) -> None:
    watch = cluster.watch()
    cluster.processing = None
    cluster.looks(watch, 600)
    cluster.now += 1
    with pytest.raises(ClusterError, match="the scheduler at tcp://s:1 does not answer"):
        watch.look()


@pytest.mark.parametrize(
    ("processing", "replaced"),
    [
        ({"tcp://new:1": []}, True),
        ({"tcp://new:1": ["rows-1-0"]}, False),
        ({"tcp://new:1": [], "tcp://b:1": []}, False),
    ],
    ids=["idle", "busy", "one is left"],
)
def test_homes__all_replaced(cluster: Cluster, processing: dict[str, list[str]], replaced: bool) -> None:
    watch = cluster.watch(homes=frozenset(BUSY))
    cluster.looks(watch, 2)
    cluster.processing = processing
    if not replaced:
        cluster.looks(watch, 4)
        return
    with pytest.raises(WorkersReplacedError, match="all workers were replaced"):
        cluster.looks(watch, 4)


@pytest.mark.parametrize(
    ("status", "message"),
    [("closed", "was closed"), ("closing", "was closed"), ("connecting", "was lost: its process has ended")],
)
def test_client__that_is_gone(cluster: Cluster, status: str, message: str) -> None:
    watch = cluster.watch()
    cluster.client.status = status
    with pytest.raises(ClusterError, match=message):
        watch.look()


def test_names__three_and_the_number_of_the_rest(cluster: Cluster) -> None:
    assert watching._some(["a", "b", "c"]) == "a, b, c"
    watch = cluster.watch()
    cluster.processing = {f"tcp://{number}:1": [f"rows-1-{number}"] for number in range(5)}
    cluster.looks(watch, 1)
    cluster.now += 601
    with pytest.raises(ClusterError, match=r"rows-1-0 on .*rows-1-1 on .*rows-1-2 on [^,]*, and 2 more\. A worker"):
        watch.look()


def test_reports__as_often_as_asked_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [100.0], []
    worker = SimpleNamespace(
        address="tcp://a:1",
        state=SimpleNamespace(nthreads=3, tasks={"sum-1": SimpleNamespace(state="executing")}),
        get_current_task=lambda: "sum-1",
        log_event=lambda topic, event: told.append((now[0], topic, event["worker"])),
    )
    owner = type("Owner", (), {})  # pools are kept by owner, which must be weakly referable
    for name, value in vars(worker).items():
        setattr(owner, name, staticmethod(value) if callable(value) else value)
    monkeypatch.setattr(watching, "_this_worker", lambda: owner)
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: now[0]))
    threads = watching.TaskThreads(report_every=5.0)
    assert threads.n_threads == 3
    for second in range(100, 122):
        now[0] = float(second)
        threads.beat()
    assert told == [(float(when), watching._REPORTS, "tcp://a:1") for when in (105, 110, 115, 120)]
    worker.state.tasks["sum-1"].state = "cancelled"
    with pytest.raises(Stopped):
        threads.beat()


def test_patience__how_often_to_look_and_to_report() -> None:
    assert (_Patience(600, 60, 30).look_every, _Patience(600, 60, 30).report_every) == (2.0, 5.0)
    assert (_Patience(4, 60, 30).look_every, _Patience(4, 60, 30).report_every) == (1.0, 1.0)
    assert _Patience(600, 2, 30).look_every == 0.5
    assert _Patience(600, 60, 1).look_every == 0.25
