"""Checks of the whole store before it is published: counts in headers, and consecutive rows of each group."""

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
    """Compare the counts in headers with the rows found.

    A wrong count is an error if `on_error` is "raise"; otherwise it becomes a note.

    Examples
    --------
    >>> from plmix_dist.ingestion.source_parts import IngestPlan
    >>> check_counts(IngestPlan(("a", "b"), [], None, []), "raise")
    []
    """
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
        raise IngestError(
            f"{notes[0]}; correct the header, or choose --on-error drop or --on-error quarantine"
        )
    return notes


def check_groups(store: RankingStore) -> None:
    """An error if the rows of a group are not consecutive. A group is one person, and never spans two leaves.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> check_groups(plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=10, n_items=3))
    """
    twice = store.label_twice("groups", range(store.n_partitions))
    if twice is not None:
        raise IngestError(
            f"the rankings of group {visible(str(twice))} are not consecutive; sort the source by group"
        )
