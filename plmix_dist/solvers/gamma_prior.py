"""The prior of the Bayesian mixture: gamma numbers for worths, Dirichlet shares; and what follows from it.

In every component the worth of item i is p_i ~ Gamma(shape_i, rate_i), and shares are Dirichlet. Probabilities of
rankings do not change when all worths of a component are multiplied by a number, so log-worths are kept centred. Given
centred log-worths, that number has a gamma distribution of its own, from which it is drawn before each step: the scale
never wanders, and no step depends on the scale of the last one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from plmix_dist.kernels import EmStatistics, SweepSums
from plmix_dist.rankings import Floats

# The step of an item that has won nothing has no end; it is taken in parts.
_LONGEST_STEP = 5.0
# It ends so far below the best item: odds of 1 to 10 ** 17, where all probabilities have reached their limits.
_WIDEST_MODE = 40.0
# A share that has lost all persons ends here: a logarithm of minus infinity cannot be computed with.
_LEAST_LOG_SHARE = -700.0


class Parameters(NamedTuple):
    """Log-worths (n_components, n_items), centred, and log-shares (n_components,)."""

    log_worths: Floats
    log_shares: Floats


class GammaPrior(NamedTuple):
    """A prior that treats all components alike."""

    # shape, rate (n_items,): of the gamma distribution of each worth.
    shape: Floats
    rate: Floats
    # Of the Dirichlet distribution of shares.
    concentration: float

    @property
    def has_mode(self) -> bool:
        """Whether the density of worths and shares is bounded; without this there is no MAP estimate."""
        return bool((self.shape >= 1).all() and self.concentration >= 1)

    def draw(self, n_components: int, rng: np.random.Generator) -> Parameters:
        """Parameters drawn from the prior."""
        logs = _log_gamma(np.tile(self.shape, (n_components, 1)), rng) - np.log(self.rate)
        shares = _log_gamma(np.full(n_components, self.concentration), rng)
        return Parameters(_centred(logs), shares - np.logaddexp.reduce(shares))

    def draw_given(self, sums: SweepSums, here: Parameters, rng: np.random.Generator) -> Parameters:
        """Parameters drawn from their distribution given all that a sweep at `here` has drawn.

        With p the worths at `here` and E the sum of exponentials of all choices that offered item i, the new worth of i
        is Gamma(shape + wins, rate + E); `sums.offers` has p E.
        """
        log_worths = here.log_worths + self._log_scales(here.log_worths, rng)[:, None]
        with np.errstate(divide="ignore"):
            log_rates = np.logaddexp(np.log(self.rate) + log_worths, np.log(sums.offers))
        drawn = log_worths + _log_gamma(self.shape + sums.wins, rng) - log_rates
        shares = _log_gamma(self.concentration + sums.shares, rng)
        return Parameters(_centred(drawn), shares - np.logaddexp.reduce(shares))

    def log_density(self, log_worths: Floats, log_shares: Floats) -> Floats:
        """(...): the log-density, up to a constant, of log-worths (..., K, n) and log-shares (..., K).

        The density is that of worths, not of log-worths: Gamma(1, 1) counts as flat. The scale of each component is the
        one at which the density is highest.
        """
        more = self.shape - 1
        top = log_worths.max(axis=-1, keepdims=True)
        log_totals = np.log((self.rate * np.exp(log_worths - top)).sum(axis=-1)) + top[..., 0]
        of_worths = (more * log_worths).sum(axis=-1) - more.sum() * log_totals
        found: Floats = of_worths.sum(axis=-1)
        if self.concentration != 1:
            found = found + (self.concentration - 1) * log_shares.sum(axis=-1)
        return found

    def em_step(self, sums: EmStatistics, here: Parameters) -> tuple[Parameters, Floats]:
        """The step of EM to the maximum of log-likelihood + `log_density`, and the gradient (K n + K,) at `here`.

        The worth of item i becomes (shape - 1 + wins) / (rate + denominator), from the best scale at `here`. This never
        lowers the sum.

        Examples
        --------
        >>> from plmix_dist.kernels import em_statistics, prepare
        >>> from plmix_dist.rankings import RankingBlock
        >>> prior, here = GammaPrior(np.full(2, 2.0), np.ones(2), 1.0), Parameters(np.zeros((1, 2)), np.zeros(1))
        >>> step, gradient = prior.em_step(em_statistics(RankingBlock.from_array([[0, 1]]), prepare(*here)), here)
        >>> gradient.tolist()  # one win and a half were expected with the prior's, two were won
        [0.5, -0.5, 0.0]
        """
        more, weight = self.shape - 1, sums.shares.sum()
        weights = self.rate * np.exp(here.log_worths - here.log_worths.max(axis=1, keepdims=True))
        wins = sums.wins + more
        expected = sums.expected_wins + more.sum() * weights / weights.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.clip(np.log(wins) - np.log(expected), -_LONGEST_STEP, _LONGEST_STEP)
            shares = sums.shares + (self.concentration - 1)
            log_shares = np.maximum(np.log(shares) - np.log(shares.sum()), _LEAST_LOG_SHARE)
        # An item without wins and offers, under a flat prior, stays where it is.
        there = here.log_worths + np.where(np.isnan(ratio), 0.0, ratio)
        there = np.maximum(there, there.max(axis=1, keepdims=True) - _WIDEST_MODE)
        step = Parameters(_centred(there), log_shares)
        total = weight + len(shares) * (self.concentration - 1)
        return step, np.concatenate([(wins - expected).ravel(), shares - total * np.exp(here.log_shares)])

    def _log_scales(self, log_worths: Floats, rng: np.random.Generator) -> Floats:
        """(n_components,): what log-worths differ by from those of the gamma prior, drawn given the log-worths."""
        top = log_worths.max(axis=1)
        totals = (self.rate * np.exp(log_worths - top[:, None])).sum(axis=1)
        drawn = rng.standard_gamma(self.shape.sum(), len(log_worths))
        found: Floats = np.log(drawn) - np.log(totals) - top
        return found


def _log_gamma(shapes: Floats, rng: np.random.Generator) -> Floats:
    """Logarithms of gamma numbers. Those of small shapes may be too small to be held as numbers."""
    boosted, uniforms = rng.standard_gamma(shapes + 1), 1.0 - rng.random(shapes.shape)
    found: Floats = np.log(boosted) + np.log(uniforms) / shapes
    return found


def _centred(log_worths: Floats) -> Floats:
    found: Floats = log_worths - log_worths.mean(axis=1, keepdims=True)
    return found
