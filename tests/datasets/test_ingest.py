"""ingest(): sources, bad rows, merging, appending, second runs, clusters."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import signal
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import dask.array as da
import fsspec
import numpy as np
import pandas as pd
import pytest

from plmix_dist import PlackettLuceMixture, RankingBlock, info, ingest, open_store
from plmix_dist.datasets import plan
from plmix_dist.errors import (
    IngestError,
    NoInformationWarning,
    PlmixError,
    SettingsError,
    StoreExistsError,
    StoreNotFoundError,
    UnfinishedStoreError,
)
from plmix_dist.store import Location, WriteSession, write_partition
from tests.helpers.ingest_helpers import cut_small, ingest_error, labels_of, named_rows, rejected, row, write
from tests.helpers.oracle import all_damage, full, index_digests, plain, plan_for, snapshot, write_store

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client


MENU = ("tea", "mate", "milk")


# --- bad rows --------------------------------------------------------------------------------------------

# A line, and its reason, item and message. There are good rows between the bad ones.
BAD_LINES = [
    ("1,tea,mate,milk", None),
    ("1,tea,tea,milk", ("duplicate-item", "tea", "item tea is listed twice")),
    ("1,tea,beer,milk", ("unknown-item", "beer", "item 'beer' is not one of the 3 items")),
    ("1,,,", ("empty", "", "no item is ranked")),
    ("1,mate,,", ("single-item", "mate", "item mate alone was on offer, so nothing was chosen")),
    ("1,milk,mate,tea", None),
    ("nan,tea,mate,milk", ("bad-weight", "", "weight nan is not a positive finite number; write 1234.5, not 1,234.5")),
    ("-2,tea,mate,milk", ("bad-weight", "", "weight -2 is not a positive finite number")),
    ("0,tea,mate,milk", ("bad-weight", "", "weight 0 is not a positive finite number")),
    ("1,tea,,milk", ("syntax", "", "an item follows an empty place; only the end of a row may be empty")),
    ("1,tea,mate", ("syntax", "", "expected 4 fields, but got 3")),
    ("1,tea,mate,", None),
]


GOOD_ROWS = [row(*MENU), row(*MENU[::-1]), row("tea", "mate")]


BAD_TEXT = "count,p1,p2,p3\n" + "".join(f"{line}\n" for line, _ in BAD_LINES)


BAD_ROWS = [
    (reason, number, item, message)
    for number, (_, said) in enumerate(BAD_LINES, start=2)
    if said is not None
    for reason, item, message in [said]
]


READ_SO: dict[str, Any] = {"unranked": "absent", "item_names": MENU}


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    return write(tmp_path / "bad.csv", BAD_TEXT)


@pytest.mark.promise(20)
@pytest.mark.parametrize("size", [1, 1 << 20], ids=["many slices", "one slice"])
@pytest.mark.parametrize("policy", ["drop", "quarantine"])
def test_bad_rows__left_out_and_listed(
    tmp_path: Path, bad_file: Path, monkeypatch: pytest.MonkeyPatch, policy: Any, size: int
) -> None:
    cut_small(monkeypatch, size)
    store = ingest(bad_file, tmp_path / "store", on_error=policy, most_dropped=1.0, **READ_SO)
    assert named_rows(store) == GOOD_ROWS
    listed = rejected(store)
    assert [(bad["reason"], bad["line"], bad["item"], bad["message"]) for bad in listed] == BAD_ROWS
    assert {bad["file"] for bad in listed} == {str(bad_file)}
    assert store.manifest.history[-1]["rejected"] == dict(Counter(reason for reason, *_ in BAD_ROWS))
    # Only quarantine keeps the contents of the row.
    contents = [bad.get("contents") for bad in listed]
    words = [" ".join(BAD_LINES[number - 2][0].split(",")) for _, number, _, _ in BAD_ROWS]
    if policy == "drop":
        assert contents == [None] * len(BAD_ROWS)
    else:
        kept = [set(text.split()) - {"1"} for text in contents]
        assert kept == [set(text.split()) & {*MENU, "beer"} for text in words]
    assert all_damage(store) == []


@pytest.mark.promise(20)
@pytest.mark.parametrize("bad", BAD_ROWS, ids=[f"{reason} {number}" for reason, number, *_ in BAD_ROWS])
def test_bad_rows__raise_names_file_line_and_item(tmp_path: Path, bad: tuple[str, int, str, str]) -> None:
    _, number, _, message = bad
    header, *lines = BAD_TEXT.splitlines()
    good = [line for line, said in BAD_LINES if said is None]
    source = write(tmp_path / "a.csv", "\n".join([header, *good, lines[number - 2], ""]))
    error = ingest_error(source, tmp_path / "store", **READ_SO)
    assert error.startswith(f"{source}, line 5: {message}")
    assert "--on-error drop" in error
    # The source is wrong, so nothing may be left that would prevent the next attempt.
    assert not list(tmp_path.glob("store/*"))


def test_bad_rows__raise_says_how_many_more(tmp_path: Path, bad_file: Path) -> None:
    error = ingest_error(bad_file, tmp_path / "store", **READ_SO)
    assert f"line 3: item tea is listed twice (and {len(BAD_ROWS) - 1} more bad rows near it)" in error


def test_bad_rows__in_an_appended_file(tmp_path: Path, bad_file: Path) -> None:
    ingest(write(tmp_path / "a.csv", "p1,p2,p3\nmate,milk,tea\n"), tmp_path / "store", item_names=MENU)
    store = ingest(bad_file, tmp_path / "store", append=True, on_error="drop", most_dropped=1.0, unranked="absent")
    assert named_rows(store) == [row("mate", "milk", "tea"), *GOOD_ROWS]
    assert [event["rejected"] for event in store.manifest.history] == [
        {},
        dict(Counter(reason for reason, *_ in BAD_ROWS)),
    ]
    assert len(rejected(store)) == len(BAD_ROWS)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"on_error": "ignore"}, "on_error must be raise, drop or quarantine, but is 'ignore'"),
        ({"unranked": "last"}, "unranked must be below or absent, but is 'last'"),
        ({"weights": [1.0]}, "weights is not used for a file or a table"),
        ({"n_items": 3}, "n_items is not used for a file or a table"),
        ({"format": "xml"}, "unknown format 'xml'; choose one of auto, preflib"),
        ({"item_names": ["tea", "tea"]}, "item_names: the item name 'tea' occurs twice"),
        ({"item_names": ["tea"]}, "item_names: a ranking needs at least two items, but there are 1"),
        ({"item_names": ["tea", "a\nb"]}, "item_names: item name 'a\\nb' has a line break"),
    ],
)
def test_settings__that_make_no_sense(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    source = write(tmp_path / "a.csv", "p1,p2\ntea,mate\n")
    assert what in ingest_error(source, tmp_path / "store", **options)


# --- nothing valid ---------------------------------------------------------------------------------------


NOTHING_VALID = {
    "no rows": "p1,p2\n",
    "unreadable rows": "p1,p2\ntea\nmate,tea,milk\n",
    "rows that are not valid": "p1,p2\ntea,tea\nmate,mate\n",
}


TRY_EACH = """
import json, sys
import numpy
from plmix_dist import ingest
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.errors import IngestError
store, *sources = sys.argv[1:]
cases = [(source, policy, {}) for source in sources for policy in ("raise", "drop")]
cases += [(numpy.full((2, 3), -1), policy, {"n_items": 3}) for policy in ("raise", "drop")]
for source, policy, options in cases:
    with LazyExecutor(ClusterOptions(workers=2)) as executor:
        try:
            ingest(source, store, on_error=policy, executor=executor, **options)
        except IngestError as error:
            print(json.dumps([str(error), "distributed" in sys.modules]))
"""


@pytest.mark.promise(21)
def test_nothing_valid__error_before_a_cluster_starts(
    tmp_path: Path, run_new_python: Callable[..., subprocess.Popen[str]]
) -> None:
    sources = [write(tmp_path / f"{name}.csv", text) for name, text in NOTHING_VALID.items()]
    sources.append(tmp_path / "not there.csv")
    process = run_new_python(TRY_EACH, tmp_path / "store", *sources)
    found = [json.loads(line) for line in process.communicate(timeout=120)[0].splitlines()]
    names = [str(source) for source in sources for _ in range(2)] + ["array"] * 2
    assert [name in message for (message, _), name in zip(found, names, strict=True)] == [True] * len(names)
    assert [started for _, started in found] == [False] * len(names)
    assert not list(tmp_path.glob("store/*"))


# --- what is not listed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["raise", "drop", "quarantine"])
def test_unranked__never_guessed(tmp_path: Path, policy: Any) -> None:
    source = write(tmp_path / "a.csv", "p1,p2,p3\ntea,mate,milk\nmilk,tea,\n")
    message = ingest_error(source, tmp_path / "store", on_error=policy)
    assert f"{source}, line 3: lists 2 of 3 items, and nothing says whether the others were on offer" in message
    assert "--unranked below" in message
    assert "--unranked absent" in message
    assert not list(tmp_path.glob("store/*"))


def test_unranked__needs_no_answer_where_rows_are_complete(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "ordering\ntea mate milk\nmilk | tea mate\n")
    store = ingest(source, tmp_path / "store")
    assert named_rows(store) == [row(*MENU), row("milk", offered=("tea", "mate"))]


# --- sources ---------------------------------------------------------------------------------------------


@pytest.fixture
def many_files(tmp_path: Path) -> Path:
    folder = tmp_path / "many"
    (folder / "deeper").mkdir(parents=True)
    for name, line in (("b1", "mate,tea"), ("b2", "tea,milk"), ("a", "tea,mate"), ("deeper/c", "milk,mate")):
        write(folder / f"{name}.csv", f"p1,p2\n{line}\n")
    return folder


def first_two(store: Any) -> list[str]:
    return [" ".join(name for place in ranking.ordered for name in place) for ranking in named_rows(store)]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["b*.csv", "a.csv"], ["mate tea", "tea milk", "tea mate"]),
        (["a.csv", "b*.csv"], ["tea mate", "mate tea", "tea milk"]),
        (["**/*.csv"], ["tea mate", "mate tea", "tea milk", "milk mate"]),
        (["b[2]*"], ["tea milk"]),
        ([""], ["tea mate", "mate tea", "tea milk", "milk mate"]),
        (["a.csv", "b*.csv", "a.csv"], ["tea mate", "mate tea", "tea milk"]),
    ],
    ids=["glob first", "glob last", "recursive", "brackets", "folder", "twice"],
)
def test_sources__in_order(tmp_path: Path, many_files: Path, sources: list[str], expected: list[str]) -> None:
    store = ingest([many_files / source for source in sources], tmp_path / "store", unranked="below", item_names=MENU)
    assert first_two(store) == expected


def test_sources__name_that_looks_like_a_glob(tmp_path: Path) -> None:
    source = write(tmp_path / "a[1].csv", "p1,p2\ntea,mate\n")
    write(tmp_path / "a1.csv", "p1,p2\nmate,tea\n")
    assert first_two(ingest(source, tmp_path / "store")) == ["tea mate"]


def test_sources__in_memory(many_files: Path, tmp_path: Path) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    for name in ("b1", "b2", "a"):
        fsspec.filesystem("memory").pipe(f"{root}/{name}.csv", (many_files / f"{name}.csv").read_bytes())
    store = ingest([f"{root}/b*.csv", f"{root}/a.csv"], f"{root}/store", unranked="below", item_names=MENU)
    assert first_two(open_store(store.location)) == ["mate tea", "tea milk", "tea mate"]
    assert store.manifest.history[0]["paths"][2] == f"{root}/a.csv"
    message = ingest_error(f"{root}/c*.csv", tmp_path / "store")
    assert f"no file matches '{root}/c*.csv'" in message
    fsspec.filesystem("memory").rm(root, recursive=True)


@pytest.mark.parametrize("name", ["none.csv", "none*.csv"])
def test_sources__not_there(tmp_path: Path, name: str) -> None:
    assert f"no file matches '{tmp_path / name}'" in ingest_error(tmp_path / name, tmp_path / "store")


def test_sources__items_of_all_files_together(tmp_path: Path) -> None:
    for name, line in (("1", "mate,tea"), ("2", "milk,ale")):
        write(tmp_path / f"{name}.csv", f"p1,p2\n{line}\n")
    store = ingest(tmp_path / "?.csv", tmp_path / "store", unranked="absent")
    assert store.item_names == ("ale", "mate", "milk", "tea")


SOC = "# DATA TYPE: soc\n# NUMBER ALTERNATIVES: 2\n# NUMBER VOTERS: 3\n# NUMBER UNIQUE ORDERS: 1\n{}3: 2,1\n"


NAMED = "# ALTERNATIVE NAME 1: {}\n# ALTERNATIVE NAME 2: {}\n"


def test_sources__headers_that_name_other_items(tmp_path: Path) -> None:
    first = write(tmp_path / "1.soc", SOC.format(NAMED.format("tea", "mate")))
    second = write(tmp_path / "2.soc", SOC.format(NAMED.format("tea", "milk")))
    message = ingest_error([first, second], tmp_path / "store")
    assert f"{second} names other items than {first}" in message


def test_sources__same_contents_are_counted_once(tmp_path: Path) -> None:
    first, other = write(tmp_path / "1.soc", SOC.format("")), write(tmp_path / "2.soc", SOC.format("\n"))
    again = write(tmp_path / "again.soc", SOC.format(""))
    for number, (together, later) in enumerate([([first, again], [other]), ([again, other], [first])]):
        store = ingest(together, tmp_path / f"{number}")
        n_together = len(together) - (number == 0)
        assert store.total_weight == 3.0 * n_together
        note = "1.soc has the same contents, which are counted once; if they are other rankings, join the files"
        assert store.manifest.history[0]["notes"] == [f"{again}: {note}"][number:]
        store = ingest(later, tmp_path / f"{number}", append=True)
        assert store.total_weight == 6.0
        # Also with files that are new, and alone.
        assert ingest([first, other], tmp_path / f"{number}", append=True).total_weight == 6.0
        assert ingest(again, tmp_path / f"{number}", append=True).manifest.generation == store.manifest.generation


def test_sources__read_with_other_columns_count_again(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second,weight\ntea,mate,3\n")
    assert ingest(source, tmp_path / "store").total_weight == 3.0
    other = {"ignore": "weight"}
    assert ingest(source, tmp_path / "store", columns=other, append=True).total_weight == 4.0
    assert ingest(source, tmp_path / "store", columns=other, append=True).total_weight == 4.0


@pytest.mark.promise(33)
def test_labels__are_never_paths(tmp_path: Path) -> None:
    names = ("../../evil", "/etc/passwd", "..", "wip/plan.json", "a\\..\\b")
    lines = [f"{name}/id,{name}/group,{' '.join(names)}\n" for name in names]
    source = write(tmp_path / "a.csv", "ranking,group,ordering\n" + "".join(lines))
    store = ingest(source, tmp_path / "deep/er/store")
    assert sorted(store.item_names) == sorted(names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "deep"]
    assert [path.name for path in (tmp_path / "deep/er").iterdir()] == ["store"]
    written = {part for key in store.location.listing() for part in key.split("/")}
    assert not written & {"..", "evil", "etc", "passwd", "plan.json"}
    assert all_damage(store) == []


def test_progress__hears_of_every_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 8)
    source = write(tmp_path / "a.csv", "p1,p2\n" + "tea,mate\nmate,tea\n" * 6)
    heard: list[tuple[int, int]] = []
    store = ingest(source, tmp_path / "store", progress=lambda done, total: heard.append((done, total)))
    assert store.n_partitions > 2
    assert heard == [(done, store.n_partitions) for done in range(1, store.n_partitions + 1)]


def test_leaf_rows__as_asked_for(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "p1,p2\n" + "tea,mate\n" * 5)
    store = ingest(source, tmp_path / "store", leaf_rows=2)
    assert [block.n_rankings for block in store.iter_leaves()] == [2, 2, 1]
    more = write(tmp_path / "b.csv", "p1,p2\nmate,tea\n")
    with pytest.raises(StoreExistsError, match="leaf size of the store"):
        ingest(more, tmp_path / "store", append=True, leaf_rows=3)
    assert ingest(more, tmp_path / "store", append=True).manifest.leaf_rows == 2


# --- merging ---------------------------------------------------------------------------------------------


def test_merge__weights_of_equal_rows_add_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    orders = [" ".join(rng.permutation(MENU)[: rng.integers(1, 4)]) for _ in range(60)]
    text = "ranking,count,ordering\n" + "".join(f"{n},{1 + n % 3},{order}\n" for n, order in enumerate(orders))
    source = write(tmp_path / "a.csv", text)
    store = ingest(source, tmp_path / "store", merge=True, unranked="below")
    expected: dict[str, float] = {}
    for number, order in enumerate(orders):
        expected[order] = expected.get(order, 0.0) + 1 + number % 3
    found = zip(first_two(store), (ranking.weight for ranking in named_rows(store)), strict=True)
    assert list(found) == list(expected.items())
    assert labels_of(store, "ids") is None


def test_merge__refuses_groups_and_leaves_nothing_behind(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "group,ordering\n1,tea mate\n1,tea mate\n")
    message = ingest_error(source, tmp_path / "store", merge=True)
    assert "rankings with groups cannot be merged" in message
    assert ingest(source, tmp_path / "store").n_rankings == 2


# --- appending -------------------------------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A store of two rankings of tea, mate and milk."""
    source = write(tmp_path / "first.csv", "p1,p2,p3\ntea,mate,milk\nmilk,mate,tea\n")
    ingest(source, tmp_path / "store")
    return tmp_path / "store"


def test_append__rows_behind_those_that_are_there(tmp_path: Path, begun: Path) -> None:
    reader = open_store(begun)
    before = plain(reader.block())
    source = write(tmp_path / "more.csv", "p1,p2,p3\nmate,milk,tea\n")
    store = ingest(source, begun, append=True)
    assert named_rows(store) == [row(*MENU), row(*MENU[::-1]), row("mate", "milk", "tea")]
    assert named_rows(open_store(begun)) == named_rows(store)
    assert store.manifest.generation == 2
    # A store that was opened before does not change.
    assert plain(reader.block()) == before
    assert reader.n_rankings == 2
    assert all_damage(store) == []


def test_append__the_same_again_does_nothing(tmp_path: Path, begun: Path) -> None:
    source = write(tmp_path / "more.csv", "p1,p2,p3\nmate,milk,tea\n")
    ingest(source, begun, append=True)
    before = snapshot(begun)
    store = ingest(source, begun, append=True)
    assert store.n_rankings == 3
    assert snapshot(begun) == before


@pytest.mark.promise(20)
def test_append__unknown_items_are_bad_rows(tmp_path: Path, begun: Path) -> None:
    source = write(tmp_path / "more.csv", "p1,p2,p3\nmate,milk,tea\nbeer,milk,tea\n")
    before = snapshot(begun)
    with pytest.raises(IngestError) as caught:
        ingest(source, begun, append=True)
    assert f"{source}, line 3: item 'beer' is not one of the 3 items" in str(caught.value)
    assert snapshot(begun) == before
    store = ingest(source, begun, append=True, on_error="drop", most_dropped=1.0)
    assert store.n_rankings == 3
    assert [(bad["reason"], bad["line"], bad["item"]) for bad in rejected(store)] == [("unknown-item", 3, "beer")]


def test_append__preflib_goes_by_the_names(tmp_path: Path, begun: Path) -> None:
    # The file and the store number the items differently.
    source = write(tmp_path / "more.soi", SOC.replace("soc", "soi").format(NAMED.format("milk", "tea")))
    store = ingest(source, begun, append=True, unranked="absent")
    assert named_rows(store)[2] == row("tea", "milk", weight=3.0)


def test_append__to_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "more.csv", "p1,p2,p3\nmate,milk,tea\n")
    with pytest.raises(StoreNotFoundError, match="no store at"):
        ingest(source, tmp_path / "none", append=True)


def test_append__keeps_its_own_items(tmp_path: Path, begun: Path) -> None:
    source = write(tmp_path / "more.csv", "p1,p2,p3\nmate,milk,tea\n")
    with pytest.raises(SettingsError, match="leave out item_names"):
        ingest(source, begun, append=True, item_names=MENU[::-1])


@pytest.mark.parametrize("column", ["ids", "groups"])
@pytest.mark.parametrize(
    ("there", "added"),
    [([1, 2], ["x", "y"]), (["x", "y"], [1, 2]), (None, [1, 2]), ([1, 2], None)],
    ids=["text to numbers", "numbers to text", "labels to none", "none to labels"],
)
def test_append__labels_of_another_kind(
    tmp_path: Path, column: str, there: list[Any] | None, added: list[Any] | None
) -> None:
    rows = [full(0, 1), full(1, 0)]
    first = RankingBlock.from_rows(rows, n_items=2, **({} if there is None else {column: there}))
    write_store(tmp_path / "store", [[first]], item_names=["mate", "tea"], leaf_rows=4096)
    name = "id" if column == "ids" else "group"
    table = {"p1": ["tea", "mate"], "p2": ["mate", "tea"]} | ({} if added is None else {name: added})
    text = "\n".join([",".join(table), *(",".join(map(str, line)) for line in zip(*table.values(), strict=True))])
    source = write(tmp_path / "more.csv", text + "\n")
    try:
        store = ingest(source, tmp_path / "store", append=True)
    except PlmixError as error:
        # Labels of another kind are an error, and the store does not change.
        assert name in str(error)  # noqa: PT017
        assert open_store(tmp_path / "store").n_rankings == 2
    else:
        expected = [str(label) for label in [*(there or []), *(added or [])]]
        assert labels_of(store, column) == expected


def test_append__group_that_is_there_already(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "group,p1,p2\n1,tea,mate\n2,mate,tea\n")
    ingest(source, tmp_path / "store")
    more = write(tmp_path / "b.csv", "group,p1,p2\n2,tea,mate\n")
    with pytest.raises(IngestError, match="the rankings of group 2 are not consecutive"):
        ingest(more, tmp_path / "store", append=True)
    assert open_store(tmp_path / "store").n_rankings == 2


# --- second runs -----------------------------------------------------------------------------------------


MANY = "p1,p2,p3\n" + "".join(f"{','.join(np.roll(MENU, shift).tolist())}\n" for shift in range(40))


SLICE = 64


KILLED_AFTER_THREE = f"""
import os, signal, sys
from plmix_dist import ingest
from plmix_dist.cluster.executor import ThreadedExecutor
from plmix_dist.tables import sources
sources._SLICE_BYTES = {SLICE}
def progress(done, total):
    if done == 3:
        os.kill(os.getpid(), signal.SIGKILL)
append = sys.argv[3] == "True"
ingest(sys.argv[1], sys.argv[2], executor=ThreadedExecutor(1), progress=progress, append=append)
"""


@pytest.fixture
def killed(tmp_path: Path, run_python: Callable[..., subprocess.Popen[str]]) -> Callable[..., None]:
    """Runs an ingest that is killed once three partitions are written."""

    def run(source: Path, store: Path, *, append: bool = False) -> None:
        process = run_python(KILLED_AFTER_THREE, source, store, append)
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL

    return run


def test_resume__after_a_kill_the_same_bytes(
    tmp_path: Path, killed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store = write(tmp_path / "a.csv", MANY), tmp_path / "store"
    killed(source, store)
    with pytest.raises(UnfinishedStoreError, match=r"partitions not written: 3, 4, 5"):
        open_store(store)
    before = {key: kept for key, kept in snapshot(store).items() if key.startswith("partitions/")}
    assert len({key.split("/")[1] for key in before}) == 3
    cut_small(monkeypatch, SLICE)
    resumed = ingest(source, store)
    undisturbed = ingest(source, tmp_path / "undisturbed")
    assert index_digests(resumed) == index_digests(undisturbed)
    assert resumed.n_rankings == 40
    # Partitions that were finished before the kill are not written again.
    after = snapshot(store)
    assert {key: after[key] for key in before} == before
    assert all_damage(resumed) == []


def test_resume__of_an_append(
    tmp_path: Path, begun: Path, killed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "more.csv", MANY)
    killed(source, begun, append=True)
    assert open_store(begun).n_rankings == 2
    cut_small(monkeypatch, SLICE)
    store = ingest(source, begun, append=True)
    assert store.n_rankings == 42
    assert named_rows(store)[2:] == named_rows(ingest(source, tmp_path / "alone"))
    assert all_damage(store) == []


def test_resume__changed_source_is_refused(
    tmp_path: Path, killed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store = write(tmp_path / "a.csv", MANY), tmp_path / "store"
    killed(source, store)
    cut_small(monkeypatch, SLICE)
    write(source, MANY.replace("tea,mate,milk", "milk,mate,tea"))
    with pytest.raises(UnfinishedStoreError, match=r"holds an unfinished `ingest` with other sources"):
        ingest(source, store)
    write(source, MANY)
    with pytest.raises(UnfinishedStoreError, match=r"holds an unfinished `ingest` with other settings"):
        ingest(source, store, unranked="below")
    assert ingest(source, store).n_rankings == 40


def test_second_run__does_nothing(tmp_path: Path) -> None:
    source, store = write(tmp_path / "a.csv", MANY), tmp_path / "store"
    ingest(source, store)
    before = snapshot(store)
    assert ingest(source, store).n_rankings == 40
    assert snapshot(store) == before


@pytest.mark.parametrize(
    ("text", "options"),
    [(MANY + "tea,milk,mate\n", {}), (MANY, {"unranked": "below"}), (MANY, {"item_names": MENU[::-1]})],
    ids=["other source", "other settings", "other items"],
)
def test_second_run__with_something_else_is_refused(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    source, store = write(tmp_path / "a.csv", MANY), tmp_path / "store"
    ingest(source, store)
    write(source, text)
    with pytest.raises(StoreExistsError, match="already holds another store, of 40 rankings"):
        ingest(source, store, **options)


def test_second_run__source_moved_elsewhere_is_the_same(tmp_path: Path) -> None:
    # A store is identified by the contents of its sources, not by their paths.
    source = write(tmp_path / "a.csv", MANY)
    ingest(source, tmp_path / "store")
    (tmp_path / "elsewhere").mkdir()
    moved = source.rename(tmp_path / "elsewhere/a.csv")
    assert ingest(moved, tmp_path / "store").n_rankings == 40


# --- clusters --------------------------------------------------------------------------------------------


@pytest.mark.promise(10)
def test_cluster__same_bytes_as_in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    cut_small(monkeypatch)
    text = BAD_TEXT + "1,mate,tea,milk\n" * 20
    source = write(tmp_path / "a.csv", text)
    options = READ_SO | {"on_error": "quarantine"}
    here = ingest(source, tmp_path / "here", **options)
    there = ingest(source, tmp_path / "there", client=client, **options)
    assert here.n_partitions > 5
    assert index_digests(there) == index_digests(here)
    assert rejected(there) == rejected(here)


def test_cluster__dask_array(tmp_path: Path, client: Client) -> None:
    table = np.argsort(np.random.default_rng(1).random((20, 4)), axis=1)
    array = da.from_array(table, chunks=(6, 4))
    here = ingest(array, tmp_path / "here")
    there = ingest(array, tmp_path / "there", client=client)
    assert index_digests(there) == index_digests(here)


@pytest.mark.promise(20)
def test_cluster__errors_arrive_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    cut_small(monkeypatch)
    text = "p1,p2\n" + "tea,mate\n" * 30 + "tea,tea\n" + "tea,mate\n" * 10
    source, store = write(tmp_path / "a.csv", text), tmp_path / "store"
    with pytest.raises(IngestError) as caught:
        ingest(source, store, client=client)
    assert f"{source}, line 32: item tea is listed twice" in str(caught.value)
    # Partitions of the failed run must not be used by the next run.
    write(source, text.replace("tea,tea", "mate,tea"))
    mended = ingest(source, store, client=client)
    assert index_digests(mended) == index_digests(ingest(source, tmp_path / "fresh"))


def test_abandoned__partition_of_a_late_worker_does_not_count(tmp_path: Path) -> None:
    place = Location.of(tmp_path / "store")
    with WriteSession.begin(place, plan_for(2, 1, name="first")) as session:
        [late] = session.pending()
        session.abandon()
    with WriteSession.begin(place, plan_for(2, 1, name="second")) as session:
        # The worker was still writing when its run failed.
        with contextlib.suppress(PlmixError):
            write_partition(late, [RankingBlock.from_array([[0, 1]])])
        assert [task.number for task in session.pending()] == [0]


# --- files that cannot be read ---------------------------------------------------------------------------


ORDERINGS = "count,ordering\n" + "".join(
    f"{number},tea mate milk\n{number},milk tea mate\n" for number in range(1, 400)
)


@pytest.mark.promise(42)
@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.bz2", "a.csv.xz"])
@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.9])
def test_compressed__damaged_anywhere_is_an_error_in_words(name: str, place: float, tmp_path: Path) -> None:
    text = ORDERINGS.encode()
    packed = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}["." + name.rsplit(".")[-1]](text)
    for damage in (b"\xff" * 12, b""):
        # In the middle bytes are overwritten; then the file is cut there.
        at = int(place * len(packed))
        data = packed[:at] + damage + packed[at + 12 :] if damage else packed[:at]
        (tmp_path / name).write_bytes(data)
        said = ingest_error(tmp_path / name, tmp_path / "store", unranked="below")
        assert str(tmp_path / name) in said
        if place:
            assert "cannot be read to its end" in said
            assert "it may be cut short or damaged" in said


def test_pipe__in_place_of_a_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    assert "no file matches" in ingest_error(tmp_path / "a.csv", tmp_path / "store")
    # The file of items beside a source, too.
    write(tmp_path / "b.csv", "first,second\ntea,mate\n")
    os.mkfifo(tmp_path / "b.csv.items")
    said = ingest_error(tmp_path / "b.csv", tmp_path / "store")
    assert said == f"{tmp_path}/b.csv.items is not a plain file; copy its contents to a file first"


@pytest.mark.promise(42)
def test_url__a_bucket_that_is_not_there(
    s3_bucket: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "s3", s3_bucket)
    for source in ("s3://no-such-bucket/a.csv", "s3://no-such-bucket/*.csv"):
        said = ingest_error(source, tmp_path / "store")
        assert source in said
        assert "check the path" in said


@pytest.mark.promise(20)
def test_weight__too_large_to_be_summed(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "count,ordering\n1.7e308,tea mate\n1.7e308,mate tea\n2,tea mate\n")
    said = ingest_error(source, tmp_path / "store")
    assert "line 2: weight 1.7e+308 is too large to be summed: at most 1e+100; divide all weights" in said
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert (store.n_rankings, store.total_weight, len(rejected(store))) == (1, 2.0, 2)


TEXT = "id,first,second\n1,tea,mate\n2,mate,tea\n2,mate,tea\n"


@pytest.mark.parametrize(
    "options",
    [
        {"unranked": "below"},
        {"on_error": "drop"},
        {"merge": True},
        {"columns": {"id": "id"}},
        {"delimiter": ","},
        {"item_names": ["tea", "mate", "milk"]},
        {"leaf_rows": 8192},
        {"chunk_bytes": 1 << 12},
    ],
    ids=lambda options: next(iter(options)),
)
def test_ingest__each_setting_makes_another_run(tmp_path: Path, options: dict[str, Any]) -> None:
    source = write(tmp_path / "a.csv", TEXT.replace("id,", "").replace("1,", "").replace("2,", ""))
    if "columns" in options:
        source = write(tmp_path / "a.csv", TEXT)
    ingest(source, tmp_path / "store")
    assert ingest(source, tmp_path / "store").n_rankings == 3  # the same again: nothing to do
    with pytest.raises(StoreExistsError, match="already holds another store"):
        ingest(source, tmp_path / "store", **options)


def test_no_information__is_said(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "ordering\n{tea mate}\ntea mate\n{mate tea}\n")
    store = ingest(source, tmp_path / "store")
    words = "2 of 3 rankings tie all items that were on offer: they carry no information unless ties count half"
    (note,) = store.manifest.history[-1]["notes"]
    assert note.startswith(words)
    assert info(store)["n_without_information"] == 2
    with pytest.warns(NoInformationWarning, match=words):
        PlackettLuceMixture(1, ties="expand").fit(store)


@pytest.mark.parametrize("rows", [3, 1000])
def test_frames__go_the_road_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    # In parts of a few rows, which never divide a person.
    monkeypatch.setattr(plan, "_ARRAY_PARTITION_ENTRIES", rows)
    frame = pd.DataFrame(
        {
            "third": ["milk", None, "tea", "mate"],
            "first": ["tea", "mate", "mate", "tea"],
            "second": ["mate", "tea", "milk", "milk"],
            "votes": [2, 3, 1, 1],
            "user": ["p", "p", "q", "q"],
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    expected = ingest(tmp_path / "a.csv", tmp_path / "from file", unranked="below")
    store = ingest(frame, tmp_path / "store", unranked="below")
    assert named_rows(store) == named_rows(expected)
    assert labels_of(store, "groups") == labels_of(expected, "groups") == ["p", "p", "q", "q"]
    assert store.n_partitions == (2 if rows == 3 else 1)
    assert ingest(frame, tmp_path / "store", unranked="below").manifest.generation == store.manifest.generation
    fitted = PlackettLuceMixture(1, unranked="below").fit(frame)
    assert fitted.log_likelihood_ == pytest.approx(PlackettLuceMixture(1).fit(store).log_likelihood_, rel=1e-12)
