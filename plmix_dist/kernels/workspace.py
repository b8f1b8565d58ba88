"""Memory that a thread uses again for every block.

Dask's workers return freed memory to the system at once (MALLOC_TRIM_THRESHOLD_). With fresh memory each leaf of 4,096
rows of 20 items began with 80 page faults there. So each thread keeps one workspace. The functions of this package ask
for it once, with `Workspace.of_thread()`, and pass it on.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.kernels.pointers import CACHE_LINE, Room, address, pointers

if TYPE_CHECKING:
    from array import array

    from numpy.typing import DTypeLike

    from plmix_dist.kernels.prepared import Prepared

# Larger rooms, above 32 MB, are not those of a leaf; they are given back as soon as a smaller one will do.
_MOST_KEPT_BYTES = 1 << 25


class Workspace:
    """Named rooms of memory.

    A room is valid until a room of the same name is asked for again. Nothing that is returned to users may lie in it.

    Examples
    --------
    >>> workspace = Workspace()
    >>> room = workspace.zeros("sums", 5)
    >>> room.array.tolist(), room.address % 64
    ([0.0, 0.0, 0.0, 0.0, 0.0], 0)
    >>> workspace.empty("sums", 3).address == room.address
    True
    """

    def __init__(self) -> None:
        self._kept: dict[str, Room] = {}
        self._given: dict[str, Room] = {}
        self._prepared: tuple[Prepared, array[int]] | None = None

    @staticmethod
    def of_thread() -> Workspace:
        """The workspace of the thread that asks."""
        return _this_thread.workspace

    def empty(self, name: str, size: int, dtype: DTypeLike = np.float64) -> Room:
        """The room of a name, (size,), with arbitrary numbers in it; it begins with a cache line."""
        given = self._given.get(name)
        if given is not None and given.array.size == size:
            return given
        kept = self._kept.get(name)
        if kept is None or kept.array.size < size or kept.array.nbytes > _MOST_KEPT_BYTES:
            kept = self._kept[name] = _aligned(size, np.dtype(dtype))
        given = self._given[name] = Room(kept.array[:size], kept.address)
        return given

    def zeros(self, name: str, size: int, dtype: DTypeLike = np.float64) -> Room:
        """The room of a name, (size,), filled with zeros."""
        room = self.empty(name, size, dtype)
        room.array.fill(0)
        return room

    def pointers_of(self, params: Prepared) -> array[int]:
        """What `pointers` gives for parameters; found again for the next block at the same parameters."""
        if self._prepared is None or self._prepared[0] is not params:
            self._prepared = params, pointers(params)
        return self._prepared[1]


def _aligned(size: int, dtype: np.dtype[Any]) -> Room:
    memory = np.empty(size * dtype.itemsize + CACHE_LINE, np.uint8)
    begin = -address(memory) % CACHE_LINE
    array = memory[begin : begin + size * dtype.itemsize].view(dtype)
    return Room(array, address(memory) + begin)


class _ThisThread(threading.local):
    def __init__(self) -> None:
        self.workspace = Workspace()


_this_thread = _ThisThread()
