"""Further starts for a search: random log-worths, handfuls of rankings, and the best end, partly seeded again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.kernels import prepare, row_posteriors
from plmix_dist.rankings.randomness import generator
from plmix_dist.starts.make_starts import Start, random_start
from plmix_dist.starts.one_model import fit_one_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock
    from plmix_dist.starts.start_settings import StartSettings

# The two halves of a component that is split are drawn apart by this much: where they are equal, EM cannot part them.
_APART = 0.5
# A handful lists every item about so many times: enough to tell items apart, and few enough for handfuls to differ.
_TIMES_LISTED = 10


class Proposer(NamedTuple):
    """What starts are made from.

    Parameters
    ----------
    rows
        The rankings that the search looks at.
    settings
        The number of components, fixed shares, and the seed.
    """

    rows: RankingBlock
    settings: StartSettings


class Mixture(NamedTuple):
    """The best end so far: log-worths (n_components, n_items) and shares (n_components,)."""

    log_worths: NDArray[np.float64]
    shares: NDArray[np.float64]


def random_worths(proposer: Proposer, best: Mixture | None, number: int) -> Start:
    """Standard normal log-worths, and equal shares.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> proposer = Proposer(RankingBlock.from_array([[0, 1, 2]] * 9 + [[2, 1, 0]] * 9), StartSettings(2))
    >>> random_worths(proposer, None, number=0).about
    {'method': 'random', 'number': 0}
    """
    del best
    return random_start(proposer.settings, proposer.rows.n_items, number)


def handfuls(proposer: Proposer, best: Mixture | None, number: int) -> Start:
    """The log-worths of a handful of rankings for each component, drawn at random, and equal shares.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> proposer = Proposer(RankingBlock.from_array([[0, 1, 2]] * 9 + [[2, 1, 0]] * 9), StartSettings(2))
    >>> handfuls(proposer, None, number=0).log_worths.shape
    (2, 3)
    """
    del best
    rows, settings = proposer
    rng = generator(settings.seed, "handfuls", number)
    n_rows = max(1, round(_TIMES_LISTED * rows.n_items * rows.n_rankings / max(1, len(rows.items))))
    chances = rows.row_weights / rows.total_weight
    log_worths = [
        fit_one_model(rows.take(np.unique(rng.choice(rows.n_rankings, n_rows, p=chances)))).log_worths
        for _ in range(settings.n_components)
    ]
    return Start(np.array(log_worths), _equal_shares(settings), {"method": "handfuls", "number": number})


def one_again(proposer: Proposer, best: Mixture, number: int) -> Start:
    """The best end, with one component at random log-worths.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> proposer = Proposer(RankingBlock.from_array([[0, 1, 2]] * 9 + [[2, 1, 0]] * 9), StartSettings(2))
    >>> best = Mixture(np.zeros((2, 3)), np.array([0.7, 0.3]))
    >>> int((one_again(proposer, best, number=0).log_worths != 0).any(axis=1).sum())
    1
    """
    return _seeded_again(proposer, best, number, 1)


def two_again(proposer: Proposer, best: Mixture, number: int) -> Start:
    """The best end, with two components at random log-worths.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> proposer = Proposer(RankingBlock.from_array([[0, 1, 2]] * 9 + [[2, 1, 0]] * 9), StartSettings(3))
    >>> best = Mixture(np.zeros((3, 3)), np.full(3, 1 / 3))
    >>> int((two_again(proposer, best, number=0).log_worths != 0).any(axis=1).sum())
    2
    """
    return _seeded_again(proposer, best, number, 2)


def worst_explained(proposer: Proposer, best: Mixture, number: int) -> Start:
    """The best end, with one component at the log-worths of rankings that the others explain worst.

    Which rankings these are is partly left to chance, so that no two starts are alike.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> proposer = Proposer(RankingBlock.from_array([[0, 1, 2]] * 9 + [[2, 1, 0]] * 9), StartSettings(2))
    >>> best = Mixture(np.zeros((2, 3)), np.array([0.7, 0.3]))
    >>> worst_explained(proposer, best, number=0).shares.round(3).tolist()
    [0.625, 0.375]
    """
    rows, settings = proposer
    rng = generator(settings.seed, "worst-explained", number)
    log_worths, shares, (component,) = _with_free_components(best, settings, rng, 1)
    log_likelihoods, _ = row_posteriors(rows, prepare(best.log_worths, np.log(best.shares)))
    per_choice = log_likelihoods / np.maximum(rows.n_ordered, 1)
    order = np.argsort(per_choice + per_choice.std() * rng.gumbel(size=len(per_choice)), kind="stable")
    weight_so_far = np.cumsum(rows.row_weights[order])
    n_worst = 1 + int(np.searchsorted(weight_so_far, weight_so_far[-1] / settings.n_components))
    log_worths[component] = fit_one_model(rows.take(np.sort(order[:n_worst]))).log_worths
    return Start(log_worths, shares, {"method": "worst-explained", "number": number})


def split_component(proposer: Proposer, smaller: Mixture, number: int) -> Start:
    """A mixture of fewer components, with one of its components split into two that differ at random.

    The largest component is split first: start number 0 splits it, start number 1 the second largest, and so on. Where
    more than one component is missing, the largest of those that are left are split too.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> proposer = Proposer(RankingBlock.from_array([[0, 1, 2]] * 9 + [[2, 1, 0]] * 9), StartSettings(3))
    >>> smaller = Mixture(np.zeros((2, 3)), np.array([0.75, 0.25]))
    >>> split_component(proposer, smaller, number=0).shares.tolist()
    [0.375, 0.25, 0.375]
    """
    settings = proposer.settings
    rng = generator(settings.seed, "split-component", settings.n_components, number)
    log_worths, shares = smaller.log_worths, smaller.shares
    place = number
    while len(shares) < settings.n_components:
        component = int(np.argsort(-shares, kind="stable")[place % len(shares)])
        apart = _APART * rng.standard_normal(log_worths.shape[1])
        log_worths = np.concatenate([log_worths, log_worths[[component]] - apart])
        log_worths[component] += apart
        shares = np.append(shares, shares[component] / 2)
        shares[component] /= 2
        place = 0
    return Start(log_worths, shares, {"method": "split-component", "number": number})


def _seeded_again(proposer: Proposer, best: Mixture, number: int, n_seeded: int) -> Start:
    rng = generator(proposer.settings.seed, "seeded-again", number)
    log_worths, shares, components = _with_free_components(best, proposer.settings, rng, n_seeded)
    log_worths[components] = rng.standard_normal((len(components), log_worths.shape[1]))
    return Start(log_worths, shares, {"method": "seeded-again", "number": number})


def _with_free_components(
    best: Mixture, settings: StartSettings, rng: np.random.Generator, n_free: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """A copy of the best end with all its components, and the numbers of those that are to be seeded again.

    These are drawn at random and get an equal share; those that the best end has lost are among them.
    """
    n_components, (n_left, n_items) = settings.n_components, best.log_worths.shape
    log_worths, shares = rng.standard_normal((n_components, n_items)), np.full(n_components, 1 / n_components)
    log_worths[:n_left], shares[:n_left] = best
    lost = np.arange(n_left, n_components)[:n_free]
    free = np.append(lost, rng.choice(n_left, min(n_left, n_free - len(lost)), replace=False))
    shares[free] = 1 / n_components
    return log_worths, shares / shares.sum() if settings.shares is None else settings.shares, free


def _equal_shares(settings: StartSettings) -> NDArray[np.float64]:
    n_components = settings.n_components
    return np.full(n_components, 1 / n_components) if settings.shares is None else settings.shares


# One batch of a search. Starts that keep most of the best end improve it most often; the others are independent of it.
# To add a kind, write a function like these and name it here.
BATCH: tuple[Callable[..., Start], ...] = (
    random_worths,
    two_again,
    worst_explained,
    handfuls,
    one_again,
    worst_explained,
    random_worths,
    two_again,
)
