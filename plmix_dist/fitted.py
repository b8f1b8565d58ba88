"""MixtureEstimator: what every fitted mixture can do - memberships, likelihoods, criteria, samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator

from plmix_dist.data import Rankings, as_rankings
from plmix_dist.engine.by_row import rows_lazily, rows_now
from plmix_dist.engine.passes import make_passes
from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.kernels import row_posteriors
from plmix_dist.mixture import MixtureParams
from plmix_dist.posteriors import components_of, log_likelihoods_of, prepared_of, probabilities_of
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.values import seed_of, whole_number

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.engine.by_row import RowFunction
    from plmix_dist.kernels import Prepared
    from plmix_dist.rankings import RankingBlock, Unranked
    from plmix_dist.values import RandomState


class MixtureEstimator(BaseEstimator):  # type: ignore[misc]
    """The base of estimators that end with a mixture: `log_worths_`, `shares_` and `item_names_`."""

    def fit(
        self,
        X: Any,
        y: object = None,
        *,
        sample_weight: ArrayLike | None = None,
        n_items: int | None = None,
        unranked: Unranked | None = None,
        client: Client | None = None,
    ) -> Self:
        """Fit the mixture."""
        raise NotImplementedError

    def predict_proba(self, X: Any, *, unranked: Unranked | None = None) -> Any:
        """(n_rankings, n_components): the probability of each component for each ranking.

        NumPy for arrays and blocks; a lazy Dask array for stores and Dask arrays.
        """
        return self._by_row(X, unranked, probabilities_of(self._mixture()))

    def predict(self, X: Any, *, unranked: Unranked | None = None) -> Any:
        """(n_rankings,): the most probable component of each ranking."""
        return self._by_row(X, unranked, components_of(self._mixture()))

    def fit_predict(self, X: Any, y: object = None, **options: Any) -> Any:
        """Fit, then predict the same rankings."""
        return self.fit(X, y, **options).predict(X, unranked=options.get("unranked"))

    def score_samples(self, X: Any, *, unranked: Unranked | None = None) -> Any:
        """(n_rankings,): the log-likelihood of each ranking."""
        return self._by_row(X, unranked, log_likelihoods_of(self._mixture()))

    def score(
        self,
        X: Any,
        y: object = None,
        *,
        sample_weight: ArrayLike | None = None,
        unranked: Unranked | None = None,
        client: Client | None = None,
    ) -> float:
        """The mean log-likelihood per unit of weight."""
        del y
        total = self._total_score(X, sample_weight, unranked, client)
        return float(total.log_likelihood / total.weight)

    def bic(self, X: Any, *, unranked: Unranked | None = None, client: Client | None = None) -> float:
        """Bayesian information criterion on these rankings: the lower the better."""
        total = self._total_score(X, None, unranked, client)
        return float(self._n_parameters() * np.log(total.weight) - 2 * total.log_likelihood)

    def aic(self, X: Any, *, unranked: Unranked | None = None, client: Client | None = None) -> float:
        """Akaike information criterion on these rankings: the lower the better."""
        return float(2 * (self._n_parameters() - self._total_score(X, None, unranked, client).log_likelihood))

    def sample(
        self, n: int = 1, random_state: RandomState = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Full rankings (n, n_items) drawn from the mixture, and the component (n,) of each."""
        mixture = self._mixture()
        whole_number("n", n, at_least=1)
        rng = generator(seed_of(random_state), "sample")
        block, component = draw_rankings(mixture.log_worths, mixture.shares, n, rng)
        return block.to_array(), component

    def _set_mixture(self, mixture: MixtureParams) -> None:
        self.log_worths_ = mixture.log_worths
        self.shares_ = mixture.shares
        self.item_names_ = mixture.item_names

    def _mixture(self) -> MixtureParams:
        if not hasattr(self, "log_worths_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")
        return MixtureParams(self.log_worths_, self.shares_, self.item_names_)

    def _n_parameters(self) -> int:
        mixture = self._mixture()
        return mixture.n_components * (mixture.n_items - 1) + mixture.n_components - 1

    def _rankings(
        self, X: Any, unranked: Unranked | None, sample_weight: ArrayLike | None = None
    ) -> Rankings:
        names = self._mixture().item_names
        return as_rankings(X, unranked=unranked, sample_weight=sample_weight, item_names=names)

    def _by_row(self, X: Any, unranked: Unranked | None, function: RowFunction) -> Any:
        rankings = self._rankings(X, unranked)
        return rows_lazily(rankings, function) if rankings.is_lazy else rows_now(rankings, function)

    def _total_score(
        self, X: Any, sample_weight: ArrayLike | None, unranked: Unranked | None, client: Client | None
    ) -> Score:
        mixture = self._mixture()
        passes = make_passes(self._rankings(X, unranked, sample_weight), client, "store")
        (answer,) = passes.run([Request(SCORE, (mixture.log_worths, mixture.log_shares))])
        passes.release()
        if answer.error is not None:
            raise answer.error
        (total,) = answer.results
        assert isinstance(total, Score)
        return total


class Score(NamedTuple):
    """Sums over rows: log-likelihood and weight."""

    log_likelihood: NDArray[np.float64]
    weight: NDArray[np.float64]


def score_leaf(number: int, block: RankingBlock, params: Prepared) -> Score:
    """The score of one leaf."""
    del number
    log_likelihood, _ = row_posteriors(block, params)
    weights = block.row_weights
    return Score(np.array((weights * log_likelihood).sum()), np.array(weights.sum()))


SCORE = Aggregation("score", leaf=score_leaf, prepare=prepared_of)
