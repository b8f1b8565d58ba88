"""MixtureParams: one canonical form, to a folder and back, and folders that are refused."""

from __future__ import annotations

import hashlib
import io
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plmix_dist import MixtureParams
from plmix_dist.errors import (
    DamagedStoreError,
    SettingsError,
    StoreNotFoundError,
    UnfinishedStoreError,
    UnsupportedFormatError,
)
from plmix_dist.store.sealed import seal
from tests.helpers.oracle import order_probability

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from plmix_dist.store import Location

NAMES = ["tea", "coffee", "한"]
LOG_WORTHS = [[1.0, 2.0, 6.0], [0.0, 0.5, -0.5]]


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[list[list[float]], list[float]]:
    """Log-worths of up to four components and their shares, often with equal ones among them."""
    n_items, n_components = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    worths = st.lists(st.integers(-3, 3).map(float), min_size=n_items, max_size=n_items)
    counts = draw(st.lists(st.integers(1, 4), min_size=n_components, max_size=n_components))
    shares = [count / sum(counts) for count in counts]
    return draw(st.lists(worths, min_size=n_components, max_size=n_components)), shares


@given(mixtures(), st.randoms(use_true_random=False))
def test_of__one_form_whatever_the_order(case: tuple[list[list[float]], list[float]], random: Random) -> None:
    log_worths, shares = case
    names = [str(number) for number in range(len(log_worths[0]))]
    mixture = MixtureParams.of(log_worths, shares, names)
    order = list(range(len(shares)))
    random.shuffle(order)
    again = MixtureParams.of([log_worths[k] for k in order], [shares[k] for k in order], names)
    assert again.shares.tolist() == mixture.shares.tolist()
    assert again.log_worths.tolist() == mixture.log_worths.tolist()
    assert sorted(mixture.shares.tolist(), reverse=True) == mixture.shares.tolist()


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=3), st.floats(-50, 50))
def test_of__one_form_whatever_is_added_to_all_worths(log_worths: list[float], shift: float) -> None:
    mixture = MixtureParams.of([log_worths], None, NAMES)
    again = MixtureParams.of([[log + shift for log in log_worths]], None, NAMES)
    np.testing.assert_allclose(again.log_worths, mixture.log_worths, rtol=0, atol=1e-12)
    np.testing.assert_allclose(mixture.log_worths.mean(axis=1), 0, atol=1e-12)


@given(mixtures())
def test_of__probabilities_are_unchanged(case: tuple[list[list[float]], list[float]]) -> None:
    log_worths, shares = case
    mixture = MixtureParams.of(log_worths, shares, [str(number) for number in range(len(log_worths[0]))])

    def first_choice(logs: Any, portions: Any, item: int) -> float:
        return math.fsum(
            portion * order_probability([math.exp(log) for log in row], [item], range(len(row)))
            for row, portion in zip(logs, portions, strict=True)
        )

    for item in range(mixture.n_items):
        before = first_choice(log_worths, shares, item)
        assert first_choice(mixture.log_worths.tolist(), mixture.shares.tolist(), item) == pytest.approx(before)


def test_of__shares_are_equal_unless_given() -> None:
    mixture = MixtureParams.of(LOG_WORTHS, None, NAMES)
    assert mixture.shares.tolist() == [0.5, 0.5]
    # Equal shares stand in the order of their worths, the highest first worth first.
    assert mixture.log_worths.tolist() == [[0.0, 0.5, -0.5], [-2.0, -1.0, 3.0]]


def test_of__one_component_may_be_a_plain_list() -> None:
    mixture = MixtureParams.of([0.0, 1.0, 2.0], None, NAMES)
    assert (mixture.n_components, mixture.n_items, mixture.shares.tolist()) == (1, 3, [1.0])


@pytest.mark.parametrize(
    ("log_worths", "shares", "message"),
    [
        ([[1.0, 2.0]], None, r"expected log-worths of shape \(components, 3\).*but got \(1, 2\)"),
        ([[[1.0, 2.0, 3.0]]], None, r"but got \(1, 1, 3\)"),
        (np.empty((0, 3)), None, r"but got \(0, 3\)|at least one component"),
        (LOG_WORTHS, [1.0], r"shares must be 2 non-negative numbers that sum to 1, but are \[1\.\]"),
        (LOG_WORTHS, [0.5, 0.4], r"sum to 1, but are \[0\.5 0\.4\]"),
        (LOG_WORTHS, [1.5, -0.5], r"but are \[ 1\.5 -0\.5\]"),
        (LOG_WORTHS, [math.nan, 1.0], "but are .*nan"),
        ([[1.0, math.nan, 0.0]], None, "log-worths must be finite"),
        ([[1.0, math.inf, 0.0]], None, "log-worths must be finite"),
    ],
)
def test_of__refused(log_worths: Any, shares: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        MixtureParams.of(log_worths, shares, NAMES)


def test_of__no_items() -> None:
    with pytest.raises(SettingsError, match="item"):
        MixtureParams.of([[]], None, [])


# --- folders ---------------------------------------------------------------------------------------------


@pytest.fixture
def mixture() -> MixtureParams:
    return MixtureParams.of(LOG_WORTHS, [0.25, 0.75], NAMES)


@pytest.fixture
def folder(tmp_path: Path, mixture: MixtureParams) -> Path:
    mixture.save(tmp_path / "model", {"seed": 7})
    return tmp_path / "model"


def test_save__gives_back_every_bit(folder: Path, mixture: MixtureParams) -> None:
    again = MixtureParams.load(folder)
    assert again.log_worths.tobytes() == mixture.log_worths.tobytes()
    assert again.shares.tobytes() == mixture.shares.tobytes()
    assert again.item_names == ("tea", "coffee", "한")


def test_save__is_plain_files(folder: Path, mixture: MixtureParams) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["log_worths.npy", "model.json", "shares.npy"]
    record = json.loads((folder / "model.json").read_text("utf-8"))
    files = record.pop("files")
    assert len(record.pop("sha256")) == 64
    assert record == {"format": "plmix-model", "version": 2, "item_names": NAMES, "seed": 7}
    assert files == {
        name: {
            "file": f"{name}.npy",
            "size": (folder / f"{name}.npy").stat().st_size,
            "sha256": hashlib.sha256((folder / f"{name}.npy").read_bytes()).hexdigest(),
        }
        for name in ("log_worths", "shares")
    }
    assert np.load(folder / "log_worths.npy").tolist() == mixture.log_worths.tolist()


def test_save__behind_a_url(memory_place: Location, mixture: MixtureParams) -> None:
    mixture.save(memory_place)
    assert MixtureParams.load(memory_place).log_worths.tolist() == mixture.log_worths.tolist()


def test_load__nothing_there(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=r"no model at .*nowhere"):
        MixtureParams.load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["log_worths.npy", "shares.npy", "model.json"])
def test_load__file_missing_or_cut_short(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    for length in {0, 1, 10, len(data) // 2, len(data) - 1}:
        (folder / name).write_bytes(data[:length])
        with pytest.raises(DamagedStoreError, match=r"the model at .*model cannot be read"):
            MixtureParams.load(folder)
    (folder / name).unlink()
    missing = "model.json is missing; save it again" if name == "model.json" else "a file is missing"
    with pytest.raises((DamagedStoreError, UnfinishedStoreError), match=f"the model at .*{missing}"):
        MixtureParams.load(folder)


@pytest.mark.promise(18)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "version 3.*install a newer plmix_dist"),
        ({"version": 1}, "version 1.*written by an early version, so fit it again"),
        ({"version": True}, "version True"),
        ({"format": "other"}, "'other'"),
    ],
)
def test_load__other_formats_are_refused_by_name(folder: Path, change: dict[str, Any], message: str) -> None:
    record = json.loads((folder / "model.json").read_bytes())
    (folder / "model.json").write_text(json.dumps(record | change))
    with pytest.raises(UnsupportedFormatError, match=message):
        MixtureParams.load(folder)


def resealed(folder: Path, name: str, data: bytes) -> None:
    """Replace an array and seal the model again, so that its digest does not give the change away."""
    record = json.loads((folder / "model.json").read_bytes())
    del record["sha256"]
    (folder / record["files"][name]["file"]).write_bytes(data)
    record["files"][name] |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "model.json").write_bytes(seal(record))


def npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def claims_a_shape_of(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + bytes(48)


def zipped() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, np.zeros((2, 3)))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "make",
    [
        lambda: npy(np.zeros((2, 4))),
        lambda: npy(np.zeros((3, 3))),
        lambda: npy(np.zeros(6)),
        lambda: npy(np.full((2, 3), math.nan)),
        lambda: npy(np.full((2, 3), "x")),
        zipped,
    ],
    ids=["more items", "more components", "flat", "not finite", "text", "archive"],
)
def test_load__arrays_that_do_not_fit(folder: Path, make: Callable[[], bytes]) -> None:
    resealed(folder, "log_worths", make())
    with pytest.raises(DamagedStoreError, match=r"the model at .*model cannot be read"):
        MixtureParams.load(folder)


@pytest.mark.promise(32)
def test_load__nothing_is_unpickled(folder: Path) -> None:
    resealed(folder, "shares", npy(np.array([Trap(), Trap()], object), allow_pickle=True))
    with pytest.raises(DamagedStoreError, match=r"the model at .*model cannot be read"):
        MixtureParams.load(folder)


class Trap:
    """Fails the test of anyone who unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a pickle was opened",)


@pytest.mark.promise(34)
def test_load__shape_of_a_thousand_billions(folder: Path) -> None:
    resealed(folder, "log_worths", claims_a_shape_of((10**15, 3)))
    with pytest.raises(DamagedStoreError, match=r"the model at .*model cannot be read"):
        MixtureParams.load(folder)


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": "plmix-model", "version": 1}', "null"])
def test_load__json_that_is_no_model(folder: Path, text: str) -> None:
    (folder / "model.json").write_text(text)
    with pytest.raises((DamagedStoreError, UnsupportedFormatError), match=r"model at .*model"):
        MixtureParams.load(folder)


def test_ordered__says_where_each_component_came_from() -> None:
    rng = np.random.default_rng(0)
    log_worths, shares = rng.normal(size=(5, 3)), np.array([0.1, 0.3, 0.1, 0.2, 0.3])
    mixture, order = MixtureParams.ordered(log_worths, shares, ["a", "b", "c"])
    assert sorted(order.tolist()) == list(range(5))
    assert mixture.shares.tolist() == shares[order].tolist() == [0.3, 0.3, 0.2, 0.1, 0.1]
    np.testing.assert_allclose(np.diff(mixture.log_worths), np.diff(log_worths[order]))


def test_log_shares__of_a_component_without_a_share() -> None:
    mixture = MixtureParams.of([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], ["a", "b"])
    assert mixture.log_shares.tolist() == [0.0, -math.inf]
