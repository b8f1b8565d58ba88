"""Cost of the range check of a leaf, in microseconds, beside the pass over the same leaf."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import interleaved, save
from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.rankings.checks import check_ranges
from plmix_dist.rankings.simulate import draw_rankings

LEAF_ROWS = 4_096
N_COMPONENTS = 3


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for n_items in (10, 100):
        for weighted in (False, True):
            log_worths = rng.standard_normal((N_COMPONENTS, n_items))
            shares = np.full(N_COMPONENTS, 1 / N_COMPONENTS)
            block, _ = draw_rankings(log_worths, shares, LEAF_ROWS, rng)
            if weighted:
                block = block.replace(weights=np.ones(LEAF_ROWS))
            rows.append(_row(block, weighted, prepare(log_worths, np.log(shares)), 3 if tiny else 500))
    return save("range_check", rows)


def _row(block: Any, weighted: bool, params: Any, rounds: int) -> dict[str, Any]:
    check_ranges(block)

    def checked_pass() -> None:
        check_ranges(block)
        em_statistics(block, params)

    functions = {
        "pass": lambda: em_statistics(block, params),
        "with check": checked_pass,
        "check": lambda: check_ranges(block),
        "new leaf": lambda: check_ranges(block.replace()),
    }
    shortest = {name: 1e6 * min(seconds) for name, seconds in interleaved(rounds, functions).items()}
    return {
        "rows": block.n_rankings,
        "items": block.n_items,
        "weights": "yes" if weighted else "no",
        "pass (us)": shortest["pass"],
        "pass with check (us)": shortest["with check"],
        "check in every pass (us)": shortest["check"],
        "check / pass": shortest["check"] / shortest["pass"],
        "check of a new leaf (us)": shortest["new leaf"],
    }
