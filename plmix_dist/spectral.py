"""SpectralPlackettLuce: the spectral start alone, as an estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from plmix_dist.data import as_rankings
from plmix_dist.engine.clients import client_of
from plmix_dist.engine.memory_needed import check_memory
from plmix_dist.engine.passes import make_passes
from plmix_dist.fitted import MixtureEstimator
from plmix_dist.inference.look import take_look
from plmix_dist.mixture import MixtureParams
from plmix_dist.stages import Stages
from plmix_dist.starts.spectral_start import SpectralStarter
from plmix_dist.starts.start_settings import StartSettings
from plmix_dist.values import one_of, seed_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.engine.residency import Residency
    from plmix_dist.rankings import Unranked
    from plmix_dist.values import RandomState


class SpectralPlackettLuce(MixtureEstimator):
    """A mixture estimated by spectral clustering and least squares, without EM (Nguyen & Zhang 2023, Algorithm 3).

    It reads all rows once and works on a sample. If components differ in many items, it is nearly as good as EM.

    Parameters
    ----------
    n_components
        The number of components.
    embedding, svd_rank, link
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
        Singular values and vectors of the embedded, centred sample; fewer if there are fewer columns.
    rank_
        How many of the vectors the rows were projected on.
    embedding_
        The embedding that was used.
    n_sampled_
        The number of rows of the sample.
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
        embedding: Literal["auto", "pairwise", "rank"] = "auto",
        svd_rank: Literal["auto", "paper"] | int = "auto",
        link: Literal["logit", "probit"] = "logit",
        unranked: Unranked | None = None,
        residency: Residency = "auto",
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.embedding = embedding
        self.svd_rank = svd_rank
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
        settings = StartSettings(self.n_components, self.embedding, self.svd_rank, self.link, seed)
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
            with stages.stage("look", passes=1):
                look = take_look(passes, rankings, seed)
            passes.release()
            start = SpectralStarter(look.small_sample, settings, stages, chosen).start()
        self._set_mixture(MixtureParams.of(start.log_worths, start.shares, rankings.item_names))
        self.unranked_ = unranked or self.unranked
        self.singular_values_ = start.singular_values
        self.vectors_ = start.vectors
        self.rank_ = start.rank
        self.embedding_ = start.embedding
        self.n_sampled_ = look.small_sample.n_rankings
        self.stages_ = stages.records
        return self
