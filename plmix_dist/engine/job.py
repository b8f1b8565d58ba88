"""What is known of work that a cluster was given: for messages when something goes wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def no_details(key: str) -> str:
    """No more than the name of a task is known.

    Examples
    --------
    >>> no_details("ingest-3")
    ''
    """
    del key
    return ""


@dataclass(frozen=True)
class Job:
    """Work that a cluster was given.

    Parameters
    ----------
    name
        What people call it: "the pass 'e-step'".
    details
        What a task works on, by its key: "leaves 0 to 12, rows 0 to 49,151"; empty where nothing is known.
    rows_kept
        Whether workers keep rows in memory for it, which they need not do.
    homes
        The addresses of workers that tasks prefer.

    Examples
    --------
    >>> Job("the pass 'e-step'", details=lambda key: "leaves 0 to 2").task("e-step-7")
    'task e-step-7 (leaves 0 to 2)'
    """

    name: str
    details: Callable[[str], str] = no_details
    rows_kept: bool = False
    homes: frozenset[str] = frozenset()

    def task(self, key: object) -> str:
        """A task in words."""
        details = self.details(str(key))
        return f"task {key} ({details})" if details else f"task {key}"

    @property
    def memory_advice(self) -> str:
        """What to do when workers run out of memory."""
        more = "give the workers more memory (--memory-limit), or fewer threads (--threads)"
        return f'{more}, or choose residency="store"' if self.rows_kept else more
