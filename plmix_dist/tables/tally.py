"""Battles counted: what words say about the winner, and who won against whom how often, by person."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from plmix_dist.errors import IngestError
from plmix_dist.rankings import label_column
from plmix_dist.tables.encode import shown
from plmix_dist.tables.format import FEATURE, Batch, Column, columns_of
from plmix_dist.tables.rows import BATCH_ROWS, Failure, RawRows, whole_numbers_if_all
from plmix_dist.tables.sources import Header
from plmix_dist.tables.words import MISSING, NO_SCORE, names_in, parse_weight

# Words of the first side, each with that of the second.
SIDES = {"a": "b", "1": "2", "x": "y", "left": "right", "home": "away", "first": "second", "i": "j", "white": "black"}
SIDES |= {"one": "two", "red": "blue", "visitor": "opponent"}
_SECOND = {second: first for first, second in SIDES.items()}
# What columns with the names of the two sides, their scores and their wins are called beside the word of the side.
ITEMS = {"model", "item", "player", "team", "generator", "option", "system", "name", "competitor", "candidate", "side"}
ITEMS |= {"contestant", "alternative", "product", "brand", "object", "fighter", "id", "variant", "image"}
TIES = frozenset(names_in("both d draw drawn draws equal n_ties same tie tied ties win_tie winner_tie"))
BAD = {"both_bad", "bothbad", "n_both_bad", "tie_bothbad", "tie_both_bad", "neither"}
_NEUTRAL = {"wins", "win", "won", "is", "better", "response", "assistant", "answer", "the", "n", *ITEMS}
FIRST_WON, SECOND_WON, TIE, UNKNOWN, _NONE = 1, 2, 0, -1, -2
_OTHER_WORDS = {"1-0": FIRST_WON, "0-1": SECOND_WON, "1/2-1/2": TIE, "0": TIE, "1.5": TIE, "0.5-0.5": TIE}
ROLES = ("winner", "winner_name", "won", "sign", "first_won", "second_won", "first_score", "second_score")
COUNTS = ("first_wins", "second_wins", "ties", "both_bad")


_FLAGS = {"0": False, "1": True, "false": False, "true": True, "0.0": False, "1.0": True, "no": False, "yes": True}


def words_of(name: str) -> list[str]:
    """The words of a name: `model_a`, `Item1` and `HomeTeam` have two."""
    return [word.lower() for word in re.findall(r"[A-Za-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name))]


def plain_name(name: str) -> str:
    """A name in small letters, with underscores for all other signs."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def flag(cell: str) -> bool | None:
    """What a cell of a column of 0 and 1 says; None if it is none of these."""
    return _FLAGS.get(cell.lower())


def vocabulary(first: str) -> Callable[[str], int]:
    """What a word says about the winner, where `first` is the name of the column of the first side."""
    own, side = plain_name(first), next((word for word in words_of(first) if word in SIDES), "")
    letters = {side[:1]: FIRST_WON, SIDES[side][:1]: SECOND_WON} if len(side) > 1 else {}

    def meaning(text: str) -> int:
        plain = plain_name(text)
        if text in MISSING or plain in ("", "na", "null", "none"):
            return _NONE
        if text in _OTHER_WORDS:
            return _OTHER_WORDS[text]
        if plain in TIES | BAD or "tie" in words_of(text):
            return TIE
        if plain == own:
            return FIRST_WON
        if plain in letters:
            return letters[plain]
        words = words_of(text.removesuffix(".0"))
        left = [word for word in words if word not in _NEUTRAL] or words
        if len(left) != 1:
            return UNKNOWN
        return FIRST_WON if left[0] in SIDES else SECOND_WON if left[0] in _SECOND else UNKNOWN

    return meaning


# Reading: who won against whom, counted.

# A battle is a number of these bits: its person, winner, loser, on which side the winner stood, whether they tied.
_PERSON_BITS, _ITEM_BITS, _SIDE_BITS = 22, 19, 2
_ITEM_MASK, _SIDE_MASK = (1 << _ITEM_BITS) - 1, (1 << _SIDE_BITS) - 1
_MOST_PENDING = 1 << 21


class _Counted(NamedTuple):
    """Battles as numbers, how many of each, and the line of the first; all (n,). Features (n, 2, n_features)."""

    keys: NDArray[np.int64]
    weights: NDArray[np.float64]
    lines: NDArray[np.int64]
    features: NDArray[np.float32]

    def merged(self) -> _Counted:
        """Battles in the order of their numbers; equal ones are added up if there are no features."""
        # Whole numbers have one sum in any order.
        whole = not self.features.size and np.array_equal(self.weights, np.rint(self.weights))
        order = np.argsort(self.keys, kind=None if whole else "stable")
        keys = self.keys[order]
        starts = np.flatnonzero((np.diff(keys, prepend=-1) != 0) | (self.features.size > 0))
        if not len(starts):
            return self
        lines = np.minimum.reduceat(self.lines[order], starts)
        weights = np.add.reduceat(self.weights[order], starts)
        return _Counted(keys[starts], weights, lines, self.features[order][starts])


@dataclass
class _Tally:
    """Battles by person, items, side and result."""

    has_persons: bool
    parts: list[_Counted]
    items: dict[str, int] = field(default_factory=dict)
    persons: dict[object, int] = field(default_factory=lambda: defaultdict(count().__next__))  # numbered as they come

    def add(self, columns: Sequence[NDArray[np.int64]], has_sides: bool, *counted: NDArray[Any]) -> None:
        """Count battles: person, item of the first side, of the second, result; weight and line. All (n,).

        Last come the features of both sides (n, 2, n_features).
        """
        if len(self.items) > 1 << _ITEM_BITS or len(self.persons) > 1 << _PERSON_BITS:
            raise IngestError(
                f"more than {1 << _ITEM_BITS:,} items or {1 << _PERSON_BITS:,} persons in one file of battles; divide "
                "it by persons, and append"
            )
        person, first, second, result = columns
        # The winner comes first; of tied items, that of the lower number.
        turned = (result == SECOND_WON) | ((result == TIE) & (first > second))
        side = np.where(turned, SECOND_WON, FIRST_WON) * has_sides
        pair = (person << _ITEM_BITS | np.where(turned, second, first)) << _ITEM_BITS | np.where(turned, first, second)
        weights, lines, features = counted
        features = np.where(turned[:, None, None], features[:, ::-1], features)
        self.parts.append(_Counted((pair << _SIDE_BITS | side) << 1 | (result == TIE), weights, lines, features))
        if sum(len(part.keys) for part in self.parts[1:]) > max(_MOST_PENDING, len(self.parts[0].keys)):
            self.parts = [self._together()]

    def _together(self) -> _Counted:
        return _Counted(*map(np.concatenate, zip(*self.parts, strict=True))).merged()

    def rows(self, failures: list[Failure]) -> Iterator[RawRows]:
        """All battles, those of a person one after the other; without persons, in the order of their first lines."""
        found = self._together()
        if not self.has_persons:
            order = np.argsort(found.lines, kind="stable")
            found = _Counted._make(column[order] for column in found)
        keys, weights, lines, features = found
        names = pa.array(list(self.items), pa.string())
        labels = label_column(whole_numbers_if_all(np.array([*self.persons, None], object)[:-1]))
        for start in range(0, max(1, len(keys)), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            rest = keys[part] >> 1
            side, pair = rest & _SIDE_MASK, rest >> _SIDE_BITS
            items = np.stack([pair >> _ITEM_BITS & _ITEM_MASK, pair & _ITEM_MASK], axis=1).astype(np.int32)
            tied = np.zeros(items.shape, np.bool_)
            tied[:, 1] = keys[part] & 1
            yield RawRows(
                labels=pa.DictionaryArray.from_arrays(pa.array(items.ravel()), names),
                n_listed=np.full(len(items), 2),
                tied=tied.ravel(),
                weights=weights[part],
                groups=labels[pair >> (2 * _ITEM_BITS)] if self.has_persons else None,
                sides=side.astype(np.uint8) if side.any() else None,
                features=features[part].reshape(-1, features.shape[2]) if features.shape[2] else None,
                lines=lines[part],
                failures=failures if start == 0 else [],
            )


def read_battles(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
    """All battles of a slice, merged unless they have features."""
    empty = np.empty(0, np.int64)
    no_features = np.empty((0, 2, len(columns_of(header.roles, FEATURE))), np.float32)
    tally = _Tally("group" in header.roles, [_Counted(empty, np.empty(0), empty, no_features)])
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
        person = np.array([*map(tally.persons.__getitem__, group.values)], np.int64)[group.codes]
        refuse(person == tally.persons.get("", -1), "its group is missing")
    if "first_wins" in columns:
        counts = {role: columns[role].numbers(MISSING) for role in COUNTS if role in columns}
        for role, found in counts.items():
            odd = ~(found >= 0) & np.isfinite(weight)
            refuse(odd, lambda row, role=role: f"the count {columns[role][row]!r} is not a number")  # type: ignore[misc]
        codes = {"first_wins": FIRST_WON, "second_wins": SECOND_WON}
        results = [(np.full(batch.n_rows, codes.get(role, TIE)), found) for role, found in counts.items()]
    else:
        result = _results(columns, batch.n_rows, header)
        refuse(result == UNKNOWN, lambda row: f"the result is not understood: {_said(columns, (*ROLES, 'ties'), row)}")
        refuse(result == _NONE, "the result is missing", wrong=False)
        results = [(result, np.ones(batch.n_rows))]
    of_sides = [role for role in columns if FEATURE in role]  # of each feature that of the first side, and the second
    cells = [columns[role].numbers(message="features must be numbers, but a column holds {}") for role in of_sides]
    features = np.array(cells, np.float64).reshape(len(cells) // 2, 2, batch.n_rows).transpose(2, 1, 0)
    odd = ~np.asarray((np.abs(features) <= np.finfo(np.float32).max).all(axis=(1, 2)))
    refuse(odd, lambda row: f"features must be finite numbers: {_said(columns, of_sides, row)}")
    # Who lost, or how often, is in columns of their own: nothing says who stood where.
    has_sides = not {"loser", "first_wins"} & columns.keys()
    good = np.ones(batch.n_rows, np.bool_)
    good[list(why)] = False
    for row, (message, wrong) in why.items():
        reason = "syntax" if wrong else "no-result"
        failures.append(Failure(int(batch.lines[row]), reason, message, text=" ".join(batch.cells(row)), wrong=wrong))
    for result, times in results:
        use = good & (times > 0)
        said = [column[use] for column in (person, *pair, result)]
        tally.add(said, has_sides, (weight * times)[use], batch.lines[use], features[use].astype(np.float32))


def _results(columns: Mapping[str, Column], n_rows: int, header: Header) -> NDArray[np.int64]:
    """(n_rows,): which side won."""
    if "loser" in columns:
        return np.full(n_rows, FIRST_WON)
    if "winner" in columns:
        return columns["winner"].mapped(vocabulary(header.columns[header.roles["first"]]), np.int64)
    if "winner_name" in columns:
        words = columns["winner_name"].mapped(vocabulary(""), np.int64)
        names = {name: code for code, name in enumerate(dict.fromkeys(columns["winner_name"].values))}
        roles = ("winner_name", "first", "second")
        winner, first, second = (columns[role].mapped(lambda text: names.get(text, -1), np.int64) for role in roles)
        rest = np.where(words == TIE, TIE, np.where(words == _NONE, _NONE, UNKNOWN))
        return np.where(winner == first, FIRST_WON, np.where(winner == second, SECOND_WON, rest))
    if "won" in columns:
        won = columns["won"].mapped(lambda text: parse_weight(_FLAGS.get(text.lower(), text)), np.float64)
        return _of_numbers(won, 0.0, 0.5)
    if "sign" in columns:
        return _of_numbers(columns["sign"].numbers(NO_SCORE), -1.0, 0.0)
    if "first_score" in columns:
        ahead = columns["first_score"].numbers(MISSING) - columns["second_score"].numbers(MISSING)
        return np.select([ahead > 0, ahead < 0, ahead == 0], [FIRST_WON, SECOND_WON, TIE], _NONE)
    flags = [
        columns[role].mapped(lambda text: -1 if flag(text) is None else int(bool(flag(text))), np.int64)
        for role in ("first_won", "second_won", "ties", "both_bad")
        if role in columns
    ]
    table = np.stack(flags)
    one = np.where(table.sum(axis=0) == 1, np.argmax(table, axis=0) + 1, UNKNOWN)
    none = (table.sum(axis=0) == 0) & (len(flags) == 2)
    return np.where((table < 0).any(axis=0), UNKNOWN, np.where(none, TIE, np.where(one > 2, TIE, one)))


def _of_numbers(said: NDArray[np.float64], lost: float, tie: float) -> NDArray[np.int64]:
    """(n_rows,): which side won, where 1 says that it is the first."""
    known = np.select([said == 1, said == lost, said == tie], [FIRST_WON, SECOND_WON, TIE], UNKNOWN)
    return np.where(np.isnan(said), _NONE, known)


def _said(columns: Mapping[str, Column], roles: Sequence[str], row: int) -> str:
    """What a row has in the columns of some roles."""
    return ", ".join(f"{role} {columns[role][row]!r}" for role in roles if role in columns)
