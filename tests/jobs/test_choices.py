"""What the choices of a row are, said to verbs and jobs: slates of a file, best and worst."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from plmix_dist import PlackettLuceMixture, Slates
from tests.helpers.cli_helpers import Said

Shell = Callable[..., Said]
ROWS = np.array([np.random.default_rng(row).permutation(4) for row in range(300)])


def test_slates_of_a_file__another_content_is_another_model(tmp_path: Path, shell: Shell) -> None:
    np.savetxt(tmp_path / "rows.csv", ROWS, "%d", delimiter=",", header="a,b,c,d", comments="")
    shell("ingest", "rows.csv", "store", "--format", "wide")
    place = tmp_path / "slates.json"
    place.write_text(json.dumps({"l": ["0", "1"], "r": ["2", "3"]}))
    command = ["fit", "store", "--components", 1, "--choices", "slates.json", "--out", "model"]
    shell(*command)
    assert "nothing to do" in shell(*command).out
    assert "memberships" in shell("predict", "model", "store", "who.csv").out
    place.write_text(json.dumps({"l": ["0", "2"], "r": ["1", "3"]}))
    assert "already holds another model" in shell(*command, code=1).err
    shell(*command, "--force")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/slates.json").write_text(json.dumps({"l": ["0"], "r": ["1", "2", "3"]}))
    lines = [
        'data.store = "../store"',
        "model.components = 1",
        'model.choices = "slates.json"',
        'outputs.folder = "out"',
    ]
    (tmp_path / "jobs/job.toml").write_text("\n".join([*lines, "outputs.report = true", "outputs.memberships = true"]))
    shell("run", "jobs/job.toml")
    choices = PlackettLuceMixture.load(tmp_path / "jobs/out/model").choices
    assert choices == Slates({"l": ["0"], "r": ["1", "2", "3"]})
    (tmp_path / "jobs/slates.json").unlink()
    assert "is no JSON with the items of each slate" in shell("run", "jobs/job.toml", code=2).err


def test_predict__of_best_and_worst_as_in_python(tmp_path: Path, shell: Shell) -> None:
    lines = ["person,item_1,item_2,item_3,item_4,best,worst"]
    lines += [f"{row},a,b,c,d,{best},{worst}" for row, (best, worst) in enumerate(["ad", "bc", "ac", "bd"] * 9)]
    (tmp_path / "sets.csv").write_text("\n".join(lines))
    shell("ingest", "sets.csv", "store", "--format", "best-worst")
    for choices in ("best-worst", "maxdiff"):
        shell("fit", "store", "--components", 1, "--choices", choices, "--out", choices)
        assert "36 memberships" in shell("predict", choices, "store", f"{choices}.csv").out
        assert "report" in shell("report", choices, "--data", "store").out
        assert "a check of fit is not made of models with features" in shell("check", choices, "store", code=1).err
