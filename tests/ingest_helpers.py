"""What tests of reading and writing share: sources on disk, and the contents of stores by item name."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import ingest
from plmix_dist.errors import PlmixError
from plmix_dist.formats import parquet, sources
from plmix_dist.rankings import Ranking

if TYPE_CHECKING:
    from pathlib import Path

    from plmix_dist.store import RankingStore


def write(path: Path, text: str | bytes) -> Path:
    """A file with exactly these contents, compressed if its name ends in .gz."""
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def row(*places: str | tuple[str, ...], offered: tuple[str, ...] = (), **said: Any) -> Ranking:
    """A row by item names: a place is one name, or a tuple of tied ones."""
    ordered = tuple((place,) if isinstance(place, str) else place for place in places)
    return Ranking(ordered, offered, said.get("unranked", "absent"), said.get("weight", 1.0))  # type: ignore[arg-type]


def named_rows(store: RankingStore) -> list[Ranking]:
    """Every row of a store, items by name."""
    names = store.item_names
    return [
        ranking._replace(
            ordered=tuple(tuple(names[item] for item in place) for place in ranking.ordered),
            offered=tuple(names[item] for item in ranking.offered),
        )
        for block in store.iter_leaves()
        for ranking in block.rows()
    ]


def labels_of(store: RankingStore, column: str) -> list[Any] | None:
    """The ids or groups of a store; None if it has none."""
    labels = getattr(store.block(), column)
    return None if labels is None else labels.tolist()


def ingest_error(source: Any, store: Path, **options: Any) -> str:
    """The message of the error that ingest must raise; no manifest may be left behind."""
    with pytest.raises(PlmixError) as caught:
        ingest(source, store, **options)
    assert not (store / "manifest.json").exists()
    return str(caught.value)


def rejected(store: RankingStore) -> list[dict[str, Any]]:
    """The rejected rows, as the store lists them."""
    return list(store.rejected_rows())


def cut_small(monkeypatch: pytest.MonkeyPatch, size: int = 64) -> None:
    """Cut files into slices of a few lines, as files of gigabytes are cut."""
    monkeypatch.setattr(sources, "SLICE_BYTES", size)
    monkeypatch.setattr(parquet, "SLICE_VALUES", size)


def printed_json(text: str) -> Any:
    """What a verb printed with --json: one JSON value and nothing else."""
    return json.loads(text)
