"""Progress of a fit, as text on stderr or a view in a notebook: stages, iterations, how long it may still take."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from plmix_dist.display.live import LiveProgress, notebook_show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Record = dict[str, Any]
    Progress = Callable[[Record], None]

# The rate at which a gradient falls is that of the last so many iterations.
_ITERATIONS_LOOKED_AT = 8
_FEWEST_ITERATIONS = 3
# Below this many digits per iteration nothing can be said about the end.
_SLOWEST_FALL = 1e-3
_RENEW_SECONDS = 0.25
_LINE_WIDTH = 79

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
    """What people read for the name of a stage.

    Examples
    --------
    >>> stage_in_words("svd"), stage_in_words("sample-fit")
    ('start: singular vectors', 'sample fit')
    """
    return _WORDS.get(stage, stage.replace("-", " "))


class TimeLeft:
    """Estimates how long a fit still takes, from the rate at which its gradient falls.

    Parameters
    ----------
    tol
        The gradient at which the fit ends.
    max_iter
        The most iterations.
    clock
        Gives the time in seconds.

    Examples
    --------
    >>> seconds = iter(range(100))
    >>> left = TimeLeft(tol=1e-8, max_iter=500, clock=lambda: next(seconds))
    >>> [left.after({"iteration": i, "taken": True, "gradient": 10.0**-i}) for i in (1, 2, 3, 4)]
    [None, None, 5.0, 4.0]
    """

    def __init__(self, tol: float, max_iter: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self._clock = clock
        self._times: deque[float] = deque(maxlen=_ITERATIONS_LOOKED_AT)
        self._digits: deque[tuple[int, float]] = deque(maxlen=_ITERATIONS_LOOKED_AT)
        self._iteration = 0

    def after(self, record: Record) -> float | None:
        """Seconds left after an iteration, an estimate; None where nothing can be said.

        Starts that run side by side have records of the same iteration; the one that is farthest from its end counts.

        Parameters
        ----------
        record
            The record of the iteration, as in `history_`.

        Examples
        --------
        >>> TimeLeft(tol=1e-8, max_iter=500).after({"iteration": 1, "taken": True, "gradient": 0.1}) is None
        True
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
        fall = -_slope(list(self._digits))
        if not fall > _SLOWEST_FALL:
            return None
        wanted = math.log10(self.tol) if self.tol > 0 else -math.inf
        n_left = (self._digits[-1][1] - wanted) / fall
        n_left = min(max(1.0, n_left), float(max(0, self.max_iter - self._iteration)))
        return n_left * (self._times[-1] - self._times[0]) / (len(self._times) - 1)


def _slope(points: list[tuple[int, float]]) -> float:
    """The slope of the line through points by least squares."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


class ProgressText:
    """Prints the stages of a fit and one line per iteration.

    Parameters
    ----------
    left
        Estimates the time left.
    write
        Writes text, without a line break of its own.
    renewed
        Whether the last line is written again and again, with the seconds that have passed: on a terminal, and in a
        notebook. Otherwise every line is written once.

    Examples
    --------
    >>> text = ProgressText(TimeLeft(1e-8, 500), lambda line: print(line, end=""))
    >>> text.stage({"stage": "look", "state": "begun"})
    look: one pass over all rankings
    >>> record = {"iteration": 1, "log_likelihood": -12.5, "change": None, "gradient": 0.25, "step": "em"}
    >>> text(record | {"taken": True, "rankings_per_second": 1e6})
       1  -12.50000000            gradient 2.5e-01     1,000,000 rankings/s  em
    >>> text.close()
    """

    def __init__(
        self,
        left: TimeLeft,
        write: Callable[[str], None],
        *,
        renewed: bool = False,
    ) -> None:
        self._left = left
        self._write = write
        self._renewed = renewed
        self._weight = 1.0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._renewer: threading.Thread | None = None
        self._label = ""
        self._begun = time.perf_counter()

    def stage(self, event: Record) -> None:
        """Show that a stage has begun, goes on, or has ended.

        Parameters
        ----------
        event
            "stage" is its name, "state" is "begun", "iteration" or "ended". "weight" is the total weight, by which
            log-likelihoods are divided from then on. "joined" says that a cluster computes: "dashboard" is the link to
            its dashboard.
        """
        if event["state"] == "joined":
            if event.get("dashboard"):
                with self._lock:
                    self._print(f"dashboard: {event['dashboard']}")
            return
        label = stage_in_words(str(event["stage"]))
        self._weight = event.get("weight", self._weight)
        with self._lock:
            if event["state"] == "begun":
                self._label, self._begun = label, time.perf_counter()
                if not self._renewed:
                    self._write(f"{label}\n")
            elif event["state"] == "iteration":
                self._label = f"{label}: iteration {event['iteration']}"
            elif self._renewed:
                seconds = event.get("seconds", time.perf_counter() - self._begun)
                self._print(f"{label}, {seconds:.1f} s")
                self._label = ""
            self._renew()
        if self._renewed and self._renewer is None:
            self._renewer = threading.Thread(target=self._keep_renewing, name="progress", daemon=True)
            self._renewer.start()

    def __call__(self, record: Record) -> None:
        """Show an iteration of the fit to all rows."""
        line = iteration_line(record, self._left.after(record), self._weight)
        with self._lock:
            self._print(line)
            self._label = f"fit: iteration {record['iteration'] + 1}"
            self._renew()

    def close(self) -> None:
        """Remove the line that is renewed.

        Examples
        --------
        >>> ProgressText(TimeLeft(1e-8, 500), print).close()
        """
        self._end.set()
        if self._renewer is not None:
            self._renewer.join()
        with self._lock:
            if self._renewed:
                self._write("\r" + " " * _LINE_WIDTH + "\r")

    def _print(self, line: str) -> None:
        self._write(f"\r{line:<{_LINE_WIDTH}}\n" if self._renewed else f"{line}\n")

    def _renew(self) -> None:
        if self._renewed and self._label and not self._end.is_set():
            line = f"{self._label}, {time.perf_counter() - self._begun:.0f} s"
            self._write(f"\r{line[:_LINE_WIDTH]:<{_LINE_WIDTH}}")

    def _keep_renewing(self) -> None:
        while not self._end.wait(_RENEW_SECONDS):
            with self._lock:
                self._renew()


def iteration_line(record: Record, seconds_left: float | None, weight: float) -> str:
    """One line about an iteration.

    Parameters
    ----------
    record
        The record of the iteration, as in `history_`.
    seconds_left
        How long the fit may still take.
    weight
        The log-likelihood and its change are divided by this.

    Examples
    --------
    >>> record = {"iteration": 7, "log_likelihood": -25.0, "change": 0.5, "gradient": 0.01, "step": "newton"}
    >>> iteration_line(record | {"taken": True, "rankings_per_second": 5e5}, seconds_left=90.0, weight=10.0)
    '   7  -2.50000000  +5.0e-02  gradient 1.0e-02       500,000 rankings/s  newton, about 90 s left'
    """
    change = "" if record["change"] is None else f"{record['change'] / weight:+.1e}"
    named = "gradient" if "gradient" in record else "largest_change"
    step = record["step"] if record["taken"] else f"{record['step']}, not taken"
    left = "" if seconds_left is None else f", about {duration(seconds_left)} left"
    rate = f"{record['rankings_per_second']:>12,.0f} rankings/s"
    return (
        f"{record['iteration']:>4}  {record['log_likelihood'] / weight:.8f}  {change:>8}  "
        f"{named.replace('_', ' ')} {record[named]:.1e}  {rate}  {step}{left}"
    )


def duration(seconds: float) -> str:
    """A number of seconds in words.

    Examples
    --------
    >>> duration(0.2), duration(90), duration(600), duration(10_000)
    ('1 s', '90 s', '10 min', '2.8 h')
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextlib.contextmanager
def shown_progress(progress: Progress | bool | None, tol: float, max_iter: int) -> Iterator[Progress | None]:
    """What is told of a fit: for True a view in a notebook, or text on stderr; nothing for None or False.

    Anything else is a function or an object of the user, which is told itself.

    Examples
    --------
    >>> with shown_progress(None, tol=1e-8, max_iter=500) as progress:
    ...     print(progress)
    None
    """
    if progress is None or progress is False:
        yield None
        return
    if progress is not True:
        yield progress
        return
    shown = _notebook_or_text(TimeLeft(tol, max_iter))
    try:
        yield shown
    finally:
        shown.close()


def _notebook_or_text(left: TimeLeft) -> LiveProgress | ProgressText:
    """A view that is renewed in place in a notebook; text elsewhere, and where a notebook cannot show the view."""
    show = None
    with contextlib.suppress(Exception):  # a fit goes on without its progress
        show = notebook_show()
    if show is None:
        return ProgressText(left, _to_stderr, renewed=_can_renew())
    return LiveProgress(left.after, show, stage_in_words)


def stage_listener(progress: Progress | None) -> Callable[[Record], None] | None:
    """The method `stage` of a progress object; None for a plain function, which hears of iterations alone.

    Examples
    --------
    >>> stage_listener(print) is None
    True
    """
    return getattr(progress, "stage", None)


def _to_stderr(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # closed or full: a fit goes on without its progress
        sys.stderr.write(text)
        sys.stderr.flush()


def _can_renew() -> bool:
    """Whether stderr is a terminal, or a notebook shows it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return sys.stderr.isatty() or "ipykernel" in sys.modules
    return False
