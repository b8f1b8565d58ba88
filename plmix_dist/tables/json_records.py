"""JSON and JSON lines as sources of columns. What is nested in a record has dotted names: `metadata.language`."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import IO, Any

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.tables.format import Batch, Column, Source, Table, column_of, is_list
from plmix_dist.tables.rows import BATCH_ROWS
from plmix_dist.tables.sources import Header, Slice, SourceFile, decode, read_line, reading, text_slices
from plmix_dist.tables.text import chunks
from plmix_dist.tables.words import cell_text

_SAMPLE_BYTES = 1 << 18
_MOST_SAMPLED = 1000
_READ_CHARACTERS = 1 << 20
# A record, or a file that is one object, has at most this many characters.
_LONGEST = 1 << 28
_DEEPEST = 8
_BETWEEN = re.compile(r"[\s,]*")
Record = dict[str, Any]


# Nested columns and records in flat ones.


def flat_columns(name: str, column: pa.Array, depth: int = 0) -> Iterator[tuple[str, pa.Array]]:
    """A column, or the fields of a nested one: of a list of records, a list for each field."""
    if pa.types.is_struct(column.type) and depth < _DEEPEST:
        for field, part in zip(column.type, column.flatten(), strict=True):
            yield from flat_columns(f"{name}.{field.name}", part, depth + 1)
    elif is_list(column.type) and pa.types.is_struct(column.type.value_type) and depth < _DEEPEST:
        ends = np.cumsum(np.asarray(column.value_lengths().fill_null(0), np.int64))
        offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
        for field, part in zip(column.type.value_type, column.flatten().flatten(), strict=True):
            if not pa.types.is_nested(field.type):
                yield f"{name}.{field.name}", pa.ListArray.from_arrays(offsets, part)
    else:
        yield name, column


def flat_schema(schema: pa.Schema) -> dict[str, tuple[str, pa.DataType]]:
    """For each flat column of a table, the column that it is in, and its type."""
    found = {}
    for field in schema:
        for name, part in flat_columns(field.name, pa.array([], field.type)):
            found[name] = (field.name, part.type)
    return found


def _flat(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The same for the value of one record."""
    dot = f"{name}." if name else ""
    if isinstance(value, dict) and depth < _DEEPEST:
        for key, part in value.items():
            yield from _flat(part, f"{dot}{key}", depth + 1)
    elif isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        for key in dict.fromkeys(key for part in value for key in part):
            cells = [part.get(key) for part in value]
            if not any(isinstance(cell, dict | list) for cell in cells):
                yield f"{dot}{key}", cells
    else:
        yield name, value


def flat_record(value: Record) -> Record:
    """A record with dotted names for what is nested in it."""
    return dict(_flat(value)) if any(isinstance(part, dict | list) for part in value.values()) else value


def _record(value: Any) -> Record:
    """An entry of a file as a record: a list is a ranking, a text an ordering."""
    if isinstance(value, dict):
        return flat_record(value)
    return {"items" if isinstance(value, list) else "ordering": value}


# Where the records of a file are: one in each line, in one array, or in an object.


def _is_lines(file: SourceFile) -> bool:
    """Whether each line is a record: by the suffix, or as the first two lines begin."""
    if not file.name.lower().endswith(".json"):
        return True
    with reading(file.url) as stream:
        first = stream.readline(_LONGEST).removeprefix(codecs.BOM_UTF8).strip()
        second = stream.readline(1 << 10).strip()
    return first[:1] + first[-1:] == b"{}" and second[:1] == b"{"


def _records(file: SourceFile) -> Iterator[Record]:
    """The records of a file that is one array or one object."""
    with reading(file.url) as stream:
        begin = stream.read(1 << 10).decode("utf-8-sig", errors="ignore").lstrip()
        stream.seek(0)
        if begin.startswith("["):
            yield from map(_record, _of_array(stream, file.url))
            return
        data = stream.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise IngestError(f"{file.url}: one object of more than {_LONGEST:,} bytes; write one record per line (.jsonl)")
    yield from _of_object(_parsed(decode(data, file.url, 1), file.url), file.url)


def _parsed(text: str, url: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IngestError(f"{url} cannot be read as JSON: {error}") from None


def _of_array(stream: IO[bytes], url: str) -> Iterator[Any]:
    """The entries of an array, one after the other: the file is never in memory as a whole."""
    decoder = json.JSONDecoder()
    incremental = codecs.getincrementaldecoder("utf-8-sig")(errors="strict")
    text, ended = "", False

    def more() -> None:
        nonlocal text, ended
        data = stream.read(max(_READ_CHARACTERS, len(text)))
        ended = not data
        text += incremental.decode(data, final=ended)
        if len(text) > _LONGEST:
            raise IngestError(f"{url}: a record is longer than {_LONGEST:,} characters")

    try:
        more()
        position = text.index("[") + 1
        while True:
            found = _BETWEEN.match(text, position)
            position = found.end() if found else position
            if position < len(text) and text[position] == "]":
                return
            try:
                value, end = decoder.raw_decode(text, position)
            except ValueError:
                if ended:
                    raise
                end = len(text)
            if end < len(text):  # a number may go on behind the end of the text
                yield value
                position = end
            elif ended:
                raise ValueError("the array does not end")
            else:
                text, position = text[position:], 0
                more()
    except (ValueError, RecursionError) as error:
        raise IngestError(f"{url} cannot be read as JSON: {error}") from None


def _of_object(value: Any, url: str) -> list[Record]:
    """The records within an object: its only list of records, its columns, or the counts of pairs of models."""
    if not isinstance(value, dict):
        raise IngestError(f"{url} holds no table: expected an array of records, or one record per line")
    if {"models", "X", "Y"} <= value.keys():
        names, counts = value["models"], ("n_win", "n_loss", "n_ties", "n_both_bad")
        try:
            return [
                {"model_a": names[first], "model_b": names[second], **dict(zip(counts, row, strict=False))}
                for (first, second), row in zip(value["X"], value["Y"], strict=True)
            ]
        except (TypeError, ValueError, IndexError) as error:
            raise IngestError(
                f"{url}: X should have two numbers of models per row, and Y its counts: {error}"
            ) from None
    tables = dict(_tables(value))
    if len(tables) == 1:
        return [_record(part) for part in next(iter(tables.values()))]
    if tables:
        raise IngestError(
            f"{url} holds several tables ({', '.join(tables)}); write the one with the rankings as an array of records"
        )
    if _are_rankings(list(value.values())):
        return [{"id": key, "items": part} for key, part in value.items()]
    columns = {key: list(part.values()) if isinstance(part, dict) else part for key, part in value.items()}
    lengths = {len(part) if isinstance(part, list) else -1 for part in columns.values()}
    if len(lengths) != 1 or lengths == {-1}:
        raise IngestError(
            f"{url} holds an object ({', '.join(list(value)[:5])}) without a table: expected an array of records, or "
            "one record per line (.jsonl)"
        )
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _tables(value: dict[str, Any], name: str = "", depth: int = 0) -> Iterator[tuple[str, list[Any]]]:
    """The lists of records in an object, and in the objects in it, with their dotted names."""
    for key, part in value.items():
        if isinstance(part, list) and part and isinstance(part[0], dict):
            yield f"{name}{key}", part
        elif isinstance(part, dict) and depth < _DEEPEST:
            yield from _tables(part, f"{name}{key}.", depth + 1)


def _are_rankings(lists: list[Any]) -> bool:
    """Whether lists, each with its key, are rankings, and not columns, which have one length and repeat their cells."""
    if not lists or not all(isinstance(part, list) and all(isinstance(cell, str) for cell in part) for part in lists):
        return False
    lengths = {len(part) for part in lists}
    return all(len(set(part)) == len(part) for part in lists) and (len(lengths) > 1 or len(lists) > max(lengths))


# The source: the first rows, slices, batches.


def _sample_records(file: SourceFile, *_: Any) -> Table:
    """The columns and the first rows of a file."""
    if lines := _is_lines(file):
        some = [_record(value) for line in _first_lines(file) if (value := _value(line)) is not None]
    else:
        some = list(islice(_records(file), _MOST_SAMPLED))
    if not some:
        raise IngestError("no record was found: expected an array of records, or one record per line")
    columns = tuple(dict.fromkeys(name for record in some for name in record))
    lists = [place for place, name in enumerate(columns) if any(isinstance(one.get(name), list) for one in some)]
    texts = {name: place not in lists for place, name in enumerate(columns)}
    body = [[cell_text(one.get(name)) if is_text else "" for name, is_text in texts.items()] for one in some]
    return Table(columns=columns, body=body, container="jsonl" if lines else "json", lists=tuple(lists))


def _first_lines(file: SourceFile) -> list[bytes]:
    found: list[bytes] = []
    n_bytes = 0
    with reading(file.url) as stream:
        while n_bytes < _SAMPLE_BYTES and len(found) < _MOST_SAMPLED and (raw := read_line(stream, file.url)):
            n_bytes += len(raw)
            line = raw.removeprefix(codecs.BOM_UTF8).strip()
            found += [line] if line else []
    return found


def _value(line: bytes | str) -> Any:
    """The record in a line; None if it is not JSON, which is an error later."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _cut_records(file: SourceFile, header: Header, together: int | None, whole: bool) -> list[Slice]:
    """Slices of lines; one slice if the file is one array, or must be read as a whole."""
    key = None if together is None else partial(_cell, header.columns[together])
    return text_slices(file, header, whole or header.container == "json", key)


def _cell(name: str, line: str) -> Any:
    return _record(_value(line) or {}).get(name)


def _record_batches(part: Slice, wanted: Sequence[int], *_: Any) -> Iterator[Batch]:
    """The wanted columns of a slice."""
    names = {place: part.header.columns[place] for place in wanted}
    if part.header.container == "jsonl":
        for chunk in chunks(part):
            yield _by_line(chunk.lines(), names)
        return
    records, first = _records(part.file), 1
    while some := list(islice(records, BATCH_ROWS)):
        yield _batch(some, names, range(first, first + len(some)))
        first += len(some)


def _by_line(lines: Iterable[tuple[int, str]], names: Mapping[int, str]) -> Batch:
    """The records of lines, read one by one. A line that is not JSON is bad."""
    records: list[Record] = []
    numbers: list[int] = []
    bad: dict[int, str] = {}
    for number, line in lines:
        try:
            records.append(_record(json.loads(line)))
        except (ValueError, RecursionError) as error:
            bad[len(records)] = f"the line is not JSON: {error}"
            records.append({})
        numbers.append(number)
    return _batch(records, names, numbers, bad)


def _batch(
    records: Sequence[Record], names: Mapping[int, str], numbers: Sequence[int], bad: Mapping[int, str] | None = None
) -> Batch:
    return Batch(
        {place: Column(column_of([record.get(name) for record in records])) for place, name in names.items()},
        np.array(numbers, np.int64),
        lambda row: [cell_text(records[row].get(name)) for name in names.values()],
        bad or {},
    )


RECORDS = Source((".jsonl", ".ndjson", ".json"), _sample_records, _cut_records, _record_batches)
