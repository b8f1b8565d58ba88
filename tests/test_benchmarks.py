"""Benchmarks run in small, so that they do not rot."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from oracle import order_probability

from benchmarks import common, paper_em_lsr
from benchmarks.__main__ import NAMES
from benchmarks.paper.__main__ import NAMES as EXPERIMENTS
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


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_of_the_paper__runs_in_small_and_resumes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    module = importlib.import_module(f"benchmarks.paper.{name}")
    rows = module.run("tiny")
    (path,) = tmp_path.glob("*.jsonl")
    kept = path.read_text()
    assert len(kept.splitlines()) >= len(rows) > 0
    monkeypatch.setattr(module, "_trial", None)  # nothing is computed again
    assert module.run("tiny") == rows
    assert path.read_text() == kept


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
