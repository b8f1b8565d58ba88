"""Choosing the number of components, beside plain definitions, fits by hand, splits on disk, and other workers."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import plmix_dist as pl
from plmix_dist import MixtureSelection, PlackettLuceMixture, Ranking, RankingBlock
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import NotIdentifiedError, PriorDecidesWarning, SettingsError, StoreExistsError
from plmix_dist.fitting import selection
from plmix_dist.fitting.algorithm import from_plain, to_plain
from plmix_dist.fitting.criteria import CRITERIA, choose, in_words, text_table
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.starts.make import Mixture, Proposer, split_component
from plmix_dist.rankings.sampling import Division, RowPart, draw_portions, generator, rows_of_part
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.store.checkpoints import Checkpoint
from tests.helpers.battles import battles
from tests.helpers.fit_oracle import block_of, drawn_rows, exact_posteriors, log_likelihood, slate, top

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client
    from numpy.typing import NDArray

WORTHS = np.array([[2.0, 1.0, 0.0, -1.0, -2.0], [-2.0, 0.5, 1.5, -1.5, 1.5]])
SHARES = np.array([0.6, 0.4])
FINE: dict[str, Any] = {"tol": 1e-9, "max_iter": 2_000}


def drawn(n_rankings: int, seed: int = 0, **options: Any) -> RankingBlock:
    return draw_rankings(WORTHS, SHARES, n_rankings, np.random.default_rng(seed), **options)[0]


def selected(data: Any, numbers: Any = (1, 2), *, settings: Any = None, **options: Any) -> MixtureSelection:
    template = PlackettLuceMixture(random_state=3, **(FINE | (settings or {})))
    return MixtureSelection(numbers, estimator=template, **options).fit(data, client=False)


def fold_weights(data: Any, n_folds: int, seed: int) -> NDArray[np.float64]:
    """(n_folds, n_rankings): the weights of rows in folds, leaf after leaf, from the definition."""
    shares = np.full(n_folds, 1 / n_folds)
    leaves = enumerate(as_rankings(data).iter_leaves())
    return np.concatenate(
        [draw_portions(leaf, shares, generator(seed, "folds", number)) for number, leaf in leaves], axis=1
    )


def held_out_by_hand(
    block: RankingBlock, found: MixtureSelection, n_components: int, weights: NDArray[np.float64], **settings: Any
) -> float:
    """Fit the rows outside each fold as a data set of their own, and score the rows inside; a fit knows no folds."""
    total, weight = 0.0, 0.0
    for fold in range(len(weights)):
        inside, outside = weights[fold], weights.sum(axis=0) - weights[fold]
        model = PlackettLuceMixture(n_components, init=found.estimators_[n_components], **(FINE | settings))
        if block.groups is not None:
            training, test = (block.take(np.flatnonzero(part)) for part in (outside, inside))
            n_persons = np.count_nonzero(test.group_starts)
            total += model.fit(training).score(test) * n_persons
            weight += n_persons
            continue
        model.fit(block, sample_weight=outside)
        total += model.score(block, sample_weight=inside) * inside.sum()
        weight += inside.sum()
    return total / weight


# --- parts of the rows -------------------------------------------------------------------------------------


def weighted(block: RankingBlock) -> RankingBlock:
    rng = np.random.default_rng(1)
    return block.replace(weights=rng.choice([1.0, 2.0, 7.0, 0.5, 300.0], block.n_rankings))


def grouped(block: RankingBlock) -> RankingBlock:
    """Persons with several rankings; the favourite decides who gave them, so that persons differ."""
    order = np.argsort(block.to_array()[:, 0], kind="stable")
    groups = np.sort(np.random.default_rng(2).integers(0, block.n_rankings // 4, block.n_rankings))
    return block.take(order).replace(groups=groups)


@pytest.mark.parametrize("kind", [lambda block: block, weighted, grouped], ids=["plain", "weights", "groups"])
def test_parts__folds_partition_the_rows_exactly(kind: Any) -> None:
    block = kind(drawn(200)).replace(ids=np.arange(200))
    division = Division("folds", (0.25,) * 4, seed=5)
    parts = [rows_of_part(RowPart(division, (fold,)), 7, block) for fold in range(4)]
    others = [rows_of_part(RowPart(division, tuple({0, 1, 2, 3} - {fold})), 7, block) for fold in range(4)]
    inside = np.zeros((4, 200))
    for fold, (part, other) in enumerate(zip(parts, others, strict=True)):
        inside[fold, part.ids] = part.row_weights
        rest = np.zeros(200)
        rest[other.ids] = other.row_weights
        assert_array_equal(inside[fold] + rest, block.row_weights)
        assert_array_equal(part.to_array(), block.take(part.ids).to_array())
        if block.groups is not None:
            assert not set(part.groups.tolist()) & set(other.groups.tolist())
    assert_array_equal(inside.sum(axis=0), block.row_weights)
    assert (inside.sum(axis=1) > 0).all()
    if block.weights is not None:
        heavy = block.row_weights == 300
        assert ((inside[:, heavy] > 30) & (inside[:, heavy] < 130)).all(), "counts are divided like single rankings"
    # Another leaf and another seed have other folds.
    again = rows_of_part(RowPart(division, (0,)), 8, block)
    other_seed = rows_of_part(RowPart(division._replace(seed=6), (0,)), 7, block)
    assert {tuple(each.ids.tolist()) for each in (again, other_seed)}.isdisjoint({tuple(parts[0].ids.tolist())})


def test_parts__extensions_of_a_ranking_stay_together() -> None:
    rows = [Ranking((tuple({0, 1, 2, 3} - {item}), (item,)), (), "absent", 1.0) for item in (0, 1, 2, 3)] * 20
    block = RankingBlock.from_rows(rows, n_items=4).replace(ids=np.arange(80))
    division = Division("folds", (0.5, 0.5), seed=0)
    parts = [rows_of_part(RowPart(division, (part,), extended_by="expand"), 0, block) for part in (0, 1)]
    assert not set(parts[0].ids.tolist()) & set(parts[1].ids.tolist())
    for part in parts:
        assert_array_equal(np.unique(np.unique(part.ids, return_counts=True)[1]), [6])
        assert part.total_weight == pytest.approx(len(np.unique(part.ids)))


def test_parts__of_the_paper_are_those_that_split_writes(tmp_path: Path) -> None:
    store = pl.simulate(tmp_path / "s", n_rankings=9_000, n_items=5, n_components=2, random_state=0)  # three leaves
    masks = [str(tmp_path / f"{name}.npy") for name in ("inference", "validation", "test")]
    pl.split(store, masks, random_state=3)
    division = Division("split", (0.64, 0.16, 0.2), seed=3)
    for part, mask in enumerate(masks):
        own = [
            rows_of_part(RowPart(division, (part,)), leaf, block).to_array()
            for leaf, block in enumerate(as_rankings(store).iter_leaves())
        ]
        whole = np.concatenate([block.to_array() for block in store.iter_leaves()])
        assert_array_equal(np.concatenate(own), whole[np.load(mask) > 0])


# --- criteria by their definitions -------------------------------------------------------------------------


def test_bic_aic_icl__by_their_definitions() -> None:
    rows = [
        *drawn_rows(0, WORTHS, SHARES.tolist(), 60),
        top(0, 1, weight=3.0),
        top(4, weight=2.5),
        slate([2, 4], [1], weight=4.0),
    ]
    found = selected(block_of(rows, 5), (1, 2, 3))
    weight = math.fsum(row.weight for row in rows)
    for row in found.table_:
        model, n_components = found.estimators_[row["n_components"]], row["n_components"]
        total = log_likelihood(rows, 5, model.log_worths_, model.shares_.tolist())
        _, posteriors = exact_posteriors(rows, 5, model.log_worths_, np.log(model.shares_))
        entropy = -math.fsum(
            each.weight * q * math.log(q) for each, own in zip(rows, posteriors.tolist(), strict=True) for q in own if q
        )
        n_left = len(model.shares_)  # the prior may have taken one away
        assert row["n_left"] == n_left <= n_components
        n_free = n_left * 4 + n_left - 1
        assert row["n_parameters"] == n_free
        assert row["log_likelihood"] == pytest.approx(total, rel=1e-10)
        assert row["score"] == pytest.approx(total / weight, rel=1e-10)
        assert row["bic"] == pytest.approx(n_free * math.log(weight) - 2 * total, rel=1e-10)
        assert row["aic"] == pytest.approx(2 * n_free - 2 * total, rel=1e-10)
        assert row["icl"] == pytest.approx(row["bic"] + 2 * entropy, rel=1e-10)
        assert row["bic"] == pytest.approx(model.bic(block_of(rows, 5)), rel=1e-12)
    likelihoods = [row["log_likelihood"] for row in found.table_]
    assert (np.diff(likelihoods) > -1e-9).all()


@pytest.mark.parametrize("kind", [lambda block: block, weighted, grouped], ids=["plain", "weights", "groups"])
def test_held_out__equals_fits_by_hand(kind: Any) -> None:
    block = kind(drawn(400))
    found = selected(block, criterion="held-out", n_folds=3)
    weights = fold_weights(block, 3, seed=3)
    for row in found.table_:
        by_hand = held_out_by_hand(block, found, row["n_components"], weights)
        assert row["held_out"] == pytest.approx(by_hand, abs=2e-8)
        assert row["held_out"] < row["score"], "held-out rankings are harder to predict"
    assert found.n_components_ == 2


def test_held_out__standard_error_is_that_of_paired_differences() -> None:
    block = drawn(5_000)  # two leaves
    found = selected(block, criterion="held-out", n_folds=2)
    weights = fold_weights(block, 2, seed=3)
    logs = np.zeros((2, 5_000))
    for fold in range(2):
        for place, n_components in enumerate((1, 2)):
            model = PlackettLuceMixture(n_components, init=found.estimators_[n_components], **FINE)
            model.fit(block, sample_weight=1 - weights[fold])
            logs[place] += weights[fold] * model.score_samples(block)
    difference = logs[1] - logs[0]
    assert found.table_[0]["held_out_error"] == pytest.approx(difference.std() / math.sqrt(5_000), rel=1e-5)
    assert found.table_[1]["held_out_error"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("ties", ["expand", "marginal"])
def test_held_out__ties(ties: str) -> None:
    full = drawn(240).to_array()
    rows = [Ranking(((a,), (b, c), (d,), (e,)), (), "absent", 1.0) for a, b, c, d, e in full[:120].tolist()]
    rows += [Ranking(tuple((item,) for item in row), (), "absent", 1.0) for row in full[120:].tolist()]
    block = RankingBlock.from_rows(rows, n_items=5)
    found = selected(block, criterion="held-out", n_folds=2, settings={"ties": ties})
    weights = fold_weights(block, 2, seed=3)
    for row in found.table_:
        model = found.estimators_[row["n_components"]]
        assert row["bic"] == pytest.approx(model.bic(block), rel=1e-12)
        by_hand = held_out_by_hand(block, found, row["n_components"], weights, ties=ties)
        assert row["held_out"] == pytest.approx(by_hand, abs=2e-8)


def test_paper__equals_the_protocol_by_hand(tmp_path: Path) -> None:
    store = pl.simulate(tmp_path / "s", n_rankings=1_200, n_items=5, n_components=2, random_state=1)
    parts = pl.split(store, [tmp_path / name for name in ("inference", "validation", "test")], random_state=3)
    inference, validation, test = parts
    found = selected(store, criterion="paper")
    for row in found.table_:
        start = found.estimators_[row["n_components"]]
        model = PlackettLuceMixture(row["n_components"], init=start, **FINE).fit(inference)
        assert row["validation_bic"] == pytest.approx(model.bic(validation), rel=1e-8)
        assert row["test_score"] == pytest.approx(model.score(test), abs=1e-8)
    assert found.n_components_ == min(found.table_, key=lambda row: row["validation_bic"])["n_components"]


def test_parts_of_the_rows__start_at_the_fit_and_end_at_their_own_maximum() -> None:
    # From the same rows by themselves, with a search of their own, without any fit to all rows.
    block = drawn(600, seed=4)
    found = selected(block, (2,), criterion="held-out", n_folds=2)
    weights = fold_weights(block, 2, seed=3)
    total = 0.0
    for fold in range(2):
        alone = PlackettLuceMixture(2, random_state=8, **FINE).fit(block, sample_weight=1 - weights[fold])
        total += alone.score(block, sample_weight=weights[fold]) * weights[fold].sum()
    assert found.table_[0]["held_out"] == pytest.approx(total / 600, abs=1e-7)


# --- items that a part of the rows does not have -----------------------------------------------------------


def rare_item() -> RankingBlock:
    """Four items in many rankings, and a fifth in two of them, once above and once below the others."""
    return RankingBlock.from_rows(
        [
            *(slate(row, []) for row in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]) for _ in range(20)),
            slate([4, 0], []),
            slate([0, 4], []),
        ],
        n_items=5,
    )


def test_unseen_item__the_prior_gives_it_a_worth() -> None:
    found = selected(rare_item(), (1,), criterion="held-out", n_folds=3)
    assert math.isfinite(found.table_[0]["held_out"])


def test_unseen_item__without_a_prior_is_an_error_that_names_it() -> None:
    block = rare_item()
    selected(block, (1,), settings={"alpha": 0.0})
    with pytest.raises(NotIdentifiedError, match=r"outside fold \d item '4' is not compared both ways .* alpha > 0"):
        selected(block, (1,), criterion="held-out", n_folds=3, settings={"alpha": 0.0})


# --- which number is chosen --------------------------------------------------------------------------------


def test_finds_the_number_of_components() -> None:
    worths = np.array(
        [[3.0, 2.0, 0.5, -0.5, -2.0, -3.0], [-3.0, 0.5, 3.0, -2.0, 2.0, -0.5], [-0.5, -3.0, -2.0, 3.0, 0.5, 2.0]]
    )
    block, _ = draw_rankings(worths, np.array([0.5, 0.3, 0.2]), 800, np.random.default_rng(0))
    found = selected(block, range(1, 5), also=["held-out"], settings={"tol": 1e-6})
    assert found.n_components_ == 3
    assert len(found.best_estimator_.shares_) == 3
    assert {name: choose(found.table_, CRITERIA[name]).n_components for name in ("bic", "icl", "held-out")} == {
        "bic": 3,
        "icl": 3,
        "held-out": 3,
    }
    assert "3 components have the lowest BIC" in found.words_
    fits = next(stage for stage in found.stages_ if stage["stage"] == "fit")
    assert fits["passes"] == max(row["n_iter"] for row in found.table_), "all numbers share the passes"


def test_choose__within_one_standard_error_the_smallest() -> None:
    def rows(error: float) -> list[dict[str, Any]]:
        return [
            {"n_components": 2, "held_out": -1.5, "held_out_error": 0.1},
            {"n_components": 3, "held_out": -1.02, "held_out_error": error},
            {"n_components": 4, "held_out": -1.0, "held_out_error": 0.0},
        ]

    near, far = (choose(rows(error), CRITERIA["held-out"]) for error in (0.03, 0.01))
    assert near is not None
    assert far is not None
    assert (near.n_components, near.best, near.runner_up) == (3, 4, 4)
    assert near.margin == pytest.approx(-0.02)
    assert (far.n_components, far.runner_up) == (4, 3)
    assert "within one standard error" in in_words(rows(0.03), CRITERIA["held-out"], near)
    words = in_words(rows(0.01), CRITERIA["held-out"], far)
    assert words.startswith("4 components have the highest held-out log-likelihood, 0.02000 above 3 components")
    assert "No larger number was tried" in words


def test_choose__rows_without_a_value_do_not_count() -> None:
    rows: list[dict[str, Any]] = [{"n_components": 1, "bic": None}, {"n_components": 2, "bic": math.nan}]
    assert choose(rows, CRITERIA["bic"]) is None
    assert choose([*rows, {"n_components": 3, "bic": 4.0}], CRITERIA["bic"]) == (3, 3, None, None)


def test_words__say_what_speaks_against_the_choice() -> None:
    row = {"n_components": 4, "bic": 1.0, "n_left": 3, "identifiable": "not identifiable", "converged": False}
    rows = [{"n_components": 2, "bic": 2.0}, row | {"n_best": 1, "n_starts": 9}]
    choice = choose(rows, CRITERIA["bic"])
    assert choice is not None
    words = in_words(rows, CRITERIA["bic"], choice)
    for said in ("1 below 2 components", "3 are left", "may not be identifiable", "One of 9 starts", "not converge"):
        assert said in words


def test_more_components_than_distinct_rankings__a_reason_in_the_table() -> None:
    found = selected([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10, (1, 2, 3, 4))
    assert found.n_components_ == 2
    assert sorted(found.estimators_) == [1, 2]
    for row in found.table_[2:]:
        assert row["bic"] is None
        assert f"there are {row['n_components']} components, but only 2 distinct rankings" in row["reason"]
    assert any("only 2 distinct" in line for line in text_table(found.table_))
    with pytest.raises(SettingsError, match=r"no number of components could be fitted; 3 components: .*only 2"):
        selected([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10, (3, 4))


def test_split_component__keeps_the_mixture_but_for_one_component() -> None:
    proposer = Proposer(drawn(10), FitSettings(3, seed=1))
    for number, split in ((0, 0), (1, 1)):
        start = split_component(proposer, Mixture(WORTHS, SHARES), number)
        kept = 1 - split
        assert_array_equal(start.log_worths[kept], WORTHS[kept])
        assert start.shares[kept] == SHARES[kept]
        # The halves are drawn apart from the component, in opposite directions.
        assert_allclose((start.log_worths[split] + start.log_worths[2]) / 2, WORTHS[split])
        assert np.abs(start.log_worths[split] - start.log_worths[2]).max() > 0.1
        assert start.shares.sum() == pytest.approx(1.0)
    assert split_component(proposer._replace(settings=FitSettings(6)), Mixture(WORTHS, SHARES), 0).shares.shape == (6,)


# --- the same bits, states, warm starts --------------------------------------------------------------------


def columns(found: MixtureSelection) -> list[Any]:
    keys = ("log_likelihood", "bic", "icl", "held_out", "held_out_error", "validation_bic", "test_score", "n_iter")
    return [[row[key] for key in keys] for row in found.table_]


def test_same_bits__threads_stores_and_workers(tmp_path: Path, client: Client) -> None:
    store = pl.simulate(tmp_path / "s", n_rankings=20_000, n_items=5, n_components=2, random_state=2)  # five leaves
    choice: dict[str, Any] = {"criterion": "held-out", "also": ["paper"], "n_folds": 2}
    template = PlackettLuceMixture(random_state=1, tol=1e-5)
    selection = MixtureSelection((1, 2), estimator=template, **choice)
    here = selection.fit(store, client=False)
    expected, worths = columns(here), here.best_estimator_.log_worths_
    array = np.concatenate([block.to_array() for block in store.iter_leaves()])
    for data, where in ((array, False), (store, client)):
        again = selection.fit(data, client=where)
        assert columns(again) == expected
        assert_array_equal(again.best_estimator_.log_worths_, worths)
    other = MixtureSelection((1, 2), estimator=template, random_state=9, **choice).fit(store, client=False)
    assert columns(other) != expected, "another seed has other folds"


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 4])
def test_same_bits__other_numbers_of_workers(tmp_path: Path, n_workers: int) -> None:
    from distributed import Client, LocalCluster

    store = pl.simulate(tmp_path / "s", n_rankings=20_000, n_items=5, n_components=2, random_state=2)
    selection = MixtureSelection((1, 2), criterion="held-out", also=["paper"], n_folds=2, random_state=1)
    expected = columns(selection.fit(store, client=False))
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert columns(selection.fit(store, client=client)) == expected


def test_after__states_of_all_stages_can_be_saved() -> None:
    stages: list[str] = []

    def saved(stage: str, state: Any) -> None:
        stages.append(stage)
        again = from_plain(*to_plain(state))
        assert again.n_rounds == state.n_rounds
        assert len(again.states) == len(state.states)

    MixtureSelection((1, 2), criterion="held-out", also=("paper",), n_folds=2, random_state=0).fit(
        drawn(300), client=False, after=saved
    )
    assert set(stages) == {"fit", "folds", "paper"}


@pytest.mark.promise(4)
def test_checkpoint__stopped_anywhere_and_resumed_ends_the_same(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    block = drawn(300)
    options: dict[str, Any] = {"criterion": "held-out", "n_folds": 2, "random_state": 0}
    template = PlackettLuceMixture(tol=1e-5)
    whole = MixtureSelection((1, 2), estimator=template, **options).fit(block)
    for stage, n_before in (("fit", 1), ("fit", 3), ("folds", 1), ("folds", 2)):
        left = [n_before]

        def stop(now: str, state: Any, stage: str = stage, left: list[int] = left) -> None:
            left[0] -= now == stage
            if left[0] == 0:
                raise StoppedError

        place = Checkpoint(tmp_path / f"{stage}-{n_before}", every=0)
        with pytest.raises(StoppedError):
            MixtureSelection((1, 2), estimator=template, checkpoint=place, **options).fit(block, after=stop)
        again = MixtureSelection((1, 2), estimator=template, checkpoint=place, **options).fit(block)
        assert again.table_ == whole.table_
        assert again.best_estimator_.log_worths_.tobytes() == whole.best_estimator_.log_worths_.tobytes()
    with pytest.raises(StoreExistsError, match="n_folds is 2 there and 3 here"):
        MixtureSelection((1, 2), estimator=template, checkpoint=place, **(options | {"n_folds": 3})).fit(block)


def test_warm_start__on_new_data_goes_to_their_own_maximum() -> None:
    old, new = drawn(2_000, seed=1), drawn(2_000, seed=2)
    begun = PlackettLuceMixture(2, random_state=0, tol=1e-8).fit(old)
    warm = PlackettLuceMixture(2, init=begun, tol=1e-8).fit(new)
    cold = PlackettLuceMixture(2, random_state=0, tol=1e-8).fit(new)
    first = warm.history_[0]
    assert first["gradient"] > 1e-4, "at the old fit the gradient on the new rankings is not zero"
    assert first["log_likelihood"] == pytest.approx(begun.score(new) * 2_000)
    assert warm.converged_
    assert warm.n_iter_ > 2
    assert warm.gradient_norm_ <= 1e-8
    assert warm.log_likelihood_ > first["log_likelihood"] + 1
    assert_allclose(warm.log_worths_, cold.log_worths_, atol=1e-5)
    # One pass can never do: the change of the objective is not known yet.
    assert PlackettLuceMixture(2, init=begun, tol=1.0).fit(new).n_iter_ > 1


# --- settings, tables, plots -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": ()}, "names no number of components"),
        ({"n_components": 3}, r"several numbers, such as range\(2, 11\), but is 3"),
        ({"n_components": "2:x"}, "n_components: '2:x' is not a number of components; write 2:10"),
        ({"n_components": (0, 1)}, "n_components must be a whole number from 1 on, but is 0"),
        ({"criterion": "bci"}, "did you mean 'bic'"),
        ({"also": ("held",)}, "also must be"),
        ({"also": "paper"}, "also must be a list of names"),
        ({"n_folds": 1}, "n_folds must be a whole number from 2 on"),
        ({"estimator": "spectral"}, "estimator must be a PlackettLuceMixture"),
        ({"estimator": PlackettLuceMixture(init="random")}, "init must be 'spectral', but is 'random'"),
        ({"estimator": PlackettLuceMixture(shares=[0.5, 0.5])}, "fixed shares"),
        (
            {"estimator": PlackettLuceMixture(ties="resample")},
            "ties must be auto, expand, marginal, half, half-last or davidson, because a selection",
        ),
    ],
)
def test_settings__refused_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        MixtureSelection(**options).fit([[0, 1], [1, 0]])


def test_too_few_rankings_to_divide() -> None:
    with pytest.raises(SettingsError, match="there are too few"):
        selected([[0, 1, 2]], (1,), criterion="held-out", n_folds=5)


def test_table__frame_plot_and_summary() -> None:
    found = selected(drawn(300), criterion="held-out", n_folds=2, settings={"tol": 1e-5})
    frame = found.frame(table="dict")
    assert frame["n_components"].tolist() == [1, 2]
    assert_allclose(frame["bic"], [row["bic"] for row in found.table_])
    assert found.words_ in found.summary()
    assert [row["identifiable"] for row in found.table_] == ["identifiable", "identifiable"]
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = found.plot(figure.add_subplot())
    assert_allclose(np.asarray(axes.lines[0].get_ydata(), float), [row["held_out"] for row in found.table_])
    assert axes.get_title() == "Held-out log-likelihood: 2 components chosen"


def test_not_fitted__is_an_error() -> None:
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError, match="call fit first"):
        MixtureSelection().summary()


def test_choose__a_fit_that_lost_components_is_that_of_fewer() -> None:
    rows: list[dict[str, Any]] = [
        {"n_components": 1, "n_left": 1, "bic": 970.0},
        {"n_components": 2, "n_left": 2, "bic": 784.69143775},
        {"n_components": 3, "n_left": 2, "bic": 784.69143772},  # the same maximum, reached a little more nearly
    ]
    choice = choose(rows, CRITERIA["bic"])
    assert choice is not None
    assert (choice.n_components, choice.best, choice.runner_up) == (2, 2, 1)
    words = in_words(rows, CRITERIA["bic"], choice)
    assert words == (
        "2 components have the lowest BIC, 185.3 below 1 component. The same fit was found with 3 components, of which "
        "2 are left."
    )
    better = [*rows[:2], rows[2] | {"bic": 780.0}]  # another optimum
    other = choose(better, CRITERIA["bic"])
    assert other is not None
    assert other.n_components == 3


def test_fit__components_that_are_lost_are_not_chosen() -> None:
    rankings = RankingBlock.from_array([[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3]] * 30)
    one_person = rankings.replace(groups=np.zeros(90, np.int64))
    found = pl.MixtureSelection((1, 2), random_state=0).fit(one_person)
    assert [row["n_left"] for row in found.table_] == [1, 1]
    assert found.n_components_ == 1
    assert found.table_[0]["identifiable"] == "identifiable"
    assert "may not be identifiable" not in found.words_


def test_words__larger_numbers_that_could_not_be_fitted() -> None:
    words = selected([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10, (1, 2, 3)).words_
    assert "No larger number could be fitted: the table says why" in words
    assert "was tried" not in words


def test_pickle__leaves_the_progress_function_out() -> None:
    heard: list[Any] = []
    found = pl.MixtureSelection((1, 2), random_state=0, progress=lambda record: heard.append(record))
    found.fit([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10)
    again = pickle.loads(pickle.dumps(found))
    assert again.progress is None
    assert again.table_ == found.table_


# --- with and without the prior ----------------------------------------------------------------------------


def few_of_another_kind() -> NDArray[np.int64]:
    """60 rankings of one component, and three equal ones that turn it round: a prior forbids them their component."""
    usual = draw_rankings(np.linspace(1, -1, 6)[None], np.ones(1), 60, np.random.default_rng(0))[0].to_array()
    return np.concatenate([usual, np.tile([5, 4, 3, 2, 1, 0], (3, 1))])


def selected_with(alpha: float, numbers: Any = (1, 2)) -> MixtureSelection:
    return selected(few_of_another_kind(), numbers, settings={"alpha": alpha})


def test_prior__the_choice_that_hangs_on_it_is_told() -> None:
    weak = selected_with(0.5)  # warnings are errors here
    with pytest.warns(PriorDecidesWarning, match="BIC chooses K = 1 at its mode and K = 2 at the maximum"):
        strong = selected_with(3.0)
    assert (weak.n_components_, strong.n_components_) == (2, 1)
    assert "Without the prior it would be 2 components: the choice hangs on alpha" in strong.words_
    assert "BIC, no prior" in strong.summary()
    for row, other in zip(weak.table_, strong.table_, strict=True):
        # What is without a prior does not hang on alpha.
        for column in ("log_likelihood", "bic", "aic", "icl"):
            assert row[f"{column}_without_prior"] == pytest.approx(other[f"{column}_without_prior"], abs=0.02)
        assert row["log_likelihood"] <= row["log_likelihood_without_prior"]


def test_prior__one_component_is_the_maximum_of_the_likelihood() -> None:
    rows = few_of_another_kind()
    wanted = PlackettLuceMixture(1, alpha=0, **FINE).fit(rows).bic(rows)
    assert selected_with(0.5).table_[0]["bic_without_prior"] == pytest.approx(wanted, abs=1e-3)


def test_prior__without_one_there_is_nothing_to_compare() -> None:
    assert not any(name.endswith("_without_prior") for name in selected_with(0.0, (1,)).table_[0])


def test_prior__a_number_that_cannot_be_fitted_has_all_columns() -> None:
    found = selected([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10, (1, 3))
    assert np.isnan(found.frame(table="dict")["bic_without_prior"]).tolist() == [False, True]


def test_searches__after_the_first_cost_a_tenth_and_fits_share_their_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    shares, at_once = [], []
    search, together, races = selection.candidates_for, selection.Together, selection.side_by_side

    def noted_search(*arguments: Any) -> Any:
        shares.append(arguments[-1])
        return search(*arguments)

    def noted_together(algorithms: Any, **options: Any) -> Any:
        at_once.append(options.get("at_once"))
        return together(algorithms, **options)

    def few_at_once(*arguments: Any) -> Any:
        race, begin = races(*arguments)
        return replace(race, at_once=2 + len(at_once)), begin

    monkeypatch.setattr(selection, "candidates_for", noted_search)
    monkeypatch.setattr(selection, "Together", noted_together)
    monkeypatch.setattr(selection, "side_by_side", few_at_once)
    selected(drawn(300), (1, 2, 3))
    # No more fits of a pass at a time than the largest of them allows.
    assert (shares, at_once) == ([1.0, 0.1, 0.1], [2])


@pytest.mark.parametrize("settings", [{"noise": True}, {"ties": "davidson"}, {"ties": "davidson-each", "noise": True}])
def test_selection__of_fits_with_noise_and_of_ties_as_outcomes(settings: dict[str, Any]) -> None:
    """Every number is a fit of its own with these settings, and noise is not one of the components."""
    rng, person = np.random.default_rng(0), np.repeat(np.arange(60), 6)
    left, right = np.array([(0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3)] * 60).T
    result = rng.choice([1.0, 0.5, 0.0], 360, p=[0.7, 0.2, 0.1])
    block = battles(left, right, np.where(person % 3 < 2, result, 1 - result), person)
    template = pl.PlackettLuceMixture(**settings)
    found = pl.MixtureSelection(range(1, 3), estimator=template, random_state=0).fit(block, client=False)
    for number, model in found.estimators_.items():
        alone = pl.PlackettLuceMixture(number, random_state=0, **settings).fit(block, client=False)
        assert model.log_worths_.tobytes() == alone.log_worths_.tobytes()
        row = found.table_[number - 1]
        assert len(model.shares_) == number + settings.get("noise", False)
        n_shares = len(model.shares_) - 1
        n_ties = 0 if model.tie_parameters_ is None else len(np.unique(model.tie_parameters_))
        bic = (3 * number + n_shares + n_ties) * math.log(60) - 2 * alone.log_likelihood_
        assert (row["n_left"], row["bic"]) == (number, pytest.approx(bic))
    with pytest.raises(SettingsError, match=r'"held-out" is not made for .* ties as outcomes or noise; choose bic'):
        pl.MixtureSelection(range(1, 3), estimator=template, criterion="held-out").fit(block, client=False)
