"""Two writers, a writer that is killed, a disk that is full: what is published is whole, and the next run continues."""

from __future__ import annotations

import re
import signal
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import open_store
from plmix_dist.errors import StoreError, StoreLockedError, UnfinishedStoreError
from plmix_dist.store import Location, WriteSession, write_partition
from tests.helpers.oracle import (
    PlainRankings,
    all_damage,
    full,
    index_digests,
    joined,
    plain,
    plan_for,
    snapshot,
    write_store,
)

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plmix_dist.rankings import RankingBlock

    RunPython = Callable[..., "subprocess.Popen[str]"]


N_PARTITIONS = 5


def rows_of(number: int) -> PlainRankings:
    """The rows of a numbered partition: the second and the last are larger than any other."""
    count = 3000 if number in (1, N_PARTITIONS - 1) else 20
    orders = [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)]
    return PlainRankings(3, [full(*orders[(row * row + number) % 4], weight=row + 1.5) for row in range(count)])


def blocks_of(number: int) -> list[RankingBlock]:
    block = rows_of(number).block()
    return [block[:10], block[10:]]


SIZES = {"chunk_bytes": 1 << 13, "leaf_rows": 100}


WRITER = """
import resource, sys
from tests.store.test_publication import N_PARTITIONS, SIZES, blocks_of
from tests.helpers.oracle import plan_for
from plmix_dist.errors import StoreFullError
from plmix_dist.store import Location, WriteSession, write_partition

path, stop_at, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

def blocks(number):
    for part, block in enumerate(blocks_of(number)):
        if (number, part) == (stop_at, 1):
            print("midway")
            sys.stdin.read()
        yield block

with WriteSession.begin(Location.of(path), plan_for(3, N_PARTITIONS, **SIZES)) as session:
    print("begun")
    try:
        for task in session.pending():
            write_partition(task, blocks(task.number))
        session.finalise()
    except StoreFullError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that every disturbed run must end with."""
    root = tmp_path_factory.mktemp("undisturbed") / "store"
    write_store(root, [blocks_of(number) for number in range(N_PARTITIONS)], **SIZES)
    return root


def assert_as_undisturbed(root: Path, undisturbed: Path) -> None:
    store = open_store(root)
    assert index_digests(store) == index_digests(open_store(undisturbed))
    assert plain(store.block()) == joined(map(rows_of, range(N_PARTITIONS)))
    assert all_damage(store) == []
    assert set(snapshot(root)) == set(snapshot(undisturbed))


def finish(root: Path) -> None:
    write_store(root, [blocks_of(number) for number in range(N_PARTITIONS)], **SIZES)


@pytest.mark.promise(17)
def test_two_writers__the_second_is_refused(tmp_path: Path, run_python: RunPython, undisturbed: Path) -> None:
    root = tmp_path / "store"
    first = run_python(WRITER, root, 1, 0)
    assert [first.stdout.readline(), first.stdout.readline()] == ["begun\n", "midway\n"]
    before = snapshot(root)
    for name in ("test", "other"):  # whether it is the same plan or another
        with pytest.raises(StoreLockedError, match=rf"another process is writing to {root}; wait for it"):
            write_store(root, [blocks_of(0)], name=name, **SIZES)
    assert snapshot(root) == before
    _, errors = first.communicate()  # its input ends, and it goes on
    assert (first.returncode, errors) == (0, "")
    assert_as_undisturbed(root, undisturbed)


@pytest.mark.promise(17)
def test_two_writers__readers_and_rerun_need_no_lock(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write_store(root, [blocks_of(0)])
    with WriteSession.begin(Location.of(root), plan_for(3, 1, name="more"), append=True):
        assert open_store(root).n_rankings == 20
        assert write_store(root, [blocks_of(0)]).n_rankings == 20


@pytest.mark.promise(17)
@pytest.mark.parametrize("place", ["local", "memory"])
def test_two_writers__one_that_leaves_takes_only_its_own_lock(
    tmp_path: Path, memory_place: Location, place: str
) -> None:
    location = Location.of(tmp_path / "store") if place == "local" else memory_place
    write_store(location, [blocks_of(0)])
    with ExitStack() as second:
        with WriteSession.begin(location, plan_for(3, 1, name="first"), append=True) as session:
            write_partition(session.pending()[0], blocks_of(2))
            session.finalise()
            # The first writer has finished but still holds the lock; the second need not wait.
            try:
                second.enter_context(WriteSession.begin(location, plan_for(3, 1, name="second"), append=True))
            except StoreLockedError:
                return
        with pytest.raises(StoreLockedError), WriteSession.begin(location, plan_for(3, 1, name="second"), append=True):
            pytest.fail("two writers hold the lock at once")


class FinishedMeanwhile(Location):
    """A location where another writer begins and ends just after the manifest was looked up."""

    def exists(self, key: str) -> bool:
        found = super().exists(key)
        if not found:
            self._let_the_other_write(key)
        return found

    def read_bytes(self, key: str, most: int | None = None) -> bytes:
        data = super().read_bytes(key, most)
        self._let_the_other_write(key)
        return data

    def _let_the_other_write(self, key: str) -> None:
        other = self.storage_options.pop("other", None) if key == "manifest.json" else None
        if other is not None:
            other()


@pytest.mark.promise(17)
@pytest.mark.parametrize("append", [False, True])
def test_two_writers__one_that_finished_after_the_other_looked(tmp_path: Path, append: bool) -> None:
    root = tmp_path / "store"
    if append:
        write_store(root, [blocks_of(0)])

    def other() -> None:
        write_store(root, [blocks_of(2)], append=append, name="other")

    slow = FinishedMeanwhile(str(root), {"other": other})
    before = [rows_of(0)] * append + [rows_of(2)]
    try:
        write_store(slow, [blocks_of(3)], append=append, name="slow")
    except StoreError:
        assert plain(open_store(root).block()) == joined(before)
    else:
        assert append, "another store was written over"
        assert plain(open_store(root).block()) == joined([*before, rows_of(3)])


@pytest.mark.promise(40)
@pytest.mark.parametrize("append", [False, True])
def test_two_writers__the_same_plan_finished_meanwhile(tmp_path: Path, append: bool) -> None:
    root = tmp_path / "store"
    if append:
        write_store(root, [blocks_of(0)])
    slow = FinishedMeanwhile(
        str(root), {"other": lambda: write_store(root, [blocks_of(2)], append=append, name="same")}
    )
    store = write_store(slow, [blocks_of(2)], append=append, name="same")
    assert plain(store.block()) == joined([rows_of(0)] * append + [rows_of(2)])
    assert plain(open_store(root).block()) == plain(store.block())


def test_same_partition__written_twice_at_once(tmp_path: Path) -> None:
    # A cluster may give a task to a second worker while the first, believed lost, is still running.
    location = Location.of(tmp_path / "store")
    together = threading.Barrier(2)
    failed: list[BaseException] = []

    def blocks() -> Iterator[RankingBlock]:
        yield from blocks_of(2)
        together.wait(timeout=120)

    def write(task: Any) -> None:
        try:
            write_partition(task, blocks())
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failed.append(error)

    with WriteSession.begin(location, plan_for(3, 8)) as session:
        for task in session.pending():
            workers = [threading.Thread(target=write, args=(task,)) for _ in range(2)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        assert failed == []
        store = session.finalise()
    assert plain(store.block()) == joined([rows_of(2)] * 8)
    assert all_damage(store) == []


@pytest.mark.promise(15)
@pytest.mark.parametrize("stopped_at", [0, 1, 3])
def test_killed__in_the_midst_of_a_partition(
    tmp_path: Path, run_python: RunPython, undisturbed: Path, stopped_at: int
) -> None:
    root = tmp_path / "store"
    process = run_python(WRITER, root, stopped_at, 0)
    assert [process.stdout.readline(), process.stdout.readline()] == ["begun\n", "midway\n"]
    process.kill()
    assert process.wait() == -signal.SIGKILL
    missing = ", ".join(map(str, range(stopped_at, N_PARTITIONS)))
    with pytest.raises(UnfinishedStoreError, match=rf"partitions not written: {missing}\)"):
        open_store(root)
    before = {key: file for key, file in snapshot(root).items() if key.startswith("partitions/p")}
    assert {key.split("/")[1] for key in before} == {f"p{number:06d}" for number in range(stopped_at)}
    finish(root)
    assert_as_undisturbed(root, undisturbed)
    after = snapshot(root)
    assert {key: after[key] for key in before} == before, "finished partitions were written again"


@pytest.mark.promise(16)
def test_full__names_path_and_bytes_and_the_next_run_continues(
    tmp_path: Path, run_python: RunPython, undisturbed: Path
) -> None:
    root = tmp_path / "store"
    sizes = {key: len(data) for key, (_, data) in snapshot(undisturbed).items()}
    small = max(size for key, size in sizes.items() if "/p000001/" not in key and "/p000004/" not in key)
    large = max(size for key, size in sizes.items() if "/p000001/" in key)
    assert small < large, "the limit must lie between the files of the first partition and of the second"
    process = run_python(WRITER, root, -1, (small + large) // 2)
    output, errors = process.communicate(timeout=60)
    assert errors == ""
    match = re.search(r"^no room to write (\S+) \(([\d,]+) bytes\): File too large\. (.*)$", output, re.MULTILINE)
    assert match, output
    column = re.fullmatch(rf"{root}/wip/partitions-p000001\.\w+/(\S+)", match[1])[1]
    assert int(match[2].replace(",", "")) == sizes[f"partitions/p000001/{column}"]
    assert match[3].endswith("free some space and run the same command again")
    with pytest.raises(UnfinishedStoreError, match="partitions not written: 1, 2, 3, 4"):
        open_store(root)
    before = {key: file for key, file in snapshot(root).items() if key.startswith("partitions/p000000/")}
    assert before
    finish(root)
    assert_as_undisturbed(root, undisturbed)
    after = snapshot(root)
    assert {key: after[key] for key in before} == before, "earlier data must stay as they were"


@pytest.mark.promise(16)
def test_full__what_was_there_before_is_kept(tmp_path: Path, python_says: Callable[..., str]) -> None:
    place = Location.of(tmp_path)
    place.write_bytes("manifest.json", b"old")
    said = python_says(
        """
import resource, sys
from plmix_dist.errors import StoreFullError
from plmix_dist.store import Location
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    Location.of(sys.argv[1]).write_bytes("manifest.json", bytes(12_345))
except StoreFullError as error:
    print(error)
""",
        tmp_path,
    )
    assert f"no room to write {tmp_path}/manifest.json (12,345 bytes)" in said
    assert snapshot(tmp_path)["manifest.json"][1] == b"old"
    assert place.listing() == ["manifest.json"]


@pytest.mark.parametrize("where", ["begun", "nearly done"])
def test_resume__behind_a_url_after_a_partition_was_cut_short(memory_place: Location, where: str) -> None:
    def cut_short() -> Iterator[RankingBlock]:
        yield from blocks_of(1)
        if where == "begun":
            raise KeyboardInterrupt

    with WriteSession.begin(memory_place, plan_for(3, 2, **SIZES)) as session, suppress(KeyboardInterrupt):
        write_partition(session.pending()[1], cut_short())
    # The index is written last: as if the writer had been killed just before.
    memory_place.remove("partitions/p000001/index.json")
    with pytest.raises(UnfinishedStoreError, match="partitions not written: 0, 1"):
        open_store(memory_place)
    store = write_store(memory_place, [blocks_of(0), blocks_of(1)], **SIZES)
    assert plain(store.block()) == joined([rows_of(0), rows_of(1)])
    assert all_damage(store) == []
