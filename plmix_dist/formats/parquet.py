"""The format `parquet`: a list column with one ranking per row, or a long table with one item per row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plmix_dist.errors import IngestError
from plmix_dist.formats.format import Format, ReadOptions, column_roles, written_name
from plmix_dist.formats.items import shown
from plmix_dist.formats.labelled import open_binary_target
from plmix_dist.formats.long import REQUIRED, LongLines, LongRows, unranked_codes
from plmix_dist.formats.raw_rows import BATCH_ROWS, Failure, RawRows
from plmix_dist.formats.sources import Header, Slice, SourceFile, open_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock
    from plmix_dist.store import RankingStore

# Values (items) per slice, which is a run of row groups. Slices are read in batches, so memory does not depend on this.
SLICE_VALUES = 1 << 22
NAMES_KEY = b"plmix.item_names"
_LIST_ROLES = ("items", "weight", "id", "group", "unranked")


def _read_header(file: SourceFile, options: ReadOptions) -> Header:
    """The columns, and the item names if `plmix export` wrote the file."""
    del options
    try:
        with open_bytes(file.url) as stream:
            schema = pq.read_schema(stream)
    except (pa.ArrowException, OSError) as error:
        raise IngestError(f"{file.url} cannot be read as Parquet: {error}") from None
    twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
    if twice is not None:
        raise IngestError(f"{file.url}: two columns are named {shown(twice)}; rename one of them")
    names = (schema.metadata or {}).get(NAMES_KEY)
    return Header(columns=tuple(schema.names), item_names=None if names is None else _names(names, file))


def _names(text: bytes, file: SourceFile) -> tuple[str, ...]:
    """The item names that `plmix export` wrote into a file."""
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise IngestError(f"{file.url}: the item names in its metadata are not a list of names")
    return tuple(names)


def _slices(file: SourceFile, header: Header, options: ReadOptions) -> list[Slice]:
    """Runs of row groups of about SLICE_VALUES values each.

    A table with a list column and groups is one slice, because a group may continue in the next row group.
    """
    try:
        with open_bytes(file.url) as stream:
            metadata = pq.read_metadata(stream)
    except (pa.ArrowException, OSError) as error:
        raise IngestError(f"{file.url} cannot be read as Parquet: {error}") from None
    roles = column_roles(header.columns, options, file.url)
    whole = "group" in roles and not all(role in roles for role in REQUIRED)
    cuts, n_values, first_rows = [0], 0, [0]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        largest = max((group.column(place).num_values for place in range(group.num_columns)), default=0)
        if not whole and n_values and n_values + largest > SLICE_VALUES:
            cuts.append(number)
            n_values = 0
        n_values += largest
        first_rows.append(first_rows[-1] + group.num_rows)
    ends = [*cuts[1:], metadata.num_row_groups]
    return [Slice(file, header, start, end, first_rows[start]) for start, end in zip(cuts, ends, strict=True)]


def _read(part: Slice, options: ReadOptions) -> Iterator[RawRows]:
    """The rows of a slice, from a list column or from a long table."""
    try:
        with open_bytes(part.file.url) as stream, pq.ParquetFile(stream) as table:
            yield from _read_table(part, table, options)
    except IngestError as error:
        message = str(error)
        raise IngestError(message if part.file.url in message else f"{part.file.url}: {message}") from None
    except (pa.ArrowException, OSError) as error:
        raise IngestError(f"{part.file.url} cannot be read to its end: {error}; it may be damaged") from error


def _read_table(part: Slice, table: pq.ParquetFile, options: ReadOptions) -> Iterator[RawRows]:
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
            f"{', '.join(part.header.columns)}; name the columns with --column, such as --column items=NAME"
        )


def _read_lists(part: Slice, table: pq.ParquetFile, roles: dict[str, int]) -> Iterator[RawRows]:
    names = {role: part.header.columns[place] for role, place in roles.items()}
    extra: set[str] = {name for name in ("n_ordered", "tied") if name in part.header.columns}
    row = part.first_line
    groups = list(range(part.start, part.stop or 0))
    for batch in table.iter_batches(BATCH_ROWS, row_groups=groups, columns=[*names.values(), *extra]):
        yield _list_rows(batch, names, extra, row)
        row += batch.num_rows


def _list_rows(batch: pa.RecordBatch, names: dict[str, str], extra: set[str], row: int) -> RawRows:
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


def _order(batch: pa.RecordBatch, n_listed: NDArray[np.int64]) -> tuple[NDArray[np.int64], dict[int, str]]:
    """How many items of each row are ordered, and a message for each row with an impossible number."""
    column = batch.column("n_ordered")
    n_ordered = np.asarray(column.cast(pa.int64()).fill_null(-1))
    bad = np.flatnonzero((n_ordered < 0) | (n_ordered > n_listed)).tolist()
    why = {row: f"{column[row].as_py()} of {n_listed[row]} listed items cannot be ordered" for row in bad}
    return np.clip(n_ordered, 0, n_listed), why


def _ties(
    batch: pa.RecordBatch, n_listed: NDArray[np.int64], n_ordered: NDArray[np.int64] | None
) -> tuple[NDArray[np.bool_], dict[int, str]]:
    """Which items are tied with the item before, and a message for each row with impossible ties."""
    column = batch.column("tied")
    if not (_is_list(column.type) and pa.types.is_boolean(column.type.value_type)):
        raise IngestError(
            f"the column 'tied' must have a list of true and false per row, but holds {column.type}"
        )
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
        np.unique(owner[impossible]).tolist(),
        "an item is tied but is the first of its row, or is not ordered",
    )
    return table, why


def _read_long(part: Slice, table: pq.ParquetFile, roles: dict[str, int]) -> Iterator[RawRows]:
    """The rankings that begin in this slice, to their end. One that began before it belongs to an earlier slice."""
    names = {role: part.header.columns[place] for role, place in roles.items()}
    keeper = "group" if "group" in names else "id"
    rows = LongRows()
    skip = _last_value(table, part.start - 1, names[keeper]) if part.start else None
    line = part.first_line
    final: int | str | None = None
    for group in range(part.start, table.num_row_groups):
        beyond = group >= (part.stop or 0)
        for batch in table.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(names.values())):
            lines = _long_lines(batch, names, line)
            line += batch.num_rows
            keys = lines.column(keeper)
            keep = np.ones(len(keys), np.bool_)
            if skip is not None:
                keep = np.cumsum(keys != skip) > 0
                skip = None if keep.any() else skip
            if beyond:
                keep &= np.cumsum(keys != final) == 0
            elif keep.any():
                final = keys[-1]
            if keep.any():
                yield rows.add(lines.filtered(keep))
            if beyond and not keep.all():
                yield rows.add(lines.cut(0, 0), last=True)
                return
    yield rows.add(_long_lines(_empty(table, names), names, line), last=True)


def _long_lines(batch: pa.RecordBatch, names: dict[str, str], first_line: int) -> LongLines:
    labels: dict[str, NDArray[Any]] = {}
    if "weight" in names:
        labels["weight"] = _floats(batch.column(names["weight"]))
    labels |= {role: _labels(batch.column(names[role])) for role in ("group", "unranked") if role in names}
    return LongLines(
        ids=_labels(batch.column(names["id"])),
        items=_text(batch.column(names["item"])),
        ranks=_floats(batch.column(names["rank"])),
        numbers=np.arange(first_line, first_line + batch.num_rows) + 1,
        labels=labels,
        bad={row: ("missing-label", why) for row, why in _without_label(batch, names).items()},
    )


def _last_value(table: pq.ParquetFile, group: int, column: str) -> int | str | None:
    """The last value of a column in the row groups 0 to `group`; None if these have no row."""
    for number in range(group, -1, -1):
        values = table.read_row_group(number, columns=[column]).column(0)
        if len(values):
            last: int | str = _labels(values.combine_chunks())[-1]
            return last
    return None


def _empty(table: pq.ParquetFile, names: dict[str, str]) -> pa.RecordBatch:
    schema = pa.schema([table.schema_arrow.field(name) for name in names.values()])
    return pa.RecordBatch.from_pylist([], schema)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _unranked(column: pa.Array) -> NDArray[np.int8]:
    """(n_rows,): indices into UNRANKED of a text column, computed for its distinct values only."""
    encoded = column.dictionary_encode()
    codes = np.append(unranked_codes(np.array(encoded.dictionary.to_pylist(), object)), np.int8(-1))
    of_rows: NDArray[np.int8] = codes[np.asarray(encoded.indices.fill_null(len(codes) - 1))]
    return of_rows


def _floats(column: pa.Array) -> NDArray[np.float64]:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise IngestError(f"weights and ranks must be numbers, but a column holds {column.type}")
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _labels(column: pa.Array) -> NDArray[Any]:
    """Integers as int64, everything else as text. Rows without a label are rejected elsewhere."""
    if pa.types.is_integer(column.type):
        return np.asarray(column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min))
    return np.array(["" if value is None else str(value) for value in _text(column).to_pylist()], object)


def _text(column: pa.Array) -> pa.Array:
    """Bytes as UTF-8 text, because some tools write text as bytes."""
    if pa.types.is_nested(column.type):
        raise IngestError(f"items, ids and groups must be text or numbers, but a column holds {column.type}")
    binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    return column.cast(pa.string()) if binary else column


def _without_label(batch: pa.RecordBatch, names: dict[str, str]) -> dict[int, str]:
    """A message for each row whose id or group is null."""
    return {
        row: f"its {role} is missing (null)"
        for role in ("id", "group")
        if role in names
        for row in np.flatnonzero(np.asarray(batch.column(names[role]).is_null())).tolist()
    }


def _write(store: RankingStore, target: str) -> None:
    """Write a list column, the other columns of the rows, and all item names in the file's metadata."""
    columns = {name for number in range(store.n_partitions) for name in store.index(number).columns}
    schema = _schema(store, columns)
    with open_binary_target(target) as out, pq.ParquetWriter(out, schema, compression="zstd") as table:
        for number in range(store.n_partitions):
            batches = [_batch(block, store, schema) for block in store.partition(number)]
            if batches:
                table.write_table(pa.Table.from_batches(batches, schema))


def _schema(store: RankingStore, columns: set[str]) -> pa.Schema:
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


def _batch(block: RankingBlock, store: RankingStore, schema: pa.Schema) -> pa.RecordBatch:
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


def _typed(values: NDArray[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return pa.array([str(value) for value in values] if kind == pa.string() else values, kind)


PARQUET = Format(
    name="parquet",
    suffixes=(".parquet", ".pq"),
    read_header=_read_header,
    slices=_slices,
    read=_read,
    write=_write,
)
