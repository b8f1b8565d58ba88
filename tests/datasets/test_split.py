"""Train, validation and test parts: together they are the whole store, and every run draws the same parts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plmix_dist import MixtureParams, RankingBlock, open_store, simulate, split
from plmix_dist.datasets import split as splitting
from plmix_dist.errors import PlmixError, SettingsError, StoreExistsError
from plmix_dist.rankings import sampling as randomness
from tests.helpers.ingest_helpers import labels_of, named_rows
from tests.helpers.oracle import (
    PlainRankings,
    Ranking,
    all_damage,
    full,
    index_digests,
    plain,
    plain_rankings,
    snapshot,
    write_store,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from distributed import Client

    from plmix_dist.store import RankingStore


@pytest.fixture(scope="module")
def rows() -> PlainRankings:
    """Rows with ids, with integer and other weights."""
    rng = np.random.default_rng(5)
    weights = np.where(rng.random(300) < 0.5, rng.integers(1, 9, 300), rng.random(300))
    rankings = [full(*rng.permutation(4).tolist(), weight=float(weight)) for weight in weights]
    return PlainRankings(4, rankings, ids=list(range(300)))


@pytest.fixture(scope="module")
def store(rows: PlainRankings, tmp_path_factory: pytest.TempPathFactory) -> RankingStore:
    """Several partitions of several leaves each."""
    parts = [[rows.pick(range(start, start + 100)).block()] for start in (0, 100, 200)]
    return write_store(tmp_path_factory.mktemp("split") / "store", parts, leaf_rows=32, chunk_bytes=1 << 16)


def weight_by_id(store: RankingStore) -> dict[Any, float]:
    return dict(zip(labels_of(store, "ids") or [], (row.weight for row in named_rows(store)), strict=True))


def test_parts__add_up_to_the_whole(tmp_path: Path, store: RankingStore, rows: PlainRankings) -> None:
    outs = [tmp_path / name for name in ("train", "valid", "test")]
    parts = split(store, outs, random_state=3)
    shares = [weight_by_id(part) for part in parts]
    for number, row in enumerate(rows.rows):
        assert math.fsum(share.get(number, 0.0) for share in shares) == row.weight
    order = {number: row.ordered for number, row in enumerate(rows.rows)}
    for out, part in zip(outs, parts, strict=True):
        assert plain(open_store(out).block()) == plain(part.block())
        assert [row.ordered for row in plain(part.block()).rows] == [order[n] for n in weight_by_id(part)]
        assert list(weight_by_id(part)) == sorted(weight_by_id(part))
        assert part.item_names == store.item_names
        assert all_damage(part) == []


@settings(max_examples=8)
@given(rows=plain_rankings(min_rows=2, max_rows=14, n_items=3), seed=st.integers(0, 99))
def test_parts__add_up_for_any_rows(tmp_path_factory: pytest.TempPathFactory, rows: PlainRankings, seed: int) -> None:
    folder = tmp_path_factory.mktemp("law")
    source = write_store(folder / "store", [[rows.block()]], leaf_rows=4, chunk_bytes=1 << 16)
    outs = [folder / "a.npy", folder / "b.npy"]
    split(source, outs, shares=[0.5, 0.5], random_state=seed)
    first, second = (np.load(out) for out in outs)
    assert (first + second).tolist() == [row.weight for row in rows.rows]


@pytest.mark.parametrize("shares", [[0.8, 0.2], [0.64, 0.16, 0.2]])
def test_parts__default_shares_in_every_leaf(tmp_path: Path, shares: list[float]) -> None:
    # Parts of sorted data are unbiased only if each run of rows is divided separately.
    n_rankings, leaf_rows = 16_384, 2048
    store = simulate(tmp_path / "store", n_rankings=n_rankings, n_items=3, leaf_rows=leaf_rows)
    outs = [tmp_path / f"{number}.npy" for number in range(len(shares))]
    split(store, outs)
    for share, out in zip(shares, outs, strict=True):
        by_leaf = np.load(out).reshape(-1, leaf_rows).mean(axis=1)
        assert np.abs(by_leaf - share).max() < 6 * math.sqrt(share * (1 - share) / leaf_rows)
        assert len(set(by_leaf.tolist())) > 1


def test_parts__components_go_with_their_rows(tmp_path: Path) -> None:
    # Each component has another best item, so the first item of a row shows its component.
    mixture = MixtureParams.of([[40.0, 0.0, 0.0], [0.0, 40.0, 0.0]], None, ["a", "b", "c"])
    store = simulate(tmp_path / "store", n_rankings=500, mixture=mixture, leaf_rows=64)
    for part in split(store, [tmp_path / "train", tmp_path / "test"]):
        best = [row.ordered[0][0] for row in plain(part.block()).rows]
        assert part.components().tolist() == best


def test_weights__as_arrays_are_those_of_the_stores(tmp_path: Path, store: RankingStore) -> None:
    stores = split(store, [tmp_path / "train", tmp_path / "test"], random_state=9)
    arrays = split(store, [tmp_path / "train.npy", tmp_path / "test.npy"], random_state=9)
    assert arrays == [str(tmp_path / "train.npy"), str(tmp_path / "test.npy")]
    for part, path in zip(stores, arrays, strict=True):
        weights = np.load(path, allow_pickle=False)
        assert (weights.dtype, weights.shape) == (np.float64, (300,))
        expected = weight_by_id(part)
        assert weights.tolist() == [expected.get(number, 0.0) for number in range(300)]


def test_weights__stores_and_arrays_together(tmp_path: Path, store: RankingStore) -> None:
    train, path = split(store, [tmp_path / "train", tmp_path / "test.npy"], random_state=9)
    kept = weight_by_id(train)
    whole = weight_by_id(store)
    assert np.load(path).tolist() == [whole[n] - kept.get(n, 0.0) for n in range(300)]


def test_seed__the_same_again_and_others_differ(tmp_path: Path, store: RankingStore) -> None:
    def digests(name: str, seed: int) -> list[list[str]]:
        parts = split(store, [tmp_path / f"{name}-a", tmp_path / f"{name}-b"], random_state=seed)
        return [index_digests(part) for part in parts]

    assert digests("first", 1) == digests("second", 1)
    assert digests("third", 2) != digests("first", 1)


@pytest.mark.promise(10)
def test_seed__the_same_on_two_workers(tmp_path: Path, store: RankingStore, client: Client) -> None:
    here = split(store, [tmp_path / "here-a", tmp_path / "here-b"], random_state=1)
    there = split(store, [tmp_path / "there-a", tmp_path / "there-b"], random_state=1, client=client)
    assert [index_digests(part) for part in there] == [index_digests(part) for part in here]


@pytest.mark.promise(40)
def test_second_run__does_nothing(tmp_path: Path, store: RankingStore) -> None:
    outs = [tmp_path / "train", tmp_path / "test"]
    split(store, outs, random_state=1)
    before = snapshot(tmp_path)
    split(store, outs, random_state=1)
    assert snapshot(tmp_path) == before


@pytest.mark.promise(40)
@pytest.mark.parametrize("other", ["seed", "shares", "rankings", "part"])
def test_second_run__of_another_split_is_refused(
    tmp_path: Path, store: RankingStore, rows: PlainRankings, other: str
) -> None:
    outs = [tmp_path / "train", tmp_path / "test"]
    split(store, outs, random_state=1)
    before = snapshot(tmp_path)
    more = store
    if other == "rankings":  # the same in other partitions
        parts = [[rows.pick(range(start, start + 100)).block()] for start in (200, 100, 0)]
        more = write_store(tmp_path / "more", parts, leaf_rows=32, chunk_bytes=1 << 16)
    how: dict[str, Any] = {"shares": [0.7, 0.3]} if other == "shares" else {}
    with pytest.raises(StoreExistsError, match="already holds another store"):
        split(more, outs[::-1] if other == "part" else outs, random_state=2 if other == "seed" else 1, **how)
    assert {name: data for name, data in snapshot(tmp_path).items() if not str(name).startswith("more")} == before


def test_groups__stay_whole(tmp_path: Path) -> None:
    groups = np.repeat(np.arange(100), np.random.default_rng(1).integers(1, 7, 100)).tolist()
    rankings = [Ranking(((0,), (1,)), (), "absent", 5.0) for _ in groups]
    block = RankingBlock.from_rows(rankings, n_items=2, ids=list(range(len(groups))), groups=groups)
    store = write_store(tmp_path / "store", [[block]], leaf_rows=16, chunk_bytes=1 << 16)
    parts = split(store, [tmp_path / "a", tmp_path / "b", tmp_path / "c"], shares=[0.4, 0.3, 0.3])
    people = [set(labels_of(part, "groups") or []) for part in parts]
    assert sum(map(len, people)) == len(set().union(*people)) == 100
    assert sum(part.n_rankings for part in parts) == len(groups)
    assert sum(part.total_weight for part in parts) == 5.0 * len(groups)


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("outs", "shares", "what"),
    [
        (["a"], None, "a split needs at least two outputs, but got 1"),
        (["a", "a"], None, "each part needs its own path"),
        (["a", "b", "c", "d"], None, "give the shares of the 4 parts"),
        (["a", "b"], [0.5, 0.4], r"expected 2 positive shares that sum to 1, but got \[0.5, 0.4\]"),
        (["a", "b"], [1.0, 0.0], r"expected 2 positive shares that sum to 1, but got \[1.0, 0.0\]"),
        (["a", "b"], [1.5, -0.5], "expected 2 positive shares"),
        (["a", "b"], [float("nan"), 1.0], "expected 2 positive shares"),
        (["a", "b"], [0.2, 0.3, 0.5], "expected 2 positive shares"),
        (["a", "b"], [], "expected 2 positive shares"),
    ],
)
def test_shares__that_make_no_sense(
    tmp_path: Path, store: RankingStore, outs: list[str], shares: Sequence[float] | None, what: str
) -> None:
    with pytest.raises(SettingsError, match=what):
        split(store, [tmp_path / out for out in outs], shares=shares)
    assert not list(tmp_path.iterdir())


@pytest.mark.promise(42)
def test_part__without_a_row_is_said_to_be_empty(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [[RankingBlock.from_array([[0, 1]])]])
    with pytest.raises(PlmixError) as caught:
        split(store, [tmp_path / "train", tmp_path / "test"], shares=[0.999, 0.001])
    assert str(tmp_path / "test") in str(caught.value)
    assert "0.001" in str(caught.value)


def test_part__into_a_folder_that_is_not_there_yet(tmp_path: Path, store: RankingStore) -> None:
    split(store, [tmp_path / "new/test.npy", tmp_path / "new/train"])
    assert np.load(tmp_path / "new/test.npy").shape == (300,)


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


def test_split__one_stream_per_leaf(tmp_path: Path, streams: Callable[[Any], list[Stream]]) -> None:
    rows = RankingBlock.from_array([[0, 1, 2]] * 50)
    store = write_store(tmp_path / "a", [[rows], [rows]], leaf_rows=10)  # two partitions of five leaves each
    noted = streams(splitting)
    split(store, {tmp_path / "b": 0.5, tmp_path / "c": 0.5}, random_state=7)
    assert sorted(set(noted)) == [(7, "split", (leaf,)) for leaf in range(10)]
