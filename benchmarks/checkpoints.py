"""What checkpoints cost: seconds and bytes of one save, and the share of a long fit at the default interval.

Fits save after every pass, so that many saves are measured; `share` is the median save divided by 30 s.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import save
from plmix_dist import Checkpoint, PlackettLuceMixture, simulate
from plmix_dist.fitting.journal import Journal
from plmix_dist.store.checkpoints import DEFAULT_SECONDS


def run(tiny: bool = False) -> list[dict[str, Any]]:
    cases = [(1_000, 5, 2)] if tiny else [(100_000, 10, 3), (200_000, 100, 8), (50_000, 1_000, 4)]
    return save("checkpoints", [_cost(*case) for case in cases])


def _cost(n_rankings: int, n_items: int, n_components: int) -> dict[str, Any]:
    seconds: list[float] = []
    saving = Journal.save

    def timed(journal: Journal) -> None:
        begun = time.perf_counter()
        is_new = not journal._is_saved
        saving(journal)
        if is_new:
            seconds.append(time.perf_counter() - begun)

    with tempfile.TemporaryDirectory() as name:
        length = min(n_items, 10)
        store = simulate(
            f"{name}/store", n_rankings=n_rankings, n_items=n_items, n_components=n_components,
            length=length, unranked="absent", random_state=1,
        )  # fmt: skip
        place = Path(name) / "saved"
        Journal.save = timed  # type: ignore[method-assign]
        try:
            begun = time.perf_counter()
            model = PlackettLuceMixture(
                n_components, random_state=1, max_iter=30, checkpoint=Checkpoint(place, every=0)
            )
            model.fit(store, client=False)
            whole = time.perf_counter() - begun
        finally:
            Journal.save = saving  # type: ignore[method-assign]
        newest = max(place.glob("checkpoint-*"))
        parts = sum(file.stat().st_size for file in place.glob("part-*"))
        return {
            "rankings": n_rankings,
            "items": n_items,
            "components": n_components,
            "fit_seconds": round(whole, 2),
            "saves": len(seconds),
            "median_seconds": round(statistics.median(seconds), 4),
            "largest_seconds": round(max(seconds), 4),
            "checkpoint_bytes": newest.stat().st_size,
            "part_bytes": parts,
            "share": round(statistics.median(seconds) / DEFAULT_SECONDS, 5),
        }
