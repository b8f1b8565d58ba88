"""All exceptions and warnings. Messages say what is wrong, where, what was found, and what to do.

Every error is a PlmixError and also one of Python's own errors:

>>> issubclass(IngestError, PlmixError), issubclass(IngestError, ValueError)
(True, True)
>>> issubclass(StoreNotFoundError, FileNotFoundError)
True
"""

from __future__ import annotations

import sys
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class PlmixError(Exception):
    """Base of all errors of this package.

    Examples
    --------
    >>> import plmix_dist
    >>> try:
    ...     plmix_dist.open_store("/nowhere")
    ... except PlmixError as error:
    ...     print(type(error).__name__)
    StoreNotFoundError
    """

    # Of the command line; verbs of jobs set others.
    exit_code = 1


class RankingError(PlmixError, ValueError):
    """A ranking, or a block of rankings, is not valid."""


class IngestError(PlmixError, ValueError):
    """A source cannot be read as rankings."""


class SettingsError(PlmixError, ValueError):
    """An option, or a combination of options, is not allowed."""


class JobError(SettingsError):
    """A job file is not valid. The message names all that is wrong with it."""


class StoreError(PlmixError, OSError):
    """Base of all errors of a store on disk or behind a URL."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """No store was found at this path or URL."""


class StoreExistsError(StoreError, FileExistsError):
    """Something else is already stored at this path or URL."""


class OtherCheckpointError(StoreExistsError):
    """The folder has a checkpoint of other data or settings, or of another version."""


class UnfinishedStoreError(StoreError):
    """Writing was begun but not finished, so the store cannot be read."""


class DamagedStoreError(StoreError):
    """A file of the store is missing, truncated, altered, or contradicts the others."""


class InvalidRowsError(DamagedStoreError):
    """The files of the store are as they were written, but its rows are not rankings."""


class UnsupportedFormatError(StoreError, ValueError):
    """The store was written in a format that this version cannot read."""


class StoreLockedError(StoreError):
    """Another process is writing to this store."""


class StoreFullError(StoreError):
    """The disk is full, or a quota is used up."""


class StoreAccessError(StoreError, PermissionError):
    """The operating system does not let this process read or write here."""


class FitError(PlmixError):
    """One fit failed; other fits in the same pass continue."""


class NotIdentifiedError(FitError, ValueError):
    """No maximum-likelihood estimate exists: some items were never above, or never below, others."""


class NonFiniteError(FitError, ArithmeticError):
    """A computation gave infinity or NaN."""


class NotConvergedWarning(UserWarning):
    """A fit ended before its gradient reached the tolerance."""


class CollapsedComponentWarning(UserWarning):
    """A component lost all its rankings, and was started again or dropped."""


class NotIdentifiableWarning(UserWarning):
    """The data do not identify this many components: other parameters may give the same probabilities."""


class ShrunkenWarning(UserWarning):
    """The prior says more about some items than the rankings: values are shrunken, and intervals are not exact."""


class WeightWarning(UserWarning):
    """Weights are not counts of rankings, so the prior or a penalty outweighs them."""


class PriorDecidesWarning(UserWarning):
    """A criterion chooses another number of components with the prior than without it."""


class ObjectiveWarning(UserWarning):
    """Ties count half, so a log-likelihood is an objective: criteria compare with those of the same ties alone."""


class NoInformationWarning(UserWarning):
    """Some rankings tie everything that was on offer, so they say nothing about the worths."""


class OptimumFoundOnceWarning(UserWarning):
    """Of the starts of a search, only one reached the best optimum that was found: there may be better ones."""


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged, and the one before it was taken."""


class StartWarning(UserWarning):
    """A start was made, but the user should know something about it."""


class InsecureClusterWarning(UserWarning):
    """What travels to a scheduler on another machine is not encrypted."""


class ClusterError(PlmixError, RuntimeError):
    """A cluster could not be started or reached, or it lost its work."""


def visible(text: str) -> str:
    r"""Text for a message, with control characters escaped.

    Examples
    --------
    >>> visible("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


# A list in which warnings are kept instead of given, in one context: `warnings.catch_warnings` is one for all threads.
warnings_kept: ContextVar[list[Warning] | None] = ContextVar("warnings_kept", default=None)


def give_warnings(found: Iterable[Warning]) -> None:
    """Give the warnings that came with a result, at the line outside of this package that asked for it."""
    if (kept := warnings_kept.get()) is not None:
        kept.extend(found)
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith(f"{__package__}.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    for each in found:
        warnings.warn(each, stacklevel=level)
