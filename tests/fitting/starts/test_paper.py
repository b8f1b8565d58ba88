"""method="paper": the published EM-LSR, its parts against plain NumPy, the whole against a second implementation."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from benchmarks import agreement, paper_em_lsr
from plmix_dist import PlackettLuceMixture, Spectral, SpectralPlackettLuce, simulate
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import SettingsError, StartWarning
from plmix_dist.fitting.methods import _METHODS, _PAPER
from plmix_dist.fitting.starts.spectral import _gap_rule
from plmix_dist.metrics import matched_distance
from plmix_dist.passes import svd as linalg
from plmix_dist.passes.svd import _LeafRowMaker
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.groups import default_leaf_rows
from plmix_dist.rankings.simulate import draw_rankings
from tests.helpers.cli_helpers import shell  # noqa: F401 - a fixture
from tests.helpers.fit_oracle import block_of, random_rows
from tests.helpers.oracle import write_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plmix_dist.store import RankingStore
    from tests.helpers.cli_helpers import Said

Table = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def table() -> Table:
    """Full rankings of three components, in three leaves, the last of them in part."""
    rng = np.random.default_rng(5)
    truth = rng.normal(0, 1.5, (3, 12))
    return np.asarray(draw_rankings(truth, np.array([0.5, 0.3, 0.2]), 9_000, rng)[0].to_array(), np.int64)


def pairs_of(table: Table) -> Table:
    """The paper's matrix X, entry by entry as equation (5) defines it, for full rankings."""
    places = np.argsort(table, axis=1)
    n_items = table.shape[1]
    return np.array([places[:, i] < places[:, j] for i in range(n_items) for j in range(i + 1, n_items)], float).T


@pytest.fixture(scope="module")
def start(table: Table) -> SpectralPlackettLuce:
    return SpectralPlackettLuce(3, method="paper", init=Spectral(rank=3), random_state=0).fit(table, client=False)


# --- the start -------------------------------------------------------------------------------------------


def test_start__svd_against_numpy(table: Table, start: SpectralPlackettLuce) -> None:
    values, vectors = np.linalg.svd(pairs_of(table), full_matrices=False)[1:]
    assert start.n_sampled_ == len(table), "no sample"
    assert start.singular_values_.shape == (4,)
    assert_allclose(start.singular_values_, values[:4], rtol=1e-4)
    assert_allclose(start.singular_values_[:3], values[:3], rtol=1e-6)
    for k in range(3):
        assert abs(start.vectors_[:, k] @ vectors[k]) == pytest.approx(1, abs=1e-5)


def test_start__partial_rows_and_weights_against_numpy() -> None:
    rows = random_rows(3, 8, 300)
    block = block_of(rows, 8)
    places = np.full((300, 8), np.nan)
    for number, row in enumerate(rows):
        if row.unranked == "below":
            places[number] = 99
        places[number, list(row.offered)] = 99
        for place, group in enumerate(row.ordered):
            places[number, list(group)] = place
    weights = np.array([row.weight for row in rows])
    columns = []
    for i in range(8):
        for j in range(i + 1, 8):
            first, second = places[:, i] < places[:, j], places[:, i] > places[:, j]
            known = first | second
            mean = weights[first].sum() / weights[known].sum() if known.any() else 0.5
            columns.append(np.where(known, first, mean))
    expected = np.linalg.svd(np.sqrt(weights)[:, None] * np.array(columns).T, compute_uv=False)
    found = SpectralPlackettLuce(3, method="paper", init=Spectral(rank=2), random_state=0).fit(block, client=False)
    assert_allclose(found.singular_values_, expected[:4], rtol=1e-3)


@pytest.mark.parametrize("n_items", [2, 3, 4])
def test_start__hardly_any_pairs(n_items: int) -> None:
    rng = np.random.default_rng(n_items)
    table = np.array([rng.permutation(n_items) for _ in range(40)])
    found = SpectralPlackettLuce(2, method="paper", init=Spectral(rank=1), random_state=0).fit(table, client=False)
    values = np.linalg.svd(pairs_of(table), compute_uv=False)
    assert_allclose(found.singular_values_, values[:3], rtol=1e-6)


def test_start__clusters_are_those_of_k_means(table: Table, start: SpectralPlackettLuce) -> None:
    from sklearn.cluster import KMeans

    vectors = np.linalg.svd(pairs_of(table), full_matrices=False)[2]
    expected = KMeans(3, n_init=10, random_state=1).fit_predict(pairs_of(table) @ vectors[:3].T)
    assert adjusted_rand_score(expected, start.labels_) > 0.999
    assert_allclose(np.bincount(start.labels_) / len(table), start.shares_)


def test_start__least_squares_by_its_definition(table: Table, start: SpectralPlackettLuce) -> None:
    # Algorithm 2: all ordered pairs, one equation each; the matrix Z of Lemma 1 of the supplement.
    places = np.argsort(table, axis=1)
    for k in range(3):
        rows = places[start.labels_ == k]
        equations, sides = [], []
        for i in range(12):
            for j in range(12):
                if i != j:
                    won = (rows[:, i] < rows[:, j]).sum()
                    equations.append(np.eye(12)[i] - np.eye(12)[j])
                    sides.append(math.log((won + 0.5) / (len(rows) - won + 0.5)))
        solution = np.linalg.lstsq(np.array(equations), np.array(sides), rcond=None)[0]
        assert_allclose(start.log_worths_[k], solution - solution.mean(), atol=1e-9)


def test_start__lsr_in_clusters_is_one_model_per_cluster(table: Table) -> None:
    found = SpectralPlackettLuce(3, method="paper", init=Spectral(rank=3, cluster_worths="lsr"), random_state=0).fit(
        table, client=False
    )
    for k in range(3):
        alone = PlackettLuceMixture(1, alpha=0.5).fit(table[found.labels_ == k], client=False)
        assert_allclose(found.log_worths_[k], alone.log_worths_[0], atol=2e-3)


def test_start__lsr_in_clusters_of_a_sample(table: Table) -> None:
    # The same estimate of worths without method="paper".
    found = SpectralPlackettLuce(3, init=Spectral(cluster_worths="lsr"), random_state=0).fit(table, client=False)
    alone = PlackettLuceMixture(1, alpha=0.5).fit(table[found.labels_ == 0], client=False)
    assert_allclose(found.log_worths_[0], alone.log_worths_[0], atol=2e-3)


def test_start__is_that_of_the_second_implementation(table: Table, start: SpectralPlackettLuce) -> None:
    worths, shares = paper_em_lsr.spectral_start(np.argsort(table, axis=1), 3, seed=4)
    assert matched_distance(np.log(worths), start.log_worths_) < 0.02  # a row between clusters may change sides
    assert_allclose(np.sort(shares), np.sort(start.shares_), atol=1e-3)


def test_start__more_pairs_than_a_task_should_hold() -> None:
    rows = np.array([np.random.default_rng(0).permutation(1_200)] * 3)
    with pytest.raises(SettingsError, match=r"1200 items are 719,400 pairs, and their singular vectors take 1\.2 GB"):
        SpectralPlackettLuce(2, method="paper").fit(rows, client=False)


@pytest.mark.parametrize("slab_rows", [1, 7, 100_000])
def test_leaf_rows__slab_by_slab(slab_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg, "_SLAB_BYTES", 8 * 3 * slab_rows)
    table = np.array([np.random.default_rng(seed).permutation(3) for seed in range(9_000)])
    made: list[int] = []

    def rows_of(block: RankingBlock) -> Table:
        made.append(block.n_rankings)
        return block.to_array().astype(float)

    rankings, wide = as_rankings(table), np.random.default_rng(0).normal(size=(2, 4_904))
    matrix = table[4096:].astype(float)
    maker = _LeafRowMaker(rankings, 1, 3, rows_of, (4_904, 3))
    turned = np.transpose(maker)  # type: ignore[call-overload]
    assert_allclose(np.tensordot(wide, maker, axes=((1,), (0,))), wide @ matrix)  # type: ignore[call-overload]
    assert_allclose(np.tensordot(turned, wide.T, axes=((1,), (0,))), matrix.T @ wide.T)
    assert sum(made) == 2 * 4_904
    assert max(made) == min(slab_rows, 4_096)


# --- the rule for the rank -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("multiplier", "rank", "reached"), [(1.0, 1, True), (0.2, 2, True), (0.01, 3, True), (9.0, 3, False)]
)
def test_gap_rule__multiplier(multiplier: float, rank: int, reached: bool) -> None:
    threshold = math.sqrt(10 * 1010 * math.log(10))
    values = np.array([3.0, 1.5, 1.2, 0.9, 0.0]) * threshold
    values[2] = values[1] - 0.3 * threshold
    values[3] = values[2] - 0.05 * threshold
    found = _gap_rule(values, 3, 10, 1_000, multiplier)
    assert found.rank == rank
    assert found.reached is reached
    assert found.threshold == pytest.approx(multiplier * threshold)
    assert found.largest_gap == pytest.approx(1.5 * threshold)


def test_rank__no_gap_is_said_and_recorded(table: Table) -> None:
    mixture = PlackettLuceMixture(3, method="paper", init=Spectral(threshold=50.0), random_state=0, tol=1e-2)
    with pytest.warns(StartWarning, match="so the paper's rule names no rank, and 3 directions are used"):
        model = mixture.fit(table, client=False)
    rule = model.init_["gap_rule"]
    assert (rule["reached"], rule["rank"], model.init_["rank"]) == (False, 3, 3)
    assert rule["threshold"] == pytest.approx(50 * math.sqrt(12 * 9_012 * math.log(12)))
    values = np.linalg.svd(pairs_of(table), compute_uv=False)
    assert rule["largest_gap"] == pytest.approx(values[0] - values[1], rel=1e-6)


def test_rank__the_threshold_leaves_the_mean_ranking(table: Table) -> None:
    with pytest.warns(StartWarning, match="leaves one direction, the mean ranking.*choose rank=3"):
        found = SpectralPlackettLuce(3, method="paper", init=Spectral(threshold=0.4), random_state=0).fit(
            table, client=False
        )
    assert found.rank_ == 1
    assert found.gap_rule_ is not None
    assert found.gap_rule_["reached"]


# --- EM --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(table: Table) -> PlackettLuceMixture:
    return PlackettLuceMixture(3, method="paper", init=Spectral(rank=3), random_state=0).fit(table, client=False)


def test_em__is_exact_lsr_without_acceleration(model: PlackettLuceMixture) -> None:
    steps = model.history_
    assert model.m_step_ == "lsr"
    assert {record["step"] for record in steps} == {"start", "plain"}
    assert all(record["inner_passes"] >= 2 for record in steps[:-1])
    # Nothing ran between the start and EM: no search, no fits to samples.
    assert [stage["stage"] for stage in model.init_["stages"]] == [
        "look", "embedding", "svd", "projection", "k-means", "worths", "fit",
    ]  # fmt: skip
    assert "search" not in model.init_


def test_em__likelihood_never_falls(model: PlackettLuceMixture) -> None:
    values = np.array([record["log_likelihood"] for record in model.history_])
    assert len(values) > 3
    assert (np.diff(values) > 0).all()


def test_em__begins_where_the_start_ended(table: Table, start: SpectralPlackettLuce) -> None:
    # Neither shrunk nor moved: the first record is the likelihood of the start itself.
    model = PlackettLuceMixture(3, method="paper", init=Spectral(rank=3), random_state=0, tol=1.0).fit(
        table, client=False
    )
    expected = start.score(table) * len(table)
    assert model.history_[0]["log_likelihood"] == pytest.approx(expected, rel=1e-12)


def test_em__ends_by_the_published_rule(model: PlackettLuceMixture, table: Table) -> None:
    assert model.converged_
    *before, last = [record["squared_change"] for record in model.history_]
    assert last <= 1e-8 < min(before)
    looser = PlackettLuceMixture(3, method="paper", init=Spectral(rank=3), random_state=0, tol=1e-4, max_iter=100)
    assert looser.fit(table, client=False).n_iter_ < model.n_iter_
    # The change that is recorded is that of one whole iteration.
    one, two = (
        PlackettLuceMixture(3, method="paper", init=model.log_worths_ + 0.1 * np.eye(3, 12), max_iter=n) for n in (1, 2)
    )
    with pytest.warns(UserWarning, match="squared changes of log-worths"):
        one.fit(table, client=False)
    with pytest.warns(UserWarning, match="squared changes of log-worths"):
        two.fit(table, client=False)
    order = [int(np.abs(two.log_worths_ - own).sum(axis=1).argmin()) for own in one.log_worths_]
    moved = ((two.log_worths_[order] - one.log_worths_) ** 2).sum()
    assert two.history_[0]["squared_change"] == pytest.approx(moved, rel=1e-6)


def test_em__second_implementation_from_the_same_start(
    table: Table, start: SpectralPlackettLuce, model: PlackettLuceMixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper_em_lsr, "TOLERANCE", 1e-9)
    worths = np.exp(start.log_worths_)
    worths /= worths.sum(axis=1, keepdims=True)
    other = paper_em_lsr.fit(table, 3, start=(worths, start.shares_))
    assert other.mean_log_likelihood == pytest.approx(model.log_likelihood_ / len(table), abs=1e-9)
    assert matched_distance(np.log(other.worths), model.log_worths_) < 1e-3
    assert_allclose(np.sort(other.shares), np.sort(model.shares_), atol=1e-4)


def test_em__default_ends_at_the_same_likelihood(table: Table, model: PlackettLuceMixture) -> None:
    default = PlackettLuceMixture(3, alpha=0.0, random_state=0).fit(table, client=False)
    assert model.score(table) == pytest.approx(default.score(table), abs=1e-6)


@pytest.mark.parametrize("method", ["paper", None])
def test_shares__held_and_told_from_the_posteriors(method: Any, table: Table) -> None:
    held = [0.2, 0.6, 0.2]
    model = PlackettLuceMixture(3, method=method, init=Spectral(rank=2), shares=held, random_state=0, tol=1e-6)
    model.fit(table, client=False)
    assert_allclose(np.sort(model.shares_), np.sort(held))
    assert_allclose(model.posterior_shares_, model.predict_proba(table).mean(axis=0), atol=1e-9)
    assert np.abs(model.posterior_shares_ - model.shares_).max() > 0.01


def test_shares__free_ones_are_those_of_the_posteriors(model: PlackettLuceMixture, table: Table) -> None:
    assert_allclose(model.posterior_shares_, model.predict_proba(table).mean(axis=0), atol=1e-9)
    assert_allclose(model.posterior_shares_, model.shares_, atol=1e-4)


# --- all kinds of rows -----------------------------------------------------------------------------------


def test_rows__weights_are_copies(table: Table) -> None:
    few = table[:600]
    weights = 1 + np.arange(600) % 3
    settings: dict[str, Any] = {"method": "paper", "init": Spectral(rank=2), "random_state": 0, "tol": 1e-10}
    weighted = PlackettLuceMixture(2, **settings).fit(few, sample_weight=weights, client=False)
    copied = PlackettLuceMixture(2, **settings).fit(np.repeat(few, weights, axis=0), client=False)
    assert_allclose(weighted.init_["singular_values"], copied.init_["singular_values"], rtol=1e-3)
    assert weighted.log_likelihood_ == pytest.approx(copied.log_likelihood_, rel=1e-9)
    assert_allclose(weighted.log_worths_, copied.log_worths_, atol=1e-3)


@pytest.mark.parametrize("kind", ["below", "absent"])
def test_rows__partial_rankings(kind: Any, table: Table) -> None:
    short = table[:4_000, :6]
    settings: dict[str, Any] = {"unranked": kind, "random_state": 0}
    paper = PlackettLuceMixture(2, method="paper", init=Spectral(rank=2), tol=1e-10, **settings).fit(
        short, client=False
    )
    default = PlackettLuceMixture(2, alpha=0.0, **settings).fit(short, client=False)
    assert paper.score(short) == pytest.approx(default.score(short), abs=1e-6)


def test_rows__groups_share_a_membership_in_em(table: Table) -> None:
    block = RankingBlock.from_array(table[:3_000]).replace(groups=np.arange(3_000) // 3)
    model = PlackettLuceMixture(2, method="paper", init=Spectral(rank=2), random_state=0, tol=1e-6).fit(
        block, client=False
    )
    probabilities = model.predict_proba(block)
    assert_array_equal(probabilities[0::3], probabilities[1::3])
    assert model.init_["rows"] == 3_000  # the start clusters rankings, as published


def test_rows__zero_weights_and_ties() -> None:
    rows = random_rows(8, 6, 400)
    model = PlackettLuceMixture(2, method="paper", init=Spectral(rank=2), random_state=0, tol=1e-4, max_iter=100)
    block = block_of(rows, 6)
    weights = np.where(np.arange(400) % 4 == 0, 0.0, 1.0)
    left = block.take(np.flatnonzero(weights)).replace(weights=None)
    with_zeros, without = (
        clone(model).fit(block, sample_weight=weights, client=False),
        clone(model).fit(left, client=False),
    )
    assert with_zeros.log_likelihood_ == pytest.approx(without.log_likelihood_, rel=1e-9)


# --- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"alpha": 0.1}, "method='paper' has alpha=0.0, but alpha is 0.1 (float); leave alpha out"),
        ({"init": Spectral(embedding="rank")}, "method='paper' has embedding='pairwise', but embedding is 'rank'"),
        ({"ties": "marginal"}, "method='paper' has ties='expand', but ties is 'marginal'"),
        ({"n_init": 3}, "method='paper' has n_init=1, but n_init is 3"),
        ({"method": "papr"}, "method must be paper, but is 'papr'; did you mean 'paper'?"),
        (
            {"method": None, "init": Spectral(threshold=2.0)},
            "the threshold of a spectral start multiplies that of the rank 'paper'",
        ),
        ({"init": Spectral(rank=2, threshold=2.0)}, "but the rank is 2"),
        (
            {"init": Spectral(cluster_worths="lsr", link="probit")},
            "choose cluster_worths='least-squares', or link='logit'",
        ),
    ],
)
def test_settings__refused(settings: dict[str, Any], words: str, table: Table) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        PlackettLuceMixture(3, **({"method": "paper"} | settings)).fit(table, client=False)


def test_settings__covariates_refused(table: Table) -> None:
    with pytest.raises(SettingsError, match="the same shares for all persons"):
        PlackettLuceMixture(2, method="paper").fit(table, client=False, membership_covariates=np.ones((len(table), 1)))


def test_settings__all_of_a_method_are_settings_of_a_fit() -> None:
    from dataclasses import fields

    from plmix_dist.fitting.methods import FitSettings

    known = {field.name for field in fields(FitSettings)}
    for method in _METHODS.values():
        assert set(method.settings) <= known
        assert method.open <= set(method.settings)
        FitSettings(2, **method.settings)
    parameters = set(PlackettLuceMixture().used_settings())
    assert set(_PAPER.settings) - parameters == {"start_rows", "most_spread", "sample_fits", "stopping"}


def test_settings__params_clone_save_load(model: PlackettLuceMixture, tmp_path: Path) -> None:
    params = clone(model).get_params()
    assert (params["method"], params["alpha"], params["em"]) == ("paper", 1.0, "fused")
    used = model.used_settings()
    assert (used["alpha"], used["em"], used["svd_rank"]) == (0.0, "exact", 3)
    model.save(tmp_path / "model")
    record = json.loads((tmp_path / "model/model.json").read_text())
    assert record["settings"]["method"] == "paper"
    again = PlackettLuceMixture.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    assert_array_equal(again.posterior_shares_, model.posterior_shares_)


def test_settings__standard_errors_are_those_without_a_prior(model: PlackettLuceMixture, table: Table) -> None:
    plain = PlackettLuceMixture(3, alpha=0.0, init=model, tol=1e-6).fit(table, client=False)
    assert_allclose(model.standard_errors(table).log_worths, plain.standard_errors(table).log_worths, rtol=1e-2)


def test_settings__another_m_step_from_the_same_start(table: Table, model: PlackettLuceMixture) -> None:
    emm = PlackettLuceMixture(3, method="paper", init=Spectral(rank=3), m_step="mm", random_state=0).fit(
        table, client=False
    )
    assert emm.m_step_ == "mm"
    assert_array_equal(emm.init_["singular_values"], model.init_["singular_values"])
    assert emm.log_likelihood_ / len(table) == pytest.approx(model.log_likelihood_ / len(table), abs=1e-8)


def test_em__mm_and_lsr_take_the_same_iterations(table: Table) -> None:
    # M-steps are solved to their end, and the rule for the end looks at solved ones: also where it is loose.
    lsr, emm = (
        PlackettLuceMixture(3, method="paper", init=Spectral(rank=3), m_step=m_step, tol=1e-4, random_state=0).fit(
            table, client=False
        )
        for m_step in ("lsr", "mm")
    )
    assert lsr.n_iter_ == emm.n_iter_ > 1
    assert all("inner_passes" in record for record in emm.history_)
    assert matched_distance(lsr.log_worths_, emm.log_worths_) < 1e-3


def test_settings__stochastic_steps_from_the_same_start(table: Table, model: PlackettLuceMixture) -> None:
    settings: dict[str, Any] = {
        "method": "paper",
        "init": Spectral(rank=3),
        "m_step": "stochastic-lsr",
        "random_state": 0,
    }
    drawn = PlackettLuceMixture(3, max_iter=7, **settings).fit(table, client=False)
    assert (drawn.m_step_, drawn.n_iter_) == ("stochastic-lsr", 7)
    assert drawn.history_[0]["log_likelihood"] == pytest.approx(model.history_[0]["log_likelihood"])
    assert min(record["inner_passes"] for record in drawn.history_) > 1  # solved in each cluster


# --- the same bits everywhere ----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[1, 4])
def in_threads(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Clients of one and of four workers that are threads of this process."""
    with (
        LocalCluster(
            n_workers=request.param, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def bits_of(model: PlackettLuceMixture) -> tuple[bytes, ...]:
    return (
        model.init_["singular_values"].tobytes(),
        model.init_["vectors"].tobytes(),
        model.log_worths_.tobytes(),
        model.shares_.tobytes(),
    )


def fitted_bits(rows: Any, where: Any) -> tuple[bytes, ...]:
    # One iteration of EM: a bit that differs in the start differs in all that follows.
    settings: dict[str, Any] = {"method": "paper", "init": Spectral(rank=3, cluster_worths="lsr"), "tol": 10.0}
    return bits_of(PlackettLuceMixture(3, random_state=0, **settings).fit(rows, client=where))


@pytest.fixture(scope="module")
def stored(table: Table, tmp_path_factory: pytest.TempPathFactory) -> RankingStore:
    block, leaf_rows = RankingBlock.from_array(table), default_leaf_rows(12)
    path = tmp_path_factory.mktemp("paper") / "store"
    return write_store(path, [[block[:leaf_rows]], [block[leaf_rows:]]], leaf_rows=leaf_rows)


@pytest.fixture(scope="module")
def bits(table: Table) -> tuple[bytes, ...]:
    return fitted_bits(table, False)


@pytest.mark.slow
@pytest.mark.promise(10)
def test_same_bits__two_processes(table: Table, stored: RankingStore, bits: tuple[bytes, ...], client: Client) -> None:
    assert fitted_bits(stored, client) == bits
    assert fitted_bits(da.from_array(table, chunks=(2_500, 12)), client) == bits


@pytest.mark.promise(10)
def test_same_bits__one_and_four_workers(stored: RankingStore, bits: tuple[bytes, ...], in_threads: Client) -> None:
    assert fitted_bits(stored, in_threads) == bits


# --- make demo -------------------------------------------------------------------------------------------


def test_agreement__models_of_one_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, same, other = (str(tmp_path / name) for name in ("store", "same", "other"))
    rankings = simulate(store, n_rankings=500, n_items=5, n_components=1)
    for path, alpha in ((same, 0.0), (other, 200.0)):
        PlackettLuceMixture(1, alpha=alpha).fit(rankings, client=False).save(path)
    assert agreement.compare(store, same, same)
    assert "agree: 0.0e+00 apart" in capsys.readouterr().out
    assert not agreement.compare(store, same, other)
    assert "DIFFER" in capsys.readouterr().out


# --- at a shell ------------------------------------------------------------------------------------------


def test_command_line(shell: Callable[..., Said], tmp_path: Path) -> None:  # noqa: F811
    shell("simulate", "s", "--rankings", "3000", "--items", "6", "--components", "2", "--seed", "1")
    fit = ("fit", "s", "--components", "2", "--method", "paper", "--svd-rank", "2", "--json", "--quiet")
    said = json.loads(shell(*fit, "--cluster-worths", "lsr", "--out", "m").out)
    assert (said["method"], said["m_step"], said["converged"]) == ("paper", "lsr", True)
    assert_allclose(said["posterior_shares"], said["shares"], atol=1e-3)
    assert json.loads((tmp_path / "m/model.json").read_text())["job"]["method"] == "paper"
    assert "method='paper' has alpha=0.0" in shell(*fit, "--alpha", "0.5", "--out", "n", code=1).err
    # What was typed is meant, also if it is a default.
    for typed in (("--alpha", "1"), ("--accelerate",), ("--em", "fused")):
        assert "method='paper' has" in shell(*fit, *typed, "--out", "n", code=1).err
    said = json.loads(shell(*fit, "--alpha", "0", "--em", "exact", "--n-init", "1", "--out", "o").out)
    assert said["method"] == "paper"
