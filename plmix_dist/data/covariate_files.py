"""Covariates of persons from a file: a NumPy array, or comma-separated numbers with or without a header."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray


def read_covariates(path: str | os.PathLike[str]) -> NDArray[np.float64]:
    r"""(n_rankings, n_columns): one line per ranking, in the order of the rankings.

    Parameters
    ----------
    path
        A `.npy` file of numbers, or else text: one line per ranking, numbers separated by commas. A first line that
        has no number is a header.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "persons.csv"
    >>> _ = file.write_text("age,city\n31,0\n54,1\n")
    >>> read_covariates(file).tolist()
    [[31.0, 0.0], [54.0, 1.0]]
    """
    file = Path(path)
    try:
        if file.suffix == ".npy":
            return np.asarray(np.load(file, allow_pickle=False), np.float64)
        with file.open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.reader(lines) if row]
    except (OSError, ValueError, TypeError, EOFError, csv.Error) as error:
        raise SettingsError(f"covariates cannot be read from {file}: {error}") from None
    header = int(bool(rows) and not any(_is_number(cell) for cell in rows[0]))
    return _table(file, rows[header:], header)


def _table(file: Path, rows: Sequence[Sequence[str]], header: int) -> NDArray[np.float64]:
    """Rows of text as numbers; an error that names the line."""
    for number, row in enumerate(rows, start=header + 1):
        if len(row) != len(rows[0]):
            raise SettingsError(
                f"{file}: row {number} has {len(row)} values, but the first one has {len(rows[0])}"
            )
        bad = [cell for cell in row if not _is_number(cell)]
        if bad:
            raise SettingsError(
                f"{file}: row {number} has {bad[0]!r} where a number is expected; write categories as columns of 0 and "
                "1, and leave one category out"
            )
    return np.array([[float(cell) for cell in row] for row in rows], np.float64)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
