"""Drawing rankings from a mixture of Plackett-Luce models, or of models with other noise in their utilities."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.rankings.block import RankingBlock
from plmix_dist.rankings.columns import Floats, Unranked, item_dtype, narrowest
from plmix_dist.settings import one_of

_Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]


# Noise of random utilities: items are ranked by utility plus noise (Nguyen & Zhang 2023, Definition 1).


# With d = utility of i - utility of j, i ranks before j with probability
# - gumbel: 1 / (1 + exp(-d)), the Plackett-Luce model;
# - normal: Phi(d), Thurstone's model, which is what link="probit" inverts;
# - exponential: 1 - exp(-d) / 2 for d >= 0, because the difference of two such noises is a Laplace variable.
# To add a noise, add it here.
NOISES: dict[str, _Draw] = {
    # Minus the logarithm of an exponential time: the first to arrive has the highest utility.
    "gumbel": lambda rng, shape: -np.log(rng.standard_exponential(shape)),
    "normal": lambda rng, shape: rng.standard_normal(shape) * math.sqrt(0.5),  # of variance 1/2
    "exponential": lambda rng, shape: rng.standard_exponential(shape),  # of mean 1
}


# Random numbers drawn at once: enough for NumPy to be efficient, and 32 MB of memory at most.
_BATCH_KEYS = 1 << 22


def draw_log_worths(n_components: int, n_items: int, differing: int | None, rng: np.random.Generator) -> Floats:
    """(n_components, n_items): log-worths of the paper's model.

    The first `differing` items have standard normal log-worths in each component (Nguyen & Zhang 2023,
    Theorem 1). All other log-worths are 0. `differing=None` means all items.

    Examples
    --------
    >>> draw_log_worths(2, 4, 1, np.random.default_rng(0)).round(1).tolist()
    [[0.1, 0.0, 0.0, 0.0], [-0.1, 0.0, 0.0, 0.0]]
    """
    differing = n_items if differing is None else differing
    if not 1 <= differing <= n_items:
        raise SettingsError(f"differing must be between 1 and the number of items, {n_items}, but is {differing}")
    log_worths = np.zeros((n_components, n_items))
    log_worths[:, :differing] = rng.standard_normal((n_components, differing))
    return log_worths


def draw_rankings(
    log_worths: Floats,
    shares: Floats,
    n_rankings: int,
    rng: np.random.Generator,
    *,
    length: int | None = None,
    unranked: Unranked | None = None,
    noise: str = "gumbel",
) -> tuple[RankingBlock, NDArray[np.int64]]:
    """Rankings drawn from a mixture, and the component of each.

    Shapes: log_worths (n_components, n_items), shares (n_components,).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> block, component = draw_rankings(np.array([[9.0, 0.0, -9.0]]), np.ones(1), 2, rng)
    >>> block.to_array().tolist(), component.tolist()
    ([[0, 1, 2], [0, 1, 2]], [0, 0])
    """
    n_items = log_worths.shape[1]
    length = checked_length(length, n_items, unranked)
    one_of("noise", noise, tuple(NOISES))
    component = np.searchsorted(np.cumsum(shares)[:-1], rng.random(n_rankings), side="right")
    listed = np.empty((n_rankings, length), item_dtype(n_items))
    batch = max(1, _BATCH_KEYS // n_items)
    for start in range(0, n_rankings, batch):
        rows = slice(start, min(start + batch, n_rankings))
        worths = log_worths[component[rows]]
        if unranked == "absent" and length < n_items:
            listed[rows] = _order_random_subsets(worths, length, rng, noise)
        else:
            listed[rows] = _best(worths, length, rng, noise)
    n_listed = narrowest(np.full(n_rankings, length))
    block = RankingBlock(
        items=listed.ravel(),
        n_listed=n_listed,
        n_ordered=n_listed,
        below=np.full(n_rankings, unranked == "below" and length < n_items),
        n_items=n_items,
    )
    return block, component


def checked_length(length: int | None, n_items: int, unranked: Unranked | None) -> int:
    """The number of items that each ranking lists, or an error if the settings contradict each other.

    Examples
    --------
    >>> checked_length(None, 5, None), checked_length(3, 5, "below")
    (5, 3)
    """
    if n_items < 2:
        raise SettingsError(f"a ranking needs at least two items, but got {n_items}")
    if unranked not in (None, "below", "absent"):
        raise SettingsError(f'unranked must be "below" or "absent", but got {unranked!r}')
    if length is None or length == n_items:
        return n_items
    shortest = 2 if unranked == "absent" else 1
    if not shortest <= length < n_items:
        raise SettingsError(f"length must be between {shortest} and {n_items}, but is {length}")
    if unranked is None:
        raise SettingsError(
            f'rankings of {length} of {n_items} items: say unranked="below" for the best {length} of all items, '
            f'or unranked="absent" for a full ranking of {length} random ones'
        )
    return length


def _arrival_times(utilities: Floats, rng: np.random.Generator, noise: str) -> Floats:
    """Minus the random utilities. With Gumbel noise, logarithms of exponential arrival times."""
    return -NOISES[noise](rng, utilities.shape) - utilities


def _best(log_worths: Floats, length: int, rng: np.random.Generator, noise: str) -> NDArray[np.int64]:
    """(rows, length): the first items to arrive, in order."""
    times = _arrival_times(log_worths, rng, noise)
    if length > log_worths.shape[1] // 4:
        return np.argsort(times, axis=1)[:, :length]
    first = np.argpartition(times, length, axis=1)[:, :length]
    return np.take_along_axis(first, np.argsort(np.take_along_axis(times, first, axis=1), axis=1), axis=1)


def _order_random_subsets(log_worths: Floats, length: int, rng: np.random.Generator, noise: str) -> NDArray[np.int64]:
    """(rows, length): random subsets of items, each in the order in which they arrive."""
    n_rows, n_items = log_worths.shape
    subset = np.argpartition(rng.random((n_rows, n_items)), length, axis=1)[:, :length]
    times = _arrival_times(np.take_along_axis(log_worths, subset, axis=1), rng, noise)
    return np.take_along_axis(subset, np.argsort(times, axis=1), axis=1)
