"""One MM iteration over some rows, as every benchmark of passes times it, and where workers' processes are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.inference import Em, EmState
from plmix_dist.inference.lockstep import run_together
from plmix_dist.solvers import MM

if TYPE_CHECKING:
    from distributed import Client

    from plmix_dist.engine.passes import Passes


def some_state(n_components: int, n_items: int) -> EmState:
    """Standard normal log-worths and equal shares."""
    log_worths = np.random.default_rng(0).standard_normal((n_components, n_items))
    return EmState.start(log_worths, np.full(n_components, 1 / n_components))


def mm_iteration(passes: Passes, state: EmState, n_rankings: int) -> Any:
    """One pass and its M-steps."""
    return run_together(passes, [Em(MM, 0.1, float(n_rankings), n_rankings).fused(state)])[0]


def worker_pids(client: Client) -> list[int]:
    """The processes of all workers."""
    return list(client.run(os.getpid).values())
