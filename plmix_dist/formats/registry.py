"""All formats, and how the format of a file is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError, SettingsError
from plmix_dist.formats.long import LONG
from plmix_dist.formats.orderings import ORDERINGS
from plmix_dist.formats.parquet import PARQUET
from plmix_dist.formats.preflib import PREFLIB
from plmix_dist.formats.ranks import RANKS
from plmix_dist.formats.sniffing import sniff
from plmix_dist.formats.wide import WIDE
from plmix_dist.values import nearest, shown

if TYPE_CHECKING:
    from plmix_dist.formats.format import Format, ReadOptions
    from plmix_dist.formats.sources import Header, SourceFile

FORMATS: dict[str, Format] = {entry.name: entry for entry in (PREFLIB, ORDERINGS, WIDE, RANKS, LONG, PARQUET)}


def format_named(name: str) -> Format:
    """The format with this name.

    Examples
    --------
    >>> format_named("preflib").suffixes
    ('.soc', '.soi', '.toc', '.toi')
    """
    if name == "ratings":
        raise SettingsError("ratings have a function of their own: plmix_dist.ingest_ratings(source, store)")
    if not isinstance(name, str) or name not in FORMATS:
        raise SettingsError(
            f"there is no format {shown(name, str)}; choose one of auto, {', '.join(FORMATS)}"
            f"{nearest(name, (*FORMATS,))}"
        )
    return FORMATS[name]


_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")


def detect(file: SourceFile, options: ReadOptions) -> tuple[Format, Header]:
    r"""The format of a file, by its suffix and, for delimited text, by its first lines; and its header.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from plmix_dist.formats.format import ReadOptions
    >>> from plmix_dist.formats.sources import find
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("first,second\ntea,mate\n")
    >>> found, header = detect(find(str(path)), ReadOptions())
    >>> found.name, header.columns
    ('wide', ('first', 'second'))
    """
    candidates = [entry for entry in FORMATS.values() if file.name.lower().endswith(entry.suffixes)]
    if file.name.lower().endswith(_SPREADSHEETS):
        raise IngestError(
            f"{file.url} is a spreadsheet; save it as CSV (Save as ..., CSV UTF-8) and read that file"
        )
    if not candidates:
        known = sorted({suffix for entry in FORMATS.values() for suffix in entry.suffixes})
        raise IngestError(
            f"{file.url}: the format is not known from the name ({', '.join(known)}); name it with --format"
        )
    if len(candidates) == 1:
        return candidates[0], candidates[0].read_header(file, options)
    layout = sniff(file, options)
    return FORMATS[layout.format], layout.header


def format_of_target(target: str, name: str) -> Format:
    """The format of a target: by name, or for "auto" by the target's suffix (text becomes orderings).

    Examples
    --------
    >>> format_of_target("votes.csv", "auto").name, format_of_target("votes.csv", "wide").name
    ('orderings', 'wide')
    """
    if name != "auto":
        return format_named(name)
    plain = target.lower().removesuffix(".gz")
    for entry in FORMATS.values():
        if plain.endswith(entry.suffixes):
            return entry
    raise SettingsError(
        f"{target}: the format is not known from the name; name it with --format {'|'.join(FORMATS)}"
    )
