"""The format `orderings`: delimited text with a whole ranking in one column, `count,ordering`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plmix_dist.formats import delimited
from plmix_dist.formats.delimited import Listed, Listing
from plmix_dist.formats.format import Format, ReadOptions, written_name
from plmix_dist.formats.notation import format_ordering, parse_ordering
from plmix_dist.formats.sniffing import LABEL_ROLES, header_reader
from plmix_dist.formats.write_delimited import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.formats.raw_rows import RawRows
    from plmix_dist.formats.sources import Slice
    from plmix_dist.store import RankingStore

# By byte: what divides items (as `parse_ordering` has it), and what only `parse_ordering` can read.
_DIVIDES = np.zeros(256, np.bool_)
_DIVIDES[list(b" \t\n\v\f\r\x1c\x1d\x1e\x1f,>")] = True
_MARKS = np.zeros(256, np.bool_)
_MARKS[list(b'{}|"')] = True
_APOSTROPHE = ord("'")
# By the sign that divides items: what only `parse_ordering` can read, or an apostrophe against spreadsheets.
_NOT_PLAIN = {">": r"""[{}|"=,]|^\s*'""", ",": r"""[{}|"]|^\s*'"""}


def _read(part: Slice, options: ReadOptions) -> Iterator[RawRows]:
    """Rows of `ordering`, with optional columns for weight, id, group and unranked."""
    del options  # the header says which columns these are
    roles = {role: place for role, place in part.header.roles.items() if role in LABEL_ROLES}
    column, divider = part.header.roles["ordering"], part.header.divider
    listing = Listing(
        of_fields=lambda row: parse_ordering(row[column], divider),
        of_columns=lambda columns: (
            _listed(columns.plain[column])
            if divider is None
            else _listed_between(columns.plain[column], divider)
        ),
        plain=(column,),
    )
    return delimited.read_rows(part, roles, listing)


def _listed(orderings: pa.StringArray) -> Listed | None:
    """The items of all orderings; None if one of them has ties, a slate, or white space beyond ASCII."""
    _, offsets, data = orderings.buffers()
    first = orderings.offset
    ends = np.frombuffer(offsets, np.int32)[first : first + len(orderings) + 1]
    text = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data else np.empty(0, np.uint8)
    ends = ends - ends[0]
    within = ~_DIVIDES[text]
    if _MARKS[text].any() or _begins_with_apostrophe(text, ends):
        return None
    begins = within.copy()
    begins[1:] &= ~within[:-1]
    rows = ends[:-1][ends[:-1] < ends[1:]]
    begins[rows] = within[rows]  # the last item of a row is not continued by the next row
    starts = np.flatnonzero(begins)
    # The items one after another, without what divides them, are the buffer of an array of strings.
    bounds = np.append(np.flatnonzero(begins[within]), np.count_nonzero(within)).astype(np.int32)
    names = pa.StringArray.from_buffers(len(starts), pa.py_buffer(bounds), pa.py_buffer(text[within]))
    labels = names.dictionary_encode()
    if any(name.split() != [name] for name in labels.dictionary.to_pylist()):
        return None
    return Listed(labels, np.diff(np.searchsorted(starts, ends)))


def _listed_between(orderings: pa.StringArray, divider: str) -> Listed | None:
    """The items between signs, with the blanks in their names; None if one ordering needs `parse_ordering`."""
    if pc.any(pc.match_substring_regex(orderings, _NOT_PLAIN[divider])).as_py():
        return None
    lists = pc.split_pattern(orderings, divider)
    labels = pc.utf8_trim_whitespace(lists.flatten()).dictionary_encode()
    if any(not name or name.strip() != name for name in labels.dictionary.to_pylist()):
        return None
    return Listed(labels, pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64))


def _begins_with_apostrophe(text: np.ndarray, ends: np.ndarray) -> bool:
    """Whether a cell begins with an apostrophe, which may protect it from spreadsheets, perhaps behind blanks."""
    if not (text == _APOSTROPHE).any():
        return False
    rows = ends[:-1][ends[:-1] < ends[1:]]
    return bool((_DIVIDES[text[rows]] | (text[rows] == _APOSTROPHE)).any())


def _write(store: RankingStore, target: str) -> None:
    """Write `count,ordering`, and columns for ids, groups and unranked if the rows have them."""
    write_rows(
        store,
        target,
        names=lambda _: [written_name("ordering")],
        values=lambda row: [[format_ordering(row.labels, row.n_ordered, row.tied)]],
        always_weights=True,
    )


ORDERINGS = Format(
    name="orderings",
    suffixes=delimited.SUFFIXES,
    read_header=header_reader("orderings"),
    slices=delimited.slices_keeping("group"),
    read=_read,
    write=_write,
)
