"""StartSettings: which kind of start a fit uses, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.starts.least_squares import LINKS
from plmix_dist.starts.ranking_similarity import SIMILARITIES
from plmix_dist.values import nearest, one_of, shown, whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

INITS = ("spectral", "random", "kernel", "moments")
EMBEDDINGS = ("auto", "pairwise", "rank")


@dataclass(frozen=True)
class StartSettings:
    """How starts are made; the parameters are those of PlackettLuceMixture.

    Examples
    --------
    >>> StartSettings(3).chosen_embedding
    'rank'
    """

    n_components: int
    embedding: str = "auto"
    svd_rank: str | int = "auto"
    link: str = "logit"
    seed: int = 0
    init: str = "spectral"
    n_init: int = 1
    kernel: str = "kendall"
    shares: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        whole_number("n_components", self.n_components, at_least=1)
        whole_number("n_init", self.n_init, at_least=1)
        one_of("init", self.init, INITS)
        if self.init == "moments" and self.n_components != 2:
            raise SettingsError(
                f"init='moments' is defined for two components, but n_components is {self.n_components}; choose "
                "init='spectral'"
            )
        one_of("kernel", self.kernel, tuple(SIMILARITIES))
        one_of("embedding", self.embedding, EMBEDDINGS)
        one_of("link", self.link, tuple(LINKS))
        rank = self.svd_rank
        is_number = isinstance(rank, int | np.integer) and not isinstance(rank, bool) and rank >= 1
        if not is_number and not (isinstance(rank, str) and rank in ("auto", "paper")):
            raise SettingsError(
                f"svd_rank must be 'auto', 'paper' or a whole number from 1 on, but is {shown(rank, str)}"
                f"{nearest(rank, ('auto', 'paper'))}"
            )
        if self.svd_rank == "paper" and self.embedding == "rank":
            raise SettingsError(
                "svd_rank='paper' is a rule for the pairwise embedding; choose embedding='pairwise'"
            )

    @property
    def chosen_embedding(self) -> str:
        """The embedding that is used. "auto" means "rank": as accurate as "pairwise", and faster (docs/fitting.md).

        Examples
        --------
        >>> StartSettings(3, svd_rank="paper").chosen_embedding
        'pairwise'
        """
        if self.embedding == "auto":
            return "pairwise" if self.svd_rank == "paper" else "rank"
        return self.embedding
