"""The format `parquet`: a list column with one ranking per row, or a long table; for tables with types alone.

A list of records with items and ranks, such as {model, rank}, is a list of items and one of ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from plmix_dist.errors import IngestError
from plmix_dist.rankings import RankingBlock
from plmix_dist.store import RankingStore
from plmix_dist.tables.by_row import Listed, label_columns, rows_of
from plmix_dist.tables.format import Batch, Column, Format, ReadOptions, Table, is_list
from plmix_dist.tables.long import REQUIRED, read_long
from plmix_dist.tables.outsiders import refuse_unused_counts
from plmix_dist.tables.parquet import NAMES_KEY, PARQUET_FILES
from plmix_dist.tables.places import column_option
from plmix_dist.tables.rows import RawRows
from plmix_dist.tables.sniff import RATING_WORDS
from plmix_dist.tables.sources import Header
from plmix_dist.tables.words import COLUMN_NAMES, LABEL_ROLES, written_name
from plmix_dist.tables.write import open_binary_target

# Columns beside the list: how many of its items are ordered, and which are tied with the item before.
_EXTRA = ("n_ordered", "tied")
# Names of the fields in lists of records: what is ranked, and its rank.
_FIELDS = {
    "items": (*COLUMN_NAMES["item"], "model", "name", "model_name", "label", "id"),
    "ranks": (*COLUMN_NAMES["rank"], "ranking"),
    "scores": (*sorted(RATING_WORDS), "overall_score"),
}


def _recognise(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table with types that has one list column, or one that the user named; or columns for id, item and rank."""
    if table.container in ("text", "excel"):
        return None
    roles = {role: place for role, place in table.roles.items() if role == "items" or place not in table.lists}
    lists = [place for place in table.lists if table.columns[place] not in _EXTRA]
    if "items" not in roles:
        roles |= _items_and_ranks(table) or ({"items": lists[0]} if len(lists) == 1 else {})
    if roles.get("items") in table.lists:
        extra = {name: table.columns.index(name) for name in _EXTRA if name in table.columns}
        if "rank" in options.columns:
            roles["ranks"] = table.roles["rank"]
        kept = {role: roles[role] for role in ("items", "ranks", "scores", *LABEL_ROLES) if role in roles} | extra
        table = replace(table, roles=kept)
        for role, best in (("ranks", "lowest"), ("scores", "highest")):
            if role in kept:  # what a record lists was on offer, and nothing else
                said = f"{table.columns[kept[role]]!r} orders the items, the {best} first"
                return replace(table, unranked="absent").with_guess(said)
        _refuse_other_lists(table, "items" in options.columns)
        refuse_unused_counts(table)
        return table
    if all(role in roles for role in REQUIRED) and table.container in ("parquet", "memory"):
        keep = (*REQUIRED, "weight", "group", "unranked")
        return replace(table, roles={role: roles[role] for role in keep if role in roles})
    if named or table.lists:
        raise IngestError(
            f"found neither a list column of items nor columns for {', '.join(REQUIRED)}, but "
            f"{', '.join(table.columns)}; name the columns with --column, such as --column items=NAME"
        )
    return None


def _items_and_ranks(table: Table) -> dict[str, int]:
    """The fields of a list of records that name an item and its rank, such as answers.model and answers.rank."""
    by_list: dict[str, dict[str, int]] = {}
    for place in table.lists:
        parent, _, name = table.columns[place].rpartition(".")
        role = next((role for role, names in _FIELDS.items() if parent and name.lower() in names), None)
        if role is not None:
            by_list.setdefault(parent, {}).setdefault(role, place)
    both = [found for found in by_list.values() if "items" in found and len(found) == 2]
    return both[0] if len(both) == 1 else {}


def _refuse_other_lists(table: Table, chosen: bool) -> None:
    """An error if another list stands beside the items that may say another order: by its name if these are chosen."""
    numbers = {name for role in ("ranks", "scores") for name in _FIELDS[role]}
    beside = [place for place in table.lists if place not in {*table.roles.values(), *table.ignored}]
    by_name = [at for at in beside if table.columns[at].rpartition(".")[2].lower().removesuffix("s") in numbers]
    if (other := next(iter(by_name if chosen else beside), None)) is not None:
        items, name = table.columns[table.roles["items"]], table.columns[other]
        raise IngestError(
            f"the column {name!r} has a list for each list of {items!r}, and may say their order: if the "
            f"items are in order already, best first, say {column_option('ignore', name)}; if it holds their ranks, 1 "
            f"the best, say {column_option('items', items)} {column_option('rank', name)}; else sort them first"
        )


def _read(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
    if "items" not in header.roles:
        yield from read_long(batches, header)
        return
    for batch in batches:
        yield rows_of(batch, header, _listed(batch, header), text_stays_text=True)


def _listed(batch: Batch, header: Header) -> Listed:
    items = batch.columns[header.roles["items"]].array
    n_listed = np.asarray(items.value_lengths().fill_null(0), np.int64)
    extra = {name: batch.columns[header.roles[name]].array for name in _EXTRA if name in header.roles}
    n_ordered, bad_order = _order(extra["n_ordered"], n_listed) if "n_ordered" in extra else (None, {})
    tied, bad_ties = _ties(extra["tied"], n_listed, n_ordered) if "tied" in extra else (None, {})
    if ordered_by := {"ranks", "scores"} & header.roles.keys():
        role = ordered_by.pop()
        return _by_ranks(items, n_listed, batch.columns[header.roles[role]].array, role == "scores")
    return Listed(Column(items.flatten()).items(), n_listed, n_ordered, tied, bad_ties | bad_order)


def _by_ranks(items: pa.Array, n_listed: NDArray[np.int64], ranks: pa.Array, highest_first: bool) -> Listed:
    """The items of each list in the order of their ranks or scores, of which equal ones are ties."""
    owner = np.repeat(np.arange(len(n_listed)), n_listed)
    values = Column(ranks.flatten()).numbers() * (-1 if highest_first else 1)
    if not np.array_equal(np.asarray(ranks.value_lengths().fill_null(0), np.int64), n_listed):
        raise IngestError("lists of items and of ranks have different lengths")
    order = np.lexsort((values, owner))
    tied = np.zeros(len(values), np.bool_)
    tied[1:] = (np.diff(values[order]) == 0) & (np.diff(owner) == 0)
    # Where numbers are not ranks, they are scores, of which the highest is the best.
    odd = np.isnan(values) if highest_first else ~((values >= 0) & (values <= n_listed[owner]))
    bad = dict.fromkeys(np.unique(owner[odd]).tolist(), "a rank is missing, or not a number up to that of the items")
    return Listed(Column(items.flatten().take(pa.array(order))).items(), n_listed, tied=tied, bad=bad)


def _order(column: pa.Array, n_listed: NDArray[np.int64]) -> tuple[NDArray[np.int64], dict[int, str]]:
    """How many items of each row are ordered, and a message for each row with an impossible number."""
    n_ordered = np.asarray(column.cast(pa.int64()).fill_null(-1))
    bad = np.flatnonzero((n_ordered < 0) | (n_ordered > n_listed)).tolist()
    why = {row: f"{column[row].as_py()} of {n_listed[row]} listed items cannot be ordered" for row in bad}
    return np.clip(n_ordered, 0, n_listed), why


def _ties(
    column: pa.Array, n_listed: NDArray[np.int64], n_ordered: NDArray[np.int64] | None
) -> tuple[NDArray[np.bool_], dict[int, str]]:
    """Which items are tied with the item before, and a message for each row with impossible ties."""
    if not (is_list(column.type) and pa.types.is_boolean(column.type.value_type)):
        raise IngestError(f"the column 'tied' must have a list of true and false per row, but holds {column.type}")
    lengths = np.asarray(column.value_lengths().fill_null(-1), np.int64)
    odd = np.flatnonzero(lengths != n_listed).tolist()
    why = {row: f"tied has {max(int(lengths[row]), 0)} entries for {n_listed[row]} items" for row in odd}
    bounds = np.concatenate([[0], np.cumsum(n_listed)])
    owner = np.repeat(np.arange(len(n_listed)), n_listed)
    values = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.bool_)
    table = np.zeros(len(owner), np.bool_)
    table[(lengths == n_listed)[owner]] = values[np.repeat(lengths == n_listed, np.maximum(lengths, 0))]
    place = np.arange(len(table)) - bounds[owner]
    ordered = n_listed if n_ordered is None else n_ordered
    impossible = table & ((place == 0) | (place >= ordered[owner]))
    message = "an item is tied but is the first of its row, or is not ordered"
    return table, why | dict.fromkeys(np.unique(owner[impossible]).tolist(), message)


def _wanted(header: Header) -> list[int]:
    roles = ("items", "ranks", "scores", *_EXTRA) if "items" in header.roles else REQUIRED
    return [*(header.roles[role] for role in roles if role in header.roles), *label_columns(header)]


def _write(store: RankingStore, target: str) -> None:
    """Write a list column, the other columns of the rows, and all item names in the file's metadata."""
    schema = _schema(store, {name for number in range(store.n_partitions) for name in store.index(number).columns})
    with open_binary_target(target) as out, pq.ParquetWriter(out, schema, compression="zstd") as table:
        for number in range(store.n_partitions):
            if batches := [_batch(block, store, schema) for block in store.partition(number)]:
                table.write_table(pa.Table.from_batches(batches, schema))


def _schema(store: RankingStore, columns: set[str]) -> pa.Schema:
    optional = {
        "n_unordered": ("n_ordered", pa.int32()),
        "tied": ("tied", pa.list_(pa.bool_())),
        "weights": (written_name("weight"), pa.float64()),
    }
    for role, name in (("id", "ids"), ("group", "groups")):
        optional |= {name: (written_name(role), pa.int64()), f"{name}_lengths": (written_name(role), pa.string())}
    kinds = {written_name("items"): pa.list_(pa.string())}
    kinds |= dict(field for column, field in optional.items() if column in columns)
    kinds[written_name("unranked")] = pa.string()
    return pa.schema(kinds, metadata={NAMES_KEY: json.dumps(store.item_names, ensure_ascii=False).encode()})


def _batch(block: RankingBlock, store: RankingStore, schema: pa.Schema) -> pa.RecordBatch:
    offsets = pa.array(block.offsets.astype(np.int32))
    names = pa.array(store.item_names, pa.string())
    tied = np.zeros(len(block.items), np.bool_) if block.tied is None else block.tied
    everything = {
        written_name("items"): pa.ListArray.from_arrays(offsets, names.take(pa.array(block.items))),
        "n_ordered": block.n_ordered.astype(np.int32),
        "tied": pa.ListArray.from_arrays(offsets, pa.array(tied)),
        written_name("weight"): block.row_weights,
        written_name("unranked"): np.where(block.below, "below", "absent").astype(object),
        written_name("id"): block.ids,
        written_name("group"): block.groups,
    }
    return pa.RecordBatch.from_arrays([_typed(everything[field.name], field.type) for field in schema], schema=schema)


def _typed(values: NDArray[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return pa.array([str(value) for value in values] if kind == pa.string() else values, kind)


PARQUET = Format(
    name="parquet",
    recognise=_recognise,
    read=_read,
    about="Parquet, JSON and frames: a list of items in each row, or of records with item and rank",
    example='{"count": 3, "items": ["tea", "mate", "milk"]}\n{"count": 1, "items": ["mate", "tea"]}',
    wanted=_wanted,
    consecutive=lambda header: "items" not in header.roles,
    roles={role: COLUMN_NAMES[role] for role in ("items", "item", "rank")},
    suffixes=PARQUET_FILES.suffixes,
    write=_write,
)
