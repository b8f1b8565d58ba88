"""An experiment as a value: cells that are measured one by one, kept as they come, then summed up and drawn."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import TimeoutError as TooLong
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks import common
from plmix_dist.errors import FitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SETTINGS = ("tiny", "quick", "released", "paper")
FIGURES = Path(__file__).parents[2] / "docs" / "figures" / "paper"

Row = dict[str, Any]


class Experiment(NamedTuple):
    """One experiment of the paper.

    Parameters
    ----------
    name
        What to type.
    claim
        What the paper says.
    cells
        From a setting ("quick", "released", "paper", "tiny") to what is to be measured: one plain dict per cell.
    measure
        What one cell gives. It runs in a process of its own.
    summary
        The table, from the rows of all cells: each is a cell with what was measured.
    budget
        Seconds that a cell may take; one that takes longer is NA, and the table says so.
    panels
        Curves to draw from the summary, one tuple per panel; see `Curves`.
    warm_up
        Called in a new process before cells are measured there, so that no cell pays for imports and compiling.
    """

    name: str
    claim: str
    cells: Callable[[str], list[Row]]
    measure: Callable[[Row], Row]
    summary: Callable[[list[Row]], list[Row]]
    budget: float = 600.0
    panels: Callable[[list[Row]], list[Curves]] | None = None
    warm_up: Callable[[], None] | None = None


class Curves(NamedTuple):
    """A panel of a figure: rows of the summary, what is on its axes, and which curve a row belongs to."""

    title: str
    rows: list[Row]
    x: str
    y: str
    curve: str
    log: bool = True


def run(experiment: Experiment, setting: str, *, budgeted: bool = True) -> list[Row]:
    """Measure what is not measured yet; then the table and, if matplotlib is there, the figure.

    Cells are measured in another process, which is ended when one takes too long; in this one if not `budgeted`.
    """
    folder = common.RESULTS / "paper"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{experiment.name}-{setting}.jsonl"
    done = {_key(row["cell"]): row["found"] for row in _read(kept)}
    cells = experiment.cells(setting)
    print(f"{experiment.name} ({setting}): {len(cells)} cells. The paper: {experiment.claim}")
    with Worker(experiment.warm_up) if budgeted else contextlib.nullcontext() as worker:
        for number, cell in enumerate(cells):
            if _key(cell) in done:
                continue
            begun = time.perf_counter()
            found = _estimate(experiment, cell, worker)
            done[_key(cell)] = found
            with kept.open("a") as file:
                file.write(json.dumps({"cell": cell, "found": found}) + "\n")
            seconds = time.perf_counter() - begun
            print(f"{number + 1}/{len(cells)} {cell} {_short(found)} ({seconds:.1f} s)", flush=True)
    rows = [cell | done[_key(cell)] for cell in cells if done[_key(cell)] is not None]
    measured = experiment.summary(rows) if rows else []
    table = with_missing(measured, [cell for cell in cells if done[_key(cell)] is None])
    common.save(f"paper-{experiment.name}-{setting}", table)
    if experiment.panels is not None and rows and setting != "tiny":
        _draw(experiment, setting, experiment.panels(measured))
    return table


class Worker:
    """A process that measures cells one after the other. One that takes too long is ended, and a new one begun."""

    def __init__(self, warm_up: Callable[[], None] | None = None) -> None:
        self._warm_up = warm_up or int

    def __enter__(self) -> Worker:
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        # Budgets count from when the process is there, and so do the seconds that cells measure.
        self._pool.submit(self._warm_up).result()
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def measure(self, experiment: Experiment, cell: Row) -> Row | None:
        """What a cell gives; None if that takes longer than the budget, or ends the process: it had no memory left."""
        future = self._pool.submit(experiment.measure, cell)
        try:
            return future.result(experiment.budget)
        except (TooLong, BrokenProcessPool) as error:
            if isinstance(error, BrokenProcessPool):
                print("the process that measured was ended")
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            with contextlib.suppress(Exception):
                self._pool.shutdown(cancel_futures=True)
            self.__enter__()
            return None


def _estimate(experiment: Experiment, cell: Row, worker: Worker | None) -> Row | None:
    """What a cell gives; None (NA) where there is no estimate, or none in time."""
    try:
        return experiment.measure(cell) if worker is None else worker.measure(experiment, cell)
    except FitError as error:
        print(f"no estimate: {error}")
        return None


def with_missing(table: list[Row], missing: list[Row]) -> list[Row]:
    """The table with a last column, how many cells of a row are not available; rows that have no others come last.

    >>> with_missing([{"m": 1, "x": 2.0}], [{"m": 1, "trial": 1}, {"m": 5, "trial": 0}])
    [{'m': 1, 'x': 2.0, 'NA': 1}, {'m': 5, 'x': 'NA', 'NA': 1}]
    """
    if not missing:
        return table
    rows = [row | {"NA": 0} for row in table]
    columns = tuple(table[0]) if table else tuple(missing[0])
    for cell in missing:
        known = {name: cell[name] for name in columns if name in cell}
        own = [row for row in rows if known.items() <= {name: row[name] for name in known}.items()]
        if not own:
            own = [dict.fromkeys(columns, "NA") | known | {"NA": 0}]
            rows += own
        for row in own:
            row["NA"] += 1
    return rows


def averaged(rows: Iterable[Row], by: tuple[str, ...], values: tuple[str, ...]) -> list[Row]:
    """Means over all rows that agree in `by`, in the order in which these first come; and how many there are.

    >>> averaged([{"m": 1, "x": 1.0}, {"m": 1, "x": 3.0}], ("m",), ("x",))
    [{'m': 1, 'trials': 2, 'x': 2.0}]
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    return [
        dict(zip(by, key, strict=True))
        | {"trials": len(own)}
        | {value: float(np.mean([row[value] for row in own if value in row])) for value in values}
        for key, own in groups.items()
    ]


def _draw(experiment: Experiment, setting: str, panels: list[Curves]) -> None:
    def fill(axes: list[Any]) -> None:
        for axis, panel in zip(axes, panels, strict=True):
            for curve in dict.fromkeys(row[panel.curve] for row in panel.rows):
                own = [row for row in panel.rows if row[panel.curve] == curve]
                axis.plot([row[panel.x] for row in own], [row[panel.y] for row in own], marker="o", label=str(curve))
            scale = "log" if panel.log else "linear"
            axis.set(xscale=scale, yscale=scale, xlabel=panel.x, ylabel=panel.y, title=panel.title)
            axis.legend(fontsize="small")

    common.draw(FIGURES / f"{experiment.name}-{setting}.svg", len(panels), fill)


def _read(path: Path) -> list[Row]:
    """The cells that are done. A last line that was cut off is not; it is taken away, or the next would follow it."""
    if not path.exists():
        return []
    text = path.read_text()
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        path.write_text(text)
    return [json.loads(line) for line in text.splitlines()]


def _key(cell: Row) -> str:
    return json.dumps(cell, sort_keys=True)


def _short(found: Row | None) -> str:
    if found is None:
        return "NA"
    return " ".join(f"{name}={value:.4g}" for name, value in found.items() if isinstance(value, float))
