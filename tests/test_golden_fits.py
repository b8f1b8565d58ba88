"""Fits of public data beside what other tools found: R PLMIX and R PlackettLuce.

The numbers come from a golden file computed with PLMIX 2.2.0 (mapPLMIX, flat prior, eps 1e-10) and
PlackettLuce 0.3.2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fit_oracle import block_of
from numpy.testing import assert_allclose

from plmix_dist import PlackettLuceMixture, ingest
from plmix_dist.errors import NotIdentifiedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.store import RankingStore

SHARED = Path(__file__).resolve().parents[2] / "shared"
GOLDEN = SHARED / "golden" / "other_tools.json"

pytestmark = [
    pytest.mark.promise(27),
    pytest.mark.skipif(
        not (GOLDEN.is_file() and (SHARED / "data").is_dir()),
        reason="the real rankings and their golden fits are not beside the repository (../shared)",
    ),
]

KINDS: dict[str, Any] = {"apa1980": "below", "german": None, "nascar2002": "absent"}
BOTH = pytest.mark.parametrize("m_step", ["lsr", "mm"])


def golden(data: str, **found_by: Any) -> dict[str, Any]:
    """What another tool found for a data set, with its worths as an array (components, items)."""
    records = json.loads(GOLDEN.read_text())["values"]
    (record,) = [
        one
        for one in records
        if one["data"] == data and all(one.get(key) == value for key, value in found_by.items())
    ]
    return record | {"worths": np.atleast_2d(record["worths"])}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RankingStore]:
    folder = tmp_path_factory.mktemp("golden")
    return {
        name: ingest(SHARED / f"data/{name}/{name}.csv", folder / name, unranked=unranked)
        for name, unranked in KINDS.items()
    }


def worths_of(model: PlackettLuceMixture) -> NDArray[np.float64]:
    """Worths that sum to one in each component, items in the order of their numbers."""
    order = np.argsort([int(name) for name in model.item_names_])
    worths = np.exp(model.log_worths_[:, order])
    return worths / worths.sum(axis=1, keepdims=True)


@BOTH
@pytest.mark.parametrize("data", ["apa1980", "german"])
def test_one_component__plmix(stores: dict[str, RankingStore], data: str, m_step: Any) -> None:
    known = golden(data, K=1)
    model = PlackettLuceMixture(1, alpha=0, m_step=m_step, tol=1e-10).fit(stores[data])
    assert stores[data].total_weight == known["rankings"]
    # PLMIX stops a little short of the maximum: no lower, and no higher than its digits allow.
    assert model.log_likelihood_ >= known["log_likelihood"] - 1e-6
    assert model.log_likelihood_ == pytest.approx(known["log_likelihood"], abs=1e-4)
    assert model.gradient_norm_ < 1e-8
    assert_allclose(worths_of(model), known["worths"], atol=2e-6)


@pytest.mark.parametrize("m_step", ["lsr", "mm"])
def test_two_components__plmix(stores: dict[str, RankingStore], m_step: Any) -> None:
    known = golden("apa1980", K=2)
    fits = PlackettLuceMixture(2, alpha=0, m_step=m_step, n_init=3, random_state=0).fit(stores["apa1980"])
    assert fits.log_likelihood_ >= known["log_likelihood"]
    assert fits.log_likelihood_ == pytest.approx(known["log_likelihood"], abs=1e-3)
    assert fits.gradient_norm_ < 1e-8
    assert_allclose(worths_of(fits), known["worths"], atol=5e-4)
    assert_allclose(fits.shares_, known["shares"], atol=5e-4)


@BOTH
def test_prior__pseudo_rankings_of_plackett_luce(stores: dict[str, RankingStore], m_step: Any) -> None:
    # Half a win and half a loss of every driver against a ghost is what npseudo = 0.5 means.
    known = golden("nascar2002", npseudo=0.5)
    model = PlackettLuceMixture(1, alpha=0.5, m_step=m_step, tol=1e-10, max_iter=2_000).fit(
        stores["nascar2002"]
    )
    assert model.log_likelihood_ == pytest.approx(known["log_likelihood"], abs=1e-6)
    assert_allclose(worths_of(model), known["worths"], atol=1e-6)


@BOTH
def test_no_prior__without_drivers_who_never_win(stores: dict[str, RankingStore], m_step: Any) -> None:
    known = golden("nascar2002 without drivers 84-87")
    store = stores["nascar2002"]
    names = store.item_names
    rows = []
    for row in store.block().rows():
        places = tuple((int(names[item]) - 1,) for (item,) in row.ordered)
        rows.append(row._replace(ordered=tuple(place for place in places if place[0] < 83)))
    model = PlackettLuceMixture(1, alpha=0, m_step=m_step, tol=1e-10, max_iter=2_000).fit(block_of(rows, 83))
    assert model.log_likelihood_ == pytest.approx(known["log_likelihood"], abs=1e-6)
    assert_allclose(worths_of(model), known["worths"], atol=1e-6)


@pytest.mark.promise(22)
def test_no_prior__drivers_who_never_win_are_named(stores: dict[str, RankingStore]) -> None:
    with pytest.raises(
        NotIdentifiedError, match=r"5 groups .*never above another item: (84|85|86|87)"
    ) as caught:
        PlackettLuceMixture(1, alpha=0).fit(stores["nascar2002"])
    named = str(caught.value).split("never above another item: ")[1].split(")")[0].split(", ")
    assert sorted(named) == ["84", "85", "86", "87"]
