"""Spectral starts: worths of clusters, whole starts, and SpectralPlackettLuce as an estimator."""

from __future__ import annotations

import itertools
import math
import time
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from plmix_dist import PlackettLuceMixture, RankingBlock, Spectral, SpectralPlackettLuce
from plmix_dist.display.progress import Stages
from plmix_dist.errors import SettingsError, StartWarning
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.starts import spectral as spectral_start
from plmix_dist.fitting.starts.clusters import least_squares
from plmix_dist.fitting.starts.embeddings import PairRows, PlaceRows
from plmix_dist.fitting.starts.spectral import SpectralStarter, cluster_worths
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings.simulate import draw_rankings
from tests.helpers.fit_oracle import block_of, drawn_rows, slate

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import NDArray

    Table = NDArray[np.float64]
from tests.fitting.starts.data import makers_of, paper_data, told_sign

EMBEDDINGS = pytest.mark.parametrize("embedding", ["rank", "pairwise"])


def test_place_directions__many_items_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sparse products and Lanczos, against the Gram matrix, on rows of which three directions stand out.
    truth = np.random.default_rng(3).normal(0, 2, (4, 40))
    block, _ = draw_rankings(truth, np.full(4, 0.25), 2_000, np.random.default_rng(4), length=25, unranked="below")
    embedded = PlaceRows(block)
    exact = spectral_start._place_directions(embedded, 6)
    monkeypatch.setattr(spectral_start, "_MOST_GRAM_COLUMNS", 10)
    lanczos = spectral_start._place_directions(embedded, 6)
    assert_allclose(lanczos.singular_values[:3], exact.singular_values[:3], rtol=1e-3)
    assert_allclose(lanczos.vectors[:, :3], exact.vectors[:, :3], atol=2e-2)
    assert (np.diff(lanczos.singular_values) <= 0).all()


def test_spectral__many_items_all_rankings_equal() -> None:
    model = SpectralPlackettLuce(2, random_state=0).fit(np.tile(np.arange(1_600), (5, 1)))
    assert np.isfinite(model.log_worths_).all()


def test_pair_directions__values_near_the_noise() -> None:
    # The rule for the rank compares values that hardly differ; a subspace no wider than K + 2 would blur them.
    block = paper_data(3, 40, 10, 4, 3_000)[1]
    rows, _ = makers_of(block)
    values = np.linalg.svd(rows.scaled(0, 3_000), compute_uv=False)
    found = spectral_start._pair_directions(rows, 6, 0, None)
    assert values[5] > 0.8 * values[3]
    assert_allclose(found.singular_values, values[:6], rtol=2e-3)


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
    starter = SpectralStarter(pair_block, FitSettings(2, embedding="pairwise", seed=1), Stages(), client)
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


def test_spectral__of_a_search_from_no_more_rows_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = draw_rankings(
        np.random.default_rng(0).standard_normal((2, 6)), np.full(2, 0.5), 4_000, np.random.default_rng(1)
    )
    labels: list[int] = []
    start = SpectralStarter.start

    def noted(self: SpectralStarter, *given: Any) -> Any:
        found = start(self, *given)
        labels.append(len(found.labels))
        return found

    monkeypatch.setattr(SpectralStarter, "start", noted)
    monkeypatch.setattr("plmix_dist.fitting.starts.make._MOST_LISTED", 6_000)
    PlackettLuceMixture(2, random_state=0).fit(rows)
    assert set(labels) == {1_000}
    labels.clear()
    monkeypatch.setattr("plmix_dist.fitting.starts.make._ROWS_PER_ITEM", 200)
    PlackettLuceMixture(2, random_state=0).fit(rows)
    assert set(labels) == {1_200}
    labels.clear()
    SpectralPlackettLuce(2, random_state=0).fit(rows)  # whose end it is
    assert labels == [4_000]


def test_cluster_worths__by_hand() -> None:
    rows = drawn_rows(4, np.random.default_rng(4).normal(0, 1, (1, 6)), [1.0], 60)
    rows = [row._replace(weight=float(1 + number % 3)) for number, row in enumerate(rows)]
    labels = np.arange(60) % 3
    log_worths, shares = cluster_worths(block_of(rows, 6), labels, FitSettings(3))
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
    log_worths, shares = cluster_worths(block, labels, FitSettings(5))
    assert np.isfinite(log_worths).all()
    assert_allclose(log_worths.mean(axis=1), 0, atol=1e-12)
    assert (shares > 0).all()
    assert shares.sum() == pytest.approx(1)
    assert len(np.unique(log_worths, axis=0)) == 5, "no two components may begin alike: EM could not part them"


def test_cluster_worths__both_ways_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = np.random.default_rng(1).normal(0, 1, (2, 8))
    block, component = draw_rankings(truth, np.array([0.6, 0.4]), 3_000, np.random.default_rng(2))
    counted = cluster_worths(block, component, FitSettings(2))[0]
    monkeypatch.setattr(spectral_start, "_MOST_ITEMS_COUNTED", 7)
    stepped, shares = cluster_worths(block, component, FitSettings(2))
    assert_allclose(shares, np.bincount(component) / 3_000)
    for found in (counted, stepped):
        assert matched_distance(found, truth) < 0.25
    assert matched_distance(stepped, counted) < 0.25
    assert not np.array_equal(stepped, counted)


def test_cluster_worths__probit_needs_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral_start, "_MOST_ITEMS_COUNTED", 7)
    with pytest.raises(SettingsError, match=r"link='probit' needs .* pair of 8 items .* choose link='logit'"):
        SpectralPlackettLuce(2, init=Spectral(link="probit"), random_state=0).fit(np.tile(np.arange(8), (9, 1)))


def test_spectral__few_rows_with_weight() -> None:
    weights = np.zeros(60_000)
    weights[::20_000] = 1.0
    model = SpectralPlackettLuce(2, random_state=0).fit(np.tile(np.arange(5), (60_000, 1)), sample_weight=weights)
    assert model.n_sampled_ == 3


SEPARATED = np.array([[5.0, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, 0], [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 0]]) / 2.5


DATA = {"full": {}, "top-k": {"length": 5, "unranked": "below"}, "subset": {"length": 5, "unranked": "absent"}}


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
    model = SpectralPlackettLuce(2, init=Spectral(embedding=embedding, link=link), random_state=0).fit(separated(kind))
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
    model = SpectralPlackettLuce(3, init=Spectral(embedding="pairwise"), random_state=2).fit(pair_block)
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
    with pytest.warns(StartWarning, match="rank='paper'"):
        model = SpectralPlackettLuce(3, init=Spectral(rank="paper"), random_state=0).fit(pair_block)
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
        ({"embedding": "rank", "rank": "paper"}, "choose embedding='pairwise'"),
        ({"rank": 0}, "a whole number from 1 on, but is 0"),
        ({"rank": True}, "but is True"),
        ({"rank": 1.5}, "but is 1.5"),
        ({"rank": "all"}, "but is 'all'"),
        ({"embedding": "places"}, "auto, pairwise or rank, but is 'places'"),
        ({"link": "cauchit"}, "logit or probit, but is 'cauchit'"),
        ({"threshold": 0.0}, "threshold must be a finite number above 0, but is 0.0"),
        ({"cluster_worths": "mm"}, "cluster_worths must be least-squares or lsr, but is 'mm'"),
        ({"rank": 5}, "rank is 5, but 4 directions are all"),
        ({"rank": 5, "embedding": "pairwise"}, "rank is 5, but 4 directions are all"),
    ],
)
@pytest.mark.parametrize("kind", [SpectralPlackettLuce, PlackettLuceMixture])
def test_spectral__refused_settings(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        kind(2, random_state=0, init=Spectral(**options)).fit(separated("full"))


@pytest.mark.promise(42)
@pytest.mark.parametrize("n_components", [0, -1])
def test_spectral__refuses_no_components(n_components: int) -> None:
    with pytest.raises(SettingsError, match=f"n_components must be a whole number from 1 on, but is {n_components}"):
        SpectralPlackettLuce(n_components, random_state=0).fit(separated("full"))


@pytest.mark.promise(41)
def test_spectral__scikit_learn_conventions() -> None:
    model = SpectralPlackettLuce(3, init=Spectral(embedding="pairwise", rank=2, link="probit"), random_state=4)
    params = model.get_params()
    assert set(params) == {"n_components", "method", "init", "residency", "random_state", "unranked"}
    copy = clone(model)
    assert copy.get_params() == params
    assert copy.set_params(init="spectral").init == "spectral"
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
    one, two = (SpectralPlackettLuce(4, init=Spectral(embedding=embedding), random_state=9).fit(data) for _ in range(2))
    assert one.log_worths_.tobytes() == two.log_worths_.tobytes()
    for seed in (None, 2**63 - 1):
        large = SpectralPlackettLuce(2, init=Spectral(embedding=embedding), random_state=seed).fit(data)
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
    model = SpectralPlackettLuce(n_components, init=Spectral(embedding=embedding), random_state=0).fit(
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
        SpectralPlackettLuce(2, init=Spectral(embedding=embedding), random_state=0).fit(data)
        for data in (table, order[table])
    ]
    assert_allclose(fits[1].log_worths_[:, order], fits[0].log_worths_, atol=1e-9)


@EMBEDDINGS
@pytest.mark.promise(12)
@pytest.mark.parametrize("kind", ["full", "top-k", "subset", "mixed"])
def test_spectral__weight_is_copies(embedding: Any, kind: str) -> None:
    block = separated(kind)[:900]
    thrice = block.take(np.repeat(np.arange(900), 3))
    one = SpectralPlackettLuce(2, init=Spectral(embedding=embedding), random_state=0)
    one.fit(block, sample_weight=np.full(900, 3.0))
    many = SpectralPlackettLuce(2, init=Spectral(embedding=embedding), random_state=0).fit(thrice)
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
    assert set(PlackettLuceMixture.load(tmp_path / "model").init_) == {"method", "number", "stages", "failed_starts"}
