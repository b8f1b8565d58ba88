"""Texts of elections: `blt` (OpaVote, OpenSTV), `scottish` (council CSV), `votekit` (its profiles as CSV), `abif`."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from plmix_dist.errors import IngestError
from plmix_dist.tables.documents import Ballot, Document, document_syntax, read_text, unique_names
from plmix_dist.tables.encode import natural_order, shown
from plmix_dist.tables.format import Format
from plmix_dist.tables.sources import SourceFile
from plmix_dist.tables.words import parse_weight

_MOST_CANDIDATES = 100_000


def _count(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:9]) <= _MOST_CANDIDATES:
        raise IngestError(f"the number of {what} should be a whole number above 0, but is {shown(text)}")
    return int(text)


def _weight(text: str, what: str = "weight", least: float = 0.0, most: float = sys.float_info.max) -> float:
    number = parse_weight(text)
    if not least <= number <= most:
        raise IngestError(f"the {what} {shown(text)} is not a number")
    return number


# BLT: "candidates seats", options, ballots "weight first second ... 0", a 0, names in quotes. Line ends mean nothing.

_BLT_TOKEN = re.compile(
    r'"(?P<text>(?:[^"\\]|\\.)*)"|(?P<comment>\#[^\n]*|/\*.*?\*/)|\[(?P<option>[^\]]*)\]|(?P<word>[^\s"\[\#]+)|(?P<odd>\S)',
    re.DOTALL,
)
_BLT_BEGINS = re.compile(
    r"\s*(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+(?:\[[^\]]*\]\s*|-\d+\s+)*\S+(?:\s+\S+)*?\s+0\s*(?:#[^\n]*)?\n"
)


class _Word(NamedTuple):
    kind: str
    text: str
    line: int


class _Blt:
    """The words of a BLT file, in two passes: names stand behind the ballots that need them."""

    def __init__(self, url: str, text: str) -> None:
        self.url, self.text = url, text
        self.nicks: list[str] = []
        deque(self.ballots(), maxlen=0)  # to the names at the end

    def _words(self) -> Iterator[_Word]:
        line, done = 1, 0
        for found in _BLT_TOKEN.finditer(self.text):
            line += self.text.count("\n", done, found.start())
            done = found.start()
            kind = found.lastgroup or ""
            if kind == "odd":
                raise IngestError(f"{self.url}, line {line}: {found[0]!r} does not end, or begins nothing")
            if kind != "comment":
                yield _Word(kind, found[kind], line)
        yield _Word("end", "the end of the file", line)

    def ballots(self) -> Iterator[tuple[int, list[str]]]:
        """Line, and weight and entries, of each ballot; behind the last, the names of the candidates are read."""
        words = self._words()
        self.n_items = _count(next(words).text, "candidates (the first word)")
        _count(next(words).text, "seats (the second word)")
        self.withdrawn: list[str] = []
        self.names: list[str] = []
        for word in words:
            if word.kind == "option":
                self._option(word.text.split())
            elif re.fullmatch(r"-\d+", word.text) and word.kind == "word":
                self.withdrawn.append(word.text[1:])
            elif word.text == "0" and word.kind == "word":
                break
            else:
                yield self._entries(word, words)
        for word in words:
            if word.kind != "text" or len(self.names) == self.n_items:
                break
            self.names.append(word.text.replace('\\"', '"').strip())
        if len(self.names) < self.n_items:
            raise IngestError(
                f"the first line says {self.n_items} candidates, but {len(self.names)} names in quotes "
                "follow the ballots and their closing 0"
            )

    def _option(self, words: list[str]) -> None:
        if words[:1] == ["nick"]:
            self.nicks = words[1:]
            if len(self.nicks) != self.n_items:
                raise IngestError(f"[nick] has {len(self.nicks)} names for {self.n_items} candidates")
        elif words[:1] == ["withdrawn"]:
            self.withdrawn += words[1:]

    def _entries(self, first: _Word, words: Iterator[_Word]) -> tuple[int, list[str]]:
        entries = [first.text]
        if first.kind != "word" or first.text.startswith("("):
            raise IngestError(
                f"{self.url}, line {first.line}: a ballot should begin with its weight, but begins with "
                f"{shown(first.text)}; ids of ballots in parentheses are not read, remove them"
            )
        for word in words:
            if word.kind != "word":
                raise IngestError(f"{self.url}, line {first.line}: the ballot has no 0 at its end")
            if word.text == "0":
                break
            entries.append(word.text)
        return first.line, entries


def _parse_blt(file: SourceFile, choices: Mapping[str, str]) -> Document:
    blt = _Blt(file.url, read_text(file.url))
    names = unique_names(blt.names)
    by_label = {str(number): name for number, name in enumerate(names, start=1)}
    by_label |= dict(zip(blt.nicks, names, strict=False))
    gone = [_named(label, by_label, "withdrawn: ") for label in blt.withdrawn]
    out = set(gone) if choices.get("withdrawn") == "drop" else set()

    def read(_: int, cells: Sequence[str]) -> Ballot:
        groups = [[_named(label, by_label) for label in entry.split("=")] for entry in cells[1:] if entry != "-"]
        kept = [[name for name in group if name not in out] for group in groups]
        return Ballot([group for group in kept if group], _weight(cells[0]))

    how = "taken out" if out else "kept as ranked (else say --rule withdrawn=drop)"
    notes = (f"withdrawn candidates are {how}: {', '.join(gone)}",) if gone else ()
    return Document([name for name in names if name not in out], blt.ballots(), read, notes, divider=" ")


def _named(label: str, names: Mapping[str, str], where: str = "") -> str:
    if label not in names:
        raise IngestError(f"{where}{shown(label)} is not one of the candidates")
    return names[label]


BLT = Format(
    name="blt",
    about="ballots of OpaVote and OpenSTV: candidates by number, 0 ends a ballot",
    example="3 1\n12 2 1 0",
    suffixes=(".blt",),
    choices={"withdrawn": ("keep", "drop")},
    syntax=document_syntax(_parse_blt, lambda head: bool(_BLT_BEGINS.match(head)) and '"' in head),
)


# Scottish councils: "candidates,seats,", "count,i,j,...,", then "Candidate i","Name","Party", and the ward.

_SCOTTISH_LINE = re.compile(r'\d+(?:,\d+)*,?|"?Candidate \d+.*|"[^"]*",?|,*', re.IGNORECASE)


def _begins_scottish(head: str) -> bool:
    whole, lines = head.endswith("\n") or len(head) < HEAD_CHARACTERS, head.splitlines()
    lines = [line.strip() for line in (lines if whole else lines[:-1]) if line.strip()]
    if not lines or not re.fullmatch(r"\d+,\d+,?", lines[0]) or not all(map(_SCOTTISH_LINE.fullmatch, lines)):
        return False
    named = any(line.lower().lstrip('"').startswith("candidate ") for line in lines)
    return named or (len(head) >= HEAD_CHARACTERS and all(line.endswith(",") for line in lines))


# Formats look at this many characters of a file to recognise it.
HEAD_CHARACTERS = 1 << 16


def _parse_scottish(file: SourceFile, _: Mapping[str, str]) -> Document:
    rows = [
        (line, [cell.strip() for cell in row])
        for line, row in enumerate(_csv_rows(file.url), start=1)
        if any(cell.strip() for cell in row)
    ]
    if not rows:
        raise IngestError(f"{file.url} is empty")
    n_items = _count(rows[0][1][0], "candidates (the first cell)")
    named = [row for _, row in rows[1:] if row[0].lower().startswith("candidate ")]
    if len(named) != n_items or any(len(row) < 2 or not row[1] for row in named):
        raise IngestError(
            f"the first row says {n_items} candidates, but {len(named)} rows name one "
            '("Candidate 1","Name",...); correct the file'
        )
    numbers = [row[0].split()[-1] for row in named]
    names = dict(zip(numbers, unique_names([row[1] for row in named]), strict=True))
    if set(numbers) != {str(number + 1) for number in range(n_items)}:
        raise IngestError(f"the candidates should be numbered from 1 to {n_items}, but are {numbers[:9]}")

    def read(_: int, row: Sequence[str]) -> Ballot:
        cells = row[1:] if row[-1] else row[1:-1]
        return Ballot([[_named(cell, names)] for cell in cells], _weight(row[0]))

    ballots = [(line, row) for line, row in rows[1:] if row[0].isdigit()]
    other = [row for _, row in rows[1:] if not row[0].isdigit() and row not in named]
    if len(other) > 1:
        raise IngestError(f"the row {','.join(other[0])!r} is neither a ballot nor a candidate")
    return Document([names[str(number + 1)] for number in range(n_items)], ballots, read)


def _csv_rows(url: str) -> list[list[str]]:
    try:
        return [row or [""] for row in csv.reader(io.StringIO(read_text(url), newline=""), skipinitialspace=True)]
    except csv.Error as error:
        raise IngestError(str(error)) from None


SCOTTISH = Format(
    name="scottish",
    about="council elections of Scotland: counts and candidates by number",
    example="3,1,\n12,2,1,",
    syntax=document_syntax(_parse_scottish, _begins_scottish),
)


# VoteKit: its name, candidates as (name:code) or (name:type:code), a line of =, a header, and cells such as {'A', 'B'}.

_VOTEKIT_BEGINS = "VoteKit "
_CODE = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s{},'"][^{},]*)""")


def _parse_votekit(file: SourceFile, _: Mapping[str, str]) -> Document:
    rows = _csv_rows(file.url)
    kind = rows[0][0].strip()
    start = next((number for number, row in enumerate(rows) if set(row) == {"="}), None)
    if kind not in ("VoteKit RankProfile", "VoteKit ScoreProfile") or start is None or start + 1 >= len(rows):
        raise IngestError("this is neither a RankProfile nor a ScoreProfile as VoteKit writes it")
    names = _votekit_names(rows[2], has_types=rows[0][1:2] == ["v2"])
    columns = rows[start + 1]
    width = columns.index("&") if "&" in columns else 0
    places = {code: number for number, code in enumerate(columns[:width])}
    if kind.endswith("ScoreProfile") and set(places) != set(names):
        raise IngestError(f"the columns {', '.join(places)} are not the candidates {', '.join(names)}")

    def read(_: int, row: Sequence[str]) -> Ballot:
        if len(row) < width + 3 or row[width] != "&" or row[width + 2] != "&":
            raise IngestError(f"expected {width} cells, '&', a weight and '&'")
        try:
            weight = float(Fraction(row[width + 1].strip()))
        except (ValueError, ZeroDivisionError):
            raise IngestError(f"the weight {shown(row[width + 1])} is not a number") from None
        if kind.endswith("RankProfile"):
            found = [[next(filter(None, code), "") for code in _CODE.findall(cell)] for cell in row[:width]]
            return Ballot([[_named(code, names) for code in group] for group in found if group], weight)
        cells = {names[code]: row[place] for code, place in places.items() if row[place].strip()}
        scores = {name: _weight(cell, "score", -math.inf, math.inf) for name, cell in cells.items()}
        return Ballot(_groups_by_score(scores), weight)

    ballots = [(line, row) for line, row in enumerate(rows[start + 2 :], start=start + 3) if any(row)]
    scored = kind.endswith("ScoreProfile")
    notes = ("scores, of which the highest is the best; equal scores tie",) if scored else ()
    return Document(unique_names(list(names.values())), ballots, read, notes, "absent" if scored else "below")


def _votekit_names(cells: Sequence[str], *, has_types: bool) -> dict[str, str]:
    """The name of each code. A name may have colons and parentheses, a code may not."""
    names = {}
    for cell in cells:
        parts = cell.strip().removeprefix("(").removesuffix(")").rsplit(":", 2 if has_types else 1)
        if len(parts) < 2 + has_types:
            raise IngestError(f"a candidate should be (name:code), but is {shown(cell)}")
        names[parts[-1].strip()] = parts[0].strip()
    return names


def _groups_by_score(scores: Mapping[str, float]) -> list[list[str]]:
    """Names by score, the highest first; equal ones tie."""
    order = sorted(set(scores.values()), reverse=True)
    return [[name for name, score in scores.items() if score == best] for best in order]


VOTEKIT = Format(
    name="votekit",
    about="profiles that VoteKit wrote",
    example="VoteKit RankProfile,v2\n{'Tea'},{'Mate'},&,12.0,&",
    syntax=document_syntax(_parse_votekit, lambda head: head.startswith(_VOTEKIT_BEGINS)),
)


# ABIF: "count:A>B=C", scores as A/5, "=code:[Full name]", "{key: value}", "# comment".

_ABIF_BALLOT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*:(.*)")
_ABIF_NAME = re.compile(
    r'\s*=\s*(?:\[(?P<a>[^\]]*)\]|(?P<b>[^:\[\]]+?))\s*:\s*(?:\[(?P<c>.*)\]|"(?P<d>.*)"|(?P<e>.*?))\s*'
)
_ABIF_ITEM = re.compile(
    r'\s*(?:\[(?P<a>[^\]]*)\]|"(?P<b>[^"]*)"|(?P<c>[^\[\]"/>=,]+?))\s*(?:/\s*(?P<score>-?\d+(?:\.\d+)?)\s*)?(?P<sign>[>=,]|$)'
)


def _abif_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, without comments and metadata."""
    for number, raw in enumerate(text.split("\n"), start=1):
        line = re.sub(r"(?:^|\s)#.*", "", raw).strip()
        if line and not line.startswith("{"):
            yield number, line


def _begins_abif(head: str) -> bool:
    lines = [line for _, line in _abif_lines(head if len(head) < HEAD_CHARACTERS else head.rpartition("\n")[0])]
    ballots = [line for line in lines if _ABIF_BALLOT.fullmatch(line)]
    others = [line for line in lines if line not in ballots and not line.startswith("=")]
    preflib = re.match(r"#\s*(?:FILE NAME|TITLE|DATA TYPE)\s*:", head)
    return bool(ballots) and not others and not preflib and any(re.search("[>=/]", line) for line in ballots)


def _parse_abif(file: SourceFile, _: Mapping[str, str]) -> Document:
    names: dict[str, str] = {}
    lines: list[tuple[int, str]] = []
    ballots: dict[int, Ballot] = {}
    for number, line in _abif_lines(read_text(file.url)):
        if not _ABIF_BALLOT.fullmatch(line) and (named := _ABIF_NAME.fullmatch(line)):
            code = (named["a"] or named["b"]).strip()
            names[code] = (named["c"] or named["d"] or named["e"] or code).strip()
            continue
        lines.append((number, line))
        with contextlib.suppress(IngestError):  # which is raised again when the line is read
            ballots[number] = _abif_ballot(line)
    codes = {code for ballot in ballots.values() for group in ballot.order for code in group}
    full = dict(zip(names, unique_names(list(names.values())), strict=True))
    full |= {code: code for code in natural_order(codes - set(full) - set(full.values()))}

    def read(number: int, line: str) -> Ballot:
        order, weight = ballots.get(number) or _abif_ballot(line)
        return Ballot([[full.get(code, code) for code in group] for group in order], weight)

    return Document(list(full.values()), lines, read)


def _abif_ballot(line: str) -> Ballot:
    if (ballot := _ABIF_BALLOT.fullmatch(line)) is None:
        raise IngestError(f"expected 'count:ranking', but got {shown(line)}")
    weight, text = ballot[1], ballot[2]
    order: list[list[str]] = []
    scores: list[tuple[str, float | None]] = []
    position, sign, signs = 0, ">", set()
    while position < len(text.rstrip()):
        if (found := _ABIF_ITEM.match(text, position)) is None:
            raise IngestError(f"cannot read {shown(text[position:])}; expected items such as A>B=C or A/5,B/4")
        name = (found["a"] or found["b"] or found["c"]).strip()
        scores.append((name, None if found["score"] is None else float(found["score"])))
        if sign == ">":
            order.append([])
        order[-1].append(name)
        position, sign = found.end(), found["sign"]
        signs.add(sign)
    if sign and text.strip():
        raise IngestError(f"nothing follows the last {sign!r}")
    if "," in signs:
        return Ballot(_by_scores(scores, signs), _weight(weight))
    place = {name: number for number, group in enumerate(order) for name in group}
    known = sorted((place[name], score) for name, score in scores if score is not None)
    if any(after > before for (_, before), (_, after) in itertools.pairwise(known)):
        raise IngestError("the scores contradict the order by '>'")
    return Ballot(order, _weight(weight))


def _by_scores(scores: Sequence[tuple[str, float | None]], signs: set[str]) -> list[list[str]]:
    """The order of items between commas, which their scores alone say. An item without a score is below all others."""
    if ">" in signs or all(score is None for _, score in scores):
        raise IngestError("commas do not say an order: give each item a score, as in A/5,B/4, or write A>B=C")
    return _groups_by_score({name: float("-inf") if score is None else score for name, score in scores})


ABIF = Format(
    name="abif",
    about="ballots with > and =, after their count",
    example="12:Tea>Mate=Milk\n3:Milk>Tea",
    suffixes=(".abif",),
    syntax=document_syntax(_parse_abif, _begins_abif),
)
