"""How many times a fit goes through all rows until its objective is as good as found, and until it ends.

A pass is as many visits of rows as there are rows, whichever stage makes them: what is done on samples counts for their
share. Samples that serve several starts are visited once, so the seconds of all that comes before the last stage are
shown too, as multiples of a pass.
"""

from __future__ import annotations

import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import numpy as np

import plmix_dist as pl
from benchmarks.common import save
from plmix_dist.fitting import fit
from plmix_dist.fitting import search as sample_fits

if TYPE_CHECKING:
    from collections.abc import Iterator

N_ITEMS, N_COMPONENTS, N_RANKINGS = 20, 5, 5_000_000
DIFFERING = (N_ITEMS, 6)
# As good as found: within this of the best objective, a ranking.
NEAR = 1e-6


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for differing in DIFFERING:
        with tempfile.TemporaryDirectory() as folder:
            store = pl.simulate(
                Path(folder) / "store",
                n_rankings=3_000 if tiny else N_RANKINGS,
                n_items=N_ITEMS,
                n_components=N_COMPONENTS,
                differing=differing,
            )
            options: dict[str, Any] = {
                "random_state": 0,
                "tol": 1e-5 if tiny else 1e-8,
                "max_iter": 200 if tiny else 2_000,
            }
            models = {"newton": pl.PlackettLuceMixture(N_COMPONENTS, **options).fit(store)}
            with without_newton():
                models["anderson alone"] = pl.PlackettLuceMixture(N_COMPONENTS, **options).fit(store)
        best = max(model.objective_ for model in models.values())
        rows += [
            {"m": store.n_rankings, "L": differing, "steps": name} | _counted(model, best, store.n_rankings)
            for name, model in models.items()
        ]
    return save("passes", rows) + hard_cases(tiny)


class Hard(NamedTuple):
    """A case that once took many passes."""

    n_rankings: int
    n_items: int
    length: int | None
    seed: int


# Rare items that win nothing in the sample once stopped Newton steps; starts that meet once ran on side by side.
HARD = (
    Hard(1_000_000, 100, 3, 1),
    Hard(2_000_000, 100, 3, 1),
    Hard(2_000_000, 100, 3, 2),
    Hard(10_000_000, 10, None, 4),
)


def hard_cases(tiny: bool = False) -> list[dict[str, Any]]:
    """Whole fits of K = 4 components, with their passes and seconds."""
    rows = []
    for case in HARD:
        with tempfile.TemporaryDirectory() as folder:
            store = pl.simulate(
                Path(folder) / "store",
                n_rankings=case.n_rankings // (1_000 if tiny else 1),
                n_items=case.n_items,
                n_components=4,
                length=case.length,
                unranked=None if case.length is None else "below",
                random_state=case.seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore" if tiny else "default")
                records: list[dict[str, Any]] = []
                model = pl.PlackettLuceMixture(
                    4, random_state=0, tol=1e-4 if tiny else 1e-8, progress=records.append
                ).fit(store)
        stages = model.init_["stages"]
        rows.append(
            {
                "m": store.n_rankings,
                "n": case.n_items,
                "top": case.length or case.n_items,
                "seed": case.seed,
                "passes over all rows": model.n_iter_,
                "start included": float(sum(stage["passes"] for stage in stages)),
                "seconds": sum(stage["seconds"] for stage in stages),
                "starts on all rows": len({record["start"] for record in records}),
                "converged": int(model.converged_),
            }
        )
    return save("passes-hard", rows)


@contextmanager
def without_newton() -> Iterator[None]:
    """Fits in which EM and Anderson's acceleration go all the way alone."""
    with ExitStack() as stack:
        for module in (fit, sample_fits):
            stack.enter_context(patch.object(module, "with_newton", lambda em, *_: em))
        yield


def _counted(model: pl.PlackettLuceMixture, best: float, n_rankings: int) -> dict[str, Any]:
    """Passes until the objective is near the best, and until the end.

    Another optimum may be better: then the fit comes near its own, and how far that is below is shown.
    """
    *before, last = model.init_["stages"]
    start_passes = float(sum(stage["passes"] for stage in before))
    goal = model.objective_ - NEAR * n_rankings
    n_near = next(record["iteration"] for record in model.history_ if record["objective"] >= goal)
    a_pass = float(np.median([record["pass_seconds"] for record in model.history_]))
    return {
        "start, passes": start_passes,
        "start, its time in passes": sum(stage["seconds"] for stage in before) / a_pass,
        "passes to 1e-6": start_passes + n_near,
        "passes to the end": start_passes + float(last["passes"]),
        "Newton steps": sum(record["step"] == "newton" for record in model.history_),
        "refused": sum(not record["taken"] for record in model.history_),
        "converged": int(model.converged_),
        "below best": (best - model.objective_) / n_rankings,
        "pass, s": a_pass,
    }
