"""Slates that nobody has named are found, with what is known of how sure they are."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import MixtureSelection, PlackettLuceMixture, RankingBlock, Slates
from plmix_dist.errors import SettingsError, StartWarning
from plmix_dist.fitting import linear_fit
from plmix_dist.models import slates as module

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SLATE_OF = np.array([0, 1, 0, 1, 1, 0])
FOUND = {"slate 1": ("0", "2", "5"), "slate 2": ("1", "3", "4")}


def ballots(n: int, cohesion: float, seed: int = 0) -> NDArray[np.int64]:
    """Orders of two blocs, each of which draws its own slate with this probability while both have items left."""
    rng = np.random.default_rng(seed)
    log_worths = np.log([[0.5, 0.2, 0.3, 0.5, 0.3, 0.2], [0.2, 0.4, 0.5, 0.4, 0.2, 0.3]])
    rows = []
    for bloc in (rng.random(n) < 0.35).astype(int).tolist():
        order = np.argsort(-(log_worths[bloc] + rng.gumbel(size=6)))
        left = [order[SLATE_OF[order] == slate].tolist() for slate in (0, 1)]
        row = []
        while left[0] or left[1]:
            slate = bloc if rng.random() < cohesion else 1 - bloc
            row.append(left[slate if left[slate] else 1 - slate].pop(0))
        rows.append(row)
    return np.array(rows)


def fitted(rows: Any, **settings: Any) -> tuple[PlackettLuceMixture, str]:
    """A fit whose slates are found, and what it says of them."""
    model = PlackettLuceMixture(2, choices=Slates(None), unranked="below", random_state=0, **settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows, client=False)
    (told,) = (str(one.message) for one in caught if one.category is StartWarning)
    return model, told


def test_slates__of_blocs_are_found_and_kept(tmp_path: Path) -> None:
    rows = ballots(600, 0.8)
    model, told = fitted(rows)
    assert model.init_["slates"]["slates"] == FOUND
    assert model.init_["slates"]["margin"] > np.log(20)
    assert f"lower by {model.init_['slates']['margin']:.3g} on 600 rankings; errors" in told
    named = PlackettLuceMixture(2, choices=Slates(FOUND), unranked="below", random_state=0).fit(rows, client=False)
    assert model.log_worths_.tobytes() == named.log_worths_.tobytes()
    assert model.cohesion_ is not None
    assert named.cohesion_ is not None
    assert model.cohesion_.tobytes() == named.cohesion_.tobytes()
    model.save(tmp_path / "model")
    loaded = PlackettLuceMixture.load(tmp_path / "model")
    assert loaded.choices == Slates(FOUND)
    assert loaded.score(rows) == model.score(rows)


def test_slates__that_are_not_sure_are_said_to_be_not() -> None:
    model, told = fitted(ballots(60, 0.65, seed=3)[:, :3])
    assert model.init_["slates"]["margin"] < np.log(20)
    assert "rankings, which is little; errors" in told


@pytest.mark.full
def test_slates__no_other_partition_that_differs_by_one_item_is_better() -> None:
    """All of them fitted as named ones: the margin is that of the best."""
    rows = ballots(150, 0.75, seed=1)
    model, _ = fitted(rows)
    about, objectives = model.init_["slates"], []
    partition = tuple(int(name in FOUND["slate 2"]) for name in "012345")
    assert about["slates"] == FOUND
    others = [one for one in module._neighbours(partition) if one != partition]
    for one in others:
        names = {str(slate): [str(item) for item in range(6) if one[item] == slate] for slate in set(one)}
        other = PlackettLuceMixture(2, choices=Slates(names), unranked="below", random_state=0).fit(rows, client=False)
        objectives.append(other.objective_)
    assert len({*others}) == len(others) == 12
    assert model.objective_ is not None
    assert about["margin"] == pytest.approx(model.objective_ - max(objectives), abs=1e-3)


@pytest.mark.full
def test_slates__by_word_by_person_and_for_every_number_of_blocs() -> None:
    rows = ballots(400, 0.8)
    block = RankingBlock.from_array(rows).replace(groups=np.repeat(np.arange(200), 2))
    template = PlackettLuceMixture(choices="slates", unranked="below")
    with pytest.warns(StartWarning, match="the slates were found"):
        found = MixtureSelection(range(1, 3), estimator=template, random_state=0).fit(block, client=False)
    assert [model.init_["slates"]["slates"] for model in found.estimators_.values()] == [FOUND, FOUND]


def test_slates__without_an_estimate_or_with_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="among three items or more"):
        PlackettLuceMixture(1, choices="slates", unranked="below").fit([["a", "b"], ["b", "a"]])
    with pytest.raises(SettingsError, match="noise=True does not go together"):
        PlackettLuceMixture(1, choices="slates", noise=True).fit(ballots(20, 0.8))
    with pytest.raises(SettingsError, match="take no features"):
        PlackettLuceMixture(1, choices="slates").fit(ballots(20, 0.8), item_features=np.arange(6.0)[:, None])
    end_on, calls = linear_fit.fit_linear, []

    def fails_later(*given: Any) -> Any:
        calls.append(given)
        if len(calls) > 3:
            raise module.FitError("no estimate")
        return end_on(*given)

    monkeypatch.setattr(module, "fit_linear", fails_later)
    model, _ = fitted(ballots(200, 0.8))
    assert model.init_["slates"]["slates"] == FOUND  # where the search began
    assert len(calls) > 5
