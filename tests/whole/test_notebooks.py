"""Notebooks: every code cell runs as it is, in order, on the small data that a notebook makes; no outputs are kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

# What notebooks show their readers: of small data, and of more groups than are known to be identifiable.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

ROOT = Path(__file__).parents[2]
NAMES = ("quickstart", "ballots", "ratings", "arena", "choices", "blocs", "choosing-k", "cluster", "paper")


def cells_of(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return list(notebook["cells"])


def run(name: str) -> dict[str, Any]:
    """The names that a notebook has defined after its last cell. Pictures are drawn, and shown nowhere."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot

    names: dict[str, Any] = {"__name__": name}
    for number, cell in enumerate(cells_of(name)):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}.ipynb, cell {number}", "exec"), names)
    matplotlib.pyplot.close("all")
    return names


@pytest.mark.parametrize("name", NAMES)
def test_cells__have_no_outputs_and_are_explained(name: str) -> None:
    cells = cells_of(name)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len(cells) - len(code) >= len(code) / 2
    assert "".join(cells[0]["source"]).startswith("# ")


@pytest.mark.parametrize("name", NAMES)
def test_cells__draw_something_and_silence_nothing(name: str) -> None:
    code = "\n".join("".join(cell["source"]) for cell in cells_of(name) if cell["cell_type"] == "code")
    assert re.search(r"\bplot(_\w+|s\.\w+)?\(", code)
    assert not re.search(r"simplefilter\(.ignore|filterwarnings\(.ignore", code)


@pytest.mark.full
def test_quickstart__finds_the_truth() -> None:
    names = run("quickstart")
    assert "espresso" in names["model"].item_names_
    assert names["model"].converged_
    assert names["matched_distance"](names["model"].log_worths_, names["truth"].log_worths) < 0.3


@pytest.mark.full
def test_ballots__finds_three_blocs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLMIX_BALLOTS", raising=False)
    names = run("ballots")
    assert names["model"].shares_ == pytest.approx([0.5, 0.3, 0.2], abs=0.05)
    favourites = [names["model"].item_names_[item] for item in names["model"].log_worths_.argmax(axis=1)]
    assert favourites == ["Ash", "Holly", "Oak"]
    assert max(names["scores"], key=names["scores"].get) >= 3


@pytest.mark.full
def test_ballots__of_a_real_election_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT.parent / "shared" / "data" / "apa1998" / "00028-00000001.soi"
    if not path.exists():
        pytest.skip(f"{path.name} of preflib.org is not here")
    monkeypatch.setenv("PLMIX_BALLOTS", str(path))
    assert run("ballots")["store"].n_rankings > 100


@pytest.mark.full
def test_ratings__finds_the_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLMIX_RATINGS", raising=False)
    names = run("ratings")
    assert names["model"].shares_ == pytest.approx([2 / 3, 1 / 3], abs=0.06)
    by_genre = names["worths"].groupby("genre")["component 0"].mean()
    assert by_genre["A"] > by_genre["C"] > by_genre["B"]


@pytest.mark.full
def test_arena__finds_the_groups_of_users() -> None:
    names = run("arena")
    assert names["kinds"]["grouped"] == 7200
    assert names["model"].shares_ == pytest.approx([2 / 3, 1 / 3], abs=0.06)
    assert names["best"] == ["model A", "model G"]
    assert names["scores"][2] > names["scores"][1] + 0.5


@pytest.mark.full
def test_choices__finds_what_groups_pay_for() -> None:
    names = run("choices")
    assert names["chosen_k"].n_components_ == 2
    assert names["model"].shares_ == pytest.approx([0.6, 0.4], abs=0.06)
    assert names["model"].feature_coefficients_ == pytest.approx(names["truth"], abs=0.25)
    assert names["after"]["cheap and slow"].sum() == pytest.approx(1)


@pytest.mark.full
def test_blocs__finds_shares_and_cohesion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLMIX_ELECTION", raising=False)
    monkeypatch.delenv("PLMIX_SLATES", raising=False)
    model = run("blocs")["model"]
    assert model.shares_ == pytest.approx([0.72, 0.28], abs=0.04)
    assert model.cohesion_[:, 0] == pytest.approx([0.8, 0.2], abs=0.06)


@pytest.mark.full
def test_choosing_k__three_groups_then_doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = run("choosing-k")
    assert names["found"].n_components_ == names["by_prediction"].n_components_ == 3
    scores = [row["score"] for row in names["found"].table_]
    assert scores == sorted(scores)  # the text: the score rises with every further group
    assert names["few"].n_components_ < 3
    assert names["few"].margin_ < 2
    assert names["pairs"].n_components_ == 1
    assert [row["identifiable"] for row in names["pairs"].table_[1:]] == ["not identifiable"] * 2


@pytest.mark.full
def test_cluster__same_bits_after_every_accident() -> None:
    names = run("cluster")
    assert names["killed"]
    assert names["undisturbed"].n_iter_ > 10
    for fit in ("survivor", "resumed", "alone"):
        assert names["same_bits"](names[fit], names["undisturbed"]), fit
    assert names["heard"][0] == 9
    assert "seed is 1 there and 2 here" in names["refusal"]


@pytest.mark.full
def test_paper__what_its_text_says() -> None:
    names = run("paper")
    rivals, distance, truth = names["rivals"], names["matched_distance"], names["truth"]
    assert distance(names["paper"].log_worths_, truth) < 0.5 * distance(names["start"].log_worths_, truth)
    assert abs(names["default"].score(names["rankings"]) - names["paper"].score(names["rankings"])) < 1e-3
    assert rivals["score"]["EM-LSR"] == pytest.approx(rivals["score"]["EMM"], abs=1e-5)
    assert rivals["score"][["EM-CML", "EM-GMM"]].max() < rivals["score"]["EM-LSR"] - 1e-3
    assert rivals["iterations"][["EM-CML", "EM-GMM"]].min() > rivals["iterations"][["EM-LSR", "EMM"]].max()
    assert names["ends"]["reached"].tolist() == [8, 0]
    assert any("names no rank" in str(warning.message) for warning in names["said"])
    without, with_prior = (names["small"][f"error, {name}"] for name in ("no prior", "prior"))
    assert without.isna()[60]
    assert with_prior.notna().all()
    assert with_prior[1_920] == pytest.approx(without[1_920], rel=0.05)
