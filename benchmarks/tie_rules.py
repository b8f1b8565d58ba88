"""Which rule for ties predicts best: held-out log-loss of all outcomes, ties among them, side by side."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.common import save
from plmix_dist import PlackettLuceMixture
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import NoInformationWarning, SettingsError
from plmix_dist.kernels import memberships_at, prepare
from plmix_dist.kernels.tied_choices import tie_statistics
from plmix_dist.prediction.choices import table_of
from plmix_dist.rankings import Ranking, RankingBlock, Unranked
from plmix_dist.rankings.block import concatenate
from plmix_dist.rankings.sampling import Division, RowPart, rows_of_part
from plmix_dist.rankings.ties import TIES
from plmix_dist.settings import seed_of, whole_number
from plmix_dist.solvers.davidson import outcomes
from plmix_dist.store.mixture import Floats, MixtureParams

_SETTLED = 1e-9


def compare(
    given: Any,
    n_components: int = 1,
    *,
    rules: Sequence[str] = ("davidson", "half", "expand"),
    n_folds: int = 5,
    random_state: Any = 0,
    unranked: Unranked | None = None,
    table: str = "auto",
    **settings: Any,
) -> Any:
    """Fit with several rules for ties, and predict wins, ties and losses of rankings that were held out.

    Only Davidson's model has probabilities of ties. To the worths of any other rule the weights of ties are added that
    suit them best on the rankings of the fit, so all rules predict the same outcomes. Folds keep persons whole.

    Parameters
    ----------
    given, unranked
        As in `PlackettLuceMixture.fit`; all rows are held in memory.
    rules
        Values of `ties`; "expand" drops ties of everything on offer, as drawn battles are.
    **settings
        Of `PlackettLuceMixture`; `table` as in `worths_frame`.

    Returns
    -------
    table
        One row per rule, best first: `log_loss` of a ranking, `difference` to the best and its `standard_error`.
    """
    whole_number("n_folds", n_folds, at_least=2)
    order = max(2, *(TIES[rule].order for rule in rules))
    rankings, seed = (
        as_rankings(given, unranked=unranked, ties=f"davidson-{order}" if order > 2 else "davidson"),
        seed_of(random_state),
    )
    division, leaves = Division("folds", (1 / n_folds,) * n_folds, seed), list(rankings.iter_leaves())
    losses: list[list[Floats]] = [[] for _ in rules]
    weight = 0.0
    for fold in range(n_folds):
        others = tuple(number for number in range(n_folds) if number != fold)
        rows, held_out = (
            concatenate([rows_of_part(RowPart(division, part), leaf, block) for leaf, block in enumerate(leaves)])
            for part in (others, (fold,))
        )
        if not (rows.n_rankings and held_out.n_rankings):
            raise SettingsError(f"there are too few rankings for {n_folds} folds; choose fewer")
        weight += float(held_out.row_weights.sum())
        for rule, own in zip(rules, losses, strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NoInformationWarning)  # that is what is compared
                model = PlackettLuceMixture(n_components, ties=rule, random_state=seed, **settings).fit(rows)
            mixture = _with_ties(model._mixture(), rows, order)
            at = memberships_at(held_out, prepare(mixture.log_worths, mixture.log_shares, mixture.log_ties))
            own.append(-at.log_likelihoods * at.weights)
    every = np.array([np.concatenate(own) for own in losses])
    means = every.sum(axis=1) / weight
    best = int(np.argmin(means))
    spread = np.sqrt(((every - every[best] - (every - every[best]).mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
    columns = {"ties": np.array(rules, object), "log_loss": means, "difference": means - means[best]}
    ranked = np.argsort(means, kind="stable")
    columns["standard_error"] = spread / weight
    return table_of({name: values[ranked] for name, values in columns.items()}, table)


def _with_ties(mixture: MixtureParams, rows: RankingBlock, order: int) -> MixtureParams:
    """The mixture with the weights of ties that suit its worths best; they are one for all components."""
    if mixture.tie_parameters is not None:
        return mixture
    log_ties, moved = np.full((1, order - 1), -1.0), np.ones(1)
    while np.abs(moved).max() > _SETTLED:
        sums = tie_statistics(rows, prepare(mixture.log_worths, mixture.log_shares, log_ties))
        seen, expected = sums.ties.sum(axis=0), sums.expected_ties.sum(axis=0)
        moved = np.where(seen > 0, np.log(np.maximum(seen, 1e-300)) - np.log(expected), 0.0)
        log_ties = np.where(seen > 0, log_ties + moved, -np.inf)
    return replace(mixture, tie_parameters=np.repeat(np.exp(log_ties), mixture.n_components, axis=0))


def _battles(kind: str, n_battles: int) -> RankingBlock:
    """Battles of 8 items: drawn from Davidson's model, or with small differences of utilities rounded to ties."""
    rng = np.random.default_rng(2026)
    worths = np.linspace(1.2, -1.2, 8)
    left = rng.integers(0, 8, n_battles)
    right = (left + rng.integers(1, 8, n_battles)) % 8
    if kind == "davidson":
        win, tie, _ = outcomes(worths[left] - worths[right], np.log(0.7))
        drawn = rng.random(n_battles)
        result = np.select([drawn < win, drawn < win + tie], [0, 1], 2)
    else:
        gap = worths[left] - worths[right] + rng.logistic(size=n_battles)
        result = np.where(np.abs(gap) < 0.8, 1, np.where(gap > 0, 0, 2))
    rows = [
        Ranking([((a,), (b,)), ((a, b),), ((b,), (a,))][one], (), "absent", 1.0)
        for a, b, one in zip(left.tolist(), right.tolist(), result.tolist(), strict=True)
    ]
    return RankingBlock.from_rows(rows, n_items=8)


def run(tiny: bool = False) -> list[dict[str, Any]]:
    """Print and save one record per kind of battles and rule."""
    records = []
    for kind in ("davidson", "rounded"):
        found = compare(_battles(kind, 300 if tiny else 5_000), table="dict")
        for rule, loss, difference, error in zip(*found.values(), strict=True):
            record = {"battles": kind, "ties": rule, "log_loss": loss, "difference": difference, "error": error}
            print("  ".join(f"{name} {value}" for name, value in record.items()), flush=True)
            records.append(record)
    return save("tie_rules", records)
