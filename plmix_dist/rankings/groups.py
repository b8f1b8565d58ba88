"""Groups: several rankings of one person, who has one membership. How many persons there are, and what each weighs.

Without groups every row is a person of its own, and a row of weight w stands for w persons. With groups a person counts
once, and the weight of a row says how often this person gave that ranking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import RankingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings.block import RankingBlock


def check_groups(block: RankingBlock) -> None:
    """An error if the rows of a group are not consecutive: its person would count several times.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> check_groups(RankingBlock.from_array([[0, 1], [1, 0], [0, 1]]).replace(groups=np.array([7, 8, 7])))
    Traceback (most recent call last):
    plmix_dist.errors.RankingError: rows 0 and 2 have group 7, but rows between them do not: sort the rows by group
    """
    if block.groups is None:
        return
    starts = np.flatnonzero(block.group_starts)
    labels = block.groups[starts]
    order = np.argsort(labels, kind="stable")
    again = np.flatnonzero(labels[order[1:]] == labels[order[:-1]])
    if len(again):
        first, second = order[again[0]], order[again[0] + 1]
        raise RankingError(
            f"rows {starts[first]} and {starts[second]} have group {labels[first]}, but rows between them do not: "
            "sort the rows by group"
        )


def membership_weight(block: RankingBlock) -> float:
    """The weight of all memberships: the number of persons with groups, the total weight of the rows without.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0], [0, 1]], weights=[2, 1, 1])
    >>> membership_weight(block), membership_weight(block.replace(groups=np.array([7, 7, 8])))
    (4.0, 2.0)
    """
    if block.groups is None:
        return block.total_weight
    return float(np.count_nonzero(block.group_starts))


def n_memberships(block: RankingBlock) -> int:
    """The number of memberships: persons with groups, rows without.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0], [0, 1]])
    >>> n_memberships(block), n_memberships(block.replace(groups=np.array([7, 7, 8])))
    (3, 2)
    """
    return block.n_rankings if block.groups is None else int(np.count_nonzero(block.group_starts))


def person_of_row(block: RankingBlock) -> NDArray[np.int64]:
    """(n_rankings,): the number of the person who gave each row, from 0.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0], [0, 1]])
    >>> person_of_row(block.replace(groups=np.array([7, 7, 8]))).tolist()
    [0, 0, 1]
    """
    person: NDArray[np.int64] = np.cumsum(block.group_starts) - 1
    return person
