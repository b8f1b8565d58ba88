"""Benchmarks run in small, so that they do not rot."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from oracle import order_probability
from slow_cells import wait

from benchmarks import common, paper_em_lsr, soak
from benchmarks.__main__ import NAMES
from benchmarks.paper import frame
from benchmarks.paper.experiments import EXPERIMENTS
from plmix_dist import PlackettLuceMixture
from plmix_dist.metrics import matched_distance

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", NAMES)
def test_benchmark__runs_in_small(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    rows = importlib.import_module(f"benchmarks.{name}").run(tiny=True)
    assert rows
    assert np.isfinite(
        [value for row in rows for value in row.values() if isinstance(value, int | float)]
    ).all()
    assert list(tmp_path.glob("*.json"))


@pytest.mark.slow
def test_soak__one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    (row,) = soak.run(tiny=True)  # raises if a fit has other bits than its twin
    assert (row["fits"], row["kills"] >= 1) == (3, True)


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


def test_experiment__a_cell_that_takes_too_long_is_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    cells = [{"seconds": 1}, {"seconds": 0}]
    slow = frame.Experiment("slow", "", lambda _: cells, wait, lambda rows: rows, budget=5.0)
    assert frame.run(slow, "tiny") == [{"seconds": 0, "x": 1.0}]


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


def test_in_fresh_process__result_and_its_own_memory() -> None:
    held = np.ones(40_000_000)  # 320 MB here, which the other process must not be charged with
    result, peak = common.in_fresh_process(divmod, 17, 5)
    assert result == (3, 2)
    assert 5e6 < peak < held.nbytes
