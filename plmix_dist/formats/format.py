"""Format: what one way of writing rankings down must provide. A new format is one such value in one file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plmix_dist.errors import IngestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from plmix_dist.formats.raw_rows import RawRows
    from plmix_dist.formats.sources import Header, Slice, SourceFile
    from plmix_dist.store import RankingStore

# The column names that are understood without being told, by what they hold; the first is the one written.
COLUMN_NAMES: dict[str, tuple[str, ...]] = {
    "id": ("ranking", "ranking_id", "id", "ballot", "ballot_id"),
    "item": ("item", "item_id", "alternative", "candidate"),
    "rank": ("rank", "place", "position"),
    "weight": ("count", "weight"),
    "group": ("group", "person", "voter", "user"),
    "ordering": ("ordering", "ranking_order", "order"),
    "items": ("items", "ranking_items"),
    "unranked": ("unranked",),
}


@dataclass(frozen=True)
class ReadOptions:
    """How to read text and tables: the delimiter, and which column holds what."""

    delimiter: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def places(self) -> list[str] | None:
        """The columns that hold the places of a wide table, where the user named them."""
        named = self.columns.get("places")
        return None if named is None else [name.strip() for name in named.split(",")]


@dataclass(frozen=True)
class Format:
    """One way of writing rankings down.

    Parameters
    ----------
    name
        What users type after --format.
    suffixes
        File name endings that belong to it.
    read_header
        What the file says before its rows.
    slices
        Parts of the file that workers can read apart.
    read
        The rows of a slice, in batches.
    write
        Write a whole store to a target path.
    """

    name: str
    suffixes: tuple[str, ...]
    read_header: Callable[[SourceFile, ReadOptions], Header]
    slices: Callable[[SourceFile, Header, ReadOptions], list[Slice]]
    read: Callable[[Slice, ReadOptions], Iterator[RawRows]]
    write: Callable[[RankingStore, str], None]


def column_roles(columns: Sequence[str], options: ReadOptions, url: str) -> dict[str, int]:
    """Which column holds what, by name: a role may be named in the options or go by a usual name."""
    places = {name.strip().lower(): place for place, name in reversed(list(enumerate(columns)))}
    roles: dict[str, int] = {}
    for role, usual in COLUMN_NAMES.items():
        chosen = options.columns.get(role)
        if chosen is not None:
            if chosen.lower() not in places:
                raise IngestError(
                    f"{url}: there is no column {chosen!r} for the {role}; found: {', '.join(columns)}"
                )
            roles[role] = places[chosen.lower()]
            continue
        found = next((places[name] for name in usual if name in places), None)
        if found is not None and found not in roles.values():
            roles[role] = found
    return roles


def written_name(role: str) -> str:
    """The column name under which a role is exported."""
    return COLUMN_NAMES[role][0]


def parse_weight(text: Any) -> float:
    """A weight as a number; NaN, which no row may have, where it is none."""
    try:
        # Python reads 1_000 as a thousand; nobody else does.
        return float("nan") if "_" in str(text) else float(text)
    except (TypeError, ValueError):
        return float("nan")


def number_text(weight: float) -> str:
    """A weight as it is written: counts without a point, other numbers with all their digits."""
    return str(int(weight)) if float(weight).is_integer() else repr(float(weight))
