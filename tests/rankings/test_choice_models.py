"""Slates, best and worst: probabilities against the definition, over all that a person may say."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from plmix_dist import Slates
from plmix_dist.errors import RankingError, SettingsError
from plmix_dist.kernels.utilities import LinearPoint, linear_sums
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.choice_models import CHOICES, ChoiceModel, contrasts
from tests.helpers import logit_oracle


def logs_of(choices: ChoiceModel, block: RankingBlock, utilities: np.ndarray) -> np.ndarray:
    """The log-probability of every row, with utilities (n_alternatives,) given up to what changes nothing."""
    design = choices.design(block.n_items)
    coefficients = np.linalg.lstsq(design, utilities, rcond=None)[0]
    point = LinearPoint(design, coefficients[None], np.zeros((1, 1)))
    rows = [choices.rows(block[row]) for row in range(block.n_rankings)]
    return np.array([float(linear_sums(one, point).log_likelihood) for one in rows])


SLATES = Slates({"left": ["a", "b", "c"], "right": ["d", "e"], "green": ["f"]})
SLATE_OF = [0, 0, 0, 1, 1, 2]
WORTHS, COHESION = np.array([0.5, 0.3, 0.2, 0.9, 0.1, 1.0]), np.array([0.6, 0.3, 0.1])


@pytest.mark.parametrize("length", [1, 2, 4, 6])
def test_slates__all_ballots_of_a_length(length: int) -> None:
    choices = SLATES.of_items(list("abcdef"))
    orders = np.array(list(itertools.permutations(range(6), length)))
    block = RankingBlock.from_array(orders, n_items=6, unranked="below")
    expected = [logit_oracle.slate_log(block.row(row), SLATE_OF, WORTHS, COHESION) for row in range(len(orders))]
    found = logs_of(choices, block, np.log(np.concatenate([WORTHS, COHESION])))
    assert_allclose(found, expected, atol=1e-12)
    assert math.fsum(np.exp(found)) == pytest.approx(1.0)


def test_slates__only_what_was_on_offer() -> None:
    rows = [
        Ranking(((3,), (0,)), (1,), "absent", 1.0),
        Ranking(((0,), (1,), (2,)), (), "absent", 1.0),
        Ranking(((5,),), (4,), "below", 1.0),
    ]
    block = RankingBlock.from_rows(rows, n_items=6)
    expected = [logit_oracle.slate_log(row, SLATE_OF, WORTHS, COHESION) for row in rows]
    found = logs_of(SLATES.of_items(list("abcdef")), block, np.log(np.concatenate([WORTHS, COHESION])))
    assert_allclose(found, expected, atol=1e-12)


def test_slates__choices_of_a_ballot_share_its_membership_and_weight() -> None:
    block = RankingBlock.from_array([[3, 0, 1], [0, 3, 4]], n_items=6, unranked="below", weights=[5, 2])
    rows = SLATES.of_items(list("abcdef")).rows(block)
    assert rows.n_items == 9
    assert rows.groups is not None
    assert np.unique(rows.groups).tolist() == [0, 1]
    assert rows.within is not None
    assert_allclose(rows.row_weights / rows.within, np.array([5.0, 2.0])[rows.groups])
    known = SLATES.of_items(list("abcdef")).rows(block.replace(covariates=np.array([[3.0], [4.0]])))
    assert known.covariates is not None
    assert known.covariates.tolist() == [[3.0 + owner] for owner in rows.groups.tolist()]
    persons = SLATES.of_items(list("abcdef")).rows(block.replace(groups=np.array([9, 9])))
    assert persons.within is None
    assert set(persons.groups.tolist()) == {9}


@pytest.mark.parametrize("model", ["best-worst", "maxdiff"])
@pytest.mark.parametrize("offered", [(0, 1), (2, 0, 1), (3, 0, 2, 1), (0, 1, 2, 3, 4)])
def test_best_worst__all_pairs_of_a_set(model: str, offered: tuple[int, ...]) -> None:
    log_worths = np.array([0.7, -0.2, 0.1, 1.1, -1.7])
    expected = logit_oracle.best_worst(offered, dict(enumerate(np.exp(log_worths).tolist())), model)
    rows = []
    for best, worst in expected:
        between = tuple(item for item in offered if item not in (best, worst))
        rows.append(Ranking(((best,), between, (worst,)) if between else ((best,), (worst,)), (), "absent", 1.0))
    choices = CHOICES[model]
    block = RankingBlock.from_rows(rows, n_items=5)
    point = LinearPoint(choices.design(5), (log_worths @ contrasts(5))[None], np.zeros((1, 1)))
    found = [float(linear_sums(choices.rows(block[row]), point).log_likelihood) for row in range(len(rows))]
    assert_allclose(np.exp(found), list(expected.values()), atol=1e-12)


def test_best_worst__of_three_is_their_ranking() -> None:
    orders = np.array(list(itertools.permutations(range(3))))
    block = RankingBlock.from_array(orders)
    log_worths = np.array([0.4, 0.1, -0.5])
    point = LinearPoint(CHOICES["best-worst"].design(3), (log_worths @ contrasts(3))[None], np.zeros((1, 1)))
    found = [float(linear_sums(CHOICES["best-worst"].rows(block[row]), point).log_likelihood) for row in range(6)]
    expected = [logit_oracle.row_log(log_worths[order].tolist(), 3) for order in orders]
    # Not equal to the ranking's chances, but to those of the best, then of the worst of two: the same three items.
    worst_of_two = [
        logit_oracle.log_choice(log_worths[order].tolist(), 0)
        + logit_oracle.log_choice([-log_worths[order[2]], -log_worths[order[1]]], 0)
        for order in orders
    ]
    assert_allclose(found, worst_of_two, atol=1e-12)
    assert_allclose(found, expected, atol=1e-12)


def test_best_worst__only_one_of_both() -> None:
    log_worths = np.array([0.4, 0.1, -0.5, 0.0])
    rows = [
        Ranking(((1,),), (0, 2), "absent", 1.0),
        Ranking(((1,), (0, 2)), (), "absent", 1.0),
        Ranking(((0, 1, 3), (2,)), (), "absent", 1.0),
    ]
    found = logs_of(CHOICES["best-worst"], RankingBlock.from_rows(rows, n_items=4), np.append(log_worths, -log_worths))
    best = logit_oracle.log_choice([0.1, 0.4, -0.5], 0)
    worst = logit_oracle.log_choice([0.5, -0.4, -0.1, 0.0], 0)
    assert_allclose(found, [best, best, worst], atol=1e-12)


@pytest.mark.parametrize(
    ("row", "model"),
    [
        (Ranking(((0,), (1,), (2,), (3,)), (), "absent", 1.0), "best-worst"),
        (Ranking(((0,), (1,)), (2, 3), "absent", 1.0), "best-worst"),
        (Ranking(((0,),), (), "below", 1.0), "best-worst"),
        (Ranking(((0, 1), (2, 3)), (), "absent", 1.0), "best-worst"),
        (Ranking(((1,), (0, 2)), (), "absent", 1.0), "maxdiff"),
    ],
)
def test_best_worst__other_rows_are_refused(row: Ranking, model: str) -> None:
    good = Ranking(((0,), (1, 2), (3,)), (), "absent", 1.0)
    with pytest.raises(RankingError, match=r"ranking 1 \(from 0\) is Ranking"):
        CHOICES[model].rows(RankingBlock.from_rows([good, row], n_items=4))


@pytest.mark.parametrize(
    ("slates", "words"),
    [
        ({"left": ["a"]}, "there must be 2 to 62 slates"),
        ({"left": ["a"], "right": []}, "with items in each"),
        ({"left": ["a"], "right": ["a"]}, "item 'a' is named more than once"),
        ({"left": "ab", "right": ["c"]}, "slates must be a dict"),
        ("left", "slates must be a dict"),
    ],
)
def test_slates__what_is_none(slates: object, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Slates(slates)  # type: ignore[arg-type]


def test_slates__must_name_all_items_and_no_others() -> None:
    with pytest.raises(SettingsError, match="item 'g' belongs to no slate"):
        SLATES.of_items(list("abcdefg"))
    with pytest.raises(SettingsError, match="the slates name 'f', which is not an item"):
        SLATES.of_items(list("abcde"))
    with pytest.raises(RankingError, match='choose ties="expand"'):
        SLATES.of_items(list("abcdef")).rows(
            RankingBlock.from_rows([Ranking(((0, 1), (2,)), (), "absent", 1.0)], n_items=6)
        )
