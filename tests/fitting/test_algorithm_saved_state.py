"""The state of a running fit, saved and restored after every step, as arrays and JSON: the bits do not change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import DamagedStoreError, NonFiniteError, NotIdentifiedError
from plmix_dist.fitting.algorithm import Together, from_plain, run, to_plain
from plmix_dist.fitting.em import Em, _EmState
from plmix_dist.fitting.point import Point
from plmix_dist.fitting.search import with_newton
from plmix_dist.passes import ThreadedPasses
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import CML, GMM, LSR, MM, STOCHASTIC_LSR
from plmix_dist.store.sealed import array_from_npy, npy_bytes
from tests.helpers.fit_oracle import block_of, drawn_rows, random_rows


def through_files(state: Any) -> Any:
    """A state written as JSON and .npy files, and read back."""
    plain, arrays = to_plain(state)
    text = json.dumps(plain)
    files = {name: npy_bytes(array) for name, array in arrays.items()}
    dtypes = {name: array.dtype for name, array in arrays.items()}
    read = {name: array_from_npy(data, dtypes[name], finite=False) for name, data in files.items()}
    return from_plain(json.loads(text), read)


def without_seconds(value: Any) -> Any:
    """A state in a form that can be compared bit by bit; what the clock says is left out."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return {
            key: without_seconds(entry)
            for key, entry in value.items()
            if not key.endswith("seconds") and key != "rankings_per_second"
        }
    if isinstance(value, tuple):
        return (type(value).__name__, *map(without_seconds, value))
    return repr(value)


def assert_same_way(passes: Any, algorithm: Any, begin: Any) -> Any:
    """Run once undisturbed, and once through files after every step: state by state the same bits."""
    undisturbed: list[Any] = []
    run(passes, algorithm, begin, undisturbed.append)
    state = through_files(begin)
    for expected in undisturbed:
        # A new algorithm value each time: nothing may be remembered outside the state.
        algorithm = replace(algorithm)
        state = through_files(algorithm.tell(state, passes.run(algorithm.ask(state))))
        assert without_seconds(state) == without_seconds(expected)
    assert not algorithm.ask(state)
    assert len(undisturbed) > 1
    return state


def overlapping(seed: int) -> tuple[RankingBlock, Point]:
    """Rankings of groups that differ in part, so that Newton steps are taken, and a random point."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((2, 6)) + rng.normal(0, 0.5, 6)
    truth[:, :4] += rng.normal(size=(2, 4))
    block = block_of(drawn_rows(seed % 1000, truth, [0.6, 0.4], 300), 6)
    return block, Point.start(rng.normal(size=(2, 6)), np.full(2, 0.5))


@pytest.mark.parametrize("kind", ["fused", "exact"])
@pytest.mark.parametrize("m_step", [LSR, MM, CML, GMM], ids=lambda m_step: m_step.name)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=4)
def test_saved_state__em(m_step: Any, kind: Any, seed: int) -> None:
    block, point = overlapping(seed)
    max_iter = 12 if kind == "exact" else 40
    em = Em(m_step, 0.1, block.total_weight, block.n_rankings, kind=kind, tol=1e-7, max_iter=max_iter)
    assert_same_way(ThreadedPasses(as_rankings(block)), em, em.start(point))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=4)
def test_saved_state__drawn_memberships(seed: int) -> None:
    block, point = overlapping(seed)
    em = Em(STOCHASTIC_LSR, 0.1, block.total_weight, block.n_rankings, max_iter=12, seed=seed)
    state = assert_same_way(ThreadedPasses(as_rankings(block)), em, em.start(point))
    assert len(state.history) == 12


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=4)
def test_saved_state__newton(seed: int) -> None:
    block, point = overlapping(seed)
    # A Hessian of a part of the rows, so that it is damped, refused and computed again.
    em = with_newton(Em(MM, 0.1, block.total_weight, block.n_rankings, max_iter=40), block[:150], after=3)
    state = assert_same_way(ThreadedPasses(as_rankings(block)), em, em.start(point))
    assert "newton" in {record["step"] for record in state.history}


@pytest.mark.parametrize("at_once", [2, 100])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=3)
def test_saved_state__race(at_once: int, seed: int) -> None:
    block, _ = overlapping(seed)
    rng = np.random.default_rng(seed)
    fits = [
        replace(em, number=number)
        for number, em in enumerate(
            [
                Em(MM, 0.1, block.total_weight, block.n_rankings, max_iter=12),
                Em(LSR, 0.1, block.total_weight, block.n_rankings, max_iter=12),
                Em(MM, 0.1, block.total_weight, block.n_rankings, kind="exact", tol=1e-4, max_iter=4),
                with_newton(Em(MM, 0.1, block.total_weight, block.n_rankings, max_iter=12), block, after=2),
            ]
        )
    ]
    together = Together(tuple(fits), cuts=((3, 3), (6, 2)), at_once=at_once)
    begin = together.start(
        [
            fit.start(Point.start(rng.normal(size=(k, 6)), np.full(k, 1 / k)))
            for fit, k in zip(fits, (2, 3, 1, 2), strict=True)
        ]
    )
    ended = assert_same_way(ThreadedPasses(as_rankings(block)), together, begin)
    assert sum(state is None for state in ended.states) == 2


@pytest.mark.parametrize("m_step", [LSR, MM], ids=lambda m_step: m_step.name)
def test_saved_state__collapsed_component(m_step: Any) -> None:
    truth = np.linspace(5, -5, 6)
    block, _ = draw_rankings(truth[None], np.ones(1), 300, np.random.default_rng(8))
    start = np.array([truth, np.linspace(-20, 20, 6)])
    em = Em(m_step, 0.1, 300.0, 300, max_iter=80, seed=5)
    begin = em.start(Point.start(start, np.full(2, 0.5)))
    state = assert_same_way(ThreadedPasses(as_rankings(block)), em, begin)
    assert state.events[0] == {"iteration": 2, "component": 1, "action": "reseed"}


def test_saved_state__a_fit_that_failed() -> None:
    table = np.array([[0, 1, 2]] * 30 + [[2, 1, 0]] * 30)
    apart = np.array([[9.0, 0.0, -9.0], [-9.0, 0.0, 9.0]])
    em = Em(MM, 0.0, 60.0, 60, max_iter=3_000)
    begin = em.start(Point.start(apart, np.full(2, 0.5)))
    state = assert_same_way(ThreadedPasses(as_rankings(table)), em, begin)
    assert isinstance(state.error, NotIdentifiedError)


def test_saved_state__numbers_that_json_has_no_word_for() -> None:
    point = Point(np.zeros((1, 2)), np.zeros(1), np.array([-np.inf]))
    em = Em(MM, 0.1, 1.0, 1)
    state = em.start(point)._replace(
        history=({"a": 1.5e-320, "e": float("-inf"), "b": None, "c": True, "d": "x"},), error=NonFiniteError("why")
    )
    back = through_files(state)
    assert isinstance(back, _EmState)
    assert without_seconds(back._replace(error=None)) == without_seconds(state._replace(error=None))
    assert (type(back.error), str(back.error)) == (NonFiniteError, "why")


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, b"bytes"], ids=lambda value: type(value).__name__)
def test_to_plain__refuses_what_cannot_be_written(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be saved"):
        to_plain((1, value))


@pytest.mark.parametrize(
    "plain",
    [
        [1, 2],
        {"Point": [], "tuple": []},
        {"Unknown": [1]},
        {"array": "7"},
        {"error": ["SettingsError", "x"]},
        {"error": ["os", "x"]},
        {"Point": [1]},
        {"tuple": 3},
        {"dict": [1]},
    ],
    ids=str,
)
def test_from_plain__refuses_what_nobody_wrote(plain: Any) -> None:
    with pytest.raises(DamagedStoreError, match="a saved state"):
        from_plain(plain, {})


def test_from_plain__refuses_arrays_of_objects() -> None:
    with pytest.raises(DamagedStoreError, match="array of object"):
        from_plain({"array": "0"}, {"0": np.array([object()])})


def test_saved_state__rows_of_every_kind() -> None:
    block = block_of(random_rows(3, 5, 40), 5)
    em = Em(MM, 0.1, block.total_weight, block.n_rankings, max_iter=10)
    begin = em.start(Point.start(np.random.default_rng(0).normal(size=(3, 5)), np.full(3, 1 / 3)))
    assert_same_way(ThreadedPasses(as_rankings(block)), em, begin)
