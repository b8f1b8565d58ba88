"""What tests of reading and writing share: sources on disk, and the contents of stores by item name."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import ingest
from plmix_dist.errors import PlmixError
from plmix_dist.rankings import Ranking
from plmix_dist.tables import parquet, sources

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    monkeypatch.setattr(sources, "_SLICE_BYTES", size)
    monkeypatch.setattr(parquet, "_SLICE_VALUES", size)


def printed_json(text: str) -> Any:
    """What a verb printed with --json: one JSON value and nothing else."""
    return json.loads(text)


def text_of(form: str, orders: Sequence[Sequence[str]], groups: Sequence[str]) -> str:
    """The same rankings in any of the three forms, written line by line."""
    numbered = list(enumerate(zip(orders, groups, strict=True)))
    if form == "wide":
        lines = ["id,group,p1,p2,p3,p4,p5"]
        lines += [f"{n},{g}," + ",".join([*o, *[""] * (5 - len(o))]) for n, (o, g) in numbered]
    elif form == "long":
        lines = ["id,group,item,rank"]
        lines += [f"{n},{g},{x},{r}" for n, (o, g) in numbered for r, x in enumerate(o)]
    else:
        lines = ["id,group,ordering"]
        lines += [f"{n},{g},{' > '.join(o)}" for n, (o, g) in numbered]
    return "\n".join(lines) + "\n"
