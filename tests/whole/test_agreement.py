"""Fits of simulated rankings beside choix and beside a general optimiser: agreement that needs no files.

The fits of public data by R PLMIX and R PlackettLuce are compared in test_golden_fits.py, where those data are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import choix
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from plmix_dist import PlackettLuceMixture
from tests.helpers.fit_oracle import block_of, slate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.float64]

pytestmark = pytest.mark.promise(27)
BOTH = pytest.mark.parametrize("m_step", ["lsr", "mm"])
TRUTH = np.array([[1.5, 0.7, 0.2, -0.4, -2.0], [-1.6, -0.3, 0.1, 0.6, 1.2]])


def drawn(seed: int, n_rows: int, log_worths: Table, shares: Any) -> Table:
    """Full rankings of a mixture: items that arrive after exponential times come in Plackett-Luce order."""
    rng = np.random.default_rng(seed)
    component = rng.choice(len(shares), n_rows, p=shares)
    return np.argsort(rng.exponential(size=(n_rows, log_worths.shape[1])) / np.exp(log_worths[component]))


def centred(log_worths: Table) -> Table:
    return log_worths - log_worths.mean(axis=-1, keepdims=True)


@BOTH
@pytest.mark.parametrize("length", [5, 3], ids=["full", "subsets"])
def test_one_component__choix(m_step: Any, length: int) -> None:
    rng = np.random.default_rng(length)
    rankings = [
        [item for item in order if item in kept]
        for order in drawn(1, 60, TRUTH[:1], [1.0]).tolist()
        for kept in [set(rng.permutation(5)[:length].tolist())]
    ]
    model = PlackettLuceMixture(1, alpha=0, m_step=m_step, tol=1e-12).fit(
        block_of([slate(ranking, []) for ranking in rankings], 5)
    )
    expected = choix.opt_rankings(5, rankings, alpha=0, method="BFGS", tol=1e-8, max_iter=1_000)
    assert_allclose(centred(model.log_worths_)[0], centred(expected), atol=1e-6)


@BOTH
def test_choices_from_slates__choix(m_step: Any) -> None:
    rng = np.random.default_rng(2)
    winners = []
    for order in drawn(3, 120, TRUTH[1:], [1.0]).tolist():
        offered = set(rng.permutation(5)[: rng.integers(2, 6)].tolist())
        first, *rest = [item for item in order if item in offered]
        winners.append((first, rest))
    model = PlackettLuceMixture(1, alpha=0, m_step=m_step, tol=1e-12).fit(
        block_of([slate([first], rest) for first, rest in winners], 5)
    )
    expected = choix.opt_top1(5, winners, alpha=0, method="BFGS", tol=1e-8, max_iter=1_000)
    assert_allclose(centred(model.log_worths_)[0], centred(expected), atol=1e-6)


@BOTH
@pytest.mark.parametrize("alpha", [1, 3])
def test_prior__pseudo_rankings_given_to_choix(m_step: Any, alpha: int) -> None:
    # What R PlackettLuce calls npseudo: each item wins and loses so often against one more item. Item 4 never wins.
    rankings = [[0, 1, 2, 3, 4], [1, 0, 3, 2, 4], [2, 1, 0, 4], [3, 0, 4]]
    model = PlackettLuceMixture(1, alpha=alpha, m_step=m_step, tol=1e-12).fit(
        block_of([slate(ranking, []) for ranking in rankings], 5)
    )
    pseudo = [pair for item in range(5) for pair in ([item, 5], [5, item])] * alpha
    expected = choix.opt_rankings(6, rankings + pseudo, alpha=0, method="BFGS", tol=1e-8, max_iter=1_000)[:5]
    assert_allclose(centred(model.log_worths_)[0], centred(expected), atol=1e-6)


def mixture_log_likelihood(parameters: Table, orders: Table, n_components: int) -> float:
    """The log-likelihood of full rankings, by the definition, from free log-shares and log-worths."""
    n_items = orders.shape[1]
    log_shares = log_softmax(parameters[:n_components])
    worths = parameters[n_components:].reshape(n_components, n_items)[:, orders]
    stages = [worths[:, :, place] - logsumexp(worths[:, :, place:], axis=2) for place in range(n_items)]
    return float(logsumexp(sum(stages) + log_shares[:, None], axis=0).sum())


@BOTH
def test_two_components__general_optimiser(m_step: Any) -> None:
    orders = drawn(4, 300, TRUTH, [0.65, 0.35])
    model = PlackettLuceMixture(2, alpha=0, m_step=m_step, tol=1e-12, random_state=0).fit(orders)
    rng = np.random.default_rng(5)
    found = [
        minimize(
            lambda parameters: -mixture_log_likelihood(parameters, orders, 2),
            np.concatenate([np.zeros(2), rng.normal(size=10)]),
            method="BFGS",
            options={"gtol": 1e-3},
        )
        for _ in range(3)
    ]
    best = min(found, key=lambda one: one.fun)
    assert model.log_likelihood_ == pytest.approx(-best.fun, abs=1e-5)
    shares, worths = np.exp(log_softmax(best.x[:2])), centred(best.x[2:].reshape(2, 5))
    order = np.argsort(-shares)
    assert_allclose(model.shares_, shares[order], atol=1e-4)
    assert_allclose(centred(model.log_worths_), worths[order], atol=2e-3)
