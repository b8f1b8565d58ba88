"""pandas, Polars and Arrow tables as arrays of cells, recognised without importing their libraries."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.errors import RankingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Columns of these names are no places. A table that has one is refused, not read as items.
_NO_PLACES = {
    "id", "index", "unnamed: 0", "__index_level_0__", "ranking", "ranking_id", "ballot", "ballot_id",
    "count", "counts", "weight", "weights", "freq", "frequency", "group", "person", "voter", "user", "user_id",
    "item", "item_id", "rank", "rating",
}  # fmt: skip
# A column that only counts the rows is found in tables with at least so many rows.
_FEWEST_ROWS = 10
# Columns are compared by so many rows.
_ROWS_COMPARED = 1000


class Frame(NamedTuple):
    """The cells of a table (rows, places), or the lists in its only column.

    Examples
    --------
    >>> Frame(("first",), np.array([[0]])).rows is None
    True
    """

    columns: tuple[str, ...]
    cells: NDArray[Any]
    rows: list[Any] | None = None
    names: tuple[str, ...] | None = None  # of all items, where columns of categories declare them


def frame_of(source: Any) -> Frame | None:
    """The cells of a pandas, Polars or Arrow table; None if the source is none.

    An index of pandas is no column. Columns whose names say that they hold something else than places are refused.

    Examples
    --------
    >>> import pyarrow as pa
    >>> frame_of(pa.table({"first": ["tea", "mate"], "second": ["mate", None]})).cells.tolist()
    [['tea', 'mate'], ['mate', None]]
    """
    library = type(source).__module__.partition(".")[0]
    if library in ("dask", "dask_expr") and hasattr(source, "to_dask_array"):
        raise RankingError(
            "Dask tables are not taken; hand in numbers as table.to_dask_array(lengths=True), or compute() the table"
        )
    if library == "pandas":
        frame = _of_pandas(source)
    elif hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        frame = _of_arrow(source)
    else:
        return None
    if frame.rows is None:
        _check_columns(frame)
    return frame


def _of_pandas(source: Any) -> Frame:
    if source.ndim == 1:
        return Frame((str(source.name),), np.empty((0, 0)), list(source))
    columns = tuple(map(str, source.columns))
    kinds = {getattr(dtype, "kind", "O") for dtype in source.dtypes}
    missing = source.isna().to_numpy()
    if kinds <= set("iuf"):
        whole = kinds <= set("iu") and not missing.any()
        cells = (
            source.to_numpy(dtype=np.int64) if whole else source.to_numpy(dtype=np.float64, na_value=np.nan)
        )
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
        numbers: list[NDArray[Any]] = [column.to_numpy() for column in table.columns]
        return Frame(columns, np.column_stack(numbers))
    cells = np.empty((table.num_rows, len(columns)), object)
    for place, column in enumerate(table.columns):
        cells[:, place] = column.to_pylist()
    return Frame(columns, cells)


def _check_columns(frame: Frame) -> None:
    """An error if a column is certainly no place: by its name, or because it only counts the rows."""
    if len(frame.columns) < 2:
        return
    by_name = [name for name in frame.columns if name.strip().lower() in _NO_PLACES]
    by_cells = [name for name, cells in zip(frame.columns, frame.cells.T, strict=True) if _counts_rows(cells)]
    for name in (*by_name, *by_cells):
        reason = "by its name" if name in by_name else "it only counts the rows"
        raise RankingError(
            f"column {name!r} of the table is no place of a ranking ({reason}): leave it out, and hand in one column "
            "per place, best first. Weights go into sample_weight. A table with one row per person and item is read by "
            'plmix_dist.ingest(..., format="long"), and one of ratings by plmix_dist.ingest_ratings(...)'
        )
    if frame.cells.dtype.kind == "O":
        _refuse_foreign(frame)


def _refuse_foreign(frame: Frame) -> None:
    """An error if a column of names shares no name with the others, while these share theirs: ids, towns, answers."""
    cells = [
        {cell for cell in column[:_ROWS_COMPARED].tolist() if isinstance(cell, str)}
        for column in frame.cells.T
    ]
    if len(cells) < 3 or len(frame.cells) < _FEWEST_ROWS:
        return
    for place, own in enumerate(cells):
        others = cells[:place] + cells[place + 1 :]
        counts = Counter(name for names in others for name in names)
        alike = all(2 * sum(counts[name] > 1 for name in names) >= len(names) for names in others)
        if len(own) > 1 and alike and not own & counts.keys():
            few = ", ".join(map(repr, sorted(own)[:3]))
            raise RankingError(
                f"column {frame.columns[place]!r} of the table ({few}, ...) shares no item with the other columns: it "
                "seems to be no place of a ranking. Leave it out, and hand in one column per place, best first. If it "
                "is a place, hand in lists: table.to_numpy().tolist()"
            )


def _counts_rows(cells: Sequence[Any] | NDArray[Any]) -> bool:
    found = np.asarray(cells)
    return found.dtype.kind in "iu" and len(found) >= _FEWEST_ROWS and bool((np.diff(found) == 1).all())
