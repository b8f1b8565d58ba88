"""Arrays as .npy bytes and typed records: what was written comes back, and every wrong claim is refused."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from plmix_dist.errors import DamagedStoreError
from plmix_dist.store.sealed import array_from_npy, npy_bytes, typed

shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@given(arrays.arrays(np.float64, shapes, elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_npy__numpy_reads_what_is_written_and_the_reverse(array: np.ndarray[Any, Any]) -> None:
    data = npy_bytes(array)
    by_numpy = np.load(io.BytesIO(data), allow_pickle=False)
    ours = array_from_npy(data, np.float64)
    assert by_numpy.shape == ours.shape == array.shape
    assert by_numpy.tobytes() == ours.tobytes() == np.ascontiguousarray(array).tobytes()


@given(st.integers(0, 200), st.integers(0, 255))
def test_npy__an_altered_byte_of_the_header_is_refused_or_means_the_same(place: int, value: int) -> None:
    whole = npy_bytes(np.arange(12.0).reshape(3, 4))
    header_end = len(whole) - 96
    altered = bytearray(whole)
    altered[place % header_end] = value
    try:
        array = array_from_npy(bytes(altered), np.float64)
    except ValueError:
        return
    assert array.ravel().tolist() == list(range(12))
    assert array.shape == np.load(io.BytesIO(bytes(altered)), allow_pickle=False).shape


def test_npy__cut_short_or_lengthened() -> None:
    whole = npy_bytes(np.arange(3.0))
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"\.npy|bytes follow"):
            array_from_npy(whole[:length], np.float64)
    with pytest.raises(ValueError, match=r"float64 of shape \(3,\), but 25 bytes follow it"):
        array_from_npy(whole + b"x", np.float64)


@pytest.mark.promise(34)
def test_npy__claimed_size_is_checked_before_memory_is_taken() -> None:
    buffer = io.BytesIO()
    claim = {"descr": "<f8", "fortran_order": False, "shape": (10**15, 3)}
    np.lib.format.write_array_header_1_0(buffer, claim)
    with pytest.raises(ValueError, match=r"claims float64 of shape \(1000000000000000, 3\), but 48 bytes"):
        array_from_npy(buffer.getvalue() + bytes(48), np.float64)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1, 2]), r"expected an array of float64, but the header says '<i8' of shape \(2,\)"),
        (np.array([1.0, 2.0], ">f8"), r"the header says '>f8'"),
        (np.asfortranarray(np.arange(6.0).reshape(2, 3)), "not that of a plain array in C order"),
        (np.array([1.0, math.inf]), "numbers that are not finite"),
        (np.array([math.nan]), "numbers that are not finite"),
    ],
)
def test_npy__refused(array: np.ndarray[Any, Any], message: str) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array)
    with pytest.raises(ValueError, match=message):
        array_from_npy(buffer.getvalue(), np.float64)


def test_npy__not_finite_where_allowed() -> None:
    assert array_from_npy(npy_bytes(np.array([-math.inf])), np.float64, finite=False).tolist() == [-math.inf]


@pytest.mark.promise(32)
def test_npy__objects_are_neither_written_nor_read() -> None:
    objects = np.array([{}, []], object)
    with pytest.raises(ValueError, match="pickle"):
        npy_bytes(objects)
    buffer = io.BytesIO()
    np.save(buffer, objects, allow_pickle=True)
    with pytest.raises(ValueError, match=r"header says '\|O'"):
        array_from_npy(buffer.getvalue(), np.float64)


class Size(TypedDict):
    width: float


@dataclass(frozen=True)
class Box:
    name: str
    count: int
    sizes: list[Size]
    pair: tuple[int, str]
    note: str | None = None
    more: dict[str, bool] = field(default_factory=dict)


BOX: dict[str, Any] = {"name": "a", "count": 2, "sizes": [{"width": 1.5}], "pair": [1, "x"]}


def test_typed__as_declared() -> None:
    found = typed(Box, BOX | {"more": {"old": True}}, "file")
    assert found == Box("a", 2, [{"width": 1.5}], (1, "x"), None, {"old": True})
    # A TypedDict may have entries of later versions.
    assert typed(Size, {"width": 3, "height": "?"}, "file") == {"width": 3, "height": "?"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": None}, "name must be text, but is None"),
        ({"count": True}, r"count must be a whole number from 0 on, but is True \(bool\)"),
        ({"count": 1.0}, r"count must be a whole number from 0 on, but is 1.0 \(float\)"),
        ({"count": 2**63}, "count must be a whole number from 0 on, but is 9223372036854775808"),
        ({"sizes": {}}, "sizes must be a list, but is {}"),
        ({"sizes": [{"width": 1}, 7]}, r"sizes\[1\] must be an object, but is 7"),
        ({"sizes": [{"width": 10**400}]}, r"sizes\[0\].width must be a number, but is 1000"),
        ({"sizes": [{"width": math.nan}]}, r"sizes\[0\].width must be a number, but is nan"),
        ({"sizes": [{}]}, r"sizes\[0\].width is missing"),
        ({"pair": [1]}, r"pair must be a list of 2 entries, but is \[1\]"),
        ({"pair": [1, 2]}, r"pair\[1\] must be text, but is 2"),
        ({"more": {"old": 1}}, "more.old must be true or false, but is 1"),
        ({"other": 1}, "other is not known"),
    ],
)
def test_typed__error_names_file_and_entry(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DamagedStoreError, match=f"^file was altered: {message}"):
        typed(Box, BOX | changes, "file")
    with pytest.raises(DamagedStoreError, match=r"^file was altered: its record must be an object, but is None"):
        typed(Box, None, "file")
