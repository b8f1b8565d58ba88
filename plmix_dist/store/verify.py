"""Finding all damage: missing, truncated, altered and extra files, wrong counts, invalid rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.errors import InvalidRowsError, PlmixError, StoreAccessError, StoreError
from plmix_dist.rankings.checks import row_problems
from plmix_dist.store.access import TooLargeError
from plmix_dist.store.arrays import LARGEST_FILE
from plmix_dist.store.manifest import (
    GROUP_KEYS,
    INDEX,
    MANIFEST,
    PLAN,
    ZARR_GROUP,
    partition_name,
    planned_partitions,
    read_index,
    written_partitions,
)
from plmix_dist.store.sealed import sha256

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.store.manifest import PartitionIndex, PartitionSummary
    from plmix_dist.store.reader import RankingStore


class Damage(NamedTuple):
    """One fault of a store: `kind` is missing, truncated, altered, extra, count or invalid."""

    kind: str
    key: str
    message: str


def verify_top(store: RankingStore) -> list[Damage]:
    """Damage outside the partitions: the Zarr group files, and files that no partition has."""
    damage = []
    for key in GROUP_KEYS:
        try:
            if store.location.read_bytes(key) != ZARR_GROUP:
                damage.append(Damage("altered", key, "is not the plain Zarr group that was written"))
        except FileNotFoundError:
            damage.append(Damage("missing", key, "is missing"))
    in_progress = _work_in_progress(store)
    known = {MANIFEST, *GROUP_KEYS}
    folders = {partition_name(number) for number in range(store.n_partitions)}
    for key in store.location.listing():
        folder = "/".join(key.split("/")[:2])
        if key not in known and folder not in folders and not key.startswith(in_progress):
            damage.append(Damage("extra", key, "belongs to no partition of the manifest"))
    return damage


def _work_in_progress(store: RankingStore) -> tuple[str, ...]:
    """The prefixes of files that belong to an unfinished append."""
    if not store.location.exists(PLAN):
        return ()
    return ("wip/", *(f"{partition_name(number)}/" for number in planned_partitions(store.location)[1]))


def verify_partition(store: RankingStore, number: int) -> list[Damage]:
    """All damage of one partition. Every file is read, hashed and decoded."""
    name, summary = partition_name(number), store.manifest.partitions[number]
    if not written_partitions(store.location, range(number, number + 1)):
        return [Damage("missing", f"{name}/{INDEX}", f"partition {number} has no index")]
    try:
        index = read_index(store.location, number, summary.index_sha256)
    except StoreAccessError:
        raise  # what may not be read may be whole
    except StoreError as error:
        return [Damage("altered", f"{name}/{INDEX}", str(error))]
    try:
        damage = [*_check_files(store, name, index), *_check_extra(store, name, index)]
        damage = damage or list(_check_counts(summary, name, index))
        return damage or list(_check_rows(store, number, name, index))
    except StoreAccessError:
        raise
    except StoreError as error:
        return [Damage("invalid" if isinstance(error, InvalidRowsError) else "altered", name, str(error))]


def _check_files(store: RankingStore, name: str, index: PartitionIndex) -> Iterator[Damage]:
    for file, (size, digest) in index.files.items():
        key = f"{name}/{file}"
        try:
            data = store.location.read_bytes(key, min(size, LARGEST_FILE))
        except FileNotFoundError:
            yield Damage("missing", key, "is missing")
            continue
        except StoreAccessError:
            raise
        except TooLargeError as error:
            yield Damage("altered", key, str(error))
            continue
        except (PlmixError, OSError) as error:
            yield Damage("invalid", key, f"cannot be a file of a partition: {error}")
            continue
        if len(data) < size:
            yield Damage("truncated", key, f"has {len(data):,} bytes where {size:,} were written")
        elif sha256(data) != digest:
            yield Damage("altered", key, "is not what was written: its digest differs")


def _check_extra(store: RankingStore, name: str, index: PartitionIndex) -> Iterator[Damage]:
    expected = {f"{name}/{file}" for file in index.files} | {f"{name}/{INDEX}"}
    for key in store.location.listing(name):
        if key not in expected:
            yield Damage("extra", key, "is not in the index of its partition")


def _check_rows(store: RankingStore, number: int, name: str, index: PartitionIndex) -> Iterator[Damage]:
    """Decode every leaf, and check its rows and counts."""
    total_weight = 0.0
    summary = store.manifest.partitions[number]
    for leaf, block in enumerate(store.partition(number)):
        total_weight += block.total_weight
        if len(block.items) != int(block.offsets[-1]) or len(block.items) != index.leaf_items[leaf]:
            yield Damage("count", name, f"leaf {leaf} lists {len(block.items):,} items, its rows {block.offsets[-1]:,}")
            continue
        for problem in row_problems(block):
            yield Damage("invalid", name, f"leaf {leaf}, row {problem.row}: {problem.message}")
    if not np.allclose([total_weight, index.total_weight], summary.total_weight, rtol=1e-12, atol=0):
        yield Damage(
            "count", name, f"the weights add up to {total_weight:g}, the manifest says {summary.total_weight:g}"
        )


def _check_counts(summary: PartitionSummary, name: str, index: PartitionIndex) -> Iterator[Damage]:
    """Check the sizes in index and manifest, before anything is decoded."""
    for wrong in index.miscounts():
        yield Damage("count", name, wrong)
    for what, found, claimed in (
        ("rows", index.n_rankings, summary.n_rankings),
        ("leaves", len(index.leaf_rows), summary.n_leaves),
        ("items", sum(index.leaf_items), summary.n_entries),
    ):
        if found != claimed:
            yield Damage("count", name, f"{found:,} {what}, the manifest says {claimed:,}")
