"""RatingLeaf: all ratings of some users, one run of entries per user; and how a leaf is made from rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from plmix_dist.datasets.ratings.shuffle import Scratch, rows_of_leaf
from plmix_dist.errors import IngestError
from plmix_dist.rankings import STRING, Floats, RankingBlock, item_dtype, narrowest
from plmix_dist.tables.encode import natural_order, shown

if TYPE_CHECKING:
    from plmix_dist.datasets.ratings.ingest import Duplicates


class RatingLeaf(NamedTuple):
    """Ratings of some users. User u rated `items[bounds[u]:bounds[u + 1]]`, in rising order of the items."""

    bounds: NDArray[np.int64]  # (n_users + 1,): where the ratings of each user begin, and the end
    items: NDArray[np.int32]  # (n_ratings,): the item, by its number, and the rating
    ratings: Floats

    @property
    def n_users(self) -> int:
        """The number of users."""
        return len(self.bounds) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """(n_users,): how many items each user rated."""
        return np.diff(self.bounds)

    @property
    def user_of_rating(self) -> NDArray[np.int64]:
        """(n_ratings,): the user of each rating."""
        return np.repeat(np.arange(self.n_users), self.counts)

    def only(self, keep: NDArray[np.bool_]) -> RatingLeaf:
        """The ratings where a mask is True. Users may be left without any."""
        return RatingLeaf(np.concatenate([[0], np.cumsum(keep)])[self.bounds], self.items[keep], self.ratings[keep])

    def only_users(self, keep: NDArray[np.bool_]) -> RatingLeaf:
        """The users where a mask is True, with all their ratings."""
        entries = np.repeat(keep, self.counts)
        bounds = np.concatenate([[0], np.cumsum(self.counts[keep])])
        return RatingLeaf(bounds, self.items[entries], self.ratings[entries])


def keep_enough(
    leaf: RatingLeaf, keep_items: NDArray[np.bool_], min_user_ratings: int
) -> tuple[RatingLeaf, NDArray[np.bool_]]:
    """The ratings of kept items by users who rated enough of them, and which users these are."""
    some = leaf.only(keep_items[leaf.items])
    users = some.counts >= max(1, min_user_ratings)
    return some.only_users(users), users


class UsedRatings(NamedTuple):
    """The ratings that pass the filters: those of some items, by users who rated enough of these."""

    scratch: Scratch
    keep_items: NDArray[np.bool_]  # (all items,): which items are used. They are numbered anew, in their order
    min_user_ratings: int

    @property
    def n_items(self) -> int:
        """The number of items that are used."""
        return int(self.keep_items.sum())

    def of_leaf(self, leaf: int) -> tuple[RatingLeaf, NDArray[np.bool_]]:
        """The ratings of a leaf that are used, items numbered anew; and which users have any."""
        kept, users = keep_enough(load_leaf(self.scratch, leaf), self.keep_items, self.min_user_ratings)
        return kept._replace(items=(np.cumsum(self.keep_items) - 1).astype(np.int32)[kept.items]), users


class LeafSummary(NamedTuple):
    """Sums over leaves: rows read, ratings left without duplicates, and users that are text."""

    n_rows: int
    n_ratings: int
    n_text_users: int


def _leaf_name(leaf: int) -> str:
    """The scratch file of a leaf."""
    return f"leaf-{leaf:06d}.npz"


def _users_name(leaf: int) -> str:
    """The scratch file with the labels of the users of a leaf."""
    return f"users-{leaf:06d}.json"


def load_leaf(scratch: Scratch, leaf: int) -> RatingLeaf:
    """A leaf that `make_leaf` wrote."""
    arrays = scratch.load(_leaf_name(leaf))
    return RatingLeaf(arrays["bounds"], arrays["items"], arrays["ratings"])


@dataclass(frozen=True)
class LeafMaker:
    """Makes leaves from the rows in scratch files."""

    scratch: Scratch
    files: list[str]  # The scratch files of all parts
    n_leaves: int
    item_names: tuple[str, ...]  # The labels of all items, in order
    urls: tuple[str, ...]  # The files of the source, for messages
    duplicates: Duplicates  # What to do where a user rated an item twice

    def __call__(self, leaf: int) -> LeafSummary:
        """Write the leaf with this number, and its users; what was found."""
        table = rows_of_leaf(self.scratch, self.files, leaf, self.n_leaves)
        encoded = table.column("user").combine_chunks().dictionary_encode()
        labels = encoded.dictionary.to_pylist()
        names = natural_order(labels)
        place = {name: number for number, name in enumerate(names)}
        rank = np.array([place[label] for label in labels], np.int64)
        users = rank[encoded.indices.to_numpy()] if labels else np.empty(0, np.int64)
        values = pa.array(self.item_names, pa.string())
        items = np.asarray(pc.index_in(table.column("item").combine_chunks(), values), np.int32)
        order = _order(table, users, items)
        users, items = users[order], items[order]
        last = np.ones(len(users), np.bool_)
        last[:-1] = (users[1:] != users[:-1]) | (items[1:] != items[:-1])
        if self.duplicates == "refuse" and not last.all():
            self._refuse(table, order, int(np.flatnonzero(~last)[0]))
        ratings = table.column("rating").to_numpy()[order][last]
        bounds = np.searchsorted(users[last], np.arange(len(names) + 1))
        self.scratch.save(_leaf_name(leaf), bounds=bounds, items=items[last], ratings=ratings)
        self.scratch.save_text(_users_name(leaf), names)
        return LeafSummary(len(users), len(ratings), sum(not _is_integer(name) for name in names))

    def _refuse(self, table: pa.Table, order: NDArray[np.int64], entry: int) -> None:
        """An error for a user who rated an item twice."""
        first, second = (
            {name: table.column(name)[int(order[place])].as_py() for name in ("user", "item", "file", "line")}
            for place in (entry, entry + 1)
        )
        places = " and ".join(f"{self.urls[row['file']]}, line or row {row['line']}" for row in (first, second))
        raise IngestError(
            f"user {shown(first['user'])} rated item {shown(first['item'])} twice: {places}; add a column of times, or "
            "keep the last of the two in the order of the source with --duplicates last"
        )


def _order(table: pa.Table, users: NDArray[np.int64], items: NDArray[np.int32]) -> NDArray[np.int64]:
    """Rows by user, item, time, and last by their place in the source."""
    keys = [table.column("line").to_numpy(), table.column("file").to_numpy()]
    if "time" in table.column_names:
        keys.append(table.column("time").to_numpy())
    return np.lexsort([*keys, items, users])


def _is_integer(label: str) -> bool:
    """Whether a label is written exactly as a whole number of 64 bits is."""
    if not (label.isascii() and label.removeprefix("-").isdigit() and len(label) < 20):
        return False
    return str(int(label)) == label and -(2**63) <= int(label) < 2**63


# Rankings of one leaf of users: from their ratings, equal ratings tied; or full rankings from completed rows.

# Entries of the completed matrix that are held at a time.
_BLOCK_ENTRIES = 1 << 21


class LeftOut(NamedTuple):
    """Ratings without a place in a ranking."""

    items_not_chosen: int
    users_with_one_item: int
    users_with_equal_ratings: int  # for all chosen items


def user_ids(scratch: Scratch, leaf: int, keep: NDArray[np.bool_], *, numbers: bool) -> NDArray[Any]:
    """Some users of a leaf as a column of ids: whole numbers, or text."""
    names = itertools.compress(scratch.load_text(_users_name(leaf)), keep)
    return np.array([*map(int, names)], np.int64) if numbers else np.array([*names], STRING)


def rated_rankings(
    leaf: RatingLeaf, ids: NDArray[Any], chosen: NDArray[np.int64], n_all_items: int
) -> tuple[RankingBlock, LeftOut]:
    """One ranking per user: the chosen items that the user rated, highest first, equal ratings tied.

    A user with fewer than two of these items, or with the same rating for all of them, has no order and no ranking.

    Shapes: ids (n_users,), chosen (n_items,).
    """
    numbers = np.full(n_all_items, -1, np.int64)
    numbers[chosen] = np.arange(len(chosen))
    some = leaf.only(numbers[leaf.items] >= 0)
    several = some.counts > 1
    rest = some.only_users(several)
    spread = _spread(rest)
    useful = rest.only_users(spread)
    left_out = LeftOut(
        len(leaf.items) - len(some.items), int((some.counts == 1).sum()), len(rest.items) - len(useful.items)
    )
    users = useful.user_of_rating
    items = numbers[useful.items]
    order = np.lexsort([items, -useful.ratings, users])
    ratings = useful.ratings[order]
    tied = np.zeros(len(order), np.bool_)
    tied[1:] = (ratings[1:] == ratings[:-1]) & (users[1:] == users[:-1])
    return _block(items[order], useful.counts, tied, ids[several][spread], len(chosen)), left_out


def completed_rankings(users: Floats, items: Floats, ids: NDArray[Any]) -> Iterator[RankingBlock]:
    """Full rankings by completed ratings, highest first. Ratings that are equal to the last bit are tied.

    Shapes: users, items (n_users, rank), (n_items, rank), ids (n_users,).
    """
    for rows, values in completed_rows(users, items):
        order = np.argsort(-values, axis=1, kind="stable")
        ordered = np.take_along_axis(values, order, axis=1)
        tied = np.zeros(order.shape, np.bool_)
        tied[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        yield _block(order.ravel(), np.full(len(order), len(items)), tied.ravel(), ids[rows], len(items))


def completed_rows(users: Floats, items: Floats) -> Iterator[tuple[slice, Floats]]:
    """The completed ratings of all users, a few rows at a time, and which rows they are."""
    step = max(1, _BLOCK_ENTRIES // len(items))
    for start in range(0, len(users), step):
        rows = slice(start, start + step)
        yield rows, users[rows] @ items.T


def _spread(leaf: RatingLeaf) -> NDArray[np.bool_]:
    """(n_users,): whether a user's ratings differ. Every user has some."""
    if not leaf.n_users:
        return np.empty(0, np.bool_)
    starts = leaf.bounds[:-1]
    lowest, highest = np.minimum.reduceat(leaf.ratings, starts), np.maximum.reduceat(leaf.ratings, starts)
    return lowest < highest


def _block(
    items: NDArray[np.integer], lengths: NDArray[np.int64], tied: NDArray[np.bool_], ids: NDArray[Any], n_items: int
) -> RankingBlock:
    n_listed = narrowest(lengths)
    return RankingBlock(
        items=items.astype(item_dtype(n_items)),
        n_listed=n_listed,
        n_ordered=n_listed,
        below=np.zeros(len(lengths), np.bool_),
        n_items=n_items,
        tied=tied if tied.any() else None,
        ids=ids,
    )
