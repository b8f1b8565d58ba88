"""Structures for kernels: arrays and integers in Python, addresses in compiled code.

A structure is a NamedTuple of arrays, rooms (arrays with known addresses) and integers. `pointers` makes of it one
array of integers, with an address for each array. In a kernel, `unpack` makes of these integers a NamedTuple of the
same class, with the same names. So there is one class for both sides.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

CACHE_LINE = 64


def address(array: NDArray[Any]) -> int:
    """The address of the first number of an array.

    Examples
    --------
    >>> numbers = np.zeros(4)
    >>> address(numbers[1:]) - address(numbers)
    8
    """
    found: int = array.__array_interface__["data"][0]
    return found


class Room(NamedTuple):
    """An array together with its address: looking up an address takes a microsecond."""

    array: NDArray[Any]
    address: int


def pointers(structure: Iterable[NDArray[Any] | Room | int]) -> array[int]:
    """(n_fields,): the fields of a structure as kernels take them, with an address for each array.

    Arrays must be contiguous. The caller must hold them as long as a kernel uses the addresses.

    Examples
    --------
    >>> numbers = np.zeros(4)
    >>> pointers((numbers, 7)).tolist() == [address(numbers), 7]
    True
    """
    return array("q", [field if type(field) is int else _address_of(field) for field in structure])


def _address_of(field: Any) -> int:
    return field.address if type(field) is Room else address(field)


def aligned_zeros(*shape: int) -> NDArray[np.float64]:
    """An array that begins with a cache line, so that no vector of four numbers lies across two lines.

    Examples
    --------
    >>> address(aligned_zeros(3, 4)) % 64
    0
    """
    size = math.prod(shape)
    memory = np.zeros(size + CACHE_LINE // 8)
    begin = -address(memory) % CACHE_LINE // 8
    return memory[begin : begin + size].reshape(shape)
