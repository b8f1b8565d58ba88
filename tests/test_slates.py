"""Slates: choices from what was on offer, as latent-class logit models have them, against an independent optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from plmix_dist import PlackettLuceMixture
from plmix_dist.rankings import Ranking, RankingBlock

N_ITEMS, ALPHA = 6, 0.5


def drawn(
    seed: int, n_persons: int, n_choices: int, n_ordered: int
) -> tuple[RankingBlock, list[list[Ranking]]]:
    """Persons of two kinds who each order the first items of several slates of four."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.5, (2, N_ITEMS))
    persons = []
    for _ in range(n_persons):
        utilities = truth[rng.integers(2)]
        rows = []
        for _ in range(n_choices):
            offered = rng.permutation(N_ITEMS)[:4]
            order = offered[np.argsort(-(utilities[offered] + rng.gumbel(size=4)))].tolist()
            rows.append(
                Ranking(tuple((item,) for item in order[:n_ordered]), tuple(order[n_ordered:]), "absent", 1.0)
            )
        persons.append(rows)
    block = RankingBlock.from_rows([row for rows in persons for row in rows], n_items=N_ITEMS)
    return block.replace(groups=np.repeat(np.arange(n_persons), n_choices)), persons


def objective(flat: np.ndarray, persons: list[list[Ranking]]) -> float:
    """Log-likelihood of all persons plus log-prior, from the definitions: log-worths, ghosts, then logits of shares."""
    log_worths = flat[: 2 * N_ITEMS].reshape(2, N_ITEMS)
    ghosts, logits = flat[2 * N_ITEMS : -2], flat[-2:]
    log_shares = logits - logsumexp(logits)
    total = 0.0
    for rows in persons:
        joint = log_shares.copy()
        for row in rows:
            left = [item for place in row.ordered for item in place] + list(row.offered)
            for (item,) in row.ordered:
                if len(left) > 1:
                    joint += log_worths[:, item] - logsumexp(log_worths[:, left], axis=1)
                left.remove(item)
        total += logsumexp(joint)
    difference = log_worths - ghosts[:, None]
    return float(total - ALPHA * (np.logaddexp(0, difference) + np.logaddexp(0, -difference)).sum())


@pytest.mark.parametrize(
    ("n_choices", "n_ordered"), [(1, 2), (4, 1), (3, 2)], ids=["top 2", "choices", "top 2s"]
)
def test_slates__an_independent_optimiser_gains_nothing(n_choices: int, n_ordered: int) -> None:
    block, persons = drawn(n_choices, 60, n_choices, n_ordered)
    if n_choices == 1:
        block = block.replace(groups=None)
    model = PlackettLuceMixture(2, alpha=ALPHA, random_state=0).fit(block)
    ours = np.concatenate([model.log_worths_.ravel(), model._ghosts, np.log(model.shares_)])
    assert objective(ours, persons) == pytest.approx(model.objective_, abs=1e-8)
    best = minimize(lambda flat: -objective(flat, persons), ours, method="BFGS", options={"maxiter": 30})
    assert -best.fun - model.objective_ < 1e-6 * len(persons)
