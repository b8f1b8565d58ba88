"""The numbers of components that text such as 2:10 names."""

from __future__ import annotations

import re

from plmix_dist.errors import SettingsError

_PART = re.compile(r"\s*(\d{1,6})\s*(?::\s*(\d{1,6})\s*)?")


def component_numbers(text: str) -> tuple[int, ...]:
    """The numbers of components in text such as 2:10 or 2,3,5:8; a range includes its last number.

    Examples
    --------
    >>> component_numbers("2,5:7")
    (2, 5, 6, 7)
    >>> component_numbers("5:2")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: '5:2' begins above its end; did you mean 2:5?
    """
    numbers: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise SettingsError(f"{part!r} is no number of components; write 2:10 for 2 to 10, or 2,3,5")
        first = int(match[1])
        last = int(match[2] or first)
        if first < 1:
            raise SettingsError(f"{part!r} begins at {first}; a mixture has at least 1 component")
        if last < first:
            raise SettingsError(f"{part!r} begins above its end; did you mean {last}:{first}?")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))
