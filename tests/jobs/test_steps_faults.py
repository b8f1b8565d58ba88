"""Batch jobs in bad company: hooks that hang or talk, folders that were moved, readings that were stopped, damage."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import threading
import time
import tracemalloc
import uuid
from typing import TYPE_CHECKING, Any

import pytest

import plmix_dist as pl
from plmix_dist.datasets import ingest as ingestion_driver
from plmix_dist.errors import IngestError, JobError, StoreError, StoreFullError
from plmix_dist.fitting import em
from plmix_dist.jobs import read_job, run_job
from plmix_dist.jobs.driver import job_in, status
from plmix_dist.jobs.file import _job_of
from plmix_dist.jobs.folder import OutputFolder
from plmix_dist.jobs.hooks import _run_command, write_metrics
from plmix_dist.store import Location
from plmix_dist.store.memberships import MembershipSession
from tests.helpers import cli_helpers
from tests.jobs.data import summary_of, write_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.helpers.cli_helpers import Said

    Shell = Callable[..., Said]

shell = cli_helpers.shell


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, and its rankings as text."""
    folder = tmp_path_factory.mktemp("drawn")
    pl.simulate(folder / "ballots", n_rankings=500, n_items=5, n_components=2, random_state=1)
    pl.export(folder / "ballots", folder / "ballots.csv")
    return folder


@pytest.fixture
def place(drawn: Path, tmp_path: Path) -> Path:
    """An own copy of the store."""
    shutil.copytree(drawn / "ballots", tmp_path / "ballots")
    return tmp_path


@pytest.fixture
def peer() -> Iterator[Callable[[list[bytes], float], str]]:
    """Starts a server that says pieces of bytes with a pause after each; gives its address."""
    listening: list[socket.socket] = []

    def start(pieces: list[bytes], pause: float) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def talk() -> None:
            try:
                with server.accept()[0] as client:
                    for piece in pieces:
                        client.sendall(piece)
                        time.sleep(pause)
            except OSError:
                pass  # the test is over

        threading.Thread(target=talk, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/done"

    yield start
    for server in listening:
        server.close()


def test_webhook__that_speaks_no_http_is_recorded(place: Path, peer: Callable[[list[bytes], float], str]) -> None:
    url = peer([b"SSH-2.0-OpenSSH_9.2\r\n"], 0.2)
    summary = run_job(read_job(write_job(place, hooks={"url": url})))
    assert (summary["state"], summary["exit_code"]) == ("converged", 0)
    assert "SSH-2.0" in summary_of(place)["failed_hooks"]["url"]


@pytest.mark.parametrize("url", ["http://a b/done", "http://[::1/done", "http://"])
def test_webhook__that_is_no_address_is_recorded(url: str, place: Path) -> None:
    summary = run_job(read_job(write_job(place, hooks={"url": url})))
    assert summary["state"] == "converged"
    assert summary["failed_hooks"]["url"].startswith(url.removesuffix("/done"))


def test_webhook__that_answers_byte_by_byte_has_an_end(place: Path, peer: Callable[[list[bytes], float], str]) -> None:
    url = peer([bytes([each]) for each in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], 0.3)
    summary = run_job(read_job(write_job(place, hooks={"url": url, "timeout": 1})))
    assert summary["failed_hooks"]["url"].endswith("no answer within 1 s")  # each byte comes within 1 s


def test_command__that_takes_too_long_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/pid; sleep 60"
    failure = _run_command(["sh", "-c", script], b"{}", 3.0)
    assert failure == "sh took longer than 3 s and was stopped"
    started = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 60
    while _runs(started) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(started)


def _runs(process: int) -> bool:
    """Whether a process is there, and no zombie that nobody has waited for."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_command__that_leaves_a_program_running_has_not_failed(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/pid"
    try:
        assert _run_command(["sh", "-c", script], b"{}", 50.0) is None
    finally:
        os.kill(int((tmp_path / "pid").read_text()), 9)


def test_command__that_says_much_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        script = "head -c 30000000 /dev/zero; head -c 30000000 /dev/zero >&2; echo the end >&2; exit 3"
        failure = _run_command(["sh", "-c", script], b"{}" + b" " * 1_000_000, 60.0)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert failure is not None
    assert failure.startswith("sh ended with code 3: ")
    assert failure.endswith("the end\n")
    assert most < 5_000_000


def test_command__that_no_system_can_run() -> None:
    assert _run_command(["a\0b"], b"{}", 5.0) == "'a\\x00b' cannot be run: embedded null byte"


def test_hooks__that_fail_are_told_also_if_nothing_was_done(place: Path, shell: Shell) -> None:
    write_job(place, hooks={"command": ["false"]})
    for expected in ("converged", "nothing to do"):
        said = shell("run", str(place / "job.toml"))
        assert expected in said.out
        assert "hook failed" in said.out


def test_metrics__file_of_any_name(tmp_path: Path) -> None:
    file = tmp_path / "not there" / "métriques 1.prom"
    assert write_metrics(str(file), {"job": "nightly", "exit_code": 0}) == {}
    assert "plmix_job_exit_code" in file.read_text(encoding="utf-8")
    assert [each.name for each in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"data": {"store": "~nobody-here/x"}}, "data.store is not a path: "),
        ({"start": {"init": "~nobody-here/x"}}, "start.init is not a path: "),
        ({"start": {"init": "unheard://of/it"}}, "start.init: unheard://of/it cannot be reached: "),
        ({"outputs": {"folder": "ballots"}}, "outputs.folder must not be in the store"),
        ({"outputs": {"folder": "ballots/out"}}, "outputs.folder must not be in the store"),
        ({"outputs": {"folder": "out", "metrics": "s3://b/x.prom"}}, "outputs.metrics must be a path"),
        ({"checkpoint": {"folder": "out"}}, "checkpoint.folder must be a folder of its own"),
        ({"checkpoint": {"folder": "ballots"}}, "checkpoint.folder must be a folder of its own"),
        ({"start": {"init": "out/model"}}, "start.init must not be the model that this job writes"),
        ({"limits": {"seconds": 1e300}}, "limits.seconds must be a finite number above 0, at most"),
        ({"hooks": {"timeout": 1e300}}, "hooks.timeout must be a finite number above 0, at most"),
    ],
)
def test_job__places_and_times_are_checked_with_all_else(tables: dict[str, Any], expected: str, place: Path) -> None:
    given = {"data": {"store": "ballots"}, "model": {"components": 2, "alhpa": 1}, "outputs": {"folder": "out"}}
    with pytest.raises(JobError) as caught:
        _job_of(given | tables, place)
    assert expected in str(caught.value)
    assert "did you mean 'alpha'?" in str(caught.value)


def test_dry_run__refuses_what_the_run_would(place: Path, shell: Shell) -> None:
    run_job(read_job(write_job(place)))
    write_job(place, model={"components": 3})
    said = shell("run", str(place / "job.toml"), "--dry-run", code=2)
    assert "model.components is 2 there and 3 here" in said.err
    assert "rankings" in shell("run", str(place / "job.toml"), "--dry-run", "--force").out


def test_status__tells_also_where_what_the_job_refers_to_is_gone(place: Path, shell: Shell) -> None:
    """A service's certificates are gone when it has ended, and a store may be mounted elsewhere."""
    run_job(read_job(write_job(place)))
    values = json.loads((place / "out/job.json").read_text())
    files = {f"cluster.tls_{part}": f"/run/credentials/{part}.pem" for part in ("ca", "cert", "key")}
    values |= files | {"cluster.scheduler": "tls://127.0.0.1:8786"}
    (place / "out/job.json").write_text(json.dumps(values))
    shutil.rmtree(place / "ballots")
    said = shell("status", str(place / "out"))
    assert "converged" in said.out


def test_folder__that_was_moved_is_looked_at_and_not_resumed(place: Path) -> None:
    run_job(read_job(write_job(place)))
    (place / "out").rename(place / "moved")
    assert status(place / "moved")["state"] == "converged"
    with pytest.raises(JobError, match=r"moved was moved or copied: its job writes to .*out"):
        job_in(place / "moved")
    (place / "linked").symlink_to(place / "moved")
    (place / "moved").rename(place / "out")
    (place / "linked").unlink()
    (place / "linked").symlink_to(place / "out")
    assert job_in(place / "linked")["outputs.folder"] == str(place / "out")


@pytest.mark.parametrize("damaged", ['{"read": 3, "report": [4]}', '{"read": {"files": [1]}}', '{"a": 1}', "[1]", "{"])
def test_summary__that_is_damaged(damaged: str, place: Path) -> None:
    job = read_job(write_job(place, outputs={"report": True}))
    run_job(job)
    (place / "out/summary.json").write_text(damaged)
    assert status(place / "out")["state"] == "not begun"
    assert run_job(job)["fit"]["changed"] is False
    assert summary_of(place)["state"] == "converged"


def test_history__of_iterations_that_were_repeated_the_last_remain(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path / "out")
    for iteration, written in ((1, "first"), (2, "first"), (3, "first"), (2, "again")):
        folder.note_iteration({"iteration": iteration, "written": written})
    found = [(record["iteration"], record["written"]) for record in folder.history_once()]
    assert found == [(1, "first"), (2, "again")]


def test_history__that_is_damaged(place: Path, shell: Shell) -> None:
    run_job(read_job(write_job(place)))
    with (place / "out/history.jsonl").open("a") as file:
        file.write('{"iteration": 77}\n5\n[1]\n{"a": 1}\n{"itera')
    assert "77" in shell("status", str(place / "out")).out


@pytest.mark.parametrize("has_store", [False, True], ids=["first", "appended"])
def test_read__that_was_stopped_goes_on_though_new_files_came(
    has_store: bool, drawn: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (drawn / "ballots.csv").read_text().splitlines(keepends=True)
    (place / "races").mkdir()

    def arrive(name: str, rows: slice) -> None:
        (place / f"races/{name}.csv").write_text("".join(lines[:1] + lines[1:][rows]))

    data = {"store": "gathered", "sources": ["races/*.csv"], "unranked": "below"}
    job = read_job(write_job(place, data=data))
    if has_store:
        arrive("c", slice(0, 100))
        run_job(job)

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    arrive("b", slice(100, 300))
    with monkeypatch.context() as patched:
        patched.setattr(ingestion_driver, "check_groups", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_job(job)
    arrive("a", slice(300, 450))
    summary = run_job(job)
    assert [file.rpartition("/")[2] for file in summary["read"]["new"]] == ["a.csv", "b.csv"]
    assert summary["fit"]["n_rankings"] == (450 if has_store else 350)
    assert run_job(job)["changed"] is False


def test_read__source_that_was_changed_is_refused_by_every_job_of_the_store(drawn: Path, place: Path) -> None:
    """Its rows would be in the store twice. The summary of the job that read it may be gone, or that of another job."""
    shutil.copy(drawn / "ballots.csv", place / "1.csv")
    data = {"store": "gathered", "sources": ["1.csv"], "unranked": "below"}
    run_job(read_job(write_job(place, data=data)))
    with (place / "1.csv").open("a") as file:
        file.write((drawn / "ballots.csv").read_text().splitlines()[-1] + "\n")
    other = read_job(write_job(place, data=data, outputs={"folder": "out of another job"}))
    with pytest.raises(IngestError, match=r"1\.csv was changed since it was read"):
        run_job(other)
    assert pl.open_store(place / "gathered").n_rankings == 500


def test_model__whose_save_was_cut_short_is_saved_by_the_next_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are there, and model.json is not: the disk was full, or the process was killed between the two."""
    job = read_job(write_job(place))
    write = Location.write_bytes

    def full(self: Location, key: str, data: bytes, **options: Any) -> None:
        if key == "model.json":
            raise StoreFullError(f"no room to write {key}")
        write(self, key, data, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Location, "write_bytes", full)
        with pytest.raises(StoreFullError):
            run_job(job)
    assert (place / "out/model/shares.npy").is_file()
    assert run_job(job)["state"] == "converged"
    assert run_job(job)["changed"] is False


def test_model__that_is_damaged_is_replaced_by_force(place: Path) -> None:
    job = read_job(write_job(place))
    run_job(job)
    (place / "out/model/model.json").write_text("{}")
    with pytest.raises(StoreError, match="model"):
        run_job(job)
    assert run_job(job, force=True)["state"] == "converged"
    assert run_job(job)["changed"] is False


def test_memberships__that_were_stopped_are_those_of_the_new_model_after_all(
    drawn: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(drawn / "ballots.csv", place / "1.csv")
    data = {"store": "gathered", "sources": ["*.csv"], "unranked": "below"}
    job = read_job(write_job(place, data=data, outputs={"memberships": True}))

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(MembershipSession, "finalise", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_job(job)
    assert (place / "out/memberships/wip/predict.json").is_file()
    (place / "2.csv").write_text("".join((drawn / "ballots.csv").read_text().splitlines(keepends=True)[:101]))
    summary = run_job(job)
    assert (summary["state"], summary["memberships"]["n_rankings"]) == ("converged", 600)
    assert run_job(job)["changed"] is False


@pytest.mark.parametrize("own", [True, False], ids=["in the job's folder", "in a folder that is named"])
def test_fit__stopped_and_then_others_appended(
    drawn: Path, place: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    named = {} if own else {"folder": "saved"}
    job = read_job(write_job(place, checkpoint={"every": 0, **named}))
    advance, calls = em.advance, itertools.count()

    def stopped(*arguments: Any) -> Any:
        if next(calls) == 6:
            raise KeyboardInterrupt
        return advance(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(em, "advance", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_job(job)
    assert status(place / "out")["checkpoint"] is not None
    pl.ingest(drawn / "ballots.csv", place / "ballots", append=True)
    if not own:
        with pytest.raises(StoreError, match="checkpoint of another computation"):
            run_job(job)
        return
    summary = run_job(job)
    assert (summary["state"], pl.open_store(place / "ballots").n_rankings) == ("converged", 1_000)
    fresh = pl.PlackettLuceMixture(2, random_state=1).fit(str(place / "ballots"), client=False)
    found = pl.PlackettLuceMixture.load(place / "out/model")
    assert found.log_likelihood_ == pytest.approx(fresh.log_likelihood_, abs=1e-4)
    assert "cannot go on, and begins again" in (place / "out/log.jsonl").read_text()


def test_hooks__run_also_where_the_log_cannot_be_written(place: Path) -> None:
    """The device is always full."""
    job = read_job(write_job(place, hooks={"command": ["sh", "-c", f"cat > {place}/told-$PLMIX_STATE"]}))
    (place / "out").mkdir()
    (place / "out/log.jsonl").symlink_to("/dev/full")
    with pytest.raises(StoreFullError, match=r"log\.jsonl"):
        run_job(job)
    assert "StoreFullError" in json.loads((place / "told-failed").read_text())["error"]


def test_log__a_line_that_was_cut_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"time": "20')
    folder = OutputFolder(tmp_path)
    folder.log("begun")
    folder.log("ended")
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines[1:]] == ["begun", "ended"]


def test_report__on_a_full_disk_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = pl.PlackettLuceMixture(1).fit([[0, 1, 2], [1, 0, 2], [2, 1, 0]])
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=1))
    (tmp_path / f"r.html.{uuid.UUID(int=1).hex}.tmp").symlink_to("/dev/full")
    with pytest.raises(StoreFullError, match=r"no room to write .*r\.html"):
        model.report(tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("replaced", [False, True])
def test_output_folder__removed_in_mid_run(
    place: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    compute = em.Em.tell
    removed = []

    def remove_first(self: Any, *arguments: Any) -> Any:
        if not removed:
            removed.append(True)
            shutil.rmtree(place / "out")
            if replaced:
                (place / "out/wip").mkdir(parents=True)
                (place / "out/wip/lock").touch()
        return compute(self, *arguments)

    monkeypatch.setattr(em.Em, "tell", remove_first)
    write_job(place)
    said = shell("run", "job.toml", code=1)
    assert removed
    assert f"{place / 'out'} was removed or replaced while this process was writing to it" in said.err
    assert "with --force" in said.err
    assert summary_of(place)["exit_code"] == 1
    assert "with `plmix run JOB.toml --force`" in shell("run", "job.toml", code=2).err
    assert "or with `plmix run JOB.toml --force`" in shell("resume", "out", code=2).err
    shell("run", "job.toml", "--force")
    assert summary_of(place)["state"] == "converged"
    assert "nothing to do" in shell("run", "job.toml").out


def test_drafts__of_a_killed_job_are_removed_by_the_next(place: Path, shell: Shell) -> None:
    write_job(place, outputs={"folder": "out", "report": True, "memberships": True})
    shell("run", "job.toml")
    names = ("summary.json", "report.html", "model/shares.npy", "memberships/component/c/0", "checkpoints/x.plmix")
    drafts = [place / "out" / f"{name}.{uuid.uuid4().hex}.tmp" for name in names]
    for draft in drafts:
        draft.parent.mkdir(exist_ok=True)
        draft.touch()
    (place / "out/mine.tmp").touch()
    assert "nothing to do" in shell("run", "job.toml").out
    assert [draft for draft in drafts if draft.exists()] == []
    assert (place / "out/mine.tmp").exists()
