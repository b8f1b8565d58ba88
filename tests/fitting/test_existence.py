"""Without a prior: where no estimate exists, a fit is refused and says why, also where ties are summed over."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from plmix_dist import PlackettLuceMixture, RankingBlock
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import NotIdentifiedError
from plmix_dist.fitting import fit as fit_module
from plmix_dist.fitting.em import Candidate, Em, run_to_ends
from plmix_dist.fitting.existence import why_no_maximum
from plmix_dist.fitting.point import Point
from plmix_dist.passes import ThreadedPasses
from plmix_dist.rankings import Ranking
from plmix_dist.rankings.comparison import add_comparisons, comparison_graph, comparisons
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import MM
from tests.helpers.fit_oracle import block_of, log_likelihood, random_rows, slate, top
from tests.helpers.marks import examples
from tests.helpers.oracle import rankings, write_store


def tied(*places: tuple[int, ...]) -> Ranking:
    return Ranking(places, (), "absent", 1.0)


def item_above_places_after(row: Ranking, n_items: int) -> set[tuple[int, int]]:
    """Every item of a place above every item of later places and what is left of the offer; no pair within a place."""
    listed = [item for place in row.ordered for item in place] + list(row.offered)
    left = set(range(n_items)) if row.unranked == "below" else set(listed)
    pairs = set()
    for place in row.ordered:
        left -= set(place)
        pairs |= {(winner, loser) for winner in place for loser in left}
    return pairs


@st.composite
def some_rows(draw: st.DrawFn) -> tuple[int, list[Ranking]]:
    n_items = draw(st.integers(2, 9))
    return n_items, draw(st.lists(rankings(n_items), min_size=1, max_size=6))


@examples(150)
@given(case=some_rows(), cut=st.integers(0, 6))
def test_graph__without_pairs_of_tied_items(case: tuple[int, list[Ranking]], cut: int) -> None:
    n_items, rows = case
    block = RankingBlock.from_rows(rows, n_items=n_items)
    graph = comparison_graph(
        add_comparisons(*(comparisons(part, ties_compare=False) for part in (block[:cut], block[cut:])))
    )
    above = np.zeros((n_items, n_items), np.bool_)
    for row in rows:
        for winner, loser in item_above_places_after(row, n_items):
            above[winner, loser] = True
    n_groups, labels = connected_components(above, connection="strong")
    assert graph.n_groups == n_groups
    assert np.array_equal(graph.group[:, None] == graph.group, labels[:, None] == labels)
    assert set(graph.never_above) == set(np.flatnonzero(~above.any(axis=1))) - set(graph.never_offered)
    assert set(graph.never_below) == set(np.flatnonzero(~above.any(axis=0))) - set(graph.never_offered)


# Item 1 is never below another. Extensions of the ties put it below 0 half of the time; the sum over orders does not.
NEVER_BELOW = [tied((0, 1), (2,))] * 6 + [tied((2,), (0,))] * 5 + [tied((0,), (2,))] * 2


def test_fit__is_refused_where_only_ties_compare_an_item() -> None:
    block = RankingBlock.from_rows(NEVER_BELOW, n_items=3)
    assert PlackettLuceMixture(1, alpha=0, ties="expand").fit(block).converged_
    for ties in ("marginal", "resample"):
        with pytest.raises(NotIdentifiedError, match="never below another item: 1"):
            PlackettLuceMixture(1, alpha=0, ties=ties).fit(block)


def test_maximum__is_refused_where_only_ties_hold_an_item() -> None:
    passes = ThreadedPasses(as_rankings(RankingBlock.from_rows(NEVER_BELOW, n_items=3), ties="marginal"))
    point = Point.start(np.array([[0.0, 30.0, 0.7]]), np.ones(1))
    assert "can fall without end" in str(why_no_maximum(passes, point, ["0", "1", "2"]))


UNFINISHED = pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")


def random_state(seed: int, n_components: int, n_items: int, spread: float = 1.0) -> Point:
    rng = np.random.default_rng(seed)
    worths = rng.normal(0, spread, (n_components, n_items))
    return Point.start(worths, rng.dirichlet(np.full(n_components, 5.0)))._replace(ghosts=rng.normal(size=n_components))


NO_ESTIMATE = {
    "disconnected": (
        [slate([0, 1], []), slate([1, 0], []), slate([2, 3], []), slate([3, 2], [])],
        r"2 groups that are not compared both ways \(not compared both ways with the rest: mate, water\)",
    ),
    "never wins": ([top(0, 1, 3), top(3, 0, 1), top(1, 3, 0)], r"never above another item: mate"),
    "never loses": (
        [slate([2, 0, 1, 3], []), slate([2, 3, 1, 0], []), slate([2, 1, 0, 3], [])],
        r"never below another item: mate",
    ),
    "never on offer": ([slate([0, 1, 3], []), slate([3, 1, 0], [])], r"never on offer: mate"),
    "one way only": (
        [slate([0, 1], []), slate([1, 0], []), slate([2, 3], []), slate([3, 2], []), slate([0, 2], [])],
        r"not compared both ways with the rest: mate, water",
    ),
}


@pytest.mark.promise(22)
@pytest.mark.parametrize(("rows", "message"), NO_ESTIMATE.values(), ids=NO_ESTIMATE.keys())
@pytest.mark.parametrize("n_components", [1, 2])
def test_fit__no_estimate(tmp_path: Any, rows: list[Ranking], message: str, n_components: int) -> None:
    names = ["tea", "coffee", "mate", "water"]
    store = write_store(tmp_path / "store", [[block_of(rows, 4)]], item_names=names)
    with pytest.raises(NotIdentifiedError, match=f"no maximum-likelihood estimate exists: .*{message}") as caught:
        PlackettLuceMixture(n_components, alpha=0).fit(store)
    assert "Choose alpha > 0, or leave these items out" in str(caught.value)
    # The remedy is one.
    assert PlackettLuceMixture(1, alpha=0.1).fit(store).converged_


def test_fit__rows_of_weight_zero_connect_nothing() -> None:
    rankings = np.array([[0, 1], [1, 0], [0, 1]])
    PlackettLuceMixture(1, alpha=0).fit(rankings)
    with pytest.raises(NotIdentifiedError, match="never above another item: 1; never below another item: 0"):
        PlackettLuceMixture(1, alpha=0).fit(rankings, sample_weight=[1, 0, 1])


@pytest.mark.promise(22)
@pytest.mark.parametrize("m_step", ["lsr", "mm"])
@pytest.mark.parametrize("accelerate", [True, False], ids=["anderson", "plain"])
@pytest.mark.parametrize("spread", [3.0, 300.0])
def test_fit__component_without_estimate(m_step: Any, accelerate: bool, spread: float) -> None:
    # All items are connected, but each component takes all rows of one order, and in these items never lose.
    rankings = np.array([[0, 1, 2]] * 5 + [[2, 1, 0]] * 5)
    start = spread / 2 * np.array([[1.0, 0.0, -1.0], [-1.0, 0.0, 1.0]])
    model = PlackettLuceMixture(2, alpha=0, init=start, m_step=m_step, accelerate=accelerate, max_iter=3_000)
    with pytest.raises(NotIdentifiedError, match=r"component [01] has no maximum-likelihood estimate") as caught:
        model.fit(rankings)
    message = str(caught.value)
    assert "Choose alpha > 0, or fewer components" in message
    assert "'0'" in message
    assert "'2'" in message
    assert "nan" not in message


@pytest.mark.promise(22)
@UNFINISHED
@pytest.mark.parametrize("seed", range(4))
def test_fit__no_maximum_although_gradients_vanish(seed: int) -> None:
    # Few top-5 rankings of 20 items: some component's rankings never name some item. Its log-worth falls without end,
    # slower and slower, until the gradient is as small as is asked for.
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(3, 20))
    block, _ = draw_rankings(truth, np.full(3, 1 / 3), 100, rng, length=5, unranked="below")
    with pytest.raises(NotIdentifiedError, match=r"component \d has no maximum-likelihood estimate") as caught:
        PlackettLuceMixture(3, alpha=0, random_state=0, max_iter=1_000).fit(block)
    assert "Choose alpha > 0, or fewer components" in str(caught.value)
    assert PlackettLuceMixture(3, alpha=0.1, random_state=0).fit(block).objective_ < 0


@UNFINISHED
@pytest.mark.parametrize("seed", [0, 1])
def test_fit__that_has_not_converged_is_not_refused(seed: int) -> None:
    # Item 9 wins 3 times of 10,000: there is a maximum, far from where the fit begins.
    rng = np.random.default_rng(seed)
    rows = np.array([[*rng.permutation(9), 9] for _ in range(10_000)])
    rows[:3] = np.roll(rows[:3], 1, axis=1)
    short = PlackettLuceMixture(1, alpha=0, random_state=0, max_iter=1).fit(rows)
    assert not short.converged_
    assert PlackettLuceMixture(1, alpha=0, random_state=0).fit(rows).converged_


@pytest.mark.promise(22)
@pytest.mark.parametrize("n_without", [0, 1, 2])
def test_fit__a_start_without_a_maximum_makes_way(monkeypatch: pytest.MonkeyPatch, n_without: int) -> None:
    rows = random_rows(3, 4, 40)
    passes = ThreadedPasses(as_rankings(block_of(rows, 4)))
    em = Em(MM, 0.1, weight=math.fsum(row.weight for row in rows), n_rankings=40, max_iter=4_000, tol=1e-7)
    ends = run_to_ends(passes, em, [Candidate(random_state(seed, 3, 4), {}) for seed in range(2)])
    order = sorted(ends.runs, key=lambda number: -(ends.runs[number].objective or 0.0))
    without = [ends.runs[number].point for number in order[:n_without]]

    def check(passes: Any, point: Point, names: Any) -> NotIdentifiedError | None:
        return NotIdentifiedError("no maximum") if any(point is refused for refused in without) else None

    monkeypatch.setattr(fit_module, "why_no_maximum", check)
    if n_without == 2:
        with pytest.raises(NotIdentifiedError, match="no maximum"):
            fit_module.with_maximum(passes, ends, ["a"] * 4)
        return
    kept = fit_module.with_maximum(passes, ends, ["a"] * 4)
    assert sorted(kept.failed) == sorted(order[:n_without])
    assert fit_module.best_of(kept) == order[n_without]


def test_why_no_maximum__by_the_likelihood_itself() -> None:
    rows = [*random_rows(3, 4, 40), slate([0, 1, 2, 3], []), slate([3, 2, 1, 0], [])]
    passes = ThreadedPasses(as_rankings(block_of(rows, 4)))
    names = ["tea", "coffee", "mate", "water"]
    fitted = PlackettLuceMixture(1, alpha=0, tol=1e-10).fit(block_of(rows, 4))
    there = Point.start(fitted.log_worths_, np.ones(1))
    assert why_no_maximum(passes, there, names) is None
    # A second component that holds one ranking alone: its last item may fall for ever, and the likelihood says so.
    apart = Point.start(np.vstack([fitted.log_worths_, [[40.0, 13.0, -13.0, -40.0]]]), np.array([0.98, 0.02]))
    error = why_no_maximum(passes, apart, names)
    assert isinstance(error, NotIdentifiedError)
    assert re.search(r"component 1 has no .* log-worths of water", str(error))
    before, after = (
        log_likelihood(rows, 4, apart.log_worths - shift, [0.98, 0.02])
        for shift in (np.zeros((2, 4)), np.array([[0.0] * 4, [0, 0, 0, 20.0]]))
    )
    assert after >= before - 1e-9
