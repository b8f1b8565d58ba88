"""The canonical tree: one way to add up statistics over leaves, whoever computes which of them.

Node (level, index) covers the leaves index * 2**level up to (index + 1) * 2**level. A node is the sum of its two
halves, left plus right, or the left half alone where the data end before the right one begins. Any task that has summed
some nodes can hand them on; siblings are joined wherever they meet, so that the bits of the root depend on nothing but
the leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Nodes = dict[tuple[int, int], Any]


def add_statistics(left: Any, right: Any) -> Any:
    """The sum of two arrays, or of two tuples of such, named or not, field by field."""
    if not isinstance(left, tuple):
        return left + right
    sums = (add_statistics(mine, theirs) for mine, theirs in zip(left, right, strict=True))
    return tuple(sums) if type(left) is tuple else type(left)(*sums)


class TreeSum:
    """Adds up leaves as they come and joins siblings at once, so that few sums are held at a time.

    Examples
    --------
    >>> from collections import namedtuple
    >>> import numpy as np
    >>> Total = namedtuple("Total", ["sum"])
    >>> tree = TreeSum(n_leaves=3)
    >>> for leaf in (2, 0, 1):
    ...     tree.add_leaf(leaf, Total(np.array([float(leaf)])))
    >>> tree.root()
    Total(sum=array([3.]))
    """

    def __init__(self, n_leaves: int, combine: Callable[[Any, Any], Any] = add_statistics) -> None:
        self.n_leaves = n_leaves
        self.combine = combine
        self.nodes: Nodes = {}

    def add_leaf(self, leaf: int, statistics: Any) -> None:
        """Add the statistics of one leaf."""
        self._insert(0, leaf, statistics)

    def add_nodes(self, nodes: Nodes) -> None:
        """Add nodes that were summed elsewhere."""
        for (level, index), statistics in nodes.items():
            self._insert(level, index, statistics)

    def root(self) -> Any:
        """The sum over all leaves; an error where some are missing."""
        if len(self.nodes) != 1:
            raise ValueError(f"the sum is not complete: {sorted(self.nodes)} of {self.n_leaves} leaves")
        ((level, index), statistics) = next(iter(self.nodes.items()))
        assert index == 0, "the root covers the first leaf"
        assert 1 << level >= self.n_leaves, "the root covers the last leaf"
        return statistics

    def _insert(self, level: int, index: int, statistics: Any) -> None:
        """Put a node in, and climb as long as its sibling is there or lies beyond the data."""
        while 1 << level < self.n_leaves:
            sibling = self.nodes.pop((level, index ^ 1), None)
            if sibling is not None:
                pair = (statistics, sibling) if index % 2 == 0 else (sibling, statistics)
                statistics = self.combine(*pair)
            elif index % 2 == 1 or (index + 1) << level < self.n_leaves:
                break
            level, index = level + 1, index // 2
        self.nodes[level, index] = statistics
