"""Labels and numbers for pages: names that cannot steer a page, shares, counts and seconds in words."""

from __future__ import annotations

import html
import math

# Signs that turn the direction of the text around them, or mark one: shown by their code, never obeyed.
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Joiners belong to words of many scripts, and to pictures of people.
_JOINERS = frozenset("\u200c\u200d")
_LONGEST = 160


class Html(str):
    """Text that is HTML already; templates do not escape it again.

    Examples
    --------
    >>> Html("<b>tea</b>").__html__()
    '<b>tea</b>'
    """

    __slots__ = ()

    def __html__(self) -> str:
        """The text itself, as template engines ask for it."""
        return str(self)


def plain_label(text: object, longest: int = _LONGEST) -> str:
    r"""A name as it is shown: one line, no control characters, none that turn the direction of text, not too long.

    Parameters
    ----------
    text
        The name as the user wrote it.
    longest
        So many characters at most; the middle of a longer name is left out.

    Examples
    --------
    >>> plain_label("tea\n\u202eeta"), plain_label("0123456789", longest=5)
    ('tea\\n\\u202eeta', '01...89')
    """
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
    """A name as HTML. Its direction does not reach beyond it.

    Examples
    --------
    >>> label("<script>")
    '<bdi>&lt;script&gt;</bdi>'
    """
    return Html(f"<bdi>{html.escape(plain_label(text))}</bdi>")


def count(value: float) -> str:
    """A number with separators of thousands; whole numbers have no decimal point.

    Examples
    --------
    >>> count(12345.0), count(0.5), count(float("nan"))
    ('12,345', '0.5', 'unknown')
    """
    if not math.isfinite(value):
        return "unknown"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def percent(share: float, digits: int = 0) -> str:
    r"""A share in percent; the space does not break. Neither 0 nor 100 % is said of a share that only comes close.

    Examples
    --------
    >>> percent(0.421), percent(0.421, 1), percent(0.0001), percent(0.9999), percent(1.0), percent(float("nan"))
    ('42\xa0%', '42.1\xa0%', '<1\xa0%', '>99\xa0%', '100\xa0%', 'unknown')
    """
    if not math.isfinite(share):
        return "unknown"
    smallest = 10.0**-digits
    if 0 < 100 * share < smallest / 2:
        return f"<{smallest:.{digits}f}\xa0%"
    if 100 - smallest / 2 < 100 * share < 100:
        return f">{100 - smallest:.{digits}f}\xa0%"
    return f"{100 * share:.{digits}f}\xa0%"


def figure(value: float) -> str:
    """A number of a table: up to six digits, separators of thousands, nothing where it is not known.

    Examples
    --------
    >>> figure(-417000.25), figure(0.123456789), figure(3.0), figure(float("nan"))
    ('-417,000', '0.123457', '3', '')
    """
    if not math.isfinite(value):
        return ""
    if float(value).is_integer() or abs(value) >= 1e5:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.6g}"
    return f"{value:,.6g}"


def times(ratio: float) -> str:
    r"""How many times as many, or as few, in words that need no fractions.

    Examples
    --------
    >>> times(3.14), times(250.0), times(1e9), times(1.02)
    ('3.1 times as many', '250 times as many', 'over 1,000 times as many', 'about as many')
    >>> times(0.25), times(0.9), times(0.0)
    ('4 times fewer', '10\xa0% fewer', 'over 1,000 times fewer')
    """
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
    """A duration, short ones in milliseconds.

    Examples
    --------
    >>> seconds_in_words(0.0042), seconds_in_words(3.14), seconds_in_words(75), seconds_in_words(9000)
    ('4 ms', '3.1 s', '75 s', '2.5 h')
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
