"""Rows as Python has them: ties as groups in a row, text such as `a > b = c`, choices from slates, counts, profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import IngestError, RankingError, SettingsError
from plmix_dist.rankings import RankingBlock, Unranked, check_numbered_from_zero, check_rows
from plmix_dist.rankings.columns import below_flags, item_dtype, narrowest
from plmix_dist.settings import shown
from plmix_dist.tables.encode import natural_order
from plmix_dist.tables.frames import Cells, Names, numbered
from plmix_dist.tables.notation import divider_of, parse_ordering

_SIGNS = frozenset(">=|{")
_GROUPS = (list, tuple, set, frozenset, np.ndarray)


class Noted(NamedTuple):
    """Rows of any notation, how often each occurs (None: once), and all items, if the source names them."""

    rows: Sequence[Any]
    weights: Sequence[float] | None = None
    names: Sequence[str] | None = None


class _Row(NamedTuple):
    """The items of a row, how many of them are ordered, and which are tied with the item before."""

    items: list[Any]
    n_ordered: int
    tied: list[bool]


def noted(source: Any) -> Noted | None:
    """The rows of a dict of counts, a profile of VoteKit or pref_voting, or texts in notation; None of all else."""
    if isinstance(source, Mapping):
        return Noted(list(source), list(source.values())) if all(map(_is_key, source)) else None
    if hasattr(source, "ballots") and hasattr(source, "candidates"):
        return _of_ballots(source.ballots, natural_order(map(str, source.candidates)))
    if hasattr(source, "rankings_counts"):
        rows, counts = source.rankings_counts
        names = getattr(source, "cmap", None) or {}
        all_names = natural_order(str(names.get(one, one)) for one in getattr(source, "candidates", None) or names)
        return Noted([_of_ranking(row, names) for row in rows], [float(count) for count in counts], all_names or None)
    texts = isinstance(source, list | tuple) and source and all(isinstance(row, str) for row in source)
    return Noted(source) if texts and any(_SIGNS & {*row} for row in source) else None


def with_groups(rows: Any, cells: Any) -> Noted | None:
    """The rows of a list if some of their cells are groups of items; None if all are items."""
    grouped = isinstance(cells, list) and any(isinstance(cell, _GROUPS) for cell in cells)
    return Noted(list(rows)) if grouped and rows is not None else None


def _is_key(key: Any) -> bool:
    return isinstance(key, tuple | frozenset) or (isinstance(key, str) and bool(_SIGNS & {*key}))


def _of_ballots(ballots: Any, names: Sequence[str]) -> Noted:
    """The ballots of a profile: places of one or several candidates, of which empty ones were left blank."""
    rows, weights = [], []
    for number, ballot in enumerate(ballots):
        if not (ranking := getattr(ballot, "ranking", None)):
            raise RankingError(f"ballot {number} has no ranking (scores are not ranked here); leave it out")
        rows.append([set(place) for place in ranking if place and set(place) != {"~"}])
        weights.append(float(ballot.weight))
    return Noted(rows, weights, names)


def _of_ranking(row: Any, names: Mapping[Any, Any]) -> list[Any]:
    """A ranking of pref_voting: candidates in order, or their ranks."""
    if not hasattr(row, "rmap"):
        return [str(names.get(one, one)) for one in row]
    ranked = sorted(row.rmap.items(), key=lambda pair: pair[1])
    return [[str(names.get(one, one)) for one, _ in tied] for _, tied in groupby(ranked, key=lambda pair: pair[1])]


def block_of_notes(
    given: Noted, n_items: int | None, unranked: Unranked | None, item_names: Names | None
) -> tuple[RankingBlock, Names | None]:
    """A block of the rows, and the names of the items; None if they are numbers. `item_names` are those of a model."""
    if not len(given.rows):
        raise SettingsError("no rankings were given")
    divider = divider_of([row for row in given.rows if isinstance(row, str)])
    rows = [_row(row, number, divider) for number, row in enumerate(given.rows)]
    n_listed = np.array([len(row.items) for row in rows], np.int64)
    cells = Cells([item for row in rows for item in row.items], n_listed)
    numbers, names = numbered(cells, item_names or (tuple(given.names) if given.names else None))
    if (numbers < 0).any():
        raise RankingError(f"{cells.place(int(numbers.argmin()))}: an item is missing, or has a number below 0")
    if names is not None and n_items not in (None, len(names)):
        raise SettingsError(f"n_items is {n_items}, but the rows name {len(names)} items; leave out n_items")
    names = item_names if names is None else names
    if names is None and n_items is None and numbers.size:
        check_numbered_from_zero(int(numbers.min()), int(numbers.max()))
    n_ordered = np.array([row.n_ordered for row in rows], np.int64)
    tied = np.array([flag for row in rows for flag in row.tied], np.bool_)
    weights = None if given.weights is None else _weights(given.weights)
    n_items = n_items if names is None else len(names)
    ties = tied if tied.any() else None
    block = block_of_numbers(
        numbers, n_listed, n_items, unranked, n_ordered=narrowest(n_ordered), tied=ties, weights=weights
    )
    check_rows(block, item_names=names)
    return block, names


def block_of_numbers(
    numbers: NDArray[Any], n_listed: NDArray[np.int64], n_items: int | None, unranked: Unranked | None, **notes: Any
) -> RankingBlock:
    """A block of the numbers of items, one row after the other; `notes` are columns of a block."""
    n_ordered = notes.setdefault("n_ordered", narrowest(n_listed))
    end = int(numbers.max()) + 1 if numbers.size else 0
    n_items = end if n_items is None else n_items
    # Rows that are not ordered to their end say themselves what was on offer.
    below = below_flags(np.where(n_ordered == n_listed, n_listed, n_items), n_items, unranked)
    items = numbers.astype(item_dtype(max(n_items, end)))
    return RankingBlock(items=items, n_listed=narrowest(n_listed), below=below, n_items=n_items, **notes)


def _weights(weights: Sequence[Any]) -> NDArray[np.float64]:
    try:
        return np.array([float(weight) for weight in weights], np.float64)
    except (TypeError, ValueError):
        raise RankingError(
            "a dict gives the number of each ranking, such as {('tea', 'mate'): 12}, but a value is not a number"
        ) from None


def _row(row: Any, number: int, divider: str | None) -> _Row:
    """One row in any notation; an error that names it."""
    if isinstance(row, str):
        try:
            labels, n_ordered, ties = parse_ordering(row, divider)
        except IngestError as error:
            raise RankingError(f"row {number}: {error}") from None
        return _Row(list(labels), n_ordered, list(ties or [False] * len(labels)))
    if not isinstance(row, list | tuple | np.ndarray):
        raise RankingError(f"row {number} must be a list of items, best first, but is {shown(row)}")
    return _choice(row[0], _in_order(row[1]), number) if _is_choice(row) else _places(row)


def _places(row: Any) -> _Row:
    """A row of items and of groups of tied items."""
    groups = [_in_order(place) if isinstance(place, _GROUPS) else [place] for place in row]
    items = [item for group in groups for item in group]
    return _Row(items, len(items), [position > 0 for group in groups for position in range(len(group))])


def _in_order(place: Any) -> list[Any]:
    """The items of a group; those of a set in an order that does not change."""
    return sorted(place, key=str) if isinstance(place, set | frozenset) else list(place)


def as_listed(rows: Any) -> NDArray[np.int64] | None:
    """(total listed,): where the items of choices (chosen, offered) stand in what was offered; None without choices."""
    if not isinstance(rows, list | tuple) or not any(map(_is_choice, rows)):
        return None
    divider = divider_of([row for row in rows if isinstance(row, str)])
    order: list[int] = []
    for number, row in enumerate(rows):
        listed = _row(row, number, divider).items
        offered = _in_order(row[1]) if _is_choice(row) else listed
        place = {item: len(order) + number for number, item in enumerate(offered)}
        order += [place[item] for item in listed]
    return np.array(order)


def _is_choice(row: Any) -> bool:
    return isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], _GROUPS)


def _choice(chosen: Any, offered: list[Any], number: int) -> _Row:
    """What was chosen, one item or several, best first, before all others on offer."""
    best = _places(chosen if isinstance(chosen, list | tuple) else [chosen])
    if (missing := next((item for item in best.items if item not in offered), None)) is not None:
        raise RankingError(
            f"row {number}: a tuple of two is a choice (chosen, offered), but {shown(missing)} is not on offer; write "
            "a ranking with ties as a list"
        )
    rest = [item for item in offered if item not in best.items]
    return _Row([*best.items, *rest], len(best.items), [*best.tied, *[False] * len(rest)])
