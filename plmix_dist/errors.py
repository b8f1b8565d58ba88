"""Every exception and warning of the package: what is wrong, where, what was found, what to do."""

from __future__ import annotations


class PlmixError(Exception):
    """Base of every error this package raises on purpose."""


class RankingError(PlmixError, ValueError):
    """A ranking, or a block of rankings, is not valid."""


class IngestError(PlmixError, ValueError):
    """A source cannot be read as rankings."""


class SettingsError(PlmixError, ValueError):
    """An option or a combination of options makes no sense."""


class StoreError(PlmixError, OSError):
    """Base of everything that can be wrong with a store on disk or behind a URL."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """There is no store at this place."""


class StoreExistsError(StoreError, FileExistsError):
    """Something else is already stored at this place."""


class UnfinishedStoreError(StoreError):
    """Writing was begun and not finished: some partitions are missing."""


class DamagedStoreError(StoreError):
    """A file of the store is missing, cut short, altered, or does not fit the others."""


class UnsupportedFormatError(StoreError, ValueError):
    """The store was written in a format this version cannot read."""


class StoreLockedError(StoreError):
    """Another process is writing to this store."""


class StoreFullError(StoreError):
    """The disk or quota has no room for what must be written."""


class FitError(PlmixError):
    """A fit cannot go on from where it is; others that share its passes can."""


class NotIdentifiedError(FitError, ValueError):
    """No maximum-likelihood estimate exists: some items were never above, or never below, some others."""


class NonFiniteError(FitError, ArithmeticError):
    """A computation gave infinity or NaN."""


class NotConvergedWarning(UserWarning):
    """A fit ended before its gradient was as small as asked for."""


class CollapsedComponentWarning(UserWarning):
    """A component lost all its rankings, and was seeded anew or dropped."""


class StartWarning(UserWarning):
    """A start was made, but something about it should be known."""


class ClusterError(PlmixError, RuntimeError):
    """A cluster could not be started or reached, or lost the work it was given."""


def visible(text: str) -> str:
    r"""Text for a message: as it is, but for control characters, which are written out.

    Examples
    --------
    >>> visible("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
