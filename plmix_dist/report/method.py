"""ReportMethods: the method `report` of an estimator, and what a notebook shows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plmix_dist.choices.fitted_mixture import FittedMixture
from plmix_dist.display.notebook import NotebookView, model_card
from plmix_dist.report.write import write_report

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from numpy.typing import ArrayLike

    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.rankings import Unranked
    from plmix_dist.uncertainty.results import StandardErrors


class ReportMethods(NotebookView, FittedMixture):
    """A report of a fitted mixture.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> issubclass(PlackettLuceMixture, ReportMethods)
    True
    """

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,  # noqa: N803 - scikit-learn's name for the data
        *,
        title: str | None = None,
        standard_errors: StandardErrors | bool | None = None,
        selection: Any = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Path:
        """Write one HTML file that needs nothing else and no network (docs/report.md).

        A report that is there is replaced; any other file is an error.

        Parameters
        ----------
        path
            The file to write.
        X
            The rankings of the fit. With them, the report says how certain memberships are, and how certain worths.
        title
            The title of the page; by default it says how many components were found.
        standard_errors
            What `standard_errors(X)` gave. None computes them if X is given and there are at most 2,000 log-worths;
            True always, False never.
        selection
            How the number of components was chosen: a table with a column `n_components`, as a list of records or a
            frame, or an object that has such a table as `table_`.
        unranked, client, membership_covariates
            As in `fit`, for X.

        Examples
        --------
        >>> import tempfile
        >>> from plmix_dist import PlackettLuceMixture
        >>> rankings = [["tea", "mate", "milk"]] * 30 + [["milk", "mate", "tea"]] * 10
        >>> model = PlackettLuceMixture(2, random_state=0).fit(rankings)
        >>> model.report(tempfile.mkdtemp() + "/drinks.html", rankings).name
        'drinks.html'
        """
        return write_report(
            self,
            path,
            X,
            title=title,
            standard_errors=standard_errors,
            selection=selection,
            unranked=unranked,
            client=client,
            membership_covariates=membership_covariates,
        )

    def _card(self) -> str | None:
        return model_card(self) if hasattr(self, "log_worths_") else None
