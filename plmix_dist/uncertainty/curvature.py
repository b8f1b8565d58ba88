"""The inverse of an information matrix, without the directions in which it is singular.

Some directions change nothing by definition: a constant added to all log-worths of a component, or to all logits of the
shares. They are taken out first. In others the data say nothing: these are found and reported, not inverted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.single_thread import single_thread

if TYPE_CHECKING:
    from numpy.typing import NDArray

# An eigenvalue is zero if it is at most this, where 1 is the information if all components were known.
_SINGULAR = 1e-9


class Inverse(NamedTuple):
    """The inverse of an information matrix.

    Parameters
    ----------
    covariance : (d, d)
        The inverse in all directions that are not singular.
    singular : (d, n_singular)
        Directions in which the information is zero or negative. A step along them changes the parameters, not the fit.
    """

    covariance: NDArray[np.float64]
    singular: NDArray[np.float64]


def invert(
    information: NDArray[np.float64],
    unfelt: NDArray[np.float64],
    known: NDArray[np.float64],
    least: float | None = None,
) -> Inverse:
    """Invert an information matrix.

    Parameters
    ----------
    information : (d, d)
    unfelt : (d, n_unfelt)
        Directions that change nothing by definition.
    known : (d,)
        The information of each parameter if all components were known, by which eigenvalues are measured.
    least
        If given, eigenvalues below this count as this, and no direction is singular: for steps, not for results.

    Examples
    --------
    >>> matrix = np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> invert(matrix, np.ones((2, 1)), np.ones(2)).covariance.round(6).tolist()
    [[0.25, -0.25], [-0.25, 0.25]]
    """
    scale = np.sqrt(np.where(known > 0, known, 1.0))
    with single_thread():
        scaled = information / np.outer(scale, scale)
        basis = _complement(unfelt * scale[:, None])
        values, vectors = np.linalg.eigh(basis.T @ (scaled + scaled.T) @ basis / 2)
        steps = (basis @ vectors) / scale[:, None]
        if least is not None:
            values = np.maximum(values, least)
        good = values > _SINGULAR * max(1.0, float(values.max(initial=0.0)))
        covariance = (steps[:, good] / values[good]) @ steps[:, good].T
    return Inverse((covariance + covariance.T) / 2, steps[:, ~good])


def _complement(directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """(d, d - r): an orthonormal basis of what is orthogonal to these directions (d, r)."""
    n_parameters, n_directions = directions.shape
    if not n_directions:
        return np.eye(n_parameters)
    orthogonal: NDArray[np.float64] = np.linalg.qr(directions, mode="complete")[0][:, n_directions:]
    return orthogonal
