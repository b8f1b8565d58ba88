"""A store and files of rankings for jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import plmix_dist as pl
from tests.helpers import cli_helpers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.helpers.cli_helpers import Said

    Shell = Callable[..., Said]


shell = cli_helpers.shell  # the fixture that runs a verb in a folder of its own


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and two files of rankings of the same mixture."""
    folder = tmp_path_factory.mktemp("drawn")
    for name, n_rankings, seed in (("ballots", 2_000, 1), ("later", 500, 1)):
        pl.simulate(folder / name, n_rankings=n_rankings, n_items=6, n_components=2, random_state=seed)
        pl.export(folder / name, folder / f"{name}.csv")
    return folder


@pytest.fixture
def place(drawn: Path, tmp_path: Path) -> Path:
    """An own copy of the store."""
    import shutil

    shutil.copytree(drawn / "ballots", tmp_path / "ballots")
    return tmp_path
