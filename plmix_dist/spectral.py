"""SpectralPlackettLuce: the spectral start alone, as an estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from plmix_dist.data import as_rankings
from plmix_dist.engine.clients import client_of
from plmix_dist.engine.memory_needed import check_memory
from plmix_dist.engine.passes import make_passes
from plmix_dist.fitted import MixtureEstimator
from plmix_dist.inference.look import take_look
from plmix_dist.inference.methods import with_method
from plmix_dist.mixture import MixtureParams
from plmix_dist.stages import Stages
from plmix_dist.starts.spectral_start import SpectralStarter
from plmix_dist.starts.start_settings import StartSettings
from plmix_dist.starts.whole_start import whole_start
from plmix_dist.values import one_of, seed_of

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import ArrayLike

    from plmix_dist.data import Rankings
    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.engine.passes import Passes
    from plmix_dist.engine.residency import Residency
    from plmix_dist.rankings import Unranked
    from plmix_dist.starts.spectral_start import SpectralStart
    from plmix_dist.values import RandomState


class SpectralPlackettLuce(MixtureEstimator):
    """A mixture estimated by spectral clustering and least squares, without EM (Nguyen & Zhang 2023, Algorithm 3).

    It reads all rows once and works on a sample; with method="paper" it works on all rows. If components differ in many
    items, it is nearly as good as EM.

    Parameters
    ----------
    n_components
        The number of components.
    method
        None, or "paper": the start as published, from all rows (docs/paper.md). It sets embedding and svd_rank where
        these have their defaults.
    embedding, svd_rank, svd_threshold, cluster_worths, link
        As in PlackettLuceMixture. With link="probit" the utilities are those of Thurstone's model. Likelihoods and
        memberships are still those of Plackett-Luce models, so they are approximations.
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
        For svd_rank="paper": the threshold, the largest gap, and whether a gap reached the threshold; otherwise None.
    stages_
        One record per stage: seconds, passes over the rows, and memory.

    Examples
    --------
    >>> import numpy as np
    >>> rankings = np.array([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10)
    >>> SpectralPlackettLuce(2, random_state=0).fit(rankings).shares_.tolist()
    [0.75, 0.25]
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        method: Literal["paper"] | None = None,
        embedding: Literal["auto", "pairwise", "rank"] = "auto",
        svd_rank: Literal["auto", "paper"] | int = "auto",
        svd_threshold: float = 1.0,
        cluster_worths: Literal["least-squares", "lsr"] = "least-squares",
        link: Literal["logit", "probit"] = "logit",
        unranked: Unranked | None = None,
        residency: Residency = "auto",
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.embedding = embedding
        self.svd_rank = svd_rank
        self.svd_threshold = svd_threshold
        self.cluster_worths = cluster_worths
        self.link = link
        self.unranked = unranked
        self.residency = residency
        self.random_state = random_state

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
        """Estimate the mixture. The parameters are those of PlackettLuceMixture.fit.

        Examples
        --------
        >>> SpectralPlackettLuce(2, random_state=0).fit([[0, 1, 2]] * 3 + [[2, 1, 0]]).rank_
        1
        """
        del y
        seed = seed_of(self.random_state)
        settings = self._settings(seed)
        one_of("residency", self.residency, ("auto", "memory", "store"))
        stages = Stages()
        with client_of(client) as chosen:
            rankings = as_rankings(
                X,
                n_items=n_items,
                unranked=unranked,
                default_unranked=self.unranked,
                sample_weight=sample_weight,
                client=chosen,
                ties="expand",
            )
            check_memory(rankings.n_items, self.n_components)
            passes = make_passes(rankings, chosen, self.residency)
            try:
                start, about_rank = _start(passes, rankings, settings, stages, chosen)
            finally:
                passes.release()
        mixture, order = MixtureParams.ordered(start.log_worths, start.shares, rankings.item_names)
        self._set_mixture(mixture)
        self.labels_ = np.argsort(order)[start.labels]
        self.gap_rule_ = about_rank.get("gap_rule")
        self.unranked_ = unranked or self.unranked
        self.singular_values_ = start.singular_values
        self.vectors_ = start.vectors
        self.rank_ = start.rank
        self.embedding_ = start.embedding
        self.n_sampled_ = len(start.labels)
        self.stages_ = stages.records
        return self

    def _settings(self, seed: int) -> StartSettings:
        """The settings, checked."""
        given = {"embedding": self.embedding, "svd_rank": self.svd_rank}
        used = with_method(self.method, given, {"embedding": "auto", "svd_rank": "auto"})
        return StartSettings(
            self.n_components,
            used["embedding"],
            used["svd_rank"],
            self.link,
            seed,
            svd_threshold=self.svd_threshold,
            cluster_worths=self.cluster_worths,
            rows=used.get("start_rows", "sample"),
        )


def _start(
    passes: Passes, rankings: Rankings, settings: StartSettings, stages: Stages, client: Client | None
) -> tuple[SpectralStart, dict[str, Any]]:
    """The start, from all rows or from a sample, and what the rule for the rank found."""
    if settings.from_all_rows:
        return whole_start(passes, rankings, rankings.n_items, settings, stages, client)
    with stages.stage("look", passes=1):
        look = take_look(passes, rankings, settings.seed)
    starter = SpectralStarter(look.small_sample, settings, stages, client)
    return starter.start(), starter.about_rank
