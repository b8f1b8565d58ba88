"""The format `ranks`: delimited text with one column per item, which holds its ranks. Equal ranks are ties."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.formats import delimited
from plmix_dist.formats.delimited import Listed, Listing
from plmix_dist.formats.format import COLUMN_NAMES, Format, ReadOptions, decimal_hint, parse_weight
from plmix_dist.formats.items import shown
from plmix_dist.formats.labelled import refuse
from plmix_dist.formats.sniffing import LABEL_ROLES, header_reader
from plmix_dist.formats.sniffing.cells import MISSING
from plmix_dist.formats.write_delimited import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.formats.labelled import LabelledRow
    from plmix_dist.formats.raw_rows import RawRows
    from plmix_dist.formats.sources import Slice
    from plmix_dist.formats.text_columns import ChunkColumns
    from plmix_dist.store import RankingStore

NOT_RANKED = MISSING | {"0"}


def _read(part: Slice, options: ReadOptions) -> Iterator[RawRows]:
    """Rows of ranks. Columns for weight, id, group and unranked have known names; all others are items."""
    del options  # the header says which columns these are
    header = part.header
    roles = {role: place for role, place in header.roles.items() if role in LABEL_ROLES}
    taken = {*roles.values(), *header.ignored}
    items = [place for place in range(len(header.columns)) if place not in taken]
    names = [header.columns[place] for place in items]
    listing = Listing(
        of_fields=lambda row: _of_fields([row[place] for place in items], names),
        of_columns=lambda columns: _of_columns(columns, items, names),
        coded=tuple(items),
    )
    return delimited.read_rows(part, roles, listing)


def _rank(cell: str) -> float:
    """The rank in a cell: NaN if the item is not ranked, infinity if the cell holds anything else."""
    if cell in NOT_RANKED:
        return float("nan")
    rank = parse_weight(cell)
    return rank if 0 < rank < float("inf") else float("inf")


def _of_fields(cells: list[str], names: list[str]) -> tuple[list[str], int, list[bool] | None]:
    ranks = [_rank(cell) for cell in cells]
    for cell, rank, name in zip(cells, ranks, names, strict=True):
        if rank == float("inf"):
            raise IngestError(
                f"the rank {cell!r} of item {shown(name)} is not a positive number{decimal_hint(cell)}"
            )
    order = sorted(
        (rank, place) for place, rank in enumerate(ranks) if rank == rank
    )  # NaN differs from itself
    tied = [place > 0 and order[place][0] == order[place - 1][0] for place in range(len(order))]
    return [names[place] for _, place in order], len(order), tied if any(tied) else None


def _of_columns(columns: ChunkColumns, items: list[int], names: list[str]) -> Listed | None:
    """The items of all rows in the order of their ranks; None if a cell is no rank."""
    ranks = np.empty((len(columns.lines), len(items)))
    for number, place in enumerate(items):
        ranks[:, number] = columns.coded[place].mapped(_rank, np.float64)
    if np.isinf(ranks).any():
        return None
    order = np.argsort(ranks, axis=1, kind="stable")  # NaN comes last
    ranked = np.take_along_axis(ranks, order, axis=1)
    listed = ~np.isnan(ranked)
    tied = np.zeros(ranks.shape, np.bool_)
    tied[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    labels = pa.DictionaryArray.from_arrays(
        pa.array(order[listed].astype(np.int32)), pa.array(names, pa.string())
    )
    ties = tied[listed]
    return Listed(labels, np.count_nonzero(listed, axis=1), tied=ties if ties.any() else None)


def _write(store: RankingStore, target: str) -> None:
    """Write one column per item, and columns for weights, ids, groups and unranked if the rows have them."""
    usual = {name for role in LABEL_ROLES for name in COLUMN_NAMES[role]}
    clash = next((name for name in store.item_names if name.lower() in usual), None)
    if clash is not None:
        refuse(target, f"an item is called {clash!r}, as a column of another role is", "orderings or Parquet")

    def values(row: LabelledRow) -> list[list[str]]:
        if row.n_ordered < len(row.labels):
            refuse(target, "slates do not fit into one column per item", "orderings, long or Parquet")
        ranks: dict[str, int] = {}
        for place, label in enumerate(row.labels):
            tied = row.tied is not None and row.tied[place]
            ranks[label] = ranks[row.labels[place - 1]] if tied else len(set(ranks.values())) + 1
        return [[str(ranks.get(name, "")) for name in store.item_names]]

    write_rows(store, target, lambda _: list(store.item_names), values, items_are_columns=True)


RANKS = Format(
    name="ranks",
    suffixes=delimited.SUFFIXES,
    read_header=header_reader("ranks"),
    slices=delimited.slices_keeping("group"),
    read=_read,
    write=_write,
)
