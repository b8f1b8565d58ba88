"""Ratings become rankings: against a plain Python oracle, with every row accounted for."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plmix_dist as pl
from plmix_dist.cluster.executor import ThreadedExecutor
from plmix_dist.datasets.ratings import shuffle
from plmix_dist.datasets.ratings import shuffle as scratch
from plmix_dist.datasets.ratings.selection import _doubled_ranks, _highest
from plmix_dist.errors import IngestError, SettingsError
from plmix_dist.tables import sources, text
from plmix_dist.tables.encode import natural_order

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client

Row = tuple[str, str, float, int]


def some_rows(n_users: int = 40, n_items: int = 12, seed: int = 0, density: float = 0.5) -> list[Row]:
    """Ratings in half stars, in random order, popular items first."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        for item in range(n_items):
            if rng.random() < density / (1 + item / 6):
                rows.append((f"{user + 1}", f"m{item}", float(rng.integers(1, 11)) / 2, int(rng.integers(1e6))))
    rng.shuffle(rows)  # type: ignore[arg-type]
    return [(str(user), str(item), float(rating), int(time)) for user, item, rating, time in rows]


def write_csv(path: Path, rows: list[Any], *, time: bool = True, names: str = "user,item,rating,time") -> Path:
    header = names if time else names.rsplit(",", 1)[0]
    lines = [",".join(map(str, row if time else row[:3])) for row in rows]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def oracle(
    rows: list[Row], min_user: int = 1, min_item: int = 1, items: list[str] | None = None
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The ranking of each user, by removing users and items one at a time until all have enough."""
    latest: dict[tuple[str, str], tuple[int, int, float]] = {}
    for place, (user, item, rating, time) in enumerate(rows):
        if (user, item) not in latest or (time, place) > latest[user, item][:2]:
            latest[user, item] = (time, place, rating)
    left = {key: value[2] for key, value in latest.items()}
    while True:
        users, found = Counter(key[0] for key in left), Counter(key[1] for key in left)
        poor = {key for key in left if users[key[0]] < min_user or found[key[1]] < min_item}
        if not poor:
            break
        first = min(poor)
        drop = 0 if users[first[0]] < min_user else 1
        left = {key: rating for key, rating in left.items() if key[drop] != first[drop]}
    by_user: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (user, item), rating in left.items():
        if items is None or item in items:
            by_user[user][rating].append(item)
    return {
        user: tuple(tuple(sorted(by_rating[rating])) for rating in sorted(by_rating, reverse=True))
        for user, by_rating in by_user.items()
        if len(by_rating) > 1
    }


def rankings_of(store: pl.RankingStore) -> dict[str, tuple[tuple[str, ...], ...]]:
    found = {}
    for block in store.iter_leaves():
        assert block.ids is not None
        assert not block.below.any()
        for user, row in zip(block.ids.tolist(), block.rows(), strict=True):
            assert str(user) not in found
            found[str(user)] = tuple(tuple(sorted(store.item_names[item] for item in place)) for place in row.ordered)
    return found


def counts_of(store: pl.RankingStore) -> dict[str, Any]:
    counts: dict[str, Any] = store.manifest.history[0]["ratings"]
    assert counts["rows"] == counts["used"] + sum(counts["left_out"].values())
    return counts


def digest(store: pl.RankingStore) -> list[str]:
    return [part.index_sha256 for part in store.manifest.partitions]


def test_ratings__rankings_with_ties_as_in_plain_python(tmp_path: Path) -> None:
    rows = some_rows()
    store = pl.ingest_ratings(write_csv(tmp_path / "r.csv", rows), tmp_path / "s", client=False)
    assert rankings_of(store) == oracle(rows)
    assert any(len(place) > 1 for row in oracle(rows).values() for place in row)
    assert store.item_names == tuple(natural_order({row[1] for row in rows}))
    counts = counts_of(store)
    assert counts["rows"] == len(rows)
    assert counts["used"] == sum(len(place) for row in oracle(rows).values() for place in row)
    assert pl.verify(store) == []


@pytest.mark.parametrize(("min_user", "min_item"), [(1, 12), (5, 1), (4, 17), (6, 10)])
def test_filters__largest_set_where_all_have_enough(tmp_path: Path, min_user: int, min_item: int) -> None:
    rows = some_rows(seed=min_user, density=0.9)
    store = pl.ingest_ratings(
        write_csv(tmp_path / "r.csv", rows),
        tmp_path / "s",
        min_user_ratings=min_user,
        min_item_ratings=min_item,
        client=False,
    )
    expected = oracle(rows, min_user, min_item)
    assert expected
    assert len(expected) < len(oracle(rows)) or min_user == 1
    assert rankings_of(store) == expected
    listed = Counter(item for row in expected.values() for place in row for item in place)
    assert set(store.item_names) >= set(listed)
    counts_of(store)


def test_filters__nothing_left_says_what_to_do(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "r.csv", some_rows())
    with pytest.raises(IngestError, match=r"0 items are left .*at least 1 ratings per user and 1000 per item.*lower"):
        pl.ingest_ratings(path, tmp_path / "s", min_item_ratings=1000, client=False)
    with pytest.raises(IngestError, match=r"12 items are left .* but 50 are needed"):
        pl.ingest_ratings(path, tmp_path / "s", n_items=50, client=False)
    assert not (tmp_path / "s" / "manifest.json").exists()
    assert not list(tmp_path.glob("s.scratch-*"))


def test_most_rated__items_and_counts(tmp_path: Path) -> None:
    rows = some_rows(seed=3)
    counts = Counter(row[1] for row in rows)
    names = natural_order(counts)
    best = sorted(names, key=lambda name: (-counts[name], names.index(name)))[:5]
    store = pl.ingest_ratings(write_csv(tmp_path / "r.csv", rows), tmp_path / "s", n_items=5, client=False)
    assert list(store.item_names) == [name for name in names if name in best]
    assert rankings_of(store) == oracle(rows, items=best)
    assert counts_of(store)["left_out"]["items_not_chosen"] == sum(
        count for name, count in counts.items() if name not in best
    )


def test_rank_variance__of_observed_ranks_as_in_plain_python(tmp_path: Path) -> None:
    rows = some_rows(seed=4)
    ranks: dict[str, list[float]] = defaultdict(list)
    for user in {row[0] for row in rows}:
        own = {row[1]: row[2] for row in rows if row[0] == user}
        for item, rating in own.items():
            if len(own) > 1:
                above = sum(other > rating for other in own.values())
                equal = sum(other == rating for other in own.values())
                ranks[item].append((above + (equal - 1) / 2) / (len(own) - 1))
    best = sorted(ranks, key=lambda item: -np.var(ranks[item]))[:4]
    store = pl.ingest_ratings(
        write_csv(tmp_path / "r.csv", rows), tmp_path / "s", n_items=4, choose="rank-variance", client=False
    )
    assert set(store.item_names) == set(best)


def test_duplicates__last_by_time_then_by_line(tmp_path: Path) -> None:
    rows = [("1", "a", 5.0, 30), ("1", "b", 3.0, 5), ("1", "a", 1.0, 20), ("1", "b", 4.0, 5), ("1", "c", 2.0, 1)]
    store = pl.ingest_ratings(write_csv(tmp_path / "r.csv", rows), tmp_path / "s", client=False)
    assert rankings_of(store) == {"1": (("a",), ("b",), ("c",))} == oracle(rows)
    assert counts_of(store)["left_out"]["duplicates"] == 2


def test_duplicates__refused_without_time_unless_asked_for(tmp_path: Path) -> None:
    rows = [("1", "a", 5.0, 0), ("1", "b", 3.0, 0), ("1", "a", 1.0, 0)]
    path = write_csv(tmp_path / "r.csv", rows, time=False)
    with pytest.raises(
        IngestError, match=r"user '1' rated item 'a' twice: .*r.csv, line or row 2 and .* 4; add a column"
    ):
        pl.ingest_ratings(path, tmp_path / "s", client=False)
    store = pl.ingest_ratings(path, tmp_path / "s", duplicates="last", client=False)
    assert rankings_of(store) == {"1": (("b",), ("a",))}
    timed = write_csv(tmp_path / "t.csv", rows)
    with pytest.raises(IngestError, match="twice"):
        pl.ingest_ratings(timed, tmp_path / "t", duplicates="refuse", client=False)


BAD = """user,item,rating,time
1,a,5,10
1,b,good,11
,b,3,12
1,,3,12

1,c,4
1,d,nan,13
1,e,2,noon
1,f,1_0,14
2,a,1,15
1,g,1,16
2,g,5,2020-01-01 12:00:00
"""


def test_bad_cells__named_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(BAD)
    with pytest.raises(IngestError, match=r"r.csv, line 3: the rating is 'good', but should be a number \(and 6 more"):
        pl.ingest_ratings(path, tmp_path / "s", client=False)
    store = pl.ingest_ratings(path, tmp_path / "s", on_error="quarantine", client=False)
    assert rankings_of(store) == {"1": (("a",), ("g",)), "2": (("g",), ("a",))}
    rejected = {row["line"]: (row["reason"], row["contents"]) for row in store.rejected_rows()}
    assert rejected == {
        3: ("bad-rating", "1,b,good,11"),
        4: ("missing-label", ",b,3,12"),
        5: ("missing-label", "1,,3,12"),
        7: ("syntax", "1,c,4"),
        8: ("bad-rating", "1,d,nan,13"),
        9: ("bad-time", "1,e,2,noon"),
        10: ("bad-rating", "1,f,1_0,14"),
    }
    counts = counts_of(store)
    assert counts["rows"] == 11
    assert counts["left_out"]["bad"] == 7


def test_bad_cells__in_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {
            "user_id": pa.array([1, 1, None, 2, 2, 2]),
            "item_id": pa.array(["a", "b", "a", "b", None, "a"]),
            "rating": pa.array([5.0, None, 3.0, 4.0, 1.0, float("inf")]),
        }
    )
    pq.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(IngestError, match=r"r.parquet, row 2: the rating is missing"):
        pl.ingest_ratings(tmp_path / "r.parquet", tmp_path / "s", client=False)
    with pytest.raises(IngestError, match=r"2 items are left|no valid ranking"):
        pl.ingest_ratings(tmp_path / "r.parquet", tmp_path / "s", on_error="drop", client=False)


def test_parquet__same_bytes_as_text(tmp_path: Path) -> None:
    rows = some_rows()
    users, items, ratings, times = zip(*rows, strict=True)
    table = pa.table({"userId": [int(user) for user in users], "movieId": items, "rating": ratings, "timestamp": times})
    pq.write_table(table, tmp_path / "r.parquet", row_group_size=37)
    text = pl.ingest_ratings(write_csv(tmp_path / "r.csv", rows), tmp_path / "s", client=False)
    parquet = pl.ingest_ratings(tmp_path / "r.parquet", tmp_path / "p", client=False)
    assert rankings_of(text) == rankings_of(parquet)
    assert [block.equals(other) for block, other in zip(text.iter_leaves(), parquet.iter_leaves(), strict=True)] == [
        True
    ]
    assert text.label_kind("ids") == "number"


def test_layouts__headless_double_colons_tabs_gzip_and_named_columns(tmp_path: Path) -> None:
    rows = some_rows()
    expected = oracle(rows)
    (tmp_path / "a.dat").write_text("".join("::".join(map(str, row)) + "\n" for row in rows))
    (tmp_path / "b.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    with gzip.open(tmp_path / "c.csv.gz", "wt") as file:
        file.write("who,what,points,when\r\n" + "".join(f"{u},{i},{r},{t}\r\n" for u, i, r, t in rows))
    named = {"user": "who", "item": "what", "rating": "points", "time": "when"}
    for name, columns in (("a.dat", None), ("b.tsv", None), ("c.csv.gz", named)):
        store = pl.ingest_ratings(tmp_path / name, tmp_path / f"{name}-s", columns=columns, client=False)
        assert rankings_of(store) == expected, name


def test_layouts__quoted_titles_with_commas(tmp_path: Path) -> None:
    rows = [("ann", 'Jaws, "1"', 5, 1), ("ann", "Up", 3, 2), ("bob", "Up", 4, 1), ("bob", 'Jaws, "1"', 2, 2)]
    with (tmp_path / "r.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("user", "title", "rating", "time"), *rows])
    store = pl.ingest_ratings(tmp_path / "r.csv", tmp_path / "s", client=False)
    assert rankings_of(store) == {"ann": (('Jaws, "1"',), ("Up",)), "bob": (("Up",), ('Jaws, "1"',))}
    assert store.label_kind("ids") == "text"


def test_layouts__no_column_for_ratings(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("who,item,mark\n1,a,3\n")
    with pytest.raises(IngestError, match=r"no column holds the user, rating; found: who, item, mark"):
        pl.ingest_ratings(tmp_path / "r.csv", tmp_path / "s", client=False)
    with pytest.raises(SettingsError, match="unknown column role 'stars' in ratings"):
        pl.ingest_ratings(tmp_path / "r.csv", tmp_path / "s", columns={"stars": "mark"}, client=False)
    with pytest.raises(SettingsError, match="choose says how n_items"):
        pl.ingest_ratings(tmp_path / "r.csv", tmp_path / "s", choose="most-rated", client=False)


def test_users_without_order__left_out_and_counted(tmp_path: Path) -> None:
    rows = [("1", "a", 5.0, 0), ("2", "a", 3.0, 0), ("2", "b", 3.0, 0), ("3", "a", 1.0, 0), ("3", "b", 2.0, 0)]
    store = pl.ingest_ratings(write_csv(tmp_path / "r.csv", rows), tmp_path / "s", client=False)
    assert rankings_of(store) == {"3": (("b",), ("a",))}
    left_out = counts_of(store)["left_out"]
    assert (left_out["users_with_one_item"], left_out["users_with_equal_ratings"]) == (1, 2)


def small_pieces(monkeypatch: pytest.MonkeyPatch, leaf: int, slice_bytes: int, chunk: int) -> None:
    monkeypatch.setattr(shuffle, "_LEAF_RATINGS", leaf)
    monkeypatch.setattr(sources, "_SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(text, "CHUNK_BYTES", chunk)


def test_same_bytes__any_slices_chunks_threads_and_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_rows(n_users=120)
    path = write_csv(tmp_path / "r.csv", rows)
    found = []
    for number, (slice_bytes, chunk, threads, tasks) in enumerate(
        [(1 << 20, 1 << 20, 1, 1), (300, 1 << 20, 2, 4), (1000, 64, 3, 64)]
    ):
        small_pieces(monkeypatch, 64, slice_bytes, chunk)
        monkeypatch.setattr(scratch, "_N_TASKS", tasks)
        store = pl.ingest_ratings(
            path,
            tmp_path / f"s{number}",
            complete=3,
            n_items=6,
            max_sweeps=30,
            tol=1e-2,
            executor=ThreadedExecutor(threads),
        )
        assert len(store.manifest.partitions) == 8
        found.append((digest(store), store.manifest.history[0]["ratings"]))
    assert found[0] == found[1] == found[2]


def test_same_bytes__on_a_cluster(tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch, 64, 1000, 1 << 20)
    path = write_csv(tmp_path / "r.csv", some_rows(n_users=80))
    settings: dict[str, Any] = {"complete": 3, "n_items": 6, "max_sweeps": 20, "tol": 1e-2}
    here = pl.ingest_ratings(path, tmp_path / "here", client=False, **settings)
    there = pl.ingest_ratings(path, tmp_path / "there", client=client, **settings)
    assert digest(here) == digest(there)
    assert here.manifest.history[0]["ratings"] == there.manifest.history[0]["ratings"]
    assert not list(tmp_path.glob("*.scratch-*"))


def test_same_job_twice__does_nothing(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "r.csv", some_rows())
    first = pl.ingest_ratings(path, tmp_path / "s", client=False)
    before = (tmp_path / "s" / "manifest.json").read_bytes()
    again = pl.ingest_ratings(path, tmp_path / "s", client=False)
    assert digest(first) == digest(again)
    assert (tmp_path / "s" / "manifest.json").read_bytes() == before
    with pytest.raises(FileExistsError, match="already holds another store"):
        pl.ingest_ratings(path, tmp_path / "s", min_user_ratings=4, client=False)
    other = pl.ingest_ratings(path, tmp_path / "s", min_user_ratings=4, overwrite=True, client=False)
    assert rankings_of(other) == oracle(some_rows(), min_user=4)


def test_several_files__later_files_win_equal_times(tmp_path: Path) -> None:
    write_csv(tmp_path / "1.csv", [("1", "a", 5.0, 7), ("1", "b", 3.0, 7)])
    write_csv(tmp_path / "2.csv", [("1", "a", 1.0, 7)])
    store = pl.ingest_ratings([tmp_path / "1.csv", tmp_path / "2.csv"], tmp_path / "s", client=False)
    assert rankings_of(store) == {"1": (("b",), ("a",))}
    write_csv(tmp_path / "3.csv", [("1", "a", 1.0, 7)], time=False)
    with pytest.raises(IngestError, match=r"3.csv has no column of times"):
        pl.ingest_ratings([tmp_path / "1.csv", tmp_path / "3.csv"], tmp_path / "t", client=False)


def test_remote_store__through_fsspec(tmp_path: Path, s3_bucket: dict[str, Any]) -> None:
    from plmix_dist.store import Location

    rows = some_rows()
    place = Location.of("s3://rankings/ratings", s3_bucket)
    store = pl.ingest_ratings(write_csv(tmp_path / "r.csv", rows), place, client=False)
    assert rankings_of(store) == oracle(rows)
    assert not [key for key in Location.of("s3://rankings", s3_bucket).listing() if "scratch" in key]


CELLS = st.sampled_from(["1", "2", "ann", "", " b ", '"q,"', "5", "4.5", "x", "nan", "1e1", "=1", "a\tb"])


@given(st.lists(st.lists(CELLS, min_size=2, max_size=4), max_size=12), st.sampled_from([8, 1 << 20]))
def test_fuzz__every_row_is_used_or_reported(rows: list[list[str]], chunk: int) -> None:
    import tempfile
    from pathlib import Path

    folder = Path(tempfile.mkdtemp())
    (folder / "r.csv").write_text("user,item,rating\n" + "".join(",".join(row) + "\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "CHUNK_BYTES", chunk)
        try:
            store = pl.ingest_ratings(folder / "r.csv", folder / "s", on_error="drop", duplicates="last", client=False)
        except IngestError:
            return
    counts = counts_of(store)
    assert counts["rows"] == sum(1 for row in rows if ",".join(row).strip())
    assert counts["used"] == store.n_entries
    assert len(list(store.rejected_rows())) == counts["left_out"]["bad"]


def test_doubled_ranks__as_scipy_has_them() -> None:
    from scipy.stats import rankdata

    values = np.random.default_rng(0).integers(0, 6, (30, 9)).astype(float)
    expected = 2 * rankdata(-values, axis=1, method="average")
    np.testing.assert_array_equal(_doubled_ranks(values), expected)


def test_history__is_plain_json(tmp_path: Path) -> None:
    store = pl.ingest_ratings(write_csv(tmp_path / "r.csv", some_rows()), tmp_path / "s", client=False)
    event = json.loads((tmp_path / "s" / "manifest.json").read_text())["history"][0]
    assert event["settings"]["format"] == "ratings"
    assert event["notes"][0].startswith(f"{counts_of(store)['used']:,} of ")


def plmix(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    from plmix_dist.cli import main

    with pytest.raises(SystemExit) as ended:
        main([*map(str, words), "--workers", "0"])
    said = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), said.out, said.err


def test_command_line__ties_and_completion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = some_rows()
    path = write_csv(tmp_path / "r.csv", rows)
    code, out, err = plmix(
        capsys, "ingest", path, tmp_path / "s", "--format", "ratings", "--min-user-ratings", 4, "--json"
    )
    assert code == 0, err
    assert rankings_of(pl.open_store(tmp_path / "s")) == oracle(rows, min_user=4)
    assert json.loads(out)["n_rankings"] == len(oracle(rows, min_user=4))
    options = ("--format", "ratings", "--complete", 3, "--items", 5, "--max-sweeps", 4)
    code, out, err = plmix(capsys, "ingest", path, tmp_path / "c", *options)
    assert code == 0, err
    assert "not converged after 4 sweeps" in out
    made = pl.open_store(tmp_path / "c")
    assert (made.n_items, made.n_rankings) == (5, len({row[0] for row in rows}))
    code, out, err = plmix(capsys, "ingest", path, tmp_path / "c", *options)
    assert (code, "nothing to do" in out) == (0, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--complete", 3), "--complete is for ratings; add --format ratings"),
        (
            ("--format", "ratings", "--items", "names.txt"),
            "--items is the number of items to choose, but is 'names.txt'",
        ),
        (("--format", "ratings", "--merge"), "--merge is not for ratings; leave it out"),
        (("--format", "ratings", "--where", "user=1"), "--where is not for ratings; leave it out"),
        (("--format", "ratings", "--most-dropped", "0.5"), "--most-dropped is not for ratings; leave it out"),
        (("--format", "ratings", "--column", "rank=rating"), "unknown column role 'rank' in ratings"),
    ],
)
def test_command_line__options_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[Any, ...], words: str
) -> None:
    path = write_csv(tmp_path / "r.csv", some_rows())
    code, _, err = plmix(capsys, "ingest", path, tmp_path / "s", *options)
    assert code == 1
    assert words in err
    assert not (tmp_path / "s").exists()


def test_interrupted__the_same_command_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plmix_dist.datasets.ratings import ingest as driver

    small_pieces(monkeypatch, 64, 1 << 20, 1 << 20)
    path = write_csv(tmp_path / "r.csv", some_rows(n_users=60))
    whole = pl.ingest_ratings(path, tmp_path / "whole", client=False)
    written = driver._write_leaf

    def stopped(read: Any, ranked: Any, task: Any) -> int:
        if task.number == 2:
            raise KeyboardInterrupt
        return written(read, ranked, task)

    monkeypatch.setattr(driver, "_write_leaf", stopped)
    with pytest.raises(KeyboardInterrupt):
        pl.ingest_ratings(path, tmp_path / "s", executor=ThreadedExecutor(1))
    assert not list(tmp_path.glob("s.scratch-*"))
    monkeypatch.setattr(driver, "_write_leaf", written)
    assert digest(pl.ingest_ratings(path, tmp_path / "s", client=False)) == digest(whole)


def test_highest__among_equals_the_first() -> None:
    assert _highest(np.array([3, 5, 3, 5, 3]), 3).tolist() == [0, 1, 3]
