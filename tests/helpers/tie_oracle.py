"""Ties as outcomes of choices, by enumeration of all sets that may be chosen: plain Python, for small n."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from plmix_dist.rankings import Ranking, RankingBlock

Floats = NDArray[np.float64]


def chances(offered: Sequence[int], log_worths: Floats, log_ties: Floats) -> dict[tuple[int, ...], float]:
    """The probability of each set that may be chosen from what is on offer."""
    order = len(log_ties) + 1
    weights = {}
    for size in range(1, min(order, len(offered)) + 1):
        for chosen in itertools.combinations(sorted(offered), size):
            log_tie = 0.0 if size == 1 else float(log_ties[size - 2])
            weights[chosen] = math.exp(log_tie + sum(float(log_worths[item]) for item in chosen) / size)
    total = math.fsum(weights.values())
    return {chosen: weight / total for chosen, weight in weights.items()}


def choices(row: Ranking, n_items: int) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """What was chosen at each choice of a row, and what was on offer; one item alone is not a choice."""
    listed = [item for place in row.ordered for item in place] + list(row.offered)
    left = set(listed) | (set(range(n_items)) if row.unranked == "below" else set())
    for place in row.ordered:
        if len(left) > 1:
            yield tuple(sorted(place)), sorted(left)
        left -= set(place)


def row_log(row: Ranking, log_worths: Floats, log_ties: Floats) -> float:
    """The log-probability of a row under one component."""
    n_items = len(log_worths)
    return math.fsum(
        math.log(chances(offered, log_worths, log_ties)[chosen]) for chosen, offered in choices(row, n_items)
    )


def expected(row: Ranking, log_worths: Floats, log_ties: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Wins, expected wins, ties and expected ties of a row under one component."""
    wins, expected_wins = np.zeros((2, len(log_worths)))
    ties, expected_ties = np.zeros((2, len(log_ties)))
    for chosen, offered in choices(row, len(log_worths)):
        wins[list(chosen)] += 1 / len(chosen)
        if len(chosen) > 1:
            ties[len(chosen) - 2] += 1
        for other, chance in chances(offered, log_worths, log_ties).items():
            expected_wins[list(other)] += chance / len(other)
            if len(other) > 1:
                expected_ties[len(other) - 2] += chance
    return wins, expected_wins, ties, expected_ties


def drawn_rows(rng: np.random.Generator, n_rows: int, n_items: int, order: int, kind: str) -> RankingBlock:
    """Rows of every kind with ties of at most `order` items: of some items, or with unlisted ones below."""
    rows = []
    for _ in range(n_rows):
        items = rng.permutation(n_items)[: rng.integers(2, n_items + 1)].tolist()
        places, n_ordered = [], int(rng.integers(1, len(items) + 1))
        begin = 0
        while begin < n_ordered:
            size = min(int(rng.integers(1, order + 1)), n_ordered - begin)
            places.append(tuple(items[begin : begin + size]))
            begin += size
        rows.append(Ranking(tuple(places), tuple(items[n_ordered:]), kind, float(rng.integers(1, 4))))
    return RankingBlock.from_rows(rows, n_items=n_items)


def log_likelihood(block: RankingBlock, log_worths: Floats, shares: Floats, log_ties: Floats) -> float:
    """The log-likelihood of a block, with persons where it has groups; `log_ties` is (n_components, n_orders - 1)."""
    logs = np.array(
        [
            [row_log(block.row(row), own, ties) for own, ties in zip(log_worths, log_ties, strict=True)]
            for row in range(block.n_rankings)
        ]
    )
    if block.groups is None:
        return float(block.row_weights @ np.logaddexp.reduce(logs + np.log(shares), axis=1))
    person = np.cumsum(block.group_starts) - 1
    total = np.zeros((person[-1] + 1, len(shares)))
    np.add.at(total, person, block.row_weights[:, None] * logs)
    return float(np.logaddexp.reduce(total + np.log(shares), axis=1).sum())
