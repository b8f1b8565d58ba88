"""Memberships of a whole store, computed in parallel and written to Zarr."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plmix_dist.data import as_rankings
from plmix_dist.engine import run_all
from plmix_dist.engine.by_row import rows_of_run, run_of_rows
from plmix_dist.posteriors import probabilities_of
from plmix_dist.store import Location, create_memberships, write_memberships

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from distributed import Client

    from plmix_dist.engine import Executor
    from plmix_dist.engine.by_row import RowRun
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

    Examples
    --------
    >>> import tempfile, numpy as np, plmix_dist
    >>> from plmix_dist.mixture import MixtureParams
    >>> folder = tempfile.mkdtemp()
    >>> store = plmix_dist.simulate(f"{folder}/s", n_rankings=100, n_items=3, random_state=0)
    >>> mixture = MixtureParams(np.zeros((2, 3)), np.array([0.5, 0.5]), store.item_names)
    >>> write_predictions(mixture, store, f"{folder}/memberships")
    100
    """
    rankings = as_rankings(store, item_names=mixture.item_names)
    location = Location.of(out)
    function = probabilities_of(mixture)
    tasks = [
        WriteTask(location, first, last, *run_of_rows(rankings, function, first, last))
        for first, last in create_memberships(location, rankings.n_rankings, mixture.n_components)
    ]
    run_all(executor or client, write_run, tasks, "predict", progress)
    return rankings.n_rankings


@dataclass(frozen=True)
class WriteTask:
    """What a worker must know to write the rows from `first` to `last`, which are one chunk of memberships.

    `skipped` rows of the run of leaves come before the first.
    """

    out: Location
    first: int
    last: int
    run: RowRun
    skipped: int


def write_run(task: WriteTask) -> None:
    """Compute and write the rows of one chunk."""
    probabilities = rows_of_run(task.run)
    write_memberships(
        task.out, task.first, probabilities[task.skipped : task.skipped + task.last - task.first]
    )
