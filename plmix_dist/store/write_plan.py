"""WritePlan: everything that determines the bytes of a store, so that a second run can continue the first."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from plmix_dist.store.arrays import CHUNK_BYTES
from plmix_dist.store.manifest import seal, sha256, unseal


@dataclass(frozen=True)
class WritePlan:
    """Everything that determines the bytes of a store. The same plan gives the same bytes.

    Examples
    --------
    >>> plan = WritePlan("ingest", ["a", "b"], leaf_rows=4096, n_partitions=2, settings={})
    >>> plan.partitions, WritePlan.from_bytes(plan.to_bytes(), "plan.json") == plan
    (range(0, 2), True)
    """

    kind: str
    item_names: list[str]
    leaf_rows: int
    n_partitions: int
    settings: dict[str, Any]
    sources: list[dict[str, Any]] = field(default_factory=list)
    chunk_bytes: int = CHUNK_BYTES
    first_partition: int = 0

    @property
    def fingerprint(self) -> str:
        """A digest of the plan without the number of its first partition."""
        content = asdict(self)
        del content["first_partition"]
        return sha256(json.dumps(content, sort_keys=True).encode())

    @property
    def partitions(self) -> range:
        """The numbers of the partitions to write."""
        return range(self.first_partition, self.first_partition + self.n_partitions)

    def to_bytes(self) -> bytes:
        """Sealed JSON.

        Examples
        --------
        >>> plan = WritePlan("ingest", ["a", "b"], leaf_rows=4096, n_partitions=2, settings={})
        >>> json.loads(plan.to_bytes())["kind"]
        'ingest'
        """
        return seal(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """From sealed JSON.

        Examples
        --------
        >>> plan = WritePlan("ingest", ["a", "b"], leaf_rows=4096, n_partitions=2, settings={})
        >>> WritePlan.from_bytes(plan.to_bytes(), "plan.json").fingerprint == plan.fingerprint
        True
        """
        return cls(**unseal(data, where))
