"""The first rankings of an ingest in words, so that people see what was understood."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from plmix_dist.formats.format import number_text
from plmix_dist.formats.items import shown_in_list

if TYPE_CHECKING:
    from plmix_dist.rankings import Ranking
    from plmix_dist.store import RankingStore

_MOST_PLACES = 12


def first_rankings(store: RankingStore, count: int = 3) -> list[str]:
    """The first rankings that the last run added to a store, in words, with item names escaped.

    Examples
    --------
    >>> import numpy as np, tempfile, plmix_dist
    >>> rows = np.array([[2, 0, 1], [1, -1, -1]])
    >>> folder = tempfile.mkdtemp() + "/s"
    >>> store = plmix_dist.ingest(rows, folder, item_names=["tea", "mate", "milk"], unranked="below")
    >>> first_rankings(store)
    ['milk > tea > mate', 'mate > (all others)']
    """
    added = range(*store.manifest.history[-1]["partitions"])
    rows = (
        row for number in added for block in store.partition(number, labels=False) for row in block.rows()
    )
    return [_in_words(row, store) for row in itertools.islice(rows, count)]


def _in_words(row: Ranking, store: RankingStore) -> str:
    """`tea > {mate, milk} > (all others), weight 3`; items on offer but not ordered follow a bar."""
    names = store.item_names
    places = [[shown_in_list(names[item]) for item in place] for place in row.ordered[:_MOST_PLACES]]
    words = [place[0] if len(place) == 1 else "{" + ", ".join(place) + "}" for place in places]
    if len(row.ordered) > _MOST_PLACES:
        words.append(f"... ({len(row.ordered)} places)")
    elif row.unranked == "below":
        words.append("(all others)")
    text = " > ".join(words)
    if row.offered:
        offered = ", ".join(shown_in_list(names[item]) for item in row.offered[:_MOST_PLACES])
        text += f" | {offered}{', ...' if len(row.offered) > _MOST_PLACES else ''}"
    return text if row.weight == 1 else f"{text}, weight {number_text(row.weight)}"
