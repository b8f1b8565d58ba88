"""Memberships of rankings as Zarr arrays. Any number of workers write, each of them whole chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from plmix_dist.errors import DamagedStoreError, StoreExistsError
from plmix_dist.store.arrays import codecs_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.store.location import Location

CHUNK_ROWS = 1 << 16


def create_memberships(location: Location, n_rankings: int, n_components: int) -> list[tuple[int, int]]:
    """Make empty arrays, and give the runs of rows to write, one per chunk.

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.store.location import Location
    >>> create_memberships(Location.of(tempfile.mkdtemp() + "/out"), n_rankings=70_000, n_components=2)
    [(0, 65536), (65536, 70000)]
    """
    if location.exists("zarr.json"):
        raise StoreExistsError(
            f"{location.url} already holds arrays; choose another path, or remove it first"
        )
    group = zarr.create_group(location.zarr_root(), zarr_format=3)
    for name, shape, dtype in (
        ("probabilities", (n_rankings, n_components), "float64"),
        ("component", (n_rankings,), "int16"),
    ):
        group.create_array(
            name,
            shape=shape,
            chunks=(min(CHUNK_ROWS, n_rankings), *shape[1:]),
            dtype=dtype,
            compressors=codecs_for(np.dtype(dtype)),
            fill_value=-1,
            config={"write_empty_chunks": True},
        )
    return [(start, min(start + CHUNK_ROWS, n_rankings)) for start in range(0, n_rankings, CHUNK_ROWS)]


def write_memberships(location: Location, start: int, probabilities: NDArray[np.float64]) -> None:
    """Write the rows of one chunk: their probabilities, and the component with the largest.

    Parameters
    ----------
    start
        The first row of the chunk.
    probabilities : (rows, n_components)

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.store.location import Location
    >>> place = Location.of(tempfile.mkdtemp() + "/out")
    >>> _ = create_memberships(place, n_rankings=2, n_components=2)
    >>> write_memberships(place, 0, np.array([[0.9, 0.1], [0.2, 0.8]]))
    >>> zarr.open_group(place.url, mode="r")["component"][:].tolist()
    [0, 1]
    """
    group = zarr.open_group(location.zarr_root(), mode="r+")
    rows = slice(start, start + len(probabilities))
    _array(group, "probabilities")[rows] = probabilities
    _array(group, "component")[rows] = probabilities.argmax(axis=1)


def _array(group: zarr.Group, name: str) -> zarr.Array[Any]:
    array = group[name]
    if not isinstance(array, zarr.Array):
        raise DamagedStoreError(f"{name} is not an array")
    return array
