"""Checks of fit: p-values under the model, power where something is missing, and seconds at a million rows."""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import kstest

import plmix_dist as plm
from benchmarks.common import in_fresh_process, save

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Items, places, components, rankings.
SETTINGS = ((5, 5, 1, 500), (5, 5, 2, 1_000), (6, 3, 1, 1_000), (6, 3, 2, 3_000))
WRONG = ("nothing", "a component", "an item effect")
N_NULL, N_WRONG = 100, 20


def truth(n_items: int, n_components: int) -> NDArray[np.float64]:
    """Log-worths (n_components, n_items) that the settings share; a second component likes what the first does not."""
    first, second = np.random.default_rng(n_items).normal(0, 1.0, (2, n_items))
    return np.array([first, second / 2 - first])[:n_components]


def orders(times: NDArray[np.float64], length: int) -> NDArray[np.int64]:
    """The first places of rankings whose items arrive after these times."""
    return np.argsort(times, axis=1)[:, :length]


def rankings(wrong: str, setting: tuple[int, int, int, int], rng: np.random.Generator) -> plm.RankingBlock:
    """Rankings of which something is missing in the mixture that is fitted."""
    n_items, length, n_components, n_rows = setting
    worths = truth(n_items, n_components)
    kind = rng.integers(n_components, size=n_rows)
    if wrong == "a component":  # 15 % of the rankings
        worths = np.vstack([worths, np.random.default_rng(99).normal(0, 2.0, n_items)])
        kind = np.where(rng.random(n_rows) < 0.15, n_components, kind)
    times = rng.exponential(size=(n_rows, n_items)) / np.exp(worths[kind])
    if wrong == "an item effect":  # who likes the first item puts it first; to others it is the least of all
        times[:, 0] *= np.where(rng.random(n_rows) < 0.5, 0.5, 2.0)
    unranked = None if length == n_items else "below"
    return plm.RankingBlock.from_array(orders(times, length), n_items=n_items, unranked=unranked)


def with_ties(wrong: str, n_rows: int, rng: np.random.Generator) -> plm.RankingBlock:
    """Rankings of 5 items, a third of whose neighbours are tied: at random, or those that arrive at similar times."""
    times = rng.exponential(size=(n_rows, 5)) / np.exp(truth(5, 1))
    found = np.argsort(times, axis=1)
    gaps = np.diff(np.log(np.sort(times, axis=1)), axis=1)
    tied = gaps < 0.3 if wrong == "a tie rule" else rng.random(gaps.shape) < 0.3
    first = np.ones((n_rows, 1), bool)
    block = plm.RankingBlock.from_array(found)
    return block.replace(tied=np.hstack([~first, tied]).ravel())


def p_values(block: plm.RankingBlock, n_components: int, seed: int, **settings: Any) -> list[float]:
    """Of a fit that begins at the truth."""
    start = truth(block.n_items, n_components)
    model = plm.PlackettLuceMixture(n_components, alpha=0.0, init=start, random_state=0, **settings).fit(block)
    return list(model.check_fit(block, random_state=seed).p_values.values())


def line(name: str, wrong: str, found: list[list[float]]) -> dict[str, Any]:
    """Means, how often p is below 0.05, and how uniform p-values are."""
    values = np.array(found)
    record: dict[str, Any] = {"items, places, components, rankings": name, "missing": wrong, "sets": len(values)}
    for what, column in zip(("first", "pairs"), values.T, strict=True):
        record[f"{what}_mean"] = float(column.mean())
        record[f"{what}_below_0.05"] = float((column < 0.05).mean())
        record[f"{what}_uniform"] = float(kstest(column, "uniform").pvalue)
    return record


def seconds_at(n_items: int, n_components: int, n_rows: int) -> dict[str, Any]:
    """CPU seconds of a check, and of one log-likelihood over the same rankings, from a store."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        plm.simulate(store, n_rankings=n_rows, n_items=n_items, n_components=n_components, random_state=1)
        model = plm.PlackettLuceMixture.load(f"{store}.truth")
        begun = time.process_time()
        model.score(str(store), client=False)
        scored = time.process_time()
        model.check_fit(str(store), client=False)
        checked = time.process_time()
    return {"n_items": n_items, "n_rows": n_rows, "score_cpu": scored - begun, "check_cpu": checked - scored}


def run(tiny: bool = False) -> list[dict[str, Any]]:
    """Two tables: p-values, and seconds."""
    sizes = {"nothing": 4, "": 2} if tiny else {"nothing": N_NULL, "": N_WRONG}
    records = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for setting in SETTINGS[:1] if tiny else SETTINGS:
            for wrong in WRONG:
                sets = [rankings(wrong, setting, np.random.default_rng(s)) for s in range(sizes.get(wrong, sizes[""]))]
                found = [p_values(block, setting[2], seed) for seed, block in enumerate(sets)]
                records.append(line(", ".join(map(str, setting)), wrong, found))
                print(records[-1], flush=True)
        for wrong in ("nothing", "a tie rule"):
            sets = [with_ties(wrong, 1_000, np.random.default_rng(s)) for s in range(sizes.get(wrong, sizes[""]))]
            found = [p_values(block, 1, seed, ties="marginal") for seed, block in enumerate(sets)]
            records.append(line("5, 5, 1, 1000, ties", wrong, found))
            print(records[-1], flush=True)
    save("check", records)
    seconds = []
    for n_items in (10, 30):
        found_seconds, peak = in_fresh_process(seconds_at, n_items, 3, 2_000 if tiny else 1_000_000)
        seconds.append(found_seconds | {"peak_mb": peak / 1e6})
    save("check_seconds", seconds)
    return records
