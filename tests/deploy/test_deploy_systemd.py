"""deploy/systemd and deploy/cron: units are understood by systemd, and their commands run as the README says."""

from __future__ import annotations

import configparser
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from string import Template
from typing import TYPE_CHECKING

import pytest

import plmix_dist as pl
from plmix_dist.cluster.tls import write_certificates
from tests.helpers import plmix_processes
from tests.helpers.plmix_processes import PLMIX, ROOT, Started, example_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SYSTEMD = ROOT / "deploy/systemd"
UNITS = sorted(path for path in SYSTEMD.iterdir() if path.suffix in (".service", ".timer"))
start = plmix_processes.start  # the fixture that starts processes


def installed(tmp_path: Path) -> list[Path]:
    """The units, with a program where they expect one."""
    program = tmp_path / "opt/bin/plmix"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copies = [tmp_path / path.name for path in UNITS]
    for path, copy in zip(UNITS, copies, strict=True):
        copy.write_text(path.read_text().replace("/opt/plmix/bin/plmix", str(program)))
    return copies


def verified(*paths: Path) -> str:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@needs_systemd
def test_units__systemd_has_nothing_to_say(tmp_path: Path) -> None:
    # The exit code is 0 also where a key is unknown: any output counts.
    copies = installed(tmp_path)
    assert verified(*copies) == ""
    wrong = tmp_path / "wrong.service"
    wrong.write_text(copies[0].read_text().replace("TimeoutStopSec=", "TimeoutStpoSec="))
    assert "TimeoutStpoSec" in verified(wrong)


@needs_systemd
def test_timer__next_night() -> None:
    when = unit("plmix-job.timer")["Timer"]["OnCalendar"]
    done = subprocess.run(
        ["systemd-analyze", "calendar", when], capture_output=True, text=True, check=True, env={"TZ": "UTC"}
    )
    assert " 02:30:00" in next(line for line in done.stdout.splitlines() if "Next elapse" in line)


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=["="])
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(SYSTEMD / name)
    return parser


def settings(name: str) -> dict[str, str]:
    """What a file of the form NAME=VALUE says."""
    lines = (SYSTEMD / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def command(name: str, environment: dict[str, str]) -> list[str]:
    """The ExecStart line of a unit as systemd would run it, by this Python."""
    words = shlex.split(unit(name)["Service"]["ExecStart"])
    assert words[0] == "/opt/plmix/bin/plmix"
    return [*PLMIX, *(Template(word).substitute(environment) for word in words[1:])]


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@pytest.mark.full
@pytest.mark.process
def test_commands__scheduler_two_workers_and_a_job_over_tls(start: Callable[..., Started], tmp_path: Path) -> None:
    write_certificates(tmp_path / "tls")
    pl.simulate(tmp_path / "rankings", n_rankings=3000, n_items=5, n_components=1, random_state=1)
    environment = settings("cluster.env") | settings("job.env")
    assert set(environment) == {f"PLMIX_{name}" for name in ["HOST", "PORT", "DASHBOARD", "THREADS", "MEMORY", "JOB"]}
    environment |= {
        "CREDENTIALS_DIRECTORY": str(tmp_path / "tls"),
        "PLMIX_PORT": free_port(),
        "PLMIX_DASHBOARD": "127.0.0.1:0",
        "PLMIX_JOB": str(example_job(tmp_path, components=1)),
    }
    scheduler = start(*command("plmix-scheduler.service", environment))
    # The README starts all at once: workers wait for their scheduler.
    workers = [start(*command("plmix-worker@.service", environment)) for _ in range(2)]
    assert scheduler.says("scheduler") == f"tls://127.0.0.1:{environment['PLMIX_PORT']}"
    for worker in workers:
        worker.says("workers")
    job = start(*command("plmix-job.service", environment))
    assert job.ends() == 0, job.errors
    assert pl.PlackettLuceMixture.load(tmp_path / "nightly/model").converged_
    again = start(*command("plmix-job.service", environment))
    assert again.says("nothing to do")
    assert again.ends() == 0
    workers[0].told(signal.SIGTERM)  # systemctl stop
    assert workers[0].ends() == 0
    scheduler.told(signal.SIGKILL)
    assert workers[1].ends() == 1  # which is no success: systemd starts it again
    assert unit("plmix-worker@.service")["Service"]["Restart"] == "always"


@pytest.mark.full
@pytest.mark.process
def test_cron_line__runs(tmp_path: Path) -> None:
    lines = (ROOT / "deploy/cron/plmix.cron").read_text().splitlines()
    (line,) = [line for line in lines if line[:1].isdigit()]
    *_, user, job = line.split(maxsplit=6)
    assert user == "plmix"
    assert "%" not in job  # cron would make a line break of it
    pl.simulate(tmp_path / "rankings", n_rankings=500, n_items=4, n_components=1, random_state=1)
    example_job(tmp_path, components=1)
    for found, meant in (
        ("/opt/plmix/bin/plmix", shlex.join([sys.executable, "-m", "plmix_dist"])),
        ("/var/lib/plmix", str(tmp_path)),
        ("--workers 2", "--workers 0"),
    ):
        assert found in job
        job = job.replace(found, meant)
    done = subprocess.run(["/bin/sh", "-c", job], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "nightly/model/model.json").exists()
    assert (tmp_path / "nightly/report.html").exists()
