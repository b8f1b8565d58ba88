"""Jobs that fit, select and sample: run twice, killed and continued, reported, and stopped by damage."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import cli_helpers
import numpy as np
import pytest
from test_checkpoints import bits
from test_jobs import summary_of, write_job

import plmix_dist as pl
from benchmarks.common import PeakMemory
from plmix_dist import BayesianPlackettLuceMixture, MixtureSelection, PlackettLuceMixture
from plmix_dist.engine import LazyExecutor
from plmix_dist.errors import DamagedStoreError, JobError
from plmix_dist.inference import em
from plmix_dist.jobs import methods, read_job, run_job
from plmix_dist.jobs.context import Context
from plmix_dist.jobs.driver import cluster_options, job_in
from plmix_dist.jobs.job_file import job_of
from plmix_dist.jobs.output_folder import OutputFolder
from plmix_dist.jobs.plan import plan_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from cli_helpers import Said

    Shell = Callable[..., Said]

shell = cli_helpers.shell  # the fixture that runs a verb in a folder of its own
MODELS: dict[str, dict[str, Any]] = {
    "fit": {"components": 2},
    "select": {"method": "select", "components": "1:2"},
    "bayes": {"method": "bayes", "components": 2, "chains": 2, "warmup": 20, "draws": 30},
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of one mixture, and rankings that come later."""
    folder = tmp_path_factory.mktemp("drawn")
    for name, n_rankings in (("ballots", 400), ("later", 100)):
        pl.simulate(folder / name, n_rankings=n_rankings, n_items=4, n_components=2, random_state=1)
    pl.export(folder / "later", folder / "later.csv")
    return folder


@pytest.fixture
def place(drawn: Path, tmp_path: Path) -> Path:
    """An own copy of the store."""
    shutil.copytree(drawn / "ballots", tmp_path / "ballots")
    return tmp_path


def computed(method: str, place: Path) -> Any:
    """What the estimators of the package give, undisturbed: everything that has bits."""
    store = place / "ballots"
    if method == "fit":
        return bits(PlackettLuceMixture(2, random_state=1).fit(store, client=False))
    if method == "select":
        return bits(MixtureSelection((1, 2), random_state=1).fit(store, client=False).best_estimator_)
    sampled = BayesianPlackettLuceMixture(2, n_chains=2, n_warmup=20, n_draws=30, random_state=1)
    return draws(sampled.fit(store, client=False))


def draws(model: BayesianPlackettLuceMixture) -> list[bytes]:
    return [part.tobytes() for part in (*model.raw_draws_, model.labels_, model.log_worths_, model.shares_)]


def found(method: str, place: Path) -> Any:
    """The same of the model that a job has written."""
    if method == "bayes":
        return draws(BayesianPlackettLuceMixture.load(place / "out/model"))
    return bits(PlackettLuceMixture.load(place / "out/model"))


@pytest.mark.promise(40)
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
@pytest.mark.parametrize("method", methods.METHODS)
def test_method__computes_once_and_reports(method: str, place: Path, shell: Shell) -> None:
    write_job(place, model=MODELS[method], outputs={"report": True, "memberships": True})
    code = 4 if method == "bayes" else 0  # so few draws have not mixed
    assert shell("run", "job.toml", code=code).line("report") == str(place / "out/report.html")
    assert found(method, place) == computed(method, place)
    report = place / "out/report.html"
    assert "<title>plmix" in report.read_text(encoding="utf-8")
    summary, written = summary_of(place), report.stat().st_mtime_ns
    n_lines = len((place / "out/history.jsonl").read_text().splitlines())
    assert n_lines == summary["fit"]["n_iter"] + (method == "bayes")  # chains begin with a pass
    assert (place / "out/choice.json").exists() == (method == "select")
    again = shell("run", "job.toml", code=code)
    assert again.line("nothing to do").startswith(f"{place / 'out'} already holds the results")
    assert report.stat().st_mtime_ns == written
    assert summary_of(place)["fit"]["log_likelihood"] == summary["fit"]["log_likelihood"]
    report.unlink()  # what is missing is made again, and nothing else
    assert run_job(job_in(place / "out"))["fit"]["changed"] is False
    assert report.exists()


# Runs plmix, and stops for ever after so many checkpoints.
STOPS_AFTER_CHECKPOINTS = """
import sys, time
from plmix_dist.store.checkpoints import CheckpointFolder
save, saves = CheckpointFolder.save, 0
def stop(*arguments, **options):
    global saves
    result = save(*arguments, **options)
    saves += 1
    if saves == int(sys.argv[1]):
        print("now", flush=True)
        time.sleep(600)
    return result
CheckpointFolder.save = stop
from plmix_dist.cli import main
main(sys.argv[2:])
"""


def n_saves(folder: Path) -> int:
    """How often a job has saved its state, by its log."""
    return (folder / "log.jsonl").read_text().count("saved a checkpoint")


@pytest.mark.promise(4)
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
@pytest.mark.parametrize(("method", "n_saved"), [("select", 6), ("bayes", 12)])
def test_method__killed_in_the_middle_is_resumed(
    method: str, n_saved: int, place: Path, run_python: Callable[..., subprocess.Popen[str]]
) -> None:
    write_job(place, model=MODELS[method], checkpoint={"every": 0})
    process = run_python(STOPS_AFTER_CHECKPOINTS, n_saved, "run", place / "job.toml")
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert not (place / "out/model").exists()
    assert run_job(job_in(place / "out"))["fit"]["changed"]
    assert found(method, place) == computed(method, place)
    assert list((place / "out/checkpoints").glob("checkpoint-*")) == []
    # Nothing was repeated: it has saved as often as a job that was not disturbed. It was killed before it logged one.
    write_job(place, model=MODELS[method], checkpoint={"every": 0}, outputs={"folder": "whole"})
    run_job(read_job(place / "job.toml"))
    assert n_saves(place / "out") == n_saves(place / "whole") - 1
    if method == "bayes":
        lines = (place / "out/history.jsonl").read_text().splitlines()
        assert [json.loads(line)["iteration"] for line in lines] == list(range(1, 52))
    assert run_job(job_in(place / "out"))["changed"] is False


@pytest.mark.parametrize("method", ["select", "bayes"])
def test_method__rankings_that_were_added(method: str, place: Path, drawn: Path) -> None:
    job = read_job(write_job(place, model=MODELS[method], outputs={"report": True}))
    run_job(job)
    first = (place / "out/report.html").read_text(encoding="utf-8")
    before = PlackettLuceMixture.load(place / "out/model").log_worths_
    pl.ingest(drawn / "later.csv", place / "ballots", append=True)
    summary = run_job(job)
    assert (summary["fit"]["n_rankings"], summary["report"]["changed"]) == (500, True)
    assert summary["fit"]["warm_start"] == (method == "bayes")
    assert not np.array_equal(PlackettLuceMixture.load(place / "out/model").log_worths_, before)
    assert (place / "out/report.html").read_text(encoding="utf-8") != first


def test_method__another_one_is_refused_and_forced(place: Path, shell: Shell) -> None:
    write_job(place, model=MODELS["select"])
    shell("run", "job.toml")
    write_job(place, model=MODELS["fit"])
    assert "another job (model.method is select there and fit here)" in shell("run", "job.toml", code=2).err
    shell("run", "job.toml", "--force")
    assert not (place / "out/choice.json").exists()
    assert found("fit", place) == computed("fit", place)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            {"components": 2, "chains": 3},
            'model.chains belongs to model.method = "bayes", and this is a job with',
        ),
        (
            {"method": "bayes", "components": 2, "alpha": 1.0},
            'model.alpha belongs to model.method = "fit" or "select", and this is a job with "bayes"; leave it out',
        ),
        (
            {"method": "select", "components": "5:2"},
            "model.components: '5:2' begins above its end; did you mean 2:5?",
        ),
        (
            {"method": "select", "components": [2, 0]},
            "model.components must be a whole number from 1 on, but is 0",
        ),
        (
            {"components": "2:3"},
            "one whole number with model.method = \"fit\", but is '2:3' (str); several need",
        ),
        ({"method": "select", "components": "2:3", "m_step": "cml"}, "model.m_step must be auto, lsr or mm"),
        ({"method": "select", "components": 2, "also": ["bicc"]}, "model.also must be"),
        ({"method": "bayes", "components": 2, "worth_shape": 0.01}, "worth_shape must be at least 0.05"),
        ({"method": "sample", "components": 2}, "model.method must be fit, select or bayes, but is 'sample'"),
    ],
)
def test_method__keys_that_do_not_belong_are_named(model: dict[str, Any], expected: str, place: Path) -> None:
    given = {"data": {"store": "ballots"}, "model": model, "outputs": {"folder": "out"}}
    with pytest.raises(JobError) as caught:
        job_of(given, place)
    assert expected in str(caught.value)
    assert str(caught.value).startswith("this job is wrong:")  # one thing, and nothing that follows from it


def test_dry_run__of_each_method(place: Path) -> None:
    sent = {
        method: plan_of(read_job(write_job(place, model=model)))["bytes_sent_per_pass"]
        for method, model in MODELS.items()
    }
    # The mixtures of a selection (1 and 2 components) and the chains (2 of 2) share a pass.
    assert (2 * sent["select"], sent["bayes"]) == (3 * sent["fit"], 2 * sent["fit"])


def test_run__options_say_where_to_compute(place: Path, shell: Shell) -> None:
    write_job(place, cluster={"scheduler": "tcp://127.0.0.1:9"})
    shell("run", "job.toml", "--workers", "0")
    assert json.loads((place / "out/job.json").read_text())["cluster.scheduler"] is None
    said = shell("run", "job.toml", "--workers", "1", "--scheduler", "tcp://127.0.0.1:9", code=2).err
    assert "cluster.scheduler and cluster.workers exclude each other" in said


def peaks(folder: Path, n_rankings: int, residency: str) -> tuple[dict[str, Any], int, int]:
    """The plan of a job, and the highest memory of its workers and of this process."""
    name = f"ballots-{n_rankings}"
    pl.simulate(folder / name, n_rankings=n_rankings, n_items=20, n_components=4, random_state=1)
    tables: dict[str, Any] = {"data": {"store": name}, "outputs": {"folder": f"out-{n_rankings}"}}
    tables["model"] = {"components": 4, "residency": residency, "max_iter": 5}
    tables["cluster"] = {"workers": 2, "threads": 1, "memory": "2GB"}
    job = read_job(write_job(folder, start={"init": "random"}, **tables))
    with LazyExecutor(cluster_options(job)) as executor:
        workers = executor.client().run(os.getpid).values()
        with PeakMemory(iter(workers)) as in_workers, PeakMemory(iter([os.getpid()])) as here:
            methods.run_method(Context(job, OutputFolder(job.folder), executor))
    return plan_of(job), in_workers.peak, here.peak


@pytest.mark.promise(8)
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
def test_memory__of_workers_stays_below_the_plan(tmp_path: Path) -> None:
    plan, in_workers, _ = peaks(tmp_path, 100_000, "memory")
    assert 100e6 < in_workers < plan["memory_per_worker"]


@pytest.mark.slow
@pytest.mark.promise(8)
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
@pytest.mark.parametrize("residency", ["memory", "store"])
def test_memory__of_the_driver_does_not_grow_with_the_rows(residency: str, tmp_path: Path) -> None:
    driver = []
    for n_rankings in (100_000, 2_000_000):
        plan, in_workers, here = peaks(tmp_path, n_rankings, residency)
        assert plan["rows_stay_in_memory"] == (residency == "memory")
        assert 100e6 < in_workers < plan["memory_per_worker"]
        driver.append(here)
    # 1.9 million rows more are 60 MB at least; the second fit in this process has caches of the first.
    assert driver[1] - driver[0] < 40e6


def test_damage__of_the_store_in_the_middle_of_a_job(
    place: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(place, model={"residency": "store"}, start={"init": "random"})
    chunk = next(
        path for path in sorted((place / "ballots").rglob("*")) if path.is_file() and "/items/c/" in str(path)
    )
    advance, calls = em.advance, iter(range(1000))

    def damaging(*arguments: Any) -> Any:
        if next(calls) == 3:
            data = bytearray(chunk.read_bytes())
            data[len(data) // 2] ^= 0xFF
            chunk.write_bytes(bytes(data))
        return advance(*arguments)

    monkeypatch.setattr(em, "advance", damaging)
    said = shell("run", "job.toml", code=3).err
    assert str(place / "ballots") in said
    assert "items" in said
    summary = summary_of(place)
    assert (summary["state"], summary["exit_code"]) == ("damaged", 3)
    assert "DamagedStoreError" in summary["error"]
    assert not (place / "out/model").exists()


@pytest.mark.parametrize("step", ["memberships", "report"])
def test_damage__of_the_model_in_the_middle_of_a_job(
    step: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = read_job(write_job(place, outputs={step: True}))
    clear = methods._clear_checkpoints

    def damaging(*arguments: Any) -> None:  # after the model was saved
        clear(*arguments)
        file = next((place / "out/model").glob("*.npy"))
        file.write_bytes(file.read_bytes()[:-1])

    monkeypatch.setattr(methods, "_clear_checkpoints", damaging)
    with pytest.raises(DamagedStoreError, match=str(place / "out/model")):
        run_job(job)
    assert (summary_of(place)["state"], summary_of(place)["exit_code"]) == ("damaged", 3)
