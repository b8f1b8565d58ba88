"""Arrays as .npy bytes: what is written NumPy can read, and what is read holds every claim of its header."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from plmix_dist.store.npy import array_from_npy, npy_bytes

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
