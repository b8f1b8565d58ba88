"""One MM iteration over some rows, as every benchmark of passes times it, and where workers' processes are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.fitting.e_step import em_request
from plmix_dist.fitting.point import Point
from plmix_dist.solvers import MM

if TYPE_CHECKING:
    from distributed import Client

    from plmix_dist.passes.request import Answer, Passes


def some_point(n_components: int, n_items: int) -> Point:
    """Standard normal log-worths and equal shares."""
    log_worths = np.random.default_rng(0).standard_normal((n_components, n_items))
    return Point.start(log_worths, np.full(n_components, 1 / n_components))


def mm_iteration(passes: Passes, point: Point) -> Answer:
    """One pass and its M-steps."""
    (answer,) = passes.run([em_request(MM, point, None, alpha=0.1)])
    return answer


def worker_pids(client: Client) -> list[int]:
    """The processes of all workers."""
    return list(client.run(os.getpid).values())
