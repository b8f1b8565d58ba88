"""Progress of a fit: records of its stages, lines for logs, views drawn by rich, and how long it may still take."""

from __future__ import annotations

import contextlib
import io
import math
import resource
import sys
import time
from collections import deque
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

from plmix_dist.display.marks import count, plain_label, seconds_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console, RenderableType
    from rich.table import Table

    Record = dict[str, Any]
    Progress = Callable[[Record], None]


class Stages:
    """Records of the stages that have run, in order."""

    def __init__(self, listener: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self._listener = listener
        self._current = ""

    @contextmanager
    def stage(self, name: str, passes: float = 0, **details: Any) -> Iterator[dict[str, Any]]:
        """Record a stage. The record may be changed until the stage ends."""
        record: dict[str, Any] = {"stage": name, "passes": passes, **details}
        self._current = name
        begun = time.perf_counter()
        self.report("begun", stage=name, **details)
        yield record
        record["seconds"] = time.perf_counter() - begun
        record["peak_memory"] = _peak_memory()
        self.records.append(record)
        self.report("ended", **record)

    def iteration(self, record: dict[str, Any]) -> None:
        """Report an iteration of the stage that runs, such as a search; `record` is as in `history_`."""
        self.report("iteration", **({"stage": self._current} | record))

    def report(self, state: str, **event: Any) -> None:
        """Call the listener, if there is one."""
        if self._listener is not None:
            self._listener({"state": state, **event})


def _peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# The rate at which a gradient falls is that of the last 8 iterations.
_ITERATIONS_LOOKED_AT = 8
_FEWEST_ITERATIONS = 3
# Below this many digits per iteration the end cannot be estimated.
_SLOWEST_FALL = 1e-3

# A notebook's view is renewed at most this often: a browser has other things to do.
_SECONDS_BETWEEN = 0.2
_MOST_STAGES = 12
_BARS = "▁▂▃▄▅▆▇█"

_WORDS = {
    "open": "opening the store",
    "resume": "resuming from a checkpoint",
    "compile": "compiling kernels, once per machine and version",
    "look": "look: one pass over all rankings",
    "embedding": "start: embedding",
    "svd": "start: singular vectors",
    "k-means": "start: k-means",
    "worths": "start: worths of clusters",
    "moments": "start: moments",
    "search": "start: search for the best optimum",
    "survey": "survey: weights of all rankings",
    "start": "start of the chains",
    "sweeps": "sweeps of all chains",
    "map": "mode of the posterior",
}


def stage_in_words(stage: str) -> str:
    """What people read for the name of a stage."""
    return _WORDS.get(stage, stage.replace("-", " "))


class TimeLeft:
    """Estimates how long a fit still takes, from the rate at which its gradient falls."""

    def __init__(self, tol: float, max_iter: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self._clock = clock
        self._times: deque[float] = deque(maxlen=_ITERATIONS_LOOKED_AT)
        self._digits: deque[tuple[int, float]] = deque(maxlen=_ITERATIONS_LOOKED_AT)
        self._iteration = 0

    def after(self, record: Record) -> float | None:
        """Seconds left after an iteration, an estimate; None where there is none.

        Starts that run side by side have records of the same iteration; the one that is farthest from its end counts.
        """
        iteration = int(record["iteration"])
        if iteration != self._iteration:
            self._times.append(self._clock())
            self._iteration = iteration
        gradient = record.get("gradient", record.get("largest_change"))
        if record["taken"] and gradient is not None and 0 < gradient < math.inf:
            digits = math.log10(gradient)
            if self._digits and self._digits[-1][0] == iteration:
                digits = max(digits, self._digits.pop()[1])
            self._digits.append((iteration, digits))
        return self._estimate()

    def _estimate(self) -> float | None:
        if len(self._digits) < _FEWEST_ITERATIONS or len(self._times) < _FEWEST_ITERATIONS:
            return None
        from statistics import linear_regression  # imported here: it is not needed for --help

        fall = -linear_regression(*zip(*self._digits, strict=True)).slope
        if not fall > _SLOWEST_FALL:
            return None
        wanted = math.log10(self.tol) if self.tol > 0 else -math.inf
        n_left = (self._digits[-1][1] - wanted) / fall
        n_left = min(max(1.0, n_left), float(max(0, self.max_iter - self._iteration)))
        return n_left * (self._times[-1] - self._times[0]) / (len(self._times) - 1)


def _columns(record: Record) -> str:
    """The headings of the lines about iterations, the first of which has this record."""
    named = "gradient" if "gradient" in record else "largest change"
    return f"iteration  log-likelihood    change  {named:>14}    rankings/s  step"


def _iteration_line(record: Record, seconds_left: float | None, weight: float) -> str:
    """One line about an iteration, below the headings of `_columns`."""
    change = "" if record["change"] is None else f"{record['change'] / weight:+.1e}"
    size = record["gradient" if "gradient" in record else "largest_change"]
    step = record["step"] if record["taken"] else f"{record['step']}, not taken"
    left = "" if seconds_left is None else f", about {duration(seconds_left)} left"
    return (
        f"{record['iteration']:>9}  {record['log_likelihood'] / weight:>14.8f}  {change:>8}  {size:>14.1e}  "
        f"{record['rankings_per_second']:>12,.0f}  {step}{left}"
    )


def duration(seconds: float) -> str:
    """A number of seconds as text."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class _ProgressText:
    """Writes the name of each stage as it begins, and one line per iteration: for logs and pipes."""

    def __init__(self, left: TimeLeft, write: Callable[[str], object]) -> None:
        self._left = left
        self._write = write
        self._weight = 1.0
        self._headed = False

    def stage(self, event: Record) -> None:
        """Note what happens to a stage.

        "stage" is its name, "state" is "begun", "iteration" or "ended". "weight" is the total weight, by which
        log-likelihoods are divided from then on. The state "joined" means that a cluster computes; "dashboard" is the
        link to its dashboard.
        """
        self._weight = event.get("weight", self._weight)
        if event["state"] == "joined" and event.get("dashboard"):
            self._line(f"dashboard: {event['dashboard']}")
        elif event["state"] == "begun":
            self._line(stage_in_words(str(event["stage"])))

    def __call__(self, record: Record) -> None:
        """Write an iteration of the fit to all rows."""
        if not self._headed:
            self._headed = True
            self._line(_columns(record))
        self._line(_iteration_line(record, self._left.after(record), self._weight))

    def close(self) -> None:
        """Nothing is left to write."""

    def _line(self, line: str) -> None:
        self._write(f"{line}\n")


class TerminalProgress(_ProgressText):
    """Prints a line for each stage and iteration that is over; below them, one line shows what runs and for how long.

    A `console` writes to stderr of a terminal; see `terminal_console`.
    """

    def __init__(self, left: TimeLeft, console: Console) -> None:
        from rich.live import Live

        super().__init__(left, console.print)
        self._label = ""
        self._begun = time.perf_counter()
        self._console = console
        self._live = Live(
            console=console, get_renderable=self._running, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def stage(self, event: Record) -> None:
        """Show what happens to a stage; `event` is as for `_ProgressText`."""
        self._weight = event.get("weight", self._weight)
        words, state = stage_in_words(str(event["stage"])), event["state"]
        if state == "joined":
            if event.get("dashboard"):
                self._line(f"dashboard: {event['dashboard']}")
            return
        if state == "begun":
            self._label, self._begun = words, time.perf_counter()
        elif state == "iteration":
            self._label = f"{words}: iteration {event['iteration']}"
        else:
            self._line(f"{words}, {event.get('seconds', time.perf_counter() - self._begun):.1f} s")
            self._label = ""
        self._live.refresh()

    def __call__(self, record: Record) -> None:
        """Show an iteration of the fit to all rows."""
        self._label = f"fit: iteration {record['iteration'] + 1}"
        super().__call__(record)

    def close(self) -> None:
        """Remove the line of what runs."""
        self._label = ""
        self._live.stop()

    def _line(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)

    def _running(self) -> RenderableType:
        from rich.text import Text

        line = f"{self._label}, {time.perf_counter() - self._begun:.0f} s" if self._label else ""
        return Text(line, no_wrap=True, overflow="ellipsis")


def terminal_console(file: io.TextIOBase) -> Console:
    """A console of rich that writes to a terminal and leaves the cursor visible, because a fit may be killed."""
    from rich.console import Console

    class VisibleCursor(Console):
        def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002 - of the base class
            return False

    return VisibleCursor(file=cast("IO[str]", file), force_terminal=True, force_jupyter=False)


class _NotebookProgress:
    """Shows a fit in one place: stage, rate, time left, a curve of the objective, and the seconds of each stage.

    The objective is log-likelihood plus log-prior, which a fit never lowers. `show` replaces what was shown before.
    """

    def __init__(
        self,
        left: Callable[[Record], float | None],
        show: Callable[[Table], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._left = left
        self._show = show
        self._clock = clock
        self._begun = self._stage_begun = clock()
        self._latest = -math.inf
        self._weight = 1.0
        self._current = ""
        self._ended: dict[str, float] = {}
        self._values: list[float] = []
        self._log_likelihood = 0.0
        self._rate = 0.0
        self._seconds_left: float | None = None
        self._dashboard = ""

    def stage(self, event: Record) -> None:
        """Show what happens to a stage; `event` is as for `_ProgressText`."""
        words, state = stage_in_words(str(event["stage"])), event["state"]
        self._weight = event.get("weight", self._weight)
        if state == "joined":
            self._dashboard = str(event.get("dashboard") or "")
        elif state == "begun":
            self._current, self._stage_begun = words, self._clock()
        elif state == "iteration":
            self._current = f"{words}: iteration {event['iteration']}"
        else:
            seconds = event.get("seconds", self._clock() - self._stage_begun)
            self._ended[words] = self._ended.get(words, 0.0) + float(seconds)
            self._current = ""
        self._renew(now=state in ("begun", "joined"))

    def __call__(self, record: Record) -> None:
        """Show an iteration of the fit to all rows."""
        self._seconds_left = self._left(record)
        self._rate = record.get("rankings_per_second") or 0.0
        value = record.get("log_likelihood") if record.get("objective") is None else record["objective"]
        if record.get("taken", True) and value is not None:
            self._values.append(float(value) / self._weight)
            self._log_likelihood = float(record["log_likelihood"]) / self._weight
        self._current = f"fit: iteration {record['iteration']}"
        self._renew()

    def close(self) -> None:
        """Show how it ended."""
        self._current, self._seconds_left = "", None
        self._renew(now=True)

    def view(self) -> Table:
        """What is shown now."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        passed = seconds_in_words(self._clock() - self._begun)
        facts = [self._current, f"{passed} so far"] if self._current else ["done", f"{passed} in all"]
        if self._rate:
            facts.append(f"{count(round(self._rate))} rankings/s")
        if self._seconds_left is not None:
            facts.append(f"about {duration(self._seconds_left)} left")
        if self._dashboard:
            facts.append(f"dashboard: {plain_label(self._dashboard)}")
        view = Table.grid()
        view.add_row(Text("   ".join(facts), style="bold"))
        if self._values:
            words = f"log-likelihood {self._log_likelihood:.6f} after {len(self._values)} iterations  "
            view.add_row(Text(words + _sparkline(self._values)))
        stages = Table.grid(padding=(0, 2))
        longest = max(self._ended.values(), default=0.0) or 1.0
        for words, seconds in list(self._ended.items())[-_MOST_STAGES:]:
            bar = ProgressBar(total=longest, completed=seconds, width=30)
            stages.add_row(Text(words), bar, Text(seconds_in_words(seconds), justify="right"))
        view.add_row(stages)
        return view

    def _renew(self, *, now: bool = False) -> None:
        if now or self._clock() - self._latest >= _SECONDS_BETWEEN:
            self._latest = self._clock()
            self._show(self.view())


def _sparkline(values: Sequence[float], width: int = 40) -> str:
    """Values as a row of bars, the least the lowest; at most `width` of them, in equal steps from first to last."""
    last = len(values) - 1
    n_shown = min(width, len(values))
    shown = [values[round(place * last / max(1, n_shown - 1))] for place in range(n_shown)]
    low, span = min(shown), (max(shown) - min(shown)) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in shown)


def _notebook_show() -> Callable[[Table], None] | None:
    """A function that shows what rich draws in one place of the notebook that runs this; None outside of notebooks.

    IPython is looked for, never imported: code that runs in a notebook has it already. rich's own live view would need
    ipywidgets there; a display handle does not.
    """
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or "ipykernel" not in sys.modules:
        return None
    shell = getattr(ipython, "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:  # a terminal
        return None
    display: Any = sys.modules.get("IPython.display")
    if display is None:
        return None
    from rich.text import Text

    handle = display.display(Text("fit begins"), display_id=True)
    return lambda view: handle.update(view)


@contextlib.contextmanager
def shown_progress(progress: Progress | bool | None, tol: float, max_iter: int) -> Iterator[Progress | None]:
    """What a fit reports to: for True a view in a notebook, or text on stderr; nothing for None or False.

    Anything else is a function or an object of the user, which is called itself.
    """
    if progress is not True:
        yield None if progress is False else progress
        return
    shown = _for_this_place(TimeLeft(tol, max_iter))
    try:
        yield shown
    finally:
        shown.close()


def _for_this_place(left: TimeLeft) -> _ProgressText | _NotebookProgress:
    """A view in a notebook, a line that is renewed in a terminal, and lines of text elsewhere."""
    with contextlib.suppress(Exception):  # a fit goes on without its progress
        show = _notebook_show()
        if show is not None:
            return _NotebookProgress(left.after, show)
        if sys.stderr.isatty():
            return TerminalProgress(left, terminal_console(_Stderr()))
    return _ProgressText(left, _Stderr().write)


def stage_listener(progress: Progress | None) -> Callable[[Record], None] | None:
    """The method `stage` of a progress object; None for a plain function, which is called for iterations alone."""
    return getattr(progress, "stage", None)


class _Stderr(io.TextIOBase):
    """Stderr that drops what cannot be written: a fit goes on without its progress."""

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError, ValueError):  # closed or full
            sys.stderr.write(text)
            sys.stderr.flush()
        return len(text)
