"""Running work over partitions and leaves, in this process or on a Dask cluster."""

from plmix_dist.engine.cluster import ClusterOptions, LazyExecutor
from plmix_dist.engine.executor import (
    DistributedExecutor,
    Executor,
    SerialExecutor,
    executor_for,
    run_all,
)

__all__ = [
    "ClusterOptions",
    "DistributedExecutor",
    "Executor",
    "LazyExecutor",
    "SerialExecutor",
    "executor_for",
    "run_all",
]
