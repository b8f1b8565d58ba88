"""RankingBlock: one type for full, top-k, subset and slate rankings, with ties, weights, ids and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plmix_dist.errors import RankingError
from plmix_dist.rankings import columns
from plmix_dist.rankings.columns import Floats, Labels, Unranked, filled, narrowest


class Ranking(NamedTuple):
    """One row of a block as Python tuples.

    `ordered` is a tuple of places, best first. A place holds one item, or several tied items.
    `offered` has the items that were on offer but not ordered. They rank below the ordered ones.

    Examples
    --------
    >>> Ranking(ordered=((2,), (0, 1)), offered=(), unranked="absent", weight=1.0).ordered
    ((2,), (0, 1))
    """

    ordered: tuple[tuple[int, ...], ...]
    offered: tuple[int, ...]
    unranked: Unranked
    weight: float


# The columns that have one line per listed item; all others have one per row.
_BY_ITEM = ("items", "tied", "features", "utilities")
# What columns that are not there stand for.
_DEFAULTS = {"tied": False, "weights": 1.0, "sides": 0, "within": 1.0}
_LABELS = ("ids", "groups", "persons")
# What is not joined as it stands in several blocks.
_NOT_JOINED = ("n_items", "n_half", *_LABELS)


@dataclass(frozen=True, eq=False)
class RankingBlock:
    """Rankings of `n_items` items, stored row after row without padding.

    Row r lists `n_listed[r]` items: first `n_ordered[r]` items in order, best first, then items that were
    on offer but not ordered. `below[r]` is whether unlisted items were on offer, and so rank below.
    Items are numbered from 0 and stored in the narrowest unsigned type.

    Parameters
    ----------
    items : (total listed,)
        The listed items of all rows, one row after the other.
    n_listed, n_ordered : (n_rankings,)
        How many items each row lists, and how many of these are ordered.
    below : (n_rankings,)
        True if unlisted items rank below the listed ones, False if they were not on offer.
        A row that lists every item has False.
    n_items
        The number of items.
    tied : (total listed,) or None
        True if an ordered item is tied with the item before it in its row.
    weights : (n_rankings,) or None
        Counts, or any positive numbers; None means 1 for every row.
    ids, groups : (n_rankings,) or None
        One label per ranking; one label per person who gave several rankings. Rows of one group
        are consecutive.
    persons : (n_rankings,) or None
        What is known of the person who gave each ranking: the cells of all columns of persons, as one text.
    sides : (n_rankings,) or None
        Of battles, on which side the first listed item stood: 1 the left or first, 2 the other, 0 if it is not known.
    covariates : (n_rankings, n_columns) or None
        Columns of the person who gave each ranking, on which shares depend.
    features : (total listed, n_features) or None
        Columns of each listed item in its row, on which its worth depends there.
    utilities : (total listed, n_components) or None
        What its features add to the log-worth of each listed item, made from them during a pass.
    log_shares : (n_rankings, n_components) or None
        The person's own log-shares, made from covariates during a pass; None if all persons have the mixture's.
    within : (n_rankings,) or None
        If groups are made here, of rows that stand for parts of one ranking (its orders, whose ties count half, or its
        choices): how much each row counts within its group, which stands for weight / within persons. None if groups
        are persons.
    n_half
        How many rankings with ties that count half were made into rows here; a part of the rows has 0.

    Examples
    --------
    >>> block = RankingBlock.from_array([[2, 0, 1], [1, -1, -1]], n_items=3, unranked="below")
    >>> block.n_rankings, block.items.tolist(), block.below.tolist()
    (2, [2, 0, 1, 1], [False, True])
    >>> block[1].row(0)
    Ranking(ordered=((1,),), offered=(), unranked='below', weight=1.0)
    """

    items: NDArray[np.unsignedinteger]
    n_listed: NDArray[np.unsignedinteger]
    n_ordered: NDArray[np.unsignedinteger]
    below: NDArray[np.bool_]
    n_items: int
    tied: NDArray[np.bool_] | None = None
    weights: Floats | None = None
    ids: Labels | None = None
    groups: Labels | None = None
    persons: Labels | None = None
    covariates: Floats | None = None
    log_shares: Floats | None = None
    sides: NDArray[np.uint8] | None = None
    features: NDArray[np.floating[Any]] | None = None
    utilities: Floats | None = None
    within: Floats | None = None
    n_half: int = 0

    def __post_init__(self) -> None:
        # Kernels take integers of Python, not of NumPy.
        n_items: Any = self.n_items
        if isinstance(n_items, np.integer):
            object.__setattr__(self, "n_items", int(n_items))

    @property
    def n_rankings(self) -> int:
        """The number of rows."""
        return len(self.n_listed)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """(n_rankings + 1,): row r lists `items[offsets[r]:offsets[r + 1]]`."""
        if self.n_rankings and (self.n_listed == self.n_listed[0]).all():  # several times as fast
            offsets = np.arange(self.n_rankings + 1, dtype=np.int64) * int(self.n_listed[0])
        else:
            offsets = np.zeros(self.n_rankings + 1, np.int64)
            np.cumsum(self.n_listed, out=offsets[1:])
        offsets.flags.writeable = False
        return offsets

    @property
    def total_weight(self) -> float:
        """The sum of the weights."""
        return float(self.n_rankings if self.weights is None else self.weights.sum())

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return sum(array.nbytes for array in self.__getstate__().values() if isinstance(array, np.ndarray))

    @property
    def row_weights(self) -> Floats:
        """(n_rankings,): the weight of each row, also if `weights` is None.

        Examples
        --------
        >>> RankingBlock.from_array([[0, 1], [1, 0]]).row_weights.tolist()
        [1.0, 1.0]
        """
        return np.ones(self.n_rankings) if self.weights is None else self.weights

    @property
    def group_starts(self) -> NDArray[np.bool_]:
        """(n_rankings,): True if a row is the first of its group. Without groups every row is.

        Examples
        --------
        >>> rows = list(RankingBlock.from_array([[0, 1], [1, 0], [0, 1]]).rows())
        >>> RankingBlock.from_rows(rows, n_items=2, groups=["ann", "ann", "bob"]).group_starts.tolist()
        [True, False, True]
        """
        starts = np.ones(self.n_rankings, np.bool_)
        if self.groups is not None:
            starts[1:] = self.groups[1:] != self.groups[:-1]
        return starts

    def __getstate__(self) -> dict[str, Any]:
        # Offsets and the like are computed again where they are needed: they need not travel.
        return {name: getattr(self, name) for name in _names()}

    def row_of_item(self) -> NDArray[np.int64]:
        """(total listed,): the row of each entry of `items`.

        Examples
        --------
        >>> RankingBlock.from_array([[2, 0, 1], [1, 0, -1]], unranked="absent").row_of_item().tolist()
        [0, 0, 0, 1, 1]
        """
        return np.repeat(np.arange(self.n_rankings), self.n_listed)

    def place_of_item(self) -> NDArray[np.int64]:
        """(total listed,): the place, from 0, of each entry of `items` in its row.

        Examples
        --------
        >>> RankingBlock.from_array([[2, 0, 1], [1, 0, -1]], unranked="absent").place_of_item().tolist()
        [0, 1, 2, 0, 1]
        """
        return np.arange(len(self.items)) - np.repeat(self.offsets[:-1], self.n_listed)

    def row(self, index: int) -> Ranking:
        """One ranking as Python tuples.

        Examples
        --------
        >>> RankingBlock.from_array([[2, 0, 1]]).row(0)
        Ranking(ordered=((2,), (0,), (1,)), offered=(), unranked='absent', weight=1.0)
        """
        index = range(self.n_rankings)[index]
        start, stop = int(self.offsets[index]), int(self.offsets[index + 1])
        n_ordered = int(self.n_ordered[index])
        listed = [int(item) for item in self.items[start:stop]]
        places: list[tuple[int, ...]] = []
        for place, item in enumerate(listed[:n_ordered]):
            if place and self.tied is not None and self.tied[start + place]:
                places[-1] = (*places[-1], item)
            else:
                places.append((item,))
        return Ranking(
            ordered=tuple(places),
            offered=tuple(listed[n_ordered:]),
            unranked="below" if self.below[index] else "absent",
            weight=1.0 if self.weights is None else float(self.weights[index]),
        )

    def rows(self) -> Iterator[Ranking]:
        """Every ranking as Python tuples, one after the other.

        Examples
        --------
        >>> [ranking.weight for ranking in RankingBlock.from_array([[0, 1], [1, 0]], weights=[3, 1]).rows()]
        [3.0, 1.0]
        """
        return (self.row(index) for index in range(self.n_rankings))

    def __getitem__(self, rows: int | slice) -> RankingBlock:
        """A run of rows as views of the same memory. A single number gives a block of one row."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.n_rankings)
            if step != 1:
                raise IndexError("a block is sliced in steps of 1; use take() for other rows")
            stop = max(start, stop)
        else:
            start = range(self.n_rankings)[rows]
            stop = start + 1
        return self._select(slice(start, stop), slice(int(self.offsets[start]), int(self.offsets[stop])))

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> RankingBlock:
        """The rows with these numbers, or the rows where this mask is True, as a new block.

        Examples
        --------
        >>> block = RankingBlock.from_array([[0, 1], [1, 0], [0, 1]])
        >>> block.take(np.array([2, 1])).to_array().tolist()
        [[0, 1], [1, 0]]
        """
        numbers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.intp, copy=False)
        lengths = self.n_listed[numbers].astype(np.int64)
        first = np.repeat(self.offsets[:-1][numbers] - (np.cumsum(lengths) - lengths), lengths)
        return self._select(numbers, first + np.arange(len(first)))

    def _select(self, rows: slice | NDArray[np.integer], listed: slice | NDArray[np.integer]) -> RankingBlock:
        """Take rows from the row columns and entries from the item columns."""
        taken = self.__getstate__()
        n_items, _ = (taken.pop(name) for name in ("n_items", "n_half"))
        for name, column in taken.items():
            taken[name] = None if column is None else column[listed if name in _BY_ITEM else rows]
        return RankingBlock(n_items=n_items, **taken)

    def replace(self, **changes: Any) -> RankingBlock:
        """A block with some columns replaced.

        Examples
        --------
        >>> RankingBlock.from_array([[0, 1]]).replace(weights=np.array([2.0])).total_weight
        2.0
        """
        return RankingBlock(**(self.__getstate__() | changes))

    def equals(self, other: RankingBlock) -> bool:
        """Whether both hold the same rankings, weights and labels in the same order.

        Examples
        --------
        >>> block = RankingBlock.from_array([[0, 1], [1, 0]])
        >>> block.equals(block[:2]), block.equals(block[:1])
        (True, False)
        """
        if self.n_rankings != other.n_rankings or self.n_items != other.n_items:
            return False
        names = ("items", "n_listed", "n_ordered", "below", "tied", "weights", "sides")
        return all(np.array_equal(self._filled(name), other._filled(name)) for name in names) and all(
            np.asarray(getattr(self, name)).tolist() == np.asarray(getattr(other, name)).tolist() for name in _LABELS
        )

    def _filled(self, name: str) -> NDArray[Any]:
        """A column, or what stands for it."""
        length = len(self.items) if name in _BY_ITEM else self.n_rankings
        return filled(getattr(self, name), length, _DEFAULTS.get(name, 0))

    @classmethod
    def from_array(
        cls,
        array: ArrayLike,
        *,
        n_items: int | None = None,
        unranked: Unranked | None = None,
        weights: ArrayLike | None = None,
        first_row: int = 0,
    ) -> RankingBlock:
        """Rankings from an integer array. Every row is checked.

        Parameters
        ----------
        array : (n_rankings, places)
            Items numbered from 0, best first; -1 after the end of a row.
        n_items
            The number of items; by default the largest number found plus one.
        unranked
            "below" or "absent"; needed if a row is shorter than `n_items`.
        weights : (n_rankings,)
            Counts, or any positive numbers.
        first_row
            Number of the first row, for messages.

        Examples
        --------
        >>> RankingBlock.from_array([[0, 1], [1, 0]], weights=[3, 1]).total_weight
        4.0
        """
        from plmix_dist.rankings.checks import check_rows

        table = columns.table_of(array)
        n_listed = columns.row_lengths(table, first_row)
        largest = int(table.max()) if table.size else -1
        if n_items is None:
            n_items = largest + 1
        block = cls(
            items=table[table >= 0].astype(columns.item_dtype(max(n_items, largest + 1))),
            n_listed=narrowest(n_listed),
            n_ordered=narrowest(n_listed),
            below=columns.below_flags(n_listed, n_items, unranked, first_row),
            n_items=n_items,
            weights=None if weights is None else columns.weight_column(weights, len(table)),
        )
        check_rows(block, first_row)
        return block

    def to_array(self) -> NDArray[np.int64]:
        """(n_rankings, longest row): items, best first; -1 after the end of a row.

        Ties, and items on offer but not ordered, do not fit: they are an error.

        Examples
        --------
        >>> RankingBlock.from_array([[2, 0, 1], [1, -1, -1]], unranked="below").to_array().tolist()
        [[2, 0, 1], [1, -1, -1]]
        """
        if self.has_ties or self.has_slates:
            raise RankingError("ties and slates do not fit into a plain array of items; use rows()")
        table = np.full((self.n_rankings, int(self.n_listed.max(initial=0))), -1, np.int64)
        table[self.row_of_item(), self.place_of_item()] = self.items
        return table

    @property
    def has_ties(self) -> bool:
        """Whether any two ordered items are tied."""
        return self.tied is not None and bool(self.tied.any())

    @property
    def has_slates(self) -> bool:
        """Whether any row lists items that were on offer but not ordered."""
        return bool((self.n_ordered < self.n_listed).any())

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Ranking | tuple[Any, ...]],
        *,
        n_items: int,
        ids: Sequence[Any] | None = None,
        groups: Sequence[Any] | None = None,
    ) -> RankingBlock:
        """Rankings from Python tuples, as `row` gives them: for tests and small data.

        Examples
        --------
        >>> rows = [Ranking(((2,), (0, 1)), (), "absent", 1.0)]
        >>> RankingBlock.from_rows(rows, n_items=4).tied.tolist()
        [False, False, True]
        """
        from plmix_dist.rankings.checks import check_rows

        rankings = [Ranking(*row) for row in rows]
        _check_rows_of_python(rankings, ids, groups)
        # An item that is not ordered stands at a place of its own.
        places = [place for ranking in rankings for place in (*ranking.ordered, *((item,) for item in ranking.offered))]
        items = [item for place in places for item in place]
        tied = [position > 0 for place in places for position in range(len(place))]
        n_ordered = [sum(len(place) for place in ranking.ordered) for ranking in rankings]
        n_listed = [n + len(ranking.offered) for n, ranking in zip(n_ordered, rankings, strict=True)]
        weights = [ranking.weight for ranking in rankings]
        block = cls(
            items=np.array(items, np.int64).astype(columns.item_dtype(max([n_items, *(item + 1 for item in items)]))),
            n_listed=narrowest(np.array(n_listed, np.int64)),
            n_ordered=narrowest(np.array(n_ordered, np.int64)),
            below=np.array(
                [ranking.unranked == "below" and n < n_items for ranking, n in zip(rankings, n_listed, strict=True)],
                np.bool_,
            ),
            n_items=n_items,
            tied=np.array(tied, np.bool_) if any(tied) else None,
            weights=None if all(w == 1 for w in weights) else np.array(weights, np.float64),
            ids=None if ids is None else columns.label_column(ids),
            groups=None if groups is None else columns.label_column(groups),
        )
        check_rows(block)
        return block


def _check_rows_of_python(rankings: Sequence[Ranking], ids: Sequence[Any] | None, groups: Sequence[Any] | None) -> None:
    """An error for what the columns of a block could not hold."""
    for number, ranking in enumerate(rankings):
        for item in (*ranking.offered, *(item for place in ranking.ordered for item in place)):
            if item < 0:
                raise RankingError(f"row {number}: item {item} is out of range; items are numbered from 0")
        if ranking.unranked not in ("below", "absent"):
            raise RankingError(f'row {number}: unranked must be "below" or "absent", but got {ranking.unranked!r}')
    for name, labels in (("ids", ids), ("groups", groups)):
        if labels is not None and len(labels) != len(rankings):
            raise RankingError(f"expected {len(rankings)} {name}, one per ranking, but got {len(labels)}")


@cache
def _names() -> tuple[str, ...]:
    """The names of the columns of a block, and of its numbers."""
    return tuple(field.name for field in fields(RankingBlock))


def concatenate(blocks: Sequence[RankingBlock]) -> RankingBlock:
    """One block with the rows of several, in order.

    Examples
    --------
    >>> pair = RankingBlock.from_array([[0, 1]], weights=[2])
    >>> concatenate([pair, RankingBlock.from_array([[1, 0]])]).weights.tolist()
    [2.0, 1.0]
    """
    if len(blocks) == 1:
        return blocks[0]
    n_items = {block.n_items for block in blocks}
    if len(n_items) != 1:
        raise RankingError(f"blocks of different numbers of items cannot be joined: {sorted(n_items)}")

    def joined(name: str) -> Any:
        there = any(getattr(block, name) is not None for block in blocks)
        return np.concatenate([block._filled(name) for block in blocks]) if there else None

    within = joined("within")
    for name in _LABELS if within is None else ("ids", "persons"):
        if len({getattr(block, name) is not None for block in blocks if block.n_rankings}) > 1:
            raise RankingError(f"some blocks have {name} and some do not: they cannot be joined")
    whole = {name: joined(name) for name in _names() if name not in _NOT_JOINED}
    labels: dict[str, Any] = {
        name: columns.joined_labels([getattr(block, name) for block in blocks if block.n_rankings]) for name in _LABELS
    }
    if within is not None:
        labels["groups"] = np.cumsum(np.concatenate([block.group_starts for block in blocks]))
    return RankingBlock(n_items=n_items.pop(), **whole, **labels)
