"""Text as a source: which form a file has, its fields, and two readers with one result."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from plmix_dist import ingest
from plmix_dist.errors import IngestError, SettingsError
from plmix_dist.tables import by_row, sniff, sources
from plmix_dist.tables import text as text_chunks
from plmix_dist.tables.encode import read_names
from plmix_dist.tables.registry import FORMATS, read_slice
from plmix_dist.tables.sources import Slice, find
from tests.helpers.ingest_helpers import ingest_error, named_rows, rejected, row, write
from tests.helpers.marks import examples

if TYPE_CHECKING:
    from pathlib import Path

    from plmix_dist.tables.rows import RawRows


# --- which form a file has -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("a.csv", "count,ordering\n2,tea mate\n", "orderings"),
        ("a.csv", "Ordering\ntea mate\n", "orderings"),
        ("a.csv", "first,second\ntea,mate\n", "wide"),
        ("a.csv", "id,first,second\n7,tea,mate\n", "wide"),
        ("a.csv", "ranking,item,rank\n7,tea,1\n7,mate,2\n", "long"),
        ("a.csv", "Position, Candidate ,ballot_id\n1,tea,7\n2,mate,7\n", "long"),
        ("a.txt", "first,second\ntea,mate\n", "wide"),
        ("a.tsv", "first\tsecond\ntea\tmate\n", "wide"),
        ("A.TSV", "first\tsecond\ntea\tmate\n", "wide"),
        ("a.csv.gz", "ranking,item,rank\n7,tea,1\n7,mate,2\n", "long"),
        ("a.csv", "\ufefffirst,second\r\ntea,mate\r\n", "wide"),
        ("a.csv", "\ufeffranking,item,rank\n7,tea,1\n7,mate,2", "long"),
    ],
)
def test_form__told_by_the_columns(tmp_path: Path, name: str, text: str, form: str) -> None:
    store = ingest(write(tmp_path / name, text), tmp_path / "store")
    assert [ranking.ordered for ranking in named_rows(store)] == [(("tea",), ("mate",))]
    assert store.manifest.history[0]["sources"][0]["format"] == form


def test_form__said_by_the_user(tmp_path: Path) -> None:
    # By its columns this is `orderings`; read as `wide` it means something else.
    source = write(tmp_path / "a.csv", "ordering,second\ntea,mate\n")
    store = ingest(source, tmp_path / "store", format="wide", columns={"places": "ordering,second"})
    assert named_rows(store) == [row("tea", "mate")]


def test_form__name_that_tells_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "rankings.dat", "first,second\ntea,mate\n")
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}: the format is not known from the name" in message
    assert "--format" in message
    assert named_rows(ingest(source, tmp_path / "store", format="wide")) == [row("tea", "mate")]


@pytest.mark.parametrize("text", ["", "\n", "  \n"], ids=["nothing", "line end", "blank"])
def test_file__empty(tmp_path: Path, text: str) -> None:
    source = write(tmp_path / "a.csv", text)
    assert f"{source} is empty: its first line should name the columns" in ingest_error(source, tmp_path / "store")


@pytest.mark.promise(21)
@pytest.mark.parametrize("header", ["first,second", "ranking,item,rank", "ordering"])
def test_file__without_rows(tmp_path: Path, header: str) -> None:
    source = write(tmp_path / "a.csv", f"{header}\n\n")
    assert f"no ranking was found in {source}" in ingest_error(source, tmp_path / "store")


def test_file__not_utf8(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\ncaf\xe9,tea\n".encode("latin-1"))
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 3: not UTF-8 text" in message


@pytest.mark.promise(42)
def test_file__with_line_ends_of_old(tmp_path: Path) -> None:
    # A carriage return alone does not end a line, so the whole file is the header.
    source = write(tmp_path / "a.csv", "first,second\rtea,mate\r")
    assert str(source) in ingest_error(source, tmp_path / "store")


def test_file__cut_short_within_its_packing(tmp_path: Path) -> None:
    lines = random.Random(1).choices(["tea,mate\n", "mate,tea\n"], k=5000)
    source = write(tmp_path / "a.csv.gz", "first,second\n" + "".join(lines))
    source.write_bytes(source.read_bytes()[:-200])
    assert str(source) in ingest_error(source, tmp_path / "store")


# --- fields ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "first", "second"),
    [
        ("tea,mate", "tea", "mate"),
        (" tea , mate ", "tea", "mate"),
        ('"tea","mate"', "tea", "mate"),
        ('"green, cold",mate', "green, cold", "mate"),
        ('"the ""best"" tea",mate', 'the "best" tea', "mate"),
        ('tea, "green, cold"', "tea", "green, cold"),
        ("green tea,mate", "green tea", "mate"),
        ("{tea},mate|", "{tea}", "mate|"),
        ("茶,кофе", "茶", "кофе"),
        ("'=cmd(),'+tea", "=cmd()", "+tea"),
        ("'tea','mate'", "'tea'", "'mate'"),
    ],
)
def test_wide__fields_and_their_quotes(tmp_path: Path, line: str, first: str, second: str) -> None:
    store = ingest(write(tmp_path / "a.csv", f"first,second\n{line}\n"), tmp_path / "store")
    assert named_rows(store) == [row(first, second)]


@pytest.mark.parametrize("sign", [";", "|", "\t", " "])
def test_delimiter__said_by_the_user(tmp_path: Path, sign: str) -> None:
    text = "first,second\ntea,mate\n".replace(",", sign)
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", delimiter=sign)
    assert named_rows(store) == [row("tea", "mate")]


def test_delimiter__must_be_one_character(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first||second\ntea||mate\n")
    with pytest.raises(SettingsError, match=r"delimiter.*'\|\|'"):
        ingest(source, tmp_path / "store", delimiter="||")


@pytest.mark.promise(20)
@pytest.mark.parametrize(
    ("text", "n_columns", "n_fields"),
    [
        ("first,second\ntea,mate\ntea\n", 2, 1),
        ("first,second\ntea,mate\ntea,mate,milk\n", 2, 3),
        ("count,ordering\n1,tea mate\n1,tea,mate\n", 2, 3),
    ],
)
def test_fields__too_many_or_too_few(tmp_path: Path, text: str, n_columns: int, n_fields: int) -> None:
    source = write(tmp_path / "a.csv", text)
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 3: expected {n_columns} fields, but got {n_fields}" in message
    store = ingest(source, tmp_path / "store", on_error="quarantine")
    assert store.n_rankings == 1
    [bad] = rejected(store)
    assert (bad["reason"], bad["line"]) == ("syntax", 3)
    assert bad["contents"] == text.splitlines()[2].replace(",", " ")


@pytest.mark.promise(42)
def test_fields__longer_than_csv_allows(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", f'first,second\ntea,mate\n"{"x" * 200_000}",mate\n')
    assert f"{source}, line 3: " in ingest_error(source, tmp_path / "store", unranked="below")


# --- two readers, one result -----------------------------------------------------------------------------

_NAMES = st.sampled_from(
    ["tea", "mate", "milk", "7", "12", "O'Neil", "café", "茶", "'=x", "'tea", " tea", "x\x85", "\xa0", "NA", "-1", "",
     " ", "a>b", "{tea}", "t|a", 'say "hi"', "{", "tea mate", "0", "1", "2", "2.5", "nan", "below", "absent", "\ufeff"]
)  # fmt: skip
_TEXT = st.one_of(_NAMES, st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=("Cs",)), max_size=4))


def _cell(text: str, delimiter: str, quoted: bool) -> str:
    if quoted or delimiter in text or '"' in text:
        return '"' + text.replace('"', '""') + '"'
    return text


@st.composite
def tables(draw: st.DrawFn, form: str) -> tuple[str, dict[str, int], str]:
    """A table of a format, with odd lines, as text; the roles of its columns, and its delimiter."""
    delimiter = draw(st.sampled_from([",", ";", "\t"]))
    roles = {"weight": 0, "id": 1, "group": 2, "unranked": 3} if draw(st.booleans()) else {"id": 0}
    n_labels = len(roles)
    if form == "long":
        roles |= {"item": n_labels, "rank": n_labels + 1}
        width = n_labels + 2
    elif form == "orderings":
        roles["ordering"], width = n_labels, n_labels + 1
    else:
        width = n_labels + draw(st.integers(1, 4))
    if form == "wide":
        roles |= {f"place {place}": place for place in range(n_labels, width)}
    if form == "orderings" and draw(st.booleans()):
        roles, width = {"ordering": 0}, 1
    numbers = st.sampled_from(["1", "2", "3", "1", "2.5", "0", "", "NA", "x", "1e2", "1_0", "inf"])
    labels = st.sampled_from(["7", "7", "8", "007", "b", " 7", ""])
    said = st.sampled_from(["", "below", "absent", "below", "sideways"])
    orders = st.lists(_NAMES, min_size=0, max_size=4).map(
        lambda names: draw(st.sampled_from([" ", " > ", ","])).join(names)
    )
    kinds = {"weight": numbers, "id": labels, "group": labels, "unranked": said, "rank": numbers}
    kinds |= {"item": _TEXT, "ordering": st.one_of(orders, _TEXT)}
    values = numbers if form == "ranks" else _TEXT
    by_place = {place: kinds.get(role, values) for role, place in roles.items()}
    quoted = draw(st.booleans())
    ending = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        cells = [draw(by_place.get(place, values)) for place in range(width)]
        lines.append(delimiter.join(_cell(cell, delimiter, quoted) for cell in cells))
        if draw(st.integers(0, 9)) == 0:
            lines.append(
                draw(
                    st.sampled_from(
                        ["", " ", delimiter, "x", f"a{delimiter}b{delimiter}c", "\ufeff", '"', "\xa0", "\r"]
                    )
                )
            )
    return ending.join(lines) + draw(st.sampled_from(["", ending])), roles, delimiter


def _everything(rows: list[RawRows]) -> list[Any]:
    """The contents of batches, whatever the batches."""
    found: list[Any] = []
    for batch in rows:
        for number in range(batch.n_rows):
            labels = [None if column is None else str(column[number]) for column in (batch.ids, batch.groups)]
            weight = None if batch.weights is None else repr(float(batch.weights[number]))
            said = None if batch.unranked is None else int(batch.unranked[number])
            n_ordered = None if batch.n_ordered is None else int(batch.n_ordered[number])
            names = batch.labels[int(batch.bounds[number]) : int(batch.bounds[number + 1])].to_pylist()
            found.append((int(batch.lines[number]), batch.text(number), names, n_ordered, weight, said, *labels))
        found += [("failure", *failure) for failure in batch.failures]
    return sorted(found, key=repr)


def _read(path: Path, form: str, divider: str | None, text: str, roles: dict[str, int], delimiter: str) -> Any:
    """All rows of a table, or the message of the error."""
    path.write_bytes(text.encode())
    width = max([place + 1 for place in roles.values()])
    if form in ("wide", "ranks"):
        width = max(width, text.split("\n")[0].count(delimiter) + 1)
    header = sources.Header(
        columns=tuple(f"c{place}" for place in range(width)), delimiter=delimiter, roles=roles, divider=divider
    )
    part = Slice(find(str(path)), header, 0, None, 1)
    try:
        return _everything(list(read_slice(FORMATS[form], part)))
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("form", ["wide", "orderings", "long", "ranks"])
@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_readers__by_columns_and_by_lines_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, data: st.DataObject
) -> None:
    table = data.draw(tables(form))
    size = data.draw(st.sampled_from([1, 20, 1 << 20]))
    divider = data.draw(st.sampled_from([None, ">", ","])) if form == "orderings" else None
    with monkeypatch.context() as patch:
        patch.setattr(text_chunks, "CHUNK_BYTES", size)
        fast = _read(tmp_path / "a.csv", form, divider, *table)
    with monkeypatch.context() as patch:
        patch.setattr(text_chunks, "_read_columns", lambda *_: None)
        for plain in ("_words", "_between"):
            patch.setattr(by_row, plain, lambda *_: None)
        slow = _read(tmp_path / "a.csv", form, divider, *table)
    assert fast == slow


@pytest.mark.parametrize("form", ["wide", "orderings", "long", "ranks"])
def test_readers__plain_text_is_read_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    # Without this, the test above could compare the slow reader with itself.
    text = {"wide": "first,second\ntea,mate\n", "orderings": "count,ordering\n2,tea mate\n", "ranks": "tea,mate\n1,1\n",
            "long": "id,item,rank\n7,tea,1\n7,mate,2\n"}[form]  # fmt: skip

    def fail(*_: Any) -> None:
        raise AssertionError("a plain chunk was read line by line")

    monkeypatch.setattr(text_chunks, "_read_lines", fail)
    monkeypatch.setattr(by_row, "_listed_one_by_one", fail)
    for ending in ("\n", "\r\n"):
        for quote in ("", '"'):
            source = write(tmp_path / "a.csv", re.sub(r"([^,\n]+)", rf"{quote}\1{quote}", text).replace("\n", ending))
            store = ingest(source, tmp_path / f"store{len(ending)}{quote}")
            assert store.n_rankings == 1


@pytest.mark.promise(34)
@pytest.mark.parametrize("head", ["", "first,second\ntea,mate\n"])
def test_line__has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str) -> None:
    monkeypatch.setattr(sources, "LONGEST_LINE", 1000)
    monkeypatch.setattr(sniff, "_MOST_LINES", 2)
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 100)
    source = write(tmp_path / "a.csv.gz", head + "tea," * 1000)
    assert "a line is longer than 1,000 bytes" in ingest_error(source, tmp_path / "store")
    names = write(tmp_path / "names.txt", "a" * 2000)
    with pytest.raises(IngestError, match="a line is longer than 1,000 bytes"):
        read_names(str(names))
