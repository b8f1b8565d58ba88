"""Noise of random utilities: items are ranked by utility plus noise (Nguyen & Zhang 2023, Definition 1)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]]


def _gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard Gumbel. Minus the logarithm of an exponential time: the first to arrive has the highest utility."""
    return -np.log(rng.standard_exponential(shape))


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Normal with variance 1/2."""
    return rng.standard_normal(shape) * math.sqrt(0.5)


def _exponential(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Exponential with mean 1."""
    return rng.standard_exponential(shape)


# With d = utility of i - utility of j, i ranks before j with probability
# - gumbel: 1 / (1 + exp(-d)), the Plackett-Luce model;
# - normal: Phi(d), Thurstone's model, which is what link="probit" inverts;
# - exponential: 1 - exp(-d) / 2 for d >= 0, because the difference of two such noises is a Laplace variable.
# To add a noise, add it here.
NOISES: dict[str, Draw] = {"gumbel": _gumbel, "normal": _normal, "exponential": _exponential}
