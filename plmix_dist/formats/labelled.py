"""What all exports share: rows by label, a survey of the store, targets that are replaced in one step."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from plmix_dist.errors import IngestError
from plmix_dist.store.access import check_file, sync_folder, writing_explained

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plmix_dist.rankings import Unranked
    from plmix_dist.store import RankingStore


class LabelledRow(NamedTuple):
    """One ranking with item labels instead of numbers.

    Examples
    --------
    >>> LabelledRow(["tea", "coffee"], 2, None, 1.0, None, None, None).labels
    ['tea', 'coffee']
    """

    labels: list[str]
    n_ordered: int
    tied: list[bool] | None
    weight: float
    id: Any
    group: Any
    unranked: Unranked | None


@dataclass(frozen=True)
class Survey:
    """What the rows of a store have. It determines the columns of an exported table.

    Examples
    --------
    >>> Survey(False, True, False, False, longest=3, items_seen=(True, True, False)).has_ids
    True
    """

    has_weights: bool
    has_ids: bool
    has_groups: bool
    mixed_unranked: bool
    longest: int
    items_seen: tuple[bool, ...]


def survey(store: RankingStore) -> Survey:
    """Survey a store in one pass.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=10, n_items=3)
    >>> survey(store)
    Survey(has_weights=False, has_ids=False, has_groups=False, mixed_unranked=False, longest=3, ...)
    """
    seen = np.zeros(store.n_items, np.bool_)
    weights = below = absent = slates_below = False
    longest = 0
    columns = {name for number in range(store.n_partitions) for name in store.index(number).columns}
    for block in store.iter_leaves(labels=False):
        seen[block.items] = True
        weights = weights or block.weights is not None
        below = below or bool(block.below.any())
        slates_below = slates_below or bool((block.below & (block.n_ordered < block.n_listed)).any())
        absent = absent or bool(
            (~block.below & (block.n_ordered == block.n_listed) & (block.n_listed < block.n_items)).any()
        )
        longest = max(longest, int(block.n_listed.max()))
    return Survey(
        has_weights=weights,
        has_ids=any(name.startswith("ids") for name in columns),
        has_groups=any(name.startswith("groups") for name in columns),
        mixed_unranked=(below and absent) or slates_below,
        longest=longest,
        items_seen=tuple(seen.tolist()),
    )


def labelled_rows(store: RankingStore, names: Sequence[str]) -> Iterator[LabelledRow]:
    """Every row of a store, with these names for its items.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=1, n_items=2)
    >>> [row.labels for row in labelled_rows(store, ["tea", "coffee"])]
    [['coffee', 'tea']]
    """
    table = np.array(names, object)
    for block in store.iter_leaves():
        labels = table[block.items].tolist()
        bounds = block.offsets.tolist()
        tied = None if block.tied is None else block.tied.tolist()
        slate = (block.n_ordered < block.n_listed).tolist()
        n_rows = block.n_rankings
        columns = (
            block.n_ordered.tolist(),
            block.below.tolist(),
            block.row_weights.tolist(),
            [None] * n_rows if block.ids is None else block.ids.tolist(),
            [None] * n_rows if block.groups is None else block.groups.tolist(),
        )
        for row, (n_ordered, below, weight, label, group) in enumerate(zip(*columns, strict=True)):
            start, stop = bounds[row], bounds[row + 1]
            ties = None if tied is None or not any(tied[start:stop]) else tied[start:stop]
            said: Unranked | None = None
            if stop - start < store.n_items and (below or not slate[row]):
                said = "below" if below else "absent"
            yield LabelledRow(labels[start:stop], n_ordered, ties, weight, label, group, said)


def refuse(target: str, why: str, instead: str) -> NoReturn:
    """Raise an error: rows do not fit the format of the target, but another format would hold them.

    Examples
    --------
    >>> refuse("a.soc", "ties do not fit into .soc", ".toc")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.IngestError: cannot write a.soc: ties do not fit into .soc; export to .toc instead
    """
    raise IngestError(f"cannot write {target}: {why}; export to {instead} instead")


def exists(target: str) -> bool:
    """Whether there is a file at a path or URL.

    Examples
    --------
    >>> exists("/nowhere/a.csv")
    False
    """
    if "://" not in target:
        return Path(target).exists()
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(target)
    return bool(filesystem.exists(path))


def remove(target: str) -> None:
    """Remove the file at a path or URL.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a.csv"
    >>> Path(path).touch()
    >>> remove(path)
    >>> exists(path)
    False
    """
    if "://" not in target:
        Path(target).unlink()
        return
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(target)
    filesystem.rm(path)


def check_target(target: str) -> None:
    """An error unless a file can be written at this path. What is behind a URL is not tried.

    Examples
    --------
    >>> check_target("/dev/null/a.csv")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.StoreAccessError: cannot write /dev/null: /dev/null is not a folder; ...
    """
    if "://" not in target:
        check_file(target)


@contextlib.contextmanager
def open_target(target: str) -> Iterator[IO[str]]:
    """A text file that appears complete or not at all; compressed if its name ends in .gz.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a.csv"
    >>> with open_target(path) as out:
    ...     _ = out.write("tea")
    >>> Path(path).read_text()
    'tea'
    """
    with open_binary_target(target) as raw:
        # No time stamp and no name in the gzip header: the same rows give the same bytes.
        packed = (
            gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") if target.endswith(".gz") else None
        )
        text = io.TextIOWrapper(packed or raw, encoding="utf-8", newline="")
        yield text
        text.flush()
        text.detach()
        if packed is not None:
            packed.close()


@contextlib.contextmanager
def open_binary_target(target: str) -> Iterator[IO[bytes]]:
    """A binary file on local disk or behind a URL that appears complete or not at all.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a.bin"
    >>> with open_binary_target(path) as out:
    ...     _ = out.write(b"tea")
    ...     exists(path)
    False
    >>> exists(path)
    True
    """
    if "://" in target:
        with _published_at_the_end(target) as file:
            yield file
        return
    path = Path(target)
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with writing_explained(str(path), lambda: _more_than(draft)):
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _published_at_the_end(url: str) -> Iterator[IO[bytes]]:
    """A file behind a URL. After an error nothing is published, although the file is closed."""
    import fsspec

    # A file system of its own: a transaction concerns every file that is opened meanwhile.
    filesystem, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
    with writing_explained(url, lambda: "size unknown"), filesystem.transaction:
        file = filesystem.open(path, "wb")
        try:
            yield file
        except BaseException:
            with contextlib.suppress(AttributeError):  # not every kind of file can be told
                file.closed = True  # or its last bytes are sent when it is forgotten
            raise
        file.close()


def _more_than(draft: Path) -> str:
    """The number of bytes that a file needs, as far as it was written."""
    return f"more than {draft.stat().st_size if draft.exists() else 0:,} bytes"
