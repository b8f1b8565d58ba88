"""A scheduler that runs for months: what Dask keeps of every computation for ever is dropped after a while.

Dask's scheduler never forgets spans, nor the task groups in them (dask/distributed issue 7977): about 45 kB for each
fit. A scheduler that `plmix scheduler` starts forgets those that ended long ago.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.spans import Span, SpansSchedulerExtension

_KEPT = 1_000
# Workers report what a span has cost with their heartbeats; after so many seconds none of them is on its way.
_SECONDS_AFTER_END = 600.0


class ForgetEndedSpans(SchedulerPlugin):
    """Forgets spans that ended some time ago, when there are many.

    Parameters
    ----------
    kept
        So many spans are kept, the newest, and up to twice as many before any is dropped.
    seconds
        How long ago the last task of a span must have ended.

    Examples
    --------
    >>> from distributed import Scheduler
    >>> scheduler = Scheduler(port=0, dashboard=False, plugins=[ForgetEndedSpans()])
    >>> "plmix-forget-ended-spans" in scheduler.plugins
    True
    """

    name = "plmix-forget-ended-spans"

    def __init__(self, kept: int = _KEPT, seconds: float = _SECONDS_AFTER_END) -> None:
        self._kept, self._seconds = kept, seconds

    def update_graph(self, scheduler: Scheduler, **about: Any) -> None:
        """Called by the scheduler for every graph that a client sends."""
        del about
        spans: SpansSchedulerExtension | None = scheduler.extensions.get("spans")
        if spans is None or len(spans.root_spans) <= 2 * self._kept:
            return
        old, new = spans.root_spans[: -self._kept], spans.root_spans[-self._kept :]
        before = time.time() - self._seconds
        ended = {id(root) for root in old if _is_over(root, before)}
        forgotten = {span.id for root in old if id(root) in ended for span in root.traverse_spans()}
        spans.root_spans[:] = [*(root for root in old if id(root) not in ended), *new]
        for number in forgotten:
            del spans.spans[number]
        _drop(spans.spans_search_by_name, forgotten)
        _drop(spans.spans_search_by_tag, forgotten)


def _drop(index: dict[Any, list[Span]], forgotten: set[str]) -> None:
    """Take spans out of a table of lists, and lists that become empty."""
    for key in list(index):
        index[key][:] = [span for span in index[key] if span.id not in forgotten]
        if not index[key]:
            del index[key]


def _is_over(root: Span, before: float) -> bool:
    """Whether the scheduler has forgotten all tasks of a span, and the last of them ended before a time."""
    groups = list(root.traverse_groups())
    n_left = sum(number for group in groups for state, number in group.states.items() if state != "forgotten")
    return n_left == 0 and root.enqueued < before and all(group.stop < before for group in groups)
