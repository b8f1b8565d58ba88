"""The first pass over a source: rows are read once and written to scratch files, sorted by a hash of their users.

A leaf later takes the rows of some hashes from every file, and so has all ratings of its users.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from plmix_dist.cluster.executor import Executor
from plmix_dist.passes.tree import TreeSum
from plmix_dist.store import Location, RejectedRows
from plmix_dist.store.access import write_whole
from plmix_dist.tables.encode import OnError, dispose
from plmix_dist.tables.ratings import RATINGS
from plmix_dist.tables.registry import read_slice
from plmix_dist.tables.sources import Slice
from plmix_dist.threads import single_thread

if TYPE_CHECKING:
    from plmix_dist.datasets.ratings.ingest import RatingPart


# Users are divided by this many hashes; a leaf has the users of some of them, next to each other.
_N_HASHES = 512
# A leaf has about this many ratings.
_LEAF_RATINGS = 1 << 19
# A part is written to a new file after this many rows.
_FILE_ROWS = 1 << 20


class Shuffled(NamedTuple):
    """What was found in a part."""

    n_rows: int  # How many rows can be used, and how many cannot
    n_bad: int
    files: list[str]  # The scratch files with its rows
    items: list[str]  # The labels of its items
    rejected: dict[str, int]  # The number of bad rows for each reason


def shuffle_part(scratch: Scratch, on_error: OnError, part: RatingPart) -> Shuffled:
    """Read one part, and write its rows and its bad rows to scratch files."""
    files: list[str] = []
    items: set[str] = set()
    rejected = RejectedRows()
    n_rows = 0
    for rows in _gathered(part.slice, on_error, rejected):
        name = f"part-{part.number:06d}-{len(files)}.arrow"
        scratch.write(name, _sorted_file(rows, part.file_number))
        files.append(name)
        items.update(rows.column("item").unique().to_pylist())
        n_rows += rows.num_rows
    if rejected.lines:
        scratch.write(_rejected_name(part.number), "".join(rejected.lines).encode())
    return Shuffled(n_rows, len(rejected.lines), files, sorted(items), rejected.counts)


def rejected_lines(scratch: Scratch, numbers: list[int]) -> list[str]:
    """The records of the bad rows of some parts, one line of JSON each."""
    files = (scratch.read(_rejected_name(number)).decode() for number in numbers)
    return [line for text in files for line in text.splitlines(keepends=True)]


def _hashes_of(users: pa.ChunkedArray) -> NDArray[np.uint16]:
    """(n_rows,): the hash of each row's user. It depends on the label alone."""
    encoded = users.combine_chunks().dictionary_encode()
    hashed = np.array([zlib.crc32(label.encode()) % _N_HASHES for label in encoded.dictionary.to_pylist()], np.uint16)
    found: NDArray[np.uint16] = hashed[encoded.indices.to_numpy()]
    return found


def n_leaves_for(n_rows: int) -> int:
    """The number of leaves for this many ratings: a power of two, so that each has the same number of hashes."""
    return min(_N_HASHES, 1 << (-(-n_rows // _LEAF_RATINGS) - 1).bit_length())


def rows_of_leaf(scratch: Scratch, files: list[str], leaf: int, n_leaves: int) -> pa.Table:
    """All rows of the users of a leaf, in the order of the files."""
    share = _N_HASHES // n_leaves
    tables: list[pa.Table] = []
    for name in files:
        with scratch.open_arrow(name) as stream, pa.ipc.open_file(stream) as file:
            batches = [file.get_batch(number) for number in range(leaf * share, (leaf + 1) * share)]
            tables.append(pa.Table.from_batches(batches, file.schema).combine_chunks())
    return pa.concat_tables(tables).combine_chunks()


def _gathered(part: Slice, on_error: OnError, rejected: RejectedRows) -> Iterator[pa.Table]:
    """Batches joined to about a million rows. Bad rows are added to `rejected`, or raise an error."""
    waiting: list[pa.Table] = []
    n_waiting = 0
    for table, bad in read_slice(RATINGS, part):
        n_rows = table.num_rows + len(bad)
        dispose(bad, rejected, on_error, part.file.url, part.header.unit, n_rows)
        waiting.append(table)
        n_waiting += n_rows
        if n_waiting >= _FILE_ROWS:
            yield pa.concat_tables(waiting)
            waiting, n_waiting = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _rejected_name(number: int) -> str:
    return f"rejected-{number:06d}.jsonl"


def _sorted_file(rows: pa.Table, file_number: int) -> bytes:
    """An Arrow file with one batch per hash of users."""
    hashes = _hashes_of(rows.column("user"))
    order = np.argsort(hashes, kind="stable")
    table = rows.append_column("file", pa.array(np.full(len(hashes), file_number, np.int32)))
    table = table.take(pa.array(order)).combine_chunks()
    cuts = np.searchsorted(hashes[order], np.arange(_N_HASHES + 1)).tolist()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        for start, stop in pairwise(cuts):
            piece = table.slice(start, stop - start).to_batches()
            file.write_batch(piece[0] if piece else pa.RecordBatch.from_pylist([], table.schema))
    found: bytes = sink.getvalue().to_pybytes()
    return found


# Scratch files of a run, kept beside the store so that all workers reach them, and sums over its leaves.

# Tasks of a sum over leaves: enough to share the work of 16 threads evenly, few enough to keep messages rare.
_N_TASKS = 64


@dataclass(frozen=True)
class Scratch:
    """A folder for files that are needed until the store is written."""

    location: Location

    @classmethod
    def beside(cls, store: Location) -> Scratch:
        """A new folder beside a store, named after it. If a run is killed, its folder stays and may be removed."""
        return cls(store.sibling(f".scratch-{uuid.uuid4().hex[:12]}"))

    def save(self, name: str, **arrays: NDArray[Any]) -> None:
        """Write arrays to a file."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        self.write(name, buffer.getvalue())

    def load(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays that `save` was given."""
        with np.load(io.BytesIO(self.read(name)), allow_pickle=False) as file:
            return dict(file)

    def save_text(self, name: str, labels: list[str]) -> None:
        """Write labels to a file."""
        self.write(name, json.dumps(labels, ensure_ascii=False).encode())

    def load_text(self, name: str) -> list[str]:
        """The labels that `save_text` was given."""
        return list(json.loads(self.read(name)))

    def write(self, name: str, data: bytes) -> None:
        """Write bytes to a file. On local disk they are not synced: a run that was stopped does not need them again."""
        if not self.location.is_local:
            self.location.write_bytes(name, data)
            return
        write_whole(self.location.local_path(name), data, synced=False)

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        return self.location.read_bytes(name, sys.maxsize)  # it is our own, of any size

    def open_arrow(self, name: str) -> Any:
        """An Arrow file opened for reading parts of it: mapped into memory, or by ranges behind a URL."""
        if self.location.is_local:
            return pa.memory_map(str(self.location.local_path(name)))
        return self.location.open_file(name)

    def forget(self, *names: str) -> None:
        """Delete files that are no longer needed."""
        for name in names:
            self.location.remove(name)

    def remove(self) -> None:
        """Delete everything."""
        self.forget(*self.location.listing())
        if self.location.is_local:
            shutil.rmtree(self.location.url, ignore_errors=True)


def _sum_run(function: Callable[[int], Any], n_leaves: int, run: range) -> dict[tuple[int, int], Any]:
    """The nodes of the tree that a run of leaves completes, from a function of a leaf's number."""
    tree = TreeSum(n_leaves)
    with single_thread():
        for leaf in run:
            tree.add_leaf(leaf, function(leaf))
    return tree.nodes


def sum_over_leaves(executor: Executor, function: Callable[[int], Any], n_leaves: int, name: str) -> Any:
    """The sum of a statistic over all leaves along the canonical tree: the same bits for any cut into tasks."""
    step = 1 << max(0, (n_leaves // _N_TASKS).bit_length() - 1)  # a power of two completes the most nodes
    runs = [range(start, min(start + step, n_leaves)) for start in range(0, n_leaves, step)]
    tree = TreeSum(n_leaves)
    for _, nodes in executor.map(partial(_sum_run, function, n_leaves), runs, name):
        tree.add_nodes(nodes)
    return tree.root()
