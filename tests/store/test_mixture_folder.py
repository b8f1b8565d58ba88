"""Model folders: sealed, written last, never a mixture of two; and folders that are refused, each with its reason."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import MixtureParams, PlackettLuceMixture
from plmix_dist.errors import (
    DamagedStoreError,
    SettingsError,
    StoreAccessError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreNotFoundError,
    UnfinishedStoreError,
    UnsupportedFormatError,
)
from plmix_dist.store import Location, lock
from plmix_dist.store.lock import write_lock
from plmix_dist.store.mixture import _save_model, load_model
from plmix_dist.store.sealed import npy_bytes, seal
from tests.helpers.oracle import single_bit_flips, snapshot

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

RANKINGS = np.array([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10 + [[1, 0, 2]] * 5)


@pytest.fixture(scope="module")
def fitted() -> PlackettLuceMixture:
    return PlackettLuceMixture(2, random_state=1).fit(RANKINGS)


@pytest.fixture(scope="module")
def another() -> PlackettLuceMixture:
    return PlackettLuceMixture(2, random_state=1, alpha=2.0).fit(RANKINGS[10:])


@pytest.fixture
def folder(tmp_path: Path, fitted: PlackettLuceMixture) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def old_format(folder: Path) -> Path:
    """The folder as version 1 wrote it: plain names, JSON without digests."""
    record = json.loads((folder / "model.json").read_bytes()) | {"version": 1}
    del record["sha256"], record["files"]
    (folder / "model.json").write_text(json.dumps(record, indent=1, ensure_ascii=False))
    return folder


def resealed(folder: Path, name: str, data: bytes) -> None:
    """Replace an array and seal the model again, so that its digest does not give the change away."""
    record = json.loads((folder / "model.json").read_bytes())
    del record["sha256"]
    (folder / record["files"][name]["file"]).write_bytes(data)
    record["files"][name] |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "model.json").write_bytes(seal(record))


def forged(folder: Path, **changes: Any) -> None:
    """Change entries of `model.json`, and seal it again."""
    record = json.loads((folder / "model.json").read_bytes())
    del record["sha256"]
    (folder / "model.json").write_bytes(seal(record | changes))


def same(one: PlackettLuceMixture, other: PlackettLuceMixture) -> bool:
    """Whether two models agree in every number that a model folder holds."""
    arrays = ("log_worths_", "shares_", "_ghosts")
    plain = ("item_names_", "n_iter_", "converged_", "log_likelihood_", "objective_", "history_", "events_")
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
        and all(getattr(one, name) == getattr(other, name) for name in plain)
        and one.init_.keys() == other.init_.keys()
        and all(np.array_equal(one.init_[name], other.init_[name]) for name in one.init_)
    )


# --- whole -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["local", "memory", "s3"])
def test_save__over_another_model(
    request: pytest.FixtureRequest, tmp_path: Path, fitted: PlackettLuceMixture, another: PlackettLuceMixture, kind: str
) -> None:
    place = Location.of(tmp_path / "model") if kind == "local" else request.getfixturevalue(f"{kind}_place")
    for model in (fitted, another, fitted, another):
        model.save(place)
        assert same(PlackettLuceMixture.load(place), model)
        named = {entry["file"] for entry in json.loads(place.read_bytes("model.json"))["files"].values()}
        assert set(place.listing()) == named | {"model.json"}, "files of the old model are left"


def test_save__the_same_model_changes_no_byte(folder: Path, fitted: PlackettLuceMixture) -> None:
    before = {key: data for key, (_, data) in snapshot(folder).items()}
    fitted.save(folder)
    assert {key: data for key, (_, data) in snapshot(folder).items()} == before


@pytest.mark.parametrize("damage", ["altered", "missing", "longer"])
def test_save__the_same_model_again_repairs_it(folder: Path, fitted: PlackettLuceMixture, damage: str) -> None:
    for number in range(len(list(folder.iterdir()))):
        path = sorted(folder.iterdir())[number]  # names change where the old files may not be overwritten
        whole = path.read_bytes()
        path.write_bytes({"altered": whole[:-1] + b"!", "longer": whole + b"!"}.get(damage, whole))
        if damage == "missing":
            path.unlink()
        with pytest.raises((DamagedStoreError, UnfinishedStoreError), match="save it again"):
            PlackettLuceMixture.load(folder)
        fitted.save(folder)
        assert same(PlackettLuceMixture.load(folder), fitted)


def test_save__numbers_that_json_cannot_hold(tmp_path: Path, fitted: PlackettLuceMixture) -> None:
    mixture = MixtureParams(fitted.log_worths_, fitted.shares_, fitted.item_names_)
    about = {"history": [{"change": float("nan"), "gradient": np.float64("inf")}], "seed": np.int64(7)}
    mixture.save(tmp_path / "model", about)
    record = load_model(Location.of(tmp_path / "model")).record
    assert record["history"] == [{"change": None, "gradient": None}]
    assert record["seed"] == 7


@pytest.mark.parametrize(
    ("log_worths", "shares", "names", "message"),
    [
        ([[0.0, 1.0]] * 2, [-1.0, 2.0], ("a", "b"), r"shares must be 2 non-negative numbers that sum to 1"),
        ([[0.0, 1.0]] * 2, [0.5, 0.6], ("a", "b"), r"sum to 1, but are \[0\.5 0\.6\]"),
        ([[0.0, 1.0]], [np.nan], ("a", "b"), "sum to 1, but are"),
        ([[0.0, np.inf]], [1.0], ("a", "b"), "log-worths must be finite"),
        ([[0.0, 1.0]], [1.0], ("a", "a"), "item names must differ, but 'a' occurs 2 times"),
        ([[0.0, 1.0]], [1.0], ("a", 7), r"item names must be a list of text, but are \('a', 7\)"),
        ([[0.0, 1.0]], [1.0], ("a",), r"log-worths of shape \(1, 2\).* 1 item names"),
        ([[0.0, 1.0]], [0.5, 0.5], ("a", "b"), r"shares of shape \(2,\)"),
    ],
)
def test_save_and_load__parameters_of_no_mixture(
    tmp_path: Path, log_worths: Any, shares: Any, names: Any, message: str
) -> None:
    mixture = MixtureParams(np.array(log_worths), np.array(shares), names)
    with pytest.raises(SettingsError, match=f"this mixture cannot be saved: .*{message}"):
        mixture.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    # A folder that says so nevertheless, with correct digests.
    arrays = {"log_worths": mixture.log_worths, "shares": mixture.shares}
    _save_model(Location.of(tmp_path / "model"), {"item_names": list(names)}, arrays)
    shown = r"item_names\[1\] must be text, but is 7" if "list of text" in message else message
    if np.isfinite(mixture.log_worths).all() and np.isfinite(mixture.shares).all():
        with pytest.raises(DamagedStoreError, match=f"the model at .*model cannot be read: .*{shown}"):
            MixtureParams.load(tmp_path / "model")
    else:
        with pytest.raises(DamagedStoreError, match="it holds numbers that are not finite"):
            MixtureParams.load(tmp_path / "model")


# --- altered ---------------------------------------------------------------------------------------------


@pytest.mark.promise(44)
def test_load__any_byte_altered(folder: Path, fitted: PlackettLuceMixture) -> None:
    rng = random.Random(0)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for place in sorted({0, len(whole) - 1, *rng.sample(range(len(whole)), min(len(whole), 60))}):
            for value in (whole[place] ^ 1, whole[place] ^ 128, rng.randrange(256)):
                if value == whole[place]:
                    continue
                path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
                with pytest.raises(StoreError, match=r"model"):
                    PlackettLuceMixture.load(folder)
        path.write_bytes(whole)
    assert same(PlackettLuceMixture.load(folder), fitted)


@pytest.mark.promise(44)
def test_load__any_bit_of_the_numbers_flipped(folder: Path) -> None:
    path = folder / "log_worths.npy"
    for _, data in single_bit_flips(path.read_bytes(), 200):
        path.write_bytes(data)
        with pytest.raises(DamagedStoreError, match=r"the model at .*log_worths\.npy was altered"):
            MixtureParams.load(folder)


@pytest.mark.promise(44)
def test_load__every_digit_of_the_version(folder: Path) -> None:
    # Version 1 has no digests, so a model must not become one by a changed digit.
    text = (folder / "model.json").read_text()
    assert '"version": 2' in text
    for digit in "013456789":
        (folder / "model.json").write_text(text.replace('"version": 2', f'"version": {digit}'))
        with pytest.raises(StoreError, match=r"was altered|has format version"):
            MixtureParams.load(folder)


@pytest.mark.promise(44)
@pytest.mark.parametrize("change", ["cut short", "longer", "missing", "folder", "of another model"])
def test_load__a_file_is_not_what_it_was(folder: Path, another: PlackettLuceMixture, change: str) -> None:
    another.save(folder.parent / "another")
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        other = folder.parent / "another" / path.name
        if change == "of another model" and (path.name == "model.json" or other.read_bytes() == whole):
            continue
        path.unlink()
        if change == "folder":
            path.mkdir()
        elif change != "missing":
            changed = {"cut short": whole[:-1], "longer": whole + b"\0"}
            path.write_bytes(changed.get(change) or other.read_bytes())
        with pytest.raises((DamagedStoreError, UnfinishedStoreError), match=rf"the model at {folder} "):
            PlackettLuceMixture.load(folder)
        path.rmdir() if change == "folder" else path.unlink(missing_ok=True)
        path.write_bytes(whole)


@pytest.mark.promise(34)
@pytest.mark.parametrize(
    "text",
    [b"[" * 200_000, b'{"a":' * 200_000, b"9" * 100_000, b"", b"\xff\xfe", b"null", b'"plmix"'],
    ids=["deep", "deep objects", "long number", "empty", "no text", "null", "text"],
)
def test_load__json_of_no_model(folder: Path, text: bytes) -> None:
    (folder / "model.json").write_bytes(text)
    with pytest.raises(DamagedStoreError, match=rf"the model at {folder} cannot be read"):
        MixtureParams.load(folder)
    if text.startswith(b"["):  # deep within what is a model otherwise
        nested = text + b"]" * len(text)
        head = b'{"format": "plmix-model", "version": 2, "history": '
        (folder / "model.json").write_bytes(head + nested + b"}")
        with pytest.raises(DamagedStoreError, match=rf"the model at {folder} cannot be read"):
            MixtureParams.load(folder)


@pytest.mark.promise(34)
def test_load__huge_json_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (folder / "model.json").open("ab") as file:
        file.truncate(1 << 40)  # a file with a hole, which takes no room on disk
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("it was read"))
    with pytest.raises(DamagedStoreError, match=r"model\.json has 1,099,511,627,776 bytes, where at most"):
        MixtureParams.load(folder)


@pytest.mark.promise(34)
@pytest.mark.parametrize("name", ["log_worths", "shares", "ghosts"])
def test_load__huge_array_is_not_read(folder: Path, name: str) -> None:
    with (folder / f"{name}.npy").open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(DamagedStoreError, match=rf"{name}\.npy has 1,099,511,627,776 bytes, where at most"):
        PlackettLuceMixture.load(folder)


@pytest.mark.promise(33)
@pytest.mark.parametrize("file", ["../shares.npy", "/etc/passwd", "model.json", "log_worths.npy", "shares.npz"])
def test_load__files_named_elsewhere(folder: Path, file: str) -> None:
    files = json.loads((folder / "model.json").read_bytes())["files"]
    forged(folder, files=files | {"shares": files["shares"] | {"file": file}})
    with pytest.raises(DamagedStoreError, match="cannot be a file of the array 'shares'"):
        MixtureParams.load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"item_names": "abc"}, r"item_names must be a list, but is 'abc' \(str\)"),
        ({"item_names": None}, "item_names must be a list, but is None"),
        ({"item_names": [1, 2, 3]}, r"item_names\[0\] must be text, but is 1"),
        ({"item_names": ["0", "0", "2"]}, "item names must differ, but '0' occurs 2 times"),
        ({"settings": [1]}, r"settings must be an object, but is \[1\] \(list\)"),
        ({"fit": "x"}, "fit must be an object, but is 'x'"),
        ({"fit": {"n_iter": -1}}, r"model\.json was altered: fit\.n_iter must be a whole number from 0 on, but is -1"),
        ({"history": {}}, "history must be a list, but is {}"),
        ({"events": 3}, "events must be a list, but is 3"),
        ({"init": None}, "init must be an object, but is None"),
    ],
)
def test_load__entries_of_a_wrong_type(folder: Path, changes: dict[str, Any], message: str) -> None:
    forged(folder, **changes)
    with pytest.raises(DamagedStoreError, match=f"the model at {folder} cannot be read.*({message})"):
        PlackettLuceMixture.load(folder)


@pytest.mark.parametrize("shape", [(3,), (2, 1), ()])
def test_load__ghosts_of_a_wrong_shape(folder: Path, shape: tuple[int, ...]) -> None:
    resealed(folder, "ghosts", npy_bytes(np.zeros(shape)))
    with pytest.raises(DamagedStoreError, match=r"cannot be read: ghosts"):
        PlackettLuceMixture.load(folder)


def test_load__no_permission(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def forbidden(self: Path, *arguments: Any, **options: Any) -> Any:
        if self.name == "shares.npy":
            raise PermissionError(13, "Permission denied")
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(StoreAccessError, match=rf"no permission to read {folder}/shares.npy"):
        MixtureParams.load(folder)


# --- the first format ------------------------------------------------------------------------------------


@pytest.mark.promise(18)
def test_load__version_1_is_refused_by_name(folder: Path) -> None:
    message = r"has format version 1, and .* reads 2; it was written by an early version, so fit it again"
    with pytest.raises(UnsupportedFormatError, match=message):
        PlackettLuceMixture.load(old_format(folder))


def test_load__shares_of_no_mixture(folder: Path) -> None:
    resealed(folder, "shares", npy_bytes(np.array([-1.0, 2.0])))
    with pytest.raises(DamagedStoreError, match=r"non-negative numbers that sum to 1, but are \[-1\.  2\.\]"):
        MixtureParams.load(folder)


def test_save__over_version_1(folder: Path, another: PlackettLuceMixture) -> None:
    another.save(old_format(folder))
    assert same(PlackettLuceMixture.load(folder), another)
    names = {path.name for path in folder.iterdir()}
    assert not {"log_worths.npy", "ghosts.npy"} & names, "files of the old model are left"


def test_load__older_programs_refuse_by_name(folder: Path) -> None:
    # Version 1 reads `version` and refuses all but 1.
    assert json.loads((folder / "model.json").read_bytes())["version"] == 2


@pytest.mark.promise(18)
def test_load__newer_version(folder: Path) -> None:
    forged(folder, version=3)
    with pytest.raises(UnsupportedFormatError, match=r"format version 3.*reads 2; install a newer"):
        MixtureParams.load(folder)


# --- written halfway -------------------------------------------------------------------------------------


class Stopped(BaseException):
    """A process that ends, which no handler of errors sees."""


def stop_at_call(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Stop at the n-th call that changes the disk; everything after it fails too, as in a process that is gone."""
    calls: list[str] = []

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            if len(calls) >= number:
                raise Stopped
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "open"), (Path, "mkdir")):
        counted(owner, name)
    return calls


@pytest.mark.promise(44)
@pytest.mark.parametrize("before", ["nothing", "another model", "version 1"])
def test_save__stopped_at_every_step(
    tmp_path: Path, fitted: PlackettLuceMixture, another: PlackettLuceMixture, before: str
) -> None:
    outcomes = set()
    for number in range(1, 200):
        folder = tmp_path / str(number)
        if before != "nothing":
            another.save(folder)
        if before == "version 1":
            old_format(folder)
        there = snapshot(folder)
        with pytest.MonkeyPatch.context() as patch:
            calls = stop_at_call(patch, number)
            try:
                fitted.save(folder)
            except Stopped:
                pass
            else:
                if len(calls) < number:
                    break
        if before == "nothing":
            try:
                loaded = PlackettLuceMixture.load(folder)
            except (UnfinishedStoreError, StoreNotFoundError):
                outcomes.add("none")
            else:
                assert same(loaded, fitted)
                outcomes.add("new")
        else:
            record = json.loads((folder / "model.json").read_bytes())
            if record["version"] == 1:  # as it was, with all its arrays
                assert snapshot(folder).items() >= there.items()
                outcomes.add("old")
            else:
                loaded = PlackettLuceMixture.load(folder)
                assert same(loaded, fitted) or same(loaded, another)
                outcomes.add("new" if same(loaded, fitted) else "old")
        fitted.save(folder)
        assert same(PlackettLuceMixture.load(folder), fitted), "a second save must succeed"
        assert len(list(folder.iterdir())) == 1 + len(json.loads((folder / "model.json").read_bytes())["files"])
    assert number > 20, "the calls that change the disk were not found"
    assert outcomes == {"none" if before == "nothing" else "old", "new"}


SAVER = """
import sys
import numpy as np
from plmix_dist import MixtureParams
mixtures = [MixtureParams.of(np.full((2, 400), k) + np.arange(400) % (k + 2), None, [str(i) for i in range(400)])
            for k in range(2)]
print("begun", flush=True)
for number in range(100_000):
    mixtures[number % 2].save(sys.argv[1])
"""


@pytest.mark.promise(44)
def test_save__killed(tmp_path: Path, run_python: Callable[..., subprocess.Popen[str]]) -> None:
    rng = random.Random(1)
    for _ in range(4):
        process = run_python(SAVER, tmp_path / "model")
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        while not (tmp_path / "model/model.json").exists():
            assert process.poll() is None
        threading.Event().wait(rng.random() / 5)
        process.send_signal(signal.SIGKILL)
        process.wait()
        mixture = MixtureParams.load(tmp_path / "model")
        centred = [np.arange(400) % (k + 2) - (np.arange(400) % (k + 2)).mean() for k in range(2)]
        assert any(np.allclose(mixture.log_worths, worths) for worths in centred)


@pytest.mark.promise(44)
def test_load__while_another_process_saves(tmp_path: Path, run_python: Callable[..., subprocess.Popen[str]]) -> None:
    process = run_python(SAVER, tmp_path / "model")
    while not (tmp_path / "model/model.json").exists():
        assert process.poll() is None
    for _ in range(200):
        assert MixtureParams.load(tmp_path / "model").n_items == 400
    process.kill()


def test_save__two_at_once(folder: Path, another: PlackettLuceMixture, fitted: PlackettLuceMixture) -> None:
    with write_lock(Location.of(folder)), pytest.raises(StoreLockedError, match="another process is writing"):
        another.save(folder)
    assert same(PlackettLuceMixture.load(folder), fitted)


@pytest.mark.promise(17)
def test_save__a_writer_that_lost_its_lease_publishes_nothing(
    memory_place: Location, another: PlackettLuceMixture, fitted: PlackettLuceMixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted.save(memory_place)
    write = Location.write_bytes

    def stopped_for_long(self: Location, key: str, data: bytes, **options: Any) -> None:
        write(self, key, data, **options)
        if key.endswith(".npy"):
            later = time.time() + 61
            monkeypatch.setattr(lock, "time", SimpleNamespace(time=lambda: later))

    monkeypatch.setattr(Location, "write_bytes", stopped_for_long)
    with pytest.raises(StoreLockedError, match=r"lost its lease on .*nothing was published"):
        another.save(memory_place)
    monkeypatch.undo()
    assert same(PlackettLuceMixture.load(memory_place), fitted)


@pytest.mark.promise(16)
@pytest.mark.promise(45)
@pytest.mark.parametrize("full_at", ["log_worths", "shares", "ghosts", "model.json"])
def test_save__disk_full(
    folder: Path,
    another: PlackettLuceMixture,
    fitted: PlackettLuceMixture,
    monkeypatch: pytest.MonkeyPatch,
    full_at: str,
) -> None:
    before = snapshot(folder)
    synced = os.fsync

    def full(descriptor: int) -> None:
        if f"/{full_at}" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(28, "No space left on device")
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFullError, match=rf"no room to write {folder}/{full_at}\S* \([\d,]+ bytes\)"):
        another.save(folder)
    assert same(PlackettLuceMixture.load(folder), fitted)
    if full_at != "model.json":
        assert snapshot(folder) == before, "something of the new model was left"
    monkeypatch.undo()
    another.save(folder)
    assert same(PlackettLuceMixture.load(folder), another)


@pytest.mark.parametrize("where", ["model", "model/below"])
def test_save__a_file_where_a_folder_should_be(tmp_path: Path, fitted: PlackettLuceMixture, where: str) -> None:
    (tmp_path / "model").write_text("my notes")
    with pytest.raises(StoreAccessError, match=rf"cannot write {tmp_path}/model"):
        fitted.save(tmp_path / where)
    assert (tmp_path / "model").read_text() == "my notes"


def test_score__shares_of_no_mixture_are_an_error(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from plmix_dist import ingest
    from plmix_dist.cli import main

    ingest(RANKINGS, tmp_path / "store")
    resealed(folder, "shares", npy_bytes(np.array([-1.0, 2.0])))
    for verb in (["score"], ["predict"]):
        with pytest.raises(SystemExit) as stopped, contextlib.suppress(StoreError):
            main([*verb, str(folder), str(tmp_path / "store"), *([str(tmp_path / "out")] * (verb == ["predict"]))])
        assert stopped.value.code == 1
        assert "shares must be 2 non-negative numbers that sum to 1" in capsys.readouterr().err
