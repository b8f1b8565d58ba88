"""PrefLib files: both headers, ties, counts that must agree, names, and files written back byte by byte."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import Ranking, RankingBlock, export, ingest
from plmix_dist.errors import IngestError
from plmix_dist.tables import preflib
from plmix_dist.tables.preflib import _names
from tests.helpers.fit_oracle import block_of, slate
from tests.helpers.ingest_helpers import cut_small, ingest_error, labels_of, named_rows, rejected, row, write
from tests.helpers.oracle import write_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


NAMES = ("tea", "coffee", "mate", "water")


BODY = "5: 1,2,3\n3: 4,{2,1}\n2: {1,3},4\n"


ROWS = [
    row("tea", "coffee", "mate", unranked="below", weight=5.0),
    row("water", ("coffee", "tea"), unranked="below", weight=3.0),
    row(("tea", "mate"), "water", unranked="below", weight=2.0),
]


def present(
    body: str = BODY,
    *,
    kind: str = "toi",
    alternatives: object = 4,
    voters: object = 10,
    orders: object = 3,
    names: tuple[str, ...] = NAMES,
) -> str:
    """A file with the header in use since 2022."""
    lines = [
        f"# FILE NAME: 00099-00000001.{kind}",
        "# TITLE: Drinks: hot, cold",
        "# DESCRIPTION: ",
        f"# DATA TYPE: {kind}",
        f"# NUMBER ALTERNATIVES: {alternatives}",
        f"# NUMBER VOTERS: {voters}",
        f"# NUMBER UNIQUE ORDERS: {orders}",
        *(f"# ALTERNATIVE NAME {number}: {name}" for number, name in enumerate(names, start=1)),
    ]
    return "\n".join(lines) + "\n" + body


HEADER_LINES = 11


def old(body: str, *, candidates: object = 4, counts: str = "10,10,3") -> str:
    """A file with the header in use before 2022."""
    names = [f"{number},{name}" for number, name in enumerate(NAMES, start=1)]
    return "\n".join([str(candidates), *names, counts]) + "\n" + body


OLD_BODY = BODY.replace(": ", ",")


# --- reading ---------------------------------------------------------------------------------------------


def test_present_header__names_counts_and_rows(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "drinks.toi", present()), tmp_path / "store")
    assert store.item_names == NAMES
    assert named_rows(store) == ROWS
    assert store.total_weight == 10.0


def test_old_header__reads_the_same(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "drinks.toi", old(OLD_BODY)), tmp_path / "store")
    assert store.item_names == NAMES
    assert named_rows(store) == ROWS


@pytest.mark.parametrize("text", [present(), old(OLD_BODY)], ids=["present", "old"])
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("drinks.toi.gz", lambda text: text),
        ("drinks.toi", lambda text: text.replace("\n", "\r\n")),
        ("drinks.toi", lambda text: "\ufeff" + text),
        ("drinks.toi", lambda text: text.removesuffix("\n")),
        ("drinks.toi", lambda text: text + "\n  \n"),
        ("DRINKS.TOI", lambda text: text),
    ],
    ids=["packed", "crlf", "bom", "no last line end", "blank lines", "capitals"],
)
def test_read__written_otherwise(tmp_path: Path, text: str, name: str, changed: Callable[[str], str]) -> None:
    store = ingest(write(tmp_path / name, changed(text)), tmp_path / "store")
    assert store.item_names == NAMES
    assert named_rows(store) == ROWS


def test_read__every_slice_of_a_cut_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    body = "".join(f"{count}: {1 + count % 4},{1 + (count + 1) % 4}\n" for count in range(1, 61))
    text = present(body, kind="soi", voters=sum(range(1, 61)), orders=60)
    store = ingest(write(tmp_path / "drinks.soi", text), tmp_path / "store")
    assert store.n_partitions > 5
    assert named_rows(store) == [
        row(NAMES[count % 4], NAMES[(count + 1) % 4], unranked="below", weight=float(count)) for count in range(1, 61)
    ]


def test_read__line_numbers_in_later_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    lines = ["1: 1,2\n"] * 60
    lines[45] = "1: 1,9\n"
    text = present("".join(lines), kind="soi", voters=60, orders=60)
    source = write(tmp_path / "drinks.soi", text)
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line {HEADER_LINES + 46}: item '9' is not one of the 4 items" in message


def test_read__data_type_goes_before_the_suffix(tmp_path: Path) -> None:
    source = write(tmp_path / "drinks.soi", present("10: 1,2,3,4\n", kind="soc", orders=1))
    assert named_rows(ingest(source, tmp_path / "store")) == [row(*NAMES, weight=10.0)]


# --- what is not listed ----------------------------------------------------------------------------------


def test_unranked__soi_ranks_the_others_below(tmp_path: Path) -> None:
    source = write(tmp_path / "drinks.soi", present("10: 2,1\n", kind="soi", orders=1))
    expected = [row("coffee", "tea", unranked="below", weight=10.0)]
    assert named_rows(ingest(source, tmp_path / "store")) == expected


def test_unranked__absent_overrides(tmp_path: Path) -> None:
    source = write(tmp_path / "drinks.soi", present("10: 2,1\n", kind="soi", orders=1))
    store = ingest(source, tmp_path / "store", unranked="absent")
    assert named_rows(store) == [row("coffee", "tea", unranked="absent", weight=10.0)]


@pytest.mark.parametrize("kind", ["soc", "toc"])
@pytest.mark.promise(20)
def test_complete_kinds__incomplete_order_is_bad(tmp_path: Path, kind: str) -> None:
    source = write(tmp_path / f"drinks.{kind}", present("7: 1,2,3,4\n3: 3,1\n", kind=kind, orders=2))
    where, what = f"line {HEADER_LINES + 2}", "lists 2 of 4 items, but the file promises complete orders"
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, {where}: {what}" in message
    store = ingest(source, tmp_path / "store", on_error="quarantine")
    assert named_rows(store) == [row(*NAMES, weight=7.0)]
    assert [(bad["reason"], bad["line"], bad["contents"]) for bad in rejected(store)] == [
        ("incomplete", HEADER_LINES + 2, "3 1")
    ]


# --- counts ----------------------------------------------------------------------------------------------


@pytest.mark.promise(20)
@pytest.mark.parametrize(
    ("text", "what"),
    [
        (present(voters=11), "the header says 11 voters, but there are 10"),
        (present(orders=4), "the header says 4 rows (unique orders), but there are 3"),
        (old(OLD_BODY, counts="10,12,3"), "the header says 12 voters, but there are 10"),
        (old(OLD_BODY, counts="10,10,2"), "the header says 2 rows (unique orders), but there are 3"),
    ],
)
def test_counts__wrong_in_the_header(tmp_path: Path, text: str, what: str) -> None:
    source = write(tmp_path / "drinks.toi", text)
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}: {what}" in message
    assert "--on-error" in message
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert named_rows(store) == ROWS
    assert store.manifest.history[-1]["notes"] == [f"{source}: {what}"]


def test_counts__of_millions_are_told_apart(tmp_path: Path) -> None:
    source = write(tmp_path / "a.soi", present("9999999: 1,2\n", kind="soi", voters=10_000_000, orders=1))
    message = ingest_error(source, tmp_path / "store")
    assert "the header says 10000000 voters, but there are 9999999" in message


def test_counts__add_up_over_all_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    source = write(tmp_path / "a.soi", present("2: 1,2\n" * 50, kind="soi", voters=101, orders=50))
    message = ingest_error(source, tmp_path / "store")
    assert "the header says 101 voters, but there are 100" in message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (present(alternatives="four"), "NUMBER ALTERNATIVES should be a whole number, but is 'four'"),
        (present(alternatives="-4"), "NUMBER ALTERNATIVES should be a whole number, but is '-4'"),
        (present(voters="many"), "number of voters should be a whole number, but is 'many'"),
        (present(orders="3.5"), "number of unique orders should be a whole number, but is '3.5'"),
        (present().replace("# NUMBER ALTERNATIVES: 4\n", ""), "NUMBER ALTERNATIVES should be a whole number"),
        (old(OLD_BODY, candidates="tea"), "candidates on line 1 should be a whole number, but is 'tea'"),
        (old(OLD_BODY, counts="10,10"), "line 6: expected 'voters,sum of counts,unique orders', got '10,10'"),
        (old(OLD_BODY, candidates=6), "says 6 alternatives, but names one with number 10"),
        (old(OLD_BODY, candidates=3), "line 5: expected 'voters,sum of counts,unique orders', got '4,water'"),
        ("4\n1,tea\n", "says 4 candidates, but line"),
    ],
)
def test_header__cannot_be_read(tmp_path: Path, text: str, what: str) -> None:
    source = write(tmp_path / "drinks.toi", text)
    message = ingest_error(source, tmp_path / "store")
    assert str(source) in message
    assert what in message


@pytest.mark.parametrize("field", ["alternatives", "voters", "orders"], ids=["alternatives", "voters", "unique orders"])
def test_header__numbers_of_thousands_of_digits(tmp_path: Path, field: str) -> None:
    source = write(tmp_path / "drinks.toi", present(**{field: "9" * 5000}))
    assert str(source) in ingest_error(source, tmp_path / "store")


def test_header__says_it_holds_no_rankings(tmp_path: Path) -> None:
    source = write(tmp_path / "drinks.toi", present(kind="wmd"))
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}: PrefLib data of type 'wmd' are not rankings" in message


@pytest.mark.promise(21)
def test_header__without_rows(tmp_path: Path) -> None:
    source = write(tmp_path / "drinks.toi", present("", voters=0, orders=0))
    assert f"no ranking was found in {source}" in ingest_error(source, tmp_path / "store")


@pytest.mark.promise(34)
@pytest.mark.parametrize(
    "text", [present(alternatives=10**15), old(OLD_BODY, candidates=10**15)], ids=["present", "old"]
)
def test_alternatives__absurd_claim_takes_no_memory(tmp_path: Path, text: str) -> None:
    source = write(tmp_path / "drinks.toi", text)
    tracemalloc.start()
    try:
        message = ingest_error(source, tmp_path / "store")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert f"{source}: the header claims 1000000000000000 alternatives" in message
    assert peak < 5_000_000


@pytest.mark.promise(34)
def test_alternatives__many_claimed_by_a_small_file(tmp_path: Path) -> None:
    source = write(tmp_path / "drinks.toi", present(alternatives=30_000))
    store = ingest(source, tmp_path / "store")
    assert store.item_names[:6] == (*NAMES, "5", "6")
    assert store.n_items == 30_000


class CountedText(str):
    """Text that counts how often it is compared with other text."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedText.compared += 1
        return str.__eq__(self, other)  # type: ignore[return-value]

    __hash__ = str.__hash__


@pytest.mark.promise(34)
def test_alternatives__names_are_looked_up_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    n_items = 2_000
    monkeypatch.setattr(CountedText, "compared", 0)
    given = {CountedText(number + 1): CountedText(f"name {number // 2}") for number in range(n_items)}
    names = _names(given, n_items)
    assert names[:3] == ["name 0 (1)", "name 0 (2)", "name 1 (3)"]
    # Each number and each name is looked up a few times; comparing all with all would take 4,000,000.
    assert CountedText.compared < 20 * n_items


# --- names -----------------------------------------------------------------------------------------------


def test_names__missing_ones_go_by_number(tmp_path: Path) -> None:
    source = write(tmp_path / "drinks.toi", present(names=("tea", "coffee")))
    store = ingest(source, tmp_path / "store")
    assert store.item_names == ("tea", "coffee", "3", "4")
    assert named_rows(store)[1] == row("4", ("coffee", "tea"), unranked="below", weight=3.0)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("5", present(names=(*NAMES, "milk"))),
        ("0", present().replace("ALTERNATIVE NAME 1:", "ALTERNATIVE NAME 0:")),
        ("²", present().replace("ALTERNATIVE NAME 2:", "ALTERNATIVE NAME ²:")),
        ("02", present().replace("ALTERNATIVE NAME 2:", "ALTERNATIVE NAME 02:")),
    ],
)
def test_names__numbers_that_are_none(tmp_path: Path, number: str, text: str) -> None:
    # If the name were ignored, the item would be named by its number.
    source = write(tmp_path / "drinks.toi", text)
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}: the header says 4 alternatives, but names one with number {number}" in message


def test_names__of_two_alternatives_stay_apart(tmp_path: Path) -> None:
    text = present(names=("tea", "coffee", "tea", "water"))
    source = write(tmp_path / "drinks.toi", text)
    store = ingest(source, tmp_path / "store")
    assert store.item_names == ("tea (1)", "coffee", "tea (3)", "water")
    export(store, tmp_path / "again.toi")
    assert (tmp_path / "again.toi").read_text() == text


@pytest.mark.promise(19)
@pytest.mark.parametrize(
    "strange",
    ["\x1b[31mcoffee", "caf\x85", "\x96 none", "x" * 30_000, "te\x00a", "a\rb", "nb\xa0"],
    ids=["escape", "nel", "dash", "long", "nul", "return", "nbsp"],
)
def test_names__stored_exactly_and_written_back(tmp_path: Path, strange: str) -> None:
    text = present(names=("tea", strange, "mate", "water"))
    store = ingest(write(tmp_path / "drinks.toi", text.encode()), tmp_path / "store")
    assert store.item_names == ("tea", strange, "mate", "water")
    export(store, tmp_path / "again.toi")
    assert (tmp_path / "again.toi").read_bytes() == text.encode()
    export(store, tmp_path / "again.parquet")
    assert ingest(tmp_path / "again.parquet", tmp_path / "second").item_names == store.item_names


@pytest.mark.promise(35)
@pytest.mark.parametrize("line", ["2: 1,2,2", "2: 2,{2,3}"])
def test_names__escaped_and_cut_in_messages(tmp_path: Path, line: str) -> None:
    names = ("tea", "\x1b[31mcoffee" + "x" * 5_000, "mate", "water")
    source = write(tmp_path / "drinks.toi", present(f"8: 1,2\n{line}\n", orders=2, names=names))
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line {HEADER_LINES + 2}: item \\x1b[31mcoffeexxx" in message
    assert "\x1b" not in message
    assert len(message) < 300 + len(str(source))


def test_header__line_without_end(tmp_path: Path) -> None:
    source = write(tmp_path / "drinks.toi", present(names=("tea", "x" * 2_000_000, "mate", "water")))
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 9: a line of the header is longer than 1,048,576 bytes" in message


@pytest.mark.promise(19)
@pytest.mark.parametrize("policy", ["raise", "drop", "quarantine"])
def test_count_zero__left_out_and_reported(tmp_path: Path, policy: Any) -> None:
    source = write(tmp_path / "drinks.toi", present("5: 1,2,3\n0: 4,{2,1}\n5: {1,3},4\n"))
    store = ingest(source, tmp_path / "store", on_error=policy)
    assert [ranking.weight for ranking in named_rows(store)] == [5.0, 5.0]
    [bad] = rejected(store)
    assert (bad["reason"], bad["line"], bad["message"]) == ("zero-count", HEADER_LINES + 2, "the count is 0")
    assert store.n_rankings + len(rejected(store)) == 3


@pytest.mark.promise(21)
def test_count_zero__in_every_row(tmp_path: Path) -> None:
    source = write(tmp_path / "drinks.toi", present("0: 1,2,3\n", voters=0, orders=1))
    message = ingest_error(source, tmp_path / "store")
    assert f"no ranking was found in {source}" in message
    assert "the count is 0" in message


# --- bad rows --------------------------------------------------------------------------------------------


BAD_ROWS = {
    "no colon": ("2 1,2", "syntax", "", "expected 'count: order', but got '2 1,2'"),
    "no number": ("two: 1,2", "syntax", "", "the count 'two' is not a whole number"),
    "half a vote": ("1.5: 1,2", "syntax", "", "the count '1.5' is not a whole number"),
    "negative": ("-2: 1,2", "bad-weight", "", "weight -2 is not a positive finite number"),
    "empty": ("2: ", "empty", "", "no item is ranked"),
    "unclosed tie": ("2: 1,{2,3", "syntax", "", "a tie '{' does not end"),
    "nested tie": ("2: {1,{2,3}}", "syntax", "", "a tie '{' begins inside another tie"),
    "tie not begun": ("2: 1,2},3", "syntax", "", "'}' without '{'"),
    "empty tie": ("2: {},1", "syntax", "", "'}' without '{', or an empty tie"),
    "slate": ("2: 1 | 2", "syntax", "", "'|' has no meaning in PrefLib files"),
    "twice": ("2: 1,2,1", "duplicate-item", "tea", "item tea is listed twice"),
    "overlapping ties": ("2: {1,2},{2,3}", "duplicate-item", "coffee", "item coffee is listed twice"),
    "unknown": ("2: 1,5", "unknown-item", "5", "item '5' is not one of the 4 items"),
    "numbered from 0": ("2: 0,1", "unknown-item", "0", "item '0' is not one of the 4 items"),
    "name": ("2: tea,1", "unknown-item", "tea", "item 'tea' is not one of the 4 items"),
}


@pytest.mark.promise(20)
@pytest.mark.parametrize(("line", "reason", "item", "what"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_row__named_and_left_out(tmp_path: Path, line: str, reason: str, item: str, what: str) -> None:
    body = f"5: 1,2,3\n{line}\n3: 4,2,1\n"
    source = write(tmp_path / "drinks.toi", present(body))
    number = HEADER_LINES + 2
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line {number}: {what}" in message
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert [ranking.weight for ranking in named_rows(store)] == [5.0, 3.0]
    [bad] = rejected(store)
    assert (bad["reason"], bad["file"], bad["line"], bad["item"]) == (reason, str(source), number, item)
    assert what in bad["message"]
    assert store.manifest.history[-1]["rejected"] == {reason: 1}


@pytest.mark.promise(20)
@pytest.mark.parametrize("order", ["1,,2", ",1,2", "1,2,"], ids=["middle", "start", "end"])
def test_bad_row__place_without_an_item(tmp_path: Path, order: str) -> None:
    # Without the check, all items after the gap would move up by one place.
    source = write(tmp_path / "drinks.soi", present(f"5: 1,2,3\n5: {order}\n", kind="soi", orders=2))
    assert f"{source}, line {HEADER_LINES + 2}: " in ingest_error(source, tmp_path / "store")


@pytest.mark.promise(20)
@pytest.mark.parametrize("kind", ["soc", "soi"])
def test_bad_row__tie_where_strict_orders_are_promised(tmp_path: Path, kind: str) -> None:
    source = write(tmp_path / f"drinks.{kind}", present("5: 1,2,3,4\n5: 1,{2,3},4\n", kind=kind, orders=2))
    assert f"{source}, line {HEADER_LINES + 2}: " in ingest_error(source, tmp_path / "store")
    assert ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0).total_weight == 5.0


def test_bad_row__not_utf8(tmp_path: Path) -> None:
    data = present().encode() + b"1: 1,\xe9\n"
    source = write(tmp_path / "drinks.toi", data)
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line {HEADER_LINES + 4}: not UTF-8 text" in message


# --- writing ---------------------------------------------------------------------------------------------


@pytest.mark.promise(19)
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("soc", "6: 1,2,3,4\n4: 4,3,2,1\n"),
        ("soi", "6: 1,2\n4: 4,3,2,1\n"),
        ("toc", "6: {1,2},3,4\n4: 4,{3,2,1}\n"),
        ("toi", "6: {1,2},3\n4: 4,{3,2}\n"),
    ],
)
def test_export__byte_for_byte_what_was_read(tmp_path: Path, kind: str, body: str) -> None:
    text = present(body, kind=kind, orders=2)
    store = ingest(write(tmp_path / f"drinks.{kind}", text), tmp_path / "store")
    export(store, tmp_path / f"again.{kind}")
    assert (tmp_path / f"again.{kind}").read_bytes() == text.encode()


def test_export__packed_holds_the_same_bytes(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "drinks.toi", present()), tmp_path / "store")
    for name in ("one.toi.gz", "two.toi.gz"):
        export(store, tmp_path / name)
    assert gzip.decompress((tmp_path / "one.toi.gz").read_bytes()) == present().encode()
    assert (tmp_path / "one.toi.gz").read_bytes() == (tmp_path / "two.toi.gz").read_bytes()


def test_export__old_header_becomes_a_present_one(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "drinks.toi", old(OLD_BODY)), tmp_path / "store")
    export(store, tmp_path / "again.toi")
    head = "# DATA TYPE: toi\n# NUMBER ALTERNATIVES: 4\n# NUMBER VOTERS: 10\n# NUMBER UNIQUE ORDERS: 3\n"
    names = "".join(f"# ALTERNATIVE NAME {number}: {name}\n" for number, name in enumerate(NAMES, start=1))
    assert (tmp_path / "again.toi").read_text() == head + names + BODY


def test_export__counts_follow_the_rows_that_were_kept(tmp_path: Path) -> None:
    text = present("5: 1,2,3\n3: 4,9\n2: {1,3},4\n")
    store = ingest(write(tmp_path / "drinks.toi", text), tmp_path / "store", on_error="drop", most_dropped=1.0)
    export(store, tmp_path / "again.toi")
    assert (tmp_path / "again.toi").read_text() == present("5: 1,2,3\n2: {1,3},4\n", voters=7, orders=2)


@pytest.mark.promise(19)
@pytest.mark.parametrize("names", [NAMES[::-1], (*NAMES, "milk")], ids=["other order", "one more"])
def test_export__items_named_by_the_user_keep_their_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    source = write(tmp_path / "drinks.toi", present())
    store = ingest(source, tmp_path / "store", item_names=names)
    assert named_rows(store) == ROWS
    export(store, tmp_path / "again.toi")
    again = ingest(tmp_path / "again.toi", tmp_path / "second")
    assert again.item_names == names
    assert named_rows(again) == ROWS


def test_export__of_a_store_made_from_two_files(tmp_path: Path) -> None:
    for number in (1, 2):
        # Other contents: the same would be counted once.
        write(tmp_path / f"{number}.toi", present().replace("00099-00000001", f"00099-0000000{number}"))
    store = ingest([tmp_path / "1.toi", tmp_path / "2.toi"], tmp_path / "store")
    export(store, tmp_path / "again.toi")
    text = (tmp_path / "again.toi").read_text()
    # The title of one file is wrong for both together.
    assert "TITLE" not in text
    assert "# NUMBER VOTERS: 20\n# NUMBER UNIQUE ORDERS: 6\n" in text
    assert named_rows(ingest(tmp_path / "again.toi", tmp_path / "second")) == ROWS * 2


A, B, C = ((0,), (1,), (2,))


CANNOT_HOLD = {
    "ties in .soi": ("soi", [Ranking(((0, 1), C), (), "absent", 1.0)], {}, "ties", ".toi"),
    "ties in .soc": ("soc", [Ranking(((0, 1), C), (), "absent", 1.0)], {}, "ties", ".toc"),
    "short in .soc": ("soc", [Ranking((A, B), (), "below", 1.0)], {}, "complete orders", ".soi"),
    "short in .toc": ("toc", [Ranking((A, B), (), "below", 1.0)], {}, "complete orders", ".toi"),
    "slate": ("toi", [Ranking((A,), (1,), "absent", 1.0)], {}, "slates", "Parquet"),
    "part of a vote": ("toi", [Ranking((A, B), (), "below", 0.5)], {}, "weight 0.5", "Parquet"),
    "below and absent": (
        "toi",
        [Ranking((A, B), (), "below", 1.0), Ranking((A, B), (), "absent", 1.0)],
        {},
        "unranked",
        "Parquet",
    ),
    "ids": ("soc", [Ranking((A, B, C), (), "absent", 1.0)], {"ids": [7]}, "ids", "Parquet"),
    "groups": ("soc", [Ranking((A, B, C), (), "absent", 1.0)], {"groups": [7]}, "groups", "Parquet"),
}


@pytest.mark.promise(19)
@pytest.mark.parametrize(("kind", "rows", "labels", "why", "instead"), CANNOT_HOLD.values(), ids=CANNOT_HOLD)
def test_export__refuses_what_does_not_fit(
    tmp_path: Path, kind: str, rows: list[Ranking], labels: dict[str, list[int]], why: str, instead: str
) -> None:
    store = write_store(tmp_path / "store", [[RankingBlock.from_rows(rows, n_items=3, **labels)]])
    target = tmp_path / f"again.{kind}"
    with pytest.raises(IngestError) as caught:
        export(store, target)
    message = str(caught.value)
    assert f"cannot write {target}" in message
    assert why in message
    assert instead in message.split("export to")[1]
    assert list(tmp_path.glob("again*")) == []


def test_export__needs_a_suffix_of_preflib(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "drinks.toi", present()), tmp_path / "store")
    with pytest.raises(IngestError, match=r"again\.csv: a PrefLib file ends in \.soc, \.soi, \.toc or \.toi"):
        export(store, tmp_path / "again.csv", format="preflib")


@pytest.mark.promise(19)
def test_export__counts_beyond_what_floats_tell_apart(tmp_path: Path) -> None:
    block = RankingBlock.from_array([[0, 1, 2]], weights=[2.0**60])
    store = write_store(tmp_path / "store", [[block]])
    try:
        export(store, tmp_path / "again.soc")
    except IngestError as error:
        assert "again.soc" in str(error)  # noqa: PT017 - either it is refused, or it comes back
    else:
        assert ingest(tmp_path / "again.soc", tmp_path / "second").block().equals(block)


def test_ids_and_groups__are_never_made_up(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "drinks.toi", present()), tmp_path / "store")
    assert labels_of(store, "ids") is None
    assert labels_of(store, "groups") is None


@pytest.mark.parametrize(("claimed", "read"), [("0", False), ("1", True), ("1000000", True), ("1000001", False)])
def test_preflib__number_of_alternatives(claimed: str, read: bool) -> None:
    if read:
        assert preflib._count(claimed, "NUMBER ALTERNATIVES", 1_000_000) == int(claimed)
        return
    with pytest.raises(IngestError, match="at most 1,000,000 are read"):
        preflib._count(claimed, "NUMBER ALTERNATIVES", 1_000_000)


@pytest.mark.parametrize(("weight", "fits"), [(2.0**53, True), (2.0**53 + 2, False), (0.5, False), (3.0, True)])
def test_preflib__whole_counts_only(tmp_path: Path, weight: float, fits: bool) -> None:
    store = write_store(tmp_path / "store", [[block_of([slate([0, 1], [], weight=weight)], 2)]])
    if fits:
        export(store, tmp_path / "a.soc")
        assert f"{int(weight)}: 1,2" in (tmp_path / "a.soc").read_text()
        return
    with pytest.raises(IngestError, match="PrefLib has whole counts"):
        export(store, tmp_path / "a.soc")
