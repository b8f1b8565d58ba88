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

import numpy as np
import pytest

import plmix_dist as pl
from plmix_dist.cli import main, plmix
from plmix_dist.cli.output import in_shell_words
from plmix_dist.cluster import clients, doctor
from plmix_dist.cluster.executor import ClusterOptions
from plmix_dist.cluster.submission import version_here
from plmix_dist.errors import RankingError, SettingsError, StoreNotFoundError
from tests.helpers import cli_helpers
from tests.helpers.forked_python import run_forked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client

    from tests.helpers.cli_helpers import Said

shell = cli_helpers.shell

# The verbs in the order in which their examples run, in one folder.
WITH_EXAMPLES = (
    "example",
    "simulate",
    "formats",
    "ingest",
    "verify",
    "info",
    "export",
    "split",
    "fit",
    "score",
    "predict",
    "select",
    "elections",
    "bayes",
    "report",
    "run",
    "resume",
    "status",
    "leaderboard",
    "check",
    "certificates",
    "scheduler",
    "worker",
    "completion",
    "compile",
    "doctor",
)
# These run until they are told to end; test_tls.py runs them. Here their examples are only read by the verb.
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


def test_help__of_all_verbs_under_headings_with_whole_sentences(shell: Callable[..., Said]) -> None:
    said = shell("--help").out
    assert re.findall(r"^(\w[\w ]*):$", said, re.MULTILINE) == [
        "Options", "Data", "Fit", "Use", "Jobs", "Cluster and installation"
    ]  # fmt: skip
    assert "..." not in said.partition("Options:")[2]
    words = " ".join(said.split())
    for verb, command in plmix.commands.items():
        sentence = " ".join((command.help or "").split("\n\n")[0].split())
        assert f" {verb} {sentence.split('. ')[0].removesuffix('.')}" in words


def test_help__a_verb_of_no_heading_is_listed() -> None:
    import click

    from plmix_dist.cli.main import _Verbs

    group = _Verbs(
        "g", commands={"weigh": click.Command("weigh", help="Weigh it. More."), "fit": plmix.commands["fit"]}
    )
    said = group.get_help(click.Context(group))
    assert said.index("Fit:") < said.index("More:\n  weigh  Weigh it.")


@pytest.mark.parametrize("verb", ["fit", "select", "bayes"])
def test_nothing_there__is_said_before_anything_heavy_is_imported(tmp_path: Path, verb: str) -> None:
    script = (
        "import sys\nfrom plmix_dist.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as stop: code = stop.code\n"
        "print(code, sorted({'zarr', 'dask', 'numba', 'scipy', 'pyarrow'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script, verb, "nosuch", "--components", "2", "--out", str(tmp_path / "m")]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert told.stdout == "1 []\n"
    with pytest.raises(StoreNotFoundError) as python:
        pl.open_store(tmp_path / "nosuch")
    assert told.stderr == f"plmix: error: {python.value}\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fit ballots --components two --out m", "--components must be a whole number from 1 on, but is 'two'\n"),
        ("fit --components 2 --out m", "Missing argument 'STORE|FILE'. Name a store; make one with `plmix ingest` or"),
        ("report", "Missing argument 'DIR'. Name a model; make one with `plmix fit`."),
        ("ingest ballots.csv", "Name the files first, then the store to make: `plmix ingest ballots.csv ballots`."),
    ],
)
def test_usage__what_is_missing_or_wrong(shell: Callable[..., Said], line: str, words: str) -> None:
    pl.simulate("ballots", n_rankings=40, n_items=4, random_state=0)
    assert words in shell(*line.split(), code=2).err


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("raise max_iter, or tol", "raise --max-iter, or --tol"),
        ("another random_state or a larger n_init", "another --seed or a larger --n-init"),
        ("choose n_components <= 3 (--components in the shell)", "choose --components <= 3"),
        ("replace it with --force (overwrite=True in Python)", "replace it with --force"),
        ("give (item_names=model.names(a) in Python), please", "give, please"),
        ("say --unranked below; in Python, unranked='below'", "say --unranked below"),
        ("say `plmix ingest`, in Python `plm.ingest('a.csv')`. Tea or tea?", "say `plmix ingest`. Tea or tea?"),
        ("its key is 'max_iter', model.max_iter or `max_iter`", "its key is 'max_iter', model.max_iter or `max_iter`"),
        ("the tolerance of tea (black) in Python", "the tolerance of tea (black) in Python"),
    ],
)
def test_messages__are_in_the_words_of_the_shell(message: str, words: str) -> None:
    assert in_shell_words(message) == words


def test_messages__name_no_python_at_the_shell(shell: Callable[..., Said]) -> None:
    pl.simulate("s", n_rankings=60, n_items=4, n_components=2, random_state=0)
    shell("fit", "s", "--components", "1", "--out", "m")
    said = shell("fit", "s", "--components", "2", "--out", "m", code=1).err
    assert "--components is 1 there and 2 here" in said
    assert said.endswith("choose another path, or replace it with --force\n")


def test_fit__not_converged_says_what_to_do(shell: Callable[..., Said]) -> None:
    pl.simulate("s", n_rankings=200, n_items=6, n_components=2, random_state=0)
    said = shell("fit", "s", "--components", "2", "--out", "m", "--max-iter", "1", code=4)
    assert said.line("to do") == "the model is saved, but is not at its best: raise --max-iter (it was 1)"
    assert "to do" not in shell("fit", "s", "--components", "1", "--out", "one").out


def test_fit__how_many_starts_led_there(shell: Callable[..., Said]) -> None:
    from plmix_dist.cli.model import _start_lines

    stages = [{"stage": "look", "seconds": 0.5, "passes": 1}, {"stage": "svd", "seconds": 1.0, "passes": 2.5}]
    init = {"stages": [*stages, {"stage": "fit", "seconds": 9, "passes": 9}], "method": "spectral", "rank": 2}
    found = dict(_start_lines({**init, "singular_values": [3, 2, 1], "search": {"n_best": 4, "n_starts": 5}}))
    assert found["start"] == "spectral, from 2 of 3 singular vectors; it took 1.50 s and read the rankings 3.5 times"
    assert found["search"] == "4 of 5 starts tried led to this fit, the best one found"
    varied = _start_lines({"stages": [], "method": "random", "search": {"n_best": 4, "n_starts": 9, "n_varied": 3}})
    assert "1 of 9 starts tried led to this fit, the best one found, as did 3 variations" in dict(varied)["search"]
    doubt = dict(_start_lines({"stages": [], "method": "random", "search": {"n_best": 1, "n_starts": 5}}))["search"]
    assert doubt.startswith("1 of 5 starts tried led to this fit")
    assert doubt.endswith("there may be a better fit: try another --seed")
    assert "search" not in dict(_start_lines({"stages": [], "method": "random"}))


def test_help__every_example_runs(tmp_path: Path, shell: Callable[..., Said]) -> None:
    pl.simulate("s", n_rankings=300, n_items=6, n_components=2, length=4, unranked="below", random_state=2)
    pl.export("s", "ballots.csv")
    pl.export("s", "ballots.soi")
    rng = np.random.default_rng(0)
    rows = [f"{user},{item},{rng.integers(1, 6)}" for user in range(40) for item in rng.permutation(9)[:6]]
    with open("ratings.csv", "w") as file:
        file.write("\n".join(["user,item,rating", *rows]))
    (tmp_path / "council").mkdir()
    pl.export("s", "council/ward-1.csv")
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
    told = run_forked(command, env=environment)
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
    monkeypatch.setattr(doctor, "_blas_threads", lambda: 4 * (os.cpu_count() or 1))
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
    assert found["cluster"].values["plmix_versions"] == [version_here()]
    assert found["versions there"].state == "ok"
    assert doctor.answers(found["cluster"].values["dashboard"]) == (found["dashboard"].state == "ok")


# --- mistakes --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a newcomer has after five minutes: a file, a store, a model, a spreadsheet."""
    monkeypatch.chdir(tmp_path)
    store = pl.simulate("ballots", n_rankings=60, n_items=5, n_components=2, random_state=0)
    pl.export(store, "votes.csv")
    pl.PlackettLuceMixture(2, random_state=0).fit(store).save("model")
    (tmp_path / "votes.ods").write_bytes(b"PK")
    (tmp_path / "cased.csv").write_text("first,second\ntea,mate\nTea,milk\nmilk,mate\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fit balots --components 2 --out m", "no store at .*balots; did you mean 'ballots'?"),
        ("score model votes.csv", r"it is a file; read it into a store with `plmix ingest \S*votes\.csv STORE`$"),
        ("fit model --components 2 --out m", "it holds a model; name the store of its rankings instead"),
        ("fit ballots --components 61 --out m", r"choose --components <= \d+$"),
        ("fit ballots --components 2 --out m --scheduler 127.0.0.1", "one looks like tcp://HOST:8786"),
        ("ingest vote.csv store", "no file matches 'vote.csv'; did you mean 'votes.csv'?"),
        ("ingest votes.ods store", r"is a spreadsheet; save it as CSV"),
        ("ingest cased.csv store", "'Tea' and 'tea' differ only in case or spaces: are they one item?"),
        ("score ballots model", "the model comes first, then the store: model ballots"),
        ("predict ballots model out", "the model comes first, then the store: model ballots"),
        ("score modle ballots", "no model at .*modle; did you mean 'model'?"),
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
