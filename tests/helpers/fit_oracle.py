"""The Plackett-Luce mixture by its definitions, in plain Python: slow, and with digits to spare.

Sums of exact decimals need no care about order, range or cancellation, which is what makes them an oracle for
compiled code that needs all of it. What optimisers call thousands of times is in floats, with `math.fsum`.
"""

from __future__ import annotations

import math
import random
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from hypothesis import strategies as st

from plmix_dist.rankings import Ranking, RankingBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Table = NDArray[np.float64]

# Far more digits than float64 has, and exponents without end: e ** 700 is a number like any other.
EXACT = Context(prec=50, Emax=10**9, Emin=-(10**9))


# --- what a ranking says ---------------------------------------------------------------------------------


def listed_in_order(row: Ranking) -> list[int]:
    """The ordered items of a row without ties."""
    assert all(len(place) == 1 for place in row.ordered), "the oracle knows no ties"
    return [item for (item,) in row.ordered]


def choices(row: Ranking, n_items: int) -> Iterator[tuple[int, list[int]]]:
    """Each choice of a row: who won, and everything that was on offer; one item alone is no choice."""
    ordered = listed_in_order(row)
    on_offer = set(range(n_items)) if row.unranked == "below" else {*ordered, *row.offered}
    for winner in ordered:
        if len(on_offer) > 1:
            yield winner, sorted(on_offer)
        on_offer.remove(winner)


def top(*items: int, weight: float = 1.0) -> Ranking:
    """The best of all items."""
    return Ranking(tuple((item,) for item in items), (), "below", weight)


def slate(ordered: Sequence[int], offered: Sequence[int], unranked: str = "absent", weight: float = 1.0) -> Ranking:
    """The best of what was on offer."""
    places = tuple((item,) for item in ordered)
    return Ranking(places, tuple(offered), unranked, weight)  # type: ignore[arg-type]


def block_of(rows: Sequence[Ranking], n_items: int) -> RankingBlock:
    return RankingBlock.from_rows(rows, n_items=n_items)


# --- exact statistics ------------------------------------------------------------------------------------


class ExactStatistics(NamedTuple):
    """The sums that kernels give, under the names they have there."""

    log_likelihood: float
    expected_log_likelihood: Table
    shares: Table
    wins: Table
    expected_wins: Table
    rates: Table


@lru_cache(1 << 16)
def exact_exp(number: float) -> Decimal:
    return Decimal(number).exp(EXACT)


def exact_probability(row: Ranking, n_items: int, log_worths: Sequence[float]) -> Decimal:
    """The chance of a row under one component."""
    ordered = listed_in_order(row)
    rest = set(range(n_items)) - set(ordered) if row.unranked == "below" else set(row.offered)
    worth = {item: exact_exp(float(log_worths[item])) for item in (*ordered, *rest)}
    with localcontext(EXACT):
        left = sum((worth[item] for item in rest), Decimal(0))
        chance = Decimal(1)
        for item in reversed(ordered):
            left += worth[item]
            chance *= worth[item] / left
        return chance


def exact_posteriors(
    rows: Sequence[Ranking], n_items: int, log_worths: Table, log_shares: Table
) -> tuple[Table, Table]:
    """Log-likelihood (n_rankings,) and probabilities of components (n_rankings, n_components) of each row."""
    logs, posteriors = [], []
    with localcontext(EXACT):
        for row in rows:
            joint = [
                exact_exp(float(log_share)) * exact_probability(row, n_items, worths)
                for worths, log_share in zip(log_worths, log_shares, strict=True)
            ]
            total = sum(joint)
            logs.append(float(total.ln()))
            posteriors.append([float(chance / total) for chance in joint])
    return np.array(logs), np.array(posteriors).reshape(len(rows), len(log_shares))


def exact_statistics(
    rows: Sequence[Ranking],
    n_items: int,
    log_worths: Table,
    log_shares: Table,
    memberships: Table | None = None,
    *,
    with_rates: bool = True,
) -> ExactStatistics:
    """Every statistic of one pass; with `memberships` (n_rankings, n_components), at these posteriors."""
    n_components = len(log_shares)
    logs, posterior = exact_posteriors(rows, n_items, log_worths, log_shares)
    q = posterior if memberships is None else memberships
    wins, expected = np.zeros((2, n_components, n_items))
    rates = np.zeros((n_components, n_items, n_items) if with_rates else (0, n_items, 0))
    expected_log = np.zeros(n_components)
    with localcontext(EXACT):
        for k, worths_of_k in enumerate(log_worths):
            worth = [exact_exp(float(log_worth)) for log_worth in worths_of_k]
            for number, row in enumerate(rows):
                share = row.weight * q[number, k]
                expected_log[k] += share * float(exact_probability(row, n_items, worths_of_k).ln())
                for winner, on_offer in choices(row, n_items):
                    scale = Decimal(share) / sum(worth[item] for item in on_offer)
                    wins[k, winner] += share
                    for item in on_offer:
                        expected[k, item] += float(scale * worth[item])
                    if with_rates:
                        beaten = [item for item in on_offer if item != winner]
                        rates[k, winner, beaten] += float(scale * worth[winner])
    weights = np.array([row.weight for row in rows])
    return ExactStatistics(math.fsum(weights * logs), expected_log, weights @ q, wins, expected, rates)


# --- likelihoods in floats, for optimisers ---------------------------------------------------------------


def log_sum_exp(values: Iterable[float]) -> float:
    terms = list(values)
    highest = max(terms)
    return highest + math.log(math.fsum(math.exp(term - highest) for term in terms))


def log_probability(row: Ranking, n_items: int, log_worths: Sequence[float]) -> float:
    """The logarithm of a row's chance under one component."""
    return math.fsum(
        log_worths[winner] - log_sum_exp(log_worths[item] for item in on_offer)
        for winner, on_offer in choices(row, n_items)
    )


def log_likelihood(rows: Sequence[Ranking], n_items: int, log_worths: Table, shares: Sequence[float]) -> float:
    """The log-likelihood of rows under a mixture, weights counted."""
    return math.fsum(
        row.weight
        * log_sum_exp(
            math.log(share) + log_probability(row, n_items, worths)
            for worths, share in zip(log_worths, shares, strict=True)
        )
        for row in rows
    )


def with_ghost_rows(rows: Sequence[Ranking], n_items: int, alpha: float) -> list[Ranking]:
    """The rows and, as rows too, the prior: each item has alpha wins and losses against item `n_items`."""
    explicit = []
    for row in rows:
        # The ghost is on offer in no ranking: what ranks below must be listed, or it would rank there too.
        known = {*listed_in_order(row), *row.offered}
        unlisted = tuple(item for item in range(n_items) if item not in known) if row.unranked == "below" else ()
        explicit.append(row._replace(offered=(*row.offered, *unlisted), unranked="absent"))
    for item in range(n_items):
        explicit += [slate([item, n_items], [], weight=alpha), slate([n_items, item], [], weight=alpha)]
    return explicit


def objective(
    rows: Sequence[Ranking],
    n_items: int,
    log_worths: Table,
    ghosts: Sequence[float],
    shares: Sequence[float],
    alpha: float,
) -> float:
    """Log-likelihood and log-prior of a mixture, the prior as the likelihood of its pseudo-rows."""
    pseudo = with_ghost_rows([], n_items, alpha)
    prior = math.fsum(
        row.weight * log_probability(row, n_items + 1, [*worths, ghost])
        for worths, ghost in zip(log_worths, ghosts, strict=True)
        for row in pseudo
    )
    return log_likelihood(rows, n_items, log_worths, shares) + prior


# --- arbitrary rankings without ties ---------------------------------------------------------------------

KINDS = ("full", "top-k", "subset", "slate", "slate of all")


def random_row(rng: random.Random, n_items: int, kind: str, length: int, weight: float) -> Ranking:
    """A row of one kind in random order; `length` items are listed where the kind leaves that open."""
    order = rng.sample(range(n_items), n_items if kind == "full" else length)
    if kind == "full":
        return slate(order, [], weight=weight)
    if kind == "top-k":
        return top(*order[: n_items - 1], weight=weight)
    if kind == "subset":
        return slate(order, [], weight=weight)
    n_ordered = rng.randint(1, len(order))
    unranked = "below" if kind == "slate of all" else "absent"
    return slate(order[:n_ordered], order[n_ordered:], unranked, weight)


def random_rows(seed: int, n_items: int, n_rows: int, *, weighted: bool = True) -> list[Ranking]:
    """Rows of all kinds."""
    rng = random.Random(seed)
    longest = min(n_items, 12)
    return [
        random_row(rng, n_items, rng.choice(KINDS), rng.randint(2, longest), rng.uniform(0.1, 5.0) if weighted else 1.0)
        for _ in range(n_rows)
    ]


def drawn_rows(seed: int, log_worths: Table, shares: Sequence[float], n_rows: int) -> list[Ranking]:
    """Rows of all kinds drawn from a mixture, each with weight 1."""
    rng = np.random.default_rng(seed)
    kinds = random.Random(seed)
    n_items = log_worths.shape[1]
    rows = []
    for component in rng.choice(len(shares), n_rows, p=shares):
        # Items that arrive after exponential times, the worthier the sooner, come in Plackett-Luce order.
        order = np.argsort(rng.exponential(size=n_items) / np.exp(log_worths[component])).tolist()
        kind, length = kinds.choice(KINDS), kinds.randint(1, n_items - 1)
        if kind in ("top-k", "slate of all"):
            rows.append(top(*order[:length]))
            continue
        offered = set(range(n_items)) if kind == "full" else set(rng.permutation(n_items)[: length + 1].tolist())
        kept = [item for item in order if item in offered]
        n_ordered = kinds.randint(1, len(kept)) if kind == "slate" else len(kept)
        rows.append(slate(kept[:n_ordered], kept[n_ordered:]))
    return rows


@st.composite
def mixed_rows(draw: st.DrawFn, n_items: int, *, max_rows: int = 8) -> list[Ranking]:
    """Rows of every kind and weight side by side; full ones only where items are few."""
    kinds = st.sampled_from(KINDS if n_items <= 24 else KINDS[1:])
    rng = random.Random(draw(st.integers(0, 2**32)))
    longest = min(n_items, 24)
    return [
        random_row(rng, n_items, draw(kinds), draw(st.integers(2, longest)), draw(st.floats(1e-3, 1e3)))
        for _ in range(draw(st.integers(1, max_rows)))
    ]


class Parameters(NamedTuple):
    """A mixture to try kernels at."""

    log_worths: Table
    log_shares: Table


@st.composite
def mixtures(draw: st.DrawFn, n_items: int, *, max_components: int = 9, widest: float = 30.0) -> Parameters:
    """Any number of components, worths that range from equal to far apart, shares that range too."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_components = draw(st.integers(1, max_components))
    width = draw(st.sampled_from([0.0, 1.0, widest]))
    shares = rng.dirichlet(np.ones(n_components))
    return Parameters(rng.uniform(-width / 2, width / 2, (n_components, n_items)), np.log(shares))
