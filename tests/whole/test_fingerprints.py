"""The fingerprints of all results: what differs in anything that matters is never taken for what is there already."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import plmix_dist as plm
from plmix_dist.errors import StoreExistsError
from plmix_dist.fitting import fingerprint
from plmix_dist.prediction.memberships import write_membership_table, write_predictions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.promise(56), pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")]

N = 200
ROWS = np.argsort(np.random.default_rng(0).gumbel(size=(N, 5)) + np.arange(5) / 2, axis=1)
WEIGHTS = np.ones(N)
COVARIATES = np.random.default_rng(1).normal(size=(N, 1))


def changed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same but for one entry in the middle."""
    other = array.copy()
    other[len(other) // 2] = other[len(other) // 2][::-1] if other.ndim == 2 and other.shape[1] > 1 else 2.0
    return other


FIT: dict[str, Any] = {"n_components": 2, "random_state": 1, "alpha": 0.5, "max_iter": 8}
GIVEN: dict[str, Any] = {"rows": ROWS, "sample_weight": WEIGHTS, "client": False}


class Kept:
    """Rows as an array or in a store, and a place where the fit of the first of them is kept."""

    def __init__(self, folder: Path, *, stored: bool) -> None:
        self.folder, self.stored = folder, stored
        self.first = self.fit({}, {})

    def fit(self, settings: dict[str, Any], given: dict[str, Any]) -> Any:
        call = GIVEN | given
        rows = self._source(call.pop("rows"))
        return plm.PlackettLuceMixture(**(FIT | settings), checkpoint=self.folder / "c").fit(rows, **call)

    def _source(self, rows: np.ndarray[Any, Any]) -> Any:
        if not self.stored:
            return rows
        place = self.folder / f"store{int(rows is not ROWS)}"
        if place.exists():
            return place
        file = place.with_suffix(".csv")
        file.write_text("\n".join(",".join(f"item{item}" for item in row) for row in rows) + "\n")
        return plm.ingest(file, place, format="wide")


@pytest.fixture(scope="module", params=["array", "store"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A fit with a checkpoint."""
    return Kept(tmp_path_factory.mktemp(request.param), stored=request.param == "store")


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({"n_components": 1}, {}),
        ({"random_state": 2}, {}),
        ({"alpha": 0.6}, {}),
        ({"max_iter": 9}, {}),
        ({"tol": 1e-6}, {}),
        ({"m_step": "lsr"}, {}),
        ({"ties": "marginal"}, {}),
        ({"n_init": 2}, {}),
        ({"init": "random"}, {}),
        ({}, {"rows": changed(ROWS)}),
        ({}, {"sample_weight": changed(WEIGHTS)}),
        ({}, {"sample_weight": None, "membership_covariates": COVARIATES}),
    ],
    ids=lambda what: "-".join(what) or "as-it-was",
)
def test_fit__another_one_does_not_go_on_from_the_checkpoint(
    kept: Kept, settings: dict[str, Any], given: dict[str, Any]
) -> None:
    with pytest.raises(StoreExistsError, match="of another computation"):
        kept.fit(settings, given)


def test_fit__the_same_one_does(kept: Kept) -> None:
    assert np.array_equal(kept.fit({}, {}).log_worths_, kept.first.log_worths_)
    assert np.array_equal(kept.fit({"residency": "store"}, {}).log_worths_, kept.first.log_worths_)


def test_fit__begun_elsewhere_does_not_go_on(tmp_path: Path) -> None:
    starts = np.random.default_rng(1).normal(size=(2, 2, ROWS.shape[1]))
    for number, start in enumerate(starts):
        model = plm.PlackettLuceMixture(**(FIT | {"init": start}), checkpoint=tmp_path / "c")
        refused = pytest.raises(StoreExistsError, match="of another computation")
        with refused if number else contextlib.nullcontext():
            model.fit(ROWS, client=False)


def test_fit__the_order_of_leaves_matters() -> None:
    assert fingerprint._combine(b"first", b"second") != fingerprint._combine(b"second", b"first")


def test_fit__other_covariates(tmp_path: Path) -> None:
    model = plm.PlackettLuceMixture(**FIT, checkpoint=tmp_path / "c")
    store = plm.simulate(tmp_path / "s", n_rankings=N, n_items=5, random_state=0)
    model.fit(store, membership_covariates=COVARIATES, client=False)
    with pytest.raises(StoreExistsError, match="of another computation"):
        model.fit(store, membership_covariates=changed(COVARIATES), client=False)


@pytest.mark.parametrize("stored", [False, True])
def test_fit__other_names(tmp_path: Path, stored: bool) -> None:
    model = plm.PlackettLuceMixture(**FIT, checkpoint=tmp_path / "c")

    def named(word: str) -> Any:
        rows = [[f"{word}{item}" for item in row] for row in ROWS.tolist()]
        if not stored:
            return rows
        file = tmp_path / f"{word}.csv"
        file.write_text("\n".join(map(",".join, rows)) + "\n")
        return plm.ingest(file, tmp_path / word, format="wide")

    model.fit(named("tea"), client=False)
    with pytest.raises(StoreExistsError, match="of another computation"):
        model.fit(named("mate"), client=False)


@pytest.mark.parametrize(
    "change",
    [
        {"items": np.array([1, 0, 2, 2], np.uint8)},
        {"n_listed": np.array([2, 2], np.uint8)},
        {"n_ordered": np.array([2, 1], np.uint8)},
        {"below": np.array([False, False])},
        {"tied": np.array([False, False, True, False])},
        {"weights": np.array([1.0, 3.0])},
        {"groups": np.array([0, 0])},
        {"covariates": np.array([[0.5], [0.25]])},
    ],
    ids=lambda change: next(iter(change)),
)
def test_fit__every_column_of_rows_in_memory_matters(change: dict[str, Any]) -> None:
    columns: dict[str, Any] = {
        "items": np.array([0, 1, 2, 2], np.uint8),
        "n_listed": np.array([3, 1], np.uint8),
        "n_ordered": np.array([3, 1], np.uint8),
        "below": np.array([False, True]),
        "n_items": 3,
        "tied": np.array([False, True, False, False]),
        "weights": np.array([1.0, 2.0]),
        "groups": np.array([0, 1]),
        "covariates": np.array([[0.5], [0.5]]),
    }
    first, other = (fingerprint._leaf_digest(0, plm.RankingBlock(**(columns | more)), None) for more in ({}, change))
    assert first != other


@pytest.mark.parametrize("write", [write_predictions, write_membership_table])
@pytest.mark.parametrize("other", ["covariates", "coefficients", "worths", "shares", "rows"])
def test_memberships__others_are_not_kept(tmp_path: Path, write: Callable[..., Any], other: str) -> None:
    store = plm.simulate(tmp_path / "s", n_rankings=N, n_items=5, n_components=2, random_state=0)
    worths, coefficients = np.random.default_rng(3).normal(size=(2, 5)), np.array([[0.0, 0.0], [0.3, 0.5]])
    call: dict[str, Any] = {
        "store": store,
        "worths": worths,
        "shares": np.array([0.5, 0.5]),
        "share_coefficients": coefficients,
        "membership_covariates": COVARIATES,
    }
    changes: dict[str, Any] = {
        "covariates": {"membership_covariates": changed(COVARIATES)},
        "coefficients": {"share_coefficients": coefficients + 0.1},
        "worths": {"worths": worths[::-1]},
        "shares": {"shares": np.array([0.25, 0.75])},
        "rows": {"store": plm.simulate(tmp_path / "s2", n_rankings=N, n_items=5, n_components=2, random_state=1)},
    }

    def written(changes: dict[str, Any]) -> bool:
        given = dict(call | changes)
        mixture = plm.MixtureParams(given.pop("worths"), given.pop("shares"), store.item_names)
        done: bool = write(mixture, given.pop("store"), tmp_path / "who.parquet", **given).changed
        return done

    assert written({})
    assert not written({})
    with pytest.raises(StoreExistsError):
        written(changes[other])


@pytest.mark.parametrize("write", [write_predictions, write_membership_table])
def test_memberships__with_other_ties_are_not_kept(tmp_path: Path, write: Callable[..., Any]) -> None:
    file = tmp_path / "votes.toc"
    file.write_text("# NUMBER ALTERNATIVES: 3\n5: {1,2},3\n4: 3,2,1\n")
    store = plm.ingest(file, tmp_path / "s", format="preflib")
    mixture = plm.MixtureParams(np.array([[1.0, 0.0, -1.0], [0.0, 0.0, 0.0]]), np.array([0.5, 0.5]), store.item_names)
    for ties, changed in (("expand", True), ("expand", False)):
        assert write(mixture, store, tmp_path / "who.parquet", ties=ties).changed == changed
    with pytest.raises(StoreExistsError):
        write(mixture, store, tmp_path / "who.parquet", ties="marginal")


@pytest.mark.parametrize("change", [{"alpha": 0.9}, {"ties": "marginal"}, {"shares": [0.5, 0.5]}], ids=str)
def test_bootstrap__of_another_fit_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    fits = [plm.PlackettLuceMixture(**(FIT | more)).fit(ROWS, client=False) for more in ({}, change)]
    for model in fits:  # the same point, so that the setting alone makes the difference
        model.log_worths_, model.shares_ = fits[0].log_worths_, fits[0].shares_
    plm.bootstrap(fits[0], ROWS, 3, random_state=0, checkpoint=tmp_path / "c", client=False)
    with pytest.raises(StoreExistsError, match="of another computation"):
        plm.bootstrap(fits[1], ROWS, 3, random_state=0, checkpoint=tmp_path / "c", client=False)


def test_bootstrap__of_a_fit_with_other_ghosts_is_refused(tmp_path: Path) -> None:
    model = plm.PlackettLuceMixture(**FIT).fit(ROWS, client=False)
    plm.bootstrap(model, ROWS, 3, random_state=0, checkpoint=tmp_path / "c", client=False)
    model._ghosts = model._ghosts + 0.1
    with pytest.raises(StoreExistsError, match="of another computation"):
        plm.bootstrap(model, ROWS, 3, random_state=0, checkpoint=tmp_path / "c", client=False)


@pytest.mark.parametrize(
    "change", [{"weights": "poisson"}, {"tol": 0.03}, {"max_iter": 49}, {"n_replicates": 4}, {"random_state": 1}]
)
def test_bootstrap__another_one_does_not_go_on(tmp_path: Path, change: dict[str, Any]) -> None:
    call: dict[str, Any] = {"n_replicates": 3, "random_state": 0, "checkpoint": tmp_path / "c", "client": False}
    model = plm.PlackettLuceMixture(**FIT).fit(ROWS, client=False)
    plm.bootstrap(model, ROWS, **call)
    with pytest.raises(StoreExistsError, match="of another computation"):
        plm.bootstrap(model, ROWS, **(call | change))


@pytest.mark.parametrize(
    "change",
    [{"n_chains": 3}, {"n_draws": 7}, {"thin": 2}, {"worth_shape": 2.0}, {"worth_rate": 2.0},
     {"share_concentration": 2.0}, {"random_state": 2}, {"init": "prior"}],
    ids=str,
)  # fmt: skip
def test_bayes__another_chain_does_not_go_on(tmp_path: Path, change: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"n_components": 2, "n_chains": 2, "n_warmup": 3, "n_draws": 6, "random_state": 1}
    plm.BayesianPlackettLuceMixture(**settings, checkpoint=tmp_path / "c").fit(ROWS, client=False)
    with pytest.raises(StoreExistsError, match="of another computation"):
        plm.BayesianPlackettLuceMixture(**(settings | change), checkpoint=tmp_path / "c").fit(ROWS, client=False)
