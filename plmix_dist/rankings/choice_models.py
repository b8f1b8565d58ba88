"""What the choices of a row are: by slates, best and worst, pairs of both. Plain Plackett-Luce has no value here.

A choice model turns every row into choices between alternatives, which share the membership of the row, and says of
which columns the utilities of alternatives are made. All else follows from conditional logits (kernels/utilities.py).
To add one, write its class here, and name its value in `CHOICES` if a word is enough for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert

from plmix_dist.errors import RankingError, SettingsError
from plmix_dist.rankings.block import RankingBlock
from plmix_dist.rankings.columns import Floats, item_dtype, narrowest

_MOST_SLATES = 62
FIND_SLATES = "slates"  # what users type for slates that are to be found
# Pairs of a set are alternatives of their own, so their number grows with its square.
_LARGEST_SET = 60


# What all of these know: `name`, which users type as `choices`; `n_alternatives` of a number of items; `design`
# (n_alternatives, n_columns), the columns whose combinations are utilities; and `rows`, the choices of all rows of a
# block, a row each: those of one row stand together and share its membership.
ChoiceModel: TypeAlias = "SlateChoices | _BestWorst | _MaxDiff"


def contrasts(n: int) -> Floats:
    """(n, n - 1): orthonormal columns that sum to zero; all vectors of mean zero are combinations of them."""
    found: Floats = helmert(n).T if n > 1 else np.zeros((n, 0))
    return found


def listing_all(block: RankingBlock) -> RankingBlock:
    """The rows with all unlisted items behind the listed ones, where these are on offer."""
    if not block.below.any():
        return block
    n_more = np.where(block.below, block.n_items - block.n_listed.astype(np.int64), 0)
    n_listed = block.n_listed + n_more
    offsets = np.append(0, np.cumsum(n_listed))
    items = np.zeros(offsets[-1], block.items.dtype)
    place = np.arange(len(block.items)) + np.repeat(offsets[:-1] - block.offsets[:-1], block.n_listed)
    is_listed = np.zeros(len(items), np.bool_)
    is_listed[place] = True
    items[place] = block.items
    rows = np.flatnonzero(n_more)
    longer = block.take(rows)
    missing = np.ones((len(rows), block.n_items), np.bool_)
    missing[longer.row_of_item(), longer.items] = False
    items[~is_listed] = np.nonzero(missing)[1]
    tied = None
    if block.tied is not None:
        tied = np.zeros(len(items), np.bool_)
        tied[place] = block.tied
    return block.replace(
        items=items, n_listed=narrowest(n_listed), below=np.zeros(block.n_rankings, np.bool_), tied=tied
    )


class _Choices(NamedTuple):
    """Choices of rows (n,): their alternatives (total,), one after the other, with those chosen first; how often."""

    row: NDArray[np.int64]
    alternatives: NDArray[np.int64]
    n_listed: NDArray[np.int64] | int
    n_ordered: NDArray[np.int64] | int = 1
    times: Floats | float = 1.0


def _block_of(parts: Sequence[_Choices], of: RankingBlock, n_alternatives: int) -> RankingBlock:
    """All choices as rows, in the order of the rows that they are of. Rows without a choice are left out."""
    row, alternatives = (np.concatenate(one) for one in zip(*(part[:2] for part in parts), strict=True))
    n_listed, n_ordered, times = (
        np.concatenate([np.broadcast_to(part[field], len(part.row)) for part in parts]) for field in (2, 3, 4)
    )
    order = np.argsort(row, kind="stable")
    owner = row[order]
    within = times[order] * (1.0 if of.within is None else of.within[owner])
    choices = RankingBlock(
        items=alternatives.astype(item_dtype(n_alternatives)),
        n_listed=narrowest(n_listed),
        n_ordered=narrowest(n_ordered),
        below=np.zeros(len(row), np.bool_),
        n_items=n_alternatives,
    ).take(order)
    return choices.replace(
        weights=of.row_weights[owner] * times[order],
        groups=owner if of.groups is None else of.groups[owner],
        within=within if of.groups is None or of.within is not None else None,
        covariates=None if of.covariates is None else of.covariates[owner],
    )


# Slates: parties of an election, brands, series. See docs/choices.md.


@dataclass(frozen=True)
class Slates:
    """Every item belongs to a slate; at each place a slate is drawn, then an item of it (slate-PL).

    A component draws each slate with a probability proportional to its cohesion with that slate, among those that have
    items left; and within it an item with a probability proportional to its worth, among those left. This is what
    VoteKit generates as blocs.

    Parameters
    ----------
    slates
        The items of each slate, by its name; every item belongs to one. None finds them: the partition under which the
        rankings are most probable (docs/choices.md).

    Examples
    --------
    >>> parties = plm.Slates({"left": ["ann", "bob"], "right": ["cy", "dee", "eve"]})
    >>> parties.names
    ('left', 'right')
    """

    slates: Mapping[str, Sequence[str]] | None

    def __post_init__(self) -> None:
        if self.slates is None:
            return
        given = self.slates.values() if isinstance(self.slates, Mapping) else [None]
        if not all(isinstance(items, Iterable) and not isinstance(items, str | bytes) for items in given):
            raise SettingsError(
                'slates must be a dict of the items of each slate, such as {"left": ["ann", "bob"], "right": ["cy"]}, '
                f"but is {self.slates!r}"
            )
        plain = {str(name): tuple(map(str, items)) for name, items in self.slates.items()}
        if not 2 <= len(plain) <= _MOST_SLATES or not all(plain.values()):
            raise SettingsError(f"there must be 2 to {_MOST_SLATES} slates with items in each, but there are {plain}")
        listed = [item for items in plain.values() for item in items]
        twice = next((item for item in listed if listed.count(item) > 1), None)
        if twice is not None:
            raise SettingsError(f"item {twice!r} is named more than once in the slates; each belongs to one of them")
        object.__setattr__(self, "slates", plain)

    def __hash__(self) -> int:
        return hash(json.dumps(self.slates))

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """What users type as `choices`, as JSON."""
        return FIND_SLATES if self.slates is None else json.dumps(self.slates, ensure_ascii=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the slates."""
        return tuple(self.slates or ())

    def of_items(self, item_names: Sequence[str]) -> SlateChoices:
        """The choice model of these items; an error if they are not those of the slates, which are looked for later."""
        if self.slates is None:
            return Slates({name: [name] for name in item_names}).of_items(item_names)
        known = {item: number for number, items in enumerate(self.slates.values()) for item in items}
        missing = [name for name in item_names if name not in known]
        if missing:
            raise SettingsError(f"item {missing[0]!r} belongs to no slate; name it in one of {list(self.slates)}")
        unknown = sorted(set(known).difference(item_names))
        if unknown:
            raise SettingsError(f"the slates name {unknown[0]!r}, which is not an item of these rankings")
        return SlateChoices(tuple(known[name] for name in item_names), self.names)


@dataclass(frozen=True)
class SlateChoices:
    """Choices of a slate, then of an item in it. Alternatives are the items, then the slates."""

    slate_of: tuple[int, ...]
    names: tuple[str, ...]
    name: str = "slates"

    def n_alternatives(self, n_items: int) -> int:
        """Items and slates."""
        return n_items + len(self.names)

    def design(self, n_items: int) -> Floats:
        """Contrasts of the items of each slate, and of the slates."""
        found = np.zeros((n_items + len(self.names), 0))
        for slate in range(len(self.names)):
            items = np.flatnonzero(np.array(self.slate_of) == slate)
            columns = np.zeros((len(found), max(len(items) - 1, 0)))
            columns[items] = contrasts(len(items))
            found = np.concatenate([found, columns], axis=1)
        columns = np.zeros((len(found), len(self.names) - 1))
        columns[n_items:] = contrasts(len(self.names))
        return np.concatenate([found, columns], axis=1)

    def rows(self, block: RankingBlock) -> RankingBlock:
        """The order of the items of each slate, and every choice of a slate where several were left."""
        if block.has_ties:
            raise RankingError('slates take rankings without ties; choose ties="expand", or leave the slates out')
        n_slates, slate_of = len(self.names), np.array(self.slate_of)
        block = listing_all(block)
        slate, row = slate_of[block.items], block.row_of_item()
        ordered = block.place_of_item() < block.n_ordered[row]
        # Within slates: entries are in the order of their places.
        order = np.lexsort((slate, row))
        segment = (row * n_slates + slate)[order]
        begins = np.flatnonzero(np.diff(segment, prepend=-1))
        n_listed = np.diff(np.append(begins, len(order)))
        n_ordered = np.add.reduceat(ordered[order].astype(np.int64), begins) if len(begins) else n_listed
        kept = (n_listed > 1) & (n_ordered > 0)
        listed = block.items[order[np.repeat(kept, n_listed)]].astype(np.int64)
        within = _Choices(segment[begins[kept]] // n_slates, listed, n_listed[kept], n_ordered[kept])
        # Of slates: how many items of each were left before every place.
        of_slate = np.eye(n_slates, dtype=np.int64)[slate]
        begun = np.cumsum(of_slate, axis=0) - of_slate
        used = begun - begun[block.offsets[:-1]][row]
        left = np.add.reduceat(of_slate, block.offsets[:-1], axis=0)[row] > used
        chosen = np.flatnonzero(ordered & (left.sum(axis=1) > 1))
        keys = np.column_stack([row[chosen], slate[chosen], left[chosen] @ (1 << np.arange(n_slates))])
        unique, times = np.unique(keys, axis=0, return_counts=True)
        offered = (unique[:, 2, None] >> np.arange(n_slates)) & 1
        offered[np.arange(len(unique)), unique[:, 1]] = 2  # first
        places = np.argsort(-offered, axis=1, kind="stable")
        there = np.take_along_axis(offered, places, axis=1) > 0
        between = _Choices(unique[:, 0], block.n_items + places[there], there.sum(axis=1), 1, times.astype(np.float64))
        return _block_of([within, between], block, self.n_alternatives(block.n_items))


# Best and worst of a set (MaxDiff). A row has the best item first and the worst last; those between are tied.


def _best_and_worst(block: RankingBlock, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(n_rankings,) each: the place of the best and of the worst item in the row, or -1; an error for other rows."""
    n_listed, n_ordered = block.n_listed.astype(np.int64), block.n_ordered.astype(np.int64)
    tied = np.zeros(len(block.items), np.bool_) if block.tied is None else block.tied
    ordered = block.place_of_item() < n_ordered[block.row_of_item()]
    n_places = np.add.reduceat((ordered & ~tied).astype(np.int64), block.offsets[:-1])
    whole = n_ordered == n_listed
    first, last = block.offsets[:-1], block.offsets[:-1] + n_ordered - 1
    best = np.where((n_ordered == 1) | ~tied[np.minimum(first + 1, len(tied) - 1)], 0, -1)
    worst = np.where(whole & (n_places > 1) & ~tied[last], n_listed - 1, -1)
    n_between = n_places - (best >= 0) - (worst >= 0)
    wrong = block.below | (n_between > 1) | ((best < 0) & (worst < 0)) | (~whole & (n_places > 1)) | (n_listed < 2)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise RankingError(
            f'choices="{name}" takes sets of which the best, the worst or both are known, and ranking {row} (from 0) '
            f"is {block.row(row)}; read such sets with --format best-worst, or leave choices out"
        )
    return best, worst


@dataclass(frozen=True)
class _BestWorst:
    """The best of a set, then the worst of what is left; alternatives are items, as best and as worst."""

    name: str = "best-worst"

    def n_alternatives(self, n_items: int) -> int:
        """Every item twice."""
        return 2 * n_items

    def design(self, n_items: int) -> Floats:
        """The worst item is chosen by the inverse of worths."""
        return np.concatenate([contrasts(n_items), -contrasts(n_items)])

    def rows(self, block: RankingBlock) -> RankingBlock:
        """A choice of the best, and a choice of the worst among the others."""
        best, worst = _best_and_worst(block, self.name)
        n_listed, row, place = block.n_listed.astype(np.int64), block.row_of_item(), block.place_of_item()
        rows = np.flatnonzero(best >= 0)  # the best is first already
        of_best = _Choices(rows, block.items[np.isin(row, rows)].astype(np.int64), n_listed[rows])
        left = n_listed - (best >= 0)
        rows = np.flatnonzero((worst >= 0) & (left > 1))
        entries = np.flatnonzero(np.isin(row, rows) & ((place > 0) | (best[row] < 0)))
        entries = entries[np.lexsort((-place[entries], row[entries]))]  # the worst first
        of_worst = _Choices(rows, block.n_items + block.items[entries].astype(np.int64), left[rows])
        return _block_of([of_best, of_worst], block, self.n_alternatives(block.n_items))


@cache
def _ordered_pairs(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of all ordered pairs of a set; the first item with the last comes first."""
    one, other = np.nonzero(~np.eye(size, dtype=np.bool_))
    first = (one == 0) & (other == size - 1)
    order = np.argsort(~first, kind="stable")
    return one[order], other[order]


@dataclass(frozen=True)
class _MaxDiff:
    """Best and worst as one choice of a pair that differs most; alternatives are ordered pairs of items."""

    name: str = "maxdiff"

    def n_alternatives(self, n_items: int) -> int:
        """All ordered pairs."""
        return n_items * n_items

    def design(self, n_items: int) -> Floats:
        """The difference of both."""
        columns = contrasts(n_items)
        return (columns[:, None] - columns[None]).reshape(n_items * n_items, -1)

    def rows(self, block: RankingBlock) -> RankingBlock:
        """One choice of a pair."""
        best, worst = _best_and_worst(block, self.name)
        sizes = block.n_listed.astype(np.int64)
        for wrong, what in (
            ((best < 0) | (worst < 0), "sets of which the best and the worst are known"),
            (sizes > _LARGEST_SET, f"sets of at most {_LARGEST_SET} items"),
        ):
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise RankingError(
                    f'choices="maxdiff" takes {what}, and ranking {row} (from 0) is {block.row(row)}; choose '
                    'choices="best-worst"'
                )
        parts = []
        for size in np.unique(sizes).tolist() or [2]:  # a part without rows has no choices
            rows = np.flatnonzero(sizes == size)
            items = block.items[block.offsets[:-1][rows, None] + np.arange(size)].astype(np.int64)
            one, other = _ordered_pairs(size)
            parts.append(_Choices(rows, (items[:, one] * block.n_items + items[:, other]).ravel(), len(one)))
        return _block_of(parts, block, self.n_alternatives(block.n_items))


CHOICES: dict[str, ChoiceModel] = {"best-worst": _BestWorst(), "maxdiff": _MaxDiff()}
