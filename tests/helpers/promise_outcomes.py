"""Fails a whole run in which all tests of some promise were skipped.

A run is whole if it was given no path and no keyword, and its marks are those of `make test` or `make test-full`, or
leave out nothing but slow tests. A promise whose tests all belong to the other of the two runs is judged there. This
works with pytest-xdist too: numbers of promises travel with each report, and the process that gets all reports decides.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PROPERTY = "promise"
# What -m is given by `make test` and by `make test-full`.
QUICK = "not slow and not full"
FULL = "(full or hypothesis) and not slow"
WHOLE = ("", "not slow", QUICK, FULL)


def promised(docs: Path) -> set[int]:
    """The numbers of the promises that a page makes, one per line `- 12: ...`."""
    return {int(number) for number in re.findall(r"^- (\d+):", docs.read_text(), re.MULTILINE)}


class PromiseOutcomes:
    """Collects for each promise whether one of its tests ran."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.ran: set[int] = set()
        self.of_the_other_run: set[int] = set()
        self.missed: list[int] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        for item in items:
            item.user_properties += [(PROPERTY, mark.args[0]) for mark in item.iter_markers("promise")]
        everywhere = _shown_by(item for item in items if item.get_closest_marker("slow") is None)
        yield
        self.of_the_other_run = everywhere - _shown_by(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist has ended: it has collected the tests, this process has not."""
        self.of_the_other_run |= set(getattr(node, "workeroutput", {}).get(PROPERTY, ()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (report.when == "call" and report.passed):
            self.ran |= {int(str(value)) for name, value in report.user_properties if name == PROPERTY}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[PROPERTY] = sorted(self.of_the_other_run)
        if not self._whole_run() or session.shouldstop or session.shouldfail:
            return
        self.missed = sorted(promised(self.config.rootpath / "docs/promises.md") - self.ran - self.of_the_other_run)
        if self.missed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for number in self.missed:
            terminalreporter.write_line(f"FAILED promise {number}: every test of it was skipped", red=True)

    def _whole_run(self) -> bool:
        option = self.config.option
        return (
            self.config.args_source is pytest.Config.ArgsSource.TESTPATHS
            and not hasattr(self.config, "workerinput")  # a worker of pytest-xdist gets its own reports only
            and not (option.keyword or option.collectonly or getattr(option, "lf", False))
            and option.markexpr in WHOLE
            and not (option.deselect or option.ignore or option.ignore_glob)
        )


def _shown_by(items: Iterable[pytest.Item]) -> set[int]:
    """The promises that tests are marked with."""
    return {int(mark.args[0]) for item in items for mark in item.iter_markers("promise")}
