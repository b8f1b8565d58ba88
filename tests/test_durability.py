"""What survives a power cut: bytes are synced before they get their name, and the folder after."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from oracle import plan_for, write_store

from plmix_dist.errors import StoreLockedError
from plmix_dist.rankings import RankingBlock
from plmix_dist.store import Location, WriteSession, lock

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """All syncs and renames: what was synced, and what names were given."""
    noted: list[tuple[str, Path]] = []

    def noting(name: str, what: Callable[..., Path]) -> None:
        call: Any = getattr(os, name)

        def noted_call(*arguments: Any, **options: Any) -> Any:
            noted.append((name if name == "fsync" else "rename", what(*arguments)))
            return call(*arguments, **options)

        monkeypatch.setattr(os, name, noted_call)

    noting("fsync", lambda file: Path(f"/proc/self/fd/{file}").readlink())
    for rename in ("rename", "replace", "link"):
        noting(rename, lambda source, target: Path(target))
    return noted


def test_write_bytes__synced_before_it_is_named(tmp_path: Path, calls: list[tuple[str, Path]]) -> None:
    place = Location.of(tmp_path)
    place.write_bytes("a/b.json", b"{}")
    ((first, draft), (second, named), *after) = calls
    assert (first, second) == ("fsync", "rename")
    assert draft.parent == named.parent
    assert draft.name.startswith("b.json.")
    assert named == tmp_path / "a/b.json"
    assert ("fsync", tmp_path / "a") in after


def test_publish__every_file_is_synced_before_all_are_named(
    tmp_path: Path, calls: list[tuple[str, Path]]
) -> None:
    place = Location.of(tmp_path)
    staged = place.staging("partitions/p0")
    (tmp_path / staged / "deep").mkdir(parents=True)
    files = [tmp_path / staged / name for name in ("a", "b", "deep/c")]
    for file in files:
        file.write_bytes(b"bytes that were not synced")
    place.publish(staged, "partitions/p0")
    renamed = calls.index(("rename", tmp_path / "partitions/p0"))
    assert {path for what, path in calls[:renamed] if what == "fsync"} >= set(files)
    assert ("fsync", tmp_path / "partitions") in calls[renamed:]


def test_store__manifest_is_named_last(tmp_path: Path, calls: list[tuple[str, Path]]) -> None:
    write_store(tmp_path / "store", [[BLOCK], [BLOCK]])
    names = [path for what, path in calls if what == "rename"]
    manifest = tmp_path / "store/manifest.json"
    partitions = [place for place, path in enumerate(names) if path.parent == tmp_path / "store/partitions"]
    assert len(partitions) >= 2
    assert max(partitions) < names.index(manifest)
    assert ("fsync", tmp_path / "store") in calls[calls.index(("rename", manifest)) :]


@pytest.mark.promise(17)
@pytest.mark.parametrize(("age", "refused"), [(30, True), (59, True), (61, False)])
def test_lease__lasts_for_a_minute(
    memory_place: Location, monkeypatch: pytest.MonkeyPatch, age: float, refused: bool
) -> None:
    monkeypatch.setattr(lock, "RENEW_SECONDS", 3600)
    with WriteSession.begin(memory_place, plan_for(3, 1)):
        later = time.time() + age
        monkeypatch.setattr(lock, "time", SimpleNamespace(time=lambda: later))
        if refused:
            with pytest.raises(StoreLockedError, match="is writing to"):
                WriteSession.begin(memory_place, plan_for(3, 1)).__enter__()
        else:
            write_store(memory_place, [[BLOCK]])


@pytest.mark.promise(13)
def test_chunks__have_checksums_that_any_reader_of_zarr_checks(tmp_path: Path) -> None:
    rows = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]], weights=[1.5, 2.5])
    write_store(tmp_path / "store", [[rows.replace(ids=np.array([300, 7]))]])
    described = [
        json.loads(path.read_text()) for path in (tmp_path / "store/partitions/p000000").glob("*/zarr.json")
    ]
    kinds = {array["data_type"] for array in described}
    assert len(kinds) > 2
    for array in described:
        codecs = {codec["name"]: codec.get("configuration", {}) for codec in array["codecs"]}
        assert "crc32c" in codecs or codecs["zstd"]["checksum"] is True, array["codecs"]
