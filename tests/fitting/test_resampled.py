"""EM on ties whose orders are drawn: where it settles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from distributed import Client
from numpy.typing import NDArray

from plmix_dist import PlackettLuceMixture, RankingBlock
from plmix_dist.errors import NotIdentifiedError
from plmix_dist.rankings import Ranking
from tests.helpers.fit_oracle import block_of
from tests.helpers.oracle import write_store


def tied(*places: tuple[int, ...]) -> Ranking:
    return Ranking(places, (), "absent", 1.0)


def test_resample__settles_without_a_prior_near_the_exact_maximum() -> None:
    rng = np.random.default_rng(5)
    rows = []
    for _ in range(60):
        a, b, c, d = rng.permutation(4).tolist()
        rows.append(tied((a, b), (c,), (d,)) if rng.random() < 0.5 else tied((a,), (b, c), (d,)))
    block = RankingBlock.from_rows(rows, n_items=4)
    exact = PlackettLuceMixture(1, alpha=0, ties="marginal", random_state=1).fit(block)
    drawn = PlackettLuceMixture(1, alpha=0, ties="resample", random_state=1).fit(block)
    assert drawn.converged_
    assert np.abs(drawn.log_worths_ - exact.log_worths_).max() < 0.05


@pytest.mark.filterwarnings("ignore:2 components are not identifiable")
def test_resample__says_that_a_component_has_no_maximum() -> None:
    rows = [tied((0, 1), (2,), (3,))] * 20 + [tied((3, 2), (1,), (0,))] * 20
    with pytest.raises(NotIdentifiedError, match="no maximum-likelihood estimate"):
        PlackettLuceMixture(2, alpha=0, ties="resample", random_state=0).fit(RankingBlock.from_rows(rows, n_items=4))


Table = NDArray[np.float64]


def rounded_rankings(seed: int, n_rows: int, n_items: int, n_components: int) -> tuple[list[Ranking], Table]:
    """Rankings by utilities rounded to a coarse grid, so that many items are tied; the best items are listed."""
    draw = np.random.default_rng(seed)
    log_worths = 1.5 * draw.standard_normal((n_components, n_items))
    rows = []
    for _ in range(n_rows):
        utility = log_worths[draw.integers(n_components)] + draw.gumbel(size=n_items)
        grades = np.round(utility)
        order = sorted(set(grades.tolist()), reverse=True)[:-1] or [grades.max()]
        places = tuple(tuple(np.flatnonzero(grades == grade).tolist()) for grade in order)
        listed = sum(map(len, places))
        rows.append(Ranking(places, (), "below" if listed < n_items else "absent", 1.0))
    return rows, log_worths - log_worths.mean(axis=1, keepdims=True)


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
def test_fit__resample_settles_near_the_exact_fit(tmp_path: Path, client: Client) -> None:
    rows, _ = rounded_rankings(5, 400, 5, 2)
    store = write_store(tmp_path / "store", [[block_of(rows, 5)]], leaf_rows=100)
    exact = PlackettLuceMixture(2, ties="marginal", random_state=0).fit(store, client=False)
    here, there = (
        PlackettLuceMixture(2, ties="resample", init=exact, random_state=3).fit(store, client=where)
        for where in (False, client)
    )
    assert here.log_worths_.tobytes() == there.log_worths_.tobytes()
    assert here.converged_
    assert {record["step"] for record in here.history_} == {"burn-in", "resample"}
    # It scores like the exact sum over orders, and ends below its maximum, by little.
    assert exact.objective_ - 0.01 * len(rows) < here.objective_ <= exact.objective_
    assert here.score(store) * len(rows) == pytest.approx(here.log_likelihood_, rel=1e-11)
    few = [PlackettLuceMixture(2, ties="resample", init=exact, random_state=seed, max_iter=3) for seed in (3, 4)]
    assert few[0].fit(store).log_worths_.tobytes() != few[1].fit(store).log_worths_.tobytes()
