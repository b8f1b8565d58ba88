"""What kernels work on: parameters and rows as compiled code takes them, and the working memory of a thread."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.kernels.loading import Kernel
from plmix_dist.rankings import Floats, RankingBlock

# Structures for kernels: arrays and integers in Python, addresses in compiled code.

_CACHE_LINE = 64


def address(array: NDArray[Any]) -> int:
    """The address of the first number of an array."""
    return array.__array_interface__["data"][0]


class Room(NamedTuple):
    """An array together with its address: looking up an address takes a microsecond."""

    array: NDArray[Any]
    address: int


_Structure: TypeAlias = Iterable[NDArray[Any] | Room | int]


def pointers(structure: _Structure) -> array[int]:
    """(n_fields,): the fields of a structure as kernels take them, with an address for each array.

    Arrays must be contiguous. The caller must hold them as long as a kernel uses the addresses.
    """
    return array("q", [field if type(field) is int else _address_of(field) for field in structure])


def _address_of(field: Any) -> int:
    return field.address if type(field) is Room else address(field)


def aligned_zeros(*shape: int) -> Floats:
    """An array that begins with a cache line, so that no vector of four numbers lies across two lines."""
    return _aligned(math.prod(shape), np.dtype(np.float64), np.zeros).array.reshape(shape)


_MOST_SLOTS = 4
_MOST_NUMBERS_IN_A_SLOT = 1 << 13


class Slots(NamedTuple):
    """The scratch of several rows, and how many bytes each slot has.

    Rows in different slots are independent of each other within a step: the processor begins the next row while it
    waits for results of the last. Long rows keep it busy by themselves, and several would fill the cache.
    """

    floats: Room
    integers: Room
    float_bytes: int
    integer_bytes: int
    n_slots: int


def _slots_for(rows: Rows, params: Prepared) -> Slots:
    """Scratch for rows at parameters, in the rooms "scratch floats" and "scratch integers"."""
    workspace = Workspace.of_thread()
    n_floats, n_integers = (4 + rows.longest) * params.width, params.width + 2 * params.n_items
    n_slots = _MOST_SLOTS if n_floats <= _MOST_NUMBERS_IN_A_SLOT else 1
    return Slots(
        workspace.zeros("scratch floats", n_slots * n_floats),
        workspace.zeros("scratch integers", n_slots * n_integers, np.int32),
        8 * n_floats,
        4 * n_integers,
        n_slots,
    )


class Probabilities(NamedTuple):
    """The probability of each row as total * 2**scale; there are three more of both, to make whole vectors."""

    totals: Room
    scales: Room
    size: int

    @classmethod
    def of(cls, n_rows: int) -> Probabilities:
        """Room for the probabilities of rows."""
        workspace = Workspace.of_thread()
        totals, scales = workspace.empty("totals", n_rows + 3), workspace.empty("scales", n_rows + 3)
        totals.array[n_rows:] = 1.0
        scales.array[n_rows:] = 1.0
        return cls(totals, scales, n_rows + 3)

    def logs(self) -> Floats:
        """(n_rows,): the logarithm of each probability; it takes the place of the total."""
        _take_logs(pointers(self))
        return self.totals.array[:-3]


_take_logs = Kernel("take_logs", Probabilities)


# Memory that a thread uses again for every block.

# Larger rooms, above 32 MB, are not those of a leaf; they are given back as soon as a smaller one will do.
_MOST_KEPT_BYTES = 1 << 25


class Workspace:
    """Named rooms of memory.

    A room is valid until a room of the same name is asked for again. Nothing that is returned to users may lie in it.
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


def _aligned(size: int, dtype: np.dtype[Any], make: Callable[..., NDArray[Any]] = np.empty) -> Room:
    memory = make(size * dtype.itemsize + _CACHE_LINE, np.uint8)
    begin = -address(memory) % _CACHE_LINE
    return Room(memory[begin : begin + size * dtype.itemsize].view(dtype), address(memory) + begin)


class _ThisThread(threading.local):
    def __init__(self) -> None:
        self.workspace = Workspace()


_this_thread = _ThisThread()


# Parameters as kernels need them: worths by item, with components side by side, padded to whole vectors.

LANES = 4
# Within this range of log-worths every sum, quotient and product of the kernels stays within float64.
_WIDEST_LOG_RANGE = 700.0
_LOG_LARGEST = 690.0
_LONGEST_STRIDE = 64


class Prepared(NamedTuple):
    """Parameters of a mixture, ready for kernels.

    Worths are scaled so that the largest of each component is as far above 1 as the smallest is below. So neither
    sums of worths nor their inverses come near the limits of float64. Components are padded to `width`, a multiple of
    four, with worths of 1 and shares of 0. `order`, `rank` and `tails` are for rows whose unlisted items rank below:
    the items of each component by falling worth, the place of each item in that order, and the sum of worths from
    each place to the end.
    """

    # (n_items * width,)
    worths: Floats
    # share_mantissas, share_exponents (width,): shares as mantissa * 2**exponent, so that none is too small to be
    # held.
    share_mantissas: Floats
    share_exponents: Floats
    # (n_components * n_items,)
    order: NDArray[np.int32]
    # (n_items * width,)
    rank: NDArray[np.int32]
    # ((n_items + 1) * width,)
    tails: Floats
    # (n_items * width / 4,): the item of an entry of `worths`, by the number of its vector.
    item_of: NDArray[np.int32]
    n_items: int
    n_components: int
    width: int
    # How many chances of choices may be multiplied before their product must be rescaled: four or a multiple of it
    # where the range of worths allows that.
    stride: int
    # For ties as outcomes of choices, otherwise empty: (n_orders + 1, n_items, width), logarithms of worths, then for
    # d = 1, 2 ... the worths to the power of 1 / d; (2, n_orders, width), logarithms of the weights of ties of d items,
    # then the weights; and the most items that tie, or 0.
    powers: Floats
    tie_weights: Floats
    n_orders: int

    @property
    def log_shares(self) -> Floats:
        """(n_components,): logarithms of the shares."""
        with np.errstate(divide="ignore"):
            exponents = np.where(self.share_mantissas > 0, self.share_exponents, 0.0) * math.log(2)
            logs: Floats = np.log(self.share_mantissas) + exponents
        return logs[: self.n_components]

    def tie_tables(self) -> tuple[Floats, Floats]:
        """`powers` (n_orders + 1, n_items, n_components) and `tie_weights` (2, n_orders, n_components)."""
        powers = self.powers.reshape(-1, self.n_items, self.width)
        return powers[..., : self.n_components], self.tie_weights.reshape(2, -1, self.width)[..., : self.n_components]


# The logarithm of the weight of ties of an order that never occurs: next to nothing, and a number.
NO_TIES = -700.0


def prepare(log_worths: Floats, log_shares: Floats, log_ties: Floats | None = None) -> Prepared:
    """Parameters for kernels, from log-worths (n_components, n_items) and log-shares (n_components,).

    `log_ties` (n_components or 1, n_orders - 1) make ties outcomes of choices.

    Examples
    --------
    >>> params = prepare(np.log([[0.5, 0.25, 0.25]]), np.zeros(1))
    >>> params.n_components, params.n_items, params.width
    (1, 3, 4)
    """
    n_components, n_items = log_worths.shape
    log_range = float(np.max(np.ptp(log_worths, axis=1)))
    if not log_range <= _WIDEST_LOG_RANGE:
        raise SettingsError(
            f"log-worths of one component range over {log_range:g}; at most {_WIDEST_LOG_RANGE:g} can be told apart"
        )
    width = -(-n_components // LANES) * LANES
    middle = (log_worths.max(axis=1, keepdims=True) + log_worths.min(axis=1, keepdims=True)) / 2
    worths = aligned_zeros(n_items, width)
    worths[:] = 1.0
    worths[:, :n_components] = np.exp(log_worths - middle).T
    order = np.argsort(-log_worths, axis=1, kind="stable").astype(np.int32)
    components = np.arange(n_components)
    rank = np.zeros((n_items, width), np.int32)
    rank[order.T, components] = np.arange(n_items)[:, None]
    rising = worths[order[:, ::-1].T, components].astype(np.longdouble)
    tails = np.zeros((n_items + 1, width))
    # Summed from the smallest up, in extended precision: the worths of listed items are later subtracted.
    tails[-2::-1, :n_components] = np.cumsum(rising, axis=0)
    mantissas, exponents = _split_shares(np.asarray(log_shares, np.float64), width)
    n_orders = 0 if log_ties is None or not log_ties.size else log_ties.shape[1] + 1
    powers, tie_weights = aligned_zeros(n_orders + bool(n_orders), n_items, width), aligned_zeros(2, n_orders, width)
    if log_ties is not None and n_orders:
        for root in range(n_orders + 1):
            logs = (log_worths - middle).T / max(root, 1)
            powers[root, :, :n_components] = np.exp(logs) if root else logs
        tie_weights[0, 1:, :n_components] = np.maximum(log_ties, NO_TIES).T
        tie_weights[1, :] = np.exp(tie_weights[0])
    return Prepared(
        worths=worths.reshape(-1),
        share_mantissas=mantissas,
        share_exponents=exponents,
        order=order.ravel(),
        rank=rank.ravel(),
        tails=tails.ravel(),
        item_of=np.repeat(np.arange(n_items, dtype=np.int32), width // LANES),
        n_items=n_items,
        n_components=n_components,
        width=width,
        stride=_stride(log_range, n_items),
        powers=powers.reshape(-1),
        tie_weights=tie_weights.reshape(-1),
        n_orders=n_orders,
    )


def _split_shares(log_shares: Floats, width: int) -> tuple[Floats, Floats]:
    """Mantissas and exponents of shares, padded with shares of 0."""
    mantissas, exponents = np.zeros(width), np.full(width, -np.inf)
    held = np.flatnonzero(log_shares != -np.inf)
    exponents[held] = np.floor(log_shares[held] / math.log(2))
    mantissas[held] = np.exp(log_shares[held] - exponents[held] * math.log(2))
    return mantissas, exponents


def _stride(log_range: float, n_items: int) -> int:
    """How many chances, none less than the least worth out of all at their largest, float64 can hold the product of."""
    most = int(_LOG_LARGEST / (log_range + math.log(n_items) + 1.0))
    return min(_LONGEST_STRIDE, most // LANES * LANES) if most >= LANES else 1


# The rows of a block as kernels read them: in the same types for every block.


class Rows(NamedTuple):
    """Row r lists `entries[offsets[r]:offsets[r + 1]]`; the first `n_ordered[r]` of them are in order.

    An entry is the number of an item times a width. It is the place where the numbers of that item begin in an
    array that has `width` numbers per item. Multiplying at every look-up would cost as much as the look-up itself.
    """

    # (total listed,)
    entries: Room
    # (n_rows + 1,)
    offsets: NDArray[np.int64]
    # n_ordered, below, weights (n_rows,): `below` is 1 if unlisted items rank below the listed ones, 0 if they were
    # not on offer.
    n_ordered: Room
    below: NDArray[np.bool_]
    weights: Room
    n_rows: int
    # How many items the longest row lists; 1 without rows.
    longest: int


class Items(NamedTuple):
    """Item numbers of `item_bytes` bytes each, and the entries to make of them."""

    items: NDArray[np.unsignedinteger]
    n_listed: int
    item_bytes: int
    width: int
    entries: Room


_fill_entries = Kernel("fill_entries", Items)


def run_over(kernel: Kernel, rows: Rows, params: Prepared, *more: _Structure) -> None:
    """Run a kernel over rows at parameters, with scratch, and with the further structures that it takes."""
    slots = _slots_for(rows, params)
    kernel(pointers(rows), Workspace.of_thread().pointers_of(params), pointers(slots), *map(pointers, more))


def rows_of(block: RankingBlock, width: int) -> Rows:
    """The rows of a block. Narrow item numbers become wider here, leaf by leaf, and nowhere else."""
    items, n_rows, workspace = np.ascontiguousarray(block.items), block.n_rankings, Workspace.of_thread()
    entries = workspace.empty("entries", len(items), np.int32)
    _fill_entries(pointers(Items(items, len(items), items.itemsize, width, entries)))
    n_ordered, weights = workspace.empty("n_ordered", n_rows, np.int32), workspace.empty("weights", n_rows)
    n_ordered.array[:] = block.n_ordered
    weights.array[:] = 1.0 if block.weights is None else block.weights
    return Rows(
        entries,
        np.ascontiguousarray(block.offsets, np.int64),
        n_ordered,
        np.ascontiguousarray(block.below, np.bool_),
        weights,
        n_rows,
        int(block.n_listed.max(initial=1)),
    )
