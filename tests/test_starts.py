"""Spectral starts: each part against plain Python or NumPy, its laws, and how near whole starts come to the truth."""

from __future__ import annotations

import itertools
import math
import random
import statistics
import time
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from fit_oracle import block_of, drawn_rows, listed_in_order, random_rows, slate, top
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import eigh
from scipy.stats import norm
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError

from plmix_dist import PlackettLuceMixture, RankingBlock, SpectralPlackettLuce
from plmix_dist.data import as_rankings
from plmix_dist.engine import linalg
from plmix_dist.engine.distributed import DistributedPasses
from plmix_dist.engine.linalg import RowMaker, randomized_svd
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.errors import SettingsError, StartWarning
from plmix_dist.inference import look as look_module
from plmix_dist.inference.look import take_look
from plmix_dist.kernels import pairwise_wins
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings.sampling import sample_rows
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings
from plmix_dist.stages import Stages
from plmix_dist.starts import spectral_start
from plmix_dist.starts.clusters import cluster_rows
from plmix_dist.starts.least_squares import least_squares
from plmix_dist.starts.one_model import fit_one_model
from plmix_dist.starts.pairs import PairRows, pair_frequencies, place_table
from plmix_dist.starts.places import PlaceRows
from plmix_dist.starts.spectral_start import SpectralStarter, cluster_worths
from plmix_dist.starts.start_settings import StartSettings
from plmix_dist.starts.svd_rank import rank_above_noise, rank_of_paper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from plmix_dist.rankings import Ranking

    Table = NDArray[np.float64]

EMBEDDINGS = pytest.mark.parametrize("embedding", ["rank", "pairwise"])


@pytest.fixture(scope="module")
def single_worker() -> Iterator[Client]:
    """A cluster of one worker with two threads, in this process to save the start of another."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def copies(rows: Sequence[Ranking]) -> list[Ranking]:
    """Rows of whole weights as that many rows of weight 1, side by side."""
    return [row._replace(weight=1.0) for row in rows for _ in range(int(row.weight))]


def starter_of(block: RankingBlock, n_components: int, **options: Any) -> SpectralStarter:
    return SpectralStarter(block, StartSettings(n_components, **options), Stages())


# --- least squares ---------------------------------------------------------------------------------------


def random_wins(seed: int, n_items: int, seen: float = 1.0) -> Table:
    rng = np.random.default_rng(seed)
    wins = rng.integers(0, 30, (n_items, n_items)).astype(np.float64)
    kept = np.triu(rng.random((n_items, n_items)) < seen, 1)
    wins *= kept | kept.T
    if seen == 1.0:
        wins += 1 - np.eye(n_items)
    np.fill_diagonal(wins, 0)
    return wins


def by_lstsq(wins: Table, quantile: Any, weighted: bool) -> Table:
    """The least-squares problem written out: one equation per pair, and one that makes the mean zero."""
    n_items = len(wins)
    equations, answers = [np.ones(n_items)], [0.0]
    for i, j in itertools.combinations(range(n_items), 2):
        seen = wins[i, j] + wins[j, i]
        if not seen:
            continue
        frequency = (wins[i, j] + 0.5) / (seen + 1)
        # The precision of a difference: that of the frequency and the derivative of the link, by finite differences.
        slope = (quantile(frequency + 1e-6) - quantile(frequency - 1e-6)) / 2e-6
        size = math.sqrt(seen / (frequency * (1 - frequency))) / slope if weighted else 1.0
        equation = np.zeros(n_items)
        equation[i], equation[j] = size, -size
        equations.append(equation)
        answers.append(size * quantile(frequency))
    return np.linalg.lstsq(np.array(equations), np.array(answers), rcond=None)[0]


def log_odds(frequency: float) -> float:
    return math.log(frequency / (1 - frequency))


QUANTILES = pytest.mark.parametrize(("link", "quantile"), [("logit", log_odds), ("probit", norm.ppf)])


@QUANTILES
@given(seed=st.integers(0, 2**32), n_items=st.integers(2, 9))
@settings(max_examples=20)
def test_least_squares__all_pairs(link: str, quantile: Any, seed: int, n_items: int) -> None:
    wins = random_wins(seed, n_items)
    assert_allclose(least_squares(wins, link), by_lstsq(wins, quantile, weighted=False), atol=1e-10)


@QUANTILES
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_least_squares__some_pairs(link: str, quantile: Any, seed: int) -> None:
    wins = random_wins(seed, 12, seen=0.4)
    connected = np.linalg.matrix_power((wins + wins.T > 0) + np.eye(12), 12) > 0
    assert connected.all(), "the oracle needs one solution"
    assert ((wins + wins.T) == 0).sum() > 12
    # The two differ by a very weak prior only.
    assert_allclose(least_squares(wins, link), by_lstsq(wins, quantile, weighted=True), atol=1e-4)


@QUANTILES
def test_least_squares__always_and_never(link: str, quantile: Any) -> None:
    wins = np.triu(np.full((4, 4), 9.0), 1)
    found = least_squares(wins, link)
    assert np.isfinite(found).all()
    step = quantile(9.5 / 10)
    assert_allclose(found, [0.75 * step, 0.25 * step, -0.25 * step, -0.75 * step])


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_least_squares__unconnected_items(link: str) -> None:
    wins = np.zeros((5, 5))
    wins[0, 1], wins[1, 0], wins[2, 3] = 6, 2, 5
    found = least_squares(wins, link)
    assert np.isfinite(found).all()
    assert abs(found.mean()) < 1e-12
    alone = least_squares(wins[:2, :2], link)
    assert found[0] - found[1] == pytest.approx(alone[0] - alone[1], abs=1e-4)
    # Groups that no comparison connects are centred at 0 each.
    assert found[4] == pytest.approx(0, abs=1e-6)
    assert found[0] + found[1] == pytest.approx(0, abs=1e-6)
    assert_array_equal(least_squares(np.zeros((3, 3)), link), np.zeros(3))


@given(seed=st.integers(0, 2**32), n_items=st.integers(2, 8), seen=st.sampled_from([0.5, 1.0]))
@settings(max_examples=40)
@pytest.mark.promise(12)
def test_least_squares__laws(seed: int, n_items: int, seen: float) -> None:
    wins = random_wins(seed, n_items, seen)
    found = least_squares(wins)
    assert abs(found.mean()) < 1e-9
    assert_allclose(least_squares(wins.T), -found, atol=1e-8)
    order = np.random.default_rng(seed).permutation(n_items)
    assert_allclose(least_squares(wins[np.ix_(order, order)]), found[order], atol=1e-8)


# --- places ----------------------------------------------------------------------------------------------


def offers_all(row: Ranking, n_items: int) -> bool:
    return row.unranked == "below" or len(row.ordered) + len(row.offered) == n_items


def surprises(row: Ranking, log_worths: Table) -> dict[int, float]:
    """For each listed item, how many stand before it less how many one model expects there."""
    ordered = listed_in_order(row)
    found = dict.fromkeys((*ordered, *row.offered), 0.0)
    for before, after in itertools.combinations((*ordered, *row.offered), 2):
        if before in ordered:
            upset = math.exp(log_worths[after]) / (math.exp(log_worths[before]) + math.exp(log_worths[after]))
            found[after] += 1 - (1 - upset)
            found[before] += 0 - upset
    return found


def places_by_hand(rows: Sequence[Ranking], n_items: int) -> Table:
    """The rank embedding by its definition."""
    model = fit_one_model(block_of(rows, n_items)).log_worths
    table = np.zeros((len(rows), n_items))
    told = np.array([offers_all(row, n_items) for row in rows])
    weights = np.array([row.weight for row in rows])
    for number, row in enumerate(rows):
        ordered = listed_in_order(row)
        if told[number]:
            table[number] = statistics.fmean(range(len(ordered), n_items)) if len(ordered) < n_items else 0.0
            table[number, ordered] = range(len(ordered))
        else:
            for item, surprise in surprises(row, model).items():
                table[number, item] = surprise
    if told.any():
        table[told] -= np.average(table[told], axis=0, weights=weights[told])
    if np.average([len(row.ordered) for row in rows], weights=weights) < n_items / 2:
        deviation = np.sqrt(np.average(table**2, axis=0, weights=weights))
        table = np.divide(table, deviation, out=np.zeros_like(table), where=deviation > 1e-9)
    return table


def rows_of_kind(kind: str, weighted: bool) -> list[Ranking]:
    rng = random.Random(7)
    rows = []
    for number in range(40):
        order = rng.sample(range(9), 9)
        length = rng.randint(1, 4)
        weight = float(1 + number % 3) if weighted else 1.0
        kinds = ["full", "top-k", "subset", "slate", "slate of all"]
        match rng.choice(kinds) if kind == "mixed" else kind:
            case "full":
                rows.append(slate(order, [], weight=weight))
            case "top-k":
                rows.append(top(*order[:length], weight=weight))
            case "subset":
                rows.append(slate(order[: length + 1], [], weight=weight))
            case "slate":
                rows.append(slate(order[:length], order[length:7], weight=weight))
            case _:
                rows.append(slate(order[:length], order[length:], weight=weight))
    return rows


KINDS = pytest.mark.parametrize("kind", ["full", "top-k", "subset", "slate", "slate of all", "mixed"])


@KINDS
@pytest.mark.parametrize("weighted", [False, True])
def test_place_rows__by_hand(kind: str, weighted: bool) -> None:
    rows = rows_of_kind(kind, weighted)
    embedded = PlaceRows(block_of(rows, 9))
    expected = places_by_hand(rows, 9)
    assert embedded.shape == expected.shape == (40, 9)
    assert np.abs(expected).max() > 0.1
    assert_allclose(embedded.dense(0, 40), expected, atol=1e-10)
    assert_allclose(embedded.dense(11, 23), expected[11:23], atol=1e-10)


def test_place_rows__scaled_only_where_rankings_are_short() -> None:
    halves = [top(*random.Random(seed).sample(range(8), 4)) for seed in range(30)]
    assert_array_equal(PlaceRows(block_of(halves, 8)).scale, np.ones(8))
    shorter = [*halves[:-1], top(0, 1, 2)]
    scaled = PlaceRows(block_of(shorter, 8)).dense(0, 30)
    assert_allclose((scaled**2).mean(axis=0), np.ones(8))


@given(seed=st.integers(0, 2**32), n_items=st.integers(2, 9), n_rows=st.integers(1, 20))
@settings(max_examples=30)
def test_place_rows__products(seed: int, n_items: int, n_rows: int) -> None:
    rows = random_rows(seed, n_items, n_rows)
    embedded = PlaceRows(block_of(rows, n_items))
    dense = embedded.dense(0, n_rows)
    rng = np.random.default_rng(seed)
    right, other = rng.normal(size=(n_items, 3)), rng.normal(size=(n_rows, 2))
    size = max(1.0, np.abs(embedded.scale).max())  # of rounding, where columns hardly vary
    assert_allclose(embedded.times(right), dense @ right, atol=1e-9 * size)
    assert_allclose(embedded.transposed_times(other), dense.T @ other, atol=1e-9 * size)


@KINDS
@pytest.mark.promise(12)
def test_place_rows__weight_is_copies(kind: str) -> None:
    rows = rows_of_kind(kind, weighted=True)
    one, many = PlaceRows(block_of(rows, 9)), PlaceRows(block_of(copies(rows), 9))
    assert_allclose(one.means, many.means, atol=1e-12)
    assert_allclose(one.scale, many.scale, rtol=1e-10)
    mine, theirs = (spectral_start.place_directions(embedded, 5) for embedded in (one, many))
    assert_allclose(mine.singular_values, theirs.singular_values, rtol=1e-9)
    assert_allclose(mine.vectors, theirs.vectors, atol=1e-7)
    dense = many.dense(0, many.shape[0])
    assert_allclose(mine.singular_values, np.linalg.svd(dense, compute_uv=False)[:5], rtol=1e-7, atol=1e-6)


@pytest.mark.promise(12)
def test_place_rows__weight_is_copies_where_lengths_differ() -> None:
    rows = [slate(list(range(8)), []), slate(list(range(8))[::-1], []), top(3, weight=9.0)]
    one, many = PlaceRows(block_of(rows, 8)), PlaceRows(block_of(copies(rows), 8))
    assert_allclose(one.scale, many.scale, rtol=1e-10)


def test_place_directions__many_items_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sparse products and Lanczos, against the Gram matrix, on rows of which three directions stand out.
    truth = np.random.default_rng(3).normal(0, 2, (4, 40))
    block, _ = draw_rankings(
        truth, np.full(4, 0.25), 2_000, np.random.default_rng(4), length=25, unranked="below"
    )
    embedded = PlaceRows(block)
    exact = spectral_start.place_directions(embedded, 6)
    monkeypatch.setattr(spectral_start, "_MOST_GRAM_COLUMNS", 10)
    lanczos = spectral_start.place_directions(embedded, 6)
    assert_allclose(lanczos.singular_values[:3], exact.singular_values[:3], rtol=1e-3)
    assert_allclose(lanczos.vectors[:, :3], exact.vectors[:, :3], atol=2e-2)
    assert (np.diff(lanczos.singular_values) <= 0).all()


def test_spectral__many_items_all_rankings_equal() -> None:
    model = SpectralPlackettLuce(2, random_state=0).fit(np.tile(np.arange(1_600), (5, 1)))
    assert np.isfinite(model.log_worths_).all()


# --- pairs -----------------------------------------------------------------------------------------------


def told_sign(row: Ranking, n_items: int, i: int, j: int) -> int:
    """1 where a row says that i comes before j, -1 where j does, 0 where it does not say."""
    ordered = listed_in_order(row)
    on_offer = set(range(n_items)) if row.unranked == "below" else {*ordered, *row.offered}
    if not {i, j} <= on_offer or not {i, j} & set(ordered):
        return 0
    places = [ordered.index(item) if item in ordered else len(ordered) for item in (i, j)]
    return 1 if places[0] < places[1] else -1


def pairs_by_hand(rows: Sequence[Ranking], n_items: int, centred: bool) -> Table:
    columns = []
    for i, j in itertools.combinations(range(n_items), 2):
        signs = [told_sign(row, n_items, i, j) for row in rows]
        won = math.fsum(row.weight for row, sign in zip(rows, signs, strict=True) if sign == 1)
        lost = math.fsum(row.weight for row, sign in zip(rows, signs, strict=True) if sign == -1)
        mean = won / (won + lost) if won + lost else 0.5
        off = mean if centred else 0.0
        columns.append([{1: 1.0, -1: 0.0, 0: mean}[sign] - off for sign in signs])
    return np.array(columns).T


@KINDS
@pytest.mark.parametrize("centred", [True, False])
def test_pair_rows__by_hand(kind: str, centred: bool) -> None:
    rows = rows_of_kind(kind, weighted=True)
    block = block_of(rows, 9)
    frequencies = pair_frequencies(pairwise_wins(block, np.ones((40, 1)))[0])
    embedded = PairRows(block, frequencies, centred=centred)
    expected = pairs_by_hand(rows, 9, centred)
    assert embedded.shape == expected.shape == (40, 36)
    assert_allclose(embedded.dense(0, 40), expected, atol=1e-12)
    assert_allclose(embedded.dense(5, 17), expected[5:17], atol=1e-12)
    roots = np.sqrt([row.weight for row in rows])[:, None]
    assert_allclose(embedded.scaled(3, 40), (roots * expected)[3:], atol=1e-12)


@given(rows=st.integers(0, 2**32).map(lambda seed: random_rows(seed, 6, 12)))
@settings(max_examples=30)
def test_place_table__tells_what_rows_tell(rows: list[Ranking]) -> None:
    table = place_table(block_of(rows, 6))
    for number, row in enumerate(rows):
        for i, j in itertools.permutations(range(6), 2):
            here, there = table[number, i], table[number, j]
            assert int(here < there) - int(here > there) == told_sign(row, 6, i, j)


def test_pair_frequencies__unseen_pairs_are_even() -> None:
    found = pair_frequencies(np.array([[0.0, 3.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    assert_array_equal(found, [[0.5, 0.75, 0.5], [0.25, 0.5, 0.5], [0.5, 0.5, 0.5]])


# --- rows made on the fly --------------------------------------------------------------------------------


class Spy:
    """Makes rows of a matrix, and notes which."""

    def __init__(self, matrix: Table) -> None:
        self.matrix = matrix
        self.asked: list[tuple[int, int]] = []

    def __call__(self, start: int, stop: int) -> Table:
        self.asked.append((start, stop))
        return self.matrix[start:stop]

    @property
    def maker(self) -> RowMaker:
        return RowMaker(self, self.matrix.shape)


def multiplied(left: Any, right: Any) -> Any:
    return np.tensordot(left, right, axes=((1,), (0,)))


@pytest.mark.parametrize("slab_rows", [1, 3, 1000])
def test_row_maker__multiplies_on_both_sides(slab_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg, "_SLAB_BYTES", 8 * 5 * slab_rows)
    rng = np.random.default_rng(0)
    matrix, narrow, wide = rng.normal(size=(11, 5)), rng.normal(size=(5, 2)), rng.normal(size=(2, 11))
    spy = Spy(matrix)
    maker = spy.maker
    turned = np.transpose(maker)  # type: ignore[call-overload]
    assert_allclose(multiplied(maker, narrow), matrix @ narrow, atol=1e-12)
    assert_allclose(multiplied(wide, maker), wide @ matrix, atol=1e-12)
    assert_allclose(multiplied(turned, wide.T), matrix.T @ wide.T, atol=1e-12)
    assert_allclose(multiplied(narrow.T, turned), narrow.T @ matrix.T, atol=1e-12)
    assert (turned.shape, maker.shape, np.transpose(turned).shape) == ((5, 11), (11, 5), (11, 5))
    assert_allclose(multiplied(np.transpose(turned), narrow), matrix @ narrow, atol=1e-12)
    # Five products, each of which asked for every row once and for no more rows at a time than a slab.
    assert sorted(row for start, stop in spy.asked for row in range(start, stop)) == sorted([*range(11)] * 5)
    assert max(stop - start for start, stop in spy.asked) == min(slab_rows, 11)


@pytest.mark.parametrize(
    "use",
    [
        np.sum,
        np.linalg.norm,
        lambda maker: np.concatenate([maker, maker]),
        lambda maker: np.tensordot(maker, np.ones((3, 2)), axes=((0,), (0,))),
        lambda maker: np.dot(maker, np.ones((2, 2))),
    ],
)
def test_row_maker__does_nothing_else(use: Any) -> None:
    with pytest.raises(TypeError, match="no implementation found"):
        use(Spy(np.ones((3, 2))).maker)


def test_row_maker__never_asks_for_the_whole_matrix() -> None:
    n_rows, n_columns = 300, 200_000  # half a gigabyte
    spy = Spy(np.broadcast_to(np.zeros(1), (n_rows, n_columns)))
    multiplied(spy.maker, np.zeros((n_columns, 1)))
    assert max(stop - start for start, stop in spy.asked) * n_columns * 8 <= 1 << 25
    assert sum(stop - start for start, stop in spy.asked) == n_rows


@pytest.fixture(scope="module")
def pair_block() -> RankingBlock:
    """Rankings of three components that fill two blocks of rows and part of a third."""
    rng = np.random.default_rng(11)
    return draw_rankings(rng.normal(0, 2, (3, 14)), np.array([0.5, 0.3, 0.2]), 9_000, rng)[0]


def makers_of(block: RankingBlock) -> tuple[PairRows, list[RowMaker]]:
    frequencies = pair_frequencies(pairwise_wins(block, np.ones((block.n_rankings, 1)))[0])
    parts = [PairRows(block[start : start + 4096], frequencies) for start in range(0, block.n_rankings, 4096)]
    return PairRows(block, frequencies), [RowMaker(part.scaled, part.shape) for part in parts]


def test_randomized_svd__against_numpy(pair_block: RankingBlock) -> None:
    rows, makers = makers_of(pair_block)
    found = randomized_svd(makers, 14, seed=0)
    _, values, vectors = np.linalg.svd(rows.scaled(0, 9_000), full_matrices=False)
    assert values[1] > 1.5 * values[2], "two directions stand out"
    assert_allclose(found.singular_values[:2], values[:2], rtol=1e-6)
    for k in range(2):
        assert abs(found.vectors[:, k] @ vectors[k]) == pytest.approx(1, abs=1e-6)
        assert found.vectors[np.abs(found.vectors[:, k]).argmax(), k] > 0
    # The rest is noise, of which the size is what matters.
    assert_allclose(found.singular_values[:7], values[:7], rtol=0.03)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(14), atol=1e-9)


def test_pair_directions__values_near_the_noise() -> None:
    # The rule for the rank compares values that hardly differ; a subspace no wider than K + 2 would blur them.
    block = paper_data(3, 40, 10, 4, 3_000)[1]
    rows, _ = makers_of(block)
    values = np.linalg.svd(rows.scaled(0, 3_000), compute_uv=False)
    found = spectral_start.pair_directions(rows, 6, 0, None)
    assert values[5] > 0.8 * values[3]
    assert_allclose(found.singular_values, values[:6], rtol=2e-3)


@pytest.mark.promise(10)
def test_randomized_svd__same_bits(pair_block: RankingBlock, client: Client, single_worker: Client) -> None:
    makers = makers_of(pair_block)[1]
    bits = set()
    for where in (client, None, single_worker, client, None):
        found = randomized_svd(makers, 14, seed=5, client=where)
        bits.add((found.singular_values.tobytes(), found.vectors.tobytes()))
    assert len(bits) == 1
    other = randomized_svd(makers, 14, seed=6)
    assert (other.singular_values.tobytes(), other.vectors.tobytes()) not in bits


def test_pairwise__dask_ml_runs_on_the_workers(
    pair_block: RankingBlock, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dask_ml.decomposition import TruncatedSVD

    seen: list[Any] = []
    fit, make = TruncatedSVD.fit, PairRows.dense

    def spied_fit(self: Any, rows: Any, *args: Any) -> Any:
        seen.append(rows)
        return fit(self, rows, *args)

    made_here: list[int] = []

    def spied_dense(self: PairRows, start: int, stop: int) -> Table:
        made_here.append(stop - start)
        return make(self, start, stop)

    monkeypatch.setattr(TruncatedSVD, "fit", spied_fit)
    monkeypatch.setattr(PairRows, "dense", spied_dense)
    scheduler = client.cluster.scheduler
    begun = time.time()
    starter = SpectralStarter(pair_block, StartSettings(2, embedding="pairwise", seed=1), Stages(), client)
    (rows,) = seen
    assert isinstance(rows, da.Array)
    assert rows.chunks == ((4096, 4096, 808), (91,))
    # No row was made in this process: the three blocks went to the workers, and all that follows was done there.
    assert made_here == []
    log = [entry for entry in scheduler.transition_log if entry[-1] >= begun]
    ran = {str(entry[0]) for entry in log if entry[1:3] == ("processing", "memory")}
    assert sum("RowMaker" in name for name in ran) == 3, ran
    assert all(any(name.startswith(f"('{step}-") for name in ran) for step in ("qr", "svd", "sum")), ran
    # The projection that follows is made here, slab by slab.
    starter.start()
    assert sum(made_here) == 9_000


# --- how many directions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "n_components", "rank"),
    [
        ([5.0, 1.0, 0.9], 1, 1),
        ([5.0, 1.0, 0.9, 0.8], 2, 1),
        ([1.0, 1.0, 1.0, 1.0], 2, 1),
        ([1.0, 1.0, 1.0, 1.0, 1.0], 3, 1),  # equal values: nothing stands out
        ([9.0, 8.0, 1.0, 0.9, 0.8], 3, 2),
        ([9.0, 1.1, 1.0, 0.9, 0.8], 3, 1),  # 1.1 lies on the fall of the noise
        ([9.0, 1.21, 1.0, 0.9, 0.8], 3, 2),
        ([9.0, 8.0, 7.0, 1.03, 1.0, 0.98, 0.96], 5, 3),
        ([9.0, 8.0], 5, 2),  # fewer values than components: no noise to be seen
        ([9.0], 5, 1),
        ([9.0, 8.0, 7.0, 6.0], 4, 3),  # one value of noise
        ([0.0, 0.0, 0.0, 0.0, 0.0], 3, 1),
    ],
)
def test_rank_above_noise__spectra(values: list[float], n_components: int, rank: int) -> None:
    assert rank_above_noise(np.array(values), n_components) == rank


def test_rank_of_paper__threshold() -> None:
    # sqrt(50 * (950 + 50) * log 50) = 442.27...
    threshold = math.sqrt(50 * 1000 * math.log(50))
    assert threshold == pytest.approx(442.27, abs=0.01)
    values = np.cumsum([0.0, 1.0, threshold + 1e-6, 1.0, threshold + 1e-6])[::-1].copy()
    assert rank_of_paper(values, 4, 50, 950) == 3
    assert rank_of_paper(values, 3, 50, 950) == 3  # the gap after the K-th counts
    below = np.cumsum([0.0, 1.0, threshold - 1e-6, 1.0, threshold + 1e-6])[::-1].copy()
    with pytest.warns(StartWarning, match=r"the threshold 442 leaves one direction, the mean ranking"):
        assert rank_of_paper(below, 4, 50, 950) == 1


def test_rank_of_paper__no_gap_is_large_enough() -> None:
    values = np.array([40.0, 30.0, 20.0, 10.0, 0.0])
    with pytest.warns(
        StartWarning, match=r"reaches the threshold 442 \(the largest is 10\).*svd_rank='auto'"
    ):
        assert rank_of_paper(values, 3, 50, 950) == 3
    with pytest.warns(StartWarning, match="no gap"):
        assert rank_of_paper(values[:1], 3, 50, 950) == 1


def test_rank_of_paper__one_component_is_no_surprise() -> None:
    assert rank_of_paper(np.array([1e4, 1.0, 0.5]), 1, 50, 950) == 1


# --- clusters --------------------------------------------------------------------------------------------


def partition_of(labels: NDArray[np.int64]) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}


def test_cluster_rows__weights_are_copies() -> None:
    rng = np.random.default_rng(2)
    points = rng.normal(size=(60, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 20, axis=0)
    weights = rng.integers(1, 5, 60)
    mine = cluster_rows(points, weights.astype(np.float64), 3, np.random.default_rng(0))
    many = cluster_rows(
        np.repeat(points, weights, axis=0), np.ones(weights.sum()), 3, np.random.default_rng(1)
    )
    first = np.concatenate([[0], np.cumsum(weights)[:-1]])
    assert partition_of(mine) == partition_of(many[first])
    assert partition_of(mine) == {frozenset(range(start, start + 20)) for start in (0, 20, 40)}


def test_cluster_rows__weights_decide() -> None:
    # Two clusters of three points on a line: the heavy ones are torn from the light one between them.
    points = np.array([[0.0], [4.0], [10.0]])
    for weights, together in (
        ([1.0, 1.0, 100.0], {0, 1}),
        ([100.0, 1.0, 1.0], {0, 1}),
        ([9.0, 100.0, 0.1], {1, 2}),
    ):
        labels = cluster_rows(points, np.array(weights), 2, np.random.default_rng(0))
        if together == {1, 2}:
            # 36 to 1 against 100 * 36 * 0.1 / 100.1: moving the last point is cheaper than the first.
            assert labels[1] == labels[2] != labels[0]
        else:
            assert labels[0] == labels[1] != labels[2]


@pytest.mark.parametrize("n_rows", [1, 2, 7])
def test_cluster_rows__fewer_places_than_clusters(n_rows: int) -> None:
    labels = cluster_rows(np.ones((n_rows, 2)), np.ones(n_rows), 4, np.random.default_rng(0))
    assert labels.tolist() == [0] * n_rows
    two = np.array([[0.0], [1.0]] * n_rows)
    labels = cluster_rows(two, np.ones(2 * n_rows), 5, np.random.default_rng(0))
    assert len(set(labels.tolist())) == 2
    assert partition_of(labels) == {frozenset(range(0, 2 * n_rows, 2)), frozenset(range(1, 2 * n_rows, 2))}


def test_cluster_rows__deterministic_and_near_the_optimum() -> None:
    rng = np.random.default_rng(5)
    centres = rng.normal(0, 6, (6, 3))
    points = rng.normal(size=(12_000, 3)) + centres[rng.integers(0, 6, 12_000)]
    weights = rng.integers(1, 4, 12_000).astype(np.float64)
    found = [cluster_rows(points, weights, 6, np.random.default_rng(1)) for _ in range(2)]
    assert_array_equal(*found)

    def cost(labels: NDArray[np.int64]) -> float:
        groups = [(points[labels == k], weights[labels == k]) for k in range(6)]
        means = [np.average(group, axis=0, weights=w) for group, w in groups]
        return math.fsum(
            float(w @ ((g - mean) ** 2).sum(axis=1)) for (g, w), mean in zip(groups, means, strict=True)
        )

    best = KMeans(6, init=centres, n_init=1).fit(points, sample_weight=weights)
    assert cost(found[0]) <= best.inertia_ * (1 + 1e-6)


# --- worths of clusters ----------------------------------------------------------------------------------


def test_cluster_worths__by_hand() -> None:
    rows = drawn_rows(4, np.random.default_rng(4).normal(0, 1, (1, 6)), [1.0], 60)
    rows = [row._replace(weight=float(1 + number % 3)) for number, row in enumerate(rows)]
    labels = np.arange(60) % 3
    log_worths, shares = cluster_worths(block_of(rows, 6), labels, StartSettings(3))
    total = math.fsum(row.weight for row in rows)
    for k in range(3):
        own = [row for row, label in zip(rows, labels, strict=True) if label == k]
        wins = np.zeros((6, 6))
        for row, (i, j) in itertools.product(own, itertools.permutations(range(6), 2)):
            wins[i, j] += row.weight * (told_sign(row, 6, i, j) == 1)
        assert shares[k] == pytest.approx(math.fsum(row.weight for row in own) / total)
        assert_allclose(log_worths[k], least_squares(wins), atol=1e-9)


@pytest.mark.parametrize("counted", [True, False])
def test_cluster_worths__empty_clusters(counted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not counted:
        monkeypatch.setattr(spectral_start, "_MOST_ITEMS_COUNTED", 1)
    block, _ = draw_rankings(np.zeros((1, 5)), np.ones(1), 90, np.random.default_rng(0))
    labels = np.where(np.arange(90) < 60, 2, 0)
    log_worths, shares = cluster_worths(block, labels, StartSettings(5))
    assert np.isfinite(log_worths).all()
    assert_allclose(log_worths.mean(axis=1), 0, atol=1e-12)
    assert (shares > 0).all()
    assert shares.sum() == pytest.approx(1)
    assert len(np.unique(log_worths, axis=0)) == 5, (
        "no two components may begin alike: EM could not part them"
    )


def test_cluster_worths__both_ways_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = np.random.default_rng(1).normal(0, 1, (2, 8))
    block, component = draw_rankings(truth, np.array([0.6, 0.4]), 3_000, np.random.default_rng(2))
    counted = cluster_worths(block, component, StartSettings(2))[0]
    monkeypatch.setattr(spectral_start, "_MOST_ITEMS_COUNTED", 7)
    stepped, shares = cluster_worths(block, component, StartSettings(2))
    assert_allclose(shares, np.bincount(component) / 3_000)
    for found in (counted, stepped):
        assert matched_distance(found, truth) < 0.25
    assert matched_distance(stepped, counted) < 0.25
    assert not np.array_equal(stepped, counted)


def test_cluster_worths__probit_needs_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral_start, "_MOST_ITEMS_COUNTED", 7)
    with pytest.raises(SettingsError, match=r"link='probit' needs .* pair of 8 items .* choose link='logit'"):
        SpectralPlackettLuce(2, link="probit", random_state=0).fit(np.tile(np.arange(8), (9, 1)))


# --- samples ---------------------------------------------------------------------------------------------


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
    sorted_table: NDArray[np.int64], client: Client, single_worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_module, "_SAMPLE_ROWS", 20_000)
    rankings = as_rankings(sorted_table)
    lazy = as_rankings(da.from_array(sorted_table, chunks=(7_001, 3)))
    expected = take_look(ThreadedPasses(rankings, n_threads=1), rankings, 3)
    ways = [ThreadedPasses(rankings, n_threads=n, residency="store") for n in (2, 3, 8)]
    ways += [DistributedPasses(rankings, client, n_tasks=n) for n in (1, 3, 8)]  # type: ignore[list-item]
    ways += [DistributedPasses(rankings, single_worker), DistributedPasses(lazy, client, residency="store")]  # type: ignore[list-item]
    for passes in ways:
        found = take_look(passes, rankings, 3)
        assert found.sample.equals(expected.sample)
        assert (found.extent, found.share) == (expected.extent, expected.share)
    assert expected.extent == (50_000, 50_000, 250_000, 0, 0)
    assert expected.sample.n_rankings == pytest.approx(20_000, abs=13)  # a row more or less a leaf
    assert not take_look(ways[0], rankings, 4).sample.equals(expected.sample)


def test_take_look__sorted_files(sorted_table: NDArray[np.int64]) -> None:
    rankings = as_rankings(sorted_table)
    sample = take_look(ThreadedPasses(rankings), rankings, 0).sample
    firsts = sample.items[sample.offsets[:-1]]
    assert (firsts <= 2).mean() == pytest.approx(0.6, abs=0.02)
    model = SpectralPlackettLuce(2, random_state=0).fit(sorted_table)
    assert_allclose(model.shares_, [0.6, 0.4], atol=0.01)


def test_take_look__leaves_draw_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "_SAMPLE_ROWS", 20_000)
    # Eight leaves of the same 4,096 orders: were all to draw alike, the same orders would come from each.
    orders = np.array(list(itertools.islice(itertools.permutations(range(7)), 4096)))
    rankings = as_rankings(np.tile(orders, (8, 1)))
    sample = take_look(ThreadedPasses(rankings), rankings, 0).sample
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
    sample = take_look(ThreadedPasses(rankings), rankings, 0).sample
    assert (sample.n_listed == 10).mean() == pytest.approx(0.5, abs=0.05)


def test_take_look__rows_without_weight_do_not_count() -> None:
    table = np.tile(np.arange(5), (40_000, 1))
    rankings = as_rankings(table, sample_weight=(np.arange(40_000) % 40 == 0).astype(np.float64))
    assert take_look(ThreadedPasses(rankings), rankings, 0).sample.n_rankings == 1_000


def test_spectral__few_rows_with_weight() -> None:
    weights = np.zeros(60_000)
    weights[::20_000] = 1.0
    model = SpectralPlackettLuce(2, random_state=0).fit(
        np.tile(np.arange(5), (60_000, 1)), sample_weight=weights
    )
    assert model.n_sampled_ == 3


# --- whole starts ----------------------------------------------------------------------------------------

SEPARATED = (
    np.array([[5.0, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, 0], [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 0]]) / 2.5
)
DATA = {
    "full": {},
    "top-k": {"length": 5, "unranked": "below"},
    "subset": {"length": 5, "unranked": "absent"},
}


def separated(kind: str) -> RankingBlock:
    rng = np.random.default_rng(8)
    if kind in DATA:
        return draw_rankings(SEPARATED, np.array([0.65, 0.35]), 2_500, rng, **DATA[kind])[0]
    rows = drawn_rows(8, SEPARATED, [0.65, 0.35], 2_500)
    if kind == "slate":
        # The best four of eight that were on offer.
        orders = draw_rankings(SEPARATED, np.array([0.65, 0.35]), 2_500, rng, length=8, unranked="absent")[0]
        rows = [slate(order[:4], order[4:]) for order in orders.to_array().tolist()]
    return block_of(rows, 12)


@EMBEDDINGS
@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("kind", ["full", "top-k", "subset", "slate", "mixed"])
def test_spectral__recovers_a_separated_mixture(kind: str, link: Any, embedding: Any) -> None:
    model = SpectralPlackettLuce(2, embedding=embedding, link=link, random_state=0).fit(separated(kind))
    assert model.embedding_ == embedding
    assert model.rank_ == 1
    assert_allclose(model.shares_, [0.65, 0.35], atol=0.12)
    # Probit worths are of another scale, that of Thurstone's model; what counts is their direction.
    found = model.log_worths_
    apart = np.linalg.norm(SEPARATED - SEPARATED.mean(axis=1, keepdims=True))
    if link == "logit":
        assert matched_distance(found, SEPARATED) < 0.4 * apart
    for mine, truth in zip(found, SEPARATED, strict=True):
        assert np.corrcoef(mine, truth)[0, 1] > 0.95


def test_spectral__attributes(pair_block: RankingBlock) -> None:
    model = SpectralPlackettLuce(3, embedding="pairwise", random_state=2).fit(pair_block)
    assert model.singular_values_.shape == (5,)
    assert model.vectors_.shape == (91, 5)
    assert (np.diff(model.singular_values_) <= 0).all()
    assert (model.rank_, model.n_sampled_, model.embedding_) == (2, 9_000, "pairwise")
    assert [record["stage"] for record in model.stages_] == ["look", "embedding", "svd", "k-means", "worths"]
    assert_allclose(model.log_worths_.mean(axis=1), 0, atol=1e-12)
    assert (np.diff(model.shares_) <= 0).all()
    assert model.predict_proba(pair_block).shape == (9_000, 3)
    places = SpectralPlackettLuce(3, random_state=2).fit(pair_block)
    assert (places.embedding_, places.vectors_.shape) == ("rank", (14, 5))


def test_spectral__paper_rule_is_uncentred(pair_block: RankingBlock) -> None:
    with pytest.warns(StartWarning, match="svd_rank='paper'"):
        model = SpectralPlackettLuce(3, svd_rank="paper", random_state=0).fit(pair_block)
    assert model.embedding_ == "pairwise"
    table = pair_block.to_array().argsort(axis=1)
    before = np.stack([table[:, i] < table[:, j] for i, j in itertools.combinations(range(14), 2)], axis=1)
    values = np.linalg.svd(before.astype(np.float64), compute_uv=False)
    assert_allclose(model.singular_values_[:3], values[:3], rtol=1e-4)
    threshold = math.sqrt(14 * (9_000 + 14) * math.log(14))
    met = [a for a in (1, 2, 3) if values[a - 1] - values[a] >= threshold]
    assert model.rank_ == (met[-1] if met else 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding": "rank", "svd_rank": "paper"}, "choose embedding='pairwise'"),
        ({"svd_rank": 0}, "a whole number from 1 on, but is 0"),
        ({"svd_rank": True}, "but is True"),
        ({"svd_rank": 1.5}, "but is 1.5"),
        ({"svd_rank": "all"}, "but is 'all'"),
        ({"embedding": "places"}, "auto, pairwise or rank, but is 'places'"),
        ({"link": "cauchit"}, "logit or probit, but is 'cauchit'"),
        ({"svd_rank": 5}, "svd_rank is 5, but 4 directions are all"),
        ({"svd_rank": 5, "embedding": "pairwise"}, "svd_rank is 5, but 4 directions are all"),
    ],
)
@pytest.mark.parametrize("kind", [SpectralPlackettLuce, PlackettLuceMixture])
def test_spectral__refused_settings(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        kind(2, random_state=0, **options).fit(separated("full"))


@pytest.mark.promise(42)
@pytest.mark.parametrize("n_components", [0, -1])
def test_spectral__refuses_no_components(n_components: int) -> None:
    with pytest.raises(
        SettingsError, match=f"n_components must be a whole number from 1 on, but is {n_components}"
    ):
        SpectralPlackettLuce(n_components, random_state=0).fit(separated("full"))


@pytest.mark.promise(41)
def test_spectral__scikit_learn_conventions() -> None:
    model = SpectralPlackettLuce(3, embedding="pairwise", svd_rank=2, link="probit", random_state=4)
    params = model.get_params()
    assert set(params) == {
        "n_components",
        "method",
        "embedding",
        "svd_rank",
        "svd_threshold",
        "cluster_worths",
        "link",
        "residency",
        "random_state",
        "unranked",
    }
    copy = clone(model)
    assert copy.get_params() == params
    assert copy.set_params(svd_rank="auto").svd_rank == "auto"
    with pytest.raises(NotFittedError, match="this SpectralPlackettLuce is not fitted yet; call fit first"):
        model.predict(np.array([[0, 1]]))
    data = separated("full")
    assert model.fit(data) is model
    assert model.get_params() == params
    with pytest.raises(NotFittedError, match="SpectralPlackettLuce"):
        clone(model).score(data)


@EMBEDDINGS
@pytest.mark.promise(10)
def test_spectral__seeded(embedding: Any) -> None:
    data = separated("mixed")
    one, two = (SpectralPlackettLuce(4, embedding=embedding, random_state=9).fit(data) for _ in range(2))
    assert one.log_worths_.tobytes() == two.log_worths_.tobytes()
    for seed in (None, 2**63 - 1):
        large = SpectralPlackettLuce(2, embedding=embedding, random_state=seed).fit(data)
        assert np.isfinite(large.log_worths_).all()


@EMBEDDINGS
@pytest.mark.parametrize("n_components", [1, 2, 4, 9])
@pytest.mark.parametrize(
    ("table", "options"),
    [
        ([list(range(13))], {}),
        ([[0, 1]], {}),
        ([[0, 1]] * 5 + [[1, 0]] * 3, {}),
        ([list(range(13))] * 6, {}),
        ([list(range(13)), list(range(13))[::-1]], {}),
        ([[item % 13] for item in range(40)], {"unranked": "below", "n_items": 13}),
        ([[0, 1], [2, 3]] * 9, {"unranked": "absent", "n_items": 13}),
    ],
    ids=["one ranking", "one of two items", "two items", "all equal", "two rankings", "top-1", "unconnected"],
)
def test_spectral__hardly_any_data(
    embedding: Any, n_components: int, table: list[list[int]], options: dict[str, Any]
) -> None:
    model = SpectralPlackettLuce(n_components, embedding=embedding, random_state=0).fit(
        np.array(table), **options
    )
    assert model.log_worths_.shape[0] == len(model.shares_) == n_components
    assert np.isfinite(model.log_worths_).all()
    assert (model.shares_ > 0).all()
    assert model.shares_.sum() == pytest.approx(1)
    assert len(np.unique(model.log_worths_, axis=0)) == n_components


@EMBEDDINGS
@pytest.mark.promise(12)
def test_spectral__relabelling_items(embedding: Any) -> None:
    table = separated("full").to_array()
    order = np.random.default_rng(0).permutation(12)
    fits = [
        SpectralPlackettLuce(2, embedding=embedding, random_state=0).fit(data)
        for data in (table, order[table])
    ]
    assert_allclose(fits[1].log_worths_[:, order], fits[0].log_worths_, atol=1e-9)


@EMBEDDINGS
@pytest.mark.promise(12)
@pytest.mark.parametrize("kind", ["full", "top-k", "subset", "mixed"])
def test_spectral__weight_is_copies(embedding: Any, kind: str) -> None:
    block = separated(kind)[:900]
    thrice = block.take(np.repeat(np.arange(900), 3))
    one = SpectralPlackettLuce(2, embedding=embedding, random_state=0)
    one.fit(block, sample_weight=np.full(900, 3.0))
    many = SpectralPlackettLuce(2, embedding=embedding, random_state=0).fit(thrice)
    assert_allclose(one.singular_values_[:1], many.singular_values_[:1], rtol=1e-6)
    assert_allclose(one.shares_, many.shares_, atol=1e-12)
    assert_allclose(one.log_worths_, many.log_worths_, atol=1e-8)


def test_mixture__init_arrays_are_saved(tmp_path: Any) -> None:
    data = separated("full")
    model = PlackettLuceMixture(2, random_state=0).fit(data)
    model.save(tmp_path / "model")
    again = PlackettLuceMixture.load(tmp_path / "model")
    assert set(again.init_) == set(model.init_)
    for name in ("singular_values", "vectors"):
        assert_array_equal(again.init_[name], model.init_[name])
    assert (again.init_["method"], again.init_["rank"], again.init_["embedding"]) == ("spectral", 1, "rank")
    assert again.get_params() == model.get_params()


def test_mixture__saved_over_another(tmp_path: Any) -> None:
    data = separated("full")
    PlackettLuceMixture(2, random_state=0).fit(data).save(tmp_path / "model")
    PlackettLuceMixture(2, init="random", random_state=0).fit(data).save(tmp_path / "model")
    assert set(PlackettLuceMixture.load(tmp_path / "model").init_) == {
        "method",
        "number",
        "stages",
        "failed_starts",
    }


# --- the paper's generative model ------------------------------------------------------------------------


def paper_data(
    seed: int, n_items: int, differing: int, n_components: int, n_rankings: int
) -> tuple[Table, RankingBlock]:
    rng = np.random.default_rng(seed)
    truth = draw_log_worths(n_components, n_items, differing, rng)
    return truth, draw_rankings(truth, np.full(n_components, 1 / n_components), n_rankings, rng)[0]


def papers_way(block: RankingBlock, n_components: int, seed: int) -> Table:
    """Log-worths by an exact SVD of the whole uncentred pairwise matrix, rank K, k-means, and least squares."""
    n_items = block.n_items
    places = block.to_array().argsort(axis=1)
    upper = np.triu_indices(n_items, 1)
    before = (places[:, upper[0]] < places[:, upper[1]]).astype(np.float32)
    last = before.shape[1] - 1
    # Entries of the Gram matrix are whole numbers below 2 ** 24, which float32 holds.
    gram = (before.T @ before).astype(np.float64)
    _, vectors = eigh(gram, subset_by_index=[last - n_components + 1, last])
    points = before @ vectors
    labels = KMeans(n_components, n_init=10, random_state=seed).fit_predict(points)
    worths = []
    for k in range(n_components):
        own = before[labels == k].sum(axis=0, dtype=np.float64)
        wins = np.zeros((n_items, n_items))
        wins[upper] = own
        wins.T[upper] = (labels == k).sum() - own
        worths.append(least_squares(wins))
    return np.array(worths)


def check_paper_data(seed: int, size: tuple[int, int, int, int]) -> dict[str, float]:
    """How far starts are from the truth; those of this package are not much further than they could be."""
    n_components = size[2]
    truth, block = paper_data(seed, *size)
    found: dict[str, float] = {"paper's way": matched_distance(papers_way(block, n_components, seed), truth)}
    starter = starter_of(block, n_components, seed=seed)
    found["auto"] = matched_distance(starter.start().log_worths, truth)
    found["rank"] = starter.rank
    fixed = [matched_distance(starter.start(rank).log_worths, truth) for rank in range(1, n_components + 1)]
    found["best"], found["best rank"] = min(fixed), 1 + int(np.argmin(fixed))
    return found


def test_paper_model__start_is_near_the_truth() -> None:
    size = (50, 10, 5, 5_000)
    found = check_paper_data(0, size)
    assert found["auto"] <= 1.1 * found["paper's way"], found
    assert found["auto"] <= 1.05 * found["best"], found
    truth, block = paper_data(0, *size)
    pairs = starter_of(block, 5, seed=0, embedding="pairwise").start()
    assert matched_distance(pairs.log_worths, truth) <= 1.1 * found["paper's way"], found


SIZES = pytest.mark.parametrize(
    "size",
    [(100, 5, 3, 10_000), (50, 10, 5, 10_000), (100, 20, 8, 20_000)],
    ids=lambda size: "-".join(map(str, size)),
)


@pytest.mark.slow
@SIZES
@pytest.mark.parametrize("seed", range(3))
def test_paper_model__start_is_near_the_truth_at_full_size(
    size: tuple[int, int, int, int], seed: int
) -> None:
    found = check_paper_data(seed, size)
    print(size, seed, {name: round(value, 3) for name, value in found.items()})  # noqa: T201 - shown with pytest -s
    assert found["auto"] <= 1.1 * found["paper's way"], found
    assert found["auto"] <= 1.05 * found["best"], found


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
@SIZES
def test_paper_model__em_from_the_start_ends_at_the_best(size: tuple[int, int, int, int]) -> None:
    n_components, n_rankings = size[2:]
    _, block = paper_data(0, *size)
    records: list[dict[str, Any]] = []
    best = PlackettLuceMixture(
        n_components, init="random", n_init=20, random_state=0, progress=records.append
    ).fit(block)
    lengths = [max(r["iteration"] for r in records if r["start"] == number) for number in range(20)]
    ours = PlackettLuceMixture(n_components, random_state=0).fit(block)
    short = (best.objective_ - ours.objective_) / n_rankings
    print(size, "short of the best by", short, "iterations", ours.n_iter_, sorted(lengths))  # noqa: T201
    assert short <= (1e-4 if size[1] == 5 else 1e-6)
    assert ours.n_iter_ < statistics.median(lengths)
