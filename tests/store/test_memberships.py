"""Memberships as arrays: written in any order by any workers, readable only when they are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import zarr

from plmix_dist.errors import StoreExistsError
from plmix_dist.store import Location, MembershipPlan, MembershipSession, write_memberships

if TYPE_CHECKING:
    from pathlib import Path


def test_memberships__written_in_runs_of_rows(tmp_path: Path) -> None:
    place = Location.of(tmp_path / "a name with spaces")
    probabilities = np.random.default_rng(0).dirichlet([1, 1], 8)
    plan = MembershipPlan(8, 2, chunk_rows=3, of={"model": "a"})
    with MembershipSession.begin(place, plan) as session:
        runs = session.pending()
        assert runs == [(0, 3), (3, 6), (6, 8)]
        for start, stop in reversed(runs):
            write_memberships(place, plan, start, probabilities[start:stop])
        session.finalise()
    group = zarr.open_group(tmp_path / "a name with spaces", mode="r")
    assert group["probabilities"][:].tolist() == probabilities.tolist()
    assert group["component"][:].tolist() == [int(second > first) for first, second in probabilities.tolist()]
    with (
        pytest.raises(StoreExistsError, match="a name with spaces already holds memberships of another model"),
        MembershipSession.begin(place, MembershipPlan(8, 2, chunk_rows=3, of={"model": "b"})),
    ):
        pass
