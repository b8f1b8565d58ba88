"""PlackettLuceMixture: the estimator, after scikit-learn's conventions."""

from __future__ import annotations

import io
import json
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator

from plmix_dist.data import Rankings, as_rankings, first_difference
from plmix_dist.engine.aggregation import Aggregation
from plmix_dist.engine.lazy import lazy_rows
from plmix_dist.engine.passes import make_passes
from plmix_dist.errors import NotConvergedWarning, SettingsError
from plmix_dist.inference.fit import Fit, FitSettings, fit_mixture
from plmix_dist.inference.state import EmState
from plmix_dist.kernels import Prepared, prepare, row_posteriors
from plmix_dist.mixture import MODEL, MixtureParams
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.store.location import Location

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from distributed import Client
    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.engine.passes import Residency
    from plmix_dist.rankings import RankingBlock, Unranked


class PlackettLuceMixture(BaseEstimator):  # type: ignore[misc]
    """A mixture of Plackett-Luce models, fitted by EM.

    Parameters
    ----------
    n_components
        The number of components.
    m_step
        "lsr" (weighted Luce spectral ranking), "mm" (minorise-maximise), or "auto": LSR where rankings are short
        and compare few of the items, MM elsewhere. Both end at the same estimate.
    em
        "fused" takes one solver step in each pass over the data; "exact" solves each M-step to the end, as the paper
        does.
    init
        "random", a fitted model or the path of one, or an array (n_components, n_items) of log-worths.
    n_init
        How many random starts; the one with the best objective is kept.
    alpha
        Strength of the prior: wins and losses of every item against a ghost item, in every component. 0 is the exact
        maximum-likelihood estimate, which may not exist.
    shares
        Fixed mixing shares, or None to estimate them.
    tol
        The fit ends when slope and change of the objective, a unit of weight, are both below this.
    max_iter
        The most iterations.
    accelerate
        Whether to use Anderson acceleration.
    residency
        Whether rows stay in memory ("memory"), are read again every pass ("store"), or what fits ("auto").
    random_state
        Seed of the random starts.
    progress
        Called with a record of each iteration, as it goes into `history_`.

    Attributes
    ----------
    log_worths_ : (n_components, n_items)
        Rows have mean zero; components stand in canonical order, largest share first.
    shares_ : (n_components,)
    item_names_ : (n_items,)
    n_iter_, converged_
        Iterations of the start that was kept, and whether it converged.
    log_likelihood_, objective_
        Sum over all rankings; the objective adds the log-prior.
    gradient_norm_
        The largest slope of the objective, a unit of weight.
    history_
        A record for each iteration.
    events_
        Components that were seeded anew or dropped.

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
        m_step: Literal["auto", "lsr", "mm"] = "auto",
        em: Literal["fused", "exact"] = "fused",
        init: Any = "random",
        n_init: int = 1,
        alpha: float = 0.1,
        shares: ArrayLike | None = None,
        tol: float = 1e-8,
        max_iter: int = 500,
        accelerate: bool = True,
        residency: Residency = "auto",
        random_state: int | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.n_components = n_components
        self.m_step = m_step
        self.em = em
        self.init = init
        self.n_init = n_init
        self.alpha = alpha
        self.shares = shares
        self.tol = tol
        self.max_iter = max_iter
        self.accelerate = accelerate
        self.residency = residency
        self.random_state = random_state
        self.progress = progress

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
        """Fit the mixture.

        Parameters
        ----------
        X
            A store, its path or URL; an integer array (rankings, places), best first, -1 where a row ends; a Dask
            array of the same; or a RankingBlock.
        y
            Not used; there for pipelines.
        sample_weight : (n_rankings,)
            The weight of each row, in place of those of a store.
        n_items
            For arrays: the number of items, where the largest never occurs.
        unranked
            For arrays with short rows: "below" or "absent".
        client
            A Dask client; without one the fit runs in this process.
        """
        del y
        rankings = as_rankings(X, n_items=n_items, unranked=unranked, sample_weight=sample_weight)
        settings = FitSettings(
            n_components=self.n_components,
            m_step=self.m_step,
            em=self.em,
            n_init=self.n_init,
            alpha=self.alpha,
            shares=None if self.shares is None else np.asarray(self.shares, np.float64),
            tol=self.tol,
            max_iter=self.max_iter,
            accelerate=self.accelerate,
            residency=self.residency,
            seed=_seed(self.random_state),
        )
        start = self._start(rankings)
        fitted = fit_mixture(rankings, settings, start, client, self.progress)
        self._take(fitted, rankings.item_names)
        if not self.converged_:
            warnings.warn(
                f"the fit did not converge in {self.n_iter_} iterations (slope {self.gradient_norm_:.2g} where "
                f"{self.tol:.2g} was asked for); raise max_iter, or tol",
                NotConvergedWarning,
                stacklevel=2,
            )
        return self

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
        fitted = self.fit(X, y, **options)
        return fitted.predict(X, unranked=options.get("unranked"))

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
        rng = generator(_seed(random_state), "sample")
        block, component = draw_rankings(mixture.log_worths, mixture.shares, n, rng)
        return block.to_array(), component

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder of arrays and JSON that can be read without this package; nothing is pickled."""
        about = {
            "settings": {name: value for name, value in self.get_params().items() if _is_plain(value)},
            "fit": {name: getattr(self, f"{name}_") for name in _RESULTS},
            "history": self.history_,
            "events": self.events_,
        }
        self._mixture().save(path, about)
        buffer = io.BytesIO()
        np.save(buffer, self._ghosts, allow_pickle=False)
        Location.of(path).write_bytes("ghosts.npy", buffer.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote, or any model folder."""
        mixture = MixtureParams.load(path)
        folder = Location.of(path)
        about = json.loads(folder.read_bytes(MODEL))
        known = cls._get_param_names()
        settings = {name: value for name, value in about.get("settings", {}).items() if name in known}
        model = cls(**(settings | {"n_components": mixture.n_components}))
        model._set_mixture(mixture)
        for name in _RESULTS:
            setattr(model, f"{name}_", about.get("fit", {}).get(name))
        model.history_ = about.get("history", [])
        model.events_ = about.get("events", [])
        model._ghosts = np.zeros(mixture.n_components)
        if folder.exists("ghosts.npy"):
            model._ghosts = np.load(io.BytesIO(folder.read_bytes("ghosts.npy")), allow_pickle=False)
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the progress callback, which belongs to the process it was made in."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"progress": None}

    def _start(self, rankings: Rankings) -> EmState | None:
        """The state to begin with, or None for random starts."""
        init = self.init
        if isinstance(init, str) and init == "random":
            return None
        if isinstance(init, np.ndarray | list):
            log_worths = np.asarray(init, np.float64)
            _refuse_shape(log_worths, self.n_components, rankings.n_items)
            return EmState.start(log_worths, np.full(self.n_components, 1 / self.n_components))
        if isinstance(init, MixtureParams):
            mixture, ghosts = init, None
        else:
            model = init if isinstance(init, PlackettLuceMixture) else type(self).load(init)
            mixture, ghosts = model._mixture(), model._ghosts
        _refuse_shape(mixture.log_worths, self.n_components, rankings.n_items)
        if mixture.item_names != rankings.item_names:
            difference = first_difference(rankings.item_names, mixture.item_names)
            raise SettingsError(f"init is a model of other items: {difference}")
        return EmState.start(mixture.log_worths, mixture.shares, ghosts)

    def __sklearn_clone__(self) -> PlackettLuceMixture:
        """An unfitted estimator of the same settings; a fitted model to begin with stays fitted."""
        return type(self)(**self.get_params(deep=False))

    def _take(self, fitted: Fit, item_names: tuple[str, ...]) -> None:
        shares = np.exp(fitted.state.log_shares)
        mixture = MixtureParams.of(fitted.state.log_worths, shares / shares.sum(), item_names)
        # Canonical order is the mixture's; the ghosts follow it.
        order = [_row_of(fitted.state.log_worths, worths) for worths in mixture.log_worths]
        self._ghosts = fitted.state.ghosts[order]
        self._set_mixture(mixture)
        self.n_iter_ = fitted.n_iterations
        self.converged_ = fitted.converged
        self.log_likelihood_ = fitted.log_likelihood
        self.objective_ = fitted.objective
        self.gradient_norm_ = fitted.gradient
        self.m_step_ = fitted.m_step
        self.history_ = fitted.history
        self.events_ = fitted.events

    def _set_mixture(self, mixture: MixtureParams) -> None:
        self.log_worths_ = mixture.log_worths
        self.shares_ = mixture.shares
        self.item_names_ = mixture.item_names

    def _mixture(self) -> MixtureParams:
        if not hasattr(self, "log_worths_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("this PlackettLuceMixture is not fitted yet; call fit first")
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
        assert isinstance(total, Score)
        return total


_RESULTS = ("n_iter", "converged", "log_likelihood", "objective", "gradient_norm", "m_step")


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


def _refuse_shape(log_worths: NDArray[np.float64], n_components: int, n_items: int) -> None:
    if log_worths.shape != (n_components, n_items):
        raise SettingsError(
            f"init has shape {log_worths.shape}, but {n_components} components of {n_items} items are to be fitted"
        )


def _row_of(log_worths: NDArray[np.float64], wanted: NDArray[np.float64]) -> int:
    centred = log_worths - log_worths.mean(axis=1, keepdims=True)
    return int(np.argmin(np.abs(centred - wanted).max(axis=1)))


def _seed(random_state: int | None) -> int:
    """A seed; fresh entropy where none is given."""
    if random_state is None:
        return int(np.random.SeedSequence().entropy) % (1 << 63)  # type: ignore[arg-type]
    return int(random_state)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
