"""FittedMixture: what methods of predictions need from an estimator, and the argument `component`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.choices.row_functions import ALL
from plmix_dist.errors import SettingsError
from plmix_dist.values import shown

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.data import Rankings
    from plmix_dist.engine.by_row import RowFunction
    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.mixture import MixtureParams
    from plmix_dist.rankings import Unranked


class FittedMixture:
    """A base of classes that add methods to an estimator. The estimator has these.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> issubclass(PlackettLuceMixture, FittedMixture)
    True
    """

    @abstractmethod
    def _mixture(self) -> MixtureParams: ...

    @abstractmethod
    def _by_row(
        self, X: Any, unranked: Unranked | None, client: ClientLike, function: RowFunction
    ) -> Any: ...

    @abstractmethod
    def _rankings(
        self,
        X: Any,
        unranked: Unranked | None,
        sample_weight: ArrayLike | None = None,
        *,
        ties: str = "marginal",
        covariates: ArrayLike | None = None,
    ) -> Rankings: ...

    @abstractmethod
    def _by_person(
        self,
        X: Any,
        unranked: Unranked | None,
        client: ClientLike,
        function: RowFunction,
        covariates: ArrayLike | None,
    ) -> Any: ...

    @property
    @abstractmethod
    def _coefficients(self) -> NDArray[np.float64] | None: ...

    @property
    @abstractmethod
    def _ties(self) -> str: ...

    def _predicted(
        self,
        X: Any,
        function: RowFunction,
        chosen: int | str | None,
        unranked: Unranked | None,
        client: ClientLike,
        covariates: ArrayLike | None,
    ) -> Any:
        """A row function of the mixture, with each person's own shares; of a known component, shares do not matter."""
        if chosen is None:
            return self._by_person(X, unranked, client, function, covariates)
        return self._by_row(X, unranked, client, function)


def chosen_component(component: Any, mixture: MixtureParams) -> Any:
    """The argument `component`, checked: None, "all", or a number from 0.

    Examples
    --------
    >>> from plmix_dist.mixture import MixtureParams
    >>> chosen_component(1, MixtureParams.of([[0, 1], [1, 0]], None, ["tea", "mate"]))
    1
    """
    if component is None or (isinstance(component, str) and component == ALL):
        return component
    is_number = isinstance(component, int | np.integer) and not isinstance(component, bool | np.bool_)
    if not is_number or not 0 <= component < mixture.n_components:
        raise SettingsError(
            f'component must be None (the mixture), "all", or a number from 0 to {mixture.n_components - 1}, but is '
            f"{shown(component)}"
        )
    return int(component)


def one_component(component: Any, mixture: MixtureParams) -> int | None:
    """The argument `component` where "all" has no meaning.

    Examples
    --------
    >>> from plmix_dist.mixture import MixtureParams
    >>> one_component(None, MixtureParams.of([[0, 1]], None, ["tea", "mate"]))
    """
    chosen: int | str | None = chosen_component(component, mixture)
    if isinstance(chosen, str):
        raise SettingsError(
            'component must be None or a number here; call once per component instead of "all"'
        )
    return chosen
