"""Memberships of a store: published last, continued after any interruption, never read as -1; as Parquet, with ids."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import zarr

import plmix_dist as pl
from plmix_dist import MixtureParams, simulate
from plmix_dist.cluster.executor import ThreadedExecutor, _DistributedExecutor
from plmix_dist.errors import (
    StoreAccessError,
    StoreError,
    StoreExistsError,
    StoreFullError,
    StoreLockedError,
    UnfinishedStoreError,
)
from plmix_dist.prediction.memberships import Written, write_membership_table, write_predictions
from plmix_dist.store import Location, RankingStore, lock, memberships, open_store
from plmix_dist.store.lock import write_lock
from tests.helpers import cli_helpers
from tests.helpers.oracle import snapshot

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from distributed import Client

    from tests.helpers.cli_helpers import Said

shell = cli_helpers.shell

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
def slowly(*arguments):
    write(*arguments)
    print("written", flush=True)
    sys.stdin.readline()
memberships.write_memberships = slowly
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
    tmp_path: Path, mixture: MixtureParams, store: RankingStore, undisturbed: dict[str, bytes], client: Client
) -> None:
    write_predictions(mixture, store, tmp_path / "out", executor=_DistributedExecutor(client))
    assert contents(tmp_path / "out") == undisturbed


# --- others ----------------------------------------------------------------------------------------------


def begin(mixture: MixtureParams, store: RankingStore, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave an unfinished run."""
    with monkeypatch.context() as patch:
        patch.setattr(memberships.MembershipSession, "finalise", lambda self: None)
        write_predictions(mixture, store, out)


def test_predict__chunks_that_begin_inside_a_leaf_have_their_own_rows(
    tmp_path: Path, mixture: MixtureParams, store: RankingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memberships, "CHUNK_ROWS", N_RANKINGS // N_CHUNKS)
    write_predictions(mixture, store, tmp_path / "out")
    model = pl.PlackettLuceMixture.from_arrays(mixture.log_worths, mixture.shares, item_names=mixture.item_names)
    wanted = np.asarray(model.predict_proba(store))
    written = zarr.open_group(tmp_path / "out", mode="r")
    assert written["probabilities"][:].tobytes() == wanted.tobytes()
    assert written["component"][:].tolist() == wanted.argmax(axis=1).tolist()


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
def test_predict__files_of_someone_else(tmp_path: Path, mixture: MixtureParams, store: RankingStore, file: str) -> None:
    path = tmp_path / "out" / file
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(StoreExistsError, match=rf"{tmp_path}/out.* already"):
        write_predictions(mixture, store, tmp_path / "out")
    assert contents(tmp_path / "out") == {file: b"mine"}


@pytest.mark.promise(17)
def test_predict__two_at_once(tmp_path: Path, mixture: MixtureParams, store: RankingStore) -> None:
    with write_lock(Location.of(tmp_path / "out")), pytest.raises(StoreLockedError, match="another process is writing"):
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


def test_predict__a_late_worker_writes_nothing(tmp_path: Path, mixture: MixtureParams, store: RankingStore) -> None:
    place, plan = Location.of(tmp_path / "out"), memberships.MembershipPlan(10, 2, chunk_rows=5)
    other = memberships.MembershipPlan(10, 2, chunk_rows=5, of={"model": "another"})
    with memberships.MembershipSession.begin(place, other):
        before = snapshot(tmp_path / "out")
        with pytest.raises(StoreError, match="was abandoned; rows from 0 on are not published"):
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
    with pytest.raises(StoreFullError, match=rf"no room to write {tmp_path}/\S*{full_at}\S* \([\d,]+ bytes\)"):
        write_predictions(mixture, store, out)
    monkeypatch.setattr(os, "fsync", sync)
    assert not list(out.rglob("*.tmp"))
    assert_unreadable(out)
    assert write_predictions(mixture, store, out).changed
    assert contents(out) == undisturbed


@pytest.mark.parametrize("where", ["out", "out/below"])
def test_predict__a_file_where_a_folder_should_be(
    tmp_path: Path, mixture: MixtureParams, store: RankingStore, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (tmp_path / "out").write_text("my notes")
    monkeypatch.setattr("plmix_dist.prediction.memberships.run_all", lambda *_: pytest.fail("it computed first"))
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


# --- Parquet ---------------------------------------------------------------------------------------------

NAMES = ["tea", "mate", "milk", "Kaffee, schwarz"]


def long_table(path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = [
        (f"ballot {person}-{vote}", f"person {person}", NAMES[item], place)
        for person in range(40)
        for vote in range(3)
        for place, item in enumerate(np.argsort([1, -1][person % 2] * (np.arange(4) + rng.normal(size=4))), start=1)
    ]
    pd.DataFrame(rows, columns=["id", "person", "item", "rank"]).to_csv(path, index=False)


def test_parquet__has_ids_groups_and_the_memberships_of_python(tmp_path: Path, shell: Callable[..., Said]) -> None:
    long_table(tmp_path / "votes.csv")
    shell("ingest", "votes.csv", "votes", "--column", "group=person")
    shell("fit", "votes", "--components", "2", "--out", "model")
    said = shell("predict", "model", "votes", "who.parquet")
    assert (
        said.line("predicted") == "120 memberships to who.parquet (id, group, component, probability 0, probability 1)"
    )
    table = pd.read_parquet("who.parquet")
    expected = pl.PlackettLuceMixture.load("model").memberships("votes", table="pandas")
    assert table.columns.tolist() == expected.columns.tolist()
    assert table["id"].tolist()[:2] == ["ballot 0-0", "ballot 0-1"]
    assert table["group"].tolist()[3] == "person 1"
    for name in ("component", "probability 0", "probability 1"):
        np.testing.assert_array_equal(table[name], expected[name])
    assert shell("predict", "model", "votes", "who.parquet").line("nothing to do").startswith("who.parquet already")
    shell("fit", "votes", "--components", "1", "--out", "other")
    refused = shell("predict", "other", "votes", "who.parquet", code=1)
    assert "who.parquet exists already" in refused.err
    record = json.loads(shell("predict", "other", "votes", "who.parquet", "--force", "--json").out)
    assert record["columns"] == ["id", "group", "component", "probability 0"]


def test_parquet__of_many_row_groups_in_order_in_threads_and_on_a_cluster(tmp_path: Path, client: Client) -> None:
    store = pl.simulate(tmp_path / "s", n_rankings=200_000, n_items=4, n_components=2, random_state=0)
    mixture = pl.MixtureParams.load(tmp_path / "s.truth")
    write_membership_table(mixture, store, tmp_path / "here.parquet", client=False)
    write_membership_table(mixture, store, tmp_path / "there.parquet", client=client)
    here, there = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("here", "there"))
    assert here.equals(there)
    assert pq.read_metadata(tmp_path / "here.parquet").num_row_groups > 1
    assert here["id"].to_pylist() == list(range(200_000))
    model = pl.PlackettLuceMixture.from_arrays(mixture.log_worths, mixture.shares, mixture.item_names)
    np.testing.assert_array_equal(here["probability 1"], model.predict_proba(store).compute()[:, 1])


def test_parquet__never_over_a_file_of_the_user(tmp_path: Path) -> None:
    store = pl.simulate(tmp_path / "s", n_rankings=10, n_items=3)
    mixture = pl.MixtureParams.load(tmp_path / "s.truth")
    (tmp_path / "mine.parquet").write_text("notes")
    with pytest.raises(StoreExistsError, match="exists already"):
        write_membership_table(mixture, store, tmp_path / "mine.parquet")
    assert (tmp_path / "mine.parquet").read_text() == "notes"


# --- as CSV -------------------------------------------------------------------------------------


def test_csv__every_digit_with_ids_that_no_spreadsheet_calculates(tmp_path: Path, shell: Callable[..., Said]) -> None:
    ids = ["=1+1", 'a "b"', "c, d", "-5"]
    names = ['"=1+1"', '"a ""b"""', '"c, d"', "-5"]
    orders = ["x,y,z", "y,x,z", "z,y,x", "x,z,y"]
    lines = [f"{name},{order}" for name, order in zip(names, orders, strict=True)]
    Path("votes.csv").write_text("\n".join(["id,first,second,third", *lines]) + "\n")
    store = pl.ingest("votes.csv", "votes")
    model = pl.PlackettLuceMixture(2, random_state=0, alpha=0.5).fit(store)
    model.save("model")
    said = shell("predict", "model", "votes", "who.csv")
    assert said.line("predicted") == "4 memberships to who.csv (id, component, probability 0, probability 1)"
    found = pd.read_csv("who.csv", dtype={"id": str})
    assert found["id"].tolist() == ["'=1+1", *ids[1:]]
    expected = model.predict_proba(store).compute()
    np.testing.assert_array_equal(found[["probability 0", "probability 1"]], expected)
    assert found["component"].tolist() == expected.argmax(axis=1).tolist()
    pq_path = tmp_path / "who.parquet"
    shell("predict", "model", "votes", str(pq_path))
    assert pq.read_table(pq_path)["id"].to_pylist() == ids


def test_csv__is_replaced_only_if_asked(shell: Callable[..., Said]) -> None:
    store = pl.simulate("s", n_rankings=10, n_items=3)
    Path("who.csv").write_text("notes")
    assert "who.csv exists already" in shell("predict", "s.truth", "s", "who.csv", code=1).err
    assert Path("who.csv").read_text() == "notes"
    shell("predict", "s.truth", "s", "who.csv", "--force")
    assert len(pd.read_csv("who.csv")) == store.n_rankings


@pytest.mark.parametrize(
    ("out", "taken"), [("who.xlsx", False), ("who.json", False), ("who.zarr", True), ("v1.2", True)]
)
def test_predict__suffix_of_something_else_is_refused(shell: Callable[..., Said], out: str, taken: bool) -> None:
    pl.simulate("s", n_rankings=10, n_items=3)
    said = shell("predict", "s.truth", "s", out, code=0 if taken else 1)
    if not taken:
        assert f"memberships are not written as {Path(out).suffix}; end OUT in .parquet, .pq, .csv" in said.err
    assert Path(out).exists() == taken
