"""README and docs: every command and every piece of Python in them runs."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import plmix_dist as pl
from plmix_dist.cli import main
from tests.helpers.cli_helpers import Said

ROOT = Path(__file__).parents[2]
_MADE = ("_build", "notebooks", "reference/api")  # below docs/, by `make docs`
PAGES = sorted(
    [
        ROOT / "README.md",
        *(
            page
            for page in (ROOT / "docs").rglob("*.md")
            if not any(page.is_relative_to(ROOT / "docs" / made) for made in _MADE)
        ),
    ]
)
# Pages that `make test` runs; the others are run by `make test-full`.
QUICK = ("README.md", "docs/start/tutorial.md", "docs/fitting.md", "docs/prediction.md", "docs/uncertainty.md")
# Pages that make their own stores.
FROM_AN_EMPTY_FOLDER = ("README.md", "ratings.md", "tutorial.md", "to-a-fit.md")
# Pages whose Python is run by another test, which removes again what they add.
ELSEWHERE = ("docs/architecture.md", "docs/my-file.md")  # test_how_to_add.py; test_my_file__is_read_as_the_page_says
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
    # toml: jobs. r, text: what others do, beside ours.
    assert languages <= {"sh", "python", "toml", "r", "text"}


@pytest.fixture
def a_folder_with_data(tmp_path, monkeypatch):
    """What the pages take for granted: files in the formats that they name, and stores made from them."""
    monkeypatch.chdir(tmp_path)
    pl.simulate("source", n_rankings=400, n_items=6, n_components=2, length=4, unranked="below", random_state=2)
    pl.export("source", "ballots.soi")
    (tmp_path / "races").mkdir()
    pl.export("source", "races/first.parquet")
    (tmp_path / "council").mkdir()
    pl.export("source", "council/ward.csv", format="wide")
    rng = np.random.default_rng(0)
    ranks = np.array([rng.permutation(4) + 1 for _ in range(50)])
    _write("ranks.csv", ["tea,mate,milk,water", *(",".join(map(str, row)) for row in ranks)])
    _write(
        "ratings.csv",
        [
            "user,item,rating",
            *(f"{user},{item},{rng.integers(1, 6)}" for user in range(60) for item in rng.permutation(12)[:8]),
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
    battles = [
        (*(f"model {i}" for i in rng.permutation(4)[:2]), rng.integers(2), *rng.integers(50, 900, 2)) for _ in range(90)
    ]
    _write(
        "battles.csv",
        [
            "model_a,model_b,winner,length_a,length_b",
            *(f"{one},{two},model_{'ab'[won]},{own},{other}" for one, two, won, own, other in battles),
        ],
    )
    _write("games.csv", ["winner,loser,form_won,form_lost", *(f"{one},{two},{a},{b}" for one, two, _, a, b in battles)])
    chats = [
        {"model_a": one, "model_b": two, "winner": f"model_{'ab'[won]}",
         "conv_metadata": {"sum_assistant_a_tokens": int(own), "sum_assistant_b_tokens": int(other)}}
        for one, two, won, own, other in battles
    ]  # fmt: skip
    _write("chats.jsonl", list(map(json.dumps, chats)))
    return tmp_path


def _write(path: str, lines: list[str]) -> None:
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=() if name in QUICK else pytest.mark.full)
        for page in PAGES
        if pieces_of(page)
        for name in [str(page.relative_to(ROOT))]
        if name not in ELSEWHERE
    ],
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


_SHAPE = re.compile(r"^`([^`]+)`\n\n```\n(.*?)^```\n\n```sh\n(.*?)\n```\n\nread as: (.*?)$", re.DOTALL | re.MULTILINE)
MY_FILE = _SHAPE.findall((ROOT / "docs" / "my-file.md").read_text(encoding="utf-8"))


def test_my_file__every_block_belongs_to_a_shape():
    text = (ROOT / "docs" / "my-file.md").read_text(encoding="utf-8")
    assert len(MY_FILE) >= 9
    assert text.count("```") == 4 * len(MY_FILE)


@pytest.mark.parametrize(("name", "lines", "command", "read_as"), MY_FILE, ids=[shape[0] for shape in MY_FILE])
def test_my_file__is_read_as_the_page_says(name, lines, command, read_as, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(lines, encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(command)[1:])
    said = Said(*capsys.readouterr())
    assert stopped.value.code in (0, None), said.err
    assert said.err == ""
    assert said.rankings() == read_as.split("; ")


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


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_readme__five_commands_from_an_empty_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = re.search(r"^## From a file to a report in five commands$(.*?)^## ", text, re.DOTALL | re.MULTILINE)
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


def test_python__every_class_has_a_page_with_a_table_of_its_methods(tmp_path):
    api_pages = runpy.run_path(str(ROOT / "docs" / "_ext" / "api_pages.py"))
    classes, index = api_pages["classes"](), (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\{py:obj\}`(plmix_dist\.[\w.]+)`", index)) == set(classes)
    assert set(re.findall(r"autofunction:: plmix_dist\.(\w+)$", index, re.MULTILINE)) == set(api_pages["functions"]())
    api_pages["write_pages"](tmp_path / "api")
    assert len(list((tmp_path / "api").iterdir())) == len(classes)
    for name, cls in classes.items():
        page = (tmp_path / "api" / f"{cls.__name__}.md").read_text(encoding="utf-8")
        links = re.findall(r"^\| \{py:obj\}`(\w+) <([\w.]+)>` \| .+ \|$", page, re.MULTILINE)
        assert all(target == f"{name}.{method}" and hasattr(cls, method) for method, target in links)
        # What the links lead to is on the same page.
        listed = re.findall(r":members: (.*)$", page, re.MULTILINE)
        assert sorted(method for method, _ in links) == sorted(", ".join(listed).split(", ") if listed else [])
    mixture = (tmp_path / "api" / "PlackettLuceMixture.md").read_text(encoding="utf-8")
    assert {"fit", "predict_proba", "memberships", "standard_errors", "report", "load"} <= set(
        re.findall(r"`(\w+) <", mixture)
    )


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
