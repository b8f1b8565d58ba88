"""Fuzzing: seeded mutations of files, stores, models, blocks, arrays and settings end well, or with an error in words.

Each batch runs in a process of its own, which prints the seed before each mutation. So a crash or a hang has a name.
To repeat one: `python -m tests.helpers.fuzz_targets TARGET SEED 1`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers.forked_python import ForkedPython
from tests.helpers.record_mutations import KINDS, failures_of

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = ("readers", "stores", "models", "blocks", "arrays", "settings")


def run_batch(target: str, first: int, count: int, folder: Path) -> set[str]:
    """Run some mutations and give their outcomes; fails with the output from the first that went wrong."""
    process = ForkedPython(
        [sys.executable, "-m", "tests.helpers.fuzz_targets", target, str(first), str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
        cwd=folder,  # a setting may name a folder
    )
    output, errors = process.communicate(timeout=1_500)
    lines = output.splitlines()
    failed = next((number for number, line in enumerate(lines) if "FAILED" in line), len(lines) - 1)
    assert process.returncode == 0, "\n".join([*lines[failed : failed + 60], errors[-4_000:]])
    assert sum(line.startswith(f"{target} ") for line in lines) == count
    return {line.split(": ")[1].split(":")[0] for line in lines if line.startswith(f"{target} ")}


@pytest.mark.promise(42)
@pytest.mark.promise(43)
@pytest.mark.process
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz__twenty_mutations(target: str, tmp_path: Path) -> None:
    run_batch(target, 0, 20, tmp_path)


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz__a_hundred_mutations(target: str, tmp_path: Path) -> None:
    outcomes = run_batch(target, 0, 100, tmp_path)
    # A target that never succeeds, or never fails, tries nothing.
    assert {outcome.endswith("Error") for outcome in outcomes} == {True, False}


@pytest.mark.slow
@pytest.mark.timeout(1_600)
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz__a_thousand_mutations(target: str, tmp_path: Path) -> None:
    run_batch(target, 1_000, 1_000, tmp_path)


@pytest.mark.promise(42)
@pytest.mark.parametrize("kind", KINDS)
def test_records__entries_of_wrong_types(kind: str) -> None:
    assert failures_of(kind, first=5, count=3, step=67)[0] == []


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_records__some_entries_of_every_part(kind: str) -> None:
    failed, n_refused = failures_of(kind, step=13)
    assert failed == []
    # What job, summary and plan say is refused by verbs, whose exit codes are not looked at here.
    assert n_refused or kind in ("job", "summary", "plan")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", KINDS)
def test_records__all_entries(kind: str) -> None:
    assert failures_of(kind)[0] == []
