"""Memberships of a store: published last, continued after any interruption, and never read as -1."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from oracle import snapshot

from plmix_dist import MixtureParams, simulate
from plmix_dist.engine import DistributedExecutor, ThreadedExecutor
from plmix_dist.errors import (
    StoreAccessError,
    StoreExistsError,
    StoreFullError,
    StoreLockedError,
    UnfinishedStoreError,
)
from plmix_dist.prediction import Written, write_predictions
from plmix_dist.store import Location, RankingStore, lock, memberships, open_store
from plmix_dist.store.lock import write_lock

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from distributed import Client

N_RANKINGS, N_CHUNKS = 1_000, 5


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RankingStore:
    """Rankings whose leaves and chunks of memberships end at different rows."""
    path = tmp_path_factory.mktemp("predict") / "rankings"
    return simulate(path, n_rankings=N_RANKINGS, n_items=4, n_components=2, leaf_rows=64, random_state=3)


@pytest.fixture(scope="module")
def mixture(store: RankingStore) -> MixtureParams:
    return MixtureParams.load(store.location.sibling(".truth"))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memberships, "CHUNK_ROWS", N_RANKINGS // N_CHUNKS)


@pytest.fixture
def undisturbed(tmp_path: Path, mixture: MixtureParams, store: RankingStore) -> dict[str, bytes]:
    """The bytes that every disturbed run must end with."""
    write_predictions(mixture, store, tmp_path / "undisturbed", executor=ThreadedExecutor(1))
    return contents(tmp_path / "undisturbed")


def contents(path: Path) -> dict[str, bytes]:
    return {key: data for key, (_, data) in snapshot(path).items()}


def assert_unreadable(out: Path) -> None:
    """No reader of Zarr finds a group, or an array that is not complete; none reads rows that are missing."""
    for path in (out, out / "probabilities", out / "component"):
        if (path / "zarr.json").exists() and path != out:
            assert (np.asarray(zarr.open_array(path, mode="r")[:]) >= 0).all()
            continue
        with pytest.raises((FileNotFoundError, KeyError, ValueError)):
            zarr.open(path, mode="r")


class Stopped(BaseException):
    """A process that ends."""


# --- interrupted -----------------------------------------------------------------------------------------


@pytest.mark.promise(45)
def test_predict__stopped_at_every_write(
    tmp_path: Path,
    mixture: MixtureParams,
    store: RankingStore,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = Location.write_bytes
    seen = set()
    for number in range(1, 100):
        out, count = tmp_path / str(number), 0

        def stopping(self: Location, key: str, data: bytes, number: int = number) -> None:
            nonlocal count
            count += 1
            if count == number:
                seen.add(key.split("/")[0])
                raise Stopped
            write(self, key, data)

        monkeypatch.setattr(Location, "write_bytes", stopping)
        try:
            write_predictions(mixture, store, out, executor=ThreadedExecutor(1))
        except Stopped:
            pass
        else:
            break
        finally:
            monkeypatch.setattr(Location, "write_bytes", write)
        assert_unreadable(out)
        assert write_predictions(mixture, store, out).changed
        assert contents(out) == undisturbed
    assert number == 1 + 1 + 3 * N_CHUNKS + 3, "a plan, three files per chunk, three descriptions"
    assert seen == {"wip", "probabilities", "component", "zarr.json"}


@pytest.mark.promise(45)
@pytest.mark.parametrize("number", [1, 3, N_CHUNKS + 1])
def test_predict__stopped_after_it_published(
    tmp_path: Path,
    mixture: MixtureParams,
    store: RankingStore,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    remove, removed = Location.remove, []

    def stopping(self: Location, prefix: str) -> None:
        removed.append(prefix)
        if len(removed) == number:
            raise Stopped
        remove(self, prefix)

    monkeypatch.setattr(Location, "remove", stopping)
    with pytest.raises(Stopped):
        write_predictions(mixture, store, tmp_path / "out")
    monkeypatch.setattr(Location, "remove", remove)
    assert contents(tmp_path / "out") != undisturbed
    assert write_predictions(mixture, store, tmp_path / "out") == Written(N_RANKINGS, changed=False)
    assert contents(tmp_path / "out") == undisturbed


@pytest.mark.promise(45)
def test_predict__chunks_that_are_there_are_not_written_again(
    tmp_path: Path,
    mixture: MixtureParams,
    store: RankingStore,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []
    write = Location.write_bytes

    def noting(self: Location, key: str, data: bytes) -> None:
        if "/c/" in key:
            written.append(key)
        if len(written) == 5 and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        write(self, key, data)

    interrupted: list[bool] = []
    monkeypatch.setattr(Location, "write_bytes", noting)
    with pytest.raises(KeyboardInterrupt):
        write_predictions(mixture, store, tmp_path / "out", executor=ThreadedExecutor(1))
    first = written[:4]
    written.clear()
    assert write_predictions(mixture, store, tmp_path / "out", executor=ThreadedExecutor(1)) == Written(
        N_RANKINGS, changed=True
    )
    assert len(written) == 2 * N_CHUNKS - len(first)
    assert not set(written) & set(first)
    assert contents(tmp_path / "out") == undisturbed


@pytest.mark.promise(45)
def test_predict__a_chunk_that_was_removed_is_written_again(
    tmp_path: Path,
    mixture: MixtureParams,
    store: RankingStore,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memberships.MembershipSession, "finalise", lambda self: None)
    write_predictions(mixture, store, tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setattr(memberships, "CHUNK_ROWS", N_RANKINGS // N_CHUNKS)
    (tmp_path / "out/component/c/2").unlink()
    write_predictions(mixture, store, tmp_path / "out")
    assert contents(tmp_path / "out") == undisturbed


@pytest.mark.promise(45)
def test_predict__a_chunk_that_was_cut_short_is_written_again(
    tmp_path: Path,
    mixture: MixtureParams,
    store: RankingStore,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As behind a URL whose storage shows files while they are written: the record of the chunk comes after it.
    begin(mixture, store, tmp_path / "out", monkeypatch)
    (tmp_path / "out/wip/done-000002.json").unlink()
    (tmp_path / "out/probabilities/c/2/0").write_bytes(b"cut short")
    write_predictions(mixture, store, tmp_path / "out")
    assert contents(tmp_path / "out") == undisturbed


PREDICTS = """
import sys
from plmix_dist import MixtureParams
from plmix_dist.cli import main
from plmix_dist.store import memberships
memberships.CHUNK_ROWS = 200
write = memberships.write_memberships
from plmix_dist import prediction
def slowly(*arguments):
    write(*arguments)
    print("written", flush=True)
    sys.stdin.readline()
prediction.write_memberships = slowly
main(["predict", *sys.argv[1:], "--workers", "0"])
"""


@pytest.mark.promise(45)
def test_predict__half_written_files_are_removed(
    tmp_path: Path,
    mixture: MixtureParams,
    store: RankingStore,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A run that is killed while a thread writes a chunk leaves its draft.
    finalise = memberships.MembershipSession.finalise

    def with_draft(session: memberships.MembershipSession) -> None:
        draft = tmp_path / "out/probabilities/c/0" / f"0.{'a' * 32}.tmp"
        draft.write_bytes(b"half")
        finalise(session)

    monkeypatch.setattr(memberships.MembershipSession, "finalise", with_draft)
    write_predictions(mixture, store, tmp_path / "out")
    assert contents(tmp_path / "out") == undisturbed


@pytest.mark.promise(45)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=str)
def test_predict__killed_or_interrupted(
    tmp_path: Path,
    mixture: MixtureParams,
    store: RankingStore,
    undisturbed: dict[str, bytes],
    run_python: Callable[..., subprocess.Popen[str]],
    how: signal.Signals,
) -> None:
    truth = f"{store.location.url}.truth"
    process = run_python(PREDICTS, truth, store.location.url, tmp_path / "out")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("written")
    process.send_signal(how)
    _, errors = process.communicate("\n" * 100, timeout=60)
    if how == signal.SIGINT:
        assert process.returncode == 130
        kept = f"what is finished of {tmp_path / 'out'} is kept; run the same command again to continue"
        assert errors.strip() == f"plmix: error: interrupted; {kept}"
    assert_unreadable(tmp_path / "out")
    assert write_predictions(mixture, store, tmp_path / "out").changed
    assert contents(tmp_path / "out") == undisturbed


@pytest.mark.promise(45)
@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_predict__behind_a_url(
    request: pytest.FixtureRequest,
    mixture: MixtureParams,
    store: RankingStore,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    place: Location = request.getfixturevalue(f"{kind}_place")
    write, count = Location.write_bytes, 0

    def stopping(self: Location, key: str, data: bytes, **options: Any) -> None:
        nonlocal count
        count += "/c/" in key
        if count == 6:
            raise Stopped
        write(self, key, data, **options)

    monkeypatch.setattr(Location, "write_bytes", stopping)
    with pytest.raises(Stopped):
        write_predictions(mixture, store, place, executor=ThreadedExecutor(1))
    monkeypatch.setattr(Location, "write_bytes", write)
    assert not [key for key in place.listing() if key.endswith("zarr.json")]
    assert write_predictions(mixture, store, place).changed
    assert {key: place.read_bytes(key) for key in place.listing()} == undisturbed
    assert not write_predictions(mixture, store, place).changed


@pytest.mark.promise(10)
def test_predict__on_workers_the_same_bytes(
    tmp_path: Path,
    mixture: MixtureParams,
    store: RankingStore,
    undisturbed: dict[str, bytes],
    client: Client,
) -> None:
    write_predictions(mixture, store, tmp_path / "out", executor=DistributedExecutor(client))
    assert contents(tmp_path / "out") == undisturbed


# --- others ----------------------------------------------------------------------------------------------


def begin(mixture: MixtureParams, store: RankingStore, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave an unfinished run."""
    with monkeypatch.context() as patch:
        patch.setattr(memberships.MembershipSession, "finalise", lambda self: None)
        write_predictions(mixture, store, out)


def test_predict__unfinished_of_another_model_or_other_rankings(
    tmp_path: Path, mixture: MixtureParams, store: RankingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(mixture, store, tmp_path / "out", monkeypatch)
    before = snapshot(tmp_path / "out")
    other = MixtureParams.of(mixture.log_worths + np.array([0.5, 0, 0, 0]), None, mixture.item_names)
    with pytest.raises(UnfinishedStoreError, match=r"holds an unfinished `predict` with other model; finish"):
        write_predictions(other, store, tmp_path / "out")
    more = simulate(tmp_path / "more", n_rankings=900, mixture=mixture)
    with pytest.raises(UnfinishedStoreError, match="with other n_rankings, rankings; finish"):
        write_predictions(mixture, more, tmp_path / "out")
    assert snapshot(tmp_path / "out") == before


@pytest.mark.parametrize("file", ["probabilities/notes.txt", "component/c/0", "zarr.json"])
def test_predict__files_of_someone_else(
    tmp_path: Path, mixture: MixtureParams, store: RankingStore, file: str
) -> None:
    path = tmp_path / "out" / file
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(StoreExistsError, match=rf"{tmp_path}/out.* already"):
        write_predictions(mixture, store, tmp_path / "out")
    assert contents(tmp_path / "out") == {file: b"mine"}


@pytest.mark.promise(17)
def test_predict__two_at_once(tmp_path: Path, mixture: MixtureParams, store: RankingStore) -> None:
    with (
        write_lock(Location.of(tmp_path / "out")),
        pytest.raises(StoreLockedError, match="another process is writing"),
    ):
        write_predictions(mixture, store, tmp_path / "out")


@pytest.mark.promise(17)
def test_predict__a_driver_that_lost_its_lease_publishes_nothing(
    memory_place: Location, mixture: MixtureParams, store: RankingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped_for_long(*_: object) -> None:
        later = time.time() + 61
        monkeypatch.setattr(lock, "time", SimpleNamespace(time=lambda: later))

    with pytest.raises(StoreLockedError, match=r"lost its lease on .*nothing was published"):
        write_predictions(mixture, store, memory_place, progress=stopped_for_long)
    assert not [key for key in memory_place.listing() if key.endswith("zarr.json")]


def test_predict__a_late_worker_writes_nothing(
    tmp_path: Path, mixture: MixtureParams, store: RankingStore
) -> None:
    place, plan = Location.of(tmp_path / "out"), memberships.MembershipPlan(10, 2, chunk_rows=5)
    other = memberships.MembershipPlan(10, 2, chunk_rows=5, of={"model": "another"})
    with memberships.MembershipSession.begin(place, other):
        before = snapshot(tmp_path / "out")
        with pytest.raises(UnfinishedStoreError, match="with other"):
            memberships.write_memberships(place, plan, 0, np.full((5, 2), 0.5))
        assert snapshot(tmp_path / "out") == before


# --- a full disk, no permission --------------------------------------------------------------------------


@pytest.mark.promise(16)
@pytest.mark.parametrize(
    "full_at", ["wip/predict", "component/c/0", "probabilities/c/2/0", "done-000003", "out/zarr.json"]
)
def test_predict__disk_full(
    tmp_path: Path,
    mixture: MixtureParams,
    store: RankingStore,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    full_at: str,
) -> None:
    out, sync = tmp_path / "out", os.fsync

    def full(descriptor: int) -> None:
        if full_at in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        StoreFullError, match=rf"no room to write {tmp_path}/\S*{full_at}\S* \([\d,]+ bytes\)"
    ):
        write_predictions(mixture, store, out)
    monkeypatch.setattr(os, "fsync", sync)
    assert not list(out.rglob("*.tmp"))
    assert_unreadable(out)
    assert write_predictions(mixture, store, out).changed
    assert contents(out) == undisturbed


@pytest.mark.parametrize("where", ["out", "out/below"])
def test_predict__a_file_where_a_folder_should_be(
    tmp_path: Path,
    mixture: MixtureParams,
    store: RankingStore,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    (tmp_path / "out").write_text("my notes")
    monkeypatch.setattr("plmix_dist.prediction.run_all", lambda *_: pytest.fail("it computed first"))
    with pytest.raises(StoreAccessError, match=rf"cannot write {tmp_path}/out"):
        write_predictions(mixture, store, tmp_path / where)
    assert (tmp_path / "out").read_text() == "my notes"


def test_predict__reads_what_it_may(
    tmp_path: Path, mixture: MixtureParams, store: RankingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zarr.storage._local as local

    def forbidden(path: Any, *_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(local, "_get", forbidden)
    with pytest.raises(StoreAccessError, match=r"no permission to read .*p000000/\S+: Permission denied"):
        open_store(store.location).block()
