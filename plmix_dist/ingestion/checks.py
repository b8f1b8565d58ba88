"""Checks on the whole, before a store is published: promised counts, and labels that must stand together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError, visible
from plmix_dist.formats.format import number_text
from plmix_dist.ingestion.source_parts import FilePart

if TYPE_CHECKING:
    from plmix_dist.formats.encoder import OnError
    from plmix_dist.ingestion.source_parts import IngestPlan
    from plmix_dist.store import RankingStore


def check_counts(work: IngestPlan, on_error: OnError) -> list[str]:
    """Counts that a header promises: an error where they are wrong, or notes where bad rows are tolerated."""
    notes = []
    for part in work.parts:
        if not isinstance(part, FilePart) or part.slice.start != part.slice.header.body_offset:
            continue
        url, header = part.slice.file.url, part.slice.header
        n_rows, total_weight = work.counts[url]
        for what, promised, counted in (
            ("rows (unique orders)", header.n_rows, n_rows),
            ("voters", header.total_weight, total_weight),
        ):
            if promised is not None and promised != counted:
                notes.append(
                    f"{url}: the header says {number_text(promised)} {what}, but there are {number_text(counted)}"
                )
    if notes and on_error == "raise":
        raise IngestError(f"{notes[0]}; mend the header, or choose --on-error drop or --on-error quarantine")
    return notes


def check_groups(store: RankingStore) -> None:
    """The rows of one group must stand together: a group is one person, and lies within a leaf."""
    twice = store.label_twice("groups", range(store.n_partitions))
    if twice is not None:
        raise IngestError(
            f"the rankings of group {visible(str(twice))} do not stand together; sort the source by group"
        )
