"""How often 95 % intervals hold the truth when items are rare: top-3 of 10 with wide worths (standard deviation 3).

Every data set has worths of its own. Counted are all differences of two log-worths, and all centred log-worths.
`slope` is that of fitted on true log-worths; `stated slope` is the one that `standard_errors` states.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

import plmix_dist as plm
from benchmarks.common import save
from plmix_dist.errors import ShrunkenWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

N_ITEMS, LENGTH, SPREAD = 10, 3, 3.0
ALPHAS = (1.0, 0.1, 0.01)
Z = 1.959964


def run(tiny: bool = False) -> list[dict[str, Any]]:
    n_sets, n_replicates, sizes = (3, 20, (100,)) if tiny else (120, 200, (100, 300))
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShrunkenWarning)
        for n_rankings in sizes:
            for alpha in ALPHAS:
                held, slopes = defaultdict(list), []
                for number in range(n_sets):
                    for name, found, slope in _one(n_rankings, alpha, n_replicates, number):
                        held[name].append(found)
                        slopes.append(slope)
                row: dict[str, Any] = {"m": n_rankings, "alpha": alpha, "sets": n_sets}
                for name, found in held.items():
                    row[f"{name}, differences, %"] = 100 * float(np.mean([one[0] for one in found]))
                    row[f"{name}, log-worths, %"] = 100 * float(np.mean([one[1] for one in found]))
                row["slope"], row["stated slope"] = np.mean(slopes, axis=0).tolist()
                rows.append(row)
    return save("coverage", rows)


def _one(
    n_rankings: int, alpha: float, n_replicates: int, number: int
) -> Iterator[tuple[str, tuple[NDArray[np.bool_], NDArray[np.bool_]], tuple[float, float]]]:
    """For each kind of interval whether it holds differences and log-worths of one data set; slopes."""
    rng = np.random.default_rng([0, n_rankings, number])
    truth = rng.normal(0, SPREAD, N_ITEMS)
    truth -= truth.mean()
    rankings = np.argsort(-(truth + rng.gumbel(size=(n_rankings, N_ITEMS))), axis=1)[:, :LENGTH]
    model = plm.PlackettLuceMixture(1, alpha=alpha, unranked="below", random_state=0)
    model.fit(rankings, n_items=N_ITEMS, client=False)
    pairs = np.triu_indices(N_ITEMS, 1)
    wanted, fitted = (truth[:, None] - truth)[pairs], model.log_worths_[0]
    plain = model.standard_errors(rankings, client=False)
    slopes = float(np.polyfit(truth, fitted, 1)[0]), float(plain.slopes[0])
    sandwich = model.standard_errors(rankings, kind="sandwich", client=False)
    replicates = plm.bootstrap(model, rankings, n_replicates, random_state=number, client=False)
    bootstrap = replicates.standard_errors()
    for name, found, errors in (
        ("information", plain.differences(), plain.log_worths[0]),
        ("sandwich", sandwich.differences(), sandwich.log_worths[0]),
        ("bootstrap errors", replicates.differences(), bootstrap.log_worths[0]),
    ):
        of_pairs = np.abs(found.values[pairs] - wanted) <= Z * found.standard_errors[pairs]
        yield name, (of_pairs, np.abs(fitted - truth) <= Z * errors), slopes
    drawn = replicates.log_worths[:, 0]
    low, high = np.quantile((drawn[:, :, None] - drawn[:, None, :])[:, *pairs], [0.025, 0.975], axis=0)
    (lower,), (upper,) = replicates.intervals().log_worths
    held = (low <= wanted) & (wanted <= high), (lower <= truth) & (truth <= upper)
    yield "bootstrap percentiles", held, slopes
