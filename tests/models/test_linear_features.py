"""Which features a model takes: in what order, of which shape, by which names; after the fit those of the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

import plmix_dist as plm
from plmix_dist import Features, PlackettLuceMixture, Ranking, RankingBlock, Slates
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import RankingError, SettingsError
from plmix_dist.kernels.utilities import LinearPoint, linear_sums
from plmix_dist.models.linear import Terms
from plmix_dist.rankings.choice_models import CHOICES
from plmix_dist.rankings.features import columns_of_fit

RANKED = np.array([np.random.default_rng(seed).permutation(4) for seed in range(200)])
TABLE = np.random.default_rng(1).normal(size=(200, 4, 2))
LINES = pd.DataFrame(TABLE.reshape(-1, 2), columns=["price", "size"])


def drawn(n: int = 800) -> tuple[list[Any], np.ndarray]:
    """Choices (chosen, offered), offered in any order, with a coefficient of 2; and their features as offered."""
    rng = np.random.default_rng(0)
    offered = np.argsort(rng.random((n, 4)), axis=1)
    table = rng.normal(size=(n, 4, 1))
    best = (2 * table[:, :, 0] + rng.gumbel(size=(n, 4))).argmax(axis=1)
    return [(int(own[place]), own.tolist()) for own, place in zip(offered, best, strict=True)], table


def coefficient(rows: Any, table: Any, **options: Any) -> float:
    model = PlackettLuceMixture(1, alpha=0.0).fit(rows, features=table, **options)
    assert model.feature_coefficients_ is not None
    return float(model.feature_coefficients_[0, 0])


def in_array(rows: list[Any]) -> np.ndarray:
    found = np.empty(len(rows), object)
    found[:] = rows
    return found


@pytest.mark.parametrize(
    "container",
    [
        list,
        tuple,
        pd.Series,
        lambda rows: pd.DataFrame({"choice": rows}),
        in_array,
        lambda rows: [(best, np.array(offered)) for best, offered in rows],
        lambda rows: [([best], tuple(offered)) for best, offered in rows],
    ],
)
def test_choices__features_are_in_the_order_of_what_was_offered(container: Any) -> None:
    rows, table = drawn()
    assert coefficient(container(rows), table) == pytest.approx(2.0, abs=0.2)


def test_choices__of_counts_and_beside_rankings_and_sets() -> None:
    rows, table = drawn()
    counted = {(best, (*offered, 4 + number)): 1 for number, (best, offered) in enumerate(rows[:50])}
    named = [(best, [*offered, 4 + number]) for number, (best, offered) in enumerate(rows[:50])]
    wider = np.concatenate([table[:50], np.zeros((50, 1, 1))], axis=1)
    assert coefficient(counted, wider) == coefficient(named, wider)
    # What was offered as a set is in the order of the names; rankings are in their own.
    as_sets = [(f"item {best}", {f"item {item}" for item in offered}) for best, offered in rows]
    by_name = [own[np.argsort(offered)] for (_, offered), own in zip(rows, table, strict=True)]
    ranked = [["item 3", "item 1", "item 0", "item 2"]] * 9
    features = np.concatenate([np.array(by_name), np.zeros((9, 4, 1))])
    assert coefficient([*as_sets, *ranked], features) == pytest.approx(coefficient(rows, table))


def test_a_table_of_another_format__has_no_order() -> None:
    rows, table = drawn(3)
    frame = pd.DataFrame(
        [(case, item, int(item == best)) for case, (best, own) in enumerate(rows) for item in own],
        columns=["case", "alternative", "chosen"],
    )
    with pytest.raises(SettingsError, match=r"a table in the format 'choices' has none; hand in a list of rows"):
        PlackettLuceMixture(1).fit(frame, features=table)


@pytest.mark.parametrize(
    ("rows", "shape", "words"),
    [
        (RANKED, (4, 200, 2), r"those of 4 rankings of 200 items each, but there are 200 rankings, and ranking 0 .* 4"),
        (RANKED, (100, 8, 2), r"those of 100 rankings of 8 items each"),
        ([[0, 1, 2], [1, 2]] * 4, (8, 3, 2), r"rankings of 3 items each, but .* ranking 1 \(from 0\) lists 2 items"),
        (RANKED, (799, 2), r"799 lines, but 200 rankings list 800 items"),
        (RANKED, (2, 2, 2, 2), r"have the shape \(2, 2, 2, 2\)"),
        (RANKED, (200, 4, 0), r"at least one column"),
    ],
)
def test_features_of_another_shape__are_refused(rows: Any, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        PlackettLuceMixture(1, unranked="absent").fit(rows, features=np.ones(shape))


@pytest.mark.parametrize(
    "given",
    [
        LINES,
        pl.from_pandas(LINES),
        pa.Table.from_pandas(LINES),
        LINES.to_numpy().view(np.matrix),
        np.ma.masked_array(LINES.to_numpy(), mask=False),
        TABLE.tolist(),
        LINES.astype({"price": "Float64"}),
    ],
)
def test_features_of_rows__in_any_table(given: Any) -> None:
    model = PlackettLuceMixture(1, alpha=0.0).fit(RANKED, features=given)
    expected = PlackettLuceMixture(1, alpha=0.0).fit(RANKED, features=TABLE)
    assert_allclose(model.feature_coefficients_, expected.feature_coefficients_)
    assert model.score(RANKED, features=given) == expected.score(RANKED, features=TABLE)


def test_numbers_beside_booleans__are_numbers() -> None:
    kinds = LINES.assign(dark=LINES["size"] > 0)
    model = PlackettLuceMixture(1).fit(RANKED, features=kinds[["price", "dark"]])
    assert np.isfinite(model.score(RANKED, features=kinds[["price", "dark"]]))
    columns = PlackettLuceMixture(1).fit(RANKED, features=LINES["price"])
    assert columns.score(RANKED, features=pl.from_pandas(LINES)["price"]) == pytest.approx(
        columns.score(RANKED, features=LINES[["price"]])
    )


def test_what_is_masked__is_missing() -> None:
    masked = np.ma.masked_greater(TABLE, 2.0)
    with pytest.raises(SettingsError, match=r"features\[\d+, \d\] is nan, but must be finite"):
        PlackettLuceMixture(1).fit(RANKED, features=masked)
    whole = np.ma.masked_array(np.arange(8).reshape(4, 2), mask=np.eye(4, 2))
    with pytest.raises(SettingsError, match=r"item_features\[0, 0\] is nan"):
        PlackettLuceMixture(1).fit(RANKED, item_features=whole)


def test_sums__need_as_many_features_as_there_are_coefficients() -> None:
    point = LinearPoint(np.zeros((4, 0)), np.ones((1, 2)), np.zeros((1, 1)))
    block = RankingBlock.from_array(RANKED)
    for other in (block, block.replace(features=TABLE[:, :, :1].reshape(-1, 1))):
        with pytest.raises(SettingsError, match=r"coefficients of 2 features, but the rankings have [01]; give"):
            linear_sums(other, point)


ITEMS = pd.Series([3.0, 1.0, 2.0, 0.5], index=["d", "a", "c", "b"], name="price")
NAMED = [["a", "b", "c", "d"], ["d", "b", "c", "a"], ["c", "a", "d", "b"], ["b", "d", "a", "c"]] * 5


@pytest.mark.parametrize(
    "given",
    [
        ITEMS,
        ITEMS.to_frame(),
        ITEMS.to_dict(),
        ITEMS.rename_axis("item").reset_index(),
        pl.from_pandas(ITEMS.rename_axis("item").reset_index()),
        pa.Table.from_pandas(ITEMS.rename_axis("item").reset_index(), preserve_index=False),
        ITEMS.sort_index().to_numpy(),
        ITEMS.sort_index().tolist(),
        pl.Series("price", ITEMS.sort_index().to_numpy()).to_numpy(),
    ],
)
def test_features_of_items__go_by_name(given: Any) -> None:
    model = PlackettLuceMixture(1, alpha=0.0).fit(NAMED, item_features=given)
    assert model.item_coefficients_ is not None
    centred = ITEMS.sort_index().to_numpy() - ITEMS.mean()
    assert_allclose(model.log_worths_[0], centred * model.item_coefficients_[0, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pd.Series([1.0, 2, 3, 4, 5], index=list("aabcd")), "item 'a' occurs 2 times in item_features"),
        (pa.table({"item": list("abccd"), "price": [1, 2, 3, 4, 5.0]}), "item 'c' occurs 2 times in item_features"),
        (pa.table({"price": [1, 2, 3, 4.0]}), "needs a column `item`"),
        (pd.DataFrame(np.eye(4, 2), index=list("abcd"), columns=["p", "p"]), "column 'p' occurs 2 times in item_fe"),
        (Features(np.eye(4, 2), names=["p", "p"]), "column 'p' occurs 2 times in item_features"),
        ({"a": [1.0], "b": [1.0, 2.0], "c": [0.0], "d": [1.0]}, "must be numbers, as many in every line"),
    ],
)
def test_features_of_items__that_are_not_clear(given: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        PlackettLuceMixture(1).fit(NAMED, item_features=given)


def test_features_of_both_kinds__keep_their_own_settings() -> None:
    of_items = Features(np.eye(3)[:, :1], ridge=1.0, intercepts=True)
    of_rows = Features(np.arange(6.0), ridge=2.0, shared=True, standardised=False)
    terms = Terms.of("plackett-luce", of_items, of_rows, as_rankings([[0, 1, 2], [2, 1, 0]], features=of_rows))
    assert terms is not None
    model = terms.model(of_items, of_rows, 3.0)
    assert model.ridge.tolist() == [1.5, 1.5, 1.0, 2.0]
    assert model.shared.tolist() == [False, False, False, True]
    assert model.standardised.tolist() == [False, False, True, False]
    assert model.given == {"item_feature 0": "item_features", "feature 0": "features"}


def test_column_names__each_occurs_once() -> None:
    twice = pd.concat([LINES["price"], LINES["price"]], axis=1)
    with pytest.raises(SettingsError, match="column 'price' occurs 2 times in features"):
        PlackettLuceMixture(1).fit(RANKED, features=twice)
    of_items = Features([[1.0], [2.0], [0.0], [1.0]], names=["price"])
    with pytest.raises(SettingsError, match="column 'price' occurs 2 times in item_features and features"):
        PlackettLuceMixture(1).fit(RANKED, features=LINES, item_features=of_items)


def test_after_a_fit__columns_go_by_name() -> None:
    model = PlackettLuceMixture(2, random_state=0).fit(RANKED, features=LINES)
    turned = LINES[["size", "price"]]
    expected = model.score(RANKED, features=LINES)
    for again in (model, PlackettLuceMixture.from_json(model.to_json())):
        for same in (turned, pa.Table.from_pandas(turned), pl.from_pandas(turned), TABLE, LINES.to_numpy()):
            assert again.score(RANKED, features=same) == expected
    assert_allclose(
        model.standard_errors(RANKED, features=turned).log_worths,
        model.standard_errors(RANKED, features=LINES).log_worths,
    )
    one = pd.DataFrame({"size": [0.0, 1.0], "price": [2.0, 0.5]})
    chances = model.choice_probabilities([0, 1], features=one)
    assert_allclose(chances, model.choice_probabilities([0, 1], features=one[["price", "size"]].to_numpy()))
    assert_allclose(
        model.elasticities("size", [0, 1], features=one),
        model.elasticities("size", [0, 1], features=one[["price", "size"]]),
    )
    by_item = PlackettLuceMixture(1).fit(NAMED, item_features=pd.DataFrame(np.eye(4, 2), list("abcd"), ["p", "q"]))
    new = pd.DataFrame({"q": [1.0, 0.0], "p": [0.3, 0.2]})
    assert_allclose(
        by_item.choice_probabilities(item_features=new),
        by_item.choice_probabilities(item_features=new[["p", "q"]].to_numpy()),
    )
    with pytest.raises(SettingsError, match="fitted with 2 item_features: p, q; in what is given, 'q' is missing"):
        by_item.choice_probabilities(item_features=new[["p"]])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (LINES[["price"]], r"fitted with 2 features: price, size; in what is given, 'size' is missing; give"),
        (LINES.rename(columns={"size": "age"}), r"'size' is missing, 'age' is not known"),
        (LINES.assign(age=1.0), r"in what is given, 'age' is not known"),
        (TABLE[:, :, :1], r"features have 1 columns, but the model was fitted with 2 features: price, size"),
        (None, r"coefficients of 2 features: price, size; give those of these rows too \(features=\)"),
    ],
)
def test_after_a_fit__other_columns_are_refused_everywhere(given: Any, words: str) -> None:
    model = PlackettLuceMixture(1, alpha=1.0).fit(RANKED, features=Features(LINES, intercepts=True))
    for ask in (
        model.score,
        model.predict,
        model.bic,
        model.memberships,
        model.standard_errors,
        model.bootstrap,
        model.leaderboard,
    ):
        with pytest.raises(SettingsError, match=words):
            ask(RANKED, features=given)
    if given is not None:
        with pytest.raises(SettingsError, match=words):
            model.choice_probabilities(features=given[0] if isinstance(given, np.ndarray) else given[:4])


@pytest.mark.parametrize(
    "options", [{}, {"item_features": np.eye(4, 2)}, {"choices": Slates({"l": ["0", "1"], "r": ["2", "3"]})}]
)
def test_models_without_features_of_rows__take_none(options: dict[str, Any]) -> None:
    given = {name: value for name, value in options.items() if name != "choices"}
    model = PlackettLuceMixture(1, choices=options.get("choices", "plackett-luce")).fit(RANKED, **given)
    asked = [model.score, model.predict_proba, model.standard_errors, model.bootstrap]
    for ask in asked if "choices" in options else [*asked, model.leaderboard]:  # slates have none
        with pytest.raises(SettingsError, match="this model has no coefficients of features; leave features out"):
            ask(RANKED, features=TABLE)
    with pytest.raises(SettingsError, match="no coefficients of features"):
        plm.BayesianPlackettLuceMixture(1).fit(RANKED, features=TABLE)


def test_a_block_with_features__hands_them_in() -> None:
    block = RankingBlock.from_array(RANKED).replace(features=TABLE.reshape(-1, 2))
    with pytest.raises(SettingsError, match="features of its own; hand them in too"):
        PlackettLuceMixture(1).fit(block)
    model = PlackettLuceMixture(1).fit(block, features=block.features)
    assert model.score(block, features=block.features) == model.score(RANKED, features=TABLE)


def test_pandas_that_only_numbers_its_columns__has_no_names() -> None:
    model = PlackettLuceMixture(1).fit(RANKED, features=TABLE)
    frame = pd.DataFrame(LINES.to_numpy())
    assert model.score(RANKED, features=frame) == model.score(RANKED, features=TABLE)
    with pytest.raises(SettingsError, match="'feature 0' is missing, 'feature 1' is missing, '1' is not known"):
        model.score(RANKED, features=frame[[1, 0]])


def test_maxdiff__says_what_it_takes() -> None:
    only_best = RankingBlock.from_rows([Ranking(((0,),), (1, 2), "absent", 1.0)] * 3, n_items=3)
    with pytest.raises(RankingError, match="takes sets of which the best and the worst are known, and ranking 0"):
        PlackettLuceMixture(1, choices="maxdiff").fit(only_best)
    large = RankingBlock.from_rows([Ranking(((0,), tuple(range(1, 61)), (61,)), (), "absent", 1.0)], n_items=62)
    with pytest.raises(RankingError, match="takes sets of at most 60 items, and ranking 0"):
        PlackettLuceMixture(1, choices="maxdiff").fit(large)
    largest = RankingBlock.from_rows([Ranking(((0,), tuple(range(1, 59)), (59,)), (), "absent", 1.0)], n_items=60)
    assert CHOICES["maxdiff"].rows(largest).n_listed.tolist() == [60 * 59]


def test_columns__of_three_in_another_order() -> None:
    # Of two, a wrong order would be the right one turned.
    assert columns_of_fit(["price", "size", "age"], ["age", "price", "size"]) == [1, 2, 0]
