"""Fits beside what other tools found: choix and SciPy on an election of our own making, R on public data.

The election is in tests/data. Of R PLMIX and R PlackettLuce, log-likelihoods and short lists of worths are quoted here;
the worths of 87 drivers are in a golden file beside the repository.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from plmix_dist import PlackettLuceMixture, ingest
from plmix_dist.errors import NotIdentifiedError
from tests.helpers.fit_oracle import block_of
from tests.helpers.golden import ELECTION, FITS, NAMES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.store import RankingStore

SHARED = Path(__file__).resolve().parents[3] / "shared"
GOLDEN = SHARED / "golden" / "other_tools.json"

pytestmark = pytest.mark.promise(27)

# What mapPLMIX of R PLMIX 2.2.0 found, with a flat prior and eps 1e-10, by data and number of components.
OF_PLMIX: dict[tuple[str, int], dict[str, Any]] = {
    ("apa1980", 1): {
        "rankings": 15_449,
        "log_likelihood": -51598.3063625062,
        "worths": [[0.23165121152, 0.17586299133, 0.20706440152, 0.18764838182, 0.19777301381]],
    },
    ("apa1980", 2): {
        "rankings": 15_449,
        "log_likelihood": -50377.7691180507,
        "shares": [0.70509003749, 0.29490996251],
        "worths": [
            [0.17485473183, 0.188197065, 0.11672615851, 0.26745967784, 0.25276236683],
            [0.27472925342, 0.060099658081, 0.59822678557, 0.026397904664, 0.040546398264],
        ],
    },
    ("german", 1): {
        "rankings": 2_262,
        "log_likelihood": -6957.6231970514,
        "worths": [[0.33405126397, 0.29348287364, 0.20878570411, 0.16368015828]],
    },
}
# The log-likelihoods that R PlackettLuce 0.3.2 found, by data; pseudo-rankings are left out.
OF_PLACKETT_LUCE = {"nascar2002": -4193.59234141074, "nascar2002 without drivers 84-87": -4191.09728459726}

KINDS: dict[str, Any] = {"apa1980": "below", "german": None, "nascar2002": "absent"}
OWN = json.loads(FITS.read_text())["fits"]
BOTH = pytest.mark.parametrize("m_step", ["lsr", "mm"])


def worths_in_file(data: str) -> NDArray[np.float64]:
    """The worths that R PlackettLuce found, from the golden file: (1, n_items)."""
    (record,) = [one for one in json.loads(GOLDEN.read_text())["values"] if one["data"] == data]
    return np.atleast_2d(record["worths"])


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RankingStore]:
    if not (GOLDEN.is_file() and (SHARED / "data").is_dir()):
        pytest.skip("the real rankings and their golden fits are not beside the repository (../shared)")
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
@pytest.mark.parametrize("known", OWN, ids=lambda known: f"{known['components']} by {known['tool']}")
def test_own_election__choix_and_scipy(tmp_path: Path, known: dict[str, Any], m_step: Any) -> None:
    store = ingest(ELECTION, tmp_path / "store", unranked="below")
    model = PlackettLuceMixture(known["components"], alpha=0, m_step=m_step, n_init=3, tol=1e-10, random_state=0).fit(
        store
    )
    assert model.log_likelihood_ == pytest.approx(known["log_likelihood"], abs=1e-5)
    order = [store.item_names.index(name) for name in NAMES]
    worths = np.exp(model.log_worths_[:, order])
    assert_allclose(worths / worths.sum(axis=1, keepdims=True), known["worths"], atol=1e-4)
    assert_allclose(model.shares_, known["shares"], atol=1e-4)


@BOTH
@pytest.mark.parametrize("data", ["apa1980", "german"])
def test_one_component__plmix(stores: dict[str, RankingStore], data: str, m_step: Any) -> None:
    known = OF_PLMIX[data, 1]
    model = PlackettLuceMixture(1, alpha=0, m_step=m_step, tol=1e-10).fit(stores[data])
    assert stores[data].total_weight == known["rankings"]
    # PLMIX stops a little short of the maximum: no lower, and no higher than its digits allow.
    assert model.log_likelihood_ >= known["log_likelihood"] - 1e-6
    assert model.log_likelihood_ == pytest.approx(known["log_likelihood"], abs=1e-4)
    assert model.gradient_norm_ < 1e-8
    assert_allclose(worths_of(model), known["worths"], atol=2e-6)


@pytest.mark.parametrize("m_step", ["lsr", "mm"])
def test_two_components__plmix(stores: dict[str, RankingStore], m_step: Any) -> None:
    known = OF_PLMIX["apa1980", 2]
    fits = PlackettLuceMixture(2, alpha=0, m_step=m_step, n_init=3, random_state=0).fit(stores["apa1980"])
    assert fits.log_likelihood_ >= known["log_likelihood"]
    assert fits.log_likelihood_ == pytest.approx(known["log_likelihood"], abs=1e-3)
    assert fits.gradient_norm_ < 1e-8
    assert_allclose(worths_of(fits), known["worths"], atol=5e-4)
    assert_allclose(fits.shares_, known["shares"], atol=5e-4)


@BOTH
def test_prior__pseudo_rankings_of_plackett_luce(stores: dict[str, RankingStore], m_step: Any) -> None:
    # Half a win and half a loss of every driver against a ghost is what npseudo = 0.5 means.
    model = PlackettLuceMixture(1, alpha=0.5, m_step=m_step, tol=1e-10, max_iter=2_000).fit(stores["nascar2002"])
    assert model.log_likelihood_ == pytest.approx(OF_PLACKETT_LUCE["nascar2002"], abs=1e-6)
    assert_allclose(worths_of(model), worths_in_file("nascar2002"), atol=1e-6)


@BOTH
def test_no_prior__without_drivers_who_never_win(stores: dict[str, RankingStore], m_step: Any) -> None:
    store = stores["nascar2002"]
    names = store.item_names
    rows = []
    for row in store.block().rows():
        places = tuple((int(names[item]) - 1,) for (item,) in row.ordered)
        rows.append(row._replace(ordered=tuple(place for place in places if place[0] < 83)))
    model = PlackettLuceMixture(1, alpha=0, m_step=m_step, tol=1e-10, max_iter=2_000).fit(block_of(rows, 83))
    assert model.log_likelihood_ == pytest.approx(OF_PLACKETT_LUCE["nascar2002 without drivers 84-87"], abs=1e-6)
    assert_allclose(worths_of(model), worths_in_file("nascar2002 without drivers 84-87"), atol=1e-6)


@pytest.mark.promise(22)
def test_no_prior__drivers_who_never_win_are_named(stores: dict[str, RankingStore]) -> None:
    with pytest.raises(NotIdentifiedError, match=r"5 groups .*never above another item: (84|85|86|87)") as caught:
        PlackettLuceMixture(1, alpha=0).fit(stores["nascar2002"])
    named = str(caught.value).split("never above another item: ")[1].split(")")[0].split(", ")
    assert sorted(named) == ["84", "85", "86", "87"]
