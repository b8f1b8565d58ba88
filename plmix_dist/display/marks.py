"""Marks: SVG without text. Words stand beside them in HTML, so that they stay readable at every width.

Positions are shares of the width, written in percent: a mark keeps its shape however wide the page is.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from plmix_dist.display.labels import Html
from plmix_dist.display.palette import component_colour

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEIGHT = 18
_CURVE = (100.0, 40.0)
# A curve has at most so many points: more cannot be seen.
_MOST_POINTS = 400


def _percent(share: float) -> str:
    return f"{100 * min(1.0, max(0.0, share)):.2f}".rstrip("0").rstrip(".") + "%"


def _svg(marks: str, says: str, *, kind: str, height: int = _HEIGHT) -> Html:
    """An SVG as wide as its place, with what it says for those who do not see it."""
    said = f'role="img" aria-label="{html.escape(says)}"' if says else 'aria-hidden="true"'
    return Html(f'<svg class="{kind}" width="100%" height="{height}" {said}>{marks}</svg>')


def bar(share: float, colour: str, says: str = "") -> Html:
    """A bar from 0 to a share of the width.

    Parameters
    ----------
    share
        From 0 to 1.
    colour
        The colour of the bar.
    says
        What it says, for those who do not see it.

    Examples
    --------
    >>> 'width="25%"' in bar(0.25, "#0072b2")
    True
    """
    marks = (
        '<rect class="track" width="100%" height="10" y="4" rx="2"/>'
        f'<rect width="{_percent(share)}" height="10" y="4" rx="2" fill="{colour}"/>'
    )
    return _svg(marks, says, kind="bar")


def interval(value: float, low: float | None, high: float | None, colour: str, says: str = "") -> Html:
    """A dot at a share of the width, and a line over its interval where one is known.

    Parameters
    ----------
    value, low, high
        From 0 to 1; `low` and `high` are None, or NaN, where there is no interval.
    colour, says
        As for `bar`.

    Examples
    --------
    >>> marks = interval(0.5, 0.4, 0.6, "#0072b2")
    >>> 'cx="50%"' in marks, 'x1="40%" x2="60%"' in marks
    (True, True)
    """
    line = ""
    if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
        ends = f'x1="{_percent(low)}" x2="{_percent(high)}"'
        look = f'stroke="{colour}" stroke-width="3" stroke-opacity=".45" stroke-linecap="round"'
        line = f'<line {ends} y1="9" y2="9" {look}/>'
    marks = (
        '<line class="track" x1="0" x2="100%" y1="9" y2="9"/><line class="middle" x1="50%" x2="50%" y1="0" y2="18"/>'
        f'{line}<circle cx="{_percent(value)}" cy="9" r="4.5" fill="{colour}"/>'
    )
    return _svg(marks, says, kind="interval")


def stacked(shares: Sequence[float], says: str = "", height: int = 28) -> Html:
    """One bar cut into shares that sum to 1, in the colours of the components.

    Examples
    --------
    >>> stacked([0.75, 0.25]).count("<rect")
    2
    """
    marks, begun = [], 0.0
    for number, share in enumerate(shares):
        place = f'x="{_percent(begun)}" width="{_percent(share)}" height="{height}"'
        marks.append(f'<rect class="part" {place} fill="{component_colour(number)}"/>')
        begun += share
    return _svg("".join(marks), says, kind="stacked", height=height)


def columns(values: Sequence[float], colour: str, says: str = "", height: int = 56) -> Html:
    """Columns side by side, the largest as high as there is room: a histogram.

    Examples
    --------
    >>> columns([1.0, 2.0], "#0072b2").count("<rect")
    2
    """
    largest = max([*values, 0.0]) or 1.0
    width = 1 / max(1, len(values))
    marks = []
    for number, value in enumerate(values):
        tall = (height - 1) * value / largest
        place = f'x="{_percent(number * width)}" width="{_percent(0.86 * width)}"'
        marks.append(f'<rect {place} y="{height - tall:.1f}" height="{tall:.1f}" fill="{colour}"/>')
    base = f'<line class="track" x1="0" x2="100%" y1="{height}" y2="{height}"/>'
    return _svg(base + "".join(marks), says, kind="columns", height=height)


def curve(values: Sequence[float], says: str = "", *, level: float | None = None, height: int = 120) -> Html:
    """A line through values in equal steps, the least at the bottom and the largest at the top.

    Parameters
    ----------
    values
        Those that are not finite are left out.
    says
        What it says, for those who do not see it.
    level
        A value marked by a dashed line, such as the one where a fit ends.
    height
        In pixels.

    Examples
    --------
    >>> 'points="0,40 100,0"' in curve([1.0, 2.0])
    True
    >>> curve([])
    ''
    """
    step = max(1, math.ceil(len(values) / _MOST_POINTS))
    last = len(values) - 1
    kept = [
        (number, value)
        for number, value in enumerate(values)
        if math.isfinite(value) and (number % step == 0 or number == last)
    ]
    if not kept:
        return Html("")
    known = [value for _, value in kept] + ([] if level is None else [level])
    lowest, span = min(known), (max(known) - min(known)) or 1.0
    wide, tall = _CURVE

    def place(number: float, value: float) -> str:
        return f"{wide * number / max(1, last):.4g},{tall * (1 - (value - lowest) / span):.4g}"

    points = " ".join(place(number, value) for number, value in kept)
    if len(kept) == 1:
        points = f"{place(0, kept[0][1])} {place(max(1, last), kept[0][1])}"
    goal = ""
    if level is not None:
        height_of_goal = tall * (1 - (level - lowest) / span)
        goal = (
            f'<line class="goal" x1="0" x2="{wide:.0f}" y1="{height_of_goal:.4g}" y2="{height_of_goal:.4g}"/>'
        )
    said = f'role="img" aria-label="{html.escape(says)}"' if says else 'aria-hidden="true"'
    return Html(
        f'<svg class="curve" width="100%" height="{height}" viewBox="0 0 {wide:.0f} {tall:.0f}" '
        f'preserveAspectRatio="none" {said}>{goal}<polyline points="{points}"/></svg>'
    )


def dots(n_filled: int, n_all: int, colour: str, says: str = "", most: int = 128) -> Html:
    """One dot for each of `n_all`, those of `n_filled` filled.

    Examples
    --------
    >>> marks = dots(2, 3, "#0072b2")
    >>> marks.count('class="yes"'), marks.count('class="no"')
    (2, 1)
    """
    shown = min(n_all, most)
    n_yes = round(shown * n_filled / max(1, n_all))
    one = '<i class="yes"></i>' * n_yes + '<i class="no"></i>' * (shown - n_yes)
    return Html(
        f'<div class="dots" style="--dot:{colour}" role="img" aria-label="{html.escape(says)}">{one}</div>'
    )
