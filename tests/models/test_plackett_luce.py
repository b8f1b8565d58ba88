"""PlackettLuceMixture: scikit-learn's conventions, ways in and out, models on disk, and what is refused."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from plmix_dist import MixtureParams, PlackettLuceMixture
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import (
    CollapsedComponentWarning,
    NotConvergedWarning,
    RankingError,
    SettingsError,
    StartWarning,
    StoreNotFoundError,
)
from plmix_dist.fitting.em import Candidate, Em, run_to_ends
from plmix_dist.fitting.fit import best_of
from plmix_dist.fitting.point import Point
from plmix_dist.metrics import match_components, matched_distance
from plmix_dist.passes import by_row
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.rankings import Ranking
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import MM
from plmix_dist.store import RankingStore
from tests.helpers.fit_oracle import block_of, drawn_rows, exact_posteriors, log_likelihood, slate
from tests.helpers.oracle import chi_square, chi_square_bound, ranking_probabilities, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TRUTH = np.random.default_rng(1).normal(0, 2, (2, 6))
SHARES = [0.65, 0.35]
NAMES = ["tea", "coffee", "mate", "water", "milk", "juice"]
UNFINISHED = pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")


@pytest.fixture(scope="module")
def full() -> NDArray[np.int64]:
    """Full rankings as an array."""
    block, _ = draw_rankings(TRUTH, np.array(SHARES), 900, np.random.default_rng(2))
    return block.to_array()


@pytest.fixture(scope="module")
def mixed() -> list[Ranking]:
    """Rows of every kind, with weights."""
    rows = drawn_rows(3, TRUTH, SHARES, 400)
    return [row._replace(weight=1.0 + number % 4) for number, row in enumerate(rows)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, mixed: list[Ranking]) -> RankingStore:
    """The rows of `mixed` in small leaves, two partitions of them."""
    block = block_of(mixed, 6)
    path = tmp_path_factory.mktemp("estimator") / "store"
    return write_store(path, [[block[:150]], [block[150:]]], leaf_rows=16, chunk_bytes=1 << 16, item_names=NAMES)


@pytest.fixture(scope="module")
def model(store: RankingStore) -> PlackettLuceMixture:
    return PlackettLuceMixture(2, random_state=4).fit(store)


def same_fit(mine: PlackettLuceMixture, theirs: PlackettLuceMixture, atol: float = 1e-7) -> bool:
    return bool(
        np.allclose(mine.log_worths_, theirs.log_worths_, rtol=0, atol=atol)
        and np.allclose(mine.shares_, theirs.shares_, rtol=0, atol=atol)
    )


# --- scikit-learn's conventions --------------------------------------------------------------------------


@pytest.mark.promise(41)
def test_params__get_set_clone() -> None:
    start = np.zeros((3, 4))
    model = PlackettLuceMixture(3, m_step="mm", alpha=0.5, init=start, random_state=7)
    params = model.get_params()
    assert set(params) == {
        "n_components", "m_step", "em", "init", "n_init", "alpha", "shares", "tol", "max_iter", "accelerate",
        "unranked", "ties", "choices", "noise", "residency", "random_state", "progress",
        "method", "checkpoint",
    }  # fmt: skip
    assert params["init"] is start
    copy = clone(model)
    assert copy is not model
    assert {name: value for name, value in copy.get_params().items() if name != "init"} == {
        name: value for name, value in params.items() if name != "init"
    }
    assert np.array_equal(copy.init, start)
    assert copy.set_params(alpha=2.0, n_components=1) is copy
    assert (copy.alpha, copy.n_components, model.alpha) == (2.0, 1, 0.5)
    with pytest.raises(ValueError, match="Invalid parameter 'worths'"):
        copy.set_params(worths=1)


@pytest.mark.promise(41)
def test_fit__leaves_parameters_alone(full: NDArray[np.int64]) -> None:
    start, shares = TRUTH.copy(), [0.65, 0.35]
    model = PlackettLuceMixture(2, init=start, shares=shares)
    before = dict(model.get_params())
    assert model.fit(full) is model
    assert all(model.get_params()[name] is value for name, value in before.items())
    assert np.array_equal(start, TRUTH)
    # A clone of a fitted model is not fitted.
    with pytest.raises(NotFittedError, match="not fitted yet; call fit first"):
        clone(model).predict(full)


@pytest.mark.promise(41)
def test_clone__keeps_a_fitted_start(full: NDArray[np.int64]) -> None:
    start = PlackettLuceMixture(2, random_state=0).fit(full)
    again = clone(PlackettLuceMixture(2, init=start)).fit(full)
    assert same_fit(again, start, atol=1e-5)


@pytest.mark.promise(41)
def test_pickle__without_progress(full: NDArray[np.int64]) -> None:
    heard: list[Any] = []
    # What is called belongs to this process; a lambda could not even be pickled.
    model = PlackettLuceMixture(2, random_state=0, progress=lambda record: heard.append(record)).fit(full)
    assert heard
    copy = pickle.loads(pickle.dumps(model))
    assert copy.progress is None
    assert model.progress is not None
    assert np.array_equal(copy.predict_proba(full), model.predict_proba(full))
    assert copy.history_ == model.history_
    assert same_fit(clone(copy).fit(full), model, atol=0)


@pytest.mark.promise(41)
def test_fit__pipeline_and_grid_search(full: NDArray[np.int64]) -> None:
    pipeline = make_pipeline(PlackettLuceMixture(2, random_state=0))
    alone = PlackettLuceMixture(2, random_state=0).fit(full)
    assert pipeline.fit(full, None).score(full) == alone.score(full)
    search = GridSearchCV(PlackettLuceMixture(random_state=0, max_iter=3_000), {"n_components": [1, 2]}, cv=3)
    search.fit(full)
    # The data come from two components that lie far apart, and held-out rankings show it.
    assert search.best_params_ == {"n_components": 2}


def test_fit__y_is_not_used(full: NDArray[np.int64]) -> None:
    model = PlackettLuceMixture(2, random_state=0)
    assert same_fit(clone(model).fit(full, np.arange(900)), clone(model).fit(full), atol=0)
    assert model.fit(full, y="anything").score(full, y="anything") == model.score(full)
    assert np.array_equal(model.fit_predict(full, None), model.predict(full))


def test_fit__again_forgets_the_first(full: NDArray[np.int64]) -> None:
    model = PlackettLuceMixture(2, random_state=0).fit(full)
    few = np.array([[0, 1, 2], [2, 1, 0], [0, 2, 1]])
    model.set_params(n_components=1).fit(few)
    assert model.log_worths_.shape == (1, 3)
    assert same_fit(model, PlackettLuceMixture(1, random_state=0).fit(few), atol=0)


def test_fit__recovers_the_truth(full: NDArray[np.int64]) -> None:
    model = PlackettLuceMixture(2, random_state=0).fit(full)
    order = match_components(model.log_worths_, TRUTH)
    assert_allclose(model.shares_[order], SHARES, atol=0.06)
    assert matched_distance(model.log_worths_, TRUTH) < 1.0
    assert matched_distance(model.log_worths_, TRUTH[::-1] + 5.0) == pytest.approx(
        matched_distance(model.log_worths_, TRUTH)
    )


def test_match_components__shapes() -> None:
    with pytest.raises(SettingsError, match=r"cannot match components of shapes \(2, 3\) and \(1, 3\)"):
        match_components(np.zeros((2, 3)), np.zeros(3))


def test_fit__canonical_form(full: NDArray[np.int64]) -> None:
    for seed in range(3):
        model = PlackettLuceMixture(2, random_state=seed).fit(full)
        assert_allclose(model.log_worths_.mean(axis=1), 0.0, atol=1e-13)
        assert model.shares_[0] > model.shares_[1]
        assert model.shares_.sum() == pytest.approx(1.0, abs=1e-15)
        assert model.item_names_ == tuple("012345")


# --- ways in ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unranked", ["below", "absent"])
def test_fit__short_rows(unranked: Any) -> None:
    table = np.array([[0, 1, -1, -1], [1, 2, 3, -1], [3, 0, -1, -1], [2, 3, 1, 0], [2, 0, -1, -1]] * 6)
    rows = [Ranking(tuple((item,) for item in row if item >= 0), (), unranked, 1.0) for row in table.tolist()]
    model = PlackettLuceMixture(1, random_state=0).fit(table, unranked=unranked)
    assert model.log_likelihood_ == pytest.approx(log_likelihood(rows, 4, model.log_worths_, [1.0]), rel=1e-12)
    assert same_fit(model, PlackettLuceMixture(1, random_state=0).fit(block_of(rows, 4)), atol=0)
    assert_allclose(model.score_samples(table, unranked=unranked).sum(), model.log_likelihood_)


def test_fit__short_rows_that_say_nothing() -> None:
    with pytest.raises(RankingError, match=r"row 1 lists 2 of 3 items.*say unranked=\"below\""):
        PlackettLuceMixture(1).fit(np.array([[0, 1, 2], [1, 0, -1]]))
    with pytest.raises(RankingError, match="row 0 lists 3 of 4 items"):
        PlackettLuceMixture(1).fit(np.array([[0, 1, 2], [1, 0, 2]]), n_items=4)


def test_fit__items_that_never_occur() -> None:
    model = PlackettLuceMixture(1).fit(np.array([[0, 1], [1, 0], [0, 1]]), n_items=4, unranked="below")
    assert model.log_worths_.shape == (1, 4)
    assert model.log_worths_[0, 2] == pytest.approx(model.log_worths_[0, 3])
    assert model.log_worths_[0, 2] < model.log_worths_[0, :2].min() - 1


def test_fit__every_way_in(store: RankingStore, mixed: list[Ranking], model: PlackettLuceMixture) -> None:
    block = block_of(mixed, 6)
    fresh = clone(model)
    assert same_fit(clone(model).fit(store), model, atol=0)
    assert same_fit(clone(model).fit(store.location.url), model, atol=0)
    assert same_fit(fresh.fit(block), model)
    assert (model.item_names_, fresh.item_names_) == (tuple(NAMES), tuple("012345"))
    # Weights by hand take the place of those that the rows bring.
    weights = [row.weight for row in mixed]
    unweighted = block.replace(weights=np.full(400, 9.0))
    assert same_fit(clone(model).fit(unweighted, sample_weight=weights), model)


@pytest.mark.parametrize("rows_per_chunk", [700, 5_000], ids=["many chunks", "one chunk"])
def test_fit__dask_array(rows_per_chunk: int) -> None:
    block, _ = draw_rankings(TRUTH, np.array(SHARES), 5_000, np.random.default_rng(5), length=3, unranked="below")
    table = block.to_array()
    lazy = da.from_array(table, chunks=(rows_per_chunk, 2))
    options: dict[str, Any] = {"unranked": "below", "n_items": 6}
    theirs = PlackettLuceMixture(2, random_state=0, tol=1e-3).fit(table, **options)
    with dask.config.set(scheduler="synchronous"):  # whatever cluster other tests have started
        mine = PlackettLuceMixture(2, random_state=0, tol=1e-3).fit(lazy, **options)
        assert same_fit(mine, theirs, atol=0)
        found = mine.predict_proba(lazy, unranked="below")
        assert isinstance(found, da.Array)
        assert found.shape == (5_000, 2)
        assert np.array_equal(found.compute(), theirs.predict_proba(table, unranked="below"))
        assert mine.score(lazy, unranked="below") == theirs.score(table, unranked="below")
        # The number of items is found where it is not said.
        assert PlackettLuceMixture(1, tol=1e-3).fit(lazy, unranked="below").log_worths_.shape == (1, 6)


def test_fit__dask_array_that_cannot_be_used() -> None:
    table = np.tile([0, 1, 2], (9_000, 1))
    table[8_500, 2] = -1
    with pytest.raises(RankingError, match="row 8500 lists 2 of 3 items"):
        PlackettLuceMixture(1).fit(da.from_array(table, chunks=1_000))
    numbers = da.from_array(np.zeros((4, 2)), chunks=2)
    with pytest.raises(SettingsError, match=r"expected an integer array \(rankings, places\), but got float64"):
        PlackettLuceMixture(1).fit(numbers, n_items=2)
    unknown = da.from_array(np.array([[0, 1], [1, 0]]), chunks=1)
    unknown = unknown[unknown[:, 0] >= 0]
    with pytest.raises(SettingsError, match=r"call compute_chunk_sizes\(\) first"):
        PlackettLuceMixture(1).fit(unknown, n_items=2)


def test_sample_weight__zeros_and_copies(full: NDArray[np.int64]) -> None:
    weights = np.random.default_rng(6).integers(0, 4, 900)
    by_weight = PlackettLuceMixture(2, random_state=0, tol=1e-10).fit(full, sample_weight=weights)
    by_copies = PlackettLuceMixture(2, random_state=0, tol=1e-10).fit(np.repeat(full, weights, axis=0))
    assert same_fit(by_weight, by_copies, atol=1e-9)
    assert by_weight.log_likelihood_ == pytest.approx(by_copies.log_likelihood_, rel=1e-12)
    # Zero means that a row is not there: then not even a row of other items can matter.
    weights[:] = 1
    weights[-1] = 0
    left_out = PlackettLuceMixture(2, random_state=0).fit(full, sample_weight=weights)
    assert same_fit(left_out, PlackettLuceMixture(2, random_state=0).fit(full[:-1]), atol=0)


def test_sample_weight__zero_for_whole_leaves(store: RankingStore, mixed: list[Ranking]) -> None:
    weights = np.zeros(400)
    weights[40:60] = 2.0
    found = PlackettLuceMixture(1).fit(store, sample_weight=weights)
    rows = [row._replace(weight=2.0) for row in mixed[40:60]]
    assert same_fit(found, PlackettLuceMixture(1).fit(block_of(rows, 6)))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], r"expected 3 sample weights, one per ranking, but got shape \(2,\)"),
        ([1.0, -2.0, 1.0], r"sample_weight\[1\] is -2.0, but must be finite, not negative, and at most 1e"),
        ([1.0, 1.0, math.nan], r"sample_weight\[2\] is nan, but must be finite, not negative, and at most 1e"),
        ([0.0, 0.0, 0.0], "all weights are zero"),
    ],
)
def test_sample_weight__refused(weights: list[float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        PlackettLuceMixture(1).fit(np.array([[0, 1], [1, 0], [0, 1]]), sample_weight=weights)


# --- ways out --------------------------------------------------------------------------------------------


def test_predict__by_definition(model: PlackettLuceMixture, mixed: list[Ranking]) -> None:
    block = block_of(mixed, 6)
    logs, posteriors = exact_posteriors(mixed, 6, model.log_worths_, np.log(model.shares_))
    found = model.predict_proba(block)
    assert isinstance(found, np.ndarray)
    assert_allclose(found, posteriors, rtol=1e-9)
    assert_allclose(model.score_samples(block), logs, rtol=1e-12)
    assert np.array_equal(model.predict(block), posteriors.argmax(axis=1))


def test_predict__store_in_lazy_out(
    model: PlackettLuceMixture, store: RankingStore, mixed: list[Ranking], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few leaves a chunk, so that results are put together from many.
    monkeypatch.setattr(by_row, "_LEAVES_PER_RUN", 4)
    block = block_of(mixed, 6)
    n_reads = []
    read = RankingStore._runs
    monkeypatch.setattr(RankingStore, "_runs", lambda *args: n_reads.append(1) or read(*args))
    lazy = {name: getattr(model, name)(store) for name in ("predict_proba", "predict", "score_samples")}
    assert n_reads == []
    for name, array in lazy.items():
        eager = getattr(model, name)(block)
        assert isinstance(array, da.Array), name
        assert (array.shape, array.dtype) == (eager.shape, eager.dtype), name
        assert array.numblocks[0] == 7, name
        assert np.array_equal(array.compute(scheduler="synchronous"), eager), name
    assert n_reads != []


def test_score__mean_by_weight(model: PlackettLuceMixture, store: RankingStore, mixed: list[Ranking]) -> None:
    block = block_of(mixed, 6)
    samples, weights = model.score_samples(block), [row.weight for row in mixed]
    assert model.score(block) == pytest.approx(np.average(samples, weights=weights), rel=1e-13)
    assert model.score(store) == pytest.approx(model.score(block), rel=1e-13)
    assert model.score(store) == pytest.approx(model.log_likelihood_ / sum(weights), rel=1e-12)
    other = np.random.default_rng(7).random(400)
    assert model.score(store, sample_weight=other) == pytest.approx(np.average(samples, weights=other), rel=1e-13)


def test_criteria__by_formula(model: PlackettLuceMixture, store: RankingStore, mixed: list[Ranking]) -> None:
    total = log_likelihood(mixed, 6, model.log_worths_, model.shares_.tolist())
    n_parameters = 2 * 5 + 1
    weight = sum(row.weight for row in mixed)
    assert model.bic(store) == pytest.approx(n_parameters * math.log(weight) - 2 * total, rel=1e-12)
    assert model.aic(store) == pytest.approx(2 * n_parameters - 2 * total, rel=1e-12)


def test_sample__frequencies(tmp_path: Path) -> None:
    worths, shares = [[1.0, 0.0, -1.0], [-2.0, 1.0, 1.0]], [0.7, 0.3]
    MixtureParams.of(worths, shares, ["a", "b", "c"]).save(tmp_path / "model")
    model = PlackettLuceMixture.load(tmp_path / "model")
    rankings, component = model.sample(20_000, random_state=1)
    assert rankings.shape == (20_000, 3)
    chances = ranking_probabilities(model.log_worths_.tolist(), shares, 3, None)
    counts = Counter(map(tuple, rankings.tolist()))
    assert chi_square(dict(counts), chances) < chi_square_bound(len(chances))
    counts_by_component = Counter(component.tolist())
    assert chi_square(dict(counts_by_component), {0: 0.7, 1: 0.3}) < chi_square_bound(2)
    again, _ = model.sample(20_000, random_state=1)
    assert np.array_equal(again, rankings)
    other, _ = model.sample(20_000, random_state=2)
    assert not np.array_equal(other, rankings)


def test_predict__component_without_share(tmp_path: Path) -> None:
    # A component may have been given no share at all: it is then never the one, without any warning.
    MixtureParams.of([[1.0, -1.0], [-1.0, 1.0]], [1.0, 0.0], ["0", "1"]).save(tmp_path / "model")
    model = PlackettLuceMixture.load(tmp_path / "model")
    rankings = np.array([[0, 1], [1, 0]])
    assert model.score(rankings) == pytest.approx(-math.log1p(math.exp(-2)) - 1.0)
    assert model.predict_proba(rankings).tolist() == [[1.0, 0.0], [1.0, 0.0]]


# --- models on disk --------------------------------------------------------------------------------------


def test_save__read_with_numpy_and_json(tmp_path: Path, model: PlackettLuceMixture) -> None:
    model.save(tmp_path / "model")
    assert np.array_equal(np.load(tmp_path / "model/log_worths.npy", allow_pickle=False), model.log_worths_)
    assert np.array_equal(np.load(tmp_path / "model/shares.npy", allow_pickle=False), model.shares_)
    about = json.loads((tmp_path / "model/model.json").read_text())
    assert about["format"] == "plmix-model"
    assert about["item_names"] == NAMES
    assert about["settings"]["alpha"] == 1.0
    assert about["fit"]["converged"] is True
    assert about["fit"]["log_likelihood"] == model.log_likelihood_
    assert len(about["history"]) == model.n_iter_


def test_load__what_was_saved(tmp_path: Path, model: PlackettLuceMixture, store: RankingStore) -> None:
    model.save(tmp_path / "model")
    loaded = PlackettLuceMixture.load(tmp_path / "model")
    assert same_fit(loaded, model, atol=0)
    assert loaded.get_params() == model.get_params()
    for name in ("item_names_", "n_iter_", "converged_", "log_likelihood_", "objective_", "gradient_norm_",
                 "m_step_", "history_", "events_"):  # fmt: skip
        assert getattr(loaded, name) == getattr(model, name), name
    assert loaded.score(store) == model.score(store)


def test_load__no_model(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=f"no model at {tmp_path}/nothing"):
        PlackettLuceMixture.load(tmp_path / "nothing")


@pytest.mark.parametrize("setting", [{"tol": np.float64(1e-6)}, {"n_components": np.int64(2)}], ids=str)
def test_save__numbers_of_numpy(tmp_path: Path, full: NDArray[np.int64], setting: dict[str, Any]) -> None:
    # Grids of settings come from np.arange and np.logspace.
    model = PlackettLuceMixture().set_params(random_state=np.int64(0), **setting).fit(full)
    model.save(tmp_path / "model")
    assert same_fit(PlackettLuceMixture.load(tmp_path / "model"), model, atol=0)


# --- warm starts -----------------------------------------------------------------------------------------


@UNFINISHED
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("m_step", ["lsr", "mm"])
@pytest.mark.parametrize("way", ["saved", "model"])
def test_warm_start__continues(tmp_path: Path, store: RankingStore, alpha: float, m_step: Any, way: str) -> None:
    settings: dict[str, Any] = {"m_step": m_step, "alpha": alpha, "accelerate": False}
    start = TRUTH + np.random.default_rng(9).normal(0, 0.5, TRUTH.shape)
    begun = PlackettLuceMixture(2, init=start, max_iter=3, **settings).fit(store)
    begun.save(tmp_path / "begun")
    init = tmp_path / "begun" if way == "saved" else begun
    continued = PlackettLuceMixture(2, init=init, max_iter=3, **settings).fit(store)
    # The first pass of the second looks again at where the first ended.
    at_once = PlackettLuceMixture(2, init=start, max_iter=5, **settings).fit(store)
    objectives = [
        [record["objective"] for record in records]
        for records in (begun.history_ + continued.history_[1:], at_once.history_)
    ]
    assert_allclose(*objectives, rtol=1e-12)
    assert same_fit(continued, at_once, atol=1e-11)


def test_warm_start__from_the_end(model: PlackettLuceMixture, store: RankingStore) -> None:
    again = PlackettLuceMixture(2, init=model).fit(store)
    assert again.n_iter_ <= 3
    assert same_fit(again, model, atol=1e-6)


def test_n_init__keeps_the_best(store: RankingStore) -> None:
    heard: list[dict[str, Any]] = []
    model = PlackettLuceMixture(3, init="random", n_init=4, random_state=1, max_iter=3_000, progress=heard.append).fit(
        store
    )
    ends = {record["start"]: record["objective"] for record in heard if record["taken"]}
    assert sorted(ends) == [0, 1, 2, 3]
    assert len({round(objective, 3) for objective in ends.values()}) > 1, "the starts should differ in the end"
    assert model.objective_ == max(ends.values())
    best = max(ends, key=lambda start: ends[start])
    assert {record["start"] for record in model.history_} == {best}


def test_random_state__decides(full: NDArray[np.int64]) -> None:
    first, again = (PlackettLuceMixture(2, init="random", random_state=3).fit(full) for _ in range(2))
    other = PlackettLuceMixture(2, init="random", random_state=4).fit(full)
    assert [record["objective"] for record in first.history_] == [record["objective"] for record in again.history_]
    assert first.history_[0]["objective"] != other.history_[0]["objective"]


@pytest.mark.parametrize(
    "init", [np.zeros((3, 6)), np.zeros((2, 5)), [[0.0] * 6]], ids=lambda init: str(np.shape(init))
)
def test_init__wrong_shape(full: NDArray[np.int64], init: Any) -> None:
    shape = str(np.shape(init)).replace("(", r"\(").replace(")", r"\)")
    message = rf"init has shape {shape}, but 2 components of 6 items are to be fitted"
    with pytest.raises(SettingsError, match=message):
        PlackettLuceMixture(2, init=init).fit(full)


def test_init__not_there_not_fitted_not_finite(tmp_path: Path, full: NDArray[np.int64]) -> None:
    with pytest.raises(StoreNotFoundError, match=f"no model at {tmp_path}/nothing"):
        PlackettLuceMixture(2, init=tmp_path / "nothing").fit(full)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        PlackettLuceMixture(2, init=PlackettLuceMixture(2)).fit(full)
    bad = TRUTH.copy()
    bad[1, 2] = np.nan
    with pytest.raises(SettingsError, match="nan"):
        PlackettLuceMixture(2, init=bad).fit(full)


def test_init__of_other_items(tmp_path: Path, model: PlackettLuceMixture, mixed: list[Ranking]) -> None:
    # The same names in another order: taken by number, tea's worth would become milk's.
    names = [NAMES[4], *NAMES[1:4], NAMES[0], NAMES[5]]
    store = write_store(tmp_path / "store", [[block_of(mixed, 6)]], item_names=names)
    with pytest.raises(SettingsError, match="item 0 is 'milk' here and 'tea' there"):
        PlackettLuceMixture(2, init=model).fit(store)


# --- what is refused -------------------------------------------------------------------------------------


def test_items__other_than_the_model(tmp_path: Path, model: PlackettLuceMixture) -> None:
    block = block_of([slate([0, 1, 2], []), slate([2, 1, 0], [])], 6)
    names = [*NAMES[:1], "cola", *NAMES[2:]]
    other = write_store(tmp_path / "other", [[block]], item_names=names)
    for use in (model.predict, model.score, model.predict_proba):
        with pytest.raises(SettingsError, match="other items than the model: item 1 is 'cola' here and 'coffee' there"):
            use(other)
    more = write_store(tmp_path / "more", [[block.replace(n_items=7)]], item_names=[*NAMES, "cola"])
    with pytest.raises(SettingsError, match="7 items here and 6 there"):
        model.score(more)
    with pytest.raises(SettingsError, match="the block has 7 items, but 6 are expected"):
        model.score(block.replace(n_items=7))
    with pytest.raises(RankingError, match="item 6 is out of range: there are 6 items"):
        model.score(np.array([[0, 6]]), unranked="absent")


def test_store__says_itself(store: RankingStore) -> None:
    with pytest.raises(SettingsError, match="a store says itself what unranked items mean"):
        PlackettLuceMixture(1).fit(store, unranked="below")
    with pytest.raises(SettingsError, match="n_items is 9, but the store has 6 items"):
        PlackettLuceMixture(1).fit(store, n_items=9)


def test_ties__at_the_end_are_none() -> None:
    tied = [Ranking(((0,), (1, 2)), (), "absent", 1.0), Ranking(((2,), (0, 1)), (), "absent", 1.0)]
    untied = [slate([0], [1, 2]), slate([2], [0, 1])]
    fits = [PlackettLuceMixture(1, random_state=0).fit(block_of(rows, 3)) for rows in (tied, untied)]
    assert same_fit(*fits, atol=0)


def test_fit__no_rankings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no rankings were given"):
        PlackettLuceMixture(1).fit(np.empty((0, 3), int), n_items=3)
    with pytest.raises(StoreNotFoundError):
        PlackettLuceMixture(1).fit(tmp_path / "nothing")
    with pytest.raises(SettingsError, match="no rankings were given"):
        PlackettLuceMixture(1).fit([])
    with pytest.raises(RankingError, match=r"row 0, column 0: 0.5 is not an item number"):
        PlackettLuceMixture(1).fit(np.array([[0.5, 1.0]]))


def test_n_init__a_start_does_not_win_by_losing_components() -> None:
    # Two components, and a prior that costs more per component than the second one gains: by the objective, the
    # start that has one component left wins, although a second one of share zero would cost as much as any other.
    truth = np.array([[1.0, 0.5, 0.0, -0.5, -1.0], [-1.0, -0.5, 0.0, 0.5, 1.0]])
    block, _ = draw_rankings(truth, np.array([0.8, 0.2]), 30, np.random.default_rng(0))
    em = Em(MM, 2.0, weight=30.0, n_rankings=30, tol=1e-6)
    starts = [Point.start(truth, np.array([0.8, 0.2])), Point.start(truth[:1], np.ones(1))]
    ends = run_to_ends(ThreadedPasses(as_rankings(block)), em, [Candidate(start, {}) for start in starts])
    two, one = ends.runs[0], ends.runs[1]
    assert two.point.n_components == 2
    assert two.objective is not None
    assert one.objective is not None
    assert one.objective > two.objective
    assert two.log_likelihood > one.log_likelihood
    # As one of two components, the other of share zero and with the worths that the prior likes best.
    unused = -2 * 5 * 2.0 * math.log(2)
    assert one.objective + unused < two.objective
    assert best_of(ends) == 0
    assert two.score - one.score == pytest.approx(two.objective - (one.objective + unused))


TINY = [(10, 4, 5, 1), (10, 10, 5, 2), (24, 3, 4, 2), (50, 3, 2, 2), (50, 3, 3, 0), (50, 3, 4, 0)]


@pytest.mark.parametrize(("n_rankings", "n_items", "n_components", "seed"), TINY)
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_few_rows__converge_and_say_one_thing_once(
    n_rankings: int, n_items: int, n_components: int, seed: int, alpha: float
) -> None:
    rng = np.random.default_rng([n_rankings, n_items, n_components, seed])
    block, _ = draw_rankings(rng.normal(size=(3, n_items)), np.full(3, 1 / 3), n_rankings, rng)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = PlackettLuceMixture(n_components, alpha=alpha, random_state=0).fit(block)
    assert model.converged_
    assert model.n_iter_ < 300
    assert (model.shares_ > 1e-6).all()
    kinds = [each.category for each in said if not issubclass(each.category, StartWarning)]
    assert len(kinds) == len(set(kinds))
    assert NotConvergedWarning not in kinds
    if len(model.shares_) < n_components:
        (collapsed,) = [each for each in said if each.category is CollapsedComponentWarning]
        assert f"{len(model.shares_)} of {n_components} components are left" in str(collapsed.message)
