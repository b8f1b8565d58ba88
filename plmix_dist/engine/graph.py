"""Graphs as plain tasks: making Delayed objects took longer than the cluster takes to schedule what they say."""

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

    def call(self, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """A task that calls a function; results of other tasks are found at the top level of its arguments alone."""
        from dask._task_spec import Task, TaskRef

        self.tasks[key] = Task(key, function, *arguments)
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
        from dask.delayed import Delayed

        return Delayed(key, self.tasks)


def preferring(lazy: Sequence[Delayed], workers: Mapping[str, str]) -> list[Delayed]:
    """The same tasks, each with a worker that should run it if it is there; another one will where it is not."""
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

    layers: dict[str, Any] = {}
    dependencies: dict[str, Any] = {}
    for task in lazy:
        layers |= dict(task.dask.layers)
        dependencies |= dict(task.dask.dependencies)
    for task in lazy:
        wish = {"workers": [workers[task.key]], "allow_other_workers": True}
        layers[task.key] = MaterializedLayer(dict(layers[task.key]), annotations=wish)
    graph = HighLevelGraph(layers, dependencies)
    return [Delayed(task.key, graph) for task in lazy]
