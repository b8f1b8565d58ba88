"""The fit on Dask's dashboard: a link, a page of the scheduler, readable names of tasks, a saved performance report."""

from __future__ import annotations

import importlib.util
import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import plmix_dist as pl
from plmix_dist.cli import main
from plmix_dist.engine.cluster import ClusterOptions, open_client
from plmix_dist.engine.dashboard import FitTold, dashboard_link, told_at
from plmix_dist.engine.fit_page import page_of_fits
from plmix_dist.errors import SettingsError

ROWS = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10 + [[1, 0, 3, 2]] * 5


class Told:
    """Hears of iterations and of stages."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def __call__(self, one: dict[str, Any]) -> None:
        self.records.append(one)

    def stage(self, event: dict[str, Any]) -> None:
        self.events.append(event)


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        text: str = answer.read().decode()
    return text


@pytest.fixture(scope="module")
def cluster():
    with open_client(ClusterOptions(workers=1)) as client:
        yield client


def test_page_of_a_fit_on_the_schedulers_own_server(cluster):
    link = dashboard_link(cluster)
    assert link is not None
    page = link.replace("/status", "/plmix")
    assert "No fit yet" in fetched(page)
    told = Told()
    model = pl.PlackettLuceMixture(2, random_state=0, progress=told).fit(ROWS, client=cluster)
    assert told.events[0] == {"stage": "cluster", "state": "joined", "dashboard": link}
    assert told.records == model.history_
    deadline = time.monotonic() + 10
    while "in all" not in (text := fetched(page)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert f"{len(model.history_)} iterations" in text
    assert "polyline" in text
    assert "start: search for the best optimum" in text


def test_names_of_tasks_are_readable(cluster):
    from distributed.diagnostics.task_stream import TaskStreamPlugin  # noqa: F401 - what get_task_stream needs

    with cluster.as_current():
        cluster.get_task_stream(start=0, stop=0)
        model = pl.PlackettLuceMixture(2, random_state=0, residency="store").fit(ROWS, client=cluster)
        model.score(ROWS, client=cluster)
        names = {re.split(r"-[0-9a-f]{8}-", str(task["key"]))[0] for task in cluster.get_task_stream(start=0)}
    assert {"look", "e-step", "score", "collect"} <= names


def test_nobody_waits_for_a_scheduler_that_does_not_answer():
    class Silent:
        def log_event(self, topic: str, message: Any) -> None:
            time.sleep(60)

    told = FitTold(Silent())  # type: ignore[arg-type]
    begun = time.process_time()
    for _ in range(3):
        told.stage({"stage": "look", "state": "begun"})
        told({"iteration": 1, "log_likelihood": -1.0})
    assert len(told._waiting) == 5  # all but the first are kept for later
    assert time.process_time() - begun < 5


def test_threads__nothing_is_told_to_anybody():
    progress = Told()
    assert told_at(None, progress) is progress
    assert progress.events == []


def test_page__several_fits_the_latest_first_and_those_that_run():
    look = {"stage": "look", "state": "begun"}
    ended = {"stage": "fit", "state": "ended", "seconds": 1.0}
    iteration = {"iteration": 1, "log_likelihood": -5.0, "taken": True}
    page = page_of_fits([(0.0, [look, iteration, ended]), (10.0, [look]), (11.0, [iteration])])
    assert page.count("<section>") == 2
    assert page.index("running") < page.index("done")


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
    from plmix_dist.engine.dashboard import saved_performance_report

    with pytest.raises(SettingsError, match="runs in threads"), saved_performance_report(None, "p.html"):
        pass


def test_settings_on_the_page_are_those_of_this_dask():
    import yaml

    from plmix_dist.engine.dashboard import with_fit_page

    page = (Path(__file__).parents[1] / "docs" / "jupyter.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    routes = yaml.safe_load(settings)["distributed"]["scheduler"]["http"]["routes"]
    import dask

    with with_fit_page():
        assert routes == dask.config.get("distributed.scheduler.http.routes")
