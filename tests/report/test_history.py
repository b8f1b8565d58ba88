"""How a fit went, in words and numbers: what is drawn, what a reader learns, and how to do it again."""

from __future__ import annotations

from typing import Any

import pytest

from plmix_dist.report.history import (
    code_to_repeat,
    convergence_of,
    data_sentence,
    search_sentence,
    stages_of,
    support_sentence,
)

KNOWN = {"certain": 2, "generic": 6, "described": "the rankings order all 10 items"}
DATA = {"n_rankings": 100, "weight": 250.0, "n_items": 9, "mean_listed": 4.0}


def test_convergence__refused_steps_are_not_drawn() -> None:
    taken = {"taken": True, "log_likelihood": -20.0, "gradient": 0.01}
    refused = {"taken": False, "log_likelihood": -90.0, "gradient": 7.0}
    found = convergence_of([taken, refused, taken], weight=10.0, tol=1e-8, converged=True)
    assert found[:3] == ([-2.0, -2.0], [-2.0, -2.0], -8.0)
    assert found.sentence.endswith("It took 3 iterations.")


def test_convergence__a_flat_end_is_told() -> None:
    found = convergence_of([{"gradient": 0.01, "flat": True}], weight=10.0, tol=1e-8, converged=True)
    assert found.sentence == (
        "The fit ended where the likelihood is flat: other groups describe the rankings as well. It took 1 iteration."
    )


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (None, "without a search"),
        ({"n_starts": 8, "n_best": 8, "n_ends": 1}, "All 8 starts, from different places, ended at this same"),
        (
            {"n_starts": 7, "n_best": 7, "n_ends": 1, "n_varied": 2},
            "7 of 7 starts ended at the best solution found, but",
        ),
        ({"n_starts": 8, "n_best": 1, "n_ends": 5}, "1 of 8 starts ended at the best solution found (of 5 different"),
        ({"n_starts": 8, "n_best": 1, "n_ends": 5}, "Found only once, it may not be the best one"),
        ({"n_starts": 8, "n_best": 2, "n_ends": 5}, "which is not often; another seed is worth a try."),
        ({"n_starts": 8, "n_best": 3, "n_ends": 5}, "often enough to trust it."),
        (
            {"n_starts": 12, "n_best": 10, "n_ends": 2, "n_varied": 8},
            "but 8 of these began as variations of a solution that was found before, so 2 came from elsewhere: which",
        ),
        ({"n_starts": 8, "n_best": 8, "n_ends": 1, "n_varied": 2}, "so 6 came from elsewhere: often enough"),
    ],
)
def test_search(search: Any, words: str) -> None:
    assert words in search_sentence(search)


@pytest.mark.parametrize(
    ("data", "n_components", "words"),
    [
        ({}, 3, "does not say what it was fitted to"),
        ({"identifiability": KNOWN, "by_person": True}, 3, "for almost all worths; the most is 6."),
        ({"identifiability": KNOWN}, 2, "Enough rankings order all 10 items. That suffices to tell 2 groups"),
        ({"identifiability": KNOWN}, 2, "whatever the worths are"),
        ({"identifiability": KNOWN}, 3, "for almost all worths; the most is 6."),
        ({"identifiability": KNOWN | {"generic": 5000}}, 3, "the most is over 1,000."),
        ({"identifiability": KNOWN | {"certain": 1, "generic": 1}}, 7, "That suffices for 1 group only"),
    ],
)
def test_support(data: Any, n_components: int, words: str) -> None:
    assert words in support_sentence(data, n_components)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "100 different rankings with a total weight of 250, of 9 items. A ranking lists 4 items on average."),
        ({"weight": 100.0}, "100 rankings, of 9 items."),
        ({"by_person": True, "weight": 40.0}, "100 rankings by 40 persons, of 9 items."),
        ({"n_top_k": 25, "mean_listed": 4.25}, "lists 4.2 items on average; 25\xa0% give the first places only."),
        ({"n_tied_items": 3}, "on average; some have ties."),
    ],
)
def test_data(more: dict[str, Any], words: str) -> None:
    assert words in data_sentence(DATA | more)


def test_stages__of_the_same_name_are_added_up() -> None:
    records = [{"stage": "k-means", "seconds": 1.0, "passes": 0}, {"stage": "k-means", "seconds": 2.0, "passes": 1}]
    assert [tuple(one) for one in stages_of(records)] == [("start: k-means", 3.0, 1.0)]


def test_code__names_what_differs_from_the_defaults() -> None:
    found = code_to_repeat("PlackettLuceMixture", {"n_components": 3, "tol": 1e-8}, {"tol": 1e-8}, None, 7)
    assert found.splitlines()[2:] == [
        "rankings = ...  # the rankings that were fitted",
        "model = plm.PlackettLuceMixture(n_components=3, random_state=7).fit(rankings)",
    ]


def test_code__the_seed_0_is_a_seed() -> None:
    assert "(random_state=0)" in code_to_repeat("PlackettLuceMixture", {}, {}, None, 0)
    assert "()" in code_to_repeat("PlackettLuceMixture", {"random_state": None}, {}, None, None)


def test_code__of_a_model_that_a_selection_chose() -> None:
    selection = {"n_components": [1, 2], "criterion": "bic"}
    found = code_to_repeat("PlackettLuceMixture", {"n_components": 2}, {}, "votes", 7, selection)
    assert found.splitlines()[2:] == [
        "rankings = 'votes'",
        "found = plm.MixtureSelection(n_components=[1, 2], criterion='bic',",
        "    random_state=7, estimator=plm.PlackettLuceMixture(n_components=2, random_state=7)).fit(rankings)",
        "model = found.estimators_[2]",
    ]


@pytest.mark.parametrize(
    ("weight", "words"),
    [(1_000_000 + 1e-6, "1,000,000 rankings, of"), (1_000_001, "different rankings with a total weight of 1,000,001")],
)
def test_data__weights_that_are_ones_but_for_rounding(weight: float, words: str) -> None:
    said = data_sentence({"n_rankings": 1_000_000, "weight": weight, "n_items": 5, "mean_listed": 5.0})
    assert words in said.replace("\xa0", " ").replace("\u202f", ",")
