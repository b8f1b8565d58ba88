"""The format `cvr`: tables of cast vote records, and the rules by which a ballot becomes a ranking.

Every layout gives one array (ballots, ranks) of candidates, in which SKIPPED and OVERVOTE are marks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from plmix_dist.errors import IngestError
from plmix_dist.tables.by_row import Listed, label_columns, rows_of
from plmix_dist.tables.encode import shown
from plmix_dist.tables.format import Batch, Format, ReadOptions, Table
from plmix_dist.tables.long import REQUIRED, LongLines, read_long
from plmix_dist.tables.outsiders import refuse_covariates
from plmix_dist.tables.rows import RawRows
from plmix_dist.tables.sniff import is_number
from plmix_dist.tables.sources import Header
from plmix_dist.tables.words import place_number, rank_in

# What a file of votes cannot say, in words. The first of each is the default.
_RULES = {
    "overvote": {"end": "an overvote ends the ballot", "skip": "an overvote is left out"},
    "repeated": {"first": "a repeated candidate counts once", "end": "a repeated candidate ends the ballot"},
    "skipped": {
        "close": "skipped ranks are closed up",
        "end": "a skipped rank ends the ballot",
        "1": "two skipped ranks in a row end the ballot",
        "2": "three skipped ranks in a row end the ballot",
    },
    "writein": {
        "keep": "write-ins are kept as items",
        "join": "write-ins are one item",
        "skip": "write-ins are left out as skipped ranks",
    },
}
CONTEST_AND_RULES: dict[str, tuple[str, ...]] = {"contest": ()} | {name: (*said,) for name, said in _RULES.items()}
SKIPPED, OVERVOTE = -1, -2
WRITE_IN = "Write-in"
_WRITTEN_IN: dict[str, str | int] = {"skip": SKIPPED, "join": WRITE_IN}
_SKIPPED_WORDS = {"skipped", "skip", "under", "undervote", "undervoted", "blank", "nomark", "xxx"}
_NO_MARK = {"", "nan", "na", "n/a", "none", "null", "--", "-"}
_OVERVOTE_WORDS = {"over", "overvote", "overvoted"}
_WRITE_IN = re.compile(r"(?<![a-z])write[\s_-]*ins?(?![a-z])", re.IGNORECASE)
_TWO_NAMES = re.compile(r"[^|=\s][^|=]*[|=][^|=]*[^|=\s]")
# A ballot with one of these faults shows that this is not a plain table of places.
_FEWEST_FAULTS = 0.05
_MOST_RANKS = 1000


def rules_of(choices: Mapping[str, str]) -> dict[str, str]:
    """Every rule with its value."""
    return {name: choices.get(name, next(iter(values))) for name, values in _RULES.items()}


def in_words(rules: Mapping[str, str]) -> str:
    """The rules as a sentence for the user."""
    said = ", ".join(values[rules[name]] for name, values in _RULES.items())
    others = ", ".join(f"{name}={value}" for name, values in _RULES.items() for value in values if value != rules[name])
    return f"cast vote records: {said} (else say --rule with one of {others})"


def _mark_or_name(cell: str, rules: Mapping[str, str]) -> str | int:
    """What a cell means: SKIPPED, OVERVOTE, or a name; write-ins as the rule has it."""
    word = re.sub(r"[\s_-]+", "", cell.lower())
    if cell.strip().lower() in _NO_MARK or word in _SKIPPED_WORDS:
        return SKIPPED
    if word in _OVERVOTE_WORDS or cell.strip() == "++" or _TWO_NAMES.fullmatch(cell):
        return OVERVOTE
    return _WRITTEN_IN.get(rules["writein"], cell.strip()) if is_write_in(cell) else cell.strip()


def is_write_in(name: str) -> bool:
    """Whether a name stands for candidates that are not on the ballot."""
    return bool(_WRITE_IN.search(name)) or name.strip().lower() in ("uwi", "undeclared", "(undeclared)")


def listed_ballots(
    cells: NDArray[np.int32], names: Sequence[str], rules: Mapping[str, str], bad: Mapping[int, str] | None = None
) -> Listed:
    """The rankings of ballots: `cells` (n_ballots, n_ranks) are indices into `names`, SKIPPED or OVERVOTE."""
    n_ranks = cells.shape[1]
    repeated = np.zeros(cells.shape, np.bool_)
    for rank in range(1, n_ranks):
        repeated[:, rank] = (cells[:, :rank] == cells[:, rank : rank + 1]).any(axis=1)
    repeated &= cells >= 0
    ends = np.zeros(cells.shape, np.bool_)
    if rules["overvote"] == "end":
        ends |= cells == OVERVOTE
    if rules["repeated"] == "end":
        ends |= repeated
    if rules["skipped"] != "close":
        in_a_row = 1 if rules["skipped"] == "end" else int(rules["skipped"]) + 1
        skipped = cells == SKIPPED
        for rank in range(in_a_row - 1, n_ranks):
            ends[:, rank] |= skipped[:, rank - in_a_row + 1 : rank + 1].all(axis=1)
    listed = (cells >= 0) & ~repeated & ~np.logical_or.accumulate(ends, axis=1)
    return Listed(
        labels=pa.DictionaryArray.from_arrays(pa.array(cells[listed]), pa.array(list(names), pa.string())),
        n_listed=np.count_nonzero(listed, axis=1).astype(np.int64),
        bad=bad or {},
        blank_is_bad=False,
    )


# Layouts: which columns there are, and the cells of a batch of ballots.

_NUMBERED = re.compile(
    r"(?P<before>.*?)(?<![a-z])(?:rank|ranking|choice|preference|pref|vote|r)[ _.#-]*(?P<rank>\d+)(?!\d)(?P<after>.*)",
    re.IGNORECASE,
)
_ORDINAL = re.compile(
    r"(?P<before>.*?)(?<![a-z0-9])(?P<rank>\d+(?=st|nd|rd|th|[ _.-])|first|second|third|fourth|fifth|sixth)"
    r"(?:st|nd|rd|th)?[ _.-]*(?:rank|choice|preference|pref)(?![a-z])(?P<after>.*)",
    re.IGNORECASE,
)
_CLEAR_BALLOT = re.compile(
    r"Choice_\d+_\d+:(?P<contest>.*):(?P<rank>\d+):(?:Vote For|Number of Winners) ?\d+:(?P<name>.*?)(?::[^:]*)?"
)
_ABOUT_BALLOTS = re.compile(
    r".*(?:precinct|ballot|batch|tabulator|cvr|ward|county|district|style|response).*", re.IGNORECASE
)


def _contest_and_rank(name: str) -> tuple[str, int] | None:
    """The contest and the rank that the name of a column says; the contest is empty if there is one only."""
    if (found := _ORDINAL.fullmatch(name.strip()) or _NUMBERED.fullmatch(name.strip())) is None:
        return None
    number = int(found["rank"]) if found["rank"].isdigit() else int(place_number(found["rank"]) or 0)
    return " ".join(re.sub(r"\(\d+\)", " ", f"{found['before']} {found['after']}").split()).strip(" _-:,."), number


def chosen_contest(contests: Mapping[str, Any], choices: Mapping[str, str]) -> str:
    """The contest that the user named, or the only one; an error that lists them, each with what is known of it."""
    listing = "; ".join(f"{name} ({about})" if isinstance(about, str) else name for name, about in contests.items())
    if (wanted := choices.get("contest")) is None:
        if len(contests) == 1:
            return next(iter(contests))
        raise IngestError(f"there are {len(contests)} contests, so say --contest NAME with one of: {listing}")
    same = [name for name in contests if name.casefold() == wanted.strip().casefold()]
    same = same or [name for name in contests if wanted.strip().casefold() in name.casefold()]
    if len(same) != 1:
        raise IngestError(f"{len(same) or 'no'} contests are called {shown(wanted)}; there are: {listing}")
    return same[0]


def _recognise(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table in one of the layouts of cast vote records; without the name of the format, one that shows it."""
    rules = rules_of(options.choices)
    for layout in (_clear_ballot, _rank_columns, _long, _candidate_columns):
        if (found := layout(table, options, rules, named)) is not None:
            return replace(found, unranked="below").with_guess(in_words(rules))
    if named:
        raise IngestError(
            f"no column is named as a rank of a ballot (rank1, 1st choice), no three columns hold ballot, "
            f"rank and choice, and no columns hold ranks of candidates; found: {', '.join(table.columns)}"
        )
    return None


def _with_layout(table: Table, rules: Mapping[str, str], layout: str, **what: Any) -> Table:
    return replace(table, metadata={"rules": dict(rules) | {"layout": layout} | what})


def _clear_ballot(table: Table, options: ReadOptions, rules: Mapping[str, str], named: bool) -> Table | None:
    """Clear Ballot: one column of 0 and 1 per rank and candidate."""
    del named
    found = {place: _CLEAR_BALLOT.fullmatch(name) for place, name in enumerate(table.columns)}
    if not (columns := {place: match for place, match in found.items() if match is not None}):
        return None
    pairs = dict.fromkeys((match["contest"], match["rank"]) for match in columns.values())
    ranks = Counter(contest for contest, _ in pairs)
    if not (contests := {name: f"{n_ranks} ranks" for name, n_ranks in ranks.items() if n_ranks > 1}):
        raise IngestError("no contest has more than one rank, so these are votes and not rankings")
    contest = chosen_contest(contests, options.choices)
    own = {place: match for place, match in columns.items() if match["contest"] == contest}
    names = list(dict.fromkeys(_candidates([match["name"] for match in own.values()], rules)))
    places = {place: (int(match["rank"]), _mark_or_name(match["name"], rules)) for place, match in own.items()}
    return _with_layout(replace(table, item_names=tuple(names)), rules, "marks", places=places, names=names).with_guess(
        f"contest {contest!r}"
    )


def _candidates(names: Iterable[str], rules: Mapping[str, str]) -> list[str]:
    """The names that are items under the rules."""
    return [name for name in (_mark_or_name(name, rules) for name in names) if isinstance(name, str)]


def _rank_columns(table: Table, options: ReadOptions, rules: Mapping[str, str], named: bool) -> Table | None:
    """One column per rank, which holds names and marks."""
    contests: dict[str, dict[int, int]] = {}
    for place in table.values:
        number = place_number(table.columns[place]) if named else None
        found = _contest_and_rank(table.columns[place])
        found = ("", int(number)) if found is None and number is not None and np.isfinite(number) else found
        if found is not None:
            contests.setdefault(found[0], {}).setdefault(found[1], place)
    contests = {name: ranks for name, ranks in contests.items() if len(ranks) > 1}
    if options.places:
        contests = {"": dict(enumerate(map(table.columns.index, options.places)))} if named else {}
    if not contests or not (named or _shows_ballots(table, contests)):
        return None
    contest = chosen_contest({name: f"{len(ranks)} ranks" for name, ranks in contests.items()}, options.choices)
    places = [place for _, place in sorted(contests[contest].items())]
    items = _candidates({cell for place in places for cell in table.cells(place)}, rules)
    if not named and items and all(map(is_number, items)):
        return None
    return _with_layout(table, rules, "ranks", places=places).with_guess(f"contest {contest!r}" if contest else None)


def _shows_ballots(table: Table, contests: Mapping[str, Mapping[int, int]]) -> bool:
    """Whether cells of rank columns have marks of ballots, or many rows skip a rank or repeat a candidate."""
    for ranks in contests.values():
        rows = table.rows([place for _, place in sorted(ranks.items())])
        n_faults = 0
        for row in rows:
            if any(_is_mark(cell) for cell in row):
                return True
            listed = [cell.strip() for cell in row if cell.strip().lower() not in _NO_MARK]
            torn = any(not cell.strip() for cell in row[: len(listed)])
            n_faults += bool(listed) and (torn or len(set(listed)) < len(listed))
        if n_faults > _FEWEST_FAULTS * len(rows):
            return True
    return False


def _is_mark(cell: str) -> bool:
    """Whether a word is one that only ballots have."""
    word = re.sub(r"[\s_-]+", "", cell.lower())
    return word in _SKIPPED_WORDS | _OVERVOTE_WORDS or cell.strip() in ("--", "++") or is_write_in(cell)


def _long(table: Table, options: ReadOptions, rules: Mapping[str, str], named: bool) -> Table | None:
    """One row per ballot and rank, with ballot, rank and choice."""
    del options
    if any(role not in table.roles for role in REQUIRED):
        return None
    if not named and not any(_is_mark(cell) for cell in table.cells(table.roles["item"])):
        return None
    roles = {role: place for role, place in table.roles.items() if role != "group"}
    return _with_layout(replace(table, roles=roles), rules, "long")


def _candidate_columns(table: Table, options: ReadOptions, rules: Mapping[str, str], named: bool) -> Table | None:
    """One column per candidate, which holds the rank. Columns about the ballot are left out."""
    del options
    about = [place for place in table.values if _ABOUT_BALLOTS.fullmatch(table.columns[place])]
    text = [place for place in table.values if any(c and rank_in(c) is None for c in table.cells(place))]
    columns = [place for place in table.values if place not in {*about, *text}]
    shows = about or any(is_write_in(table.columns[place]) for place in columns)
    if len(columns) < 2 or not (named or (shows and set(text) <= set(about))):
        return None
    table = replace(table, ignored=tuple({*table.ignored, *about, *text}))
    about_items = tuple("candidate" if is_write_in(name) else name for name in table.columns)
    refuse_covariates(replace(table, columns=about_items))
    names = [_mark_or_name(table.columns[place], {**rules, "writein": "keep"}) for place in columns]
    skips = rules["writein"] == "skip"
    kept = tuple(name for name in names if isinstance(name, str) and not (skips and is_write_in(name)))
    places = {place: name for place, name in zip(columns, names, strict=True) if name in kept}
    return _with_layout(replace(table, item_names=kept), rules, "candidates", places=places, names=list(kept))


def _cells_of_ranks(batch: Batch, rules: Mapping[str, Any]) -> tuple[NDArray[np.int32], list[str], dict[int, str]]:
    numbers: dict[str, int] = {}

    def code(cell: str) -> int:
        found = _mark_or_name(cell, rules)
        return found if isinstance(found, int) else numbers.setdefault(found, len(numbers))

    columns = [batch.columns[place].mapped(code, np.int32) for place in rules["places"]]
    return np.column_stack(columns), list(numbers), {}


def _cells_of_marks(batch: Batch, rules: Mapping[str, Any]) -> tuple[NDArray[np.int32], list[str], dict[int, str]]:
    """Columns of 0 and 1, one per rank and candidate."""
    names = rules["names"]
    cells = np.full((batch.n_rows, max(rank for rank, _ in rules["places"].values())), SKIPPED, np.int32)
    bad: dict[int, str] = {}
    for place, (rank, name) in rules["places"].items():
        column = batch.columns[place]
        marked = column.mapped(lambda cell: _FLAGS.get(cell, -1), np.int8)
        bad |= {row: f"{column[row]!r} is neither 0 nor 1" for row in np.flatnonzero(marked < 0).tolist()}
        _mark(cells, np.flatnonzero(marked == 1), rank - 1, names.index(name) if name in names else SKIPPED)
    return cells, names, bad


_FLAGS = {"1": 1, "1.0": 1, "0": 0, "0.0": 0, "": 0}


def _mark(cells: NDArray[np.int32], rows: NDArray[np.int64], rank: int | NDArray[np.int64], code: int) -> None:
    """Put a candidate at a rank of some ballots; where another one is, that is an overvote."""
    there = cells[rows, rank]
    cells[rows, rank] = np.where((there == SKIPPED) | (there == code), code, OVERVOTE)


def _cells_of_candidates(batch: Batch, rules: Mapping[str, Any]) -> tuple[NDArray[np.int32], list[str], dict[int, str]]:
    """Columns of ranks, one per candidate."""
    found = np.column_stack([batch.columns[place].mapped(_rank_or_zero, np.float64) for place in rules["places"]])
    n_ranks = min(float(found.max(initial=1.0)), 4.0 * max(found.shape[1], 2))  # ranks may have gaps
    cells = np.full((batch.n_rows, int(n_ranks)), SKIPPED, np.int32)
    bad: dict[int, str] = {}
    for number, place in enumerate(rules["places"]):
        ranks = found[:, number]
        odd = np.flatnonzero((ranks != np.floor(ranks)) | (ranks > cells.shape[1]))
        bad |= {row: f"the rank {batch.columns[place][row]!r} is not a rank" for row in odd.tolist()}
        rows = np.setdiff1d(np.flatnonzero(ranks > 0), odd)
        _mark(cells, rows, ranks[rows].astype(np.int64) - 1, number)
    return cells, list(rules["places"].values()), bad


def _rank_or_zero(cell: str) -> float:
    if cell.strip().lower() in _NO_MARK or cell == "0":
        return 0.0
    rank = rank_in(cell)
    return 0.5 if rank is None else rank


def _listed_of_lines(lines: LongLines, row: NDArray[np.int64], rules: Mapping[str, Any]) -> Listed:
    """The ballots of lines with rank and choice."""
    items = lines.items if pa.types.is_dictionary(lines.items.type) else lines.items.dictionary_encode()
    numbers: dict[str, int] = {}
    codes = []
    for cell in items.dictionary.to_pylist():
        found = _mark_or_name("" if cell is None else str(cell), rules)
        codes.append(found if isinstance(found, int) else numbers.setdefault(found, len(numbers)))
    code = np.array([*codes, SKIPPED], np.int32)[np.asarray(items.indices.fill_null(len(codes)))]
    order, rank = np.unique(lines.ranks, return_inverse=True)
    if len(order) > _MOST_RANKS:
        raise IngestError(f"there are more than {_MOST_RANKS} different ranks, so these are not ranks of ballots")
    cells = np.full((int(row[-1]) + 1 if len(row) else 0, max(1, len(order))), SKIPPED, np.int32)
    marked = np.flatnonzero((code != SKIPPED) & ~np.isnan(lines.ranks))
    cells[row[marked], rank[marked]] = code[marked]
    clash = marked[cells[row[marked], rank[marked]] != code[marked]]
    cells[row[clash], rank[clash]] = OVERVOTE
    return listed_ballots(cells, list(numbers), rules)


_CELLS: dict[str, Callable[..., tuple[NDArray[np.int32], list[str], dict[int, str]]]] = {
    "ranks": _cells_of_ranks,
    "marks": _cells_of_marks,
    "candidates": _cells_of_candidates,
}


def _read(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
    rules = header.metadata["rules"]
    if rules["layout"] == "long":
        yield from read_long(batches, header, partial(_listed_of_lines, rules=rules))
        return
    for batch in batches:
        cells, names, bad = _CELLS[rules["layout"]](batch, rules)
        yield rows_of(batch, header, listed_ballots(cells, names, rules, bad))


def _wanted(header: Header) -> list[int]:
    rules = header.metadata["rules"]
    own = [header.roles[role] for role in ("item", "rank")] if rules["layout"] == "long" else [*rules["places"]]
    return [*label_columns(header), *own]


CVR = Format(
    name="cvr",
    about="cast vote records: a column per rank or per candidate, with marks",
    example="rank1,rank2,rank3\nTea,skipped,Mate",
    recognise=_recognise,
    read=_read,
    wanted=_wanted,
    roles={
        "item": ("choice", "candidate", "candidate_name", "vote", "item"),
        "rank": ("rank", "ranking", "position", "place", "preference"),
        "id": (
            *("cast vote record", "ballot #", "ballot id", "ballotid", "cvr id", "cvr", "cvrnumber", "cvr number"),
            *("id_col", "response id", "responseid", "record id", "recordid", "cvrid", "ballot_no", "ballotnumber"),
        ),
    },
    consecutive=lambda header: header.metadata["rules"]["layout"] == "long",
    choices=CONTEST_AND_RULES,
)
