"""Ties that count half: the mean of the log-likelihoods of all orders, with one membership per row or person."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import plmix_dist as plm
from plmix_dist import PlackettLuceMixture, Ranking, RankingBlock
from plmix_dist.errors import ObjectiveWarning, SettingsError
from plmix_dist.rankings.block import concatenate
from plmix_dist.rankings.ties import extend_ties
from tests.helpers.battles import ELO, arena_battles, battles, golden

pytestmark = pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotIdentifiableWarning")


def _mean_log(row: Ranking, log_worths: Any) -> Any:
    """(n_components,): the mean of log Pr(order | component) over all orders of a row that lists its whole offer."""
    worths, logs = np.exp(log_worths), []
    for orders in product(*(permutations(place) for place in row.ordered)):
        order = [item for place in orders for item in place]
        logs.append(sum(np.log(worths[:, item] / worths[:, order[at:]].sum(axis=1)) for at, item in enumerate(order)))
    return np.mean(logs, axis=0)


def _objective(rows: list[Ranking], model: PlackettLuceMixture) -> tuple[float, Any]:
    joint = np.array([_mean_log(row, model.log_worths_) for row in rows]) + np.log(model.shares_)
    totals = np.logaddexp.reduce(joint, axis=1)
    return float(np.array([row.weight for row in rows]) @ totals), np.exp(joint - totals[:, None])


def _mixed_rows(seed: int = 0, n_rows: int = 120) -> list[Ranking]:
    """Rows of 2 to 5 of 5 items of two kinds of people; utilities are rounded, so any may tie; weights are not 1."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n_rows):
        items = rng.permutation(5)[: rng.integers(2, 6)]
        utilities = np.round((2.0 * (items - 2) * (-1 if number % 3 else 1) + rng.gumbel(size=len(items))) / 1.5)
        places = tuple(tuple(items[utilities == one].tolist()) for one in sorted(set(utilities), reverse=True))
        rows.append(Ranking(places, (), "absent", float(rng.integers(1, 4))))
    return rows


def test_half__objective_and_memberships_are_those_of_all_orders() -> None:
    rows = _mixed_rows()
    model = PlackettLuceMixture(2, ties=plm.Half(last="tie"), random_state=0, tol=1e-10).fit(
        RankingBlock.from_rows(rows, n_items=5)
    )
    expected, posteriors = _objective(rows, model)
    assert model.log_likelihood_ == pytest.approx(expected, rel=1e-12)
    block = RankingBlock.from_rows(rows, n_items=5)
    assert_allclose(model.predict_proba(block), posteriors, atol=1e-12)
    assert model.score(block) * block.total_weight == pytest.approx(expected, rel=1e-12)
    assert block.row_weights @ model.score_samples(block) == pytest.approx(expected, rel=1e-12)
    assert_allclose(posteriors.T @ block.row_weights / block.total_weight, model.shares_, atol=1e-8)


@pytest.mark.parametrize("m_step", ["mm", "lsr"])
def test_half__a_fit_ends_where_the_objective_is_flat(m_step: Any) -> None:
    rows = _mixed_rows(1, 200)
    block = RankingBlock.from_rows(rows, n_items=5)
    model = PlackettLuceMixture(2, ties="half-last", m_step=m_step, random_state=0, tol=1e-10).fit(block)
    errors = model.standard_errors(block)
    assert model.converged_
    assert errors.kind == "sandwich"
    step, slopes = 1e-5, []
    prior = [2 * np.log(2 * np.cosh((w - g) / 2)) for w, g in zip(model.log_worths_, model._ghosts, strict=True)]
    for component, item in product(range(2), range(5)):
        ends = []
        for sign in (-1, 1):
            moved = PlackettLuceMixture.from_arrays(model.log_worths_, model.shares_)
            moved.log_worths_ = model.log_worths_.copy()
            moved.log_worths_[component, item] += sign * step
            difference = moved.log_worths_[component, item] - model._ghosts[component]
            change = 2 * np.log(2 * np.cosh(difference / 2)) - prior[component][item]
            ends.append(_objective(rows, moved)[0] - change)
        slopes.append((ends[1] - ends[0]) / (2 * step))
    assert np.abs(slopes).max() < 1e-4


def test_half__which_ties_count() -> None:
    rows = [
        Ranking(((0, 1),), (), "absent", 1.0),
        Ranking(((0,), (1, 2)), (), "absent", 1.0),
        Ranking(((0, 1), (2,)), (), "absent", 1.0),
        Ranking(((0, 1),), (), "below", 1.0),
    ]
    block = RankingBlock.from_rows(rows, n_items=4)
    n_orders = {half: np.bincount(extend_ties(block, half).row).tolist() for half in ("", "battles", "rows", "last")}
    assert n_orders == {"": [1, 1, 2, 2], "battles": [2, 1, 2, 2], "rows": [2, 1, 2, 2], "last": [2, 2, 2, 2]}
    shared = {half: extend_ties(block, half).block.group_starts.tolist() for half in ("battles", "rows", "last")}
    assert shared["battles"] == [True, False, True, True, True, True, True]
    assert shared["rows"] == [True, False, True, True, False, True, False]
    assert shared["last"] == [True, False] * 4
    assert [extend_ties(block, half).block.n_half for half in ("", "battles", "rows", "last")] == [0, 1, 3, 4]


def test_half__blocks_with_and_without_such_ties_are_joined() -> None:
    tied = extend_ties(battles([0, 1], [1, 2], [0.5, 1]), "battles").block
    joined = concatenate([tied, battles([0, 1], [1, 2], [1, 0])])
    assert joined.within is not None
    assert joined.group_starts.tolist() == [True, False, True, True, True]


def test_auto__is_expand_where_no_row_is_one_tie() -> None:
    rows = [row for row in _mixed_rows(2) if len(row.ordered) > 1]
    block = RankingBlock.from_rows(rows, n_items=5)
    one, other = (PlackettLuceMixture(2, ties=ties, random_state=0).fit(block) for ties in ("auto", "expand"))
    assert one.log_worths_.tobytes() == other.log_worths_.tobytes()
    assert one.score(block) == other.score(block)


def test_half__bootstrap_agrees_with_sandwich() -> None:
    rng = np.random.default_rng(3)
    left = rng.integers(0, 4, 800)
    right = (left + rng.integers(1, 4, 800)) % 4
    block = battles(left, right, rng.choice([0.0, 0.5, 1.0], 800))
    model = PlackettLuceMixture(1, alpha=0.0).fit(block)
    errors, drawn = model.standard_errors(block), model.bootstrap(block, 400, random_state=0).standard_errors()
    assert_allclose(drawn.log_worths, errors.log_worths, rtol=0.15)
    plain = model.standard_errors(block, kind="information")
    assert (errors.log_worths < 0.95 * plain.log_worths).all()  # a tie is more than half a coin


def test_half__orders_of_a_ranking_are_not_rankings_of_a_person() -> None:
    rng = np.random.default_rng(6)
    left = rng.integers(0, 6, 600)
    gap = np.where(np.arange(600) % 2, 3.0, -3.0) * np.sign(left - 2.5) + rng.logistic(size=600)
    block = battles(left, (left + rng.integers(1, 6, 600)) % 6, np.where(np.abs(gap) < 1, 0.5, (gap > 0) * 1.0))
    model = PlackettLuceMixture(2, random_state=0, tol=1e-3).fit(block.replace(weights=np.full(600, 3.0)))
    data = model.about_["data"]
    assert (data["by_person"], data["n_rankings"], data["weight"]) == (False, 600, 1800.0)
    assert data["identifiability"]["generic"] == 1


def test_half__with_covariates_of_rows() -> None:
    rows = _mixed_rows(3, 200)
    block, columns = RankingBlock.from_rows(rows, n_items=5), np.random.default_rng(0).normal(size=200)
    model = PlackettLuceMixture(2, ties="half-last", random_state=0).fit(block, membership_covariates=columns)
    assert model.share_coefficients_ is not None
    logits = model.share_coefficients_[:, 0] + columns[:, None] * model.share_coefficients_[:, 1]
    logits -= np.logaddexp.reduce(logits, axis=1)[:, None]
    joint = np.array([_mean_log(row, model.log_worths_) for row in rows]) + logits
    expected = block.row_weights @ np.logaddexp.reduce(joint, axis=1)
    assert model.log_likelihood_ == pytest.approx(expected, rel=1e-12)


def test_half__criteria_warn() -> None:
    block = battles([0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0.5, 0.5])
    model = PlackettLuceMixture(1).fit(block)
    with pytest.warns(ObjectiveWarning, match=r"ties of 2 rankings count half.*ties='auto' alone"):
        model.bic(block)


def test_half__selection_and_store_and_saved_model(tmp_path: Any) -> None:
    rng = np.random.default_rng(4)
    left = rng.integers(0, 4, 300)
    text, results = tmp_path / "battles.csv", rng.integers(0, 3, 300).tolist()
    forms = ("{first} {second}", "{second} {first}", "{{{first} {second}}}")
    lines = [forms[won].format(first=f"m{a}", second=f"m{(a + 1) % 4}") for a, won in zip(left, results, strict=True)]
    text.write_text("ordering\n" + "\n".join(lines) + "\n")
    store = plm.ingest(text, tmp_path / "store", unranked="absent")
    model = PlackettLuceMixture(1, random_state=0).fit(store)
    chosen = plm.MixtureSelection((1,), random_state=0).fit(store)
    assert_allclose(chosen.best_estimator_.log_worths_, model.log_worths_, atol=1e-6)
    model.save(tmp_path / "model")
    again = PlackettLuceMixture.load(tmp_path / "model")
    assert again.ties == "auto"
    assert again.score(store) == model.score(store) == pytest.approx(model.log_likelihood_ / 300)
    assert model.about_["data"]["n_half"] == results.count(2)


def test_half__unknown_last() -> None:
    with pytest.raises(SettingsError, match="last must be"):
        plm.Half(last="first")


# --- golden values -----------------------------------------------------------------------------------------


def test_half__mixture_of_persons_as_by_bfgs() -> None:
    made = golden("1_half_mixture")
    block = battles(made["a"], made["b"], made["y"], np.repeat(np.arange(made["G"]), made["R"]))
    model = PlackettLuceMixture(2, alpha=0.0, random_state=0, tol=1e-12).fit(block)
    assert_allclose(model.log_worths_, made["log_worths"], atol=1e-7)
    assert_allclose(model.shares_, made["shares"], atol=1e-7)
    assert model.objective_ == pytest.approx(made["objective"], abs=1e-7)
    assert_allclose(model.predict_proba(block)[:: made["R"]][:5], made["first_5_posteriors"], atol=1e-7)


def test_half__ratings_and_errors_of_other_tools() -> None:
    block, made = arena_battles()
    model = PlackettLuceMixture(1, alpha=0.0, tol=1e-13).fit(block)
    assert_allclose(1000 + ELO * model.log_worths_[0], made["arena_ratings"], atol=1e-6)
    assert_allclose(ELO * model.standard_errors(block).log_worths[0], made["se_exact"], rtol=1e-9)
