"""A name that is nearly the one that was typed, among what is there: paths are often misspelt."""

from __future__ import annotations

import os
from pathlib import Path

from plmix_dist.values import nearest


def near_path(path: str) -> str:
    """A question that names the file or folder whose name is nearest to a path at which nothing is; empty if none is.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "ballots.csv").touch()
    >>> near_path(str(folder / "balots.csv"))
    "; did you mean 'ballots.csv'?"
    >>> near_path("s3://bucket/balots.csv")
    ''
    """
    if "://" in path or any(sign in path for sign in "*?["):
        return ""
    sought = Path(path)
    try:
        if sought.exists():
            return ""
        there = sorted(entry.name for entry in os.scandir(sought.parent))
    except (OSError, ValueError):
        return ""
    by_lower_case = {name.lower(): name for name in there}
    asked = nearest(sought.name, list(by_lower_case))
    return next(
        (
            asked.replace(repr(lower), repr(name))
            for lower, name in by_lower_case.items()
            if repr(lower) in asked
        ),
        "",
    )
