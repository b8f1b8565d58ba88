"""Without a prior: where ties are summed over, they compare nothing, and a fit without a maximum is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Ranking, rankings
from scipy.sparse.csgraph import connected_components

from plmix_dist import PlackettLuceMixture, RankingBlock
from plmix_dist.data import as_rankings
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.errors import NotIdentifiedError
from plmix_dist.inference.existence import check_maximum
from plmix_dist.inference.point import Point
from plmix_dist.rankings.comparison import add_comparisons, comparison_graph, comparisons


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


@settings(max_examples=150)
@given(case=some_rows(), cut=st.integers(0, 6))
def test_graph__without_pairs_of_tied_items(case: tuple[int, list[Ranking]], cut: int) -> None:
    n_items, rows = case
    block = RankingBlock.from_rows(rows, n_items=n_items)
    graph = comparison_graph(
        add_comparisons(comparisons(part, ties_compare=False) for part in (block[:cut], block[cut:]))
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
    with pytest.raises(NotIdentifiedError, match="can fall without end"):
        check_maximum(passes, point, ["0", "1", "2"])


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
        PlackettLuceMixture(2, alpha=0, ties="resample", random_state=0).fit(
            RankingBlock.from_rows(rows, n_items=4)
        )
