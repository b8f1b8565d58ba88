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
from plmix_dist.errors import SettingsError
from plmix_dist.progress import ProgressText, TimeLeft, duration, iteration_line

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "1 s"), (119, "119 s"), (130, "2 min"), (8000, "2.2 h")]
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_line__without_an_objective() -> None:
    line = iteration_line({**record(3), "change": None, "largest_change": 0.25, "taken": False}, None, 10.0)
    assert "gradient 1.0e-01" in line
    one = {key: value for key, value in record(3).items() if key != "gradient"}
    assert "largest change 2.5e-01" in iteration_line({**one, "largest_change": 0.25}, None, 1.0)
    assert line.endswith("em, not taken")


# --- the estimator ---------------------------------------------------------------------------------------


class Told:
    """Hears of iterations and of stages."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def __call__(self, one: dict[str, Any]) -> None:
        self.records.append(one)

    def stage(self, event: dict[str, Any]) -> None:
        self.events.append(event)


def test_function__hears_of_iterations_alone() -> None:
    heard: list[dict[str, Any]] = []
    model = PlackettLuceMixture(2, random_state=0, progress=heard.append).fit(ROWS)
    assert heard[-1] in model.history_
    assert all("stage" not in one for one in heard)


def test_object__hears_of_stages_too() -> None:
    told = Told()
    model = PlackettLuceMixture(2, random_state=0, progress=told).fit(ROWS)
    assert [one for one in told.records if one in model.history_] == model.history_
    begun = [
        event["stage"] for event in told.events if event["state"] == "begun" and event["stage"] != "compile"
    ]
    ended = [
        event["stage"] for event in told.events if event["state"] == "ended" and event["stage"] != "compile"
    ]
    assert begun == ended == [stage["stage"] for stage in model.init_["stages"]]
    assert begun[0] == "look"
    assert begun[-1] == "fit"
    assert told.events[0] == {"state": "begun", "stage": "look"}


def test_true__text_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    model = PlackettLuceMixture(2, random_state=0, progress=True).fit(ROWS)
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "look: one pass over all rankings"
    assert sum("rankings/s" in line for line in lines) >= model.n_iter_
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
    shown = PlackettLuceMixture(2, random_state=0, progress=Told()).fit(ROWS)
    silent = PlackettLuceMixture(2, random_state=0).fit(ROWS)
    assert np.array_equal(shown.log_worths_, silent.log_worths_)


def test_text__renewed_line() -> None:
    written: list[str] = []
    text = ProgressText(TimeLeft(1e-8, 500), written.append, renewed=True)
    text.stage({"stage": "race", "state": "begun"})
    text.stage({"stage": "race", "state": "iteration", "iteration": 7})
    text.stage({"stage": "race", "state": "ended", "seconds": 1.25})
    text(record(1))
    text.close()
    screen = "".join(written)
    assert "\rrace: iteration 7, 0 s" in screen
    assert [line.rpartition("\r")[2].rstrip() for line in screen.split("\n")] == [
        "race, 1.2 s",
        iteration_line(record(1), None, 1.0),
        "",
    ]


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
    done = subprocess.run(
        [*map(str, command), "--out", str(tmp_path / "model")], capture_output=True, text=True, check=True
    )
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
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "model")], stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    screen = b""
    try:
        while part := os.read(ours, 65_536):
            screen += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    text = screen.decode()
    assert text.lstrip("\r").startswith("opening the store, 0 s")
    model = PlackettLuceMixture.load(tmp_path / "model")
    numbers = re.findall(r"\r *(\d+)  -\d+\.\d{8} ", text)
    assert [int(number) for number in numbers] == [one["iteration"] for one in model.history_]
