"""Parquet: a list column with a ranking in each row, or long with a row for each item of each ranking."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plmix_dist.errors import IngestError
from plmix_dist.formats.format import Format, ReadOptions, column_roles, written_name
from plmix_dist.formats.labelled import open_binary_target
from plmix_dist.formats.long import REQUIRED, LongRows, unranked_codes
from plmix_dist.formats.raw_rows import BATCH_ROWS, Failure, RawRows
from plmix_dist.formats.sources import Header, Slice, SourceFile, open_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.rankings import RankingBlock
    from plmix_dist.store import RankingStore

# Values (items) of the row groups that make a partition. They are read in batches, so this bounds no memory.
SLICE_VALUES = 1 << 22
NAMES_KEY = b"plmix.item_names"
_LIST_ROLES = ("items", "weight", "id", "group", "unranked")


def read_header(file: SourceFile, options: ReadOptions) -> Header:
    """The columns, and the names of the items where we wrote the file ourselves."""
    del options
    try:
        with open_bytes(file.url) as stream:
            schema = pq.read_schema(stream)
    except (pa.ArrowInvalid, OSError) as error:
        raise IngestError(f"{file.url} cannot be read as Parquet: {error}") from None
    names = (schema.metadata or {}).get(NAMES_KEY)
    return Header(columns=tuple(schema.names), item_names=None if names is None else _names(names, file))


def _names(text: bytes, file: SourceFile) -> tuple[str, ...]:
    """The items that an export of ours has written into a file."""
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise IngestError(f"{file.url}: the item names in its metadata are not a list of names")
    return tuple(names)


def slices(file: SourceFile, header: Header, options: ReadOptions) -> list[Slice]:
    """Runs of row groups of about SLICE_VALUES values, so that many workers find work.

    A list column with groups is one slice: a group could straddle row groups.
    """
    with open_bytes(file.url) as stream:
        metadata = pq.read_metadata(stream)
    roles = column_roles(header.columns, options, file.url)
    whole = "group" in roles and not all(role in roles for role in REQUIRED)
    cuts, n_values, first_rows = [0], 0, [0]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        largest = max(group.column(place).num_values for place in range(group.num_columns))
        if not whole and n_values and n_values + largest > SLICE_VALUES:
            cuts.append(number)
            n_values = 0
        n_values += largest
        first_rows.append(first_rows[-1] + group.num_rows)
    ends = [*cuts[1:], metadata.num_row_groups]
    return [Slice(file, header, start, end, first_rows[start]) for start, end in zip(cuts, ends, strict=True)]


def read(part: Slice, options: ReadOptions) -> Iterator[RawRows]:
    """Rows of a slice, in whichever of the two shapes the columns show."""
    try:
        with open_bytes(part.file.url) as stream, pq.ParquetFile(stream) as table:
            yield from _read_table(part, table, options)
    except IngestError as error:
        message = str(error)
        raise IngestError(message if part.file.url in message else f"{part.file.url}: {message}") from None
    except (pa.ArrowException, OSError) as error:
        raise IngestError(f"{part.file.url} cannot be read to its end: {error}; it may be damaged") from error


def _read_table(part: Slice, table: Any, options: ReadOptions) -> Iterator[RawRows]:
    roles = column_roles(part.header.columns, options, part.file.url)
    lists = [place for place, field in enumerate(table.schema_arrow) if _is_list(field.type)]
    roles = {role: place for role, place in roles.items() if role == "items" or place not in lists}
    if "items" not in roles and len(lists) == 1:
        roles["items"] = lists[0]
    if roles.get("items") in lists:
        yield from _read_lists(part, table, {role: roles[role] for role in _LIST_ROLES if role in roles})
    elif all(role in roles for role in REQUIRED):
        keep = (*REQUIRED, "weight", "group", "unranked")
        yield from _read_long(part, table, {role: roles[role] for role in keep if role in roles})
    else:
        raise IngestError(
            f"found neither a list column of items nor columns for {', '.join(REQUIRED)}, but "
            f"{', '.join(part.header.columns)}; say which is which with --column, such as --column items=NAME"
        )


def _read_lists(part: Slice, table: Any, roles: dict[str, int]) -> Iterator[RawRows]:
    names = {role: part.header.columns[place] for role, place in roles.items()}
    extra: set[str] = {name for name in ("n_ordered", "tied") if name in part.header.columns}
    row = part.first_line
    groups = list(range(part.start, part.stop or 0))
    for batch in table.iter_batches(BATCH_ROWS, row_groups=groups, columns=[*names.values(), *extra]):
        yield _list_rows(batch, names, extra, row)
        row += batch.num_rows


def _list_rows(batch: Any, names: dict[str, str], extra: set[str], row: int) -> RawRows:
    items = batch.column(names["items"])
    n_listed = np.asarray(items.value_lengths().fill_null(0), np.int64)
    lines = np.arange(row, row + batch.num_rows) + 1
    n_ordered, bad_order = _order(batch, n_listed) if "n_ordered" in extra else (None, {})
    tied, bad_ties = _ties(batch, n_listed, n_ordered) if "tied" in extra else (None, {})
    rows = RawRows(
        labels=_text(items.flatten()),
        n_listed=n_listed,
        n_ordered=n_ordered,
        tied=tied,
        weights=_floats(batch.column(names["weight"])) if "weight" in names else None,
        ids=_labels(batch.column(names["id"])) if "id" in names else None,
        groups=_labels(batch.column(names["group"])) if "group" in names else None,
        unranked=_unranked(batch.column(names["unranked"])) if "unranked" in names else None,
        lines=lines,
    )
    bad = {
        number: Failure(int(lines[number]), "syntax", why)
        for number, why in (_without_label(batch, names) | bad_ties | bad_order).items()
    }
    return rows.without(bad)


def _order(batch: Any, n_listed: Any) -> tuple[Any, dict[int, str]]:
    """How many items of each row are ordered, and the rows where that cannot be."""
    column = batch.column("n_ordered")
    n_ordered = np.asarray(column.cast(pa.int64()).fill_null(-1))
    bad = np.flatnonzero((n_ordered < 0) | (n_ordered > n_listed)).tolist()
    why = {row: f"{column[row].as_py()} of {n_listed[row]} listed items cannot be ordered" for row in bad}
    return np.clip(n_ordered, 0, n_listed), why


def _ties(batch: Any, n_listed: Any, n_ordered: Any) -> tuple[Any, dict[int, str]]:
    """Which items are tied with the one before, and the rows where that cannot be."""
    column = batch.column("tied")
    flags = [value or [] for value in column.to_pylist()] if column.null_count else None
    lengths = np.asarray(column.value_lengths().fill_null(-1), np.int64)
    why = {
        row: f"tied has {max(int(lengths[row]), 0)} entries for {n_listed[row]} items"
        for row in np.flatnonzero(lengths != n_listed).tolist()
    }
    if why or flags is not None:
        values = flags if flags is not None else column.to_pylist()
        tied = [
            flag
            for row, count in enumerate(n_listed.tolist())
            for flag in (values[row] if row not in why else [False] * count)
        ]
        table = np.array(tied, np.bool_)
    else:
        table = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.bool_)
    bounds = np.concatenate([[0], np.cumsum(n_listed)])
    owner = np.repeat(np.arange(len(n_listed)), n_listed)
    place = np.arange(len(table)) - bounds[owner]
    ordered = n_listed if n_ordered is None else n_ordered
    impossible = table & ((place == 0) | (place >= ordered[owner]))
    why |= dict.fromkeys(
        np.unique(owner[impossible]).tolist(), "an item is tied with nothing, or is not ordered"
    )
    return table, why


def _read_long(part: Slice, table: Any, roles: dict[str, int]) -> Iterator[RawRows]:
    """Rankings that begin in this slice: one that an earlier slice began is left to it, ours are read to their end."""
    names = {role: part.header.columns[place] for role, place in roles.items()}
    keeper = "group" if "group" in names else "id"
    rows = LongRows(frozenset(names) & {"weight", "group", "unranked"})
    skip = _last_value(table, part.start - 1, names[keeper]) if part.start else None
    line = part.first_line
    final: Any = None
    for group in range(part.start, table.num_row_groups):
        beyond = group >= (part.stop or 0)
        for batch in table.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(names.values())):
            columns = _long_columns(batch, names, line)
            line += batch.num_rows
            keys = columns[keeper]
            keep = np.ones(len(keys), np.bool_)
            if skip is not None:
                keep = np.cumsum(keys != skip) > 0
                skip = None if keep.any() else skip
            if beyond:
                keep &= np.cumsum(keys != final) == 0
            elif keep.any():
                final = keys[-1]
            if keep.any():
                yield rows.add(_filtered(columns, keep))
            if beyond and not keep.all():
                yield rows.add(_long_columns(batch.slice(0, 0), names, line), last=True)
                return
    yield rows.add(_long_columns(_empty(table, names), names, line), last=True)


def _long_columns(batch: Any, names: dict[str, str], first_line: int) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "id": _labels(batch.column(names["id"])),
        "item": _text(batch.column(names["item"])),
        "rank": _floats(batch.column(names["rank"])),
        "line": np.arange(first_line, first_line + batch.num_rows) + 1,
        "bad": {row: ("missing-label", why) for row, why in _without_label(batch, names).items()},
    }
    if "weight" in names:
        columns["weight"] = _floats(batch.column(names["weight"]))
    for role in ("group", "unranked"):
        if role in names:
            columns[role] = _labels(batch.column(names[role]))
    return columns


def _filtered(columns: dict[str, Any], keep: Any) -> dict[str, Any]:
    if keep.all():
        return columns
    mask = pa.array(keep)
    place = np.cumsum(keep) - 1
    return {
        name: {int(place[row]): why for row, why in column.items() if keep[row]}
        if name == "bad"
        else column[keep]
        if isinstance(column, np.ndarray)
        else column.filter(mask)
        for name, column in columns.items()
    }


def _last_value(table: Any, group: int, column: str) -> Any:
    """The last value of a column up to and with a row group, or None where there is no row."""
    for number in range(group, -1, -1):
        values = table.read_row_group(number, columns=[column]).column(0)
        if len(values):
            return _labels(values.combine_chunks())[-1]
    return None


def _empty(table: Any, names: dict[str, str]) -> Any:
    schema = pa.schema([table.schema_arrow.field(name) for name in names.values()])
    return pa.RecordBatch.from_pylist([], schema)


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _unranked(column: Any) -> Any:
    """Codes of a text column, by way of its few distinct values."""
    encoded = column.dictionary_encode()
    codes = np.append(unranked_codes(np.array(encoded.dictionary.to_pylist(), object)), np.int8(-1))
    return codes[np.asarray(encoded.indices.fill_null(len(codes) - 1))]


def _floats(column: Any) -> Any:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise IngestError(f"weights and ranks must be numbers, but a column holds {column.type}")
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _labels(column: Any) -> Any:
    """Integers as int64, everything else as text; what stands for a missing label makes its row bad elsewhere."""
    if pa.types.is_integer(column.type):
        return np.asarray(column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min))
    return np.array(["" if value is None else str(value) for value in _text(column).to_pylist()], object)


def _text(column: Any) -> Any:
    """Bytes as the UTF-8 text that they are in files of tools without a type for text."""
    binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    return column.cast(pa.string()) if binary else column


def _without_label(batch: Any, names: dict[str, str]) -> dict[int, str]:
    """The rows whose id or group is null."""
    return {
        row: f"its {role} is missing (null)"
        for role in ("id", "group")
        if role in names
        for row in np.flatnonzero(np.asarray(batch.column(names[role]).is_null())).tolist()
    }


def write(store: RankingStore, target: str) -> None:
    """Write a list column with all that rows can have, and the names of all items in the file's metadata."""
    columns = {name for number in range(store.n_partitions) for name in store.index(number).columns}
    schema = _schema(store, columns)
    with open_binary_target(target) as out, pq.ParquetWriter(out, schema, compression="zstd") as table:
        for number in range(store.n_partitions):
            batches = [_batch(block, store, schema) for block in store.partition(number)]
            if batches:
                table.write_table(pa.Table.from_batches(batches, schema))


def _schema(store: RankingStore, columns: set[str]) -> Any:
    fields = [pa.field(written_name("items"), pa.list_(pa.string()))]
    if "n_unordered" in columns:
        fields.append(pa.field("n_ordered", pa.int32()))
    if "tied" in columns:
        fields.append(pa.field("tied", pa.list_(pa.bool_())))
    if "weights" in columns:
        fields.append(pa.field(written_name("weight"), pa.float64()))
    for role, name in (("id", "ids"), ("group", "groups")):
        if name in columns or f"{name}_lengths" in columns:
            fields.append(
                pa.field(written_name(role), pa.int64() if f"{name}_lengths" not in columns else pa.string())
            )
    fields.append(pa.field(written_name("unranked"), pa.string()))
    return pa.schema(fields, metadata={NAMES_KEY: json.dumps(store.item_names, ensure_ascii=False).encode()})


def _batch(block: RankingBlock, store: RankingStore, schema: Any) -> Any:
    offsets = pa.array(block.offsets.astype(np.int32))
    names = pa.array(store.item_names, pa.string())
    everything = {
        written_name("items"): pa.ListArray.from_arrays(offsets, names.take(pa.array(block.items))),
        "n_ordered": block.n_ordered.astype(np.int32),
        "tied": pa.ListArray.from_arrays(
            offsets, pa.array(np.zeros(len(block.items), np.bool_) if block.tied is None else block.tied)
        ),
        written_name("weight"): block.row_weights,
        written_name("unranked"): np.where(block.below, "below", "absent").astype(object),
        written_name("id"): block.ids,
        written_name("group"): block.groups,
    }
    arrays = [_typed(everything[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed(values: Any, kind: Any) -> Any:
    if isinstance(values, pa.Array):
        return values
    return pa.array([str(value) for value in values] if kind == pa.string() else values, kind)


PARQUET = Format(
    name="parquet",
    suffixes=(".parquet", ".pq"),
    read_header=read_header,
    slices=slices,
    read=read,
    write=write,
)
