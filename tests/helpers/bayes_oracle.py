"""The posterior of a small mixture by its definition: all orders enumerated, grids, and a Metropolis sampler.

A row is an event: the set of all full orders that agree with it. Its probability is the sum over these orders, which
covers top-k rows, slates and ties alike, and shares nothing with the kernels.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.rankings import Ranking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Table = NDArray[np.float64]


def agrees(order: Sequence[int], row: Ranking) -> bool:
    """Whether a full order is one of those that a row may stand for."""
    listed = {item for place in row.ordered for item in place} | set(row.offered)
    seen = [item for item in order if row.unranked == "below" or item in listed]
    for place in row.ordered:
        if set(seen[: len(place)]) != set(place):
            return False
        seen = seen[len(place) :]
    return True


def row_logs(rows: Sequence[Ranking], log_worths: Table) -> Table:
    """(n_rows, ...): log Pr(row), by enumeration, for log-worths (..., n_items)."""
    n_items = log_worths.shape[-1]
    worths = np.exp(log_worths - log_worths.max(axis=-1, keepdims=True))
    orders = np.array(list(itertools.permutations(range(n_items))))
    chances = np.ones((len(orders), *worths.shape[:-1]))
    left = np.zeros_like(chances)
    for place in reversed(range(n_items)):
        won = np.moveaxis(worths, -1, 0)[orders[:, place]]
        left += won
        chances *= won / left
    found = _agreements(tuple(rows), n_items) @ chances.reshape(len(orders), -1)
    return np.log(found).reshape(len(rows), *worths.shape[:-1])


@lru_cache
def _agreements(rows: tuple[Ranking, ...], n_items: int) -> Table:
    """(n_rows, n_orders): 1 for each order that agrees with a row."""
    orders = list(itertools.permutations(range(n_items)))
    return np.array([[float(agrees(order, row)) for order in orders] for row in rows])


def log_likelihood(rows: Sequence[Ranking], groups: Sequence[int], log_worths: Table, log_shares: Table) -> Table:
    """(...): of persons who gave rows, for log-worths (..., K, n) and log-shares (..., K).

    A person is a group; a row of weight w is one that the person gave w times.
    """
    logs = row_logs(rows, log_worths)
    persons = np.array(
        [
            [row.weight * (group == person) for row, group in zip(rows, groups, strict=True)]
            for person in sorted(set(groups))
        ]
    )
    own = (persons @ logs.reshape(len(rows), -1)).reshape(len(persons), *logs.shape[1:])
    return np.logaddexp.reduce(own + log_shares, axis=-1).sum(axis=0)


def log_prior(log_worths: Table, log_shares: Table, shape: float, concentration: float) -> Table:
    """(...): the log-density of centred log-worths and of the logarithms of shares, up to a constant.

    Normalised gamma numbers are Dirichlet; in log-worths its density is the product of worths ** shape.
    """
    logs = log_worths - np.logaddexp.reduce(log_worths, axis=-1)[..., None]
    return shape * logs.sum(axis=(-1, -2)) + concentration * log_shares.sum(axis=-1)


def metropolis(
    rows: Sequence[Ranking],
    groups: Sequence[int],
    start: tuple[Table, Table],
    n_steps: int,
    rng: np.random.Generator,
    *,
    shape: float,
    step: float,
) -> tuple[Table, Table]:
    """Random walks side by side: log-worths (n_steps, n_walks, K, n), centred, and log-shares (n_steps, n_walks, K).

    Proposals move one component at a time, or the logits of the shares.
    """
    log_worths, log_shares = (part.copy() for part in start)
    n_components = log_shares.shape[1]

    def density(worths: Table, shares: Table) -> Table:
        return log_likelihood(rows, groups, worths, shares) + log_prior(worths, shares, shape, 1.0)

    here = density(log_worths, log_shares)
    kept: tuple[list[Table], list[Table]] = ([], [])
    for number in range(n_steps):
        worths, shares = log_worths.copy(), log_shares.copy()
        moved = number % (n_components + 1)
        if moved == n_components:
            shares = shares + 2 * step * rng.normal(size=shares.shape)
            shares -= np.logaddexp.reduce(shares, axis=1)[:, None]
        else:
            worths[:, moved] += step * rng.normal(size=worths[:, moved].shape)
            worths[:, moved] -= worths[:, moved].mean(axis=1)[:, None]
        there = density(worths, shares)
        taken = np.log(rng.random(len(here))) < there - here
        log_worths[taken], log_shares[taken], here[taken] = worths[taken], shares[taken], there[taken]
        kept[0].append(log_worths.copy())
        kept[1].append(log_shares.copy())
    return np.array(kept[0]), np.array(kept[1])


def drawn_rows(
    log_worths: Table, log_shares: Table, kinds: Sequence[str], persons: Sequence[int], rng: np.random.Generator
) -> list[Ranking]:
    """One row of each kind, drawn from a mixture; rows of a person come from one component."""
    n_items = log_worths.shape[1]
    component = {person: rng.choice(len(log_shares), p=np.exp(log_shares)) for person in sorted(set(persons))}
    rows = []
    for kind, person in zip(kinds, persons, strict=True):
        arrivals = rng.exponential(size=n_items) / np.exp(log_worths[component[person]])
        order = np.argsort(arrivals).tolist()
        if kind == "full":
            row = Ranking(tuple((item,) for item in order), (), "absent", 1.0)
        elif kind == "top-2":
            row = Ranking(((order[0],), (order[1],)), (), "below", 1.0)
        elif kind == "slate":  # of all items but the last
            offered = [item for item in order if item != n_items - 1]
            row = Ranking(((offered[0],),), tuple(sorted(offered[1:])), "absent", 1.0)
        else:  # the first two are tied
            tied = (tuple(sorted(order[:2])), *((item,) for item in order[2:]))
            row = Ranking(tied, (), "absent", 1.0)
        rows.append(row)
    return rows
