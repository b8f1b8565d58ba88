"""The format `preflib`: .soc .soi .toc .toi, with the present header (# KEY: value) or the one used before 2022."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from functools import partial
from typing import IO, Any

from plmix_dist.errors import IngestError
from plmix_dist.store import RankingStore
from plmix_dist.tables.documents import unique_names
from plmix_dist.tables.format import Format, ReadOptions, Syntax
from plmix_dist.tables.notation import parse_ordering, tie_groups
from plmix_dist.tables.rows import Failure, RawRows, collected
from plmix_dist.tables.sources import BLANKS, Header, Slice, SourceFile, decode, reading, text_slices
from plmix_dist.tables.text import lines
from plmix_dist.tables.words import number_text, parse_weight
from plmix_dist.tables.write import labelled_rows, open_target, refuse, survey

_NAME = "ALTERNATIVE NAME "
_EMPTY_PLACE = re.compile(r"(^|[,{])\s*(,|$)|,\s*}")
KINDS = ("soc", "soi", "toc", "toi")
_LONGEST_HEADER_LINE = 1 << 20
_MOST_ALTERNATIVES = 1_000_000
_MOST_DIGITS = 40
# Above this float64 cannot represent every integer, so a weight is not an exact count.
_LARGEST_COUNT = 2.0**53


def _read_header(file: SourceFile, _: ReadOptions) -> Header:
    """Item names, counts and kind of data, from either header."""
    with reading(file.url) as stream:
        first = stream.readline(_LONGEST_HEADER_LINE)
        stream.seek(0)
        read = _present_header if first.removeprefix(BOM_UTF8).startswith(b"#") else _old_header
        return read(_numbered_lines(stream, file.url), file.url, file.name.rsplit(".", 1)[-1].lower())


def _read(part: Slice) -> Iterator[RawRows]:
    """Rows: `count: order` with the present header, `count,order` with the old one."""
    return collected(lines(part), partial(_row, **{name: part.header.metadata[name] for name in ("separator", "kind")}))


def _row(number: int, line: str, separator: str, kind: str) -> tuple[list[str], list[bool] | None, float] | Failure:
    """Items, ties and count of a line."""
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
    return (labels, tied, weight) if weight else Failure(number, "zero-count", "the count is 0", text=line, wrong=False)


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


def _present_header(numbered: Iterator[tuple[int, str, int]], _: str, suffix: str) -> Header:
    entries: list[tuple[str, str]] = []
    begin = 0, 1
    for number, line, offset in numbered:
        if not line.startswith("#"):
            break
        key, _, value = line[1:].partition(":")
        entries.append((key.strip(BLANKS), value.strip(BLANKS)))
        begin = offset, number + 1
    known = dict(entries)
    n_items = _count(known.get("NUMBER ALTERNATIVES"), "NUMBER ALTERNATIVES", _MOST_ALTERNATIVES)
    names = _names({key.removeprefix(_NAME): value for key, value in entries if key.startswith(_NAME)}, n_items)
    counts = known.get("NUMBER VOTERS"), known.get("NUMBER UNIQUE ORDERS")
    return _header(known.get("DATA TYPE") or suffix, names, begin, counts, separator=":", preflib=entries)


def _old_header(numbered: Iterator[tuple[int, str, int]], url: str, suffix: str) -> Header:
    _, first, _ = next(numbered, (1, "", 0))
    n_items = _count(first, "number of candidates on line 1", _MOST_ALTERNATIVES)
    by_number: dict[str, str] = {}
    for _ in range(n_items):
        number, line, _ = next(numbered, (0, "", 0))
        item, comma, name = line.partition(",")
        if not comma:
            raise IngestError(f"the header says {n_items} candidates, but line {number} is not 'number,name': {line!r}")
        by_number[item.strip()] = name.strip(BLANKS)
    names = _names(by_number, n_items)
    number, line, offset = next(numbered, (0, "", 0))
    counts = line.split(",")
    if len(counts) != 3:
        raise IngestError(f"{url}, line {number}: expected 'voters,sum of counts,unique orders', got {line!r}")
    return _header(suffix, names, (offset, number + 1), (counts[1], counts[2]), separator=",", preflib=[])


def _header(
    kind: str, names: list[str], begin: tuple[int, int], counts: tuple[str | None, str | None], **metadata: Any
) -> Header:
    """The header of either kind; `begin` is where the rows begin, `counts` are voters and unique orders."""
    if kind not in KINDS:
        raise IngestError(f"PrefLib data of type {kind!r} are not rankings; expected {', '.join(KINDS)}")
    voters, orders = counts
    complete = kind in ("soc", "toc")
    return Header(
        *begin,
        item_names=tuple(names),
        item_labels=tuple(str(number + 1) for number in range(len(names))),
        unranked=None if complete else "below",
        complete=complete,
        n_rows=None if orders is None else _count(orders, "number of unique orders"),
        total_weight=None if voters is None else float(_count(voters, "number of voters")),
        metadata={"kind": kind, **metadata},
    )


def _count(text: str | None, what: str, most: int | None = None) -> int:
    digits = (text or "").strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        shown = text if text is None or len(text) <= 40 else f"{text[:36]}..."
        raise IngestError(f"the header's {what} should be a whole number, but is {shown!r}")
    if most is not None and not 1 <= int(digits) <= most:
        raise IngestError(f"the header claims {digits} alternatives; at most {most:,} are read")
    return int(digits)


def _names(by_number: Mapping[str, str], n_items: int) -> list[str]:
    """Names in the order of their numbers. An alternative without a name is named by its number."""
    numbers = {str(number + 1) for number in range(n_items)}
    if (surplus := next((number for number in by_number if number not in numbers), None)) is not None:
        raise IngestError(f"the header says {n_items} alternatives, but names one with number {surplus}")
    return _unique_names(by_number, n_items)


def _unique_names(by_number: Mapping[str, str], n_items: int) -> list[str]:
    return unique_names([by_number.get(str(number + 1)) or str(number + 1) for number in range(n_items)])


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
