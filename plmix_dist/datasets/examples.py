"""example(): made-up rankings with names, for first steps, pages and tests; `plmix example` writes them to a file."""

from __future__ import annotations

import numpy as np

from plmix_dist.settings import one_of

# Two tastes: their shares, and what they like, best first.
_SHARES = (0.6, 0.4)
_TASTES = (
    ("coffee", "espresso", "cocoa", "cola", "black tea", "lemonade", "green tea", "mate"),
    ("green tea", "mate", "black tea", "lemonade", "cocoa", "coffee", "cola", "espresso"),
)
_N_PEOPLE = 600
# The most favourites that one of them names.
_MOST = 5
# Between an item and the next one of a taste, in log-worth: 1 beats 2 with probability 0.67.
_STEP = 0.7
_SEED = 2023


def example(name: str = "drinks") -> list[list[str]]:
    """Made-up rankings with names: what each of some people likes, best first.

    "drinks": 600 people of two tastes name their three to five favourites of eight drinks. They are drawn from a
    mixture of Plackett-Luce models with shares 0.6 and 0.4, always the same.

    Examples
    --------
    >>> people = example("drinks")
    >>> len(people), people[0]
    (600, ['lemonade', 'coffee', 'cocoa'])
    >>> plm.PlackettLuceMixture(2, unranked="below", random_state=0).fit(people).shares_.round(1).tolist()
    [0.6, 0.4]
    """
    one_of("name", name, ("drinks",))
    rng = np.random.default_rng(_SEED)
    chosen = rng.choice(len(_TASTES), size=_N_PEOPLE, p=_SHARES)
    orders = np.argsort(_STEP * np.arange(len(_TASTES[0])) - rng.gumbel(size=(_N_PEOPLE, len(_TASTES[0]))), axis=1)
    lengths = rng.integers(3, _MOST + 1, size=_N_PEOPLE)
    return [
        [_TASTES[taste][place] for place in order[:length]]
        for taste, order, length in zip(chosen, orders, lengths, strict=True)
    ]
