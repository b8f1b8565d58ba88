"""Verbs that write: a full disk, outputs that cannot be written, streams that are closed or full."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import PlackettLuceMixture, open_store, simulate
from plmix_dist.cli import main, output
from plmix_dist.cli import output as streams
from tests.helpers.forked_python import ForkedPython
from tests.helpers.oracle import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plmix_dist.store import Location
    from tests.cli.common import Said


WRITING = ["ingest", "append", "simulate", "split", "weights", "export", "parquet", "fit", "predict"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, a file of its rankings, and a model, from which all verbs can begin."""
    root = tmp_path_factory.mktemp("outputs")
    simulate(root / "store", n_rankings=3_000, n_items=5, n_components=2, random_state=2)
    for command in (
        ("export", root / "store", root / "votes.csv"),
        ("fit", root / "store", "--components", 2, "--out", root / "model", "--quiet"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in command])
        assert stopped.value.code == 0
    return root


def command_of(verb: str, source: Path, root: Path) -> list[str]:
    """A command that writes below `root`, and needs something there only to append."""
    store, votes, model, out = source / "store", source / "votes.csv", source / "model", root / "out"
    commands: dict[str, list[Any]] = {
        "ingest": ["ingest", votes, out],
        "append": ["ingest", votes, out, "--append"],
        "simulate": ["simulate", out, "--rankings", 3_000, "--items", 6, "--components", 2],
        "split": ["split", store, root / "train", root / "test"],
        "weights": ["split", store, root / "train.npy", root / "test.npy"],
        "export": ["export", store, root / "out.csv.gz"],
        "parquet": ["export", store, root / "out.parquet"],
        "fit": ["fit", store, "--components", 2, "--out", out, "--quiet"],
        "predict": ["predict", model, store, out],
    }
    return [
        str(argument)
        for argument in [*commands[verb], *(["--workers", 0] if verb not in ("export", "parquet") else [])]
    ]


def prepare(verb: str, source: Path, root: Path) -> None:
    root.mkdir(parents=True)
    if verb == "append":
        shutil.copytree(source / "store", root / "out")


def results(root: Path) -> dict[str, bytes]:
    """All bytes below a folder but those that hold a time: of a store's history and of a fit's iterations."""
    found = {key: data for key, (_, data) in snapshot(root).items()}
    for key in [key for key in found if key.endswith(("manifest.json", "model.json"))]:
        record = json.loads(found[key])
        for name in ("sha256", "history", "init", "fit"):
            record.pop(name, None)
        record.get("about", {}).pop("finished", None)
        found[key] = json.dumps(record).encode()
    return found


class FullDisk:
    """A disk with room for this many bytes: the lowest call that writes a file fails when they are used up."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.real = Path.open

    def open(self, path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        """What Path.open does; a file that is written uses up room."""
        file = self.real(path, mode, *arguments, **options)
        return file if "r" in mode else _Metered(file, self)


class _Metered:
    def __init__(self, file: Any, disk: FullDisk) -> None:
        self.file, self.disk = file, disk

    def __enter__(self) -> _Metered:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: Any) -> int:
        self.disk.room -= memoryview(data).nbytes
        if self.disk.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self.file.write(data))


@pytest.mark.promise(16)
@pytest.mark.promise(45)
@pytest.mark.parametrize("verb", WRITING)
def test_full__every_verb(
    tmp_path: Path, source: Path, plmix: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    prepare(verb, source, tmp_path / "whole")
    assert plmix(*command_of(verb, source, tmp_path / "whole")).code == 0
    whole = results(tmp_path / "whole")
    total = sum(map(len, whole.values()))
    refused = 0
    for number, share in enumerate((0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)):
        root = tmp_path / str(number)
        prepare(verb, source, root)
        before = results(root)
        disk = FullDisk(int(total * share) - (sum(map(len, before.values())) if verb == "append" else 0))
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", lambda path, *a, disk=disk, **k: disk.open(path, *a, **k))
            said = plmix(*command_of(verb, source, root))
        if said.code:
            refused += 1
            assert said.code == 1
            assert said.err.startswith("plmix: error: no room to write "), said.err
            assert str(root) in said.err
            assert "bytes)" in said.err
            assert said.err.count("\n") == 1
            assert not list(root.rglob("*.tmp")), "drafts are left"
        if verb == "append":
            kept = open_store(root / "out")
            assert kept.n_rankings in (3_000, 6_000)
        again = plmix(*command_of(verb, source, root))
        if said.code:
            assert again.code == 0, again.err
        assert results(root) == whole
    assert refused >= 3


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 100 kB that can be made larger; the test is skipped where none can be mounted."""
    folder = Path(tempfile.mkdtemp())
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


@pytest.mark.promise(16)
@pytest.mark.parametrize("verb", [verb for verb in WRITING if verb != "append"])
def test_full__a_real_disk(
    tmp_path: Path, source: Path, small_disk: Path, plmix: Callable[..., Said], verb: str
) -> None:
    assert plmix(*command_of(verb, source, tmp_path / verb)).code == 0
    refused = 0
    for pages in range(0, 25, 4):
        root = small_disk / verb
        (small_disk / "filler").write_bytes(bytes(4096 * pages))
        said = plmix(*command_of(verb, source, root))
        refused += said.code == 1
        if said.code:
            assert said.err.startswith("plmix: error: no room to write "), said.err
            assert str(root) in said.err
            resize(small_disk, "10m")
            assert plmix(*command_of(verb, source, root)).code == 0
        assert results(root) == results(tmp_path / verb)
        shutil.rmtree(root)
        resize(small_disk, "100k")
    assert refused >= 1


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


# --- outputs that cannot be written ----------------------------------------------------------------------


@pytest.mark.parametrize("verb", [verb for verb in WRITING if verb != "append"])
@pytest.mark.parametrize("where", ["above", "itself"])
def test_output__a_file_where_a_folder_should_be(
    tmp_path: Path, source: Path, plmix: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, verb: str, where: str
) -> None:
    root = tmp_path / "root"
    if where == "above":
        root.write_text("notes")
    elif verb in ("weights", "export", "parquet"):  # they write files, so folders are in the way
        for name in ("test.npy", "out.csv.gz", "out.parquet"):
            (root / name).mkdir(parents=True)
    else:
        root.mkdir()
        for name in ("out", "test"):
            (root / name).write_text("notes")
    before = snapshot(tmp_path)

    def computes(*_: object, **__: object) -> None:
        pytest.fail("it computed before it looked at its output")

    for place in (
        "datasets.plan.plan_files",
        "datasets.simulate.run_all",
        "datasets.split.run_all",
        "prediction.memberships.run_all",
        "models.plackett_luce.fit_mixture",
        "tables.write.survey",
        "store.reader.RankingStore.iter_leaves",
    ):
        monkeypatch.setattr(f"plmix_dist.{place}", computes)
    said = plmix(*command_of(verb, source, root))
    assert said.code == 1
    assert said.err.startswith(f"plmix: error: cannot write {root}"), said.err
    assert "choose another place, or remove what is there" in said.err
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("verb", WRITING)
def test_output__no_permission(
    tmp_path: Path, source: Path, plmix: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """As an ordinary user meets it; the user who runs the tests may be one whom permissions do not bind."""
    prepare(verb, source, tmp_path / "root")
    before = snapshot(tmp_path)
    real, real_mkdir = Path.open, Path.mkdir

    def forbidden(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if "r" not in mode and path.is_relative_to(tmp_path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, mode, *arguments, **options)

    def no_folder(path: Path, *arguments: Any, **options: Any) -> None:
        if path.is_relative_to(tmp_path) and not path.exists():
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        real_mkdir(path, *arguments, **options)

    def no_file(*_: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(options.get("dir")))

    monkeypatch.setattr(Path, "open", forbidden)
    monkeypatch.setattr(Path, "mkdir", no_folder)
    monkeypatch.setattr("plmix_dist.store.access.tempfile.TemporaryFile", no_file)
    said = plmix(*command_of(verb, source, tmp_path / "root"))
    assert said.code == 1
    assert said.err.startswith(f"plmix: error: no permission to write {tmp_path}"), said.err
    assert "choose another place, or change its permissions" in said.err
    assert snapshot(tmp_path) == before


def bound_by_permissions() -> list[str]:
    """What runs a command so that permissions bind it, also for the superuser."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    prefix = [str(setpriv), "--bounding-set=-dac_override,-dac_read_search"]
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).chmod(0)
        tried = setpriv and subprocess.run([*prefix, "cat", file.name], capture_output=True, check=False)
    if not tried or b"Permission denied" not in tried.stderr:
        pytest.skip("permissions do not bind this user, and setpriv cannot change that")
    return prefix


def test_permission__as_the_operating_system_says(tmp_path: Path, source: Path) -> None:
    prefix = bound_by_permissions()

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*prefix, sys.executable, "-m", "plmix_dist", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    shutil.copytree(source / "store", tmp_path / "store")
    shutil.copytree(source / "model", tmp_path / "model")
    store, model, closed = tmp_path / "store", tmp_path / "model", tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    for arguments in (
        ("fit", store, "--components", 2, "--out", closed / "model"),
        ("predict", model, store, closed / "out"),
        ("export", store, closed / "votes.csv"),
        ("split", store, closed / "a", closed / "b"),
        ("simulate", closed / "s", "--rankings", 10, "--items", 3),
        ("ingest", source / "votes.csv", closed / "s"),
    ):
        done = run(*arguments)
        assert done.returncode == 1, done
        assert done.stderr.startswith(f"plmix: error: no permission to write {closed}"), done
    assert list(closed.iterdir()) == []
    for path, arguments in (
        (store / "partitions/p000000/items/c/0", ("verify", store)),
        (store / "partitions/p000000/items/c/0", ("info", store)),
        (store / "partitions/p000000/index.json", ("verify", store)),
        (store / "manifest.json", ("info", store)),
        (model / "shares.npy", ("score", model, store)),
        (model / "model.json", ("score", model, store)),
    ):
        mode = path.stat().st_mode
        path.chmod(0)
        done = run(*arguments)
        path.chmod(mode)
        assert done.returncode == 1, done
        assert done.stderr.startswith(f"plmix: error: no permission to read {path}: Permission denied"), done
        assert done.stdout == ""


# --- streams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("talk", ["--json", None], ids=["json", "text"])
@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "2> >(exit)", "2>&- >&- <&-"])
def test_stderr__that_cannot_be_written_ends_no_fit(
    tmp_path: Path, source: Path, stderr: str, talk: str | None
) -> None:
    command = f"{sys.executable} -m plmix_dist fit {source / 'store'} --components 2 --out {tmp_path / 'model'}"
    done = subprocess.run(
        ["bash", "-c", f"{command} {talk or ''} {stderr}"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done
    assert np.array_equal(
        PlackettLuceMixture.load(tmp_path / "model").log_worths_, PlackettLuceMixture.load(source / "model").log_worths_
    )
    if talk == "--json" and ">&- <" not in stderr:
        assert json.loads(done.stdout)["converged"] is True


def test_stdout__that_nobody_reads(tmp_path: Path, source: Path) -> None:
    command = f"{sys.executable} -m plmix_dist fit {source / 'store'} --components 2 --out {tmp_path / 'model'}"
    done = subprocess.run(
        ["bash", "-c", f"{command} > >(exit); echo $?"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert PlackettLuceMixture.load(tmp_path / "model").converged_


def test_stdout__full_is_an_error_because_the_result_is_lost(tmp_path: Path, source: Path) -> None:
    command = f"{sys.executable} -m plmix_dist fit {source / 'store'} --components 2 --out {tmp_path / 'model'}"
    done = subprocess.run(
        ["bash", "-c", f"{command} > /dev/full"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "plmix: error: the result cannot be printed: No space left on device; what was written elsewhere is complete\n"
    )
    assert PlackettLuceMixture.load(tmp_path / "model").converged_


@pytest.mark.parametrize("terminal", ["there", "gone"])
def test_progress_bar__on_a_terminal(tmp_path: Path, terminal: str) -> None:
    ours, theirs = os.openpty()
    process = ForkedPython(
        [sys.executable, "-m", "plmix_dist", *("simulate", str(tmp_path / "store")), "--rankings", "3000",
         "--items", "5", "--workers", "0"],
        stderr=theirs, stdout=subprocess.PIPE, text=True, env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    if terminal == "gone":
        os.close(ours)
    else:
        with contextlib.suppress(OSError):  # the end of a terminal is an error
            while part := os.read(ours, 1 << 16):
                shown += part
        os.close(ours)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "3,000 of 5 items" in said
    assert open_store(tmp_path / "store").n_rankings == 3_000
    if terminal == "there":
        assert b"simulate" in shown


def test_streams__any_line_on_a_terminal_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

        def flush(self) -> None:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Gone())
    with output.progress_bar("ingest") as progress:
        assert progress is not None
        progress(1, 2)
        progress(2, 2)
    streams.print_line("one more line")


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("ingest", "what is finished of {} is kept; run the same command again to continue"),
        ("simulate", "what is finished of {} is kept; run the same command again to continue"),
        ("split", "parts that are finished are kept; run the same command again to continue"),
        ("predict", "what is finished of {} is kept; run the same command again to continue"),
        ("export", "nothing was written; run the same command again to start over"),
        ("fit", "nothing was written; run the same command again to start over"),
    ],
)
@pytest.mark.promise(45)
def test_interrupted__says_what_is_true(
    tmp_path: Path, source: Path, plmix: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, verb: str, what: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    prepare(verb, source, tmp_path / "root")
    with monkeypatch.context() as patch:
        for place in (
            "datasets.ingest.run_all",
            "datasets.simulate.run_all",
            "datasets.split.run_all",
            "prediction.memberships.run_all",
            "models.plackett_luce.fit_mixture",
            "tables.write.labelled_rows",
        ):
            patch.setattr(f"plmix_dist.{place}", interrupted)
        said = plmix(*command_of(verb, source, tmp_path / "root"))
    assert said.code == 130
    assert said.err.strip() == f"plmix: error: interrupted; {what.format(tmp_path / 'root/out')}"
    if what.startswith("nothing"):
        assert snapshot(tmp_path / "root") == {}
    assert plmix(*command_of(verb, source, tmp_path / "root")).code == 0
    prepare(verb, source, tmp_path / "whole")
    assert plmix(*command_of(verb, source, tmp_path / "whole")).code == 0
    assert results(tmp_path / "root") == results(tmp_path / "whole")


def test_export__interrupted_behind_a_url_publishes_nothing(
    source: Path, memory_place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plmix_dist import export
    from plmix_dist.tables import write as write_delimited

    rows = write_delimited.labelled_rows

    def two_rows(*arguments: Any) -> Iterator[Any]:
        found = rows(*arguments)
        yield next(found)
        yield next(found)
        raise KeyboardInterrupt

    target = f"{memory_place.url}/votes.csv"
    monkeypatch.setattr(write_delimited, "labelled_rows", two_rows)
    with pytest.raises(KeyboardInterrupt):
        export(source / "store", target)
    assert memory_place.listing() == []
    monkeypatch.undo()
    export(source / "store", target)
    assert memory_place.read_bytes("votes.csv") == (source / "votes.csv").read_bytes()


def test_connection__that_breaks_is_an_error_and_not_a_closed_stdout(
    source: Path, plmix: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("plmix_dist.models.plackett_luce.PlackettLuceMixture.score", broken)
    said = plmix("score", source / "model", source / "store", "--workers", 0)
    assert (said.code, said.out) == (1, "")
    assert "a connection was closed by the other side: [Errno 32] Broken pipe; run this again" in said.err


@pytest.mark.parametrize("damage", ["altered", "unfinished"])
def test_fit__truth_that_cannot_be_read_does_not_spoil_the_result(
    tmp_path: Path, source: Path, plmix: Callable[..., Said], damage: str
) -> None:
    shutil.copytree(source / "store", tmp_path / "store")
    shutil.copytree(source / "store.truth", tmp_path / "store.truth")
    if damage == "altered":
        (tmp_path / "store.truth/shares.npy").write_bytes(b"")
    else:
        (tmp_path / "store.truth/model.json").unlink()
    said = plmix("fit", tmp_path / "store", "--components", 2, "--out", tmp_path / "model")
    assert said.code == 0
    assert f"truth        the model at {tmp_path / 'store.truth'}" in said.out
    assert "distance" not in said.out


@pytest.mark.promise(45)
@pytest.mark.parametrize("before", ["no items", "items of an older export"])
def test_export__rows_appear_after_the_items_that_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    from plmix_dist import export
    from tests.helpers.oracle import PlainRankings, full, write_store

    names = ["tea", "mate", "coffee"] if before == "no items" else ["coffee", "mate", "tea"]
    store = write_store(tmp_path / "store", [[PlainRankings(3, [full(0, 1, 2)]).block()]], item_names=names)
    if before != "no items":  # what the old file says of the items is not true of the new rows
        (tmp_path / "out.csv.items").write_text("x\n")
    replace, there = Path.replace, {}

    def noting(path: Path, target: Path) -> Any:
        if target.name == "out.csv":
            there["items"] = (tmp_path / "out.csv.items").exists()
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", noting)
    export(store, tmp_path / "out.csv")
    assert there["items"] is (before == "no items")
