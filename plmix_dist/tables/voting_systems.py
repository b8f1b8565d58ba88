"""Cast vote records as voting systems write them: `dominion` (JSON), `nist` (SP 1500-103, JSON or XML), `hart` (XML).

Each gives ballots with marks, (rank, name); the rules of cvr.py make rankings of them.
"""

from __future__ import annotations

import itertools
import json
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from plmix_dist.errors import IngestError
from plmix_dist.tables import cvr
from plmix_dist.tables.by_row import blank_rows
from plmix_dist.tables.documents import read_bytes, read_xml, unique_names
from plmix_dist.tables.format import Format, ReadOptions, Syntax
from plmix_dist.tables.rows import BATCH_ROWS, Failure, RawRows, integers_if_all
from plmix_dist.tables.sources import Header, Slice, SourceFile

_SLICE_BYTES = 1 << 24
_MOST_RANKS = 1000
# The condition of a contest that does not count, in OutstackConditionIds.
_INVALID_CONTEST = 7


class _Marked(NamedTuple):
    """A ballot in one contest: its marks as rank, from 1, and name; or the reason why it does not count."""

    id: str
    marks: Sequence[tuple[int, str]] = ()
    reason: str = ""


class _Contest(NamedTuple):
    """A contest with ranks: its key in the records, its candidates if the files name them, its number of ballots."""

    key: str
    names: Sequence[str] | None
    n_ballots: int


def _syntax(
    contests: Callable[[Sequence[str]], Mapping[str, _Contest]],
    ballots: Callable[[str, str], Iterable[_Marked]],
    begins: Callable[[str], bool],
) -> Syntax:
    """How the files of a voting system are read: its ranked `contests`, and the `ballots` of a file in one of them."""

    def read_header(file: SourceFile, options: ReadOptions) -> Header:
        if not (found := contests(file.parts)):
            raise IngestError("these are votes without ranks, so they give no rankings")
        name = cvr.chosen_contest({name: f"{one.n_ballots:,} ballots" for name, one in found.items()}, options.choices)
        rules = cvr.rules_of(options.choices)
        names = found[name].names
        return Header(
            item_names=None if names is None else tuple(dict.fromkeys(_items(names, rules))),
            unranked="below",
            container="json",
            guesses=(f"contest {name!r}, {found[name].n_ballots:,} ballots", cvr.in_words(rules)),
            metadata={"rules": rules, "contest": found[name].key, "names": names, "choices": dict(options.choices)},
        )

    def read(part: Slice) -> Iterator[RawRows]:
        known = part.header.metadata
        marked = (one for url in part.file.parts[part.start : part.stop] for one in ballots(url, known["contest"]))
        first = part.first_line
        while some := list(itertools.islice(marked, BATCH_ROWS)):
            yield _rows(some, known["rules"], first)
            first += len(some)

    return Syntax(read_header, _slices, read, begins)


def _slices(file: SourceFile, header: Header) -> list[Slice]:
    """Runs of files of about _SLICE_BYTES together."""
    n_files = len(file.parts)
    step = max(1, n_files * _SLICE_BYTES // max(1, file.size))
    return [Slice(file, header, start, min(start + step, n_files), start + 1) for start in range(0, n_files, step)]


def _items(names: Iterable[str], rules: Mapping[str, str]) -> list[str]:
    """The names that are items under the rule for write-ins."""
    kept = [name for name in names if not (rules["writein"] == "skip" and cvr.is_write_in(name))]
    return [cvr.WRITE_IN if rules["writein"] == "join" and cvr.is_write_in(name) else name for name in kept]


def _rows(ballots: Sequence[_Marked], rules: Mapping[str, str], first: int) -> RawRows:
    """The rankings of some ballots. Those that do not count are listed with the reason."""
    numbers: dict[str, int] = {}
    n_ranks = max((rank for ballot in ballots for rank, _ in ballot.marks if rank <= _MOST_RANKS), default=1)
    cells = np.full((len(ballots), n_ranks), cvr.SKIPPED, np.int32)
    failures: dict[int, Failure] = {}
    for row, ballot in enumerate(ballots):
        if ballot.reason:
            failures[row] = Failure(first + row, "not-counted", f"ballot {ballot.id}: {ballot.reason}", wrong=False)
        for rank, name in ballot.marks:
            if not 1 <= rank <= _MOST_RANKS:
                failures[row] = Failure(first + row, "bad-rank", f"ballot {ballot.id}: {rank} is not a rank")
                continue
            for item in _items([name], rules):
                code = numbers.setdefault(item, len(numbers))
                cells[row, rank - 1] = code if cells[row, rank - 1] in (cvr.SKIPPED, code) else cvr.OVERVOTE
    listed = cvr.listed_ballots(cells, list(numbers), rules)
    lines = np.arange(first, first + len(ballots))
    rows = RawRows(*listed[:4], lines=lines, ids=np.array([ballot.id for ballot in ballots], object))
    rows = rows.without(failures | blank_rows(listed, lines, failures))
    rows.ids = np.asarray(integers_if_all([str(label) for label in rows.ids]))  # type: ignore[union-attr]
    return rows


def _json(url: str) -> Any:
    try:
        return json.loads(read_bytes(url).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise IngestError(f"{url} cannot be read as JSON: {error}") from None


def _each(node: Any, key: str) -> list[Any]:
    """All that a record has under a name, of which JSON may have one or a list, and XML a list."""
    found = node.get(key) if isinstance(node, dict) else None
    return found if isinstance(found, list) else [] if found is None else [found]


def _first(node: Any, key: str) -> Any:
    return next(iter(_each(node, key)), None)


def _whole(value: Any) -> int:
    """A rank; 0, which is never one, for what is not a number."""
    text = str(value).removesuffix(".0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0


# Dominion: CvrExport*.json, with ContestManifest.json and CandidateManifest.json in the same folder.


def _manifest(part: str, kind: str) -> list[dict[str, Any]]:
    folder = part.rpartition("/")[0]
    return _each(_json(f"{folder}/{kind}Manifest.json" if folder else f"{kind}Manifest.json"), "List")


def _dominion_sessions(url: str) -> Iterator[tuple[str, list[Any] | None]]:
    """The id and the contests of each session; None if they are redacted."""
    for session in _each(_json(url), "Sessions"):
        label = "-".join(str(session.get(key, "")) for key in ("TabulatorId", "BatchId", "RecordId"))
        original = session.get("Original") or {}
        votes = original if original.get("IsCurrent", True) else session.get("Modified") or original
        lists = [card.get("Contests", []) for card in (_each(votes, "Cards") or [votes])]
        redacted = any(not isinstance(contests, list) for contests in lists)
        yield label, None if redacted else [contest for contests in lists for contest in contests]


def _dominion_contests(parts: Sequence[str]) -> dict[str, _Contest]:
    sessions = (contests for part in parts for _, contests in _dominion_sessions(part))
    times = Counter(str(contest.get("Id")) for contests in sessions for contest in contests or ())
    candidates = _manifest(parts[0], "Candidate")
    return {
        str(one["Description"]).strip(): _Contest(key, [*_dominion_names(candidates, key).values()], times[key])
        for one in _manifest(parts[0], "Contest")
        if int(one.get("NumOfRanks") or 0) > 1 and times[key := str(one["Id"])]
    }


def _dominion_names(candidates: Sequence[Mapping[str, Any]], contest: str) -> dict[str, str]:
    own = [one for one in candidates if str(one.get("ContestId")) == contest]
    names = unique_names([str(one["Description"]).strip() for one in own])
    return {str(one["Id"]): name for one, name in zip(own, names, strict=True)}


def _dominion_ballots(url: str, contest: str) -> Iterator[_Marked]:
    names = _dominion_names(_manifest(url, "Candidate"), contest)
    for label, contests in _dominion_sessions(url):
        if contests is None:
            yield _Marked(label, reason="its contests are redacted")
        for one in contests or ():
            if str(one.get("Id")) != contest:
                continue
            if _INVALID_CONTEST in _each(one, "OutstackConditionIds"):
                yield _Marked(label, reason="the contest is invalid on this ballot")
                continue
            marks = [mark for mark in _each(one, "Marks") if not mark.get("IsAmbiguous")]
            yield _Marked(label, [(_whole(mark.get("Rank")), _known(mark, names, url)) for mark in marks])


def _known(mark: Mapping[str, Any], names: Mapping[str, str], url: str) -> str:
    key = str(mark.get("CandidateId"))
    if key not in names:
        raise IngestError(f"{url}: candidate {key} is not in CandidateManifest.json")
    return names[key]


DOMINION = Format(
    name="dominion",
    about="folders of Dominion JSON, with their manifests",
    example="CandidateManifest.json\nCvrExport.json",
    choices=cvr.CONTEST_AND_RULES,
    syntax=_syntax(
        _dominion_contests, _dominion_ballots, lambda head: '"Sessions"' in head and '"TabulatorId"' in head
    ),
)


# NIST SP 1500-103: CVR/CVRSnapshot/CVRContest/CVRContestSelection/SelectionPosition, names in Election.


def _nist_report(url: str) -> Any:
    if read_bytes(url)[:64].removeprefix(BOM_UTF8).lstrip().startswith(b"<"):
        return _first(read_xml(url), "CastVoteRecordReport")
    return _json(url)


def _words(value: Any) -> str:
    """The text of a name, which may be in Text or Content."""
    if isinstance(value, dict):
        return _words(value.get("Text") or value.get("Content") or "")
    if isinstance(value, list):
        return _words(value[0]) if value else ""
    return " ".join(str(value).split())


def _text(node: Any, key: str) -> str:
    return _words(_first(node, key) or "")


def _nist_marks(report: Any) -> Iterator[tuple[str, str, list[tuple[int, str, bool]]]]:
    """Ballot, contest and marks (rank, selection, whether it is a write-in) of every contest of every ballot."""
    for number, record in enumerate(_each(report, "CVR"), start=1):
        label = _words(_first(record, "BallotPrePrintedId") or _first(record, "UniqueId") or number)
        snapshots = _each(record, "CVRSnapshot")
        current = _text(record, "CurrentSnapshotId")
        for contest in _each(next((one for one in snapshots if one.get("@id") == current), None), "CVRContest"):
            marks = []
            for selection in _each(contest, "CVRContestSelection"):
                for position in _each(selection, "SelectionPosition"):
                    if "no" in (_text(position, "HasIndication"), _text(position, "IsAllocable")):
                        continue
                    rank = _first(position, "Rank") or _first(selection, "Rank")
                    written = _first(position, "CVRWriteIn") is not None
                    marks.append((0 if rank is None else _whole(rank), _text(selection, "ContestSelectionId"), written))
            yield label, _text(contest, "ContestId"), marks


def _nist_names(report: Any, contest: str) -> dict[str, str]:
    """The name of each selection of a contest."""
    elections = _each(report, "Election")
    candidates = {one.get("@id"): _words(one.get("Name", "")) for node in elections for one in _each(node, "Candidate")}
    names = {}
    for one in (one for node in elections for one in _each(node, "Contest") if one.get("@id") == contest):
        for selection in _each(one, "ContestSelection"):
            ids = [key for text in _each(selection, "CandidateIds") for key in str(text).split()]
            written = str(_first(selection, "IsWriteIn")).lower() == "true" and not ids
            name = cvr.WRITE_IN if written else " / ".join(candidates.get(key, key) for key in ids)
            names[selection.get("@id")] = name or str(selection.get("@id"))
    return dict(zip(names, unique_names(list(names.values())), strict=True))


def _nist_contests(parts: Sequence[str]) -> dict[str, _Contest]:
    times, ranked = Counter[str](), set()
    titles: dict[str, str] = {}
    names: dict[str, dict[str, str]] = {}
    for part in parts:
        report = _nist_report(part)
        for _, contest, marks in _nist_marks(report):
            times[contest] += 1
            ranked |= {contest} if any(rank for rank, _, _ in marks) else set()
        for node in (one for election in _each(report, "Election") for one in _each(election, "Contest")):
            titles[node.get("@id")] = _words(node.get("Name", ""))
        names |= {contest: _nist_names(report, contest) for contest in ranked}
    keys = sorted(ranked)
    return {
        name: _Contest(key, list(names[key].values()) or None, times[key])
        for key, name in zip(keys, unique_names([titles.get(key) or key for key in keys]), strict=True)
    }


def _nist_ballots(url: str, contest: str) -> Iterator[_Marked]:
    report = _nist_report(url)
    names = _nist_names(report, contest)
    for label, found, marks in _nist_marks(report):
        if found == contest:
            yield _Marked(label, [(rank, names.get(key, cvr.WRITE_IN if new else key)) for rank, key, new in marks])


NIST = Format(
    name="nist",
    about="NIST SP 1500-103 as JSON or XML",
    example='{"@type": "CVR.CastVoteRecordReport",\n"CVR": [{"CVRSnapshot": [{"CVRContest": [...',
    choices=cvr.CONTEST_AND_RULES,
    syntax=_syntax(
        _nist_contests, _nist_ballots, lambda head: "CastVoteRecordReport" in head or '"CVRSnapshot"' in head
    ),
)


# Hart Verity: one XML file per ballot; the Value of an option has one digit per rank.


def _hart_contests_of(url: str) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """The ballot, the name of each of its contests, and their options as name and value."""
    record = _first(read_xml(url), "Cvr")
    label = _words(_first(record, "CvrGuid") or url.rpartition("/")[2])
    for contest in _each(_first(record, "Contests"), "Contest"):
        options = _each(_first(contest, "Options"), "Option")
        named = [(_text(one, "Name") or cvr.WRITE_IN, _text(one, "Value")) for one in options]
        yield label, _text(contest, "Name"), named


def _hart_contests(parts: Sequence[str]) -> dict[str, _Contest]:
    times, ranked = Counter[str](), set()
    for part in parts:
        for _, name, options in _hart_contests_of(part):
            times[name] += 1
            ranked |= {name} if any(len(value) > 1 for _, value in options) else set()
    return {name: _Contest(name, None, times[name]) for name in sorted(ranked)}


def _hart_ballots(url: str, contest: str) -> Iterator[_Marked]:
    for label, name, options in _hart_contests_of(url):
        if name == contest:
            marks = [(rank, option) for option, value in options for rank, d in enumerate(value, start=1) if d == "1"]
            yield _Marked(label, marks)


HART = Format(
    name="hart",
    about="folders of Hart XML, one file per ballot",
    example="<Cvr><Contests><Contest>\n<Name>Mayor</Name>",
    choices=cvr.CONTEST_AND_RULES,
    syntax=_syntax(_hart_contests, _hart_ballots, lambda head: "CVRDesign.xsd" in head),
)
