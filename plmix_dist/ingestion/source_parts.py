"""What is to be read: parts of files or arrays, each of which becomes a partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

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
    """A slice of a file, and how to read it."""

    slice: Slice
    format: str
    options: ReadOptions

    @property
    def unit(self) -> str:
        """What the numbers of its rows count."""
        return "row" if self.format == "parquet" else "line"

    def read(self) -> Iterator[RawRows]:
        """Its rows in batches."""
        return format_named(self.format).read(self.slice, self.options)


@dataclass(frozen=True)
class ArrayPart:
    """Rows of an array, from `first_row` on. The rows themselves travel as the input of a task."""

    first_row: int
    weights: NDArray[np.float64] | None

    def read(self, rows: NDArray[Any]) -> Iterator[RawRows]:
        """Its rows in one batch."""
        yield read_array(rows, self.weights, self.first_row)


@dataclass(frozen=True)
class IngestPlan:
    """All that is to be read: the items there are, and the parts that become partitions.

    `sources` identifies the contents, `paths` says where they were; `counts` has the rows and the total
    weight found in each file; `ids` and `groups` say of what kind those labels are.
    """

    item_names: tuple[str, ...]
    parts: list[FilePart] | list[ArrayPart]
    inputs: list[Any] | None
    sources: list[dict[str, Any]]
    paths: list[str] = field(default_factory=list)
    counts: dict[str, tuple[int, float]] = field(default_factory=dict)
    ids: LabelKind = "none"
    groups: LabelKind = "none"
