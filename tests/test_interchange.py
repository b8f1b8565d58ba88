"""Models to and from arrays and JSON, memberships to Parquet, a store as xarray: nothing is lost on the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import cli_helpers
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import plmix_dist as pl
from plmix_dist.errors import SettingsError, StoreExistsError, UnsupportedFormatError
from plmix_dist.membership_table import write_membership_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cli_helpers import Said
    from distributed import Client

shell = cli_helpers.shell

NAMES = ["tea", "mate", "milk", "Kaffee, schwarz"]


def model_of_drinks() -> pl.PlackettLuceMixture:
    rng = np.random.default_rng(0)
    rows = [[NAMES[item] for item in rng.permutation(4)[: rng.integers(1, 5)]] for _ in range(60)]
    return pl.PlackettLuceMixture(2, unranked="below", random_state=0).fit(rows)


# --- arrays ----------------------------------------------------------------------------------------------


@given(
    arrays.arrays(np.float64, (2, 3), elements=st.floats(-50, 50)),
    st.floats(0.01, 0.99),
)
def test_arrays__a_model_of_given_parameters_has_the_probabilities_of_the_formula(log_worths, share):
    model = pl.PlackettLuceMixture.from_arrays(log_worths, [share, 1 - share])
    expected = 0.0
    for portion, logs in zip((share, 1 - share), log_worths, strict=True):
        worths = np.exp(logs - logs.max())
        left = np.exp(logs[[2, 0]] - logs[[2, 0]].max())
        expected += portion * worths[1] / worths.sum() * left[0] / left.sum()
    np.testing.assert_allclose(np.exp(model.score_samples([[1, 2, 0]])), [expected], rtol=1e-9, atol=1e-300)
    assert model.shares_[0] == max(share, 1 - share)


def test_arrays__there_and_back_every_bit_is_kept():
    model = model_of_drinks()
    again = pl.PlackettLuceMixture.from_arrays(
        model.log_worths_, model.shares_, model.item_names_, unranked=model.unranked_
    )
    assert again.log_worths_.tobytes() == model.log_worths_.tobytes()
    assert again.shares_.tobytes() == model.shares_.tobytes()
    assert again.score([["tea"]]) == model.score([["tea"]])
    assert again.n_iter_ is None
    assert again.summary().startswith("PlackettLuceMixture: 2 components, 4 items")


def test_arrays__of_another_shape_are_refused():
    with pytest.raises(SettingsError, match=r"expected log-worths of shape \(components, 2\).*got \(1, 3\)"):
        pl.PlackettLuceMixture.from_arrays([[0.0, 1.0, 2.0]], item_names=["tea", "mate"])
    with pytest.raises(
        SettingsError, match=r"shares must be 1 non-negative numbers that sum to 1, but are \[0.5\]"
    ):
        pl.PlackettLuceMixture.from_arrays([[0.0, 1.0]], [0.5])


# --- JSON ------------------------------------------------------------------------------------------------


def test_json__gives_back_every_bit_and_every_setting():
    model = model_of_drinks()
    again = pl.PlackettLuceMixture.from_json(model.to_json())
    for name in ("log_worths_", "shares_", "_ghosts"):
        assert getattr(again, name).tobytes() == getattr(model, name).tobytes()
    assert again.item_names_ == model.item_names_
    assert again.get_params() == model.get_params()
    assert (again.n_iter_, again.converged_, again.log_likelihood_) == (
        model.n_iter_,
        model.converged_,
        model.log_likelihood_,
    )
    assert again.history_ == model.history_
    assert again.score([["tea"]]) == model.score([["tea"]])  # it remembers what short rows mean
    assert again.to_json() == pl.PlackettLuceMixture.from_json(again.to_json()).to_json()


@given(arrays.arrays(np.float64, (2, 3), elements=st.floats(-700, 700)))
def test_json__of_any_numbers(log_worths):
    model = pl.PlackettLuceMixture.from_arrays(log_worths, [0.7, 0.3])
    again = pl.PlackettLuceMixture.from_json(model.to_json())
    assert again.log_worths_.tobytes() == model.log_worths_.tobytes()


def test_json__of_a_model_with_covariates():
    rng = np.random.default_rng(1)
    column = rng.normal(size=(80, 1))
    model = pl.PlackettLuceMixture(2, random_state=0)
    model.fit([rng.permutation(4) for _ in column], membership_covariates=column)
    again = pl.PlackettLuceMixture.from_json(model.to_json())
    assert again.share_coefficients_.tobytes() == model.share_coefficients_.tobytes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("shares: 1", "this is no JSON: "),
        ("[1, 2]", "its format is 'list', where 'plmix-model-json' is expected"),
        ('{"format": "plmix-model"}', "load takes the folder of a model"),
        ('{"format": "plmix-model-json", "version": 1}', "it has no item_names"),
    ],
)
def test_json__of_anything_else_is_refused(text, words):
    with pytest.raises(SettingsError, match=words):
        pl.PlackettLuceMixture.from_json(text)


def test_json__that_was_changed_is_refused():
    record = json.loads(model_of_drinks().to_json())
    with pytest.raises(SettingsError, match="4 item names"):
        pl.PlackettLuceMixture.from_json(json.dumps(record | {"shares": [1.0]}))
    with pytest.raises(SettingsError, match="item names must differ, but 'tea' occurs 4 times"):
        pl.PlackettLuceMixture.from_json(json.dumps(record | {"item_names": ["tea"] * 4}))
    with pytest.raises(UnsupportedFormatError, match="format version 2"):
        pl.PlackettLuceMixture.from_json(json.dumps(record | {"version": 2}))


# --- memberships to Parquet ------------------------------------------------------------------------------


def long_table(path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = [
        (f"ballot {person}-{vote}", f"person {person}", NAMES[item], place)
        for person in range(40)
        for vote in range(3)
        for place, item in enumerate(
            np.argsort([1, -1][person % 2] * (np.arange(4) + rng.normal(size=4))), start=1
        )
    ]
    pd.DataFrame(rows, columns=["id", "person", "item", "rank"]).to_csv(path, index=False)


def test_parquet__has_ids_groups_and_the_memberships_of_python(
    tmp_path: Path, shell: Callable[..., Said]
) -> None:
    long_table(tmp_path / "votes.csv")
    shell("ingest", "votes.csv", "votes", "--column", "group=person")
    shell("fit", "votes", "--components", "2", "--out", "model")
    said = shell("predict", "model", "votes", "who.parquet")
    assert (
        said.line("predicted")
        == "120 memberships to who.parquet (id, group, component, probability 0, probability 1)"
    )
    table = pd.read_parquet("who.parquet")
    expected = pl.PlackettLuceMixture.load("model").memberships("votes", table="pandas")
    assert table.columns.tolist() == expected.columns.tolist()
    assert table["id"].tolist()[:2] == ["ballot 0-0", "ballot 0-1"]
    assert table["group"].tolist()[3] == "person 1"
    for name in ("component", "probability 0", "probability 1"):
        np.testing.assert_array_equal(table[name], expected[name])
    assert (
        shell("predict", "model", "votes", "who.parquet")
        .line("nothing to do")
        .startswith("who.parquet already")
    )
    shell("fit", "votes", "--components", "1", "--out", "other")
    refused = shell("predict", "other", "votes", "who.parquet", code=1)
    assert "who.parquet exists already" in refused.err
    record = json.loads(shell("predict", "other", "votes", "who.parquet", "--force", "--json").out)
    assert record["columns"] == ["id", "group", "component", "probability 0"]


def test_parquet__of_many_row_groups_in_order_in_threads_and_on_a_cluster(
    tmp_path: Path, client: Client
) -> None:
    store = pl.simulate(tmp_path / "s", n_rankings=200_000, n_items=4, n_components=2, random_state=0)
    mixture = pl.MixtureParams.load(tmp_path / "s.truth")
    write_membership_table(mixture, store, tmp_path / "here.parquet", client=False)
    write_membership_table(mixture, store, tmp_path / "there.parquet", client=client)
    here, there = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("here", "there"))
    assert here.equals(there)
    assert pq.read_metadata(tmp_path / "here.parquet").num_row_groups > 1
    assert here["id"].to_pylist() == list(range(200_000))
    model = pl.PlackettLuceMixture.from_arrays(mixture.log_worths, mixture.shares, mixture.item_names)
    np.testing.assert_array_equal(here["probability 1"], model.predict_proba(store).compute()[:, 1])


def test_parquet__never_over_a_file_of_the_user(tmp_path: Path) -> None:
    store = pl.simulate(tmp_path / "s", n_rankings=10, n_items=3)
    mixture = pl.MixtureParams.load(tmp_path / "s.truth")
    (tmp_path / "mine.parquet").write_text("notes")
    with pytest.raises(StoreExistsError, match="exists already"):
        write_membership_table(mixture, store, tmp_path / "mine.parquet")
    assert (tmp_path / "mine.parquet").read_text() == "notes"


# --- xarray ----------------------------------------------------------------------------------------------


def test_xarray__shows_every_column_of_the_store(finished_store: Path, every_column) -> None:
    pytest.importorskip("xarray")
    view = pl.as_xarray(finished_store)
    assert dict(view.sizes) == {"ranking": 20, "place": 6, "item": 6}
    assert all(hasattr(view[name].data, "dask") for name in ("items", "tied", "weight", "group", "id"))
    table = view.compute(scheduler="synchronous")
    for number, ranking in enumerate(every_column.rows):
        listed = [item for tie in ranking.ordered for item in tie] + list(ranking.offered)
        row = table.isel(ranking=number)
        assert row["items"].to_numpy().tolist() == listed + [-1] * (6 - len(listed))
        assert int(row["n_ordered"]) == sum(map(len, ranking.ordered))
        assert bool(row["below"]) == (ranking.unranked == "below")
        assert float(row["weight"]) == ranking.weight
        flags = [place > 0 for tie in ranking.ordered for place, _ in enumerate(tie)]
        assert row["tied"].to_numpy().tolist()[: len(flags)] == flags
    assert table["id"].to_numpy().tolist() == every_column.ids
    assert table["group"].to_numpy().tolist() == every_column.groups
    assert table["item"].to_numpy().tolist() == list(pl.open_store(finished_store).item_names)
