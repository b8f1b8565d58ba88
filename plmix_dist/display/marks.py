"""Labels, numbers and marks of pages. A mark is SVG without text: words stand beside it, readable at every width.

Names cannot steer a page. Positions in marks are shares of the width, in percent: a mark keeps its shape however wide
the page is.
"""

from __future__ import annotations

import html
import math
from collections.abc import Container, Sequence

# Signs that turn the direction of the text around them, or mark one: shown by their code, never obeyed.
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Joiners belong to words of many scripts, and to pictures of people.
_JOINERS = frozenset("\u200c\u200d")
_LONGEST = 160


class Html(str):
    """Text that is HTML already; templates do not escape it again."""

    __slots__ = ()

    def __html__(self) -> str:
        """The text itself, as template engines ask for it."""
        return str(self)


def plain_label(text: object, longest: int = _LONGEST) -> str:
    """A name as it is shown: one line, no control characters, none that turn the direction of text, not too long."""
    shown = "".join(_shown(sign) for sign in str(text))
    if len(shown) > longest:
        half = max(1, (longest - 1) // 2)
        shown = f"{shown[:half]}...{shown[-half:]}"
    return shown


def _shown(sign: str) -> str:
    if sign in _JOINERS or (sign.isprintable() and sign not in _DIRECTION):
        return sign
    return repr(sign)[1:-1] if not sign.isprintable() else f"\\u{ord(sign):04x}"


def label(text: object) -> Html:
    """A name as HTML. Its direction does not reach beyond it."""
    return Html(f"<bdi>{html.escape(plain_label(text))}</bdi>")


def count(value: float) -> str:
    """A number with separators of thousands; whole numbers have no decimal point."""
    if not math.isfinite(value):
        return "unknown"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def percent(share: float, digits: int = 0) -> str:
    """A share in percent; the space does not break. A share that is only close to 0 or 100 % is not shown as such."""
    if not math.isfinite(share):
        return "unknown"
    smallest = 10.0**-digits
    if 0 < 100 * share < smallest / 2:
        return f"<{smallest:.{digits}f}\xa0%"
    if 100 - smallest / 2 < 100 * share < 100:
        return f">{100 - smallest:.{digits}f}\xa0%"
    return f"{100 * share:.{digits}f}\xa0%"


def figure(value: float) -> str:
    """A number of a table: up to six digits, separators of thousands, nothing where it is not known."""
    if not math.isfinite(value):
        return ""
    if float(value).is_integer() or abs(value) >= 1e5:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.6g}"
    return f"{value:,.6g}"


def times(ratio: float) -> str:
    """A ratio as text without fractions: how many times as many, or as few."""
    if 0.95 <= ratio <= 1.05:
        return "about as many"
    if ratio < 1 / 1.5:
        return f"{_figure(1 / ratio) if ratio > 0 else _figure(math.inf)} times fewer"
    if ratio < 1:
        return f"{percent(1 - ratio)} fewer"
    if ratio < 1.5:
        return f"{percent(ratio - 1)} more"
    return f"{_figure(ratio)} times as many"


def _figure(ratio: float) -> str:
    if ratio > 1000:
        return "over 1,000"
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"


def seconds_in_words(seconds: float) -> str:
    """A duration, short ones in milliseconds."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def aligned(rows: Sequence[Sequence[str]], left: Container[int]) -> list[str]:
    """Rows of cells as lines of text, in columns of one width; the columns in `left` are set to the left."""
    columns = []
    for place, column in enumerate(zip(*rows, strict=True)):
        width = max(map(len, column))
        columns.append([cell.ljust(width) if place in left else cell.rjust(width) for cell in column])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


# --- colours that people with colour-blindness can tell apart, and text that can be read on them --------------

# Okabe & Ito (2008), with a grey in place of the yellow, which is too light for marks on white.
COMPONENTS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f", "#8c6bb1")
# Below, at, and above the average: orange, nearly white, blue.
_LOW, _MIDDLE, _HIGH = (179, 88, 6), (245, 245, 245), (8, 81, 156)


def component_colour(number: int) -> str:
    """The colour of a component; from the ninth component on they repeat, so its number stands beside it always."""
    return COMPONENTS[number % len(COMPONENTS)]


def heat_colour(share: float) -> str:
    """The colour of a share between 0 and 1; a half is the middle."""
    share = min(1.0, max(0.0, share))
    end = _LOW if share < 0.5 else _HIGH
    part = abs(share - 0.5) * 2
    mixed = (round(middle + part * (far - middle)) for middle, far in zip(_MIDDLE, end, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _luminance(colour: str) -> float:
    """The relative luminance of a colour such as '#0072b2', as WCAG 2 defines it."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, from 1 to 21, as WCAG 2 defines it."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def text_on(colour: str) -> str:
    """Black or white, whichever can be read better on a colour."""
    return max(("#000000", "#ffffff"), key=lambda text: _contrast(text, colour))


# --- marks ---------------------------------------------------------------------------------------------------

_HEIGHT = 18
_CURVE = (100.0, 40.0)
# A curve has at most 400 points: more cannot be seen.
_MOST_POINTS = 400


def _width(share: float) -> str:
    return f"{100 * min(1.0, max(0.0, share)):.2f}".rstrip("0").rstrip(".") + "%"


def _svg(marks: str, alt: str, *, kind: str, height: int = _HEIGHT, scaled: str = "") -> Html:
    """An SVG as wide as its place, described by `alt` for screen readers; `scaled` are attributes of its own scale."""
    attribute = f'role="img" aria-label="{html.escape(alt)}"' if alt else 'aria-hidden="true"'
    return Html(f'<svg class="{kind}" width="100%" height="{height}" {scaled}{attribute}>{marks}</svg>')


def bar(share: float, colour: str, alt: str = "") -> Html:
    """A bar from 0 to a share of the width."""
    marks = (
        '<rect class="track" width="100%" height="10" y="4" rx="2"/>'
        f'<rect width="{_width(share)}" height="10" y="4" rx="2" fill="{colour}"/>'
    )
    return _svg(marks, alt, kind="bar")


def interval(value: float, low: float | None, high: float | None, colour: str, alt: str = "") -> Html:
    """A dot at a share of the width, and a line over its interval where one is known."""
    line = ""
    if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
        ends = f'x1="{_width(low)}" x2="{_width(high)}"'
        look = f'stroke="{colour}" stroke-width="3" stroke-opacity=".45" stroke-linecap="round"'
        line = f'<line {ends} y1="9" y2="9" {look}/>'
    marks = (
        '<line class="track" x1="0" x2="100%" y1="9" y2="9"/><line class="middle" x1="50%" x2="50%" y1="0" y2="18"/>'
        f'{line}<circle cx="{_width(value)}" cy="9" r="4.5" fill="{colour}"/>'
    )
    return _svg(marks, alt, kind="interval")


def stacked(shares: Sequence[float], alt: str = "", height: int = 28) -> Html:
    """One bar cut into shares that sum to 1, in the colours of the components."""
    marks, begun = [], 0.0
    for number, share in enumerate(shares):
        place = f'x="{_width(begun)}" width="{_width(share)}" height="{height}"'
        marks.append(f'<rect class="part" {place} fill="{component_colour(number)}"/>')
        begun += share
    return _svg("".join(marks), alt, kind="stacked", height=height)


def columns(values: Sequence[float], colour: str, alt: str = "", height: int = 56) -> Html:
    """Columns side by side, the largest as high as there is room: a histogram."""
    largest = max([*values, 0.0]) or 1.0
    width = 1 / max(1, len(values))
    marks = []
    for number, value in enumerate(values):
        tall = (height - 1) * value / largest
        place = f'x="{_width(number * width)}" width="{_width(0.86 * width)}"'
        marks.append(f'<rect {place} y="{height - tall:.1f}" height="{tall:.1f}" fill="{colour}"/>')
    base = f'<line class="track" x1="0" x2="100%" y1="{height}" y2="{height}"/>'
    return _svg(base + "".join(marks), alt, kind="columns", height=height)


def curve(values: Sequence[float], alt: str = "", *, level: float | None = None, height: int = 120) -> Html:
    """A line through values in equal steps, the least at the bottom and the largest at the top."""
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
        goal = f'<line class="goal" x1="0" x2="{wide:.0f}" y1="{height_of_goal:.4g}" y2="{height_of_goal:.4g}"/>'
    scaled = f'viewBox="0 0 {wide:.0f} {tall:.0f}" preserveAspectRatio="none" '
    return _svg(f'{goal}<polyline points="{points}"/>', alt, kind="curve", height=height, scaled=scaled)


def dots(n_filled: int, n_all: int, colour: str, alt: str = "", most: int = 128) -> Html:
    """One dot for each of `n_all`, those of `n_filled` filled."""
    shown = min(n_all, most)
    n_yes = round(shown * n_filled / max(1, n_all))
    one = '<i class="yes"></i>' * n_yes + '<i class="no"></i>' * (shown - n_yes)
    return Html(f'<div class="dots" style="--dot:{colour}" role="img" aria-label="{html.escape(alt)}">{one}</div>')
