"""verify() finds all damage of a store, info() lists what is in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from plmix_dist.cluster.clients import ClientLike
from plmix_dist.cluster.executor import Executor, run_all
from plmix_dist.errors import InvalidRowsError, PlmixError, StoreAccessError, StoreError
from plmix_dist.passes import add_statistics
from plmix_dist.rankings.checks import n_without_information, row_problems
from plmix_dist.rankings.comparison import ComparisonGraph, Comparisons, add_comparisons, comparison_graph, comparisons
from plmix_dist.rankings.identifiability import OrderedLengths, identifiability, ordered_lengths
from plmix_dist.store import RankingStore, manifest, open_store, sha256
from plmix_dist.store.access import TooLargeError
from plmix_dist.store.arrays import LARGEST_FILE

Progress = Callable[[int, int], None]


_SIZES = ("n_rankings", "n_items", "total_weight", "n_partitions", "n_leaves")


class _Damage(NamedTuple):
    """One fault of a store: `kind` is missing, truncated, altered, extra, count or invalid."""

    kind: str
    key: str
    message: str


def verify(
    store: RankingStore | str | os.PathLike[str],
    *,
    client: ClientLike = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> list[_Damage]:
    """Read, hash, decode and count everything. An empty list means that there is no damage.

    `client` is as in PlackettLuceMixture.fit.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=50, n_items=4)
    >>> verify(store)
    []
    """
    opened = _opened(store)
    numbers = list(range(opened.n_partitions))
    found = run_all(executor or client, partial(_verify_partition, opened), numbers, "verify", progress)
    return [*_verify_top(opened), *(damage for part in found for damage in part)]


def info(
    store: RankingStore | str | os.PathLike[str],
    *,
    graph: bool = True,
    client: ClientLike = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What is in a store: sizes, items, history and, with `graph`, what all rows show.

    With `graph`, all rows are read for the kinds of rankings, the comparison graph, and "identifiability": the largest
    numbers of components that the rankings identify, for all parameters ("certain") and for almost all ("generic").

    `client` is as in PlackettLuceMixture.fit.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=50, n_items=4)
    >>> found = info(store)
    >>> found["kinds"]["full"], found["comparison_graph"]["n_groups"], found["identifiability"]["certain"]
    (50, 1, 2)
    """
    opened = _opened(store)
    about = opened.manifest
    sizes = [size for number in range(opened.n_partitions) for size, _ in opened.index(number).files.values()]
    report: dict[str, Any] = {
        "location": opened.location.url,
        "format": f"{about.format} {about.version}",
        "generation": about.generation,
        **{name: getattr(opened, name) for name in _SIZES},
        "leaf_rows": about.leaf_rows,
        "n_bytes": sum(sizes),
        "item_names": list(opened.item_names),
        **({"feature_names": list(opened.feature_names)} if opened.feature_names else {}),
        **({"person_columns": opened.person_columns} if opened.person_columns else {}),
        "history": about.history,
    }
    if graph:
        numbers = list(range(opened.n_partitions))
        parts = run_all(executor or client, partial(_survey_partition, opened), numbers, "survey", progress)
        report["n_without_information"] = sum(part[3] for part in parts)
        report["kinds"] = {kind: sum(part[0][kind] for part in parts) for kind in parts[0][0]}
        found = comparison_graph(add_comparisons(*(part[1] for part in parts)))
        report["comparison_graph"] = _described(found, opened.item_names)
        report["identifiability"] = _identified(reduce(add_statistics, (part[2] for part in parts)), opened)
    return report


def _identified(lengths: OrderedLengths, store: RankingStore) -> dict[str, Any]:
    """How many components the rankings identify, and why no more. There are never more than rankings."""
    found = identifiability(lengths, store.n_items)
    certain, generic = (min(most, store.n_rankings) for most in (found.certain, found.generic))
    return {
        "certain": certain,
        "generic": generic,
        "counts_like_items": found.counts_like,
        "rankings": found.described,
        "why_no_more": found.reason(generic + 1) if generic == found.generic else "no more rankings",
    }


def _survey_partition(store: RankingStore, number: int) -> tuple[dict[str, int], Comparisons, OrderedLengths, int]:
    """Rows of each kind in one partition, its comparisons, what its rows order, and how many say nothing."""
    n_silent = 0
    kinds = dict.fromkeys(("full", "top-k", "subset", "slate", "tied", "weighted", "grouped"), 0)
    empty = np.zeros(0, np.int64)
    n_items = store.n_items
    found = [Comparisons(n_items, empty, np.zeros(n_items, np.int64), empty, empty, np.zeros(n_items, np.bool_))]
    lengths = []
    for block in store.partition(number):
        full, slate = block.n_ordered == block.n_items, block.n_ordered < block.n_listed
        kinds["full"] += int(full.sum())
        kinds["top-k"] += int(block.below.sum())
        kinds["slate"] += int(slate.sum())
        kinds["subset"] += int((~full & ~slate & ~block.below).sum())
        kinds["weighted"] += 0 if block.weights is None else int((block.weights != 1).sum())
        kinds["grouped"] += 0 if block.groups is None else block.n_rankings
        if block.tied is not None:
            kinds["tied"] += int(np.maximum.reduceat(block.tied, block.offsets[:-1]).sum())
        n_silent += n_without_information(block)
        found.append(comparisons(block))
        lengths.append(ordered_lengths(block))
    return kinds, add_comparisons(*found), reduce(add_statistics, lengths), n_silent


def _described(graph: ComparisonGraph, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "n_groups": graph.n_groups,
        "largest_group": int((graph.group == 0).sum()),
        "outside_largest_group": [names[item] for item in np.flatnonzero(graph.group > 0)],
        "never_offered": [names[item] for item in graph.never_offered],
        "never_above_another": [names[item] for item in graph.never_above],
        "never_below_another": [names[item] for item in graph.never_below],
    }


def _opened(store: RankingStore | str | os.PathLike[str]) -> RankingStore:
    return store if isinstance(store, RankingStore) else open_store(store)


# Finding all damage: missing, truncated, altered and extra files, wrong counts, invalid rows.


def _verify_top(store: RankingStore) -> list[_Damage]:
    """_Damage outside the partitions: the Zarr group files, and files that no partition has."""
    damage = []
    for key in manifest.GROUP_KEYS:
        try:
            if store.location.read_bytes(key) != manifest.ZARR_GROUP:
                damage.append(_Damage("altered", key, "is not the plain Zarr group that was written"))
        except FileNotFoundError:
            damage.append(_Damage("missing", key, "is missing"))
    in_progress = _work_in_progress(store)
    known = {manifest.MANIFEST, *manifest.GROUP_KEYS}
    folders = {manifest.partition_name(number) for number in range(store.n_partitions)}
    return damage + [
        _Damage("extra", key, "belongs to no partition of the manifest")
        for key in store.location.listing()
        if key not in known and "/".join(key.split("/")[:2]) not in folders and not key.startswith(in_progress)
    ]


def _work_in_progress(store: RankingStore) -> tuple[str, ...]:
    """The prefixes of files that belong to an unfinished append."""
    if not store.location.exists(manifest.PLAN):
        return ()
    planned = manifest.planned_partitions(store.location)[1]
    return ("wip/", *(f"{manifest.partition_name(number)}/" for number in planned))


def _verify_partition(store: RankingStore, number: int) -> list[_Damage]:
    """All damage of one partition. Every file is read, hashed and decoded."""
    name, summary = manifest.partition_name(number), store.manifest.partitions[number]
    key = f"{name}/{manifest.INDEX}"
    if not manifest.written_partitions(store.location, range(number, number + 1)):
        return [_Damage("missing", key, f"partition {number} has no index")]
    try:
        index = manifest.read_index(store.location, number, summary.index_sha256)
        key = name
        damage = [*_check_files(store, name, index), *_check_extra(store, name, index)]
        damage = damage or list(_check_counts(summary, name, index))
        return damage or list(_check_rows(store, number, name, index))
    except StoreAccessError:
        raise  # what may not be read may be whole
    except StoreError as error:
        return [_Damage("invalid" if isinstance(error, InvalidRowsError) else "altered", key, str(error))]


def _check_files(store: RankingStore, name: str, index: manifest.PartitionIndex) -> Iterator[_Damage]:
    for file, (size, digest) in index.files.items():
        key = f"{name}/{file}"
        try:
            data = store.location.read_bytes(key, min(size, LARGEST_FILE))
        except FileNotFoundError:
            yield _Damage("missing", key, "is missing")
            continue
        except StoreAccessError:
            raise
        except TooLargeError as error:
            yield _Damage("altered", key, str(error))
            continue
        except (PlmixError, OSError) as error:
            yield _Damage("invalid", key, f"cannot be a file of a partition: {error}")
            continue
        if len(data) < size:
            yield _Damage("truncated", key, f"has {len(data):,} bytes where {size:,} were written")
        elif sha256(data) != digest:
            yield _Damage("altered", key, "is not what was written: its digest differs")


def _check_extra(store: RankingStore, name: str, index: manifest.PartitionIndex) -> Iterator[_Damage]:
    expected = {f"{name}/{file}" for file in index.files} | {f"{name}/{manifest.INDEX}"}
    for key in store.location.listing(name):
        if key not in expected:
            yield _Damage("extra", key, "is not in the index of its partition")


def _check_rows(store: RankingStore, number: int, name: str, index: manifest.PartitionIndex) -> Iterator[_Damage]:
    """Decode every leaf, and check its rows and counts."""
    total_weight = 0.0
    summary = store.manifest.partitions[number]
    for leaf, block in enumerate(store.partition(number)):
        total_weight += block.total_weight
        if len(block.items) != int(block.offsets[-1]) or len(block.items) != index.leaf_items[leaf]:
            yield _Damage(
                "count", name, f"leaf {leaf} lists {len(block.items):,} items, its rows {block.offsets[-1]:,}"
            )
            continue
        for problem in row_problems(block):
            yield _Damage("invalid", name, f"leaf {leaf}, row {problem.row}: {problem.message}")
    if not np.allclose([total_weight, index.total_weight], summary.total_weight, rtol=1e-12, atol=0):
        yield _Damage(
            "count", name, f"the weights add up to {total_weight:g}, the manifest says {summary.total_weight:g}"
        )


def _check_counts(summary: manifest.PartitionSummary, name: str, index: manifest.PartitionIndex) -> Iterator[_Damage]:
    """Check the sizes in index and manifest, before anything is decoded."""
    for wrong in index.miscounts():
        yield _Damage("count", name, wrong)
    for what, found, claimed in (
        ("rows", index.n_rankings, summary.n_rankings),
        ("leaves", len(index.leaf_rows), summary.n_leaves),
        ("items", sum(index.leaf_items), summary.n_entries),
    ):
        if found != claimed:
            yield _Damage("count", name, f"{found:,} {what}, the manifest says {claimed:,}")
