"""Groups: pairwise votes of the users of a comparison arena, and panels of persons with 2 to 20 rankings.

A vote compares two models. Users differ in taste: each belongs to one of three components. One vote tells next to
nothing about its user, all votes of a user together do. `distance` is that of the fitted log-worths to the true ones,
components matched; `right` is the share of rows whose component is found.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import plmix_dist as pl
from benchmarks.common import save
from plmix_dist.metrics import match_components, matched_distance
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.simulate import draw_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARES = np.array([0.5, 0.3, 0.2])
_TIED, _DOUBLED = 0.1, 0.05


class Panel(NamedTuple):
    """Rankings with groups, and the truth about them: log-worths, and the component of each row."""

    block: RankingBlock
    log_worths: NDArray[np.float64]
    component: NDArray[np.int64]


def votes(n_users: int, votes_per_user: int, n_models: int = 20, seed: int = 0) -> Panel:
    """Votes on pairs of models; some are ties, some count twice. The number of votes differs between users."""
    rng = np.random.default_rng(seed)
    log_worths = rng.standard_normal((len(SHARES), n_models))
    user = np.repeat(np.arange(n_users), rng.geometric(1 / votes_per_user, n_users))
    component = rng.choice(len(SHARES), n_users, p=SHARES)[user]
    first = rng.integers(n_models, size=len(user))
    second = (first + rng.integers(1, n_models, size=len(user))) % n_models
    upset = log_worths[component, second] - log_worths[component, first]
    wins = rng.random(len(user)) < 1 / (1 + np.exp(upset))
    items = np.where(wins[:, None], np.stack([first, second], 1), np.stack([second, first], 1))
    tied = np.zeros(items.shape, bool)
    tied[:, 1] = rng.random(len(user)) < _TIED
    two = np.full(len(user), 2, np.uint8)
    block = RankingBlock(
        items=items.astype(np.uint8).ravel(),
        n_listed=two,
        n_ordered=two,
        below=np.zeros(len(user), bool),
        n_items=n_models,
        tied=tied.ravel(),
        weights=np.where(rng.random(len(user)) < _DOUBLED, 2.0, 1.0),
        groups=user,
    )
    return Panel(block, log_worths, component)


def panel(n_persons: int, n_each: int, n_items: int = 10, length: int = 3, seed: int = 0) -> Panel:
    """Persons who each rank their best few of all items several times."""
    rng = np.random.default_rng(seed)
    log_worths = 0.7 * rng.standard_normal((len(SHARES), n_items))
    component = np.repeat(rng.choice(len(SHARES), n_persons, p=SHARES), n_each)
    table = np.empty((len(component), length), np.int64)
    for k, own in enumerate(log_worths):
        rows = np.flatnonzero(component == k)
        block, _ = draw_rankings(own[None], np.ones(1), len(rows), rng)
        table[rows] = block.to_array()[:, :length]
    rankings = RankingBlock.from_array(table, n_items=n_items, unranked="below")
    return Panel(rankings.replace(groups=np.repeat(np.arange(n_persons), n_each)), log_worths, component)


def measure(name: str, given: Panel, *, groups: bool, max_iter: int = 500) -> dict[str, Any]:
    """Fit with or without groups."""
    block = given.block if groups else given.block.replace(groups=None)
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pairs of different people identify components badly
        model = pl.PlackettLuceMixture(len(SHARES), random_state=0, max_iter=max_iter).fit(block)
    seconds = time.perf_counter() - begun
    truth = given.log_worths - given.log_worths.mean(axis=1, keepdims=True)
    order = match_components(model.log_worths_, truth)
    return {
        "data": name,
        "rows": block.n_rankings,
        "persons": int(given.block.group_starts.sum()),
        "groups": groups,
        "seconds": seconds,
        "passes": model.n_iter_,
        "converged": model.converged_,
        "distance": matched_distance(truth, model.log_worths_),
        "right": float(np.mean(order[given.component] == model.predict(block))),
    }


def run(tiny: bool = False) -> list[dict[str, Any]]:
    n_users, n_persons = (300, 200) if tiny else (50_000, 2_000)
    given = votes(n_users, 20)
    most = 20 if tiny else 100
    rows = [measure("arena", given, groups=groups, max_iter=most) for groups in (True, False)]
    for n_each in (2,) if tiny else (2, 5, 10, 20):
        own = panel(n_persons, n_each)
        rows += [measure(f"panel, {n_each} each", own, groups=groups, max_iter=most) for groups in (True, False)]
    return save("arena", rows)
