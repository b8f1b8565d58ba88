"""plmix select: what it writes and prints, what it leaves alone, and which ranges it refuses."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import plmix_dist as pl
from tests.helpers import cli_helpers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.cli_helpers import Said

    Shell = Callable[..., Said]

shell = cli_helpers.shell  # the fixture that runs a verb in a folder of its own
SELECT = ("select", "s", "--components", "1:2", "--tol", "1e-4", "--seed", "3", "--out")


def simulate() -> None:
    pl.simulate("s", n_rankings=300, n_items=4, n_components=2, random_state=5)


def test_select__writes_table_plot_and_model_once(shell: Shell) -> None:
    simulate()
    record = json.loads(shell(*SELECT, "d", "--json").out)
    template = pl.PlackettLuceMixture(tol=1e-4, random_state=3)
    found = pl.MixtureSelection((1, 2), estimator=template).fit("s", client=False)
    assert record["n_components"] == found.n_components_
    assert record["table"] == found.table_
    assert record["words"] == found.words_
    written = json.loads(Path("d/selection.json").read_text())
    assert written["n_components"] == record["n_components"]
    assert written["table"] == record["table"]
    model = pl.PlackettLuceMixture.load("d/model")
    assert np.array_equal(model.log_worths_, found.best_estimator_.log_worths_)
    pytest.importorskip("matplotlib")
    assert Path("d/plot.png").read_bytes().startswith(b"\x89PNG")

    # The same again does nothing; another one is refused, and --force replaces it.
    again = shell(*SELECT, "d")
    assert again.line("nothing to do").startswith("d already holds this selection")
    before = Path("d/selection.json").read_bytes()
    refused = shell(*SELECT, "d", "--criterion", "aic", code=1)
    assert "criterion is bic there and aic here" in refused.err
    assert Path("d/selection.json").read_bytes() == before
    said = shell(*SELECT, "d", "--criterion", "aic", "--force")
    assert "the lowest AIC" in said.out
    assert json.loads(Path("d/selection.json").read_text())["criterion"] == "aic"
    assert pl.PlackettLuceMixture.load("d/model").converged_

    # What stopped before the model was written is done again.
    Path("d/model/model.json").unlink()
    shell(*SELECT, "d", "--criterion", "aic", "--quiet")
    assert pl.PlackettLuceMixture.load("d/model").converged_


def test_select__says_again_that_the_chosen_fit_did_not_converge(shell: Shell) -> None:
    simulate()
    for changed in (True, False):
        said = shell(*SELECT, "d", "--max-iter", "1", "--json", code=4)
        assert json.loads(said.out)["changed"] is changed


def test_select__force_that_is_stopped_leaves_no_model_of_before(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    simulate()
    shell(*SELECT, "d")
    monkeypatch.setattr(importlib.import_module("plmix_dist.cli.select"), "_write_plot", stopped)
    shell(*SELECT, "d", "--alpha", "9", "--force", code=130)
    assert not Path("d/model/model.json").exists()


def test_select__leaves_other_files_alone(shell: Shell) -> None:
    simulate()
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    Path("models/model").mkdir(parents=True)
    pl.PlackettLuceMixture(1).fit("s", client=False).save("models/model")
    before = Path("models/model/model.json").read_bytes()
    for out, found in (("mine", "notes.txt"), ("models", "model"), ("models/model", "model"), ("s", "made from")):
        for force in ((), ("--force",)):
            assert found in shell(*SELECT, out, *force, code=1).err
    assert Path("models/model/model.json").read_bytes() == before
    assert Path("mine/notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("5:2", "did you mean 2:5?"),
        ("0:3", "at least 1 component"),
        ("2:", "write 2:10 for 2 to 10"),
        ("", "write 2:10"),
        ("two", "'two' is not a number of components"),
        ("-1:3", "write 2:10"),
    ],
)
def test_select__ranges_that_are_none(shell: Shell, given: str, message: str) -> None:
    said = shell("select", "s", f"--components={given}", "--out", "d", code=2)
    assert message in said.err
    assert not Path("d").exists()
