"""deploy/dagster and deploy/airflow, each run by its orchestrator in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import plmix_dist as pl
from tests.helpers.plmix_processes import example_job

ROOT = Path(__file__).parents[2]

MATERIALISE = """
import json, sys
import dagster
from plmix_asset import definitions, plackett_luce_model

assert definitions.resolve_job_def("plackett_luce_nightly")
result = dagster.materialize([plackett_luce_model], raise_on_error=False)
(events,) = [result.asset_materializations_for_node("plackett_luce_model")] if result.success else [[]]
print(json.dumps({"success": result.success, "metadata": {
    name: value.value for event in events for name, value in event.metadata.items()}}))
"""


def environment_with(package: str, folder: Path) -> Path:
    """The programs of a new environment that has a package; skips where it cannot be installed."""
    # One that was made before, such as PLMIX_TEST_DAGSTER=/path/of/an/environment, saves minutes.
    given = os.environ.get(f"PLMIX_TEST_{package.rpartition('-')[2].upper()}")
    if given:
        return Path(given) / "bin"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin/python", "-m", "pip", "install", "--quiet", package]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{package} cannot be installed: {done.stderr[-200:]}")
    return folder / "bin"


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The environment that the READMEs ask for."""
    pl.simulate(tmp_path / "rankings", n_rankings=2000, n_items=5, n_components=2, random_state=1)
    program = tmp_path / "plmix"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {sys.executable} -m plmix_dist "$@"\n')
    program.chmod(0o755)
    names = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return names | {
        "PLMIX": str(program),
        "PLMIX_STORE": str(tmp_path / "rankings"),
        "PLMIX_JOB": str(example_job(tmp_path, components=2)),
    }


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_dagster__materialises_the_asset(tmp_path: Path, variables: dict[str, str]) -> None:
    programs = environment_with("dagster", tmp_path / "dagster")

    def materialise() -> str:
        done = subprocess.run(
            [programs / "python", "-c", MATERIALISE],
            cwd=ROOT / "deploy/dagster",
            env=variables | {"DAGSTER_HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = materialise()
    assert '"success": true' in said
    assert '"converged": true' in said
    assert pl.PlackettLuceMixture.load(tmp_path / "nightly/model").converged_
    variables["PLMIX_JOB"] = str(tmp_path / "nowhere.toml")
    assert '"success": false' in materialise()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_airflow__runs_the_dag(tmp_path: Path, variables: dict[str, str]) -> None:
    programs = environment_with("apache-airflow", tmp_path / "airflow")
    home = tmp_path / "home"
    home.mkdir()
    environment = variables | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "deploy/airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }

    def airflow(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [programs / "airflow", *words], env=environment, capture_output=True, text=True, check=False, cwd=home
        )

    made = airflow("db", "migrate")
    assert made.returncode == 0, made.stderr
    done = airflow("dags", "test", "plmix_nightly", "--dagfile-path", str(ROOT / "deploy/airflow/plmix_dag.py"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert pl.PlackettLuceMixture.load(tmp_path / "nightly/model").converged_
