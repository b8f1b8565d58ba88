"""Objects of other packages, as these make them, straight into a fit; skipped where a package is not installed."""

from __future__ import annotations

from typing import Any

import pytest

import plmix_dist as plm
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import RankingError

BATTLES = {
    "model_a": ["x", "y", "x", "z"],
    "model_b": ["y", "z", "z", "x"],
    "winner": ["model_a", "tie", "model_b", "model_a"],
    "text": ["..."] * 4,
}
FOUGHT = [([["x"], ["y"]], 1.0), ([["y", "z"]], 1.0), ([["z"], ["x"]], 1.0), ([["z"], ["x"]], 1.0)]


def rows_of(source: Any, **options: Any) -> list[Any]:
    """The places of each row by name, and its weight."""
    found = as_rankings(source, **options)
    names = found.item_names
    return [
        ([sorted(names[item] for item in place) for place in row.ordered], row.weight)
        for block in found.source.iter_leaves()
        for row in block.rows()
    ]


@pytest.mark.filterwarnings("ignore")  # of its own code
def test_votekit() -> None:
    votekit = pytest.importorskip("votekit", reason="needs votekit")
    ballots = [
        votekit.RankBallot(ranking=[{"A"}, {"B", "C"}], weight=3),
        votekit.RankBallot(ranking=[{"B"}, set(), {"A"}], weight=1.5),
    ]
    profile = votekit.RankProfile(ballots=ballots, candidates=["A", "B", "C", "nobody's"])
    assert rows_of(profile, unranked="below") == [([["A"], ["B", "C"]], 3.0), ([["B"], ["A"]], 1.5)]
    assert as_rankings(profile, unranked="below").item_names == ("A", "B", "C", "nobody's")
    scores = votekit.ScoreProfile(ballots=[votekit.ScoreBallot(scores={"A": 3, "B": 1}, weight=2)])
    with pytest.raises(RankingError, match="ballot 0 has no ranking"):
        as_rankings(scores)


def test_pref_voting() -> None:
    profiles = pytest.importorskip("pref_voting.profiles", reason="needs pref_voting")
    with_ties = pytest.importorskip("pref_voting.profiles_with_ties", reason="needs pref_voting")
    names = {0: "a", 1: "b", 2: "c"}
    plain = profiles.Profile([[0, 1, 2], [2, 1, 0]], rcounts=[2, 1], cmap=names)
    assert rows_of(plain) == [([["a"], ["b"], ["c"]], 2.0), ([["c"], ["b"], ["a"]], 1.0)]
    assert as_rankings(profiles.Profile([[0, 1], [1, 0]])).item_names == ("0", "1")
    ties = with_ties.ProfileWithTies([{0: 1, 1: 2, 2: 2}, {2: 1, 0: 2}], rcounts=[2, 1], cmap=names)
    assert rows_of(ties, unranked="below") == [([["a"], ["b", "c"]], 2.0), ([["c"], ["a"]], 1.0)]
    unseen = with_ties.ProfileWithTies([{0: 1, 1: 2}], candidates=[0, 1, 2], cmap=names)
    assert as_rankings(unseen, unranked="below").item_names == ("a", "b", "c")


def test_datasets(tmp_path: Any) -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    whole = datasets.Dataset.from_dict(BATTLES)
    assert rows_of(whole) == rows_of(whole.with_format("numpy")) == FOUGHT
    assert rows_of(whole.select([2, 0])) == [FOUGHT[2], FOUGHT[0]]
    assert rows_of(datasets.Dataset.from_dict({"ranking": [["a", "b"], ["b", "a"]]})) == [
        ([["a"], ["b"]], 1.0),
        ([["b"], ["a"]], 1.0),
    ]
    records = [
        [{"model": "b", "rank": 2}, {"model": "a", "rank": 1}],
        [{"model": "b", "rank": 1}, {"model": "a", "rank": 1}],
    ]
    nested = datasets.Dataset.from_dict({"answers": records})
    assert rows_of(nested) == [([["a"], ["b"]], 1.0), ([["a", "b"]], 1.0)]
    assert plm.ingest(whole, tmp_path / "store").total_weight == 4
    with pytest.raises(RankingError, match="hand in one part of the datasets, such as 'train'"):
        as_rankings(datasets.DatasetDict(train=whole))
    with pytest.raises(RankingError, match="a dataset that streams"):
        as_rankings(whole.to_iterable_dataset())


def test_duckdb(tmp_path: Any) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
    values = ", ".join(str(row) for row in zip(*BATTLES.values(), strict=True))
    query = f"select * from (values {values}) as fought(model_a, model_b, winner, text)"
    assert sorted(rows_of(duckdb.sql(query)), key=str) == sorted(FOUGHT, key=str)
    assert plm.ingest(duckdb.sql(query), tmp_path / "store").total_weight == 4
    counted = duckdb.sql("select 'a' as first, 'b' as second, 3 as count")
    assert rows_of(counted) == [([["a"], ["b"]], 3.0)]


def test_a_lazy_table_of_polars() -> None:
    polars = pytest.importorskip("polars", reason="needs polars")
    assert rows_of(polars.DataFrame(BATTLES)) == FOUGHT
    with pytest.raises(RankingError, match=r"hand in table.collect\(\)"):
        as_rankings(polars.DataFrame(BATTLES).lazy())
