"""Every promise of the documentation has a test that is marked with it, and whole runs show every promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.marks import LEFT_OUT, LEFT_OUT_FILES
from tests.helpers.promise_outcomes import FULL, QUICK, promised

ROOT = Path(__file__).parents[2]

SMALL_SUITE = """
import pytest

@pytest.mark.promise(1)
def test_runs():
    pass

@pytest.mark.promise(1)
@pytest.mark.skipif(True, reason="no data")
def test_skips():
    pass

@pytest.mark.promise(2)
@pytest.mark.skipif({skip}, reason="no data")
def test_skips_sometimes():
    pass

@pytest.mark.promise(3)
def test_skips_inside():
    if {skip}:
        pytest.skip("no data")
"""


def test_promises__each_has_a_test_and_each_mark_a_promise() -> None:
    marked = {
        int(number)
        for path in (ROOT / "tests").rglob("test_*.py")
        for number in re.findall(r"mark\.promise\((\d+)\)", path.read_text())
        if path != Path(__file__)
    }
    assert marked == promised(ROOT / "docs/promises.md")


@pytest.fixture
def small_project(tmp_path: Path) -> Path:
    """A project of three promises; tests of two of them can be skipped."""
    for folder in ("docs", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "docs/promises.md").write_text("- 1: one\n- 2: two\n- 3: three\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\ntestpaths = ["tests"]\nmarkers = ["promise(n)", "slow", "full", "hypothesis"]\n'
    )
    (tmp_path / "tests/conftest.py").write_text(
        "from promise_outcomes import PromiseOutcomes\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(PromiseOutcomes(config))\n"
    )
    return tmp_path


def run_pytest(folder: Path, *options: str) -> tuple[int, list[str]]:
    """The exit code, and the lines about promises."""
    here = ROOT / "tests" / "helpers"
    code = f"import sys; sys.path.insert(0, {str(here)!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # none is needed, and they take seconds to load
    )
    return done.returncode, [line for line in done.stdout.splitlines() if "promise" in line]


def test_whole_run__fails_when_all_tests_of_a_promise_are_skipped(small_project: Path) -> None:
    suite = small_project / "tests/test_some.py"
    missed = [f"FAILED promise {number}: every test of it was skipped" for number in (2, 3)]
    suite.write_text(SMALL_SUITE.format(skip=True))
    assert run_pytest(small_project, "-m", "not slow") == (1, missed)
    # Part of a suite shows part of the promises.
    assert run_pytest(small_project, "tests/test_some.py") == (0, [])
    suite.write_text(SMALL_SUITE.format(skip=False))
    assert run_pytest(small_project) == (0, [])


TWO_RUNS = """
import pytest

@pytest.mark.promise(1)
def test_quick():
    pass

@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.full
def test_full():
    if {skip}:
        pytest.skip("no data")

@pytest.mark.promise(3)
@pytest.mark.slow
def test_slow():
    pass
"""


@pytest.mark.parametrize("processes", [(), ("-p", "xdist.plugin", "-n", "1")], ids=["one", "xdist"])
def test_two_runs__each_judges_the_promises_that_it_has_tests_of(
    small_project: Path, processes: tuple[str, ...]
) -> None:
    if processes:
        pytest.importorskip("xdist")
    missed = [f"FAILED promise {number}: every test of it was skipped" for number in (1, 2, 3)]
    suite = small_project / "tests/test_some.py"
    # Promise 3 has a slow test only: neither run shows it, so both fail.
    suite.write_text(TWO_RUNS.format(skip=True))
    assert run_pytest(small_project, *processes, "-m", QUICK) == (1, missed[2:])
    assert run_pytest(small_project, *processes, "-m", FULL) == (1, missed)
    (small_project / "docs/promises.md").write_text("- 1: one\n- 2: two\n")
    suite.write_text(TWO_RUNS.format(skip=False))
    for expression in (QUICK, FULL):
        assert run_pytest(small_project, *processes, "-m", expression) == (0, [])


def test_make__gives_pytest_the_marks_by_which_promises_are_judged() -> None:
    given = re.findall(r'\$\(PYTEST\) -m "([^"]+)"$', (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert given == [QUICK, FULL]


def test_left_out__every_test_is_there() -> None:
    files = list((ROOT / "tests").rglob("test_*.py"))
    defined = {name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}
    assert set(LEFT_OUT) <= defined
    assert set(LEFT_OUT_FILES) <= {path.name for path in files}


def test_whole_run__with_several_processes(small_project: Path) -> None:
    pytest.importorskip("xdist")
    (small_project / "tests/test_some.py").write_text(SMALL_SUITE.format(skip=True))
    missed = [f"FAILED promise {number}: every test of it was skipped" for number in (2, 3)]
    assert run_pytest(small_project, "-p", "xdist.plugin", "-n", "2") == (1, missed)
