"""Files that are not tables: how a document becomes rows, and texts and XML read whole, with bounds on their size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.parsers import expat

from plmix_dist.errors import IngestError
from plmix_dist.rankings import Unranked
from plmix_dist.tables.format import ReadOptions, Syntax
from plmix_dist.tables.rows import Failure, RawRows, blank, collected
from plmix_dist.tables.sources import Header, Slice, SourceFile, decode, reading, whole_file

# A document is read as a whole, so its size has a bound: these bytes, unpacked.
_MOST_BYTES = 1 << 30
_DEEPEST = 64


class Ballot(NamedTuple):
    """One ballot of a document: groups of tied names, best first."""

    order: Sequence[Sequence[str]]
    weight: float


class Document(NamedTuple):
    """What a document holds: all items; lines with their texts or cells; how such a line is read as a ballot.

    A line that cannot be read is listed with its text, or with its cells between `divider`s.
    """

    names: Sequence[str]
    lines: Iterable[tuple[int, str | Sequence[str]]]
    read: Callable[[int, Any], Ballot]
    notes: tuple[str, ...] = ()
    unranked: Unranked = "below"
    divider: str = ","


def document_syntax(
    parse: Callable[[SourceFile, Mapping[str, str]], Document], begins: Callable[[str], bool]
) -> Syntax:
    """How files are read of which each is one document: `parse` has the file and what the user chose."""

    def read_header(file: SourceFile, options: ReadOptions) -> Header:
        found = parse(file, options.choices)
        return Header(
            item_names=tuple(found.names),
            unranked=found.unranked,
            guesses=found.notes,
            metadata={"choices": dict(options.choices)},
        )

    def read(part: Slice) -> Iterator[RawRows]:
        found = parse(part.file, part.header.metadata["choices"])

        def row(line: int, text: Any) -> tuple[list[str], list[bool], float] | Failure:
            order, weight = found.read(line, text)
            if not order or weight == 0:
                return blank(line, f"a blank ballot, weight {weight:g}")
            labels = [name for group in order for name in group]
            return labels, [place > 0 for group in order for place in range(len(group))], weight

        return collected(found.lines, row, found.divider)

    return Syntax(read_header, whole_file, read, begins)


def unique_names(names: Sequence[str]) -> list[str]:
    """The names; those that come twice get their numbers added."""
    times = Counter(names)
    return [f"{name} ({number})" if times[name] > 1 else name for number, name in enumerate(names, start=1)]


def read_bytes(url: str) -> bytes:
    """A whole file, unpacked; an error if it is too large to be read at once."""
    with reading(url) as stream:
        data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise IngestError(f"{url}: this is more than {_MOST_BYTES >> 20} MB unpacked; divide it into several files")
    return data


def read_text(url: str) -> str:
    """A whole text file; an error with the line that is not UTF-8."""
    data = read_bytes(url)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        start = data.rfind(b"\n", 0, error.start) + 1
        return decode(data[start : error.end], url, line)  # raises


# XML as dicts of lists, as JSON has it: {"Contest": [...], "@id": "..."}; text alone is a string.


def read_xml(url: str) -> dict[str, Any]:
    """An XML file as {name of the root: contents}, without namespaces.

    A document type is refused, and so entities: a few bytes of them may stand for gigabytes, or for other files.
    """
    parser = expat.ParserCreate(namespace_separator="}")
    found: list[tuple[dict[str, Any], list[str]]] = [({}, [])]

    def refuse(*_: Any) -> None:
        raise IngestError(f"{url}: the XML declares a document type, which may hide entities; remove <!DOCTYPE ...>")

    def start(tag: str, attributes: dict[str, str]) -> None:
        del tag
        if len(found) > _DEEPEST:
            raise IngestError(f"{url}: the XML is nested more than {_DEEPEST} deep; this is not a cast vote record")
        found.append(({"@id": attributes["ObjectId"]} if "ObjectId" in attributes else {}, []))

    def end(tag: str) -> None:
        node, texts = found.pop()
        text = "".join(texts).strip()
        children = any(not name.startswith("@") for name in node)
        found[-1][0].setdefault(tag.rpartition("}")[2], []).append(node if children or node or not text else text)

    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = lambda text: found[-1][1].append(text)
    parser.buffer_text = True
    try:
        parser.Parse(read_bytes(url), True)
    except expat.ExpatError as error:
        raise IngestError(f"{url} cannot be read as XML: {error}") from None
    return found[0][0]
