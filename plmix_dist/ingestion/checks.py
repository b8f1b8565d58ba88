"""Checks on the whole, before a store is published: promised counts, and labels that must stand together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError
from plmix_dist.ingestion.parts import FilePart

if TYPE_CHECKING:
    from plmix_dist.formats.rows import OnError
    from plmix_dist.ingestion.parts import Work
    from plmix_dist.store import RankingStore


def check_counts(work: Work, on_error: OnError) -> list[str]:
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
                notes.append(f"{url}: the header says {promised:g} {what}, but there are {counted:g}")
    if notes and on_error == "raise":
        raise IngestError(f"{notes[0]}; mend the header, or choose --on-error drop or --on-error quarantine")
    return notes


def check_labels_once(store: RankingStore, work: Work, first_partition: int) -> None:
    """Rows of one group, and lines of one ranking, must stand together in the source."""
    partitions: dict[str, list[int]] = {}
    for number, part in enumerate(work.parts, start=first_partition):
        if isinstance(part, FilePart) and part.format in ("long", "parquet"):
            partitions.setdefault(part.slice.file.url, []).append(number)
    for url, numbers in partitions.items():
        twice = store.label_twice("ids", numbers)
        if twice is not None and _is_long(work, url):
            raise IngestError(
                f"{url}: the lines of ranking {twice} do not stand together; sort the file by ranking id"
            )
    twice = store.label_twice("groups", list(range(store.n_partitions)))
    if twice is not None:
        raise IngestError(f"the rankings of group {twice} do not stand together; sort the source by group")


def _is_long(work: Work, url: str) -> bool:
    part = next(part for part in work.parts if isinstance(part, FilePart) and part.slice.file.url == url)
    return part.format == "long" or "items" not in part.slice.header.columns
