"""Benchmarks run in small, so that they do not rot."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import common, paper_em_lsr, soak
from benchmarks.__main__ import NAMES
from benchmarks.paper import frame
from benchmarks.paper.elections import ELECTIONS, ballots_of, by_validation
from benchmarks.paper.experiments import EXPERIMENTS
from benchmarks.paper.learning_curves import completed_rankings
from benchmarks.paper.synthetic import simulated
from plmix_dist import PlackettLuceMixture
from plmix_dist.errors import FitError
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings.simulate import draw_rankings
from tests.helpers.oracle import order_probability
from tests.helpers.slow_cells import end, get_warm, is_warm, wait

# `make test` runs three of them, to notice names that have changed.
QUICK = ("kernels", "range_check", "checkpoints")

# Even in small these take more than five seconds.
LONG = ("startup", "iteration", "fits", "passes", "growth", "out_of_core", "arena")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG else () if name in QUICK else pytest.mark.full)
        for name in NAMES
    ],
)
def test_benchmark__runs_in_small(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    if name == "blocs":
        pytest.importorskip("votekit", reason="needs votekit, which wants another numba")
    rows = importlib.import_module(f"benchmarks.{name}").run(tiny=True)
    assert rows
    assert np.isfinite([value for row in rows for value in row.values() if isinstance(value, int | float)]).all()
    assert list(tmp_path.glob("*.json"))


@pytest.mark.slow
def test_soak__one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    (row,) = soak.run(tiny=True)  # raises if a fit has other bits than its twin
    assert (row["fits"], row["kills"] >= 1) == (3, True)


@pytest.mark.full
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_of_the_paper__runs_in_small_and_goes_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    table = frame.run(EXPERIMENTS[name], "tiny", budgeted=False)
    (kept,) = (tmp_path / "paper").glob("*.jsonl")
    lines = kept.read_text().splitlines()
    assert len(lines) == len(EXPERIMENTS[name].cells("tiny"))

    def refuse(cell: dict[str, Any]) -> Any:
        raise AssertionError(f"{cell} was measured again")

    # A line that was cut off is measured again; nothing else is.
    assert frame.run(EXPERIMENTS[name]._replace(measure=refuse), "tiny", budgeted=False) == table
    kept.write_text("\n".join(lines)[:-5])
    with pytest.raises(AssertionError, match="was measured again"):
        frame.run(EXPERIMENTS[name]._replace(measure=refuse), "tiny", budgeted=False)


@pytest.mark.full
def test_experiment__a_cell_that_takes_too_long_is_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    cells = [{"seconds": 1}, {"seconds": 0}]
    slow = frame.Experiment("slow", "", lambda _: cells, wait, lambda rows: rows, budget=5.0)
    # The table says what is missing.
    assert frame.run(slow, "tiny") == [{"seconds": 0, "x": 1.0, "NA": 0}, {"seconds": 1, "x": "NA", "NA": 1}]


@pytest.mark.full
def test_experiment__a_cell_that_ends_its_process_is_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    cells = [{"status": 9}, {"status": 0}]
    deadly = frame.Experiment("deadly", "", lambda _: cells, end, lambda rows: rows)
    assert frame.run(deadly, "tiny")[0] == {"status": 0, "x": 1.0, "NA": 0}


def test_experiment__goes_on_after_a_line_that_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    measured: list[Any] = []

    def measure(cell: dict[str, Any]) -> dict[str, Any]:
        measured.append(cell["a"])
        return {"x": 1.0}

    cells = [{"a": number} for number in range(3)]
    cut = frame.Experiment("cut", "", lambda _: cells, measure, lambda rows: rows)
    frame.run(cut, "tiny", budgeted=False)
    kept = tmp_path / "paper" / "cut-tiny.jsonl"
    kept.write_text(kept.read_text()[:-5])
    for _ in range(2):
        frame.run(cut, "tiny", budgeted=False)
    assert measured == [0, 1, 2, 2]  # the second time nothing is left to do


@pytest.mark.full
def test_paper_em_lsr__ends_where_our_fit_ends() -> None:
    # The yardstick of complete fits must solve the same problem as well as we do.
    table = paper_em_lsr.simulated(8, 2, 2_000)
    published = paper_em_lsr.fit(table, 2)
    model = PlackettLuceMixture(2, alpha=0, random_state=0).fit(table)
    assert published.mean_log_likelihood == pytest.approx(model.log_likelihood_ / len(table), abs=1e-4)
    assert published.mean_log_likelihood <= model.log_likelihood_ / len(table) + 1e-9
    assert matched_distance(np.log(published.worths), model.log_worths_) < 0.05


def test_paper_em_lsr__likelihood_by_its_definition() -> None:
    worths = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    shares = np.array([0.25, 0.75])
    rows = [(0, 1, 2), (2, 1, 0), (1, 2, 0)]
    chances = [
        [share * order_probability(own, row, range(3)) for own, share in zip(worths, shares, strict=True)]
        for row in rows
    ]
    posterior, log_likelihood = paper_em_lsr._e_step(np.array(rows), worths, shares)
    assert log_likelihood == pytest.approx(np.log(np.sum(chances, axis=1)).sum())
    np.testing.assert_allclose(posterior.T, chances / np.sum(chances, axis=1, keepdims=True))


@pytest.mark.full
def test_in_fresh_process__result_and_its_own_memory() -> None:
    held = np.ones(40_000_000)  # 320 MB here, which the other process must not be charged with
    result, peak = common.in_fresh_process(divmod, 17, 5)
    assert result == (3, 2)
    assert 5e6 < peak < held.nbytes


@pytest.mark.full
def test_real_data_table__what_was_drawn_is_not_told_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.delenv("PLMIX_SUSHI", raising=False)
    sizes: list[int] = []

    def measure(cell: dict[str, Any]) -> dict[str, Any]:
        sizes.append(len(ballots_of(cell["data"], cell["source"])))
        return {"K": 2, "test log-likelihood": -1.0, "seconds at K": 1.0, "seconds of all K": 1.0}

    table = ELECTIONS._replace(measure=measure)
    assert {row["drawn"] for row in frame.run(table, "tiny", budgeted=False)} == {"yes"}
    rankings = tmp_path / "sushi.soc"
    names = "".join(f"# ALTERNATIVE NAME {item}: {item}\n" for item in range(1, 11))
    rankings.write_text(
        "# NUMBER ALTERNATIVES: 10\n# NUMBER VOTERS: 7\n# NUMBER UNIQUE ORDERS: 2\n"
        f"{names}4: 1,2,3,4,5,6,7,8,9,10\n3: 10,9,8,7,6,5,4,3,2,1\n"
    )
    monkeypatch.setenv("PLMIX_SUSHI", str(rankings))
    assert {row["drawn"] for row in frame.run(table, "tiny", budgeted=False)} == {""}
    assert set(sizes[:5]) == {5_000}
    assert set(sizes[5:]) == {7}  # one row per person


def test_learning_curves__ratings_of_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ratings = tmp_path / "ratings.dat"
    lines = [
        f"{user}::{item}::{rng.integers(1, 6)}::0\n" for user in range(1, 41) for item in rng.permutation(12)[:9] + 1
    ]
    ratings.write_text("".join(lines))
    found = completed_rankings(str(ratings), n_users=30, n_all=12, n_items=5)
    assert found.shape == (30, 5)
    assert (np.sort(found, axis=1) == np.arange(5)).all()


def test_bounds__norm_and_gap_by_their_definition() -> None:
    (cell,) = EXPERIMENTS["bounds"].cells("tiny")
    found = EXPERIMENTS["bounds"].measure(cell)
    truth, block = simulated(cell)
    _, components = draw_rankings(  # the same draws again
        truth, np.full(2, 0.5), cell["m"], np.random.default_rng([2, cell["m"], cell["trial"], 2])
    )
    before = [(i, j) for i in range(cell["n"]) for j in range(i + 1, cell["n"])]
    centres = np.array([[1 / (1 + np.exp(own[j] - own[i])) for i, j in before] for own in truth])
    rows = [[float(row.index(i) < row.index(j)) for i, j in before] for row in block.to_array().tolist()]
    norm = np.linalg.norm(np.array(rows) - centres[np.asarray(components)], ord=2)
    assert found["norm of the noise"] == pytest.approx(norm)
    assert found["over sqrt(n (m + n))"] == pytest.approx(norm / np.sqrt(cell["n"] * (cell["m"] + cell["n"])))
    assert found["gap of centres"] == pytest.approx(np.linalg.norm(centres[0] - centres[1]))


def test_pages__name_experiments_that_are_there() -> None:
    pages = (Path(__file__).parents[2] / "docs").glob("**/*.md")
    named = [
        name
        for page in pages
        for names in re.findall(r"python -m benchmarks\.paper((?: [a-z][a-z_-]*)*)", page.read_text())
        for name in names.split()
    ]
    assert named
    assert set(named) <= set(EXPERIMENTS)


@pytest.mark.full
def test_by_validation__a_number_of_components_without_an_estimate_is_passed_over() -> None:
    rng = np.random.default_rng(0)
    ballots = np.array([rng.permutation(6) for _ in range(60)])
    found = by_validation("EM-LSR", ballots, 0, (1, 8), np.random.default_rng(0))
    assert found["K"] == 1
    assert found["K without estimate"] == "8"
    with pytest.raises(FitError):
        by_validation("EM-LSR", ballots, 0, (8,), np.random.default_rng(0))


@pytest.mark.full
def test_experiment__a_new_process_is_warm_before_it_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    cells = [{"a": 0}]
    warmed = frame.Experiment("warmed", "", lambda _: cells, is_warm, lambda rows: rows, warm_up=get_warm)
    assert frame.run(warmed, "tiny") == [{"a": 0, "warm": True}]
    timed = [own for own in EXPERIMENTS.values() if any("seconds" in name for name in _tiny_columns(own))]
    assert all(own.warm_up is not None for own in timed)
    assert len(timed) >= 6


def _tiny_columns(experiment: frame.Experiment) -> set[str]:
    return set(experiment.measure(experiment.cells("tiny")[0]))
