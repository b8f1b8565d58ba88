"""deploy/slurm against a real slurmctld and slurmd on loopback: a job, its requeue, scancel, and dask-jobqueue."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
import pytest

import plmix_dist as pl
from plmix_dist.cluster.tls import write_certificates
from tests.helpers.plmix_processes import example_job

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SLURM = ROOT / "deploy/slurm"
MISSING = [name for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun") if shutil.which(name) is None]

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""

# Stands for a fit that takes hours, the first time that it runs in a job.
PROGRAM = """#!/bin/bash
echo "$1 $$ ${{SLURM_RESTART_COUNT:-0}}" >> {folder}/begun
if [ "$1" = run ] && [ -e {folder}/slow ] && [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then exec sleep 600; fi
exec {python} -m plmix_dist "$@"
"""


class Slurm(NamedTuple):
    """A cluster of one node, and a folder for its files."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: object) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=self.environment, cwd=self.folder)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def submit(self) -> str:
        small = ["--nodes=1", "--cpus-per-task=1", "--mem=2000", "--time=10"]
        output = f"--output={self.folder}/output-%j"
        return self.run("sbatch", "--parsable", output, *small, SLURM / "plmix.sbatch")

    def state(self, job: str) -> str:
        return self.field(job, "JobState")

    def field(self, job: str, name: str) -> str:
        words = dict(word.split("=", 1) for word in self.run("scontrol", "show", "job", job).split() if "=" in word)
        return words[name]

    def waits_for(self, job: str, state: str, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while (found := self.state(job)) != state:
            assert time.monotonic() < end, f"job {job} is {found}, not {state}: {self.output(job)}"
            assert found in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", state), self.output(job)
            time.sleep(0.5)

    def output(self, job: str) -> str:
        path = self.folder / f"output-{job}"
        return path.read_text() if path.exists() else "(nothing)"

    def begun(self, verb: str, seconds: float = 60) -> list[str]:
        """The process ids of a verb that jobs have started."""
        end, path = time.monotonic() + seconds, self.folder / "begun"
        while True:
            lines = path.read_text().splitlines() if path.exists() else []
            if found := [line.split()[1] for line in lines if line.startswith(f"{verb} ")]:
                return found
            assert time.monotonic() < end, f"no {verb} was started"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if MISSING or os.geteuid() != 0:
        pytest.skip(f"needs root, and slurm-wlm and munge (missing: {', '.join(MISSING) or 'nothing'})")
    folder = tmp_path_factory.mktemp("slurm")
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o755)  # munge refuses a key that others could replace
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    host, ports = socket.gethostname().split(".")[0], free_ports(2)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, ports=ports, folder=folder))
    (folder / "plmix").write_text(PROGRAM.format(folder=folder, python=sys.executable))
    (folder / "plmix").chmod(0o755)
    write_certificates(folder / "tls")
    pl.simulate(folder / "rankings", n_rankings=3000, n_items=5, n_components=2, random_state=1)
    environment = os.environ | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PYTHONPATH": str(ROOT),
        "PLMIX": str(folder / "plmix"),
        "PLMIX_TLS": str(folder / "tls"),
        "PLMIX_HOST": "127.0.0.1",
        "PLMIX_JOB": str(example_job(folder, components=2)),
    }
    socket_path = f"--socket={folder}/munge.socket"
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    commands = [
        ["munged", "--foreground", "--force", socket_path, *files],
        ["slurmctld", "-D", "-c"],
        ["slurmd", "-D", "-N", host],
    ]
    daemons: list[subprocess.Popen[bytes]] = []
    cluster = Slurm(folder, environment)
    try:
        for command in commands:
            with (folder / f"{command[0]}.out").open("w") as log:
                daemons.append(
                    subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
                )
            time.sleep(1)
        wait_for_node(cluster)
        yield cluster
    finally:
        end_jobs(cluster)
        for daemon in reversed(daemons):  # slurmd still talks to slurmctld, and both to munged
            daemon.terminate()
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def end_jobs(cluster: Slurm) -> None:
    """Cancel what is left and wait until it is gone, for half a minute at most."""
    subprocess.run(["scancel", "--user=root"], env=cluster.environment, check=False)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        left = subprocess.run(["squeue", "--noheader"], env=cluster.environment, capture_output=True, check=False)
        if not left.stdout.strip():
            return
        time.sleep(0.5)


def wait_for_node(cluster: Slurm) -> None:
    end = time.monotonic() + 60
    while True:
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, env=cluster.environment
        )
        if done.stdout.strip() == "idle":
            return
        logs = [path.read_text()[-500:] for path in cluster.folder.glob("*.log")]
        assert time.monotonic() < end, f"{done.stdout} {done.stderr} {logs}"
        time.sleep(0.5)


def free_ports(number: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


def test_script__shellcheck() -> None:
    program = Path(sys.executable).parent / "shellcheck"
    if not program.exists():
        pytest.skip("shellcheck is not installed: pip install --group deploy")
    done = subprocess.run([program, SLURM / "plmix.sbatch"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_job__runs_and_goes_back_into_the_queue_when_its_time_is_over(slurm: Slurm) -> None:
    (slurm.folder / "slow").touch()
    job = slurm.submit()
    slurm.begun("run")
    slurm.begun("worker")
    # What Slurm does before the walltime ends, by hand: it looks at the clock twice a minute.
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    end = time.monotonic() + 120
    while slurm.field(job, "Restarts") != "1":
        assert time.monotonic() < end, slurm.output(job)
        time.sleep(0.5)
    # A job that was put back waits two minutes by default; nobody else wants the node.
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    slurm.waits_for(job, "COMPLETED", 240)
    assert f"out of time; job {job} goes back into the queue" in slurm.output(job)
    assert pl.PlackettLuceMixture.load(slurm.folder / "nightly/model").converged_


@pytest.mark.slow
def test_job__scancel_ends_everything_for_good(slurm: Slurm) -> None:
    (slurm.folder / "slow").touch()
    (slurm.folder / "begun").unlink(missing_ok=True)
    job = slurm.submit()
    started = [int(pid) for verb in ("run", "scheduler", "worker") for pid in slurm.begun(verb)]
    slurm.run("scancel", job)
    slurm.waits_for(job, "CANCELLED")
    end = time.monotonic() + 60
    while left := [pid for pid in started if psutil.pid_exists(pid)]:
        assert time.monotonic() < end, left
        time.sleep(0.5)
    assert slurm.field(job, "Restarts") == "0"


@pytest.mark.slow
def test_jobqueue__fits_over_tls_and_survives_a_worker_that_was_cancelled(slurm: Slurm) -> None:
    pytest.importorskip("dask_jobqueue", reason="not installed: pip install --group deploy")
    environment = slurm.environment | {"PLMIX_INTERFACE": "lo", "PLMIX_THREADS": "1", "PLMIX_MEMORY": "1GB"}
    environment |= {"PLMIX_LOGS": str(slurm.folder / "logs"), "PLMIX_WAIT": "200"}
    model, logs = slurm.folder / "by-jobqueue", slurm.folder / "logs"
    words = [sys.executable, SLURM / "fit_on_slurm.py", slurm.folder / "rankings", "2", model]
    with subprocess.Popen(words, env=environment, cwd=slurm.folder, stderr=subprocess.PIPE, text=True) as script:
        end = time.monotonic() + 200
        while not (joined := [path for path in logs.glob("*.err") if "Registered to" in path.read_text()]):
            assert time.monotonic() < end, "no worker has come"
            time.sleep(0.2)
        slurm.run("scancel", joined[0].stem.rpartition("-")[2])
        _, said = script.communicate(timeout=240)
    assert script.returncode == 0, said
    assert pl.PlackettLuceMixture.load(model).converged_
    said = "".join(path.read_text() for path in logs.iterdir())
    assert "tls://" in said
    assert "tcp://" not in said
