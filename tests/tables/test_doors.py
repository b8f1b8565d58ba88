"""Real files of the formats in use, where their folder is there: each is read as its expected.json says, or refused."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import ingest
from plmix_dist.errors import PlmixError
from tests.helpers.ingest_helpers import labels_of, named_rows

if TYPE_CHECKING:
    from plmix_dist.store import RankingStore

DOORS = Path(__file__).parents[3] / "shared" / "data" / "doors"
pytestmark = pytest.mark.skipif(not DOORS.exists(), reason="the folder of real files is not there")

WITHOUT_OPTIONS = (
    *("battles/arena_three_columns.csv", "battles/baseball_counts.csv", "battles/chatbotarena_counts.json"),
    *("battles/clean_battle_schema.json", "battles/food.csv", "battles/football_scores.csv"),
    *("battles/kaggle55k_schema.csv", "battles/llmfao_1200.csv", "preference_jsonl/nectar_schema.jsonl"),
    *("xlsx/food_battles.xlsx", "choice_long/car_choice_300.csv", "choice_long/electricity_300.csv.gz"),
    *("choice_long/expedia_schema.csv", "choice_long/fishing_long_300.csv", "races/f1_2023.csv"),
    *("best_worst/bwsTools_indiv.csv", "best_worst/maxdiff_wide_schema.csv", "tricot/beans.csv"),
)
READ: dict[str, dict[str, Any]] = {
    **{name: {} for name in WITHOUT_OPTIONS},
    "races/nascar_orderings.csv": {"unranked": "absent"},
    "tricot/breadwheat.csv": {"trait": "overall"},
    "long/nicabean_60.csv": {"where": ["trait=Yield"], "unranked": "absent"},
    "best_worst/apollo_drug_400.csv": {"columns": {"places": "best,second_pref,third_pref,worst", "group": "ID"}},
}
REFUSED = {
    "preference_jsonl/dpo_nested_12.json": "what occurs once cannot be ranked",
    "best_worst/bws_fruit.csv": "a design that is not in the file",
    "choice_wide/swissmetro_700.csv": "nothing says which of TRAIN, CAR, SM each is",
    "tricot/breadwheat.csv": "say --trait NAME",
    "long/nicabean_60.csv": "--where trait=",
}


def digest(store: RankingStore, slates: bool) -> str:
    """As digest.py beside the files has it: equal rankings merged, names of ties sorted, lines sorted."""
    times: Counter[str] = Counter()
    for one in named_rows(store):
        text = " > ".join(" = ".join(sorted(map(str, place))) for place in one.ordered)
        text += " | " + " , ".join(sorted(map(str, one.offered))) if slates else ""
        times[text] += one.weight  # type: ignore[assignment]
    lines = "\n".join(f"{text}\t{round(weight, 9):g}" for text, weight in sorted(times.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


@pytest.mark.parametrize("name", READ)
def test_doors__read_as_expected(tmp_path: Path, name: str) -> None:
    if name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    expected = json.loads((DOORS / f"{name}.expected.json").read_text())
    store = ingest(DOORS / name, tmp_path / "store", **READ[name])
    slates = any("on_offer_below" in one for one in expected["first_rankings"])
    assert digest(store, slates) == expected["digest_sha256"]
    assert store.total_weight == expected["total_weight"]
    if "n_groups" in expected:
        assert len(set(labels_of(store, "groups") or [])) == expected["n_groups"]


@pytest.mark.parametrize("name", REFUSED)
def test_doors__refused_with_what_helps(tmp_path: Path, name: str) -> None:
    with pytest.raises(PlmixError) as caught:
        ingest(DOORS / name, tmp_path / "store")
    assert REFUSED[name] in str(caught.value)
