"""split(): random train, validation and test parts of a store, as stores or as row weights."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plmix_dist.cluster.clients import ClientLike
from plmix_dist.cluster.executor import Executor, executor_for, run_all
from plmix_dist.errors import IngestError, SettingsError, StoreExistsError
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.sampling import draw_portions, generator
from plmix_dist.settings import RandomState, numbers, seed_of
from plmix_dist.store import HOW_TO_REPLACE, Location, RankingStore, WriteSession, check_file, check_output, open_store
from plmix_dist.store.partition import PartitionTask, WritePlan, write_partition
from plmix_dist.tables.sources import open_bytes
from plmix_dist.tables.write import check_target, exists, open_binary_target


def split(
    store: RankingStore | str | os.PathLike[str],
    outs: Sequence[str | os.PathLike[str]],
    *,
    shares: Sequence[float] | None = None,
    random_state: RandomState = 0,
    overwrite: bool = False,
    client: ClientLike = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[RankingStore | str]:
    """Divide the rankings of a store at random.

    Rows are drawn within every leaf, so sorted data give no biased parts, and a seed gives the same parts on
    any number of workers. A row of integer weight w is divided as w rankings would be. A group stays whole.

    Parameters
    ----------
    store
        The store to divide.
    outs
        One path per part: a new store or, if it ends in `.npy`, an array (n_rankings,) with the weight of
        each row in this part.
    shares
        The share of each part; by default 0.8 and 0.2 for two parts, 0.64, 0.16 and 0.2 for three.
    random_state
        The seed.
    overwrite
        Whether to replace other stores and files that are there; without it they are an error. The same split again
        does nothing.
    client
        As in PlackettLuceMixture.fit.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> folder = tempfile.mkdtemp()
    >>> store = plmix_dist.simulate(folder + "/s", n_rankings=1000, n_items=4)
    >>> train, test = split(store, [folder + "/train", folder + "/test"])
    >>> train.n_rankings + test.n_rankings
    1000
    """
    opened = store if isinstance(store, RankingStore) else open_store(store)
    opened = opened.with_features(range(len(opened.feature_names)))
    paths = [os.fspath(out) for out in outs]
    portions = _checked_shares(paths, shares)
    seed = seed_of(random_state)
    _check_outputs(opened, paths, overwrite)
    runner = executor_for(executor or client)
    parts: list[RankingStore | str] = []
    for number, path in enumerate(paths):
        part = _SplitPart(opened, tuple(portions), number, seed)
        if path.endswith(".npy"):
            _write_weights(part, path, overwrite)
            parts.append(path)
        else:
            parts.append(_write_store(part, path, overwrite, runner, progress))
    return parts


@dataclass(frozen=True)
class _SplitPart:
    """One part of a store, such as the training part."""

    store: RankingStore
    shares: tuple[float, ...]
    number: int
    seed: int

    def leaves(self, partition: int) -> Iterator[tuple[RankingBlock, NDArray[np.float64]]]:
        """Each leaf of a partition, and the weight of each of its rows in this part."""
        first_leaf = sum(summary.n_leaves for summary in self.store.manifest.partitions[:partition])
        for leaf, block in enumerate(self.store.partition(partition), start=first_leaf):
            yield block, draw_portions(block, np.array(self.shares), generator(self.seed, "split", leaf))[self.number]

    def selected(self, partition: int) -> Iterator[RankingBlock | tuple[RankingBlock, NDArray[np.integer]]]:
        """The rows of a partition that belong to this part, leaf by leaf; with their components, if these are known."""
        component = self.store.column("component", partition)
        row = 0
        for block, weights in self.leaves(partition):
            chosen = weights > 0
            kept = block.take(chosen)
            if block.weights is not None:
                kept = kept.replace(weights=weights[chosen])
            yield kept if component is None else (kept, component[row : row + block.n_rankings][chosen])
            row += block.n_rankings

    def write(self, task: PartitionTask) -> int:
        """Write the rows of one partition that belong to this part; gives their number."""
        return write_partition(task, self.selected(task.number)).n_rankings


def _write_store(
    part: _SplitPart, path: str, overwrite: bool, runner: Executor, progress: Callable[[int, int], None] | None
) -> RankingStore:
    source = part.store.manifest
    plan = WritePlan(
        "split",
        source.item_names,
        source.leaf_rows,
        n_partitions=len(source.partitions),
        settings={"shares": list(part.shares), "part": part.number, "seed": part.seed},
        sources=[{"name": "store", "metadata": {}, "indexes": [summary.index_sha256 for summary in source.partitions]}],
        feature_names=source.feature_names,
        person_columns=source.person_columns,
    )
    with WriteSession.begin(Location.of(path), plan, overwrite=overwrite) as session:
        run_all(runner, part.write, session.pending(), "split", progress)
        try:
            return session.finalise({"paths": [part.store.location.url]})
        except IngestError:
            session.abandon()
            share = part.shares[part.number]
            raise SettingsError(f"{path} gets no ranking with a share of {share:g}; give it a larger share") from None


def _write_weights(part: _SplitPart, path: str, overwrite: bool) -> None:
    """Write the weights leaf by leaf; memory does not grow with the store. The file appears when it is complete.

    A file with the same weights stays as it is. Another one is an error, unless it may be replaced.
    """
    if exists(path) and not overwrite:
        with open_bytes(path) as file:
            same = all(file.read(len(data)) == data for data in _weight_bytes(part)) and not file.read(1)
        if not same:
            raise StoreExistsError(f"{path} already holds something else; {HOW_TO_REPLACE}")
        return
    with open_binary_target(path) as out:
        for data in _weight_bytes(part):
            out.write(data)


def _weight_bytes(part: _SplitPart) -> Iterator[bytes]:
    """The bytes of a .npy file of weights: the header, and then leaf by leaf."""
    head = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (part.store.n_rankings,)}
    np.lib.format.write_array_header_1_0(head, header)
    yield head.getvalue()
    for number in range(part.store.n_partitions):
        for _, weights in part.leaves(number):
            yield weights.astype("<f8").tobytes()


def _check_outputs(store: RankingStore, paths: Sequence[str], overwrite: bool) -> None:
    """An error unless all parts can be written; before the first is computed."""
    source = store.location.url
    for path in paths:
        if path.endswith(".npy"):
            check_file(path, overwrite=True, sources=[source])  # one that is there is looked into later
            check_target(path)
        else:
            check_output(Location.of(path), overwrite=overwrite, sources=[source])


def _checked_shares(paths: Sequence[str], shares: Sequence[float] | None) -> list[float]:
    usual = {2: [0.8, 0.2], 3: [0.64, 0.16, 0.2]}
    if len(paths) < 2:
        raise SettingsError(f"a split needs at least two outputs, but got {len(paths)}")
    if len(set(paths)) != len(paths):
        raise SettingsError("each part needs its own path")
    if shares is None:
        if len(paths) not in usual:
            raise SettingsError(f"give the shares of the {len(paths)} parts with --shares")
        return usual[len(paths)]
    found = numbers("shares", shares)
    if found.shape != (len(paths),) or not (found > 0).all() or not np.isclose(found.sum(), 1):
        raise SettingsError(f"expected {len(paths)} positive shares that sum to 1, but got {found.tolist()}")
    return [float(share) for share in found]
