"""pandas, Polars and Arrow tables as arrays of cells, recognised without importing their libraries."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import RankingError
from plmix_dist.rankings.columns import table_of
from plmix_dist.settings import shown
from plmix_dist.tables.encode import natural_order

# The names of all items, in their order.
Names: TypeAlias = tuple[str, ...]


class Frame(NamedTuple):
    """The cells of a table (rows, places), or the lists in its only column."""

    columns: tuple[str, ...]
    cells: NDArray[Any]
    rows: list[Any] | None = None
    names: tuple[str, ...] | None = None  # of all items, where columns of categories declare them


def frame_of(source: Any) -> Frame | None:
    """The cells of a pandas, Polars or Arrow table; None if the source is none. An index of pandas is not a column."""
    library = type(source).__module__.partition(".")[0]
    if library in ("dask", "dask_expr") and hasattr(source, "to_dask_array"):
        raise RankingError(
            "Dask tables are not taken; hand in numbers as table.to_dask_array(lengths=True), or compute() the table"
        )
    if library == "polars" and hasattr(source, "collect"):
        raise RankingError("a lazy table has no rows yet: hand in table.collect()")
    if library == "pandas":
        return _of_pandas(source)
    if library == "datasets":  # of Hugging Face, whose rows may be chosen and shuffled by indices
        if hasattr(source, "keys"):
            raise RankingError(f"hand in one part of the datasets, such as {next(iter(source), 'train')!r}")
        if not hasattr(source, "__len__"):
            raise RankingError("a dataset that streams has no end here: hand in datasets.Dataset.from_list(list(...))")
        return _of_arrow(source.with_format("arrow")[:])
    if type(source) is dict and source and all(isinstance(part, list | tuple | np.ndarray) for part in source.values()):
        import pyarrow as pa

        return _of_arrow(pa.table({str(name): list(part) for name, part in source.items()}))
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return _of_arrow(source)
    return None


def _of_pandas(source: Any) -> Frame:
    if source.ndim == 1:
        return Frame((str(source.name),), np.empty((0, 0)), list(source))
    columns = tuple(map(str, source.columns))
    kinds = {getattr(dtype, "kind", "O") for dtype in source.dtypes}
    missing = source.isna().to_numpy()
    if kinds <= set("iuf"):
        whole = kinds <= set("iu") and not missing.any()
        cells = source.to_numpy(dtype=np.int64) if whole else source.to_numpy(dtype=np.float64, na_value=np.nan)
        return Frame(columns, cells)
    cells = source.to_numpy(dtype=object, copy=True)
    if len(columns) == 1 and len(cells) and isinstance(cells[0, 0], list | tuple | np.ndarray):
        return Frame(columns, cells, cells[:, 0].tolist())
    cells[missing] = None
    return Frame(columns, cells, names=_categories(source))


def _categories(source: Any) -> tuple[str, ...] | None:
    """The categories that all columns of a pandas table share, if they are text."""
    declared = [tuple(getattr(dtype, "categories", ())) for dtype in source.dtypes]
    shared = declared[0] if declared and len(set(declared)) == 1 else ()
    return shared if shared and all(isinstance(name, str) for name in shared) else None


def _of_arrow(source: Any) -> Frame:
    import pyarrow as pa

    if not (hasattr(source, "column_names") or hasattr(source, "columns")):  # a column, not a table
        column = pa.chunked_array(source) if hasattr(source, "__arrow_c_stream__") else pa.array(source)
        return Frame(("",), np.empty((0, 0)), column.to_pylist())
    table = pa.table(source)
    columns = tuple(table.column_names)
    if len(columns) == 1 and isinstance(table.column(0).type, pa.ListType | pa.LargeListType):
        return Frame(columns, np.empty((0, 0)), table.column(0).to_pylist())
    types = [column.type for column in table.columns]
    if types and all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in types):
        return Frame(columns, np.column_stack([column.to_numpy() for column in table.columns]))
    cells = np.empty((table.num_rows, len(columns)), object)
    for place, column in enumerate(table.columns):
        cells[:, place] = column.to_pylist()
    return Frame(columns, cells)


# Cells: what lists, arrays and tables hold, row after row, before it is known which items the cells mean.


@dataclass(frozen=True)
class Cells:
    """The cells of all rows, one row after the other."""

    values: NDArray[Any] | list[Any]  # (total,): an array of numbers, or a list of objects of any kind
    lengths: NDArray[np.int64]  # (n_rankings,): how many cells each row has
    columns: tuple[str, ...] | None = None  # The names of the columns, for a table
    names: tuple[str, ...] | None = None  # The items that a table declares, whether or not a row lists them

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """(n_rankings,): where each row begins in `values`."""
        return np.cumsum(self.lengths) - self.lengths

    def row_and_column(self, index: int) -> tuple[int, int]:
        """The row and the column of a cell."""
        row = int(np.searchsorted(self.starts + self.lengths, index, side="right"))
        return row, index - int(self.starts[row])

    def column_words(self, column: int) -> str:
        """A column for messages, with its name if it has one."""
        return f"column {column}" if self.columns is None else f"column {column} ({self.columns[column]!r})"

    def place(self, index: int) -> str:
        """A cell for messages: its row and column."""
        row, column = self.row_and_column(index)
        return f"row {row}, {self.column_words(column)}"

    def place_of(self, value: Any) -> str:
        """The first cell with a value, which is one of `values` itself, for messages."""
        return self.place(next(index for index, one in enumerate(self.values) if one is value))


def cells_of(source: Any, frame: Frame | None) -> Cells:
    """The cells of a list of rows, an array, or a pandas, Polars or Arrow table."""
    if frame is not None:
        if frame.rows is not None:
            return _of_rows(frame.rows)
        return replace(_of_table(frame.cells), columns=frame.columns, names=frame.names)
    if isinstance(source, np.ma.MaskedArray):
        table_of(source)  # refuses
    if isinstance(source, np.ndarray):
        return _of_rows(source.tolist()) if _holds_rows(source) else _of_table(source)
    if isinstance(source, list | tuple):
        return _of_list(source)
    return _of_table(table_of(source))


def _of_table(table: NDArray[Any]) -> Cells:
    """The cells of an array (rows, places)."""
    if table.ndim != 2:
        raise RankingError(f"expected an array of shape (rankings, places), best first, but got {_not_rows(table)}")
    if table.dtype.kind not in "iufOUT":
        raise RankingError(
            f"expected item names or integer item numbers, but got {table.dtype}; number the items from 0 and mark "
            "missing places with -1"
        )
    flat = table.reshape(-1)
    return Cells(flat.tolist() if table.dtype.kind in "OUT" else flat, np.full(len(table), table.shape[1], np.int64))


def _of_list(rows: Sequence[Any]) -> Cells:
    """The cells of a list of rows. Rows of numbers of one length take NumPy's short way."""
    if not rows:
        return Cells([], np.zeros(0, np.int64))
    if (first := next((row for row in rows if is_row(row) and len(row)), None)) is None:
        return _of_table(table_of(rows))
    if not isinstance(first[0], str):
        try:
            table = np.asarray(rows)
        except (TypeError, ValueError, OverflowError):
            table = None
        if table is not None and table.ndim == 2 and table.dtype.kind in "iufb":
            return _of_table(table)
    return _of_rows(rows)


def _of_rows(rows: Sequence[Any]) -> Cells:
    """The cells of rows of any length."""
    for number, row in enumerate(rows):
        if not is_row(row):
            raise RankingError(
                f"row {number} must be a list of items, best first, but is {shown(row)}; a row of one item is a list "
                "too"
            )
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    values: list[Any] = list(chain.from_iterable(row.tolist() if isinstance(row, np.ndarray) else row for row in rows))
    return Cells(values, lengths)


def is_row(row: Any) -> bool:
    """Whether a cell is a row of items by itself."""
    return isinstance(row, list | tuple) or (isinstance(row, np.ndarray) and row.ndim == 1)


def _holds_rows(array: NDArray[Any]) -> bool:
    """Whether an array of objects holds a list per row."""
    return array.dtype.kind == "O" and array.ndim == 1 and len(array) > 0 and is_row(array[0])


def _not_rows(table: NDArray[Any]) -> str:
    """What was handed in instead of rows, and what to do."""
    if table.ndim == 0:
        kind = type(table.item()).__name__
        return f"{kind}; hand in a store, its path, a list of lists, an array or a table"
    if table.ndim == 1 and table.size and isinstance(table[0], dict):
        return "dicts; if they hold ranks by item, list the items of each, best first: sorted(row, key=row.get)"
    one = "; put a single ranking into a list: [ranking]" if table.ndim == 1 else ""
    return f"shape {table.shape}{one}"


# Items by number, from cells that are Python's own objects.

MISSING_ITEM = -1
# Whole numbers beyond this are not item numbers, and floats do not hold them exactly.
LARGEST_ITEM = 1 << 53


def numbered(cells: Cells, item_names: Names | None) -> tuple[NDArray[np.int64], Names | None]:
    """The item numbers of cells that are Python's own objects, and the names if the cells are names."""
    values = cells.values
    try:
        distinct = list(dict.fromkeys(values))
    except TypeError:  # such as a list in a cell
        raise _no_item(next(value for value in values if type(value).__hash__ is None), cells) from None
    meaning = {value: _meaning(value, cells) for value in distinct}
    if not (words := [found for found in meaning.values() if isinstance(found, str)]):
        return np.fromiter(map(meaning.__getitem__, values), np.int64, len(values)), None
    _refuse_numbers_among_names(meaning, cells)
    names = item_names or cells.names or tuple(natural_order(set(words)))
    numbers: dict[str | int, int] = {name: number for number, name in enumerate(names)}
    unknown = [value for value, found in meaning.items() if isinstance(found, str) and found not in numbers]
    if unknown:
        _refuse_unknown(unknown, names, cells)
    codes = {value: numbers.get(found, MISSING_ITEM) for value, found in meaning.items()}
    return np.fromiter(map(codes.__getitem__, values), np.int64, len(values)), names


def _meaning(value: Any, cells: Cells) -> str | int:
    """The name or the number in a cell; -1 if it is missing."""
    if isinstance(value, str):
        return _name(value, cells)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return MISSING_ITEM
    if isinstance(value, float | np.floating) and math.isnan(value):
        return MISSING_ITEM
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if is_number and abs(value) <= LARGEST_ITEM and value == int(value):
        return int(value)
    raise _no_item(value, cells)


def _no_item(value: Any, cells: Cells) -> RankingError:
    """The error for a cell that is neither a name nor a number."""
    return RankingError(
        f"{cells.place_of(value)}: expected an item's name or its number, a whole number, but got {shown(value)}"
    )


def _name(value: str, cells: Cells) -> str | int:
    """An item's name; -1 for the empty text. NumPy makes the texts 'nan' and '-1' of missing cells among text."""
    if value in ("", "-1"):
        return MISSING_ITEM
    if value in ("nan", "None", "<NA>"):
        raise RankingError(
            f"{cells.place_of(value)}: the text {str(value)!r} is most likely a missing cell that was turned into "
            'text; use None or "" instead, or another name for the item'
        )
    return str(value)


def _refuse_numbers_among_names(meaning: Mapping[Any, str | int], cells: Cells) -> None:
    number = next((value for value, found in meaning.items() if isinstance(found, int) and found >= 0), None)
    if number is None:
        return
    name = next(value for value, found in meaning.items() if isinstance(found, str))
    raise RankingError(
        f"{cells.place_of(number)} is the number {shown(number, int)}, but "
        f"{cells.place_of(name)} is the name {shown(name, str)}: items must be all names or all numbers. "
        "Leave out columns that are not places, or turn the numbers into text"
    )


def _refuse_unknown(unknown: list[str], names: Names, cells: Cells) -> NoReturn:
    near = difflib.get_close_matches(unknown[0], names, n=3)
    some = ", ".join(map(repr, near or names[:5])) + ("" if near or len(names) <= 5 else ", ...")
    more = f" ({len(unknown)} names are unknown)" if len(unknown) > 1 else ""
    raise RankingError(
        f"{cells.place_of(unknown[0])}: {shown(unknown[0], str)} is not among the "
        f"{len(names)} known items{more}; {'the nearest are' if near else 'these are'}: {some}"
    )
