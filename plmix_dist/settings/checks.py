"""Checks of single values: errors name the setting, what was found, and what is expected."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError

# What scikit-learn takes as a seed.
RandomState: TypeAlias = "int | np.random.RandomState | np.random.Generator | None"

# Longer values are cut off in messages.
_LONGEST_SHOWN = 60


def whole_number(name: str, value: Any, at_least: int = 0) -> int:
    """The value as int if it is an integer from `at_least` on. Floats, text and True are errors.

    Examples
    --------
    >>> whole_number("n_components", 2.5, at_least=1)
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: n_components must be a whole number from 1 on, but is 2.5 (float)
    """
    if not is_whole(value) or value < at_least:
        raise SettingsError(f"{name} must be a whole number from {at_least} on, but is {shown(value, int)}")
    return int(value)


def is_whole(value: Any) -> bool:
    """Whether a value is an integer, of Python or NumPy, and not True or False."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)


def real_number(
    name: str, value: Any, *, above: float | None = None, at_least: float | None = None, at_most: float | None = None
) -> float:
    """The value as float if it is a finite number in range. Text, None and True are errors."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    found = _as_float(value) if is_number else math.nan
    bounds = [
        (f" above {above}", above is None or found > above, above),
        (f" from {at_least} on", at_least is None or found >= at_least, at_least),
        (f", at most {at_most}", at_most is None or found <= at_most, at_most),
    ]
    if not (math.isfinite(found) and all(holds for _, holds, _ in bounds)):
        words = "".join(text for text, _, bound in bounds if bound is not None)
        raise SettingsError(f"{name} must be a finite number{words}, but is {shown(value, float)}")
    return found


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def yes_or_no(name: str, value: Any) -> bool:
    """The value if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise SettingsError(f"{name} must be True or False, but is {shown(value)}")
    return bool(value)


def one_of(name: str, value: Any, known: Sequence[str], because: str = "") -> str:
    """The value if it is one of the known words; otherwise an error that names the nearest.

    Examples
    --------
    >>> one_of("unranked", "bellow", ("below", "absent"))
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: unranked must be below or absent, but is 'bellow'; did you mean 'below'?
    """
    if not isinstance(value, str) or value not in known:
        listed = " or ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)
        why = f", because {because}" if because else ""
        raise SettingsError(f"{name} must be {listed}{why}, but is {shown(value, str)}{nearest(value, known)}")
    return value


def nearest(value: Any, known: Sequence[str]) -> str:
    """A question that names the known word nearest to a misspelt one; empty if none is near.

    Examples
    --------
    >>> nearest("spectal", ["spectral", "random"])
    "; did you mean 'spectral'?"
    """
    found = difflib.get_close_matches(value.lower(), known, n=1) if isinstance(value, str) else []
    return f"; did you mean {found[0]!r}?" if found else ""


def near_path(path: str) -> str:
    """For a path that does not exist: a question that names the nearest file or folder; empty if none is near."""
    if "://" in path or any(sign in path for sign in "*?["):
        return ""
    sought = Path(path)
    try:
        if sought.exists():
            return ""
        there = sorted(entry.name for entry in os.scandir(sought.parent))
    except (OSError, ValueError):
        return ""
    asked = nearest(sought.name, [name.lower() for name in there])
    return next((asked.replace(low, repr(name)) for name in there if (low := repr(name.lower())) in asked), "")


def alike(names: Sequence[str]) -> str:
    """A sentence that names two names which differ only in case or spaces; empty if there are none.

    Examples
    --------
    >>> alike(["tea", "mate", "Tea "])
    ". The items 'tea' and 'Tea ' differ only in case or spaces: are they one item?"
    """
    seen: dict[str, str] = {}
    for name in names:
        key = "".join(name.split()).casefold()
        if key in seen:
            both = f"{seen[key]!r} and {name!r}"
            return f". The items {both} differ only in case or spaces: are they one item?"
        seen[key] = name
    return ""


def numbers(name: str, values: Any) -> NDArray[np.float64]:
    """An array of float64, of any shape; an error if these are not numbers."""
    try:
        found = np.asarray(values)
    except (TypeError, ValueError):  # lists of different lengths
        raise SettingsError(f"{name} must be an array of numbers, but is {shown(values)}") from None
    if found.dtype.kind not in "biuf":
        raise SettingsError(f"{name} must be numbers, but is {shown(values)}")
    with np.errstate(over="ignore"):
        return found.astype(np.float64)


def seed_of(random_state: Any) -> int:
    """A seed from 0 on: an integer itself; drawn from a RandomState or a Generator; fresh entropy for None.

    As in scikit-learn, drawing advances a RandomState or a Generator: a second fit with the same one has other starts.
    """
    if random_state is None:
        return int(np.random.SeedSequence().entropy) % (1 << 63)  # type: ignore[arg-type]
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(1 << 63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(1 << 32, dtype=np.int64))
    if not is_whole(random_state) or random_state < 0:
        raise SettingsError(
            "random_state must be a whole number from 0 on, a numpy RandomState or Generator, or None, but is "
            f"{shown(random_state, int)}"
        )
    return int(random_state)


def shown(value: Any, expected: type | None = None) -> str:
    """A value for messages, with its type unless that is the expected one.

    Examples
    --------
    >>> shown("2"), shown("2", expected=str), shown(None)
    ("'2' (str)", "'2'", 'None')
    """
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a repr of the user's own, or an integer of too many digits
        text = "a value"
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[: _LONGEST_SHOWN - 3]}..."
    return text if expected is not None and type(value) is expected else f"{text} ({type(value).__name__})"


_PART = re.compile(r"\s*(\d{1,6})\s*(?::\s*(\d{1,6})\s*)?")


def component_numbers(text: str) -> tuple[int, ...]:
    """The numbers of components in text such as 2:10 or 2,3,5:8; a range includes its last number.

    Examples
    --------
    >>> component_numbers("2,5:7")
    (2, 5, 6, 7)
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise SettingsError(f"{part!r} is not a number of components; write 2:10 for 2 to 10, or 2,3,5")
        first = int(match[1])
        last = int(match[2] or first)
        if first < 1:
            raise SettingsError(f"{part!r} begins at {first}; a mixture has at least 1 component")
        if last < first:
            raise SettingsError(f"{part!r} begins above its end; did you mean {last}:{first}?")
        found.update(range(first, last + 1))
    return tuple(sorted(found))
