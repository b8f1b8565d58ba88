"""Who chooses at random: AUC of the evidence of noise, for votes on pairs with random and one-sided persons."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import plmix_dist as pl
from benchmarks.common import save

# Components, standard deviation of log-worths, votes per person.
CASES = ((1, 1.0, 25), (1, 1.0, 50), (1, 1.5, 25), (1, 2.0, 25), (2, 1.0, 25), (2, 1.5, 25))
N_ITEMS = 20


def votes(
    seed: int, n_components: int, spread: float, n_votes: int, n_persons: int, promoted: str = ""
) -> tuple[Any, Any, Any, Any]:
    """A block of votes, whether the left item won (n_votes,), the kind of each person, and the true log-worths.

    With `promoted`, people of kind 2 vote for item 0 wherever it stands, and else at "random" or as they "mean" it.
    """
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n_components, N_ITEMS)) * spread
    truth -= truth.mean(axis=1, keepdims=True)
    own = truth[rng.integers(0, n_components, n_persons)]
    kind, chosen = np.zeros(n_persons, int), rng.permutation(n_persons)[: n_persons // 25]
    kind[chosen[: len(chosen) // 2]], kind[chosen[len(chosen) // 2 :]] = 1, 2  # random; always left
    left = rng.integers(0, N_ITEMS, (n_persons, n_votes))
    right = (left + rng.integers(1, N_ITEMS, left.shape)) % N_ITEMS
    gap = np.take_along_axis(own, left, 1) - np.take_along_axis(own, right, 1)
    won = rng.random(left.shape) < 1 / (1 + np.exp(-gap))
    won[kind == 1] = rng.integers(0, 2, won[kind == 1].shape)
    won[kind == 2] = True
    if promoted:
        else_won = rng.random(left.shape) < (0.5 if promoted == "random" else 1 / (1 + np.exp(-gap)))
        won[kind == 2] = np.where(left == 0, True, np.where(right == 0, False, else_won))[kind == 2]
    rows = np.stack([np.where(won, left, right), np.where(won, right, left)], axis=2).reshape(-1, 2)
    block = pl.RankingBlock.from_array(rows, n_items=N_ITEMS, unranked="absent")
    return block.replace(groups=np.repeat(np.arange(n_persons), n_votes)), won.ravel(), kind, truth


def auc(evidence: Any, kind: Any, one: int) -> float:
    """The chance that a person of this kind has more evidence than one of kind 0."""
    mine, others = evidence[kind == one], evidence[kind == 0]
    return float((mine[:, None] > others).mean() + 0.5 * (mine[:, None] == others).mean())


def run(tiny: bool = False) -> list[dict[str, Any]]:
    """Print and save one record per case."""
    records = []
    for n_components, spread, n_votes in CASES[:1] if tiny else CASES:
        found = []
        for seed in range(1 if tiny else 3):
            block, left, kind, truth = votes(seed, n_components, spread, n_votes, 200 if tiny else 2_000)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                plain, model = (
                    pl.PlackettLuceMixture(n_components, alpha=0.1, noise=noise, random_state=0).fit(block)
                    for noise in (False, True)
                )
            evidence = model.evidence_of_noise(block)
            sides = pl.metrics.one_sidedness(left.astype(float), block.groups)
            errors = [
                pl.metrics.matched_distance(each[:n_components], truth) / np.sqrt(truth.size)
                for each in (model.log_worths_, plain.log_worths_)
            ]
            found.append(
                [auc(evidence, kind, 1), auc(evidence, kind, 2), auc(sides, kind, 2), model.shares_[-1], *errors]
            )
        names = ("auc_random", "auc_one_sided", "auc_by_sides", "noise_share", "error", "error_without")
        record = {"n_components": n_components, "spread": spread, "n_votes": n_votes}
        record |= dict(zip(names, np.mean(found, axis=0).tolist(), strict=True))
        print("  ".join(f"{name} {value:.4g}" for name, value in record.items()), flush=True)
        records.append(record)
    return save("noise", records)
