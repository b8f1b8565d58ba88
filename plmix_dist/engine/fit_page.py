"""The page `/plmix` of a Dask scheduler: log-likelihood per pass and seconds per stage of the fits on this cluster.

A scheduler serves it if `distributed.scheduler.http.routes` names this module. Local clusters of `plmix` do so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tornado.web import RequestHandler

from plmix_dist.display.labels import Html, count, seconds_in_words
from plmix_dist.display.live import LiveProgress
from plmix_dist.engine.dashboard import TOPIC
from plmix_dist.progress import stage_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:56rem;padding:0 1rem;color-scheme:light dark;"
    "background:Canvas;color:CanvasText}h1{font-size:1.4rem}section{margin:0 0 2rem}"
)
_MOST_FITS = 5


def fits_of(events: Iterable[tuple[float, Any]]) -> list[list[dict[str, Any]]]:
    """What each fit told, the latest fit last; a fit begins with its first look at the data.

    Parameters
    ----------
    events
        Times, and lists of records, as a scheduler keeps them.

    Examples
    --------
    >>> look = {"stage": "look", "state": "begun"}
    >>> len(fits_of([(0.0, [look]), (1.0, [{"iteration": 1}]), (2.0, [look])]))
    2
    """
    fits: list[list[dict[str, Any]]] = []
    for time, records in events:
        for record in records:
            if not fits or (record.get("stage") == "look" and record.get("state") == "begun"):
                fits.append([])
            fits[-1].append(record | {"time": time})
    return fits


def page_of_fits(events: Iterable[tuple[float, Any]]) -> str:
    """The page, which asks for itself again every two seconds.

    Examples
    --------
    >>> "No fit yet" in page_of_fits([])
    True
    """
    sections = "".join(_section(fit) for fit in reversed(fits_of(events)[-_MOST_FITS:]))
    body = sections or "<p>No fit yet. It appears here when one begins on this cluster.</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
        f"<title>Fits of plmix_dist</title><style>{_STYLE}</style></head>"
        f"<body><h1>Fits on this cluster, the latest first</h1>{body}</body></html>"
    )


def _section(fit: list[dict[str, Any]]) -> Html:
    times: Iterator[float] = iter([fit[0]["time"]])
    now = fit[-1]["time"]
    shown: list[str] = []
    live = LiveProgress(lambda _: None, shown.append, stage_in_words, clock=lambda: next(times, now))
    iterations = 0
    for record in fit:
        if "stage" in record:
            live.stage(record)
        else:
            iterations += 1
            live(record)
    ended = any(record.get("stage") == "fit" and record.get("state") == "ended" for record in fit)
    if ended:
        live.close()
    words = f"{count(iterations)} iterations, {seconds_in_words(now - fit[0]['time'])}"
    return Html(f"<section><div>{words}{'' if ended else ', running'}</div>{live.html()}</section>")


class FitPage(RequestHandler):  # type: ignore[misc, unused-ignore]
    """Answers with the page."""

    def initialize(self, dask_server: Any = None) -> None:
        """Remember the scheduler, which Dask hands in.

        Parameters
        ----------
        dask_server
            The scheduler.
        """
        self.scheduler = dask_server

    def get(self) -> None:
        """The page."""
        self.write(page_of_fits(self.scheduler.get_events(TOPIC)))


routes: list[tuple[str, type, dict[str, Any]]] = [("plmix", FitPage, {})]
