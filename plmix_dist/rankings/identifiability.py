"""How many components rankings can identify: published theorems, applied to what the rows order.

Zhao, Piech & Xia (2016), for rankings of all n items: K components are not identifiable if n <= 2 K - 1. Two components
are from n = 4 on. For n >= 6 and K <= floor((n - 2) / 2)! almost all parameters are ("generic" below).
Zhao & Xia (2019), for partial rankings: with the first l1 places, and orders or choices of l2 items (l2 = 1 if there
are none), K components are not identifiable if l1 + l2 <= 2 K - 1. The first l places count like l + 1 items. Two
components are identifiable from the first three places; from the first two and pairs; from orders of four items; and
from choices out of two, three and four items.
Several rankings per person are independent given the component. Allman, Matias & Rhodes (2009), after Kruskal: with
three or more rankings per person, each with F free probabilities, K <= F + 1 components are identifiable for almost all
parameters. Not identifiable are more parameters than G rankings of a person have free probabilities in any order,
binom(F + G, G) - 1, and mixtures of first places, two per person.
"""

from __future__ import annotations

from math import comb, factorial, perm
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.rankings.block import RankingBlock
from plmix_dist.rankings.columns import Floats
from plmix_dist.rankings.ties import unorder_last_ties

_Status = Literal["identifiable", "generic", "not identifiable", "unknown"]

# Longer rankings are counted with this length: it supports more components than anybody fits.
_LONGEST = 32
# Rankings of some length count if at least this share of the weight is as long: a handful of long rankings among
# millions of short ones identify components in theory only.
_LEAST_SHARE = 0.01
_FEWEST_FOR_TWO = 4
# Most persons: this share of them.
_MOST_PERSONS = 0.5
# Persons with three rankings or more identify components on their own if there are this many per parameter.
_PERSONS_PER_PARAMETER = 10
_VIEWS = 3
# More components than anybody fits.
_MOST_COMPONENTS = 10**6
_FEWEST_FOR_GENERIC = 6


class OrderedLengths(NamedTuple):
    """Weight of rows by what they order, each (33,): entry l is the weight of rows of length l, the last of l >= 32."""

    # Rows that order the first l places of all items. A full ranking of n items has the first n - 1
    firsts: Floats
    orders: Floats  # Rows that order l items and were offered no others
    parts: Floats  # Rows that order the first l of the items of a slate, l >= 2
    choices: Floats  # Rows that choose one of l items of a slate
    slates: Floats  # Rows of `parts` and `choices`, by the number of items offered
    weight: Floats  # Shape (): the total weight
    persons: Floats  # Persons by how many rankings that order something they gave


class _Identifiability(NamedTuple):
    """How many components data can identify, and why."""

    n_items: int  # The number of items
    certain: int  # The largest number of components that is identifiable for all parameters
    generic: int  # The largest number of components that is identifiable for almost all parameters
    counts_like: int  # The rankings count like full rankings of this many items
    at_most_like: int  # They identify no more than full rankings of this many items
    described: str  # What the rankings give, in words
    per_person: int = 1  # Half of the persons, or more, gave this many rankings
    n_free: int = 0  # Free probabilities of the commonest kind of ranking
    only_firsts: bool = False  # Whether that kind is the first place of all items
    by_persons: int = 1  # The largest number of components that is generic because persons gave several rankings

    def status(self, n_components: int) -> _Status:
        """What is known about a number of components.

        Examples
        --------
        >>> from plmix_dist.rankings import RankingBlock
        >>> found = identifiability(ordered_lengths(RankingBlock.from_array([[0, 1, 2, 3, 4]])), n_items=5)
        >>> [found.status(n_components) for n_components in (1, 2, 3)]
        ['identifiable', 'identifiable', 'not identifiable']
        """
        if n_components <= self.certain:
            return "identifiable"
        if n_components <= self.generic:
            return "generic"
        if self.per_person > 1:
            return "not identifiable" if self._too_few(n_components) else "unknown"
        return "not identifiable" if self.at_most_like <= 2 * n_components - 1 else "unknown"

    def _too_few(self, n_components: int) -> bool:
        """Whether this many rankings per person cannot identify this many components, by counting."""
        known = comb(self.n_free + self.per_person, self.per_person) - 1
        return n_components * self.n_items - 1 > known or (self.only_firsts and self.per_person < _VIEWS)

    def reason(self, n_components: int) -> str:
        """Why a number of components is, or is not, identifiable, in one sentence.

        Examples
        --------
        >>> from plmix_dist.rankings import RankingBlock
        >>> found = identifiability(ordered_lengths(RankingBlock.from_array([[0, 1, 2, 3, 4]])), n_items=5)
        >>> print(found.reason(3))
        the rankings order all 5 items, and 3 components need 8 for almost all parameters (Zhao, Piech & Xia 2016)
        """
        status = self.status(n_components)
        if n_components == 1:
            return f"{self.described}, and one component needs no more than connected comparisons"
        if status == "identifiable":
            return f"{self.described}, and two components need no more than that ({_sources(self)})"
        if status == "generic" and n_components <= self.by_persons:
            return (
                f"{self.described}, and three rankings per person are enough for {n_components} components ({_PERSONS})"
            )
        if self.per_person > 1:
            return f"{self.described}; {self._counted(n_components)}"
        if status == "generic":
            return f"{self.described}, enough for almost all parameters of {self.generic:,} components ({_SOURCES})"
        needed = f"{n_components} components need {_items_needed(n_components)} for almost all parameters"
        if n_components == 2:
            needed = f"2 components need {_FEWEST_FOR_TWO}"
        return f"{self.described}, and {needed} ({_sources(self)})"

    def _counted(self, n_components: int) -> str:
        """Free probabilities of the rankings of a person beside the parameters, in words."""
        given = f"{self.per_person} of them with {self.n_free:,} free probabilities each"
        parameters = f"{n_components * self.n_items - 1:,} parameters of {n_components} components"
        if self._too_few(n_components):
            return f"{given} do not determine {parameters}"
        if self.per_person < _VIEWS:
            return f"{given} may determine {parameters} locally; three per person would be enough ({_PERSONS})"
        return f"{given} are known to be enough for {self.by_persons:,} components ({_PERSONS})"


_SOURCES = "Zhao, Piech & Xia 2016"
_PERSONS = "Allman, Matias & Rhodes 2009"


def ordered_lengths(block: RankingBlock) -> OrderedLengths:
    """Weight of the rows of a block by what they order. Results of several blocks can be added, field by field.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[2, 0, 1, 3], [1, 0, -1, -1]], n_items=4, unranked="below")
    >>> np.flatnonzero(ordered_lengths(block).firsts).tolist()
    [2, 3]
    """
    block = unorder_last_ties(block)
    n_items, weights = block.n_items, block.row_weights
    ordered = block.n_ordered.astype(np.int64)
    offered = np.where(block.below, n_items, block.n_listed.astype(np.int64))
    # The last of the offered items needs no choice.
    whole = ordered >= offered - 1
    all_items = offered == n_items
    slate = ~whole & ~all_items

    def by(lengths: NDArray[np.int64], rows: NDArray[np.bool_]) -> Floats:
        capped = np.minimum(lengths[rows], _LONGEST)
        return np.bincount(capped, weights[rows], minlength=_LONGEST + 1).astype(np.float64)

    return OrderedLengths(
        firsts=by(np.minimum(ordered, n_items - 1), all_items),
        orders=by(offered, whole),
        parts=by(ordered, slate & (ordered > 1)),
        choices=by(offered, slate & (ordered == 1)),
        slates=by(offered, slate),
        weight=np.array(weights.sum()),
        persons=_persons(block, (ordered > 0) & (offered > 1)),
    )


def _persons(block: RankingBlock, orders_something: NDArray[np.bool_]) -> Floats:
    """(33,): persons by their number of rankings; the weight of a row is how often its person gave it."""
    weights = block.row_weights * orders_something
    if block.groups is None or block.within is not None:
        found = np.zeros(_LONGEST + 1)
        found[1] = weights.sum()
        return found
    given = np.add.reduceat(weights, np.flatnonzero(block.group_starts)) if block.n_rankings else weights
    return np.bincount(np.minimum(given, _LONGEST).astype(np.int64), minlength=_LONGEST + 1).astype(np.float64)


def identifiability(lengths: OrderedLengths, n_items: int) -> _Identifiability:
    """How many components rankings of these lengths can identify.

    Orders and choices of a part of the items are taken to cover all sets of items of their size, as in the theorems.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> top_three = RankingBlock.from_array([[2, 0, 1]], n_items=10, unranked="below")
    >>> found = identifiability(ordered_lengths(top_three), n_items=10)
    >>> found.certain, found.generic, found.counts_like
    (2, 2, 4)
    >>> found.described
    'the rankings give at most the first 3 of 10 places, which count like 4 items'
    """
    weight = float(lengths.weight)
    firsts, orders = _longest(lengths.firsts, weight), _longest(lengths.orders, weight)
    parts, slates = _longest(lengths.parts, weight), _longest(lengths.slates, weight)
    counts_like = max(firsts + 1, orders, parts + 1 if parts else 0, 2 if _longest(lengths.choices, weight) else 0)
    counts_like = min(n_items, counts_like)
    two = n_items >= _FEWEST_FOR_TWO and (
        counts_like >= _FEWEST_FOR_TWO or (firsts >= 2 and orders >= 2) or _choices_up_to_four(lengths)
    )
    certain = 2 if two else 1
    generic = factorial((counts_like - 2) // 2) if counts_like >= _FEWEST_FOR_GENERIC else 1
    per_person = max(1, _longest(lengths.persons, float(lengths.persons.sum()), _MOST_PERSONS))
    n_free, only_firsts = _free_probabilities(lengths, n_items)
    by_persons = _generic_by_persons(lengths.persons, per_person, n_free, n_items)
    described = _described(firsts, orders, parts, slates, n_items)
    if per_person > 1:
        described += f", {per_person}{' or more' if per_person == _LONGEST else ''} by most persons"
    elif by_persons > 1:
        described += f", {_VIEWS} or more by {lengths.persons[_VIEWS:].sum():,.0f} persons"
    generic, at_most_like = max(certain, generic, by_persons), min(n_items, firsts + max(orders, slates, 1))
    return _Identifiability(
        n_items, certain, generic, counts_like, at_most_like, described, per_person, n_free, only_firsts, by_persons
    )


def _generic_by_persons(persons: Floats, per_person: int, n_free: int, n_items: int) -> int:
    """The largest number of components that three or more rankings per person identify for almost all parameters.

    If most persons gave fewer, those who gave three must be enough to fit all parameters on their own.
    """
    most = min(n_free + 1, _MOST_COMPONENTS)
    if n_free == 1:  # one pair: a mixture of binomial distributions
        most = (max(per_person, _VIEWS) + 1) // 2
    if per_person < _VIEWS:
        n_parameters = float(persons[_VIEWS:].sum()) / _PERSONS_PER_PARAMETER
        most = min(most, int((n_parameters + 1) // n_items))
    return max(1, most)


def _free_probabilities(lengths: OrderedLengths, n_items: int) -> tuple[int, bool]:
    """Free probabilities of one ranking of the commonest kind, and whether this is the first place of all items."""
    kinds = (lengths.firsts, lengths.orders, lengths.choices, lengths.parts)
    kind, length = divmod(int(np.argmax([weights[1:] for weights in kinds])), _LONGEST)
    length = min(length + 1, n_items)
    if kind == 0:
        return perm(n_items, length) - 1, length == 1 and n_items > 2
    if kind == 2:
        return comb(n_items, length) * (length - 1), False
    offered = length if kind == 1 else min(length + 1, n_items)
    return comb(n_items, offered) * (factorial(offered) - 1), False


def _longest(weights: Floats, total: float, least_share: float = _LEAST_SHARE) -> int:
    """The largest length that enough of the weight reaches; 0 if there is none."""
    at_least = np.cumsum(weights[::-1])[::-1]
    reached = np.flatnonzero(at_least[1:] >= least_share * total) + 1
    return int(reached[-1]) if len(reached) and at_least[1] > 0 else 0


def _choices_up_to_four(lengths: OrderedLengths) -> bool:
    """Whether there are choices out of two, of three and of four items."""
    out_of = [float(lengths.choices[size] + lengths.orders[size:].sum()) for size in (2, 3, 4)]
    return min(out_of) >= _LEAST_SHARE * float(lengths.weight) > 0


def _described(firsts: int, orders: int, parts: int, slates: int, n_items: int) -> str:
    if firsts >= min(n_items - 1, _LONGEST):
        return f"the rankings order all {n_items} items" if n_items <= _LONGEST else "the rankings are long"
    given = []
    if firsts:
        given.append(f"give at most the first {firsts} of {n_items} places, which count like {firsts + 1} items")
    if parts:
        given.append(f"give at most the first {parts} places of slates, which count like {parts + 1} items")
    elif slates:
        given.append(f"choose one of up to {slates} items")
    if orders == 2:
        given.append("compare single pairs, which count like 2 items")
    elif orders > 2:
        given.append(f"order at most {orders} of {n_items} items")
    return f"the rankings {' or '.join(given) or 'order nothing'}"


def _items_needed(n_components: int) -> int:
    """The fewest items of full rankings that identify this many components for almost all parameters."""
    half = next(half for half in range(2, _LONGEST) if factorial(half) >= n_components)
    return 2 * half + 2


def _sources(found: _Identifiability) -> str:
    return f"{_SOURCES}; for partial rankings Zhao & Xia 2019" if found.counts_like < found.n_items else _SOURCES
