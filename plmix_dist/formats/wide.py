"""The format `wide`: delimited text with one column per place, best first. The first empty place ends a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.formats import delimited
from plmix_dist.formats.delimited import Listed, Listing
from plmix_dist.formats.format import Format, ReadOptions
from plmix_dist.formats.labelled import refuse
from plmix_dist.formats.sniffing import LABEL_ROLES, header_reader
from plmix_dist.formats.sniffing.cells import MISSING
from plmix_dist.formats.write_delimited import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.formats.labelled import LabelledRow, Survey
    from plmix_dist.formats.raw_rows import RawRows
    from plmix_dist.formats.sources import Slice
    from plmix_dist.formats.text_columns import ChunkColumns
    from plmix_dist.store import RankingStore


def _read(part: Slice, options: ReadOptions) -> Iterator[RawRows]:
    """Rows of places. Columns for weight, id, group and unranked have known names; all others are places."""
    roles = {role: place for role, place in part.header.roles.items() if role in LABEL_ROLES}
    places = _places(part, options, roles)

    def of_fields(row: list[str]) -> tuple[list[str], int, None]:
        labels = _until_missing([row[place] for place in places])
        return labels, len(labels), None

    listing = Listing(of_fields, lambda columns: _listed(columns, places), coded=tuple(places))
    return delimited.read_rows(part, roles, listing)


def _places(part: Slice, options: ReadOptions, roles: dict[str, int]) -> list[int]:
    """The columns of the places: those named in the options, or all columns without another role."""
    columns = list(part.header.columns)
    named = options.places
    if named is None:
        taken = {*roles.values(), *part.header.ignored}
        places = [place for place in range(len(columns)) if place not in taken]
    else:
        missing = [name for name in named if name not in columns]
        if missing:
            raise IngestError(
                f"{part.file.url}: there is no column {missing[0]!r} for a place; found: {', '.join(columns)}"
            )
        places = [columns.index(name) for name in named]
    if not places:
        raise IngestError(f"{part.file.url}: no column is left for the places of a ranking")
    return places


def _until_missing(values: list[str]) -> list[str]:
    end = next((place for place, value in enumerate(values) if value in MISSING), len(values))
    if any(value not in MISSING for value in values[end:]):
        raise IngestError("an item follows an empty place; only the end of a row may be empty")
    return values[:end]


def _listed(columns: ChunkColumns, places: list[int]) -> Listed | None:
    """The items of all rows; None if an item follows an empty place."""
    numbers: dict[str, int] = {}
    cells = np.empty((len(columns.lines), len(places)), np.int32)
    for number, place in enumerate(places):
        cells[:, number] = columns.coded[place].mapped(
            lambda name: -1 if name in MISSING else numbers.setdefault(name, len(numbers)), np.int32
        )
    listed = cells >= 0
    if (listed[:, 1:] & ~listed[:, :-1]).any():
        return None
    names = pa.array(list(numbers), pa.string())
    return Listed(
        labels=pa.DictionaryArray.from_arrays(pa.array(cells[listed]), names),
        n_listed=np.count_nonzero(listed, axis=1),
    )


def _write(store: RankingStore, target: str) -> None:
    """Write `place_1,place_2,...`, and columns for weights, ids, groups and unranked if the rows have them."""
    longest = 0

    def names(found: Survey) -> list[str]:
        nonlocal longest
        longest = found.longest
        return [f"place_{place + 1}" for place in range(longest)]

    def values(row: LabelledRow) -> list[list[str]]:
        if row.tied is not None or row.n_ordered < len(row.labels):
            refuse(
                target,
                "ties and slates do not fit into one column per place",
                "orderings, long or Parquet",
            )
        if any(label in MISSING for label in row.labels):
            refuse(target, f"an item is called {next(x for x in row.labels if x in MISSING)!r}", "orderings")
        return [[*row.labels, *[""] * (longest - len(row.labels))]]

    write_rows(store, target, names, values)


WIDE = Format(
    name="wide",
    suffixes=delimited.SUFFIXES,
    read_header=header_reader("wide"),
    slices=delimited.slices_keeping("group"),
    read=_read,
    write=_write,
)
