"""The health of this installation and of a cluster: what was looked at, what is wrong, and what to do."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from plmix_dist import __version__
from plmix_dist.cluster import executor, lost_workers, submission
from plmix_dist.errors import PlmixError

if TYPE_CHECKING:
    from distributed import Client

State = Literal["ok", "note", "wrong"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "numba", "pyarrow", "fsspec")
_OPTIONAL = {"bokeh": "Dask's dashboard", "pandas": "tables as data frames", "s3fs": "S3", "xarray": "as_xarray"}
_ENOUGH_MEMORY = 1 << 30
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class _Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: State
    words: str
    remedy: str = ""
    values: dict[str, Any] = {}  # noqa: RUF012 - it is never changed


def examine(cluster: executor.ClusterOptions | None = None) -> list[_Finding]:
    """Look at everything that a fit needs. Nothing is changed, save that kernels may be compiled into the cache."""
    checks: list[Callable[[], _Finding]] = [_versions, _optional, _processors, _blas, _memory, _cache, _kernels]
    found = [check() for check in checks]
    return found if cluster is None else [*found, *_cluster(cluster)]


def _versions() -> _Finding:
    versions = {name: _version_of(name) for name in _PACKAGES}
    words = f"plmix {__version__}, Python {platform.python_version()}, " + ", ".join(
        f"{name} {version or 'MISSING'}" for name, version in versions.items()
    )
    values = {"plmix": __version__, "python": platform.python_version(), "executable": sys.executable, **versions}
    if None in versions.values():
        return _Finding("versions", "wrong", words, "install plmix-dist again: pip install plmix-dist", values)
    return _Finding("versions", "ok", words, values=values)


def _version_of(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _optional() -> _Finding:
    found = {name: _version_of(name) for name in _OPTIONAL}
    words = ", ".join(
        f"{name} {version}" if version else f"no {name} ({_OPTIONAL[name]})" for name, version in found.items()
    )
    return _Finding("optional", "ok", words, values=dict(found))


def _processors() -> _Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n_processors = os.cpu_count() or 1
    values = {"n_processors": n_processors, "usable": usable}
    if usable < n_processors:
        remedy = f"a local cluster starts a worker per processor; use --workers {usable}"
        return _Finding("processors", "note", f"{n_processors}, but this process may use {usable}", remedy, values)
    return _Finding("processors", "ok", f"{n_processors}", values=values)


def _blas() -> _Finding:
    threads, processors = _blas_threads(), os.cpu_count() or 1
    values = {"blas_threads": threads, "n_processors": processors}
    if threads > processors:
        words = f"{threads} threads on {processors} processors: they wait for each other"
        remedy = f"set OMP_NUM_THREADS={processors} and OPENBLAS_NUM_THREADS={processors}, or 1, before Python starts"
        return _Finding("threads of BLAS", "wrong", words, remedy, values)
    return _Finding("threads of BLAS", "ok", f"{threads} here; plmix holds them to 1 while it computes", values=values)


def _memory() -> _Finding:
    import psutil

    memory = psutil.virtual_memory()
    limit = _cgroup_limit()
    total = memory.total if limit is None else min(limit, memory.total)
    values = {"total_bytes": total, "available_bytes": memory.available, "container_limit_bytes": limit}
    within = f", of which a container may use {_gigabytes(total)}" if limit is not None else ""
    words = f"{_gigabytes(memory.available)} free of {_gigabytes(memory.total)}{within}"
    if min(memory.available, total) < _ENOUGH_MEMORY:
        remedy = "close other programs, or use --memory-limit so that workers spill to disk before they are killed"
        return _Finding("memory", "note", words, remedy, values)
    return _Finding("memory", "ok", words, values=values)


def _cgroup_limit() -> int | None:
    """The memory that the container of this process may use, if there is a limit."""
    for path in _CGROUP_LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:,.1f} GB"


def _cache() -> _Finding:
    from plmix_dist.kernels import cache_folder
    from plmix_dist.kernels.loading import fault_of_cache

    folder = cache_folder()
    values = {"folder": str(folder)}
    if (fault := fault_of_cache(folder / "any.kernel")) is not None:
        remedy = "remove it, or set PLMIX_CACHE_DIR to a folder of your own; until then every process compiles again"
        return _Finding("cache", "wrong", f"{fault}, so it is not used", remedy, values)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        remedy = "set PLMIX_CACHE_DIR to a folder that can be written, or every process compiles again"
        words = f"{folder} cannot be written: {error.strerror or error}"
        return _Finding("cache", "wrong", words, remedy, values)
    return _Finding("cache", "ok", str(folder), values=values)


def _kernels() -> _Finding:
    from plmix_dist.kernels import kernels_are_compiled

    compiled = all(kernels_are_compiled(with_rates=with_rates) for with_rates in (False, True))
    values = {"compiled": compiled}
    if not compiled:
        words = "not compiled yet: the first fit takes about 3 s longer"
        return _Finding("kernels", "note", words, "compile them now: plmix compile", values)
    return _Finding("kernels", "ok", "compiled", values=values)


def _cluster(options: executor.ClusterOptions) -> list[_Finding]:
    try:
        health = _cluster_health(options)
    except PlmixError as error:
        return [_Finding("cluster", "wrong", str(error), "", {"reached": False})]
    except Exception as error:  # noqa: BLE001 - whatever a worker raised is what the user must know
        words = f"workers cannot run plmix: {type(error).__name__}: {error}"
        remedy = f"install plmix-dist {__version__} on every worker, with the same versions of its libraries"
        return [_Finding("cluster", "wrong", words, remedy, {"reached": True})]
    return [_workers(health), _worker_versions(health), _worker_threads(health), _dashboard(health)]


def _workers(health: dict[str, Any]) -> _Finding:
    memory = [n_bytes for n_bytes in health["memory_bytes"] if n_bytes]
    limits = f"{_gigabytes(min(memory))} per worker" if memory else "no limit of memory"
    threads = sum(health["n_threads"])
    words = f"{health['scheduler']}: {health['n_workers']} workers, {threads} threads, {limits}"
    if not health["n_workers"]:
        return _Finding("cluster", "wrong", words, "start workers: dask worker " + health["scheduler"], health)
    if memory and len(memory) < health["n_workers"]:
        return _Finding("cluster", "note", words, "some workers have no limit of memory; give --memory-limit", health)
    return _Finding("cluster", "ok", words, values=health)


def _worker_versions(health: dict[str, Any]) -> _Finding:
    others = [version for version in health["plmix_versions"] if version != submission.version_here()]
    differing = dict(health["differing_versions"])
    if others:
        differing["plmix"] = [submission.version_here(), *others]
    if differing:
        words = "; ".join(f"{name}: {', '.join(versions)}" for name, versions in differing.items())
        remedy = "install the same versions on client, scheduler and workers"
        return _Finding("versions there", "wrong", words, remedy, differing)
    return _Finding("versions there", "ok", "the same as here")


def _worker_threads(health: dict[str, Any]) -> _Finding:
    at_workers = zip(health["n_threads"], health["blas_threads"], health["n_processors"], strict=False)
    too_many = [found for found in at_workers if found[0] * found[1] > 2 * found[2]]
    if too_many:
        threads, blas, processors = too_many[0]
        words = f"{threads} threads and {blas} of BLAS on {processors} processors, at {len(too_many)} workers"
        remedy = "start workers with OMP_NUM_THREADS=1 (dask worker --nanny does); plmix itself holds BLAS to 1 thread"
        return _Finding("threads there", "note", words, remedy)
    return _Finding("threads there", "ok", "BLAS does not use more threads than there are processors")


def _dashboard(health: dict[str, Any]) -> _Finding:
    if health["dashboard_answers"]:
        return _Finding("dashboard", "ok", health["dashboard"])
    remedy = "install bokeh where the scheduler runs (plmix-dist[dashboard]), or forward its port"
    return _Finding("dashboard", "note", f"no answer at {health['dashboard']}", remedy)


# What a cluster looks like from here: workers, their versions and threads, memory, the dashboard.

# Libraries whose versions must agree between client, scheduler and workers for tasks to be understood.
_MUST_AGREE = ("dask", "distributed", "python", "numpy")
_DASHBOARD_SECONDS = 5.0


def _cluster_health(options: executor.ClusterOptions) -> dict[str, Any]:
    """Connect to the scheduler of the options, and look around."""
    with executor.open_client(options) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        found = client.run(_about_worker) if workers else {}
        return {
            "scheduler": lost_workers.address_of(client),
            "n_workers": len(workers),
            "n_threads": [worker["nthreads"] for worker in workers.values()],
            "memory_bytes": [worker["memory_limit"] for worker in workers.values()],
            "blas_threads": [one["blas_threads"] for one in found.values()],
            "n_processors": [one["n_processors"] for one in found.values()],
            "plmix_versions": sorted({str(one["plmix"]) for one in found.values()}),
            "differing_versions": _differing(client),
            "dashboard": client.dashboard_link,
            "dashboard_answers": answers(client.dashboard_link),
        }


def _blas_threads() -> int:
    """How many threads the linear algebra of this process would use, at most."""
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own
    from threadpoolctl import threadpool_info

    return max((int(pool["num_threads"]) for pool in threadpool_info()), default=1)


def answers(url: str) -> bool:
    """Whether a web server answers at this address, with whatever."""
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
    return {"plmix": submission.version_here(), "blas_threads": _blas_threads(), "n_processors": os.cpu_count() or 1}


def _differing(client: Client) -> dict[str, list[str]]:
    """Libraries of which client, scheduler and workers do not all have the same version."""
    found: Any = client.get_versions(check=False)
    places = [found["client"], found["scheduler"], *found["workers"].values()]
    there = [place or {} for place in places]
    known = [{**one.get("packages", {}), "python": one.get("host", {}).get("python")} for one in there]
    by_name = {name: sorted({str(versions.get(name)) for versions in known}) for name in _MUST_AGREE}
    return {name: versions for name, versions in by_name.items() if len(versions) > 1}
