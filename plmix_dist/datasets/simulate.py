"""simulate(): draw rankings into a store, in parallel. Any number of workers gives the same bits."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from plmix_dist.cluster.clients import ClientLike
from plmix_dist.cluster.executor import Executor, run_all
from plmix_dist.errors import SettingsError, StoreExistsError
from plmix_dist.passes import check_memory
from plmix_dist.rankings import Unranked, default_leaf_rows, generator
from plmix_dist.rankings.simulate import NOISES, checked_length, draw_log_worths, draw_rankings
from plmix_dist.settings import RandomState, one_of, seed_of, whole_number
from plmix_dist.store import HOW_TO_REPLACE, Location, RankingStore, WriteSession, check_output, check_target
from plmix_dist.store.manifest import MANIFEST
from plmix_dist.store.mixture import MODEL, MixtureParams
from plmix_dist.store.partition import PartitionTask, WritePlan, write_partition

# Entries per partition: a few megabytes, so that even small stores give work to several workers.
_PARTITION_ENTRIES = 1 << 22
_MOST_RANKINGS = 10**12


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
    noise: str = "gumbel",
    random_state: RandomState = 0,
    leaf_rows: int | None = None,
    overwrite: bool = False,
    client: ClientLike = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RankingStore:
    """Draw rankings from a mixture into a new store.

    The true parameters are saved beside the store, in a model folder whose name ends in `.truth`. The true
    component of each row is in the store. Each leaf has its own random stream, so a seed gives the same
    store on any number of workers.

    Parameters
    ----------
    store
        Path or URL of the store to make.
    n_rankings, n_items, n_components
        The size of the data. If `mixture` is given, `n_items` and `n_components` are its own.
    differing
        Only the first `differing` items differ between components (the paper's model); all by default.
    length, unranked
        Rankings of `length` items: "below" gives the best of all items, "absent" orders a random subset.
    mixture
        Parameters to draw from; by default random ones with equal shares.
    noise
        The rows of a component are ordered by its log-worths plus noise: "gumbel" (standard Gumbel: Plackett-Luce
        models), "normal" (variance 1/2, so that i ranks before j with probability Phi(d) for a difference d of
        log-worths: Thurstone's model), or "exponential" (mean 1: probability 1 - exp(-d) / 2 for d >= 0).
    random_state
        The seed: a number from 0 on, a numpy RandomState or Generator, or None for another one each time.
    leaf_rows
        Rows per leaf; by default it depends on the number of items.
    overwrite
        Whether to replace another store that is there, and the parameters beside it. Without it they are an error. The
        same simulation again does nothing.
    client
        As in PlackettLuceMixture.fit: a Dask client, a cluster, or the address of a scheduler; None takes the active
        client if there is one; False stays in this process.

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
    n_rankings = whole_number("n_rankings", n_rankings, at_least=1)
    if n_rankings > _MOST_RANKINGS:
        raise SettingsError(f"n_rankings is {n_rankings:,}, and a store holds at most {_MOST_RANKINGS:,}")
    n_components = whole_number("n_components", n_components, at_least=1)
    leaf_rows = None if leaf_rows is None else whole_number("leaf_rows", leaf_rows, at_least=1)
    differing = None if differing is None else whole_number("differing", differing)
    length = None if length is None else whole_number("length", length)
    seed = seed_of(random_state)
    location = Location.of(store)
    if mixture is None:  # the paper's random one with equal shares; items are named by their numbers from 1
        if n_items is None:
            raise SettingsError("give the number of items, n_items, or a mixture")
        n_items = whole_number("n_items", n_items)
        check_memory(n_items, n_components)
        log_worths = draw_log_worths(n_components, n_items, differing, generator(seed, "mixture"))
        mixture = MixtureParams.of(log_worths, None, [str(number + 1) for number in range(log_worths.shape[1])])
    leaf_rows = leaf_rows or default_leaf_rows(mixture.n_items)
    listed = checked_length(length, mixture.n_items, unranked)
    partition_rows = leaf_rows * max(1, _PARTITION_ENTRIES // (leaf_rows * listed))
    one_of("noise", noise, tuple(NOISES))
    settings: dict[str, Any] = {
        "n_rankings": n_rankings,
        "partition_rows": partition_rows,
        "length": listed,
        "unranked": unranked,
        "seed": seed,
    }
    # Plans of Plackett-Luce models are those of versions that knew no other noise.
    named_noise = {} if noise == "gumbel" else {"noise": noise}
    truth = {"log_worths": mixture.log_worths.tolist(), "shares": mixture.shares.tolist()}
    plan = WritePlan(
        "simulate",
        list(mixture.item_names),
        leaf_rows,
        n_partitions=-(-n_rankings // partition_rows),
        settings=settings | named_noise | truth,
    )
    check_output(location, overwrite=overwrite)
    beside = location.sibling(".truth")
    if overwrite or not location.exists(MANIFEST):  # otherwise the store itself is the same, or refused
        _check_truth(beside, mixture, overwrite)
    with WriteSession.begin(location, plan, overwrite=overwrite) as session:
        if not session.already_done:
            mixture.save(beside, {"simulated": {"seed": seed, "n_rankings": n_rankings} | named_noise})
        draw = partial(_simulate_partition, mixture, settings, noise)
        run_all(executor or client, draw, session.pending(), "simulate", progress)
        return session.finalise()


def _check_truth(place: Location, mixture: MixtureParams, overwrite: bool) -> None:
    """An error if the parameters cannot be saved here, or would replace others without being asked to."""
    check_target(place, "model", overwrite=overwrite)
    if overwrite or not place.exists(MODEL):
        return
    there = MixtureParams.load(place)
    same = there.item_names == mixture.item_names and np.array_equal(there.log_worths, mixture.log_worths)
    if not (same and np.array_equal(there.shares, mixture.shares)):
        raise StoreExistsError(f"{place.url} already holds other parameters; {HOW_TO_REPLACE}")


def _simulate_partition(mixture: MixtureParams, settings: dict[str, Any], noise: str, task: PartitionTask) -> int:
    """Draw and write one partition; gives its number of rows."""
    first_row = task.number * settings["partition_rows"]
    last_row = min(first_row + settings["partition_rows"], settings["n_rankings"])
    leaves = (
        draw_rankings(
            mixture.log_worths,
            mixture.shares,
            min(task.leaf_rows, last_row - start),
            generator(settings["seed"], "rankings", start // task.leaf_rows),
            length=settings["length"],
            unranked=settings["unranked"],
            noise=noise,
        )
        for start in range(first_row, last_row, task.leaf_rows)
    )
    return write_partition(task, leaves).n_rankings
