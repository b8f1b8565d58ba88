"""docs/operations.md: its formula against measured figures and the code, its tables against the classes there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import plmix_dist as pl
from plmix_dist import errors
from plmix_dist.passes import memory as memory_needed
from plmix_dist.passes import memory as residency
from plmix_dist.store.sealed import VERSIONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sizing() -> Any:
    """The function on the page."""
    (piece,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(piece.replace("print(", "("), names)
    return names["sizing"]


TWO = {"workers": 2}
# What docs/benchmarks.md says; the words stand there as they are here.
SECONDS = {
    "4,000,000 rankings of 20 items": ((4_000_000, 20, 20, 4), TWO, 0.222),
    "| 20,000,000 (kept in memory) | 0.09 GB | 11 | 5.5 | 1.5 | 1.4 |": ((20_000_000, 10, 10, 4), TWO, 1.4),
    "| 200,000,000 | 0.90 GB | 104 | 33 | 16 | 27 |": ((200_000_000, 10, 10, 4), {**TWO, "in_memory": False}, 27),
    "a whole MM iteration that reads it 34.8 s": ((70_000_640, 100, 100, 4), {**TWO, "in_memory": False}, 34.8),
    "| 1,000,000, 100, 5 | 2.5 | 5 | 6.5 |": ((1_000_000, 100, 100, 5), {"threads": 2}, 2.5 / 6.5),
}
MEMORY = {
    "| 126 | 333 MB | 262 MB |": ((200_000_000, 10, 10, 4), {**TWO, "in_memory": False}, 262e6),
    "| 9.4 | 323 MB | 362 MB |": ((20_000_000, 10, 10, 4), TWO, 362e6),
    "Highest memory of a worker: 269 MB": ((70_000_640, 100, 100, 4), {**TWO, "in_memory": False}, 269e6),
}


@pytest.mark.parametrize("figure", SECONDS)
def test_sizing__seconds_of_a_pass(sizing: Any, figure: str) -> None:
    sizes, options, measured = SECONDS[figure]
    assert figure in (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    assert 0.5 <= sizing(*sizes, **options)["pass_seconds"] / measured <= 2


@pytest.mark.parametrize("figure", MEMORY)
def test_sizing__memory_of_a_worker(sizing: Any, figure: str) -> None:
    sizes, options, measured = MEMORY[figure]
    assert figure in (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    assert 0.8 <= sizing(*sizes, **options)["worker_memory"] / measured <= 1.25


@pytest.mark.parametrize("n_items", [5, 300])
def test_sizing__bytes_are_those_of_the_code(sizing: Any, tmp_path: Path, n_items: int) -> None:
    store = pl.simulate(tmp_path / "store", n_rankings=500, n_items=n_items, random_state=0)
    resident = sizing(500, n_items, n_items, 3, workers=2)
    read = sizing(500, n_items, n_items, 3, workers=2, in_memory=False)
    decoded = 2 * (resident["worker_memory"] - (read["worker_memory"] - 50e6))
    assert decoded == pytest.approx(store.decoded_bytes)
    # The least limit is the one at which rows stay: a byte less, and they are read.
    limit = resident["worker_limit"]
    assert residency.stays_in_memory("auto", decoded / 2, limit * 1.001)
    assert not residency.stays_in_memory("auto", decoded / 2, limit * 0.999)


def test_sizing__memory_of_items_and_components_is_that_which_is_checked(
    sizing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sizing(1, 10, 1_000_000, 7)["driver_memory"] - 330e6
    monkeypatch.setattr(memory_needed, "free_memory", lambda: needed)
    memory_needed.check_memory(1_000_000, 7)
    monkeypatch.setattr(memory_needed, "free_memory", lambda: needed - 1)
    with pytest.raises(errors.SettingsError, match="need at least"):
        memory_needed.check_memory(1_000_000, 7)


def test_figures_of_the_page__are_those_of_its_function(sizing: Any) -> None:
    for line, value in (
        ("2 workers: a pass | 0.24 s", sizing(4_000_000, 20, 20, 4, workers=2)["pass_seconds"]),
        ("2 workers: a pass | 0.72 s", sizing(20_000_000, 10, 10, 4, workers=2)["pass_seconds"]),
        ("in every pass | 18 s", sizing(200_000_000, 10, 10, 4, workers=2, in_memory=False)["pass_seconds"]),
        ("in every pass | 36 s", sizing(70_000_640, 100, 100, 4, workers=2, in_memory=False)["pass_seconds"]),
        ("whole fit | 0.43 s", sizing(1_000_000, 100, 100, 5, threads=2)["pass_seconds"]),
        ("rows of 10 | 430 MB", sizing(20_000_000, 10, 10, 4, workers=2)["worker_memory"] / 1e6),
        ("in every pass | 270 MB", sizing(70_000_640, 100, 100, 4, workers=2, in_memory=False)["worker_memory"] / 1e6),
    ):
        assert line in PAGE
        said = float(line.split("| ")[1].split()[0])
        assert value == pytest.approx(said, rel=0.03), line


def test_errors__each_has_its_line() -> None:
    classes = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, (errors.PlmixError, Warning))
    }
    bases = {"PlmixError", "StoreError"}  # never raised by themselves where a reader would look
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(classes) - bases


def test_format_versions__as_the_pages_say() -> None:
    store, model = VERSIONS["plmix-rankings"], VERSIONS["plmix-model"]
    words = f"Stores are at format version {store}, models at version {model}."
    assert words in (ROOT / "docs/releases.md").read_text(encoding="utf-8")
    assert f"**Stores** are at format version {store}, **models** at version {model}." in PAGE


def test_run_book__ten_faults() -> None:
    book = PAGE[PAGE.index("## Run book") : PAGE.index("## Upgrade")]
    assert re.findall(r"^(\d+)\. \*\*", book, re.MULTILINE) == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize("page", sorted((ROOT / "deploy").rglob("README.md")), ids=lambda page: page.parent.name)
def test_deploy__readmes_are_short_and_say_what_was_not_tested(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page} links to {target}"
    if page.parent.name != "deploy":
        assert len(text.splitlines()) <= 15
        assert "Tested: " in text
        assert "Not tested: " in text
