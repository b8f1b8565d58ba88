"""Ingest then export is the identity: a format gives back everything that a store holds, or is an error; and xarray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import plmix_dist as pl
from plmix_dist import export, ingest
from plmix_dist.errors import IngestError
from tests.helpers.ingest_helpers import cut_small
from tests.helpers.oracle import PlainRankings, Ranking, full, plain, rankings, runs_of_labels, write_store

if TYPE_CHECKING:
    from pathlib import Path


SUFFIXES = {"preflib": ".toi", "orderings": ".csv", "wide": ".tsv", "long": ".csv.gz", "parquet": ".parquet"}

# Text without control characters and surrounding spaces, which only Parquet can keep.
WORDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=6).filter(
    lambda text: text == text.strip()
)
# Text with a special meaning in spreadsheets, CSV or the notation of orderings.
SIGNS = st.sampled_from(["=cmd()", "'", "''=", "+1", "-1", "007", '"', "{", "|", ",", "a b", "NA", "None", "#1"])


@st.composite
def contents(draw: st.DrawFn) -> tuple[PlainRankings, list[str]]:
    """Any rows that a store can hold, and item names of which some may never occur."""
    names = draw(st.lists(WORDS | SIGNS, min_size=2, max_size=6, unique=True))
    kinds = draw(st.sets(st.sampled_from(["ties", "slates", "below", "absent", "weights"])))
    rows = [
        plainer(ranking, kinds, len(names)) for ranking in draw(st.lists(rankings(len(names)), min_size=1, max_size=8))
    ]
    integers = st.integers(-(2**63), 2**63 - 1)
    ids = draw(
        st.none()
        | st.lists(integers, min_size=len(rows), max_size=len(rows))
        | st.lists(WORDS | SIGNS | st.just(""), min_size=len(rows), max_size=len(rows))
    )
    return PlainRankings(len(names), rows, ids, draw(runs_of_labels(len(rows)))), names


def plainer(ranking: Ranking, kinds: set[str], n_items: int) -> Ranking:
    """The row restricted to `kinds`, so that each format often gets rows that it can hold."""
    places = ranking.ordered
    if "ties" not in kinds:
        places = tuple((item,) for place in places for item in place)
    offered = ranking.offered if "slates" in kinds else ()
    n_listed = sum(map(len, places)) + len(offered)
    unranked: Any = "absent"
    # A slate says what was on offer; any other row of one item must be the best of all items.
    if n_listed < n_items and not offered:
        only = kinds & {"below", "absent"}
        unranked = "below" if n_listed == 1 else ranking.unranked if len(only) != 1 else next(iter(only))
    weight = ranking.weight if "weights" in kinds else float(1 + len(places) % 3)
    return Ranking(places, offered, unranked, weight)


def said_of_unranked(rows: PlainRankings) -> set[str]:
    """What unlisted items mean in rows that are neither full nor slates."""
    return {
        ranking.unranked
        for ranking in rows.rows
        if not ranking.offered and sum(map(len, ranking.ordered)) < rows.n_items
    }


def can_hold(form: str, rows: PlainRankings, names: list[str]) -> bool | None:
    """Whether a format can hold everything in the rows; None if both answers are right."""
    tied = any(len(place) > 1 for ranking in rows.rows for place in ranking.ordered)
    slates = any(ranking.offered for ranking in rows.rows)
    if form == "preflib":
        whole = all(ranking.weight.is_integer() for ranking in rows.rows)
        labelled = rows.ids is not None or rows.groups is not None
        fits = whole and not slates and not labelled and len(said_of_unranked(rows)) < 2
        # Above 2**53 float64 has no exact counts, so their sum in the header is not exact.
        return fits if sum(ranking.weight for ranking in rows.rows) < 2**53 else fits and None
    if form == "wide":
        return not tied and not slates and not {"NA", "NaN", "nan", "-1"}.intersection(names)
    if form == "long":
        return rows.ids is None or len(set(rows.ids)) == len(rows.ids)
    return True


def as_text(labels: list[Any] | None) -> list[str] | None:
    return None if labels is None else [str(label) for label in labels]


@pytest.mark.promise(19)
@pytest.mark.parametrize("form", SUFFIXES)
@settings(max_examples=15)
@example(case=(PlainRankings(2, [Ranking(((0,),), (), "below", 2.0)]), ["0", "NA"]), size=30)
@example(case=(PlainRankings(2, [Ranking(((0,),), (), "below", 2.0)]), [",", "1"]), size=30)
@example(case=(PlainRankings(3, [full(0, 1, 2), full(0, 2, 1)]), ["Lee, Ann", "Bo", "Cy"]), size=30)
@example(
    case=(PlainRankings(5, [Ranking(((0,), (two,)), (), "below", 1.0) for two in (1, 2, 3, 4, 1)]), [*"abcde"]), size=30
)
@given(case=contents(), size=st.sampled_from([30, 1 << 20]))
def test_identity__gives_back_or_refuses(
    tmp_path_factory: pytest.TempPathFactory, form: str, case: tuple[PlainRankings, list[str]], size: int
) -> None:
    rows, names = case
    folder: Path = tmp_path_factory.mktemp("law")
    store = write_store(folder / "store", [[rows.block()]], item_names=names, chunk_bytes=1 << 16)
    target = folder / f"rows{SUFFIXES[form]}"
    fits = can_hold(form, rows, names)
    try:
        export(store, target, format=form)
    except IngestError as error:
        assert fits is not True
        assert str(error).startswith(f"cannot write {target}: ")  # noqa: PT017
        assert "export to" in str(error)  # noqa: PT017
        assert sorted(path.name for path in folder.iterdir()) == ["store"]
        return
    assert fits is not False
    said = said_of_unranked(rows)
    # Parquet stores it per row, text only if rows differ; otherwise it must be given again.
    unranked: Any = next(iter(said)) if len(said) == 1 and form != "parquet" else None
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch, size)
        again = ingest(target, folder / "again", unranked=unranked)
    found = plain(again.block())
    assert again.item_names == tuple(names)
    assert found.rows == rows.rows
    ids = list(range(1, len(rows.rows) + 1)) if form == "long" and rows.ids is None else rows.ids
    if form == "parquet":
        assert (found.ids, found.groups) == (ids, rows.groups)
    else:
        # Text has no types: labels that all look like numbers are numbers.
        assert (as_text(found.ids), as_text(found.groups)) == (as_text(ids), as_text(rows.groups))
        export(again, folder / f"second{SUFFIXES[form]}", format=form)
        assert (folder / f"second{SUFFIXES[form]}").read_bytes() == target.read_bytes()


@pytest.mark.promise(19)
@pytest.mark.parametrize("form", ["parquet", "orderings", "long"])
def test_identity__slate_with_all_others_below(tmp_path: Path, form: str) -> None:
    # One item chosen, one more listed, and all others on offer: every format must keep this.
    rows = PlainRankings(4, [Ranking(((2,),), (0,), "below", 1.0)])
    store = write_store(tmp_path / "store", [[rows.block()]], item_names=["a", "b", "c", "d"])
    target = tmp_path / f"rows{SUFFIXES[form]}"
    try:
        export(store, target, format=form)
    except IngestError as error:
        assert "cannot write" in str(error)  # noqa: PT017 - either it is refused, or it comes back
    else:
        again = ingest(target, tmp_path / "again", unranked="below")
        assert plain(again.block()).rows == rows.rows


@pytest.mark.promise(19)
def test_identity__of_a_store_made_from_a_file(tmp_path: Path) -> None:
    text = "count,ordering,ranking,group\n2.5,{tea mate} milk,7,ann\n1,milk | tea,8,ann\n3,mate tea milk,9,bob\n"
    (tmp_path / "a.csv").write_text(text)
    export(ingest(tmp_path / "a.csv", tmp_path / "store"), tmp_path / "b.csv")
    # The file does not list the items in their order, but needs no file of names for it.
    assert (tmp_path / "b.csv").read_text() == text
    assert not (tmp_path / "b.csv.items").exists()


def test_export__to_a_url(tmp_path: Path) -> None:
    import fsspec

    (tmp_path / "a.csv").write_text("count,ordering\n2,tea mate\n")
    export(ingest(tmp_path / "a.csv", tmp_path / "store"), "memory://out/b.csv")
    assert fsspec.filesystem("memory").cat("/out/b.csv") == b"count,ordering\n2,tea mate\n"
    fsspec.filesystem("memory").rm("/out", recursive=True)


def test_export__failure_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("count,ordering\n2,tea mate\n1,tea | mate\n")
    store = ingest(tmp_path / "a.csv", tmp_path / "store")
    (tmp_path / "b.csv").write_text("precious")
    with pytest.raises(IngestError, match="ties and slates do not fit"):
        export(store, tmp_path / "b.csv", format="wide", overwrite=True)
    assert (tmp_path / "b.csv").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv", "store"]


def test_xarray__shows_every_column_of_the_store(finished_store: Path, every_column) -> None:
    pytest.importorskip("xarray")
    view = pl.as_xarray(finished_store)
    assert dict(view.sizes) == {"ranking": 20, "place": 6, "item": 6}
    assert all(hasattr(view[name].data, "dask") for name in ("items", "tied", "weight", "group", "id"))
    table = view.compute(scheduler="synchronous")
    for number, ranking in enumerate(every_column.rows):
        listed = [item for tie in ranking.ordered for item in tie] + list(ranking.offered)
        row = table.isel(ranking=number)
        assert row["items"].to_numpy().tolist() == listed + [-1] * (6 - len(listed))
        assert int(row["n_ordered"]) == sum(map(len, ranking.ordered))
        assert bool(row["below"]) == (ranking.unranked == "below")
        assert float(row["weight"]) == ranking.weight
        flags = [place > 0 for tie in ranking.ordered for place, _ in enumerate(tie)]
        assert row["tied"].to_numpy().tolist()[: len(flags)] == flags
    assert table["id"].to_numpy().tolist() == every_column.ids
    assert table["group"].to_numpy().tolist() == every_column.groups
    assert table["item"].to_numpy().tolist() == list(pl.open_store(finished_store).item_names)
