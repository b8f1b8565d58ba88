"""example(): made-up rankings with names, for first steps, pages and tests; `plmix example` writes them to a file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from plmix_dist.settings import one_of


class _Taste(NamedTuple):
    """A group of people: its share, and what it likes, best first."""

    share: float
    likes: tuple[str, ...]


class _Example(NamedTuple):
    """People who name their favourites of some items, best first: how many people, and most favourites of one."""

    tastes: tuple[_Taste, ...]
    n_people: int
    most: int


_EXAMPLES = {
    "drinks": _Example(
        (
            _Taste(0.6, ("coffee", "espresso", "cocoa", "cola", "black tea", "lemonade", "green tea", "mate")),
            _Taste(0.4, ("green tea", "mate", "black tea", "lemonade", "cocoa", "coffee", "cola", "espresso")),
        ),
        n_people=600,
        most=5,
    )
}
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
    known = _EXAMPLES[one_of("name", name, tuple(_EXAMPLES))]
    rng = np.random.default_rng(_SEED)
    chosen = rng.choice(len(known.tastes), size=known.n_people, p=[taste.share for taste in known.tastes])
    n_items = len(known.tastes[0].likes)
    noise = rng.gumbel(size=(known.n_people, n_items))
    orders = np.argsort(_STEP * np.arange(n_items) - noise, axis=1)
    lengths = rng.integers(3, known.most + 1, size=known.n_people)
    return [
        [known.tastes[taste].likes[place] for place in order[:length]]
        for taste, order, length in zip(chosen, orders, lengths, strict=True)
    ]
