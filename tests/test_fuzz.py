"""Fuzzing: seeded mutations of files, stores, models, blocks, arrays and settings end well, or with an error in words.

Each batch runs in a process of its own, which prints the seed before each mutation. So a crash or a hang has a name.
To repeat one: `python tests/fuzz_targets.py TARGET SEED 1`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TARGETS = ("readers", "stores", "models", "blocks", "arrays", "settings")
HERE = Path(__file__).parent


def run_batch(target: str, first: int, count: int, folder: Path) -> None:
    """Run some mutations; fails with the output from the first that went wrong."""
    done = subprocess.run(
        [sys.executable, str(HERE / "fuzz_targets.py"), target, str(first), str(count)],
        capture_output=True,
        text=True,
        timeout=1_500,
        env=os.environ | {"PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}", "TMPDIR": str(folder)},
        check=False,
        cwd=folder,  # a setting may name a folder
    )
    lines = done.stdout.splitlines()
    failed = next((number for number, line in enumerate(lines) if "FAILED" in line), len(lines) - 1)
    assert done.returncode == 0, "\n".join([*lines[failed : failed + 60], done.stderr[-4_000:]])
    assert sum(line.startswith(f"{target} ") for line in lines) == count
    # A target that never succeeds, or never fails, tries nothing.
    outcomes = {line.split(": ")[1].split(":")[0] for line in lines if line.startswith(f"{target} ")}
    assert any(outcome.endswith("Error") for outcome in outcomes)
    assert any(not outcome.endswith("Error") for outcome in outcomes)


@pytest.mark.promise(42)
@pytest.mark.promise(43)
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz__a_hundred_mutations(target: str, tmp_path: Path) -> None:
    run_batch(target, 0, 100, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1_600)
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz__a_thousand_mutations(target: str, tmp_path: Path) -> None:
    run_batch(target, 1_000, 1_000, tmp_path)
