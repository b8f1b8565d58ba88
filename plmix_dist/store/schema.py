"""The columns of a partition: a registry of their names, dimensions and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from plmix_dist.rankings.block import RankingBlock
from plmix_dist.rankings.columns import STRING, item_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = "plmix-rankings"
VERSION = 1
READABLE_VERSIONS = (1,)

ALLOWED_DTYPES = frozenset({"bool", "uint8", "uint16", "uint32", "uint64", "int64", "float64"})

Along = Literal["item", "row", "byte"]


class Column(NamedTuple):
    """One array of a partition.

    A column is not written if all its values are `default`. If `default` is None, the column is required
    (`optional=False`), or all rows have it or none.

    Examples
    --------
    >>> COLUMNS["weights"]
    Column(name='weights', along='row', default=1.0, optional=True)
    """

    name: str
    along: Along
    default: int | float | bool | None = None
    optional: bool = True


COLUMNS = {
    column.name: column
    for column in (
        Column("items", "item", optional=False),
        Column("n_listed", "row", optional=False),
        Column("n_unordered", "row", default=0),
        Column("below", "row", default=False),
        Column("tied", "item", default=False),
        Column("weights", "row", default=1.0),
        Column("ids", "row"),
        Column("ids_lengths", "row"),
        Column("ids_utf8", "byte"),
        Column("groups", "row"),
        Column("groups_lengths", "row"),
        Column("groups_utf8", "byte"),
        Column("component", "row"),
    )
}


def columns_of(block: RankingBlock, component: NDArray[np.integer] | None = None) -> dict[str, NDArray[Any]]:
    """A block as the arrays to store, without those that hold only their default.

    Examples
    --------
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[3, 1])
    >>> sorted(columns_of(block))
    ['items', 'n_listed', 'weights']
    """
    count = item_dtype(block.n_items + 1)
    columns: dict[str, NDArray[Any]] = {
        "items": block.items.astype(item_dtype(block.n_items), copy=False),
        "n_listed": block.n_listed.astype(count, copy=False),
    }
    n_unordered = block.n_listed.astype(count) - block.n_ordered.astype(count)
    if n_unordered.any():
        columns["n_unordered"] = n_unordered
    if block.below.any():
        columns["below"] = block.below
    if block.has_ties:
        assert block.tied is not None
        columns["tied"] = block.tied
    if block.weights is not None and (block.weights != 1).any():
        columns["weights"] = block.weights
    columns |= _label_columns("ids", block.ids) | _label_columns("groups", block.groups)
    if component is not None:
        columns["component"] = component.astype(np.uint16, copy=False)
    return columns


def block_from(columns: dict[str, NDArray[Any]], n_items: int) -> RankingBlock:
    """The block that `columns_of` was given, from the stored arrays.

    Examples
    --------
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[3, 1])
    >>> block_from(columns_of(block), n_items=2).equals(block)
    True
    """
    n_listed = columns["n_listed"]
    n_rankings = len(n_listed)
    n_unordered = columns.get("n_unordered")
    return RankingBlock(
        items=columns["items"],
        n_listed=n_listed,
        n_ordered=n_listed if n_unordered is None else n_listed - n_unordered,
        below=columns.get("below", np.zeros(n_rankings, np.bool_)),
        n_items=n_items,
        tied=columns.get("tied"),
        weights=columns.get("weights"),
        ids=_labels_from("ids", columns),
        groups=_labels_from("groups", columns),
    )


def _label_columns(name: str, labels: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Integer labels as they are; text as its UTF-8 bytes and the length of each label."""
    if labels is None:
        return {}
    if labels.dtype.kind == "i":
        return {name: labels.astype(np.int64, copy=False)}
    encoded = [label.encode() for label in labels.tolist()]
    return {
        f"{name}_lengths": np.array([len(label) for label in encoded], np.uint32),
        f"{name}_utf8": np.frombuffer(b"".join(encoded), np.uint8),
    }


def _labels_from(name: str, columns: dict[str, NDArray[Any]]) -> NDArray[Any] | None:
    if name in columns:
        return columns[name]
    if f"{name}_lengths" not in columns:
        return None
    ends = np.cumsum(columns[f"{name}_lengths"]).tolist()
    text = columns[f"{name}_utf8"].tobytes()
    starts = [0, *ends[:-1]]
    return np.array([text[start:end].decode() for start, end in zip(starts, ends, strict=True)], STRING)
