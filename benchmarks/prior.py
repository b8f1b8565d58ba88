"""Which strength of the prior predicts best: held-out log-likelihood per ranking over alpha and K.

Small, short and partial simulated data with worths of different spreads, and halves or small samples of elections where
they are there. `held_out` is measured on rankings that the fit has not seen.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import plmix_dist as pl
from benchmarks.common import save
from plmix_dist.rankings.simulate import draw_rankings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.rankings import RankingBlock

DATA = Path(__file__).parents[2] / "shared" / "data"
ALPHAS: tuple[Any, ...] = (0.01, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0)
COMPONENTS = (1, 2, 3, 5)
TRUE_COMPONENTS = 3
HELD_OUT = 5_000


class Case(NamedTuple):
    """Rankings to fit: simulated, or drawn from one half of an election."""

    name: str
    n_rankings: int
    n_items: int = 20
    length: int | None = 5
    unranked: Any = "below"
    spread: float = 1.0
    source: str | None = None


SIMULATED = (
    *(Case("top 5 of 20", m) for m in (50, 100, 300, 1_000, 5_000)),
    *(Case("top 5 of 20, wide", m, spread=2.0) for m in (50, 100, 300, 1_000)),
    *(Case("top 5 of 20, very wide", m, spread=4.0) for m in (50, 300)),
    *(Case("5 of 50", m, n_items=50, unranked="absent") for m in (100, 1_000)),
    *(Case("5 of 50, wide", m, n_items=50, unranked="absent", spread=2.0) for m in (100, 1_000)),
    *(Case("10 items", m, n_items=10, length=None, unranked=None) for m in (50, 300)),
    *(Case("10 items, close", m, n_items=10, length=None, unranked=None, spread=0.5) for m in (50, 300)),
    *(Case("10 items, wide", m, n_items=10, length=None, unranked=None, spread=2.0) for m in (50, 300)),
)
ELECTIONS = {
    "Dublin West": "irish/00001-00000002.soi",
    "Meath": "irish/00001-00000003.soi",
    "APA 1998": "apa1998/00028-00000001.soi",
    "NSW 159": "nswla/00058-00000159.soi",
}
ELECTION_SIZES = (50, 300, 2_000)


def cases(tiny: bool = False) -> Iterator[Case]:
    """All cases."""
    if tiny:
        yield SIMULATED[0]
        return
    yield from SIMULATED
    for name, source in ELECTIONS.items() if DATA.exists() else ():
        for n_rankings in ELECTION_SIZES:
            yield Case(name, n_rankings, source=source)


def data_of(case: Case, seed: int) -> tuple[RankingBlock, RankingBlock]:
    """Rankings to fit, and rankings held out."""
    rng = np.random.default_rng([seed, case.n_rankings])
    if case.source is None:
        truth = rng.normal(0, case.spread, (TRUE_COMPONENTS, case.n_items))
        shares = rng.dirichlet(np.full(TRUE_COMPONENTS, 5.0))
        drawn = [
            draw_rankings(truth, shares, size, rng, length=case.length, unranked=case.unranked)[0]
            for size in (case.n_rankings, HELD_OUT)
        ]
        return drawn[0], drawn[1]
    with tempfile.TemporaryDirectory() as folder:
        block = pl.ingest(DATA / case.source, Path(folder) / "s").block().replace(ids=None)
    copies = np.repeat(np.arange(block.n_rankings), block.row_weights.astype(np.int64))
    order = rng.permutation(copies)
    half = len(order) // 2
    one, other = (block.replace(weights=None).take(rows) for rows in (order[: case.n_rankings], order[half:]))
    return one, other


def run(tiny: bool = False, seeds: tuple[int, ...] = (0, 1, 2)) -> list[dict[str, Any]]:
    rows = []
    for case in cases(tiny):
        for n_components in (2,) if tiny else COMPONENTS:
            scores = [
                [held_out(data, n_components, alpha) for alpha in ALPHAS]
                for data in (data_of(case, seed) for seed in ((0,) if tiny else seeds))
            ]
            mean = np.mean(scores, axis=0)
            row: dict[str, Any] = {"data": case.name, "m": case.n_rankings, "K": n_components}
            row |= {f"alpha={alpha}": value for alpha, value in zip(ALPHAS, mean.tolist(), strict=True)}
            rows.append(row)
    return save("prior", rows)


def held_out(data: tuple[RankingBlock, RankingBlock], n_components: int, alpha: Any) -> float:
    """Log-likelihood per ranking of the rankings held out."""
    train, test = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = pl.PlackettLuceMixture(n_components, alpha=alpha, random_state=0, tol=1e-5).fit(train)
    return model.score(test)
