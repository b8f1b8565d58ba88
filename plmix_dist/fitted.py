"""MixtureEstimator: what every fitted mixture can do - memberships, likelihoods, criteria, samples."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator

from plmix_dist.data import Rankings, as_rankings
from plmix_dist.engine.request import Aggregation
from plmix_dist.engine.lazy import lazy_rows
from plmix_dist.engine.passes import make_passes
from plmix_dist.kernels import Prepared, prepare, row_posteriors
from plmix_dist.mixture import MixtureParams
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.simulate import draw_rankings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distributed import Client
    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.rankings import RankingBlock, Unranked


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
        return self._by_row(X, unranked, _probabilities, self._mixture().n_components)

    def predict(self, X: Any, *, unranked: Unranked | None = None) -> Any:
        """(n_rankings,): the most probable component of each ranking."""
        return self._by_row(X, unranked, _most_probable, None)

    def fit_predict(self, X: Any, y: object = None, **options: Any) -> Any:
        """Fit, then predict the same rankings."""
        return self.fit(X, y, **options).predict(X, unranked=options.get("unranked"))

    def score_samples(self, X: Any, *, unranked: Unranked | None = None) -> Any:
        """(n_rankings,): the log-likelihood of each ranking."""
        return self._by_row(X, unranked, _log_likelihoods, None)

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
        self, n: int = 1, random_state: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Full rankings (n, n_items) drawn from the mixture, and the component (n,) of each."""
        mixture = self._mixture()
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

    def _by_row(
        self, X: Any, unranked: Unranked | None, function: Callable[..., Any], n_columns: int | None
    ) -> Any:
        rankings = self._rankings(X, unranked)
        mixture = self._mixture()
        with np.errstate(divide="ignore"):  # a component may have no share
            params = (mixture.log_worths, np.log(mixture.shares))
        if not rankings.is_lazy:
            prepared = prepare(*params)
            return np.concatenate([function(block, prepared) for block in rankings.iter_leaves()])
        dtype = np.int64 if function is _most_probable else np.float64
        return lazy_rows(rankings, partial(_prepared_first, function, params), n_columns, dtype)

    def _total_score(
        self, X: Any, sample_weight: ArrayLike | None, unranked: Unranked | None, client: Client | None
    ) -> Score:
        rankings = self._rankings(X, unranked, sample_weight)
        mixture = self._mixture()
        passes = make_passes(rankings, client, "store")
        with np.errstate(divide="ignore"):
            params = (mixture.log_worths, np.log(mixture.shares))
        (total,) = passes.run(SCORE, params, [("total", _whole)]).results
        passes.release()
        assert isinstance(total, Score)
        return total


class Score(NamedTuple):
    """Sums over rows: log-likelihood and weight."""

    log_likelihood: NDArray[np.float64]
    weight: NDArray[np.float64]


def score_leaf(block: RankingBlock, params: Prepared) -> Score:
    """The score of one leaf."""
    log_likelihood, _ = row_posteriors(block, params)
    weights = np.ones(block.n_rankings) if block.weights is None else block.weights
    return Score(np.array((weights * log_likelihood).sum()), np.array(weights.sum()))


def _prepare_score(params: Sequence[NDArray[np.float64]]) -> Prepared:
    return prepare(params[0], params[1])


def _whole(total: Score) -> Score:
    return total


SCORE = Aggregation("score", leaf=score_leaf, prepare=_prepare_score)


def _probabilities(block: RankingBlock, params: Prepared) -> NDArray[np.float64]:
    return row_posteriors(block, params)[1]


def _most_probable(block: RankingBlock, params: Prepared) -> NDArray[np.int64]:
    most: NDArray[np.int64] = np.argmax(row_posteriors(block, params)[1], axis=1)
    return most


def _log_likelihoods(block: RankingBlock, params: Prepared) -> NDArray[np.float64]:
    return row_posteriors(block, params)[0]


def _prepared_first(
    function: Callable[..., Any], params: Sequence[NDArray[np.float64]], blocks: Sequence[RankingBlock]
) -> NDArray[Any]:
    """A row function over several blocks, the parameters prepared once."""
    prepared = prepare(params[0], params[1])
    return np.concatenate([function(block, prepared) for block in blocks])


def seed_of(random_state: int | None) -> int:
    """A seed; fresh entropy where none is given."""
    if random_state is None:
        return int(np.random.SeedSequence().entropy) % (1 << 63)  # type: ignore[arg-type]
    return int(random_state)
