"""What happens at the end of a job: commands, webhooks, metrics."""

from __future__ import annotations

import http.server
import json
import re
import stat
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist.jobs import driver, read_job, run_job
from plmix_dist.jobs.hooks import _metrics_text
from plmix_dist.threads import OutOfTime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.helpers.cli_helpers import Said

    Shell = Callable[..., Said]
from tests.jobs.data import summary_of, write_job


def test_hooks__command_gets_the_summary_and_failures_are_recorded(place: Path, shell: Shell) -> None:
    script = "import sys, os, pathlib; pathlib.Path('told.json').write_text(sys.stdin.read())"
    write_job(place, hooks={"command": [sys.executable, "-c", script]})
    shell("run", "job.toml")
    assert json.loads((place / "told.json").read_text())["state"] == "converged"
    for command, timeout, why in (
        ([sys.executable, "-c", "import sys; sys.exit('no mail today')"], 120, "ended with code 1: no mail today"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], 0.5, "took longer than 0.5 s and was stopped"),
        (["no-such-command"], 120, "no-such-command cannot be run"),
    ):
        write_job(place, hooks={"command": command, "timeout": timeout})
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
    assert failed["url"].startswith("http://127.0.0.1:")


@pytest.mark.parametrize("path", ["hook?token=SECRET", "SECRET/\x7f", "SECRET hook"])
def test_hooks__tokens_of_addresses_are_kept_from_others(place: Path, path: str) -> None:
    job = write_job(place, hooks={"url": f"http://user:SECRET@127.0.0.1:9/{path}", "timeout": 5})
    failed = run_job(read_job(job))["failed_hooks"]["url"]
    assert failed.startswith("http://127.0.0.1:")
    # Whoever may read a file that has the address is its owner alone.
    holding = [file for file in (place / "out").rglob("*") if file.is_file() and b"SECRET" in file.read_bytes()]
    assert [file.name for file in holding] == ["job.json"]
    assert stat.S_IMODE(holding[0].stat().st_mode) == 0o600
    run_job(read_job(write_job(place)))
    assert stat.S_IMODE(holding[0].stat().st_mode) == stat.S_IMODE((place / "out/summary.json").stat().st_mode)


def test_hooks__secrets_of_a_command_are_kept_from_others(place: Path) -> None:
    run_job(read_job(write_job(place, hooks={"command": ["true", "--token", "SECRET"]})))
    assert stat.S_IMODE((place / "out/job.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(("error", "seconds"), [(OutOfTime, 2), (KeyboardInterrupt, 0.1)])
def test_hooks__of_a_job_that_was_stopped_have_two_seconds(
    place: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], seconds: float
) -> None:
    def stopped(*_: object) -> None:
        raise error

    monkeypatch.setattr(driver, "_run_steps", stopped)
    if seconds < 2:
        monkeypatch.setattr(driver, "_LAST_SECONDS", seconds)
    with pytest.raises(error):
        run_job(read_job(write_job(place, hooks={"command": ["sleep", "60"], "timeout": 60})))
    assert f"took longer than {seconds} s" in summary_of(place)["failed_hooks"]["command"]


def test_metrics__names_are_escaped() -> None:
    text = _metrics_text({"job": 'a"b\\c\nd', "exit_code": 6, "changed": True})
    assert 'plmix_job_exit_code{job="a\\"b\\\\c\\nd"} 6' in text.splitlines()
    assert all(re.fullmatch(r'#.*|plmix_job_\w+\{job=".*"\} [-+.\de]+', line) for line in text.splitlines())
