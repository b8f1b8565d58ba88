"""The command line as a whole: errors, exit codes, what is loaded at the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plmix_dist import __version__
from plmix_dist.cli import main
from plmix_dist.errors import IngestError
from tests.helpers.ingest_helpers import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.common import Said


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["ingest", "none.csv", "out"], "no file matches 'none.csv'"),
        (["ingest", "ballots.csv", "out"], "line 3: lists 2 of 3 items, and nothing says"),
        (["ingest", "ballots.csv", "out", "--column", "id"], "--column takes ROLE=NAME, but got 'id'"),
        (["ingest", "ballots.csv", "out", "--column", "x=y"], "unknown column role 'x'"),
        (["ingest", "ballots.csv", "out", "--items", "none.txt"], "none.txt"),
        (["ingest", "ballots.csv", "out", "--workers", "1", "--scheduler", "tcp://x:1"], "not both"),
        (["ingest", "ballots.csv", "out", "--append"], "no store at"),
        (["verify", "none"], "no store at"),
        (["info", "ballots.csv"], "no store at"),
        (["export", "none", "out.csv"], "no store at"),
        (["split", "none", "a", "b"], "no store at"),
    ],
)
def test_error__one_line_without_a_traceback(
    tmp_path: Path,
    ballots: Path,
    monkeypatch: pytest.MonkeyPatch,
    plmix: Callable[..., Said],
    arguments: list[str],
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = plmix(*arguments, "--json")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("plmix: error: ")
    assert what in said.err
    assert len(said.err.splitlines()) == 1
    # Mistakes of the user have their own messages; "this should not happen" is for defects of the package.
    assert "should not happen" not in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["ingest"],
        ["ingest", "a.csv"],
        ["ingest", "a.csv", "out", "--unranked", "sideways"],
        ["ingest", "a.csv", "out", "--frobnicate"],
        ["simulate", "out", "--rankings", "0", "--items", "3"],
        ["simulate", "out", "--items", "3"],
        ["verify", "out", "--workers", "-1"],
    ],
)
def test_usage__ends_with_2(plmix: Callable[..., Said], arguments: list[str]) -> None:
    said = plmix(*arguments)
    assert (said.code, said.out) == (2, "")
    assert "Usage: plmix" in said.err
    assert "Error: " in said.err


def test_debug__shows_where(tmp_path: Path, plmix_process: Callable[..., Said]) -> None:
    said = plmix_process("ingest", tmp_path / "none.csv", tmp_path / "out", "--debug")
    assert said.code == 1
    assert "Traceback (most recent call last)" in said.err
    assert "plmix_dist.errors.IngestError: no file matches" in said.err


def test_debug__raises_for_those_who_call_main(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="no file matches"):
        main(["ingest", str(tmp_path / "none.csv"), str(tmp_path / "out"), "--debug"])


@pytest.mark.promise(35)
def test_error__names_of_files_cannot_steer(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    source = write(tmp_path / "a\x1b[2J.csv", "p1,p2\ntea,tea\n")
    said = plmix("ingest", source, tmp_path / "store")
    assert said.code == 1
    assert "a\\x1b[2J.csv" in said.err
    assert "\x1b" not in said.err


HEAVY = ["dask", "distributed", "numba", "zarr", "scipy", "pyarrow"]


@pytest.mark.parametrize(
    "what", ["import plmix_dist", "from plmix_dist.cli import main", "main(['--help'])", "main(['ingest', '--help'])"]
)
def test_start__loads_nothing_heavy(python_says: Callable[..., str], what: str) -> None:
    script = f"""
import contextlib, io, sys
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    {"from plmix_dist.cli import main" if "main([" in what else "pass"}
    {what}
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    assert python_says(script).strip() == "[]"


def test_help__lists_every_verb(plmix: Callable[..., Said]) -> None:
    said = plmix("--help")
    assert said.code == 0
    for verb in ("ingest", "export", "simulate", "split", "verify", "info"):
        assert f"\n  {verb} " in said.out
        assert "Usage: plmix" in plmix(verb, "--help").out


def test_version__is_that_of_the_package(plmix: Callable[..., Said]) -> None:
    assert plmix("--version").out == f"plmix, version {__version__}\n"
