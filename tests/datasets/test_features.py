"""Features as columns of a store: ingested, read, fitted as from memory, exported, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import plmix_dist as plm
from plmix_dist.errors import DamagedStoreError, IngestError, PlmixError, SettingsError
from plmix_dist.store.arrays import _rows_of_chunk
from tests.helpers.cli_helpers import Said, shell

__all__ = ["shell"]  # the fixture that runs a verb in a folder of its own


def choices(seed: int = 0, n: int = 300) -> pd.DataFrame:
    """A line per flight of each choice, by two kinds of persons."""
    rng = np.random.default_rng(seed)
    lines = []
    for task in range(n):
        price, room = rng.uniform(1, 3, 3), rng.integers(0, 20, 3)
        taste = (-2.0, 0.05) if task // 5 % 3 else (-0.3, 0.3)
        chosen = int(np.argmax(taste[0] * price + taste[1] * room + rng.gumbel(size=3)))
        for number, name in enumerate("abc"):
            own = {"person": task // 5, "task": task, "flight": name, "chosen": int(number == chosen)}
            lines.append(own | {"price": round(price[number], 3), "room": int(room[number])})
    return pd.DataFrame(lines)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("features") / "flights.csv"
    choices().to_csv(path, index=False)
    return path


COLUMNS = {"id": "task", "item": "flight", "group": "person", "features": "price,room"}


def ingested(table: Any, target: Path, **options: Any) -> plm.RankingStore:
    return plm.ingest(table, target, **{"format": "choices", "columns": COLUMNS} | options)


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_ingest__features_go_with_their_items(table: Path, tmp_path: Path, kind: str) -> None:
    source: Any = table
    if kind != "csv":
        source = pd.read_csv(table)
    if kind == "parquet":
        source.to_parquet(tmp_path / "flights.parquet")
        source = tmp_path / "flights.parquet"
    store = ingested(source, tmp_path / "store")
    assert store.feature_names == ("price", "room")
    block = store.with_features([0, 1]).block()
    assert block.features is not None
    assert block.features.dtype == np.float32
    known = choices().set_index(["task", "flight"])
    labels = np.array(store.item_names, object)[block.items]
    rows = block.row_of_item()
    expected = known.loc[list(zip(rows.tolist(), labels.tolist(), strict=True)), ["price", "room"]]
    assert_allclose(block.features, expected, rtol=1e-6)
    assert store.block().features is None
    one = store.with_features([1]).leaves(0, 1).features
    assert one is not None
    assert_allclose(one[:, 0], block.features[:, 1])
    assert plm.verify(store) == []
    assert plm.info(store)["feature_names"] == ["price", "room"]


def test_fit__the_same_bits_as_from_memory_and_on_workers(table: Path, tmp_path: Path, client: Any) -> None:
    store = ingested(table, tmp_path / "store")
    loaded = store.with_features([0, 1]).block()
    block, values = loaded.replace(features=None), loaded.features
    memory = plm.PlackettLuceMixture(2, alpha=0.0, random_state=0)
    memory.fit(block, features=plm.Features(values, names=["price", "room"]), client=False)
    for where in (False, client):
        model = plm.PlackettLuceMixture(2, alpha=0.0, random_state=0).fit(
            store, features=["price", "room"], client=where
        )
        assert model.feature_coefficients_ is not None
        assert memory.feature_coefficients_ is not None
        assert model.feature_coefficients_.tobytes() == memory.feature_coefficients_.tobytes()
    # Afterwards the model knows which columns it reads.
    assert model.score(store) == memory.score(block, features=values)
    errors = model.standard_errors(store).coefficients
    assert errors is not None
    assert errors.names == ("price", "room")
    swapped = plm.PlackettLuceMixture(2, alpha=0.0, random_state=0).fit(store, features=["room", "price"])
    assert swapped.feature_coefficients_ is not None
    assert_allclose(swapped.feature_coefficients_[:, ::-1], model.feature_coefficients_, rtol=1e-5)
    assert swapped.score(store, features=["price", "room"]) == pytest.approx(model.score(store))
    out_of_core = plm.PlackettLuceMixture(2, alpha=0.0, random_state=0, residency="store")
    out_of_core.fit(store, features=plm.Features(["price", "room"]))
    assert out_of_core.feature_coefficients_ is not None
    assert out_of_core.feature_coefficients_.tobytes() == model.feature_coefficients_.tobytes()


def test_split_and_export__keep_features(table: Path, tmp_path: Path) -> None:
    store = ingested(table, tmp_path / "store")
    train, test = plm.split(store, [tmp_path / "train", tmp_path / "test"], random_state=0)
    assert train.feature_names == test.feature_names == store.feature_names
    model = plm.PlackettLuceMixture(1, alpha=0.0).fit(train, features=["price", "room"])
    assert np.isfinite(model.score(test))
    plm.export(store, tmp_path / "again.csv", format="long")
    again = plm.ingest(tmp_path / "again.csv", tmp_path / "again", format="long", columns={"features": "price,room"})
    one, other = (each.with_features([0, 1]).block() for each in (store, again))
    assert one.features is not None
    assert other.features is not None
    assert one.features.tobytes() == other.features.tobytes()
    assert one.items.tolist() == other.items.tolist()
    with pytest.raises(SettingsError, match="features of this store would be lost in orderings; say --format long"):
        plm.export(store, tmp_path / "again.txt")


def test_append__has_the_same_features(table: Path, tmp_path: Path) -> None:
    store = ingested(table, tmp_path / "store")
    others = choices(1)
    others[["person", "task"]] += 1_000
    others.to_csv(tmp_path / "more.csv", index=False)
    plain = {role: name for role, name in COLUMNS.items() if role != "features"}
    with pytest.raises(SettingsError, match="the store has the features price, room, and what is added has none"):
        ingested(tmp_path / "more.csv", tmp_path / "store", append=True, columns=plain)
    more = ingested(tmp_path / "more.csv", tmp_path / "store", append=True)
    assert more.n_rankings == 2 * store.n_rankings
    assert more.feature_names == ("price", "room")
    assert plm.PlackettLuceMixture(1).fit(more, features="price").feature_coefficients_ is not None


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"features": "price,rom"}, {}, "no column 'rom' for features"),
        ({"features": "flight"}, {}, "feature flight is 'a', and must be a finite number"),
        ({}, {"merge": True}, "rankings with features are not merged"),
    ],
)
def test_ingest__features_that_cannot_be_read(
    table: Path, tmp_path: Path, columns: dict[str, str], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlmixError, match=words):
        ingested(table, tmp_path / "store", columns=COLUMNS | columns, **options)
    (tmp_path / "wide.csv").write_text("place1,place2,price\na,b,1\nb,a,2\n")
    with pytest.raises(
        IngestError,
        match=r"wide, which has no column for features.* --format long or --format battles or --format choices",
    ):
        plm.ingest(tmp_path / "wide.csv", tmp_path / "wide", format="wide", columns={"features": "price"})


def test_ingest__a_missing_feature_is_a_bad_row(tmp_path: Path) -> None:
    frame = choices(n=40)
    frame.loc[4, "price"] = np.nan
    frame.to_csv(tmp_path / "flights.csv", index=False)
    with pytest.raises(IngestError, match="feature price is '', and must be a finite number"):
        ingested(tmp_path / "flights.csv", tmp_path / "store")
    store = ingested(tmp_path / "flights.csv", tmp_path / "store", on_error="drop")
    assert store.n_rankings == 39
    with pytest.raises(IngestError, match="feature price is 'inf', and must be a finite number"):
        ingested(frame.assign(price=np.inf), tmp_path / "other")


def test_fit__columns_that_a_store_does_not_have(table: Path, tmp_path: Path) -> None:
    store = ingested(table, tmp_path / "store")
    model = plm.PlackettLuceMixture(1)
    with pytest.raises(SettingsError, match="'speed' is not a feature of this store, which has price, room"):
        model.fit(store, features=["price", "speed"])
    with pytest.raises(SettingsError, match="the features of a store are columns that it has; name them"):
        model.fit(store, features=np.ones((900, 2)))
    with pytest.raises(SettingsError, match="the features of a store are columns that it has; name them"):
        model.fit(store, features=[])
    plain = plm.simulate(tmp_path / "plain", n_rankings=100, n_items=3, random_state=0)
    with pytest.raises(SettingsError, match="has none: read its source with --column features=NAME,NAME"):
        model.fit(plain, features=["price"])
    with pytest.raises(DamagedStoreError, match="has 2 columns, where more are expected"):
        store.with_features([2]).block()
    model.fit(store, features=["price"])
    with pytest.raises(SettingsError, match=r"not a feature of this store, which has none|other items"):
        model.score(plain)


def test_fit__unlisted_items_on_offer_have_no_features(tmp_path: Path) -> None:
    lines = [{"ranking": row, "item": item, "rank": rank, "price": row + rank} for row in range(9)
             for rank, item in enumerate(("a", "b") if row % 2 else ("c", "a"))]  # fmt: skip
    options: dict[str, Any] = {"format": "long", "columns": {"features": "price"}, "unranked": "below"}
    store = plm.ingest(pd.DataFrame(lines), tmp_path / "store", **options)
    with pytest.raises(SettingsError, match="features describe the items that a row lists"):
        plm.PlackettLuceMixture(1).fit(store, features=["price"])


def test_damage__of_features_is_found(table: Path, tmp_path: Path) -> None:
    store = ingested(table, tmp_path / "store")
    (chunk, *_) = sorted((tmp_path / "store/partitions/p000000/features/c").iterdir())
    data = bytearray(chunk.read_bytes())
    data[-5] ^= 1
    chunk.write_bytes(bytes(data))
    assert [found.key for found in plm.verify(store)] == ["partitions/p000000/features/c/0"]
    with pytest.raises(DamagedStoreError, match=r"features/c/0 was altered.* rows 0 to"):
        plm.PlackettLuceMixture(1).fit(plm.open_store(tmp_path / "store"), features=["price"])
    assert plm.PlackettLuceMixture(1).fit(plm.open_store(tmp_path / "store")).n_iter_ > 0


def test_index__features_are_so_many_for_each_item(table: Path, tmp_path: Path) -> None:
    index = ingested(table, tmp_path / "store").index(0)
    assert index.miscounts() == []
    index.columns["features"]["chunk"] = 100
    assert "within rows 0 to 299 of" in _rows_of_chunk(index, "features/c/2")
    index.columns["features"]["length"] -= 1
    assert index.miscounts() == ["array features has 1,799 entries, its leaves have 900"]


def test_command_line__from_a_table_to_memberships(table: Path, tmp_path: Path, shell: Any) -> None:
    named = [f"--column={role}={name}" for role, name in COLUMNS.items()]
    said: Said = shell("ingest", str(table), "store", "--format", "choices", *named)
    assert "left out" not in said.out
    assert "price, room" in shell("info", "store").out
    fit = ["fit", "store", "--components", 2, "--alpha", 0, "--features", "price,room", "--out", "model"]
    assert "converged" in shell(*fit).out
    assert "nothing to do" in shell(*fit).out
    assert (
        "already holds another model" in shell(*[word if word != "price,room" else "price" for word in fit], code=1).err
    )
    assert "300 memberships" in shell("predict", "model", "store", "who.csv").out
    assert "mean log-likelihood" in shell("score", "model", "store").out
    shell("report", "model", "--data", "store")
    shell("select", "store", "--components", "1:2", "--features", "price,room", "--out", "chosen")
    lines = ['data.store = "store"', 'data.features = ["price", "room"]', "model.components = 2", "model.alpha = 0.0"]
    (tmp_path / "job.toml").write_text("\n".join([*lines, 'outputs.folder = "out"', "outputs.memberships = true"]))
    shell("run", "job.toml")
    by_verb, by_job = (plm.PlackettLuceMixture.load(tmp_path / name) for name in ("model", "out/model"))
    assert by_verb.feature_coefficients_ is not None
    assert by_job.feature_coefficients_ is not None
    assert by_verb.feature_coefficients_.tobytes() == by_job.feature_coefficients_.tobytes()
