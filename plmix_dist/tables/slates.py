"""The formats `choices` and `results`: what was chosen of what was on offer, and who finished a race in which place.

Both are read as long tables are, one row per item; what has no rank was on offer, below all that have one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from plmix_dist.errors import IngestError
from plmix_dist.tables.by_row import row_by_row
from plmix_dist.tables.format import Batch, Column, Format, ReadOptions, Table, by_names, missing_columns
from plmix_dist.tables.long import Ranked, read_long
from plmix_dist.tables.places import MOST, column_option
from plmix_dist.tables.rows import Failure, RawRows
from plmix_dist.tables.sniff import is_number, kind_of
from plmix_dist.tables.sources import Condition, Header
from plmix_dist.tables.words import MISSING, names_in, rank_in

_FLAGS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True, "f": False, "t": True}
_CASES = names_in(
    "case chid choice_id choiceid idcase case_id caseid obs_id obsid observation record_id srch_id search_id "
    "choice_set set_id task task_id question question_id situation occasion session_id id"
)
_ALTERNATIVES = names_in("alternative alt item item_id prop_id product_id option alt_id altid brand")
_CHOSEN = names_in("chosen choice purchase purchased booking_bool selected bought is_chosen depvar")
_CONSIDERED = ("considered", "click_bool", "clicked", "click")
_PERSONS = names_in("person person_id individual consumer_id respondent_id user_id indiv id")
_OFFERED = names_in("offered options slate alternatives choice_set shown available")
_DIVIDERS = re.compile(r"\s*[|;,]\s*")
_AVAILABLE = re.compile(r"(?P<after>.+?)[_. ](?:av|avail|available|availability)|(?:av|avail)[_. ](?P<before>.+)", re.I)


# Choices: one row per alternative.


def _recognise_choices(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table in which one row of several with one case is marked as chosen; or the offered ones are in one column."""
    roles = dict(table.roles)
    if "offered" in roles and "chosen" in roles and roles["chosen"] not in table.lists:
        kept: dict[str, int] = {r: roles[r] for r in ("offered", "chosen", "group", "weight") if r in roles}
        if named or _are_offered(table, kept):
            return replace(table, roles=kept, unranked="absent")
    flags = [role for role in ("chosen", "considered") if role in roles and _are_flags(table.cells(roles[role]))]
    if not flags:
        if (wide := _with_availability(table, roles)) is None and named:
            raise IngestError(
                "no column marks each row as chosen (1) or not (0): name it with --column chosen=NAME, "
                "with 0 in empty cells; if it names what was chosen, add a column per alternative that says whether "
                "it was on offer (1) or not (0), such as tea_av"
            )
        return wide
    chosen = roles[flags[0]]
    cases = [roles["case"]] if "case" in options.columns else _places(table, _CASES)
    others = [place for place in cases if place != chosen]
    fitting = [place for place in others if _one_of_each(table, place, chosen)]
    if (case := next(iter(fitting or [place for place in others if _is_slate(table, place)]), None)) is None:
        _refuse_scattered(table, cases, chosen)
        if named:
            raise missing_columns(table, ["case"])
        return None
    item = _item_of(table, options, case, [roles[role] for role in flags])
    found = {"id": case, "item": item, "rank": chosen}
    found |= {"considered": roles["considered"]} if flags == ["chosen", "considered"] else {}
    found |= {"weight": roles["weight"]} if "weight" in options.columns else {}
    found |= _person(table, options, found["id"], {*found.values()})
    table = replace(table, roles=found, unranked="absent")
    names = [table.columns[found[role]] for role in ("id", "item", "rank")]
    table = table.with_guess(
        f"rows with one {names[0]!r} are a choice among {names[1]!r}, and {names[2]!r} marks the chosen"
    )
    if "considered" in found:
        table = table.with_guess(f"what {table.columns[found['considered']]!r} marks comes next, then all others")
    if kind_of(table.cells(item)) == "whole" and len(set(table.cells(item))) <= 9:
        table = table.with_guess(
            f"{names[1]!r} holds numbers: if these are positions, what stands there may differ by row"
        )
    return table


def _refuse_scattered(table: Table, cases: Sequence[int], chosen: int) -> None:
    """An error if rows with one case do not stand together."""
    if again := [place for place in cases if 2 * len(set(table.cells(place))) <= len(table.cells(place))]:
        name = table.columns[again[0]]
        raise IngestError(
            f"{table.columns[chosen]!r} marks what was chosen, but rows with one {name!r} do not stand "
            f"together, or not one of them is chosen: sort the file by {name!r}, or say --column case=NAME"
        )


def _places(table: Table, names: Sequence[str]) -> list[int]:
    lower = [name.strip().lower() for name in table.columns]
    return [lower.index(name) for name in names if name in lower and lower.index(name) not in table.ignored]


def _are_flags(cells: Sequence[str]) -> bool:
    return {cell.lower() for cell in cells} <= _FLAGS.keys() and len({_FLAGS[cell.lower()] for cell in cells}) == 2


def _runs(table: Table, place: int) -> list[list[int]]:
    """The numbers of consecutive rows with equal cells. The last run, which may go on, is left out."""
    cells = table.cells(place)
    runs = [list(run) for _, run in groupby(range(len(cells)), key=cells.__getitem__)]
    return runs[:-1] if len(runs) > 1 else runs


def _is_slate(table: Table, place: int) -> bool:
    runs = _runs(table, place)
    return table.columns[place].lower() != "id" and sum(len(run) > 1 for run in runs) >= MOST * len(runs)


def _one_of_each(table: Table, place: int, chosen: int) -> bool:
    """Whether most runs of equal cells have several rows, of which one is chosen."""
    runs, cells = _runs(table, place), table.cells(chosen)
    times = [sum(_FLAGS[cells[row].lower()] for row in run) for run in runs if len(run) > 1]
    return bool(times) and 2 * len(times) > len(runs) and times.count(1) >= MOST * len(times)


def _item_of(table: Table, options: ReadOptions, case: int, taken: Sequence[int]) -> int:
    """The column of alternatives: by its name, or the only text that differs in all rows of a case."""
    if "item" in options.columns:
        return table.roles["item"]
    if named := [place for place in _places(table, _ALTERNATIVES) if place not in (case, *taken)]:
        return named[0]
    free = set(range(len(table.columns))) - {case, *taken, *table.ignored, *table.lists}
    texts = {place: cells for place in sorted(free) if kind_of(cells := table.cells(place)) == "text"}
    runs = _runs(table, case)
    found = [at for at, cells in texts.items() if all(len({cells[row] for row in run}) == len(run) for run in runs)]
    if len(found) != 1:
        which = " or ".join(column_option("item", table.columns[place]) for place in found) or "--column item=NAME"
        raise IngestError(f"which column names the alternatives of a choice? Say {which}")
    return found[0]


def _person(table: Table, options: ReadOptions, case: int, taken: set[int]) -> dict[str, int]:
    """The column of persons, if persons have several rows, which stand together."""
    if "group" in options.columns:
        return {"group": table.roles["group"]}
    for place in _places(table, _PERSONS):
        runs, n_cases = _runs(table, place), len(_runs(table, case))
        distinct = len({table.cells(place)[run[0]] for run in runs})
        if place not in taken and distinct == len(runs) and distinct < n_cases:
            return {"group": place}
    return {}


def _with_availability(table: Table, roles: Mapping[str, int]) -> Table | None:
    """A table with what was chosen in each row, by name, and for each alternative a column of whether it was on offer.

    An error if numbers say what was chosen: their order is not in the file.
    """
    found = {place: _AVAILABLE.fullmatch(name.strip()) for place, name in enumerate(table.columns)}
    names = {place: match["after"] or match["before"] for place, match in found.items() if match is not None}
    if (place := roles.get("chosen")) is None or len(names) < 2:
        return None
    column, listed = table.columns[place], ", ".join(names.values())
    cells = {cell for cell in table.cells(place) if cell not in MISSING}
    odd = sorted(cells - set(names.values()))
    if cells and all(map(is_number, cells)):
        raise IngestError(
            f"{column!r} holds numbers ({', '.join(sorted(cells)[:4])}), and nothing says which of "
            f"{listed} each is: write their names instead"
        )
    if odd:
        raise IngestError(
            f"{column!r} says that {odd[0]!r} was chosen, but the columns of what was available are for "
            f"{listed}: write the same names, capitals included"
        )
    kept = {role: roles[role] for role in ("chosen", "group", "weight") if role in roles}
    kept |= {f"available {name}": at for at, name in names.items()}
    said = f"{column!r} says what was chosen of what the columns of availability offer: {listed}"
    return replace(table, roles=kept, unranked="absent").with_guess(said)


def _chosen(columns: Mapping[str, Column]) -> Ranked:
    """The ranks of alternatives: 1 if chosen, 2 if considered, and none if only on offer."""
    ranks = np.full(len(columns["rank"].codes), np.nan)
    bad: dict[int, tuple[str, str]] = {}
    for role, rank in (("considered", 2.0), ("rank", 1.0)):
        if role in columns:
            flags = columns[role].mapped(lambda text: _FLAGS.get(text.lower(), -1), np.int64)
            ranks[flags > 0] = rank
            for row in np.flatnonzero(flags < 0).tolist():
                said = f"{columns[role][row]!r} says neither that an item was chosen nor that it was not"
                bad.setdefault(row, ("bad-choice", said))
    return ranks, bad


def _read_choices(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
    if "id" not in header.roles:
        yield from _BY_ROW(batches, header)
        return
    for rows in read_long(batches, header, ranks=_chosen):
        none = np.flatnonzero((rows.n_listed if rows.n_ordered is None else rows.n_ordered) == 0).tolist()
        yield rows.without(
            {row: Failure(int(rows.lines[row]), "no-choice", "nothing was chosen", wrong=False) for row in none}
        )


def _are_offered(table: Table, roles: Mapping[str, int]) -> bool:
    if roles["offered"] in table.lists:
        return True
    pairs = zip(table.cells(roles["chosen"]), table.cells(roles["offered"]), strict=True)
    return all(chosen in _DIVIDERS.split(offered) for chosen, offered in pairs)


def _one_choice(cells: dict[str, str]) -> tuple[list[str], int, list[bool] | None]:
    if "offered" in cells:
        offered = _DIVIDERS.split(cells["offered"].strip("[](){} ").replace("'", "").replace('"', ""))
    else:
        said = {role.removeprefix("available "): cell for role, cell in cells.items() if role.startswith("available ")}
        if (odd := next((cell for cell in said.values() if cell.lower() not in _FLAGS), None)) is not None:
            raise IngestError(f"{odd!r} says neither that an item was available nor that it was not")
        offered = [item for item, cell in said.items() if _FLAGS[cell.lower()]]
    if cells["chosen"] not in offered:
        raise IngestError(f"{cells['chosen']!r} was chosen, but was not on offer ({', '.join(offered)})")
    return [cells["chosen"], *(item for item in offered if item != cells["chosen"])], 1, None


_BY_ROW = row_by_row(_one_choice)

CHOICES = Format(
    name="choices",
    recognise=_recognise_choices,
    read=_read_choices,
    about="one row per alternative of a choice, with a column that marks the chosen; or all that was on offer in one",
    example="case,alternative,chosen\n1,tea,1",
    roles={"case": (), "item": (), "chosen": _CHOSEN, "considered": _CONSIDERED, "offered": _OFFERED},
    consecutive=lambda header: "id" in header.roles,
    takes_features=True,
    takes_persons=True,
)


# Results of races.

_EVENTS = names_in("event race race_id raceid track grand_prix gp heat meeting stage competition tournament regatta")
_COMPETITORS = names_in(
    "competitor driver driver_id driverid athlete rider runner horse swimmer skier sailor crew boat cyclist "
    "player team name"
)
_POSITIONS = names_in("position pos place finish finishing_position positiontext position_text rank")
# On the start, and not placed; and not on the start at all.
_NOT_PLACED = {*names_in("dnf dsq dq nc pu ret ex disq retired bd f ur \\n nf abd cut mdf mc ocs ufd bfd"), ""}
_NO_PLACE = -1.0
_NOT_STARTED = names_in("dns dnc wd dnp scr withdrawn dnq ns dns1 dns2")


def _recognise_results(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table with columns for race, competitor and position, where positions are numbers or known marks."""
    if by_names("event", "competitor", "position")(table, options, named) is None:
        return None
    roles = {"id": table.roles["event"], "item": table.roles["competitor"], "rank": table.roles["position"]}
    cells = [cell.lower() for cell in table.cells(roles["rank"])]
    marks = Counter(cell.upper() for cell in cells if _place_in(cell) in (None, _NO_PLACE))
    known = [_place_in(cell) is not None or cell in _NOT_STARTED for cell in cells]
    if not named and (sum(known) < MOST * len(cells) or sum(marks.values()) == len(cells)):
        return None
    table = replace(table, roles=roles, unranked="absent")
    if marks:
        words = ", ".join(f"{times} {mark or 'empty'}" for mark, times in marks.most_common())
        table = table.with_guess(f"not placed: {words}: on the start, and below all who were placed; DNS: not on offer")
    return table


def _place_in(text: str) -> float | None:
    """The place in a cell, also as T2 or 2=; _NO_PLACE if it says that there was none; None for any other text."""
    word = text.lower()
    if word in _NOT_PLACED or text in MISSING or word.rstrip("12") in ("dnf", "dsq"):
        return _NO_PLACE
    return rank_in(word.removeprefix("t") if word[1:].isdigit() else word)


def _positions(columns: Mapping[str, Column]) -> Ranked:
    """The places of competitors; none if they were on the start and not placed."""
    column = columns["rank"]
    places = column.mapped(lambda text: np.inf if (place := _place_in(text)) is None else place, np.float64)
    odd = np.flatnonzero(np.isinf(places)).tolist()
    return np.where(places == _NO_PLACE, np.nan, places), {
        row: ("bad-position", f"the position {column[row]!r} is not understood") for row in odd
    }


def _read_results(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
    started = [Condition(header.roles["rank"], False, word) for word in _NOT_STARTED]
    yield from read_long((batch.kept(started) for batch in batches), header, ranks=_positions)


RESULTS = Format(
    name="results",
    recognise=_recognise_results,
    read=_read_results,
    about="races: event, competitor and position; DNF, DSQ, NC: below all who finished; DNS: not on offer",
    example="race,driver,position\nMonaco,Ann,1",
    roles={"event": _EVENTS, "competitor": _COMPETITORS, "position": _POSITIONS},
    consecutive=lambda header: True,  # noqa: ARG005
)
