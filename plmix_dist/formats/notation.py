"""Orderings as text, such as `1 {2 3} | 4 5`: ties in braces, unordered items after a bar."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOKEN = re.compile(r'"(?P<quoted>(?:[^"]|"")*)"|(?P<mark>[{}|])|(?P<plain>[^\s,>{}|"]+)|(?P<gap>[\s,>]+)')
_NEEDS_QUOTES = re.compile(r'[\s,>{}|"]')
_FORMULA = re.compile(r"['=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def parse_ordering(text: str) -> tuple[list[str], int, list[bool] | None]:
    """The listed items, how many of them are ordered, and which are tied with the item before.

    Examples
    --------
    >>> parse_ordering("3 {1 2} | 4")
    (['3', '1', '2', '4'], 3, [False, False, True, False])
    """
    if not any(mark in text for mark in '{}|"'):
        words = text.replace(",", " ").replace(">", " ").split()
        return words, len(words), None
    parser = _Parser()
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise IngestError(f"cannot read {text[position:]!r}: a quoted name does not end")
        position = match.end()
        if match["mark"] is not None:
            parser.marks[match["mark"]]()
        elif match["quoted"] is not None:
            parser.label(match["quoted"].replace('""', '"'))
        elif match["plain"] is not None:
            parser.label(match["plain"])
    return parser.result()


class _Parser:
    """The state while an ordering is read: inside a tie or not, before the bar or after it."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.tied: list[bool] = []
        self.tie_start: int | None = None
        self.n_ordered: int | None = None
        self.marks = {"{": self.begin_tie, "}": self.end_tie, "|": self.begin_offered}

    def label(self, label: str) -> None:
        self.tied.append(self.tie_start is not None and len(self.labels) > self.tie_start)
        self.labels.append(label)

    def begin_tie(self) -> None:
        if self.tie_start is not None or self.n_ordered is not None:
            raise IngestError("a tie '{' begins inside another tie or after '|'")
        self.tie_start = len(self.labels)

    def end_tie(self) -> None:
        if self.tie_start is None or len(self.labels) == self.tie_start:
            raise IngestError("'}' without '{', or an empty tie")
        self.tie_start = None

    def begin_offered(self) -> None:
        if self.tie_start is not None or self.n_ordered is not None:
            raise IngestError("'|' inside a tie, or a second '|'")
        self.n_ordered = len(self.labels)

    def result(self) -> tuple[list[str], int, list[bool] | None]:
        if self.tie_start is not None:
            raise IngestError("a tie '{' does not end")
        n_ordered = len(self.labels) if self.n_ordered is None else self.n_ordered
        return self.labels, n_ordered, self.tied if any(self.tied) else None


def format_ordering(labels: Sequence[str], n_ordered: int, tied: Sequence[bool] | None) -> str:
    """The text that `parse_ordering` reads.

    Examples
    --------
    >>> format_ordering(["3", "1", "2", "4"], 3, [False, False, True, False])
    '3 {1 2} | 4'
    """
    words = [quoted(label) for label in labels]
    if tied is not None and any(tied):
        ordered = tie_groups(words[:n_ordered], tied)
        words[:n_ordered] = [
            group[0] if len(group) == 1 else "{" + " ".join(group) + "}" for group in ordered
        ]
        n_ordered = len(ordered)
    if n_ordered < len(words):
        words.insert(n_ordered, "|")
    return " ".join(words)


def tie_groups(words: Sequence[str], tied: Sequence[bool]) -> list[list[str]]:
    """Words in groups; each group holds words that are tied with each other.

    Examples
    --------
    >>> tie_groups(["3", "1", "2"], [False, False, True])
    [['3'], ['1', '2']]
    """
    groups: list[list[str]] = []
    for word, with_previous in zip(words, tied, strict=False):
        if with_previous and groups:
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def quoted(label: str) -> str:
    """A label as one word of an ordering, in quotes if it needs them.

    Examples
    --------
    >>> quoted("tea"), quoted("iced tea")
    ('tea', '"iced tea"')
    """
    return '"' + label.replace('"', '""') + '"' if not label or _NEEDS_QUOTES.search(label) else label


def spreadsheet_safe(text: str) -> str:
    """Text that no spreadsheet reads as a formula: what looks like one gets an apostrophe in front.

    Examples
    --------
    >>> spreadsheet_safe("=cmd()"), spreadsheet_safe("-1"), spreadsheet_safe("tea")
    ("'=cmd()", '-1', 'tea')
    """
    return "'" + text if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def from_spreadsheet(text: str) -> str:
    """The text that `spreadsheet_safe` was given.

    Examples
    --------
    >>> from_spreadsheet("'=cmd()"), from_spreadsheet("tea")
    ('=cmd()', 'tea')
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text
