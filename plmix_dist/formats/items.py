"""Names of items: their natural order, and what may be a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError
from plmix_dist.formats.sources import decode, open_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LONGEST_LABEL = 500


def natural_order(labels: Iterable[str]) -> list[str]:
    """Whole numbers by value, then all other names by their letters.

    Examples
    --------
    >>> natural_order(["10", "tea", "9", "ale"])
    ['9', '10', 'ale', 'tea']
    """
    numbers: list[str] = []
    words: list[str] = []
    for label in labels:
        (numbers if label.isascii() and label.removeprefix("-").isdigit() else words).append(label)
    return sorted(numbers, key=lambda label: (int(label), label)) + sorted(words)


def checked_names(names: Sequence[str], where: str) -> tuple[str, ...]:
    """Names that may stand for items, each once; an error that says which may not."""
    for name in names:
        problem = label_problem(name)
        if problem is not None:
            raise IngestError(f"{where}: {problem}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise IngestError(f"{where}: the item name {shown(twice)} stands there twice")
    if len(names) < 2:
        raise IngestError(f"{where}: a ranking needs at least two items, but there are {len(names)}")
    return tuple(names)


def read_names(url: str) -> tuple[str, ...]:
    """Item names from a text file, one a line."""
    try:
        file = open_bytes(url)
    except OSError as error:
        raise IngestError(
            f"the names of the items cannot be read from {url}: {error.strerror or error}"
        ) from error
    with file:
        names = [decode(raw, url, number).strip() for number, raw in enumerate(file, start=1)]
    return checked_names([name for name in names if name], url)


def shown(label: str) -> str:
    """A label for messages: quoted, control characters made visible, long ones cut."""
    text = repr(label)
    return text if len(text) <= 80 else text[:76] + "...'"


def label_problem(label: str) -> str | None:
    """Why a label cannot be the name of an item, or None where it can."""
    if not label:
        return "an item has an empty name"
    if len(label) > LONGEST_LABEL:
        return f"item name {shown(label)} is longer than {LONGEST_LABEL} characters"
    if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in label):
        return f"item name {shown(label)} has control characters"
    return None
