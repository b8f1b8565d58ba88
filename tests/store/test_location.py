"""Location: keys never leave their root, bytes are synced before they are named, links are not followed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist.errors import SettingsError, StoreAccessError
from plmix_dist.rankings import RankingBlock
from plmix_dist.store import Location
from tests.helpers.oracle import write_store

if TYPE_CHECKING:
    from collections.abc import Callable


def test_listing__a_folder_that_may_not_be_read_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Location.of(tmp_path)
    place.write_bytes("open/a", b"")
    place.write_bytes("closed/b", b"")
    scan = os.scandir

    def forbidden(path: Any = ".") -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    assert place.listing("open") == ["open/a"]
    for prefix in ("", "closed"):
        with pytest.raises(StoreAccessError, match=f"no permission to read {tmp_path}"):
            place.listing(prefix)
    with pytest.raises(StoreAccessError, match="no permission to read"):
        place.child("closed").names()
    assert place.listing("nowhere") == place.child("nowhere").names() == []


@pytest.mark.promise(33)
@pytest.mark.parametrize(
    "key", ["..", "../x", "a/../../x", "/etc/passwd", "a//b", "a/", "", "a\\b", "a b", "a\n", "~", "a/..", "%2e%2e/x"]
)
def test_location__keys_never_leave_the_root(tmp_path: Path, key: str) -> None:
    (tmp_path / "x").write_text("outside")
    (tmp_path / "root/a").mkdir(parents=True)
    place = Location.of(tmp_path / "root")
    actions: dict[str, Any] = {
        "read": lambda: place.read_bytes(key),
        "write": lambda: place.write_bytes(key, b""),
        "exists": lambda: place.exists(key),
        "remove": lambda: place.remove(key),
        "child": lambda: place.child(key),
        "zarr": lambda: place.zarr_store(key, read_only=True),
        "publish": lambda: place.publish("a", key),
    }
    if key:  # without a prefix everything below the root is listed
        actions["list"] = lambda: place.listing(key)
    for name, action in actions.items():
        try:
            action()
        except SettingsError as error:
            assert "is not a key of a store" in str(error)  # noqa: PT017 - the action must be named as well
        else:
            pytest.fail(f"{name} took {key!r}")
    assert (tmp_path / "x").read_text() == "outside"


def test_location__remove_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_text("kept")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/wip").symlink_to(tmp_path / "outside")
    place = Location.of(tmp_path / "root")
    assert place.listing() == ["wip"]
    place.remove("wip")
    assert not (tmp_path / "root/wip").exists()
    assert (tmp_path / "outside/kept").read_text() == "kept"


def test_location__of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Location.of("store/").url == str(tmp_path / "store")
    assert Location.of("~/store").url == str(tmp_path / "home/store")
    assert Location.of(f"file://{tmp_path}/store").url == str(tmp_path / "store")
    assert Location.of("s3://bucket/store/", {"anon": True}) == Location("s3://bucket/store", {"anon": True})
    with pytest.raises(SettingsError, match="a store needs a path or a URL"):
        Location.of("")


def test_location__write_leaves_no_drafts(tmp_path: Path) -> None:
    place = Location.of(tmp_path)
    place.write_bytes("a/b.json", b"old")
    place.write_bytes("a/b.json", b"new")
    assert (place.read_bytes("a/b.json"), place.listing()) == (b"new", ["a/b.json"])
    with pytest.raises(FileNotFoundError):
        place.read_bytes("a/c.json")


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


def test_publish__every_file_is_synced_before_all_are_named(tmp_path: Path, calls: list[tuple[str, Path]]) -> None:
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


@pytest.mark.promise(13)
def test_chunks__have_checksums_that_any_reader_of_zarr_checks(tmp_path: Path) -> None:
    rows = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]], weights=[1.5, 2.5])
    write_store(tmp_path / "store", [[rows.replace(ids=np.array([300, 7]))]])
    described = [json.loads(path.read_text()) for path in (tmp_path / "store/partitions/p000000").glob("*/zarr.json")]
    kinds = {array["data_type"] for array in described}
    assert len(kinds) > 2
    for array in described:
        codecs = {codec["name"]: codec.get("configuration", {}) for codec in array["codecs"]}
        assert "crc32c" in codecs or codecs["zstd"]["checksum"] is True, array["codecs"]
