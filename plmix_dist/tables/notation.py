"""Orderings as text, such as `1 {2 3} | 4 5` or `tea > iced tea = mate`: ties, and unordered items after a bar."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from plmix_dist.errors import IngestError

_TOKEN = re.compile(r'"(?P<quoted>(?:[^"]|"")*)"|(?P<mark>[{}|])|(?P<plain>[^\s,>{}|"]+)|(?P<gap>[\s,>]+)')
_NEEDS_QUOTES = re.compile(r'[\s,;>{}|"]')
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_BRACES = re.compile(r"[{].*?[}]|[|].*")
_SECTION = re.compile(r'(?P<items>(?:"(?:[^"]|"")*"|[^"{}|])+)|(?P<mark>[{}|])')
# What divides items, by the sign that divides them in the file: outside braces, and within braces or after a bar.
_OUTSIDE = {signs[0]: re.compile(rf'((?:"(?:[^"]|"")*"|[^"{signs}])*)([{signs}]|$)') for signs in (">=", ",", ";")}
_WITHIN = re.compile(r'((?:"(?:[^"]|"")*"|[^",=])*)([,=]|$)')
_WORDS = re.compile(r'((?:"(?:[^"]|"")*"|[^"\s])*)(\s|$)')
_FORMULA = re.compile(r"['=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def divider_of(orderings: Iterable[str]) -> str | None:
    """The sign that divides the items of all orderings of a file: `>`, `;` or a comma; None if there are only blanks.

    Where a sign divides items, blanks belong to their names.
    """
    signs = {sign for text in orderings for sign in _BRACES.sub("", _QUOTED.sub("", text)) if sign in ">,;"}
    return next((sign for sign in ">;," if sign in signs), None)


def parse_ordering(text: str, divider: str | None = None) -> tuple[list[str], int, list[bool] | None]:
    """The listed items, how many of them are ordered, and which are tied with the item before.

    The `divider` is the sign between items (`divider_of`); if it is None, blanks, commas and `>` all divide items.
    """
    if divider is not None:
        return _parse_divided(text, divider)
    if not any(mark in text for mark in '{}|"'):
        words = text.replace(",", " ").replace(">", " ").split()
        return words, len(words), None
    parser = _Parser()
    for match in parser.parts(_TOKEN, text):
        if match["quoted"] is not None:
            parser.label(match["quoted"].replace('""', '"'))
        elif match["plain"] is not None:
            parser.label(match["plain"])
    return parser.result()


def _parse_divided(text: str, divider: str) -> tuple[list[str], int, list[bool] | None]:
    """An ordering whose items are divided by a sign, so that names may have blanks. `=` joins tied items beside `>`."""
    parser = _Parser()
    for match in parser.parts(_SECTION, text):
        section = match["items"]
        if parser.in_list:
            for name, _ in (_WITHIN if re.search("[,=]", _QUOTED.sub("", section)) else _WORDS).findall(section):
                parser.label_if_any(name)
            continue
        joined = False
        for name, sign in _OUTSIDE[divider].findall(section):
            if divider == ">" and "," in _QUOTED.sub("", name):
                raise IngestError(
                    f"{name.strip()!r} has a comma, but items are divided by '>': join tied items by '=', or put a "
                    "name with a comma in double quotes"
                )
            if (joined or sign == "=") and not name.strip():
                raise IngestError("'=' joins tied items, but one side of it is empty")
            parser.label_if_any(name, tied=joined)
            joined = sign == "="
    return parser.result()


class _Parser:
    """The state while an ordering is read: inside a tie or not, before the bar or after it."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.tied: list[bool] = []
        self.tie_start: int | None = None
        self.n_ordered: int | None = None
        self.marks = {"{": self.begin_tie, "}": self.end_tie, "|": self.begin_offered}

    def parts(self, pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
        """The parts of a text by a pattern; those that are marks change the state."""
        position = 0
        while position < len(text):
            if (match := pattern.match(text, position)) is None:
                raise IngestError(f"cannot read {text[position:]!r}: a quoted name does not end")
            position = match.end()
            if match["mark"] is None:
                yield match
            else:
                self.marks[match["mark"]]()

    @property
    def in_list(self) -> bool:
        """Whether items are listed without an order: within a tie, or after the bar."""
        return self.tie_start is not None or self.n_ordered is not None

    def label(self, label: str, *, tied: bool = False) -> None:
        self.tied.append(tied or (self.tie_start is not None and len(self.labels) > self.tie_start))
        self.labels.append(label)

    def label_if_any(self, text: str, *, tied: bool = False) -> None:
        """A label without blanks around it, out of its quotes. Nothing if there are only blanks."""
        name = text.strip()
        if _QUOTED.fullmatch(name):
            self.label(name[1:-1].replace('""', '"'), tied=tied)
        elif name:
            self.label(name, tied=tied)

    def begin_tie(self) -> None:
        if self.in_list:
            raise IngestError("a tie '{' begins inside another tie or after '|'")
        self.tie_start = len(self.labels)

    def end_tie(self) -> None:
        if self.tie_start is None or len(self.labels) == self.tie_start:
            raise IngestError("'}' without '{', or an empty tie")
        self.tie_start = None

    def begin_offered(self) -> None:
        if self.in_list:
            raise IngestError("'|' inside a tie, or a second '|'")
        self.n_ordered = len(self.labels)

    def result(self) -> tuple[list[str], int, list[bool] | None]:
        if self.tie_start is not None:
            raise IngestError("a tie '{' does not end")
        n_ordered = len(self.labels) if self.n_ordered is None else self.n_ordered
        return self.labels, n_ordered, self.tied if any(self.tied) else None


def format_ordering(labels: Sequence[str], n_ordered: int, tied: Sequence[bool] | None) -> str:
    """The text that `parse_ordering` reads."""
    words = [_quoted(label) for label in labels]
    if tied is not None and any(tied):
        ordered = tie_groups(words[:n_ordered], tied)
        words[:n_ordered] = [group[0] if len(group) == 1 else "{" + " ".join(group) + "}" for group in ordered]
        n_ordered = len(ordered)
    if n_ordered < len(words):
        words.insert(n_ordered, "|")
    return " ".join(words)


def tie_groups(words: Sequence[str], tied: Sequence[bool]) -> list[list[str]]:
    """Words in groups; each group holds words that are tied with each other."""
    groups: list[list[str]] = []
    for word, with_previous in zip(words, tied, strict=False):
        if with_previous and groups:
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def _quoted(label: str) -> str:
    """A label as one word of an ordering, in quotes if it needs them."""
    return '"' + label.replace('"', '""') + '"' if not label or _NEEDS_QUOTES.search(label) else label


def spreadsheet_safe(text: str) -> str:
    """Text that no spreadsheet reads as a formula: what looks like one gets an apostrophe in front."""
    return "'" + text if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def from_spreadsheet(text: str) -> str:
    """The text that `spreadsheet_safe` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text
