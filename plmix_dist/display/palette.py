"""Colours that people with colour-blindness can tell apart, and text that can be read on them."""

from __future__ import annotations

# Okabe & Ito (2008), with a grey in place of the yellow, which is too light for marks on white.
COMPONENTS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f", "#8c6bb1")
# Below, at, and above the average: orange, nearly white, blue.
_LOW, _MIDDLE, _HIGH = (179, 88, 6), (245, 245, 245), (8, 81, 156)


def component_colour(number: int) -> str:
    """The colour of a component; from the ninth component on they repeat, so its number stands beside it always.

    Examples
    --------
    >>> component_colour(0), component_colour(8) == component_colour(0)
    ('#0072b2', True)
    """
    return COMPONENTS[number % len(COMPONENTS)]


def heat_colour(share: float) -> str:
    """The colour of a share between 0 and 1; a half is the middle.

    Examples
    --------
    >>> heat_colour(0.0), heat_colour(0.5), heat_colour(1.0)
    ('#b35806', '#f5f5f5', '#08519c')
    """
    share = min(1.0, max(0.0, share))
    end = _LOW if share < 0.5 else _HIGH
    part = abs(share - 0.5) * 2
    mixed = (round(middle + part * (far - middle)) for middle, far in zip(_MIDDLE, end, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def luminance(colour: str) -> float:
    """The relative luminance of a colour such as '#0072b2', as WCAG 2 defines it.

    Examples
    --------
    >>> luminance("#000000"), luminance("#ffffff")
    (0.0, 1.0)
    """
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, from 1 to 21, as WCAG 2 defines it.

    Examples
    --------
    >>> contrast("#000000", "#ffffff")
    21.0
    """
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def text_on(colour: str) -> str:
    """Black or white, whichever can be read better on a colour.

    Examples
    --------
    >>> text_on("#08519c"), text_on("#f5f5f5")
    ('#ffffff', '#000000')
    """
    return max(("#000000", "#ffffff"), key=lambda text: contrast(text, colour))
