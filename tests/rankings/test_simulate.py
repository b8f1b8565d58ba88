"""Simulated rankings: right probabilities, the same bits on any number of workers, true parameters saved."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plmix_dist
from plmix_dist import Spectral, SpectralPlackettLuce, simulate
from plmix_dist.cluster.executor import ThreadedExecutor, _DistributedExecutor
from plmix_dist.datasets import simulate as simulation
from plmix_dist.errors import SettingsError, StoreExistsError
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings.sampling import generator
from plmix_dist.rankings.simulate import checked_length, draw_log_worths, draw_rankings
from plmix_dist.store.mixture import MixtureParams
from tests.helpers.oracle import (
    all_damage,
    chi_square,
    chi_square_bound,
    index_digests,
    order_probability,
    ranking_probabilities,
    snapshot,
)

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client

LOG_WORTHS = np.array([[1.2, 0.0, -0.7, 0.4], [-1.0, 0.5, 0.9, -0.2]])


SHARES = np.array([0.7, 0.3])


KINDS = {
    "full": {},
    "full, said so": {"length": 4, "unranked": "below"},
    "full, of those on offer": {"length": 4, "unranked": "absent"},
    "best of all": {"length": 2, "unranked": "below"},
    "first choice": {"length": 1, "unranked": "below"},
    "random subset": {"length": 2, "unranked": "absent"},
    "larger subset": {"length": 3, "unranked": "absent"},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_draw_rankings__frequencies(kind: dict[str, Any]) -> None:
    block, _ = draw_rankings(LOG_WORTHS, SHARES, 50_000, np.random.default_rng(5), **kind)
    observed = Counter(map(tuple, block.to_array().tolist()))
    chances = ranking_probabilities(LOG_WORTHS.tolist(), SHARES.tolist(), kind.get("length", 4), kind.get("unranked"))
    assert math.fsum(chances.values()) == pytest.approx(1)
    assert chi_square(observed, chances) < chi_square_bound(len(chances))


def test_draw_rankings__best_few_of_many_are_found_without_sorting_all() -> None:
    # Short rankings of many items use another branch, whose first two places must be right too.
    log_worths = np.linspace(-1, 1, 12)[None]
    block, _ = draw_rankings(log_worths, np.ones(1), 60_000, np.random.default_rng(1), length=2, unranked="below")
    observed = Counter(map(tuple, block.to_array().tolist()))
    chances = ranking_probabilities(log_worths.tolist(), [1.0], 2, "below")
    assert chi_square(observed, chances) < chi_square_bound(len(chances))
    assert block.below.all()


def test_draw_rankings__each_component_draws_from_its_own_worths() -> None:
    block, component = draw_rankings(LOG_WORTHS, SHARES, 40_000, np.random.default_rng(2))
    for number in range(2):
        first = Counter(block.take(component == number).to_array()[:, 0].tolist())
        worths = np.exp(LOG_WORTHS[number]).tolist()
        chances = {item: order_probability(worths, [item], range(4)) for item in range(4)}
        assert chi_square(first, chances) < chi_square_bound(4)
    drawn = Counter(component.tolist())
    assert chi_square(drawn, dict(enumerate(SHARES.tolist()))) < chi_square_bound(2)


def test_draw_rankings__component_without_share_is_never_drawn() -> None:
    _, component = draw_rankings(np.zeros((3, 3)), np.array([0.0, 1.0, 0.0]), 2000, np.random.default_rng(0))
    assert set(component.tolist()) == {1}


@pytest.mark.promise(24)
@pytest.mark.parametrize("kind", [{}, {"length": 3, "unranked": "below"}, {"length": 3, "unranked": "absent"}])
def test_draw_rankings__worths_beyond_what_a_float_holds(kind: dict[str, Any]) -> None:
    log_worths = np.linspace(2000, -2000, 20)[None]
    block, _ = draw_rankings(log_worths, np.ones(1), 500, np.random.default_rng(0), **kind)
    # With worths so different only one order is possible.
    table = block.to_array()
    assert (np.diff(table, axis=1) > 0).all()
    if kind.get("unranked") != "absent":
        assert (table == np.arange(table.shape[1])).all()


@given(st.integers(0, 2**70), st.integers(0, 99), st.integers(0, 99))
def test_generator__streams_are_apart(seed: int, place: int, other: int) -> None:
    first = generator(seed, "rankings", place).integers(2**62, size=4).tolist()
    assert first == generator(seed, "rankings", place).integers(2**62, size=4).tolist()
    assert (first == generator(seed, "rankings", other).integers(2**62, size=4).tolist()) == (place == other)
    assert first != generator(seed, "mixture", place).integers(2**62, size=4).tolist()
    assert first != generator(seed + 1, "rankings", place).integers(2**62, size=4).tolist()


def test_draw_log_worths__only_some_items_differ() -> None:
    log_worths = draw_log_worths(3, 8, 5, np.random.default_rng(0))
    assert not log_worths[:, 5:].any()
    assert len(np.unique(log_worths[:, :5])) == 15
    for wrong in (0, 9):
        with pytest.raises(SettingsError, match=f"between 1 and the number of items, 8, but is {wrong}"):
            draw_log_worths(3, 8, wrong, np.random.default_rng(0))


# --- whole stores ----------------------------------------------------------------------------------------


@pytest.fixture
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of a few hundred rows, so that a small store has many."""
    monkeypatch.setattr(simulation, "_PARTITION_ENTRIES", 1 << 11)


@pytest.mark.promise(10)
@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("kind", [{}, {"length": 3, "unranked": "below"}, {"length": 3, "unranked": "absent"}])
def test_simulate__same_bits_on_any_workers(tmp_path: Path, client: Client, kind: dict[str, Any]) -> None:
    executors = {
        "one thread": ThreadedExecutor(1),
        "four threads": ThreadedExecutor(4),
        "processes": _DistributedExecutor(client),
    }
    digests = {}
    for name, executor in executors.items():
        store = plmix_dist.simulate(
            tmp_path / name,
            n_rankings=2000,
            n_items=7,
            n_components=3,
            random_state=11,
            leaf_rows=64,
            executor=executor,
            **kind,
        )
        assert store.n_partitions > 3
        digests[name] = index_digests(store)
    assert digests["one thread"] == digests["four threads"] == digests["processes"]


@pytest.mark.usefixtures("small_partitions")
def test_simulate__rows_do_not_depend_on_the_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"n_rankings": 1500, "n_items": 5, "n_components": 2, "random_state": 3, "leaf_rows": 64}
    many = plmix_dist.simulate(tmp_path / "many", **settings)
    monkeypatch.setattr(simulation, "_PARTITION_ENTRIES", 1 << 22)
    one = plmix_dist.simulate(tmp_path / "one", **settings)
    assert (one.n_partitions, one.n_leaves) == (1, many.n_leaves)
    assert many.n_partitions > 1
    assert one.block().equals(many.block())
    assert one.components().tolist() == many.components().tolist()


@pytest.mark.usefixtures("small_partitions")
def test_simulate__another_seed_gives_other_rows(tmp_path: Path) -> None:
    settings = {"n_rankings": 300, "n_items": 6}
    blocks = [plmix_dist.simulate(tmp_path / str(seed), random_state=seed, **settings).block() for seed in (0, 1)]
    assert not blocks[0].equals(blocks[1])


@pytest.mark.usefixtures("small_partitions")
def test_simulate__truth_and_components(tmp_path: Path) -> None:
    mixture = MixtureParams.of(LOG_WORTHS, SHARES, ["tea", "coffee", "mate", "milk"])
    store = plmix_dist.simulate(tmp_path / "store", n_rankings=10_000, mixture=mixture, leaf_rows=512)
    assert store.item_names == ("tea", "coffee", "mate", "milk")
    assert store.n_rankings == store.total_weight == 10_000
    truth = MixtureParams.load(tmp_path / "store.truth")
    assert truth.log_worths.tolist() == mixture.log_worths.tolist()
    assert truth.shares.tolist() == [0.7, 0.3]
    components = store.components()
    assert len(components) == 10_000
    counts = Counter(components.tolist())
    assert chi_square(counts, dict(enumerate(truth.shares.tolist()))) < chi_square_bound(2)
    # First items follow the worths of the component that the store names for the row.
    block = store.block()
    for number in range(2):
        first = Counter(block.take(components == number).to_array()[:, 0].tolist())
        worths = np.exp(truth.log_worths[number]).tolist()
        chances = {item: order_probability(worths, [item], range(4)) for item in range(4)}
        assert chi_square(first, chances) < chi_square_bound(4)
    assert all_damage(store) == []


def test_simulate__random_mixture_is_the_one_that_is_saved(tmp_path: Path) -> None:
    settings = {"n_rankings": 30, "n_items": 9, "n_components": 2, "differing": 4, "random_state": 5}
    plmix_dist.simulate(tmp_path / "store", **settings)
    truth = MixtureParams.load(tmp_path / "store.truth")
    assert (truth.n_components, truth.n_items) == (2, 9)
    # Items that do not differ have equal log-worths within each component, also after centring.
    for worths in truth.log_worths.tolist():
        assert len(set(worths[4:])) == 1
        assert len(set(worths)) == 5


@pytest.mark.promise(40)
@pytest.mark.usefixtures("small_partitions")
def test_simulate__the_same_again_does_nothing(tmp_path: Path) -> None:
    settings = {"n_rankings": 400, "n_items": 5}
    first = plmix_dist.simulate(tmp_path / "store", **settings)
    before = snapshot(tmp_path)
    told: list[tuple[int, int]] = []
    second = plmix_dist.simulate(tmp_path / "store", progress=lambda *done: told.append(done), **settings)
    assert (snapshot(tmp_path), told) == (before, [])
    assert second.manifest == first.manifest


@pytest.mark.usefixtures("small_partitions")
def test_simulate__other_settings_on_the_same_path_are_refused(tmp_path: Path) -> None:
    plmix_dist.simulate(tmp_path / "store", n_rankings=400, n_items=5)
    before = snapshot(tmp_path)
    with pytest.raises(StoreExistsError, match="already holds another store, of 400 rankings"):
        plmix_dist.simulate(tmp_path / "store", n_rankings=400, n_items=5, random_state=1)
    assert snapshot(tmp_path) == before


@pytest.mark.usefixtures("small_partitions")
def test_simulate__progress_counts_partitions(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    store = plmix_dist.simulate(
        tmp_path / "store",
        n_rankings=1000,
        n_items=5,
        leaf_rows=64,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(done, store.n_partitions) for done in range(1, store.n_partitions + 1)]
    assert store.n_partitions > 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_rankings": 0}, "n_rankings must be a whole number from 1 on, but is 0"),
        ({"n_components": 0}, "n_components must be a whole number from 1 on, but is 0"),
        ({"n_items": None}, "give the number of items, n_items, or a mixture"),
        ({"n_items": 1}, "at least two items, but got 1"),
        ({"length": 0, "unranked": "below"}, "length must be between 1 and 5, but is 0"),
        ({"length": 6, "unranked": "below"}, "length must be between 1 and 5, but is 6"),
        ({"length": 1, "unranked": "absent"}, "length must be between 2 and 5, but is 1"),
        ({"length": 3}, 'rankings of 3 of 5 items: say unranked="below"'),
        ({"length": 3, "unranked": "bellow"}, "bellow"),
        ({"unranked": "bellow"}, "bellow"),
        ({"differing": 9}, "between 1 and the number of items, 5, but is 9"),
        ({"leaf_rows": -4}, "-4"),
        ({"random_state": -1}, "-1"),
        ({"n_rankings": 2.5}, r"n_rankings must be a whole number from 1 on, but is 2.5 \(float\)"),
        ({"n_rankings": "10"}, "n_rankings must be a whole number from 1 on, but is '10'"),
        ({"n_items": "5"}, "n_items must be a whole number from 0 on, but is '5'"),
        ({"n_items": 10**12}, "1,000,000,000,000 items need at least 400,000 GB of memory"),
        ({"n_components": None}, "n_components must be a whole number from 1 on, but is None"),
        ({"length": 2.5, "unranked": "below"}, "length must be a whole number from 0 on, but is 2.5"),
        ({"differing": "2"}, "differing must be a whole number from 0 on, but is '2'"),
        ({"leaf_rows": 1e3}, "leaf_rows must be a whole number from 1 on, but is 1000.0"),
        ({"random_state": "0"}, "random_state must be a whole number from 0 on"),
    ],
)
def test_simulate__settings_that_make_no_sense(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"n_rankings": 10, "n_items": 5} | change
    with pytest.raises(SettingsError, match=message):
        plmix_dist.simulate(tmp_path / "store", **settings)
    assert list(tmp_path.iterdir()) == [], "nothing may be left behind"


# --- other noise -----------------------------------------------------------------------------------------


PAIR_CHANCES = {
    "gumbel": lambda d: 1 / (1 + np.exp(-d)),
    "normal": lambda d: (1 + math.erf(d / math.sqrt(2))) / 2,
    "exponential": lambda d: 1 - np.exp(-d) / 2 if d >= 0 else np.exp(d) / 2,
}


@pytest.mark.parametrize("noise", sorted(PAIR_CHANCES))
@pytest.mark.parametrize("unranked", [None, "below", "absent"])
def test_draw_rankings__noise_of_utilities(noise: str, unranked: Any) -> None:
    utilities = np.array([[1.0, 0.3, 0.0, -0.8]])
    length = None if unranked is None else 3
    block, _ = draw_rankings(
        utilities, np.ones(1), 20_000, np.random.default_rng(1), length=length, unranked=unranked, noise=noise
    )
    places = np.full((20_000, 4), 9)
    np.put_along_axis(places, block.to_array().astype(np.int64), np.arange(length or 4)[None, :], axis=1)
    for i in range(4):
        for j in range(i):
            seen = (places[:, i] < 9) | (places[:, j] < 9)
            if unranked == "absent":
                seen = (places[:, i] < 9) & (places[:, j] < 9)
            chance = PAIR_CHANCES[noise](utilities[0, i] - utilities[0, j])
            error = math.sqrt(chance * (1 - chance) / seen.sum())
            assert abs((places[seen, i] < places[seen, j]).mean() - chance) < 5 * error


def test_draw_rankings__gumbel_keeps_its_bits() -> None:
    rng = np.random.default_rng(5)
    truth = draw_log_worths(3, 20, None, rng)
    digests = []
    for length, unranked in ((None, None), (3, "below"), (4, "absent")):
        rng = np.random.default_rng(6)
        block, component = draw_rankings(
            truth, np.full(3, 1 / 3), 3_000, rng, length=length, unranked=unranked, noise="gumbel"
        )
        digests.append(hashlib.sha256(block.items.tobytes() + component.tobytes()).hexdigest()[:12])
    # As they were before there was any other noise.
    assert digests == ["571569a69071", "f11b7d15e2e4", "1f23ebbb26ab"]


def test_simulate__noise_is_part_of_the_plan(tmp_path: Any) -> None:
    path, settings = tmp_path / "store", {"n_rankings": 300, "n_items": 5, "random_state": 1}
    first = simulate(path, noise="normal", **settings)
    assert simulate(path, noise="normal", **settings).manifest.generation == first.manifest.generation
    with pytest.raises(StoreExistsError):
        simulate(path, **settings)
    with pytest.raises(SettingsError, match="normal or exponential, but is 'normla'; did you mean 'normal'"):
        simulate(tmp_path / "other", noise="normla", **settings)


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_simulate__thurstone_utilities_are_recovered_by_the_probit_start(link: Any) -> None:
    rng = np.random.default_rng(2)
    truth = rng.normal(size=(2, 20))
    errors = []
    for n_rankings in (500, 30_000):
        block, _ = draw_rankings(truth, np.array([0.5, 0.5]), n_rankings, rng, noise="normal")
        model = SpectralPlackettLuce(2, init=Spectral(link=link), random_state=0).fit(block)
        errors.append(matched_distance(model.log_worths_, truth))
    if link == "probit":
        assert errors[1] < 0.25 * errors[0]
        assert errors[1] < 0.15
    else:  # the wrong link: utilities in other units, however many rankings there are
        assert errors[1] > 2


def test_simulate__at_least_two_items() -> None:
    assert checked_length(None, 2, None) == 2
    assert checked_length(1, 3, "below") == 1
    assert checked_length(2, 3, "absent") == 2
    for length, n_items, unranked in [(None, 1, None), (0, 3, "below"), (1, 3, "absent"), (4, 3, "below")]:
        with pytest.raises(SettingsError):
            checked_length(length, n_items, unranked)  # type: ignore[arg-type]
