"""Running work over partitions and leaves, in this process or on a Dask cluster."""

from plmix_dist.engine.cluster import ClusterOptions, LazyExecutor
from plmix_dist.engine.executor import (
    DistributedExecutor,
    Executor,
    ThreadedExecutor,
    executor_for,
    run_all,
)

__all__ = [
    "ClusterOptions",
    "DistributedExecutor",
    "Executor",
    "LazyExecutor",
    "ThreadedExecutor",
    "executor_for",
    "run_all",
]
