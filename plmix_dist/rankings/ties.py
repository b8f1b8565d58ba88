"""Ties: what items that share a place mean. In last place of everything on offer they are unordered, or count half."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.rankings.block import RankingBlock
from plmix_dist.rankings.columns import Floats
from plmix_dist.settings import DAVIDSON_NAMES, one_of, whole_number, yes_or_no


def unorder_last_ties(block: RankingBlock, kept: NDArray[np.bool_] | bool = False) -> RankingBlock:
    """Turn a tied last group into items that were on offer but not ordered.

    This applies to rows that list everything on offer, but for `kept` ones (n_rankings,). All other ties stay ties.

    Examples
    --------
    >>> from plmix_dist.rankings.block import Ranking, RankingBlock
    >>> block = RankingBlock.from_rows([Ranking(((2,), (0, 1)), (), "absent", 1.0)], n_items=3)
    >>> unorder_last_ties(block).row(0)
    Ranking(ordered=((2,),), offered=(0, 1), unranked='absent', weight=1.0)
    """
    if block.tied is None or not block.n_rankings:
        return block
    entries = np.arange(len(block.items))
    group_start = np.maximum.reduceat(np.where(block.tied, -1, entries), block.offsets[:-1])
    group_size = block.offsets[1:] - group_start
    whole_offer = (block.n_ordered == block.n_listed) & ~block.below
    changes = whole_offer & (group_size > 1) & ~np.asarray(kept)
    n_ordered = np.where(changes, group_start - block.offsets[:-1], block.n_ordered)
    unordered = np.repeat(changes, block.n_listed) & (entries >= np.repeat(group_start, block.n_listed))
    tied = block.tied & ~unordered
    return block.replace(n_ordered=n_ordered.astype(block.n_ordered.dtype), tied=tied if tied.any() else None)


# Linear extensions: the orders without ties that a row with ties allows, each with a part of the row's weight.

MOST_EXTENSIONS = 24
_MOST_TIED = 9  # items of a tie that is an outcome


class _Extended(NamedTuple):
    """Rows without ties."""

    # The linear extensions of all rows, in the order of the rows. A row of weight w has m extensions of
    # weight w / m
    block: RankingBlock
    row: NDArray[np.int64]  # (n_extensions,): the number of the row that each is an extension of

    def mean_by_row(self, values: Floats) -> Floats:
        """The mean over the extensions of each row, from one number or one line of numbers per extension."""
        firsts = np.flatnonzero(np.diff(self.row, prepend=-1))
        if len(firsts) == len(self.row):
            return values
        counts = np.diff(np.append(firsts, len(self.row)))
        return np.add.reduceat(values, firsts, axis=0) / counts.reshape(-1, *[1] * (values.ndim - 1))


def _is_one_tie(block: RankingBlock) -> NDArray[np.bool_]:
    """(n_rankings,): rows that tie everything on offer, as a drawn battle does."""
    assert block.tied is not None
    n_tied = np.add.reduceat(block.tied, block.offsets[:-1], dtype=np.int64)
    found: NDArray[np.bool_] = (n_tied > 0) & (n_tied + 1 == block.n_listed) & ~block.below
    return found


def extend_ties(block: RankingBlock, half: str = "") -> _Extended:
    """All linear extensions of each row, or 24 draws of them.

    `half` says which ties count half: none, those of "battles" (rows that tie everything on offer), those of all
    "rows", or also ties in "last" place. The extensions of such a row share one membership: they are a group, or in
    the group of their person, and a group's log-likelihood is the mean over them.

    Examples
    --------
    >>> from plmix_dist.rankings.block import Ranking, RankingBlock
    >>> rows = [Ranking(((2,), (0, 1), (3,)), (), "absent", 1.0)]
    >>> extended = extend_ties(RankingBlock.from_rows(rows, n_items=4))
    >>> extended.block.to_array().tolist(), extended.block.weights.tolist(), extended.row.tolist()
    ([[2, 0, 1, 3], [2, 1, 0, 3]], [0.5, 0.5], [0, 0])
    """
    if block.tied is not None and block.n_rankings and half:
        one_tie = _is_one_tie(block)
        block = unorder_last_ties(block, kept=one_tie | (half == "last"))
    else:
        block = unorder_last_ties(block)
    if block.tied is None or not block.n_rankings:
        return _Extended(block.replace(tied=None), np.arange(block.n_rankings))
    halved = np.zeros(block.n_rankings, np.bool_)
    if half:
        halved = one_tie if half == "battles" else np.logical_or.reduceat(block.tied, block.offsets[:-1])
    places = _places_of(block)
    n_copies = np.minimum(places.n_extensions, MOST_EXTENSIONS).astype(np.int64)
    row = np.repeat(np.arange(block.n_rankings), n_copies)
    copy = np.arange(len(row)) - np.repeat(np.cumsum(n_copies) - n_copies, n_copies)
    copies = block.take(row)
    assert copies.tied is not None
    weights = copies.row_weights / n_copies[row]
    items = copies.items.copy()
    # Only entries that are tied move, each within its place.
    first = np.maximum.accumulate(np.where(copies.tied, 0, np.arange(len(copies.tied))))
    moves = np.flatnonzero(np.bincount(first, minlength=len(first))[first] > 1)
    owner = copies.row_of_item()[moves]
    original = moves - copies.offsets[owner] + block.offsets[row[owner]]
    keys = _listed_keys(places, original, moves - first[moves], copy[owner])
    drawn = places.n_extensions[row[owner]] > MOST_EXTENSIONS
    if drawn.any():
        keys = np.where(drawn, _random_keys(copies, moves, first, copy), keys)
    moved = moves[np.lexsort((keys, first[moves]))]
    items[moves] = copies.items[moved]
    if copies.features is not None:
        features = copies.features.copy()
        features[moves] = copies.features[moved]
        copies = copies.replace(features=features)
    extended = copies.replace(items=items, tied=None, weights=weights, n_half=int(halved.sum()))
    if halved.any() and block.groups is None:
        begins = ~halved[row] | (np.diff(row, prepend=-1) > 0)
        extended = extended.replace(groups=np.cumsum(begins), within=np.where(halved[row], 1 / n_copies[row], 1.0))
    return _Extended(extended, row)


class _Places(NamedTuple):
    """Places of a block."""

    # (n_rankings,): the number of linear extensions of each row; large ones are infinite
    n_extensions: Floats
    # (n_entries,): the number of items at the place of each entry, and the number of orders of all earlier
    # places of its row, which is right for rows with at most 24 extensions
    sizes: NDArray[np.int64]
    strides: NDArray[np.int64]


def _places_of(block: RankingBlock) -> _Places:
    assert block.tied is not None
    starts = np.flatnonzero(~block.tied)
    sizes = np.diff(np.append(starts, len(block.items)))
    factorials = np.array([float(math.factorial(min(size, 170))) for size in range(int(sizes.max()) + 1)])
    orders, first_place = factorials[sizes], np.searchsorted(starts, block.offsets[:-1])
    with np.errstate(over="ignore"):
        n_extensions = np.multiply.reduceat(orders, first_place)
    # Logarithms of products of at most 24 are exact enough to be rounded.
    so_far = np.concatenate([[0.0], np.cumsum(np.log(orders))])
    n_places = np.diff(np.append(first_place, len(starts)))
    logs = so_far[:-1] - np.repeat(so_far[first_place], n_places)
    strides = np.rint(np.exp(np.minimum(logs, 40.0))).astype(np.int64)
    return _Places(n_extensions, np.repeat(sizes, sizes), np.repeat(strides, sizes))


def _listed_keys(
    places: _Places, entries: NDArray[np.int64], within: NDArray[np.int64], copy: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where each entry goes within its place, if the copies of a row go through all its extensions.

    Shapes: entries, within, copy (n_moves,).
    """
    keys = within.copy()
    sizes = places.sizes[entries]
    for size in range(2, 5):  # a place of five items has more orders than are listed
        table = np.array(list(permutations(range(size))))
        chosen = np.flatnonzero(sizes == size)
        digit = copy[chosen] // places.strides[entries[chosen]] % len(table)
        keys[chosen] = table[digit, within[chosen]]
    return keys


def _random_keys(
    copies: RankingBlock, moves: NDArray[np.int64], first: NDArray[np.int64], copy: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(n_moves,): random numbers that depend on the ranking, the item and the draw; odd draws reverse even ones."""
    items = copies.items.astype(np.uint64)
    place = first - np.repeat(copies.offsets[:-1], copies.n_listed)
    # The order in which tied items were written does not matter to a sum.
    ranking = np.add.reduceat(_mixed(items + (place.astype(np.uint64) << np.uint64(32))), copies.offsets[:-1])
    draw = copy.astype(np.uint64) // np.uint64(2)
    owner = copies.row_of_item()[moves]
    mixed = _mixed(_mixed(items[moves] + np.uint64(1)) + _mixed(ranking + draw)[owner])
    keys = (mixed >> np.uint64(2)).astype(np.int64)
    return np.where(copy[owner] % 2 == 1, -keys, keys)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers whose bits depend on all bits of the given ones (splitmix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


# Ways of treating ties, one value each: what happens when rows are read, and what the E-step does then.


@dataclass(frozen=True)
class TieTreatment:
    """One way of treating ties. To add one, add its value to `TIES`."""

    name: str  # What users type as ties
    # Whether rows become linear extensions when they are read. Otherwise ties stay, and kernels sum over
    # them
    extends: bool
    redraws: bool  # Whether every pass draws one linear extension per row from the current fit
    half: str = ""  # Which ties count half, as in `extend_ties`
    keeps: bool = False  # Whether ties stay as they are, for what treats them later
    order: int = 0  # The most items of a tie, where ties are outcomes with parameters of their own; else 0
    shared: bool = True  # Whether all components share these parameters

    def on_reading(self, block: RankingBlock) -> RankingBlock:
        """What a block becomes when it is read."""
        if self.keeps:
            return block
        return self.extended(block).block if self.extends else unorder_last_ties(block)

    def extended(self, block: RankingBlock) -> _Extended:
        """The linear extensions of each row."""
        return extend_ties(block, self.half)

    @property
    def for_later(self) -> TieTreatment:
        """How rows are read whose ties are treated row by row: a tie that counts half must not be unordered."""
        return KEPT if self.half else MARGINAL


_EXPAND = TieTreatment("expand", extends=True, redraws=False)
MARGINAL = TieTreatment("marginal", extends=False, redraws=False)
_RESAMPLE = TieTreatment("resample", extends=False, redraws=True)
_AUTO = TieTreatment("auto", extends=True, redraws=False, half="battles")
_HALF = TieTreatment("half", extends=True, redraws=False, half="rows")
_HALF_LAST = TieTreatment("half-last", extends=True, redraws=False, half="last")
KEPT = TieTreatment("kept", extends=False, redraws=False, keeps=True)


class _Treatments(dict[str, TieTreatment]):
    """Treatments by name; those of Davidson's model are made when they are asked for."""

    def __missing__(self, name: str) -> TieTreatment:
        if name == KEPT.name:
            return KEPT
        found = re.fullmatch(DAVIDSON_NAMES, name)
        if found is None:
            raise KeyError(name)
        order, shared = int(found[1] or 2), found[2] is None
        return TieTreatment(name, extends=False, redraws=False, half="last", keeps=True, order=order, shared=shared)


TIES = _Treatments({one.name: one for one in (_AUTO, _EXPAND, MARGINAL, _RESAMPLE, _HALF, _HALF_LAST)})


def Half(last: str = "unordered") -> str:  # noqa: N802 - a value of `ties`, as Davidson and Spectral are values
    """The value of `ties` by which ties count half, as the word that the command line has for it.

    A row with ties counts as the mean of the log-likelihoods of its orders, with one membership; so a tied pair is half
    a win for each. `last` says what a tied last group of a longer row means: "unordered" (nothing, as on ballots),
    or "tie". A row that is one tied group always counts. See docs/ties-and-groups.md.

    Examples
    --------
    >>> plm.Half(), plm.Half(last="tie")
    ('half', 'half-last')
    """
    return {"unordered": _HALF.name, "tie": _HALF_LAST.name}[one_of("last", last, ("unordered", "tie"))]


def Davidson(order: int = 2, shared: bool = True) -> str:  # noqa: N802 - as Half
    """The value of `ties` by which ties are outcomes of choices, as the word that the command line has for it.

    A set of g items is chosen with weight delta_g (product of their worths)^(1/g), against all sets of up to `order`
    items on offer (Davidson 1970; Turner et al. 2020). The components share the delta, or have their own. See
    docs/ties-and-groups.md.

    Examples
    --------
    >>> plm.Davidson(), plm.Davidson(order=3, shared=False)
    ('davidson', 'davidson-3-each')
    """
    whole_number("order", order, at_least=2)
    if order > _MOST_TIED:
        raise SettingsError(f"order must be at most {_MOST_TIED}, but is {order}")
    yes_or_no("shared", shared)
    return "davidson" + (f"-{order}" if order > 2 else "") + ("" if shared else "-each")
