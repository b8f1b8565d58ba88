"""The files of ../shared/data/doors with their expected.json, and what a store holds in the same terms."""

from __future__ import annotations

import collections
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import ingest

if TYPE_CHECKING:
    from plmix_dist.store import RankingStore

DOORS = Path(__file__).parents[3] / "shared" / "data" / "doors"


def expected(name: str) -> dict[str, Any]:
    """What the right reading of a file is; the test is skipped where the files are not there."""
    file = DOORS / f"{name}.expected.json"
    if not file.exists():
        pytest.skip("needs ../shared/data/doors")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def digest(store: RankingStore) -> str:
    """SHA-256 of all rankings by name, equal ones merged, as the files beside the data have it."""
    names, times = store.item_names, collections.Counter[str]()
    for block in store.iter_leaves():
        for row in block.rows():
            text = " > ".join(" = ".join(sorted(names[item] for item in place)) for place in row.ordered)
            if row.offered:
                text += " | " + " , ".join(sorted(names[item] for item in row.offered))
            times[text] += row.weight  # type: ignore[assignment]
    lines = "\n".join(f"{text}\t{round(weight, 9):g}" for text, weight in sorted(times.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def check_door(name: str, store: Path, **options: Any) -> RankingStore:
    """Ingest a file and compare everything with its expected.json."""
    wanted = expected(name)
    made = ingest(DOORS / name, store, client=False, **options)
    assert made.n_rankings == wanted["n_rankings"]
    assert made.total_weight == pytest.approx(wanted["total_weight"], abs=1e-6)
    assert set(made.item_names) == set(wanted["items"])
    assert digest(made) == wanted["digest_sha256"]
    short = {
        row.unranked
        for block in made.iter_leaves()
        for row in block.rows()
        if sum(map(len, row.ordered)) + len(row.offered) < made.n_items
    }
    assert short <= {wanted["unlisted_items"]}
    return made
