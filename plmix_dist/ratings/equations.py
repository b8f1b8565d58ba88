"""Normal equations of many small least-squares problems at once, and their solution with numbers from zero on.

Row u has ratings r of some columns, whose factors are the rows of X. Its equations are (X'X + ridge n I) x = X'r with n
ratings. Rows with nearly equal numbers of ratings are padded to one length, so that one call of BLAS per row suffices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# Lengths grow by a tenth, so that at most a tenth of the entries is padding.
_GROWTH = 1.1
# Entries of a group: its factors stay in the processor's cache.
_GROUP_ENTRIES = 1 << 15


class Group(NamedTuple):
    """Rows with nearly equal numbers of ratings.

    Parameters
    ----------
    rows : (n_rows,)
        Their numbers.
    columns, ratings : (n_rows, length)
        What they rated, and how; past the end of a row the column `n_columns` and the rating 0.
    counts : (n_rows,)
        How many ratings each has.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    ratings: NDArray[np.float64]
    counts: NDArray[np.int64]


class Equations(NamedTuple):
    """Equations of some rows: `gram` (n_rows, rank, rank) without the ridge, and `right` (n_rows, rank)."""

    gram: NDArray[np.float64]
    right: NDArray[np.float64]


def groups(
    bounds: NDArray[np.int64], columns: NDArray[np.integer], ratings: NDArray[np.float64], n_columns: int
) -> Iterator[Group]:
    """The rows that have ratings, in groups. Row u has the entries from `bounds[u]` to `bounds[u + 1]`.

    Examples
    --------
    >>> found = groups(np.array([0, 2, 2, 3]), np.array([0, 1, 1]), np.array([5.0, 3.0, 4.0]), n_columns=2)
    >>> [(group.rows.tolist(), group.columns.tolist()) for group in found]
    [([2], [[1]]), ([0], [[0, 1]])]
    """
    counts = np.diff(bounds)
    lengths = [1]
    while lengths[-1] < counts.max(initial=1):
        lengths.append(max(lengths[-1] + 1, int(lengths[-1] * _GROWTH)))
    size = np.searchsorted(lengths, counts)
    order = np.argsort(size, kind="stable")
    order = order[counts[order] > 0]
    cuts = np.searchsorted(size[order], np.arange(len(lengths) + 1)).tolist()
    for length, start, stop in zip(lengths, cuts[:-1], cuts[1:], strict=True):
        step = max(1, _GROUP_ENTRIES // length)
        for first in range(start, stop, step):
            rows = order[first : min(first + step, stop)]
            there = np.arange(length) < counts[rows][:, None]
            entries = np.where(there, bounds[rows][:, None] + np.arange(length), 0)
            yield Group(
                rows,
                np.where(there, columns[entries], n_columns),
                np.where(there, ratings[entries], 0.0),
                counts[rows],
            )


def padded(factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Factors with a row of zeros at the end, for the padding of groups.

    Examples
    --------
    >>> padded(np.ones((1, 2))).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    return np.vstack([factors, np.zeros((1, factors.shape[1]))])


def equations_of(group: Group, padded_factors: NDArray[np.float64]) -> Equations:
    """The equations of the rows of a group, from the padded factors of the columns.

    Examples
    --------
    >>> group = Group(np.array([0]), np.array([[0, 1]]), np.array([[5.0, 3.0]]), np.array([2]))
    >>> found = equations_of(group, padded(np.array([[1.0, 0.0], [1.0, 2.0]])))
    >>> found.gram[0].tolist(), found.right[0].tolist()
    ([[2.0, 2.0], [2.0, 4.0]], [8.0, 6.0])
    """
    chosen = padded_factors[group.columns]
    gram = np.matmul(chosen.transpose(0, 2, 1), chosen)
    return Equations(gram, np.matmul(group.ratings[:, None, :], chosen)[:, 0])


def with_ridge(equations: Equations, ridges: NDArray[np.float64]) -> Equations:
    """Equations with a ridge (n_rows,) added to the diagonal of each.

    Examples
    --------
    >>> with_ridge(Equations(np.ones((1, 2, 2)), np.ones((1, 2))), np.array([0.5])).gram.tolist()
    [[[1.5, 1.0], [1.0, 1.5]]]
    """
    gram = equations.gram.copy()
    rank = gram.shape[1]
    gram.reshape(len(gram), -1)[:, :: rank + 1] += ridges[:, None]
    return equations._replace(gram=gram)


def descend(equations: Equations, factors: NDArray[np.float64], n_rounds: int) -> NDArray[np.float64]:
    """Factors (n_rows, rank) after rounds of coordinate descent, each coordinate at its best value from zero on.

    No round raises the objective x'Gx / 2 - b'x of a row. Coordinates of all rows are updated side by side.

    Examples
    --------
    >>> found = Equations(np.array([[[2.0, 0.0], [0.0, 2.0]]]), np.array([[4.0, -1.0]]))
    >>> descend(found, np.ones((1, 2)), n_rounds=1).tolist()
    [[2.0, 0.0]]
    """
    gram, right = equations
    rank = gram.shape[1]
    diagonal = np.maximum(gram.reshape(len(gram), -1)[:, :: rank + 1], np.finfo(np.float64).tiny).T.copy()
    current = np.asfortranarray(factors)
    current = current.copy(order="F") if current is factors else current
    for _ in range(n_rounds):
        for place in range(rank):
            change = np.einsum("ij,ij->i", gram[:, place], current)
            change -= right[:, place]
            change /= diagonal[place]
            np.subtract(current[:, place], change, out=change)
            np.maximum(change, 0.0, out=current[:, place])
    return np.ascontiguousarray(current)


def projected_gradient(equations: Equations, factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n_rows, rank): the gradient Gx - b; where a factor is zero, only as far as it asks for a larger one.

    Examples
    --------
    >>> found = Equations(np.array([[[2.0, 0.0], [0.0, 2.0]]]), np.array([[4.0, -1.0]]))
    >>> projected_gradient(found, np.array([[1.0, 0.0]])).tolist()
    [[-2.0, 0.0]]
    """
    gradient = np.matmul(equations.gram, factors[:, :, None])[:, :, 0] - equations.right
    projected: NDArray[np.float64] = np.where(factors > 0, gradient, np.minimum(gradient, 0.0))
    return projected
