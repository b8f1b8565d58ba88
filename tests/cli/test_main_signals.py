"""Ctrl-C: the process ends soon, with exit code 130 and a message that is true; nothing half-written is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import plmix_dist
from plmix_dist import PlackettLuceMixture
from plmix_dist import threads as interruption
from plmix_dist.cluster import executor
from plmix_dist.passes.dask import DistributedPasses
from plmix_dist.passes.request import Aggregation, Request
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.threads import StoppableThreads, Stopped, check_stopped, threads_left_alone
from tests.helpers.oracle import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from distributed import Client

# A process that takes longer hangs, also on a busy machine. How long it really takes: benchmarks/interrupt.py.
HANGS = 120.0
NOTHING = "nothing was written; run the same command again to start over"

# Runs a verb; one function is slow, and says so when it is called for the n-th time.
SLOW_VERB = """
import importlib, sys, time
module, name, nth = sys.argv[1].rsplit(".", 1) + [int(sys.argv[2])]
owner = importlib.import_module(module)
function = getattr(owner, name)
calls = 0
def slow(*arguments, **options):
    global calls
    calls += 1
    if calls >= nth:
        print("now", flush=True)
        for _ in range(600):
            time.sleep(0.1)
    return function(*arguments, **options)
setattr(owner, name, slow)
from plmix_dist.cli import main
main(sys.argv[3:])
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a simulated store of several partitions and leaves, its parameters, and a text file."""
    folder = tmp_path_factory.mktemp("interrupted")
    plmix_dist.simulate(folder / "store", n_rankings=30_000, n_items=8, n_components=2, random_state=1)
    plmix_dist.export(folder / "store", folder / "votes.csv")
    return folder


def interrupted(process: subprocess.Popen[str], line: str = "now") -> str:
    """Interrupt a process when it prints that it is in the slow function; gives the last line of stderr."""
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    assert "Traceback" not in errors
    return errors.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("function", "nth"),
    [
        ("plmix_dist.fitting.fit.compile_kernels", 1),
        ("plmix_dist.fitting.starts.spectral._place_directions", 1),
        ("plmix_dist.fitting.starts.clusters.cluster_rows", 1),
        ("plmix_dist.fitting.em.advance", 1),
        ("plmix_dist.fitting.search._ends_of", 1),
        ("plmix_dist.fitting.em.advance", 3),
        ("plmix_dist.fitting.fit.best_of", 1),
    ],
)
def test_fit__any_stage(
    place: Path,
    tmp_path: Path,
    run_python: Callable[..., subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    nth: int,
) -> None:
    if function.endswith("compile_kernels"):
        monkeypatch.setenv("PLMIX_CACHE_DIR", str(tmp_path / "cache"))
    command = ["fit", place / "store", "--components", 3, "--out", tmp_path / "model", "--n-init", 2]
    said = interrupted(run_python(SLOW_VERB, function, nth, *command, "--workers", 0))
    assert said == f"plmix: error: interrupted; {NOTHING}"
    assert not (tmp_path / "model").exists()


def test_fit__while_it_is_saved(place: Path, tmp_path: Path, run_python: Callable[..., subprocess.Popen[str]]) -> None:
    command = ["fit", place / "store", "--components", 2, "--out", tmp_path / "model", "--quiet"]
    said = interrupted(run_python(SLOW_VERB, "plmix_dist.store.mixture._file_name", 1, *command))
    assert said == f"plmix: error: interrupted; {NOTHING}"
    assert snapshot(tmp_path / "model") == {}
    # After the model is there, the message must not say that nothing was written.
    said = interrupted(run_python(SLOW_VERB, "plmix_dist.cli.model._fit_record", 1, *command))
    assert said == f"plmix: error: interrupted; but {tmp_path / 'model'} is complete"
    assert PlackettLuceMixture.load(tmp_path / "model").converged_


@pytest.mark.promise(45)
@pytest.mark.parametrize(
    ("verb", "function", "nth", "kept"),
    [
        ("ingest", "plmix_dist.datasets.plan.run_all", 1, False),
        ("ingest", "plmix_dist.datasets.ingest.write_partition", 1, True),
        ("simulate", "plmix_dist.datasets.simulate.draw_rankings", 3, True),
        ("predict", "plmix_dist.prediction.memberships.rows_of_run", 1, True),
        ("export", "plmix_dist.tables.write.open_binary_target", 1, False),
    ],
)
def test_verb__what_is_left_is_told_and_continued(
    place: Path,
    tmp_path: Path,
    run_python: Callable[..., subprocess.Popen[str]],
    verb: str,
    function: str,
    nth: int,
    kept: bool,
) -> None:
    out = tmp_path / "out"
    commands: dict[str, list[Any]] = {
        "ingest": ["ingest", place / "votes.csv", out, "--workers", 0],
        "simulate": ["simulate", out, "--rankings", 20_000, "--items", 5, "--workers", 0],
        "predict": ["predict", place / "store.truth", place / "store", out, "--workers", 0],
        "export": ["export", place / "store", tmp_path / "out.csv"],
    }
    said = interrupted(run_python(SLOW_VERB, function, nth, *commands[verb]))
    words = f"what is finished of {out} is kept; run the same command again to continue" if kept else NOTHING
    assert said == f"plmix: error: interrupted; {words}"
    if not kept:
        assert {path: data for path, data in snapshot(tmp_path).items() if "truth" not in path} == {}
    again = run_python("import sys\nfrom plmix_dist.cli import main\nmain(sys.argv[1:])", *commands[verb])
    _, errors = again.communicate(timeout=60)
    assert (again.returncode, errors) == (0, "")


def test_export__that_was_complete(
    place: Path, tmp_path: Path, run_python: Callable[..., subprocess.Popen[str]]
) -> None:
    target = tmp_path / "out.csv"
    process = run_python(SLOW_VERB, "plmix_dist.store.access.sync_folder", 1, "export", place / "store", target)
    assert interrupted(process) == f"plmix: error: interrupted; but {target} is complete"
    assert target.read_bytes() == (place / "votes.csv").read_bytes()


def test_compiled_code__is_not_waited_for(
    place: Path, tmp_path: Path, run_python: Callable[..., subprocess.Popen[str]]
) -> None:
    # The main thread is where no signal ends what it does: in compiled code that takes many minutes.
    script = SLOW_VERB.replace(
        'print("now", flush=True)', "from tests.helpers.compiled_code import stay_inside; stay_inside()"
    )
    command = ["info", place / "store", "--workers", 0]
    process = run_python(script, "plmix_dist.datasets.inspect.info", 1, *command)
    said = interrupted(process, "inside")
    assert said == f"plmix: error: interrupted; {NOTHING}"


def test_second_interruption__ends_at_once(place: Path, run_python: Callable[..., subprocess.Popen[str]]) -> None:
    process = run_python(SLOW_VERB, "plmix_dist.datasets.inspect.info", 1, "info", place / "store", "--workers", 0)
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=HANGS)
    # Where the first has all but ended the process, the second does it the way that signals do; shells say 130 of both.
    assert process.returncode in (130, -signal.SIGINT)


@pytest.mark.parametrize("moment", ["running", "starting"])
def test_local_cluster__ends_with_the_process(
    place: Path, tmp_path: Path, run_python: Callable[..., subprocess.Popen[str]], moment: str
) -> None:
    import psutil

    out = tmp_path / "out"
    script = SLOW_VERB.replace(
        'print("now", flush=True)',
        "import psutil; print([child.pid for child in psutil.Process().children()], flush=True)",
    )
    function = {"running": "plmix_dist.cluster.submission._value", "starting": "distributed.Client"}[moment]
    command = ["predict", place / "store.truth", place / "store", out, "--workers", 1]
    process = run_python(script, function, 1, *command)
    assert process.stdout is not None
    children = json.loads(process.stdout.readline())
    assert children
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    # Dask's worker may log what the end of the cluster cut off, before our line or after it.
    assert [line for line in errors.splitlines() if line.startswith("plmix: error: ")] == [
        f"plmix: error: interrupted; what is finished of {out} is kept; run the same command again to continue"
    ]
    assert "Traceback" not in re.split("^[0-9-]+ [0-9:,]+ - (?:distributed|tornado)", errors, flags=re.MULTILINE)[0]
    deadline = time.monotonic() + HANGS
    while any(map(psutil.pid_exists, children)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --- in Python -------------------------------------------------------------------------------------------


class _Interrupted:
    """Sends this process a SIGINT after some calls, as Ctrl-C in a notebook does."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, record: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("after", [1, 3])
def test_python__next_fit_works(place: Path, after: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        PlackettLuceMixture(3, random_state=0, progress=_Interrupted(after), tol=1e-12).fit(place / "store")
    again = PlackettLuceMixture(2, random_state=0).fit(place / "store")
    assert again.converged_


def test_python__next_fit_on_the_cluster_works(place: Path, client: Client) -> None:
    with pytest.raises(KeyboardInterrupt):
        PlackettLuceMixture(2, random_state=0, progress=_Interrupted(2), tol=1e-12).fit(place / "store", client=client)
    again = PlackettLuceMixture(2, random_state=0).fit(place / "store", client=client)
    here = PlackettLuceMixture(2, random_state=0).fit(place / "store", client=False)
    assert np.array_equal(again.log_worths_, here.log_worths_)


def test_cluster__workers_are_free_soon(client: Client) -> None:
    # A pass that would take a quarter of an hour: without an end of its tasks, no worker would be free for others.
    passes = DistributedPasses(_local_source(), client, residency="store")  # type: ignore[arg-type]
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while not any(client.processing().values()):
            time.sleep(0.1)
        time.sleep(0.5)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        passes.run([Request(Aggregation("rows", leaf=lambda number, block, params: block.n_rankings))])
    workers = list(client.scheduler_info()["workers"])
    free = [client.submit(abs, -1, workers=[worker], pure=False) for worker in workers]
    assert client.gather(free) == [1] * len(workers)
    deadline = time.monotonic() + HANGS
    while any(client.run(_n_executing).values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _n_executing(dask_worker: Any) -> int:
    return int(dask_worker.state.executing_count)


def _local_source() -> Any:
    """Many slow leaves, of a class that travels to workers as it is."""
    from plmix_dist.rankings import RankingBlock

    class Slow:
        n_leaves = 10_000
        n_entries = 10_000_000
        n_rankings = 20_000
        decoded_bytes = 0.0
        leaf_bounds = np.arange(0, 20_002, 2)

        def only(self, start: int, stop: int) -> Slow:
            return self

        def lazy_rows(self, start: int, stop: int) -> None:
            return None

        def iter_leaves(self, start: int, stop: int, *, labels: bool = True) -> Iterator[Any]:
            block = RankingBlock.from_array([[0, 1], [1, 0]])
            for _ in range(start, stop):
                time.sleep(0.1)
                yield block

    return Slow()


def test_threads__the_main_thread_waits_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "_SLICE_SECONDS", 0.01)
    pool = StoppableThreads(1, "waits")
    future = pool.submit(time.sleep, 0.1)
    waited: list[float | None] = []
    wait = future._condition.wait  # type: ignore[attr-defined]

    def noted(timeout: float | None = None) -> bool:
        waited.append(timeout)
        return bool(wait(timeout))

    monkeypatch.setattr(future._condition, "wait", noted)  # type: ignore[attr-defined]
    assert future.result() is None
    assert set(waited) == {0.01}
    with pytest.raises(TimeoutError, match="of the work"):
        pool.submit(_times_out).result()
    pool.stop()


def _times_out() -> None:
    raise TimeoutError("of the work")


class _ManyLeaves:
    """A source of leaves that never come to an end in time: each of them takes a tenth of a second."""

    n_leaves = 10_000
    n_entries = 10_000_000
    decoded_bytes = 0.0

    def __init__(self, begun: threading.Event) -> None:
        from plmix_dist.rankings import RankingBlock

        self.block = RankingBlock.from_array([[0, 1], [1, 0]])
        self.begun = begun
        self.n_read = 0

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[Any]:
        for _ in range(start, stop or self.n_leaves):
            self.n_read += 1
            self.begun.set()
            time.sleep(0.1)
            yield self.block


def test_passes__threads_stop_between_leaves() -> None:
    begun = threading.Event()
    source = _ManyLeaves(begun)
    passes = ThreadedPasses(source, residency="store", n_threads=2)  # type: ignore[arg-type]
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        begun.wait(HANGS)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    rows = Request(Aggregation("rows", leaf=lambda number, block, params: block.n_rankings))
    with pytest.raises(KeyboardInterrupt):
        passes.run([rows])
    assert not threads_left_alone()
    n_read = source.n_read
    assert n_read < 1_000
    # The same passes go on with new threads.
    (answer,) = passes.run([Request(rows.aggregation, leaves=(0, 1))])
    assert answer.results == (4,)
    passes.release()


# --- threads ---------------------------------------------------------------------------------------------


def test_threads__stop_ends_what_looks_for_it() -> None:
    threads = StoppableThreads(2, "work")
    running = threading.Event()

    def work() -> None:
        running.set()
        while True:
            check_stopped()
            time.sleep(0.01)

    future = threads.submit(work)
    beside = threads.submit(work)
    waiting = [threads.submit(work) for _ in range(5)]
    assert running.wait(HANGS)
    threads.stop(HANGS)
    assert isinstance(beside.exception(HANGS), Stopped)
    assert isinstance(future.exception(HANGS), Stopped)
    assert all(one.cancelled() for one in waiting)
    with pytest.raises(RuntimeError, match="were dismissed"):
        threads.submit(abs, 1)


def test_threads__one_that_does_not_look_is_left_alone() -> None:
    threads = StoppableThreads(1, "deaf")
    end, running = threading.Event(), threading.Event()

    def deaf() -> None:
        running.set()
        end.wait(HANGS)

    future = threads.submit(deaf)
    assert running.wait(HANGS)
    threads.stop(0.01)
    assert threads_left_alone()
    end.set()
    future.result(HANGS)
    for thread in threads._threads:
        thread.join(HANGS)
    assert not threads_left_alone()


def test_threads__end_when_the_pool_is_forgotten() -> None:
    threads = StoppableThreads(2, "forgotten")
    assert list(threads.map(abs, [-1, -2, -3])) == [1, 2, 3]
    own = threads._threads
    del threads
    for thread in own:
        thread.join(HANGS)
        assert not thread.is_alive()


def test_executor__an_error_waits_for_what_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever clears away after an error must not meet a task that still writes.
    monkeypatch.setattr(interruption, "STOP_SECONDS", 0.0)
    ended = []
    both = threading.Barrier(2)

    def task(number: int) -> None:
        both.wait(HANGS)
        if number == 0:
            raise ValueError("wrong")
        time.sleep(0.3)
        ended.append(number)

    with pytest.raises(ValueError, match="wrong"):
        list(executor.ThreadedExecutor(2).map(task, [0, 1], "work"))
    assert ended == [1]


def test_module__is_run_by_python(tmp_path: Path) -> None:
    # `python -m plmix_dist` and the script end in the same way.
    done = subprocess.run([sys.executable, "-m", "plmix_dist", "--version"], capture_output=True, check=True)
    assert done.stdout.startswith(b"plmix, version")
