"""Simulated rankings straight into a store, in parallel, with the same bits whatever the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plmix_dist.engine import run_all
from plmix_dist.errors import SettingsError
from plmix_dist.mixture import MixtureParams
from plmix_dist.rankings.leaves import default_leaf_rows
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.simulate import checked_length, draw_log_worths, draw_rankings
from plmix_dist.store import Location, WritePlan, WriteSession, write_partition

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    import numpy as np
    from distributed import Client
    from numpy.typing import NDArray

    from plmix_dist.engine import Executor
    from plmix_dist.rankings import RankingBlock, Unranked
    from plmix_dist.store import PartitionTask, RankingStore

# Entries of a partition: some megabytes, so that even modest stores occupy several workers.
PARTITION_ENTRIES = 1 << 22


def simulate(
    store: str | os.PathLike[str] | Location,
    *,
    n_rankings: int,
    n_items: int | None = None,
    n_components: int = 1,
    differing: int | None = None,
    length: int | None = None,
    unranked: Unranked | None = None,
    mixture: MixtureParams | None = None,
    random_state: int = 0,
    leaf_rows: int | None = None,
    client: Client | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RankingStore:
    """Draw rankings from a mixture into a new store.

    The truth is saved beside the store, in a model folder with `.truth` at the end of its name, and the
    component of each row in the store itself. Random streams belong to leaves, so the same seed gives the
    same store on any number of workers.

    Parameters
    ----------
    store
        Path or URL of the store to make.
    n_rankings, n_items, n_components
        The size of the data. `n_items` and `n_components` come from `mixture` where it is given.
    differing
        Only this many items, the first, differ between components (the paper's model); all by default.
    length, unranked
        Rankings of `length` items: "below" gives the best of all, "absent" ranks a random subset.
    mixture
        Parameters to draw from; random ones, with equal shares, by default.
    random_state
        The seed.
    leaf_rows
        Rows a leaf; by default enough for the number of items.
    client
        A Dask client; without one the work is done in this process.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/store"
    >>> store = simulate(path, n_rankings=1000, n_items=8, n_components=2, length=3, unranked="below")
    >>> store
    RankingStore('...': 1,000 rankings of 8 items)
    >>> MixtureParams.load(path + ".truth").shares.tolist()
    [0.5, 0.5]
    """
    if n_rankings < 1:
        raise SettingsError(f"at least one ranking must be drawn, but got {n_rankings}")
    if n_components < 1:
        raise SettingsError(f"a mixture has at least one component, but got {n_components}")
    if leaf_rows is not None and leaf_rows < 1:
        raise SettingsError(f"a leaf has at least one row, but got leaf_rows={leaf_rows}")
    if random_state < 0:
        raise SettingsError(f"a seed is not negative, but got random_state={random_state}")
    location = Location.of(store)
    mixture = mixture or random_mixture(_required(n_items), n_components, differing, random_state)
    leaf_rows = leaf_rows or default_leaf_rows(mixture.n_items)
    listed = checked_length(length, mixture.n_items, unranked)
    partition_rows = leaf_rows * max(1, PARTITION_ENTRIES // (leaf_rows * listed))
    settings: dict[str, Any] = {
        "n_rankings": n_rankings,
        "partition_rows": partition_rows,
        "length": listed,
        "unranked": unranked,
        "seed": random_state,
        "log_worths": mixture.log_worths.tolist(),
        "shares": mixture.shares.tolist(),
    }
    plan = WritePlan(
        "simulate",
        list(mixture.item_names),
        leaf_rows,
        n_partitions=-(-n_rankings // partition_rows),
        settings=settings,
    )
    with WriteSession.begin(location, plan) as session:
        if not session.already_done:
            about = {"simulated": {"seed": random_state, "n_rankings": n_rankings}}
            mixture.save(location.sibling(".truth"), about)
        tasks = [SimulationTask(task, mixture, settings) for task in session.pending()]
        run_all(executor or client, simulate_partition, tasks, "simulate", progress)
        return session.finalise()


def random_mixture(n_items: int, n_components: int, differing: int | None, seed: int) -> MixtureParams:
    """The paper's random mixture with equal shares; items are named by their numbers from 1."""
    log_worths = draw_log_worths(n_components, n_items, differing, generator(seed, "mixture"))
    return MixtureParams.of(log_worths, None, [str(number + 1) for number in range(n_items)])


@dataclass(frozen=True)
class SimulationTask:
    """What a worker must know to draw one partition."""

    partition: PartitionTask
    mixture: MixtureParams
    settings: dict[str, Any]


def simulate_partition(task: SimulationTask) -> int:
    """Draw and write one partition; gives its number of rows."""
    return write_partition(task.partition, _draw_leaves(task)).n_rankings


def _draw_leaves(task: SimulationTask) -> Iterator[tuple[RankingBlock, NDArray[np.int64]]]:
    settings, leaf_rows = task.settings, task.partition.leaf_rows
    first_row = task.partition.number * settings["partition_rows"]
    last_row = min(first_row + settings["partition_rows"], settings["n_rankings"])
    for start in range(first_row, last_row, leaf_rows):
        yield draw_rankings(
            task.mixture.log_worths,
            task.mixture.shares,
            min(leaf_rows, last_row - start),
            generator(settings["seed"], "rankings", start // leaf_rows),
            length=settings["length"],
            unranked=settings["unranked"],
        )


def _required(n_items: int | None) -> int:
    if n_items is None:
        raise SettingsError("say how many items there are, or give a mixture")
    return n_items
