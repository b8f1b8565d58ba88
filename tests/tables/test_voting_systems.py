"""Exports of voting systems: Dominion JSON, NIST SP 1500-103 as JSON and XML, Hart XML; XML that is not safe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import ingest
from plmix_dist.tables import documents
from tests.helpers.doors import DOORS, check_door, expected
from tests.helpers.ingest_helpers import ingest_error, labels_of, named_rows, rejected, row, write

if TYPE_CHECKING:
    from pathlib import Path


def mark(candidate: int, rank: int, *, ambiguous: bool = False) -> dict[str, Any]:
    return {"CandidateId": candidate, "Rank": rank, "IsAmbiguous": ambiguous, "IsVote": rank == 1}


def session(number: int, marks: list[dict[str, Any]], conditions: tuple[int, ...] = (), **other: Any) -> dict[str, Any]:
    contest = {"Id": 1, "Marks": marks, "OutstackConditionIds": list(conditions)}
    votes = {"IsCurrent": True, "Cards": [{"Contests": [contest]}]}
    return {"TabulatorId": 4, "BatchId": 2, "RecordId": number, "Original": votes} | other


def dominion(folder: Path, *, contests: int = 1) -> Path:
    folder.mkdir()
    named = [{"Id": n, "Description": f"Contest {n}", "NumOfRanks": 3} for n in range(1, contests + 1)]
    named.append({"Id": 9, "Description": "Measure", "NumOfRanks": 0})
    write(folder / "ContestManifest.json", json.dumps({"List": named}))
    people = [{"Id": n, "ContestId": 1, "Description": name} for n, name in enumerate(["Ann", "Bo", "Write-in"], 1)]
    write(folder / "CandidateManifest.json", json.dumps({"List": people}))
    modified = {"Cards": [{"Contests": [{"Id": 1, "Marks": [mark(2, 1)]}]}]}
    old = {"IsCurrent": False, "Cards": [{"Contests": [{"Id": 1, "Marks": [mark(1, 1)]}]}]}
    first = [
        session(1, [mark(1, 1), mark(2, 2)]),
        session(2, [mark(1, 1), mark(2, 1), mark(3, 2)]),
        session(3, [], Original=old, Modified=modified),
        session(4, [mark(1, 1, ambiguous=True), mark(3, 3)]),
    ]
    second = [
        session(5, [mark(1, 1)], conditions=(7,)),
        session(6, [], Original={"IsCurrent": True, "Contests": "*** REDACTED ***"}),
        session(7, [], Original={"IsCurrent": True, "Contests": [{"Id": 1, "Marks": [mark(2, 1), mark(1, 3)]}]}),
        session(8, [], Original={"IsCurrent": True, "Contests": [{"Id": 2, "Marks": [mark(2, 1)]}]}),
    ]
    write(folder / "CvrExport_2.json", json.dumps({"Version": "5", "Sessions": first}))
    write(folder / "CvrExport_10.json", "\ufeff" + json.dumps({"Version": "5", "Sessions": second}))
    return folder


def test_dominion__sessions_of_all_files_of_a_folder(tmp_path: Path) -> None:
    store = ingest(dominion(tmp_path / "export"), tmp_path / "s")
    assert store.item_names == ("Ann", "Bo", "Write-in")
    assert named_rows(store) == [
        row("Ann", "Bo", unranked="below"),
        row("Bo", unranked="below"),
        row("Write-in", unranked="below"),
        row("Bo", "Ann", unranked="below"),
    ]
    assert labels_of(store, "ids") == ["4-2-1", "4-2-3", "4-2-4", "4-2-7"]
    assert [one["reason"] for one in rejected(store)] == ["blank", "not-counted", "not-counted"]


def test_dominion__contests_are_listed_with_their_ballots(tmp_path: Path) -> None:
    folder = dominion(tmp_path / "export", contests=2)
    message = ingest_error(folder, tmp_path / "s")
    assert "say --contest NAME with one of: Contest 1 (6 ballots); Contest 2 (1 ballots)" in message
    assert ingest(folder, tmp_path / "s", format="cvr", choices={"contest": "Contest 1"}).n_rankings == 4


NIST: dict[str, Any] = {
    "@type": "CVR.CastVoteRecordReport",
    "CVR": [],
    "Election": [
        {
            "Candidate": [{"@id": "a", "Name": "Ann"}, {"@id": "b", "Name": {"Text": [{"Content": "Bo\n Lee"}]}}],
            "Contest": [
                {
                    "@id": "c1",
                    "Name": "Mayor",
                    "ContestSelection": [
                        {"@id": "s1", "CandidateIds": ["a"]},
                        {"@id": "s2", "CandidateIds": ["b"]},
                        {"@id": "s3", "IsWriteIn": True},
                    ],
                }
            ],
        }
    ],
}


def nist(*ballots: list[tuple[str, int | None]]) -> str:
    records = []
    for number, marks in enumerate(ballots, start=1):
        chosen = [
            {
                "ContestSelectionId": key,
                "SelectionPosition": [{"HasIndication": "yes"} | ({} if rank is None else {"Rank": rank})],
            }
            for key, rank in marks
        ]
        dropped = {"ContestSelectionId": "s1", "SelectionPosition": [{"HasIndication": "no", "Rank": 9}]}
        contest = {"ContestId": "c1", "CVRContestSelection": [*chosen, dropped]}
        snapshots = [{"@id": "old", "CVRContest": []}, {"@id": "now", "CVRContest": [contest]}]
        records.append({"UniqueId": str(number), "CurrentSnapshotId": "now", "CVRSnapshot": snapshots})
    return json.dumps(NIST | {"CVR": records})


def test_nist__json(tmp_path: Path) -> None:
    text = nist([("s2", 1), ("s1", 2)], [("s1", 1), ("s1", 2)], [("s1", 1), ("s2", 1)], [("s3", 2)])
    store = ingest(write(tmp_path / "v.json", text), tmp_path / "s")
    assert store.item_names == ("Ann", "Bo Lee", "Write-in")
    assert [one.ordered for one in named_rows(store)] == [(("Bo Lee",), ("Ann",)), (("Ann",),), (("Write-in",),)]
    assert labels_of(store, "ids") == [1, 2, 4]
    assert [one["reason"] for one in rejected(store)] == ["blank"]


def test_nist__votes_without_ranks(tmp_path: Path) -> None:
    message = ingest_error(write(tmp_path / "v.json", nist([("s1", None)])), tmp_path / "s")
    assert "votes without ranks" in message


XML = """<?xml version="1.0"?>
<cdf:CastVoteRecordReport xmlns:cdf="NIST_V0_cast_vote_records.xsd">
 <cdf:CVR><cdf:CurrentSnapshotId>n1</cdf:CurrentSnapshotId><cdf:CVRSnapshot ObjectId="n1"><cdf:CVRContest>
  <cdf:ContestId>c</cdf:ContestId>
  <cdf:CVRContestSelection><cdf:ContestSelectionId>s2</cdf:ContestSelectionId><cdf:SelectionPosition>
   <cdf:HasIndication>yes</cdf:HasIndication><cdf:Rank>1</cdf:Rank></cdf:SelectionPosition></cdf:CVRContestSelection>
  <cdf:CVRContestSelection><cdf:ContestSelectionId>s1</cdf:ContestSelectionId><cdf:SelectionPosition>
   <cdf:HasIndication>yes</cdf:HasIndication><cdf:Rank>2</cdf:Rank></cdf:SelectionPosition></cdf:CVRContestSelection>
 </cdf:CVRContest></cdf:CVRSnapshot><cdf:UniqueId>b-7</cdf:UniqueId></cdf:CVR>
 <cdf:Election><cdf:Candidate ObjectId="a"><cdf:Name>Ann
   Lee</cdf:Name></cdf:Candidate>
  <cdf:Candidate ObjectId="b"><cdf:Name><cdf:Text>Bo</cdf:Text></cdf:Name></cdf:Candidate>
  <cdf:Contest ObjectId="c"><cdf:ContestSelection ObjectId="s1"><cdf:CandidateIds>a</cdf:CandidateIds>
  </cdf:ContestSelection><cdf:ContestSelection ObjectId="s2"><cdf:CandidateIds>b</cdf:CandidateIds>
  </cdf:ContestSelection><cdf:Name>Mayor</cdf:Name></cdf:Contest></cdf:Election>
</cdf:CastVoteRecordReport>
"""


def test_nist__xml(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "v.xml", XML), tmp_path / "s")
    assert named_rows(store) == [row("Bo", "Ann Lee")]
    assert labels_of(store, "ids") == ["b-7"]


def test_xml__entities_and_document_types_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "lol"><!ENTITY b "&a;&a;">]>\n'
    bad = XML.replace("<cdf:CastVote", f"{bomb}<cdf:CastVote", 1)
    assert "declares a document type" in ingest_error(write(tmp_path / "v.xml", bad), tmp_path / "s")
    deep = XML.replace("<cdf:CVR>", "<cdf:CVR>" * 80, 1)
    assert "nested more than 64 deep" in ingest_error(write(tmp_path / "w.xml", deep), tmp_path / "s")
    assert "cannot be read as XML" in ingest_error(write(tmp_path / "x.xml", XML[:-40]), tmp_path / "s")


def test_documents__a_size_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_MOST_BYTES", 1000)
    assert "divide it into several files" in ingest_error(write(tmp_path / "v.xml", XML), tmp_path / "s")


HART = """\ufeff<?xml version="1.0" encoding="utf-8"?>
<Cvr xmlns="http://tempuri.org/CVRDesign.xsd"><Contests>
<Contest><Name>Plain</Name><Options><Option><Name>Yes</Name><Value>1</Value></Option></Options></Contest>
<Contest><Name>Board</Name><Options>{options}</Options></Contest></Contests><CvrGuid>{guid}</CvrGuid></Cvr>"""


def test_hart__one_file_per_ballot(tmp_path: Path) -> None:
    folder = tmp_path / "hart"
    folder.mkdir()
    ballots = [[("Ann", "0100"), ("Bo", "1000")], [("Ann", "1010")], [("Ann", "1000"), ("Bo", "1000")], [("", "1000")]]
    for number, marks in enumerate(ballots):
        options = "".join(
            f"<Option>{f'<Name>{name}</Name>' if name else ''}<Value>{value}</Value></Option>" for name, value in marks
        )
        write(folder / f"1_{number}.xml", HART.format(options=options, guid=f"g{number}"))
    store = ingest(folder, tmp_path / "s")
    assert [one.ordered for one in named_rows(store)] == [(("Bo",), ("Ann",)), (("Ann",),), (("Write-in",),)]
    assert labels_of(store, "ids") == ["g0", "g1", "g3"]
    assert store.n_partitions == 1


DOORS_OF_SYSTEMS = [
    ("dominion_json/alaska2024_a", "U.S. President / Vice President"),
    ("dominion_json/alaska_test_5_10", None),
    ("hart_xml/hart_doors", "CEDAR PARK SCHOOL BOARD"),
    ("cdf_json/test_set_0_skipped_first_choice.json", None),
    ("cdf_json/test_set_1_exhaust_at_overvote.json", None),
]


@pytest.mark.parametrize(("name", "contest"), DOORS_OF_SYSTEMS)
def test_doors__exports_of_voting_systems(tmp_path: Path, name: str, contest: str | None) -> None:
    store = check_door(name, tmp_path / "s", choices={"contest": contest} if contest else {})
    blank = expected(name)["bad_rows"]["blank_ballots"]
    assert store.manifest.history[-1]["rejected"] == ({"blank": blank} if blank else {})


def test_doors__nist_example_without_ranks(tmp_path: Path) -> None:
    expected("cdf_xml/nist_example_1.xml")
    assert "votes without ranks" in ingest_error(DOORS / "cdf_xml/nist_example_1.xml", tmp_path / "s")
