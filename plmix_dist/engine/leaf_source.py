"""LeafSource: where the rows of a pass come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.rankings import RankingBlock


class LeafSource(Protocol):
    """Where leaves come from: a store, a Dask array, or a block in memory."""

    @property
    def source(self) -> Any:
        """Where the rows are."""
        ...

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        ...

    @property
    def n_entries(self) -> int:
        """How many items all rows list together, or have room for."""
        ...

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        ...

    @property
    def decoded_bytes(self) -> float:
        """Bytes of all blocks in memory; 0 where they are there already."""
        ...

    def usable_leaves(self, blocks: Iterator[RankingBlock], start: int) -> list[RankingBlock]:
        """Blocks that came another way, made ready."""
        ...

    def only(self, start: int, stop: int) -> LeafSource:
        """The same leaves with nothing that others need: what travels to a worker."""
        ...
