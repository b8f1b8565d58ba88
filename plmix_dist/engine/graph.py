"""Graphs as plain tasks: making Delayed objects took longer than the cluster takes to schedule what they say.

`dask._task_spec` is private to Dask. It is used in this file alone; a test tells when its names have moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dask.delayed import Delayed
    from distributed import Future


class Graph:
    """Tasks by name, added one by one; what `call` gives stands for a result in the arguments of later tasks.

    Examples
    --------
    >>> graph = Graph()
    >>> small, large = graph.call("small", abs, -1), graph.call("large", abs, -5)
    >>> graph.call("largest", max, graph.together([small, large]))
    TaskRef('largest')
    >>> graph.lazy("largest").compute(scheduler="synchronous")
    5
    """

    def __init__(self) -> None:
        self.tasks: dict[str, Any] = {}
        self.homes: dict[str, str] = {}

    def call(self, key: str, function: Callable[..., Any], *arguments: Any, home: str | None = None) -> Any:
        """A task that calls a function, on the worker at `home` if it is there.

        Results of other tasks are found at the top level of its arguments alone.
        """
        from dask._task_spec import Task, TaskRef

        self.tasks[key] = Task(key, function, *arguments)
        if home is not None:
            self.homes[key] = home
        return TaskRef(key)

    def value(self, key: str, value: Any) -> Any:
        """A value that travels once and is handed from worker to worker, rather than with every task."""
        from dask._task_spec import DataNode, TaskRef

        self.tasks[key] = DataNode(key, value)
        return TaskRef(key)

    def together(self, results: Sequence[Any]) -> Any:
        """Several results as one list among the arguments of a task."""
        from dask._task_spec import List

        return List(*results)

    def include(self, other: Future[Any] | Delayed) -> Any:
        """The result of a future, which lives on the cluster, or of tasks that were made with Delayed."""
        from dask._task_spec import TaskRef
        from dask.delayed import Delayed

        if isinstance(other, Delayed):
            self.tasks |= dict(other.dask)
        return TaskRef(other.key)

    def lazy(self, key: str) -> Delayed:
        """What to compute in order to have the result of one task."""
        return self.lazily([key])[0]

    def lazily(self, keys: Sequence[str]) -> list[Delayed]:
        """What to compute in order to have the results of several tasks."""
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        anywhere = {key: task for key, task in self.tasks.items() if key not in self.homes}
        layers: dict[str, Any] = {"anywhere": MaterializedLayer(anywhere)}
        if self.homes:
            # A worker that is gone is replaced by any other.
            wish = {"workers": _Home(self.homes), "allow_other_workers": True}
            at_home = {key: self.tasks[key] for key in self.homes}
            layers["at-home"] = MaterializedLayer(at_home, annotations=wish)
        graph = HighLevelGraph(layers, {name: set(layers) - {name} for name in layers})
        return [Delayed(key, graph, layer="anywhere") for key in keys]


class _Home:
    """The worker that should run a task, by its key, as Dask asks for it."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self.homes = homes

    def __call__(self, key: str) -> list[str]:
        return [self.homes[key]]
