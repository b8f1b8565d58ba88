"""The overview of the data: sizes and streams of its samples."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from plmix_dist import PlackettLuceMixture, RankingBlock, SpectralPlackettLuce
from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting import fit as fit_module
from plmix_dist.fitting import overview as look
from plmix_dist.fitting import overview as look_module
from plmix_dist.fitting import search as sample_fits
from plmix_dist.fitting.em import Em
from plmix_dist.fitting.overview import take_overview
from plmix_dist.passes import ThreadedPasses
from plmix_dist.passes.dask import DistributedPasses
from plmix_dist.rankings import sampling as randomness
from plmix_dist.rankings.groups import merge_equal_rows
from plmix_dist.rankings.sampling import sample_rows
from plmix_dist.rankings.simulate import draw_rankings
from tests.helpers.fit_oracle import slate

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import NDArray

    Table = NDArray[np.float64]


class Asked(Exception):  # noqa: N818 - carries what a fit was asked to do
    """What a fit to a part of the rows was asked to do."""

    def __init__(self, rows: float, em: Em, cuts: Any, n_kept: int) -> None:
        super().__init__()
        self.rows, self.em, self.cuts, self.n_kept = rows, em, cuts, n_kept


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asked]:
    """Calls a fit to a part of the rows, and tells what would be run."""

    def stop(passes: Any, em: Em, candidates: Any, *, cuts: Any, n_kept: int, **options: Any) -> Any:
        raise Asked(em.weight, em, list(cuts), n_kept)

    monkeypatch.setattr(sample_fits, "run_to_ends", stop)

    def call(fit: Callable[..., Any], *arguments: Any) -> Asked:
        with pytest.raises(Asked) as caught:
            fit(*arguments)
        return caught.value

    return call


def test_look__size_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    rankings = as_rankings(np.tile([[0, 1, 2], [2, 1, 0]], (125_000, 1)))
    found = take_overview(ThreadedPasses(rankings, n_threads=1), rankings, seed=1)
    assert found.extent == (250_000.0, 250_000, 750_000, 0, 0, 0, 0)
    assert found.sample.total_weight == pytest.approx(100_000, rel=0.02)
    assert found.small_sample.total_weight == pytest.approx(20_000, rel=0.05)
    assert found.share == found.sample.n_rankings / 250_000
    # Rows of three items: a bound on listed items is a bound on a third as many rows.
    monkeypatch.setattr(look, "_MOST_LISTED", 90_000)
    found = take_overview(ThreadedPasses(rankings, n_threads=1), rankings, seed=1)
    assert found.sample.total_weight == pytest.approx(30_000, rel=0.05)


@pytest.mark.parametrize(
    ("mean_listed", "n_rankings", "share"),
    [(10.0, 50_000, 1.0), (10.0, 10**6, 0.1), (1000.0, 10**6, 2**24 / 10**9)],
    ids=["all", "rows", "listed items"],
)
def test_look__share_of_rows(mean_listed: float, n_rankings: int, share: float) -> None:
    asked: list[Any] = []

    def run(requests: Any) -> Any:
        asked.extend(requests)
        raise LookupError("seen enough")

    rankings: Any = SimpleNamespace(mean_listed=mean_listed, n_weighted=n_rankings, n_items=10)
    passes: Any = SimpleNamespace(run=run)
    with pytest.raises(LookupError, match="seen enough"):
        take_overview(passes, rankings, seed=3)
    assert asked[0].params == (pytest.approx(share), 3)


Stream = tuple[int, str, tuple[int, ...]]


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[Stream]]:
    """Notes the streams of random numbers that a module asks for."""

    def noted_in(module: Any) -> list[Stream]:
        noted: list[Stream] = []

        def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
            noted.append((seed, purpose, key))
            return randomness.generator(seed, purpose, *key)

        monkeypatch.setattr(module, "generator", generator)
        return noted

    return noted_in


def test_look__one_stream_per_leaf(streams: Callable[[Any], list[Stream]]) -> None:
    rankings = as_rankings(np.tile([[0, 1, 2]], (20_000, 1)))
    noted = streams(look)
    look.take_overview(ThreadedPasses(rankings, n_threads=1), rankings, seed=7)
    n_leaves = rankings.n_leaves
    assert n_leaves > 3
    assert sorted(noted) == [*((7, "sample", (leaf,)) for leaf in range(n_leaves)), (7, "small-sample", ())]


def test_sample_rows__share_and_order() -> None:
    block, _ = draw_rankings(np.zeros((1, 6)), np.ones(1), 1_000, np.random.default_rng(0))
    numbered = block.replace(ids=np.arange(1_000))
    sizes, chosen = [], np.zeros(1_000)
    for seed in range(300):
        sample = sample_rows(numbered, 0.1234, np.random.default_rng(seed))
        sizes.append(sample.n_rankings)
        assert (np.diff(sample.ids) > 0).all()
        chosen[sample.ids] += 1
    assert set(sizes) == {123, 124}
    assert statistics.fmean(sizes) == pytest.approx(123.4, abs=0.1)
    # Every row has the same chance: counts lie within six standard deviations.
    assert np.abs(chosen - 300 * 0.1234).max() < 6 * math.sqrt(300 * 0.1234 * 0.8766)
    again = [sample_rows(block, 0.3, np.random.default_rng(7)) for _ in range(2)]
    assert again[0].equals(again[1])
    assert sample_rows(block, 1.0, np.random.default_rng(0)) is block


def test_sample_rows__weights_are_thinned() -> None:
    block = RankingBlock.from_array([[0, 1, 2]] * 2_000, weights=np.full(2_000, 1_000))
    kept = sample_rows(block, 0.3, np.random.default_rng(1)).weights
    assert kept is not None
    assert len(kept) == 2_000
    assert_array_equal(kept, kept.round())
    assert kept.mean() == pytest.approx(300, abs=6 * math.sqrt(210 / 2_000))
    assert kept.var() == pytest.approx(210, rel=0.2)


def test_sample_rows__other_weights_stay_whole() -> None:
    block = RankingBlock.from_array([[0, 1]] * 4_000, weights=np.full(4_000, 2.5))
    kept = sample_rows(block, 0.25, np.random.default_rng(1))
    assert set(kept.weights.tolist()) == {2.5}  # type: ignore[union-attr]
    assert kept.n_rankings == pytest.approx(1_000, abs=6 * math.sqrt(750))


def test_sample_rows__groups_stay_whole() -> None:
    rows = [slate([0, 1, 2], [])] * 3_000
    block = RankingBlock.from_rows(rows, n_items=3, groups=[number // 3 for number in range(3_000)])
    sample = sample_rows(block, 0.4, np.random.default_rng(0))
    assert set(np.unique(sample.groups, return_counts=True)[1].tolist()) == {3}
    assert sample.n_rankings == pytest.approx(1_200, abs=18 * math.sqrt(240))


@pytest.fixture(scope="module")
def sorted_table() -> NDArray[np.int64]:
    """50,000 rankings, all of one component before those of the other, which is what files look like."""
    up, _ = draw_rankings(np.array([[4.0, 2, 0, -2, -4]]), np.ones(1), 30_000, np.random.default_rng(0))
    down, _ = draw_rankings(np.array([[-4.0, -2, 0, 2, 4]]), np.ones(1), 20_000, np.random.default_rng(1))
    return np.concatenate([up.to_array(), down.to_array()])


@pytest.mark.promise(10)
@pytest.mark.promise(11)
def test_take_look__same_sample(
    sorted_table: NDArray[np.int64], client: Client, graph_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_module, "_SAMPLE_ROWS", 20_000)
    rankings = as_rankings(sorted_table)
    lazy = as_rankings(da.from_array(sorted_table, chunks=(7_001, 3)))
    expected = take_overview(ThreadedPasses(rankings, n_threads=1), rankings, 3)
    ways = [ThreadedPasses(rankings, n_threads=n, residency="store") for n in (2, 3, 8)]
    ways += [DistributedPasses(rankings, client, n_tasks=n) for n in (1, 3, 8)]  # type: ignore[list-item]
    ways += [DistributedPasses(rankings, graph_client), DistributedPasses(lazy, client, residency="store")]  # type: ignore[list-item]
    for passes in ways:
        found = take_overview(passes, rankings, 3)
        assert found.sample.equals(expected.sample)
        assert (found.extent, found.share) == (expected.extent, expected.share)
    assert expected.extent == (50_000, 50_000, 250_000, 0, 0, 0, 0)
    assert expected.sample.n_rankings == pytest.approx(20_000, abs=13)  # a row more or less a leaf
    assert not take_overview(ways[0], rankings, 4).sample.equals(expected.sample)


def test_take_look__sorted_files(sorted_table: NDArray[np.int64]) -> None:
    rankings = as_rankings(sorted_table)
    sample = take_overview(ThreadedPasses(rankings), rankings, 0).sample
    firsts = sample.items[sample.offsets[:-1]]
    assert (firsts <= 2).mean() == pytest.approx(0.6, abs=0.02)
    model = SpectralPlackettLuce(2, random_state=0).fit(sorted_table)
    assert_allclose(model.shares_, [0.6, 0.4], atol=0.01)


def test_take_look__leaves_draw_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "_SAMPLE_ROWS", 20_000)
    # Eight leaves of the same 4,096 orders: were all to draw alike, the same orders would come from each.
    orders = np.array(list(itertools.islice(itertools.permutations(range(7)), 4096)))
    rankings = as_rankings(np.tile(orders, (8, 1)))
    sample = take_overview(ThreadedPasses(rankings), rankings, 0).sample
    assert sample.n_rankings == pytest.approx(20_000, abs=8)
    # Each order has eight chances of 0.61, and goes without with 0.39 ** 8.
    assert len(np.unique(sample.to_array(), axis=0)) > 4_050


def test_take_look__long_rows_count_as_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    # As where 20,000 items make leaves of a billion listed ones; a file sorted by length is all it takes.
    monkeypatch.setattr(look_module, "_MOST_LISTED", 40_000)
    table = np.full((16_384, 10), -1)
    table[:8_192] = np.arange(10)
    table[8_192:, 0] = 3
    rankings = as_rankings(table, unranked="below")
    sample = take_overview(ThreadedPasses(rankings), rankings, 0).sample
    assert (sample.n_listed == 10).mean() == pytest.approx(0.5, abs=0.05)


def test_take_look__rows_without_weight_do_not_count() -> None:
    table = np.tile(np.arange(5), (40_000, 1))
    rankings = as_rankings(table, sample_weight=(np.arange(40_000) % 40 == 0).astype(np.float64))
    assert take_overview(ThreadedPasses(rankings), rankings, 0).sample.n_rankings == 1_000


# --- rows that repeat ------------------------------------------------------------------------------------


def fitted(rows: Any, weights: Any = None, **options: Any) -> Any:
    given = {"alpha": 0.5, "random_state": 0} | options
    return PlackettLuceMixture(2, **given).fit(rows, sample_weight=weights)


@pytest.mark.parametrize("ties", ["none", "half", "expand", "davidson"])
def test_rows_that_repeat__are_those_of_a_merged_store(ties: str) -> None:
    rng = np.random.default_rng(2)
    rows = np.array([rng.permutation(4) for _ in range(9_000)])
    rows[:4_000] = np.where(np.arange(9_000)[:4_000, None] % 3 > 0, [0, 1, 2, 3], rows[:4_000])
    block = RankingBlock.from_array(rows)
    if ties != "none":
        tied = np.zeros((9_000, 4), np.bool_)
        tied[::5, 1] = True
        block = block.replace(tied=tied.ravel())
    options = {} if ties == "none" else {"ties": ties}
    one_by_one = fitted(block, np.append(np.ones(8_999), 1 + 1e-9), **options)
    merged = fitted(merge_equal_rows(block), **options)
    assert_allclose(one_by_one.log_likelihood_, merged.log_likelihood_, rtol=1e-8)
    assert_allclose(one_by_one.log_worths_, merged.log_worths_, atol=1e-3)
    assert one_by_one.about_["data"]["n_rankings"] == 9_000


def test_rows_that_repeat__are_merged_where_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[Any] = []
    merge = fit_module.merge_if_few
    monkeypatch.setattr(fit_module, "merge_if_few", lambda *given: merged.append(merge(*given)) or merged[-1])
    rng = np.random.default_rng(0)
    few = np.array([rng.permutation(3) for _ in range(9_000)])
    persons = RankingBlock.from_array(few).replace(groups=np.arange(9_000) // 2)
    for rows, options, merges in (
        (few, {}, True),
        (np.array([rng.permutation(8) for _ in range(9_000)]), {}, False),
        (persons, {}, False),
        (few, {"m_step": "stochastic-lsr", "max_iter": 3}, False),
        (few, {"ties": "resample"}, False),
        (RankingBlock.from_array(few).replace(tied=np.tile([False, True, False], 9_000)), {"ties": "half"}, True),
        (few[:4_000], {}, False),
    ):
        merged.clear()
        fitted(rows, **options)
        assert any(found is not None for (found,) in merged) == merges


def test_rows_that_repeat__of_very_many_only_where_they_are_very_few(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = RankingBlock.from_array(np.array([np.random.default_rng(row).permutation(5) for row in range(9_000)]))
    rows = as_rankings(orders.replace(sides=np.arange(9_000) % 2))  # which change no fit
    passes = ThreadedPasses(rows)
    extent = take_overview(passes, rows, 0).extent
    (found,) = look.merge_if_few(passes, rows, extent, None)
    assert found is not None
    assert (found.n_rankings, found.total_weight) == (120, 9_000)
    assert look._at_most(found) == 120 * 2**4  # every item but the first may be tied with the one before
    monkeypatch.setattr(look, "_MANY_ROWS", 8_000)
    (found,) = look.merge_if_few(passes, rows, extent, None)
    assert found is not None
    monkeypatch.setattr(look, "_MOST_DIFFERENT_OF_MANY", 1 / 128)
    assert look.merge_if_few(passes, rows, extent, None) == (None,)


def test_rows_that_repeat__hardly_looked_for_where_the_first_leaves_settle_it() -> None:
    table = np.argsort(np.random.default_rng(0).random((40_000, 12)), axis=1)
    rows = as_rankings(RankingBlock.from_array(table))
    passes = ThreadedPasses(rows)
    extent = take_overview(passes, rows, 0).extent
    seen: list[int] = []

    def read(request: Any) -> Any:
        seen.extend(request.leaves)
        return passes.run([request])

    assert rows.n_leaves == 10
    assert look.merge_if_few(SimpleNamespace(run=lambda requests: read(*requests)), rows, extent, None) == (None,)
    assert seen == [0, 1, 2]  # of eight that would be looked at
