"""Conditional logits by their definition, in plain Python: rows with features, slates, best and worst."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from plmix_dist.rankings import Ranking, RankingBlock

Floats = NDArray[np.float64]


def log_choice(utilities: Sequence[float], chosen: int) -> float:
    """The log-probability that one of several is chosen."""
    return utilities[chosen] - math.log(math.fsum(math.exp(one) for one in utilities))


def row_log(utilities: Sequence[float], n_ordered: int) -> float:
    """The log-probability of an order of the first entries of a row, from the utilities of all its entries."""
    left = list(utilities)
    found = 0.0
    for _ in range(min(n_ordered, len(utilities) - 1)):
        found += log_choice(left, 0)
        del left[0]
    return found


def log_likelihood(block: RankingBlock, design: Floats, coefficients: Floats, share_coefficients: Floats) -> float:
    """Of all persons of a block whose rows list everything on offer."""
    weights = block.row_weights
    persons: dict[object, list[int]] = {}
    for row in range(block.n_rankings):
        persons.setdefault(row if block.groups is None else block.groups[row].item(), []).append(row)
    total = 0.0
    for rows in persons.values():
        logits = share_coefficients[:, 0].copy()
        if block.covariates is not None:
            logits += share_coefficients[:, 1:] @ block.covariates[rows[0]]
        shares = np.exp(logits) / np.exp(logits).sum()
        joint = []
        for share, own in zip(shares.tolist(), coefficients, strict=True):
            logs = 0.0
            for row in rows:
                entries = range(int(block.offsets[row]), int(block.offsets[row + 1]))
                utilities = [columns_of(block, design, entry) @ own for entry in entries]
                logs += (float(weights[row]) if block.groups is not None else 1.0) * row_log(
                    utilities, int(block.n_ordered[row])
                )
            joint.append(share * math.exp(logs))
        total += (1.0 if block.groups is not None else float(weights[rows[0]])) * math.log(math.fsum(joint))
    return total


def columns_of(block: RankingBlock, design: Floats, entry: int) -> Floats:
    """The columns of an entry: those of its alternative, then its features."""
    own = design[int(block.items[entry])]
    return own if block.features is None else np.concatenate([own, block.features[entry].astype(np.float64)])


def slate_log(row: Ranking, slate_of: Sequence[int], worths: Floats, cohesion: Floats) -> float:
    """The log-probability of a ballot: at each place a slate that has items left, then an item of it."""
    listed = [place[0] for place in row.ordered]
    left = set(listed) | set(row.offered)
    if row.unranked == "below":
        left |= set(range(len(slate_of)))
    found = 0.0
    for item in listed:
        slates = {slate_of[one] for one in left}
        found += math.log(cohesion[slate_of[item]] / math.fsum(cohesion[slate] for slate in slates))
        own = [one for one in left if slate_of[one] == slate_of[item]]
        found += math.log(worths[item] / math.fsum(worths[one] for one in own))
        left.remove(item)
    return found


def best_worst(offered: Sequence[int], worths: Mapping[int, float], model: str) -> dict[tuple[int, int], float]:
    """The probability of each pair of best and worst."""
    found = {}
    for best in offered:
        others = [item for item in offered if item != best]
        for worst in others:
            if model == "maxdiff":
                found[best, worst] = worths[best] / worths[worst]
            else:
                first = worths[best] / math.fsum(worths[item] for item in offered)
                found[best, worst] = first / worths[worst] / math.fsum(1 / worths[item] for item in others)
    total = math.fsum(found.values())
    return {pair: chance / total for pair, chance in found.items()}
