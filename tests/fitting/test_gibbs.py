"""The Gibbs sampler against its definition: exact posteriors, another sampler, and draws that must keep the prior."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy import stats

from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting.algorithm import run
from plmix_dist.fitting.chains import _starts
from plmix_dist.fitting.gibbs import Gibbs
from plmix_dist.kernels import prepare, sweep_sums
from plmix_dist.kernels.draws import SweepSums
from plmix_dist.kernels.plain import plain_choices, plain_sweep_sums
from plmix_dist.models.diagnostics import bulk_ess, r_hat
from plmix_dist.passes import ThreadedPasses
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.groups import merge_equal_rows
from plmix_dist.solvers.gamma_prior import GammaPrior, Parameters
from tests.helpers.bayes_oracle import drawn_rows, log_likelihood, log_prior, metropolis
from tests.helpers.fit_oracle import block_of, mixed_rows
from tests.helpers.marks import examples

Table = NDArray[np.float64]


def prior_of(n_items: int, shape: float = 1.0, concentration: float = 1.0) -> GammaPrior:
    return GammaPrior(np.full(n_items, shape), np.ones(n_items), concentration)


def sampled(
    block: RankingBlock, n_components: int, n_draws: int, *, shape: float = 1.0, seed: int = 0, n_chains: int = 2
) -> tuple[Table, Table]:
    """Log-worths (n_chains, n_draws, K, n) and log-shares, from chains that begin at draws from the prior."""
    prior = prior_of(block.n_items, shape)
    gibbs = Gibbs(prior, n_warmup=100, n_draws=n_draws, seed=seed)
    begin = gibbs.start(_starts(None, n_components, prior, n_chains, seed))
    state = run(ThreadedPasses(as_rankings(block, ties="marginal")), gibbs, begin)
    assert state.error is None
    draws = gibbs.draws(state)
    return draws.log_worths, draws.log_shares


def assert_mean(values: Table, expected: float, *, at_most: float = 4.5) -> None:
    """Draws (n_chains, n_draws) have a mean that the expected one may be, given how many of them count."""
    assert r_hat(values) < 1.05
    error = values.std() / np.sqrt(bulk_ess(values))
    assert abs(values.mean() - expected) < at_most * error, (values.mean(), expected, error)


# --- the kernel ------------------------------------------------------------------------------------------


@given(
    rows=st.sampled_from([3, 4, 9, 26]).flatmap(lambda n: st.tuples(mixed_rows(n), st.just(n))),
    n_components=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
@examples(60)
def test_sweep_sums__as_specified(rows: Any, n_components: int, seed: int) -> None:
    block = block_of(rows[0], rows[1]).replace(weights=None)
    rng = np.random.default_rng(seed)
    log_worths = rng.normal(0, rng.choice([0.3, 3.0, 20.0]), (n_components, block.n_items))
    log_shares = np.log(rng.dirichlet(np.ones(n_components)))
    found = sweep_sums(block, prepare(log_worths, log_shares), np.random.default_rng(seed))
    again = np.random.default_rng(seed)
    uniforms = again.random(block.n_rankings)
    n_choices = sum(len(list(plain_choices(block, row))) for row in range(block.n_rankings))
    expected = plain_sweep_sums(block, log_worths, log_shares, uniforms, again.standard_exponential(n_choices))
    for name in SweepSums._fields:
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-13, err_msg=name)


def means_of_sums(block: RankingBlock, params: Any, repeats: int) -> tuple[Table, Table]:
    """Means and standard errors of all sums over many sweeps at the same parameters."""
    rng = np.random.default_rng(5)
    flat = np.array(
        [np.concatenate([np.ravel(field) for field in sweep_sums(block, params, rng)[1:]]) for _ in range(repeats)]
    )
    return flat.mean(axis=0), flat.std(axis=0) / np.sqrt(repeats)


@pytest.mark.parametrize("tied", [False, True], ids=["plain", "ties"])
def test_sweep_sums__a_row_of_weight_3_is_three_rows(tied: bool) -> None:
    first = ((0, 1), (2,), (3,)) if tied else ((0,), (1,), (2,), (3,))
    rows = [Ranking(first, (), "absent", 3.0), Ranking(((2,),), (1,), "absent", 2.0)]
    merged = RankingBlock.from_rows(rows, n_items=4)
    copies = RankingBlock.from_rows(
        [row._replace(weight=1.0) for row in rows for _ in range(int(row.weight))], n_items=4
    )
    params = prepare(np.random.default_rng(1).normal(size=(2, 4)), np.log([0.3, 0.7]))
    (one, its_error), (other, error) = (means_of_sums(block, params, 600) for block in (merged, copies))
    assert (np.abs(one - other) < 4.5 * np.hypot(its_error, error) + 1e-12).all()
    assert_allclose(its_error, error, rtol=0.3, atol=1e-12)  # so do the variances


def test_sweep_sums__rows_of_a_group_share_their_component() -> None:
    block = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]] * 2, weights=[1, 2, 1, 1])
    block = block.replace(groups=np.array([7, 7, 8, 8]))
    params = prepare(np.zeros((2, 3)), np.log([0.5, 0.5]))
    for seed in range(20):
        found = sweep_sums(block, params, np.random.default_rng(seed))
        assert found.shares.sum() == 2
        wins = {0.0: 0.0, 1.0: None, 2.0: 10.0}[float(found.shares[0])]
        assert found.wins[0].sum() in ((6.0, 4.0) if wins is None else (wins,))


# --- exact posteriors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [0.5, 1.0, 3.0])
def test_posterior__two_items_is_a_beta(shape: float) -> None:
    block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[7.0, 2.0])
    log_worths, _ = sampled(block, 1, 700, shape=shape)
    drawn = 1 / (1 + np.exp(log_worths[:, :, 0, 1] - log_worths[:, :, 0, 0]))
    exact = stats.beta(shape + 7, shape + 2)
    assert_mean(drawn, exact.mean())
    assert_mean(drawn**2, exact.moment(2))
    ranks = exact.cdf(drawn[:, :: int(1_400 / bulk_ess(drawn)) + 1].ravel())
    assert stats.kstest(ranks, "uniform").pvalue > 1e-3


KINDS = {"full and top-k": ["full"] * 4 + ["top-2"] * 3, "slates and ties": ["slate"] * 3 + ["tied"] * 4 + ["full"]}


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_posterior__three_items_by_quadrature(kinds: list[str]) -> None:
    truth = np.log([[4.0, 2.0, 1.0]])
    rows = drawn_rows(truth, np.zeros(1), kinds, range(len(kinds)), np.random.default_rng(2))
    rows[0] = rows[0]._replace(weight=2.0)
    log_worths, _ = sampled(RankingBlock.from_rows(rows, n_items=3), 1, 400)
    axis = np.linspace(-14, 14, 141)
    grid = np.stack([*np.meshgrid(axis, axis, indexing="ij"), np.zeros((141, 141))], axis=-1)
    grid -= grid.mean(axis=-1, keepdims=True)
    worths, shares = grid[..., None, :], np.zeros((141, 141, 1))
    density = log_likelihood(rows, range(len(rows)), worths, shares) + log_prior(worths, shares, 1.0, 1.0)
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    for item in range(3):
        assert_mean(log_worths[:, :, 0, item], float((weights * grid[..., item]).sum()))
        assert_mean(log_worths[:, :, 0, item] ** 2, float((weights * grid[..., item] ** 2).sum()))


def test_posterior__groups_by_quadrature() -> None:
    # Persons who compare two items several times: 2 components identify persons, and a grid has 3 dimensions.
    votes = [(5, 0), (4, 1), (0, 5), (1, 4), (6, 1)]
    rows = [
        Ranking(order, (), "absent", float(count))
        for counts in votes
        for order, count in zip((((0,), (1,)), ((1,), (0,))), counts, strict=True)
        if count
    ]
    groups = [person for person, counts in enumerate(votes) for count in counts if count]
    block = RankingBlock.from_rows(rows, n_items=2, groups=groups)
    log_worths, log_shares = sampled(block, 2, 900)
    chance = 1 / (1 + np.exp(-2 * log_worths[..., 0]))  # (chains, draws, K): item 0 wins
    axis, middle = np.linspace(-6, 6, 61), np.linspace(-7, 7, 41)
    one, two, logit = np.meshgrid(axis, axis, middle, indexing="ij")
    worths = np.stack([np.stack([one, -one], -1), np.stack([two, -two], -1)], axis=-2)
    shares = np.stack([-np.logaddexp(0, -logit), -np.logaddexp(0, logit)], axis=-1)
    density = log_likelihood(rows, groups, worths, shares) + log_prior(worths, shares, 1.0, 1.0)
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    exact = 1 / (1 + np.exp(-2 * worths[..., 0]))
    # Labels mean nothing, so functions that do not depend on them are compared.
    assert_mean(np.abs(chance[..., 0] - chance[..., 1]), float((weights * np.abs(exact[..., 0] - exact[..., 1])).sum()))
    mixed = (np.exp(log_shares) * chance).sum(axis=-1)
    assert_mean(mixed, float((weights * (np.exp(shares) * exact).sum(axis=-1)).sum()))
    assert_mean((np.exp(log_shares) ** 2).sum(axis=-1), float((weights * (np.exp(shares) ** 2).sum(axis=-1)).sum()))


def test_posterior__of_an_item_with_a_rate_of_its_own() -> None:
    # One item is believed to be worth three times the others; without data, draws are the prior's.
    prior = GammaPrior(np.array([2.0, 1.5, 1.0]), np.array([0.5, 1.0, 2.0]), 1.0)
    block = RankingBlock.from_array([[0, 1], [1, 0]], n_items=3, unranked="absent")
    gibbs = Gibbs(prior, 100, 1_000)
    state = run(ThreadedPasses(as_rankings(block)), gibbs, gibbs.start(_starts(None, 1, prior, 2, 0)))
    drawn = gibbs.draws(state).log_worths[:, :, 0]
    axis = np.linspace(-25, 8, 331)
    logs = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)  # of items 0 and 1; item 2 is independent
    density = (prior.shape[:2] * logs - prior.rate[:2] * np.exp(logs)).sum(axis=-1)
    density += logs.sum(axis=-1) - 2 * np.logaddexp(logs[..., 0], logs[..., 1])
    weights = np.exp(density - density.max())
    difference = float((weights * (logs[..., 0] - logs[..., 1])).sum() / weights.sum())
    assert_mean(drawn[..., 0] - drawn[..., 1], difference)


# --- another sampler -------------------------------------------------------------------------------------


def test_posterior__as_metropolis_finds_it() -> None:
    truth, shares = np.array([[2.0, 1.0, -1.0, -2.0], [-2.0, 0.0, 0.0, 2.0]]), np.log([0.6, 0.4])
    rng = np.random.default_rng(4)
    kinds = ["full"] * 25 + ["top-2"] * 10 + ["tied"] * 10 + ["slate"] * 5
    rows = drawn_rows(truth, shares, kinds, range(len(kinds)), rng)
    log_worths, log_shares = sampled(RankingBlock.from_rows(rows, n_items=4), 2, 400, shape=2.0)
    starts = np.tile(truth, (24, 1, 1)), np.tile(shares, (24, 1))
    walked, walked_shares = metropolis(rows, range(len(rows)), starts, 1_300, rng, shape=2.0, step=0.35)
    worths = np.moveaxis(walked[400::6], 1, 0)  # (walks, steps, K, n)
    walked_shares = np.moveaxis(walked_shares[400::6], 1, 0)
    # Components are far apart: the one that prefers item 0 is the first.
    first = log_worths[..., 0].argmax(axis=2)
    order = np.stack([first, 1 - first], axis=2)
    log_worths = np.take_along_axis(log_worths, order[..., None], axis=2)
    log_shares = np.take_along_axis(log_shares, order, axis=2)
    pairs = [(log_worths[..., k, i], worths[..., k, i]) for k in range(2) for i in range(4)]
    pairs.append((np.exp(log_shares[..., 0]), np.exp(walked_shares[..., 0])))
    for ours, theirs in pairs:
        errors = [values.std() / np.sqrt(bulk_ess(values)) for values in (ours, theirs)]
        assert abs(ours.mean() - theirs.mean()) < 4.5 * np.hypot(*errors)
        assert ours.std() == pytest.approx(theirs.std(), rel=0.2)


# --- calibration -----------------------------------------------------------------------------------------


FUNCTIONS: dict[str, Callable[[Table, Table], Table]] = {
    # Of log-worths (..., K, n) and log-shares (..., K); none depends on the names of components.
    "first choice": lambda worths, shares: (
        np.exp(shares) * np.exp(worths[..., 0] - np.logaddexp.reduce(worths, axis=-1))
    ).sum(axis=-1),
    "largest share": lambda worths, shares: shares.max(axis=-1),
    "spread": lambda worths, shares: (worths**2).sum(axis=(-1, -2)),
    "contrast": lambda worths, shares: np.abs(worths[..., 0] - worths[..., 1]).max(axis=-1),
}


DESIGNS: dict[str, tuple[Sequence[str], Sequence[int]]] = {
    "rows": (["full"] * 4 + ["top-2"] * 4 + ["slate"] * 4, range(12)),
    "ties and weights": (["tied"] * 8 + ["slate"] * 8, range(16)),
    "groups": (["full", "top-2", "tied"] * 4, [person for person in range(4) for _ in range(3)]),
}


def drawn_data(design: str, truth: Parameters, rng: np.random.Generator) -> RankingBlock:
    kinds, persons = DESIGNS[design]
    rows = drawn_rows(*truth, kinds, persons, rng)
    n_items = truth.log_worths.shape[1]
    if design == "groups":
        return RankingBlock.from_rows(rows, n_items=n_items, groups=list(persons))
    block = RankingBlock.from_rows(rows, n_items=n_items)
    return merge_equal_rows(block) if design == "ties and weights" else block


@pytest.mark.promise(30)
@pytest.mark.parametrize("design", DESIGNS)
def test_calibration__sweeps_keep_the_prior(design: str) -> None:
    # Parameters from the prior, data from the parameters, then sweeps from these parameters given the data: whatever
    # the number of sweeps, parameters are distributed as the prior (Geweke 2004). Nothing needs to converge.
    prior, rng = prior_of(3, 0.8, 1.5), np.random.default_rng(8)
    ends, before = [], [prior.draw(2, rng) for _ in range(5_000)]
    for _ in range(300):
        here = prior.draw(2, rng)
        block = drawn_data(design, here, rng)
        for _ in range(2):
            here = prior.draw_given(sweep_sums(block, prepare(*here), rng), here, rng)
        ends.append(here)
    for name, function in FUNCTIONS.items():
        found, expected = (
            function(np.array([p.log_worths for p in some]), np.array([p.log_shares for p in some]))
            for some in (ends, before)
        )
        assert stats.ks_2samp(found, expected).pvalue > 1e-3, name


@pytest.mark.promise(30)
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("design", DESIGNS)
def test_calibration__ranks_are_uniform(design: str) -> None:
    # Simulation-based calibration (Talts et al. 2018): the rank of the truth among draws of its posterior. Chains begin
    # at another draw of the prior. Draws are 8 sweeps apart, which makes them nearly independent.
    prior, rng = prior_of(4), np.random.default_rng(9)
    n_warmup, n_draws, thin, n_bins = 100, 63, 8, 16
    n_replicates = 320 if design == "rows" else 160
    ranks: dict[str, list[int]] = {name: [] for name in FUNCTIONS}
    for _ in range(n_replicates):
        truth, here = prior.draw(2, rng), prior.draw(2, rng)
        block = drawn_data(design, truth, rng)
        draws = []
        for sweep in range(1, n_warmup + n_draws * thin + 1):
            here = prior.draw_given(sweep_sums(block, prepare(*here), rng), here, rng)
            if sweep > n_warmup and (sweep - n_warmup) % thin == 0:
                draws.append(here)
        log_worths, log_shares = (np.array([getattr(draw, name) for draw in draws]) for name in Parameters._fields)
        for name, function in FUNCTIONS.items():
            ranks[name].append(int((function(log_worths, log_shares) < function(*truth)).sum()))
    for name, found in ranks.items():
        counts = np.bincount(np.array(found) * n_bins // (n_draws + 1), minlength=n_bins)
        assert stats.chisquare(counts).pvalue > 1e-3, (name, counts)


# --- chains ----------------------------------------------------------------------------------------------


def test_chains__do_not_depend_on_each_other() -> None:
    block = RankingBlock.from_array(np.random.default_rng(0).permuted(np.tile(np.arange(4), (50, 1)), axis=1))
    prior = prior_of(4)
    gibbs = Gibbs(prior, 3, 10, seed=2)
    starts = list(_starts(None, 2, prior, 3, 5))
    three, one = (
        gibbs.draws(run(ThreadedPasses(as_rankings(block)), gibbs, gibbs.start(some))) for some in (starts, starts[:1])
    )
    assert three.log_worths[0].tobytes() == one.log_worths[0].tobytes()
    assert not np.array_equal(three.log_worths[0], three.log_worths[1])


def test_chains__warm_up_and_thinning_leave_out_sweeps() -> None:
    block = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]] * 10)
    prior = prior_of(3)
    start = list(_starts(None, 2, prior, 2, 5))
    passes = ThreadedPasses(as_rankings(block))
    every, some = (
        gibbs.draws(run(passes, gibbs, gibbs.start(start)))
        for gibbs in (Gibbs(prior, 0, 19, seed=2), Gibbs(prior, 4, 5, thin=3, seed=2))
    )
    for all_draws, kept in zip(every, some, strict=True):
        assert np.array_equal(all_draws[:, 6::3], kept)  # sweeps 7, 10, 13, 16, 19


def test_chains__log_likelihood_is_that_of_the_draw() -> None:
    rows = [Ranking(((0, 1), (2,), (3,)), (), "absent", 2.0), Ranking(((3,), (1,)), (), "below", 1.0)]
    block = RankingBlock.from_rows(rows, n_items=4)
    prior = prior_of(4)
    gibbs = Gibbs(prior, 2, 6)
    state = run(ThreadedPasses(as_rankings(block, ties="marginal")), gibbs, gibbs.start(_starts(None, 2, prior, 2, 1)))
    draws = gibbs.draws(state)
    persons = [rows[0]._replace(weight=1.0)] * 2 + [rows[1]]
    expected = log_likelihood(persons, range(3), draws.log_worths, draws.log_shares)
    assert_allclose(draws.log_likelihood, expected, rtol=1e-10)
