"""Checkpoints: a fit that is stopped anywhere goes on from its last saved state and ends with the same bits."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import socket
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from distributed import Client as DaskClient

import plmix_dist as pl
from plmix_dist import Checkpoint, PlackettLuceMixture
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import (
    CheckpointWarning,
    ClusterError,
    DamagedStoreError,
    SettingsError,
    StoreExistsError,
    StoreFullError,
    StoreLockedError,
    UnsupportedFormatError,
)
from plmix_dist.fitting import journal as journals
from plmix_dist.fitting import overview as look
from plmix_dist.fitting.journal import Journal, open_journal
from plmix_dist.passes.request import Aggregation, Request
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.store import Location
from plmix_dist.store.checkpoints import CheckpointFolder, Record, _unpacked, packed
from tests.cluster import test_submission
from tests.fitting.test_algorithm_saved_state import without_seconds

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client

    from plmix_dist.rankings import RankingBlock

EVERY_STATE = 10**6
start = test_submission.start  # the fixture that starts a command of Dask's


def rows_of(n_rankings: int = 400, n_items: int = 5, seed: int = 3) -> RankingBlock:
    """Rankings of two groups that overlap."""
    truth = np.random.default_rng(seed).normal(size=(2, n_items))
    return draw_rankings(truth, np.array([0.6, 0.4]), n_rankings, np.random.default_rng(seed + 1))[0]


def tied_rows() -> RankingBlock:
    block = rows_of(150)
    tied = np.zeros(len(block.items), bool)
    tied[1 :: block.n_items] = True
    return block.replace(tied=tied)


def bits(model: PlackettLuceMixture) -> Any:
    """All that a fit gives, but for what the clock says and the stages that this process ran."""
    init = {name: value for name, value in model.init_.items() if name != "stages"}
    return without_seconds(
        (
            model.log_worths_,
            model.shares_,
            model._ghosts,
            model.share_coefficients_,
            model.log_likelihood_,
            model.n_iter_,
            model.converged_,
            tuple(model.history_),
            tuple(model.events_),
            {name: tuple(value) if isinstance(value, list) else value for name, value in init.items()},
        )
    )


COVARIATES = np.random.default_rng(5).normal(size=(400, 1))
CASES: dict[str, tuple[dict[str, Any], Callable[[], RankingBlock], dict[str, Any]]] = {
    "search": ({}, rows_of, {}),
    "random starts": ({"init": "random", "n_init": 3, "m_step": "lsr"}, rows_of, {}),
    "no prior": ({"alpha": 0.0}, rows_of, {}),
    "exact": ({"em": "exact", "init": "random", "tol": 1e-3, "max_iter": 3}, lambda: rows_of(250), {}),
    "covariates": ({}, rows_of, {"membership_covariates": COVARIATES}),
    "resampled ties": ({"ties": "resample", "init": "random", "max_iter": 24}, tied_rows, {}),
    "kernel": ({"init": "kernel"}, lambda: rows_of(60), {}),
}


@pytest.mark.promise(4)
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_resumed", [7, pytest.param(EVERY_STATE, marks=pytest.mark.slow)], ids=["some", "each"])
def test_fit__resumed_after_saved_states(
    case: str, n_resumed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Samples smaller than the data, so that all stages of a fit take part.
    monkeypatch.setattr(look, "_SAMPLE_ROWS", 200)
    monkeypatch.setattr(look, "_FEWEST_ROWS", 100)
    monkeypatch.setattr(look, "_ROWS_PER_ITEM", 10)
    options, make_rows, fit_options = CASES[case]
    rows = make_rows()

    def fitted(checkpoint: Any) -> PlackettLuceMixture:
        model = PlackettLuceMixture(2, random_state=1, checkpoint=checkpoint, **options)
        return model.fit(rows, client=False, **fit_options)

    undisturbed = bits(fitted(None))
    whole = tmp_path / "whole"
    assert bits(fitted(Checkpoint(whole, every=0, keep=EVERY_STATE))) == undisturbed
    saved = sorted(whole.glob("checkpoint-*"))
    assert len(saved) > 8
    for number in np.linspace(1, len(saved), min(len(saved), n_resumed)).astype(int):
        place = tmp_path / f"{number}"
        copy_until(whole, number, place)
        assert bits(fitted(Checkpoint(place, every=1e9))) == undisturbed
        shutil.rmtree(place)


def copy_until(whole: Path, number: int, place: Path) -> None:
    """The checkpoint of this number, and the parts of all: what a killed process would leave, had it kept one."""
    place.mkdir()
    for file in [whole / f"checkpoint-{number:06d}.plmix", *whole.glob("part-*")]:
        shutil.copy(file, place)


class Stop(Exception):  # noqa: N818 - not a fault
    """Ends a fit from its progress function."""


def stop_after(n_iterations: int) -> Callable[[dict[str, Any]], None]:
    def progress(record: dict[str, Any]) -> None:
        if record["iteration"] >= n_iterations:
            raise Stop

    return progress


def test_fit__does_not_repeat_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, ran = rows_of(), []
    run = ThreadedPasses.run

    def counted(self: ThreadedPasses, requests: Any) -> Any:
        ran.extend(request.aggregation.name for request in requests)
        return run(self, requests)

    monkeypatch.setattr(ThreadedPasses, "run", counted)
    with pytest.raises(Stop):
        PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c", progress=stop_after(3)).fit(rows)
    ran.clear()
    seen: list[int] = []
    model = PlackettLuceMixture(
        2, random_state=1, checkpoint=tmp_path / "c", progress=lambda record: seen.append(record["iteration"])
    ).fit(rows)
    # Rows of a block are read once for their digest. No look, no search; the fit goes on with iteration 4.
    assert set(ran) == {"digest", "e-step", "information"}
    assert seen == list(range(4, model.n_iter_ + 1))
    assert model.init_["stages"][0]["stage"] == "resume"
    ran.clear()
    again = PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c").fit(rows)
    assert ran == ["digest"]
    assert bits(again) == bits(model)


@pytest.mark.promise(3)
def test_fit__resumed_on_another_number_of_workers(tmp_path: Path, client: Client) -> None:
    store = pl.simulate(tmp_path / "store", n_rankings=9_000, n_items=8, n_components=2, random_state=2)
    undisturbed = bits(PlackettLuceMixture(2, random_state=1).fit(store, client=False))
    for name, first, second in (("away", False, client), ("home", client, False)):
        place = tmp_path / name
        with pytest.raises(Stop):
            PlackettLuceMixture(2, random_state=1, checkpoint=place, progress=stop_after(4)).fit(store, client=first)
        resumed = PlackettLuceMixture(2, random_state=1, checkpoint=place).fit(store, client=second)
        assert resumed.init_["stages"][0]["stage"] == "resume"
        assert bits(resumed) == undisturbed


@pytest.mark.promise(3)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of connections that were cut
def test_fit__after_the_scheduler_was_killed(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    store = pl.simulate(tmp_path / "store", n_rankings=9_000, n_items=8, n_components=2, random_state=2)
    undisturbed = bits(PlackettLuceMixture(2, random_state=1).fit(store, client=False))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    scheduler = start("scheduler", "--host", address, "--dashboard-address", "127.0.0.1:0")
    place = str(tmp_path / "worker")
    start("worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", place)

    def lose(record: dict[str, Any]) -> None:
        if record["iteration"] == 3:
            scheduler.kill()
            scheduler.wait()

    model = PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c", progress=lose)
    with DaskClient(address, set_as_default=False, timeout=240) as client:
        client.wait_for_workers(1, timeout=240)
        with pytest.raises(ClusterError, match="scheduler"):
            model.fit(store, client=client)
    iterations: list[int] = []
    resumed = PlackettLuceMixture(
        2, random_state=1, checkpoint=tmp_path / "c", progress=lambda r: iterations.append(r["iteration"])
    ).fit(store, client=False)
    assert iterations[0] == 4  # the pass that was lost is repeated, and no other
    assert bits(resumed) == undisturbed


# Forks a child for each crash point. A child fits, and kills itself at the n-th call of a function, before or after it.
CRASHES = """
import json, os, shutil, signal, sys
from pathlib import Path
import numpy as np
from plmix_dist import Checkpoint, PlackettLuceMixture
from tests.store.test_checkpoints import rows_of
place, rows = Path(sys.argv[1]), rows_of()

def fit(folder):
    place = Checkpoint(folder, every=0, keep=2)
    return PlackettLuceMixture(2, random_state=1, checkpoint=place).fit(rows, client=False)

def crash_at(name, nth, after):
    call, calls = getattr(os, name), 0
    def killing(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == nth and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return call(*arguments, **options)
        finally:
            if calls == nth:
                os.kill(os.getpid(), signal.SIGKILL)
    setattr(os, name, killing)

PlackettLuceMixture(2, random_state=1).fit(rows, client=False)  # children find everything imported
outcomes = []
for name in ("open", "fsync", "replace", "unlink"):
    for nth in (1, 14):
        for after in (False, True):
            folder = place / f"{name}-{nth}-{after}"
            child = os.fork()
            if child == 0:
                crash_at(name, nth, after)
                fit(folder)
                os._exit(0)
            outcomes.append((str(folder), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
print(json.dumps(outcomes))
"""


@pytest.mark.promise(4)
def test_checkpoint__killed_around_write_sync_and_rename(
    tmp_path: Path, run_python: Callable[..., subprocess.Popen[str]]
) -> None:
    output, errors = run_python(CRASHES, tmp_path).communicate(timeout=240)
    outcomes = json.loads(output.splitlines()[-1]) if output else errors
    assert len(outcomes) == 16
    rows = rows_of()
    undisturbed = bits(PlackettLuceMixture(2, random_state=1).fit(rows, client=False))
    n_resumed = 0
    for folder, code in outcomes:
        assert code == -signal.SIGKILL, folder
        there = CheckpointFolder(Location.of(folder)).load()  # whole, or none at all
        n_resumed += there is not None
        place = Checkpoint(folder, keep=2)
        assert bits(PlackettLuceMixture(2, random_state=1, checkpoint=place).fit(rows, client=False)) == undisturbed
        # What the killed process left behind is cleared away.
        assert not [name for name in Location.of(folder).names() if name.endswith(".tmp")]
    assert n_resumed >= 8


def stopped_fit(place: Path, **options: Any) -> RankingBlock:
    rows = rows_of()
    with pytest.raises(Stop):
        PlackettLuceMixture(
            2, random_state=1, checkpoint=Checkpoint(place, every=0), progress=stop_after(5), **options
        ).fit(rows, client=False)
    return rows


@pytest.mark.parametrize("where", [0, 20, 70, 400, -1, None], ids=str)
def test_checkpoint__damaged_falls_back_to_the_one_before(tmp_path: Path, where: int | None) -> None:
    rows = stopped_fit(tmp_path / "c")
    newest = sorted((tmp_path / "c").glob("checkpoint-*"))[-1]
    data = bytearray(newest.read_bytes())
    if where is None:
        data = data[: len(data) // 2]
    else:
        data[where] ^= 1
    newest.write_bytes(data)
    model = PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c")
    with pytest.warns(CheckpointWarning, match=f"the one before it is taken .*{newest.name}"):
        model.fit(rows, client=False)
    assert bits(model) == bits(PlackettLuceMixture(2, random_state=1).fit(rows, client=False))


def test_checkpoint__all_damaged_says_what(tmp_path: Path) -> None:
    rows = stopped_fit(tmp_path / "c")
    for part in (tmp_path / "c").glob("part-*"):
        part.write_bytes(part.read_bytes()[:-1])
    names = sorted(path.name for path in (tmp_path / "c").iterdir())
    with pytest.raises(DamagedStoreError, match=r"no checkpoint at .* can be read: .*part-.* was altered or cut short"):
        PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c").fit(rows, client=False)
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == names


def test_checkpoint__missing_part_is_damage(tmp_path: Path) -> None:
    rows = stopped_fit(tmp_path / "c")
    next((tmp_path / "c").glob("part-*")).unlink()
    with pytest.raises(DamagedStoreError, match="a file is missing"):
        PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c").fit(rows, client=False)


@pytest.mark.promise(38)
def test_resume__refused_with_changed_settings_data_or_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = stopped_fit(tmp_path / "c")

    def refused(match: str, rows: Any = rows, **options: Any) -> None:
        settings = {"n_components": 2, "random_state": 1} | options
        with pytest.raises(StoreExistsError, match=match):
            PlackettLuceMixture(checkpoint=tmp_path / "c", **settings).fit(rows, client=False)

    refused(r"\(alpha is 1.0 there and 0.5 here\); choose another folder", alpha=0.5)
    refused(r"\(seed is 1 there and 2 here\)", random_state=2)
    refused(r"n_components is 2 there and 3 here; tol is 1e-08 there and 1e-06 here", n_components=3, tol=1e-6)
    refused(r"\(n_rankings is 400 there and 401 here; rankings is \w+ there and \w+ here\)", rows_of(401))
    refused(r"\(rankings is \w+ there and \w+ here\)", rows.replace(weights=np.full(400, 2.0)))
    refused(r"init is spectral there and given \w+ here", init=np.zeros((2, 5)) + np.arange(2)[:, None])
    monkeypatch.setattr(journals, "__version__", "0.0.9")
    refused(r"\(version is 0\.\d+\.\d+ there and 0.0.9 here\)")
    # Nothing was changed by all that: the same fit goes on.
    monkeypatch.undo()
    model = PlackettLuceMixture(2, random_state=1, residency="memory", checkpoint=tmp_path / "c").fit(rows)
    assert model.init_["stages"][0]["stage"] == "resume"


@pytest.mark.promise(38)
def test_resume__refused_with_other_weights_or_covariates_of_a_store(tmp_path: Path) -> None:
    store = pl.simulate(tmp_path / "store", n_rankings=400, n_items=5, n_components=2, random_state=2)
    weights = np.ones(400)
    PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c").fit(store, sample_weight=weights)
    weights[0] = 2.0
    with pytest.raises(StoreExistsError, match="rankings is"):
        PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c").fit(store, sample_weight=weights)


@pytest.mark.promise(39)
def test_checkpoints__last_n_are_kept_and_saved_at_most_every_t_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of()

    def saved(**options: Any) -> list[int]:
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        PlackettLuceMixture(2, random_state=1, checkpoint=Checkpoint(place, **options)).fit(rows, client=False)
        return [int(path.stem.split("-")[1]) for path in sorted(place.glob("checkpoint-*"))]

    # A fit shorter than the interval saves its end, and nothing else.
    assert saved() == [1]
    numbers = saved(every=0, keep=2)
    assert len(numbers) == 2
    assert numbers[0] == numbers[1] - 1 > 10
    # A clock that goes on by one second whenever it is looked at: one save for every 5 looks at most.
    seconds = itertools.count()
    monkeypatch.setattr(journals.time, "monotonic", lambda: float(next(seconds)))
    n_saved = len(saved(every=5.0, keep=EVERY_STATE))
    assert 2 < n_saved <= next(seconds) / 5 + 1


def test_checkpoints__parts_are_written_once_and_removed_when_no_longer_named(tmp_path: Path) -> None:
    place = Location.of(tmp_path)
    folder = CheckpointFolder(place, keep=1)
    folder.save({}, {"sample": Record("rows", {"0": np.arange(3)})}, None)
    (part,) = (name for name in place.names() if name.startswith("part"))
    written = (tmp_path / part).stat().st_mtime_ns
    folder.save({}, {"sample": None, "look": Record(1, {})}, ("fit", Record(2, {})))
    assert (tmp_path / part).stat().st_mtime_ns == written
    loaded = CheckpointFolder(place).load()
    assert loaded is not None
    assert loaded.finished["sample"].arrays["0"].tolist() == [0, 1, 2]
    folder.save({}, {}, None)
    assert place.names() == ["checkpoint-000003.plmix"]


@pytest.mark.promise(32)
def test_checkpoint__holds_no_pickle_and_refuses_other_types(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        packed({}, {"0": np.array([object()])})
    (tmp_path / "file").write_bytes(packed({}, {"0": np.array(["text"])}))
    with pytest.raises(DamagedStoreError, match="array 0"):
        _unpacked(Location.of(tmp_path), "file")


@pytest.mark.promise(18)
def test_checkpoint__of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    rows = stopped_fit(tmp_path / "c")
    newest = sorted((tmp_path / "c").glob("checkpoint-*"))[-1]
    newest.write_bytes(newest.read_bytes().replace(b"plmix-checkpoint 1", b"plmix-checkpoint 2", 1))
    with pytest.raises(UnsupportedFormatError, match=r"has format version 2, and this version .* reads 1; continue"):
        PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c").fit(rows, client=False)


def test_checkpoint__needs_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    with pytest.raises(StoreExistsError, match=r"holds other files, such as letter\.txt"):
        PlackettLuceMixture(2, checkpoint=tmp_path).fit(rows_of())
    with pytest.raises(SettingsError, match="checkpoint must be a folder"):
        PlackettLuceMixture(2, checkpoint=3).fit(rows_of())  # type: ignore[arg-type]
    for bad in ({"every": -1.0}, {"keep": 0}):
        with pytest.raises(SettingsError):
            Checkpoint(tmp_path, **bad)  # type: ignore[arg-type]


def test_checkpoint__second_process_is_refused(tmp_path: Path) -> None:
    with (
        open_journal(Checkpoint(tmp_path), dict),
        pytest.raises(StoreLockedError, match="another process"),
        open_journal(Checkpoint(tmp_path), dict),
    ):
        pass


@pytest.mark.parametrize("fixture", ["memory_place", pytest.param("s3_place", marks=pytest.mark.slow)])
def test_checkpoint__behind_a_url(fixture: str, request: pytest.FixtureRequest) -> None:
    rows, url = rows_of(), request.getfixturevalue(fixture)
    place = Checkpoint(url, every=0, keep=2)
    with pytest.raises(Stop):
        PlackettLuceMixture(2, random_state=1, checkpoint=place, progress=stop_after(4)).fit(rows, client=False)
    assert sum(name.startswith("checkpoint-") for name in url.names()) == 2
    resumed = PlackettLuceMixture(2, random_state=1, checkpoint=place).fit(rows, client=False)
    assert resumed.init_["stages"][0]["stage"] == "resume"
    assert bits(resumed) == bits(PlackettLuceMixture(2, random_state=1).fit(rows, client=False))


def test_fit__seed_that_nobody_chose_is_taken_from_the_checkpoint(tmp_path: Path) -> None:
    rows = rows_of()
    place = tmp_path / "c"
    with pytest.raises(Stop):
        PlackettLuceMixture(2, checkpoint=place, progress=stop_after(4)).fit(rows, client=False)
    there = CheckpointFolder(Location.of(place)).load()
    assert there is not None
    resumed = PlackettLuceMixture(2, checkpoint=place).fit(rows, client=False)
    seed = there.fingerprint["seed"]
    assert bits(resumed) == bits(PlackettLuceMixture(2, random_state=seed).fit(rows, client=False))


@pytest.mark.promise(16)
def test_checkpoint__disk_full_keeps_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of()
    write = Location.write_bytes

    def full(self: Location, key: str, data: bytes) -> None:
        if key == "checkpoint-000009.plmix":
            raise StoreFullError(f"no space left on the disk of {self.url}")
        write(self, key, data)

    monkeypatch.setattr(Location, "write_bytes", full)
    place = Checkpoint(tmp_path / "c", every=0)
    with pytest.raises(StoreFullError):
        PlackettLuceMixture(2, random_state=1, checkpoint=place).fit(rows, client=False)
    monkeypatch.undo()
    resumed = PlackettLuceMixture(2, random_state=1, checkpoint=place).fit(rows, client=False)
    assert resumed.init_["stages"][0]["checkpoint"] == 8
    assert bits(resumed) == bits(PlackettLuceMixture(2, random_state=1).fit(rows, client=False))


def test_model__does_not_remember_its_checkpoint(tmp_path: Path) -> None:
    model = PlackettLuceMixture(2, random_state=1, checkpoint=str(tmp_path / "c")).fit(rows_of())
    model.save(tmp_path / "model")
    assert PlackettLuceMixture.load(tmp_path / "model").checkpoint is None


def test_bootstrap__resumed_after_saved_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from plmix_dist.uncertainty import bootstrap as module

    rows = rows_of()
    model = PlackettLuceMixture(2, random_state=1).fit(rows, client=False)
    monkeypatch.setattr(module, "_MOST_NUMBERS", 60)  # replicates in several turns

    def drawn(checkpoint: Any) -> Any:
        found = pl.bootstrap(model, rows, 8, random_state=4, checkpoint=checkpoint, client=False)
        return found.log_worths.tobytes(), found.shares.tobytes(), found.n_passes, found.converged.tolist()

    undisturbed = drawn(None)
    whole = tmp_path / "whole"
    assert drawn(Checkpoint(whole, every=0, keep=EVERY_STATE)) == undisturbed
    saved = sorted(whole.glob("checkpoint-*"))
    assert len(saved) > 6
    for number in range(1, len(saved), 2):
        place = tmp_path / f"{number}"
        copy_until(whole, number, place)
        assert drawn(place) == undisturbed
    with pytest.raises(StoreExistsError, match="n_replicates is 8 there and 9 here"):
        pl.bootstrap(model, rows, 9, random_state=4, checkpoint=whole, client=False)


def test_journal__what_is_inside_a_finished_stage_is_forgotten(tmp_path: Path) -> None:
    place = Checkpoint(tmp_path, every=0)
    count = Request(Aggregation("rows", leaf=lambda number, block, params: block.n_rankings))
    passes = ThreadedPasses(as_rankings([[0, 1], [1, 0]]))

    class CountThrice:
        def ask(self, state: tuple[int, ...]) -> list[Request]:
            return [count] if len(state) < 3 else []

        def tell(self, state: tuple[int, ...], answers: Any) -> tuple[int, ...]:
            return (*state, *answers[0].results)

        def score(self, state: tuple[int, ...]) -> None:
            return None

    def inside(journal: Journal) -> int:
        first = journal.stage("first", lambda: 7)
        return first + sum(journal.run("count", passes, CountThrice(), ()))

    with open_journal(place, dict) as journal:
        assert journal.stage("outer", lambda: inside(journal)) == 13
        assert journal.stage("first", lambda: 5) == 5  # another stage than the one inside
    loaded = CheckpointFolder(Location.of(tmp_path)).load()
    assert loaded is not None
    assert sorted(loaded.finished) == ["first", "outer"]
    assert loaded.running is None
    with open_journal(place, dict) as journal:
        assert journal.stage("outer", lambda: 0) == 13


# Runs plmix; says when the n-th iteration of the fit is over, and then goes on slowly.
SLOW_FIT = """
import sys, time
from plmix_dist.fitting import em
advance, calls = em.advance, 0
def slow(*arguments):
    global calls
    calls += 1
    if calls == int(sys.argv[1]):
        print("now", flush=True)
    if calls >= int(sys.argv[1]):
        {wait}
    return advance(*arguments)
em.advance = slow
from plmix_dist.cli import main
main(sys.argv[2:])
"""


@pytest.mark.promise(5)
@pytest.mark.parametrize(
    "wait",
    [
        "time.sleep(0.5)",
        pytest.param("from tests.helpers.compiled_code import stay_inside; stay_inside()", marks=pytest.mark.slow),
    ],
    ids=["python", "compiled"],
)
def test_cli__interrupted_fit_is_saved_and_continued(
    tmp_path: Path, run_python: Callable[..., subprocess.Popen[str]], wait: str
) -> None:
    pl.simulate(tmp_path / "store", n_rankings=2_000, n_items=6, n_components=2, random_state=2)
    command = ["fit", tmp_path / "store", "--components", 2, "--init", "random", "--workers", 0, "--quiet"]
    command += ["--out", tmp_path / "model", "--checkpoint", tmp_path / "c"]
    process = run_python(SLOW_FIT.format(wait=wait), 6, *command)
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    if "inside" in wait:
        assert process.stdout.readline() == "inside\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)  # `python -m benchmarks interrupt` tells the seconds
    assert process.returncode == 130
    said = f"its state is saved at {tmp_path / 'c'}; run the same command again to continue"
    assert errors.strip().splitlines()[-1] == f"plmix: error: interrupted; {said}"
    script = "import sys\nfrom plmix_dist.cli import main\nmain(sys.argv[1:])"
    assert run_python(script, *command).wait(240) == 0
    resumed = PlackettLuceMixture.load(tmp_path / "model")
    undisturbed = PlackettLuceMixture(2, init="random", random_state=0).fit(tmp_path / "store", client=False)
    assert bits(resumed) == bits(undisturbed)
    assert resumed.init_["stages"][0]["stage"] == "resume"


def test_prune__parts_of_every_kept_checkpoint_stay(tmp_path: Path) -> None:
    # The newest is damaged right after a stage has ended, whose parts it no longer names: the one before loads.
    folder = CheckpointFolder(Location.of(tmp_path), keep=2)
    for stage in ("first", "second", "third"):
        folder.save({}, {stage: Record(stage, {"x": np.arange(3.0)})}, None)
    newest = tmp_path / "checkpoint-000003.plmix"
    newest.write_bytes(newest.read_bytes()[:-1])
    loaded = CheckpointFolder(Location.of(tmp_path)).load()
    assert loaded is not None
    assert (loaded.number, loaded.finished["second"].value) == (2, "second")
    assert len(list(tmp_path.glob("part-*"))) == 2


def test_unpacked__bytes_behind_the_end(tmp_path: Path) -> None:
    data = packed({"a": 1}, {"x": np.arange(3.0)})
    (tmp_path / "whole").write_bytes(data)
    (tmp_path / "longer").write_bytes(data + b"\0")
    assert _unpacked(Location.of(tmp_path), "whole").value == {"a": 1}
    with pytest.raises(DamagedStoreError, match=f"has {len(data) + 1} bytes, where at most {len(data)} are expected"):
        _unpacked(Location.of(tmp_path), "longer")


@pytest.mark.promise(34)
def test_checkpoint__of_20_gb_is_not_read(tmp_path: Path) -> None:
    rows = stopped_fit(tmp_path / "c")
    for path in (tmp_path / "c").glob("*.plmix"):
        with path.open("rb+") as file:
            file.truncate(20 << 30)
    with pytest.raises(DamagedStoreError, match=r"has 21,474,836,480 bytes, where at most [\d,]+ are expected"):
        PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c").fit(rows, client=False)


def test_resume__an_error_of_the_user_stays_as_it_is(tmp_path: Path) -> None:
    rows = stopped_fit(tmp_path / "c")

    def wrong(record: dict[str, Any]) -> None:
        raise TypeError("of the user")

    with pytest.raises(TypeError, match="of the user"):
        PlackettLuceMixture(2, random_state=1, checkpoint=tmp_path / "c", progress=wrong).fit(rows, client=False)
