"""Calibration: bins of predicted probabilities, and how often what was predicted came true."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.passes import Aggregation
from plmix_dist.prediction.choices import choice_probabilities, table_of
from plmix_dist.prediction.given_rows import row_places
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.groups import log_shares_at


class Calibration(NamedTuple):
    """Sums over predicted events, by the bin of their probability. Bins have equal width.

    Parameters
    ----------
    weight : (n_bins,)
        The weight of the events in each bin.
    predicted, observed : (n_bins,)
        The sum of their probabilities, and the weight of those that came true.
    squares : (n_bins,)
        The sum of weight times squared difference of probability and outcome.
    log_loss : (2,)
        The sum of minus the logarithm of the probability of what came true, and the weight of these cases.

    Examples
    --------
    >>> found = binned(np.array([[0.75, 0.25]] * 4), np.array([0, 0, 0, 1]), n_bins=2)
    >>> found.frequency.tolist(), found.mean_predicted.tolist(), found.error
    ([0.25, 0.75], [0.25, 0.75], 0.0)
    """

    weight: Floats
    predicted: Floats
    observed: Floats
    squares: Floats
    log_loss: Floats

    @property
    def mean_predicted(self) -> Floats:
        """(n_bins,): the mean probability in each bin; NaN for an empty bin."""
        return _ratio(self.predicted, self.weight)

    @property
    def frequency(self) -> Floats:
        """(n_bins,): the portion that came true in each bin; NaN for an empty bin."""
        return _ratio(self.observed, self.weight)

    @property
    def error(self) -> float:
        """The mean absolute difference of frequency and mean probability, bins by their weight."""
        return float(np.abs(self.observed - self.predicted).sum() / self.weight.sum())

    @property
    def brier(self) -> float:
        """The mean over cases of the sum over events of squared differences (Brier 1950)."""
        return float(self.squares.sum() / self.log_loss[1])

    @property
    def mean_log_loss(self) -> float:
        """The mean over cases of minus the logarithm of the probability of what came true."""
        return float(self.log_loss[0] / self.log_loss[1])

    def table(self, kind: str = "auto") -> Any:
        """One row per bin: its bounds, weight, mean probability, frequency.

        Examples
        --------
        >>> found = binned(np.array([[0.75, 0.25]] * 4), np.array([0, 0, 0, 1]), n_bins=2)
        >>> found.table("dict")["frequency"].tolist()
        [0.25, 0.75]
        """
        edges = np.linspace(0.0, 1.0, len(self.weight) + 1)
        bins = {"from": edges[:-1], "to": edges[1:], "weight": self.weight}
        return table_of(bins | {"predicted": self.mean_predicted, "frequency": self.frequency}, kind)


def binned(
    probabilities: Floats,
    outcomes: NDArray[np.int64],
    *,
    weights: Floats | None = None,
    possible: NDArray[np.bool_] | None = None,
    n_bins: int = 10,
) -> Calibration:
    """Events "case r has outcome j", each with its predicted probability, in bins.

    `probabilities` are (n_cases, n_outcomes); `outcomes` (n_cases,) came true; outcomes that are not `possible`
    (n_cases, n_outcomes), because they were not on offer, are not events.

    Examples
    --------
    >>> binned(np.array([[0.9, 0.1]]), np.array([0]), n_bins=2).observed.tolist()
    [0.0, 1.0]
    """
    events = np.ones(probabilities.shape, np.bool_) if possible is None else possible
    of_case = np.ones(len(probabilities)) if weights is None else weights
    came_true = np.zeros(probabilities.shape)
    cases = np.arange(len(probabilities))
    came_true[cases, outcomes] = 1.0
    bins = np.minimum((probabilities * n_bins).astype(np.int64), n_bins - 1)[events]
    weight = np.broadcast_to(of_case[:, None], probabilities.shape)[events]
    summed = np.ones(probabilities.shape), probabilities, came_true, (probabilities - came_true) ** 2
    totals = [np.bincount(bins, weight * values[events], n_bins).astype(np.float64) for values in summed]
    with np.errstate(divide="ignore"):
        losses = -np.log(probabilities[cases, outcomes])
    return Calibration._make([*totals, np.array([(of_case * losses)[of_case > 0].sum(), of_case.sum()])])


def _first_choices(_number: int, block: RankingBlock, params: Any) -> Calibration:
    """The first choices of one leaf. Rows without a single first item, or with nothing else on offer, do not count."""
    mixture, coefficients, n_bins = params
    shares = np.broadcast_to(mixture.shares, (block.n_rankings, mixture.n_components))
    if coefficients is not None:
        assert block.covariates is not None, "shares of persons need covariates"
        shares = np.exp(log_shares_at(block.covariates, coefficients))
    places = row_places(block)
    offered = places.place >= 0
    first = (places.place == 0) & ~places.is_open & (places.size == 1)
    rows = np.flatnonzero(first.any(axis=1) & (offered.sum(axis=1) > 1))
    offered = offered[rows]
    probabilities = np.zeros(offered.shape)
    for share, logs in zip(shares[rows].T, mixture.log_worths, strict=True):
        probabilities += share[:, None] * choice_probabilities(logs[None], offered)[0]
    outcomes = first[rows].argmax(axis=1)
    return binned(probabilities, outcomes, weights=block.row_weights[rows], possible=offered, n_bins=n_bins)


FIRST_CHOICES = Aggregation("first-choices", leaf=_first_choices)


def _ratio(sums: Floats, weight: Floats) -> Floats:
    return np.where(weight > 0, sums / np.where(weight > 0, weight, 1.0), np.nan)
