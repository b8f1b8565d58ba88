"""Where chains begin: around a fit, further apart than the posterior is wide, or at draws from the prior."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.rankings.randomness import generator
from plmix_dist.solvers.gamma_prior import Parameters

if TYPE_CHECKING:
    from plmix_dist.inference.point import Point
    from plmix_dist.solvers.gamma_prior import GammaPrior

# Standard deviation of what is added to log-worths and log-shares of a fit.
_SPREAD = 0.5
# Part of every share that is made equal: a share of zero would stay zero.
_EQUAL_PART = 0.05


def around(point: Point, n_components: int, prior: GammaPrior, n_chains: int, seed: int) -> list[Parameters]:
    """Starts around a point: normal numbers of standard deviation 0.5 are added to its log-worths and log-shares.

    Components that the point lacks, because they collapsed, are drawn from the prior.

    Examples
    --------
    >>> from plmix_dist.inference.point import Point
    >>> from plmix_dist.solvers.gamma_prior import GammaPrior
    >>> prior = GammaPrior(np.ones(2), np.ones(2), 1.0)
    >>> starts = around(Point.start(np.zeros((1, 2)), np.ones(1)), 3, prior, n_chains=4, seed=0)
    >>> len(starts), starts[0].log_worths.shape
    (4, (3, 2))
    """
    starts = []
    for chain in range(n_chains):
        rng = generator(seed, "gibbs-start", chain)
        log_worths = prior.draw(n_components, rng).log_worths
        known = min(point.n_components, n_components)
        log_worths[:known] = point.log_worths[:known] + _SPREAD * rng.standard_normal(
            (known, log_worths.shape[1])
        )
        shares = np.zeros(n_components)
        shares[:known] = np.exp(point.log_shares[:known])
        shares = (1 - _EQUAL_PART) * shares / shares.sum() + _EQUAL_PART / n_components
        log_shares = np.log(shares) + _SPREAD * rng.standard_normal(n_components)
        starts.append(Parameters(log_worths, log_shares - np.logaddexp.reduce(log_shares)))
    return starts


def from_prior(n_components: int, prior: GammaPrior, n_chains: int, seed: int) -> list[Parameters]:
    """Starts drawn from the prior.

    Examples
    --------
    >>> from plmix_dist.solvers.gamma_prior import GammaPrior
    >>> from_prior(2, GammaPrior(np.ones(3), np.ones(3), 1.0), n_chains=2, seed=0)[1].log_worths.shape
    (2, 3)
    """
    return [prior.draw(n_components, generator(seed, "gibbs-start", chain)) for chain in range(n_chains)]
