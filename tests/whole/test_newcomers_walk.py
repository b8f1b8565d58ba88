"""A newcomer's walk: own files, a notebook, a cluster; what the user sees at every step."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import zarr

import plmix_dist as pl
from plmix_dist.cluster import clients
from plmix_dist.errors import ClusterError, IngestError, RankingError
from tests.helpers import cli_helpers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from distributed import LocalCluster

    from tests.helpers.cli_helpers import Said

pytestmark = pytest.mark.full  # each step alone is tested in its folder
shell = cli_helpers.shell  # the fixture that runs a verb in a folder of its own

NAMES = ("José Núñez", "Müller, Anna", "O'Brien", "Smith John", "Zoë")  # in the order of their characters
PLACES = ("first", "second", "third", "fourth", "fifth")
FIRST = [
    'Zoë > Smith John > O\'Brien > "Müller, Anna" > José Núñez',
    '"Müller, Anna" > José Núñez > (all others)',
    'O\'Brien > "Müller, Anna" > José Núñez > Smith John > Zoë',
]


def ballots() -> list[list[str]]:
    """Ballots of two groups with opposite tastes, about 60 and 40 in 100; every fifth names only its first two."""
    rng = np.random.default_rng(5)
    worths = np.exp(np.array([[1.0, 2.0, 0.0, -1.0, -2.0], [-1.0, -2.0, 0.0, 1.0, 2.0]]))
    rows = [
        ["Zoë", "Smith John", "O'Brien", "Müller, Anna", "José Núñez"],
        ["Müller, Anna", "José Núñez"],
        ["O'Brien", "Müller, Anna", "José Núñez", "Smith John", "Zoë"],
    ]
    for number in range(297):
        arrivals = rng.exponential(size=5) / worths[int(rng.random() < 0.4)]
        ballot = [NAMES[item] for item in np.argsort(arrivals)]
        rows.append(ballot[:2] if number % 5 == 0 else ballot)
    return rows


BALLOTS = ballots()
FULL = [ballot for ballot in BALLOTS if len(ballot) == 5]


def save(
    path: Path,
    rows: Sequence[Sequence[object]],
    header: Sequence[str] | None = PLACES,
    delimiter: str = ",",
    encoding: str = "utf-8",
) -> None:
    """A table as a spreadsheet writes it: short rows are filled with empty cells."""
    width = len(header) if header is not None else max(map(len, rows))
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        if header is not None:
            writer.writerow(header)
        writer.writerows([*row, *[""] * (width - len(row))] for row in rows)


def check_two_groups(shares: Sequence[float], favourites: Sequence[str]) -> None:
    """The groups that the ballots were made of: about 60 in 100 are for Müller, 40 for Zoë."""
    assert shares[0] == pytest.approx(0.6, abs=0.08)
    assert shares[1] == pytest.approx(0.4, abs=0.08)
    assert list(favourites) == ["Müller, Anna", "Zoë"]


# --- files of one's own ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "options", "read_as"),
    [
        ("votes.csv", {}, "wide (fields divided by commas, with a header)"),
        (
            "excel.csv",
            {"delimiter": ";", "encoding": "utf-8-sig"},
            "wide (fields divided by semicolons, with a header)",
        ),
        ("votes.tsv", {"delimiter": "\t"}, "wide (fields divided by tabs, with a header)"),
        ("tabs.txt", {"delimiter": "\t", "header": None}, "wide (fields divided by tabs, without a header)"),
        ("bare.csv", {"header": None}, "wide (fields divided by commas, without a header)"),
    ],
)
def test_own_table__is_understood(
    tmp_path: Path, shell: Callable[..., Said], file: str, options: dict[str, str], read_as: str
) -> None:
    save(tmp_path / file, BALLOTS, **options)  # type: ignore[arg-type]
    refused = shell("ingest", file, "store", code=1)
    line = 2 if options.get("header", "") is None else 3
    assert f"{file}, line {line}: lists 2 of 5 items" in refused.err
    assert "say --unranked below" in refused.err
    said = shell("ingest", file, "store", "--unranked", "below")
    assert said.line("rankings") == "300 of 5 items"
    assert said.line("read as") == f"{read_as}: {file}"
    assert said.rankings() == FIRST
    assert pl.open_store("store").item_names == NAMES


def test_own_ballots__from_the_file_to_memberships(tmp_path: Path, shell: Callable[..., Said]) -> None:
    save(tmp_path / "votes.csv", BALLOTS)
    ingest = ("ingest", "votes.csv", "votes", "--unranked", "below")
    shell(*ingest)
    assert shell(*ingest).line("nothing to do") == "the store already holds exactly this"
    info = shell("info", "votes")
    assert info.line("items") == '5: José Núñez, "Müller, Anna", O\'Brien, Smith John, Zoë'
    assert info.line("identified") == "K <= 2 components, for all parameters"

    fit = ("fit", "votes", "--components", "2", "--out", "model")
    said = shell(*fit)
    lines = [said.line(f"component {k}") for k in (0, 1)]
    shares = [float(line.split("%")[0]) / 100 for line in lines]
    check_two_groups(shares, [line.split("%  ")[1].split(" +")[0] for line in lines])
    assert said.line("score").endswith("mean log-likelihood per ranking")
    assert shell(*fit).line("nothing to do").startswith("model already holds this model")
    other = (*fit[:3], "1", *fit[4:])
    assert "--components is 2 there and 1 here" in shell(*other, code=1).err
    shell(*other, "--force")
    shell(*fit, "--force")

    scored = json.loads(shell("score", "model", "votes", "--json").out)
    assert scored["score"] == pytest.approx(float(said.line("score").split()[0]), abs=1e-6)
    shell("predict", "model", "votes", "memberships")
    component = zarr.open_array("memberships/component", mode="r")[:]
    assert component[:3].tolist()[:2] == [1, 0]
    assert np.bincount(component) / 300 == pytest.approx(shares, abs=0.05)


def test_ranks__as_r_writes_them(tmp_path: Path, shell: Callable[..., Said]) -> None:
    rows = [[ballot.index(name) + 1 if name in ballot else 0 for name in NAMES] for ballot in BALLOTS]
    save(tmp_path / "ranks.csv", rows, header=NAMES)
    said = shell("ingest", "ranks.csv", "ranks", "--unranked", "below")
    assert said.line("read as").startswith("ranks (")
    assert said.rankings() == FIRST
    save(tmp_path / "votes.csv", BALLOTS)
    shell("ingest", "votes.csv", "votes", "--unranked", "below")
    assert pl.open_store("ranks").block().equals(pl.open_store("votes").block())


def test_ratings__are_refused_and_the_option_helps(tmp_path: Path, shell: Callable[..., Said]) -> None:
    rows = [[f"u{n}", name, 5 - place] for n, ballot in enumerate(FULL) for place, name in enumerate(ballot)]
    save(
        tmp_path / "ratings.csv",
        [*rows, ["last", "Zoë", 4], ["last", "O'Brien", 4], ["last", "Smith John", 1]],
        ("user", "item", "rating"),
    )
    for options in ((), ("--unranked", "below"), ("--unranked", "absent")):
        assert "say --format ratings" in shell("ingest", "ratings.csv", "rated", *options, code=1).err
    said = shell("ingest", "ratings.csv", "rated", "--format", "ratings")
    assert said.line("rankings") == f"{len(FULL) + 1} of 5 items"
    assert said.line("note") == f"{5 * len(FULL) + 3:,} of {5 * len(FULL) + 3:,} ratings used"
    store = pl.open_store("rated")
    place = store.block().ids.tolist().index("last")
    ranking = list(store.block().rows())[place]
    assert [{NAMES[item] for item in items} for items in ranking.ordered] == [{"Zoë", "O'Brien"}, {"Smith John"}]


def test_ids_and_weights__several_ballots_of_one_person(tmp_path: Path, shell: Callable[..., Said]) -> None:
    rows = [[f"b{n}", 2 if n == 0 else 1, *ballot] for n, ballot in enumerate(FULL)]
    save(tmp_path / "weighted.csv", rows, ("ballot", "weight", *PLACES))
    said = shell("ingest", "weighted.csv", "weighted")
    assert said.line("weight") == str(len(FULL) + 1)
    assert said.rankings()[0] == f"{FIRST[0]}, weight 2"
    save(tmp_path / "panel.csv", [[f"p{n // 2}", *ballot] for n, ballot in enumerate(FULL)], ("person", *PLACES))
    said = shell("ingest", "panel.csv", "panel")
    assert said.rankings()[0] == FIRST[0]
    assert "'person' names persons" in said.line("guess")
    assert shell("fit", "panel", "--components", "1", "--out", "model").line("score").endswith("per person")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("ingest", "none.csv", "out"), 1, "no file matches 'none.csv'"),
        (("ingest", "votes.csv", ".", "--unranked", "below"), 1, "a store needs a folder of its own"),
        (("fit", "votes.csv", "--components", "2", "--out", "m"), 1, "say --unranked below (they rank below)"),
        (("fit", "none", "--components", "2", "--out", "m"), 1, "no store at"),
        (("fit", "votes", "--components", "299", "--out", "m"), 1, "distinct rankings: choose --components <="),
        (("fit", "votes", "--components", "0", "--out", "m"), 2, "must be a whole number from 1 on, but is 0"),
        (("fit", "votes", "--out", "m"), 2, "Missing option '--components'"),
        (("score", "votes", "votes"), 1, "no model at"),
    ],
)
def test_mistakes__end_with_a_message_and_write_nothing(
    tmp_path: Path, shell: Callable[..., Said], arguments: tuple[str, ...], code: int, words: str
) -> None:
    save(tmp_path / "votes.csv", BALLOTS)
    shell("ingest", "votes.csv", "votes", "--unranked", "below")
    said = shell(*arguments, code=code)
    assert words in said.err
    assert "Traceback" not in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["votes", "votes.csv"]


# --- a notebook ------------------------------------------------------------------------------------------


def test_notebook__a_table_from_pandas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "votes.csv", BALLOTS)
    table = pd.read_csv("votes.csv")
    with pytest.raises(RankingError, match=r'row 1 lists 2 of 5 items.*say unranked="below"'):
        pl.PlackettLuceMixture(2).fit(table)
    model = pl.PlackettLuceMixture(2, unranked="below", random_state=0, progress=True).fit(table)
    assert model.item_names_ == NAMES
    check_two_groups(model.shares_, [NAMES[item] for item in model.log_worths_.argmax(axis=1)])
    told = capsys.readouterr()
    stages = [line.split(":")[0] for line in told.err.splitlines()]
    assert stages[0] == "look"
    assert stages.index("fit") > stages.index("start")
    assert re.findall(r"^ +(\d+) +-", told.err, re.MULTILINE) == [str(one["iteration"]) for one in model.history_]
    assert told.out == ""

    assert model.predict(table)[:2].tolist() == [1, 0]
    assert model.predict_proba(pd.DataFrame({"a": ["Zoë"], "b": ["O'Brien"]})).argmax() == 1  # other columns
    with pytest.raises(RankingError, match=r"row 0, column 1: 'Nobody' is not among the 5 known items"):
        model.score([["Zoë", "Nobody"]])
    store = pl.ingest("votes.csv", "votes", unranked="below")
    again = pl.PlackettLuceMixture(2, random_state=0).fit(store)
    assert again.log_worths_.tolist() == model.log_worths_.tolist()
    assert again.predict_proba(store).compute() == pytest.approx(model.predict_proba(table))
    assert again.score(store) == pytest.approx(model.score(table))
    model.save("model")
    assert pl.PlackettLuceMixture.load("model").score(table) == model.score(table)


def test_notebook__lists_of_any_length_and_numbers_from_1() -> None:
    model = pl.PlackettLuceMixture(2, unranked="below", random_state=0).fit(BALLOTS)
    check_two_groups(model.shares_, [NAMES[item] for item in model.log_worths_.argmax(axis=1)])
    numbered = np.array([[1 + NAMES.index(name) for name in ballot] for ballot in FULL])
    with pytest.raises(RankingError, match=r"no row lists item 0.*subtract 1"):
        pl.PlackettLuceMixture(2).fit(numbered)
    by_number = pl.PlackettLuceMixture(2, random_state=0).fit(numbered - 1)
    by_name = pl.PlackettLuceMixture(2, random_state=0).fit(FULL)
    assert by_number.log_worths_.tolist() == by_name.log_worths_.tolist()
    with pytest.raises(IngestError, match=r"no file matches 'none\.csv'"):
        pl.ingest("none.csv", "store")


# --- a cluster -------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster as one starts it in a notebook. Its worker is a thread of this process, which is quick."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield cluster


def test_cluster__the_active_client_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: LocalCluster
) -> None:
    from distributed import Client

    monkeypatch.chdir(tmp_path)
    save(tmp_path / "votes.csv", BALLOTS)
    with Client(cluster) as client:
        store = pl.ingest("votes.csv", "votes", unranked="below")
        before = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
        model = pl.PlackettLuceMixture(2, random_state=0).fit(store)
        names = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
        assert {"ingest", "scan"} <= names
        assert len(names - before) > 0  # the fit was computed there, too
        check_two_groups(model.shares_, [NAMES[item] for item in model.log_worths_.argmax(axis=1)])
        here = pl.PlackettLuceMixture(2, random_state=0).fit(store, client=False)
        assert here.log_worths_.tolist() == model.log_worths_.tolist()
        for place in (cluster, cluster.scheduler_address):
            there = pl.PlackettLuceMixture(2, random_state=0).fit(store, client=place)
            assert there.log_worths_.tolist() == model.log_worths_.tolist()
    with pytest.raises(ClusterError, match="is closed; make a new one, or use client=False"):
        pl.PlackettLuceMixture(2).fit(store, client=client)


def test_cluster__no_scheduler_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Callable[..., Said]
) -> None:
    monkeypatch.setattr(clients, "_CONNECT_TIMEOUT", "0.2s")
    save(tmp_path / "votes.csv", BALLOTS)
    shell("ingest", "votes.csv", "votes", "--unranked", "below")
    fit = ("fit", "votes", "--components", "2", "--out", "m")
    said = shell(*fit, "--scheduler", "tcp://127.0.0.1:9", code=1)
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in said.err
    assert "leave out its address to compute on this machine" in said.err
    assert not (tmp_path / "m").exists()
