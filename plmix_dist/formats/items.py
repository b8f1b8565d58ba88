"""Names of items: their natural order, and which names are allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError, visible
from plmix_dist.formats.sources import decode, reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Names are stored exactly, whatever they hold. PrefLib has names of thousands of characters.
LONGEST_LABEL = 100_000
_LONGEST_SHOWN = 80


def natural_order(labels: Iterable[str]) -> list[str]:
    """Integers by value, then all other names in the order of their characters.

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
    """The names as a tuple; an error if one is not allowed or occurs twice, or if there are fewer than two.

    Examples
    --------
    >>> checked_names(["tea", "coffee"], "menu.csv")
    ('tea', 'coffee')
    >>> checked_names(["tea", "tea"], "menu.csv")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.IngestError: menu.csv: the item name 'tea' occurs twice
    """
    for name in names:
        if not isinstance(name, str):
            raise IngestError(f"{where}: an item name must be text, but is {name!r}")
        problem = label_problem(name)
        if problem is not None:
            raise IngestError(f"{where}: {problem}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise IngestError(f"{where}: the item name {shown(twice)} occurs twice")
    if len(names) < 2:
        raise IngestError(f"{where}: a ranking needs at least two items, but there are {len(names)}")
    return tuple(names)


def read_names(url: str) -> tuple[str, ...]:
    """Item names from a text file, one name per line.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "items.txt"
    >>> _ = path.write_bytes(b"tea" + bytes([10]) + b"coffee")
    >>> read_names(str(path))
    ('tea', 'coffee')
    """
    with reading(url) as file:
        names = [decode(raw, url, number).strip() for number, raw in enumerate(file, start=1)]
    return checked_names([name for name in names if name], url)


def shown(label: str) -> str:
    r"""A label for messages: quoted, control characters escaped, long labels cut.

    Examples
    --------
    >>> shown("tea\n")
    "'tea\\n'"
    """
    text = repr(label)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 4] + "...'"


def shown_plainly(label: str) -> str:
    r"""A label for messages and lists: not quoted, control characters escaped, long labels cut.

    Examples
    --------
    >>> shown_plainly("tea\x1b[31m"), len(shown_plainly("x" * 1000))
    ('tea\\x1b[31m', 80)
    """
    text = visible(label)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def shown_in_list(label: str) -> str:
    """A label as `shown_plainly` has it, in double quotes if it has a sign that divides or joins items in lists.

    Examples
    --------
    >>> shown_in_list("Lee Ann"), shown_in_list("Lee, Ann")
    ('Lee Ann', '"Lee, Ann"')
    """
    text = shown_plainly(label)
    return f'"{text}"' if any(sign in text for sign in ",>{}|") else text


def label_problem(label: str) -> str | None:
    """Why a label cannot be the name of an item; None if it can.

    Examples
    --------
    >>> label_problem("tea") is None, label_problem("")
    (True, 'an item has an empty name')
    """
    if not label:
        return "an item has an empty name"
    if len(label) > LONGEST_LABEL:
        return f"item name {shown(label)} is longer than {LONGEST_LABEL} characters"
    if "\n" in label:
        return f"item name {shown(label)} has a line break"
    return None
