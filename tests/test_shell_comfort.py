"""Shell comfort: examples in help that run, completion, `info` of models, `doctor`, mistakes that are explained."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import cli_helpers
import numpy as np
import pytest

import plmix_dist as pl
from plmix_dist import doctor
from plmix_dist.cli import main, plmix
from plmix_dist.engine import ClusterOptions, clients, cluster_health
from plmix_dist.errors import RankingError, SettingsError, StoreNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cli_helpers import Said
    from distributed import Client

shell = cli_helpers.shell

# The verbs in the order in which their examples run, in one folder.
WITH_EXAMPLES = (
    "simulate",
    "ingest",
    "verify",
    "info",
    "export",
    "split",
    "fit",
    "score",
    "predict",
    "select",
    "bayes",
    "report",
    "run",
    "resume",
    "status",
    "certificates",
    "scheduler",
    "worker",
    "completion",
    "compile",
    "doctor",
)
# These run until they are told to end; test_encryption.py runs them. Here their examples are only read by the verb.
SERVING = ("scheduler", "worker")
JOB = """
name = "nightly"
[data]
store = "ballots"
[model]
components = 2
seed = 1
[outputs]
folder = "nightly"
"""


def examples_of(verb: str) -> list[str]:
    """The commands at the end of the help of a verb."""
    lines = (plmix.commands[verb].epilog or "").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("plmix ")]


def test_help__ends_with_examples():
    assert set(WITH_EXAMPLES) == set(plmix.commands)
    for verb in WITH_EXAMPLES:
        assert examples_of(verb), verb
        assert all(example.split()[1] == verb for example in examples_of(verb))


def test_help__every_example_runs(shell: Callable[..., Said]) -> None:
    pl.simulate("s", n_rankings=300, n_items=6, n_components=2, length=4, unranked="below", random_state=2)
    pl.export("s", "ballots.csv")
    pl.export("s", "ballots.soi")
    rng = np.random.default_rng(0)
    rows = [f"{user},{item},{rng.integers(1, 6)}" for user in range(40) for item in rng.permutation(9)[:6]]
    with open("ratings.csv", "w") as file:
        file.write("\n".join(["user,item,rating", *rows]))
    with open("job.toml", "w") as file:
        file.write(JOB)
    for verb in WITH_EXAMPLES:
        for example in examples_of(verb):
            if verb in SERVING:
                plmix.commands[verb].make_context(verb, shlex.split(example)[2:])
                continue
            if example == "plmix info model":
                shell("fit", "ballots", "--components", "2", "--out", "model")
            shell(*shlex.split(example)[1:])


# --- completion ------------------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """What bash is told when these words stand on the line, the last one not finished."""
    environment = os.environ | {
        "_PLMIX_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("plmix", *words)),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-c", "from plmix_dist.cli import main; main()"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return told.stdout.split()


def test_completion__of_verbs_options_values_and_paths():
    assert completed("sco") == ["plain,score"]
    assert completed("ingest", "--unra") == ["plain,--unranked"]
    assert completed("ingest", "--unranked", "b") == ["plain,below"]
    assert completed("fit", "ball") == ["file,ball"]  # the shell completes paths itself


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion__script_is_printed(shell: Callable[..., Said], name: str) -> None:
    if name == "bash" and shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    script = shell("completion", name).out
    assert f"_PLMIX_COMPLETE={name}_complete" in script
    assert json.loads(shell("completion", name, "--json").out)["script"].strip() == script.strip()
    if name == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


# --- info of a model -------------------------------------------------------------------------------------


def test_info__of_a_model(tmp_path: Path, shell: Callable[..., Said]) -> None:
    pl.simulate("s", n_rankings=400, n_items=5, n_components=2, random_state=1)
    shell("fit", "s", "--components", "2", "--out", "model", "--seed", "3")
    model = pl.PlackettLuceMixture.load("model")
    said = shell("info", "model")
    assert said.line("mixture") == "2 components of 5 items"
    assert said.line("fitted to") == "s: 400 rankings, weight 400"
    assert said.line("fit").startswith(f"converged in {model.n_iter_} iterations, log-likelihood -")
    assert said.line("settings").endswith("seed 3")
    best = model.item_names_[int(model.log_worths_[1].argmax())]
    assert said.line("component 1").startswith(f"{model.shares_[1]:.1%}  {best} +")
    assert "plmix-model 2, plmix " in said.line("model")
    record = json.loads(shell("info", "model", "--json").out)
    assert record["shares"] == model.shares_.tolist()
    assert record["components"][0]["top_items"][0]["item"] == model.item_names_[model.log_worths_[0].argmax()]
    assert record["fitted_to"] == {"store": "s", "n_rankings": 400, "total_weight": 400.0}


def test_info__of_a_model_that_was_never_fitted(shell: Callable[..., Said]) -> None:
    pl.simulate("s", n_rankings=40, n_items=5, n_components=2, random_state=1)
    said = shell("info", "s.truth")
    assert said.line("fit") == "none: these parameters were given or drawn, not fitted"
    assert "log-likelihood" not in pl.PlackettLuceMixture.load("s.truth").summary()


# --- doctor ----------------------------------------------------------------------------------------------


def test_doctor__of_this_machine(shell: Callable[..., Said]) -> None:
    record = json.loads(shell("doctor", "--json").out)
    assert record["ok"] is True
    found = {finding["name"]: finding for finding in record["findings"]}
    assert found["versions"]["values"]["plmix"] == pl.__version__
    assert found["processors"]["values"]["n_processors"] == os.cpu_count()
    assert shell("doctor").line("verdict") == "nothing is wrong"


def test_doctor__a_cache_that_cannot_be_written(
    tmp_path: Path, shell: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLMIX_CACHE_DIR", str(tmp_path / "file"))
    said = shell("doctor", code=1)
    assert "WRONG" in said.line("cache")
    assert "-> set PLMIX_CACHE_DIR to a folder that can be written" in said.out
    assert said.line("verdict") == "wrong: cache"


def test_doctor__more_threads_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "blas_threads", lambda: 4 * (os.cpu_count() or 1))
    (found,) = [finding for finding in doctor.examine() if finding.name == "threads of BLAS"]
    assert found.state == "wrong"
    assert "OMP_NUM_THREADS" in found.remedy


def test_doctor__no_scheduler_there(shell: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_CONNECT_TIMEOUT", "0.2s")
    said = shell("doctor", "--scheduler", "tcp://127.0.0.1:9", code=1)
    assert "WRONG: no Dask scheduler answers at tcp://127.0.0.1:9" in said.line("cluster")


def test_doctor__of_a_cluster(client: Client) -> None:
    address = client.scheduler_info()["address"]
    found = {finding.name: finding for finding in doctor.examine(ClusterOptions(scheduler=address))}
    assert found["cluster"].words.startswith(f"{address}: 2 workers, 2 threads, ")
    assert found["cluster"].values["plmix_versions"] == [pl.__version__]
    assert found["versions there"].state == "ok"
    assert cluster_health.answers(found["cluster"].values["dashboard"]) == (found["dashboard"].state == "ok")


# --- mistakes --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a newcomer has after five minutes: a file, a store, a model, a spreadsheet."""
    monkeypatch.chdir(tmp_path)
    store = pl.simulate("ballots", n_rankings=60, n_items=5, n_components=2, random_state=0)
    pl.export(store, "votes.csv")
    pl.PlackettLuceMixture(2, random_state=0).fit(store).save("model")
    (tmp_path / "votes.xlsx").write_bytes(b"PK")
    (tmp_path / "cased.csv").write_text("first,second\ntea,mate\nTea,milk\nmilk,mate\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fit balots --components 2 --out m", "there is no store at .*balots; did you mean 'ballots'?"),
        (
            "fit votes.csv --components 2 --out m",
            r"it is a file; read it .*plmix ingest .*plmix_dist\.ingest\(",
        ),
        ("fit model --components 2 --out m", "it holds a model; name the store of its rankings instead"),
        ("fit ballots --components 61 --out m", r"choose n_components <= \d+ \(--components in the shell\)"),
        ("fit ballots --components 2 --out m --scheduler 127.0.0.1", "one looks like tcp://HOST:8786"),
        ("ingest vote.csv store", "no file matches 'vote.csv'; did you mean 'votes.csv'?"),
        ("ingest votes.xlsx store", r"is a spreadsheet; save it as CSV"),
        ("ingest cased.csv store", "'Tea' and 'tea' differ only in case or spaces: are they one item?"),
        ("score ballots model", "the model comes first, then the store: model ballots"),
        ("predict ballots model out", "the model comes first, then the store: model ballots"),
        ("score modle ballots", "there is no model at .*modle; did you mean 'model'?"),
        ("score ballots ballots", "it holds a store of rankings; fit a model to it with `plmix fit`"),
    ],
)
def test_mistakes__of_a_newcomer_are_explained(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(line.split())
    assert stopped.value.code == 1
    error = capsys.readouterr().err
    pattern = words.replace("?", r"\?") if words.endswith("?") else words
    assert re.search(pattern, error), error
    assert not (folder / "m").exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "but got NoneType; hand in a store, its path, a list of lists, an array or a table"),
        ({"tea": 1, "mate": 2}, "but got dict; hand in a store"),
        ([{"tea": 1, "mate": 2}], r"list the items of each, best first: sorted\(row, key=row\.get\)"),
        (["tea", "mate"], r"put a single ranking into a list: \[ranking\]"),
    ],
)
def test_mistakes__in_python(data: object, words: str) -> None:
    with pytest.raises(RankingError, match=words):
        pl.PlackettLuceMixture(2).fit(data)


def test_mistakes__in_python_with_paths(folder: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=r"did you mean 'ballots'\?"):
        pl.PlackettLuceMixture(2).fit("balots")
    with pytest.raises(StoreNotFoundError, match=r"did you mean 'model'\?"):
        pl.PlackettLuceMixture.load("Modl")
    with pytest.raises(SettingsError, match=r"lists of rankings go straight into PlackettLuceMixture\.fit"):
        pl.ingest([["tea", "mate"]], "store")
