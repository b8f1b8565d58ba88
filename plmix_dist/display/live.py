"""LiveProgress: a fit while it runs, as one piece of HTML that is shown again and again in the same place."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from plmix_dist.display.labels import Html, count, label, seconds_in_words
from plmix_dist.display.marks import bar, curve

if TYPE_CHECKING:
    from collections.abc import Callable

    Record = dict[str, Any]

# It is shown again at most so often: a browser has other things to do, and fits of small data end at once.
_SECONDS_BETWEEN = 0.2
_MOST_STAGES = 12
_STYLE = (
    "<style>.plmix-live{font-size:13px;line-height:1.45;max-width:44em}"
    ".plmix-live .row{display:flex;gap:1.6em;flex-wrap:wrap;font-variant-numeric:tabular-nums}"
    ".plmix-live .stage{display:grid;grid-template-columns:18em 1fr 5em;gap:.8em;align-items:center}"
    ".plmix-live .stage span:last-child{text-align:right;font-variant-numeric:tabular-nums}"
    ".plmix-live .track{fill:#8884}.plmix-live b{font-weight:600}"
    ".plmix-live polyline{fill:none;stroke:#3b8fc4;stroke-width:2;vector-effect:non-scaling-stroke}</style>"
)


class LiveProgress:
    """Shows the stage, a curve of the log-likelihood, rankings per second, and about how long the fit still takes.

    With a prior the curve is that of the objective, log-likelihood plus log-prior: it is what a fit never lowers.

    Parameters
    ----------
    left
        Gives the seconds left after an iteration, or None.
    show
        Puts HTML in the place of what was shown before.
    in_words
        From the name of a stage to words.
    clock
        Gives the time in seconds.

    Examples
    --------
    >>> shown = []
    >>> live = LiveProgress(lambda record: 12.0, shown.append)
    >>> live.stage({"stage": "look", "state": "ended", "seconds": 0.5})
    >>> record = {"iteration": 1, "log_likelihood": -12.5, "taken": True, "rankings_per_second": 1e6}
    >>> live(record)
    >>> live.close()
    >>> "1,000,000" in shown[-1], "look" in shown[-1]
    (True, True)
    """

    def __init__(
        self,
        left: Callable[[Record], float | None],
        show: Callable[[str], None],
        in_words: Callable[[str], str] = str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._left = left
        self._show = show
        self._in_words = in_words
        self._clock = clock
        self._begun = self._stage_begun = clock()
        self._latest = -1.0
        self._weight = 1.0
        self._current = ""
        self._ended: dict[str, float] = {}
        self._values: list[float] = []
        self._log_likelihood = 0.0
        self._record: Record = {}
        self._seconds_left: float | None = None
        self._dashboard = ""

    def stage(self, event: Record) -> None:
        """Show that a stage has begun, goes on, or has ended; or where the dashboard of the cluster is.

        Parameters
        ----------
        event
            As for `ProgressText.stage`.
        """
        words = self._in_words(str(event["stage"]))
        self._weight = event.get("weight", self._weight)
        state = event["state"]
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
        self._record = record
        value = record.get("objective")
        if value is None:
            value = record.get("log_likelihood")
        if record.get("taken", True) and value is not None:
            self._values.append(float(value) / self._weight)
            self._log_likelihood = float(record["log_likelihood"]) / self._weight
        self._current = f"fit: iteration {record['iteration']}"
        self._renew()

    def close(self) -> None:
        """Show how it ended."""
        self._current, self._seconds_left = "", None
        self._renew(now=True)

    def html(self) -> Html:
        """What is shown now."""
        passed = seconds_in_words(self._clock() - self._begun)
        facts = [f"<b>{label(self._current) if self._current else 'done'}</b>", f"{passed} so far"]
        if not self._current:
            facts = ["<b>done</b>", f"{passed} in all"]
        if self._record:
            facts.append(f"{count(round(self._record.get('rankings_per_second') or 0))} rankings/s")
        if self._seconds_left is not None:
            facts.append(f"about {seconds_in_words(max(1.0, self._seconds_left))} left")
        if self._dashboard:
            facts.append(f"dashboard: {label(self._dashboard)}")
        spans = "".join(f"<span>{fact}</span>" for fact in facts)
        drawn = ""
        if self._values:
            says = f"log-likelihood {self._log_likelihood:.6f} after {len(self._values)} iterations"
            drawn = f"<div>{says}</div>{curve(self._values, says, height=70)}"
        longest = max(self._ended.values(), default=0.0) or 1.0
        stages = "".join(
            f'<div class="stage"><span>{label(words)}</span>{bar(seconds / longest, "#3b8fc4")}'
            f"<span>{seconds_in_words(seconds)}</span></div>"
            for words, seconds in list(self._ended.items())[-_MOST_STAGES:]
        )
        return Html(f'{_STYLE}<div class="plmix-live"><div class="row">{spans}</div>{drawn}{stages}</div>')

    def _renew(self, *, now: bool = False) -> None:
        time_now = self._clock()
        if now or time_now - self._latest >= _SECONDS_BETWEEN:
            self._latest = time_now
            self._show(self.html())


def notebook_show() -> Callable[[str], None] | None:
    """A function that shows HTML in one place of the notebook that runs this code; None outside of notebooks.

    IPython is looked for, never imported: code that runs in a notebook has it already.

    Examples
    --------
    >>> notebook_show() is None
    True
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
    handle = display.display(display.HTML("<div>fit begins</div>"), display_id=True)

    def show(html: str) -> None:
        handle.update(display.HTML(html))

    return show
