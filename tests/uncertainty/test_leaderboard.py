"""Leaderboards: ratings, intervals, ranks and tiers, votes and win rates, against other tools and by hand."""

from __future__ import annotations

import csv
import json
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, logit

import plmix_dist as plm
from plmix_dist import PlackettLuceMixture
from plmix_dist.errors import SettingsError
from plmix_dist.uncertainty.leaderboard import board_lines
from tests.helpers import cli_helpers
from tests.helpers.battles import ELO, arena_battles, battles, golden

shell = cli_helpers.shell


def _by_item(board: Any, name: str, component: Any = 0) -> Any:
    """A column of one component, in the order of the numbers of items."""
    own = np.flatnonzero(np.array([key == component for key in board["component"]]))
    order = own[np.argsort(board["item"][own].astype(int))]
    return board[name][order]


def _two_tastes(n_persons: int = 150, n_votes: int = 15) -> plm.RankingBlock:
    rng = np.random.default_rng(0)
    worths = np.array([[1.5, 0.5, -0.5, -1.5], [-1.5, 0.0, 0.0, 1.5]])[(rng.random(n_persons) < 0.35).astype(int)]
    left = rng.integers(0, 4, (n_persons, n_votes))
    right = (left + rng.integers(1, 4, left.shape)) % 4
    gap = np.take_along_axis(worths, left, 1) - np.take_along_axis(worths, right, 1) + rng.logistic(size=left.shape)
    result = np.where(np.abs(gap) < 0.5, 0.5, (gap > 0) * 1.0)
    return battles(left, right, result, np.repeat(np.arange(n_persons), n_votes))


@pytest.mark.parametrize("weighted", [False, True])
def test_leaderboard__is_that_of_arena_rank_and_evalica(weighted: bool) -> None:
    block, made = arena_battles()
    weights = None
    if weighted:
        made, weights = golden("2_leaderboard_inverse_frequency"), plm.pair_weights(block)
    model = PlackettLuceMixture(1, alpha=0.0, tol=1e-13).fit(block, sample_weight=weights)
    board = model.leaderboard(block, sample_weight=weights, table="dict")
    lower, upper = _by_item(board, "lower"), _by_item(board, "upper")
    assert_allclose(_by_item(board, "rating"), made["arena_ratings"], atol=1e-6)
    assert_allclose(upper - lower, np.subtract(made["arena_upper"], made["arena_lower"]), rtol=0.01)
    assert_allclose(lower, made["lower"], atol=1e-6)
    assert_allclose(upper, made["upper"], atol=1e-6)
    assert _by_item(board, "rank").tolist() == made["rank"]
    if not weighted:
        assert_allclose(_by_item(board, "rating"), golden("1_davidson_battles")["evalica_bt_elo"], atol=1e-6)


def test_leaderboard__merged_battles_are_the_same() -> None:
    rng = np.random.default_rng(1)
    left = rng.integers(0, 4, 600)
    block = battles(left, (left + rng.integers(1, 4, 600)) % 4, rng.choice([0.0, 0.5, 1.0], 600))
    merged = plm.rankings.groups.merge_equal_rows(block)
    model = PlackettLuceMixture(1).fit(block)
    for weights in (None, (plm.pair_weights(block, min_count=30), plm.pair_weights(merged, min_count=30))):
        one, other = (
            model.leaderboard(rows, sample_weight=None if weights is None else weights[k], table="dict")
            for k, rows in enumerate((block, merged))
        )
        for name in ("lower", "upper", "votes", "win_rate"):
            assert_allclose(one[name], other[name], rtol=1e-9)


def test_leaderboard__of_components_and_all() -> None:
    block = _two_tastes()
    model = PlackettLuceMixture(2, random_state=0).fit(block)
    board = model.leaderboard(block, table="dict")
    assert list(dict.fromkeys(board["component"])) == [0, 1, "all"]
    chance = model.shares_ @ expit(model.log_worths_)
    assert_allclose(_by_item(board, "rating", "all"), 1000 + ELO * logit(chance), rtol=1e-12)
    assert_allclose(_by_item(board, "rating", 1), 1000 + ELO * model.log_worths_[1], rtol=1e-12)
    errors = model.standard_errors(block, kind="sandwich")
    assert_allclose(_by_item(board, "upper", 1), 1000 + ELO * errors.intervals().log_worths[1][1], rtol=1e-12)
    assert_allclose(_by_item(board, "votes", "all"), np.bincount(block.items, minlength=4))
    results = np.zeros((4, 2))
    for row in block.rows():
        places = [place for place in row.ordered for _ in place]
        for item in (item for place in row.ordered for item in place):
            results[item] += (0.5 if len(places[0]) == 2 else float(item in places[0])), 1
    assert_allclose(_by_item(board, "win_rate", "all"), results[:, 0] / results[:, 1])
    drawn = model.leaderboard(block, interval="bootstrap", n_replicates=300, table="dict")
    for key in (0, 1, "all"):
        widths = [_by_item(one, "upper", key) - _by_item(one, "lower", key) for one in (board, drawn)]
        assert_allclose(widths[1], widths[0], rtol=0.25)


def test_leaderboard__ranks_and_tiers() -> None:
    rows = [["a", "b"]] * 51 + [["b", "a"]] * 49 + [["a", "c"]] * 90 + [["c", "a"]] * 10
    rows += [["b", "c"]] * 90 + [["c", "b"]] * 10
    model = PlackettLuceMixture(1, alpha=0.0).fit(rows, unranked="absent")
    board = model.leaderboard(rows, table="dict")
    assert board["item"].tolist() == ["a", "b", "c"]
    assert board["rank"].tolist() == [1, 1, 3]
    assert board["rank_last"].tolist() == [2, 2, 3]
    assert board["tier"].tolist() == [1, 1, 2]
    assert model.leaderboard(table="dict")["rank"].tolist() == [1, 2, 3]


def test_leaderboard__tiers_are_counted_from_their_best_item() -> None:
    pairs = [[one, two] for place, one in enumerate("abcd") for two in "bcde"[place:] if one + two != "de"]
    rows = pairs * 95 + [pair[::-1] for pair in pairs] * 5 + [["d", "e"], ["e", "d"]] * 50
    model = PlackettLuceMixture(1, alpha=0.0).fit(rows, unranked="absent")
    assert model.leaderboard(rows, table="dict")["tier"].tolist() == [1, 2, 3, 4, 4]


def test_leaderboard__anchor_holds_an_item() -> None:
    block = _two_tastes(60)
    model = PlackettLuceMixture(1).fit(block)
    board = model.leaderboard(block, anchor={"2": 1200}, table="dict")
    lower, rating, upper = (_by_item(board, name) for name in ("lower", "rating", "upper"))
    assert lower[2] == rating[2] == upper[2] == 1200
    found = model.standard_errors(block, kind="sandwich").differences()
    assert_allclose(rating - 1200, ELO * found.values[:, 2], atol=1e-9)
    assert_allclose((upper - lower) / (2 * 1.959963985 * ELO), found.standard_errors[:, 2], atol=1e-9)


def test_leaderboard__against_another_model() -> None:
    old = PlackettLuceMixture.from_arrays([[0.0, 1.0], [1.0, 0.0]], [0.6, 0.4], ["b", "a"])
    new = PlackettLuceMixture.from_arrays([[2.0, 0.0, -2.0], [-2.0, 0.0, 2.0]], [0.7, 0.3], ["a", "b", "c"])
    board = new.leaderboard(against=old, scale="log", table="dict")
    first = [row for row, key in enumerate(board["component"]) if key == 0]
    assert board["item"][first].tolist() == ["a", "b", "c"]
    assert_allclose(board["before"][first], [0.5, -0.5, np.nan])
    assert_allclose(board["change"][first], [1.5, 0.5, np.nan])
    with pytest.raises(SettingsError, match="none of the items"):
        new.leaderboard(against=PlackettLuceMixture.from_arrays([[0.0, 1.0]], item_names=["x", "y"]))


def test_leaderboard__refuses_in_words() -> None:
    model = PlackettLuceMixture.from_arrays([[0.0, 1.0]])
    with pytest.raises(SettingsError, match="no noise component to leave out"):
        model.leaderboard(without_noise=True)
    with pytest.raises(SettingsError, match="row 1 is not a battle of two items: it lists 3"):
        plm.pair_weights([[0, 1, -1], [0, 1, 2]], unranked="absent")


def test_leaderboard__as_text_markdown_csv_and_json(tmp_path: Any, shell: Any) -> None:
    text = tmp_path / "battles.csv"
    text.write_text("ordering\n" + "tea mate\n" * 9 + "mate tea\n" * 3 + "{tea mate}\n" * 2)
    store = plm.ingest(text, tmp_path / "store")
    model = PlackettLuceMixture(1, random_state=0).fit(store)
    model.save(tmp_path / "model")
    board = model.leaderboard(store, table="dict")
    arguments = ["leaderboard", str(tmp_path / "model"), "--data", str(store.location.url)]
    printed = shell(*arguments).out.splitlines()
    assert printed == board_lines(board)
    assert printed[0].split() == ["component", "item", "rating", "rank", "tier", "votes", "win_rate"]
    marked = shell(*arguments, "--format", "markdown", "--against", str(tmp_path / "model")).out.splitlines()
    assert marked[1].startswith("| --- | --- | ---: |")
    assert marked[2].endswith("+0.0 |")
    rows = list(csv.DictReader(shell(*arguments, "--format", "csv").out.splitlines()))
    assert [float(row["rating"]) for row in rows] == board["rating"].tolist()
    found = json.loads(shell(*arguments, "--json").out)
    assert [row["item"] for row in found["leaderboard"]] == ["tea", "mate"]
    page = model.report(tmp_path / "page.html", store).read_text()
    assert 'id="leaderboard"' in page


@pytest.mark.parametrize("ties", ["half", "davidson"])
def test_leaderboard__noise_that_is_not_there_leaves_all_errors(ties: str) -> None:
    """Where the share of noise is zero, errors and intervals are those of the fit without it, not NaN."""
    votes = np.array([[0, 1, 1], [0, 2, 1], [0, 3, 0.5], [1, 2, 1], [1, 3, 1], [2, 3, 1], [1, 0, 0.5], [3, 2, 1]])
    more = np.array([[0, 1, 1], [0, 2, 1], [0, 3, 1], [1, 2, 0.5], [1, 3, 1], [2, 3, 1], [1, 0, 1], [3, 0, 1]])
    left, right, result = np.concatenate([votes, more] * 20).T
    block = battles(left.astype(int), right.astype(int), result, np.arange(320) // 8)
    plain, noisy = (
        PlackettLuceMixture(1, ties=ties, noise=noise, alpha=0.1, tol=1e-10).fit(block) for noise in (False, True)
    )
    assert noisy.shares_[1] == 0
    for kind in ("information", "sandwich"):
        without, found = (model.standard_errors(block, kind=kind) for model in (plain, noisy))
        assert_allclose(found.log_worths, [without.log_worths[0], np.zeros(4)], atol=1e-12)
        assert found.shares.tolist() == [0.0, 0.0]
    wanted, board = plain.leaderboard(block, table="dict"), noisy.leaderboard(block, without_noise=True, table="dict")
    for name in ("rating", "lower", "upper"):
        assert_allclose(board[name], wanted[name], atol=1e-9)


def test_leaderboard__what_it_is_measured_from_is_checked() -> None:
    block = battles([0, 0, 1], [1, 1, 0], [1, 0.5, 1])
    model = PlackettLuceMixture(1).fit(block)
    for value in (np.nan, "x"):
        with pytest.raises(SettingsError, match="anchor must be a finite number, but is"):
            model.leaderboard(anchor={0: value})
    with pytest.raises(SettingsError, match="against must be a fitted model, but is str"):
        model.leaderboard(against="last-month")
