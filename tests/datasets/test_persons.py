"""Columns about persons: read into a store, kept with their levels, and used by name."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plmix_dist as plm
from plmix_dist.cli import main
from plmix_dist.errors import IngestError, SettingsError

COLUMNS = {"persons": "region,age", "id": "voter"}
REGIONS = np.array(["north", "south, deep", "west"])


def people(n: int = 400, seed: int = 0) -> dict[str, Any]:
    """Ages and regions of persons of two tastes, on which the tastes depend, and their rankings of four drinks."""
    rng = np.random.default_rng(seed)
    age, region = rng.integers(18, 80, n), rng.choice(REGIONS, n)
    likes_tea = rng.random(n) < 1 / (1 + np.exp(-(age - 50) / 8 - 1.5 * (region == "west")))
    worths = np.where(likes_tea[:, None], [2.5, 0.0, -1.5, 0.5], [-1.5, 2.5, 0.5, 0.0])
    rankings = np.argsort(-(worths + rng.gumbel(size=worths.shape)), axis=1)
    return {"age": age, "region": region, "rankings": np.array(["tea", "coffee", "mate", "water"])[rankings]}


def table(path: Path, given: dict[str, Any], places: int = 3) -> str:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["voter", "age", "region", *(f"choice{place + 1}" for place in range(places))])
        for number, row in enumerate(given["rankings"]):
            rows.writerow([number, given["age"][number], given["region"][number], *row[:places]])
    return str(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], plm.RankingStore]:
    folder, given = tmp_path_factory.mktemp("persons"), people()
    source = table(folder / "ballots.csv", given)
    return folder, given, plm.ingest(source, folder / "store", unranked="below", columns=COLUMNS)


def coded(given: dict[str, Any]) -> np.ndarray:
    """What the columns stand for, coded here."""
    south, west = (given["region"] == name for name in REGIONS[1:])
    return np.column_stack([south, west, given["age"]]).astype(np.float64)


def test_columns_of_persons__are_kept_with_levels(made: Any) -> None:
    store = made[2]
    assert plm.open_store(store.location).person_columns == {"region": list(REGIONS), "age": []}
    assert plm.info(store)["person_columns"] == store.person_columns
    assert plm.verify(store) == []


def test_columns_of_persons__by_name_are_the_numbers_they_stand_for(made: Any) -> None:
    _, given, store = made
    model = plm.PlackettLuceMixture(2, random_state=0, alpha=0.1)
    named = model.fit(store, membership_covariates=["region", "age"])
    assert named.covariate_names_ == ("region=south, deep", "region=west", "age")
    numbers = plm.PlackettLuceMixture(2, random_state=0, alpha=0.1).fit(store, membership_covariates=coded(given))
    assert named.share_coefficients_ is not None
    np.testing.assert_array_equal(named.share_coefficients_, numbers.share_coefficients_)
    assert np.abs(named.share_coefficients_[1, 1:]).max() > 0.05
    errors = named.standard_errors(store)
    assert errors.share_coefficients is not None
    assert errors.share_coefficients.names == ("intercept", *named.covariate_names_)
    expected = numbers.standard_errors(store, membership_covariates=coded(given))
    np.testing.assert_array_equal(
        errors.share_coefficients.standard_errors, expected.share_coefficients.standard_errors
    )


def test_columns_of_persons__a_saved_model_reads_them_by_itself(made: Any, tmp_path: Path) -> None:
    store = made[2]
    model = plm.PlackettLuceMixture(2, random_state=0, alpha=0.1).fit(store, membership_covariates=["region", "age"])
    model.save(tmp_path / "model")
    again = plm.PlackettLuceMixture.load(tmp_path / "model")
    assert again.person_columns_ == {"region": list(REGIONS), "age": []}
    # Another store with its columns in another order, and without one of the levels.
    others = people(60, seed=3)
    others["region"][others["region"] == "north"] = "west"
    source = table(tmp_path / "others.csv", others)
    other = plm.ingest(source, tmp_path / "others", unranked="below", columns=COLUMNS | {"persons": "age,region"})
    found = np.asarray(again.predict_proba(other))
    np.testing.assert_array_equal(found, np.asarray(model.predict_proba(other, membership_covariates=coded(others))))
    with pytest.raises(SettingsError, match="fitted with membership_covariates region, age"):
        again.predict_proba(other, membership_covariates=["age"])


def test_columns_of_persons__the_report_names_them(made: Any, tmp_path: Path) -> None:
    store = made[2]
    model = plm.PlackettLuceMixture(2, random_state=0, alpha=0.1).fit(store, membership_covariates=["region", "age"])
    page = model.report(tmp_path / "page.html", store).read_text()
    assert all(f">{name}<" in page for name in ("region=west", "age"))
    assert "Covariates are numbered" not in page


@pytest.mark.parametrize("form", ["orderings", "long"])
def test_columns_of_persons__are_exported_and_read_again(made: Any, tmp_path: Path, form: str) -> None:
    store = made[2]
    plm.export(store, tmp_path / "again.csv", format=form)
    again = plm.ingest(tmp_path / "again.csv", tmp_path / "again", unranked="below", columns={"persons": "region,age"})
    assert again.block().equals(store.block())
    assert again.person_columns == store.person_columns
    with pytest.raises(SettingsError, match="columns about persons would be lost in parquet"):
        plm.export(store, tmp_path / "again.parquet")


def test_columns_of_persons__parts_of_a_split_keep_all_levels(made: Any, tmp_path: Path) -> None:
    store = made[2]
    few, rest = plm.split(store, [tmp_path / "few", tmp_path / "rest"], shares=[0.01, 0.99])
    assert few.n_rankings < 15
    assert few.person_columns == rest.person_columns == store.person_columns
    assert sum(len(part.profiles()[1]) for part in (few, rest)) == store.n_rankings


def test_columns_of_persons__appended_rows_add_levels(made: Any, tmp_path: Path) -> None:
    given = people(50, seed=5)
    store = plm.ingest(table(tmp_path / "a.csv", given), tmp_path / "s", unranked="below", columns=COLUMNS)
    more = people(50, seed=6) | {"region": np.full(50, "east")}
    source = table(tmp_path / "b.csv", more)
    with pytest.raises(SettingsError, match="the store has the persons region, age, and what is added has none"):
        plm.ingest(source, tmp_path / "s", unranked="below", append=True, columns={"ignore": "age,region"})
    store = plm.ingest(source, tmp_path / "s", unranked="below", append=True, columns=COLUMNS)
    assert store.person_columns["region"] == ["east", *REGIONS]
    profiles, codes = store.profiles()
    assert [profiles[code] for code in codes.tolist()[-2:]] == [["east", str(age)] for age in more["age"][-2:]]


def test_columns_of_persons__what_cannot_work_is_said(made: Any, tmp_path: Path) -> None:
    folder, given, store = made
    model = plm.PlackettLuceMixture(2, random_state=0)
    with pytest.raises(SettingsError, match=r"'income' is not a column about persons .* a store has region, age"):
        model.fit(store, membership_covariates=["income"])
    with pytest.raises(SettingsError, match="made with --person-columns"):
        model.fit([[0, 1], [1, 0]], membership_covariates=["age"])
    with pytest.raises(SettingsError, match="rankings with columns about persons are not merged"):
        plm.ingest(folder / "ballots.csv", tmp_path / "s", unranked="below", columns=COLUMNS, merge=True)
    with pytest.raises(IngestError, match="no column 'income' about persons"):
        plm.ingest(folder / "ballots.csv", tmp_path / "s", columns={"persons": "income"})
    names = {"age": np.array([f"person {number}" for number in range(600)])}
    crowd = table(tmp_path / "crowd.csv", people(600) | names)
    with pytest.raises(IngestError, match=re.escape("'age' has 600 different values, of which 'person 0'")):
        plm.ingest(crowd, tmp_path / "s", unranked="below", columns=COLUMNS)
    empty = table(tmp_path / "empty.csv", given | {"region": np.where(given["age"] > 30, given["region"], "")})
    with pytest.raises(IngestError, match="region is empty, and shares may depend on it"):
        plm.ingest(empty, tmp_path / "t", unranked="below", columns=COLUMNS)
    battles = tmp_path / "battles.csv"
    battles.write_text("model_a,model_b,winner,age\nx,y,model_a,3\ny,x,tie,4\nx,z,model_b,5\nz,y,model_a,5\n")
    with pytest.raises(IngestError, match="no column for persons"):
        plm.ingest(battles, tmp_path / "u", columns={"persons": "age"})


def test_columns_of_persons__at_the_shell(made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, model, who = tmp_path / "store", tmp_path / "model", tmp_path / "who.csv"

    def plmix(*arguments: object) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        said = "".join(capsys.readouterr())
        return said if not stopped.value.code else f"{stopped.value.code}: {said}"

    options = ["--unranked", "below", "--column", "id=voter", "--person-columns", "region,age"]
    assert "left out" not in plmix("ingest", made[0] / "ballots.csv", place, *options)
    said = plmix("info", place)
    assert 'north, "south, deep", west' in said
    assert "numbers" in said
    plmix("fit", place, "--components", 2, "--covariates", "region,age", "--out", model)
    plmix("predict", model, place, who)
    assert len(who.read_text().splitlines()) == 401
    assert "per ranking" in plmix("score", model, place)
    assert "1: plmix: error: 'wealth' is not" in plmix(
        "fit", place, "--components", 2, "--covariates", "wealth", "--out", "x"
    )
