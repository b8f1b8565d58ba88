"""Public ballots and race results: their sizes, their bytes written back, and what is known of them."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from plmix_dist import export, info, ingest, verify

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the real rankings are not beside the repository (../shared/data)"
)


class Known(NamedTuple):
    """What the notes that come with a file say of it."""

    path: str
    n_voters: int
    n_items: int
    unranked: str | None = None
    n_complete: int | None = None


KNOWN = [
    Known("irish/00001-00000002.soi", 29_988, 9),
    Known("irish/00001-00000002.toc", 29_988, 9),
    Known("irish/00001-00000001.soi", 43_942, 12),
    Known("irish/00001-00000003.soi", 64_081, 14),
    Known("apa1998/00028-00000001.soi", 18_723, 5, n_complete=10_978),
    Known("apa1998/00028-00000001.toc", 18_723, 5),
    Known("apa1980/apa1980.csv", 15_449, 5, "below", n_complete=5_738),
    Known("german/german.csv", 2_262, 4, n_complete=2_262),
    Known("nascar2002/nascar2002.csv", 36, 87, "absent"),
    Known("sanfrancisco/00021-00000001.toi", 28_777, 10),
    Known("sanfrancisco/00021-00000006.toi", 18_001, 22),
]


def body_lines(path: Path) -> list[str]:
    """The lines of a file that hold rankings."""
    lines = path.read_text().splitlines()
    return [line for line in lines if not line.startswith("#")] if path.suffix != ".csv" else lines[1:]


@pytest.mark.promise(19)
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.path)
def test_real_data__sizes_and_bytes(tmp_path: Path, known: Known) -> None:
    source = DATA / known.path
    store = ingest(source, tmp_path / "store", unranked=known.unranked)  # type: ignore[arg-type]
    assert store.n_items == known.n_items
    assert store.total_weight == known.n_voters
    rankings = [ranking for block in store.iter_leaves() for ranking in block.rows()]
    assert [ranking.weight for ranking in rankings] == [
        float(re.match(r"\d+", line)[0])  # type: ignore[index]
        for line in body_lines(source)
    ]
    assert store.manifest.history[0]["rejected"] == {}
    assert verify(store) == []
    if known.n_complete is not None:
        # An order of all items but one says as much as a complete one; the notes count both.
        complete = [ranking for ranking in rankings if len(ranking.ordered) >= known.n_items - 1]
        assert sum(ranking.weight for ranking in complete) == known.n_complete
    target = tmp_path / source.name
    export(store, target)
    assert target.read_bytes() == source.read_bytes()


def test_nascar__drivers_who_beat_no_one(tmp_path: Path) -> None:
    source = DATA / "nascar2002/nascar2002.csv"
    with source.open(newline="") as file:
        races = [line["ordering"].split() for line in csv.DictReader(file)]
    beaten = {driver: {other for race in races if driver in race for other in race[race.index(driver) + 1 :]}
              for race in races for driver in race}  # fmt: skip
    losers = sorted((driver for driver, others in beaten.items() if not others), key=int)
    assert losers == ["84", "85", "86", "87"]
    found = info(ingest(source, tmp_path / "store", unranked="absent"))
    assert found["kinds"]["subset"] == 36
    assert found["comparison_graph"]["never_above_another"] == losers
    assert found["comparison_graph"]["outside_largest_group"] == losers
    assert found["comparison_graph"]["largest_group"] == 83
    assert found["comparison_graph"]["n_groups"] == 5


@pytest.mark.parametrize(
    ("path", "kind"), [("irish/00001-00000002.soi", "top-k"), ("irish/00001-00000002.toc", "tied")]
)
def test_irish__an_estimate_exists(tmp_path: Path, path: str, kind: str) -> None:
    found = info(ingest(DATA / path, tmp_path / "store"))
    assert found["comparison_graph"]["n_groups"] == 1
    assert found["kinds"]["full"] + found["kinds"]["top-k"] == len(body_lines(DATA / path))
    orders = [line.split(":")[1] for line in body_lines(DATA / path)]
    n_short = sum("{" in order or order.count(",") < 8 for order in orders)
    assert found["kinds"][kind] == n_short


def test_irish__completed_file_holds_the_same_comparisons(tmp_path: Path) -> None:
    # PrefLib made the .toc of the .soi by tying at the bottom whoever was not listed: the same statement.
    listed, completed = (
        info(ingest(DATA / f"irish/00001-00000002.{kind}", tmp_path / kind))["comparison_graph"]
        for kind in ("soi", "toc")
    )
    assert listed == completed
