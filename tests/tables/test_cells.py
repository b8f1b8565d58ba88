"""What fit takes beside stores and blocks: lists of any length, names, tables; and what `unranked` means for them."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from plmix_dist import PlackettLuceMixture, SpectralPlackettLuce
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import RankingError, SettingsError
from plmix_dist.rankings import Ranking, RankingBlock
from tests.helpers.oracle import write_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DRINKS = ("coffee", "mate", "milk", "tea")
ROWS = [[3, 0, 1], [3], [0, 3], [1, 2, 3, 0], [2], [3, 1], [0, 1, 3], [3, 0]] * 5


def named(rows: list[list[int]] = ROWS) -> list[list[str]]:
    """The rows as names."""
    return [[DRINKS[item] for item in row] for row in rows]


def padded(rows: list[list[Any]], filler: Any, width: int = 4) -> list[list[Any]]:
    return [row + [filler] * (width - len(row)) for row in rows]


def expected_block(rows: list[list[int]] = ROWS, n_items: int = 4, unranked: Any = "below") -> RankingBlock:
    """The rows in the package's own form, made without any of the ways in."""
    return RankingBlock.from_rows(
        [Ranking(tuple((item,) for item in row), (), unranked, 1.0) for row in rows], n_items=n_items
    )


def block_of(source: Any, **options: Any) -> RankingBlock:
    source = as_rankings(source, **options).source
    return source.block  # type: ignore[attr-defined, no-any-return]


COLUMNS = ["first", "second", "third", "fourth"]

NAMED: dict[str, Callable[[], Any]] = {
    "lists": named,
    "tuples": lambda: tuple(map(tuple, named())),
    "lists with None": lambda: padded(named(), None),
    "lists with nan": lambda: padded(named(), float("nan")),
    "lists with empty text": lambda: padded(named(), ""),
    "lists with -1": lambda: padded(named(), -1),
    "list of arrays": lambda: [np.array(row) for row in named()],
    "array of text": lambda: np.array(padded(named(), "")),
    "array of text and -1": lambda: np.array(padded(named(), -1)),
    "array of objects": lambda: np.array(padded(named(), None), object),
    "array of lists": lambda: pd.Series(named()).to_numpy(),
    "array of wide text": lambda: np.array(padded(named(), ""), np.dtypes.StringDType()),
    "pandas": lambda: pd.DataFrame(padded(named(), None), columns=COLUMNS),
    "pandas of objects": lambda: pd.DataFrame(padded(named(), np.nan), columns=COLUMNS, dtype=object),
    "pandas with another index": lambda: pd.DataFrame(padded(named(), None), index=range(100, 140)),
    "pandas of categories": lambda: pd.DataFrame(padded(named(), None)).astype("category"),
    "pandas column of lists": lambda: pd.Series(named()),
    "pandas table of lists": lambda: pd.DataFrame({"ranking": named()}),
    "arrow": lambda: pa.table(dict(zip(COLUMNS, zip(*padded(named(), None), strict=True), strict=True))),
    "arrow batch": lambda: pa.record_batch([*map(pa.array, zip(*padded(named(), None), strict=True))], COLUMNS),
    "arrow dictionary": lambda: pa.table(
        [pa.array(column).dictionary_encode() for column in zip(*padded(named(), None), strict=True)], COLUMNS
    ),
    "arrow column of lists": lambda: pa.array(named()),
    "arrow table of lists": lambda: pa.table({"ranking": named()}),
}  # fmt: skip

NUMBERED: dict[str, Callable[[], Any]] = {
    "lists": lambda: ROWS,
    "lists with None": lambda: padded(ROWS, None),
    "lists with -1": lambda: padded(ROWS, -1),
    "lists with nan": lambda: padded(ROWS, float("nan")),
    "list of arrays": lambda: [np.array(row) for row in ROWS],
    "array": lambda: np.array(padded(ROWS, -1)),
    "array of int8": lambda: np.array(padded(ROWS, -1), np.int8),
    "array in Fortran's order": lambda: np.asfortranarray(padded(ROWS, -1)),
    "array of floats": lambda: np.array(padded(ROWS, np.nan)),
    "array of objects": lambda: np.array(padded(ROWS, None), object),
    "pandas with nan": lambda: pd.DataFrame(padded(ROWS, np.nan), columns=COLUMNS),
    "pandas of nullable numbers": lambda: pd.DataFrame(padded(ROWS, None), columns=COLUMNS).astype("Int64"),
    "pandas of -1": lambda: pd.DataFrame(padded(ROWS, -1), columns=COLUMNS),
    "arrow": lambda: pa.table(dict(zip(COLUMNS, zip(*padded(ROWS, None), strict=True), strict=True))),
}  # fmt: skip


# --- ways in ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", NAMED.values(), ids=NAMED.keys())
def test_names__every_form_gives_the_same_rows(make: Callable[[], Any]) -> None:
    rankings = as_rankings(make(), unranked="below")
    assert rankings.item_names == DRINKS
    assert block_of(make(), unranked="below").equals(expected_block())


@pytest.mark.parametrize("make", NUMBERED.values(), ids=NUMBERED.keys())
@pytest.mark.parametrize("unranked", ["below", "absent"])
def test_numbers__every_form_gives_the_same_rows(make: Callable[[], Any], unranked: Any) -> None:
    rows = [row for row in ROWS if len(row) > 1 or unranked == "below"]
    if unranked == "absent":  # where one item alone was on offer, nothing was chosen
        with pytest.raises(RankingError, match="row 1: item 3 alone was on offer"):
            as_rankings(make(), unranked=unranked)
        return
    rankings = as_rankings(make(), unranked=unranked)
    assert rankings.item_names == ("0", "1", "2", "3")
    assert block_of(make(), unranked=unranked).equals(expected_block(rows, unranked=unranked))


@pytest.mark.parametrize("kind", ["u1", "u8", "i1", ">i4", "f2", "f4", ">f8", "O", "U3"])
def test_numbers__of_any_type(kind: str) -> None:
    rows = [[3, 0, 1, 2], [0, 1, 2, 3], [2, 3, 0, 1]]
    assert block_of(np.array(rows, kind)).equals(expected_block(rows, unranked="absent"))


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    columns = dict(zip(COLUMNS, zip(*padded(named(), None), strict=True), strict=True))
    for table in (polars.DataFrame(columns), polars.DataFrame({"ranking": named()}), polars.Series(named())):
        assert block_of(table, unranked="below").equals(expected_block())


class PolarsLike:
    """A table of a library that is not installed: all that is known of it is Arrow's protocol."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.columns = table.column_names

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class SeriesLike:
    """A column of lists of such a library."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._column.__arrow_c_stream__(requested_schema)


def test_tables__by_arrows_protocol() -> None:
    table = pa.table(dict(zip(COLUMNS, zip(*padded(named(), None), strict=True), strict=True)))
    assert block_of(PolarsLike(table), unranked="below").equals(expected_block())
    lists = pa.table({"ranking": pa.array(named(), pa.large_list(pa.string_view()))})
    assert block_of(PolarsLike(lists), unranked="below").equals(expected_block())
    assert block_of(SeriesLike(lists.column(0)), unranked="below").equals(expected_block())


def test_fit__names_and_numbers_give_the_same_bits() -> None:
    fits = [
        PlackettLuceMixture(2, unranked="below", random_state=0).fit(rows)
        for rows in (named(), ROWS, pd.DataFrame(padded(named(), None)), expected_block())
    ]
    assert fits[0].item_names_ == DRINKS
    assert fits[1].item_names_ == ("0", "1", "2", "3")
    for other in fits[1:]:
        assert np.array_equal(other.log_worths_, fits[0].log_worths_)
        assert np.array_equal(other.shares_, fits[0].shares_)


def test_numbers__read_without_copies_of_the_array() -> None:
    table = np.argsort(np.random.default_rng(0).random((20_000, 12)), axis=1)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        rankings = as_rankings(table)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < table.nbytes
    kept, table[:] = table.copy(), 0  # what was read stays as it was
    (block,) = rankings.source.iter_leaves(0, 1)
    assert (block.to_array()[:4] == kept[:4]).all()


def test_names__in_natural_order_whatever_the_order_of_rows() -> None:
    rows = [["b", "10", "a"], ["9", "a", "b"], ["10", "9", "B"]]
    for order in (rows, rows[::-1]):
        assert as_rankings(order, unranked="below").item_names == ("9", "10", "B", "a", "b")


def test_names__kept_exactly() -> None:
    rows = [[" tea", "tea", "naïve\n"], ["tea", " tea", "naïve\n"]]
    assert as_rankings(rows).item_names == (" tea", "naïve\n", "tea")


def test_names__categories_of_a_table_are_the_items() -> None:
    kind = pd.CategoricalDtype(["tea", "mate", "coffee"])
    table = pd.DataFrame({"first": ["tea", "mate"], "second": ["mate", "tea"]}).astype(kind)
    rankings = as_rankings(table, unranked="below")
    assert rankings.item_names == ("tea", "mate", "coffee")
    assert block_of(table, unranked="below").equals(expected_block([[0, 1], [1, 0]], n_items=3))


def test_lists__one_long_row_does_not_widen_the_others() -> None:
    rows = [[0, 1]] * 20_000 + [list(range(5_000))]
    tracemalloc.start()
    try:
        block = block_of(rows, unranked="below")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert block.n_rankings == 20_001
    assert peak < 50e6, "as a rectangle the rows would take 800 MB"


# --- what is refused, and where --------------------------------------------------------------------------


TABLE = pd.DataFrame({"first": ["tea", "mate"], "second": [None, "tea"], "third": ["mate", None]})


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["tea", "mate"], ["tea", None, "mate"]], r"row 1: an item follows a missing place in column 1; only"),
        (TABLE, r"row 0: an item follows a missing place in column 1 \('second'\); only"),
        (np.array([[0, 1, 2], [0, -1, 1]]), r"row 1: an item follows a missing place in column 1; only"),
        (np.array([[0, 1], [np.nan, 1.0]]), r"row 1: an item follows a missing place in column 0; only"),
        ([["tea", "mate"], ["tea", "mate", "tea"]], r"row 1: item tea is listed twice"),
        ([[0, 1], [1, 0, 1]], r"row 1: item 1 is listed twice"),
        (np.array([[0, 1], [1, 1]]), r"row 1: item 1 is listed twice"),
        ([["tea", "mate"], []], r"row 1: no item is ranked"),
        ([["tea", "mate"], [None, ""]], r"row 1: no item is ranked"),
        ([["tea", "mate"], ["tea", 1]], r"row 1, column 1 is the number 1, but row 0, column 0 is the name 'tea'"),
        ([["tea", "mate"], ["tea", True]], r"row 1, column 1: expected an item's name or.*True \(bool\)"),
        ([["tea", "mate"], "coffee"], r"row 1 must be a list of items, best first, but is 'coffee' \(str\)"),
        (np.array([["tea", "mate"], ["tea", np.nan]]), r"row 1, column 1: the text 'nan' is most likely a missing"),
        (np.array([[0.0, 1.0], [0.5, 1.0]]), r"row 1, column 0: 0.5 is not an item number; items are whole numbers"),
        ([[0, 1, None], [0, 1.5]], r"row 1, column 1: expected an item's name or.* but got 1.5"),
        (np.array([[0, 1], [2, -1]]).astype(np.uint64), r"row 1, column 1: 18446744073709551615 is not an item number"),
        (np.array([[0.0, np.inf]]), r"row 0, column 1: inf is not an item number"),
        (np.array([[b"tea", b"mate"]]), r"expected item names or integer item numbers, but got \|S4"),
        ([[0, 1], [-3, 1]], r"row 1: item -3 is out of range; items are numbered from 0"),
        ([["tea"], ["tea"]], r"row 0: item tea alone was on offer, so nothing was chosen"),
    ],
    ids=str,
)  # fmt: skip
def test_rows__refused_with_row_and_column(rows: Any, message: str) -> None:
    with pytest.raises(RankingError, match=message):
        PlackettLuceMixture(1, unranked="below").fit(rows)


@pytest.mark.parametrize("name", ["id", "Weight", "user", "Unnamed: 0"])
def test_tables__labels_by_their_names(name: str) -> None:
    table = pd.DataFrame({name: [1, 3, 2], "second": [1, 0, 0], "first": [0, 1, 2]})
    for form in (table, pa.Table.from_pandas(table)):
        block = as_rankings(form, unranked="below").source.block  # type: ignore[attr-defined]
        assert block.to_array().tolist() == [[0, 1], [1, 0], [2, 0]]
        assert (None if block.weights is None else block.weights.tolist()) == ([1, 3, 2] if name == "Weight" else None)
        assert (None if block.groups is None else block.groups.tolist()) == ([1, 3, 2] if name == "user" else None)


def test_tables__column_that_is_not_a_place() -> None:
    table = pd.DataFrame({"rank": [1, 0, 2], "first": [0, 1, 2], "second": [1, 0, 0]})
    with pytest.raises(RankingError, match=r"column 'rank' of the table is not a place of a ranking \(by its name"):
        as_rankings(table, unranked="below")


def test_tables__bad_weight() -> None:
    with pytest.raises(RankingError, match=r"row 1: weight -1 is not a positive finite number"):
        as_rankings(pd.DataFrame({"count": [1, -1], "first": ["a", "b"], "second": ["b", "a"]}))


def test_tables__a_column_that_counts_the_rows() -> None:
    table = pd.DataFrame({"nr": range(12), "first": [20, 21] * 6, "second": [21, 20] * 6})
    with pytest.raises(RankingError, match=r"column 'nr' of the table is not a place .*it only counts the rows"):
        PlackettLuceMixture(1, unranked="below").fit(table)


def test_tables__of_dask() -> None:
    table = pytest.importorskip("dask.dataframe").from_pandas(pd.DataFrame({"first": [0, 1]}), npartitions=1)
    with pytest.raises(RankingError, match=r"Dask tables are not taken; hand in numbers as table.to_dask_array"):
        PlackettLuceMixture(1).fit(table)


def test_names__and_a_wrong_number_of_items() -> None:
    with pytest.raises(SettingsError, match="n_items is 9, but the rows name 4 items; leave out n_items"):
        PlackettLuceMixture(1, unranked="below").fit(named(), n_items=9)
    assert PlackettLuceMixture(1, unranked="below").fit(named(), n_items=4).item_names_ == DRINKS


# --- names of a fitted model -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> PlackettLuceMixture:
    return PlackettLuceMixture(2, unranked="below", random_state=0).fit(named())


def test_names__are_those_of_the_model(model: PlackettLuceMixture) -> None:
    # Two rows that do not list every item: they are looked up, not numbered again.
    few = [[3, 2], [2]]
    assert np.array_equal(model.score_samples(named(few)), model.score_samples(expected_block(few)))
    assert np.array_equal(model.predict(named(few)), model.predict(few))
    assert model.score(named(few)) == model.score(np.array([[3, 2], [2, -1]]))


def test_names__unknown_ones_are_named(model: PlackettLuceMixture) -> None:
    message = (
        r"row 1, column 1: 'cofee' is not among the 4 known items \(2 names are unknown\); "
        r"the nearest are: 'coffee'"
    )
    with pytest.raises(RankingError, match=message):
        model.score([["tea"], ["mate", "cofee"], ["wine"]])
    message = r"row 0, column 0: '07' is not among .*; these are: 'coffee', 'mate', 'milk', 'tea'$"
    with pytest.raises(RankingError, match=message):
        model.predict_proba([["07"]])


def test_names__of_a_model_that_was_fitted_to_numbers() -> None:
    numbered = PlackettLuceMixture(1, unranked="below").fit(ROWS)
    assert numbered.score([["3", "0"]]) == numbered.score([[3, 0]])


# --- items numbered from 1 -------------------------------------------------------------------------------


FROM_ONE = [[1, 2, 3], [3, 1, 2], [2, 1, 3]]


@pytest.mark.parametrize(
    "make",
    [list, np.array, pd.DataFrame, lambda rows: da.from_array(np.array(rows), chunks=1)],
    ids=["list", "array", "pandas", "dask"],
)
def test_from_one__asked_about(make: Callable[[Any], Any]) -> None:
    message = (
        r"no row lists item 0: the items run from 1 to 3, .* subtract 1 from every item. If item 0 exists "
        r"and was never listed, say n_items=4"
    )
    with dask.config.set(scheduler="synchronous"):
        with pytest.raises(RankingError, match=message):
            PlackettLuceMixture(1, unranked="below").fit(make(FROM_ONE))
        with pytest.raises(RankingError, match=message):
            SpectralPlackettLuce(1, unranked="below").fit(make(FROM_ONE))
        # Whoever says how many items there are is not asked.
        kept = PlackettLuceMixture(1, unranked="below").fit(make(FROM_ONE), n_items=4)
        assert kept.item_names_ == ("0", "1", "2", "3")
        assert kept.log_worths_[0, 0] < kept.log_worths_[0, 1:].min()
        # Nor is a fitted model, which knows its items.
        assert np.isfinite(kept.score(make([[1, 2, 3]])))


def test_from_one__ids_and_ranks() -> None:
    with pytest.raises(RankingError, match=r"run from 101 to 309, .* hand them in as text"):
        PlackettLuceMixture(1, unranked="absent").fit([[101, 205], [205, 309]])
    as_text = PlackettLuceMixture(1, unranked="absent").fit([["101", "205"], ["205", "309"]])
    assert as_text.item_names_ == ("101", "205", "309")
    ranks = as_rankings(pd.DataFrame({"tea": [1, 2, 1], "mate": [2, 1, 2], "milk": [2, None, 3]}), unranked="below")
    assert ranks.item_names == ("tea", "mate", "milk")
    assert [ranking.ordered for ranking in ranks.source.block.rows()] == [  # type: ignore[attr-defined]
        ((0,), (1, 2)),
        ((1,), (0,)),
        ((0,), (1,), (2,)),
    ]
    with pytest.raises(RankingError, match=r"0 may be the best rank, an item or no rank: hand in ranks from 1"):
        as_rankings(pd.DataFrame({"tea": [0, 2, 1], "mate": [1, 0, 2], "milk": [2, 1, 0]}))


def test_from_one__folds_without_item_0() -> None:
    # Item 0 is in one row, so one fold is fitted without it.
    rows = [[0, 1, 2], [1, 2], [2, 1], [1, 2], [2, 1], [1, 2]]
    mixture = PlackettLuceMixture(1, unranked="below")
    scores = cross_val_score(mixture, rows, cv=KFold(3), params={"n_items": 3})
    assert np.isfinite(scores).all()


# --- unranked --------------------------------------------------------------------------------------------


SHORT = np.array(padded(ROWS, -1))


@pytest.mark.parametrize("estimator", [PlackettLuceMixture, SpectralPlackettLuce])
def test_unranked__remembered(estimator: Any) -> None:
    rows = SHORT[[0, 2, 3, 5, 6, 7] * 4]
    for unranked in ("below", "absent"):
        block = expected_block([[item for item in row if item >= 0] for row in rows.tolist()], 4, unranked)
        for fitted in (
            estimator(2, unranked=unranked, random_state=0).fit(rows),
            estimator(2, random_state=0).fit(rows, unranked=unranked),
            # What fit is told goes first.
            estimator(2, unranked="absent" if unranked == "below" else "below", random_state=0).fit(
                rows, unranked=unranked
            ),
        ):
            assert fitted.unranked_ == unranked
            for name in ("score", "bic", "aic", "score_samples", "predict", "predict_proba"):
                assert np.array_equal(getattr(fitted, name)(rows), getattr(fitted, name)(block)), name
                said = getattr(fitted, name)(rows, unranked=unranked)
                assert np.array_equal(getattr(fitted, name)(rows), said), name
            assert np.array_equal(clone(fitted).fit_predict(rows, unranked=unranked), fitted.predict(block))


def test_unranked__an_argument_goes_before_what_is_remembered() -> None:
    rows = SHORT[[0, 2, 3, 5, 6, 7]]
    fitted = PlackettLuceMixture(1, unranked="below").fit(rows)
    absent = expected_block([[item for item in row if item >= 0] for row in rows.tolist()], 4, "absent")
    assert fitted.score(rows, unranked="absent") == fitted.score(absent) != fitted.score(rows)


def test_unranked__saved_with_the_model(tmp_path: Path) -> None:
    fitted = PlackettLuceMixture(1).fit(SHORT, unranked="below")
    fitted.save(tmp_path / "model")
    loaded = PlackettLuceMixture.load(tmp_path / "model")
    assert (loaded.unranked, loaded.unranked_) == (None, "below")
    assert loaded.score(SHORT) == fitted.score(SHORT)
    record = json.loads((tmp_path / "model" / "model.json").read_text())
    assert record["fit"]["unranked"] == "below"
    PlackettLuceMixture(1, unranked="below").fit(SHORT).save(tmp_path / "other")
    assert PlackettLuceMixture.load(tmp_path / "other").unranked == "below"


def test_unranked__a_wrong_word() -> None:
    with pytest.raises(SettingsError, match="unranked must be below or absent, but is 'bellow'; did you mean 'below'"):
        PlackettLuceMixture(1, unranked="bellow").fit(SHORT)  # type: ignore[arg-type]


def test_unranked__nobody_says_it() -> None:
    with pytest.raises(RankingError, match="row 0 lists 3 of 4 items"):
        PlackettLuceMixture(1).fit(SHORT)
    full = PlackettLuceMixture(1).fit([[0, 1, 2, 3], [3, 2, 1, 0]])
    assert full.unranked_ is None
    with pytest.raises(RankingError, match="row 0 lists 3 of 4 items"):
        full.score(SHORT)


def test_unranked__a_store_knows(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [[expected_block()]], item_names=DRINKS)
    fits = [PlackettLuceMixture(1, unranked=unranked).fit(store) for unranked in (None, "absent", "below")]
    assert fits[0].log_likelihood_ == fits[1].log_likelihood_ == fits[2].log_likelihood_
    assert fits[2].score(store) == fits[0].score(store) == pytest.approx(fits[2].score(named()), rel=1e-12)
    with pytest.raises(SettingsError, match="a store says itself what unranked items mean"):
        fits[0].score(store, unranked="below")


def test_categories__folds_without_an_item() -> None:
    # "milk" is in one row. The fold that is fitted without this row still knows it.
    kind = pd.CategoricalDtype(DRINKS)
    table = pd.DataFrame(padded(named([[2, 0], *[[0, 1, 3], [3, 1], [1, 0]] * 3]), None)).astype(kind)
    mixture = PlackettLuceMixture(1, unranked="below")
    assert np.isfinite(cross_val_score(mixture, table, cv=KFold(5), error_score="raise")).all()
    with pytest.raises(RankingError, match=r"row 0, column 0 \('0'\): 'milk' is not among"):
        cross_val_score(mixture, table.astype(object), cv=KFold(5), error_score="raise")


@pytest.mark.parametrize("form", ["array", "ragged lists", "names", "pandas"])
def test_unranked__cross_validation(form: str) -> None:
    forms: dict[str, Any] = {
        "array": SHORT,
        "ragged lists": ROWS,
        "names": named(),
        "pandas": pd.DataFrame(padded(named(), None)),
    }
    mixture = PlackettLuceMixture(1, unranked="below", random_state=0)
    found = cross_val_score(mixture, forms[form], cv=KFold(4))
    by_hand = []
    for train, test in KFold(4).split(SHORT):
        fitted = PlackettLuceMixture(1, random_state=0).fit(SHORT[train], unranked="below")
        by_hand.append(fitted.score(expected_block([ROWS[row] for row in test])))
    assert_allclose(found, by_hand, rtol=1e-12)
    search = GridSearchCV(mixture, {"n_components": [1, 2]}, cv=KFold(2)).fit(forms[form])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert np.isfinite(search.score(forms[form]))
