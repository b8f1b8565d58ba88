"""preflibtools reads the same rankings from PrefLib files. It is lenient: rows are compared, not refusals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import plmix_dist as pl

preflibtools = pytest.importorskip("preflibtools.instances", reason="preflibtools is not installed")
DATA = Path(__file__).parents[3] / "shared" / "data"
OWN = Path(__file__).parents[1] / "data" / "made_election.soi"
FILES = sorted(path for suffix in ("soi", "soc", "toc", "toi") for path in DATA.glob(f"**/*.{suffix}"))
# Larger files are read by `make test-full`.
QUICK_BYTES = 100_000


def by_preflibtools(path: Path) -> Counter[tuple[frozenset[str], ...]]:
    """How often each order was given: places, best first, as sets of names."""
    instance = preflibtools.OrdinalInstance(str(path))
    names = instance.alternatives_name
    found: Counter[tuple[frozenset[str], ...]] = Counter()
    for order, count in instance.multiplicity.items():
        found[tuple(frozenset(names[item] for item in place) for place in order)] += count
    return found


def by_ingest(path: Path, folder: Path) -> Counter[tuple[frozenset[str], ...]]:
    """The same from a store, as it was read: with the ties that it has."""
    store = pl.ingest(path, folder / "store")
    found: Counter[tuple[frozenset[str], ...]] = Counter()
    for row in store.block().rows():
        places = [frozenset(store.item_names[item] for item in place) for place in row.ordered]
        found[tuple(places)] += round(row.weight)
    return found


def test_a_simulated_file_is_read_alike(tmp_path: Path) -> None:
    pl.simulate(tmp_path / "made", n_rankings=300, n_items=6, n_components=2, length=3, unranked="below")
    pl.export(tmp_path / "made", tmp_path / "lines.soi")
    # preflibtools takes the last of equal lines; merged, there is one line per order.
    pl.ingest(tmp_path / "lines.soi", tmp_path / "merged", merge=True)
    pl.export(tmp_path / "merged", tmp_path / "made.soi")
    found = by_ingest(tmp_path / "made.soi", tmp_path)
    assert found == by_preflibtools(tmp_path / "made.soi")
    assert found.total() == 300


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=pytest.mark.full if path.stat().st_size > QUICK_BYTES else ())
        for path in (OWN, *FILES)
    ],
)
def test_a_real_file_is_read_alike(path: Path, tmp_path: Path) -> None:
    assert by_ingest(path, tmp_path) == by_preflibtools(path)
