"""SpectralPlackettLuce: the spectral start alone, as an estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from plmix_dist.display.progress import Stages
from plmix_dist.errors import SettingsError, give_warnings
from plmix_dist.fitting.methods import FitSettings, with_method
from plmix_dist.fitting.overview import take_overview
from plmix_dist.fitting.starts.paper import start_from_all_rows
from plmix_dist.fitting.starts.settings import Spectral, flat_start, start_of
from plmix_dist.fitting.starts.spectral import SpectralStarter, gap_warnings
from plmix_dist.models.base import MixtureEstimator
from plmix_dist.models.keywords import OfFit
from plmix_dist.passes import Residency, check_memory, passes_over
from plmix_dist.rankings import Unranked
from plmix_dist.settings import RandomState, check_settings, refuse_start_fields, seed_of, shown
from plmix_dist.store import MixtureParams

_RESULTS = ("unranked", "rank", "embedding", "n_sampled", "gap_rule", "stages")
_ARRAYS = ("singular_values", "vectors", "labels")


@dataclass(eq=False, repr=False)
class SpectralPlackettLuce(MixtureEstimator):
    """A mixture estimated by spectral clustering and least squares, without EM (Nguyen & Zhang 2023, Algorithm 3).

    It reads all rows once and works on a sample; with method="paper" it works on all rows. If components differ in many
    items, it is nearly as good as EM.

    Parameters
    ----------
    n_components
        The number of components.
    method
        None, or "paper": the start as published, from all rows (docs/paper.md). It sets embedding and rank where these
        have their defaults.
    init
        "spectral", or `Spectral(...)`, which says how the start works. With its link="probit" the utilities are those
        of Thurstone's model. Likelihoods and memberships are still those of Plackett-Luce models, so they are
        approximations.
    unranked, residency
        As in PlackettLuceMixture.
    random_state
        Seed of the sample and of k-means.

    Attributes
    ----------
    log_worths_ : (n_components, n_items)
    shares_ : (n_components,)
    item_names_ : (n_items,)
    unranked_
        What unlisted items meant in the fit, for arrays.
    singular_values_ : (n_components + 2,)
    vectors_ : (n_columns, n_components + 2)
        Singular values and vectors of the embedded, centred sample; fewer if there are fewer columns. With
        method="paper" n_components + 1 of all rows, uncentred.
    rank_
        How many of the vectors the rows were projected on.
    embedding_
        The embedding that was used.
    n_sampled_
        The number of rows of the sample, or of all rows.
    labels_ : (n_sampled,)
        The cluster of each of these rows, numbered as components are.
    gap_rule_
        For the rank "paper": the threshold, the largest gap, and whether a gap reached the threshold; otherwise None.
    stages_
        One record per stage: seconds, passes over the rows, and memory.

    Examples
    --------
    >>> rankings = np.array([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10)
    >>> SpectralPlackettLuce(2, random_state=0).fit(rankings).shares_.tolist()
    [0.75, 0.25]
    """

    n_components: int = 2
    _: KW_ONLY
    method: Literal["paper"] | None = None
    init: Literal["spectral"] | Spectral = "spectral"
    unranked: Unranked | None = None
    residency: Residency = "auto"
    random_state: RandomState = None

    def fit(self, X: Any, y: object = None, **how: Unpack[OfFit]) -> Self:
        """Estimate the mixture. The parameters are those of PlackettLuceMixture.fit.

        Examples
        --------
        >>> SpectralPlackettLuce(2, random_state=0).fit([[0, 1, 2]] * 3 + [[2, 1, 0]]).rank_
        1
        """
        del y
        settings = self._settings(seed_of(self.random_state))
        check_settings("fit", {"residency": self.residency})
        stages = Stages()
        with self._rankings_to_fit(X, ties="auto", **how) as (rankings, chosen):
            check_memory(rankings.n_items, settings.n_components)
            with passes_over(rankings, chosen, self.residency) as passes:
                if settings.from_all_rows:
                    start, about_rank = start_from_all_rows(passes, rankings, settings, stages, chosen)
                else:
                    with stages.stage("look", passes=1):
                        look = take_overview(passes, rankings, settings.seed)
                    starter = SpectralStarter(look.small_sample, settings, stages, chosen)
                    start, about_rank = starter.start(), starter.about_rank
        mixture, order = MixtureParams.ordered(start.log_worths, start.shares, rankings.item_names)
        self._set_mixture(mixture)
        self.labels_ = np.argsort(order)[start.labels]
        self.gap_rule_ = about_rank.get("gap_rule")
        self.unranked_ = how.get("unranked") or self.unranked
        self.singular_values_ = start.singular_values
        self.vectors_ = start.vectors
        self.rank_ = start.rank
        self.embedding_ = start.embedding
        self.n_sampled_ = len(start.labels)
        self.stages_ = stages.records
        give_warnings(gap_warnings(about_rank, self.n_components))
        return self

    def _record(self) -> dict[str, Any]:
        return {"settings": self._plain_settings(), "fit": {name: getattr(self, f"{name}_") for name in _RESULTS}}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {f"init_{name}": np.asarray(getattr(self, f"{name}_"), np.float64) for name in _ARRAYS}

    @classmethod
    def _restored(cls, mixture: MixtureParams, record: dict[str, Any], arrays: dict[str, Any], where: str) -> Self:
        fit, names = record.get("fit", {}), [f"init_{name}" for name in _ARRAYS]
        if not set(_RESULTS) <= set(fit) or not set(names) <= set(arrays):
            raise SettingsError(f"the model at {where} is not a spectral one; load it with PlackettLuceMixture.load")
        settings = record.get("settings", {})
        model = cls._unfitted(mixture, settings | {"init": start_of(settings, strict=False)})
        for name in _RESULTS:
            setattr(model, f"{name}_", fit[name])
        model.singular_values_, model.vectors_, labels = (arrays[name] for name in names)
        model.labels_ = labels.astype(np.int64)
        return model

    def _flat_settings(self) -> dict[str, Any]:
        return dict(sorted((self.get_params(deep=False) | flat_start(self.init)).items()))

    def _settings(self, seed: int) -> FitSettings:
        """The settings, checked."""
        if not (isinstance(self.init, Spectral) or (isinstance(self.init, str) and self.init == "spectral")):
            raise SettingsError(f"init must be spectral or Spectral(...), but is {shown(self.init, str)}")
        flat = flat_start(self.init)
        used = with_method(self.method, flat)
        own = {name: used[name] for name in flat}
        return FitSettings(self.n_components, seed=seed, start_rows=used.get("start_rows", "sample"), **own)


SpectralPlackettLuce.__init__ = refuse_start_fields(SpectralPlackettLuce.__init__)  # type: ignore[method-assign]
