"""A battery of elections: one table for a folder, whatever is in it; the same on a cluster, and after a stop."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import plmix_dist as pl
from plmix_dist.cluster.executor import ThreadedExecutor
from plmix_dist.errors import IngestError, SettingsError, StartWarning, StoreExistsError
from plmix_dist.jobs import elections
from plmix_dist.jobs.elections import fit_elections
from tests.helpers import cli_helpers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed import Client

    from tests.helpers.cli_helpers import Said

    Shell = Callable[..., Said]

shell = cli_helpers.shell  # the fixture that runs a verb in a folder of its own
SELECTION = pl.MixtureSelection(range(1, 4), estimator=pl.PlackettLuceMixture(tol=1e-4), random_state=3)
BROKEN = "deep/broken.soi"


def write_election(path: Path, seed: int, n_ballots: int = 400, n_candidates: int = 5) -> None:
    """Ballots of two camps as a wide table: a few candidates, best first."""
    rng = np.random.default_rng(seed)
    log_worths, camp = rng.normal(0, 1.5, (2, n_candidates)), rng.choice(2, n_ballots, p=[0.6, 0.4])
    orders = np.argsort(-(log_worths[camp] + rng.gumbel(size=(n_ballots, n_candidates))), axis=1)
    lengths = 1 + rng.binomial(n_candidates - 1, 0.5, n_ballots)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(f"choice{place}" for place in range(1, n_candidates + 1))
        for order, length in zip(orders, lengths, strict=True):
            table.writerow([*(f"candidate {c}" for c in order[:length]), *[""] * (n_candidates - length)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three elections, and a file of none."""
    folder = tmp_path_factory.mktemp("battery") / "council"
    (folder / "deep").mkdir(parents=True)
    for seed, name in enumerate(("east.csv", "deep/north.csv", "west.csv")):
        write_election(folder / name, seed, n_candidates=4 + seed)
    (folder / BROKEN).write_text("# NUMBER ALTERNATIVES: 3\n1: 1,2,9\n")
    return folder


def without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("seconds")} for row in rows]


def test_rows__are_those_of_ingest_and_selection(folder: Path, tmp_path: Path) -> None:
    rows = fit_elections(folder, tmp_path / "all.csv", SELECTION, client=False)
    assert [row["file"] for row in rows] == [BROKEN, "deep/north.csv", "east.csv", "west.csv"]
    assert "broken.soi" in rows[0]["error"]
    assert rows[0]["n_components"] is None
    for row in rows[1:]:
        store = pl.ingest(folder / row["file"], tmp_path / row["file"], unranked="below")
        found = pl.MixtureSelection(**SELECTION.get_params(deep=False)).fit(store, client=False)
        assert (row["ballots"], row["candidates"]) == (400, store.n_items)
        assert row["n_components"] == found.n_components_
        assert row["shares"] == found.best_estimator_.shares_.tolist()
        assert [row[f"bic_{k}"] for k in (1, 2, 3)] == [each["bic"] for each in found.table_]
        assert [row[f"log_likelihood_{k}"] for k in (1, 2, 3)] == [each["log_likelihood"] for each in found.table_]
        assert 0 < row["seconds_of_fits"] <= row["seconds"]
        assert row["error"] is None
    assert not (tmp_path / "all.csv.parts").exists()


def test_tables__of_all_kinds_say_the_same(folder: Path, tmp_path: Path) -> None:
    tables = [str(tmp_path / f"t.{suffix}") for suffix in ("csv", "jsonl", "parquet")]
    rows = [without_seconds(fit_elections(f"{folder}/*.csv", table, SELECTION, client=False)) for table in tables]
    assert rows[0] == rows[1] == rows[2]
    assert [row["file"] for row in rows[0]] == ["east.csv", "west.csv"]
    assert without_seconds([json.loads(line) for line in Path(tables[1]).read_text().splitlines()]) == rows[0]
    assert without_seconds(pq.read_table(tables[2]).to_pylist()) == rows[0]
    with open(tables[0], newline="") as file:
        texts = list(csv.DictReader(file))
    for text, row in zip(texts, rows[0], strict=True):
        assert [float(share) for share in text["shares"].split()] == row["shares"]
        assert float(text["bic_2"]) == row["bic_2"]
        assert (text["error"], text["converged"]) == ("", str(row["converged"]))


def test_places__threads_and_two_workers_give_the_same_table(folder: Path, tmp_path: Path, client: Client) -> None:
    tables = [
        fit_elections(folder, tmp_path / f"{name}.parquet", SELECTION, client=where)
        for name, where in (("one", ThreadedExecutor(1)), ("threads", ThreadedExecutor(3)), ("workers", client))
    ]
    assert without_seconds(tables[0]) == without_seconds(tables[1]) == without_seconds(tables[2])


def test_slates__of_every_election_with_its_cohesion(folder: Path, tmp_path: Path) -> None:
    selection = pl.MixtureSelection([1], estimator=pl.PlackettLuceMixture(choices="slates"), random_state=0)
    tables = [str(tmp_path / f"s.{suffix}") for suffix in ("csv", "parquet")]
    row, _ = fit_elections(f"{folder}/*.csv", tables[0], selection, client=False)
    store = pl.ingest(folder / row["file"], tmp_path / "store", unranked="below")
    with pytest.warns(StartWarning, match="the slates were found"):
        model = pl.PlackettLuceMixture(1, choices="slates", random_state=0).fit(store, client=False)
    assert model.cohesion_ is not None
    assert row["cohesion"] == model.cohesion_.tolist()
    assert json.loads(row["slates"]) == {name: list(items) for name, items in model.init_["slates"]["slates"].items()}
    assert "the slates were found" in row["notes"]
    with open(tables[0], newline="") as file:
        text = next(csv.DictReader(file))
    assert [[float(one) for one in own.split()] for own in text["cohesion"].split("; ")] == row["cohesion"]
    plain = fit_elections(f"{folder}/*.csv", tables[1], SELECTION, client=False)
    assert [(one["cohesion"], one["slates"]) for one in plain] == [(None, None)] * 2


class _Stopped:
    """An executor that is interrupted after a number of tasks."""

    def __init__(self, after: int) -> None:
        self.after = after

    def map(self, function: Callable[..., Any], tasks: Any, name: str, inputs: Any = None) -> Iterator[tuple[int, Any]]:
        for number, each in enumerate(ThreadedExecutor(1).map(function, tasks, name, inputs)):
            yield each
            if number + 1 == self.after:
                raise KeyboardInterrupt


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are fitted from now on."""
    fitted: list[str] = []
    fit = elections._fitted

    def fit_and_note(file: str, *how: Any) -> dict[str, Any]:
        fitted.append(file)
        return fit(file, *how)

    monkeypatch.setattr(elections, "_fitted", fit_and_note)
    return fitted


def test_interruption__what_is_finished_is_not_done_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, fitted = tmp_path / "all.jsonl", counted(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit_elections(folder, table, SELECTION, client=_Stopped(2))
    assert len(fitted) == 2
    kept = sorted((tmp_path / "all.jsonl.parts" / "rows").iterdir())
    assert len(kept) == 2
    assert not table.exists()
    kept[0].write_bytes(kept[0].read_bytes().replace(b"400.0", b"500.0"))  # damaged: made anew
    rows = fit_elections(folder, table, SELECTION, client=False)
    assert len(fitted) == 5  # the damaged one, the third, the broken one
    assert sum(row["ballots"] or 0 for row in rows) == 1200
    assert not (tmp_path / "all.jsonl.parts").exists()
    again = fit_elections(folder, tmp_path / "again.jsonl", SELECTION, client=False)
    assert without_seconds(again) == without_seconds(rows)


def test_interruption__other_settings_begin_anew(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, fitted = tmp_path / "all.csv", counted(monkeypatch)
    (tmp_path / "all.csv.parts").mkdir()
    (tmp_path / "all.csv.parts" / "mine.txt").write_text("not ours")
    with pytest.raises(KeyboardInterrupt):
        fit_elections(f"{folder}/*.csv", table, SELECTION, client=_Stopped(2))
    other = pl.MixtureSelection(range(1, 4), estimator=pl.PlackettLuceMixture(tol=1e-3), random_state=3)
    for selection, unranked in ((other, "below"), (SELECTION, "absent")):
        fitted.clear()
        with pytest.raises(KeyboardInterrupt):
            fit_elections(f"{folder}/*.csv", table, selection, client=_Stopped(2), unranked=unranked)
        assert len(fitted) == 2
    fitted.clear()
    fit_elections(f"{folder}/*.csv", table, SELECTION, client=False)
    assert not fitted
    assert (tmp_path / "all.csv.parts" / "mine.txt").read_text() == "not ours"


def test_notes__are_warnings_of_each_election(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    (tmp_path / "in").mkdir()
    for seed in range(2):
        write_election(tmp_path / "in" / f"{seed}.csv", seed)
    hasty = pl.MixtureSelection([2], estimator=pl.PlackettLuceMixture(max_iter=1, tol=1e-12), random_state=0)
    rows = fit_elections(tmp_path / "in", tmp_path / "t.csv", hasty, client=ThreadedExecutor(2))
    assert all(not row["converged"] and "did not converge" in row["notes"] for row in rows)
    assert not [each for each in recwarn if "converge" in str(each.message)]


def test_refused__before_and_after(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"must end in .* but is 'all.txt'"):
        fit_elections(folder, "all.txt", SELECTION)
    with pytest.raises(StoreExistsError, match="is inside"):
        fit_elections(folder, folder / "all.csv", SELECTION)
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(StoreExistsError, match="exists already"):
        fit_elections(folder, tmp_path / "there.csv", SELECTION)
    with pytest.raises(IngestError, match=r"no file of .* gave a fit; of broken.soi: .*item '9'"):
        fit_elections(folder / "deep" / "*.soi", tmp_path / "new.csv", SELECTION, client=False)
    with pytest.raises(IngestError, match="nothing called 'wrong' to choose"):
        fit_elections(folder, tmp_path / "new.csv", SELECTION, client=False, choices={"wrong": "x"})
    assert not (tmp_path / "new.csv").exists()


def test_names_beside_a_file__are_no_election(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_election(tmp_path / "in" / "a.csv", 0)
    (tmp_path / "in" / "a.csv.items").write_text("".join(f"candidate {c}\n" for c in range(6)))
    (row,) = fit_elections(tmp_path / "in", tmp_path / "t.csv", SELECTION, client=False)
    assert (row["file"], row["candidates"]) == ("a.csv", 6)


def test_verb__writes_the_table_and_says_what_was_chosen(folder: Path, shell: Shell) -> None:
    how = ("--components", "1:3", "--tol", "1e-4", "--seed", "3", "--workers", "0")
    record = json.loads(shell("elections", str(folder), *how, "--out", "t.jsonl", "--json").out)
    expected = fit_elections(folder, "python.jsonl", SELECTION, client=False)
    rows = [json.loads(line) for line in Path("t.jsonl").read_text().splitlines()]
    assert without_seconds(rows) == without_seconds(expected)
    assert record["n_files"] == 4
    assert sum(record["chosen"].values()) == 3
    assert list(record["errors"]) == [BROKEN]
    refused = shell("elections", str(folder), *how, "--out", "t.jsonl", code=1)
    assert "exists already" in refused.err
    said = shell("elections", f"{folder}/*.csv", *how, "--out", "t.jsonl", "--force")
    assert said.line("table") == "t.jsonl"
    assert said.line("chosen").startswith("K = ")
    wrong = shell("elections", f"{folder}/*.csv", *how, "--out", "u.csv", "--rule", "overvote=maybe", code=1)
    assert "overvote" in wrong.err


def test_time__beside_the_fits_is_less_than_a_fifth(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for seed in range(3):
        write_election(tmp_path / "in" / f"{seed}.csv", seed, n_ballots=4_000, n_candidates=8)
    fit_elections(tmp_path / "in" / "0.csv", tmp_path / "first.csv", SELECTION, client=False)  # loads the kernels
    rows = fit_elections(tmp_path / "in", tmp_path / "t.csv", client=ThreadedExecutor(1))
    assert sum(row["seconds_of_fits"] for row in rows) > 0.8 * sum(row["seconds"] for row in rows)
