"""Fails a whole run in which all tests of some promise were skipped.

A run is whole if it was given no path and no keyword, and leaves out nothing but slow tests. This works with
pytest-xdist too: the numbers of promises travel with each report, and the process that hears all reports decides.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROPERTY = "promise"


def promised(docs: Path) -> set[int]:
    """The numbers of the promises that a page makes, one per line `- 12: ...`."""
    return {int(number) for number in re.findall(r"^- (\d+):", docs.read_text(), re.MULTILINE)}


class PromiseOutcomes:
    """Collects for each promise whether one of its tests ran."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.ran: set[int] = set()
        self.missed: list[int] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            item.user_properties += [(PROPERTY, mark.args[0]) for mark in item.iter_markers("promise")]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (report.when == "call" and report.passed):
            self.ran |= {int(str(value)) for name, value in report.user_properties if name == PROPERTY}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._whole_run() or session.shouldstop or session.shouldfail:
            return
        self.missed = sorted(promised(self.config.rootpath / "docs/promises.md") - self.ran)
        if self.missed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for number in self.missed:
            terminalreporter.write_line(f"FAILED promise {number}: every test of it was skipped", red=True)

    def _whole_run(self) -> bool:
        option = self.config.option
        return (
            self.config.args_source is pytest.Config.ArgsSource.TESTPATHS
            and not hasattr(self.config, "workerinput")  # a worker of pytest-xdist hears its own reports only
            and not (option.keyword or option.collectonly or getattr(option, "lf", False))
            and option.markexpr in ("", "not slow")
            and not (option.deselect or option.ignore or option.ignore_glob)
        )
