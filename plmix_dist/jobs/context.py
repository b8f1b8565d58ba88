"""What the steps of a job work with."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from plmix_dist.engine import LazyExecutor
    from plmix_dist.jobs.job_file import Job
    from plmix_dist.jobs.output_folder import OutputFolder


class Display:
    """What shows progress to people; this one shows nothing."""

    def bar(self, label: str) -> AbstractContextManager[Callable[[int, int], None] | None]:
        """A bar for a step that writes in parts: a function that is called with (done, total)."""
        del label
        return contextlib.nullcontext()

    def fit(self, tol: float, max_iter: int) -> AbstractContextManager[Any]:
        """A progress object for a fit, as PlackettLuceMixture takes it."""
        del tol, max_iter
        return contextlib.nullcontext()


NOTHING_SHOWN = Display()


class Context(NamedTuple):
    """What a step works with.

    Parameters
    ----------
    job
        The checked job.
    folder
        Where it writes.
    executor
        Where it computes.
    force
        Whether a model of other settings, and its checkpoints, are replaced.
    display
        What shows progress to people.
    """

    job: Job
    folder: OutputFolder
    executor: LazyExecutor
    force: bool = False
    display: Display = NOTHING_SHOWN
