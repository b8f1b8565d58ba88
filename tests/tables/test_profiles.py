"""Texts of elections: blt, scottish, votekit and abif, read right or refused with the line and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plmix_dist import ingest
from tests.helpers.doors import DOORS, check_door, digest, expected
from tests.helpers.ingest_helpers import ingest_error, named_rows, rejected, row, write

if TYPE_CHECKING:
    from pathlib import Path

BLT = (
    '3 2\n[nick ann bo cy]\n3 ann 0\n2 ann=bo cy 0\n1.5 3 - 1 0 # a comment\n4 0\n0\n"Ann ""Lee"\n"Bo"\n"Cy"\n"Title"\n'
)
BLT = BLT.replace('"Ann ""Lee"', '"Ann Lee"')
BLT_ROWS = [
    row("Ann Lee", unranked="below", weight=3.0),
    row(("Ann Lee", "Bo"), "Cy", weight=2.0),
    row("Cy", "Ann Lee", unranked="below", weight=1.5),
]


@pytest.mark.parametrize("name", ["v.blt", "v.txt", "v.blt.gz"])
def test_blt__nicknames_ties_skipped_places_blank_ballots_and_comments(tmp_path: Path, name: str) -> None:
    store = ingest(write(tmp_path / name, "\ufeff" + BLT), tmp_path / "s")
    assert store.item_names == ("Ann Lee", "Bo", "Cy")
    assert named_rows(store) == BLT_ROWS
    assert [(one["reason"], one["line"]) for one in rejected(store)] == [("blank", 6)]


def test_blt__line_ends_mean_nothing_and_equal_names_are_numbered(tmp_path: Path) -> None:
    text = '2 1 -2 5 1\n2 0 1\n2 0 0 "Lee" "Lee" "Title"'
    store = ingest(write(tmp_path / "v.blt", text), tmp_path / "s")
    assert named_rows(store) == [row("Lee (1)", "Lee (2)", weight=5.0), row("Lee (2)", unranked="below")]
    dropped = ingest(write(tmp_path / "w.blt", text.replace("2 1", "3 1").replace('"Title"', '"Cy"')), tmp_path / "t",
                     choices={"withdrawn": "drop"})  # fmt: skip
    assert dropped.item_names == ("Lee (1)", "Cy")
    assert named_rows(dropped) == [row("Lee (1)", unranked="below", weight=5.0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("3 ann 0", "3 dee 0"), "line 3: 'dee' is not one of the candidates"),
        (('"Cy"\n"Title"\n', ""), "says 3 candidates, but 2 names"),
        (("3 2\n", "x 2\n"), "number of candidates"),
        (("3 ann 0", "(7) ann 0"), "line 3: a ballot should begin with its weight"),
        (("3 ann 0", "-x ann 0"), "the weight '-x' is not a number"),
        (("ann bo cy]", "ann bo]"), "[nick] has 2 names for 3 candidates"),
    ],
)
def test_blt__what_is_wrong_is_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert message in ingest_error(write(tmp_path / "v.blt", BLT.replace(*change)), tmp_path / "s")


SCOTTISH = (
    "3,1,\n126,1,\n\n9,1,2,\n1,3,2,1,\n"
    '"Candidate 1","Paul","O (O)",\n"Candidate 2","Bo, Jr.","Y",\n"Candidate 3","Al","R",\n"Ward",\n'
)


def test_scottish__rows_names_and_blank_rows(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "v.csv", SCOTTISH), tmp_path / "s")
    assert store.item_names == ("Paul", "Bo, Jr.", "Al")
    assert [one.weight for one in named_rows(store)] == [126, 9, 1]
    assert named_rows(store)[2] == row("Al", "Bo, Jr.", "Paul")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("3,1,\n", "4,1,\n"), "says 4 candidates, but 3 rows name one"),
        (("9,1,2,", "9,1,7,"), "line 4: '7' is not one of the candidates"),
        (('"Candidate 3"', '"Candidate 2"'), "should be numbered from 1 to 3"),
        (('"Ward"', '"Ward",\n"More"'), "neither a ballot nor a candidate"),
    ],
)
def test_scottish__what_is_wrong_is_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert message in ingest_error(write(tmp_path / "v.csv", SCOTTISH.replace(*change)), tmp_path / "s")


def test_scottish__a_table_of_numbers_is_not_one(tmp_path: Path) -> None:
    message = ingest_error(write(tmp_path / "v.csv", "1,2\n2,1\n1,2\n"), tmp_path / "s")
    assert "--header or --no-header" in message


VOTEKIT = (
    "VoteKit RankProfile{v}\r\nCandidates\r\n{names}\r\nMax Ranking Length\r\n3\r\nIncludes Voter Set\r\nTrue\r\n"
    "=,=,=\r\nRanking_1,Ranking_2,Ranking_3,&,Weight,&,Voter Set\r\n"
    "\"{{'x', 'y'}}\",{{}},{{'z'}},&,1.5,&,Chris,Peter\r\n{{'y'}},{{'x'}},,&,3/2,&\r\n,,,&,1.0,&\r\n"
)


@pytest.mark.parametrize(
    ("version", "names"), [("", "(Ann (A):x),(Annie:y),(C:z)"), (",v2", '(Ann (A):str:x),(Annie:str:y),"(C:str:z)"')]
)
def test_votekit__both_versions(tmp_path: Path, version: str, names: str) -> None:
    store = ingest(write(tmp_path / "v.csv", VOTEKIT.format(v=version, names=names)), tmp_path / "s")
    assert store.item_names == ("Ann (A)", "Annie", "C")
    assert named_rows(store) == [
        row(("Ann (A)", "Annie"), "C", weight=1.5),
        row("Annie", "Ann (A)", unranked="below", weight=1.5),
    ]
    assert [one["reason"] for one in rejected(store)] == ["blank"]


def test_votekit__scores_highest_first(tmp_path: Path) -> None:
    text = "VoteKit ScoreProfile\nCandidates\n(Al:0),(Bo:1),(Cy:2)\n=,=\n"
    text += "0,1,2,&,Weight,&\n2.0,4.0,2.0,&,1.0,&\n,1,3,&,2,&\n"
    store = ingest(write(tmp_path / "v.csv", text), tmp_path / "s")
    assert named_rows(store) == [row("Bo", ("Al", "Cy")), row("Cy", "Bo", weight=2.0)]


ABIF = (
    '{"title": "x"}\n# comment\n=A:[Ann, TN]\n=Bo:[Bo]\n'
    '3:A>Bo=[Cy Z] # more\n500:\n2: A/5, Bo/5, "Cy Z"/1\n1:Bo/5>A/5\n'
)


@pytest.mark.parametrize("name", ["v.abif", "v.txt"])
def test_abif__order_scores_names_and_blank_ballots(tmp_path: Path, name: str) -> None:
    store = ingest(write(tmp_path / name, ABIF), tmp_path / "s")
    assert store.item_names == ("Ann, TN", "Bo", "Cy Z")
    assert named_rows(store) == [
        row("Ann, TN", ("Bo", "Cy Z"), weight=3.0),
        row(("Ann, TN", "Bo"), "Cy Z", weight=2.0),
        row("Bo", "Ann, TN", unranked="below"),
    ]
    assert [(one["reason"], one["message"]) for one in rejected(store)] == [("blank", "a blank ballot, weight 500")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2:A,Bo", "commas do not say an order"),
        ("2:A/1>Bo/5", "the scores contradict the order"),
        ("2:A>", "nothing follows the last '>'"),
        ("2:A>[Bo", "cannot read"),
        ("two:A>Bo", "expected 'count:ranking'"),
    ],
)
def test_abif__what_is_wrong_is_named(tmp_path: Path, line: str, message: str) -> None:
    found = ingest_error(write(tmp_path / "v.abif", f"3:A>Bo\n{line}\n"), tmp_path / "s")
    assert "line 2" in found
    assert message in found


@pytest.mark.parametrize(
    "name",
    [
        *(f"blt/{name}.blt" for name in
          ("equal_preference", "glasgow_calton_2007", "green_party_2005", "utf8_bom", "vegetables")),
        *(f"abif/{name}.abif" for name in
          ("burl2009", "jman722-example", "tennessee-example-blank-prefstr", "tennessee-example-overvote-01",
           "tennessee-example-scores")),
        *("scottish_csv/eilean_siar_2012_ward3.csv", "scottish_csv/scot_blank_rows.csv"),
        *(f"votekit_csv/{name}.csv" for name in ("albany_1000", "old_format_ties", "score_profile", "v2_written")),
    ],
)  # fmt: skip
def test_doors__texts_of_elections(tmp_path: Path, name: str) -> None:
    check_door(name, tmp_path / "s")


@pytest.mark.parametrize("name", ["green_party_2005", "vegetables"])
def test_doors__withdrawn_candidates_taken_out(tmp_path: Path, name: str) -> None:
    wanted = expected(f"blt/{name}.blt")["alternatives"]["withdrawn candidates taken out"]
    store = ingest(DOORS / f"blt/{name}.blt", tmp_path / "s", choices={"withdrawn": "drop"})
    assert (store.n_rankings, digest(store)) == (wanted["n_rankings"], wanted["digest_sha256"])


def test_doors__scottish_file_whose_counts_disagree(tmp_path: Path) -> None:
    expected("scottish_csv/scot_candidate_overcount.csv")
    message = ingest_error(DOORS / "scottish_csv/scot_candidate_overcount.csv", tmp_path / "s")
    assert "says 9 candidates, but 3 rows name one" in message
