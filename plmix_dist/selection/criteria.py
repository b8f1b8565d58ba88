"""Criteria for a number of components, one value each: what they are called, and which value is best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Criterion:
    """A criterion. To add one, add its value to `CRITERIA`, and its column to the table.

    Parameters
    ----------
    name
        What users type as criterion.
    column
        The column of the table that decides.
    words
        What it is called in a sentence.
    lowest
        Whether the lowest value is the best. Otherwise the highest is.
    error_column
        The column with standard errors of the difference from the best value, if there is one. The smallest number of
        components within one standard error of the best is then chosen.
    """

    name: str
    column: str
    words: str
    lowest: bool
    error_column: str | None = None

    def loss(self, row: dict[str, Any]) -> float:
        """The value of a row of the table, turned so that lower is better; infinite if the row has none.

        Examples
        --------
        >>> CRITERIA["held-out"].loss({"held_out": -2.5}), CRITERIA["bic"].loss({"bic": None})
        (2.5, inf)
        """
        value = row.get(self.column)
        if value is None or math.isnan(value):
            return math.inf
        return float(value if self.lowest else -value)

    def error(self, row: dict[str, Any]) -> float | None:
        """The standard error of the difference between a row and the best one, if the criterion has one.

        Examples
        --------
        >>> CRITERIA["held-out"].error({"held_out_error": 0.5}), CRITERIA["bic"].error({})
        (0.5, None)
        """
        return None if self.error_column is None else row.get(self.error_column)


CRITERIA = {
    criterion.name: criterion
    for criterion in (
        Criterion("bic", "bic", "BIC", lowest=True),
        Criterion("aic", "aic", "AIC", lowest=True),
        Criterion("icl", "icl", "ICL", lowest=True),
        Criterion(
            "held-out", "held_out", "held-out log-likelihood", lowest=False, error_column="held_out_error"
        ),
        Criterion("paper", "validation_bic", "BIC on validation rows", lowest=True),
    )
}


def n_parameters(n_components: int, n_items: int) -> int:
    """Free parameters of a mixture: log-worths up to a constant per component, and shares that sum to one.

    Examples
    --------
    >>> n_parameters(3, 10)
    29
    """
    return n_components * (n_items - 1) + n_components - 1


def bic(log_likelihood: float, n_free: int, weight: float) -> float:
    """Bayesian information criterion (Schwarz 1978) of rows with this total weight; with groups, of so many persons.

    Examples
    --------
    >>> round(bic(-100.0, 5, 50.0), 2)
    219.56
    """
    return n_free * math.log(weight) - 2 * log_likelihood


def aic(log_likelihood: float, n_free: int) -> float:
    """Akaike information criterion.

    Examples
    --------
    >>> aic(-100.0, 5)
    210.0
    """
    return 2 * n_free - 2 * log_likelihood


def icl(log_likelihood: float, n_free: int, weight: float, entropy: float) -> float:
    """Integrated completed likelihood (Biernacki, Celeux and Govaert 2000): BIC and twice the entropy of memberships.

    Examples
    --------
    >>> icl(-100.0, 5, 50.0, 3.0) - bic(-100.0, 5, 50.0)
    6.0
    """
    return bic(log_likelihood, n_free, weight) + 2 * entropy
