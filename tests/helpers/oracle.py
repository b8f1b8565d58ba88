"""Rankings, their chances and sealed stores, said again in plain Python; and arbitrary ones to try."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from plmix_dist.datasets.inspect import _verify_partition, _verify_top
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.store import Location, WritePlan, WriteSession, write_partition

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from plmix_dist.datasets.inspect import _Damage
    from plmix_dist.store import RankingStore

LARGEST_INT64 = 2**63 - 1


# --- rankings --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlainRankings:
    """Rankings as lists: what a block must hold, and nothing that a block computes."""

    n_items: int
    rows: list[Ranking]
    ids: list[Any] | None = None
    groups: list[Any] | None = None

    def block(self) -> RankingBlock:
        return RankingBlock.from_rows(self.rows, n_items=self.n_items, ids=self.ids, groups=self.groups)

    def pick(self, numbers: Sequence[int]) -> PlainRankings:
        return PlainRankings(
            self.n_items,
            [self.rows[number] for number in numbers],
            None if self.ids is None else [self.ids[number] for number in numbers],
            None if self.groups is None else [self.groups[number] for number in numbers],
        )


def plain(block: RankingBlock) -> PlainRankings:
    """The contents of a block as lists, read row by row from its columns."""
    return PlainRankings(
        block.n_items,
        list(block.rows()),
        None if block.ids is None else block.ids.tolist(),
        None if block.groups is None else block.groups.tolist(),
    )


def joined(parts: Iterable[PlainRankings]) -> PlainRankings:
    parts = list(parts)
    return PlainRankings(
        parts[0].n_items,
        [row for part in parts for row in part.rows],
        None if parts[0].ids is None else [label for part in parts for label in part.ids or []],
        None if parts[0].groups is None else [label for part in parts for label in part.groups or []],
    )


def full(*items: int, weight: float = 1.0) -> Ranking:
    """A row that ranks these items and no others, without ties."""
    return Ranking(tuple((item,) for item in items), (), "absent", weight)


@st.composite
def rankings(draw: st.DrawFn, n_items: int) -> Ranking:
    """Any valid row: full, top-k, subset or slate, with or without ties, of any positive weight."""
    listed = draw(st.permutations(range(n_items)))[: draw(st.integers(1, n_items))]
    n_ordered = draw(st.integers(1, len(listed)))
    # Only rows that leave items out can say "below"; a lone item was chosen from something only if they do.
    choices = ["below", "absent"] if 1 < len(listed) < n_items else ["below"]
    unranked = "absent" if len(listed) == n_items else draw(st.sampled_from(choices))
    places: list[tuple[int, ...]] = []
    for item in listed[:n_ordered]:
        if places and draw(st.booleans()):
            places[-1] = (*places[-1], item)
        else:
            places.append((item,))
    weight = draw(st.just(1.0) | st.floats(1e-300, 1e100))
    return Ranking(tuple(places), tuple(listed[n_ordered:]), unranked, weight)


@st.composite
def plain_rankings(
    draw: st.DrawFn, *, min_rows: int = 0, max_rows: int = 12, n_items: int | None = None
) -> PlainRankings:
    """Any valid rows of one number of items, with labels of either kind or none; groups stand together."""
    n_items = draw(st.sampled_from([2, 3, 5, 9, 256, 257])) if n_items is None else n_items
    # Permutations of 256 items are slow to draw, and nine of them show as much.
    few = min(n_items, 9)
    rows = draw(st.lists(rankings(few), min_size=min_rows, max_size=max_rows))
    if few < n_items:
        rows = [_spread(row, n_items - few) for row in rows]
    return PlainRankings(n_items, rows, draw(labels(len(rows))), draw(runs_of_labels(len(rows))))


def _spread(row: Ranking, step: int) -> Ranking:
    """The row with its highest items moved to the top of a larger range, where they need wider numbers."""

    def moved(items: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(item + step if item > 4 else item for item in items)

    # What was a full ranking of the few lists only some of the many, and so must not be a lone item.
    return row._replace(ordered=tuple(moved(place) for place in row.ordered), offered=moved(row.offered))


def labels(count: int) -> st.SearchStrategy[list[Any] | None]:
    integers = st.integers(-LARGEST_INT64 - 1, LARGEST_INT64)
    # An empty list says nothing of its kind, so it has no labels.
    kinds = st.none() | st.lists(integers, min_size=count, max_size=count)
    return (kinds | st.lists(st.text(max_size=4), min_size=count, max_size=count)) if count else st.none()


@st.composite
def runs_of_labels(draw: st.DrawFn, count: int) -> list[Any] | None:
    """Labels that stand together: each run of rows has a label of its own."""
    if not count or draw(st.booleans()):
        return None
    runs = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    numbers = [number for number, length in enumerate(runs) for _ in range(length)][:count]
    return numbers if draw(st.booleans()) else [f"person {number}" for number in numbers]


# --- the Plackett-Luce model --------------------------------------------------------------------------------


def order_probability(worths: Sequence[float], order: Sequence[int], on_offer: Iterable[int]) -> float:
    """The chance that items on offer are chosen one after the other in this order."""
    left = set(on_offer)
    chance = 1.0
    for item in order:
        chance *= worths[item] / math.fsum(worths[other] for other in left)
        left.remove(item)
    return chance


def ranking_probabilities(
    log_worths: Sequence[Sequence[float]], shares: Sequence[float], length: int, unranked: str | None
) -> dict[tuple[int, ...], float]:
    """Every order that can be drawn and its chance, by going through all of them."""
    items = range(len(log_worths[0]))
    n_subsets = math.comb(len(items), length)
    chances = {}
    for order in itertools.permutations(items, length):
        # "absent" first draws the subset, each with the same chance, and then ranks it alone.
        on_offer, scale = (order, n_subsets) if unranked == "absent" else (items, 1)
        chances[order] = math.fsum(
            share * order_probability([math.exp(log) for log in logs], order, on_offer) / scale
            for logs, share in zip(log_worths, shares, strict=True)
        )
    return chances


def chi_square(observed: dict[Any, int], chances: dict[Any, float]) -> float:
    """How far counts are from their chances; about the number of cells where they agree."""
    total = sum(observed.values())
    assert set(observed) <= set(chances), f"drew what cannot be drawn: {set(observed) - set(chances)}"
    return math.fsum(
        (observed.get(cell, 0) - total * chance) ** 2 / (total * chance) for cell, chance in chances.items()
    )


def chi_square_bound(n_cells: int) -> float:
    """Six standard deviations above what is expected of counts that agree with their chances."""
    return (n_cells - 1) + 6 * math.sqrt(2 * (n_cells - 1))


# --- stores ----------------------------------------------------------------------------------------------


def plan_for(
    n_items: int,
    n_partitions: int,
    *,
    name: str = "test",
    leaf_rows: int = 4,
    chunk_bytes: int = 64,
    item_names: list[str] | None = None,
) -> WritePlan:
    """A plan of tiny leaves and chunks, so that few rows cross many of both."""
    return WritePlan(
        "ingest",
        item_names or [f"item {number}" for number in range(n_items)],
        leaf_rows=leaf_rows,
        n_partitions=n_partitions,
        settings={"name": name},
        chunk_bytes=chunk_bytes,
    )


def write_store(
    path: str | os.PathLike[str] | Location,
    partitions: Sequence[Sequence[RankingBlock]],
    *,
    append: bool = False,
    **plan: Any,
) -> RankingStore:
    """A finished store of these partitions, each given as the blocks it is written from."""
    n_items = next(block.n_items for blocks in partitions for block in blocks)
    with WriteSession.begin(Location.of(path), plan_for(n_items, len(partitions), **plan), append=append) as session:
        for task in session.pending():
            write_partition(task, partitions[task.number - session.plan.first_partition])
        return session.finalise()


def index_digests(store: RankingStore) -> list[str]:
    """The digest of each partition's index, which holds the digest of each of its files."""
    return [partition.index_sha256 for partition in store.manifest.partitions]


def all_damage(store: RankingStore) -> list[_Damage]:
    """Everything that the checks of a store find."""
    found = _verify_top(store)
    for number in range(store.n_partitions):
        found += _verify_partition(store, number)
    return found


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """When each file below a folder was last written, and its contents."""
    return {
        path.relative_to(root).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


class Forger:
    """Alters a copy of a store and makes every digest fit again, as one who means harm would."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def copy(cls, source: Path, target: Path) -> Forger:
        shutil.copytree(source, target)
        return cls(target)

    def partition(self, number: int) -> Path:
        return self.root / f"partitions/p{number:06d}"

    def change_json(self, path: Path, change: Callable[[dict[str, Any]], None], *, sealed: bool) -> None:
        record = json.loads(path.read_bytes())
        change(record)
        path.write_bytes(self.sealed(record) if sealed else json.dumps(record).encode())

    def change_manifest(self, change: Callable[[dict[str, Any]], None]) -> None:
        self.change_json(self.root / "manifest.json", change, sealed=True)

    def change_index(self, number: int, change: Callable[[dict[str, Any]], None]) -> None:
        path = self.partition(number) / "index.json"
        self.change_json(path, change, sealed=True)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self.change_manifest(lambda manifest: manifest["partitions"][number].update(index_sha256=digest))

    def replace_file(self, number: int, key: str, data: bytes) -> None:
        """Put other bytes in a file of a partition, and their size and digest into its index."""
        (self.partition(number) / key).write_bytes(data)
        record = [len(data), hashlib.sha256(data).hexdigest()]
        self.change_index(number, lambda index: index["files"].update({key: record}))

    def change_array(self, number: int, column: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change what Zarr is told of an array."""
        key = f"{column}/zarr.json"
        record = json.loads((self.partition(number) / key).read_bytes())
        change(record)
        self.replace_file(number, key, json.dumps(record).encode())

    @staticmethod
    def sealed(record: dict[str, Any]) -> bytes:
        """The format's seal, written from its description: sorted JSON, and the SHA-256 of the rest of it."""

        def text(content: dict[str, Any]) -> bytes:
            return json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False).encode()

        content = {key: value for key, value in record.items() if key != "sha256"}
        return text(content | {"sha256": hashlib.sha256(text(content)).hexdigest()})


def single_bit_flips(data: bytes, how_many: int) -> Iterator[tuple[int, bytes]]:
    """Copies of some bytes with one bit changed, at positions spread from the first byte to the last."""
    last = len(data) - 1
    positions = sorted({round(step * last / max(1, how_many - 1)) for step in range(how_many)}) if data else []
    for number, position in enumerate(positions):
        changed = bytearray(data)
        changed[position] ^= 1 << (number % 8)
        yield position, bytes(changed)
