"""Format: what a file format must provide. A new format is one such value in one file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from plmix_dist.formats.raw_rows import RawRows
    from plmix_dist.formats.sources import Header, Slice, SourceFile
    from plmix_dist.store import RankingStore

# Column names that are recognised for each role. Export writes the first.
COLUMN_NAMES: dict[str, tuple[str, ...]] = {
    "id": (
        "ranking",
        "ranking_id",
        "id",
        "ballot",
        "ballot_id",
        "respondent",
        "respondent_id",
        "participant_id",
    ),
    "item": ("item", "item_id", "itemid", "item_name", "alternative", "candidate", "movieid", "product_id"),
    "rank": ("rank", "place", "position"),
    "weight": ("count", "weight", "counts", "weights", "freq", "frequency"),
    "group": ("group", "person", "voter", "user", "person_id", "voter_id", "user_id", "userid"),
    "ordering": ("ordering", "ranking_order", "order"),
    "items": ("items", "ranking_items"),
    "unranked": ("unranked",),
}


@dataclass(frozen=True)
class ReadOptions:
    """How to read text and tables: the delimiter, the column name of each role, whether the first line is a header.

    What is None is found out from the data.

    Examples
    --------
    >>> ReadOptions(delimiter=";", columns={"id": "ballot", "places": "first, second"}).places
    ['first', 'second']
    """

    delimiter: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    header: bool | None = None

    def as_settings(self) -> dict[str, object]:
        """The options as part of the settings of a run. A header that is None is left out, as it always was.

        Examples
        --------
        >>> ReadOptions().as_settings()
        {'columns': {}, 'delimiter': None}
        """
        settings: dict[str, object] = {"columns": dict(self.columns), "delimiter": self.delimiter}
        return settings if self.header is None else settings | {"header": self.header}

    @property
    def column_names(self) -> list[str]:
        """All columns that the user named."""
        named = [name for role, name in self.columns.items() if role != "places"]
        return named + (self.places or [])

    @property
    def places(self) -> list[str] | None:
        """The columns of the places of a wide table, if the user named them."""
        named = self.columns.get("places")
        return None if named is None else [name.strip() for name in named.split(",")]


@dataclass(frozen=True)
class Format:
    """A file format of rankings.

    Parameters
    ----------
    name
        The value of --format.
    suffixes
        Its file name endings.
    read_header
        Reads what the file says before its rows.
    slices
        Cuts the file into slices that workers can read independently.
    read
        Reads the rows of a slice, in batches.
    write
        Writes a whole store to a target path.

    Examples
    --------
    >>> from plmix_dist.formats import FORMATS
    >>> FORMATS["parquet"].suffixes
    ('.parquet', '.pq')
    """

    name: str
    suffixes: tuple[str, ...]
    read_header: Callable[[SourceFile, ReadOptions], Header]
    slices: Callable[[SourceFile, Header, ReadOptions], list[Slice]]
    read: Callable[[Slice, ReadOptions], Iterator[RawRows]]
    write: Callable[[RankingStore, str], None]


def column_roles(columns: Sequence[str], options: ReadOptions, url: str) -> dict[str, int]:
    """The number of the column of each role, by the names in the options or by usual names.

    A column that the options name has no other role by its usual name.

    Examples
    --------
    >>> column_roles(["ballot", "choice", "rank"], ReadOptions(columns={"item": "choice"}), "votes.csv")
    {'id': 0, 'item': 1, 'rank': 2}
    """
    places = {name.strip().lower(): place for place, name in reversed(list(enumerate(columns)))}
    named = {places.get(name.lower()) for name in options.column_names}
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
        found = next((places[name] for name in usual if name in places and places[name] not in named), None)
        if found is not None and found not in roles.values():
            roles[role] = found
    return roles


def written_name(role: str) -> str:
    """The column name of a role in exported files.

    Examples
    --------
    >>> written_name("weight")
    'count'
    """
    return COLUMN_NAMES[role][0]


def parse_weight(text: str | float | None) -> float:
    """A weight as a number, or NaN if it is not a number. Rows with NaN are rejected later.

    Examples
    --------
    >>> parse_weight("2.5"), parse_weight("two")
    (2.5, nan)
    """
    try:
        # float() reads "1_000" as a thousand, which other tools do not.
        return float("nan") if text is None or "_" in str(text) else float(text)
    except (TypeError, ValueError):
        return float("nan")


def decimal_hint(text: str) -> str:
    """What to do about a number with a decimal comma; empty for other text.

    Examples
    --------
    >>> decimal_hint("1,5"), decimal_hint("one")
    ('; write a decimal point', '')
    """
    return "; write a decimal point" if "," in text and text.replace(",", "", 1).isdigit() else ""


def number_text(weight: float) -> str:
    """A weight as text: counts without a decimal point, other numbers with all their digits.

    Examples
    --------
    >>> number_text(3.0), number_text(0.1)
    ('3', '0.1')
    """
    return str(int(weight)) if float(weight).is_integer() else repr(float(weight))
