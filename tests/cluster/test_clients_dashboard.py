"""Dask's own views of a fit: the link to the dashboard, readable names of tasks, a saved performance report."""

from __future__ import annotations

import importlib.util
import json
import re
from typing import Any

import pytest

import plmix_dist as pl
from plmix_dist.cli import main
from plmix_dist.cluster.clients import dashboard_link, report_dashboard, saved_performance_report
from plmix_dist.cluster.executor import ClusterOptions, open_client
from plmix_dist.errors import SettingsError

ROWS = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10 + [[1, 0, 3, 2]] * 5


class Noted:
    """A progress object that keeps iterations and stages."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def __call__(self, one: dict[str, Any]) -> None:
        self.records.append(one)

    def stage(self, event: dict[str, Any]) -> None:
        self.events.append(event)


@pytest.fixture(scope="module")
def cluster():
    with open_client(ClusterOptions(workers=1)) as client:
        yield client


def test_fit__reports_the_link_before_anything_is_computed(cluster):
    link = dashboard_link(cluster)
    assert link is not None
    noted = Noted()
    model = pl.PlackettLuceMixture(2, random_state=0, progress=noted).fit(ROWS, client=cluster)
    assert noted.events[0] == {"stage": "cluster", "state": "joined", "dashboard": link}
    assert noted.records == model.history_


def test_names_of_tasks_are_readable(cluster):
    from distributed.diagnostics.task_stream import TaskStreamPlugin  # noqa: F401 - what get_task_stream needs

    with cluster.as_current():
        cluster.get_task_stream(start=0, stop=0)
        model = pl.PlackettLuceMixture(2, random_state=0, residency="store").fit(ROWS, client=cluster)
        model.score(ROWS, client=cluster)
        names = {re.split(r"-[0-9a-f]{8}-", str(task["key"]))[0] for task in cluster.get_task_stream(start=0)}
    assert {"look", "e-step", "score", "collect"} <= names


def test_names_of_items__do_not_reach_the_dashboard(cluster):
    hostile = ["<script>alert(1)</script>", "'><img src=x onerror=alert(1)>", "=cmd()", "a\u202eb"]
    rows = [[hostile[item] for item in row] for row in ROWS]
    with cluster.as_current():
        cluster.get_task_stream(start=0, stop=0)
        model = pl.PlackettLuceMixture(2, random_state=0).fit(rows, client=cluster)
        model.predict(rows, client=cluster)
        seen = str(cluster.get_task_stream(start=0)) + str(cluster.scheduler_info())
        seen += cluster.run_on_scheduler(
            lambda dask_scheduler: str([*dask_scheduler.task_groups, *dask_scheduler.tasks])
        )
    assert model.item_names_ == tuple(sorted(hostile))
    assert not [name for name in hostile if name in seen]


def test_threads__no_link():
    noted = Noted()
    report_dashboard(None, noted)
    assert noted.events == []


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return int(stopped.value.code or 0), said.out, said.err


@pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="bokeh is not installed")
def test_performance_report__saved_without_network(tmp_path, capsys):
    pl.simulate(tmp_path / "s", n_rankings=500, n_items=5, n_components=2, random_state=0)
    saved = tmp_path / "performance.html"
    command = ["fit", tmp_path / "s", "--components", 2, "--out", tmp_path / "m", "--json"]
    code, _, err = run(capsys, *command, "--workers", 1, "--performance-report", saved)
    assert code == 0
    links = [line for line in map(json.loads, err.splitlines()) if line.get("stage") == "cluster"]
    assert len(links) == 1
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/status", links[0]["dashboard"])
    text = saved.read_text(encoding="utf-8")
    assert "e-step" in text
    assert not re.findall(r"<script[^>]+src=|<link[^>]+stylesheet", text)  # all it needs is in it


def test_performance_report__needs_a_cluster(tmp_path, capsys):
    pl.simulate(tmp_path / "s", n_rankings=50, n_items=4, random_state=0)
    command = ["fit", tmp_path / "s", "--components", 1, "--out", tmp_path / "m"]
    code, _, err = run(capsys, *command, "--performance-report", tmp_path / "p.html")
    assert code == 1
    assert "--workers or --scheduler" in err
    assert not (tmp_path / "m").exists()
    with pytest.raises(SettingsError, match="runs in threads"), saved_performance_report(None, "p.html"):
        pass
