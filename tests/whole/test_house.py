"""The house stays light: bounds on what `python -m tests.helpers.house` counts, and the tree of the page."""

from __future__ import annotations

import re

from plmix_dist import PlackettLuceMixture
from tests.helpers import house


def test_house__entries_files_and_lines() -> None:
    size = house.total()
    assert len(house.entries()) <= 24
    assert len(house.sources()) <= 230
    assert size.code <= 35_000
    assert size.docstrings <= 10_500


def test_house__names_of_one_module_have_an_underscore() -> None:
    assert house.names_of_one_module() == []


def test_house__no_test_file_is_too_long() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (house.ROOT / "tests").rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 800} == {}


def test_house__plain_words() -> None:
    """English that people who learnt it elsewhere have to read twice: "so many" for "this many", "is no X"."""
    foreign = re.compile(r"\bso many\b|\b(?:is|are) no [a-z]+")
    pages = [*house.sources(), *(house.ROOT / "docs").rglob("*.md"), house.ROOT / "README.md"]
    lines = [line for page in pages for line in page.read_text().splitlines() if foreign.search(line)]
    assert len(lines) <= 15, lines


def test_house__constructor_and_bases() -> None:
    own = [base for base in PlackettLuceMixture.__mro__ if base.__module__.startswith("plmix_dist")]
    assert len(own) <= 4
    assert len(PlackettLuceMixture._get_param_names()) <= 19


def test_house__the_tree_on_the_page_is_the_folder() -> None:
    page = (house.ROOT / "docs/architecture.md").read_text()
    tree = page.split("```")[1]
    rooms = set(re.findall(r"^  (\w+)/", tree, re.MULTILINE))
    assert rooms == {name for name in house.entries() if (house.PACKAGE / name).is_dir()}
    files = {f"{name}.py" for name in tree.splitlines()[2].split()}
    assert files | {"__main__.py"} == {name for name in house.entries() if name.endswith(".py")}
