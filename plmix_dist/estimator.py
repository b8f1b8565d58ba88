"""PlackettLuceMixture: the estimator, after scikit-learn's conventions."""

from __future__ import annotations

import math
import os
import warnings
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from plmix_dist.data import as_rankings, first_difference
from plmix_dist.display.notebook import History
from plmix_dist.engine.clients import client_of
from plmix_dist.engine.dashboard import told_at
from plmix_dist.engine.memory_needed import check_memory
from plmix_dist.errors import DamagedStoreError, NotConvergedWarning, SettingsError, StoreNotFoundError
from plmix_dist.fitted import MixtureEstimator
from plmix_dist.inference.fit import Fit, fit_mixture
from plmix_dist.inference.methods import with_method
from plmix_dist.inference.point import Point
from plmix_dist.inference.settings import FitSettings
from plmix_dist.interchange import InterchangeMethods
from plmix_dist.mixture import MixtureParams, load_with
from plmix_dist.progress import shown_progress
from plmix_dist.report.method import ReportMethods
from plmix_dist.solvers import M_STEPS
from plmix_dist.starts.start_settings import INITS
from plmix_dist.store.checkpoints import Checkpoint
from plmix_dist.store.location import Location
from plmix_dist.store.targets import check_target
from plmix_dist.uncertainty.standard_errors import standard_errors
from plmix_dist.values import nearest, numbers, seed_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.data import Rankings
    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.engine.residency import Residency
    from plmix_dist.rankings import Unranked
    from plmix_dist.uncertainty.results import StandardErrors
    from plmix_dist.values import RandomState


class PlackettLuceMixture(ReportMethods, InterchangeMethods, MixtureEstimator):
    """A mixture of Plackett-Luce models, fitted by EM.

    Parameters
    ----------
    n_components
        The number of components.
    m_step
        "lsr" (weighted Luce spectral ranking), "mm" (minorise and maximise), or "auto": LSR if rankings are short and
        compare few of the items, MM otherwise. Both end at the same estimate, the maximum of the likelihood. "cml"
        (composite marginal likelihood), "gmm" (generalised method of moments) and "stochastic-lsr" are there for
        comparison: they end elsewhere (docs/m-steps.md).
    em
        "fused" takes one M-step in each pass over the data; "exact" solves each M-step to its end, as the paper does.
        "cml" and "gmm" are solved to the end in either case; "stochastic-lsr" in the clusters that it has drawn.
    init
        "spectral" clusters a sample of the rankings (docs/fitting.md). "kernel" clusters a small sample by a
        similarity of partial rankings and semidefinite programming. "moments" fits the frequencies of the first three
        places, for two components. "random" draws log-worths. Or a fitted model, the path of one, or an array
        (n_components, n_items) of log-worths.
    n_init
        How many starts run to convergence on all rows; after a search, at most so many ends that differ. They share
        each pass. The one with the best objective is kept.
    alpha
        Strength of the prior: every item has this many wins and losses against a ghost item, in every component. The
        default predicts well from small data and changes nothing on large data (docs/fitting.md). 0 gives the exact
        maximum-likelihood estimate, which may not exist.
    shares
        Fixed mixing shares, or None to estimate them. `posterior_shares_` has the shares that the posteriors give.
    unranked
        What it means that a row of an array, list or table does not list an item: "below" (the item was on offer and
        ranks below the listed ones) or "absent" (it was not on offer). Needed if a row is shorter than the number of
        items. A store knows it. The argument of `fit` goes first. `score`, `predict` and all others remember what the
        fit used, so cross-validation works with short rows.
    ties
        How items that share a place are treated: "expand" (a ranking becomes its linear extensions, or 24 draws of
        them), "marginal" (the exact sum over all orders), or "resample" (one order is drawn from the current fit in
        every pass). See docs/ties-and-groups.md.
    method
        None, or "paper": EM-LSR as published (docs/paper.md). It sets alpha, em, m_step, accelerate, embedding,
        svd_rank, ties and n_init, where these have their defaults; another value is refused, but for m_step and
        svd_rank.
    embedding
        How a spectral start represents a ranking: "rank" (one number per item), "pairwise" (one number per pair of
        items, as in the paper; the SVD is dask-ml's), or "auto", which is "rank".
    svd_rank
        How many singular vectors a spectral start uses: those above the noise ("auto"), those above the paper's
        threshold ("paper"), or a number.
    svd_threshold
        The paper's threshold is multiplied by this, for svd_rank="paper".
    cluster_worths
        How a spectral start estimates the worths of a cluster: "least-squares", from frequencies of pairs, or "lsr",
        one Plackett-Luce model per cluster by Luce spectral ranking.
    link
        Relates frequencies of pairs to differences of log-worths in spectral and kernel starts: "logit"
        (Plackett-Luce) or "probit" (Thurstone).
    kernel
        The similarity of rankings for init="kernel": "kendall" or "mallows".
    tol
        The fit ends when the largest entry of the gradient and the change of the objective, both divided by total
        weight, are at most this. With "cml" and "gmm": when no parameter moves by more than this. With method="paper":
        when the squared changes of all log-worths in one iteration sum to at most this.
    max_iter
        The most iterations. With "stochastic-lsr": the number of iterations.
    accelerate
        Whether to use Anderson acceleration and Newton steps.
    residency
        "memory" keeps rows in memory between passes, "store" reads them again in every pass, and "auto" keeps them if
        they fit.
    random_state
        Seed of samples and random starts: a number from 0 on, a numpy RandomState or Generator, or None for another
        seed in every fit. Each fit draws one seed from a RandomState or Generator, so a second fit differs.
    progress
        None shows nothing; True shows each stage, each iteration, and about how long the fit still takes: in a notebook
        as a view that is renewed in place, elsewhere as text on stderr. A function is called with the record of each
        iteration of the fit to all rows, the same as in `history_`. An object that can be called and has a method
        `stage` also hears of stages (docs/fitting.md).
    checkpoint
        A folder or URL in which the state of the fit is saved, or a `Checkpoint` that also says how often. A fit with
        the same data and settings goes on from there and ends with the same bits (docs/checkpoints.md). None saves
        nothing.

    Attributes
    ----------
    log_worths_ : (n_components, n_items)
        Rows have mean zero. Components are in canonical order, largest share first.
    shares_ : (n_components,)
        With covariates of persons: the mean over persons.
    posterior_shares_ : (n_components,)
        The mean posterior of all rankings at the end; differs from `shares_` where `shares` were given. With
        m_step="stochastic-lsr" the shares of the memberships drawn last.
    share_coefficients_ : (n_components, n_columns + 1)
        Intercept and coefficients of each component, if the fit had `membership_covariates`; otherwise None. Those of
        the first component are 0.
    item_names_ : (n_items,)
    unranked_
        What unlisted items meant in the fit, for arrays.
    n_iter_, converged_
        Iterations of the start that was kept, and whether it converged. With "stochastic-lsr" it is False: the steps
        never settle, and no warning is given.
    log_likelihood_, objective_
        Log-likelihood of all rankings; the objective is its sum with the log-prior. It is None for M-steps that do not
        raise it: "cml", "gmm", "stochastic-lsr".
    gradient_norm_
        The largest entry of the gradient, divided by total weight; None where there is no objective.
    m_step_
        The M-step that was used.
    history_
        One record per iteration.
    events_
        Components that collapsed and were seeded again or dropped.
    init_
        How the fit began: the method; for a spectral start the singular values, the vectors and the rank; for
        svd_rank="paper" the "gap_rule", with the threshold and whether a gap reached it; "stages",
        with seconds, passes over the rows and memory of this process for each stage; "failed_starts", with the starts
        that ended with an error.
    about_
        What the fit was made from: "data" (source, numbers of rankings and items, how many components these identify),
        the "seed" that was used, "versions", "machine" and when it "finished".

    Examples
    --------
    >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
    >>> model = PlackettLuceMixture(n_components=2, random_state=1).fit(np.array(rankings))
    >>> model.shares_.round(2).tolist()
    [0.75, 0.25]
    >>> model.predict(np.array([[0, 1, 2], [2, 1, 0]])).tolist()
    [0, 1]
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        m_step: Literal["auto", "lsr", "mm", "cml", "gmm", "stochastic-lsr"] = "auto",
        em: Literal["fused", "exact"] = "fused",
        init: Any = "spectral",
        n_init: int = 1,
        alpha: float = 1.0,
        shares: ArrayLike | None = None,
        unranked: Unranked | None = None,
        ties: Literal["expand", "marginal", "resample"] = "expand",
        method: Literal["paper"] | None = None,
        embedding: Literal["auto", "pairwise", "rank"] = "auto",
        svd_rank: Literal["auto", "paper"] | int = "auto",
        svd_threshold: float = 1.0,
        cluster_worths: Literal["least-squares", "lsr"] = "least-squares",
        link: Literal["logit", "probit"] = "logit",
        kernel: Literal["kendall", "mallows"] = "kendall",
        tol: float = 1e-8,
        max_iter: int = 500,
        accelerate: bool = True,
        residency: Residency = "auto",
        random_state: RandomState = None,
        progress: Callable[[dict[str, Any]], None] | bool | None = None,
        checkpoint: str | os.PathLike[str] | Location | Checkpoint | None = None,
    ) -> None:
        self.n_components = n_components
        self.m_step = m_step
        self.em = em
        self.init = init
        self.n_init = n_init
        self.alpha = alpha
        self.shares = shares
        self.unranked = unranked
        self.ties = ties
        self.method = method
        self.embedding = embedding
        self.svd_rank = svd_rank
        self.svd_threshold = svd_threshold
        self.cluster_worths = cluster_worths
        self.link = link
        self.kernel = kernel
        self.tol = tol
        self.max_iter = max_iter
        self.accelerate = accelerate
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
        membership_covariates: ArrayLike | None = None,
    ) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X
            A store, its path or URL; an array (n_rankings, places) of item numbers or names, best first; a list of
            lists of any length; a pandas, Polars or Arrow table with one column per place; a Dask array of numbers; or
            a RankingBlock. None, NaN, "" and -1 end a row. Names become `item_names_`, in natural order: numbers by
            value, then words in the order of their characters.
        y
            Not used; scikit-learn's pipelines pass it.
        sample_weight : (n_rankings,)
            The weight of each row. It replaces the weights of a store.
        n_items
            For item numbers: the number of items; by default the largest number found plus one. It must be given if
            no row lists item 0, because such rows are often numbered from 1.
        unranked
            For arrays, lists and tables: "below" or "absent". It goes before the parameter of the same name.
        client
            A Dask client; a cluster or the address of a scheduler, to which the fit connects; None, which takes the
            active client if there is one, and otherwise threads of this process; or False, which always stays in this
            process. Inside a Dask task, None means threads.
        membership_covariates : (n_rankings, n_columns)
            Columns of the person who gave each ranking. The shares then depend on them, by a multinomial logit with an
            intercept (docs/covariates.md). Rankings of one person (group) have the same values.

        Examples
        --------
        >>> model = PlackettLuceMixture(n_components=1).fit([[0, 1], [1, 0]], sample_weight=[3.0, 1.0])
        >>> model.converged_, bool(model.log_worths_[0, 0] > 0)
        (True, True)
        >>> drinks = [["tea", "coffee", "mate"], ["tea", "mate"], ["coffee"], ["mate", "tea"]]
        >>> model = PlackettLuceMixture(n_components=1, unranked="below").fit(drinks)
        >>> model.item_names_
        ('coffee', 'mate', 'tea')
        >>> model.score([["coffee", "tea"]]) < model.score([["tea", "coffee"]])
        True
        """
        del y
        settings = self._settings()
        Checkpoint.of(self.checkpoint)  # refuses what is none, before anything is read
        if membership_covariates is not None:
            self._check_covariates_allowed()
        with shown_progress(self.progress, self.tol, self.max_iter) as progress, client_of(client) as chosen:
            rankings = as_rankings(
                X,
                n_items=n_items,
                unranked=unranked,
                default_unranked=self.unranked,
                sample_weight=sample_weight,
                client=chosen,
                ties=settings.ties,
                covariates=membership_covariates,
            )
            check_memory(rankings.n_items, settings.n_components, settings.n_init)
            start = self._start(rankings)
            fitted = fit_mixture(
                rankings,
                settings,
                start,
                chosen,
                told_at(chosen, progress),
                Checkpoint.of(self.checkpoint),
                any_seed=self.random_state is None,
            )
        self._take(fitted, rankings.item_names)
        self.unranked_ = unranked or self.unranked
        if not self.converged_ and not M_STEPS[self.m_step_].draws:
            residual = _residual_in_words(self.history_[-1])
            warnings.warn(
                f"the fit did not converge in {self.n_iter_} iterations ({residual} where {self.tol:.2g} was asked "
                "for); raise max_iter, or tol",
                NotConvergedWarning,
                stacklevel=2,
            )
        return self

    def standard_errors(
        self,
        X: Any,
        *,
        kind: Literal["information", "sandwich"] = "information",
        sample_weight: ArrayLike | None = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
    ) -> StandardErrors:
        """Standard errors of centred log-worths and shares, from the observed information (docs/uncertainty.md).

        Parameters
        ----------
        X
            The rankings of the fit.
        kind
            "information", or "sandwich", which holds also if the model does not; with groups it is clustered by group.
        sample_weight, unranked, client
            As in `fit`.

        Examples
        --------
        >>> rankings = [[0, 1]] * 30 + [[1, 0]] * 10
        >>> model = PlackettLuceMixture(n_components=1, alpha=0.0).fit(rankings)
        >>> model.standard_errors(rankings).log_worths.round(3).tolist()  # half of sqrt(1/30 + 1/10)
        [[0.183, 0.183]]
        """
        return standard_errors(
            self, X, kind=kind, sample_weight=sample_weight, unranked=unranked, client=client
        )

    def used_settings(self) -> dict[str, Any]:
        """The parameters as a fit uses them: as they are, or as the method sets them.

        Examples
        --------
        >>> PlackettLuceMixture(2).used_settings()["alpha"]
        1.0
        >>> PlackettLuceMixture(2, method="paper").used_settings()["alpha"]
        0.0
        """
        given = {name: getattr(self, name) for name in self._get_param_names()}
        defaults = {name: value.default for name, value in signature(type(self).__init__).parameters.items()}
        settings = with_method(self.method, given, defaults)
        return {name: settings[name] for name in sorted(settings)}

    def _check_covariates_allowed(self) -> None:
        """An error for settings that do not go together with covariates."""
        if self.m_step in M_STEPS and M_STEPS[self.m_step].objective is None:
            raise SettingsError(
                f'm_step="{self.m_step}" raises no likelihood, and coefficients of membership_covariates are those of '
                'a maximum; choose m_step="lsr", "mm" or "auto"'
            )
        if self.method is not None:
            raise SettingsError(
                f"method={self.method!r} has the same shares for all persons; leave method or membership_covariates out"
            )
        if self.shares is not None:
            raise SettingsError(
                "shares are fixed, so they cannot depend on membership_covariates; leave one of them out"
            )
        if self.ties == "resample":
            raise SettingsError(
                'ties="resample" cannot be fitted with membership_covariates; choose ties="marginal", which is exact'
            )

    def _settings(self) -> FitSettings:
        """The settings, checked."""
        if not (self.progress is None or isinstance(self.progress, bool) or callable(self.progress)):
            raise SettingsError(f"progress must be True, a function or None, but is {shown(self.progress)}")
        used = self.used_settings()
        init = used["init"]
        used |= {
            "shares": None if self.shares is None else numbers("shares", self.shares),
            "init": init if isinstance(init, str) and init in INITS else "random",
            "seed": seed_of(self.random_state),
        }
        return FitSettings(**{name: value for name, value in used.items() if name not in _NOT_OF_FITS})

    def save(self, path: str | os.PathLike[str] | Location, *, about: dict[str, Any] | None = None) -> None:
        """Write a folder of arrays and JSON that can be read without this package; nothing is pickled.

        A model that is there is replaced, and stays whole until the new one is. Anything else that is there, such as a
        store or other files, is an error.

        Parameters
        ----------
        path
            The folder or URL to write.
        about
            More entries for `model.json`.
        """
        check_target(Location.of(path), "model", overwrite=True)
        init_arrays = {name: value for name, value in self.init_.items() if isinstance(value, np.ndarray)}
        arrays = self._more_arrays() | {f"init_{name}": value for name, value in init_arrays.items()}
        self._mixture().save_with(path, {**(about or {}), **self._record()}, arrays)

    def _record(self) -> dict[str, Any]:
        """All that is saved of a model but its arrays."""
        return {
            "settings": self._plain_settings(),
            "fit": {name: getattr(self, f"{name}_") for name in _RESULTS}
            | {"posterior_shares": self.posterior_shares_.tolist()},
            "history": self.history_,
            "events": self.events_,
            "init": {name: value for name, value in self.init_.items() if not isinstance(value, np.ndarray)},
            "about": self.about_,
        }

    def _more_arrays(self) -> dict[str, NDArray[np.float64]]:
        """The parameters of a model that are not those of its mixture."""
        coefficients = self.share_coefficients_
        more = {} if coefficients is None else {"share_coefficients": coefficients}
        return {"ghosts": self._ghosts, **more}

    def _plain_settings(self) -> dict[str, Any]:
        """The settings that JSON can hold."""
        shares = {} if self.shares is None else {"shares": numbers("shares", self.shares).tolist()}
        # Where a fit was saved on its way is no setting of the model.
        named = {name: value for name, value in self.get_params().items() if name != "checkpoint"}
        return {name: value for name, value in named.items() if _is_plain(value)} | shares

    @classmethod
    def load(cls, path: str | os.PathLike[str] | Location) -> Self:
        """Read what `save` wrote, or any model folder; an error if a byte of it was altered."""
        mixture, (about, arrays) = load_with(path)
        return cls._restored(mixture, about, arrays, Location.of(path).url)

    @classmethod
    def _restored(
        cls, mixture: MixtureParams, about: dict[str, Any], arrays: dict[str, Any], where: str
    ) -> Self:
        """The model of what `_record` and `_more_arrays` gave; `where` is said in errors."""
        known = cls._get_param_names()
        parts = {
            name: _part(where, about, name, kind)
            for name, kind in (
                ("settings", dict),
                ("fit", dict),
                ("init", dict),
                ("history", list),
                ("events", list),
                ("about", dict),
            )
        }
        settings = {name: value for name, value in parts["settings"].items() if name in known}
        model = cls(**(settings | {"n_components": mixture.n_components}))
        model._set_mixture(mixture)
        for name in _RESULTS:
            setattr(model, f"{name}_", parts["fit"].get(name))
        model.history_ = History(parts["history"])
        model.events_ = parts["events"]
        model.about_ = parts["about"]
        model._ghosts = arrays.get("ghosts", np.zeros(mixture.n_components))
        model.posterior_shares_ = np.array(parts["fit"].get("posterior_shares", mixture.shares), np.float64)
        for name, found in (("ghosts", model._ghosts), ("posterior_shares", model.posterior_shares_)):
            if found.shape != (mixture.n_components,):
                raise DamagedStoreError(
                    f"the model at {where} cannot be read: {name} of shape {found.shape}, "
                    f"{mixture.n_components} components; fit and save it again"
                )
        model.share_coefficients_ = _share_coefficients(where, arrays, mixture.n_components)
        init_arrays = {
            name.removeprefix("init_"): arrays[name] for name in arrays if name.startswith("init_")
        }
        model.init_ = parts["init"] | init_arrays
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the progress function, which belongs to this process."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"progress": None}

    def _start(self, rankings: Rankings) -> Point | None:
        """The point to begin with, or None if starts are to be made."""
        init = self.init
        if isinstance(init, str) and init in INITS:
            return None
        if isinstance(init, np.ndarray | list | tuple):
            log_worths = numbers("init", init)
            _refuse_shape(log_worths, self.n_components, rankings.n_items)
            bad = np.argwhere(~np.isfinite(log_worths)).tolist()
            if bad:
                raise SettingsError(
                    f"init must be finite log-worths, but init{bad[0]} is {log_worths[*bad[0]]}"
                )
            return Point.start(log_worths, np.full(self.n_components, 1 / self.n_components))
        if isinstance(init, MixtureParams):
            mixture, ghosts = init, None
        else:
            model = self._given_model()
            mixture, ghosts = model._mixture(), getattr(model, "_ghosts", None)
        _refuse_shape(mixture.log_worths, self.n_components, rankings.n_items)
        if mixture.item_names != rankings.item_names:
            difference = first_difference(rankings.item_names, mixture.item_names)
            raise SettingsError(f"init is a model of other items: {difference}")
        return Point.start(mixture.log_worths, mixture.shares, ghosts)

    def _given_model(self) -> MixtureEstimator:
        """The fitted model that the user gave to begin with, or the path of one."""
        init = self.init
        expected = (
            f"init must be {', '.join(INITS)}, a fitted model, the path of one, or an array of log-worths"
        )
        if isinstance(init, MixtureEstimator):
            return init
        if not isinstance(init, str | os.PathLike):
            raise SettingsError(f"{expected}, but is {shown(init)}")
        try:
            return type(self).load(init)
        except StoreNotFoundError:
            if "/" in os.fspath(init):
                raise
            raise SettingsError(
                f"{expected}, but is {shown(init, str)}, and there is no model at this path{nearest(init, INITS)}"
            ) from None

    def __sklearn_clone__(self) -> PlackettLuceMixture:
        """An unfitted estimator of the same settings; a fitted model to begin with stays fitted."""
        return type(self)(**self.get_params(deep=False))

    def _take(self, fitted: Fit, item_names: tuple[str, ...]) -> None:
        run = fitted.run
        shares = np.exp(run.point.log_shares)
        mixture, order = MixtureParams.ordered(run.point.log_worths, shares / shares.sum(), item_names)
        self._ghosts = run.point.ghosts[order]
        coefficients = fitted.share_coefficients
        self.share_coefficients_: NDArray[np.float64] | None = None
        if coefficients is not None:
            # The component with the largest mean share is the reference.
            self.share_coefficients_ = coefficients[order] - coefficients[order[0]]
        self._set_mixture(mixture)
        self.n_iter_ = run.n_iterations
        self.converged_ = run.converged
        self.log_likelihood_ = run.log_likelihood
        self.objective_ = run.objective
        self.gradient_norm_ = run.gradient
        self.posterior_shares_ = (
            mixture.shares if run.posterior_shares is None else run.posterior_shares[order]
        )
        self.m_step_ = fitted.m_step
        self.history_ = History(run.history)
        self.events_ = run.events
        self.init_ = fitted.init
        self.about_ = fitted.about


def _residual_in_words(record: dict[str, Any]) -> str:
    """What the rule for the end of a fit looked at in an iteration."""
    if "squared_change" in record:
        return f"squared changes of log-worths {record['squared_change']:.2g}"
    if "gradient" in record:
        return f"gradient {record['gradient']:.2g}"
    return f"largest change {record['largest_change']:.2g}"


def _part(where: str, about: dict[str, Any], name: str, kind: type) -> Any:
    """An entry of `model.json`, empty if the model has none."""
    part = about.get(name, kind())
    if not isinstance(part, kind):
        raise DamagedStoreError(
            f"the model at {where} cannot be read: {name} is {type(part).__name__}, "
            f"where {kind.__name__} is expected"
        )
    return part


def _share_coefficients(where: str, arrays: dict[str, Any], n_components: int) -> NDArray[np.float64] | None:
    """The coefficients of a saved model; None if its shares depend on nothing."""
    found: NDArray[np.float64] | None = arrays.get("share_coefficients")
    if found is not None and (found.ndim != 2 or len(found) != n_components or not found.shape[1]):
        raise DamagedStoreError(
            f"the model at {where} cannot be read: share_coefficients of shape {found.shape}, "
            f"{n_components} components; fit and save it again"
        )
    return found


# Parameters that say how rankings are read and a fit is told of, and the method, which has set others.
_NOT_OF_FITS = ("checkpoint", "method", "unranked", "progress", "random_state")
_RESULTS = ("n_iter", "converged", "log_likelihood", "objective", "gradient_norm", "m_step", "unranked")


def _refuse_shape(log_worths: NDArray[np.float64], n_components: int, n_items: int) -> None:
    if log_worths.shape != (n_components, n_items):
        raise SettingsError(
            f"init has shape {log_worths.shape}, but {n_components} components of {n_items} items are to be fitted"
        )


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold the value of a setting."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)
