"""Arrays as the bytes of a `.npy` file: written without pickles, read only if every claim of the header holds."""

from __future__ import annotations

import io
import math
import re
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)

_MAGIC = b"\x93NUMPY\x01\x00"
# The header exactly as np.save writes it. Nothing in it is evaluated.
_HEADER = re.compile(
    rb"\{'descr': '([^']{1,20})', 'fortran_order': False, 'shape': \(((?:\d{1,18}(?:, \d{1,18})*,?)?)\), \} *\n"
)


def npy_bytes(array: NDArray[Any]) -> bytes:
    r"""The bytes of a `.npy` file. Arrays of Python objects are refused.

    Examples
    --------
    >>> npy_bytes(np.zeros((2, 3)))[:6]
    b'\x93NUMPY'
    """
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()


def array_from_npy(
    data: bytes, dtype: type[Number] | np.dtype[Number], *, finite: bool = True
) -> NDArray[Number]:
    """The array that `npy_bytes` was given.

    Parameters
    ----------
    data
        The whole file.
    dtype
        The type that the array must have.
    finite
        Whether infinity and NaN are refused.

    Raises
    ------
    ValueError
        If the file has another type, another size than its header claims, or numbers that are not finite.
        The claimed size is checked before memory is taken.

    Examples
    --------
    >>> array_from_npy(npy_bytes(np.array([[1.0, 2.0]])), np.float64).tolist()
    [[1.0, 2.0]]
    >>> array_from_npy(npy_bytes(np.array([1, 2])), np.float64)
    Traceback (most recent call last):
    ...
    ValueError: expected an array of float64, but the header says '<i8' of shape (2,)
    """
    start = len(_MAGIC) + 2
    if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
        raise ValueError("it does not begin as a .npy file of version 1.0 does")
    body = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(data, start, min(body, len(data)))
    if header is None:
        raise ValueError("its .npy header is not that of a plain array in C order")
    shape = tuple(int(n) for n in header[2].replace(b",", b" ").split())
    wanted = np.dtype(dtype)
    if header[1].decode("latin-1") != wanted.str:
        raise ValueError(
            f"expected an array of {wanted}, but the header says {header[1].decode('latin-1')!r} of shape {shape}"
        )
    if math.prod(shape) * wanted.itemsize != len(data) - body:
        raise ValueError(
            f"its header claims {wanted} of shape {shape}, but {len(data) - body:,} bytes follow it"
        )
    array: NDArray[Number] = np.frombuffer(data, wanted, offset=body).reshape(shape).copy()
    if finite and wanted.kind in "fc" and not np.isfinite(array).all():
        raise ValueError("it holds numbers that are not finite")
    return array
