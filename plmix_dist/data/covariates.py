"""The user's covariates of persons, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.values import numbers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Squares of larger numbers, summed over many rows, could leave float64.
_LARGEST = 1e100


def checked_covariates(covariates: ArrayLike | None, n_rankings: int) -> NDArray[np.float64] | None:
    """(n_rankings, n_columns): the covariates; an error if they are not one line of finite numbers per row.

    Parameters
    ----------
    covariates
        A table (n_rankings, n_columns) of numbers, or one column (n_rankings,).
    n_rankings
        The number of rows.

    Examples
    --------
    >>> checked_covariates([0.5, 1.5], 2).tolist()
    [[0.5], [1.5]]
    >>> checked_covariates([[1, 2]], 2)
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: membership_covariates must have 2 rows, one per ranking, but has shape (1, 2)
    """
    if covariates is None:
        return None
    table = numbers("membership_covariates", covariates)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or len(table) != n_rankings:
        raise SettingsError(
            f"membership_covariates must have {n_rankings} rows, one per ranking, but has shape {table.shape}"
        )
    bad = np.argwhere(~(np.abs(table) <= _LARGEST))
    if len(bad):
        row, column = (int(number) for number in bad[0])
        raise SettingsError(
            f"membership_covariates[{row}, {column}] is {table[row, column]}, but must be finite and at most "
            f"{_LARGEST:g}; leave the ranking out, or fill the value in"
        )
    return table


def check_persons(covariates: NDArray[np.float64], starts: NDArray[np.bool_], first_row: int) -> None:
    """An error if rows of one person differ.

    Parameters
    ----------
    covariates : (n_rankings, n_columns)
    starts : (n_rankings,)
        True if a row is the first of its person.
    first_row
        The number of the first row, for messages.

    Examples
    --------
    >>> check_persons(np.array([[1.0], [1.0]]), np.array([True, False]), first_row=0)
    """
    differs = (covariates[1:] != covariates[:-1]) & ~starts[1:, None]
    bad = np.argwhere(differs)
    if len(bad):
        row, column = int(bad[0, 0]) + 1, int(bad[0, 1])
        raise SettingsError(
            f"membership_covariates[{first_row + row}, {column}] is {covariates[row, column]:g}, but the row before "
            f"has {covariates[row - 1, column]:g}, and both rankings are of one person (group); give all rankings of "
            "a person the same values"
        )
