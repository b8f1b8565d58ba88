"""Exports of surveys: three header rows of Qualtrics, grids of Google Forms, SurveyMonkey; which question is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plmix_dist import ingest
from tests.helpers.doors import check_door, expected
from tests.helpers.ingest_helpers import cut_small, ingest_error, labels_of, named_rows, rejected, row, write

if TYPE_CHECKING:
    from pathlib import Path

QUALTRICS = (
    "StartDate,ResponseId,Q1_1,Q1_2,Q1_3,Q2,Q3_1,Q3_2,s_weight\n"
    'Start Date,Response ID,Rank - all - Tea,"Rank - all - Mate, hot",Rank - all - Milk,Age,T - Sweet,T - Sour,w\n'
    '"{""ImportId"":""d""}","{""ImportId"":""r""}","{""ImportId"":""1""}","{""ImportId"":""2""}",'
    '"{""ImportId"":""3""}","{""ImportId"":""4""}","{""ImportId"":""5""}","{""ImportId"":""6""}","{""ImportId"":""7""}"\n'
    "2024-01-01,R_1,1,3,2,33,1,2,0.5\n2024-01-02,R_2,2,1,3,44,2,1,1.5\n2024-01-02,R_3,,,,21,1,2,1\n"
)
ROWS = [row("Tea", "Milk", "Mate, hot", weight=0.5), row("Mate, hot", "Tea", "Milk", weight=1.5)]


def test_qualtrics__names_from_the_second_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "v.csv", "\ufeff" + QUALTRICS.replace("\n", "\r\n"))
    assert "say --question PREFIX with one of the 2 ranked questions: Q1 (Tea" in ingest_error(source, tmp_path / "s")
    store = ingest(source, tmp_path / "s", choices={"question": "Q1"})
    assert named_rows(store) == ROWS
    assert labels_of(store, "ids") == ["R_1", "R_2"]
    assert [(one["reason"], one["line"]) for one in rejected(store)] == [("blank", 6)]
    cut_small(monkeypatch)
    assert named_rows(ingest(source, tmp_path / "t", choices={"question": "Q1"})) == ROWS


def test_google_forms__items_in_brackets(tmp_path: Path) -> None:
    text = "Timestamp,Rank them [Tea],Rank them [Mate],Rank them [Milk],Email\n"
    text += "2024/03/01,1st choice,3rd choice,2nd choice,a@b\n2024/03/02,2nd choice,1st choice,,c@d\n"
    store = ingest(write(tmp_path / "v.csv", text), tmp_path / "s")
    assert named_rows(store) == [row("Tea", "Milk", "Mate"), row("Mate", "Tea", unranked="below")]


def test_survey_monkey__items_in_the_second_row(tmp_path: Path) -> None:
    text = "Respondent ID,Start Date,Please rank,,,Comment\n,,Tea,Mate,Milk,Response\n"
    text += "101,x,1,2,3,fine\n102,y,2,1,N/A,\n".replace("N/A", "3")
    store = ingest(write(tmp_path / "v.csv", text), tmp_path / "s", header=True)
    assert named_rows(store) == [row("Tea", "Mate", "Milk"), row("Mate", "Tea", "Milk")]
    assert labels_of(store, "ids") == [101, 102]


def test_refused__named_but_not_a_survey(tmp_path: Path) -> None:
    source = write(tmp_path / "v.csv", "tea,mate\n1,2\n2,1\n")
    assert "no question with a rank per item" in ingest_error(source, tmp_path / "s", format="qualtrics")


@pytest.mark.parametrize("name", ["qualtrics/qualtrics_rank.csv", "forms/google_forms_grid_schema.csv"])
def test_doors__surveys(tmp_path: Path, name: str) -> None:
    store = check_door(name, tmp_path / "s")
    without = expected(name)["bad_rows"].get("responses_without_answer", 0)
    assert store.manifest.history[-1]["rejected"] == ({"blank": without} if without else {})
