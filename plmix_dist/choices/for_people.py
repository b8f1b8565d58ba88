"""TableMethods: worths, memberships, top items and a summary of a fitted mixture, for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.choices.first_places import top_k_probabilities
from plmix_dist.choices.fitted_mixture import FittedMixture
from plmix_dist.choices.tables import table_of
from plmix_dist.engine.by_row import rows_now
from plmix_dist.errors import SettingsError
from plmix_dist.posteriors import check_columns, probabilities_of, with_own_shares
from plmix_dist.values import numbers, whole_number

if TYPE_CHECKING:
    from plmix_dist.data import Rankings
    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.rankings import Unranked


class TableMethods(FittedMixture):
    """Tables of a fitted mixture.

    `table` says which kind: "pandas", "polars", "arrow", "dict" of arrays, or "auto": pandas if it is
    installed, else a dict.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> issubclass(PlackettLuceMixture, TableMethods)
    True
    """

    def worths_frame(self, *, log: bool = True, standard_errors: Any = None, table: str = "auto") -> Any:
        """A table of worths: one row per item, one column per component.

        Parameters
        ----------
        log
            Whether to give log-worths, of mean zero in each component. Otherwise worths that sum to 1 in each
            component: the probabilities of the first choice from all items.
        standard_errors
            What `standard_errors(X)` gave; they belong to log-worths.
        table
            "auto", "pandas", "polars", "arrow" or "dict".

        Returns
        -------
        table
            Columns `item`, and `component 0` and so on; with standard errors, `standard error 0` and so on.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> found = model.worths_frame(log=False, table="dict")
        >>> found["item"].tolist(), found["component 0"].round(4).tolist()
        (['mate', 'tea'], [0.25, 0.75])
        """
        mixture = self._mixture()
        values = mixture.log_worths
        if not log:
            values = np.exp(values - np.logaddexp.reduce(values, axis=1)[:, None])
        columns: dict[str, Any] = {"item": mixture.item_names}
        columns |= {f"component {number}": line for number, line in enumerate(values)}
        if standard_errors is not None:
            if not log:
                raise SettingsError("standard errors are those of log-worths; leave out log=False")
            errors = numbers(
                "standard_errors.log_worths", getattr(standard_errors, "log_worths", standard_errors)
            )
            if errors.shape != values.shape:
                raise SettingsError(
                    f"expected standard errors of shape {values.shape}, as the log-worths have, but got {errors.shape}"
                )
            columns |= {f"standard error {number}": line for number, line in enumerate(errors)}
        return table_of(columns, table)

    def top_items(self, k: int = 5, *, table: str = "auto") -> Any:
        """The k items that are most probably among the first k: of the mixture, and of each component.

        Parameters
        ----------
        k
            The number of items.
        table
            "auto", "pandas", "polars", "arrow" or "dict".

        Returns
        -------
        table
            k rows. Columns `place` (from 1), `mixture`, `component 0` and so on hold item names.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> model.top_items(1, table="dict")["mixture"].tolist()
        ['tea']
        """
        mixture = self._mixture()
        k = min(int(whole_number("k", k, at_least=1)), mixture.n_items)
        by_component = top_k_probabilities(mixture.log_worths, k)
        names = np.array(mixture.item_names)
        columns: dict[str, Any] = {"place": np.arange(1, k + 1)}
        columns["mixture"] = names[np.argsort(-(mixture.shares @ by_component), kind="stable")[:k]]
        # Within a component a larger worth has a larger probability, for any k.
        for number, logs in enumerate(mixture.log_worths):
            columns[f"component {number}"] = names[np.argsort(-logs, kind="stable")[:k]]
        return table_of(columns, table)

    def memberships(
        self,
        X: Any,
        *,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        table: str = "auto",
        membership_covariates: Any = None,
    ) -> Any:
        """A table of memberships: one row per ranking, with its id and group where there are any.

        All rows are computed now. For stores larger than memory, `predict_proba` is lazy, and `plmix predict` writes a
        file.

        Parameters
        ----------
        X
            The rankings.
        unranked, client, membership_covariates
            As in `fit`.
        table
            "auto", "pandas", "polars", "arrow" or "dict".

        Returns
        -------
        table
            Columns `id` (the number of the row, from 0, if rankings have no ids), `group`, `component` (the most
            probable one), and `probability 0` and so on.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1).fit([[0, 1]] * 3 + [[1, 0]])
        >>> found = model.memberships([[0, 1]], table="dict")
        >>> {name: column.tolist() for name, column in found.items()}
        {'id': [0], 'component': [0], 'probability 0': [1.0]}
        """
        rankings = self._rankings(X, unranked, covariates=membership_covariates)
        function = probabilities_of(self._mixture(), self._ties)
        coefficients = check_columns(self._coefficients, rankings.covariates)
        if coefficients is not None:
            function = with_own_shares(function, coefficients)
        probabilities = rows_now(rankings, function, client)
        columns: dict[str, Any] = {"id": np.arange(rankings.n_rankings)}
        blocks = list(_labels(rankings))
        if blocks and blocks[0][0] is not None:
            columns["id"] = np.concatenate([ids for ids, _ in blocks])
        if blocks and blocks[0][1] is not None:
            columns["group"] = np.concatenate([groups for _, groups in blocks])
        columns["component"] = probabilities.argmax(axis=1)
        columns |= {f"probability {number}": line for number, line in enumerate(probabilities.T)}
        return table_of(columns, table)

    def summary(self, k: int = 5) -> str:
        """A few lines of text: what was fitted, how the fit ended, and the share and the top k items of each component.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> print(model.summary())
        PlackettLuceMixture: 1 component, 2 items
        log-likelihood -2.249, converged after ... iterations
        component 0, share 100.0 %: tea (0.75), mate (0.25)
        The number of an item is the probability that it is chosen first from all items.
        """
        mixture = self._mixture()
        k = int(whole_number("k", k, at_least=1))
        words = "component" if mixture.n_components == 1 else "components"
        lines = [f"{type(self).__name__}: {mixture.n_components} {words}, {mixture.n_items} items"]
        log_likelihood = getattr(self, "log_likelihood_", None)
        if log_likelihood is not None:
            ended = "converged" if getattr(self, "converged_", False) else "not converged"
            n_iter = getattr(self, "n_iter_", 0)
            lines.append(f"log-likelihood {log_likelihood:.4g}, {ended} after {n_iter} iterations")
        for number, (share, logs) in enumerate(zip(mixture.shares, mixture.log_worths, strict=True)):
            worths = np.exp(logs - np.logaddexp.reduce(logs))
            top = np.argsort(-logs, kind="stable")[:k]
            named = ", ".join(f"{mixture.item_names[item]} ({worths[item]:.2g})" for item in top)
            lines.append(f"component {number}, share {share:.1%}: {named}".replace("%:", " %:"))
        lines.append("The number of an item is the probability that it is chosen first from all items.")
        return "\n".join(lines)


def _labels(rankings: Rankings) -> Any:
    """Ids and groups of each leaf, as they were written."""
    for block in rankings.source.iter_leaves(0, rankings.n_leaves, labels=True):
        yield block.ids, block.groups
