"""Jobs that are run, stopped, continued, run again; what they write, and how they end."""

from __future__ import annotations

import json
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import plmix_dist as pl
from plmix_dist import PlackettLuceMixture
from plmix_dist.errors import SettingsError
from plmix_dist.fitting import em
from plmix_dist.jobs import read_job, run_job
from plmix_dist.jobs.driver import job_in
from plmix_dist.threads import OutOfTime, time_limit
from tests.helpers.oracle import snapshot
from tests.store.test_checkpoints import SLOW_FIT, bits

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tests.helpers.cli_helpers import Said

    Shell = Callable[..., Said]
from tests.jobs.data import summary_of, write_job


@pytest.mark.promise(40)
def test_run__writes_everything_once(place: Path, shell: Shell) -> None:
    write_job(place, outputs={"memberships": True, "metrics": "plmix.prom"})
    said = shell("run", "job.toml")
    assert said.line("rankings") == "2,000"
    out = place / "out"
    written = {path.name for path in out.iterdir()}
    assert written >= {
        "job.json",
        "summary.json",
        "history.jsonl",
        "log.jsonl",
        "environment.json",
        "model",
        "memberships",
    }
    model = PlackettLuceMixture.load(out / "model")
    same = PlackettLuceMixture(2, random_state=1).fit(pl.open_store(place / "ballots"), client=False)
    assert bits(model) == bits(same)
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert history == model.history_
    events = [json.loads(line)["event"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert (events[0], events[-1]) == ("begun", "ended")
    assert json.loads((out / "environment.json").read_text())["packages"]["numpy"] == np.__version__
    summary = summary_of(place)
    assert (summary["state"], summary["exit_code"], summary["changed"]) == ("converged", 0, True)
    assert 'plmix_job_rankings{job="plmix"} 2000' in (place / "plmix.prom").read_text()

    results = {path: data for path, data in snapshot(out).items() if path.startswith(("model", "memberships"))}
    said = shell("run", "job.toml")
    assert said.line("nothing to do") == f"{out} already holds the results of this job (converged)"
    assert {path: data for path, data in snapshot(out).items() if path.startswith(("model", "memb"))} == results
    assert summary_of(place)["changed"] is False
    assert "nothing to do" in shell("resume", "out").out
    assert shell("status", "out").line("state") == "converged"


def test_run__sources_are_read_appended_and_fitted_from_the_last_model(place: Path, drawn: Path, shell: Shell) -> None:
    (place / "votes").mkdir()
    (place / "votes/1.csv").write_bytes((drawn / "ballots.csv").read_bytes())
    write_job(place, data={"store": "gathered", "sources": ["votes/*.csv"]}, outputs={"memberships": True})
    shell("run", "job.toml")
    first = PlackettLuceMixture.load(place / "out/model")
    (place / "votes/2.csv").write_bytes((drawn / "later.csv").read_bytes())
    said = shell("run", "job.toml")
    assert "from the last model" in said.line("fit")
    assert said.line("rankings") == "2,500"
    assert summary_of(place)["read"]["new"] == [str(place / "votes/2.csv")]
    model = PlackettLuceMixture.load(place / "out/model")
    # It began where the first ended, was judged by all rankings, and ended where a fit from scratch ends.
    store = pl.open_store(place / "gathered")
    cold = PlackettLuceMixture(2, random_state=1).fit(store, client=False)
    assert model.init_["method"] == "given"
    assert model.history_[0]["log_likelihood"] == pytest.approx(2_500 * first.score(store), rel=1e-12)
    assert model.converged_
    assert model.n_iter_ > 1
    assert model.gradient_norm_ <= 1e-8
    np.testing.assert_allclose(model.log_worths_, cold.log_worths_, atol=1e-6)
    import zarr

    assert zarr.open_group(str(place / "out/memberships"), mode="r")["component"].shape == (2_500,)
    assert "nothing to do" in shell("run", "job.toml").out

    with (place / "votes/2.csv").open("a") as file:
        file.write("1 2 3 4 5 6\n")
    assert "2.csv was changed since it was read into" in shell("run", "job.toml", code=5).err
    assert summary_of(place)["state"] == "bad input"


def test_run__warm_start_that_was_interrupted(place: Path, drawn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = read_job(write_job(place))
    run_job(job)
    first = PlackettLuceMixture.load(place / "out/model")
    store = pl.ingest(drawn / "later.csv", place / "ballots", append=True)
    with monkeypatch.context() as patch:
        calls = iter(range(100))
        advance = em.advance

        def interrupted(*arguments: Any) -> Any:
            if next(calls) == 3:
                raise KeyboardInterrupt
            return advance(*arguments)

        patch.setattr(em, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_job(job)
    assert (summary_of(place)["state"], summary_of(place)["exit_code"]) == ("interrupted", 130)
    assert PlackettLuceMixture.load(place / "out/model").log_worths_.tobytes() == first.log_worths_.tobytes()
    assert run_job(job)["fit"]["warm_start"]
    resumed = PlackettLuceMixture.load(place / "out/model")
    assert resumed.init_["stages"][0]["stage"] == "resume"
    undisturbed = PlackettLuceMixture(2, init=first, random_state=1).fit(store, client=False)
    assert bits(resumed) == bits(undisturbed)


@pytest.mark.promise(38)
def test_run__with_other_settings_is_refused(place: Path, shell: Shell) -> None:
    write_job(place)
    shell("run", "job.toml")
    write_job(place, model={"residency": "store"}, start={"warm": False})  # these change no bit
    assert "nothing to do" in shell("run", "job.toml").out
    job = (place / "out/job.json").read_bytes()
    write_job(place, start={"n_init": 2})
    assert "another job (start.n_init is 1 there and 2 here)" in shell("run", "job.toml", code=2).err
    write_job(place, model={"alpha": 0.5})
    said = shell("run", "job.toml", code=2)
    assert "holds the results of another job (model.alpha is 1.0 there and 0.5 here); choose another" in said.err
    np.save(place / "persons.npy", np.zeros((2_000, 1)))
    write_job(place, data={"covariates": "persons.npy"})
    assert "another job (data.covariates is " in shell("run", "job.toml", code=2).err
    write_job(place, model={"alpha": 0.5})
    assert (place / "out/job.json").read_bytes() == job
    shell("run", "job.toml", "--force")
    assert PlackettLuceMixture.load(place / "out/model").alpha == 0.5


def stop_and_resume(
    place: Path, run_python: Callable[..., subprocess.Popen[str]], stop: signal.Signals, wait: str
) -> tuple[int, str]:
    """Run a job slowly, stop it at its sixth iteration, and go on with it; the exit code and what it said."""
    write_job(place, start={"init": "random"}, checkpoint={"every": 0})
    process = run_python(SLOW_FIT.format(wait=wait), 6, "run", place / "job.toml")
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    if "inside" in wait:
        assert process.stdout.readline() == "inside\n"
    process.send_signal(stop)
    _, errors = process.communicate(timeout=120)  # what it was doing would take far longer
    assert run_job(job_in(place / "out"))["state"] == "converged"
    model = PlackettLuceMixture.load(place / "out/model")
    same = PlackettLuceMixture(2, init="random", random_state=1).fit(place / "ballots", client=False)
    assert bits(model) == bits(same)
    assert model.init_["stages"][0]["stage"] == "resume"
    history = [json.loads(line)["iteration"] for line in (place / "out/history.jsonl").read_text().splitlines()]
    assert history == list(range(1, model.n_iter_ + 1))
    assert list((place / "out/checkpoints").glob("checkpoint-*")) == []
    return process.returncode, errors


@pytest.mark.promise(5)
@pytest.mark.parametrize(
    "wait",
    [
        pytest.param("time.sleep(0.5)", marks=pytest.mark.slow),
        "from tests.helpers.compiled_code import stay_inside; stay_inside()",
    ],
    ids=["python", "compiled"],
)
def test_run__terminated_ends_in_time_and_is_resumed(
    place: Path, run_python: Callable[..., subprocess.Popen[str]], wait: str
) -> None:
    code, errors = stop_and_resume(place, run_python, signal.SIGTERM, wait)
    assert code == 75
    said = f"plmix: error: out of time; its state is saved in {place / 'out'}; `plmix resume {place / 'out'}` continues"
    assert errors.strip().splitlines()[-1] == said


@pytest.mark.promise(4)
def test_run__killed_is_resumed(place: Path, run_python: Callable[..., subprocess.Popen[str]]) -> None:
    code, _ = stop_and_resume(place, run_python, signal.SIGKILL, "time.sleep(0.5)")
    assert code == -signal.SIGKILL


@pytest.mark.promise(38)
@pytest.mark.promise(39)
def test_run__limit_of_seconds_then_status_then_new_sources_wait(
    place: Path, drawn: Path, shell: Shell, run_python: Callable[..., subprocess.Popen[str]]
) -> None:
    (place / "votes").mkdir()
    (place / "votes/1.csv").write_bytes((drawn / "ballots.csv").read_bytes())
    tables: dict[str, Any] = {"data": {"store": "gathered", "sources": "votes/*.csv"}, "start": {"init": "random"}}
    write_job(place, limits={"seconds": 3_600.0}, **tables)
    # The limit comes in the fourth iteration, however long a busy machine took to get there.
    wait = "import signal; assert 0 < signal.setitimer(signal.ITIMER_REAL, 0.1)[0] <= 3600; time.sleep(600)"
    process = run_python(SLOW_FIT.format(wait=wait), 4, "run", place / "job.toml")
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 75, errors
    assert "out of time; its state is saved" in errors
    summary = summary_of(place)
    assert (summary["state"], summary["exit_code"], summary["error"]) == ("out of time", 75, "OutOfTime: SIGALRM")
    said = shell("status", "out")
    assert said.line("state") == "out of time"
    assert said.line("checkpoint").startswith("number ")

    # Other settings do not go on from this state.
    write_job(place, model={"tol": 1e-4}, **tables)
    assert "model.tol is 1e-08 there and 0.0001 here" in shell("run", "job.toml", code=2).err
    # Files that came since wait until the fit is finished.
    write_job(place, **tables)
    (place / "votes/2.csv").write_bytes((drawn / "later.csv").read_bytes())
    said = shell("run", "job.toml")
    assert said.line("rankings") == "2,000"
    assert said.line("postponed") == "1 new files; run this again to read them"
    assert PlackettLuceMixture.load(place / "out/model").init_["stages"][0]["stage"] == "resume"
    assert shell("run", "job.toml").line("rankings") == "2,500"


def test_status__of_a_job_whose_process_is_gone(place: Path, shell: Shell) -> None:
    job = read_job(write_job(place))
    run_job(job)
    summary = summary_of(place)
    (place / "out/summary.json").write_text(json.dumps(summary | {"state": "running", "step": "fit"}))
    said = shell("status", "out")
    assert (said.line("state"), said.line("step")) == ("stopped", "fit")
    assert "is not the output folder of a job" in shell("status", "ballots", code=2).err


def test_run__not_converged_has_its_own_code_both_times(place: Path, shell: Shell) -> None:
    write_job(place, model={"max_iter": 2}, start={"init": "random"})
    shell("run", "job.toml", code=4)
    assert summary_of(place)["state"] == "not converged"
    assert "nothing to do" in shell("run", "job.toml", code=4).out


def test_run__cluster_that_is_not_there_and_damaged_store(place: Path, shell: Shell) -> None:
    write_job(place, cluster={"scheduler": "tcp://127.0.0.1:9"})
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in shell("run", "job.toml", code=6).err
    assert summary_of(place)["state"] == "cluster lost"
    manifest = place / "ballots/manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-5])
    write_job(place)
    assert "manifest.json" in shell("run", "job.toml", code=3).err
    assert summary_of(place)["state"] == "damaged"


def test_run__two_at_once(place: Path) -> None:
    from plmix_dist.errors import StoreLockedError
    from plmix_dist.store import Location
    from plmix_dist.store.lock import write_lock

    job = read_job(write_job(place))
    with write_lock(Location.of(job.folder)), pytest.raises(StoreLockedError):
        run_job(job)


def test_run__on_a_cluster_of_its_own_gives_the_same_bits(place: Path, shell: Shell) -> None:
    write_job(place, cluster={"workers": 2, "threads": 1, "memory": "500MB"})
    shell("run", "job.toml")
    same = PlackettLuceMixture(2, random_state=1).fit(place / "ballots", client=False)
    assert bits(PlackettLuceMixture.load(place / "out/model")) == bits(same)


def test_time_limit__restores_what_was_there() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OutOfTime, match="SIGTERM"), time_limit(None):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    faults: list[str] = []

    def elsewhere() -> None:
        try:
            with time_limit(1.0):
                pass
        except SettingsError as error:
            faults.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "needs the main thread" in faults[0]
