"""Jobs that fit, select and sample: run twice, killed and continued, reported, and stopped by damage."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import plmix_dist as pl
from benchmarks.common import PeakMemory
from plmix_dist import BayesianPlackettLuceMixture, MixtureSelection, PlackettLuceMixture, Spectral
from plmix_dist.cluster.executor import LazyExecutor
from plmix_dist.errors import DamagedStoreError, JobError
from plmix_dist.fitting import em
from plmix_dist.jobs import read_job, run_job, steps
from plmix_dist.jobs.driver import cluster_options, job_in
from plmix_dist.jobs.file import _job_of
from plmix_dist.jobs.folder import OutputFolder
from plmix_dist.jobs.plan import plan_of
from plmix_dist.jobs.results import Work, is_same
from plmix_dist.jobs.steps import Context
from plmix_dist.settings import TASKS, settings_of
from plmix_dist.store import Location
from tests.jobs.data import summary_of, write_job
from tests.store.test_checkpoints import bits

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tests.helpers.cli_helpers import Said

    Shell = Callable[..., Said]

MODELS: dict[str, dict[str, Any]] = {
    "fit": {"components": 2},
    "select": {"components": "1:2"},
    "bayes": {"components": 2, "chains": 2, "warmup": 20, "draws": 30},
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


def computed(task: str, place: Path) -> Any:
    """What the estimators of the package give, undisturbed: everything that has bits."""
    store = place / "ballots"
    if task == "fit":
        return bits(PlackettLuceMixture(2, random_state=1).fit(store, client=False))
    if task == "select":
        return bits(MixtureSelection((1, 2), random_state=1).fit(store, client=False).best_estimator_)
    sampled = BayesianPlackettLuceMixture(2, n_chains=2, n_warmup=20, n_draws=30, random_state=1)
    return draws(sampled.fit(store, client=False))


def draws(model: BayesianPlackettLuceMixture) -> list[bytes]:
    return [part.tobytes() for part in (*model.raw_draws_, model.labels_, model.log_worths_, model.shares_)]


def found(task: str, place: Path) -> Any:
    """The same of the model that a job has written."""
    if task == "bayes":
        return draws(BayesianPlackettLuceMixture.load(place / "out/model"))
    return bits(PlackettLuceMixture.load(place / "out/model"))


@pytest.mark.promise(40)
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
@pytest.mark.parametrize("task", TASKS)
def test_task__computes_once_and_reports(task: str, place: Path, shell: Shell) -> None:
    write_job(place, task=task, model=MODELS[task], outputs={"report": True, "memberships": True})
    code = 4 if task == "bayes" else 0  # so few draws have not mixed
    assert shell("run", "job.toml", code=code).line("report") == str(place / "out/report.html")
    assert found(task, place) == computed(task, place)
    report = place / "out/report.html"
    assert "<title>plmix" in report.read_text(encoding="utf-8")
    summary, written = summary_of(place), report.stat().st_mtime_ns
    n_lines = len((place / "out/history.jsonl").read_text().splitlines())
    assert n_lines == summary["fit"]["n_iter"] + (task == "bayes")  # chains begin with a pass
    assert (place / "out/choice.json").exists() == (task == "select")
    again = shell("run", "job.toml", code=code)
    assert again.line("nothing to do").startswith(f"{place / 'out'} already holds the results")
    assert report.stat().st_mtime_ns == written
    assert summary_of(place)["fit"]["log_likelihood"] == summary["fit"]["log_likelihood"]
    report.unlink()  # what is missing is made again, and nothing else
    assert run_job(job_in(place / "out"))["fit"]["changed"] is False
    assert report.exists()


# Runs plmix, and stops for ever after this many checkpoints.
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
@pytest.mark.parametrize(("task", "n_saved"), [("select", 6), ("bayes", 12)])
def test_task__killed_in_the_middle_is_resumed(
    task: str, n_saved: int, place: Path, run_python: Callable[..., subprocess.Popen[str]]
) -> None:
    write_job(place, task=task, model=MODELS[task], checkpoint={"every": 0})
    process = run_python(STOPS_AFTER_CHECKPOINTS, n_saved, "run", place / "job.toml")
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    assert not (place / "out/model").exists()
    assert run_job(job_in(place / "out"))["fit"]["changed"]
    assert found(task, place) == computed(task, place)
    assert list((place / "out/checkpoints").glob("checkpoint-*")) == []
    # Nothing was repeated: it has saved as often as a job that was not disturbed. It was killed before it logged one.
    write_job(place, task=task, model=MODELS[task], checkpoint={"every": 0}, outputs={"folder": "whole"})
    run_job(read_job(place / "job.toml"))
    assert n_saves(place / "out") == n_saves(place / "whole") - 1
    if task == "bayes":
        lines = (place / "out/history.jsonl").read_text().splitlines()
        assert [json.loads(line)["iteration"] for line in lines] == list(range(1, 52))
    assert run_job(job_in(place / "out"))["changed"] is False


@pytest.mark.parametrize("task", ["select", "bayes"])
def test_task__rankings_that_were_added(task: str, place: Path, drawn: Path) -> None:
    job = read_job(write_job(place, task=task, model=MODELS[task], outputs={"report": True}))
    run_job(job)
    first = (place / "out/report.html").read_text(encoding="utf-8")
    before = PlackettLuceMixture.load(place / "out/model").log_worths_
    pl.ingest(drawn / "later.csv", place / "ballots", append=True)
    summary = run_job(job)
    assert (summary["fit"]["n_rankings"], summary["report"]["changed"]) == (500, True)
    assert summary["fit"]["warm_start"] == (task == "bayes")
    assert not np.array_equal(PlackettLuceMixture.load(place / "out/model").log_worths_, before)
    assert (place / "out/report.html").read_text(encoding="utf-8") != first


def test_task__another_one_is_refused_and_forced(place: Path, shell: Shell) -> None:
    write_job(place, task="select", model=MODELS["select"])
    shell("run", "job.toml")
    write_job(place, model=MODELS["fit"])
    assert "another job (task is select there and fit here)" in shell("run", "job.toml", code=2).err
    shell("run", "job.toml", "--force")
    assert not (place / "out/choice.json").exists()
    assert found("fit", place) == computed("fit", place)


@pytest.mark.parametrize(
    ("task", "model", "expected"),
    [
        (
            "fit",
            {"components": 2, "chains": 3},
            'model.chains belongs to task = "bayes", and this is a job with "fit"; leave it out',
        ),
        (
            "bayes",
            {"components": 2, "alpha": 1.0},
            'model.alpha belongs to task = "fit" or "select", and this is a job with "bayes"; leave it out',
        ),
        ("select", {"components": "5:2"}, "model.components: '5:2' begins above its end; did you mean 2:5?"),
        ("select", {"components": [2, 0]}, "model.components must be a whole number from 1 on, but is 0"),
        ("fit", {"components": "2:3"}, "model.components must be a whole number from 1 on, but is '2:3' (str)"),
        (
            "select",
            {"components": "2:3", "m_step": "cml"},
            "model.m_step must be auto, lsr or mm, because a selection compares likelihoods, but is 'cml'",
        ),
        ("select", {"components": [2], "also": ["bicc"]}, "model.also must be"),
        ("bayes", {"components": 2, "worth_shape": 0.01}, "worth_shape must be at least 0.05"),
        ("sample", {"components": 2}, "task must be fit, select or bayes, but is 'sample'"),
        ("fit", {"components": 2, "method": "papr"}, "model.method must be paper, but is 'papr'"),
        (
            "fit",
            {"components": 2, "method": "paper", "em": "fused"},
            "method='paper' has em='exact', but em is 'fused' (str); leave em out",
        ),
    ],
)
def test_task__keys_that_do_not_belong_are_named(task: str, model: dict[str, Any], expected: str, place: Path) -> None:
    given = {"task": task, "data": {"store": "ballots"}, "model": model, "outputs": {"folder": "out"}}
    with pytest.raises(JobError) as caught:
        _job_of(given, place)
    assert expected in str(caught.value)
    assert str(caught.value).startswith("this job is wrong:")  # one thing, and nothing that follows from it


@pytest.mark.parametrize("task", TASKS)
def test_task__old_spelling_is_refused_with_the_new_one(task: str, place: Path) -> None:
    model = MODELS[task] | {"method": task}
    given = {"data": {"store": "ballots"}, "model": model, "outputs": {"folder": "out"}}
    with pytest.raises(JobError) as caught:
        _job_of(given, place)
    assert f'write task = "{task}" above all tables, and leave method out of [model]' in str(caught.value)
    assert str(caught.value).startswith("this job is wrong:")


def test_task__method_means_what_it_means_in_python(place: Path) -> None:
    job = read_job(write_job(place, model={"components": 2, "method": "paper", "tol": 1e-2}, start={"svd_rank": 2}))
    run_job(job)
    model = PlackettLuceMixture(2, method="paper", init=Spectral(rank=2), tol=1e-2, random_state=1)
    assert found("fit", place) == bits(model.fit(place / "ballots", client=False))
    assert PlackettLuceMixture.load(place / "out/model").init == Spectral(rank=2)
    assert run_job(job_in(place / "out"))["changed"] is False  # defaults in job.json were not typed


def test_dry_run__of_each_task(place: Path) -> None:
    sent = {
        task: plan_of(read_job(write_job(place, task=task, model=model)))["bytes_sent_per_pass"]
        for task, model in MODELS.items()
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
            steps._fit(Context(job, OutputFolder(job.folder), executor))
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
    chunk = next(path for path in sorted((place / "ballots").rglob("*")) if path.is_file() and "/items/c/" in str(path))
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
def test_damage__of_the_model_in_the_middle_of_a_job(step: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = read_job(write_job(place, outputs={step: True}))
    clear = steps._clear_checkpoints

    def damaging(*arguments: Any) -> None:  # after the model was saved
        clear(*arguments)
        file = next((place / "out/model").glob("*.npy"))
        file.write_bytes(file.read_bytes()[:-1])

    monkeypatch.setattr(steps, "_clear_checkpoints", damaging)
    with pytest.raises(DamagedStoreError, match=str(place / "out/model")):
        run_job(job)
    assert (summary_of(place)["state"], summary_of(place)["exit_code"]) == ("damaged", 3)


@pytest.mark.parametrize("change", ["seed", "settings", "covariates", "store", "start"])
def test_work__what_decides_the_result_is_in_its_record(drawn: Path, tmp_path: Path, change: str) -> None:
    files = [tmp_path / name for name in ("one.npy", "other.npy")]
    for value, file in enumerate(files):
        np.save(file, np.full((400, 1), float(value)))
    start = pl.PlackettLuceMixture.from_arrays([[1.0, -1.0]], [1.0], ["a", "b"])
    start.save(tmp_path / "start")
    settings = {"n_components": 2, "alpha": 1.0, "init": str(tmp_path / "start"), "residency": "memory"}
    work = Work("fit", settings, 1, str(files[0]))
    others: dict[str, Work] = {
        "seed": work._replace(seed=2),
        "settings": work._replace(settings=settings | {"alpha": 0.5}),
        "covariates": work._replace(covariates=str(files[1])),
    }
    first = work.made_from(pl.open_store(drawn / "ballots"))
    elsewhere = work._replace(settings=settings | {"residency": "store"})  # which changes no bit
    assert is_same(first, elsewhere.made_from(pl.open_store(drawn / "ballots")))
    assert is_same(first, work.made_from(pl.open_store(drawn / "ballots")))
    store = drawn / ("later" if change == "store" else "ballots")
    if change == "start":  # another model at the same place
        shutil.rmtree(tmp_path / "start")
        pl.PlackettLuceMixture.from_arrays([[2.0, -2.0]], [1.0], ["a", "b"]).save(tmp_path / "start")
    assert not is_same(first, others.get(change, work).made_from(pl.open_store(store)))


def test_work__a_record_of_before_a_setting_existed_has_its_default(drawn: Path) -> None:
    settings = {name: setting.default for name, setting in settings_of("fit").items() if setting.text is not None}
    mine = Work("fit", settings, 1).made_from(pl.open_store(drawn / "ballots"))
    older = {name: value for name, value in mine.items() if name != "noise"}
    assert len(older) < len(mine)
    assert is_same(mine, older)
    assert not is_same(mine | {"noise": True}, older)


@pytest.mark.parametrize("task", ["fit", "bayes"])
def test_work__a_record_of_before_tasks_had_a_key_of_their_own(task: str, drawn: Path) -> None:
    settings = {name: setting.default for name, setting in settings_of(task).items() if setting.text is not None}
    mine = Work(task, settings, 1).made_from(pl.open_store(drawn / "ballots"))
    older = {name: value for name, value in mine.items() if name != "verb"} | {"method": task}
    assert is_same(mine, older)
    assert not is_same(mine, older | {"method": "bayes" if task == "fit" else "fit"})


def test_work__begun_at_the_last_model_keeps_its_own_init(drawn: Path, tmp_path: Path) -> None:
    settings = {name: setting.default for name, setting in settings_of("fit").items() if setting.text is not None}
    work = Work("fit", settings | {"init": "random", "max_iter": 30}, 1)
    store, last = pl.open_store(drawn / "ballots"), Location.of(tmp_path / "last")
    work.compute(store, client=False).save(last)
    again = work.compute(store, client=False, last=last)
    again.save(tmp_path / "again")
    assert (again.init, again.init_["method"]) == ("random", "given")
    assert PlackettLuceMixture.load(tmp_path / "again").init == "random"
