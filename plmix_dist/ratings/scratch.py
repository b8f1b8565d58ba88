"""Scratch files of a run, kept beside the store so that all workers reach them, and sums over its leaves."""

from __future__ import annotations

import io
import json
import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from plmix_dist.engine.tree import TreeSum
from plmix_dist.single_thread import single_thread
from plmix_dist.store.access import writing_explained

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from plmix_dist.engine import Executor
    from plmix_dist.store import Location

# Tasks per thread of the workers: enough to share the work evenly, few enough to keep messages rare.
_TASKS_PER_THREAD = 4
_THREADS_IF_UNKNOWN = 4


@dataclass(frozen=True)
class Scratch:
    """A folder for files that are needed until the store is written.

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.store import Location
    >>> scratch = Scratch.beside(Location.of(tempfile.mkdtemp() + "/store"))
    >>> scratch.save("a.npz", numbers=np.arange(3))
    >>> scratch.load("a.npz")["numbers"].tolist()
    [0, 1, 2]
    >>> scratch.remove()
    """

    location: Location

    @classmethod
    def beside(cls, store: Location) -> Scratch:
        """A new folder beside a store, named after it. If a run is killed, its folder stays and may be removed."""
        return cls(store.sibling(f".scratch-{uuid.uuid4().hex[:12]}"))

    def save(self, name: str, **arrays: NDArray[Any]) -> None:
        """Write arrays to a file."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        self.write(name, buffer.getvalue())

    def load(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays that `save` was given."""
        with np.load(io.BytesIO(self.read(name)), allow_pickle=False) as file:
            return dict(file)

    def save_text(self, name: str, labels: list[str]) -> None:
        """Write labels to a file."""
        self.write(name, json.dumps(labels, ensure_ascii=False).encode())

    def load_text(self, name: str) -> list[str]:
        """The labels that `save_text` was given."""
        return list(json.loads(self.read(name)))

    def write(self, name: str, data: bytes) -> None:
        """Write bytes to a file. On local disk they are not synced: a run that was stopped does not need them again."""
        if not self.location.is_local:
            self.location.write_bytes(name, data)
            return
        path = self.location.local_path(name)
        with writing_explained(str(path), len(data)):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
            try:
                draft.write_bytes(data)
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        return self.location.read_bytes(name)

    def open_arrow(self, name: str) -> AbstractContextManager[Any]:
        """An Arrow file opened for reading parts of it: mapped into memory, or by ranges behind a URL."""
        if self.location.is_local:
            opened: AbstractContextManager[Any] = pa.memory_map(str(self.location.local_path(name)))
            return opened
        import fsspec

        remote: AbstractContextManager[Any] = fsspec.open(
            f"{self.location.url}/{name}", "rb", **self.location.storage_options
        )
        return remote

    def forget(self, *names: str) -> None:
        """Delete files that are no longer needed."""
        for name in names:
            self.location.remove(name)

    def remove(self) -> None:
        """Delete everything."""
        for name in self.location.listing():
            self.location.remove(name)
        if self.location.is_local:
            shutil.rmtree(self.location.url, ignore_errors=True)


@dataclass(frozen=True)
class _Run:
    """The leaves from `start` to `stop` of `n_leaves`, and the function of a leaf's number."""

    function: Callable[[int], Any]
    start: int
    stop: int
    n_leaves: int


def _sum_run(run: _Run) -> dict[tuple[int, int], Any]:
    """The nodes of the tree that a run of leaves completes."""
    tree = TreeSum(run.n_leaves)
    with single_thread():
        for leaf in range(run.start, run.stop):
            tree.add_leaf(leaf, run.function(leaf))
    return tree.nodes


def sum_over_leaves(
    executor: Executor, function: Callable[[int], Any], n_leaves: int, name: str, n_tasks: int | None = None
) -> Any:
    """The sum of a statistic over all leaves along the canonical tree: the same bits for any cut into tasks.

    Parameters
    ----------
    function
        From the number of a leaf to its statistic: an array, a number, or a tuple of these.
    name
        The name of the tasks on the dashboard.
    n_tasks
        Into about how many tasks the leaves are cut; by default a few per thread.

    Examples
    --------
    >>> from plmix_dist.engine import executor_for
    >>> float(sum_over_leaves(executor_for(False), np.float64, 5, "numbers"))
    10.0
    """
    wanted = n_tasks or _TASKS_PER_THREAD * _threads_of(executor)
    step = 1 << max(0, (n_leaves // wanted).bit_length() - 1)  # a power of two completes the most nodes
    runs = [
        _Run(function, start, min(start + step, n_leaves), n_leaves) for start in range(0, n_leaves, step)
    ]
    tree = TreeSum(n_leaves)
    for _, nodes in executor.map(_sum_run, runs, name):
        tree.add_nodes(nodes)
    return tree.root()


def _threads_of(executor: Executor) -> int:
    """How many tasks run at a time."""
    n_threads: Any = getattr(executor, "n_threads", None)
    if n_threads is not None:
        return int(n_threads)
    asked: Any = getattr(
        executor, "client_if_asked", None
    )  # of an executor that may or may not have a cluster
    client: Any = getattr(executor, "client", None) if asked is None else asked()
    if client:
        return max(1, int(sum(client.nthreads().values())))
    return _THREADS_IF_UNKNOWN
