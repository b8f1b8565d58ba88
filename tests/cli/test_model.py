"""The verbs fit, score and predict: text and JSON, exit codes, and files."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from plmix_dist import MixtureParams, PlackettLuceMixture, open_store
from plmix_dist.cli.model import _fit_lines
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings import Ranking
from plmix_dist.store import memberships
from tests.cli.common import Said
from tests.helpers.fit_oracle import block_of, log_likelihood, slate
from tests.helpers.ingest_helpers import printed_json
from tests.helpers.oracle import snapshot, write_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated store of two well separated components, with its true parameters beside it."""
    from plmix_dist import simulate

    path = tmp_path_factory.mktemp("cli") / "rankings"
    truth = MixtureParams.of(
        np.random.default_rng(6).normal(0, 2, (2, 6)), [0.7, 0.3], ["tea", "coffee", "mate", "water", "milk", "juice"]
    )
    simulate(path, n_rankings=1_500, mixture=truth, random_state=1, length=3, unranked="below")
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, simulated: Path) -> Path:
    """A model of the simulated store."""
    path = tmp_path_factory.mktemp("models") / "model"
    PlackettLuceMixture(2, random_state=0).fit(simulated).save(path)
    return path


def iterations(text: str) -> list[dict[str, Any]]:
    """The lines of JSON about iterations of the fit to all rows."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if "stage" not in line]


def lines_of(text: str) -> dict[str, str]:
    """`name  value` lines as a dictionary."""
    pairs = (line.split("  ", 1) for line in text.splitlines())
    return {name.strip(): value.strip() for name, value in pairs}


# --- fit -------------------------------------------------------------------------------------------------


def test_fit__plain(tmp_path: Path, simulated: Path, plmix: Callable[..., Said]) -> None:
    said = plmix("fit", simulated, "--components", 2, "--out", tmp_path / "model")
    assert (said.code, said.err) == (0, "")
    model = PlackettLuceMixture.load(tmp_path / "model")
    truth = MixtureParams.load(f"{simulated}.truth")
    lines = lines_of(said.out)
    assert lines["model"] == str(tmp_path / "model")
    assert lines["fit"].startswith(f"converged in {model.n_iter_} iterations, ")
    assert lines["fit"].endswith("(m-step mm)")
    assert lines["score"] == f"{model.log_likelihood_ / 1_500:.6f} mean log-likelihood per ranking"
    # Each component with its best items, and the true component matched with it.
    for k, (worths, share) in enumerate(zip(model.log_worths_, model.shares_, strict=True)):
        shown = lines[f"component {k}"].split()
        best = np.argsort(-worths)[:5]
        assert shown[0] == f"{share:.1%}"
        assert shown[1::2] == [model.item_names_[item] for item in best]
        assert shown[2::2] == [f"{worths[item]:+.2f}" for item in best]
        true = lines[f"truth {k}"].split()
        assert true[0] == f"{truth.shares[k]:.1%}"
        assert true[1] == truth.item_names[int(np.argmax(truth.log_worths[k]))]
    distance = matched_distance(model.log_worths_, truth.log_worths)
    assert lines["distance"] == f"{distance:.4f} to the truth, components matched"
    # Nearer to the truth than a model with equal worths.
    assert distance < matched_distance(np.zeros((2, 6)), truth.log_worths) / 2


def test_fit__json(tmp_path: Path, simulated: Path, plmix: Callable[..., Said]) -> None:
    said = plmix("fit", simulated, "--components", 2, "--out", tmp_path / "model", "--json", "--seed", 3)
    assert said.code == 0
    record = printed_json(said.out)
    model = PlackettLuceMixture.load(tmp_path / "model")
    truth = MixtureParams.load(f"{simulated}.truth")
    assert record.pop("seconds") > 0
    assert record.pop("distance_to_truth") == pytest.approx(matched_distance(model.log_worths_, truth.log_worths))
    assert record == {
        "model": str(tmp_path / "model"),
        "changed": True,
        "n_iter": model.n_iter_,
        "converged": True,
        "log_likelihood": model.log_likelihood_,
        "score": model.log_likelihood_ / 1_500,
        "gradient_norm": model.gradient_norm_,
        "method": None,
        "m_step": "mm",
        "init": {name: value for name, value in model.init_.items() if not isinstance(value, np.ndarray)},
        "shares": model.shares_.tolist(),
        "item_names": list(model.item_names_),
        "components": [
            {
                "component": k,
                "share": model.shares_[k],
                "top_items": [
                    {"item": model.item_names_[item], "log_worth": model.log_worths_[k, item]}
                    for item in np.argsort(-model.log_worths_[k])[:5]
                ],
            }
            for k in (0, 1)
        ],
        "posterior_shares": model.posterior_shares_.tolist(),
        "events": [],
    }
    # Every iteration was printed as a line of JSON, equal to its record in the model but for the time left.
    printed = iterations(said.err)
    assert [{**line, "eta_seconds": None} for line in printed] == [
        {**line, "eta_seconds": None} for line in model.history_
    ]
    # The verb gives the same as the estimator.
    same = PlackettLuceMixture(2, random_state=3).fit(simulated)
    assert np.array_equal(same.log_worths_, model.log_worths_)
    rows = list(open_store(simulated).block().rows())
    assert record["log_likelihood"] == pytest.approx(
        log_likelihood(rows, 6, model.log_worths_, model.shares_.tolist()), rel=1e-11
    )


def test_fit__lines_for_people(
    tmp_path: Path, simulated: Path, plmix: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    said = plmix("fit", simulated, "--components", 2, "--out", tmp_path / "model")
    history = PlackettLuceMixture.load(tmp_path / "model").history_
    # The last line of a terminal is renewed after a carriage return; what stays are whole lines.
    kept = [re.sub(r"\x1b\[\d*[A-Z]", "", line.rpartition("\r")[2]).rstrip() for line in said.err.split("\n")]
    lines = [line for line in kept if re.match(r" *\d+  ", line)]
    assert len(lines) == len(history)
    assert kept[kept.index(lines[0]) - 1].startswith(
        "iteration  log-likelihood    change        gradient    rankings/s"
    )
    stages = [line for line in kept if line and line not in lines]
    assert stages[0].startswith("opening the store, ")
    assert stages[1].startswith("look: one pass over all rankings, ")
    for line, record in zip(lines, history, strict=True):
        words = line.split()
        assert words[0] == str(record["iteration"])
        assert words[1] == f"{record['log_likelihood'] / 1_500:.8f}"
        assert f" {record['gradient']:.1e}  " in line
        step = record["step"] if record["taken"] else f"{record['step']}, not taken"
        assert re.search(rf"  {re.escape(step)}(, about \d+ (s|min) left)?$", line)


def test_fit__quiet(tmp_path: Path, simulated: Path, plmix: Callable[..., Said]) -> None:
    assert plmix("fit", simulated, "--components", 1, "--out", tmp_path / "model", "--quiet") == Said(0, "", "")
    assert PlackettLuceMixture.load(tmp_path / "model").converged_


@pytest.mark.promise(29)
def test_fit__not_converged(tmp_path: Path, simulated: Path, plmix: Callable[..., Said]) -> None:
    command = ("fit", simulated, "--components", 2, "--max-iter", 2)
    said = plmix(*command, "--out", tmp_path / "plain")
    assert said.code == 4
    assert "NOT converged in 2 iterations" in said.out
    said = plmix(*command, "--out", tmp_path / "json", "--json")
    assert said.code == 4
    assert printed_json(said.out)["converged"] is False
    # The model is saved, and says that it did not converge.
    assert PlackettLuceMixture.load(tmp_path / "json").converged_ is False


def test_fit__every_option(tmp_path: Path, simulated: Path, plmix: Callable[..., Said]) -> None:
    options = ("--m-step=lsr", "--em=exact", "--n-init=2", "--embedding=rank", "--svd-rank=1", "--link=probit",
               "--svd-threshold=1", "--cluster-worths=least-squares", "--shares=0.6,0.4",
               "--alpha=0.25", "--tol=1e-3", "--max-iter=300",
               "--no-accelerate", "--residency=store", "--seed=9")  # fmt: skip
    said = plmix("fit", simulated, "--components", 2, "--out", tmp_path / "model", *options, "--json")
    assert said.code == 0, said.err
    settings = json.loads((tmp_path / "model/model.json").read_text())["settings"]
    expected = {"n_components": 2, "m_step": "lsr", "em": "exact", "init": "spectral", "embedding": "rank",
                "svd_rank": 1, "link": "probit", "kernel": "kendall", "n_init": 2, "shares": [0.6, 0.4],
                "alpha": 0.25, "tol": 1e-3, "max_iter": 300, "accelerate": False, "residency": "store",
                "random_state": 9}  # fmt: skip
    assert {name: settings[name] for name in expected} == expected
    starts = {line["start"] for line in iterations(said.err)}
    assert starts in ({0}, {0, 1})  # as many as ends of the search differ


def test_fit__model_that_is_there(tmp_path: Path, simulated: Path, fitted: Path, plmix: Callable[..., Said]) -> None:
    before = snapshot(fitted)
    said = plmix("fit", simulated, "--components", 2, "--out", fitted)
    assert said.code == 1
    assert f"{fitted} already holds a model, and it does not say what it was fitted to" in said.err
    assert snapshot(fitted) == before


def test_fit__from_a_saved_model(tmp_path: Path, simulated: Path, fitted: Path, plmix: Callable[..., Said]) -> None:
    said = plmix(
        "fit", simulated, "--components", 2, "--init", fitted, "--out", tmp_path / "again", "--no-accelerate", "--json"
    )
    assert said.code == 0
    first = PlackettLuceMixture.load(fitted)
    begun = iterations(said.err)[0]
    assert begun["log_likelihood"] == pytest.approx(first.log_likelihood_, rel=1e-12)
    again = PlackettLuceMixture.load(tmp_path / "again")
    np.testing.assert_allclose(again.log_worths_, first.log_worths_, atol=1e-4)
    said = plmix("fit", simulated, "--components", 3, "--init", fitted, "--out", tmp_path / "three")
    assert said.code == 1
    assert "init has shape (2, 6), but 3 components of 6 items are to be fitted" in said.err
    said = plmix("fit", simulated, "--components", 2, "--init", tmp_path / "none", "--out", tmp_path / "three")
    assert said.code == 1
    assert f"no model at {tmp_path / 'none'}" in said.err
    assert not (tmp_path / "three").exists()


@pytest.mark.promise(10)
def test_fit__on_two_workers(tmp_path: Path, simulated: Path, plmix: Callable[..., Said]) -> None:
    command = ("fit", simulated, "--components", 2, "--quiet")
    for name, *where in (("here", "--workers", 0), ("there", "--workers", 2, "--threads", 1)):
        assert plmix(*command, "--out", tmp_path / name, *where) == Said(0, "", "")
    for array in ("log_worths.npy", "shares.npy", "ghosts.npy"):
        assert (tmp_path / "here" / array).read_bytes() == (tmp_path / "there" / array).read_bytes()


def test_fit__on_a_scheduler(
    tmp_path: Path, simulated: Path, fitted: Path, client: Client, plmix: Callable[..., Said]
) -> None:
    address = client.scheduler.address  # type: ignore[union-attr]
    said = plmix("fit", simulated, "--components", 2, "--out", tmp_path / "model", "--quiet", "--scheduler", address)
    assert said == Said(0, "", "")
    arrays = [np.load(folder / "log_worths.npy") for folder in (tmp_path / "model", fitted)]
    assert np.array_equal(*arrays)
    scores = [printed_json(plmix("score", fitted, simulated, "--json", *where).out)
              for where in ((), ("--scheduler", address))]  # fmt: skip
    assert scores[0] == scores[1]


@pytest.mark.promise(23)
@pytest.mark.parametrize("talk", ["--json", "--quiet"])
def test_fit__component_that_collapses(tmp_path: Path, plmix: Callable[..., Said], talk: str) -> None:
    rows = [slate([0, 1, 2, 3], [], weight=60.0), slate([1, 0, 2, 3], [], weight=40.0)]
    write_store(tmp_path / "store", [[block_of(rows, 4)]])
    names = open_store(tmp_path / "store").item_names
    # The second component has the opposite order of all rankings, so no ranking belongs to it.
    MixtureParams([[3.0, 1, -1, -3], [-60.0, -20, 20, 60]], np.array([0.5, 0.5]), names).save(tmp_path / "start")  # type: ignore[arg-type]
    said = plmix("fit", tmp_path / "store", "--components", 2, "--init", tmp_path / "start",
                 "--out", tmp_path / "model", "--max-iter", 30, talk)  # fmt: skip
    assert said.code in (0, 4), said.err
    event = {"iteration": 2, "component": 1, "action": "reseed"}
    assert PlackettLuceMixture.load(tmp_path / "model").events_[0] == event
    if talk == "--quiet":
        assert (said.out, said.err) == ("", "")
    else:
        assert printed_json(said.out)["events"][0] == event
        # With --json, stderr must hold nothing but lines of JSON.
        assert [line["iteration"] for line in iterations(said.err)][:2] == [1, 2]


def test_fit__truth_of_another_size(tmp_path: Path, simulated: Path, plmix: Callable[..., Said]) -> None:
    said = plmix("fit", simulated, "--components", 1, "--out", tmp_path / "model")
    assert lines_of(said.out)["truth"] == "2 components"


def test_fit__no_truth(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    rows = [slate([0, 1, 2], [], weight=2.0), slate([2, 1, 0], []), slate([1, 0, 2], [])]
    write_store(tmp_path / "store", [[block_of(rows, 3)]])
    said = plmix("fit", tmp_path / "store", "--components", 1, "--out", tmp_path / "model", "--json")
    record = printed_json(said.out)
    assert "distance_to_truth" not in record
    assert record["score"] == pytest.approx(record["log_likelihood"] / 4.0)


@pytest.mark.promise(22)
def test_fit__no_estimate(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    write_store(tmp_path / "store", [[block_of([slate([0, 1], [])], 2)]], item_names=["tea", "\x1b[31mmate"])
    command = ("fit", tmp_path / "store", "--components", 1, "--out", tmp_path / "model")
    said = plmix(*command, "--alpha", 0)
    assert said.code == 1
    assert r"never above another item: \x1b[31mmate; never below another item: tea" in said.err
    assert "Choose alpha > 0" in said.err
    assert not (tmp_path / "model").exists()
    assert plmix(*command).code == 0


def test_fit__ties(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    rows = [Ranking(((0, 1), (2,)), (), "absent", 1.0)]
    write_store(tmp_path / "store", [[block_of(rows, 3)]], item_names=["tea", "mate", "milk"])
    scores = []
    for ties in ("expand", "marginal"):
        model = tmp_path / ties
        assert plmix("fit", tmp_path / "store", "--components", 1, "--ties", ties, "--out", model).code == 0
        assert plmix("predict", model, tmp_path / "store", tmp_path / f"memberships-{ties}").code == 0
        scores.append(json.loads(plmix("score", model, tmp_path / "store", "--json").out)["score"])
    assert scores[0] < scores[1]  # the mean over two orders is less than their sum


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--components", 0), "--components must be a whole number from 1 on, but is 0"),
        (
            ("--components", 2, "--m-step", "newton"),
            "--m-step must be auto, lsr, mm, cml, gmm or stochastic-lsr, but is 'newton'",
        ),
        (("--components", 2, "--workers", -1), "-1 is not in the range x>=0"),
    ],
    ids=["components", "m-step", "workers"],
)
def test_fit__wrong_options(
    tmp_path: Path, simulated: Path, plmix: Callable[..., Said], options: tuple[Any, ...], message: str
) -> None:
    said = plmix("fit", simulated, "--out", tmp_path / "model", *options)
    assert said.code == 2
    assert message in said.err


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--alpha", "-1"), 1),
        (("--alpha", "one"), 2),
        (("--tol", "0"), 1),
        (("--svd-threshold", "nan"), 1),
        (("--svd-rank", "0"), 1),
        (("--svd-rank", "most"), 1),
        (("--shares", "0.5,0.6"), 1),
        (("--shares", "0.5,half"), 2),
        (("--components", "two"), 2),
        (("--max-iter", "0"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_fit__settings_that_make_no_sense(
    tmp_path: Path, simulated: Path, plmix: Callable[..., Said], options: tuple[str, str], code: int
) -> None:
    said = plmix("fit", simulated, "--components", 2, "--out", tmp_path / "model", *options)
    assert (said.code, said.out) == (code, "")
    start = "plmix: error: " if code == 1 else "Error: "
    assert f"{start}{options[0]} must be " in said.err


def test_fit__how_to_save_without_where(tmp_path: Path, simulated: Path, plmix: Callable[..., Said]) -> None:
    for options in (("--keep", 2), ("--checkpoint-every", 0)):
        said = plmix("fit", simulated, "--components", 2, "--out", tmp_path / "model", *options)
        assert (said.code, said.out) == (1, "")
        assert "--checkpoint-every and --keep need --checkpoint DIR" in said.err


def test_fit__option_of_another_start(tmp_path: Path, simulated: Path, plmix: Callable[..., Said]) -> None:
    command = ("fit", simulated, "--components", 2, "--out", tmp_path / "model")
    said = plmix(*command, "--kernel", "mallows")
    assert (said.code, said.out) == (1, "")
    assert "kernel belongs to init='kernel', but init is 'spectral'; leave kernel out" in said.err
    assert not (tmp_path / "model").exists()


# --- score -----------------------------------------------------------------------------------------------


def test_score__plain_and_json(simulated: Path, fitted: Path, plmix: Callable[..., Said]) -> None:
    rows = list(open_store(simulated).block().rows())
    model = PlackettLuceMixture.load(fitted)
    expected = log_likelihood(rows, 6, model.log_worths_, model.shares_.tolist())
    record = printed_json(plmix("score", fitted, simulated, "--json").out)
    assert record == {
        "score": pytest.approx(expected / 1_500, rel=1e-11),
        "log_likelihood": pytest.approx(expected, rel=1e-11),
        "total_weight": 1_500.0,
    }
    said = plmix("score", fitted, simulated)
    assert (said.code, said.err) == (0, "")
    assert said.out == f"score  {record['score']:.10g} mean log-likelihood per ranking\n"


def test_score__not_there(tmp_path: Path, simulated: Path, fitted: Path, plmix: Callable[..., Said]) -> None:
    said = plmix("score", tmp_path / "none", simulated)
    assert said.code == 1
    assert f"no model at {tmp_path / 'none'}" in said.err
    said = plmix("score", fitted, tmp_path / "none")
    assert said.code == 1
    assert str(tmp_path / "none") in said.err


@pytest.mark.parametrize("verb", ["score", "predict"])
def test_score_and_predict__other_items(tmp_path: Path, fitted: Path, plmix: Callable[..., Said], verb: str) -> None:
    names = ["tea", "cola", "mate", "water", "milk", "juice"]
    write_store(tmp_path / "store", [[block_of([slate([0, 1], [])], 6)]], item_names=names)
    said = plmix(verb, fitted, tmp_path / "store", *([tmp_path / "out"] if verb == "predict" else []))
    assert said.code == 1
    assert "other items than the model: item 1 is 'cola' here and 'coffee' there" in said.err
    assert not (tmp_path / "out").exists()


# --- predict ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_rows", [None, 1_000], ids=["one chunk", "chunks across leaves"])
def test_predict__arrays(
    tmp_path: Path,
    simulated: Path,
    fitted: Path,
    plmix: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
    chunk_rows: int | None,
) -> None:
    if chunk_rows is not None:
        monkeypatch.setattr(memberships, "CHUNK_ROWS", chunk_rows)
    said = plmix("predict", fitted, simulated, tmp_path / "out")
    expected_line = f"predicted  1,500 memberships to {tmp_path / 'out'} (probabilities, component)\n"
    assert said == Said(0, expected_line, "")
    expected = PlackettLuceMixture.load(fitted).predict_proba(open_store(simulated).block())
    written = zarr.open_group(tmp_path / "out", mode="r")
    assert np.array_equal(written["probabilities"][:], expected)  # type: ignore[index]
    assert np.array_equal(written["component"][:], expected.argmax(axis=1))  # type: ignore[index]
    record = printed_json(plmix("predict", fitted, simulated, tmp_path / "json", "--json").out)
    assert record == {
        "out": str(tmp_path / "json"),
        "n_rankings": 1_500,
        "arrays": ["probabilities", "component"],
        "changed": True,
    }


@pytest.mark.promise(40)
def test_predict__arrays_that_are_there(
    tmp_path: Path, simulated: Path, fitted: Path, plmix: Callable[..., Said]
) -> None:
    assert plmix("predict", fitted, simulated, tmp_path / "out").code == 0
    before = snapshot(tmp_path / "out")
    said = plmix("predict", fitted, simulated, tmp_path / "out")
    assert (said.code, said.err) == (0, "")
    assert said.out == f"nothing to do  {tmp_path / 'out'} already holds exactly these memberships\n"
    assert printed_json(plmix("predict", fitted, simulated, tmp_path / "out", "--json").out)["changed"] is False
    assert snapshot(tmp_path / "out") == before
    said = plmix("predict", f"{simulated}.truth", simulated, tmp_path / "out")
    assert said.code == 1
    assert f"{tmp_path / 'out'} already holds memberships of another model or of other rankings" in said.err
    assert snapshot(tmp_path / "out") == before


def test_predict__on_a_scheduler(
    tmp_path: Path,
    simulated: Path,
    fitted: Path,
    client: Client,
    plmix: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memberships, "CHUNK_ROWS", 400)
    address = client.scheduler.address  # type: ignore[union-attr]
    assert plmix("predict", fitted, simulated, tmp_path / "there", "--scheduler", address).code == 0
    assert plmix("predict", fitted, simulated, tmp_path / "here", "--workers", 0).code == 0
    there, here = (zarr.open_group(tmp_path / name, mode="r") for name in ("there", "here"))
    for array in ("probabilities", "component"):
        assert np.array_equal(there[array][:], here[array][:])  # type: ignore[index]


def test_fit_lines__a_flat_end_is_not_called_converged() -> None:
    model = PlackettLuceMixture(1, random_state=0).fit([[0, 1, 2], [1, 0, 2]])
    record = {"model": "m", "seconds": 1.0, "score": -1.0}
    assert _fit_lines(model, record, "ranking")[1][1].startswith("converged in")
    model.history_[-1]["flat"] = True
    assert _fit_lines(model, record, "ranking")[1][1].startswith("ended where the likelihood is flat, after")
