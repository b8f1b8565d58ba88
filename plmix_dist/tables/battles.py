"""The format `battles`: two sides in each row, and which of them won: by a word, a name, flags, scores or counts.

Equal battles of one person are merged into one row with their number as weight, so that the rows of a person, which may
stand anywhere in a file, come together. A tie is a row of two tied items. Which side an item stood on is not kept.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.tables.encode import shown
from plmix_dist.tables.format import (
    MISSING,
    NO_SCORE,
    Format,
    ReadOptions,
    Table,
    missing_columns,
    whole_numbers_if_all,
)
from plmix_dist.tables.places import MOST, column_option
from plmix_dist.tables.rows import BATCH_ROWS, Failure, RawRows
from plmix_dist.tables.sniff import is_number, kind_of
from plmix_dist.tables.words import is_place_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from plmix_dist.tables.format import Batch, Column
    from plmix_dist.tables.sources import Header

# Words of the first side, each with that of the second.
_SIDES = {"a": "b", "1": "2", "x": "y", "left": "right", "home": "away", "first": "second", "i": "j", "white": "black"}
_SIDES |= {"one": "two", "red": "blue", "visitor": "opponent"}
# Where there is a third, the columns are not two sides.
_THIRD = {"a": "c", "1": "3", "x": "z", "first": "third", "i": "k", "one": "three", "left": "middle"}
_SECOND = {second: first for first, second in _SIDES.items()}
# What columns with the names of the two sides, their scores and their wins are called beside the word of the side.
_ITEMS = {"model", "item", "player", "team", "generator", "option", "system", "name", "competitor", "candidate", "side"}
_ITEMS |= {"contestant", "alternative", "product", "brand", "object", "fighter", "id", "variant", "image"}
_SCORES = {"score", "scores", "goals", "goal", "points", "runs"}
_FLAGS, _WINS = {"win", "won", "winner"}, {"wins", "victories"}
_WINNER = (
    "winner",
    "label",
    "result",
    "outcome",
    "preference",
    "preferred",
    "verdict",
    "judgment",
    "judgement",
    "vote",
)
# Columns that name who won and who lost.
_LOST = {"winner": "loser", "chosen": "rejected", "winner_name": "loser_name", "chosen_model": "rejected_model"}
_LOST |= {"winning_team": "losing_team", "winner_id": "loser_id", "winner_model": "loser_model", "better": "worse"}
_TIES = {
    "tie",
    "ties",
    "tied",
    "draw",
    "draws",
    "drawn",
    "equal",
    "same",
    "both",
    "d",
    "n_ties",
    "winner_tie",
    "win_tie",
}
_BAD = {"both_bad", "bothbad", "n_both_bad", "tie_bothbad", "tie_both_bad", "neither"}
_NEUTRAL = {"wins", "win", "won", "is", "better", "response", "assistant", "answer", "the", "n", *_ITEMS}
_FIRST_WON, _SECOND_WON, _TIE, _UNKNOWN, _NONE = 1, 2, 0, -1, -2
_OTHER_WORDS = {"1-0": _FIRST_WON, "0-1": _SECOND_WON, "1/2-1/2": _TIE, "0": _TIE, "1.5": _TIE, "0.5-0.5": _TIE}
_PERSONS = (
    *("judge", "worker", "evaluation_session_id", "judge_id", "worker_id", "annotator", "annotator_id", "rater"),
    *(
        "rater_id",
        "performer",
        "labeler",
        "labeller",
        "assessor",
        "respondent",
        "participant",
        "participant_id",
        "obsid",
    ),
)
_ROLES = ("winner", "winner_name", "won", "sign", "first_won", "second_won", "first_score", "second_score")
# Texts such as answers of models, most of which occur once, are not items.
_MOST_ONCE = 0.5
_FEWEST = 4


def _words(name: str) -> list[str]:
    """The words of a name: `model_a`, `Item1` and `HomeTeam` have two."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return [word.lower() for word in re.findall(r"[A-Za-z]+|\d+", spaced)]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


# Recognition: two columns that differ in the word of the side, and what says who won.


class _Pair(NamedTuple):
    """Two columns whose names differ in the word of the side alone, and the other words of their names."""

    first: int
    second: int
    words: frozenset[str]


def _pairs(columns: Sequence[str]) -> list[_Pair]:
    sides: dict[tuple[str, ...], int] = {tuple(_words(name)): place for place, name in enumerate(columns)}
    found = []
    for words, place in sides.items():
        for position, word in enumerate(words):
            other = (*words[:position], _SIDES.get(word, ""), *words[position + 1 :])
            third = (*words[:position], _THIRD.get(word, ""), *words[position + 1 :])
            if word in _SIDES and other in sides and third not in sides:
                found.append(_Pair(place, sides[other], frozenset(words) - {word}))
    return sorted(found)


def _recognise(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table with two sides, and a column or two that say who won."""
    roles = {role: place for role, place in table.roles.items() if role != "id"}
    lost = _winner_and_loser(table)
    if "winner_name" in options.columns and "loser" in options.columns:
        lost = {"winner_name": roles["winner_name"], "loser": roles["loser"]}
    if lost and (named or len(table.columns) > len(lost)) and not {"first", "second", "id"} & options.columns.keys():
        return replace(table, roles=_labels(roles) | lost, unranked="absent")
    pairs = [pair for pair in _pairs(table.columns) if not {*pair[:2]} & {*table.lists, *table.ignored}]
    sides = _sides(table, roles, pairs)
    if sides is None:
        if named:
            raise missing_columns(table, [role for role in ("first", "second") if role not in roles])
        _refuse_results_alone(table, roles)
        return None
    result = _result(replace(table, roles=roles | sides), options, pairs)
    if not result and named:
        raise missing_columns(table, ["winner"])
    if not result:
        return None
    if "id" in options.columns:
        raise IngestError(f"{table.url}: equal battles are merged, so that they have no ids; leave out --column id=...")
    return _explained(replace(table, roles=_labels(roles) | sides | result, unranked="absent"))


def _labels(roles: dict[str, int]) -> dict[str, int]:
    return {role: roles[role] for role in ("weight", "group") if role in roles}


def _winner_and_loser(table: Table) -> dict[str, int] | None:
    """The columns that name who won and who lost; an error if they hold texts that occur once."""
    places = {_plain(name): place for place, name in enumerate(table.columns)}
    nested = {name.partition(".")[0] for name in table.columns if "." in name}
    if {"chosen", "rejected"} <= nested:
        raise _only_once(table, "chosen", "rejected")
    for winner, loser in _LOST.items():
        if winner in places and loser in places:
            pair = places[winner], places[loser]
            others = [name for place, name in enumerate(table.columns) if place not in pair]
            if any(map(is_place_name, others)):
                return None
            times = Counter(cell for place in pair for cell in table.cells(place))
            once = sum(count == 1 for count in times.values())
            texts = winner == "chosen" or any(len(cell) > 100 for cell in times)
            if {*pair} & {*table.lists} or (texts and len(times) >= _FEWEST and once > _MOST_ONCE * len(times)):
                raise _only_once(table, table.columns[pair[0]], table.columns[pair[1]])
            return {"winner_name": pair[0], "loser": pair[1]}
    return None


def _only_once(table: Table, winner: str, loser: str) -> IngestError:
    return IngestError(
        f"{table.url}: {winner!r} and {loser!r} hold texts, most of which occur once, and what occurs once cannot be "
        "ranked: name two columns that say who wrote them, such as --column winner_name=chosen_model "
        "--column loser=rejected_model"
    )


def _sides(table: Table, roles: dict[str, int], pairs: Sequence[_Pair]) -> dict[str, int] | None:
    """The columns of the two sides: as the user says, or the pair that is named so; names go before numbers."""
    if "first" in roles and "second" in roles:
        return {"first": roles["first"], "second": roles["second"]}
    fitting = [pair for pair in pairs if pair.words <= _ITEMS and not (pair.words and _are_flags(table, pair))]

    def rank(pair: _Pair) -> tuple[bool, bool]:
        numeric = all(kind_of(table.cells(place)) in ("whole", "decimal", "empty") for place in pair[:2])
        return numeric, "id" in pair.words

    best = min(fitting, key=rank, default=None)
    return None if best is None else {"first": best.first, "second": best.second}


def _are_flags(table: Table, pair: _Pair) -> bool:
    return all(_flag(cell) is not None for place in pair[:2] for cell in table.cells(place))


def _flag(cell: str) -> bool | None:
    return {"0": False, "1": True, "false": False, "true": True, "0.0": False, "1.0": True}.get(cell.lower())


def _result(table: Table, options: ReadOptions, pairs: Sequence[_Pair]) -> dict[str, int]:
    """The columns that say who won, by role; an error if they may say it in two ways."""
    named = {role: table.roles[role] for role in (*_ROLES, *_COUNTS) if role in options.columns}
    if named:
        return named
    places = {_plain(name): place for place, name in enumerate(table.columns) if place not in table.ignored}
    ties = next((place for name, place in places.items() if name in _TIES), None)
    bad = next((place for name, place in places.items() if name in _BAD), None)
    more = {role: place for role, place in (("ties", ties), ("both_bad", bad)) if place is not None}
    of_both = [pair for pair in pairs if pair.words & (_FLAGS | _WINS) and _are_numbers(table, pair[:2])]
    if of_both:
        flags = _are_flags(table, of_both[0]) and not of_both[0].words & _WINS
        role = "won" if flags else "wins"
        return {f"first_{role}": of_both[0].first, f"second_{role}": of_both[0].second} | more
    for won, lost in (("n_win", "n_loss"), ("wins", "losses"), ("win", "loss"), ("n_wins", "n_losses")):
        if won in places and lost in places:
            return {"first_wins": places[won], "second_wins": places[lost]} | more
    winner = table.roles.get("winner")
    if winner is not None and winner not in (table.roles["first"], table.roles["second"]):
        found = _winner_role(table, winner)
        if found:
            return {found: winner}
    scores = [pair for pair in pairs if pair.words & _SCORES and _are_numbers(table, pair[:2])]
    if len(scores) > 1:
        ways = " or ".join(column_option("first_score", table.columns[pair.first]) for pair in scores)
        raise IngestError(f"{table.url}: several columns may be the scores of the two sides: say {ways}")
    return {"first_score": scores[0].first, "second_score": scores[0].second} if scores else {}


def _are_numbers(table: Table, places: Sequence[int]) -> bool:
    cells = [cell for place in places for cell in table.cells(place) if cell not in MISSING]
    return bool(cells) and all(is_number(cell) or _flag(cell) is not None for cell in cells)


def _winner_role(table: Table, winner: int) -> str | None:
    """Whether a column names the winner, or has words or numbers for the sides; None if it does neither."""
    first, second = table.columns[table.roles["first"]], table.columns[table.roles["second"]]
    name, vocabulary = table.columns[winner], _vocabulary(first)
    sides = zip(table.cells(table.roles["first"]), table.cells(table.roles["second"]), strict=True)
    rows = [(cell, *pair) for cell, pair in zip(table.cells(winner), sides, strict=True) if cell not in NO_SCORE]
    said = {cell for cell, *_ in rows}
    numbers = {float(cell) for cell in said if is_number(cell)}
    as_words = [vocabulary(cell) for cell, *_ in rows]
    as_names = [cell in pair or said == _TIE for (cell, *pair), said in zip(rows, as_words, strict=True)]
    if rows and sum(as_names) >= MOST * len(rows) and any(cell in pair for cell, *pair in rows):
        agree = all(pair[said - 1] == cell for (cell, *pair), said in zip(rows, as_words, strict=True) if said > 0)
        if any(said > 0 for said in as_words) and not agree:
            raise IngestError(
                f"{table.url}: {name!r} may name the winner, or the side that won: say "
                f"{column_option('winner_name', name)} or {column_option('winner', name)}"
            )
        return "winner_name"
    if len(numbers) == len(said) and numbers and not (numbers <= {0, 1, 2, 1.5} and 2 in numbers):
        if not numbers <= {-1.0, 0.0, 0.5, 1.0}:
            return None
        raise IngestError(
            f"{table.url}: {name!r} holds {', '.join(sorted(said))}: if 1 means that {first!r} won, and "
            f"{'-1' if -1 in numbers else '0'} that {second!r} won, say "
            f"{column_option('sign' if -1 in numbers else 'won', name)}; if it means something else, write the name of "
            "the winner"
        )
    known = sum(code >= 0 for code in as_words)
    if rows and known >= MOST * len(rows):
        return "winner"
    if known:
        odd = Counter(cell for (cell, *_), code in zip(rows, as_words, strict=True) if code < 0).most_common(3)
        raise IngestError(
            f"{table.url}: {name!r} should say which of {first!r} and {second!r} won, but holds "
            f"{', '.join(shown(word) for word, _ in odd)} in {len(rows) - known} of {len(rows)} rows: correct these "
            "words, or leave the rows out with --where"
        )
    return None


def _refuse_results_alone(table: Table, roles: dict[str, int]) -> None:
    """An error if a column has words for two sides, but no two columns are named after them."""
    winner = roles.get("winner")
    cells = [cell for cell in table.cells(winner) if cell not in MISSING] if winner is not None else []
    words = [word for word in set(cells) if not is_number(word)]
    if words and winner is not None and all(_vocabulary("")(word) >= 0 for word in words) and len(words) < len(cells):
        raise IngestError(
            f"{table.url}: the column {table.columns[winner]!r} ({', '.join(sorted(words)[:4])}) says which of two "
            "sides won, but no two columns are named after them: say --column first=NAME --column second=NAME"
        )


def _vocabulary(first: str) -> Callable[[str], int]:
    """What a word says about the winner, where `first` is the name of the column of the first side."""
    own, side = _plain(first), next((word for word in _words(first) if word in _SIDES), "")
    letters = {side[:1]: _FIRST_WON, _SIDES[side][:1]: _SECOND_WON} if len(side) > 1 else {}

    def meaning(text: str) -> int:
        plain = _plain(text)
        if text in MISSING or plain in ("", "na", "null", "none"):
            return _NONE
        if text in _OTHER_WORDS:
            return _OTHER_WORDS[text]
        if plain in _TIES | _BAD or "tie" in _words(text):
            return _TIE
        if plain == own:
            return _FIRST_WON
        if plain in letters:
            return letters[plain]
        words = _words(text.removesuffix(".0"))
        left = [word for word in words if word not in _NEUTRAL] or words
        if len(left) != 1:
            return _UNKNOWN
        return _FIRST_WON if left[0] in _SIDES else _SECOND_WON if left[0] in _SECOND else _UNKNOWN

    return meaning


def _explained(table: Table) -> Table:
    """The table with sentences for the user: how the result was understood, and what leaderboards leave out."""
    roles, columns = table.roles, table.columns
    if "winner" in roles:
        cells = table.cells(roles["winner"])
        codes = Counter(map(_vocabulary(columns[roles["first"]]), cells))
        bad = sum(_plain(cell) in _BAD for cell in cells)
        bad_words = f", of which {bad:,} say that both are bad" if bad else ""
        table = table.with_guess(
            f"of the first {len(cells):,} rows {columns[roles['first']]!r} wins {codes[_FIRST_WON]:,}, "
            f"{columns[roles['second']]!r} {codes[_SECOND_WON]:,}, and {codes[_TIE]:,} are ties{bad_words}"
        )
    if "both_bad" in roles:
        table = table.with_guess(f"{columns[roles['both_bad']]!r} counts as ties")
    if "first_score" in roles:
        table = table.with_guess(
            f"the higher of {columns[roles['first_score']]!r} and {columns[roles['second_score']]!r} wins"
        )
    for name in ("anony", "dedup_tag.sampled"):
        if name in columns:
            cells = [cell.lower() for cell in table.cells(columns.index(name))]
            table = table.with_guess(
                f"all rows are read; leaderboards often keep {cells.count('true'):,} of {len(cells):,} with "
                f"--where {name}=true"
            )
    return table


# Reading: who won against whom, counted.

_ITEM_BITS, _PERSON_BITS = 20, 22
_MOST_PENDING = 1 << 21


@dataclass
class _Tally:
    """Battles by person, winner, loser and whether they tied: how many, and the line of the first."""

    has_persons: bool
    items: dict[str, int] = field(default_factory=dict)
    persons: dict[object, int] = field(default_factory=dict)
    keys: list[NDArray[np.int64]] = field(default_factory=list)
    weights: list[NDArray[np.float64]] = field(default_factory=list)
    lines: list[NDArray[np.int64]] = field(default_factory=list)
    n_pending: int = 0

    def add(
        self,
        person: NDArray[np.int64],
        pair: tuple[NDArray[np.int64], NDArray[np.int64]],
        tied: NDArray[np.bool_],
        weight: NDArray[np.float64],
        line: NDArray[np.int64],
    ) -> None:
        """Count battles, all of shape (n,). Tied items come in the order of their numbers."""
        if len(self.items) > 1 << _ITEM_BITS or len(self.persons) > 1 << _PERSON_BITS:
            raise IngestError(
                f"more than {1 << _ITEM_BITS:,} items or {1 << _PERSON_BITS:,} persons in one file of battles; divide "
                "it by persons, and append"
            )
        low, high = np.minimum(*pair), np.maximum(*pair)
        winner, loser = np.where(tied, low, pair[0]), np.where(tied, high, pair[1])
        key = (((person << _ITEM_BITS) | winner) << _ITEM_BITS | loser) << 1 | tied
        self.keys.append(key)
        self.weights.append(weight)
        self.lines.append(line)
        self.n_pending += len(key)
        if self.n_pending > _MOST_PENDING:
            self.merge()

    def merge(self) -> None:
        """Add up equal battles."""
        if not self.keys:
            return
        keys, first, inverse = np.unique(np.concatenate(self.keys), return_index=True, return_inverse=True)
        weights = np.bincount(inverse, np.concatenate(self.weights), len(keys)).astype(np.float64)
        self.keys, self.weights, self.lines = [keys], [weights], [np.concatenate(self.lines)[first]]
        self.n_pending = 0

    def rows(self, failures: list[Failure]) -> Iterator[RawRows]:
        """All battles, those of a person one after the other, in the order of their first lines."""
        self.merge()
        empty = np.empty(0, np.int64)
        keys, lines = (self.keys[0], self.lines[0]) if self.keys else (empty, empty)
        weights = self.weights[0] if self.keys else np.empty(0)
        persons = keys >> (2 * _ITEM_BITS + 1)
        order = np.lexsort((lines, persons))
        names = pa.array(list(self.items), pa.string())
        labels = whole_numbers_if_all(np.array([*self.persons, None], object)[:-1]) if self.has_persons else None
        mask = (1 << _ITEM_BITS) - 1
        for start in range(0, max(1, len(order)), BATCH_ROWS):
            some = order[start : start + BATCH_ROWS]
            pair = np.stack([keys[some] >> (_ITEM_BITS + 1) & mask, keys[some] >> 1 & mask], axis=1)
            tied = np.zeros(pair.shape, np.bool_)
            tied[:, 1] = keys[some] & 1
            yield RawRows(
                labels=pa.DictionaryArray.from_arrays(pa.array(pair.ravel().astype(np.int32)), names),
                n_listed=np.full(len(some), 2),
                n_ordered=np.full(len(some), 2),
                tied=tied.ravel(),
                weights=weights[some],
                groups=None if labels is None else labels[persons[some]],
                lines=lines[some],
                failures=failures if start == 0 else [],
            )


_COUNTS = ("first_wins", "second_wins", "ties", "both_bad")


def _read(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
    tally = _Tally("group" in header.roles)
    failures: list[Failure] = []
    for batch in batches:
        _count(batch, header, tally, failures)
    yield from tally.rows(failures)


def _count(batch: Batch, header: Header, tally: _Tally, failures: list[Failure]) -> None:
    """Count the battles of a batch; bad rows, and those without a result, become failures."""
    columns = {role: batch.columns[place] for role, place in header.roles.items()}
    why = {row: (message, True) for row, message in batch.bad.items()}

    def refuse(mask: NDArray[np.bool_], message: str | Callable[[int], str], wrong: bool = True) -> None:
        for row in np.flatnonzero(mask).tolist():
            why.setdefault(row, (message if isinstance(message, str) else message(row), wrong))

    def number(name: str) -> int:
        return -1 if name in MISSING else tally.items.setdefault(name, len(tally.items))

    ends = ("winner_name", "loser") if "loser" in columns else ("first", "second")
    pair = columns[ends[0]].mapped(number, np.int64), columns[ends[1]].mapped(number, np.int64)
    refuse((pair[0] < 0) | (pair[1] < 0), "an item is missing")
    refuse(pair[0] == pair[1], lambda row: f"item {shown(columns[ends[0]][row])} stands on both sides")
    weight = columns["weight"].numbers() if "weight" in columns else np.ones(batch.n_rows)
    with np.errstate(invalid="ignore"):
        refuse(~((weight > 0) & np.isfinite(weight)), lambda row: f"the weight {weight[row]:g} is not positive")
    # Rows of a table in memory that have no persons stay apart, so that each has its weight, and its prediction.
    apart = header.container == "memory" and batch.n_rows < 1 << _PERSON_BITS
    person = np.arange(batch.n_rows) if apart else np.zeros(batch.n_rows, np.int64)
    if tally.has_persons:
        group = columns["group"]
        refuse(group.mapped(lambda text: not text, np.bool_), "its group is missing")
        person = group.mapped(lambda text: tally.persons.setdefault(text, len(tally.persons)), np.int64)
    if "first_wins" in columns:
        counts = {role: columns[role].numbers(MISSING) for role in _COUNTS if role in columns}
        for role, found in counts.items():
            odd = ~(found >= 0) & np.isfinite(weight)
            refuse(odd, partial(_bad_count, columns[role]))
        codes = {"first_wins": _FIRST_WON, "second_wins": _SECOND_WON}
        results = [(np.full(batch.n_rows, codes.get(role, _TIE)), found) for role, found in counts.items()]
    else:
        result = _results(columns, batch.n_rows, header)
        refuse(result == _UNKNOWN, lambda row: _not_understood(columns, row))
        refuse(result == _NONE, "there is no result", wrong=False)
        results = [(result, np.ones(batch.n_rows))]
    good = np.ones(batch.n_rows, np.bool_)
    good[list(why)] = False
    for row, (message, wrong) in why.items():
        reason = "syntax" if wrong else "no-result"
        failures.append(Failure(int(batch.lines[row]), reason, message, text=" ".join(batch.cells(row)), wrong=wrong))
    for result, times in results:
        use = good & (times > 0)
        won = result[use] != _SECOND_WON
        ordered = np.where(won, pair[0][use], pair[1][use]), np.where(won, pair[1][use], pair[0][use])
        tally.add(person[use], ordered, result[use] == _TIE, weight[use] * times[use], batch.lines[use])


def _bad_count(column: Column, row: int) -> str:
    return f"the count {column[row]!r} is not a number"


def _results(columns: Mapping[str, Column], n_rows: int, header: Header) -> NDArray[np.int64]:
    """(n_rows,): which side won."""
    if "loser" in columns:
        return np.full(n_rows, _FIRST_WON)
    if "winner" in columns:
        found: NDArray[np.int64] = columns["winner"].mapped(
            _vocabulary(header.columns[header.roles["first"]]), np.int64
        )
        return found
    if "winner_name" in columns:
        words = columns["winner_name"].mapped(_vocabulary(""), np.int64)
        names = {name: code for code, name in enumerate(dict.fromkeys(columns["winner_name"].values))}
        winner, first, second = (
            columns[role].mapped(lambda text: names.get(text, -1), np.int64)
            for role in ("winner_name", "first", "second")
        )
        rest = np.where(words == _TIE, _TIE, np.where(words == _NONE, _NONE, _UNKNOWN))
        return np.where(winner == first, _FIRST_WON, np.where(winner == second, _SECOND_WON, rest))
    if "won" in columns:
        return _of_numbers(columns["won"].numbers(MISSING), 0.0, 0.5)
    if "sign" in columns:
        return _of_numbers(columns["sign"].numbers(NO_SCORE), -1.0, 0.0)
    if "first_score" in columns:
        ahead = columns["first_score"].numbers(MISSING) - columns["second_score"].numbers(MISSING)
        return np.select([ahead > 0, ahead < 0, ahead == 0], [_FIRST_WON, _SECOND_WON, _TIE], _NONE)
    flags = [
        columns[role].mapped(lambda text: -1 if _flag(text) is None else int(bool(_flag(text))), np.int64)
        for role in ("first_won", "second_won", "ties", "both_bad")
        if role in columns
    ]
    table = np.stack(flags)
    one = np.where(table.sum(axis=0) == 1, np.argmax(table, axis=0) + 1, _UNKNOWN)
    none = (table.sum(axis=0) == 0) & (len(flags) == 2)
    return np.where((table < 0).any(axis=0), _UNKNOWN, np.where(none, _TIE, np.where(one > 2, _TIE, one)))


def _of_numbers(said: NDArray[np.float64], lost: float, tie: float) -> NDArray[np.int64]:
    """(n_rows,): which side won, where 1 says that it is the first."""
    known = np.select([said == 1, said == lost, said == tie], [_FIRST_WON, _SECOND_WON, _TIE], _UNKNOWN)
    return np.where(np.isnan(said), _NONE, known)


def _not_understood(columns: Mapping[str, Column], row: int) -> str:
    """The message for a row whose result is not understood."""
    said = ", ".join(f"{role} {columns[role][row]!r}" for role in (*_ROLES, "ties") if role in columns)
    return f"the result is not understood: {said}"


BATTLES = Format(
    name="battles",
    recognise=_recognise,
    read=_read,
    about="two sides in each row, and who won: by words, names, flags, scores or counts",
    example="model_a,model_b,winner,judge\ntea,mate,model_a,ann",
    roles={
        "first": (),
        "second": (),
        "winner": _WINNER,
        "group": _PERSONS,
        **dict.fromkeys(_ROLES[1:], ()),
        "winner_name": tuple(_LOST),
        "loser": tuple(_LOST.values()),
        **dict.fromkeys(_COUNTS, ()),
    },
    scattered=lambda header: "group" in header.roles,
    merges=True,
)
