"""Rows of very different lengths in one leaf: the same rows as they come, and sorted by length.

Blocks are stored without padding, and kernels work row by row, so neither memory nor time should depend on the order.
MM passes: LSR sums n x n numbers per component, and is not chosen for such rows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.common import save
from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.columns import item_dtype

if TYPE_CHECKING:
    from collections.abc import Callable


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    n_items, n_rows, n_components = (300, 200, 2) if tiny else (3_000, 4_096, 4)
    params = prepare(rng.normal(size=(n_components, n_items)), np.log(np.full(n_components, 1 / n_components)))
    rows = []
    for unranked in ("absent", "below"):
        mixed = mixed_block(rng, n_rows, n_items, unranked)
        by_length = mixed.take(np.argsort(mixed.n_listed, kind="stable"))
        padded = n_rows * n_items * mixed.items.itemsize
        times = in_turn(
            [lambda block=block: em_statistics(block, params) for block in (mixed, by_length)], n_turns=3 if tiny else 7
        )
        rows.append(
            {
                "unlisted items": unranked,
                "mixed / sorted": times[0] / times[1],
                "ns per listed item": 1e9 * times[0] / len(mixed.items),
                "bytes / padded": mixed.items.nbytes / padded,
            }
        )
        print(rows[-1], flush=True)
    save("mixed_lengths", rows)
    return rows


def mixed_block(rng: np.random.Generator, n_rows: int, n_items: int, unranked: str) -> RankingBlock:
    """Rows of 3 to n_items items, most of them short: lengths are uniform in their logarithm."""
    lengths = np.exp(rng.uniform(np.log(3), np.log(n_items), n_rows)).astype(np.uint32)
    items = np.concatenate([rng.permutation(n_items)[:length] for length in lengths])
    below = np.full(n_rows, unranked == "below") & (lengths < n_items)
    return RankingBlock(items.astype(item_dtype(n_items)), lengths, lengths, below, n_items)


def in_turn(calls: list[Callable[[], Any]], n_turns: int) -> list[float]:
    """The shortest time of each call; they take turns, so that a busy machine disturbs all alike."""
    best = [np.inf] * len(calls)
    for _ in range(n_turns):
        for number, call in enumerate(calls):
            begun = time.perf_counter()
            call()
            best[number] = min(best[number], time.perf_counter() - begun)
    return best
