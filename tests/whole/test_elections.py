"""Elections as exact top-k rankings: an independent optimiser that starts at our end gains next to nothing."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

import plmix_dist as pl
from plmix_dist.rankings.groups import merge_equal_rows

DATA = Path(__file__).parents[3] / "shared" / "data"
ELECTIONS = {
    "west": "irish/00001-00000002.soi",
    "north": "irish/00001-00000001.soi",
    "meath": "irish/00001-00000003.soi",
    "apa 1998": "apa1998/00028-00000001.soi",
    "apa 1980": "apa1980/apa1980.csv",
    "nsw 1": "nswla/00058-00000001.soi",
    "nsw 50": "nswla/00058-00000050.soi",
    "nsw 120": "nswla/00058-00000120.soi",
    "nsw 159": "nswla/00058-00000159.soi",
}
OWN = Path(__file__).parents[1] / "data" / "made_election.soi"
QUICK = [("own", 2), ("apa 1980", 2), ("nsw 1", 3)]
ALPHA = 1.0


class Ballots(NamedTuple):
    """Distinct top-k rankings as a padded table; `listed` says which places are filled."""

    items: np.ndarray
    listed: np.ndarray
    weights: np.ndarray
    n_items: int


def ballots(name: str, tmp_path: Path) -> Ballots:
    source = OWN if name == "own" else DATA / ELECTIONS[name]
    if not source.exists():
        pytest.skip("the elections are not beside the repository")
    store = pl.ingest(source, tmp_path / "store", unranked="below")
    block = merge_equal_rows(store.block().replace(ids=None))
    lengths = block.n_ordered.astype(int)
    listed = np.arange(lengths.max()) < lengths[:, None]
    items = np.zeros(listed.shape, int)
    items[listed] = block.items
    return Ballots(items, listed, block.row_weights, block.n_items)


def objective_and_gradient(flat: np.ndarray, given: Ballots, n_components: int) -> tuple[float, np.ndarray]:
    """Log-likelihood plus log-prior per ballot from the definitions, and its gradient; parameters as in `packed`."""
    n = given.n_items
    log_worths = flat[: n_components * n].reshape(n_components, n)
    ghosts, logits = flat[n_components * n : -n_components], flat[-n_components:]
    log_shares = logits - logsumexp(logits)
    total = given.weights.sum()
    logs, inverses = np.empty((len(given.items), n_components)), []
    for k in range(n_components):
        worths = np.exp(log_worths[k])
        taken = np.where(given.listed, worths[given.items], 0.0)
        left = worths.sum() - np.cumsum(taken, axis=1) + taken
        inverse = np.where(given.listed, 1 / left, 0.0)
        inverses.append(inverse)
        logs[:, k] = np.where(given.listed, log_worths[k][given.items] - np.log(left), 0.0).sum(axis=1)
    joint = logs + log_shares
    log_rows = logsumexp(joint, axis=1)
    posteriors = np.exp(joint - log_rows[:, None]) * given.weights[:, None]
    value, gradient = float(given.weights @ log_rows), np.zeros_like(flat)
    of_worths = gradient[: n_components * n].reshape(n_components, n)
    of_ghosts = gradient[n_components * n : -n_components]
    for k in range(n_components):
        offers = np.cumsum(inverses[k], axis=1)
        last = offers[:, -1]
        wins, expected = np.zeros(n), np.full(n, posteriors[:, k] @ last)
        own = np.where(given.listed, posteriors[:, [k]], 0.0)
        np.add.at(wins, given.items[given.listed], own[given.listed])
        after = (own * (last[:, None] - offers))[given.listed]
        np.add.at(expected, given.items[given.listed], -after)
        of_worths[k] = wins - expected * np.exp(log_worths[k])
        difference = log_worths[k] - ghosts[k]
        value -= ALPHA * float((np.logaddexp(0, difference) + np.logaddexp(0, -difference)).sum())
        pull = ALPHA * np.tanh(difference / 2)
        of_worths[k] -= pull
        of_ghosts[k] = pull.sum()
    gradient[-n_components:] = posteriors.sum(axis=0) - total * np.exp(log_shares)
    return value / total, gradient / total


def packed(model: pl.PlackettLuceMixture) -> np.ndarray:
    return np.concatenate([model.log_worths_.ravel(), model._ghosts, np.log(model.shares_)])


def check(name: str, n_components: int, tmp_path: Path) -> None:
    given = ballots(name, tmp_path)
    model = pl.PlackettLuceMixture(n_components, alpha=ALPHA, random_state=0).fit(tmp_path / "store")
    n_left = len(model.shares_)
    ours, _ = objective_and_gradient(packed(model), given, n_left)
    assert ours == pytest.approx(model.objective_ / given.weights.sum(), abs=1e-9)
    found = minimize(
        lambda flat: tuple(-part for part in objective_and_gradient(flat, given, n_left)),
        packed(model),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 60, "ftol": 1e-14, "gtol": 1e-9},
    )
    assert -found.fun - ours < 1e-6


def test_the_plain_gradient_is_that_of_differences(tmp_path: Path) -> None:
    given = ballots("own", tmp_path)
    rng = np.random.default_rng(0)
    flat = rng.normal(size=2 * given.n_items + 4)
    _, gradient = objective_and_gradient(flat, given, 2)
    for place in range(len(flat)):
        step = np.zeros(len(flat))
        step[place] = 1e-5
        up, down = (objective_and_gradient(flat + sign * step, given, 2)[0] for sign in (1, -1))
        assert gradient[place] == pytest.approx((up - down) / 2e-5, abs=1e-7)


@pytest.mark.parametrize(("name", "n_components"), QUICK)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_election__an_independent_optimiser_gains_nothing(name: str, n_components: int, tmp_path: Path) -> None:
    check(name, n_components, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("n_components", range(1, 9))
@pytest.mark.parametrize("name", ELECTIONS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_election__an_independent_optimiser_gains_nothing(name: str, n_components: int, tmp_path: Path) -> None:
    check(name, n_components, tmp_path)
