"""What rankings identify: the theorems against ranks of Jacobians and against mixtures that cannot be told apart."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import PlackettLuceMixture, info, ingest
from plmix_dist.cli import main
from plmix_dist.errors import NotIdentifiableWarning, SettingsError
from plmix_dist.passes.tree import add_statistics
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.identifiability import identifiability, ordered_lengths
from tests.helpers.oracle import order_probability

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from plmix_dist.rankings.identifiability import _Identifiability

QUIET = pytest.mark.filterwarnings("error::plmix_dist.errors.NotIdentifiableWarning")


def found_for(rows: Any, n_items: int, unranked: Any = None) -> _Identifiability:
    block = RankingBlock.from_array(rows, n_items=n_items, unranked=unranked)
    return identifiability(ordered_lengths(block), n_items)


def full(n_items: int) -> _Identifiability:
    return found_for([list(range(n_items))], n_items)


def first(length: int, n_items: int) -> _Identifiability:
    return found_for([list(range(length))], n_items, "below")


def orders(length: int, n_items: int) -> _Identifiability:
    return found_for([list(range(length))], n_items, "absent")


# --- the theorems, number by number -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_items", "certain", "generic"),
    # K <= floor((n - 2) / 2)! from n = 6 on, and two components from n = 4 on
    [(2, 1, 1), (3, 1, 1), (4, 2, 2), (5, 2, 2), (6, 2, 2), (7, 2, 2), (8, 2, 6), (9, 2, 6), (10, 2, 24), (12, 2, 120)],
)
def test_full_rankings(n_items: int, certain: int, generic: int) -> None:
    found = full(n_items)
    assert (found.certain, found.generic) == (certain, generic)


def test_status__at_most_2k_minus_1_items() -> None:
    assert [full(5).status(k) for k in (1, 2, 3)] == ["identifiable", "identifiable", "not identifiable"]
    assert [full(6).status(k) for k in (3, 4)] == ["unknown", "not identifiable"]
    assert [full(8).status(k) for k in (3, 6, 7)] == ["generic", "generic", "not identifiable"]


def test_first_places__count_like_one_item_more() -> None:
    for length in range(1, 9):
        partial, whole = first(length, 10), full(length + 1)
        assert (partial.certain, partial.generic) == (whole.certain, whole.generic)
        assert [partial.status(k) for k in range(1, 9)] == [whole.status(k) for k in range(1, 9)]
    assert (first(9, 10).certain, first(9, 10).generic) == (2, 24)


def test_two_components__what_zhao_and_xia_prove() -> None:
    assert first(3, 10).certain == 2
    assert first(2, 10).certain == 1
    assert orders(4, 10).certain == 2
    assert orders(3, 10).certain == 1
    both = [ordered_lengths(RankingBlock.from_array([[0, 1]], n_items=10, unranked=u)) for u in ("below", "absent")]
    assert identifiability(add_statistics(*both), 10).certain == 2
    choices = [Ranking(((0,),), tuple(range(1, size)), "absent", 1.0) for size in (2, 3, 4)]
    assert identifiability(ordered_lengths(RankingBlock.from_rows(choices, n_items=10)), 10).certain == 2
    assert identifiability(ordered_lengths(RankingBlock.from_rows(choices[1:], n_items=10)), 10).certain == 1


def test_pairs__identify_no_mixture() -> None:
    found = orders(2, 20)
    assert (found.certain, found.generic) == (1, 1)
    assert found.status(2) == "not identifiable"
    assert "single pairs" in found.reason(2)


def test_lengths__a_handful_of_long_rankings_does_not_count() -> None:
    rows = np.full((1_000, 8), -1)
    rows[:, :2] = [0, 1]
    rows[:5] = np.arange(8)
    assert found_for(rows, 20, "below").generic == 1
    rows[:20] = np.arange(8)
    assert found_for(rows, 20, "below").generic == full(9).generic


def test_lengths__weights_and_ties_in_the_last_place() -> None:
    rows = [Ranking(((0,), (1,), (2, 3, 4)), (), "absent", 3.0), Ranking(((0,), (1,)), (), "below", 1.0)]
    lengths = ordered_lengths(RankingBlock.from_rows(rows, n_items=5))
    assert lengths.firsts[2] == lengths.firsts.sum() == lengths.weight == 4.0


# --- independent of the theorems ----------------------------------------------------------------------------


def outcomes(n_items: int, length: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(n_items), length))


def probabilities(worths: NDArray[Any], shares: NDArray[Any], orders_of: Iterable[tuple[int, ...]]) -> NDArray[Any]:
    """Of every order under a mixture, by the definition; differentiable, so complex numbers may go in."""
    found = []
    for order in orders_of:
        total = 0.0
        for share, own in zip(shares, worths, strict=True):
            left, chance = own.sum(), share
            for item in order:
                chance = chance * own[item] / left
                left = left - own[item]
            total = total + chance
        found.append(total)
    return np.array(found)


def jacobian_rank(n_items: int, n_components: int, length: int, seed: int) -> tuple[int, int]:
    """Rank of the derivatives of all probabilities, by complex steps, and the number of free parameters."""
    rng = np.random.default_rng(seed)
    n_worths = n_components * (n_items - 1)
    at = np.concatenate([rng.normal(size=n_worths), rng.normal(size=n_components - 1)])
    orders_of = outcomes(n_items, length)

    def of(vector: NDArray[Any]) -> NDArray[Any]:
        log_worths = np.zeros((n_components, n_items), vector.dtype)
        log_worths[:, 1:] = vector[:n_worths].reshape(n_components, -1)
        shares = np.exp(np.concatenate([[0.0], vector[n_worths:]]))
        return probabilities(np.exp(log_worths), shares / shares.sum(), orders_of)

    steps = 1e-30j * np.eye(len(at))
    jacobian = np.array([of(at + step).imag / 1e-30 for step in steps])
    values = np.linalg.svd(jacobian / np.linalg.norm(jacobian, axis=1, keepdims=True), compute_uv=False)
    return int((values > 1e-10 * values[0]).sum()), len(at)


@pytest.mark.parametrize("n_components", [2, 3, 4])
@pytest.mark.parametrize(
    ("n_items", "length"), [(n, length) for n in (3, 4, 5, 6) for length in range(1, n) if (n, length) != (6, 4)]
)
def test_jacobian__full_rank_wherever_a_guarantee_is_claimed(n_items: int, length: int, n_components: int) -> None:
    rank, n_parameters = jacobian_rank(n_items, n_components, length, seed=n_items * 10 + length)
    status = first(length, n_items).status(n_components)
    if status in ("identifiable", "generic"):
        assert rank == n_parameters
    if rank < n_parameters:
        assert status == "not identifiable"


@pytest.mark.parametrize(("n_items", "length", "n_components"), [(5, 1, 2), (3, 2, 3), (4, 3, 7), (6, 1, 3), (4, 2, 4)])
def test_jacobian__too_few_probabilities(n_items: int, length: int, n_components: int) -> None:
    rank, n_parameters = jacobian_rank(n_items, n_components, length, seed=1)
    assert rank < n_parameters
    assert first(length, n_items).status(n_components) == "not identifiable"


@pytest.mark.parametrize(("n_items", "length", "n_components"), [(3, 2, 2), (5, 4, 3), (6, 2, 2), (6, 4, 3), (5, 2, 2)])
def test_two_mixtures__same_probabilities(n_items: int, length: int, n_components: int) -> None:
    # All items but one are alike, so an order's chance depends on the place of that one alone, and 2 K such components
    # have length + 1 numbers each. Where 2 K > length + 1 these are linearly dependent: the positive coefficients and
    # the negative ones are two mixtures of the same chances (Zhao, Piech & Xia 2016, theorem 1).
    assert length + 1 <= 2 * n_components - 1
    own = np.linspace(0.3, 4.0, length + 2)
    worths = np.array([[value, *[1.0] * (n_items - 1)] for value in own])
    orders_of = outcomes(n_items, length)
    chances = np.array([[order_probability(row, order, range(n_items)) for order in orders_of] for row in worths])
    coefficients = np.linalg.svd(chances.T)[2][-1]
    halves = []
    for sign in (1, -1):
        used = sign * coefficients > 1e-9 * np.abs(coefficients).max()
        shares = np.abs(coefficients[used]) / np.abs(coefficients[used]).sum()
        assert len(shares) <= n_components
        halves.append((worths[used], shares))
    one, other = (probabilities(*half, orders_of) for half in halves)
    np.testing.assert_allclose(one, other, rtol=1e-10)
    assert not {tuple(row) for row in halves[0][0]} & {tuple(row) for row in halves[1][0]}
    assert first(length, n_items).status(n_components) == "not identifiable"


# --- a fit and `plmix info` -------------------------------------------------------------------------------------


def some(n_items: int, n_rankings: int = 40) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.permutation(n_items).tolist() for _ in range(n_rankings)]


@pytest.mark.promise(47)
def test_fit__warns_once_with_the_reason() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", NotIdentifiableWarning)
        PlackettLuceMixture(3, random_state=0, n_init=2, tol=1e-3).fit(some(5))
    (warning,) = [each for each in said if each.category is NotIdentifiableWarning]
    assert str(warning.message) == (
        "3 components are not identifiable: the rankings order all 5 items, and 3 components need 8 for "
        "almost all parameters (Zhao, Piech & Xia 2016). Other components may give the same probabilities. Predictions "
        "are not affected, but do not read much into single components; at most 2 are known to be identifiable"
    )
    assert warning.filename == __file__


@QUIET
@pytest.mark.parametrize(("n_items", "n_components"), [(5, 2), (4, 2), (3, 1), (8, 3)])
def test_fit__no_warning_where_a_guarantee_holds(n_items: int, n_components: int) -> None:
    PlackettLuceMixture(n_components, alpha=0.1, random_state=0, tol=0.1).fit(some(n_items))


@pytest.mark.parametrize(("rows", "n_components"), [([[0, 1, 2], [2, 1, 0]], 3), ([[0, 1, 2, 3]] * 50, 2)])
def test_fit__more_components_than_distinct_rankings(rows: list[list[int]], n_components: int) -> None:
    distinct = len({tuple(row) for row in rows})
    expected = f"there are {n_components} components, but only {distinct} distinct rankings?: .* <= {distinct}"
    with pytest.raises(SettingsError, match=expected):
        PlackettLuceMixture(n_components, random_state=0).fit(rows)


def test_fit__as_many_components_as_distinct_rankings_among_many_rows() -> None:
    # The third distinct ranking is the last row.
    rows = [[0, 1, 2, 3]] * 300 + [[3, 2, 1, 0]] * 300 + [[1, 0, 3, 2]]
    assert PlackettLuceMixture(3, alpha=0.1, random_state=0, tol=1e-3, max_iter=2_000).fit(rows).converged_


@pytest.mark.promise(47)
def test_info__text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ingest(np.array(some(9)), tmp_path / "s")
    assert info(store)["identifiability"] == {
        "certain": 2,
        "generic": math.factorial(3),
        "counts_like_items": 9,
        "rankings": "the rankings order all 9 items",
        "why_no_more": "the rankings order all 9 items, and 7 components need 10 for almost all parameters (Zhao, "
        "Piech & Xia 2016)",
    }
    with pytest.raises(SystemExit) as ended:
        main(["info", str(tmp_path / "s"), "--json"])
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out)["identifiability"]["generic"] == 6
    with pytest.raises(SystemExit):
        main(["info", str(tmp_path / "s")])
    text = capsys.readouterr().out
    assert "K <= 2 components, for all parameters" in text
    assert "K <= 6 components, for almost all parameters" in text


# --- several rankings per person ---------------------------------------------------------------------------


def pairs_by_persons(n_items: int, per_person: list[int]) -> RankingBlock:
    """Pairs of random items: `per_person[p]` of them by person p."""
    rng = np.random.default_rng(0)
    persons = np.repeat(np.arange(len(per_person)), per_person)
    rows = [rng.permutation(n_items)[:2].tolist() for _ in persons]
    return RankingBlock.from_array(rows, n_items=n_items, unranked="absent").replace(groups=persons)


def by_persons(block: RankingBlock) -> _Identifiability:
    return identifiability(ordered_lengths(block), block.n_items)


def test_persons__many_pairs_each_identify_components() -> None:
    found = by_persons(pairs_by_persons(6, [20] * 300))
    assert (found.certain, found.generic, found.per_person, found.n_free) == (1, 16, 20, 15)
    assert [found.status(number) for number in (1, 2, 16)] == ["identifiable", "generic", "generic"]
    assert "20 by most persons" in found.reason(2)


def test_persons__one_of_many_silences_nothing() -> None:
    found = by_persons(pairs_by_persons(6, [1] * 2_999 + [2]))
    assert found == by_persons(pairs_by_persons(6, [1] * 2_999 + [1]))._replace(by_persons=found.by_persons)
    assert found.status(2) == "not identifiable"


def test_persons__some_who_are_enough_on_their_own() -> None:
    few, enough = (by_persons(pairs_by_persons(5, [1] * 400 + [3] * number)) for number in (89, 90))
    assert few.status(2) != "generic"  # two components of five items have nine parameters
    assert enough.status(2) == "generic"
    assert "3 or more by 90 persons" in enough.described


@pytest.mark.parametrize(("per_person", "known"), [(2, 1), (3, 2), (5, 3), (7, 4)])
def test_persons__one_pair_is_a_mixture_of_binomials(per_person: int, known: int) -> None:
    found = by_persons(pairs_by_persons(2, [per_person] * 100))
    assert found.generic == known
    assert found.status(known + 1) == "not identifiable"


def test_persons__two_first_places_never_identify() -> None:
    rows = [[item] for item in np.random.default_rng(0).integers(0, 5, 600).tolist()]
    block = RankingBlock.from_array(rows, n_items=5, unranked="below")
    two, three = (by_persons(block.replace(groups=np.repeat(np.arange(600 // per), per))) for per in (2, 3))
    assert two.status(2) == "not identifiable"
    assert (three.status(2), three.generic) == ("generic", 5)


def test_persons__a_weight_is_how_often_a_person_gave_a_row() -> None:
    block = pairs_by_persons(4, [1] * 50)
    found = ordered_lengths(block.replace(weights=np.full(50, 3.0))).persons
    assert np.flatnonzero(found).tolist() == [3]


@pytest.mark.parametrize(("n_items", "per_person", "n_components"), [(3, 2, 3), (3, 2, 4), (3, 3, 3), (4, 2, 4)])
def test_persons__counting_is_the_rank_of_the_jacobian(n_items: int, per_person: int, n_components: int) -> None:
    """The probabilities of all sets of pairs that a person may give, and their derivatives, numerically."""
    rng = np.random.default_rng(1)
    point = rng.normal(0, 1, n_components * n_items + n_components)
    pairs = list(itertools.combinations(range(n_items), 2))
    views = [(a, b) for a, b in pairs] + [(b, a) for a, b in pairs]

    def probabilities(theta: NDArray[Any]) -> NDArray[Any]:
        worths = np.exp(theta[: n_components * n_items].reshape(n_components, n_items))
        shares = np.exp(theta[-n_components:]) / np.exp(theta[-n_components:]).sum()
        chance = np.array([worths[:, a] / (worths[:, a] + worths[:, b]) for a, b in views])
        sets = itertools.combinations_with_replacement(range(len(views)), per_person)
        return np.array([shares @ np.prod(chance[list(each)], axis=0) for each in sets])

    steps = 1e-5 * np.eye(len(point))
    jacobian = np.array([(probabilities(point + step) - probabilities(point - step)) / 2e-5 for step in steps])
    values = np.linalg.svd(jacobian, compute_uv=False)
    rank = int((values > 1e-8 * values[0]).sum())
    n_free = n_items * (n_items - 1) // 2
    n_parameters = n_components * n_items - 1
    assert rank == min(n_parameters, math.comb(n_free + per_person, per_person) - 1)
    found = by_persons(pairs_by_persons(n_items, [per_person] * 500))
    assert (found.status(n_components) == "not identifiable") == (rank < n_parameters)


def test_fit__persons_are_counted() -> None:
    settings: dict[str, Any] = {"random_state": 0, "max_iter": 30, "tol": 1e-2}
    with pytest.warns(NotIdentifiableWarning, match="2 components are not identifiable"):
        PlackettLuceMixture(2, **settings).fit(pairs_by_persons(4, [1] * 299 + [2]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotIdentifiableWarning)
        PlackettLuceMixture(2, **settings).fit(pairs_by_persons(4, [20] * 60))
