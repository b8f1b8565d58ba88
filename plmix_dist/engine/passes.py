"""Passes: whatever answers requests about one set of rankings, in this process or on a cluster, with the same bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.errors import SettingsError
from plmix_dist.values import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distributed import Client

    from plmix_dist.engine.leaf_source import LeafSource
    from plmix_dist.engine.request import Answer, Request
    from plmix_dist.engine.residency import Residency


class Passes(Protocol):
    """Runs passes over one set of rankings, and counts them."""

    n_passes: int

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests in one pass: every block is read once for all of them."""
        ...

    def release(self) -> None:
        """Let go of rows that are kept in memory; a later pass reads them again."""
        ...


def make_passes(source: LeafSource, client: Client | None, residency: Residency) -> Passes:
    """The runner for a client, or for this process where there is none.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> make_passes(as_rankings([[0, 1], [1, 0]]), None, "auto").n_passes
    0
    """
    if client is None:
        return ThreadedPasses(source, residency=residency)
    if not (hasattr(client, "compute") and hasattr(client, "scheduler_info")):
        raise SettingsError(f"client must be a Dask client or None, but is {shown(client)}")
    from plmix_dist.engine.distributed import DistributedPasses

    return DistributedPasses(source, client, residency=residency)
