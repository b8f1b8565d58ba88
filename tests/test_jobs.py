"""Batch jobs: checked whole, run, stopped, continued, run again; what they write, and how they end."""

from __future__ import annotations

import http.server
import json
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cli_helpers
import numpy as np
import pytest
from oracle import snapshot
from test_checkpoints import SLOW_FIT, bits

import plmix_dist as pl
from plmix_dist import PlackettLuceMixture
from plmix_dist.errors import JobError, SettingsError
from plmix_dist.inference import em
from plmix_dist.interruption import OutOfTime, time_limit
from plmix_dist.jobs import methods, read_job, run_job, schema
from plmix_dist.jobs.driver import job_in
from plmix_dist.jobs.hooks import metrics_text
from plmix_dist.jobs.job_file import job_of
from plmix_dist.jobs.plan import plan_of
from plmix_dist.jobs.schema import KEYS, documented

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from cli_helpers import Said
    from distributed import Client

    Shell = Callable[..., Said]

ROOT = Path(__file__).parents[1]
shell = cli_helpers.shell  # the fixture that runs a verb in a folder of its own


def write_job(folder: Path, **tables: dict[str, Any]) -> Path:
    """A job file with what every job needs, and more."""
    given: dict[str, dict[str, Any]] = {
        "data": {"store": "ballots"},
        "model": {"components": 2, "seed": 1},
        "outputs": {"folder": "out"},
    }
    for name, table in tables.items():
        given[name] = given.get(name, {}) | table
    lines = []
    for name, table in given.items():
        # A JSON value of these kinds is a TOML value too.
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    path = folder / "job.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and two files of rankings of the same mixture."""
    folder = tmp_path_factory.mktemp("drawn")
    for name, n_rankings, seed in (("ballots", 2_000, 1), ("later", 500, 1)):
        pl.simulate(folder / name, n_rankings=n_rankings, n_items=6, n_components=2, random_state=seed)
        pl.export(folder / name, folder / f"{name}.csv")
    return folder


@pytest.fixture
def place(drawn: Path, tmp_path: Path) -> Path:
    """An own copy of the store."""
    import shutil

    shutil.copytree(drawn / "ballots", tmp_path / "ballots")
    return tmp_path


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out/summary.json").read_text())
    return found


def test_job__all_faults_at_once_with_the_nearest_known_name(tmp_path: Path) -> None:
    given = {
        "data": {"stores": "ballots"},
        "modell": {"components": 2},
        "model": {"components": 0, "alhpa": 1.0, "m_step": "lsrr", "tol": "small"},
        "cluster": {
            "scheduler": "tcp://127.0.0.1:8786",
            "workers": 2,
            "memory": "lots",
            "tls_ca": "none.pem",
        },
        "start": {"init": "spectal"},
        "limits": 3,
        "hooks": {"url": "ftp://example.org"},
    }
    with pytest.raises(JobError) as caught:
        job_of(given, tmp_path)
    said = str(caught.value)
    for expected in (
        "[data] has no key 'stores'; did you mean 'store'?",
        "there is no table or key 'modell'; did you mean 'model'?",
        "model.components must be a whole number from 1 on, but is 0",
        "[model] has no key 'alhpa'; did you mean 'alpha'?",
        "model.m_step must be auto, lsr",
        "but is 'lsrr'; did you mean 'lsr'?",
        "model.tol must be a finite number above 0, but is 'small' (str)",
        "data.store is missing: the store of rankings",
        "outputs.folder is missing",
        "cluster.scheduler and cluster.workers exclude each other",
        "such as 2GB, at least 200MB, but is 'lots'",
        "cluster.tls_ca: there is no file",
        "start.init must be spectral, random, kernel, moments or the folder of a model, but is 'spectal'; did you mean",
        "limits must be a table, [limits], but is 3 (int)",
        "hooks.url must begin with http:// or https://, but is 'ftp://example.org'",
    ):
        assert expected in said
    assert said.startswith("15 things are wrong with this job:")  # TLS files are not complete either


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_schema__every_key_is_checked(key: Any) -> None:
    with pytest.raises(SettingsError, match=re.escape(key.name)):
        key.check(key.name, [[1]])


def test_schema__every_key_is_on_the_page() -> None:
    page = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
    assert documented() in page
    (example,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    missing = [
        name for name in KEYS if not re.search(rf"^#? ?{name.split('.')[-1]} = ", example, re.MULTILINE)
    ]
    assert missing == []


@pytest.mark.parametrize("text", ["model = ", "[data", "a = 1\na = 2"])
def test_job__that_is_no_toml(tmp_path: Path, text: str, shell: Shell) -> None:
    (tmp_path / "job.toml").write_text(text)
    assert "job.toml is not valid: " in shell("run", "job.toml", code=2).err
    assert not (tmp_path / "out").exists()


@pytest.mark.promise(37)
def test_dry_run__tells_and_writes_nothing(place: Path, shell: Shell) -> None:
    write_job(place, cluster={"workers": 2, "threads": 3, "memory": "1GB"})
    before = snapshot(place)
    plan = json.loads(shell("run", "job.toml", "--dry-run", "--json").out)
    assert snapshot(place) == before
    assert (plan["n_rankings"], plan["n_items"], plan["steps"]) == (2_000, 6, ["fit"])
    assert (plan["workers"], plan["threads_per_worker"], plan["tasks_per_pass"]) == (2, 3, 1)
    # One task: two components of six worths go there, and MM's sums (wins, expected wins) come back.
    assert plan["bytes_sent_per_pass"] >= 8 * (2 * 6 + 2 * 6)
    assert plan["memory_per_worker"] > pl.open_store(place / "ballots").decoded_bytes
    assert plan["seconds_per_pass"] > 0
    said = shell("run", "job.toml", "--dry-run")
    assert said.line("rankings") == "2,000 of 6 items, kept in memory"
    assert said.line("tasks") == "1 per pass"


def test_dry_run__refuses_what_no_machine_can_hold(place: Path) -> None:
    with pytest.raises(SettingsError, match=r"6 items in 999,999,999 components need at least .* GB"):
        plan_of(read_job(write_job(place, model={"components": 999_999_999})))


def test_dry_run__asks_the_scheduler(place: Path, client: Client) -> None:
    address = client.scheduler.address
    plan = plan_of(read_job(write_job(place, cluster={"scheduler": address})))
    assert (plan["workers"], plan["threads_per_worker"]) == (2, 1)


def test_methods__are_those_of_the_schema() -> None:
    assert tuple(methods.METHODS) == schema.METHODS


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

    results = {
        path: data for path, data in snapshot(out).items() if path.startswith(("model", "memberships"))
    }
    said = shell("run", "job.toml")
    assert said.line("nothing to do") == f"{out} already holds the results of this job (converged)"
    assert {
        path: data for path, data in snapshot(out).items() if path.startswith(("model", "memb"))
    } == results
    assert summary_of(place)["changed"] is False
    assert "nothing to do" in shell("resume", "out").out
    assert shell("status", "out").line("state") == "converged"


def test_run__sources_are_read_appended_and_fitted_from_the_last_model(
    place: Path,
    drawn: Path,
    shell: Shell,
) -> None:
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


def test_run__warm_start_that_was_interrupted(
    place: Path, drawn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    job = (place / "out/job.json").read_bytes()
    write_job(place, model={"alpha": 0.5})
    said = shell("run", "job.toml", code=2)
    assert (
        "holds the results of another job (model.alpha is 1.0 there and 0.5 here); choose another" in said.err
    )
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
    begun = time.monotonic()
    process.send_signal(stop)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - begun < 12
    assert run_job(job_in(place / "out"))["state"] == "converged"
    model = PlackettLuceMixture.load(place / "out/model")
    same = PlackettLuceMixture(2, init="random", random_state=1).fit(place / "ballots", client=False)
    assert bits(model) == bits(same)
    assert model.init_["stages"][0]["stage"] == "resume"
    history = [
        json.loads(line)["iteration"] for line in (place / "out/history.jsonl").read_text().splitlines()
    ]
    assert history == list(range(1, model.n_iter_ + 1))
    assert list((place / "out/checkpoints").glob("checkpoint-*")) == []
    return process.returncode, errors


@pytest.mark.promise(5)
@pytest.mark.parametrize(
    "wait",
    [
        pytest.param("time.sleep(0.5)", marks=pytest.mark.slow),
        "import ctypes; ctypes.CDLL(None).poll(None, 0, 60_000); time.sleep(60)",
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
    place: Path,
    drawn: Path,
    shell: Shell,
    run_python: Callable[..., subprocess.Popen[str]],
) -> None:
    (place / "votes").mkdir()
    (place / "votes/1.csv").write_bytes((drawn / "ballots.csv").read_bytes())
    tables: dict[str, Any] = {
        "data": {"store": "gathered", "sources": "votes/*.csv"},
        "start": {"init": "random"},
    }
    write_job(place, limits={"seconds": 12.0}, **tables)
    # Every iteration takes a minute, so that the limit is reached in one of them.
    process = run_python(SLOW_FIT.format(wait="time.sleep(60)"), 4, "run", place / "job.toml")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    assert "out of time; its state is saved" in errors
    summary = summary_of(place)
    assert (summary["state"], summary["exit_code"], summary["error"]) == (
        "out of time",
        75,
        "OutOfTime: SIGALRM",
    )
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
    assert "is no output folder of a job" in shell("status", "ballots", code=2).err


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


def test_hooks__command_gets_the_summary_and_failures_are_recorded(place: Path, shell: Shell) -> None:
    script = "import sys, os, pathlib; pathlib.Path('told.json').write_text(sys.stdin.read())"
    write_job(place, hooks={"command": [sys.executable, "-c", script]})
    shell("run", "job.toml")
    assert json.loads((place / "told.json").read_text())["state"] == "converged"
    for command, why in (
        ([sys.executable, "-c", "import sys; sys.exit('no mail today')"], "ended with code 1: no mail today"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "took longer than 0.5 s and was stopped"),
        (["no-such-command"], "no-such-command cannot be run"),
    ):
        write_job(place, hooks={"command": command, "timeout": 0.5})
        shell("run", "job.toml")  # the results are there: the exit code does not change
        assert why in summary_of(place)["failed_hooks"]["command"]


def test_hooks__webhook(place: Path) -> None:
    received: list[Any] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200 if self.path == "/done" else 500)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        assert "failed_hooks" not in run_job(read_job(write_job(place, hooks={"url": f"{address}/done"})))
        assert received[0]["fit"]["converged"] is True
        failed = run_job(read_job(write_job(place, hooks={"url": f"{address}/other"})))["failed_hooks"]
        assert "HTTP Error 500" in failed["url"]
    finally:
        server.shutdown()
        server.server_close()
    failed = run_job(read_job(write_job(place, hooks={"url": f"{address}/done"})))["failed_hooks"]
    assert "did not take it" in failed["url"]


def test_metrics__names_are_escaped() -> None:
    text = metrics_text({"job": 'a"b\\c\nd', "exit_code": 6, "changed": True})
    assert 'plmix_job_exit_code{job="a\\"b\\\\c\\nd"} 6' in text.splitlines()
    assert all(re.fullmatch(r'#.*|plmix_job_\w+\{job=".*"\} [-+.\de]+', line) for line in text.splitlines())


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
