"""How the choice of K by BIC hangs on the strength of the prior, and whether the selection says so.

Rankings of one component and a few that turn it round; and, where they are there, some rankings of the German sample.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import plmix_dist as plm
from benchmarks.common import save
from plmix_dist.errors import PriorDecidesWarning

GERMAN = Path(__file__).parents[2] / "shared" / "data" / "german" / "german.csv"
ALPHAS = (0.1, 0.5, 1.0, 2.0, 3.0)


def _data() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(0)
    usual = np.argsort(-np.linspace(1, -1, 6) - rng.gumbel(size=(60, 6)), axis=1)
    yield "60 and 3 turned round", np.concatenate([usual, [[5, 4, 3, 2, 1, 0]] * 3])
    if not GERMAN.exists():
        return
    with GERMAN.open() as lines:
        counted = [
            (int(row["count"]), [int(item) - 1 for item in row["ordering"].split()]) for row in csv.DictReader(lines)
        ]
    everyone = np.repeat([order for _, order in counted], [count for count, _ in counted], axis=0)
    for size in (60, len(everyone)):
        yield f"German, {size:,}", everyone[np.random.default_rng(0).permutation(len(everyone))[:size]]


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for name, rankings in list(_data())[: 1 if tiny else None]:
        for alpha in ALPHAS[:1] if tiny else ALPHAS:
            fits = plm.PlackettLuceMixture(alpha=alpha)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = plm.MixtureSelection((1, 2, 3), estimator=fits, random_state=0).fit(rankings, client=False)
            row: dict[str, Any] = {"data": name, "alpha": alpha}
            for column in ("bic", "bic_without_prior"):
                values = [one[column] for one in found.table_]
                row |= {f"{column}, {k} less 1": round(values[k - 1] - values[0], 1) for k in (2, 3)}
            warned = any(issubclass(one.category, PriorDecidesWarning) for one in caught)
            rows.append(row | {"chosen": found.n_components_, "warned": warned})
    return save("choice_and_prior", rows)
