"""The recipes "How to add ..." of docs/architecture.md: what each adds works like what is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import plmix_dist as plm
from plmix_dist.cli import main, plmix
from plmix_dist.datasets.given import as_rankings
from plmix_dist.passes.dask import make_passes
from plmix_dist.settings.table import M_STEP_NAMES
from plmix_dist.solvers import M_STEPS
from plmix_dist.tables.registry import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client

    from plmix_dist.store import RankingStore

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
RANKINGS = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 20 + [[1, 0, 3, 2]] * 5


def recipes() -> dict[str, str]:
    """The Python of each recipe, by what it adds."""
    sections = re.findall(
        r"^## How to add (?:an? )?([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    return {
        name: "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)) for name, text in sections
    }


def follow(name: str) -> dict[str, Any]:
    """The names that a recipe defines."""
    names: dict[str, Any] = {"__name__": f"recipe_{name}"}
    exec(compile(recipes()[name], f"{PAGE.name}, {name}", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """What a recipe has added is removed again."""
    registries: tuple[dict[str, Any], ...] = (FORMATS, M_STEPS, plmix.commands)
    before, names = [dict(registry) for registry in registries], list(M_STEP_NAMES)
    yield
    M_STEP_NAMES[:] = names
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


def test_recipes__there_are_five() -> None:
    assert set(recipes()) == {"format", "M-step", "statistic", "start", "verb"}


def test_format__is_read_from_text_and_frames(tmp_path: Path) -> None:
    follow("format")
    source = tmp_path / "matches.csv"
    source.write_text("town,winner,lost\nRiga,tea,mate\nOslo,milk,tea\n")
    store = plm.ingest(source, tmp_path / "store", unranked="absent")
    assert [store.item_names[item] for item in store.block().items] == ["tea", "mate", "milk", "tea"]
    frame = pd.DataFrame({"lost": ["mate", "tea"], "winner": ["tea", "milk"]})
    assert as_rankings(frame, unranked="absent").source.block.items.tolist() == store.block().items.tolist()


def test_m_step__fits_a_mixture() -> None:
    follow("M-step")
    model = plm.PlackettLuceMixture(1, m_step="firsts", alpha=1.0).fit(RANKINGS)
    assert model.m_step_ == "firsts"
    # With one component its fixed point is known: log-frequencies of first places, one more for each item.
    expected = np.log(np.array([30, 5, 0, 20]) + 1.0)
    np.testing.assert_allclose(model.log_worths_[0], expected - expected.mean(), atol=1e-6)


def test_statistic__same_on_threads_and_on_a_cluster(client: Client) -> None:
    count = follow("statistic")["count_first_places"]
    for one in (None, client):
        assert count(make_passes(as_rankings(RANKINGS), one, "store")).tolist() == [30, 5, 0, 20]


def test_start__is_where_the_fit_begins() -> None:
    names = follow("start")
    start = names["mean_places"](np.array(RANKINGS), 2)
    assert start.shape == (2, 4)
    model = names["fit_from_mean_places"](RANKINGS, 2)
    again = plm.PlackettLuceMixture(2, init=start).fit(RANKINGS)
    assert model.converged_
    assert model.log_worths_.tobytes() == again.log_worths_.tobytes()


def test_verb__prints_lines_and_json(store: RankingStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    follow("verb")
    for options, shown in ([], "weight  1,500\n"), (["--json"], None):
        with pytest.raises(SystemExit) as end:
            main(["weigh", store.location.url, *options])
        assert end.value.code == 0
        printed = capsys.readouterr().out
        assert printed == shown if shown else json.loads(printed) == {"weight": 1_500.0}
    with pytest.raises(SystemExit) as end:
        main(["weigh", str(tmp_path / "nowhere")])
    assert end.value.code == 1
    assert "nowhere" in capsys.readouterr().err
