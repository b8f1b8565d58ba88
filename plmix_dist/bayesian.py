"""BayesianPlackettLuceMixture: draws from the posterior of a mixture by Gibbs sampling, as an estimator."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from plmix_dist.bayes.arviz_data import inference_data
from plmix_dist.bayes.diagnostics import bulk_ess, r_hat, tail_ess
from plmix_dist.bayes.sampler import sample_mixture
from plmix_dist.bayes.settings import BayesSettings
from plmix_dist.bayes.waic import waic_of
from plmix_dist.data import as_rankings, first_difference
from plmix_dist.display.notebook import NotebookView, posterior_card
from plmix_dist.engine.clients import client_of
from plmix_dist.engine.memory_needed import check_memory
from plmix_dist.engine.passes import make_passes
from plmix_dist.errors import DamagedStoreError, NotConvergedWarning, SettingsError
from plmix_dist.fitted import MixtureEstimator
from plmix_dist.inference.point import Point
from plmix_dist.mixture import MixtureParams, load_with
from plmix_dist.progress import shown_progress
from plmix_dist.store.checkpoints import Checkpoint
from plmix_dist.store.location import Location
from plmix_dist.store.targets import check_target
from plmix_dist.uncertainty.results import Interval, checked_level
from plmix_dist.values import nearest, numbers, seed_of, shown, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.bayes.sampler import Sampled
    from plmix_dist.bayes.waic import Waic
    from plmix_dist.data import Rankings
    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.engine.residency import Residency
    from plmix_dist.rankings import Unranked
    from plmix_dist.values import RandomState

    Table = NDArray[np.float64]

_INITS = ("fit", "prior")
# Above this a warning says that the chains have not mixed.
_LARGEST_R_HAT = 1.05
_RESULTS = ("n_iter", "converged", "log_likelihood", "dic", "map_log_likelihood", "unranked")


class PosteriorDraws(NamedTuple):
    """Draws from the posterior.

    Parameters
    ----------
    log_worths : (n_chains, n_draws, n_components, n_items)
        Centred.
    shares : (n_chains, n_draws, n_components)
    log_likelihood, log_posterior : (n_chains, n_draws)
        The log-posterior is up to a constant.
    """

    log_worths: Table
    shares: Table
    log_likelihood: Table
    log_posterior: Table


class Diagnostic(NamedTuple):
    """One number per parameter: of log-worths (n_components, n_items) and of shares (n_components,)."""

    log_worths: Table
    shares: Table


class Diagnostics(NamedTuple):
    """How well the chains have mixed: R-hat; effective sample sizes for means (bulk) and for 90 % intervals (tail)."""

    r_hat: Diagnostic
    bulk_ess: Diagnostic
    tail_ess: Diagnostic

    @property
    def largest_r_hat(self) -> float:
        """The largest R-hat; NaN if there are fewer than 4 draws per chain."""
        return float(np.max(np.append(self.r_hat.log_worths.ravel(), self.r_hat.shares)))

    @property
    def least_ess(self) -> float:
        """The least effective sample size, bulk or tail."""
        every = (self.bulk_ess, self.tail_ess)
        return float(np.min([part.min() for diagnostic in every for part in diagnostic]))


class BayesianPlackettLuceMixture(NotebookView, MixtureEstimator):
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
        One of so many sweeps after the warm-up is kept.
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
        What unlisted items meant in the fit, for arrays.

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

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_chains: int = 4,
        n_warmup: int = 500,
        n_draws: int = 1000,
        thin: int = 1,
        worth_shape: ArrayLike = 1.0,
        worth_rate: ArrayLike = 1.0,
        share_concentration: float = 1.0,
        init: Any = "fit",
        unranked: Unranked | None = None,
        residency: Residency = "auto",
        random_state: RandomState = None,
        progress: Callable[[dict[str, Any]], None] | bool | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_chains = n_chains
        self.n_warmup = n_warmup
        self.n_draws = n_draws
        self.thin = thin
        self.worth_shape = worth_shape
        self.worth_rate = worth_rate
        self.share_concentration = share_concentration
        self.init = init
        self.unranked = unranked
        self.residency = residency
        self.random_state = random_state
        self.progress = progress
        self.checkpoint = checkpoint

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
        """Sample from the posterior. The parameters are those of PlackettLuceMixture.fit.

        Examples
        --------
        >>> model = BayesianPlackettLuceMixture(1, n_warmup=50, n_draws=100, random_state=0)
        >>> model.fit([[0, 1], [1, 0]], sample_weight=[30, 10]).draws_.log_worths.shape
        (4, 100, 1, 2)
        """
        del y
        settings = self._settings()
        with shown_progress(self.progress, 1.0, 1) as progress, client_of(client) as chosen:
            rankings = as_rankings(
                X,
                n_items=n_items,
                unranked=unranked,
                default_unranked=self.unranked,
                sample_weight=sample_weight,
                client=chosen,
                ties=self._ties,
            )
            check_memory(rankings.n_items, settings.n_components, settings.n_chains)
            given, init = self._start(rankings)
            sampled = sample_mixture(
                rankings,
                settings,
                given,
                chosen,
                progress,
                init=init,
                checkpoint=Checkpoint.of(self.checkpoint),
                any_seed=self.random_state is None,
            )
        self._take(sampled, rankings.item_names)
        self.n_iter_ = settings.gibbs(rankings.n_items).n_sweeps
        self.stages_ = sampled.stages
        self.unranked_ = unranked or self.unranked
        self._warn_if_not_mixed()
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
        tail = (1 - checked_level(level)) / 2
        worths, shares = (
            np.quantile(part, [tail, 1 - tail], axis=(0, 1))
            for part in (self.draws_.log_worths, self.draws_.shares)
        )
        return Interval((worths[0], worths[1]), (shares[0], shares[1]))

    def waic(
        self,
        X: Any,
        *,
        max_draws: int = 500,
        sample_weight: ArrayLike | None = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
    ) -> Waic:
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
        self._mixture()
        whole_number("max_draws", max_draws, at_least=2)
        rankings = self._rankings(X, unranked, sample_weight)
        log_worths = self.draws_.log_worths.reshape(-1, *self.log_worths_.shape)
        shares = self.draws_.shares.reshape(-1, len(self.shares_))
        if len(shares) < 2:
            raise SettingsError("WAIC needs the variance over draws, but there is 1 draw; raise n_draws")
        count = min(max_draws, len(shares))
        used = np.linspace(0, len(shares) - 1, count).round().astype(np.intp)
        with np.errstate(divide="ignore"):  # a share may be too small to be held as a number
            log_shares = np.log(shares[used])
        with client_of(client) as chosen:
            passes = make_passes(rankings, chosen, "store")
            try:
                return waic_of(passes, log_worths[used], log_shares)
            finally:
                passes.release()

    @property
    def inference_data_(self) -> Any:
        """The relabelled draws for ArviZ, which must be installed: an InferenceData (0.23) or a DataTree (1.x)."""
        self._mixture()
        draws = self.draws_
        return inference_data(
            {"log_worths": draws.log_worths, "shares": draws.shares},
            {"lp": draws.log_posterior, "deviance": -2 * draws.log_likelihood},
            self.item_names_,
        )

    def save(self, path: str | os.PathLike[str] | Location, *, about: dict[str, Any] | None = None) -> None:
        """Write a folder of arrays and JSON, draws included. `PlackettLuceMixture.load` reads the posterior means.

        Parameters
        ----------
        path
            The folder or URL to write. A model that is there is replaced.
        about
            More entries for `model.json`.
        """
        check_target(Location.of(path), "model", overwrite=True)
        mixture, raw = self._mixture(), self.raw_draws_
        entries = {
            "settings": self._plain_settings() | {"ties": self._ties},
            "fit": {name: getattr(self, f"{name}_") for name in (*_RESULTS, "map_converged")},
            "bayes": {"stages": self.stages_, "largest_r_hat": self.diagnostics_.largest_r_hat},
        }
        arrays = {f"draws_{name}": value for name, value in raw._asdict().items()}
        arrays["draws_labels"] = self.labels_.astype(np.float64)
        if self.map_ is not None:
            arrays |= {"map_log_worths": self.map_.log_worths, "map_shares": self.map_.shares}
        mixture.save_with(path, {**(about or {}), **entries}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | Location) -> Self:
        """Read what `save` wrote; an error if a byte of it was altered."""
        mixture, (about, arrays) = load_with(path)
        where = Location.of(path).url
        if "draws_log_worths" not in arrays:
            raise SettingsError(f"the model at {where} has no draws; load it with PlackettLuceMixture.load")
        try:
            settings = {
                name: about["settings"][name] for name in cls._get_param_names() if name in about["settings"]
            }
            model = cls(**(settings | {"n_components": mixture.n_components}))
            labels = arrays["draws_labels"].astype(np.int64)
            model._set_draws(
                PosteriorDraws(*(arrays[f"draws_{name}"] for name in PosteriorDraws._fields)), labels
            )
            for name in _RESULTS:
                setattr(model, f"{name}_", about["fit"][name])
            model.map_converged_ = about["fit"].get("map_converged")  # the first folders lack it
            model.stages_ = about["bayes"]["stages"]
            model.map_ = None
            if "map_shares" in arrays:
                model.map_ = MixtureParams(arrays["map_log_worths"], arrays["map_shares"], mixture.item_names)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DamagedStoreError(
                f"the model at {where} cannot be read: {type(error).__name__}: {error}; fit and save it again"
            ) from None
        model._set_mixture(mixture)
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the progress function, which belongs to this process."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"progress": None}

    def __sklearn_clone__(self) -> BayesianPlackettLuceMixture:
        """An unfitted estimator of the same settings; a fitted model to begin with stays fitted."""
        return type(self)(**self.get_params(deep=False))

    def _card(self) -> str | None:
        return posterior_card(self) if hasattr(self, "draws_") else None

    @property
    def _ties(self) -> str:
        return "marginal"

    def _settings(self) -> BayesSettings:
        if not (self.progress is None or isinstance(self.progress, bool) or callable(self.progress)):
            raise SettingsError(f"progress must be True, a function or None, but is {shown(self.progress)}")
        return BayesSettings(
            self.n_components,
            self.n_chains,
            self.n_warmup,
            self.n_draws,
            self.thin,
            self.worth_shape,
            self.worth_rate,
            self.share_concentration,
            self.residency,
            seed_of(self.random_state),
        )

    def _plain_settings(self) -> dict[str, Any]:
        """The settings that JSON can hold."""
        given = {name: self.get_params(deep=False)[name] for name in ("worth_shape", "worth_rate")}
        plain = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params(deep=False).items()
            if value is None or isinstance(value, bool | int | float | str | np.generic)
        }
        return plain | {name: np.asarray(value, np.float64).tolist() for name, value in given.items()}

    def _start(self, rankings: Rankings) -> tuple[Point | None, str]:
        """A point to begin around, or None with the name of how to begin."""
        init, shape = self.init, (self.n_components, rankings.n_items)
        if isinstance(init, str) and init in _INITS:
            return None, init
        if isinstance(init, np.ndarray | list | tuple):
            log_worths = numbers("init", init)
            if log_worths.shape != shape or not np.isfinite(log_worths).all():
                raise SettingsError(
                    f"init must be finite log-worths of shape {shape}, but is {shown(log_worths)}"
                )
            return Point.start(log_worths, np.full(self.n_components, 1 / self.n_components)), "given"
        if isinstance(init, MixtureEstimator):
            mixture = init._mixture()
        elif isinstance(init, MixtureParams):
            mixture = init
        elif isinstance(init, str | os.PathLike):
            if isinstance(init, str) and nearest(init, _INITS):
                raise SettingsError(
                    f"init must be fit or prior, or a model, but is {init!r}{nearest(init, _INITS)}"
                )
            mixture = MixtureParams.load(init)
        else:
            raise SettingsError(
                f"init must be fit, prior, a fitted model, its path, or log-worths, but is {shown(init)}"
            )
        if mixture.log_worths.shape != shape:
            raise SettingsError(
                f"init has log-worths of shape {mixture.log_worths.shape}, but {shape} is sampled"
            )
        if mixture.item_names != rankings.item_names:
            difference = first_difference(rankings.item_names, mixture.item_names)
            raise SettingsError(f"init is a model of other items: {difference}")
        return Point.start(mixture.log_worths, mixture.shares), "given"

    def _take(self, sampled: Sampled, item_names: tuple[str, ...]) -> None:
        draws = sampled.draws
        raw = PosteriorDraws(
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
        # With too few draws nothing can be said.
        self.converged_ = self.diagnostics_.largest_r_hat <= _LARGEST_R_HAT

    def _set_draws(self, raw: PosteriorDraws, labels: NDArray[np.int64]) -> None:
        self.raw_draws_, self.labels_ = raw, labels
        self.draws_ = raw._replace(
            log_worths=np.take_along_axis(raw.log_worths, labels[..., None], axis=2),
            shares=np.take_along_axis(raw.shares, labels, axis=2),
        )
        parts = self.draws_.log_worths, self.draws_.shares
        self.diagnostics_ = Diagnostics(
            *(Diagnostic(*(function(part) for part in parts)) for function in (r_hat, bulk_ess, tail_ess))
        )

    def _warn_if_not_mixed(self) -> None:
        if self.converged_:
            return
        largest = self.diagnostics_.largest_r_hat
        found = (
            "there are too few draws to tell" if np.isnan(largest) else f"the largest R-hat is {largest:.3g}"
        )
        warnings.warn(
            f"the chains have not mixed: {found}, where at most {_LARGEST_R_HAT} is wanted. Raise n_warmup and "
            "n_draws; if R-hat stays high, chains have found different optima, or there are too many components",
            NotConvergedWarning,
            stacklevel=3,
        )
