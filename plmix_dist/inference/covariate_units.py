"""Units of covariates: their means and standard deviations over persons; columns that say nothing are errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.errors import SettingsError
from plmix_dist.inference.saved_state import savable
from plmix_dist.single_thread import single_thread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.engine.passes import Passes
    from plmix_dist.rankings import RankingBlock

# A column whose standard deviation is less than this share of its largest entry is constant but for rounding.
_CONSTANT = 1e-12
# The least share of the variance of a column that the columns before it leave unexplained.
_COLLINEAR = 1e-8


@savable
class Units(NamedTuple):
    """Where covariates are centred, and what they are divided by: (n_columns,) each."""

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]

    def of_block(self, block: RankingBlock) -> RankingBlock:
        """The block with its covariates in these units."""
        assert block.covariates is not None
        return block.replace(covariates=(block.covariates - self.centre) / self.scale)

    def undone(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_components, n_columns + 1): coefficients of covariates as the user gave them.

        Examples
        --------
        >>> Units(np.array([10.0]), np.array([2.0])).undone(np.array([[0.0, 0.0], [1.0, 4.0]])).tolist()
        [[0.0, 0.0], [-19.0, 2.0]]
        """
        slopes = coefficients[:, 1:] / self.scale
        return np.column_stack([coefficients[:, 0] - slopes @ self.centre, slopes])


class Moments(NamedTuple):
    """Sums over persons in rough units: weight (), w z (n_columns,), w z z' (n_columns, n_columns)."""

    weight: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]


def _leaf_moments(number: int, block: RankingBlock, rough: Units) -> Moments:
    del number
    columns = rough.of_block(block).covariates
    assert columns is not None
    starts = block.group_starts
    weights = np.ones(int(starts.sum())) if block.groups is not None else block.row_weights
    columns = columns[starts]
    weighted = weights[:, None] * columns
    with single_thread():
        return Moments(np.array(weights.sum()), weighted.sum(axis=0), weighted.T @ columns)


MOMENTS = Aggregation("moments", leaf=_leaf_moments)


def rough_units(covariates: NDArray[np.float64]) -> Units:
    """Units from the plain rows; an error if a column is constant.

    Examples
    --------
    >>> rough_units(np.array([[1.0, 5.0], [3.0, 7.0]]))
    Units(centre=array([2., 6.]), scale=array([1., 1.]))
    """
    centre, scale = covariates.mean(axis=0), covariates.std(axis=0)
    largest = np.abs(covariates).max(axis=0, initial=0.0)
    for column in np.flatnonzero(scale <= _CONSTANT * largest).tolist():
        raise SettingsError(_constant(column, f" ({covariates[0, column]:g})"))
    return Units(centre, scale)


def units_of(moments: Moments, rough: Units) -> Units:
    """Mean and standard deviation over persons; an error if columns are constant or linear combinations of others.

    Examples
    --------
    >>> rough = Units(np.zeros(1), np.ones(1))
    >>> units_of(Moments(np.array(2.0), np.array([4.0]), np.array([[16.0]])), rough)
    Units(centre=array([2.]), scale=array([2.]))
    """
    mean = moments.first / moments.weight
    covariance = moments.second / moments.weight - np.outer(mean, mean)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    for column in np.flatnonzero(deviation <= np.sqrt(_CONSTANT)).tolist():
        raise SettingsError(_constant(column, " among the persons that have a weight"))
    correlation = covariance / np.outer(deviation, deviation)
    for column in range(1, len(mean)):
        before = correlation[:column, :column]
        along = correlation[:column, column]
        if 1 - along @ np.linalg.solve(before, along) <= _COLLINEAR:
            raise SettingsError(
                f"column {column} of membership_covariates is a linear combination of the columns before it, so their "
                "coefficients cannot be told apart; leave it out (of columns that mark categories, leave one out)"
            )
    return Units(rough.centre + rough.scale * mean, rough.scale * deviation)


def take_units(passes: Passes, covariates: NDArray[np.float64]) -> Units:
    """The units of covariates, in one pass over the persons.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> rankings = as_rankings([[0, 1], [1, 0]], sample_weight=[3.0, 1.0], covariates=[0.0, 4.0])
    >>> take_units(ThreadedPasses(rankings), rankings.covariates).centre.tolist()
    [1.0]
    """
    rough = rough_units(covariates)
    (answer,) = passes.run([Request(MOMENTS, rough)])
    if answer.error is not None:
        raise answer.error
    (moments,) = answer.results
    return units_of(moments, rough)


def _constant(column: int, found: str) -> str:
    return f"column {column} of membership_covariates is constant{found}; leave it out: an intercept is always there"
