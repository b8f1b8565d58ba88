"""README and docs: every command and every piece of Python in them runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import plmix_dist as pl
from plmix_dist.cli import main

ROOT = Path(__file__).parents[1]
_MADE = ("_build", "notebooks")  # below docs/, by `make docs`
PAGES = sorted(
    [
        ROOT / "README.md",
        *(
            page
            for page in (ROOT / "docs").rglob("*.md")
            if page.relative_to(ROOT / "docs").parts[0] not in _MADE
        ),
    ]
)
# Pages that make their own stores.
FROM_AN_EMPTY_FOLDER = ("README.md", "ratings.md", "tutorial.md", "to-a-fit.md")
# Lines of shell that are not commands of plmix: they install or test the whole package, as the Makefile does.
NOT_OURS = ("make ", "pip install .")
# Python that is part of a file and does not run alone.
FRAGMENTS = ("def _read(part: Slice, options: ReadOptions)",)


class Piece(NamedTuple):
    """A block of code on a page."""

    language: str
    text: str


def pieces_of(page: Path) -> list[Piece]:
    found = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Piece(*each) for each in found]


def test_there_is_no_language_that_is_not_run():
    languages = {piece.language for page in PAGES for piece in pieces_of(page)}
    # yaml: settings of Dask, which test_dashboard.py has; toml: jobs.
    assert languages <= {"sh", "python", "toml", "yaml"}


@pytest.fixture
def a_folder_with_data(tmp_path, monkeypatch):
    """What the pages take for granted: files in the formats that they name, and stores made from them."""
    monkeypatch.chdir(tmp_path)
    pl.simulate(
        "source", n_rankings=400, n_items=6, n_components=2, length=4, unranked="below", random_state=2
    )
    pl.export("source", "ballots.soi")
    (tmp_path / "races").mkdir()
    pl.export("source", "races/first.parquet")
    rng = np.random.default_rng(0)
    ranks = np.array([rng.permutation(4) + 1 for _ in range(50)])
    _write("ranks.csv", ["tea,mate,milk,water", *(",".join(map(str, row)) for row in ranks)])
    _write(
        "ratings.csv",
        [
            "user,item,rating",
            *(
                f"{user},{item},{rng.integers(1, 6)}"
                for user in range(60)
                for item in rng.permutation(12)[:8]
            ),
        ],
    )
    _write(
        "votes.csv",
        [
            "id,person,item,rank",
            *(
                f"{3 * person + vote},{person},{item},{place}"
                for person in range(40)
                for vote in range(3)
                for place, item in enumerate(rng.permutation(5)[:2], start=1)
            ),
        ],
    )
    return tmp_path


def _write(path: str, lines: list[str]) -> None:
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if pieces_of(page)], ids=lambda page: str(page.relative_to(ROOT))
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_piece_of_a_page_runs(page, a_folder_with_data, capsys):
    if page.name not in FROM_AN_EMPTY_FOLDER:
        pl.ingest("ballots.soi", "ballots")
        pl.ingest("ballots.soi", "test")
    names: dict[str, object] = {}
    for piece in pieces_of(page):
        if piece.language == "python" and not piece.text.startswith(FRAGMENTS):
            prepared = "import dask\nimport dask.config\n" if "dask.config" in piece.text else ""
            exec(compile(prepared + piece.text, page.name, "exec"), names)
        elif piece.language == "toml":  # its first line begins with the name of the file
            Path(piece.text.split()[1].rstrip(":")).write_text(piece.text, encoding="utf-8")
        elif piece.language == "sh":
            for line in piece.text.splitlines():
                _run_line(line, capsys)


def _run_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line, comments=True)
    if not words or line.startswith(NOT_OURS):
        return
    assert words[0] == "plmix", f"not a command of plmix: {line}"
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(words[1:])
    said = capsys.readouterr()
    assert stopped.value.code in (0, None), f"{line}\n{said.out}\n{said.err}"
    if "nothing to do" in line:
        assert "nothing to do" in said.out + said.err


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_readme__five_minutes_from_an_empty_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = re.search(r"^## Five minutes$(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    assert section is not None
    pieces = re.findall(r"^```(\w+)\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE)
    assert [language for language, _ in pieces] == ["sh", "python"]
    for line in pieces[0][1].splitlines():
        _run_line(line, capsys)
    exec(compile(pieces[1][1], "README.md", "exec"), {})


def test_every_verb_of_the_command_line_is_on_its_page():
    from plmix_dist.cli import plmix

    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    verbs = set(re.findall(r"^\| `(\w+)[ `]", page, re.MULTILINE))
    assert verbs == set(plmix.commands)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_site_lists_a_test_for_every_promise(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    pytest.importorskip("sphinx")
    from promise_tests import promises, tests_by_promise

    assert len(promises()) > 30
    assert set(promises()) <= set(tests_by_promise())


@pytest.mark.slow
def test_the_site_is_built_without_warnings(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_nb")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html", "docs"]
    environment = os.environ | {"PLMIX_DOCS_NOTEBOOKS": "off", "PYTHONPATH": str(ROOT)}
    told = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert "promise-tests" in (tmp_path / "reference" / "index.html").read_text(encoding="utf-8")
