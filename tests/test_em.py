"""EM: its objective, its M-step, the laws of the data, and the ways in which a fit can go wrong."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fit_oracle import (
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
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from oracle import write_store
from scipy.optimize import minimize

from plmix_dist import PlackettLuceMixture
from plmix_dist.data import as_rankings
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.errors import (
    CollapsedComponentWarning,
    NonFiniteError,
    NotConvergedWarning,
    NotIdentifiedError,
    RankingError,
    SettingsError,
)
from plmix_dist.inference import Em, Point, collapse
from plmix_dist.inference import fit as fit_module
from plmix_dist.inference.anderson import AndersonMemory, propose
from plmix_dist.inference.collapse import mend_collapsed
from plmix_dist.inference.e_step import em_request
from plmix_dist.inference.existence import check_maximum
from plmix_dist.inference.fit import choose_m_step
from plmix_dist.inference.fixed_point import Evaluation, Iteration, Rules, advance
from plmix_dist.inference.look import Extent
from plmix_dist.inference.settings import FitSettings
from plmix_dist.inference.starts_to_ends import Candidate, run_to_ends
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import LSR, MM, MStep, mm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from plmix_dist.rankings import Ranking, RankingBlock

SOLVERS = pytest.mark.parametrize("solver", [LSR, MM], ids=lambda solver: solver.name)
WAYS = list(itertools.product(["lsr", "mm"], ["fused", "exact"], [True, False]))
ALL_WAYS = pytest.mark.parametrize(
    ("m_step", "em_kind", "accelerate"),
    WAYS,
    ids=[f"{m}-{e}-{'anderson' if a else 'plain'}" for m, e, a in WAYS],
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


def iterate(evaluate: Any, point: Point, **rules: Any) -> tuple[Iteration, list[dict[str, Any]]]:
    """An iteration whose evaluations need no pass over data, to its end, and its records."""
    iteration, records = Iteration.start(point), []
    while iteration.ended is None:
        iteration, record = advance(iteration, evaluate(iteration.point), Rules(weight=1.0, **rules))
        records.append(record)
    return iteration, records


def random_state(seed: int, n_components: int, n_items: int, spread: float = 1.0) -> Point:
    rng = np.random.default_rng(seed)
    worths = rng.normal(0, spread, (n_components, n_items))
    return Point.start(worths, rng.dirichlet(np.full(n_components, 5.0)))._replace(
        ghosts=rng.normal(size=n_components)
    )


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
    comparable = [
        r["objective"] for r in model.history_ if r["taken"] and r["iteration"] > max(drops, default=0)
    ]
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
            objective_at(rows, 4, state.like(state.flat() + sign * step * direction), alpha)
            for sign in (1, -1)
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
    model = PlackettLuceMixture(
        3, init=start, m_step=m_step, em=em_kind, accelerate=accelerate, max_iter=1_000
    ).fit(block)
    assert model.converged_
    assert model.m_step_ == m_step
    assert_allclose(model.log_worths_, best_known.log_worths_, atol=1e-5)
    assert_allclose(model.shares_, best_known.shares_, atol=1e-6)
    assert_allclose(
        model.log_likelihood_ / block.n_rankings, best_known.log_likelihood_ / block.n_rankings, atol=1e-6
    )


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


# --- no maximum-likelihood estimate ----------------------------------------------------------------------

NO_ESTIMATE = {
    "disconnected": (
        [slate([0, 1], []), slate([1, 0], []), slate([2, 3], []), slate([3, 2], [])],
        r"2 groups that are not compared both ways \(not compared both ways with the rest: mate, water\)",
    ),
    "never wins": ([top(0, 1, 3), top(3, 0, 1), top(1, 3, 0)], r"never above another item: mate"),
    "never loses": (
        [slate([2, 0, 1, 3], []), slate([2, 3, 1, 0], []), slate([2, 1, 0, 3], [])],
        r"never below another item: mate",
    ),
    "never on offer": (
        [slate([0, 1, 3], []), slate([3, 1, 0], [])],
        r"never on offer: mate",
    ),
    "one way only": (
        [slate([0, 1], []), slate([1, 0], []), slate([2, 3], []), slate([3, 2], []), slate([0, 2], [])],
        r"not compared both ways with the rest: mate, water",
    ),
}


@pytest.mark.promise(22)
@pytest.mark.parametrize(("rows", "message"), NO_ESTIMATE.values(), ids=NO_ESTIMATE.keys())
@pytest.mark.parametrize("n_components", [1, 2])
def test_fit__no_estimate(tmp_path: Any, rows: list[Ranking], message: str, n_components: int) -> None:
    names = ["tea", "coffee", "mate", "water"]
    store = write_store(tmp_path / "store", [[block_of(rows, 4)]], item_names=names)
    with pytest.raises(
        NotIdentifiedError, match=f"no maximum-likelihood estimate exists: .*{message}"
    ) as caught:
        PlackettLuceMixture(n_components, alpha=0).fit(store)
    assert "Choose alpha > 0, or leave these items out" in str(caught.value)
    # The remedy is one.
    assert PlackettLuceMixture(1, alpha=0.1).fit(store).converged_


def test_fit__rows_of_weight_zero_connect_nothing() -> None:
    rankings = np.array([[0, 1], [1, 0], [0, 1]])
    PlackettLuceMixture(1, alpha=0).fit(rankings)
    with pytest.raises(NotIdentifiedError, match="never above another item: 1; never below another item: 0"):
        PlackettLuceMixture(1, alpha=0).fit(rankings, sample_weight=[1, 0, 1])


@pytest.mark.promise(22)
@pytest.mark.parametrize("m_step", ["lsr", "mm"])
@pytest.mark.parametrize("accelerate", [True, False], ids=["anderson", "plain"])
@pytest.mark.parametrize("spread", [3.0, 300.0])
def test_fit__component_without_estimate(m_step: Any, accelerate: bool, spread: float) -> None:
    # All items are connected, but each component takes all rows of one order, and in these items never lose.
    rankings = np.array([[0, 1, 2]] * 5 + [[2, 1, 0]] * 5)
    start = spread / 2 * np.array([[1.0, 0.0, -1.0], [-1.0, 0.0, 1.0]])
    model = PlackettLuceMixture(2, alpha=0, init=start, m_step=m_step, accelerate=accelerate, max_iter=3_000)
    with pytest.raises(
        NotIdentifiedError, match=r"component [01] has no maximum-likelihood estimate"
    ) as caught:
        model.fit(rankings)
    message = str(caught.value)
    assert "Choose alpha > 0, or fewer components" in message
    assert "'0'" in message
    assert "'2'" in message
    assert "nan" not in message


@pytest.mark.promise(22)
@UNFINISHED
@pytest.mark.parametrize("seed", range(4))
def test_fit__no_maximum_although_gradients_vanish(seed: int) -> None:
    # Few top-5 rankings of 20 items: some component's rankings never name some item. Its log-worth falls without end,
    # slower and slower, until the gradient is as small as is asked for.
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(3, 20))
    block, _ = draw_rankings(truth, np.full(3, 1 / 3), 100, rng, length=5, unranked="below")
    with pytest.raises(
        NotIdentifiedError, match=r"component \d has no maximum-likelihood estimate"
    ) as caught:
        PlackettLuceMixture(3, alpha=0, random_state=0, max_iter=1_000).fit(block)
    assert "Choose alpha > 0, or fewer components" in str(caught.value)
    assert PlackettLuceMixture(3, alpha=0.1, random_state=0).fit(block).objective_ < 0


@UNFINISHED
@pytest.mark.parametrize("seed", [0, 1])
def test_fit__that_has_not_converged_is_not_refused(seed: int) -> None:
    # Item 9 wins 3 times of 10,000: there is a maximum, far from where the fit begins.
    rng = np.random.default_rng(seed)
    rows = np.array([[*rng.permutation(9), 9] for _ in range(10_000)])
    rows[:3] = np.roll(rows[:3], 1, axis=1)
    short = PlackettLuceMixture(1, alpha=0, random_state=0, max_iter=1).fit(rows)
    assert not short.converged_
    assert PlackettLuceMixture(1, alpha=0, random_state=0).fit(rows).converged_


@pytest.mark.promise(22)
@pytest.mark.parametrize("n_without", [0, 1, 2])
def test_fit__a_start_without_a_maximum_makes_way(monkeypatch: pytest.MonkeyPatch, n_without: int) -> None:
    rows = random_rows(3, 4, 40)
    passes = ThreadedPasses(as_rankings(block_of(rows, 4)))
    em = Em(MM, 0.1, weight=math.fsum(row.weight for row in rows), n_rankings=40, max_iter=4_000, tol=1e-7)
    ends = run_to_ends(passes, em, [Candidate(random_state(seed, 3, 4), {}) for seed in range(2)])
    order = sorted(ends.runs, key=lambda number: -(ends.runs[number].objective or 0.0))
    without = [ends.runs[number].point for number in order[:n_without]]

    def check(passes: Any, point: Point, names: Any) -> None:
        if any(point is refused for refused in without):
            raise NotIdentifiedError("no maximum")

    monkeypatch.setattr(fit_module, "check_maximum", check)
    if n_without == 2:
        with pytest.raises(NotIdentifiedError, match="no maximum"):
            fit_module.with_maximum(passes, ends, ["a"] * 4)
        return
    kept = fit_module.with_maximum(passes, ends, ["a"] * 4)
    assert sorted(kept.failed) == sorted(order[:n_without])
    assert fit_module.best_of(kept) == order[n_without]


@UNFINISHED
@pytest.mark.parametrize("far", [250.0, 320.0])
def test_fit__an_objective_that_is_not_finite_is_not_taken(far: float) -> None:
    rows = (
        [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10 + [[1, 0, 2]] * 10 + [[1, 2, 0]] * 10 + [[0, 2, 1], [2, 0, 1]] * 4
    )
    start = np.array([[far, 0.0, -far], [-far, 0.0, far]])
    model = PlackettLuceMixture(2, alpha=0.1, init=start, random_state=0).fit(np.array(rows))
    assert np.isfinite(model.objective_)
    assert np.isfinite(model._ghosts).all()
    assert all(np.isfinite(record["objective"]) for record in model.history_ if record["taken"])


def test_check_maximum__by_the_likelihood_itself() -> None:
    rows = [*random_rows(3, 4, 40), slate([0, 1, 2, 3], []), slate([3, 2, 1, 0], [])]
    passes = ThreadedPasses(as_rankings(block_of(rows, 4)))
    names = ["tea", "coffee", "mate", "water"]
    fitted = PlackettLuceMixture(1, alpha=0, tol=1e-10).fit(block_of(rows, 4))
    there = Point.start(fitted.log_worths_, np.ones(1))
    check_maximum(passes, there, names)
    # A second component that holds one ranking alone: its last item may fall for ever, and the likelihood says so.
    apart = Point.start(np.vstack([fitted.log_worths_, [[40.0, 13.0, -13.0, -40.0]]]), np.array([0.98, 0.02]))
    with pytest.raises(NotIdentifiedError, match=r"component 1 has no .* log-worths of water"):
        check_maximum(passes, apart, names)
    before, after = (
        log_likelihood(rows, 4, apart.log_worths - shift, [0.98, 0.02])
        for shift in (np.zeros((2, 4)), np.array([[0.0] * 4, [0, 0, 0, 20.0]]))
    )
    assert after >= before - 1e-9


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


@pytest.mark.promise(23)
@pytest.mark.parametrize("m_step", ["lsr", "mm"])
@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("scale", [20.0, 140.0], ids=["next to nothing", "nothing"])
@UNFINISHED
def test_collapse__seeded_anew(m_step: Any, accelerate: bool, scale: float) -> None:
    block, start = collapsing(scale)
    model = PlackettLuceMixture(
        2, init=start, m_step=m_step, accelerate=accelerate, max_iter=60, random_state=5
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(block)
    collapsed = [str(each.message) for each in said if each.category is CollapsedComponentWarning]
    if len(model.shares_) == 2:
        assert not collapsed
    else:
        (message,) = collapsed
        assert "lost all their rankings (3 seeded again, 1 dropped): 1 of 2 components" in message
    assert model.events_[0] == {"iteration": 2, "component": 1, "action": "reseed"}
    assert np.isfinite(model.log_worths_).all()
    assert_allclose(model.shares_.sum(), 1.0)
    assert len(model.shares_) == 2 or model.events_[-1]["action"] == "drop"
    assert np.isfinite([record["objective"] for record in model.history_]).all()


@pytest.mark.promise(23)
def test_collapse__dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collapse, "_MOST_RESEEDS", 0)
    block, start = collapsing(20.0)
    model = PlackettLuceMixture(2, init=start)
    with pytest.warns(CollapsedComponentWarning, match=r"\(1 dropped\): 1 of 2 components are left"):
        model.fit(block)
    assert model.events_ == [{"iteration": 2, "component": 1, "action": "drop"}]
    assert model.shares_.tolist() == [1.0]
    alone = PlackettLuceMixture(1).fit(block)
    assert_allclose(model.log_worths_, alone.log_worths_, atol=1e-5)
    assert model.predict_proba(block).shape == (300, 1)


@pytest.mark.promise(26)
@pytest.mark.parametrize("max_iter", [22, 23, 30, 60])
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.CollapsedComponentWarning")
@UNFINISHED
def test_collapse__the_best_point_is_returned(max_iter: int) -> None:
    # Nearly one ranking and three components: after one is seeded again, the objective is lower for a while.
    rows = [slate([2, 0, 1], []), slate([2, 1, 0], [], weight=1e-9), slate([0, 2, 1], [], weight=1e-9)]
    model = PlackettLuceMixture(3, init="random", alpha=0.1, max_iter=max_iter, random_state=0)
    model.fit(block_of(rows, 3))
    drops = [event["iteration"] for event in model.events_ if event["action"] == "drop"]

    def comparable(reached: float, n_components: int) -> float:
        # Log-priors from their maximum: three items, 0.1 wins and losses each at even odds.
        return reached + n_components * 3 * 0.1 * math.log(4)

    taken = [
        comparable(r["objective"], 3 - sum(r["iteration"] > drop for drop in drops))
        for r in model.history_
        if r["taken"]
    ]
    assert comparable(model.objective_, len(model.shares_)) == pytest.approx(max(taken), rel=1e-9)
    expected = objective(rows, 3, model.log_worths_, model._ghosts.tolist(), model.shares_.tolist(), 0.1)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)


def test_mend_collapsed__policy() -> None:
    worths = np.random.default_rng(0).normal(size=(3, 4))
    point = Point.start(worths, np.array([0.25, 1e-9, 0.75 - 1e-9]))
    events: list[dict[str, Any]] = []
    seeded = []
    for _ in range(3):
        mended = mend_collapsed(point, events, 7, (1, 0))
        assert mended is not None
        events.append(mended.event)
        # It takes half of the largest component and starts near it; the others stay.
        assert_allclose(np.exp(mended.point.log_shares), [0.25, 0.375, 0.375], atol=1e-8)
        assert_allclose(mended.point.log_worths[[0, 2]], point.log_worths[[0, 2]])
        assert 0 < np.abs(mended.point.log_worths[1] - point.log_worths[2]).max() < 6
        seeded.append(mended.point.log_worths[1].tolist())
    dropped = mend_collapsed(point, events, 7, (1, 0))
    assert dropped is not None
    events.append(dropped.event)
    assert_allclose(np.exp(dropped.point.log_shares), [0.25, 0.75], atol=1e-8)
    assert_allclose(dropped.point.log_worths, point.log_worths[[0, 2]])
    assert [event["action"] for event in events] == ["reseed"] * 3 + ["drop"]
    assert mend_collapsed(dropped.point, events, 8, (1, 0)) is None
    # Every reseed draws anew, other seeds and other starts differently, the same ones the same.
    others = [mend_collapsed(point, [], 7, key) for key in ((2, 0), (1, 1), (1, 0))]
    drawn = [other.point.log_worths[1].tolist() for other in others if other is not None]
    assert len({tuple(values) for values in (*seeded, *drawn)}) == 5
    assert drawn[2] == seeded[0]


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
    kernel, n_calls = mm.em_statistics, itertools.count(1)

    def sometimes_nan(*arguments: Any, **options: Any) -> Any:
        found = kernel(*arguments, **options)
        if next(n_calls) == 3:
            found.expected_wins[1, 2] = np.nan
        return found

    monkeypatch.setattr(mm, "em_statistics", sometimes_nan)
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
    with pytest.warns(
        NotConvergedWarning, match=r"did not converge in 4 iterations \(gradient .* where 1e-08 was"
    ):
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
    model = PlackettLuceMixture(2, random_state=1, max_iter=1_000, progress=heard.append).fit(
        block_of(rows, 5)
    )
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


# --- the loop without data -------------------------------------------------------------------------------


def hill(point: Point, *, next_factor: float, safe_factor: float, top_at: float = 0.0) -> Evaluation:
    """-x ** 2 of one number, a step that multiplies it and a safe step that does too."""
    x = float(point.ghosts[0]) - top_at
    moved = [point._replace(ghosts=np.array([top_at + x * factor])) for factor in (next_factor, safe_factor)]
    slopes, scale = np.array([0.0, 0.0, -2 * x, 0.0]), np.array([0.0, 0.0, 2.0, 0.0])
    return Evaluation(-(x**2), abs(2 * x), slopes, scale, moved[0], moved[1], {})


AT_ONE = Point(np.zeros((1, 2)), np.ones(1), np.zeros(1))


def test_iterate__goes_back_where_the_objective_falls() -> None:
    ended, records = iterate(
        partial(hill, next_factor=-3.0, safe_factor=0.5), AT_ONE, tol=1e-6, max_iter=200, accelerate=False
    )
    # Every plain step trebles the distance and is not taken; the safe step from where it began halves it.
    assert [(record["step"], record["taken"]) for record in records[:5]] == [
        ("start", True),
        ("plain", False),
        ("safe", True),
        ("plain", False),
        ("safe", True),
    ]
    assert ended.ended == "converged"
    assert abs(ended.best.point.ghosts[0]) < 1e-6
    assert ended.n_evaluations == len(records)


def test_iterate__ends_where_even_the_safe_step_falls() -> None:
    ended, _ = iterate(partial(hill, next_factor=-3.0, safe_factor=-2.0), AT_ONE, tol=1e-6, max_iter=50)
    assert (ended.ended, ended.n_evaluations) == ("stalled", 3)
    assert ended.best.point is AT_ONE


def test_iterate__small_steps_are_no_convergence() -> None:
    # The objective hardly moves, far from the top: only the gradient tells.
    creeping = partial(hill, next_factor=1 - 1e-9, safe_factor=1 - 1e-9)
    ended, _ = iterate(creeping, AT_ONE, tol=1e-6, max_iter=20, accelerate=False)
    assert (ended.ended, ended.n_evaluations) == ("exhausted", 20)


def test_iterate__accelerated() -> None:
    ended, _ = iterate(
        partial(hill, next_factor=0.9, safe_factor=0.9, top_at=4.0), AT_ONE, tol=1e-8, max_iter=10
    )
    assert ended.ended == "converged"
    assert ended.best.point.ghosts[0] == pytest.approx(4.0, abs=1e-8)


def test_iterate__interrupted() -> None:
    ended, _ = iterate(
        partial(hill, next_factor=0.5, safe_factor=0.5),
        AT_ONE,
        tol=1e-9,
        max_iter=50,
        accelerate=False,
        interrupt=lambda point: bool(point.ghosts[0] < 0.2),
    )
    assert (ended.ended, float(ended.best.point.ghosts[0])) == ("interrupted", 0.125)


def test_iterate__without_an_objective_every_step_is_taken() -> None:
    def halving(point: Point) -> Evaluation:
        there = point._replace(ghosts=point.ghosts / 2)
        return Evaluation(None, float(point.ghosts[0]) / 2, None, None, there, None, {})

    ended, records = iterate(halving, AT_ONE, tol=1e-3, max_iter=50)
    assert ended.ended == "converged"
    assert {record["step"] for record in records} == {"start", "plain"}
    assert all(record["taken"] and record["objective"] is None for record in records)
    assert records[-1]["largest_change"] <= 1e-3 < records[-2]["largest_change"]
    assert "gradient" not in records[0]


def test_iterate__a_refusal_forgets_what_acceleration_has_learnt() -> None:
    wild = partial(hill, next_factor=-3.0, safe_factor=0.5)
    iteration = Iteration.start(AT_ONE)
    rules = Rules(tol=1e-6, max_iter=50, weight=1.0)
    for _ in range(2):
        iteration, record = advance(iteration, wild(iteration.point), rules)
    assert not record["taken"]
    assert len(iteration.anderson.points) == 0
    # From the safe point on it goes like an iteration that begins there.
    fresh = Iteration.start(iteration.point)
    iteration, _ = advance(iteration, wild(iteration.point), rules)
    fresh, _ = advance(fresh, wild(fresh.point), rules)
    assert iteration.point.flat().tolist() == fresh.point.flat().tolist()


def test_anderson__solves_linear_maps() -> None:
    rng = np.random.default_rng(0)
    contraction = rng.normal(size=(4, 4))
    contraction *= 0.95 / np.abs(np.linalg.eigvals(contraction)).max()
    origin = rng.normal(size=4)
    exact = np.linalg.solve(np.eye(4) - contraction, origin)
    memory, point = AndersonMemory.empty(4), np.zeros(4)
    for _ in range(8):  # four differences span the space: then the answer is there, but for rounding
        memory, point = propose(memory, point, contraction @ point + origin)
    assert_allclose(point, exact, rtol=1e-8)


def test_anderson__image_that_is_not_finite() -> None:
    # The share of a component may vanish altogether: its logarithm is then minus infinity.
    memory, _ = propose(AndersonMemory.empty(2), np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    image = np.array([-np.inf, 0.25])
    memory, proposal = propose(memory, np.array([0.5, 0.5]), image)
    assert np.array_equal(proposal, image)
    assert len(memory.points) == 0


def test_point__flat_and_back() -> None:
    state = random_state(0, 3, 4)
    back = state.like(state.flat())
    for mine, theirs in zip(state, back, strict=True):
        assert_allclose(mine, theirs, atol=1e-15)
    moved = state.like(state.flat() + 2.0)
    assert_allclose(moved.log_worths, state.log_worths, atol=1e-14)
    assert_allclose(moved.ghosts, state.ghosts, atol=1e-14)
    assert_allclose(np.exp(moved.log_shares).sum(), 1.0)


# --- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_items", "length", "unranked", "expected"),
    [(40, 3, "absent", "lsr"), (40, 3, "below", "mm"), (40, 30, "absent", "mm"), (8, None, None, "mm")],
)
def test_m_step__auto(n_items: int, length: int, unranked: Any, expected: str) -> None:
    rng = np.random.default_rng(0)
    block, _ = draw_rankings(
        rng.normal(size=(1, n_items)), np.ones(1), 600, rng, length=length, unranked=unranked
    )
    assert PlackettLuceMixture(1).fit(block).m_step_ == expected


def test_m_step__rates_that_no_worker_can_hold() -> None:
    extent = Extent(10.0, 10, 20, 0)
    with pytest.raises(
        SettingsError, match=r"m_step='lsr' sums 2 x 10000 x 10000 numbers.*choose m_step=\"mm\""
    ):
        choose_m_step(FitSettings(2, m_step="lsr"), extent, 10_000)
    assert choose_m_step(FitSettings(2, m_step="auto"), extent, 10_000) is MM
    assert choose_m_step(FitSettings(2, m_step="auto"), extent, 1_000) is LSR
