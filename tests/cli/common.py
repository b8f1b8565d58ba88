"""How a command ended."""

from __future__ import annotations

from typing import NamedTuple

BALLOTS = "count,ordering\n3,tea mate milk\n2,milk tea\n1,mate\n"


class Said(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str
