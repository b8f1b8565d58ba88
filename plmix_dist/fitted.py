"""MixtureEstimator: what every fitted mixture offers: memberships, likelihoods, criteria, samples."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator

from plmix_dist.choices.for_people import TableMethods
from plmix_dist.choices.methods import PredictionMethods
from plmix_dist.choices.ranking_methods import RankingMethods
from plmix_dist.choices.transform_methods import TransformMethods
from plmix_dist.data import Rankings, as_rankings
from plmix_dist.engine.by_row import rows_lazily, rows_now
from plmix_dist.engine.clients import client_of
from plmix_dist.engine.passes import make_passes
from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.kernels import row_posteriors
from plmix_dist.mixture import MixtureParams
from plmix_dist.posteriors import (
    check_columns,
    components_of,
    log_likelihoods_of,
    prepared_of,
    probabilities_of,
    with_own_shares,
)
from plmix_dist.rankings.groups import membership_weight
from plmix_dist.rankings.person_shares import with_person_shares
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.values import seed_of, whole_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.engine.by_row import RowFunction
    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.kernels import Prepared
    from plmix_dist.rankings import RankingBlock, Unranked
    from plmix_dist.values import RandomState


class MixtureEstimator(
    PredictionMethods,
    RankingMethods,
    TableMethods,
    TransformMethods,
    BaseEstimator,  # type: ignore[misc]
):
    """The base class of estimators of a mixture. After `fit` they have `log_worths_`, `shares_` and `item_names_`.

    X, `unranked`, `client` and `membership_covariates` are as in PlackettLuceMixture.fit. All other methods remember
    what `unranked` was in the fit, unless they are told otherwise. Item names are looked up in `item_names_`; an
    unknown name is an error.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture, SpectralPlackettLuce
    >>> issubclass(PlackettLuceMixture, MixtureEstimator), issubclass(SpectralPlackettLuce, MixtureEstimator)
    (True, True)
    """

    @abstractmethod
    def fit(
        self,
        X: Any,
        y: object = None,
        *,
        sample_weight: ArrayLike | None = None,
        n_items: int | None = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
    ) -> Self:
        """Fit the mixture; every estimator has its own way."""

    def predict_proba(
        self,
        X: Any,
        *,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """(n_rankings, n_components): the probability of each component for each ranking.

        The result is a NumPy array for rows in memory. For stores and Dask arrays it is a lazy Dask array, which is
        computed where Dask computes it: `client` is then not used.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
        >>> model = PlackettLuceMixture(n_components=2, random_state=1).fit(rankings)
        >>> model.predict_proba([[0, 1, 2]]).round(1).tolist()
        [[1.0, 0.0]]
        """
        function = probabilities_of(self._mixture(), self._ties)
        return self._by_person(X, unranked, client, function, membership_covariates)

    def predict(
        self,
        X: Any,
        *,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """(n_rankings,): the most probable component of each ranking. Lazy as for `predict_proba`.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
        >>> model = PlackettLuceMixture(n_components=2, random_state=1).fit(rankings)
        >>> model.predict([[0, 1, 2], [2, 1, 0]]).tolist()
        [0, 1]
        """
        function = components_of(self._mixture(), self._ties)
        return self._by_person(X, unranked, client, function, membership_covariates)

    def fit_predict(self, X: Any, y: object = None, **options: Any) -> Any:
        """Fit, then predict the same rankings. The options are those of `fit`.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> PlackettLuceMixture(2, random_state=1).fit_predict([[0, 1, 2]] * 3 + [[2, 1, 0]]).tolist()
        [0, 0, 0, 1]
        """
        covariates = options.get("membership_covariates")
        return self.fit(X, y, **options).predict(
            X, client=options.get("client"), membership_covariates=covariates
        )

    def score_samples(
        self,
        X: Any,
        *,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """(n_rankings,): the log-likelihood of each ranking. Lazy as for `predict_proba`.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
        >>> model = PlackettLuceMixture(n_components=2, random_state=1).fit(rankings)
        >>> np.exp(model.score_samples([[0, 1, 2], [2, 1, 0]])).round(1).tolist()
        [0.7, 0.2]
        """
        function = log_likelihoods_of(self._mixture(), self._ties)
        return self._by_person(X, unranked, client, function, membership_covariates)

    def score(
        self,
        X: Any,
        y: object = None,
        *,
        sample_weight: ArrayLike | None = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> float:
        """The log-likelihood divided by total weight.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
        >>> model = PlackettLuceMixture(n_components=2, random_state=1).fit(rankings)
        >>> round(model.score(rankings), 1)
        -0.7
        """
        del y
        total = self._total_score(X, sample_weight, unranked, client, membership_covariates)
        return float(total.log_likelihood / total.weight)

    def bic(
        self,
        X: Any,
        *,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> float:
        """Bayesian information criterion on these rankings; lower is better.

        It is d log(w) - 2 log-likelihood, where w is the total weight (with groups, the number of persons). Free
        parameters are d = K (n_items - 1) log-worths and, unless `shares` are fixed, K - 1 shares, where K is the
        number of components that are left. Shares that depend on covariates have K - 1 coefficients per column, and
        K - 1 intercepts. Every item of the model counts, even one that was never on offer.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
        >>> model = PlackettLuceMixture(n_components=2, random_state=1).fit(rankings)
        >>> one = PlackettLuceMixture(n_components=1, random_state=1).fit(rankings)
        >>> model.bic(rankings) < one.bic(rankings)
        True
        """
        total = self._total_score(X, None, unranked, client, membership_covariates)
        return float(self._n_parameters() * np.log(total.weight) - 2 * total.log_likelihood)

    def aic(
        self,
        X: Any,
        *,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> float:
        """Akaike information criterion on these rankings; lower is better.

        It is 2 d - 2 log-likelihood, with d as for `bic`.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
        >>> model = PlackettLuceMixture(n_components=2, random_state=1).fit(rankings)
        >>> one = PlackettLuceMixture(n_components=1, random_state=1).fit(rankings)
        >>> model.aic(rankings) < one.aic(rankings)
        True
        """
        total = self._total_score(X, None, unranked, client, membership_covariates)
        return float(2 * (self._n_parameters() - total.log_likelihood))

    def sample(
        self, n: int = 1, random_state: RandomState = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Full rankings (n, n_items) drawn from the mixture, and the component (n,) of each.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
        >>> model = PlackettLuceMixture(n_components=2, random_state=1).fit(rankings)
        >>> drawn, component = model.sample(5, random_state=0)
        >>> drawn.shape, component.shape
        ((5, 3), (5,))
        """
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
        """Log-worths are free up to a constant per component; shares that are not fixed sum to one."""
        mixture, coefficients = self._mixture(), self._coefficients
        n_shares = mixture.n_components - 1 if getattr(self, "shares", None) is None else 0
        n_per_component = 1 if coefficients is None else coefficients.shape[1]
        return mixture.n_components * (mixture.n_items - 1) + n_shares * n_per_component

    @property
    def _coefficients(self) -> NDArray[np.float64] | None:
        """(n_components, n_columns + 1): what shares depend on; None if all persons have the same shares."""
        return getattr(self, "share_coefficients_", None)

    @property
    def _ties(self) -> str:
        """How ties are treated: as the settings say, or else as in PlackettLuceMixture."""
        return str(getattr(self, "ties", "expand"))

    def _rankings(
        self,
        X: Any,
        unranked: Unranked | None,
        sample_weight: ArrayLike | None = None,
        *,
        ties: str = "marginal",
        covariates: ArrayLike | None = None,
    ) -> Rankings:
        """The rankings; row functions treat ties themselves, so that results are per ranking."""
        return as_rankings(
            X,
            unranked=unranked,
            default_unranked=getattr(self, "unranked_", None),
            sample_weight=sample_weight,
            item_names=self._mixture().item_names,
            ties=ties,
            covariates=covariates,
        )

    def _by_row(self, X: Any, unranked: Unranked | None, client: ClientLike, function: RowFunction) -> Any:
        return _rows_of(self._rankings(X, unranked), function, client)

    def _by_person(
        self,
        X: Any,
        unranked: Unranked | None,
        client: ClientLike,
        function: RowFunction,
        covariates: ArrayLike | None,
    ) -> Any:
        """The same, with each person's own shares if shares depend on covariates."""
        rankings = self._rankings(X, unranked, covariates=covariates)
        coefficients = check_columns(self._coefficients, rankings.covariates)
        if coefficients is not None:
            function = with_own_shares(function, coefficients)
        return _rows_of(rankings, function, client)

    def _total_score(
        self,
        X: Any,
        sample_weight: ArrayLike | None,
        unranked: Unranked | None,
        client: ClientLike,
        covariates: ArrayLike | None = None,
    ) -> _Score:
        mixture = self._mixture()
        rankings = self._rankings(X, unranked, sample_weight, ties=self._ties, covariates=covariates)
        coefficients = check_columns(self._coefficients, rankings.covariates)
        with client_of(client) as chosen:
            passes = make_passes(rankings, chosen, "store")
            (answer,) = passes.run([Request(_SCORE, (mixture.log_worths, mixture.log_shares, coefficients))])
            passes.release()
        if answer.error is not None:
            raise answer.error
        (total,) = answer.results
        assert isinstance(total, _Score)
        return total


class _Score(NamedTuple):
    """Sums over rows: log-likelihood and weight (with groups, persons), both of shape ()."""

    log_likelihood: NDArray[np.float64]
    weight: NDArray[np.float64]


def _rows_of(rankings: Rankings, function: RowFunction, client: ClientLike) -> Any:
    return rows_lazily(rankings, function) if rankings.is_lazy else rows_now(rankings, function, client)


class _ScoreParams(NamedTuple):
    """Parameters for kernels, and coefficients of shares if they depend on covariates."""

    prepared: Prepared
    coefficients: NDArray[np.float64] | None


def _prepare_score(params: Any) -> _ScoreParams:
    return _ScoreParams(prepared_of(params[:2]), params[2])


def _score_leaf(number: int, block: RankingBlock, params: _ScoreParams) -> _Score:
    """Log-likelihood and weight of one leaf."""
    del number
    if params.coefficients is not None:
        block = with_person_shares(block, params.coefficients)
    log_likelihood, _ = row_posteriors(block, params.prepared)
    total = np.array((block.row_weights * log_likelihood).sum())
    return _Score(total, np.array(membership_weight(block)))


_SCORE = Aggregation("score", leaf=_score_leaf, prepare=_prepare_score)
