"""Clusters for tests: small ones that start in a fraction of a second."""

from __future__ import annotations

import contextlib
import multiprocessing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client

# What worker processes have imported when they start.
_PRELOADED = [
    "distributed",
    "plmix_dist.passes",
    "plmix_dist.kernels",
    "plmix_dist.store",
    "plmix_dist.fitting",
    "numba",
    "zarr",
]


def start_workers_by_forking() -> None:
    """Let workers of this process's clusters be forks of a server without threads, as in Dask's own tests."""
    import dask
    from distributed.utils import get_mp_context

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context()  # sets what Dask wants to be imported, which is less
    multiprocessing.set_forkserver_preload(_PRELOADED)


@contextlib.contextmanager
def small_cluster(n_workers: int = 2, **options: Any) -> Iterator[Client]:
    """A client, not the default one, of a cluster on this machine whose workers have one thread each.

    With `processes=False` the workers are threads of this process: enough to test graphs and submission.
    """
    from distributed import Client, LocalCluster

    settings = {"threads_per_worker": 1, "processes": True, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    if not options.get("processes", True):
        del settings["host"]  # workers in this process need no sockets
    with (
        LocalCluster(n_workers=n_workers, **(settings | options)) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
