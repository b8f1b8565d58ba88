"""PlackettLuceMixture: the estimator, after scikit-learn's conventions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plmix_dist.cluster.clients import report_dashboard
from plmix_dist.display.notebook import History, model_card
from plmix_dist.display.progress import shown_progress
from plmix_dist.errors import DamagedStoreError, SettingsError, give_warnings
from plmix_dist.fitting.fit import Fit, fit_mixture
from plmix_dist.fitting.linear_fit import LinearEnd, fit_linear
from plmix_dist.fitting.methods import FitSettings, with_method
from plmix_dist.fitting.noise import Evidence, evidence_request
from plmix_dist.fitting.starts.settings import flat_start, is_start, start_of
from plmix_dist.kernels.prepared import NO_TIES
from plmix_dist.metrics import log_p_of_sides
from plmix_dist.models.base import MixtureEstimator
from plmix_dist.models.keywords import OfFitToPersons, OfTotals, OfWeights
from plmix_dist.models.linear import PLACKETT_LUCE, Terms, bloc_config, check_linear, choices_of, linear_start, restored
from plmix_dist.passes import Residency, ask, check_memory
from plmix_dist.passes.rankings import Rankings
from plmix_dist.prediction.choices import table_of
from plmix_dist.rankings import TIES, Unranked
from plmix_dist.rankings.choice_models import Slates
from plmix_dist.settings import INITS, RandomState, check_settings, numbers, refuse_start_fields, seed_of, whole_number
from plmix_dist.solvers import M_STEPS
from plmix_dist.store import Checkpoint, Location
from plmix_dist.store.mixture import MixtureParams, mixture_json, mixture_of_json
from plmix_dist.uncertainty.bootstrap import Bootstrap, bootstrap
from plmix_dist.uncertainty.check_results import FitCheck
from plmix_dist.uncertainty.fit_check import check_fit
from plmix_dist.uncertainty.leaderboard import leaderboard
from plmix_dist.uncertainty.results import StandardErrors
from plmix_dist.uncertainty.standard_errors import standard_errors


@dataclass(eq=False, repr=False)
class PlackettLuceMixture(MixtureEstimator):
    """A mixture of Plackett-Luce models, fitted by EM.

    Parameters
    ----------
    n_components
        The number of components.
    m_step
        "lsr" (weighted Luce spectral ranking), "mm" (minorise and maximise), or "auto": LSR if rankings are short and
        compare few of the items, MM otherwise. Both end at the maximum of the likelihood. "cml" (composite marginal
        likelihood), "gmm" (generalised method of moments) and "stochastic-lsr" end elsewhere (docs/m-steps.md).
    em
        "fused" takes one M-step in each pass over the data; "exact" solves each M-step to its end, as the paper does.
        "cml" and "gmm" are solved to the end in either case; "stochastic-lsr" in the clusters that it has drawn.
    init
        "spectral" clusters a sample of the rankings (docs/fitting.md). "kernel" clusters a small sample by a
        similarity of partial rankings and semidefinite programming. "moments" fits the frequencies of the first three
        places, for two components. "random" draws log-worths. A value says how such a start works: `Spectral(rank=3)`,
        `KernelStart(kernel="mallows")`, `Moments()`, `Random()`. Or a fitted model, the path of one, or an array
        (n_components, n_items) of log-worths.
    n_init
        How many starts run to convergence on all rows, in the same passes; after a search, at most this many different
        ends. The one with the best objective is kept.
    alpha
        Strength of the prior: every item has this many wins and losses against a ghost item, in every component
        (docs/fitting.md). 0 gives the exact maximum-likelihood estimate, which may not exist.
    shares
        Fixed mixing shares, or None to estimate them. `posterior_shares_` has the shares that the posteriors give.
    unranked
        What it means that a row of an array, list or table does not list an item: "below" (the item was on offer and
        ranks below the listed ones) or "absent" (it was not on offer). Needed if a row is shorter than the number of
        items. A store knows it. The argument of `fit` goes first, and all other methods remember what the fit used.
    ties
        How items that share a place are treated: "half" (the mean of the log-likelihoods of all orders, so a tied pair
        is half a win for each), "expand" (a ranking becomes its linear extensions, or 24 draws of them), "marginal"
        (the exact sum over all orders), "resample" (one order is drawn from the current fit in every pass), or "auto":
        half for rows that tie everything on offer, as battles do, and expand for all others. `Half(last="tie")` also
        counts tied last groups of longer rows. "davidson": ties are outcomes, with parameters of their own, as
        `Davidson(order=2, shared=True)` says. See docs/ties-and-groups.md.
    choices
        What the choices of a row are: "plackett-luce"; `Slates({...})`, by which a slate is drawn at each place, then
        an item of it, and "slates" or `Slates(None)`, which finds the slates; "best-worst" or "maxdiff" for sets of
        which the best and the worst are known (docs/choices.md).
    noise
        Whether to add one more component, in which all items have equal worths: people who choose at random, or whose
        choices cannot be told from that. Its share is estimated, and it comes last: arrays have n_components + 1 rows
        (docs/noise.md).
    method
        None, or "paper": EM-LSR as published (docs/paper.md). It sets alpha, em, m_step, accelerate, ties, n_init, and
        embedding and rank of a spectral start, where these have their defaults; another value is refused, but for
        m_step and rank.
    tol
        The fit ends when the largest entry of the gradient and the change of the objective, both divided by total
        weight, are at most this. With "cml" and "gmm": when no parameter moves by more than this. With method="paper":
        when the squared changes of all log-worths in one iteration sum to at most this.
    max_iter
        The most iterations. With "stochastic-lsr": the number of iterations.
    accelerate
        Whether to use Anderson acceleration and Newton steps.
    residency
        "memory" keeps rows in memory between passes, "store" reads them in every pass, "auto" keeps them if they fit.
    random_state
        Seed of samples and random starts: a number from 0 on, a numpy RandomState or Generator, or None for another
        seed in every fit. Each fit draws one seed from a RandomState or Generator, so a second fit differs.
    progress
        None shows nothing; True shows each stage, each iteration, and about how long the fit still takes, in a notebook
        or on stderr. A function is called with the record of each iteration of the fit to all rows, the same as in
        `history_`. A callable with a method `stage` is also called at each stage (docs/fitting.md).
    checkpoint
        A folder or URL in which the state of the fit is saved, or a `Checkpoint` that also says how often. A fit with
        the same data and settings goes on from there and ends with the same bits (docs/checkpoints.md).

    Attributes
    ----------
    log_worths_ : (n_components, n_items)
        Rows have mean zero. Components are in canonical order, largest share first.
    shares_ : (n_components,)
        With covariates of persons: the mean over persons.
    posterior_shares_ : (n_components,)
        The mean posterior of all rankings at the end; with m_step="stochastic-lsr" that of the memberships drawn last.
    share_coefficients_ : (n_components, n_columns + 1)
        Intercept and coefficients of each component, if the fit had `membership_covariates`; otherwise None. Those of
        the first component are 0.
    covariate_names_ : (n_columns,)
        The names of the columns of `membership_covariates`, if these were a table; otherwise None.
    person_columns_
        The columns of the store that these were made of, if they were named, each with its levels; otherwise None.
    item_coefficients_, feature_coefficients_ : (n_components, n_features)
        Of `item_features` and `features`, in their units; None without them.
    cohesion_ : (n_components, n_slates)
        With slates: the probability of each slate while all have items left; otherwise None.
    tie_parameters_ : (n_components, order - 1)
        With ties="davidson" the weights of ties of two, three and more items; otherwise None.
    item_names_ : (n_items,)
    unranked_
        What unlisted items meant in the fit.
    n_iter_, converged_
        Iterations of the start that was kept, and whether it converged; always False with "stochastic-lsr".
    log_likelihood_, objective_
        Log-likelihood of all rankings; the objective is its sum with the log-prior. It is None for M-steps that do not
        raise it: "cml", "gmm", "stochastic-lsr".
    gradient_norm_
        The largest entry of the gradient, divided by total weight; None without an objective.
    m_step_, history_, events_
        The M-step that was used; one record per iteration; components that collapsed and were seeded again or dropped.
    init_
        How the fit began: the method; for a spectral start the singular values, the vectors and the rank; for the rank
        "paper" the "gap_rule"; "stages", with seconds, passes over the rows and memory of this process for each stage;
        "failed_starts", with the starts that ended with an error.
    about_
        What the fit was made from: "data" (source, numbers of rankings and items, how many components these identify),
        the "seed" that was used, "versions", "machine" and when it "finished".

    Examples
    --------
    >>> model = PlackettLuceMixture(n_components=2, random_state=1).fit([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
    >>> model.shares_.round(2).tolist(), model.predict([[0, 1, 2], [2, 1, 0]]).tolist()
    ([0.75, 0.25], [0, 1])
    """

    _ARRAY_SETTINGS = ("shares",)

    n_components: int = 2
    _: KW_ONLY
    m_step: Literal["auto", "lsr", "mm", "cml", "gmm", "stochastic-lsr"] = "auto"
    em: Literal["fused", "exact"] = "fused"
    init: Any = "spectral"
    n_init: int = 1
    alpha: float = 1.0
    shares: ArrayLike | None = None
    unranked: Unranked | None = None
    ties: str = "auto"
    choices: Any = "plackett-luce"
    noise: bool = False
    method: Literal["paper"] | None = None
    tol: float = 1e-8
    max_iter: int = 500
    accelerate: bool = True
    residency: Residency = "auto"
    random_state: RandomState = None
    progress: Callable[[dict[str, Any]], None] | bool | None = None
    checkpoint: str | os.PathLike[str] | Location | Checkpoint | None = None

    def fit(self, X: Any, y: object = None, *, item_features: Any = None, **how: Unpack[OfFitToPersons]) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X
            A store, its path or URL; an array (n_rankings, places) of item numbers or names, best first; a list of
            lists of any length; a pandas, Polars or Arrow table with one column per place; a Dask array of numbers; or
            a RankingBlock. None, NaN, "" and -1 end a row. Names become `item_names_`, in natural order: numbers by
            value, then words in the order of their characters. `y` is not used; scikit-learn's pipelines pass it.
        sample_weight : (n_rankings,)
            The weight of each row. It replaces the weights of a store.
        n_items
            For item numbers: the number of items; by default the largest number found plus one. It must be given if
            no row lists item 0, because such rows are often numbered from 1.
        unranked
            "below" or "absent", in place of the parameter of the same name.
        client
            A Dask client; a cluster or the address of a scheduler, to which the fit connects; None: the active client
            if there is one, otherwise (and inside a Dask task) threads of this process; False: always this process.
        membership_covariates : (n_rankings, n_columns)
            Columns of the person who gave each ranking. The shares then depend on them, by a multinomial logit with an
            intercept (docs/covariates.md). Rankings of one person (group) have the same values. Or names of columns
            about persons that a store has, such as ["age", "region"]; categories are coded by their levels.
        item_features : (n_items, n_features)
            What explains the worths of items: an array, a table or dict by item name, or `Features(...)`, which has a
            ridge, worths of items of their own, and coefficients that components share (docs/features.md).
        features : (total listed, n_features)
            What explains the worth of each item in each row, row after row, in the order of the row, and of rows
            (chosen, offered) in the order of `offered`; an array (n_rankings, n_offered, n_features) if all rows are of
            one length; or `Features(...)`. All methods that take these rankings take their features, and then columns
            with names go by name.

        Examples
        --------
        >>> drinks = [["tea", "coffee", "mate"], ["tea", "mate"], ["coffee"], ["mate", "tea"]]
        >>> model = PlackettLuceMixture(n_components=1, unranked="below").fit(drinks)
        >>> model.item_names_, model.predict([["tea"]]).tolist()
        (('coffee', 'mate', 'tea'), [0])
        """
        del y
        settings = self._settings()
        place = Checkpoint.of(self.checkpoint)  # refuses what is none, before anything is read
        if how.get("membership_covariates") is not None:
            self._check_covariates_allowed()
        reading = self._rankings_to_fit(X, ties=settings.ties, **how)
        with shown_progress(self.progress, self.tol, self.max_iter) as progress, reading as (rankings, chosen):
            check_memory(rankings.n_items, settings.n_components, settings.n_init)
            terms = Terms.of(self.choices, item_features, how.get("features"), rankings)
            report_dashboard(chosen, progress)
            slates, more = None, list[Warning]()
            run: Any = {"progress": progress, "checkpoint": place, "any_seed": self.random_state is None}
            if terms is None:
                start = None if is_start(self.init) else self._given_start(rankings, INITS)
                fitted = fit_mixture(rankings, settings, start, chosen, **run)
            else:
                check_linear(settings)
                if choices_of(self.choices) == Slates(None):
                    from plmix_dist.models.slates import find_slates

                    terms, slates, *more = find_slates(terms, rankings, settings, chosen)
                model = terms.model(item_features, how.get("features"), settings.alpha)
                named = isinstance(self.init, str | os.PathLike) and self.init not in INITS
                begin = linear_start(self.load(self.init) if named else self.init, terms, settings.n_components)
                fitted = fit_linear(terms.of_rankings(rankings), settings, model, begin, chosen, **run)
        self._take(fitted, rankings.item_names, terms, rankings)
        self.unranked_ = self._unranked_of_fit(how.get("unranked"))
        self.init_ |= {} if slates is None else {"slates": slates}
        give_warnings([*more, *fitted.warnings])
        return self

    def standard_errors(
        self, X: Any, *, kind: Literal["information", "sandwich"] | None = None, **how: Unpack[OfTotals]
    ) -> StandardErrors:
        """Standard errors of centred log-worths, shares and coefficients, from the observed information.

        Parameters
        ----------
        X, sample_weight, unranked, client, membership_covariates, features
            The rankings of the fit, as in `fit` (docs/uncertainty.md).
        kind
            "information", or "sandwich", which holds also if the model does not; with groups it is clustered by group.
            None is "sandwich" where ties count half, else "information".

        Examples
        --------
        >>> rankings = [[0, 1]] * 30 + [[1, 0]] * 10
        >>> model = PlackettLuceMixture(n_components=1, alpha=0.0).fit(rankings)
        >>> model.standard_errors(rankings).log_worths.round(3).tolist()  # half of sqrt(1/30 + 1/10)
        [[0.183, 0.183]]
        """
        return standard_errors(self, X, kind=kind, **how)

    def check_fit(
        self, X: Any, *, pairs: Any = None, random_state: RandomState = 0, **how: Unpack[OfWeights]
    ) -> FitCheck:
        """Whether the mixture reproduces first places and pairs of the rankings of its fit (docs/checks.md).

        Two passes over the rankings. p-values know that the fit has used the rankings: they are uniform if the mixture
        is right. Weights are counts.

        Parameters
        ----------
        X, sample_weight, unranked, client
            The rankings of the fit, as in `fit`.
        pairs
            Lists of two items to check, by name or number; [] checks first places only. None checks all pairs of up to
            30 items, and first places only of more.
        random_state
            The seed of the copy of the rankings that is drawn from the fit.

        Examples
        --------
        >>> rankings = [["tea", "mate", "milk"]] * 40 + [["milk", "mate", "tea"]] * 40
        >>> found = PlackettLuceMixture(1).fit(rankings).check_fit(rankings)
        >>> found.fits, found.worst(1)[0].items
        (False, ('mate',))
        """
        return check_fit(self, X, pairs=pairs, seed=seed_of(random_state), **how)

    def bootstrap(self, X: Any, n_replicates: int = 200, **options: Any) -> Bootstrap:
        """Repeat the fit with random weights of persons: `plm.bootstrap(model, X)`, which has the options.

        Examples
        --------
        >>> rankings = [[0, 1]] * 60 + [[1, 0]] * 40
        >>> PlackettLuceMixture(1).fit(rankings).bootstrap(rankings, 50, random_state=0)
        Bootstrap: 50 replicates of 1 x 2 log-worths, 50 converged, ... passes, seed 0
          Errors hold given 1 component: they do not say whether there are more.
          .standard_errors(), .intervals(), .differences(), .log_worths, .shares
        """
        return bootstrap(self, X, n_replicates, **options)

    def elasticities(
        self, column: str, offered: Any = None, *, item_features: Any = None, features: Any = None
    ) -> NDArray[np.float64]:
        """(n_offered, n_offered): by how many percent the chance of item i changes if a feature of item j grows by 1 %.

        Of the whole mixture.

        Parameters
        ----------
        column
            The name of a feature.
        offered, item_features, features
            What is on offer, as in `choice_probabilities`.

        Examples
        --------
        >>> rows = [(0, [0, 1])] * 30 + [(1, [0, 1])] * 10 + [(0, [0, 1])] * 10 + [(1, [0, 1])] * 30
        >>> prices = np.array([[1.0, 2.0]] * 40 + [[2.0, 1.0]] * 40)
        >>> given = plm.Features(prices[:, :, None], names=["price"])
        >>> model = PlackettLuceMixture(1, alpha=0.0).fit(rows, features=given)
        >>> model.elasticities("price", features=[[1.0], [1.0]]).round(2).tolist()
        [[-0.55, 0.55], [0.55, -0.55]]
        """
        if self._linear is None:
            raise SettingsError("elasticities are those of features, and this model was fitted without")
        terms, end = self._linear
        found: NDArray[np.float64] = terms.elasticities(end, self.shares_, column, offered, item_features, features)
        return found

    def to_votekit(self, n_voters: int, slates: Any = None) -> Any:
        """The mixture as a `BlocSlateConfig` of VoteKit, whose generators draw elections from it (extra `votekit`).

        Parameters
        ----------
        n_voters
            How many ballots are drawn.
        slates
            The items of each slate, as a dict; a model that was fitted with slates knows them. VoteKit's
            `slate_pl_profile_generator` draws as such a model says, `name_pl_profile_generator` as a plain one.

        Examples
        --------
        >>> model = PlackettLuceMixture(1).fit([["tea", "mate", "milk"]] * 3 + [["milk", "mate", "tea"]])
        >>> model.to_votekit(100, {"leaves": ["tea", "mate"], "white": ["milk"]})  # doctest: +SKIP
        """
        return bloc_config(self, whole_number("n_voters", n_voters, at_least=1), slates)

    def leaderboard(
        self,
        X: Any = None,
        *,
        scale: Literal["elo", "log"] = "elo",
        interval: Literal["sandwich", "bootstrap"] = "sandwich",
        anchor: Any = None,
        against: Any = None,
        without_noise: bool = False,
        **options: Any,
    ) -> Any:
        """A table of ratings: of each component, and of the whole mixture if there are several (docs/leaderboards.md).

        Parameters
        ----------
        X
            The rankings of the fit. Intervals, tiers, votes and win rates need them.
        scale
            "elo": 1000 + 400 / ln(10) times the log-worth; "log": log-worths. The average item has 1000, or 0.
        interval
            "sandwich", clustered by person where there are groups, or "bootstrap" (percentiles).
        anchor
            An item that has 1000 (or 0) in place of the average, or `{item: rating}`; intervals are of differences.
        against
            Another model: its ratings are `before`, and `change` is what has changed since.
        without_noise
            Leave out the component of noise (`noise=True`), and count the others as the whole.
        **options
            `sample_weight`, `unranked`, `client`, `membership_covariates` and `features` as in `fit`; `n_replicates`
            and `random_state` of a bootstrap; `table` as in `worths_frame`.

        Ratings are at equal features. Slates, whose worths compare items of one slate, and models of features of rows
        without worths of items have no leaderboard.

        Returns
        -------
        table
            The best item first in each component. `component` is a number or "all": the rating whose chance against
            the average item is that of the mixture. `rank` is 1 + the number of items that are surely better, and
            `rank_last` the number that are not surely worse, by 95 % intervals (`lower`, `upper`). A `tier` has the
            best item that is left and all that cannot be told apart from it. `votes` are rankings that list the item.

        Examples
        --------
        >>> battles = [["tea", "mate"]] * 30 + [["mate", "tea"]] * 10
        >>> PlackettLuceMixture(1, alpha=0.0).fit(battles).leaderboard(table="dict")["rating"].round(1).tolist()
        [1095.4, 904.6]
        """
        given: Any = {"anchor": anchor, "against": against, "without_noise": without_noise, **options}
        return leaderboard(self, X, scale=scale, interval=interval, **given)

    def evidence_of_noise(self, X: Any, *, table: str | None = None, **how: Unpack[OfWeights]) -> Any:
        """(n_persons,): the log Bayes factor of noise against all other components, for each person, or each row.

        Positive numbers say that the rankings of a person are more probable if every order is as probable as any
        other. Such people are indistinguishable from random; people with flat tastes are, too.

        Parameters
        ----------
        X, sample_weight, unranked, client
            As in `fit`. Persons are groups of rows, in the order of the rows.
        table
            "auto", "pandas", "polars", "arrow" or "dict" gives a table with columns `person` and `log_bayes_factor`
            and, where a store of battles says who stood where, `n_sides`, `share_left` (of the choices that are not
            ties) and `p_one_sided`, the two-sided binomial p-value of it: people who always take one side say nothing
            about the items, too.

        Examples
        --------
        >>> people = [plm.Ranking(((a,), (b,)), (), "absent", 1.0) for a, b in [(0, 1)] * 60 + [(0, 1), (1, 0)] * 5]
        >>> block = plm.RankingBlock.from_rows(people, n_items=2, groups=[row // 10 for row in range(70)])
        >>> model = PlackettLuceMixture(1, noise=True, random_state=0).fit(block)
        >>> int(model.evidence_of_noise(block).argmax())
        6
        """
        if not self.noise:
            raise SettingsError("this model has no component of noise; fit it with noise=True")
        request = evidence_request(self._ties, self._mixture())
        with self._passes_over(X, **how) as (passes, rankings):
            found: Evidence = ask(passes, request)
        if table is None:
            return found.log_bayes_factors
        if how.get("sample_weight") is not None:
            raise SettingsError("a table shows all persons; leave out sample_weight, or table")
        labels = [
            block.groups[block.group_starts] for block in rankings.source.iter_leaves() if block.groups is not None
        ]
        persons = np.concatenate(labels).tolist() if labels else range(len(found.left))
        columns: dict[str, Any] = {"person": np.array(persons), "log_bayes_factor": found.log_bayes_factors}
        n_sides = found.left + found.right
        if n_sides.any():
            with np.errstate(invalid="ignore"):
                columns |= {"n_sides": n_sides, "share_left": found.left / n_sides}
            columns["p_one_sided"] = 10 ** -log_p_of_sides(found.left, found.right)
        return table_of(columns, table)

    def used_settings(self) -> dict[str, Any]:
        """The parameters as a fit uses them: as they are, or as the method sets them.

        What says how a start works has the names of the command line: `svd_rank` is the rank of `Spectral`.

        Examples
        --------
        >>> PlackettLuceMixture(2, method="paper").used_settings()["alpha"]
        0.0
        """
        given = {name: getattr(self, name) for name in self._get_param_names()}
        return dict(sorted(with_method(self.method, given | flat_start(self.init)).items()))

    @classmethod
    def from_arrays(
        cls,
        log_worths: ArrayLike,
        shares: ArrayLike | None = None,
        item_names: Sequence[str] | None = None,
        *,
        unranked: Unranked | None = None,
    ) -> Self:
        """A model with given parameters, such as those of another tool. It can do all that a fitted model can.

        Parameters
        ----------
        log_worths : (n_components, n_items)
            They are centred, and components are put into canonical order: largest share first.
        shares : (n_components,)
            None makes them equal.
        item_names : (n_items,)
            None names items by their numbers, from 0.
        unranked
            What short rows of arrays mean: "below" or "absent"; None if all rows are full.

        Examples
        --------
        >>> model = PlackettLuceMixture.from_arrays([[0.0, np.log(3.0)]], item_names=["tea", "mate"])
        >>> round(float(np.exp(model.score([["mate", "tea"]]))), 6)
        0.75
        """
        worths = np.atleast_2d(np.asarray(log_worths, np.float64))
        names = tuple(map(str, range(worths.shape[-1]))) if item_names is None else tuple(item_names)
        mixture, order = MixtureParams.ordered(worths, shares, names)
        if np.allclose(worths.mean(axis=1), 0.0, rtol=0.0, atol=1e-12):  # centred already: keep every bit
            mixture = MixtureParams(worths[order], mixture.shares, mixture.item_names)
        fitted = {"fit": {"unranked": unranked}, "settings": {"unranked": unranked}}
        return cls._restored(mixture, fitted, {}, "these arrays")

    def to_json(self) -> str:
        """The model as JSON text: what `save` writes without the arrays of the start; `from_json` gives every bit back.

        Examples
        --------
        >>> model = PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> model.to_json()[:57]
        '{"format": "plmix-model-json", "version": 1, "item_names"'
        """
        return mixture_json(self._mixture(), self._record(), self._parameters())

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The model that `to_json` wrote; an error that names what is wrong with any other text.

        Examples
        --------
        >>> model = PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> again = PlackettLuceMixture.from_json(model.to_json())
        >>> bool((again.log_worths_ == model.log_worths_).all()), again.n_iter_ == model.n_iter_
        (True, True)
        """
        mixture, (record, arrays) = mixture_of_json(text)
        return cls._restored(mixture, record, arrays, "this JSON")

    def _check_covariates_allowed(self) -> None:
        """An error for settings that do not go together with covariates."""
        if self.m_step in M_STEPS and M_STEPS[self.m_step].objective is None:
            words = (
                f'm_step="{self.m_step}" raises no likelihood, and coefficients of membership_covariates are those of '
                'a maximum; choose m_step="lsr", "mm" or "auto"'
            )
        elif self.method is not None:
            words = (
                f"method={self.method!r} has the same shares for all persons; leave method or membership_covariates out"
            )
        elif self.shares is not None:
            words = "shares are fixed, so they cannot depend on membership_covariates; leave one of them out"
        elif self.ties == "resample":
            words = (
                'ties="resample" cannot be fitted with membership_covariates; choose ties="marginal", which is exact'
            )
        else:
            return
        raise SettingsError(words)

    def _settings(self) -> FitSettings:
        """The settings, checked."""
        used = self.used_settings()
        check_settings("fit", {"progress": self.progress, "choices": self.choices})
        used |= {
            "shares": None if self.shares is None else numbers("shares", self.shares),
            "init": used["init"] if is_start(self.init) else "random",
            "seed": seed_of(self.random_state),
        }
        return FitSettings(**{name: value for name, value in used.items() if name not in _NOT_OF_FITS})

    def _record(self) -> dict[str, Any]:
        return {
            "settings": self._plain_settings(),
            "fit": {name: getattr(self, f"{name}_") for name in _RESULTS}
            | {"posterior_shares": self.posterior_shares_.tolist()}
            | ({"covariate_names": list(self.covariate_names_)} if self.covariate_names_ else {})
            | ({"person_columns": list(self.person_columns_.items())} if self.person_columns_ else {}),
            "history": self.history_,
            "events": self.events_,
            "init": {name: value for name, value in self.init_.items() if not isinstance(value, np.ndarray)},
            "about": self.about_,
            **({} if self._linear is None else {"linear": self._linear[0].record(self._linear[1].layout)}),
        }

    def _parameters(self) -> dict[str, NDArray[np.float64]]:
        """The parameters of a model that are not those of its mixture."""
        more = {"share_coefficients": self.share_coefficients_, "tie_parameters": self.tie_parameters_}
        more |= {} if self._linear is None else self._linear[0].arrays(self._linear[1])
        return {"ghosts": self._ghosts, **{name: value for name, value in more.items() if value is not None}}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        of_start = {name: value for name, value in self.init_.items() if isinstance(value, np.ndarray)}
        return self._parameters() | {f"init_{name}": value for name, value in of_start.items()}

    def _flat_settings(self) -> dict[str, Any]:
        choices = str(self.choices) if self._linear is None else self._linear[0].setting
        return dict(sorted((self.get_params(deep=False) | flat_start(self.init) | {"choices": choices}).items()))

    @classmethod
    def _restored(cls, mixture: MixtureParams, record: dict[str, Any], arrays: dict[str, Any], where: str) -> Self:
        parts = {name: _part(where, record, name, kind) for name, kind in _PARTS.items()}
        init = start_of(parts["settings"], strict=False)
        choices = choices_of(parts["settings"].get("choices", PLACKETT_LUCE))
        model = cls._unfitted(mixture, parts["settings"] | {"init": init, "choices": choices})
        for name in _RESULTS:
            setattr(model, f"{name}_", parts["fit"].get(name))
        model.covariate_names_ = tuple(parts["fit"].get("covariate_names") or ()) or None
        model.person_columns_ = dict(parts["fit"].get("person_columns") or ()) or None
        linear = parts["linear"]
        model._set_linear(restored(model.choices, linear, arrays, mixture.item_names, where) if linear else None)
        model.history_ = History(parts["history"])
        model.events_ = parts["events"]
        model.about_ = parts["about"]
        model._ghosts = arrays.get("ghosts", np.zeros(mixture.n_components))
        model.posterior_shares_ = np.array(parts["fit"].get("posterior_shares", mixture.shares), np.float64)
        for name, found in (("ghosts", model._ghosts), ("posterior_shares", model.posterior_shares_)):
            if found.shape != (mixture.n_components,):
                raise _damaged(where, name, found, mixture)
        model.share_coefficients_ = own = arrays.get("share_coefficients")
        if own is not None and (own.ndim != 2 or len(own) != mixture.n_components or not own.shape[1]):
            raise _damaged(where, "share_coefficients", own, mixture)
        model.tie_parameters_ = ties = arrays.get("tie_parameters")
        n_orders = TIES[model.ties].order
        if (None if ties is None else ties.shape) != ((mixture.n_components, n_orders - 1) if n_orders else None):
            raise _damaged(where, "tie_parameters", np.zeros(0) if ties is None else ties, mixture)
        of_start = {name.removeprefix("init_"): arrays[name] for name in arrays if name.startswith("init_")}
        model.init_ = parts["init"] | of_start
        return model

    def _set_linear(self, found: tuple[Terms, LinearEnd] | None) -> None:
        """Take over what utilities are made of, and their coefficients."""
        self._linear = found
        self.item_coefficients_: NDArray[np.float64] | None = None
        self.feature_coefficients_: NDArray[np.float64] | None = None
        self.cohesion_: NDArray[np.float64] | None = None
        if found is not None:
            terms, values = found[0], found[1].point.coefficients
            first = values.shape[1] - len(terms.row_names)
            if terms.items is not None:
                self.item_coefficients_ = values[:, terms.n_worths : first].copy()
            if terms.row_names:
                self.feature_coefficients_ = values[:, first:].copy()
            self.cohesion_ = terms.cohesion(values)

    def _card(self) -> str | None:
        return model_card(self) if hasattr(self, "log_worths_") else None

    def _take(
        self, fitted: Fit, item_names: tuple[str, ...], terms: Terms | None = None, rankings: Rankings | None = None
    ) -> None:
        run, end = fitted.run, fitted.linear
        shares = np.exp(run.point.log_shares)
        worths = run.point.log_worths if terms is None else terms.log_worths(end.point.coefficients)
        mixture, order = MixtureParams.ordered(worths, shares / shares.sum(), item_names)
        self._set_linear(None if terms is None else (terms, end.reordered(order)))
        if self.noise:  # it is last
            last = len(order) - 1
            back = np.append(np.flatnonzero(order != last), np.flatnonzero(order == last))
            order = order[back]
            mixture = MixtureParams(mixture.log_worths[back], mixture.shares[back], mixture.item_names)
        self._ghosts = run.point.ghosts[order]
        log_ties = run.point.log_ties
        self.tie_parameters_: NDArray[np.float64] | None = None
        if log_ties.size:
            delta = np.where(log_ties > NO_TIES, np.exp(log_ties), 0.0)
            self.tie_parameters_ = np.broadcast_to(delta, (len(order), delta.shape[1]))[order]
        self.covariate_names_ = (rankings and rankings.covariate_names) or None
        self.person_columns_ = rankings and rankings.person_columns
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
        self.posterior_shares_ = mixture.shares if run.posterior_shares is None else run.posterior_shares[order]
        self.m_step_ = fitted.m_step
        self.history_ = History(run.history)
        self.events_ = run.events
        self.init_ = fitted.init
        self.about_ = fitted.about


PlackettLuceMixture.__init__ = refuse_start_fields(PlackettLuceMixture.__init__)  # type: ignore[method-assign]


def _part(where: str, about: dict[str, Any], name: str, kind: type) -> Any:
    """An entry of `model.json`, empty if the model has none."""
    part = about.get(name, kind())
    if not isinstance(part, kind):
        raise DamagedStoreError(
            f"the model at {where} cannot be read: {name} is {type(part).__name__}, where {kind.__name__} is expected"
        )
    return part


def _damaged(where: str, name: str, found: NDArray[np.float64], mixture: MixtureParams) -> DamagedStoreError:
    return DamagedStoreError(
        f"the model at {where} cannot be read: {name} of shape {found.shape}, "
        f"{mixture.n_components} components; fit and save it again"
    )


# Parameters of reading, progress and saving, and the method, which has set others.
_NOT_OF_FITS = ("checkpoint", "choices", "method", "unranked", "progress", "random_state")
_RESULTS = ("n_iter", "converged", "log_likelihood", "objective", "gradient_norm", "m_step", "unranked")
# Entries of a saved model, and their types.
_PARTS = {"settings": dict, "fit": dict, "init": dict, "history": list, "events": list, "about": dict, "linear": dict}
