"""Memberships of a whole store, computed in parallel and written to Zarr."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.data import as_rankings
from plmix_dist.engine import executor_for, run_all
from plmix_dist.kernels import prepare, row_posteriors
from plmix_dist.store import Location, create_memberships, write_memberships

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from distributed import Client

    from plmix_dist.data import Rankings
    from plmix_dist.engine import Executor
    from plmix_dist.mixture import MixtureParams
    from plmix_dist.store import RankingStore


def write_predictions(
    mixture: MixtureParams,
    store: RankingStore | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    client: Client | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write the probability of each component (`probabilities`) and the most probable one (`component`) of every row.

    Gives the number of rows. `out` becomes a Zarr v3 group; nothing is held whole in memory.
    """
    rankings = as_rankings(store, item_names=mixture.item_names)
    location = Location.of(out)
    runs = create_memberships(location, rankings.n_rankings, mixture.n_components)
    tasks = [PredictionTask(mixture, rankings, location, *run) for run in runs]
    run_all(executor or executor_for(client), predict_run, tasks, "predict", progress)
    return rankings.n_rankings


@dataclass(frozen=True)
class PredictionTask:
    """What a worker must know to write one chunk of memberships."""

    mixture: MixtureParams
    rankings: Rankings
    out: Location
    start: int
    stop: int


def predict_run(task: PredictionTask) -> None:
    """Compute and write the rows of one chunk."""
    bounds = task.rankings.leaf_bounds
    first = int(np.searchsorted(bounds, task.start, side="right")) - 1
    last = int(np.searchsorted(bounds, task.stop, side="left"))
    with np.errstate(divide="ignore"):
        params = prepare(task.mixture.log_worths, np.log(task.mixture.shares))
    blocks = task.rankings.iter_leaves(first, last, labels=False)
    probabilities = np.concatenate([row_posteriors(block, params)[1] for block in blocks])
    skipped = task.start - int(bounds[first])
    write_memberships(task.out, task.start, probabilities[skipped : skipped + task.stop - task.start])
