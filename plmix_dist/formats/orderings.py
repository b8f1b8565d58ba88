"""The format `orderings`: delimited text with a whole ranking in one column, `count,ordering`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError
from plmix_dist.formats import delimited
from plmix_dist.formats.format import Format, ReadOptions, column_roles, written_name
from plmix_dist.formats.notation import format_ordering, parse_ordering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.formats.raw_rows import RawRows
    from plmix_dist.formats.sources import Slice
    from plmix_dist.store import RankingStore


def _read(part: Slice, options: ReadOptions) -> Iterator[RawRows]:
    """Rows of `ordering`, with optional columns for weight, id, group and unranked."""
    roles = column_roles(part.header.columns, options, part.file.url)
    if "ordering" not in roles:
        raise IngestError(
            f"{part.file.url}: no column holds orderings; found: {', '.join(part.header.columns)}. "
            "Name it 'ordering', or name the column with --column ordering=NAME"
        )
    column = roles["ordering"]
    return delimited.read_rows(part, options, roles, lambda row: parse_ordering(row[column]))


def _write(store: RankingStore, target: str) -> None:
    """Write `count,ordering`, and columns for ids, groups and unranked if the rows have them."""
    delimited.write_rows(
        store,
        target,
        names=lambda _: [written_name("ordering")],
        values=lambda row: [[format_ordering(row.labels, row.n_ordered, row.tied)]],
        always_weights=True,
    )


ORDERINGS = Format(
    name="orderings",
    suffixes=delimited.SUFFIXES,
    read_header=delimited.read_header,
    slices=delimited.slices_keeping("group"),
    read=_read,
    write=_write,
)
