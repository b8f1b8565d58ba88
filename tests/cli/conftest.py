"""Runs commands, in this process or in another."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from plmix_dist.cli import main
from tests.helpers.ingest_helpers import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

from tests.cli.common import BALLOTS, Said


@pytest.fixture
def plmix(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs a command in this process, as the installed script does."""

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Said(int(stopped.value.code or 0), out, err)

    return run


@pytest.fixture
def plmix_process() -> Callable[..., Said]:
    """Runs a command in a new process."""

    def run(*arguments: object) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "plmix_dist", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=os.environ | {"COLUMNS": "100"},
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def ballots(tmp_path: Path) -> Path:
    return write(tmp_path / "ballots.csv", BALLOTS)


@pytest.fixture
def store(tmp_path: Path, ballots: Path, plmix: Callable[..., Said]) -> Path:
    assert plmix("ingest", ballots, tmp_path / "store", "--unranked", "below").code == 0
    return tmp_path / "store"
