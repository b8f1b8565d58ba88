"""RankingMethods: probabilities of whole rankings, the most probable one, completions, as methods of an estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.choices.calibration import FIRST_CHOICES, Calibration
from plmix_dist.choices.fitted_mixture import FittedMixture, chosen_component, one_component
from plmix_dist.choices.most_probable import MOST_STEPS, MostProbable, most_probable
from plmix_dist.choices.row_functions import ALL, Given, completions_of, component_logs_of, mixture_logs_of
from plmix_dist.engine.clients import client_of
from plmix_dist.engine.passes import make_passes
from plmix_dist.engine.request import Request
from plmix_dist.errors import SettingsError
from plmix_dist.posteriors import check_columns, probabilities_of
from plmix_dist.values import whole_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.rankings import Unranked


class RankingMethods(FittedMixture):
    """What a fitted mixture says about whole rankings. Arguments are as in `PredictionMethods`.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> issubclass(PlackettLuceMixture, RankingMethods)
    True
    """

    def ranking_probabilities(
        self,
        X: Any,
        *,
        component: int | str | None = None,
        given: Any = None,
        log: bool = False,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """The probability of each ranking: full, a prefix (`unranked="below"`), or of some items ("absent").

        A ranking with ties is the event that one of its orders happens, whatever `ties` was in the fit. Each row is
        taken by itself, also where rows have groups.

        Parameters
        ----------
        X
            The rankings.
        component
            None for the mixture, a number from 0, or "all".
        given
            What the same persons have ranked before: as many rows as X. Rows of X are then new rankings. To continue a
            ranking, let X order the items that are left.
        log
            Whether to give logarithms.
        unranked, client, membership_covariates
            As in `fit`, for X and `given`.

        Returns
        -------
        probabilities : (n_rankings,)
            With component="all" (n_rankings, n_components).

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        >>> model.ranking_probabilities([[0, 1, 2], [0, -1, -1]], unranked="below").round(4).tolist()
        [0.1667, 0.3333]
        """
        mixture = self._mixture()
        chosen = chosen_component(component, mixture)
        if chosen is None and given is None:
            logs = self._by_person(X, unranked, client, mixture_logs_of(mixture), membership_covariates)
        else:
            logs = self._by_row(X, unranked, client, component_logs_of(mixture))
            if chosen is None:
                function = probabilities_of(mixture, self._ties)
                weights = self._by_person(given, unranked, client, function, membership_covariates)
                logs = _mixed_logs(logs, weights)
            elif chosen != ALL:
                logs = logs[:, chosen]
        return logs if log else np.exp(logs)

    def most_probable_ranking(
        self, *, component: int | None = None, most_steps: int = MOST_STEPS
    ) -> MostProbable:
        """The most probable ranking of all items, and its probability.

        For a component it is the order of the worths. For a mixture it is searched for: exactly for up to 6 items, and
        for more as long as `most_steps` are enough (30 items with log-worths of standard deviation 1 take a few).
        `is_exact` says whether the search ended. If not, `log_bound` bounds the log-probability of every ranking, and
        the ranking is the best that was met, beginning with the modes of the components and the order of the expected
        ranks, after swaps of neighbours.

        Parameters
        ----------
        component
            None for the mixture, or a number from 0.
        most_steps
            Prefixes that the search extends at most.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([[0, 1]] * 3 + [[1, 0]])
        >>> found = model.most_probable_ranking()
        >>> found.order.tolist(), round(found.probability, 4), found.is_exact
        ([0, 1], 0.75, True)
        """
        mixture = self._mixture()
        chosen = one_component(component, mixture)
        whole_number("most_steps", most_steps, at_least=1)
        if chosen is None:
            return most_probable(mixture.log_worths, mixture.log_shares, most_steps=int(most_steps))
        return most_probable(mixture.log_worths[[chosen]], np.zeros(1))

    def complete(
        self,
        X: Any,
        *,
        component: int | None = None,
        search: bool = False,
        with_probabilities: bool = False,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """The most probable complete order of what was on offer in each row.

        What a row has ordered stays in its order; tied items and items not ordered yet are put in order. Each row takes
        the most probable, given its memberships, of these: the order of the worths of each component, and the order of
        the expected ranks. `search=True` looks for the most probable order of all, which takes longer.

        Parameters
        ----------
        X
            The rankings so far.
        component
            None for the mixture, or a number from 0.
        search
            Whether to search for the best order of each row.
        with_probabilities
            Whether to give the probability of the order, given the row, too.
        unranked, client, membership_covariates
            As in `fit`.

        Returns
        -------
        orders : (n_rankings, n_items)
            Item numbers, best first; -1 after the last item on offer.
        probabilities : (n_rankings,)
            If they are asked for.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([[0, 1, 2]] * 3 + [[1, 2, 0], [2, 0, 1]])
        >>> model.complete([[2]], unranked="below").tolist()
        [[2, 0, 1]]
        """
        mixture = self._mixture()
        chosen = one_component(component, mixture)
        function = completions_of(mixture, Given(self._ties, chosen), bool(search))
        found = self._predicted(X, function, chosen, unranked, client, membership_covariates)
        orders = found[:, :-1].astype(np.int64)
        return (orders, found[:, -1]) if with_probabilities else orders

    def first_choice_calibration(
        self,
        X: Any,
        *,
        n_bins: int = 10,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Calibration:
        """How often items predicted as first choice with probability p are the first choice, by bins of p.

        One pass over the rankings. Every item on offer in a row is one event. Memberships are the shares: nothing else
        is known of the person. Rows whose first place is tied do not count.

        Parameters
        ----------
        X
            The rankings.
        n_bins
            The number of bins of equal width.
        unranked, client, membership_covariates
            As in `fit`.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> rankings = [[0, 1]] * 3 + [[1, 0]]
        >>> found = PlackettLuceMixture(1, alpha=0).fit(rankings).first_choice_calibration(rankings)
        >>> round(found.error, 6), round(found.mean_log_loss, 4)
        (0.0, 0.5623)
        """
        mixture = self._mixture()
        whole_number("n_bins", n_bins, at_least=1)
        rankings = self._rankings(X, unranked, covariates=membership_covariates)
        coefficients = check_columns(self._coefficients, rankings.covariates)
        with client_of(client) as chosen:
            passes = make_passes(rankings, chosen, "store")
            params = (mixture.log_worths, mixture.shares, np.zeros(int(n_bins)), coefficients)
            (answer,) = passes.run([Request(FIRST_CHOICES, params)])
            passes.release()
        if answer.error is not None:
            raise answer.error
        (found,) = answer.results
        assert isinstance(found, Calibration)
        return found


def _mixed_logs(logs: Any, weights: Any) -> Any:
    """(n_rankings,): the logarithm of the mean over components, from logs and weights (n_rankings, n_components)."""
    if weights.shape != logs.shape:
        raise SettingsError(
            f"given has {weights.shape[0]} rankings and X has {logs.shape[0]}; both need one row per person"
        )
    total = logs + np.log(np.maximum(weights, np.finfo(np.float64).tiny))
    largest = total.max(axis=1)
    return largest + np.log(np.exp(total - largest[:, None]).sum(axis=1))
