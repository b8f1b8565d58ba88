"""LeafSource: where the rows of a pass come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


class Leaves(Protocol):
    """Some leaves, by their numbers in the whole source: what travels to a worker."""

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The block of each leaf in turn; ids are left out unless `labels`."""
        ...


class LazyRows(NamedTuple):
    """Rows that a cluster computes first: a Dask array (rows, places), and how its values become leaves."""

    array: Any
    leaves_of: Callable[[NDArray[np.integer]], Leaves]


class LeafSource(Leaves, Protocol):
    """Rows by leaves, numbered from 0: of a store, of a Dask array, or of a block in memory."""

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        ...

    @property
    def n_rankings(self) -> int:
        """The number of rows."""
        ...

    @property
    def n_entries(self) -> int:
        """How many items all rows list together, or have room for."""
        ...

    @property
    def leaf_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end."""
        ...

    @property
    def decoded_bytes(self) -> float:
        """Bytes of all rows as blocks in memory; 0 where they are in memory already."""
        ...

    def only(self, start: int, stop: int) -> Leaves:
        """The leaves from `start` to `stop`, with nothing that others need."""
        ...

    def lazy_rows(self, start: int, stop: int) -> LazyRows | None:
        """The rows of some leaves where a cluster has to compute them; None where a worker reads them itself."""
        ...


def read_leaves(source: Leaves, leaves: Sequence[int]) -> Iterator[tuple[int, RankingBlock]]:
    """The blocks of some leaves with their numbers; neighbours are read together.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> [(leaf, block.n_rankings) for leaf, block in read_leaves(as_rankings([[0, 1], [1, 0]]), [0])]
    [(0, 2)]
    """
    first = 0
    while first < len(leaves):
        if isinstance(leaves, range):
            last = len(leaves)
        else:
            last = first + 1
            while last < len(leaves) and leaves[last] == leaves[last - 1] + 1:
                last += 1
        start, stop = leaves[first], leaves[last - 1] + 1
        yield from enumerate(source.iter_leaves(start, stop, labels=False), start=start)
        first = last
