"""Notebooks: every code cell runs as it is, in order, on the small data that a notebook makes; no outputs are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("quickstart", "ballots", "ratings", "arena")


def cells_of(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return list(notebook["cells"])


def run(name: str) -> dict[str, Any]:
    """The names that a notebook has defined after its last cell."""
    names: dict[str, Any] = {"__name__": name}
    for number, cell in enumerate(cells_of(name)):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}.ipynb, cell {number}", "exec"), names)
    return names


@pytest.mark.parametrize("name", NAMES)
def test_cells__have_no_outputs_and_are_explained(name: str) -> None:
    cells = cells_of(name)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len(cells) - len(code) >= len(code) / 2
    assert "".join(cells[0]["source"]).startswith("# ")


def test_quickstart__finds_the_truth() -> None:
    names = run("quickstart")
    assert names["model"].converged_
    assert names["matched_distance"](names["model"].log_worths_, names["truth"].log_worths) < 0.3


def test_ballots__finds_three_blocs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLMIX_BALLOTS", raising=False)
    names = run("ballots")
    assert names["model"].shares_ == pytest.approx([0.5, 0.3, 0.2], abs=0.05)
    favourites = [names["model"].item_names_[item] for item in names["model"].log_worths_.argmax(axis=1)]
    assert favourites == ["Ash", "Holly", "Oak"]
    assert max(names["scores"], key=names["scores"].get) >= 3


def test_ballots__of_a_real_election_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT.parent / "shared" / "data" / "apa1998" / "00028-00000001.soi"
    if not path.exists():
        pytest.skip(f"{path.name} of preflib.org is not here")
    monkeypatch.setenv("PLMIX_BALLOTS", str(path))
    assert run("ballots")["store"].n_rankings > 100


def test_ratings__finds_the_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLMIX_RATINGS", raising=False)
    names = run("ratings")
    assert names["model"].shares_ == pytest.approx([2 / 3, 1 / 3], abs=0.06)
    by_genre = names["worths"].groupby("genre")["component 0"].mean()
    assert by_genre["A"] > by_genre["C"] > by_genre["B"]


def test_arena__finds_the_groups_of_users() -> None:
    names = run("arena")
    assert names["kinds"]["grouped"] == 7200
    assert names["model"].shares_ == pytest.approx([2 / 3, 1 / 3], abs=0.06)
    assert names["best"] == ["model A", "model G"]
    assert names["scores"][2] > names["scores"][1] + 0.5
