"""The bootstrap beside fits to copied rows, standard errors from second derivatives, and itself on other workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import plmix_dist as pl
from plmix_dist import PlackettLuceMixture, Ranking, RankingBlock
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import NotConvergedWarning, SettingsError, ShrunkenWarning
from plmix_dist.kernels import prepare
from plmix_dist.metrics import match_components
from plmix_dist.rankings.sampling import generator
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.uncertainty import information
from plmix_dist.uncertainty.replicates import _at_fitted_point, _poisson_of_mean_one, draw_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIGHT: dict[str, Any] = {"tol": 1e-12, "max_iter": 3_000, "random_state": 0}
WORTHS = np.array([[1.5, 0.9, 0.3, -0.3, -0.9, -1.5], [-1.2, 0.2, 1.4, -1.0, 1.1, -0.5]])
SHARES = np.array([0.6, 0.4])


def drawn(n_rankings: int, seed: int = 0) -> RankingBlock:
    return draw_rankings(WORTHS, SHARES, n_rankings, np.random.default_rng(seed))[0]


def factors_of(block: RankingBlock, kind: str, replicate: int) -> NDArray[np.float64]:
    """The factors of all persons of a replicate of seed 5, leaf after leaf."""
    leaves = as_rankings(block).iter_leaves()
    return np.concatenate([draw_weights(leaf, kind, 5, replicate, number) for number, leaf in enumerate(leaves)])


def refit(model: PlackettLuceMixture, block: RankingBlock, **settings: Any) -> PlackettLuceMixture:
    again = PlackettLuceMixture(len(model.shares_), init=model, **TIGHT, **settings).fit(block)
    order = match_components(again.log_worths_, model.log_worths_)
    again.log_worths_, again.shares_ = again.log_worths_[order], again.shares_[order]
    return again


# --- what a replicate is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", ["expand", "marginal"])
def test_first_pass__a_few_rows_at_a_time(ties: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each row gets its own factor, however many orders the rows before it have.
    rows = [Ranking(((0, 1), (2,)), (), "below", 1.0), Ranking(((2,), (1,)), (), "below", 2.0)] * 3
    block = RankingBlock.from_rows([*rows, Ranking(((0, 2, 3), (1,)), (), "below", 1.0), *rows], n_items=4)
    point, factors = prepare(WORTHS[:, :4], np.log(SHARES)), np.random.default_rng(0).random((2, block.n_rankings))
    whole = _at_fitted_point(ties, block, point, factors)
    monkeypatch.setattr(information, "_MOST_SCORES", 2 * point.n_components * point.n_items)
    for part, of_all in zip(_at_fitted_point(ties, block, point, factors), whole, strict=True):
        assert_allclose(part, of_all, rtol=1e-12, atol=1e-12)


def test_poisson_weights_are_copies() -> None:
    block = drawn(5_000)  # two leaves
    model = PlackettLuceMixture(2, alpha=0, **TIGHT).fit(block)
    found = pl.bootstrap(model, block, 3, weights="poisson", random_state=5, tol=1e-8)
    assert found.converged.all()
    for replicate in range(3):
        counts = factors_of(block, "poisson", replicate).astype(int)
        copies = block.take(np.repeat(np.arange(block.n_rankings), counts))
        again = refit(model, copies, alpha=0)
        assert_allclose(found.log_worths[replicate], again.log_worths_, atol=1e-6)
        assert_allclose(found.shares[replicate], again.shares_, atol=1e-7)


def test_exponential_weights_are_sample_weights() -> None:
    block = drawn(500).replace(weights=np.random.default_rng(1).uniform(0.5, 3.0, 500))
    model = PlackettLuceMixture(2, alpha=0, **TIGHT).fit(block)
    found = pl.bootstrap(model, block, 2, random_state=5, tol=1e-8)
    for replicate in range(2):
        assert block.weights is not None
        weights = block.weights * factors_of(block, "exponential", replicate)
        again = refit(model, block.replace(weights=weights), alpha=0)
        assert_allclose(found.log_worths[replicate], again.log_worths_, atol=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_the_prior_s_comparisons_have_random_weights(alpha: float) -> None:
    """A replicate equals a fit without a prior to rows and to weighted pairs of every item and a ghost item."""
    block = draw_rankings(WORTHS[:1, :4], np.ones(1), 60, np.random.default_rng(0))[0]
    model = PlackettLuceMixture(1, alpha=alpha, **TIGHT).fit(block)
    found = pl.bootstrap(model, block, 2, random_state=5, tol=1e-9)
    for replicate in range(2):
        weights = factors_of(block, "exponential", replicate)
        rows = [row._replace(weight=float(weight)) for row, weight in zip(block.rows(), weights, strict=True)]
        wins, losses = generator(5, "bootstrap-prior", replicate).standard_gamma(alpha, (2, 1, 4))[:, 0]
        rows += [Ranking(((item,), (4,)), (), "absent", float(wins[item])) for item in range(4)]
        rows += [Ranking(((4,), (item,)), (), "absent", float(losses[item])) for item in range(4)]
        with_ghost = RankingBlock.from_rows(rows, n_items=5)
        wanted = PlackettLuceMixture(1, alpha=0, **TIGHT).fit(with_ghost).log_worths_[0, :4]
        assert_allclose(found.log_worths[replicate, 0], wanted - wanted.mean(), atol=1e-5)


def test_rare_items__a_warning_and_errors_like_those_of_the_information() -> None:
    worths = np.array([[4.0, 3.0, 2.0, 1.0, -4.0, -6.0]])
    rng = np.random.default_rng(0)
    rows = np.argsort(-(worths + rng.gumbel(size=(150, 6))), axis=1)[:, :2]
    model = PlackettLuceMixture(1, alpha=0.5, unranked="below", **TIGHT).fit(rows, n_items=6)
    with pytest.warns(ShrunkenWarning, match="component 0: '4', '5': few rankings choose them"):
        found = pl.bootstrap(model, rows, 300, random_state=0)
    with pytest.warns(ShrunkenWarning):
        wanted = model.standard_errors(rows)
    assert_allclose(found.standard_errors().log_worths, wanted.log_worths, rtol=0.35)


def tied_rows(n_rows: int) -> list[Ranking]:
    rng, rows = np.random.default_rng(2), []
    for number in range(n_rows):
        order = np.argsort(-(WORTHS[number % 2] + rng.gumbel(size=6))).tolist()
        places = ((order[0],), tuple(order[1:3]), (order[3],)) if number % 3 else ((order[0],), (order[1],))
        rows.append(Ranking(places, (), "below", float(1 + number % 2)))
    return rows


@pytest.mark.parametrize("ties", ["expand", "marginal"])
@pytest.mark.parametrize("grouped", [False, True])
def test_ties_and_groups(ties: Any, grouped: bool) -> None:
    rows = tied_rows(240)
    persons = [number // 2 for number in range(240)]
    block = RankingBlock.from_rows(rows, n_items=6, groups=persons if grouped else None)
    model = PlackettLuceMixture(2, alpha=0, ties=ties, **TIGHT).fit(block)
    found = pl.bootstrap(model, block, 2, weights="poisson", random_state=5, tol=1e-8)
    for replicate in range(2):
        factors = factors_of(block, "poisson", replicate)
        if grouped:  # a person who is drawn twice is two persons
            counts = factors.astype(int)
            numbers = [2 * person + row for person, count in enumerate(counts) for _ in range(count) for row in (0, 1)]
            labels = [copy for copy in range(counts.sum()) for _ in (0, 1)]
            again = RankingBlock.from_rows([rows[number] for number in numbers], n_items=6, groups=labels)
        else:
            weights = block.row_weights * factors
            kept = np.flatnonzero(weights)
            again = block.take(kept).replace(weights=weights[kept])
        wanted = refit(model, again, alpha=0, ties=ties)
        assert_allclose(found.log_worths[replicate], wanted.log_worths_, atol=1e-5)
        assert_allclose(found.shares[replicate], wanted.shares_, atol=1e-6)


def test_fixed_shares() -> None:
    block = drawn(400)
    model = PlackettLuceMixture(2, shares=SHARES, **TIGHT).fit(block)
    found = pl.bootstrap(model, block, 5, random_state=5)
    assert_allclose(found.shares, np.tile(model.shares_, (5, 1)), rtol=1e-12)


# --- what the replicates tell ------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["poisson", "exponential"])
def test_agrees_with_the_information(weights: str) -> None:
    block = drawn(3_000, seed=3)
    model = PlackettLuceMixture(2, **TIGHT).fit(block)
    errors = model.standard_errors(block)
    found = pl.bootstrap(model, block, 400, weights=weights, random_state=0)
    spread = found.standard_errors()
    ratios = np.concatenate([(spread.log_worths / errors.log_worths).ravel(), spread.shares / errors.shares])
    # A standard deviation of 400 draws has a relative error of 1 / sqrt(800): 3.5 %.
    assert np.abs(ratios - 1).max() < 5 * 0.036
    assert abs(ratios.mean() - 1) < 0.05
    differences = found.differences(1).standard_errors / np.where(np.eye(6), 1, errors.differences(1).standard_errors)
    assert np.abs(differences[~np.eye(6, dtype=bool)] - 1).max() < 5 * 0.036
    (low, high), (low_shares, high_shares) = found.intervals(0.95)
    (low_normal, high_normal), _ = errors.intervals(0.95)
    assert np.abs((high - low) / (high_normal - low_normal) - 1).max() < 0.25
    assert ((low_shares < model.shares_) & (model.shares_ < high_shares)).all()


def test_groups__persons_are_drawn() -> None:
    # Ten rankings per person: rows drawn alone would give standard errors that are too small.
    rng = np.random.default_rng(0)
    tastes = np.array([0.8, 0.0, -0.8]) + rng.normal(scale=1.0, size=(80, 3))
    orders = np.argsort(-(np.repeat(tastes, 10, axis=0) + rng.gumbel(size=(800, 3))), axis=1)
    block = RankingBlock.from_array(orders).replace(groups=np.repeat(np.arange(80), 10))
    model = PlackettLuceMixture(1, **TIGHT).fit(block)
    spread = pl.bootstrap(model, block, 400, random_state=0).standard_errors().log_worths
    clustered = model.standard_errors(block, kind="sandwich").log_worths
    plain = model.standard_errors(block).log_worths
    assert np.abs(spread / clustered - 1).max() < 0.2
    assert (spread > 1.5 * plain).all()


def test_default_tolerance_is_small_beside_the_spread() -> None:
    block = drawn(2_000)
    model = PlackettLuceMixture(2, **TIGHT).fit(block)
    usual = pl.bootstrap(model, block, 30, random_state=1)
    exact = pl.bootstrap(model, block, 30, random_state=1, tol=1e-9)
    errors = (usual.log_worths - exact.log_worths) / exact.standard_errors().log_worths
    assert np.sqrt((errors**2).mean()) < 0.02
    assert usual.n_passes < exact.n_passes


def test_blocks__the_same_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    block = drawn(1_000)
    model = PlackettLuceMixture(2, **TIGHT).fit(block)
    whole = pl.bootstrap(model, block, 5, random_state=1, tol=1e-9)
    monkeypatch.setattr("plmix_dist.uncertainty.standard_errors._MOST_PARAMETERS", 5)
    monkeypatch.setattr("plmix_dist.uncertainty.bootstrap._MOST_NUMBERS", 40)  # two replicates at a time
    blocks = pl.bootstrap(model, block, 5, random_state=1, tol=1e-9)
    assert_allclose(blocks.log_worths, whole.log_worths, atol=1e-6)
    assert_allclose(blocks.shares, whole.shares, atol=1e-6)


# --- bits, seeds, errors -----------------------------------------------------------------------------------


def test_same_bits_on_two_workers(client: Any) -> None:
    block = drawn(9_000)
    model = PlackettLuceMixture(2, random_state=0).fit(block, client=False)
    here = pl.bootstrap(model, block, 20, random_state=0, client=False)
    there = pl.bootstrap(model, block, 20, random_state=0, client=client)
    assert_array_equal(here.log_worths, there.log_worths)
    assert_array_equal(here.shares, there.shares)


def test_a_replicate_does_not_depend_on_how_many_there_are() -> None:
    block = drawn(500)
    model = PlackettLuceMixture(2, **TIGHT).fit(block)
    few, many = (pl.bootstrap(model, block, n, random_state=3, tol=1e-9) for n in (3, 12))
    assert_allclose(few.log_worths, many.log_worths[:3], atol=1e-6)
    other = pl.bootstrap(model, block, 3, random_state=4)
    assert np.abs(other.log_worths - few.log_worths).max() > 1e-3


def test_settings() -> None:
    block = drawn(100)
    model = PlackettLuceMixture(1, random_state=0).fit(block)
    with pytest.raises(SettingsError, match="n_replicates"):
        pl.bootstrap(model, block, 1)
    with pytest.raises(SettingsError, match="weights must be"):
        pl.bootstrap(model, block, 5, weights="multinomial")
    with pytest.raises(SettingsError, match="tol"):
        pl.bootstrap(model, block, 5, tol=0)


def test_too_few_passes_are_told() -> None:
    block = drawn(60)
    model = PlackettLuceMixture(2, random_state=0).fit(block)
    for weights, advice in (("exponential", "raise max_iter, or choose"), ("poisson", 'weights="exponential"')):
        with pytest.warns(NotConvergedWarning, match=f"of 6 replicates did not reach their maximum; .*{advice}"):
            found = pl.bootstrap(model, block, 6, random_state=0, tol=1e-12, max_iter=2, weights=weights)
        assert not found.converged.all()
    assert "Errors hold given 2 components" in repr(found)


def test_poisson_of_mean_one__frequencies_and_cells_that_do_not_decide() -> None:
    class Cells:
        """Gives every cell in turn, with the same place inside it."""

        def integers(self, *_: Any, **__: Any) -> np.ndarray:
            return np.arange(1 << 16, dtype=np.uint16)

        def random(self, size: int) -> np.ndarray:
            return np.full(size, 0.25)

    uniform = (np.arange(1 << 16) + 0.25) / (1 << 16)
    assert (_poisson_of_mean_one(Cells(), 1 << 16) == stats.poisson.ppf(uniform, 1.0)).all()

    drawn = _poisson_of_mean_one(np.random.default_rng(3), 1_000_000)
    counts = np.bincount(np.minimum(drawn, 7).astype(int), minlength=8)
    chances = np.append(stats.poisson.pmf(np.arange(7), 1.0), stats.poisson.sf(6, 1.0))
    assert stats.chisquare(counts, 1_000_000 * chances).pvalue > 1e-3


def test_weights__counts_are_persons_and_fractions_belong_to_one() -> None:
    weights = np.repeat([4.0, 2.5, 0.3], 500)
    block = RankingBlock.from_array(np.tile([0, 1], (1_500, 1))).replace(weights=weights)
    four, more, less = draw_weights(block, "poisson", 0, 0, 0).reshape(3, 500)
    assert (4 * four % 1 == 0).all()
    assert (four % 1 != 0).any()
    for factors in (more, less):  # how often one person was drawn
        assert (factors % 1 == 0).all()
        assert factors.var() == pytest.approx(1.0, abs=0.3)
