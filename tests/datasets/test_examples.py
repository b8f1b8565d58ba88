"""Made-up rankings with names: always the same, in Python and from the shell."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import plmix_dist as plm
from plmix_dist.cli import plmix
from plmix_dist.datasets.examples import _TASTES
from plmix_dist.errors import SettingsError
from tests.helpers import cli_helpers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.cli_helpers import Said

shell = cli_helpers.shell


def test_drinks__two_tastes_that_a_fit_finds() -> None:
    people = plm.example("drinks")
    assert people == plm.example()
    assert {len(row) for row in people} == {3, 4, 5}
    model = plm.PlackettLuceMixture(2, unranked="below", random_state=0).fit(people)
    assert model.shares_ == pytest.approx([0.6, 0.4], abs=0.05)
    for worths, taste in zip(model.log_worths_, _TASTES, strict=True):
        places = [model.item_names_.index(name) for name in taste]
        # The truth: log-worths that fall by 0.7 from each drink to the next.
        assert np.polyfit(np.arange(8), worths[places], 1)[0] == pytest.approx(-0.7, abs=0.1)


def test_unknown__is_named() -> None:
    with pytest.raises(SettingsError, match=r"name must be drinks, but is 'drink'; did you mean 'drinks'\?"):
        plm.example("drink")


def test_verb__writes_the_same_people_once(shell: Callable[..., Said]) -> None:
    assert list(plmix.commands["example"].params[0].type.choices) == ["drinks"]  # type: ignore[attr-defined]
    said = shell("example", "drinks")
    assert said.line("example") == "600 rankings to drinks.csv"
    with open("drinks.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["id", "choice1", "choice2", "choice3", "choice4", "choice5"]
    assert [[cell for cell in row[1:] if cell] for row in rows[1:]] == plm.example("drinks")
    assert [row[0] for row in rows[1:]] == [str(number) for number in range(1, 601)]
    command = said.line("next").split()
    assert command[0] == "plmix"
    read = shell(*command[1:])
    assert read.line("rankings") == "600 of 8 items"
    assert "guess" not in read.out
    assert "drinks.csv exists already" in shell("example", "drinks", code=1).err
    shell("example", "drinks", "--force")
    shell("example", "drinks", "people.csv")
    assert Path("people.csv").read_bytes() == Path("drinks.csv").read_bytes()
