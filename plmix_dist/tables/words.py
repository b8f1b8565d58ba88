"""What words say: the roles and places of columns, the numbers and ranks in cells, which words are not items."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from plmix_dist.tables.notation import from_spreadsheet


def names_in(text: str) -> tuple[str, ...]:
    """Names between blanks, in their order."""
    return tuple(text.split())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Column names that are recognised for each role of any table, in this order. Export writes the first.
COLUMN_NAMES: dict[str, tuple[str, ...]] = {
    "id": (*("ranking", "ranking_id", "id", "ballot", "ballot_id"), *("respondent", "respondent_id", "participant_id")),
    "weight": ("count", "weight", "counts", "weights", "freq", "frequency", "votes", "n_votes", "voters", "wt"),
    "group": ("group", "person", "voter", "user", "person_id", "voter_id", "user_id", "userid"),
    "unranked": ("unranked",),
    "item": ("item", "item_id", "itemid", "item_name", "alternative", "candidate", "movieid", "product_id"),
    "rank": ("rank", "place", "position"),
    "ordering": ("ordering", "ranking_order", "order"),
    "items": ("items", "ranking_items"),
}
LABEL_ROLES = ("weight", "id", "group", "unranked")
# Options that name several columns: the places of a ranking, best first, those left out, features of the item of a row,
# what is known of the person.
LISTS_OF_COLUMNS = ("places", "ignore", "features", "persons")


def written_name(role: str) -> str:
    """The column name of a role in exported files."""
    return COLUMN_NAMES[role][0]


# Names of columns that hold places of a ranking, and which place each is.

_WORDS_OF_PLACES = (
    ("first", "best", "top", "winner", "won", "favourite", "favorite", "most", "gold", "chosen", "better"),
    ("second", "silver", "runner up", "runner-up", "runner_up", "runnerup"),
    ("third", "bronze"),
    *(("fourth",), ("fifth",), ("sixth",), ("seventh",), ("eighth",), ("ninth",), ("tenth",)),
)
# The last of all on offer, whatever their number.
_LAST = ("worst", "last", "loser", "lost", "least", "bottom", "rejected", "worse")
_NUMBER_OF_WORD = {word: float(place) for place, words in enumerate(_WORDS_OF_PLACES, start=1) for word in words}
_NUMBER_OF_WORD |= dict.fromkeys(_LAST, math.inf)
_ORDINAL = "|".join(sorted(map(re.escape, _NUMBER_OF_WORD), key=len, reverse=True))
_NOUN = "place|rank|ranking|choice|preference|pref|position|pos|top|vote|p|r"
_PLACE = re.compile(
    rf"(?P<word>{_ORDINAL})(?:[ _.-]*(?:{_NOUN}|preferred|important))?|(?:{_NOUN})[ _.-]*#?(?P<after>\d+)"
    rf"|(?P<before>\d+)(?:st|nd|rd|th|\.)?[ _.-]*(?:{_NOUN})|(?P<ordinal>\d+)(?:st|nd|rd|th)",
    re.IGNORECASE,
)
_GENERIC = re.compile(
    r"(?P<stem>v|x|c|col|column|var|item|field|unnamed:)?[ _.-]*(?P<number>\d+)|[a-z]|", re.IGNORECASE
)
# `rank2` may be the item at rank 2, or the rank of item 2.
_EITHER_WAY = re.compile(r"(?:rank|ranking|r|pos|position|pref|preference|vote)[ _.-]*#?\d+", re.IGNORECASE)
# Columns that describe a person or a ballot, and are not items.
_COVARIATES = _words(
    "sex gender age year born education income region country state county district precinct ward town city zip "
    "postcode language race party party_id religion married children date time timestamp datetime email e-mail ip "
    "duration comment comments remarks batch wave session n"
)


def place_number(name: str) -> float | None:
    """The place that a column is named after, from 1; infinity for the last place; None if it is named otherwise."""
    if (found := _PLACE.fullmatch(name.strip())) is None:
        return None
    if found["word"]:
        return _NUMBER_OF_WORD[found["word"].lower()]
    return float(found["after"] or found["before"] or found["ordinal"])


def is_place_name(name: str) -> bool:
    """Whether a column is named as a place of a ranking."""
    return place_number(name) is not None


def is_generic_name(name: str) -> bool:
    """Whether a column name means nothing: a number, one letter, or what tools write for a missing name."""
    return bool(_GENERIC.fullmatch(name.strip()))


def is_unnamed(name: str) -> bool:
    """Whether a column has no name, or what pandas writes where there is none."""
    return not name or name.lower().startswith("unnamed:")


def is_covariate_name(name: str) -> bool:
    """Whether a column is named after something that is known of a person or a ballot."""
    return name.strip().lower() in _COVARIATES


def may_be_count(name: str) -> bool:
    """Whether a column may count rows: it is asked about apart from those that are only known of a person."""
    return name.strip().lower() == "n"


def may_be_ranks_of_items(names: Iterable[str]) -> bool:
    """Whether names such as rank1, rank2 do not say if their columns are places, or items whose ranks they hold."""
    return all(_EITHER_WAY.fullmatch(name.strip()) for name in names)


def order_of_places(names: Sequence[str]) -> list[int] | None:
    """The columns from the best place to the last, by their names; None if the names do not say it.

    Names that mean nothing, such as v1, v2 or a, b, are in order if they ascend.
    """
    known = [number for number in map(place_number, names) if number is not None]
    if len(known) == len(names):
        return sorted(range(len(names)), key=known.__getitem__) if len(set(known)) == len(names) else None
    return list(range(len(names))) if all(map(is_generic_name, names)) and _ascend(names) else None


def _ascend(names: Sequence[str]) -> bool:
    found = [_GENERIC.fullmatch(name.strip()) for name in names if name.strip()]
    keys = [(one["stem"] or "", int(one["number"])) if one and one["number"] else (one[0], 0) for one in found if one]
    numbers = [number for stem, number in keys if not stem]
    counted = not numbers or numbers in ([*range(len(numbers))], [*range(1, len(numbers) + 1)])
    return counted and all(before <= after for before, after in pairwise(keys))


# Cells: numbers and ranks that are written as text, and words that stand for something else than an item.

# What stands for no item in a table of places, and for no rank in a table of ranks.
MISSING = frozenset({"", "NA", "NaN", "nan", "-1"})
NO_RANK = MISSING | {"-", "--", "N/A", "n/a", "null", "NULL"}
NOT_RANKED = NO_RANK | {"0"}
NO_SCORE = MISSING - {"-1"}

_RANK = re.compile(
    r"(?:#|rank|place|no\.|=)?\s*(?P<number>\d+(?:[.,]\d+)?)\s*(?:st|nd|rd|th|=|\.|\))?(?:\s+(?:place|choice|rank))?",
    re.IGNORECASE,
)
_ORDINALS = names_in("first second third fourth fifth sixth seventh eighth ninth tenth")
_ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4, "V": 5, "VI": 6, "VII": 7, "VIII": 8, "IX": 9, "X": 10}
_PLACE_IN_CELL = re.compile(
    rf"(?:{_ORDINAL})(?:[ _.-]*(?:{_NOUN}|preferred|important|liked))?|(?:rank|place|choice)[ _.-]*#?\d+"
    r"|#\s*\d+|=?\s*\d+\s*(?:st|nd|rd|th|=)(?: (?:place|choice|rank))?|=\d+",
    re.IGNORECASE,
)
_MARKS = _words(
    "skipped skip under undervote over overvote uwi write-in writein undeclared exhausted tie tied draw left right "
    "model_a model_b both_bad bothbad dnf dns dsq dq nc n/a na nan none null nil - -- ++ xxx . ? missing"
) | {"write in", "tie (bothbad)", "no answer", "both bad", "uncertified write in", "(undeclared)"}


def rank_in(cell: str) -> float | None:
    """The rank that a cell holds, also as `1st`, `#1` or `1=`; None if it holds another text."""
    word = cell.strip().lower()
    if word in _ORDINALS:
        return float(_ORDINALS.index(word) + 1)
    found = _RANK.fullmatch(word) if cell.isascii() else None
    return None if found is None else float(found["number"].replace(",", "."))


def words_not_items(labels: Iterable[str]) -> list[str]:
    """The labels that most often stand for something else than an item: marks, results, ranks written as words."""
    found = list(labels)
    marks = [label for label in found if label.strip().lower() in _MARKS or _PLACE_IN_CELL.fullmatch(label.strip())]
    roman = len(found) > 1 and "I" in found and all(label in _ROMAN for label in found)
    return sorted(found if roman else marks)


def cell_text(value: Any, clean: bool = True) -> str:
    """A cell as text: nothing for a missing one, whole numbers without a decimal point."""
    if isinstance(value, str):
        return value if clean else from_spreadsheet(value.strip())
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if math.isnan(value) else number_text(value)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def parse_weight(text: str | float | None) -> float:
    """A weight as a number, or NaN if it is not a number. Rows with NaN are rejected later."""
    try:
        # float() reads "1_000" as a thousand, which other tools do not.
        return float("nan") if text is None or "_" in str(text) else float(text)
    except (TypeError, ValueError):
        return float("nan")


def decimal_hint(text: str) -> str:
    """What to do about a number with a decimal comma; empty for other text."""
    return "; write a decimal point" if "," in text and text.replace(",", "", 1).isdigit() else ""


def number_text(weight: float) -> str:
    """A weight as text: counts without a decimal point, other numbers with all their digits."""
    return str(int(weight)) if float(weight).is_integer() else repr(float(weight))
