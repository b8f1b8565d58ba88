"""EM: its objective, its M-step, the laws of the data, and the ways in which a fit can go wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.optimize import minimize

from plmix_dist import PlackettLuceMixture
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import NonFiniteError, NotConvergedWarning, NotIdentifiedError, RankingError
from plmix_dist.fitting import fit
from plmix_dist.fitting.e_step import em_request
from plmix_dist.fitting.em import Candidate, Em
from plmix_dist.fitting.fixed_point import Evaluation
from plmix_dist.fitting.point import Point
from plmix_dist.metrics import matched_distance
from plmix_dist.passes import ThreadedPasses
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import LSR, MM, MStep
from tests.helpers.fit_oracle import (
    block_of,
    drawn_rows,
    exact_posteriors,
    log_likelihood,
    objective,
    random_rows,
    slate,
    top,
    with_ghost_rows,
)

SOLVERS = pytest.mark.parametrize("solver", [LSR, MM], ids=lambda solver: solver.name)


WAYS = list(itertools.product(["lsr", "mm"], ["fused", "exact"], [True, False]))


ALL_WAYS = pytest.mark.parametrize(
    ("m_step", "em_kind", "accelerate"), WAYS, ids=[f"{m}-{e}-{'anderson' if a else 'plain'}" for m, e, a in WAYS]
)


UNFINISHED = pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")


class EmOver:
    """EM over rows in memory, its requests answered."""

    def __init__(self, rows: Sequence[Ranking], n_items: int, m_step: MStep, alpha: float) -> None:
        self.passes = ThreadedPasses(as_rankings(block_of(rows, n_items)), n_threads=1)
        weight = math.fsum(row.weight for row in rows)
        self.em = Em(m_step, alpha, weight=weight, n_rankings=len(rows))

    def evaluate(self, point: Point) -> Evaluation:
        """What one pass tells about a point."""
        (answer,) = self.passes.run(self.em.ask(self.em.start(point)))
        summary, *steps = answer.results
        return self.em.evaluation(point, summary, steps, answer.timing._asdict())

    def one_step(self, point: Point, **settings: Any) -> Any:
        """The state after the first iteration, however many passes that takes."""
        em = replace(self.em, accelerate=False, **settings)
        state = em.start(point)
        while not state.history:
            state = em.tell(state, self.passes.run(em.ask(state)))
        return state


def random_state(seed: int, n_components: int, n_items: int, spread: float = 1.0) -> Point:
    rng = np.random.default_rng(seed)
    worths = rng.normal(0, spread, (n_components, n_items))
    return Point.start(worths, rng.dirichlet(np.full(n_components, 5.0)))._replace(ghosts=rng.normal(size=n_components))


def objective_at(rows: Sequence[Ranking], n_items: int, state: Point, alpha: float) -> float:
    return objective(rows, n_items, state.log_worths, state.ghosts.tolist(), np.exp(state.log_shares), alpha)


# --- the objective ---------------------------------------------------------------------------------------


@ALL_WAYS
@given(seed=st.integers(0, 2**32), n_components=st.integers(1, 3), alpha=st.sampled_from([0.02, 1.0]))
@settings(max_examples=8)
@pytest.mark.promise(26)
@UNFINISHED
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.CollapsedComponentWarning")
def test_fit__objective_never_falls(
    m_step: Any, em_kind: Any, accelerate: bool, seed: int, n_components: int, alpha: float
) -> None:
    rows = random_rows(seed, 5, 25)
    model = PlackettLuceMixture(
        n_components,
        m_step=m_step,
        em=em_kind,
        accelerate=accelerate,
        alpha=alpha,
        max_iter=25,
        init="random",
        random_state=seed,
    ).fit(block_of(rows, 5))
    taken: list[float] = []
    for record in model.history_:
        if record["step"] == "start":  # the first, or the first after a component was seeded again
            taken = []
        if record["taken"]:
            assert not taken or record["objective"] >= taken[-1] - 1e-12 * abs(taken[-1])
            taken.append(record["objective"])
        else:
            assert record["objective"] < taken[-1]
    # What is reported is the objective of what is returned, by its definition.
    expected = objective(rows, 5, model.log_worths_, model._ghosts.tolist(), model.shares_.tolist(), alpha)
    assert model.objective_ == pytest.approx(expected, rel=1e-11)
    # ... and no point that was taken with as many components is better.
    drops = [event["iteration"] for event in model.events_ if event["action"] == "drop"]
    comparable = [r["objective"] for r in model.history_ if r["taken"] and r["iteration"] > max(drops, default=0)]
    assert model.objective_ >= max(comparable) - 1e-12 * abs(model.objective_)
    likelihood = log_likelihood(rows, 5, model.log_worths_, model.shares_.tolist())
    assert model.log_likelihood_ == pytest.approx(likelihood, rel=1e-11)


@SOLVERS
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_fused__evaluation_by_definition(solver: MStep, alpha: float) -> None:
    rows = random_rows(8, 4, 20)
    state = random_state(9, 3, 4)
    found = EmOver(rows, 4, solver, alpha).evaluate(state)
    assert found.objective == pytest.approx(objective_at(rows, 4, state, alpha), rel=1e-12)
    # The slope, by finite differences in log-worths, ghosts and the logits of shares.
    slopes = []
    step = 1e-5
    for direction in np.eye(len(state.flat())):
        up, down = (
            objective_at(rows, 4, state.like(state.flat() + sign * step * direction), alpha) for sign in (1, -1)
        )
        slopes.append((up - down) / (2 * step))
    weight = math.fsum(row.weight for row in rows)
    assert found.residual == pytest.approx(np.abs(slopes).max() / weight, rel=1e-5)
    assert_allclose(found.gradient, slopes, atol=1e-5)
    # The shares of the next state are the mean posteriors.
    _, posteriors = exact_posteriors(rows, 4, state.log_worths, state.log_shares)
    means = np.average(posteriors, axis=0, weights=[row.weight for row in rows])
    assert_allclose(np.exp(found.next.log_shares), means, rtol=1e-12)
    assert found.safe is not None
    assert found.objective is not None
    assert_allclose(np.exp(found.safe.log_shares), means, rtol=1e-12)
    assert objective_at(rows, 4, found.safe, alpha) >= found.objective


# --- the exact M-step ------------------------------------------------------------------------------------


@SOLVERS
@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_solve_m_step__weighted_mle_at_frozen_posteriors(solver: MStep, alpha: float) -> None:
    n_items = 4
    rows = [*random_rows(31, n_items, 12), slate([0, 1, 2, 3], []), slate([3, 2, 1, 0], [])]
    frozen = random_state(32, 2, n_items)
    after = EmOver(rows, n_items, solver, alpha).one_step(frozen, kind="exact", tol=1e-9)
    solved = after.iteration.point
    _, posteriors = exact_posteriors(rows, n_items, frozen.log_worths, frozen.log_shares)
    for k in range(2):
        own = [row._replace(weight=row.weight * q) for row, q in zip(rows, posteriors[:, k], strict=True)]
        everything = with_ghost_rows(own, n_items, alpha) if alpha else own
        size = n_items + bool(alpha)
        best = minimize(
            lambda worths, rows=everything, size=size: -log_likelihood(rows, size, worths[None], [1.0]),
            np.zeros(size),
            method="BFGS",
            jac="3-point",
            options={"gtol": 1e-7},
        ).x
        assert_allclose(solved.log_worths[k], best[:n_items] - best[:n_items].mean(), atol=3e-6)


@SOLVERS
def test_exact__takes_the_whole_m_step(solver: MStep) -> None:
    rows = random_rows(33, 5, 30)
    state = random_state(34, 2, 5)
    runner = EmOver(rows, 5, solver, 0.1)
    after = runner.one_step(state, kind="exact", tol=1e-8)
    (record,) = after.history
    before = runner.evaluate(state)
    assert_allclose(after.iteration.point.log_shares, before.next.log_shares, rtol=1e-15)
    assert record["inner_passes"] > 1
    assert objective_at(rows, 5, after.iteration.point, 0.1) > objective_at(rows, 5, before.next, 0.1)


@SOLVERS
def test_exact__inner_tolerance(solver: MStep) -> None:
    # The M-step is solved ten times as closely as the fit: its gradient at the frozen posteriors is that small.
    rows = random_rows(35, 5, 30)
    runner = EmOver(rows, 5, solver, 0.1)
    begin = random_state(36, 2, 5)
    em = replace(runner.em, kind="exact", tol=1e-6, accelerate=False)
    state = em.start(begin)
    while not state.history:
        if state.inner is not None:
            inner = state.inner
        state = em.tell(state, runner.passes.run(em.ask(state)))
    assert inner.iteration.n_evaluations > 1
    request = em_request(solver, state.iteration.point._replace(log_shares=begin.log_shares), begin, 0.1)
    (answer,) = runner.passes.run([request])
    gradients = [step.gradient.values for step in answer.results[1:]]
    assert np.abs(gradients).max() / em.weight <= 1e-6 / 10


# --- every way leads to the same point -------------------------------------------------------------------


@pytest.fixture(scope="module", params=[(10, 5_000), (50, 10_000)], ids=["10 items", "50 items"])
def separated(request: pytest.FixtureRequest) -> tuple[RankingBlock, NDArray[np.float64]]:
    """Rankings of three components that lie apart, and a start near each."""
    n_items, n_rankings = request.param
    rng = np.random.default_rng(3)
    truth = rng.normal(0, 1.5, (3, n_items))
    block, _ = draw_rankings(truth, np.array([0.5, 0.3, 0.2]), n_rankings, rng)
    return block, truth + rng.normal(0, 0.3, truth.shape)


@pytest.fixture(scope="module")
def best_known(separated: tuple[RankingBlock, NDArray[np.float64]]) -> PlackettLuceMixture:
    block, start = separated
    return PlackettLuceMixture(3, init=start, m_step="lsr", tol=1e-11).fit(block)


@ALL_WAYS
def test_fit__same_point_by_every_way(
    separated: tuple[RankingBlock, NDArray[np.float64]],
    best_known: PlackettLuceMixture,
    m_step: Any,
    em_kind: Any,
    accelerate: bool,
) -> None:
    block, start = separated
    model = PlackettLuceMixture(3, init=start, m_step=m_step, em=em_kind, accelerate=accelerate, max_iter=1_000).fit(
        block
    )
    assert model.converged_
    assert model.m_step_ == m_step
    assert_allclose(model.log_worths_, best_known.log_worths_, atol=1e-5)
    assert_allclose(model.shares_, best_known.shares_, atol=1e-6)
    assert_allclose(model.log_likelihood_ / block.n_rankings, best_known.log_likelihood_ / block.n_rankings, atol=1e-6)


@pytest.mark.slow
def test_fit__no_random_start_ends_higher(
    separated: tuple[RankingBlock, NDArray[np.float64]], best_known: PlackettLuceMixture
) -> None:
    block, _ = separated
    found = PlackettLuceMixture(3, n_init=20, random_state=0, max_iter=2_000).fit(block)
    difference = (found.log_likelihood_ - best_known.log_likelihood_) / block.n_rankings
    assert abs(difference) < 1e-6


@pytest.mark.parametrize("m_step", ["lsr", "mm"])
def test_fit__many_items(m_step: Any) -> None:
    rng = np.random.default_rng(50)
    truth = rng.normal(size=(3, 50))
    block, _ = draw_rankings(truth, np.full(3, 1 / 3), 10_000, rng)
    first, second = (
        PlackettLuceMixture(3, init=start, m_step=m_step).fit(block)
        for start in (truth, truth + rng.normal(0, 0.3, truth.shape))
    )
    assert_allclose(first.log_worths_, second.log_worths_, atol=1e-5)
    assert abs(first.log_likelihood_ - second.log_likelihood_) / 10_000 < 1e-6
    # The maximum is no lower than the truth, which is where the first of the two began.
    assert first.objective_ > first.history_[0]["objective"]
    assert matched_distance(first.log_worths_, truth) < 1.5


# Where components overlap: with fifty items they are so far apart that plain EM is nearly as quick.
@pytest.mark.parametrize("separated", [(10, 5_000)], indirect=True)
def test_fit__acceleration_saves_passes(separated: tuple[RankingBlock, NDArray[np.float64]]) -> None:
    block, start = separated
    plain, fast = (
        PlackettLuceMixture(3, init=start, m_step="mm", accelerate=accelerate).fit(block).n_iter_
        for accelerate in (False, True)
    )
    assert fast * 3 < plain


# --- laws of the data ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weighted_block() -> RankingBlock:
    """Rows of every kind with whole weights, more than fill one leaf."""
    truth = np.random.default_rng(40).normal(0, 2, (2, 6))
    rows = drawn_rows(40, truth, [0.6, 0.4], 5_000)
    return block_of([row._replace(weight=float(1 + number % 3)) for number, row in enumerate(rows)], 6)


def fit_closely(block: RankingBlock, m_step: Any, start: NDArray[np.float64]) -> PlackettLuceMixture:
    return PlackettLuceMixture(2, init=start, m_step=m_step, tol=1e-11, max_iter=2_000).fit(block)


START = np.random.default_rng(41).normal(size=(2, 6))


@pytest.mark.promise(12)
@pytest.mark.parametrize("m_step", ["lsr", "mm"])
def test_laws__weights_rows_and_names(weighted_block: RankingBlock, m_step: Any) -> None:
    assert weighted_block.weights is not None
    rng = np.random.default_rng(42)
    reference = fit_closely(weighted_block, m_step, START)
    copies = weighted_block.take(np.repeat(np.arange(5_000), weighted_block.weights.astype(int)))
    shuffled = weighted_block.take(rng.permutation(5_000))
    for same in (copies.replace(weights=None), shuffled):
        found = fit_closely(same, m_step, START)
        assert_allclose(found.log_worths_, reference.log_worths_, atol=1e-10)
        assert_allclose(found.shares_, reference.shares_, atol=1e-10)
        assert found.log_likelihood_ == pytest.approx(reference.log_likelihood_, rel=1e-12)
    # Item i becomes item new_name[i].
    new_name = rng.permutation(6)
    renamed = weighted_block.replace(items=new_name[weighted_block.items].astype(np.uint8))
    start = np.empty_like(START)
    start[:, new_name] = START
    found = fit_closely(renamed, m_step, start)
    assert_allclose(found.log_worths_[:, new_name], reference.log_worths_, atol=1e-10)


@UNFINISHED
@pytest.mark.parametrize("far", [250.0, 320.0])
def test_fit__an_objective_that_is_not_finite_is_not_taken(far: float) -> None:
    rows = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10 + [[1, 0, 2]] * 10 + [[1, 2, 0]] * 10 + [[0, 2, 1], [2, 0, 1]] * 4
    start = np.array([[far, 0.0, -far], [-far, 0.0, far]])
    model = PlackettLuceMixture(2, alpha=0.1, init=start, random_state=0).fit(np.array(rows))
    assert np.isfinite(model.objective_)
    assert np.isfinite(model._ghosts).all()
    assert all(np.isfinite(record["objective"]) for record in model.history_ if record["taken"])


@pytest.mark.parametrize("m_step", ["lsr", "mm"])
@pytest.mark.parametrize("log_range", [80.0, 250.0, 400.0])
def test_fit__far_start_with_a_prior(m_step: Any, log_range: float) -> None:
    # With a prior there is a maximum whatever the start, and the way there must not end in an error.
    rows = [top(1, 0, 3)] * 20 + [top(0, 2, 1)]
    far = np.array([[0.0, -log_range, 0.1 - log_range, -log_range]])
    found, expected = (
        PlackettLuceMixture(1, init=start, m_step=m_step, max_iter=5_000).fit(block_of(rows, 4))
        for start in (far, np.zeros((1, 4)))
    )
    assert_allclose(found.log_worths_, expected.log_worths_, atol=1e-5)


# --- components that collapse ----------------------------------------------------------------------------


def collapsing(scale: float) -> tuple[RankingBlock, NDArray[np.float64]]:
    """Rankings that agree by and large, and a start whose second component holds the opposite."""
    truth = np.linspace(5, -5, 6)
    block, _ = draw_rankings(truth[None], np.ones(1), 300, np.random.default_rng(8))
    return block, np.array([truth, np.linspace(-scale, scale, 6)])


def test_fixed_shares__stay_and_never_collapse() -> None:
    block, start = collapsing(20.0)
    for accelerate in (True, False):
        model = PlackettLuceMixture(
            2, init=start, shares=[0.9, 0.1], m_step="lsr", accelerate=accelerate, max_iter=2_000
        ).fit(block)
        assert_allclose(model.shares_, [0.9, 0.1], rtol=1e-12)
        assert model.converged_
        assert model.events_ == []


def test_fixed_shares__are_the_shares_of_the_likelihood() -> None:
    rows = random_rows(51, 4, 40)
    model = PlackettLuceMixture(2, shares=[0.8, 0.2], random_state=3, max_iter=2_000).fit(block_of(rows, 4))
    expected = log_likelihood(rows, 4, model.log_worths_, [0.8, 0.2])
    assert model.log_likelihood_ == pytest.approx(expected, rel=1e-11)
    free = PlackettLuceMixture(2, init=model, max_iter=2_000).fit(block_of(rows, 4))
    assert free.objective_ >= model.objective_ - 1e-9
    assert abs(free.shares_[0] - 0.8) > 1e-3


# --- numbers that are not finite -------------------------------------------------------------------------


@pytest.mark.promise(28)
def test_fit__infinite_weight() -> None:
    rows = random_rows(60, 5, 9_000)
    block = block_of(rows, 5)
    weights = np.ones(9_000)
    weights[5_000] = np.inf
    with pytest.raises(RankingError, match=r"row 5000: weight inf is not a number"):
        PlackettLuceMixture(2, random_state=0).fit(block.replace(weights=weights))


@pytest.mark.promise(28)
def test_fit__not_finite_in_a_later_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    n_calls = itertools.count(1)

    def sometimes_nan(*arguments: Any) -> Any:
        found = MM.sums(*arguments)
        if next(n_calls) == 3:
            found.expected_wins[1, 2] = np.nan
        return found

    monkeypatch.setattr(fit, "MM", replace(MM, sums=sometimes_nan))
    with pytest.raises(NonFiniteError) as caught:
        PlackettLuceMixture(2, init="random", random_state=0).fit(block_of(random_rows(61, 5, 30), 5))
    message = str(caught.value)
    assert "leaf 0 (30 rankings)" in message
    assert "component 1" in message
    assert "iteration 3" in message


# --- the end of a fit ------------------------------------------------------------------------------------


@pytest.mark.promise(29)
def test_fit__not_converged() -> None:
    block = block_of(random_rows(70, 5, 50), 5)
    model = PlackettLuceMixture(2, max_iter=4, random_state=0)
    with pytest.warns(NotConvergedWarning, match=r"did not converge in 4 iterations \(gradient .* where 1e-08 was"):
        model.fit(block)
    assert not model.converged_
    assert model.n_iter_ == len(model.history_) == 4
    assert model.gradient_norm_ > 1e-8
    closer = PlackettLuceMixture(2, max_iter=2_000, random_state=0).fit(block)
    assert closer.converged_
    assert closer.gradient_norm_ <= 1e-8
    assert closer.objective_ > model.objective_


def test_history__records() -> None:
    rows = random_rows(71, 5, 60)
    heard: list[dict[str, Any]] = []
    model = PlackettLuceMixture(2, random_state=1, max_iter=1_000, progress=heard.append).fit(block_of(rows, 5))
    assert heard == model.history_
    assert [record["iteration"] for record in heard] == list(range(1, model.n_iter_ + 1))
    assert [record["step"] for record in heard][:2] == ["start", "accelerated"]
    assert heard[0]["change"] is None
    objectives = [record["objective"] for record in heard if record["taken"]]
    changes = [record["change"] for record in heard if record["taken"]][1:]
    assert_allclose(changes, np.diff(objectives), atol=1e-9)
    last = heard[-1]
    assert last["log_likelihood"] == model.log_likelihood_
    assert abs(last["change"]) <= 1e-8 * math.fsum(row.weight for row in rows)
    for record in heard:
        assert record["seconds"] >= record["pass_seconds"] > 0
        assert record["reduce_seconds"] >= 0
        assert record["solve_seconds"] > 0
        assert record["rankings_per_second"] == pytest.approx(60 / record["seconds"])


@pytest.mark.promise(48)
def test_score__the_objective_of_the_best_point_so_far() -> None:
    rows = block_of(drawn_rows(3, np.array([[1.0, 0.5, -0.5, -1.0]]), [1.0], 60), 4)
    passes = ThreadedPasses(as_rankings(rows), n_threads=1)
    em = Em(LSR, 5.0, weight=60.0, n_rankings=60)
    # A strong prior: from the estimate without a prior the likelihood falls while the objective rises.
    state = em.start(Point.start(np.array([[1.2, 0.6, -0.6, -1.2]]), np.ones(1)))
    while not state.iteration.ended:
        state = em.tell(state, passes.run(em.ask(state)))
        highest = max(record["objective"] for record in state.history if record["taken"])
        # Four items, five wins and five losses each against the ghost: the prior is 4 ** -20 at its maximum.
        assert em.score(state) == pytest.approx(highest + 20 * np.log(4), rel=1e-14)
    likelihoods = [record["log_likelihood"] for record in state.history]
    assert likelihoods[-1] < max(likelihoods)


FLAT = Candidate(Point.start(np.zeros((1, 4)), np.ones(1)), {})


@pytest.mark.parametrize(("log_range", "alpha", "refused"), [(299, 0, False), (301, 0, True), (301, 0.1, False)])
def test_em__log_worths_that_diverge(log_range: float, alpha: float, refused: bool) -> None:
    em = Em(LSR, alpha, weight=1.0, n_rankings=1, item_names=("tea", "mate"))
    after = Point.start(np.array([[log_range / 2, -log_range / 2]]), np.ones(1))
    if not refused:
        em.refuse_divergence(FLAT.point, after)
        return
    with pytest.raises(NotIdentifiedError, match=r"component 0 .* diverge .*lowest 'mate' at -15[01], highest 'tea'"):
        em.refuse_divergence(FLAT.point, after)
