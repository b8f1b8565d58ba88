"""The format `battles`: two sides in each row, and which of them won: by a word, a name, flags, scores or counts.

Equal battles of one person are merged into one row with their number as weight, so that the rows of a person, which may
stand anywhere in a file, come together; those with features stay apart. A tie is a row of two tied items. The side of
the winner is kept as a column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from plmix_dist.errors import IngestError
from plmix_dist.tables import tally
from plmix_dist.tables.encode import shown
from plmix_dist.tables.format import FEATURE, OF_SECOND, Format, ReadOptions, Table, missing_columns
from plmix_dist.tables.places import MOST, column_option
from plmix_dist.tables.sniff import is_number, kind_of
from plmix_dist.tables.words import MISSING, NO_SCORE, is_place_name, names_in, parse_weight

_FIGHTERS = frozenset(names_in("model team player generator system fighter home visitor white"))
# Two columns that are sides whatever else their names say, if other columns stand beside them.
_SIDES_ALONE = frozenset(names_in("a left home white red x"))
# Where there is a third, the columns are not two sides.
_THIRD = {"a": "c", "1": "3", "x": "z", "first": "third", "i": "k", "one": "three", "left": "middle"}
_SCORES = {"score", "scores", "goals", "goal", "points", "runs"}
_FLAGS, _WINS = {"win", "won", "winner"}, {"wins", "victories"}
_WINNER = names_in("winner label result outcome preference preferred verdict judgment judgement vote")
# Columns that name who won and who lost.
_LOST = {"winner": "loser", "chosen": "rejected", "winner_name": "loser_name", "chosen_model": "rejected_model"}
_LOST |= {"winning_team": "losing_team", "winner_id": "loser_id", "winner_model": "loser_model", "better": "worse"}
_PERSONS = names_in(
    "judge worker evaluation_session_id judge_id worker_id annotator annotator_id rater rater_id performer "
    "labeler labeller assessor respondent participant participant_id obsid"
)
# Texts such as answers of models, most of which occur once, are not items.
_MOST_ONCE = 0.5
_FEWEST = 4


# Recognition: two columns that differ in the word of the side, and what says who won.


class _Pair(NamedTuple):
    """Two columns whose names differ in the word of the side alone, and the other words of their names."""

    first: int
    second: int
    words: frozenset[str]


def _pairs(columns: Sequence[str]) -> list[_Pair]:
    sides: dict[tuple[str, ...], int] = {tuple(tally.words_of(name)): place for place, name in enumerate(columns)}
    found = []
    for words, place in sides.items():
        for position, word in enumerate(words):
            other = (*words[:position], tally.SIDES.get(word, ""), *words[position + 1 :])
            third = (*words[:position], _THIRD.get(word, ""), *words[position + 1 :])
            if word in tally.SIDES and other in sides and third not in sides:
                found.append(_Pair(place, sides[other], frozenset(words) - {word}))
    return sorted(found)


def _recognise(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table with two sides, and a column or two that say who won."""
    roles = {role: place for role, place in table.roles.items() if role != "id"}
    labels = {role: roles[role] for role in ("weight", "group") if role in roles}
    lost = _winner_and_loser(table)
    if "winner_name" in options.columns and "loser" in options.columns:
        lost = {"winner_name": roles["winner_name"], "loser": roles["loser"]}
    if lost and (named or len(table.columns) > len(lost)) and not {"first", "second", "id"} & options.columns.keys():
        return replace(table, roles=labels | lost, unranked="absent")
    pairs = [pair for pair in _pairs(table.columns) if not {*pair[:2]} & {*table.lists, *table.ignored}]
    if (sides := _sides(table, roles, pairs)) is None:
        if named:
            raise missing_columns(table, [role for role in ("first", "second") if role not in roles])
        _refuse_results_alone(table, roles)
        return None
    if not (result := _result(replace(table, roles=roles | sides), options, pairs)):
        if named:
            raise missing_columns(table, ["winner"])
        _refuse_sides_alone(table, sides)
        return None
    if "id" in options.columns:
        raise IngestError("equal battles are merged, so that they have no ids; leave out --column id=...")
    return _explained(replace(table, roles=labels | sides | result, unranked="absent"))


def _winner_and_loser(table: Table) -> dict[str, int] | None:
    """The columns that name who won and who lost; an error if they hold texts that occur once."""
    places = {tally.plain_name(name): place for place, name in enumerate(table.columns)}
    if {"chosen", "rejected"} <= {name.partition(".")[0] for name in table.columns if "." in name}:
        raise _only_once("chosen", "rejected")
    for winner, loser in _LOST.items():
        if winner in places and loser in places:
            pair = places[winner], places[loser]
            if any(map(is_place_name, [name for place, name in enumerate(table.columns) if place not in pair])):
                return None
            times = Counter(cell for place in pair for cell in table.cells(place))
            once = sum(count == 1 for count in times.values())
            texts = winner == "chosen" or any(len(cell) > 100 for cell in times)
            if {*pair} & {*table.lists} or (texts and len(times) >= _FEWEST and once > _MOST_ONCE * len(times)):
                raise _only_once(table.columns[pair[0]], table.columns[pair[1]])
            return {"winner_name": pair[0], "loser": pair[1]}
    return None


def _only_once(winner: str, loser: str) -> IngestError:
    return IngestError(
        f"{winner!r} and {loser!r} hold texts, most of which occur once, and what occurs once cannot be "
        "ranked: name two columns that say who wrote them, such as --column winner_name=chosen_model "
        "--column loser=rejected_model"
    )


def _sides(table: Table, roles: dict[str, int], pairs: Sequence[_Pair]) -> dict[str, int] | None:
    """The columns of the two sides: as the user says, or the pair that is named so; names go before numbers."""
    if "first" in roles and "second" in roles:
        return {"first": roles["first"], "second": roles["second"]}
    fitting = [pair for pair in pairs if pair.words <= tally.ITEMS and not (pair.words and _are_flags(table, pair))]

    def rank(pair: _Pair) -> tuple[bool, bool]:
        numeric = all(kind_of(table.cells(place)) in ("whole", "decimal", "empty") for place in pair[:2])
        return numeric, "id" in pair.words

    best = min(fitting, key=rank, default=None)
    return None if best is None else {"first": best.first, "second": best.second}


def _are_flags(table: Table, pair: _Pair) -> bool:
    return all(tally.flag(cell) is not None for place in pair[:2] for cell in table.cells(place))


def _result(table: Table, options: ReadOptions, pairs: Sequence[_Pair]) -> dict[str, int]:
    """The columns that say who won, by role; an error if they may say it in two ways."""
    if named := {role: table.roles[role] for role in (*tally.ROLES, *tally.COUNTS) if role in options.columns}:
        return named
    places = {tally.plain_name(name): place for place, name in enumerate(table.columns) if place not in table.ignored}
    ties = next((place for name, place in places.items() if name in tally.TIES), None)
    bad = next((place for name, place in places.items() if name in tally.BAD), None)
    more = {role: place for role, place in (("ties", ties), ("both_bad", bad)) if place is not None}
    if of_both := [pair for pair in pairs if pair.words & (_FLAGS | _WINS) and _are_numbers(table, pair[:2])]:
        role = "won" if _are_flags(table, of_both[0]) and not of_both[0].words & _WINS else "wins"
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
        raise IngestError(f"several columns may be the scores of the two sides: say {ways}")
    return {"first_score": scores[0].first, "second_score": scores[0].second} if scores else _by_cells(table)


def _by_cells(table: Table) -> dict[str, int]:
    """The only column with words for both sides, or with the names of both; an error if there are several."""
    first, second = table.roles["first"], table.roles["second"]
    meaning, found = tally.vocabulary(table.columns[first]), {}
    for place in [] if is_place_name(table.columns[first]) else sorted({*table.values} - {first, second}):
        rows = list(zip(*map(table.cells, (place, first, second)), strict=True))
        codes = {tally.UNKNOWN if is_number(cell) else meaning(cell) for cell, *_ in rows}
        if codes >= {tally.FIRST_WON, tally.SECOND_WON} and tally.UNKNOWN not in codes:
            found[place] = "winner"
        elif len({cell for cell, *_ in rows}) > 1 and all(cell in pair or meaning(cell) == 0 for cell, *pair in rows):
            found[place] = "winner_name"
    if len(found) > 1:
        ways = " or ".join(column_option("winner", table.columns[place]) for place in found)
        raise IngestError(f"several columns may say who won: say {ways}")
    return {role: place for place, role in found.items()}


def _are_numbers(table: Table, places: Sequence[int]) -> bool:
    cells = [cell for place in places for cell in table.cells(place) if cell not in MISSING]
    return bool(cells) and all(is_number(cell) or tally.flag(cell) is not None for cell in cells)


def _winner_role(table: Table, winner: int) -> str | None:
    """Whether a column names the winner, or has words or numbers for the sides; None if it does neither."""
    first, second = table.columns[table.roles["first"]], table.columns[table.roles["second"]]
    name, meaning = table.columns[winner], tally.vocabulary(first)
    sides = zip(table.cells(table.roles["first"]), table.cells(table.roles["second"]), strict=True)
    rows = [(cell, *pair) for cell, pair in zip(table.cells(winner), sides, strict=True) if cell not in NO_SCORE]
    said = {cell for cell, *_ in rows}
    numbers = {parse_weight(cell) for cell in said if is_number(cell)}
    as_words = [meaning(cell) for cell, *_ in rows]
    as_names = [cell in pair or said == tally.TIE for (cell, *pair), said in zip(rows, as_words, strict=True)]
    if rows and sum(as_names) >= MOST * len(rows) and any(cell in pair for cell, *pair in rows):
        agree = all(pair[said - 1] == cell for (cell, *pair), said in zip(rows, as_words, strict=True) if said > 0)
        if any(said > 0 for said in as_words) and not agree:
            raise IngestError(
                f"{name!r} may name the winner, or the side that won: say "
                f"{column_option('winner_name', name)} or {column_option('winner', name)}"
            )
        return "winner_name"
    if len(numbers) == len(said) and numbers and not (numbers <= {0, 1, 2, 1.5} and 2 in numbers):
        if not numbers <= {-1.0, 0.0, 0.5, 1.0}:
            return None
        raise IngestError(
            f"{name!r} holds {', '.join(sorted(said))}: if 1 means that {first!r} won, and "
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
            f"{name!r} should say which of {first!r} and {second!r} won, but holds "
            f"{', '.join(shown(word) for word, _ in odd)} in {len(rows) - known} of {len(rows)} rows: correct these "
            "words, or leave the rows out with --where"
        )
    return None


def _refuse_sides_alone(table: Table, sides: dict[str, int]) -> None:
    """An error if two columns are certainly the sides of battles, and nothing says who won: neither is a place."""
    first, second = (table.columns[sides[role]] for role in ("first", "second"))
    others = [place for place in table.values if place not in sides.values()]
    fighters = {*tally.words_of(first)} & _FIGHTERS or (others and {*tally.words_of(first)} & _SIDES_ALONE)
    if fighters and not {"first", "second"} & {first.lower(), second.lower()}:
        raise IngestError(
            f"{first!r} and {second!r} seem to be the two sides of battles, but no column says who won: "
            f"name it with --column winner=NAME, or --column won=NAME if it holds 1 or yes where {first!r} won, and 0 "
            f"or no where it lost, or --column first_score=NAME --column second_score=NAME; "
            f"if {first!r} always won, say --format wide {column_option('places', first, second)}"
        )


def _refuse_results_alone(table: Table, roles: dict[str, int]) -> None:
    """An error if a column has words for two sides, but no two columns are named after them."""
    if "winner" not in roles:
        return
    cells = [cell for cell in table.cells(roles["winner"]) if cell not in MISSING]
    words = [word for word in set(cells) if not is_number(word)]
    if words and len(words) < len(cells) and min(map(tally.vocabulary(""), words)) >= 0:
        raise IngestError(
            f"the column {table.columns[roles['winner']]!r} ({', '.join(sorted(words)[:4])}) says which of two "
            "sides won, but no two columns are named after them: say --column first=NAME --column second=NAME"
        )


def _explained(table: Table) -> Table:
    """The table with sentences for the user: how the result was understood, and what leaderboards leave out."""
    roles, columns = table.roles, table.columns
    if "winner" in roles:
        cells = table.cells(roles["winner"])
        codes = Counter(map(tally.vocabulary(columns[roles["first"]]), cells))
        bad = sum(tally.plain_name(cell) in tally.BAD for cell in cells)
        bad_words = f", of which {bad:,} say that both are bad" if bad else ""
        table = table.with_guess(
            f"of the first {len(cells):,} rows {columns[roles['first']]!r} wins {codes[tally.FIRST_WON]:,}, "
            f"{columns[roles['second']]!r} {codes[tally.SECOND_WON]:,}, and {codes[tally.TIE]:,} are ties{bad_words}"
        )
    if {"winner_name", "first"} <= roles.keys():
        table = table.with_guess(f"{columns[roles['winner_name']]!r} names the winner")
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


# Features: a pair of columns, one for each side.


def feature_roles(columns: Sequence[str], options: ReadOptions) -> dict[str, str]:
    """The columns of features by their roles: that of an item, or those of both sides."""
    roles: dict[str, str] = {}
    for name, named in options.columns_of_features.items():
        roles |= zip((f"{FEATURE}{name}", f"{OF_SECOND}{name}"), _columns_of(columns, name, named), strict=False)
    return roles


def _columns_of(columns: Sequence[str], name: str, named: Sequence[str]) -> Sequence[str]:
    """The columns that are named; if there is none of a single name, the pair that has its words and that of a side."""
    words = {*tally.words_of(name)}
    having = [pair for pair in _pairs(columns) if words <= pair.words]
    having = [pair for pair in having if words == pair.words] or having
    if len(named) > 1 or name in columns or not having:
        return named
    # Signs that are not letters may be all that columns differ in.
    alike = [{*tally.words_of(column)} for column in columns]
    if len(having) > 1 or alike.count(alike[having[0].first]) > 1:
        raise _not_clear(name)
    return [columns[place] for place in having[0][:2]]


def check_features(table: Table, options: ReadOptions, roles: Mapping[str, str]) -> None:
    """An error unless each feature has a column for the first side and one for the second."""
    first = table.columns[table.roles["first"]] if "first" in table.roles else ""
    for name, named in options.columns_of_features.items():
        stands_first = len(named) == 2 or tally.SIDES.keys() & {*tally.words_of(first)}
        if f"{OF_SECOND}{name}" not in roles or not stands_first:
            raise _not_clear(name)


def _not_clear(name: str) -> IngestError:
    return IngestError(
        f"it is not clear which columns hold the feature {name!r} of both sides: name them, that of the first side (or "
        f"of the winner) first, such as --column 'features={name}=FIRST|SECOND'"
    )


BATTLES = Format(
    name="battles",
    recognise=_recognise,
    read=tally.read_battles,
    about="two sides in each row, and who won: by words, names, flags, scores or counts",
    example="model_a,model_b,winner,judge\ntea,mate,model_a,ann",
    roles=dict.fromkeys(("first", "second", "winner", "group", *tally.ROLES[1:], "loser", *tally.COUNTS), ())
    | {"winner": _WINNER, "group": _PERSONS, "winner_name": tuple(_LOST), "loser": tuple(_LOST.values())},
    scattered=lambda header: "group" in header.roles,
    merges=True,
    takes_features=True,
)
