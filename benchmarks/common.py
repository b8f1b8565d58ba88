"""What benchmarks share: best-of timing, a temporary folder, tables, and results kept as JSON."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESULTS = Path(__file__).parent / "results"


def best_of(repeats: int, function: Callable[[], Any]) -> tuple[float, float]:
    """Shortest and longest wall time of several runs: the machine is noisy, the shortest is the program's."""
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begun)
    return min(seconds), max(seconds)


def interleaved(rounds: int, functions: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Wall times of several functions, run in turn: what slows the machine down for a while slows all of them down."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            begun = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - begun)
    return seconds


def save(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep rows as JSON, with the machine they were measured on, and print them as a table."""
    RESULTS.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))
    print(f"\n{name}")
    columns = list(rows[0])
    cells = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    for line in cells:
        print("  ".join(value.rjust(width) for value, width in zip(line, widths, strict=True)))
    return rows


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What a function of a module gives in a process of its own, and the highest resident memory, in bytes, there."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        result: tuple[Any, int] = pool.submit(_with_peak, function, arguments).result()
        return result


def _with_peak(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, int]:
    result = function(*arguments)
    status = Path("/proc/self/status")
    if status.exists():
        # What getrusage gives on Linux may be the parent's: it outlives the change of program.
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return result, int(line.split()[1]) * 1024
    import resource

    return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class PeakMemory:
    """The highest resident memory, in bytes, that any of some processes reached while this was open."""

    def __init__(self, pids: Iterator[int]) -> None:
        self.pids = list(pids)
        self.peak = 0
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._watcher.join()

    def _watch(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._stop.wait(0.02):
            for pid in self.pids:
                try:
                    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
                except (OSError, IndexError):
                    continue
                self.peak = max(self.peak, resident)


def _cell(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def draw(path: Path, n_panels: int, fill: Callable[[list[Any]], None]) -> None:
    """A picture of panels side by side; nothing is drawn where matplotlib is not there."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        print(f"matplotlib is not there: {path} was not drawn")
        return
    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "plmix", "svg.fonttype": "none", "axes.grid": True, "grid.alpha": 0.3}
    from matplotlib import pyplot

    drawing, panels = pyplot.subplots(1, n_panels, figsize=(4.5 * n_panels, 3.4), squeeze=False)
    fill(list(panels[0]))
    drawing.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, metadata={"Date": None})
    pyplot.close(drawing)
