"""What all exports share: rows by label, a survey of the store, targets that are replaced in one step."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np

from plmix_dist.errors import IngestError
from plmix_dist.rankings import Unranked
from plmix_dist.rankings.columns import BETWEEN_CELLS
from plmix_dist.store import RankingStore
from plmix_dist.store.access import RemoteFiles, check_file, whole_file, within, writing_explained
from plmix_dist.tables.encode import natural_order, shown
from plmix_dist.tables.notation import spreadsheet_safe
from plmix_dist.tables.words import number_text, words_not_items, written_name

# The parts in which storage takes a file are at most this large.
_PART_BYTES = 1 << 26


class LabelledRow(NamedTuple):
    """One ranking with item labels instead of numbers."""

    labels: list[str]
    n_ordered: int
    tied: list[bool] | None
    weight: float
    id: Any
    group: Any
    unranked: Unranked | None
    features: Sequence[list[str]] = ()  # of each item, if the store has features
    persons: Sequence[str] = ()  # the cells about the person, if the store has any


@dataclass(frozen=True)
class Survey:
    """What the rows of a store have. It determines the columns of an exported table."""

    has_weights: bool
    has_ids: bool
    has_groups: bool
    mixed_unranked: bool
    longest: int
    items_seen: tuple[bool, ...]


def survey(store: RankingStore) -> Survey:
    """Survey a store in one pass."""
    seen = np.zeros(store.n_items, np.bool_)
    weights = below = absent = slates_below = False
    longest = 0
    columns = {name for number in range(store.n_partitions) for name in store.index(number).columns}
    for block in store.iter_leaves(labels=False):
        seen[block.items] = True
        weights = weights or block.weights is not None
        slate, short = block.n_ordered < block.n_listed, block.n_listed < block.n_items
        below = below or bool(block.below.any())
        slates_below = slates_below or bool((block.below & slate).any())
        absent = absent or bool((short & ~slate & ~block.below).any())
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
    """Every row of a store, with these names for its items."""
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
            [()] * n_rows if block.persons is None else [text.split(BETWEEN_CELLS) for text in block.persons.tolist()],
        )
        for row, (n_ordered, below, weight, label, group, persons) in enumerate(zip(*columns, strict=True)):
            start, stop = bounds[row], bounds[row + 1]
            ties = None if tied is None or not any(tied[start:stop]) else tied[start:stop]
            said: Unranked | None = None
            if stop - start < store.n_items and (below or not slate[row]):
                said = "below" if below else "absent"
            features = () if block.features is None else block.features[start:stop].astype(str).tolist()
            yield LabelledRow(labels[start:stop], n_ordered, ties, weight, label, group, said, features, persons)


def refuse(target: str, why: str, instead: str) -> NoReturn:
    """Raise an error: rows do not fit the format of the target, but another format would hold them."""
    raise IngestError(f"cannot write {target}: {why}; export to {instead} instead")


def exists(target: str) -> bool:
    """Whether there is a file at a path or URL."""
    if "://" not in target:
        return Path(target).exists()
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(target)
    return bool(filesystem.exists(path))


def remove(target: str) -> None:
    """Remove the file at a path or URL."""
    if "://" not in target:
        Path(target).unlink()
        return
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(target)
    filesystem.rm(path)


def check_target(target: str) -> None:
    """An error unless a file can be written at this path. What is behind a URL is not tried."""
    if "://" not in target:
        check_file(target)


@contextlib.contextmanager
def open_target(target: str) -> Iterator[IO[str]]:
    """A text file that appears complete or not at all; compressed if its name ends in .gz."""
    with open_binary_target(target) as raw:
        # No time stamp and no name in the gzip header: the same rows give the same bytes.
        packed = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") if target.endswith(".gz") else None
        text = io.TextIOWrapper(packed or raw, encoding="utf-8", newline="")
        yield text
        text.flush()
        text.detach()
        if packed is not None:
            packed.close()


def open_binary_target(target: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    """A binary file on local disk or behind a URL that appears complete or not at all."""
    return _published_at_the_end(target) if "://" in target else whole_file(Path(target))


@contextlib.contextmanager
def _published_at_the_end(url: str) -> Iterator[IO[bytes]]:
    """A file behind a URL. After an error nothing is published, although the file is closed."""
    import fsspec

    # A file system of its own: a transaction concerns every file that is opened meanwhile.
    filesystem, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
    with writing_explained(url, lambda: "size unknown"), filesystem.transaction:
        with contextlib.suppress(FileNotFoundError):  # storage that does not answer is an error here, not a long wait
            RemoteFiles(filesystem, "").call("info", path)
        file = within(0, filesystem.open, path, "wb")
        for name in {"flush", "commit"} & set(dir(file)):  # what sends parts, and makes a file of them
            setattr(file, name, partial(within, _PART_BYTES, getattr(file, name)))
        try:
            yield file
        except BaseException:
            with contextlib.suppress(AttributeError):  # not every kind of file has this method
                file.closed = True  # or its last bytes are sent when it is forgotten
            raise
        file.close()


# Writing delimited text: what the exports of orderings, wide, long and ranks share.


def write_rows(
    store: RankingStore,
    target: str,
    names: Callable[[Survey], list[str]],
    values: Callable[[LabelledRow], list[list[Any]]],
    *,
    always_weights: bool = False,
    ids_are_values: bool = False,
    items_are_columns: bool = False,
) -> None:
    """Write a store as a table."""
    found = survey(store)
    _refuse_names(store, target)
    has_ids = found.has_ids and not ids_are_values
    labels = [role for role, there in (("id", has_ids), ("group", found.has_groups)) if there]
    labels += ["unranked"] if found.mixed_unranked else []
    weighted = found.has_weights or always_weights
    with open_target(target) as out:
        delimiter = "\t" if target.removesuffix(".gz").endswith(".tsv") else ","
        table = csv.writer(out, delimiter=delimiter, lineterminator="\n")
        weight_name = [written_name("weight")] if weighted else []
        table.writerow([*weight_name, *names(found), *map(written_name, labels), *store.person_columns])
        for row in labelled_rows(store, store.item_names):
            weight = [number_text(row.weight)] if weighted else []
            said = [*(getattr(row, role) for role in labels), *row.persons]
            for listed in values(row):
                cells = [str(cell) for cell in (*weight, *listed, *("" if label is None else label for label in said))]
                if any("\n" in cell or "\r" in cell for cell in cells):
                    refuse(target, "a label contains a line break", "Parquet")
                table.writerow([spreadsheet_safe(cell) for cell in cells])
        # Before the rows appear, which mean nothing without it.
        _write_items_beside(store, target, found, not items_are_columns)


def _refuse_names(store: RankingStore, target: str) -> None:
    """An error if a name begins or ends with spaces, because reading text removes them, or has a line break."""
    if (surrounded := next((name for name in store.item_names if name != name.strip()), None)) is not None:
        refuse(target, f"there are spaces around the item name {shown(surrounded)}", "Parquet")
    if (broken := next((name for name in store.item_names if "\r" in name), None)) is not None:
        refuse(target, f"a carriage return is in the item name {shown(broken)}", "Parquet")


def _write_items_beside(store: RankingStore, target: str, found: Survey, by_rows: bool) -> None:
    """Write `TARGET.items`, one name per line, if the items are given by rows that do not give back all in order."""
    whole = all(found.items_seen) and list(store.item_names) == natural_order(store.item_names)
    whole = whole and not words_not_items(store.item_names)  # ingest would ask about them
    if by_rows and not whole:
        with open_target(items_beside(target)) as out:
            out.writelines(f"{name}\n" for name in store.item_names)
    elif exists(items_beside(target)):  # left by an earlier export; ingest would read it
        remove(items_beside(target))


def items_beside(target: str) -> str:
    """The file beside a text source that names its items."""
    return f"{target}.items"
