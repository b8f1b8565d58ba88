"""BayesianPlackettLuceMixture: draws from the posterior of a mixture by Gibbs sampling, as an estimator."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self, TypeVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plmix_dist.display.notebook import Sureness, posterior_card
from plmix_dist.display.progress import shown_progress
from plmix_dist.errors import DamagedStoreError, NotConvergedWarning, SettingsError, give_warnings
from plmix_dist.fitting.chains import BayesSettings, Sampled, sample_mixture
from plmix_dist.models import diagnostics
from plmix_dist.models.base import MixtureEstimator
from plmix_dist.models.keywords import OfFit, OfWeights
from plmix_dist.models.predictive_density import Loo, Waic, loo_of, pointwise_of, waic_of
from plmix_dist.passes import Residency, check_memory
from plmix_dist.rankings import Unranked
from plmix_dist.settings import BAYES_INITS, RandomState, check_settings, seed_of, whole_number
from plmix_dist.store import Checkpoint, MixtureParams
from plmix_dist.uncertainty.check_results import FitCheck
from plmix_dist.uncertainty.fit_check import Posterior, check_fit
from plmix_dist.uncertainty.results import Interval, PerParameter, percentiles
from plmix_dist.uncertainty.standard_errors import FittedPoint

R = TypeVar("R")

# Above this a warning says that the chains have not mixed.
_LARGEST_R_HAT = 1.05
# Parameters of reading, of beginning, of progress and of saving.
_NOT_OF_CHAINS = ("init", "unranked", "random_state", "progress", "checkpoint")
_RESULTS = ("n_iter", "converged", "log_likelihood", "dic", "map_log_likelihood", "unranked")


@dataclass(eq=False, repr=False)
class BayesianPlackettLuceMixture(MixtureEstimator):
    """A mixture of Plackett-Luce models, sampled from its posterior (Mollica & Tardella 2017; docs/bayes.md).

    Worths are gamma numbers and shares are Dirichlet, a priori. Ties are exact: every sweep draws an order of tied
    items from its distribution. Rows of a group share one membership. Weights are counts: whole numbers. All
    methods for predictions use the posterior means.

    Parameters
    ----------
    n_components
        The number of components.
    n_chains
        Chains that run side by side, in the same passes over the data.
    n_warmup
        Sweeps of each chain that are dropped.
    n_draws
        Draws that each chain keeps.
    thin
        One of this many sweeps after the warm-up is kept.
    worth_shape
        Shape of the gamma prior of worths: one number, or one per item. With 1, the default, all normalised worths of a
        component are equally probable. Larger numbers pull worths together.
    worth_rate
        Rate of the gamma prior: one number, or one per item. Only ratios matter: an item with shape c and rate d is
        believed to have a worth near c / d. A single number sets the scale of all worths and changes nothing.
    share_concentration
        Of the Dirichlet prior of shares; 1 means that all shares are equally probable.
    init
        Where chains begin: "fit", around a fit by EM; "prior", at draws from the prior; or around a fitted model, the
        path of one, or log-worths (n_components, n_items).
    unranked
        What it means that a row of an array, list or table does not list an item; as in PlackettLuceMixture.
    residency
        "memory", "store" or "auto"; as in PlackettLuceMixture.
    random_state
        Seed of all random numbers; as in PlackettLuceMixture.
    progress
        None, True, or a function that is called with a record of each sweep.
    checkpoint
        A folder or URL in which the chains are saved as they go, or a `Checkpoint`; as in PlackettLuceMixture.

    Attributes
    ----------
    log_worths_ : (n_components, n_items)
    shares_ : (n_components,)
        Posterior means of centred log-worths and of shares. Largest share first.
    item_names_ : (n_items,)
    draws_
        PosteriorDraws, with components relabelled, so that component k means the same in all of them.
    raw_draws_
        PosteriorDraws as the chains made them.
    labels_ : (n_chains, n_draws, n_components)
        Component k of `draws_` is component `labels_[..., k]` of `raw_draws_`.
    diagnostics_
        R-hat and effective sample sizes of all parameters.
    converged_
        Whether no R-hat is above 1.05.
    n_iter_
        Sweeps of each chain.
    map_
        The MAP estimate, as MixtureParams, its components in the order of `draws_`; None if the prior has no mode.
    map_log_likelihood_
        The log-likelihood there.
    map_converged_
        Whether EM has reached the mode; if not, `dic_` is rough.
    log_likelihood_
        Mean over draws.
    dic_
        Deviance information criterion, with the MAP estimate; None without it. Lower is better.
    stages_
        One record per stage: seconds, passes over the rows, and memory.
    unranked_
        What unlisted items meant in the fit.
    about_
        What the draws were made from: "data", the "seed" that was used, "versions", "machine", "finished".

    Examples
    --------
    >>> rankings = [[0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3]] * 20 + [[3, 2, 1, 0], [3, 1, 2, 0], [2, 3, 1, 0]] * 10
    >>> model = BayesianPlackettLuceMixture(2, n_warmup=100, n_draws=400, random_state=1).fit(rankings)
    >>> model.shares_.round(1).tolist()
    [0.7, 0.3]
    >>> lower, upper = model.intervals(0.9).shares
    >>> bool(lower[0] < 0.67 < upper[0])
    True
    """

    _ARRAY_SETTINGS = ("worth_shape", "worth_rate")
    _TASK = "bayes"

    n_components: int = 2
    _: KW_ONLY
    n_chains: int = 4
    n_warmup: int = 500
    n_draws: int = 1000
    thin: int = 1
    worth_shape: ArrayLike = 1.0
    worth_rate: ArrayLike = 1.0
    share_concentration: float = 1.0
    init: Any = "fit"
    unranked: Unranked | None = None
    residency: Residency = "auto"
    random_state: RandomState = None
    progress: Callable[[dict[str, Any]], None] | bool | None = None
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None

    def fit(self, X: Any, y: object = None, **how: Unpack[OfFit]) -> Self:
        """Sample from the posterior. The parameters are those of PlackettLuceMixture.fit.

        Examples
        --------
        >>> model = BayesianPlackettLuceMixture(1, n_warmup=50, n_draws=100, random_state=0)
        >>> model.fit([[0, 1], [1, 0]], sample_weight=[30, 10]).draws_.log_worths.shape
        (4, 100, 1, 2)
        """
        del y
        settings = self._settings()
        reading = self._rankings_to_fit(X, ties=self._ties, feature_names=(), **how)
        with shown_progress(self.progress, 1.0, 1) as progress, reading as (rankings, chosen):
            check_memory(rankings.n_items, settings.n_components, settings.n_chains)
            is_named = isinstance(self.init, str) and self.init in BAYES_INITS
            given, init = None, self.init
            if not is_named:
                given, init = self._given_start(rankings, BAYES_INITS), "given"
                given = given._replace(ghosts=np.zeros_like(given.ghosts))  # chains have none
            kept: Any = {"checkpoint": Checkpoint.of(self.checkpoint), "any_seed": self.random_state is None}
            sampled = sample_mixture(rankings, settings, given, chosen, progress, init=init, **kept)
        self._take(sampled, rankings.item_names)
        self.n_iter_ = settings.gibbs(rankings.n_items).n_sweeps
        self.stages_ = sampled.stages
        self.about_ = sampled.about
        self.unranked_ = self._unranked_of_fit(how.get("unranked"))
        give_warnings([*sampled.warnings, *self._not_mixed()])
        return self

    def intervals(self, level: float = 0.95) -> Interval:
        """Posterior intervals of centred log-worths and shares: between quantiles of the draws.

        Examples
        --------
        >>> rankings = [[0, 1]] * 60 + [[1, 0]] * 40
        >>> model = BayesianPlackettLuceMixture(1, n_warmup=50, n_draws=200, random_state=0).fit(rankings)
        >>> lower, upper = model.intervals(0.9).log_worths
        >>> bool(lower[0, 0] < 0.5 * np.log(60 / 40) < upper[0, 0])
        True
        """
        self._mixture()
        return percentiles(self.draws_.log_worths, self.draws_.shares, level, axis=(0, 1))

    def waic(self, X: Any, *, max_draws: int = 500, **how: Unpack[OfWeights]) -> Waic:
        """The widely applicable information criterion on the rankings of the fit, for persons.

        One pass over the rankings, which costs as much as `max_draws` passes of EM. Memory does not grow with the
        number of draws.

        Parameters
        ----------
        X, sample_weight, unranked, client
            As in `fit`.
        max_draws
            The most draws to use, evenly spaced over all of them.

        Examples
        --------
        >>> rankings = [[0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3]] * 20 + [[3, 2, 1, 0], [3, 1, 2, 0], [2, 3, 1, 0]] * 10
        >>> def waic_of_model(k):
        ...     model = BayesianPlackettLuceMixture(k, n_warmup=100, n_draws=400, random_state=1)
        ...     return model.fit(rankings).waic(rankings, max_draws=100).waic
        >>> waic_of_model(2) < waic_of_model(1)
        True
        """
        return self._over_draws(waic_of, X, max_draws, **how)

    def loo(self, X: Any, *, max_draws: int = 500, **how: Unpack[OfWeights]) -> Loo:
        """Leave-one-out cross-validation on the rankings of the fit, for persons, by Pareto-smoothed weights of draws.

        Costs and parameters are those of `waic`. It says where it cannot be relied on: `n_unreliable`.

        Examples
        --------
        >>> rankings = [[0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3]] * 20 + [[3, 2, 1, 0], [3, 1, 2, 0], [2, 3, 1, 0]] * 10
        >>> model = BayesianPlackettLuceMixture(2, n_warmup=100, n_draws=400, random_state=1).fit(rankings)
        >>> found = model.loo(rankings)
        >>> found.n_persons, found.n_unreliable, bool(abs(found.loo - model.waic(rankings).waic) < 1)
        (90.0, 0.0, True)
        """
        return self._over_draws(loo_of, X, max_draws, **how)

    def check_fit(
        self, X: Any, *, pairs: Any = None, random_state: RandomState = 0, max_draws: int = 300, **how: Any
    ) -> FitCheck:
        """Whether the mixture reproduces first places and pairs of the rankings of its fit (docs/checks.md).

        The check of PlackettLuceMixture at the mode, and the posterior predictive value of the R package PLMIX. With a
        prior that is not flat, or a mode that was not reached, both are conservative.

        Parameters
        ----------
        X, sample_weight, unranked, client, pairs, random_state
            As in `PlackettLuceMixture.check_fit`.
        max_draws
            The most draws to use for the posterior predictive value, evenly spaced over all of them; each costs a copy
            of the rankings. 0 leaves it out.

        Examples
        --------
        >>> rankings = [[0, 1, 2]] * 40 + [[2, 1, 0]] * 40 + [[1, 0, 2]] * 10
        >>> model = BayesianPlackettLuceMixture(1, n_warmup=50, n_draws=100, random_state=0).fit(rankings)
        >>> found = model.check_fit(rankings)
        >>> found.fits, found.posterior_predictive["first places"] < 0.05 < found.posterior_predictive["pairs"]
        (False, True)
        """
        point = FittedPoint(self._mixture(), np.zeros(len(self.shares_)), 0.0, True, self._ties)
        point = point._replace(mixture=self.map_ or point.mixture)
        is_flat = np.all(np.equal(self.worth_shape, 1)) and self.share_concentration == 1
        caution = "" if is_flat and self.map_converged_ else "the prior is not flat, or its mode was not reached"
        log_worths, log_shares = self._thinned(max_draws or 2)
        draws = [MixtureParams(*draw) for draw in zip(log_worths, np.exp(log_shares), strict=True)][:max_draws]
        posterior = Posterior(point, caution, draws)
        return check_fit(self, X, pairs=pairs, seed=seed_of(random_state), posterior=posterior, **how)

    def pointwise_log_likelihood(
        self, X: Any, *, max_draws: int = 500, **how: Unpack[OfWeights]
    ) -> NDArray[np.float64]:
        """(n_draws, n_persons): the log-likelihood of each person (row, or group of rows) for draws of the posterior.

        A row of weight w is w persons and has w columns. The matrix is held in memory, and refused above 1 GB; `waic`
        and `loo` need no matrix.

        Parameters
        ----------
        X, sample_weight, unranked, client
            As in `fit`.
        max_draws
            The most draws to use, evenly spaced over all of them.

        Examples
        --------
        >>> rankings = [[0, 1], [1, 0], [0, 1]]
        >>> model = BayesianPlackettLuceMixture(1, n_warmup=50, n_draws=100, random_state=0).fit(rankings)
        >>> model.pointwise_log_likelihood(rankings, max_draws=40).shape
        (40, 3)
        """
        return self._over_draws(pointwise_of, X, max_draws, **how)

    def to_arviz(self, X: Any = None, **how: Unpack[OfWeights]) -> Any:
        """The relabelled draws for ArviZ, which must be installed: an InferenceData (0.23) or a DataTree (1.x).

        Groups are `posterior` and `sample_stats` and, given the rankings of the fit, `log_likelihood` of persons.

        Parameters
        ----------
        X, sample_weight, unranked, client
            As in `fit`.

        Examples
        --------
        >>> rankings = [[0, 1], [1, 0], [0, 1]]
        >>> model = BayesianPlackettLuceMixture(1, n_warmup=50, n_draws=100, random_state=0).fit(rankings)
        >>> model.to_arviz(rankings)["log_likelihood"]["rankings"].dims  # doctest: +SKIP
        ('chain', 'draw', 'person')
        """
        self._mixture()
        draws = self.draws_
        at_all = partial(self._over_draws, pointwise_of, max_draws=draws.log_likelihood.size, **how)
        by_person = None if X is None else at_all(X).reshape(*draws.log_likelihood.shape, -1)
        return diagnostics.inference_data(
            {"log_worths": draws.log_worths, "shares": draws.shares},
            {"lp": draws.log_posterior, "deviance": -2 * draws.log_likelihood},
            self.item_names_,
            by_person,
        )

    def _over_draws(self, function: Callable[..., R], X: Any, max_draws: int, **how: Unpack[OfWeights]) -> R:
        """A function of passes over rankings and of draws."""
        with self._passes_over(X, **how) as (passes, _):
            return function(passes, *self._thinned(max_draws))

    def _thinned(self, max_draws: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log-worths and log-shares of at most this many draws, evenly spaced over all chains."""
        whole_number("max_draws", max_draws, at_least=2)
        shares = self.draws_.shares.reshape(-1, len(self.shares_))
        if len(shares) < 2:
            raise SettingsError("the variance over draws is needed, but there is 1 draw; raise n_draws")
        used = np.linspace(0, len(shares) - 1, min(max_draws, len(shares))).round().astype(np.intp)
        with np.errstate(divide="ignore"):  # a share may be too small to be held as a number
            log_shares = np.log(shares[used])
        return self.draws_.log_worths.reshape(-1, *self.log_worths_.shape)[used], log_shares

    def _worth_columns(self) -> dict[str, Any]:
        """R-hat beside the means of chains that have not mixed: such means are not to be read alone."""
        if self.converged_:
            return {}
        return {f"R-hat {number}": line for number, line in enumerate(self.diagnostics_.r_hat.log_worths)}

    def _record(self) -> dict[str, Any]:
        return {
            "settings": self._plain_settings() | {"ties": self._ties},
            "fit": {name: getattr(self, f"{name}_") for name in (*_RESULTS, "map_converged")},
            "about": self.about_,
            "bayes": {"stages": self.stages_, "largest_r_hat": self.diagnostics_.largest_r_hat},
        }

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {f"draws_{name}": value for name, value in self.raw_draws_._asdict().items()}
        arrays["draws_labels"] = self.labels_.astype(np.float64)
        if self.map_ is not None:
            arrays |= {"map_log_worths": self.map_.log_worths, "map_shares": self.map_.shares}
        return arrays

    @classmethod
    def _restored(cls, mixture: MixtureParams, record: dict[str, Any], arrays: dict[str, Any], where: str) -> Self:
        if "draws_log_worths" not in arrays:
            raise SettingsError(f"the model at {where} has no draws; load it with PlackettLuceMixture.load")
        try:
            model = cls._unfitted(mixture, record["settings"])
            raw = diagnostics.PosteriorDraws(*(arrays[f"draws_{name}"] for name in diagnostics.PosteriorDraws._fields))
            model._set_draws(raw, arrays["draws_labels"].astype(np.int64))
            for name in _RESULTS:
                setattr(model, f"{name}_", record["fit"][name])
            model.map_converged_ = record["fit"].get("map_converged")  # the first folders lack it
            model.stages_ = record["bayes"]["stages"]
            model.about_ = dict(record.get("about", {}))  # the first folders lack it
            model.map_ = None
            if "map_shares" in arrays:
                model.map_ = MixtureParams(arrays["map_log_worths"], arrays["map_shares"], mixture.item_names)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DamagedStoreError(
                f"the model at {where} cannot be read: {type(error).__name__}: {error}; fit and save it again"
            ) from None
        return model

    def _sureness(self, X: Any, given: Any, how: Any) -> Sureness:
        """Standard deviations and intervals of the draws."""
        if any(one is not None for one in (X, given, *how.values())):
            raise SettingsError("draws of a posterior have their own errors; leave out X and standard_errors")
        parts = self.draws_.log_worths, self.draws_.shares
        return Sureness("deviation", PerParameter(*(part.std(axis=(0, 1), ddof=1) for part in parts)), self.intervals())

    def _card(self) -> str | None:
        return posterior_card(self) if hasattr(self, "draws_") else None

    @property
    def _ties(self) -> str:
        return "marginal"

    def _settings(self) -> BayesSettings:
        check_settings("bayes", {"progress": self.progress})
        used = {name: value for name, value in self.get_params(deep=False).items() if name not in _NOT_OF_CHAINS}
        return BayesSettings(**used, seed=seed_of(self.random_state))

    def _take(self, sampled: Sampled, item_names: tuple[str, ...]) -> None:
        draws = sampled.draws
        raw = diagnostics.PosteriorDraws(
            draws.log_worths, np.exp(draws.log_shares), draws.log_likelihood, sampled.log_posterior
        )
        self._set_draws(raw, sampled.labels)
        log_worths, shares = self.draws_.log_worths.mean(axis=(0, 1)), self.draws_.shares.mean(axis=(0, 1))
        self._set_mixture(MixtureParams(log_worths, shares / shares.sum(), item_names))
        self.log_likelihood_ = float(draws.log_likelihood.mean())
        self.map_: MixtureParams | None = None
        self.map_log_likelihood_: float | None = None
        self.map_converged_: bool | None = None
        self.dic_: float | None = None
        if sampled.mode is not None:
            (worths, logs), self.map_log_likelihood_ = sampled.mode.parameters, sampled.mode.log_likelihood
            self.map_converged_ = sampled.mode.converged
            self.map_ = MixtureParams(worths, np.exp(logs) / np.exp(logs).sum(), item_names)
            self.dic_ = 2 * (-2 * self.log_likelihood_) - (-2 * self.map_log_likelihood_)
        # R-hat of too few draws is NaN, which counts as not converged.
        self.converged_ = self.diagnostics_.largest_r_hat <= _LARGEST_R_HAT

    def _set_draws(self, raw: diagnostics.PosteriorDraws, labels: NDArray[np.int64]) -> None:
        self.raw_draws_, self.labels_ = raw, labels
        self.draws_ = raw._replace(
            log_worths=np.take_along_axis(raw.log_worths, labels[..., None], axis=2),
            shares=np.take_along_axis(raw.shares, labels, axis=2),
        )
        parts = self.draws_.log_worths, self.draws_.shares
        looks = diagnostics.r_hat, diagnostics.bulk_ess, diagnostics.tail_ess
        self.diagnostics_ = diagnostics.Diagnostics(*(PerParameter(*map(look, parts)) for look in looks))

    def _not_mixed(self) -> list[Warning]:
        """A warning if R-hat is too large, or not known."""
        if self.converged_:
            return []
        largest = self.diagnostics_.largest_r_hat
        found = "there are too few draws to tell" if np.isnan(largest) else f"the largest R-hat is {largest:.3g}"
        words = (
            f"the chains have not mixed: {found}, where at most {_LARGEST_R_HAT} is wanted. Raise n_warmup and "
            "n_draws; if R-hat stays high, chains have found different optima, or there are too many components"
        )
        return [NotConvergedWarning(words)]
