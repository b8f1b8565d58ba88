"""Newton's steps: when they are taken, damped and given up, and the fits that take them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from plmix_dist import PlackettLuceMixture, simulate
from plmix_dist.errors import CollapsedComponentWarning
from plmix_dist.fitting import newton
from plmix_dist.fitting import point as points
from plmix_dist.fitting import search as sample_fits
from plmix_dist.fitting.em import Em
from plmix_dist.fitting.fixed_point import Evaluation
from plmix_dist.fitting.hessian import _NewtonStep
from plmix_dist.fitting.newton import Hessian, Newton, NewtonState
from plmix_dist.fitting.point import Point
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import LSR, MM
from plmix_dist.store import RankingStore
from plmix_dist.store.mixture import MixtureParams
from tests.helpers.fit_oracle import block_of, drawn_rows
from tests.helpers.oracle import write_store

Matrix = NDArray[np.float64]


def some_hessian(observed: Matrix, complete: Matrix, doubt: float = 0.0) -> Hessian:
    scale = np.maximum(np.diag(complete), 0.0)
    return Hessian(observed, complete, np.ones(len(observed), bool), 100.0, doubt, scale)


# --- when a step is taken --------------------------------------------------------------------------------


HERE = Point.start(np.zeros((1, 2)), np.ones(1))


class ProbedHessian:
    """A source of Hessians that notes how often it was asked, and what damping its steps were asked with."""

    def __init__(self, *, has_steps: bool = True) -> None:
        self.n_looks = 0
        self.dampings: list[float] = []
        self.has_steps = has_steps

    def suits(self, point: Point) -> bool:
        return True

    def at(self, point: Point) -> Hessian:
        self.n_looks += 1
        return SOME

    def step(self, hessian: Hessian, point: Point, evaluation: Any, damping: float) -> Any:
        self.dampings.append(damping)
        return _NewtonStep(point, damping, 0.0) if self.has_steps else None


SOME = some_hessian(np.eye(4), np.eye(4))


def refused(newton: Newton, state: NewtonState) -> tuple[NewtonState, Point | None]:
    return newton.refuse(state, HERE, evaluation(), HERE, evaluation())


class Stepper:
    """Newton with its state, so that a test reads like a fit."""

    def __init__(self, sample: ProbedHessian, after: int = 0, hessian: Hessian | None = None) -> None:
        self.newton = Newton(sample, after)  # type: ignore[arg-type]
        self.state: NewtonState = self.newton.start(hessian)

    def propose(self, evaluation: Evaluation) -> Point | None:
        self.state, found = self.newton.propose(self.state, HERE, evaluation)
        return found

    def refuse(self) -> None:
        self.state, _ = refused(self.newton, self.state)


def evaluation(residual: float = 1.0, objective: float = 0.0, gradient: float = 0.0) -> Evaluation:
    return Evaluation(objective, residual, np.full(4, gradient), np.ones(4), HERE, HERE, {})


def falling() -> Iterator[Evaluation]:
    """Gradients that fall tenfold at every step, as Newton's do."""
    return (evaluation(10.0**-power) for power in itertools.count())


def test_newton__waits_until_em_came_near() -> None:
    sample = ProbedHessian()
    newton, gradients = Stepper(sample, after=3), falling()
    proposals = [newton.propose(next(gradients)) for _ in range(6)]
    assert [proposal is None for proposal in proposals] == [True] * 3 + [False] * 3
    assert sample.n_looks == 1


def test_newton__uses_what_a_sample_has_shown() -> None:
    sample = ProbedHessian()
    newton = Stepper(sample, 5, SOME)
    assert newton.propose(evaluation()) is HERE
    assert sample.n_looks == 0
    assert not newton.state.is_new


def test_newton__damps_after_a_refusal_and_dares_more_later() -> None:
    sample = ProbedHessian()
    newton, gradients = Stepper(sample), falling()
    newton.propose(next(gradients))
    newton.refuse()
    assert newton.state.is_new  # what was learnt of the last map no longer holds
    for _ in range(3):
        newton.propose(next(gradients))
    assert_allclose(sample.dampings, [0.0, 0.1, 0.1 / 4, 0.1 / 16])
    newton.refuse()
    newton.propose(next(gradients))
    assert sample.dampings[-1] == pytest.approx(0.1)


def test_newton__damps_more_after_every_refusal() -> None:
    sample = ProbedHessian()
    newton, gradients = Stepper(sample), falling()
    for _ in range(2):
        newton.propose(next(gradients))
        newton.refuse()
    newton.propose(next(gradients))
    assert_allclose(sample.dampings, [0.0, 0.1, 0.4])


def test_newton__rests_after_failures() -> None:
    sample = ProbedHessian()
    newton, gradients = Stepper(sample), falling()
    for _ in range(3):
        assert newton.propose(next(gradients)) is HERE
        newton.refuse()
    assert newton.state.hessian is None
    proposals = [newton.propose(next(gradients)) for _ in range(11)]
    assert [proposal is None for proposal in proposals] == [True] * 10 + [False]
    # Then it begins afresh: the Hessian as it is there, and a whole step.
    assert sample.n_looks == 2
    assert sample.dampings[-1] == 0.0


def test_newton__failures_that_successes_came_between_are_no_reason_to_rest() -> None:
    newton, gradients = Stepper(ProbedHessian()), falling()
    for _ in range(3):
        newton.propose(next(gradients))
        newton.refuse()
        newton.propose(next(gradients))  # from the safe point
        newton.propose(next(gradients))  # the last was good
    assert newton.state.hessian is not None


def test_newton__refusals_of_steps_that_were_not_its_own() -> None:
    sample = ProbedHessian()
    newton = Stepper(sample, after=2)
    for _ in range(2):
        newton.propose(evaluation())
        newton.refuse()
    newton.propose(evaluation())
    assert sample.dampings == [0.0]


def test_newton__rests_where_there_is_no_step() -> None:
    sample = ProbedHessian(has_steps=False)
    newton = Stepper(sample)
    assert [newton.propose(evaluation()) for _ in range(12)] == [None] * 12
    assert sample.n_looks == 2


def test_newton__looks_again_when_gradients_do_not_fall() -> None:
    sample = ProbedHessian()
    newton, looks = Stepper(sample), []
    for _ in range(7):
        newton.propose(evaluation(1.0))
        looks.append((sample.n_looks, newton.state.is_new))
    assert looks == [(1, True), (1, False), (1, False), (2, True), (2, False), (2, False), (3, True)]
    gradients, sample = falling(), ProbedHessian()
    newton = Stepper(sample)
    for _ in range(20):
        newton.propose(next(gradients))
    assert sample.n_looks == 1


def test_newton__rests_where_steps_gain_less_than_em_promises() -> None:
    # Four derivatives of 0.1 with second derivatives of at most 1: EM's own step gains 4 * 0.1**2 / 2 = 0.02.
    newton = Stepper(ProbedHessian())
    gains = [0.021, 0.021, 0.019, 0.019, 0.021, 0.019, 0.019, 0.019]
    proposals, objective = [newton.propose(evaluation(1.0, -9.0, 0.1))], -9.0
    for gain in gains:
        objective += gain
        proposals.append(newton.propose(evaluation(1.0, objective, 0.1)))
    assert [proposal is None for proposal in proposals] == [False] * 8 + [True]
    assert newton.state.wait == 10
    # Gains within rounding of the objective are not held against it.
    newton, proposals = Stepper(ProbedHessian()), []
    for _ in range(9):
        proposals.append(newton.propose(evaluation(1.0, -9.0, 1e-7)))
    assert None not in proposals


# --- whole fits ------------------------------------------------------------------------------------------


def overlapping(kind: str, n_rows: int = 1_500, n_components: int = 2) -> tuple[RankingBlock, Matrix]:
    """Rankings of groups that differ in part, so that EM takes many steps, and a start."""
    rng = np.random.default_rng(12)
    truth = np.zeros((n_components, 6)) + rng.normal(0, 0.5, 6)
    truth[:, :4] += 1.4 * rng.normal(size=(n_components, 4))
    shares = np.arange(n_components, 0, -1) / np.arange(n_components + 1).sum()
    if kind == "mixed":
        return block_of(drawn_rows(4, truth, shares.tolist(), n_rows), 6), truth
    length, unranked = {"full": (None, None), "top": (4, "below"), "subset": (5, "absent")}[kind]
    block, _ = draw_rankings(truth, shares, n_rows, rng, length=length, unranked=unranked)  # type: ignore[arg-type]
    if kind == "full":
        return block.replace(weights=rng.uniform(0.5, 3.0, n_rows)), truth
    return block, truth


def steps_of(model: PlackettLuceMixture) -> list[str]:
    return [record["step"] for record in model.history_]


@pytest.mark.parametrize("kind", ["full", "top", "subset", "mixed"])
@pytest.mark.parametrize("m_step", ["lsr", "mm"])
@pytest.mark.parametrize(
    ("alpha", "shares"),
    [(0.1, None), (0.0, None), (5.0, None), (0.1, [0.7, 0.3])],
    ids=["prior", "no prior", "strong prior", "fixed shares"],
)
def test_fit__ends_where_plain_em_ends(kind: str, m_step: Any, alpha: float, shares: Any) -> None:
    block, start = overlapping(kind)
    newton, plain = (
        PlackettLuceMixture(
            2,
            m_step=m_step,
            alpha=alpha,
            shares=shares,
            init=start + 0.3,
            tol=1e-10,
            max_iter=6_000,
            accelerate=accelerate,
        ).fit(block)
        for accelerate in (True, False)
    )
    assert newton.converged_
    assert plain.converged_
    assert "newton" in steps_of(newton)
    assert not {"newton", "accelerated"} & set(steps_of(plain))
    assert newton.n_iter_ < plain.n_iter_
    assert_allclose(newton.log_worths_, plain.log_worths_, atol=1e-6)
    assert_allclose(newton.shares_, plain.shares_, atol=1e-6)
    taken = [record["objective"] for record in newton.history_ if record["taken"]]
    assert (np.diff(taken) >= -1e-12 * abs(taken[-1])).all()


def test_fit__newton_on_relabelled_items() -> None:
    block, start = overlapping("full")
    order = np.array([3, 5, 0, 1, 4, 2])  # the new number of each item
    renamed = block.replace(items=order[block.items].astype(block.items.dtype))
    back = np.argsort(order)
    models = [
        PlackettLuceMixture(2, init=worths, tol=1e-10).fit(data)
        for data, worths in ((block, start), (renamed, start[:, back]))
    ]
    assert all("newton" in steps_of(model) for model in models)
    assert_allclose(models[1].log_worths_[:, order], models[0].log_worths_, atol=1e-7)
    assert_allclose(models[1].shares_, models[0].shares_, atol=1e-7)


def test_fit__component_dropped_while_newton_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # Curvature of three components must not be used for the two that are left.
    monkeypatch.setattr(points, "_MOST_RESEEDS", 0)
    monkeypatch.setattr("plmix_dist.fitting.fit.NEWTON_AFTER", 0)
    monkeypatch.setattr("plmix_dist.fitting.newton._PAUSE", 0)
    block, truth = overlapping("full")
    # A component so small and so wrong that it vanishes within a few steps.
    start = MixtureParams.of(
        np.concatenate([truth, -truth[:1]]), np.array([0.6, 0.4 - 1e-5, 1e-5]), [str(item) for item in range(6)]
    )
    model = PlackettLuceMixture(3, init=start, max_iter=2_000)
    with pytest.warns(CollapsedComponentWarning, match="dropped"):
        model.fit(block)
    assert len(model.shares_) == 2
    (event,) = model.events_
    steps = steps_of(model)
    assert "newton" in steps[: event["iteration"]]
    assert "newton" in steps[event["iteration"] :]
    alone = PlackettLuceMixture(2, init=truth).fit(block)
    assert model.objective_ == pytest.approx(alone.objective_, rel=1e-10)
    assert_allclose(model.log_worths_, alone.log_worths_, atol=1e-5)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RankingStore:
    block, _ = overlapping("full", 20_000, 3)
    path = tmp_path_factory.mktemp("curvature") / "store"
    return write_store(path, [[block[:9_000]], [block[9_000:]]], leaf_rows=1_000, chunk_bytes=1 << 16)


def way_of(store: RankingStore, client: Client | None) -> list[Any]:
    """All bits of a fit with Newton's steps, and of the way it took."""
    model = PlackettLuceMixture(3, init="random", random_state=0).fit(store, client=client)
    assert steps_of(model).count("newton") > 1
    records = [(record["step"], record["objective"].hex()) for record in model.history_]
    return [*records, model.log_worths_.tobytes(), model.shares_.tobytes(), model._ghosts.tobytes()]


@pytest.mark.promise(10)
def test_same_bits__newton_with_one_and_two_workers(store: RankingStore, client: Client) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as one_worker,
    ):
        alone = way_of(store, one_worker)
    assert way_of(store, client) == alone
    assert way_of(store, None) == alone


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("alpha", [0.1, 1e-4])
def test_fit__an_item_that_always_wins_takes_newton_steps(seed: int, alpha: float) -> None:
    # Its information is far below its expected wins; that must not pass for an item that the sample has not seen.
    rng = np.random.default_rng(seed)
    rows = np.array([[0, *(1 + rng.permutation(5))] for _ in range(2000)])
    model = PlackettLuceMixture(1, alpha=alpha, random_state=0).fit(rows)
    assert model.converged_
    assert model.n_iter_ <= 60


def test_with_newton__only_where_it_is_wanted() -> None:
    block, _ = overlapping("full", 10)
    em = Em(MM, 0.1, weight=10.0, n_rankings=10)
    assert isinstance(sample_fits.with_newton(em, block, 3).newton, Newton)
    for other in (replace(em, accelerate=False), replace(em, kind="exact"), replace(em, m_step=NO_OBJECTIVE)):
        assert sample_fits.with_newton(other, block, 3).newton is None


NO_OBJECTIVE = replace(LSR, objective=None)


@pytest.mark.slow
@pytest.mark.parametrize("n_rankings", [1_000_000, 2_000_000])
def test_fit__items_that_hardly_win_do_not_stop_newton(tmp_path: Any, n_rankings: int) -> None:
    # One component's rare items won nothing in the sample: their coordinates got no step, and fits took 66 passes
    # (2,000,000 rankings) or did not end at all (1,000,000).
    store = simulate(
        tmp_path / "store",
        n_rankings=n_rankings,
        n_items=100,
        n_components=4,
        length=3,
        unranked="below",
        random_state=1,
    )
    model = PlackettLuceMixture(4, random_state=0).fit(store)
    assert model.converged_
    assert model.n_iter_ <= 20


SOME_HESSIAN: Any = SimpleNamespace(cheap=False)  # a Hessian; the rules ask no more of it


class Steps:
    """A source of Hessians whose steps take the damping that is asked for, or a given one."""

    def __init__(self, damping: float | None = None) -> None:
        self.asked: list[float] = []
        self.damping = damping

    def suits(self, point: Point) -> bool:
        return True

    def at(self, point: Point) -> Any:
        return SOME_HESSIAN

    def step(self, hessian: Any, point: Point, evaluation: Any, damping: float) -> _NewtonStep:
        self.asked.append(damping)
        return _NewtonStep(point, damping if self.damping is None else self.damping, 0.0)


def rules(sample: Any = None) -> Newton:
    return Newton(sample or Steps(), after=10)


@pytest.mark.parametrize(
    ("gradients", "stale"),
    [
        ((1.0, 0.9, 0.8, 0.11), True),
        ((1.0, 0.9, 0.8, 0.09), False),
        ((5.0, 1.0, 0.9, 0.8, 0.11), True),
        ((1.0, 0.9, 0.8), False),
    ],
)
def test_hessian__is_stale_unless_gradients_fall_tenfold_in_three_steps(
    gradients: tuple[float, ...], stale: bool
) -> None:
    assert newton._is_stale(NewtonState(SOME_HESSIAN, wait=0, gradients=gradients)) is stale


def test_rest__ten_iterations_then_a_new_hessian() -> None:
    sample = Steps()
    state = rules(sample).rest(NewtonState(SOME_HESSIAN, wait=0, damping=3.0, n_failures=2))
    assert (state.hessian, state.wait, state.is_new, state.damping) == (None, 10, True, 0.0)
    proposals = []
    for _ in range(12):
        state, found = rules(sample).propose(state, HERE, evaluation())
        proposals.append(found is not None)
    assert proposals == [False] * 10 + [True] * 2


@pytest.mark.parametrize(("damping", "after"), [(0.0, 0.1), (0.005, 0.1), (0.01, 0.16), (1.0, 16.0)])
def test_refusal__damps_sixteenfold_and_at_least_a_tenth(damping: float, after: float) -> None:
    state, _ = refused(rules(), NewtonState(SOME_HESSIAN, wait=0, damping=damping))
    assert state.damping == pytest.approx(after)
    assert (state.was_refused, state.n_failures, state.is_new) == (True, 1, True)


@pytest.mark.parametrize(("n_failures", "rests"), [(0, False), (1, False), (2, True)])
def test_refusal__the_third_in_a_row_gives_up(n_failures: int, rests: bool) -> None:
    state, _ = refused(rules(), NewtonState(SOME_HESSIAN, wait=0, n_failures=n_failures))
    assert (state.hessian is None) is rests
    assert state.wait == (10 if rests else 0)


def test_refusal__of_a_step_that_was_not_newtons() -> None:
    waiting, without = NewtonState(SOME_HESSIAN, wait=3), NewtonState(None, wait=0)
    assert refused(rules(), waiting)[0] is waiting
    assert refused(rules(), without)[0] is without


def test_success__damps_a_quarter_as_much() -> None:
    sample = Steps()
    state = NewtonState(SOME_HESSIAN, wait=0, damping=16.0)
    for _ in range(3):
        state, _ = rules(sample).propose(state, HERE, evaluation())
    assert sample.asked == [16.0, 4.0, 1.0]
    # What the step took counts, not what was asked for.
    state, _ = rules(Steps(damping=8.0)).propose(NewtonState(SOME_HESSIAN, wait=0), HERE, evaluation())
    assert state.damping == 2.0


@pytest.mark.parametrize(
    ("gradient", "objective", "promised"),
    [
        (0.1, -5.0, -5.0 + 4 * 0.1**2 / 2),
        (2e-6, -1.0, -1.0 + 4 * (2e-6) ** 2 / 2),
        (0.5e-6, -1.0, None),
        (2e-6, -100.0, None),
        (2e-5, -100.0, -100.0 + 4 * (2e-5) ** 2 / 2),
    ],
)
def test_promise__of_ems_own_step_unless_it_is_within_rounding(
    gradient: float, objective: float, promised: float | None
) -> None:
    found = newton._promised(evaluation(objective=objective, gradient=gradient))
    assert found == (None if promised is None else pytest.approx(promised, rel=1e-15))


def test_promise__parameters_without_scale_promise_nothing() -> None:
    one = evaluation(gradient=0.1)._replace(scale=np.array([1.0, 0.0, 2.0, 0.0]))
    assert newton._promised(one) == pytest.approx(0.1**2 / 2 + 0.1**2 / 4)


@pytest.mark.parametrize(
    ("objective", "was_refused", "poor"), [(0.9, False, True), (1.1, False, False), (0.9, True, False)]
)
def test_poor__a_step_that_was_taken_and_gained_less(objective: float, was_refused: bool, poor: bool) -> None:
    state = NewtonState(SOME_HESSIAN, wait=0, promised=1.0, was_refused=was_refused)
    assert newton._is_poor(state, evaluation(objective=objective)) is poor
    assert not newton._is_poor(NewtonState(SOME_HESSIAN, wait=0), evaluation(objective=objective))


def test_poor__the_third_in_a_row_gives_up() -> None:
    # Each step promises a gain of 0.02 and gains nothing.
    state, found = NewtonState(SOME_HESSIAN, wait=0), []
    for _ in range(4):
        state, step = rules().propose(state, HERE, evaluation(residual=1.0, gradient=0.1))
        found.append(step is not None)
    assert found == [True, True, True, False]
    assert state.wait == 10


# --- careful steps on ridges -----------------------------------------------------------------------------


class RidgedHessian(ProbedHessian):
    """One that can bend steps too."""

    def __init__(self, *, bends: bool) -> None:
        super().__init__()
        self.weight = 1.0
        self.bends = bends
        self.n_bent = 0

    def bent_step(self, *given: Any) -> _NewtonStep | None:
        self.n_bent += 1
        return _NewtonStep(HERE, given[-1], 0.0) if self.bends else None


@pytest.mark.parametrize("bends", [True, False])
def test_careful__after_four_troubles_every_step_has_its_hessian(bends: bool) -> None:
    sample = RidgedHessian(bends=bends)
    newton = Stepper(sample)
    newton.state = newton.state._replace(n_troubles=3, hessian=SOME)
    newton.propose(evaluation(1.0))
    newton.refuse()
    assert newton.state.careful
    for objective in (1.0, 2.0, 3.0):
        looks = sample.n_looks
        assert newton.propose(evaluation(1.0, objective)) is HERE
        assert sample.n_looks == looks + 1
    # A refused step is followed by a bent one, or a shorter one, from the same Hessian.
    looks, dampings = sample.n_looks, len(sample.dampings)
    newton.state, shorter = refused(newton.newton, newton.state)
    assert shorter is HERE
    assert (sample.n_looks, sample.n_bent) == (looks, 1)
    assert len(sample.dampings) == dampings + (not bends)


def test_careful__the_hessian_of_the_pass_is_used() -> None:
    sample = RidgedHessian(bends=True)
    newton = Stepper(sample)
    newton.state = newton.state._replace(n_troubles=5)
    newton.propose(evaluation(1.0)._replace(hessian=SOME))
    assert sample.n_looks == 0
    assert newton.state.hessian is SOME


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.promise(55)
def test_fit__one_component_too_many_ends(tmp_path: Any, seed: int) -> None:
    # The likelihood is flat along a curve; such fits went on for 500 passes.
    store = simulate(tmp_path / "s", n_rankings=200_000, n_items=5, n_components=2, random_state=seed)
    rows = np.concatenate([block.items.reshape(-1, 5) for block in store.iter_leaves()])
    orders, counts = np.unique(rows, axis=0, return_counts=True)
    model = PlackettLuceMixture(3, random_state=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(orders, sample_weight=counts.astype(float))
    assert model.converged_
    assert model.n_iter_ <= 120
    told = [str(one.message) for one in caught if "choose fewer components" in str(one.message)]
    assert bool(model.history_[-1].get("flat")) == bool(told)
    assert all(f"gradient {model.gradient_norm_:.2g} where" in words for words in told)  # not of a refused step
