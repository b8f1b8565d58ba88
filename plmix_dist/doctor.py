"""examine(): whether this installation, and a cluster, are fit for work; what is wrong, and what to do."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from plmix_dist import __version__
from plmix_dist.engine.cluster_health import blas_threads, cluster_health
from plmix_dist.errors import PlmixError

if TYPE_CHECKING:
    from collections.abc import Callable

    from plmix_dist.engine import ClusterOptions

State = Literal["ok", "note", "wrong"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "numba", "pyarrow", "fsspec")
_OPTIONAL = {
    "bokeh": "Dask's dashboard",
    "pandas": "tables as data frames",
    "s3fs": "S3",
    "xarray": "as_xarray",
}
_ENOUGH_MEMORY = 1 << 30
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Finding(NamedTuple):
    """One thing that was looked at.

    Examples
    --------
    >>> Finding("threads", "ok", "2 processors").remedy
    ''
    """

    name: str
    state: State
    words: str
    remedy: str = ""
    values: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


def examine(cluster: ClusterOptions | None = None) -> list[Finding]:
    """Look at everything that a fit needs. Nothing is changed, save that kernels may be compiled into the cache.

    Parameters
    ----------
    cluster
        Which scheduler to look at, too; None for none.

    Examples
    --------
    >>> [finding.name for finding in examine()]
    ['versions', 'optional', 'processors', 'threads of BLAS', 'memory', 'cache', 'kernels']
    """
    checks: list[Callable[[], Finding]] = [
        _versions,
        _optional,
        _processors,
        _blas,
        _memory,
        _cache,
        _kernels,
    ]
    found = [check() for check in checks]
    return found if cluster is None else [*found, *_cluster(cluster)]


def _versions() -> Finding:
    versions = {name: _version_of(name) for name in _PACKAGES}
    missing = [name for name, version in versions.items() if version is None]
    words = f"plmix {__version__}, Python {platform.python_version()}, " + ", ".join(
        f"{name} {version or 'MISSING'}" for name, version in versions.items()
    )
    values = {
        "plmix": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        **versions,
    }
    if missing:
        return Finding("versions", "wrong", words, "install plmix-dist again: pip install plmix-dist", values)
    return Finding("versions", "ok", words, values=values)


def _version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _optional() -> Finding:
    found = {name: _version_of(name) for name in _OPTIONAL}
    words = ", ".join(
        f"{name} {version}" if version else f"no {name} ({_OPTIONAL[name]})"
        for name, version in found.items()
    )
    return Finding("optional", "ok", words, values=dict(found))


def _processors() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n_processors = os.cpu_count() or 1
    values = {"n_processors": n_processors, "usable": usable}
    if usable < n_processors:
        return Finding(
            "processors",
            "note",
            f"{n_processors}, but this process may use {usable}",
            f"a local cluster starts a worker per processor; say --workers {usable}",
            values,
        )
    return Finding("processors", "ok", f"{n_processors}", values=values)


def _blas() -> Finding:
    threads, processors = blas_threads(), os.cpu_count() or 1
    values = {"blas_threads": threads, "n_processors": processors}
    if threads > processors:
        return Finding(
            "threads of BLAS",
            "wrong",
            f"{threads} threads on {processors} processors: they wait for each other",
            f"set OMP_NUM_THREADS={processors} and OPENBLAS_NUM_THREADS={processors}, or 1, before Python starts",
            values,
        )
    return Finding(
        "threads of BLAS", "ok", f"{threads} here; plmix holds them to 1 while it computes", values=values
    )


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    limit = _cgroup_limit()
    total = memory.total if limit is None else min(limit, memory.total)
    values = {"total_bytes": total, "available_bytes": memory.available, "container_limit_bytes": limit}
    within = f", of which a container may use {_gigabytes(total)}" if limit is not None else ""
    words = f"{_gigabytes(memory.available)} free of {_gigabytes(memory.total)}{within}"
    if min(memory.available, total) < _ENOUGH_MEMORY:
        remedy = (
            "close other programs, or say --memory-limit so that workers spill to disk before they are killed"
        )
        return Finding("memory", "note", words, remedy, values)
    return Finding("memory", "ok", words, values=values)


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


def _cache() -> Finding:
    from plmix_dist.kernels import cache_folder

    folder = cache_folder()
    values = {"folder": str(folder)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        remedy = "set PLMIX_CACHE_DIR to a folder that can be written, or every process compiles again"
        words = f"{folder} cannot be written: {error.strerror or error}"
        return Finding("cache", "wrong", words, remedy, values)
    return Finding("cache", "ok", str(folder), values=values)


def _kernels() -> Finding:
    from plmix_dist.kernels import kernels_are_compiled

    compiled = all(kernels_are_compiled(with_rates=with_rates) for with_rates in (False, True))
    values = {"compiled": compiled}
    if not compiled:
        words = "not compiled yet: the first fit takes about 3 s longer"
        return Finding("kernels", "note", words, "compile them now: plmix compile", values)
    return Finding("kernels", "ok", "compiled", values=values)


def _cluster(options: ClusterOptions) -> list[Finding]:
    try:
        health = cluster_health(options)
    except PlmixError as error:
        return [Finding("cluster", "wrong", str(error), "", {"reached": False})]
    except Exception as error:  # noqa: BLE001 - whatever a worker raised is what the user must know
        words = f"workers cannot run plmix: {type(error).__name__}: {error}"
        remedy = f"install plmix-dist {__version__} on every worker, with the same versions of its libraries"
        return [Finding("cluster", "wrong", words, remedy, {"reached": True})]
    return [_workers(health), _worker_versions(health), _worker_threads(health), _dashboard(health)]


def _workers(health: dict[str, Any]) -> Finding:
    memory = [n_bytes for n_bytes in health["memory_bytes"] if n_bytes]
    limits = f"{_gigabytes(min(memory))} per worker" if memory else "no limit of memory"
    threads = sum(health["n_threads"])
    words = f"{health['scheduler']}: {health['n_workers']} workers, {threads} threads, {limits}"
    if not health["n_workers"]:
        return Finding("cluster", "wrong", words, "start workers: dask worker " + health["scheduler"], health)
    if memory and len(memory) < health["n_workers"]:
        return Finding(
            "cluster", "note", words, "some workers have no limit of memory; give --memory-limit", health
        )
    return Finding("cluster", "ok", words, values=health)


def _worker_versions(health: dict[str, Any]) -> Finding:
    others = [version for version in health["plmix_versions"] if version != __version__]
    differing = dict(health["differing_versions"])
    if others:
        differing["plmix"] = [__version__, *others]
    if differing:
        words = "; ".join(f"{name}: {', '.join(versions)}" for name, versions in differing.items())
        return Finding(
            "versions there",
            "wrong",
            words,
            "install the same versions on client, scheduler and workers",
            differing,
        )
    return Finding("versions there", "ok", "the same as here")


def _worker_threads(health: dict[str, Any]) -> Finding:
    too_many = [
        (threads, blas, processors)
        for threads, blas, processors in zip(
            health["n_threads"], health["blas_threads"], health["n_processors"], strict=False
        )
        if threads * blas > 2 * processors
    ]
    if too_many:
        threads, blas, processors = too_many[0]
        words = f"{threads} threads and {blas} of BLAS on {processors} processors, at {len(too_many)} workers"
        remedy = "start workers with OMP_NUM_THREADS=1 (dask worker --nanny does); plmix itself holds BLAS to 1 thread"
        return Finding("threads there", "note", words, remedy)
    return Finding("threads there", "ok", "BLAS does not use more threads than there are processors")


def _dashboard(health: dict[str, Any]) -> Finding:
    if health["dashboard_answers"]:
        return Finding("dashboard", "ok", health["dashboard"])
    remedy = "install bokeh where the scheduler runs (plmix-dist[dashboard]), or forward its port"
    return Finding("dashboard", "note", f"no answer at {health['dashboard']}", remedy)
