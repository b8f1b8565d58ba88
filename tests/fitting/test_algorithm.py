"""Algorithms that share passes: what each is answered, races, and errors that end one alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from plmix_dist import RankingBlock
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import FitError, NonFiniteError, SettingsError
from plmix_dist.fitting.algorithm import Together, leading, run
from plmix_dist.fitting.em import Em
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.point import Point
from plmix_dist.fitting.starts.make import _random_start
from plmix_dist.passes import Aggregation, Answer, Request, ThreadedPasses
from plmix_dist.passes.request import Timing
from plmix_dist.rankings.sampling import generator
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import LSR, MM


def drawn(n_components: int, n_items: int, n_rows: int, seed: int = 1, **options: Any) -> RankingBlock:
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.5, (n_components, n_items))
    shares = np.arange(n_components, 0, -1) / (n_components * (n_components + 1) / 2)
    return draw_rankings(truth, shares, n_rows, rng, **options)[0]


def way(records: Sequence[dict[str, Any]], start: int = 0) -> list[tuple[Any, ...]]:
    return [(r["step"], r["objective"], r["gradient"]) for r in records if r["start"] == start]


def random_log_worths(seed: int, number: int, n_components: int, n_items: int) -> NDArray[np.float64]:
    """The log-worths of a random start, as drawn: centred twice, their last bits would differ."""
    drawn_worths = generator(seed, "start", number).standard_normal((n_components, n_items))
    begin = _random_start(FitSettings(n_components, seed=seed), n_items, number)
    assert begin.log_worths.tobytes() == drawn_worths.tobytes()
    assert begin.shares.tolist() == [1 / n_components] * n_components
    return drawn_worths


@pytest.mark.parametrize("m_step", [MM, LSR], ids=lambda m_step: m_step.name)
def test_together__several_numbers_of_components(m_step: Any) -> None:
    passes = ThreadedPasses(as_rankings(drawn(3, 6, 9_000)))
    fits, begin = [], []
    for number, n_components in enumerate((1, 4, 2, 2)):
        settings = FitSettings(n_components, seed=number)
        start = _random_start(settings, 6, number)
        fits.append(Em(m_step, 0.1, 9_000, 9_000, tol=1e-5, max_iter=30, seed=number, number=number))
        begin.append(fits[-1].start(Point.start(start.log_worths, start.shares)))
    together = Together(tuple(fits))
    ended = run(passes, together, together.start(begin))
    # Two at a time they go the same way, in more passes.
    by_two = replace(together, at_once=2)
    assert_same_ends(run(passes, by_two, by_two.start(begin)), ended)
    for number, (fit, state) in enumerate(zip(fits, begin, strict=True)):
        alone, shared = fit.result(run(passes, fit, state)), fit.result(ended.states[number])
        assert way(alone.history, number) == way(shared.history, number)
        assert alone.point.log_worths.tobytes() == shared.point.log_worths.tobytes()
        assert alone.point.log_shares.tobytes() == shared.point.log_shares.tobytes()


def assert_same_ends(mine: Any, theirs: Any) -> None:
    for left, right in zip(mine.states, theirs.states, strict=True):
        assert left.iteration.best.point.flat().tobytes() == right.iteration.best.point.flat().tobytes()


def test_together__algorithms_of_different_kinds() -> None:
    # Whatever asks for passes can share them: a fit, and a count of rows that asks three times.
    class Count:
        def ask(self, state: tuple[int, ...]) -> list[Request]:
            return [ROWS, ROWS] if len(state) < 6 else []

        def tell(self, state: tuple[int, ...], answers: Any) -> tuple[int, ...]:
            return (*state, *(answer.results[0] for answer in answers))

        def score(self, state: tuple[int, ...]) -> None:
            return None

    passes = ThreadedPasses(as_rankings(drawn(2, 5, 5_000)))
    fit = Em(MM, 0.1, 5_000, 5_000, max_iter=7)
    begin = fit.start(Point.start(random_log_worths(0, 0, 2, 5), np.full(2, 0.5)))
    together = Together((Count(), fit))
    ended = run(passes, together, together.start([(), begin]))
    assert ended.states[0] == (5_000,) * 6
    assert len(ended.states[1].history) == 7 == passes.n_passes


ROWS = Request(Aggregation("rows", leaf=lambda number, block, params: block.n_rankings))


class Scripted:
    """An algorithm that reaches one score after another, and then has a result."""

    def __init__(self, scores: Sequence[float], name: str) -> None:
        self.scores = scores
        self.name = name

    def ask(self, state: int) -> list[Request]:
        return [ROWS] if state < len(self.scores) else []

    def tell(self, state: int, answers: Sequence[Answer]) -> int:
        assert len(answers) == 1
        return state + 1

    def score(self, state: int) -> float | None:
        return max(self.scores[:state], default=None)


class Answered:
    """Passes without data; notes how many requests each of them answered."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.n_passes = 0

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        self.counts.append(len(requests))
        return [Answer((0,), None, Timing(0.0, 0.0, 0.0)) for _ in requests]

    def release(self) -> None:
        pass


def raced(
    scripts: Sequence[tuple[Sequence[float], str]], cuts: Sequence[tuple[int, int]] = ()
) -> tuple[dict[int, str], list[int]]:
    """The names of those that reach the end of a race, by number, and how many were answered in each pass."""
    together = Together(tuple(Scripted(*script) for script in scripts), tuple(cuts))
    passes = Answered()
    ended = run(passes, together, together.start([0] * len(scripts)))
    left = {number: scripts[number][1] for number, state in enumerate(ended.states) if state is not None}
    return left, passes.counts


def test_together__cuts_keep_the_best() -> None:
    scripts = [([-100 + k + 10 * n for n in range(6)], f"fit {k}") for k in (3, 0, 7, 5)]
    assert raced(scripts, [(2, 3), (4, 1)]) == ({2: "fit 7"}, [4, 4, 3, 3, 1, 1])


def test_together__no_cuts_keep_all() -> None:
    # Twins too: nobody asked for a race.
    scripts = [([-5.0] * length, str(length)) for length in (1, 4, 4, 2)]
    assert raced(scripts) == ({0: "1", 1: "4", 2: "4", 3: "2"}, [4, 3, 2, 2])


def test_together__finished_fits_stay_in_the_race() -> None:
    good, poor, fair = [-9.0], [-50.0, -49.0, -48.0, -47.0], [-20.0, -19.0, -18.0, -17.0]
    assert raced([(poor, "poor"), (good, "good"), (fair, "fair")], [(2, 2)])[0] == {1: "good", 2: "fair"}
    # ... and leave it where others overtake them.
    assert raced([([-60.0], "early"), (poor, "poor"), (fair, "fair")], [(2, 2)])[0] == {1: "poor", 2: "fair"}


def test_together__a_fall_is_forgiven() -> None:
    # A step that is not taken may show a low likelihood just when a cut is made; the best so far counts.
    stumbling, steady = [-10.0, -99.0, -9.0], [-30.0, -29.0, -28.0]
    assert raced([(steady, "steady"), (stumbling, "stumbling")], [(2, 1)])[0] == {1: "stumbling"}


def test_together__in_step_are_dropped() -> None:
    twin, other = [-100.0, -90.0, -80.0], [-200.0, -190.0, -180.0]
    nearly = [likelihood * (1 + 1e-9) for likelihood in twin]
    found = raced([(nearly, "nearly"), (twin, "twin"), (other, "other")], [(2, 2)])
    assert found == ({1: "twin", 2: "other"}, [3, 3, 2])
    # One part in 100,000 is another optimum.
    apart = [likelihood * (1 + 1e-5) for likelihood in twin]
    assert raced([(apart, "apart"), (twin, "twin"), (other, "other")], [(2, 2)])[0] == {0: "apart", 1: "twin"}


def test_together__the_dead_take_no_places() -> None:
    # The twin is dropped as in step at the first cut; what it had reached by then still beats "other" at the second.
    twin, other, last = ([start + 10.0 * n for n in range(6)] for start in (-100.0, -200.0, -300.0))
    scripts = [(twin, "twin"), (twin, "its twin"), (other, "other"), (last, "last")]
    assert raced(scripts, [(2, 3), (4, 2)])[0] == {0: "twin", 2: "other"}


def test_together__nothing_to_do() -> None:
    assert raced([]) == ({}, [])
    assert raced([([], "at once")]) == ({0: "at once"}, [])


def test_together__a_point_that_cannot_be_computed_with_ends_alone() -> None:
    passes = ThreadedPasses(as_rankings(drawn(2, 5, 500)))
    fits = [Em(MM, 0.1, 500, 500, max_iter=5, number=number) for number in range(3)]
    wide, nan = np.zeros((2, 5)), np.full((2, 5), np.nan)
    wide[0, 0] = 900.0
    points = [Point(worths, np.zeros(2), np.log([0.5, 0.5])) for worths in (wide, np.eye(2, 5), nan)]
    together = Together(tuple(fits))
    ended = run(passes, together, together.start([fit.start(point) for fit, point in zip(fits, points, strict=True)]))
    errors = [state.error for state in ended.states]
    assert isinstance(errors[0], NonFiniteError)
    assert errors[1] is None
    assert isinstance(errors[2], NonFiniteError)
    assert len(ended.states[1].history) == 5


def test_together__scores_are_objectives() -> None:
    # With a strong prior the likelihood says little about which start is ahead. Log-priors count from their maximum.
    passes = ThreadedPasses(as_rankings(drawn(2, 5, 60)))
    em = Em(MM, 5.0, 60, 60, max_iter=6)
    state = run(passes, em, em.start(Point.start(random_log_worths(0, 0, 2, 5), np.full(2, 0.5))))
    best = max(record["objective"] for record in state.history if record["taken"])
    assert em.score(state) == pytest.approx(best + 2 * 2 * 5.0 * 5 * math.log(2), rel=1e-12)
    assert together_ignores_nan()


def together_ignores_nan() -> bool:
    class Nan(Scripted):
        def score(self, state: int) -> float | None:
            return float("nan")

    together = Together((Nan([1.0], "nan"), Scripted([-3.0], "good")))
    return together.leading(together.start([1, 1]), 1) == [1]


def test_run__other_errors_end_everything() -> None:
    # A bug, or a damaged store, is nobody's own: it is not swallowed as the failure of one fit.
    def broken(number: int, block: RankingBlock, params: None) -> int:
        raise ValueError("this is a bug")

    passes = ThreadedPasses(as_rankings(drawn(2, 5, 500)))
    with pytest.raises(ValueError, match="this is a bug"):
        passes.run([ROWS, Request(Aggregation("broken", leaf=broken))])
    assert not issubclass(SettingsError, FitError)


class Counting:
    """An algorithm that asks for one thing, three times."""

    def ask(self, state: int) -> list[Any]:
        return ["request"] if state < 3 else []

    def tell(self, state: int, answers: Any) -> int:
        assert list(answers) == ["answer"]
        return state + 1

    def score(self, state: int) -> float:
        return float(state)


@pytest.mark.parametrize(("at_once", "expected"), [(1, [1] * 15), (2, [2, 2, 1] * 3), (5, [5] * 3), (9, [5] * 3)])
def test_together__at_most_so_many_share_a_pass(at_once: int, expected: list[int]) -> None:
    together = Together(tuple(Counting() for _ in range(5)), at_once=at_once)  # type: ignore[arg-type]
    state, sizes = together.start([0] * 5), []
    while requests := together.ask(state):
        sizes.append(len(requests))
        state = together.tell(state, ["answer"] * len(requests))  # type: ignore[list-item]
    assert sizes == expected
    assert (state.states, state.n_rounds) == ((3,) * 5, 3)


def test_leading__likelihoods_that_differ_by_little() -> None:
    assert leading({0: -1000.0, 1: -1000.0 - 1e-2}, n_kept=2) == [0, 1]  # 1e-5 of the value
    assert leading({0: -1000.0, 1: -1000.0 - 2e-4}, n_kept=2) == [0, 1]
    assert leading({0: -1000.0, 1: -1000.0 - 0.5e-4}, n_kept=2) == [0]
