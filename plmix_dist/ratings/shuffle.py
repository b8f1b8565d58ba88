"""The first pass over a source: rows are read once and written to scratch files, sorted by a hash of their users.

A leaf later takes the rows of some hashes from every file, and so has all ratings of its users.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.ratings.reading import read_ratings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.formats.encoder import OnError
    from plmix_dist.ratings.layout import RatingPart
    from plmix_dist.ratings.reading import BadRow, RatingRows
    from plmix_dist.ratings.scratch import Scratch

# Users are told apart by so many hashes; a leaf has the users of some of them, next to each other.
N_HASHES = 512
# A leaf has about so many ratings.
LEAF_RATINGS = 1 << 19
# A part is written to a new file after so many rows.
_FILE_ROWS = 1 << 20


@dataclass(frozen=True)
class ShuffleTask:
    """What a worker must know to read one part."""

    part: RatingPart
    scratch: Scratch
    on_error: OnError


class Shuffled(NamedTuple):
    """What was found in a part.

    Parameters
    ----------
    n_rows, n_bad
        How many rows can be used, and how many cannot.
    files
        The scratch files with its rows.
    items
        The labels of its items.
    rejected
        The number of bad rows for each reason.
    """

    n_rows: int
    n_bad: int
    files: list[str]
    items: list[str]
    rejected: dict[str, int]


def shuffle_part(task: ShuffleTask) -> Shuffled:
    """Read one part, and write its rows and its bad rows to scratch files."""
    files: list[str] = []
    items: set[str] = set()
    counts: Counter[str] = Counter()
    records: list[str] = []
    n_rows = 0
    for rows in _gathered(task):
        name = f"part-{task.part.number:06d}-{len(files)}.arrow"
        task.scratch.write(name, _sorted_file(rows, task.part.file_number))
        files.append(name)
        items.update(rows.items.unique().to_pylist())
        n_rows += len(rows.ratings)
        records += [_record(bad, task) for bad in rows.bad]
        counts.update(bad.reason for bad in rows.bad)
    if records:
        task.scratch.write(_rejected_name(task.part.number), "".join(records).encode())
    return Shuffled(n_rows, sum(counts.values()), files, sorted(items), dict(counts))


def rejected_lines(scratch: Scratch, numbers: list[int]) -> list[str]:
    """The records of the bad rows of some parts, one line of JSON each."""
    return [
        line
        for number in numbers
        for line in scratch.read(_rejected_name(number)).decode().splitlines(keepends=True)
    ]


def hashes_of(users: pa.Array) -> NDArray[np.uint16]:
    """(n_rows,): the hash of each row's user. It depends on the label alone.

    Examples
    --------
    >>> found = hashes_of(pa.array(["ann", "bob", "ann"]))
    >>> bool(found[0] == found[2]), bool((found < N_HASHES).all())
    (True, True)
    """
    encoded = users.dictionary_encode()
    labels = encoded.dictionary.to_pylist()
    hashed = np.array([zlib.crc32(label.encode()) % N_HASHES for label in labels], np.uint16)
    of_rows: NDArray[np.uint16] = hashed[encoded.indices.to_numpy()]
    return of_rows


def n_leaves_for(n_rows: int) -> int:
    """The number of leaves for so many ratings: a power of two, so that each has the same number of hashes.

    Examples
    --------
    >>> n_leaves_for(1000), n_leaves_for(10_000_000)
    (1, 32)
    """
    n_leaves = 1
    while n_leaves < N_HASHES and n_rows > n_leaves * LEAF_RATINGS:
        n_leaves *= 2
    return n_leaves


def rows_of_leaf(scratch: Scratch, files: list[str], leaf: int, n_leaves: int) -> pa.Table:
    r"""All rows of the users of a leaf, in the order of the files.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from plmix_dist.ratings.layout import plan_parts
    >>> from plmix_dist.ratings.scratch import Scratch
    >>> from plmix_dist.ratings.settings import RatingSettings
    >>> from plmix_dist.store import Location
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ratings.csv"
    >>> _ = path.write_text("user,item,rating\nann,tea,5\nbob,tea,3\nann,mate,4\n")
    >>> scratch = Scratch.beside(Location.of(path.parent / "store"))
    >>> (part,) = plan_parts([str(path)], RatingSettings())
    >>> found = shuffle_part(ShuffleTask(part, scratch, "raise"))
    >>> rows = rows_of_leaf(scratch, found.files, leaf=0, n_leaves=1)
    >>> sorted(zip(rows["user"].to_pylist(), rows["item"].to_pylist(), rows["line"].to_pylist()))
    [('ann', 'mate', 4), ('ann', 'tea', 2), ('bob', 'tea', 3)]
    """
    share = N_HASHES // n_leaves
    tables: list[pa.Table] = []
    for name in files:
        with scratch.open_arrow(name) as stream, pa.ipc.open_file(stream) as file:
            batches = [file.get_batch(number) for number in range(leaf * share, (leaf + 1) * share)]
            tables.append(pa.Table.from_batches(batches, file.schema).combine_chunks())
    return pa.concat_tables(tables).combine_chunks()


def _gathered(task: ShuffleTask) -> Iterator[RatingRows]:
    """Batches joined to about a million rows, all bad rows disposed of."""
    waiting: list[RatingRows] = []
    n_waiting = 0
    for rows in read_ratings(task.part):
        if rows.bad and task.on_error == "raise":
            _refuse(rows.bad, task)
        waiting.append(rows)
        n_waiting += len(rows.ratings) + len(rows.bad)
        if n_waiting >= _FILE_ROWS:
            yield _joined(waiting)
            waiting, n_waiting = [], 0
    if waiting:
        yield _joined(waiting)


def _refuse(bad: list[BadRow], task: ShuffleTask) -> None:
    first = min(bad)
    more = f" (and {len(bad) - 1} more bad rows near it)" if len(bad) > 1 else ""
    raise IngestError(
        f"{task.part.slice.file.url}, {task.part.layout.unit} {first.line}: {first.message}{more}; correct the file, "
        "or choose --on-error drop or --on-error quarantine"
    )


def _record(bad: BadRow, task: ShuffleTask) -> str:
    record: dict[str, Any] = {
        "reason": bad.reason,
        "file": task.part.slice.file.url,
        task.part.layout.unit: bad.line,
        "item": "",
        "message": bad.message,
    }
    if task.on_error == "quarantine":
        record["contents"] = bad.text
    return json.dumps(record, ensure_ascii=False) + "\n"


def _rejected_name(number: int) -> str:
    return f"rejected-{number:06d}.jsonl"


def _joined(rows: list[RatingRows]) -> RatingRows:
    if len(rows) == 1:
        return rows[0]
    first = rows[0]
    return first._replace(
        users=pa.concat_arrays([one.users for one in rows]),
        items=pa.concat_arrays([one.items for one in rows]),
        ratings=np.concatenate([one.ratings for one in rows]),
        times=None
        if first.times is None
        else np.concatenate([one.times for one in rows if one.times is not None]),
        lines=np.concatenate([one.lines for one in rows]),
        bad=[bad for one in rows for bad in one.bad],
    )


def _sorted_file(rows: RatingRows, file_number: int) -> bytes:
    """An Arrow file with one batch per hash of users."""
    hashes = hashes_of(rows.users)
    order = np.argsort(hashes, kind="stable")
    columns: dict[str, Any] = {"user": rows.users, "item": rows.items, "rating": rows.ratings}
    if rows.times is not None:
        columns["time"] = rows.times
    columns |= {"file": np.full(len(hashes), file_number, np.int32), "line": rows.lines}
    table = pa.table(columns).take(pa.array(order)).combine_chunks()
    cuts = np.searchsorted(hashes[order], np.arange(N_HASHES + 1)).tolist()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        for start, stop in pairwise(cuts):
            piece = table.slice(start, stop - start).to_batches()
            file.write_batch(piece[0] if piece else pa.RecordBatch.from_pylist([], table.schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data
