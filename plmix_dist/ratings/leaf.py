"""RatingLeaf: all ratings of some users, one run of entries per user; and how a leaf is made from rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plmix_dist.errors import IngestError
from plmix_dist.formats.items import natural_order, shown
from plmix_dist.ratings.shuffle import rows_of_leaf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.ratings.scratch import Scratch
    from plmix_dist.ratings.settings import Duplicates


class RatingLeaf(NamedTuple):
    """Ratings of some users. User u rated `items[bounds[u]:bounds[u + 1]]`, in rising order of the items.

    Parameters
    ----------
    bounds : (n_users + 1,)
        Where the ratings of each user begin, and the end.
    items, ratings : (n_ratings,)
        The item, by its number, and the rating.

    Examples
    --------
    >>> leaf = RatingLeaf(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([5.0, 3.0, 4.0]))
    >>> leaf.n_users, leaf.counts.tolist(), leaf.user_of_rating.tolist()
    (2, [2, 1], [0, 0, 1])
    """

    bounds: NDArray[np.int64]
    items: NDArray[np.int32]
    ratings: NDArray[np.float64]

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
        """The ratings where a mask is True. Users may be left without any.

        Examples
        --------
        >>> leaf = RatingLeaf(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([5.0, 3.0, 4.0]))
        >>> leaf.only(leaf.items == 1).bounds.tolist()
        [0, 1, 2]
        """
        kept = np.concatenate([[0], np.cumsum(keep)])
        return RatingLeaf(kept[self.bounds], self.items[keep], self.ratings[keep])

    def only_users(self, keep: NDArray[np.bool_]) -> RatingLeaf:
        """The users where a mask is True, with all their ratings.

        Examples
        --------
        >>> leaf = RatingLeaf(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([5.0, 3.0, 4.0]))
        >>> leaf.only_users(np.array([False, True])).ratings.tolist()
        [4.0]
        """
        entries = np.repeat(keep, self.counts)
        bounds = np.concatenate([[0], np.cumsum(self.counts[keep])])
        return RatingLeaf(bounds, self.items[entries], self.ratings[entries])


class LeafSummary(NamedTuple):
    """Sums over leaves: rows read, ratings left without duplicates, users, and users that are no whole numbers."""

    n_rows: int
    n_ratings: int
    n_users: int
    n_text_users: int


def leaf_name(leaf: int) -> str:
    """The scratch file of a leaf.

    Examples
    --------
    >>> leaf_name(3)
    'leaf-000003.npz'
    """
    return f"leaf-{leaf:06d}.npz"


def users_name(leaf: int) -> str:
    """The scratch file with the labels of the users of a leaf.

    Examples
    --------
    >>> users_name(3)
    'users-000003.json'
    """
    return f"users-{leaf:06d}.json"


def load_leaf(scratch: Scratch, leaf: int) -> RatingLeaf:
    """A leaf that `make_leaf` wrote."""
    arrays = scratch.load(leaf_name(leaf))
    return RatingLeaf(arrays["bounds"], arrays["items"], arrays["ratings"])


@dataclass(frozen=True)
class LeafMaker:
    """Makes leaves from the rows in scratch files.

    Parameters
    ----------
    files
        The scratch files of all parts.
    item_names
        The labels of all items, in order.
    urls
        The files of the source, for messages.
    duplicates
        What to do where a user rated an item twice.
    """

    scratch: Scratch
    files: list[str]
    n_leaves: int
    item_names: tuple[str, ...]
    urls: tuple[str, ...]
    duplicates: Duplicates

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
        self.scratch.save(leaf_name(leaf), bounds=bounds, items=items[last], ratings=ratings)
        self.scratch.save_text(users_name(leaf), names)
        n_text = sum(not _is_integer(name) for name in names)
        return LeafSummary(len(users), len(ratings), len(names), n_text)

    def _refuse(self, table: pa.Table, order: NDArray[np.int64], entry: int) -> None:
        """An error for a user who rated an item twice."""
        first, second = (
            {name: table.column(name)[int(order[place])].as_py() for name in ("user", "item", "file", "line")}
            for place in (entry, entry + 1)
        )
        places = " and ".join(
            f"{self.urls[row['file']]}, line or row {row['line']}" for row in (first, second)
        )
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
