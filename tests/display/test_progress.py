"""Progress of a fit: stages from the beginning, one line per iteration, and a time left that is never nonsense."""

from __future__ import annotations

import io
import json
import math
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import plmix_dist
from plmix_dist import PlackettLuceMixture
from plmix_dist.display.progress import (
    Stages,
    TerminalProgress,
    TimeLeft,
    _columns,
    _iteration_line,
    _notebook_show,
    _NotebookProgress,
    _peak_memory,
    _sparkline,
    duration,
    terminal_console,
)
from plmix_dist.errors import SettingsError
from tests.helpers.forked_python import ForkedPython, run_forked

if TYPE_CHECKING:
    from pathlib import Path


def test_stages__records_and_events_in_order() -> None:
    events: list[dict[str, Any]] = []
    stages = Stages(events.append)
    with stages.stage("search", passes=1, n_starts=8) as record:
        record["rows"] = 10_000
        stages.iteration({"iteration": 1, "log_likelihood": -2.5})
    (kept,) = stages.records
    assert sorted(kept) == ["n_starts", "passes", "peak_memory", "rows", "seconds", "stage"]
    assert [event["state"] for event in events] == ["begun", "iteration", "ended"]
    assert events[0] == {"state": "begun", "stage": "search", "n_starts": 8}
    assert events[1] == {"state": "iteration", "stage": "search", "iteration": 1, "log_likelihood": -2.5}
    assert events[2] == {"state": "ended", **kept}
    assert _peak_memory() > 1_000_000


def test_stages__without_a_listener() -> None:
    stages = Stages()
    with stages.stage("sample"):
        pass
    assert [record["stage"] for record in stages.records] == ["sample"]


ROWS = np.array([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10 + [[1, 0, 3, 2]] * 5)


def record(iteration: int, gradient: float = 0.1, *, taken: bool = True) -> dict[str, Any]:
    """A record of an iteration."""
    return {"iteration": iteration, "gradient": gradient, "taken": taken, "log_likelihood": -10.0, "change": 0.5,
            "step": "em", "rankings_per_second": 1e6}  # fmt: skip


def left_after(gradients: list[float], tol: float = 1e-8, max_iter: int = 500) -> list[float | None]:
    """The time left after each of several iterations of two seconds."""
    seconds = iter(range(0, 10_000, 2))
    left = TimeLeft(tol, max_iter, clock=lambda: float(next(seconds)))
    return [left.after(record(number, gradient)) for number, gradient in enumerate(gradients, start=1)]


def plain(screen: str) -> str:
    """What a terminal was sent, without the codes that move its cursor and erase."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)


def lines_of(screen: str) -> list[str]:
    """The lines that a terminal shows at the end: what was erased is left out."""
    written = [plain(line.rpartition("\x1b[2K")[2]).strip("\r") for line in screen.split("\n")]
    return [line.rstrip() for line in written if line.strip()]


# --- time left -------------------------------------------------------------------------------------------


def test_time_left__of_a_steady_fall() -> None:
    # A digit per iteration of 2 s: from 1e-3 there are five more to 1e-8.
    assert left_after([1e-1, 1e-2, 1e-3])[2] == pytest.approx(10)
    assert left_after([10.0**-digit for digit in range(1, 8)])[-1] == pytest.approx(2)


@pytest.mark.parametrize(
    "gradients",
    [
        [0.1, 0.1, 0.1, 0.1],
        [0.1, 0.2, 0.4, 0.8],
        [math.inf, math.nan, 0.1, 0.01],
        [0.0, 0.0, 0.0, 0.0],
        [1e-300, 1e-301, 1e-302],
    ],
)
def test_time_left__never_nonsense(gradients: list[float]) -> None:
    for tol in (1e-8, 0.0, 1.0):
        for found in left_after(gradients, tol):
            assert found is None or (math.isfinite(found) and found >= 0)


def test_time_left__bounded_by_the_most_iterations() -> None:
    slow = [0.1 * 0.99**number for number in range(20)]
    assert left_after(slow, max_iter=30)[-1] == pytest.approx(2 * 10)
    assert left_after(slow, max_iter=20)[-1] == 0


def test_time_left__starts_side_by_side_count_by_the_slowest() -> None:
    seconds = iter(range(100))
    left = TimeLeft(1e-8, 500, clock=lambda: float(next(seconds)))
    for number in range(1, 5):
        left.after(record(number, 10.0**-number))
        found = left.after(record(number, 10.0 ** (-number / 2)))
    assert found == pytest.approx(12)  # from 1e-2 to 1e-8 by half a digit per second
    assert left.after(record(5, 1e9, taken=False)) == pytest.approx(12)


@pytest.mark.parametrize(("seconds", "words"), [(0.0, "1 s"), (119, "119 s"), (130, "2 min"), (8000, "2.2 h")])
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_line__every_column_ends_below_its_heading() -> None:
    heads, line = _columns(record(3)), _iteration_line(record(3), None, 10.0)
    columns = zip(re.finditer(r"\S+", heads), re.finditer(r"\S+", line), strict=True)
    ends = [(head[0], cell[0], head.end() - cell.end()) for head, cell in columns]
    assert ends[:-1] == [
        ("iteration", "3", 0),
        ("log-likelihood", "-1.00000000", 0),
        ("change", "+5.0e-02", 0),
        ("gradient", "1.0e-01", 0),
        ("rankings/s", "1,000,000", 0),
    ]
    assert ends[-1][:2] == ("step", "em")


def test_line__without_an_objective() -> None:
    line = _iteration_line({**record(3), "change": None, "largest_change": 0.25, "taken": False}, None, 10.0)
    assert "1.0e-01" in line
    one = {key: value for key, value in record(3).items() if key != "gradient"} | {"largest_change": 0.25}
    assert "2.5e-01" in _iteration_line(one, None, 1.0)
    assert "largest change" in _columns(one)
    assert line.endswith("em, not taken")


# --- the estimator ---------------------------------------------------------------------------------------


class Noted:
    """A progress object that keeps iterations and stages."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def __call__(self, one: dict[str, Any]) -> None:
        self.records.append(one)

    def stage(self, event: dict[str, Any]) -> None:
        self.events.append(event)


def test_function__is_called_for_iterations_alone() -> None:
    noted: list[dict[str, Any]] = []
    model = PlackettLuceMixture(2, random_state=0, progress=noted.append).fit(ROWS)
    assert noted[-1] in model.history_
    assert all("stage" not in one for one in noted)


def test_object__is_called_for_stages_too() -> None:
    noted = Noted()
    model = PlackettLuceMixture(2, random_state=0, progress=noted).fit(ROWS)
    assert [one for one in noted.records if one in model.history_] == model.history_
    begun = [event["stage"] for event in noted.events if event["state"] == "begun" and event["stage"] != "compile"]
    ended = [event["stage"] for event in noted.events if event["state"] == "ended" and event["stage"] != "compile"]
    assert begun == ended == [stage["stage"] for stage in model.init_["stages"]]
    assert begun[0] == "look"
    assert begun[-1] == "fit"
    assert noted.events[0] == {"state": "begun", "stage": "look"}


def test_true__text_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    model = PlackettLuceMixture(2, random_state=0, progress=True).fit(ROWS)
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "look: one pass over all rankings"
    heading = next(number for number, line in enumerate(lines) if "rankings/s" in line)
    assert lines[heading].startswith("iteration  log-likelihood")
    assert [int(line.split()[0]) for line in lines[heading + 1 :]] == [one["iteration"] for one in model.history_]
    assert "\r" not in said.err
    assert PlackettLuceMixture(2, progress=False).fit(ROWS).converged_
    assert capsys.readouterr().err == ""


def test_true__stderr_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    assert PlackettLuceMixture(2, random_state=0, progress=True).fit(ROWS).converged_


def test_progress__of_a_wrong_type() -> None:
    with pytest.raises(SettingsError, match="progress must be True, a function or None, but is 'yes'"):
        PlackettLuceMixture(2, progress="yes").fit(ROWS)  # type: ignore[arg-type]


def test_progress__does_not_change_a_bit() -> None:
    shown = PlackettLuceMixture(2, random_state=0, progress=Noted()).fit(ROWS)
    silent = PlackettLuceMixture(2, random_state=0).fit(ROWS)
    assert np.array_equal(shown.log_worths_, silent.log_worths_)


def test_terminal__lines_of_what_is_over_and_one_of_what_runs() -> None:
    screen = io.StringIO()
    shown = TerminalProgress(TimeLeft(1e-8, 500), terminal_console(screen))
    shown.stage({"stage": "race", "state": "begun"})
    shown.stage({"stage": "race", "state": "iteration", "iteration": 7})
    shown.stage({"stage": "race", "state": "ended", "seconds": 1.25})
    shown.stage({"stage": "cluster", "state": "joined", "dashboard": "http://here:8787/status"})
    shown(record(1))
    shown(record(2))
    shown.close()
    text = screen.getvalue()
    assert "race: iteration 7, 0 s" in plain(text)
    assert "\x1b[?25l" not in text  # the cursor stays visible: a fit may be killed
    assert lines_of(text) == [
        "race, 1.2 s",
        "dashboard: http://here:8787/status",
        _columns(record(1)),
        _iteration_line(record(1), None, 1.0),
        _iteration_line(record(2), None, 1.0),
    ]


# --- notebooks -------------------------------------------------------------------------------------------


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def drawn(view: Any) -> str:
    """What a notebook shows of what rich draws."""
    return str(view._repr_mimebundle_((), ())["text/plain"])


def test_notebook__stage_rate_time_left_and_seconds_of_stages() -> None:
    shown: list[Any] = []
    clock = Clock()
    live = _NotebookProgress(lambda one: 90.0, shown.append, clock=clock)
    live.stage({"stage": "look", "state": "begun", "weight": 10.0})
    assert drawn(shown[-1]).startswith("look: one pass over all rankings   0 ms so far")
    clock.now += 3.0
    live.stage({"stage": "look", "state": "ended", "seconds": 3.0})
    live.stage({"stage": "cluster", "state": "joined", "dashboard": "http://here:8787/status"})
    live.stage({"stage": "fit", "state": "begun"})
    for number in range(1, 4):
        clock.now += 1.0
        live(record(number) | {"log_likelihood": -100.0 / number})
    text = drawn(shown[-1])
    assert "fit: iteration 3   6.0 s so far   1,000,000 rankings/s   about 90 s left" in text
    assert "dashboard: http://here:8787/status" in text
    assert "log-likelihood -3.333333 after 3 iterations" in text
    assert re.search(r"look: one pass over all rankings .* 3\.0 s", text)
    live(record(4, taken=False))
    assert "after 3 iterations" in drawn(live.view())
    live.close()
    assert drawn(shown[-1]).startswith("done   6.0 s in all")
    assert "left" not in drawn(shown[-1])
    assert "<pre" in shown[-1]._repr_mimebundle_((), ())["text/html"]


def test_notebook__curve_of_the_objective_which_never_falls() -> None:
    live = _NotebookProgress(lambda one: None, lambda view: None)
    for number, (log_likelihood, objective) in enumerate([(-5.0, -9.0), (-5.1, -8.0), (-5.2, -7.0)], start=1):
        live(record(number) | {"log_likelihood": log_likelihood, "objective": objective})
    assert "log-likelihood -5.200000 after 3 iterations  ▁▅█" in drawn(live.view())


def test_notebook__not_shown_more_often_than_can_be_seen() -> None:
    shown: list[Any] = []
    clock = Clock()
    live = _NotebookProgress(lambda one: None, shown.append, clock=clock)
    for number in range(1, 101):
        clock.now += 0.01
        live(record(number))
    assert 4 <= len(shown) <= 7
    live.close()
    assert "after 100 iterations" in drawn(shown[-1])


def test_sparkline__first_and_last_value_are_shown() -> None:
    assert _sparkline([1.0, 2.0, 3.0]) == "▁▅█"
    assert _sparkline([5.0]) == "▁"
    assert _sparkline(list(range(1000)), width=4) == "▁▃▆█"


def test_outside_of_a_notebook__text(capsys: pytest.CaptureFixture[str]) -> None:
    assert _notebook_show() is None
    PlackettLuceMixture(2, random_state=0, progress=True).fit(ROWS)
    assert "rankings/s" in capsys.readouterr().err


# --- the command line ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated store."""
    path = tmp_path_factory.mktemp("progress") / "store"
    plmix_dist.simulate(path, n_rankings=2_000, n_items=6, n_components=2, random_state=1)
    return path


@pytest.mark.promise(36)
def test_json__first_line_before_anything_is_read(store: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "plmix_dist", "fit", store, "--components", "2", "--json"]
    done = run_forked([*map(str, command), "--out", str(tmp_path / "model")])
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert lines[0] == {"stage": "open", "state": "begun"}
    assert {"stage": "look", "state": "begun"} in lines
    iterations = [line for line in lines if "stage" not in line]
    model = PlackettLuceMixture.load(tmp_path / "model")
    for line, kept in zip(iterations, model.history_, strict=True):
        assert line["log_likelihood"] == kept["log_likelihood"]
        assert line["rankings_per_second"] > 0
        assert line["eta_seconds"] is None or 0 <= line["eta_seconds"] < 3600
    assert any(line["eta_seconds"] is not None for line in iterations)


@pytest.mark.promise(36)
def test_terminal__lines_for_people(store: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "plmix_dist", "fit", str(store), "--components", "2"]
    ours, theirs = pty.openpty()
    process = ForkedPython([*command, "--out", str(tmp_path / "model")], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    screen = b""
    try:
        while part := os.read(ours, 65_536):
            screen += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(240) == 0
    text = screen.decode()
    assert plain(text).lstrip().startswith("opening the store, 0 s")
    model = PlackettLuceMixture.load(tmp_path / "model")
    numbers = re.findall(r"^ *(\d+) +-\d+\.\d{8} ", "\n".join(lines_of(text)), re.MULTILINE)
    assert [int(number) for number in numbers] == [one["iteration"] for one in model.history_]
