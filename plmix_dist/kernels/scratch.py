"""Working memory of kernels: scratch for several rows, and the probability of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.kernels.native import Kernel
from plmix_dist.kernels.pointers import pointers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.entries import Rows
    from plmix_dist.kernels.pointers import Room
    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.kernels.workspace import Workspace

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


def slots_for(rows: Rows, params: Prepared, workspace: Workspace) -> Slots:
    """Scratch for rows at parameters, in the rooms "scratch floats" and "scratch integers"."""
    n_floats, n_integers = (4 + rows.longest) * params.width, params.width + params.n_items
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


_take_logs = Kernel("take_logs", Probabilities)


def probabilities_of(n_rows: int, workspace: Workspace) -> Probabilities:
    """Room for the probabilities of rows."""
    totals, scales = workspace.empty("totals", n_rows + 3), workspace.empty("scales", n_rows + 3)
    totals.array[n_rows:] = 1.0
    scales.array[n_rows:] = 1.0
    return Probabilities(totals, scales, n_rows + 3)


def logs_of(probabilities: Probabilities) -> NDArray[np.float64]:
    """(n_rows,): the logarithm of each probability; it takes the place of the total."""
    _take_logs(pointers(probabilities))
    return probabilities.totals.array[:-3]
