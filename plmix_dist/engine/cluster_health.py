"""What a Dask cluster looks like from here: workers, their versions and threads, memory, the dashboard."""

from __future__ import annotations

import contextlib
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from plmix_dist.engine.cluster import open_client
from plmix_dist.engine.watch import address_of

if TYPE_CHECKING:
    from distributed import Client

    from plmix_dist.engine.cluster import ClusterOptions

# Libraries whose versions must agree between client, scheduler and workers for tasks to be understood.
_MUST_AGREE = ("dask", "distributed", "python", "numpy")
_DASHBOARD_SECONDS = 5.0


def cluster_health(options: ClusterOptions) -> dict[str, Any]:
    """Connect to the scheduler of the options, and look around.

    Returns
    -------
    record
        "scheduler", "n_workers", "n_threads", "memory_bytes" per worker, "blas_threads" per worker, "plmix_versions"
        and "differing_versions" by name, "dashboard" and whether "dashboard_answers".
    """
    with open_client(options) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        told = client.run(_about_worker) if workers else {}
        return {
            "scheduler": address_of(client),
            "n_workers": len(workers),
            "n_threads": [worker["nthreads"] for worker in workers.values()],
            "memory_bytes": [worker["memory_limit"] for worker in workers.values()],
            "blas_threads": [one["blas_threads"] for one in told.values()],
            "n_processors": [one["n_processors"] for one in told.values()],
            "plmix_versions": sorted({str(one["plmix"]) for one in told.values()}),
            "differing_versions": _differing(client),
            "dashboard": client.dashboard_link,
            "dashboard_answers": answers(client.dashboard_link),
        }


def blas_threads() -> int:
    """How many threads the linear algebra of this process would use, at most.

    Examples
    --------
    >>> blas_threads() >= 1
    True
    """
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own
    from threadpoolctl import threadpool_info

    return max((int(pool["num_threads"]) for pool in threadpool_info()), default=1)


def answers(url: str) -> bool:
    """Whether a web server answers at this address, with whatever.

    Examples
    --------
    >>> answers("http://127.0.0.1:9/status")
    False
    """
    if not url.startswith(("http://", "https://")):
        return False
    with contextlib.suppress(OSError, ValueError):
        try:
            with urllib.request.urlopen(url, timeout=_DASHBOARD_SECONDS):  # noqa: S310 - http only
                return True
        except urllib.error.HTTPError as error:
            return error.code < 500 and error.code != 404
    return False


def _about_worker() -> dict[str, Any]:
    """Runs on a worker. It may have another version of this package, or none; then it does not come this far."""
    import plmix_dist

    return {
        "plmix": plmix_dist.__version__,
        "blas_threads": blas_threads(),
        "n_processors": os.cpu_count() or 1,
    }


def _differing(client: Client) -> dict[str, list[str]]:
    """Libraries of which client, scheduler and workers do not all have the same version."""
    found: Any = client.get_versions(check=False)
    places = [found["client"], found["scheduler"], *found["workers"].values()]
    by_name: dict[str, set[str]] = {name: set() for name in _MUST_AGREE}
    for place in places:
        versions = {
            **(place or {}).get("packages", {}),
            "python": (place or {}).get("host", {}).get("python"),
        }
        for name in _MUST_AGREE:
            by_name[name].add(str(versions.get(name)))
    return {name: sorted(versions) for name, versions in by_name.items() if len(versions) > 1}
