"""The format `preflib`: .soc .soi .toc .toi, with the present header (# KEY: value) or the one used before 2022."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

from plmix_dist.errors import IngestError
from plmix_dist.rankings import Unranked
from plmix_dist.store import RankingStore
from plmix_dist.tables.documents import unique_names
from plmix_dist.tables.format import Format, ReadOptions, Syntax, number_text, parse_weight
from plmix_dist.tables.notation import parse_ordering, tie_groups
from plmix_dist.tables.rows import BATCH_ROWS, Failure, RawRows, RowBuilder
from plmix_dist.tables.sources import BLANKS, Header, Slice, SourceFile, decode, reading, text_slices
from plmix_dist.tables.text import lines
from plmix_dist.tables.write import labelled_rows, open_target, refuse, survey

_NAME = "ALTERNATIVE NAME "
_EMPTY_PLACE = re.compile(r"(^|[,{])\s*(,|$)|,\s*}")
KINDS = ("soc", "soi", "toc", "toi")
_LONGEST_HEADER_LINE = 1 << 20
_MOST_ALTERNATIVES = 1_000_000
_MOST_DIGITS = 40
# Above this float64 cannot represent every integer, so a weight is not an exact count.
_LARGEST_COUNT = 2.0**53


def _read_header(file: SourceFile, options: ReadOptions) -> Header:
    """Item names, counts and kind of data, from either header."""
    del options  # everything is in the file
    with reading(file.url) as stream:
        first = stream.readline(_LONGEST_HEADER_LINE)
        stream.seek(0)
        numbered = _numbered_lines(stream, file.url)
        if first.removeprefix(b"\xef\xbb\xbf").startswith(b"#"):
            return _present_header(numbered, file)
        return _old_header(numbered, file)


def _read(part: Slice) -> Iterator[RawRows]:
    """Rows: `count: order` with the present header, `count,order` with the old one."""
    separator, kind = part.header.metadata["separator"], part.header.metadata["kind"]
    builder = RowBuilder()
    for number, line in lines(part):
        try:
            weight, labels, tied = _row(line, separator, kind)
        except IngestError as error:
            builder.fail(Failure(number, "syntax", str(error), text=line))
        else:
            if weight == 0:
                builder.fail(Failure(number, "zero-count", "the count is 0", text=line, wrong=False))
            else:
                builder.add(number, labels, tied, weight)
        if len(builder) >= BATCH_ROWS:
            yield builder.take()
    yield builder.take()


def _row(line: str, separator: str, kind: str) -> tuple[float, list[str], list[bool] | None]:
    """Count, items and ties of a line."""
    count, found, order = line.partition(separator)
    if not found:
        raise IngestError(f"expected 'count{separator} order', but got {line[:60]!r}")
    weight = parse_weight(count)
    if not weight.is_integer():
        raise IngestError(f"the count {count.strip()!r} is not a whole number")
    if _EMPTY_PLACE.search(order) and order.strip():
        raise IngestError(f"a place of {order.strip()[:60]!r} is empty")
    labels, n_ordered, tied = parse_ordering(order)
    if n_ordered < len(labels):
        raise IngestError("'|' has no meaning in PrefLib files")
    if tied is not None and kind in ("soc", "soi"):
        raise IngestError(f"items are tied, but .{kind} promises orders without ties")
    return weight, labels, tied


def _write(store: RankingStore, target: str) -> None:
    """Write a store with the present header, or with its own header if it came from PrefLib."""
    kind = target.removesuffix(".gz").rsplit(".", 1)[-1]
    if kind not in KINDS:
        raise IngestError(f"{target}: a PrefLib file ends in .soc, .soi, .toc or .toi")
    found = survey(store)
    if found.mixed_unranked:
        refuse(target, "PrefLib cannot say for each ranking what unranked items mean", "orderings or Parquet")
    for name, there in (("ids", found.has_ids), ("groups", found.has_groups)):
        if there:
            refuse(target, f"PrefLib has no field for {name}", "orderings or Parquet")
    with open_target(target) as out:
        out.writelines(f"# {key}: {value}\n" for key, value in _header_to_write(store, kind))
        numbers = [str(number + 1) for number in range(store.n_items)]
        for labels, n_ordered, tied, weight, *_ in labelled_rows(store, numbers):
            if n_ordered < len(labels):
                refuse(target, "slates do not fit into PrefLib", "orderings, long or Parquet")
            if tied is not None and kind in ("soc", "soi"):
                refuse(target, f"ties do not fit into .{kind}", ".toc or .toi")
            if kind in ("soc", "toc") and len(labels) < store.n_items:
                refuse(target, f".{kind} holds complete orders only", ".soi or .toi")
            if not weight.is_integer() or weight > _LARGEST_COUNT:
                refuse(target, f"PrefLib has whole counts, but a ranking has weight {weight}", "CSV or Parquet")
            groups = tie_groups(labels, tied) if tied is not None else [[label] for label in labels]
            places = ["{" + ",".join(group) + "}" if len(group) > 1 else group[0] for group in groups]
            out.write(f"{number_text(weight)}: {','.join(places)}\n")


def _numbered_lines(stream: IO[bytes], url: str) -> Iterator[tuple[int, str, int]]:
    """Number, text and end offset of each line."""
    number, offset = 0, 0
    while raw := stream.readline(_LONGEST_HEADER_LINE):
        number, offset = number + 1, offset + len(raw)
        if len(raw) == _LONGEST_HEADER_LINE:
            raise IngestError(f"{url}, line {number}: a line of the header is longer than {len(raw):,} bytes")
        yield number, decode(raw, url, number).rstrip("\r\n"), offset


def _present_header(numbered: Iterator[tuple[int, str, int]], file: SourceFile) -> Header:
    entries: list[tuple[str, str]] = []
    body_line, body_offset = 1, 0
    for number, line, offset in numbered:
        if not line.startswith("#"):
            break
        key, _, value = line[1:].partition(":")
        entries.append((key.strip(BLANKS), value.strip(BLANKS)))
        body_line, body_offset = number + 1, offset
    known = dict(entries)
    n_items = _count(known.get("NUMBER ALTERNATIVES"), "NUMBER ALTERNATIVES", file)
    numbered_names = {key.removeprefix(_NAME): value for key, value in entries if key.startswith(_NAME)}
    names = _names(numbered_names, n_items, file)
    kind = known.get("DATA TYPE") or _suffix(file)
    voters = known.get("NUMBER VOTERS")
    orders = known.get("NUMBER UNIQUE ORDERS")
    return _header(file, kind, names, body_offset, body_line, ":", entries, voters, orders)


def _old_header(numbered: Iterator[tuple[int, str, int]], file: SourceFile) -> Header:
    _, first, _ = next(numbered, (1, "", 0))
    n_items = _count(first, "number of candidates on line 1", file)
    by_number: dict[str, str] = {}
    for _ in range(n_items):
        number, line, _ = next(numbered, (0, "", 0))
        item, comma, name = line.partition(",")
        if not comma:
            raise IngestError(
                f"{file.url}: the header says {n_items} candidates, but line {number} is not 'number,name': {line!r}"
            )
        by_number[item.strip()] = name.strip(BLANKS)
    names = _names(by_number, n_items, file)
    number, line, offset = next(numbered, (0, "", 0))
    counts = line.split(",")
    if len(counts) != 3:
        raise IngestError(f"{file.url}, line {number}: expected 'voters,sum of counts,unique orders', got {line!r}")
    return _header(file, _suffix(file), names, offset, number + 1, ",", [], counts[1], counts[2])


def _header(
    file: SourceFile,
    kind: str,
    names: list[str],
    body_offset: int,
    body_line: int,
    separator: str,
    entries: list[tuple[str, str]],
    voters: str | None,
    orders: str | None,
) -> Header:
    if kind not in KINDS:
        raise IngestError(f"{file.url}: PrefLib data of type {kind!r} are not rankings; expected {', '.join(KINDS)}")
    complete = kind in ("soc", "toc")
    unranked: Unranked | None = None if complete else "below"
    return Header(
        body_offset=body_offset,
        body_line=body_line,
        item_names=tuple(names),
        item_labels=tuple(str(number + 1) for number in range(len(names))),
        unranked=unranked,
        complete=complete,
        n_rows=None if orders is None else _count(orders, "number of unique orders", file),
        total_weight=None if voters is None else float(_count(voters, "number of voters", file)),
        metadata={"separator": separator, "kind": kind, "preflib": entries},
    )


def _count(text: str | None, what: str, file: SourceFile) -> int:
    digits = (text or "").strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        shown = text if text is None or len(text) <= 40 else f"{text[:36]}..."
        raise IngestError(f"{file.url}: the header's {what} should be a whole number, but is {shown!r}")
    if what.startswith(("NUMBER ALT", "number of cand")) and not 1 <= int(digits) <= _MOST_ALTERNATIVES:
        raise IngestError(
            f"{file.url}: the header claims {digits} alternatives; at most {_MOST_ALTERNATIVES:,} are read"
        )
    return int(digits)


def _names(by_number: dict[str, str], n_items: int, file: SourceFile) -> list[str]:
    """Names in the order of their numbers. An alternative without a name is named by its number."""
    numbers = {str(number + 1) for number in range(n_items)}
    surplus = [number for number in by_number if number not in numbers]
    if surplus:
        raise IngestError(f"{file.url}: the header says {n_items} alternatives, but names one with number {surplus[0]}")
    return _unique_names(by_number, n_items)


def _unique_names(by_number: dict[str, str], n_items: int) -> list[str]:
    return unique_names([by_number.get(str(number + 1)) or str(number + 1) for number in range(n_items)])


def _suffix(file: SourceFile) -> str:
    return file.name.rsplit(".", 1)[-1].lower()


def _header_to_write(store: RankingStore, kind: str) -> list[tuple[str, str]]:
    """The updated header of the source if there is one; otherwise a plain header."""
    fresh = {
        "DATA TYPE": kind,
        "NUMBER ALTERNATIVES": str(store.n_items),
        "NUMBER VOTERS": number_text(store.total_weight),
        "NUMBER UNIQUE ORDERS": str(store.n_rankings),
    }
    sources = [source for event in store.manifest.history for source in event["sources"]]
    kept = sources[0]["metadata"].get("preflib") if len(sources) == 1 else None
    names = [(f"{_NAME}{i + 1}", name) for i, name in enumerate(store.item_names)]
    if not kept:
        return [*fresh.items(), *names]
    by_number = {key.removeprefix(_NAME): value for key, value in kept if key.startswith(_NAME)}
    if tuple(_unique_names(by_number, store.n_items)) != store.item_names:  # the user gave other names
        kept = [*((key, value) for key, value in kept if not key.startswith(_NAME)), *names]
    return [(key, fresh.get(key, value)) for key, value in kept]


PREFLIB = Format(
    name="preflib",
    suffixes=tuple(f".{kind}" for kind in KINDS),
    about="PrefLib's .soc, .soi, .toc and .toi",
    example="# ALTERNATIVE NAME 1: tea\n3: 1,{2,3}",
    syntax=Syntax(_read_header, text_slices, _read),
    write=_write,
)
