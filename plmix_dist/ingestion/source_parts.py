"""Parts of files or arrays. Each part becomes one partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from plmix_dist.errors import IngestError
from plmix_dist.formats import ReadOptions, format_named
from plmix_dist.formats.arrays import read_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from plmix_dist.formats.raw_rows import RawRows
    from plmix_dist.formats.sources import Slice


LabelKind = Literal["none", "number", "text", "unknown"]


@dataclass(frozen=True)
class FilePart:
    """A slice of a file, and how to read it.

    Examples
    --------
    >>> from plmix_dist.formats.sources import Header, Slice, SourceFile
    >>> part = FilePart(Slice(SourceFile("a.csv", 100), Header(), 0, None), "wide", ReadOptions())
    >>> part.unit
    'line'
    """

    slice: Slice
    format: str
    options: ReadOptions

    @property
    def unit(self) -> str:
        """Whether rows are counted by "line" or by "row" in messages."""
        return "row" if self.format == "parquet" else "line"

    def read(self) -> Iterator[RawRows]:
        """Its rows, in batches.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from plmix_dist.formats import FORMATS
        >>> from plmix_dist.formats.sources import find
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
        >>> _ = path.write_bytes(b"first,second" + bytes([10]) + b"tea,coffee")
        >>> file, options = find(str(path)), ReadOptions()
        >>> header = FORMATS["wide"].read_header(file, options)
        >>> part = FilePart(FORMATS["wide"].slices(file, header, options)[0], "wide", options)
        >>> [rows.labels.to_pylist() for rows in part.read()]
        [['tea', 'coffee']]
        """
        return format_named(self.format).read(self.slice, self.options)


@dataclass(frozen=True)
class ArrayPart:
    """Rows of an array from `first_row`. The rows themselves are the input of a task.

    Examples
    --------
    >>> ArrayPart(first_row=4096, weights=None).first_row
    4096
    """

    first_row: int
    weights: NDArray[np.float64] | None
    n_rows: int | None = None

    def read(self, rows: NDArray[Any]) -> Iterator[RawRows]:
        """Its rows, in one batch; an error if there are more or fewer than `n_rows`.

        Examples
        --------
        >>> import numpy as np
        >>> [rows.n_rows for rows in ArrayPart(0, None).read(np.array([[0, 1], [1, 0]]))]
        [2]
        """
        if self.n_rows is not None and (rows.ndim != 2 or len(rows) != self.n_rows):
            raise IngestError(
                f"the Dask array promises {self.n_rows:,} rows from row {self.first_row:,} on, but computing them gave "
                f"an array of shape {rows.shape}; if its chunks have other sizes than it says, call "
                "compute_chunk_sizes() first"
            )
        yield read_array(rows, self.weights, self.first_row)


@dataclass(frozen=True)
class IngestPlan:
    """What to read: all items, and the parts that become partitions.

    Parameters
    ----------
    item_names
        All items, in order.
    parts
        One per partition.
    inputs
        The rows of each part of an array; None for files.
    sources
        Records that identify the contents.
    paths
        Where the sources are.
    counts
        The number of rows and the total weight found in each file.
    ids, groups
        Of what kind these labels are.
    read_as
        How each text file was understood, for the user.

    Examples
    --------
    >>> IngestPlan(("tea", "coffee"), [ArrayPart(0, None)], [[[0, 1]]], []).ids
    'none'
    """

    item_names: tuple[str, ...]
    parts: list[FilePart] | list[ArrayPart]
    inputs: list[Any] | None
    sources: list[dict[str, Any]]
    paths: list[str] = field(default_factory=list)
    counts: dict[str, tuple[int, float]] = field(default_factory=dict)
    ids: LabelKind = "none"
    groups: LabelKind = "none"
    read_as: list[dict[str, Any]] = field(default_factory=list)
