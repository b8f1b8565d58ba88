"""Columns of a block: the narrowest integer types, labels as numbers or text, weights, flags, cells about persons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plmix_dist.errors import IngestError, RankingError, SettingsError

# Arrays of log-worths, shares, weights, probabilities and what is computed from them.
Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[Any]  # int64, or strings of variable width (numpy.dtypes.StringDType)

Unranked = Literal["below", "absent"]

STRING = np.dtypes.StringDType()


def item_dtype(n_items: int) -> np.dtype[np.unsignedinteger]:
    """The narrowest unsigned type that holds the numbers 0 to n_items - 1.

    Examples
    --------
    >>> item_dtype(256), item_dtype(257)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(max(n_items - 1, 0))


def narrowest(counts: NDArray[Any]) -> NDArray[np.unsignedinteger]:
    """Non-negative integers in the narrowest unsigned type that holds all of them.

    Examples
    --------
    >>> narrowest(np.array([3, 300])).dtype
    dtype('uint16')
    """
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


def label_column(labels: Sequence[Any] | NDArray[Any]) -> Labels:
    """Ids or groups as int64 if all are integers, otherwise as strings of variable width.

    Examples
    --------
    >>> label_column([7, 8]).tolist(), label_column(["7", "b"]).tolist()
    ([7, 8], ['7', 'b'])
    """
    column = np.asarray(labels)
    if column.dtype == STRING:
        return column
    if column.dtype.kind == "i" or (column.dtype.kind == "u" and int(column.max(initial=0)) < 2**63):
        return column.astype(np.int64)
    return np.array([str(label) for label in labels], STRING)


# What stands between the cells about one person, where these are one text.
BETWEEN_CELLS = "\x1f"
# A column with more levels than this holds names or numbers of persons, not categories.
_MOST_LEVELS = 500


def levels_of(names: Sequence[str], profiles: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """The levels of each column about persons in their order; none of a column of numbers.

    `profiles` are cells about persons, one for each name.

    Examples
    --------
    >>> levels_of(["age", "region"], [("31", "south"), ("8", "north")])
    {'age': [], 'region': ['north', 'south']}
    """
    found: dict[str, list[str]] = {}
    for name, cells in zip(names, zip(*profiles, strict=True), strict=True):
        words = [cell for cell in cells if not _is_number(cell)]
        found[name] = sorted(set(cells)) if words else []
        if len(found[name]) > _MOST_LEVELS:
            raise IngestError(
                f"the column {name!r} has {len(found[name]):,} different values, of which {words[0]!r} is not a "
                f"number; categories are at most {_MOST_LEVELS}. Leave the column out, or write numbers"
            )
    return found


def _is_number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def coded_profiles(
    levels: Mapping[str, Sequence[str]], profiles: Sequence[Mapping[str, str]]
) -> tuple[Floats, tuple[str, ...]]:
    """Columns of numbers (n_profiles, n_columns), and their names: each level but the first has a column of 0 and 1.

    Examples
    --------
    >>> levels = {"age": [], "region": ["north", "south"]}
    >>> coded_profiles(levels, [{"age": "31", "region": "south"}, {"age": "8", "region": "north"}])
    (array([[31.,  1.],
           [ 8.,  0.]]), ('age', 'region=south'))
    """
    columns: dict[str, list[float]] = {}
    for name, known in levels.items():
        cells = [profile[name] for profile in profiles]
        odd = next((cell for cell in cells if (cell not in known if known else not _is_number(cell))), None)
        if odd is not None:
            expected = f"one of {', '.join(known)}" if known else "a number"
            raise SettingsError(f"{name} is {odd!r} here, but was {expected} in the fit; leave these rows out")
        columns |= {f"{name}={level}": [float(cell == level) for cell in cells] for level in known[1:]}
        columns |= {} if known else {name: [float(cell) for cell in cells]}
    return np.array(list(columns.values()), np.float64).reshape(len(columns), len(profiles)).T, tuple(columns)


def joined_labels(columns: Sequence[Labels | None]) -> Labels | None:
    """Labels of several blocks as one column. They become text if some are numbers and some are text.

    Examples
    --------
    >>> joined_labels([label_column([1, 2]), None, label_column(["c"])]).tolist()
    ['1', '2', 'c']
    """
    present = [column for column in columns if column is not None]
    if not present:
        return None
    if len({column.dtype for column in present}) > 1:
        present = [label_column([str(label) for label in column]) for column in present]
    return np.concatenate(present)


def table_of(rows: Any) -> NDArray[Any]:
    """Rows as an array; an error if they do not have the same length, or are not rows at all.

    Examples
    --------
    >>> table_of([[0, 1], [1, -1]]).shape
    (2, 2)
    >>> table_of([[0, 1], [1]])
    Traceback (most recent call last):
    ...
    plmix_dist.errors.RankingError: row 0 has 2 places and row 1 has 1; fill short rows with -1 to the same length
    """
    if hasattr(rows, "tocsr"):
        raise RankingError(
            "sparse input is not supported: a row lists the numbers of items, best first, and item 0 would be lost; "
            "give a dense array (.toarray()), or a list of lists"
        )
    if isinstance(rows, np.ma.MaskedArray):
        raise RankingError("masked arrays are not taken; fill masked places with -1 first: array.filled(-1)")
    try:
        return np.asarray(rows)
    except (TypeError, ValueError, OverflowError) as error:
        lengths = [len(row) if hasattr(row, "__len__") else 0 for row in rows] if hasattr(rows, "__iter__") else []
        other = next((number for number, length in enumerate(lengths) if length != lengths[0]), None)
        if other is None:
            raise RankingError(f"expected an array of shape (rankings, places), best first: {error}") from None
        raise RankingError(
            f"row 0 has {lengths[0]} places and row {other} has {lengths[other]}; "
            "fill short rows with -1 to the same length"
        ) from None


def row_lengths(table: NDArray[Any], first_row: int = 0) -> NDArray[np.int64]:
    """(n_rankings,): the number of items in each row of an array; an error if it cannot hold rankings.

    Examples
    --------
    >>> row_lengths(np.array([[2, 0, 1], [1, -1, -1]])).tolist()
    [3, 1]
    """
    if table.ndim != 2:
        one = "; put a single ranking into a list: [ranking]" if table.ndim == 1 else ""
        raise RankingError(
            f"expected an array of shape (rankings, places), best first, but got shape {table.shape}{one}"
        )
    if table.dtype.kind not in "iu":
        raise RankingError(
            f"expected integer item numbers, but got {table.dtype}; "
            "number the items from 0 and mark missing places with -1"
        )
    listed = table >= 0
    n_listed: NDArray[np.int64] = np.count_nonzero(listed, axis=1)
    gaps = np.argwhere(listed[:, 1:] & ~listed[:, :-1])
    if len(gaps):
        row, column = gaps[0].tolist()
        raise RankingError(
            f"row {first_row + row}: an item follows a missing place (-1) in column {column}; "
            "-1 may only follow the last item of a row"
        )
    low = int(table.min(initial=0))
    if low < -1:
        row = first_row + int(np.flatnonzero((table == low).any(axis=1))[0])
        raise RankingError(f"row {row}: item {low} is out of range; items are numbered from 0")
    return n_listed


def weight_column(weights: ArrayLike, n_rankings: int) -> Floats:
    """(n_rankings,): weights as float64, or an error if they are not one number per ranking.

    Examples
    --------
    >>> weight_column([3, 1], 2).tolist()
    [3.0, 1.0]
    """
    try:
        column = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise RankingError(f"weights must be numbers: {error}") from None
    if column.shape != (n_rankings,):
        raise RankingError(f"expected {n_rankings} weights, one per ranking, but got shape {column.shape}")
    return column


def below_flags(
    n_listed: NDArray[np.integer], n_items: int, unranked: Unranked | None, first_row: int = 0
) -> NDArray[np.bool_]:
    """(n_rankings,): True for each row whose unlisted items rank below its listed ones.

    It is an error if a row is shorter than `n_items` and `unranked` is None.

    Examples
    --------
    >>> below_flags(np.array([3, 1]), 3, "below").tolist()
    [False, True]
    """
    if unranked not in (None, "below", "absent"):
        raise RankingError(f'unranked must be "below" or "absent", but got {unranked!r}')
    short = n_listed < n_items
    if unranked is None and short.any():
        row = int(np.flatnonzero(short)[0])
        raise RankingError(
            f"row {first_row + row} lists {int(n_listed[row])} of {n_items} items, and nothing says whether the "
            'others were on offer: say unranked="below" (they rank below) or unranked="absent" (they were not)'
        )
    return short if unranked == "below" else np.zeros(len(n_listed), np.bool_)


def filled(column: NDArray[Any] | None, length: int, default: float) -> NDArray[Any]:
    """The column itself or, if there is none, `length` times its default.

    Examples
    --------
    >>> filled(None, 2, 1.0).tolist()
    [1.0, 1.0]
    """
    return np.full(length, default) if column is None else column
