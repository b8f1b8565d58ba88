"""deploy/container: the image is built and a job runs in it; the compose file fits its schema, its commands parse."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import plmix_dist as pl
from plmix_dist.cli import plmix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
CONTAINER = ROOT / "deploy/container"
MISSING = [tool for tool in ("buildah", "debootstrap") if shutil.which(tool) is None]


def tool(name: str) -> str:
    """The path of a program of this environment; skips where it is not installed."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        pytest.skip(f"{name} is not installed: pip install --group deploy")
    return str(path)


def test_containerfile__hadolint() -> None:
    done = subprocess.run([tool("hadolint"), CONTAINER / "Containerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_compose__schema() -> None:
    check = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, CONTAINER / "compose.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_compose__commands_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]
    assert set(services) == {"scheduler", "worker", "job"}
    for service in services.values():
        assert service["read_only"] is True
        assert service["user"] == "10001:10001"
        assert understood(service["command"], tmp_path)


def understood(command: str, folder: Path) -> bool:
    """Whether plmix knows the verb and all options of a command line; files that it names are there."""
    words = shlex.split(command)
    for number, word in enumerate(words):
        if word.startswith("/run/secrets/"):
            words[number] = str(folder / Path(word).name)
            Path(words[number]).touch()
    with plmix.make_context("plmix", words, resilient_parsing=False) as context:
        name, verb, rest = plmix.resolve_command(context, words)
        assert verb is not None
        assert verb.make_context(name, rest, parent=context)
    return True


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Runs buildah with a storage of its own, in which there is a base of Debian with Python."""
    if MISSING or os.geteuid() != 0:
        pytest.skip(f"needs root, and these programs: {', '.join(MISSING) or 'all are there'}")
    folder = tmp_path_factory.mktemp("buildah")
    environment = os.environ | {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    def run(*arguments: object) -> str:
        command = ["buildah", "--root", folder / "storage", "--runroot", folder / "run", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    mirror = "http://deb.debian.org/debian"
    base = folder / "base"
    command = ["debootstrap", "--variant=minbase", "--include=python3-venv,ca-certificates", "bookworm", base]
    made = subprocess.run([*command, mirror], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"debootstrap finds no Debian: {made.stderr[-200:]}")
    container = run("from", "scratch")
    run("add", "--quiet", container, base, "/")
    run("commit", "--quiet", container, "localhost/base")
    run("rm", container)
    yield run
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the image installs, so that the build needs no index."""
    folder = tmp_path_factory.mktemp("wheels")
    needed = [f"{ROOT}[s3,dashboard]", "hatchling", "editables"]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder), *needed]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no wheels to be had: {made.stderr[-200:]}")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the wheels must fit Debian 12, which has Python 3.11")
def test_image__built_and_a_job_run_in_it(buildah: Callable[..., str], wheels: Path, tmp_path: Path) -> None:
    options: list[Any] = ["--build-arg", "BASE=localhost/base", "--volume", f"{wheels}:/wheels:ro"]
    options += ["--build-arg", "PIP_OPTIONS=--no-index --find-links /wheels"]
    buildah("build", "--quiet", "--network", "host", *options, "-t", "plmix", "-f", CONTAINER / "Containerfile", ".")
    container = buildah("from", "localhost/plmix")
    work = tmp_path / "work"
    work.mkdir()
    os.chown(work, 10001, 10001)
    tmp_path.chmod(0o755)

    def run(*command: str) -> str:
        # By a file: on a busy machine buildah may end before it has passed on what a command printed.
        into = ("sh", "-c", 'exec "$@" > /work/said', "sh")
        buildah("run", "--network", "host", "--volume", f"{work}:/work", container, "--", *into, *command)
        return (work / "said").read_text().strip()

    assert run("id", "-u") == "10001"
    # Kernels are in the image: nothing is compiled again, and this user could not write them.
    assert "compiled" in (said := run("plmix", "compile"))
    assert " 0 of " in said
    run("plmix", "simulate", "rankings", "--rankings", "5000", "--items", "6", "--components", "2")
    run("plmix", "fit", "rankings", "--components", "2", "--out", "model", "--workers", "2", "--quiet")
    assert pl.PlackettLuceMixture.load(work / "model").converged_
    assert {path.stat().st_uid for path in work.rglob("*")} == {10001}
    assert int(run("du", "-sm", "/opt/plmix").split()[0]) < 1000
    # Nothing but /work and /tmp can be written.
    assert run("sh", "-c", "touch /opt/plmix/x /etc/x 2>/dev/null; ls /opt/plmix/x /etc/x 2>/dev/null || true") == ""
