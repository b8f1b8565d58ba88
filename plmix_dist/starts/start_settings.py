"""StartSettings: how a fit shall begin, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.starts.least_squares import LINKS
from plmix_dist.starts.ranking_similarity import KERNELS

if TYPE_CHECKING:
    from numpy.typing import NDArray

INITS = ("spectral", "random", "kernel")
EMBEDDINGS = ("auto", "pairwise", "rank")


@dataclass(frozen=True)
class StartSettings:
    """How to make starts; see PlackettLuceMixture.

    Examples
    --------
    >>> StartSettings(3).chosen_embedding
    'rank'
    """

    n_components: int
    embedding: str = "auto"
    svd_rank: Any = "auto"
    link: str = "logit"
    seed: int = 0
    init: str = "spectral"
    n_init: int = 1
    kernel: str = "kendall"
    shares: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.n_components < 1:
            raise SettingsError(f"n_components must be at least 1, but is {self.n_components}")
        for name, known in (("init", INITS), ("kernel", KERNELS), ("embedding", EMBEDDINGS), ("link", LINKS)):
            if getattr(self, name) not in known:
                raise SettingsError(
                    f"{name} must be one of {', '.join(known)}, but is {getattr(self, name)!r}"
                )
        is_number = isinstance(self.svd_rank, int | np.integer) and not isinstance(self.svd_rank, bool)
        if self.svd_rank not in ("auto", "paper") and not (is_number and self.svd_rank >= 1):
            raise SettingsError(
                f"svd_rank must be 'auto', 'paper' or a number from 1 on, but is {self.svd_rank!r}"
            )
        if self.svd_rank == "paper" and self.embedding == "rank":
            raise SettingsError(
                "svd_rank='paper' is a rule for the pairwise embedding; choose embedding='pairwise'"
            )

    @property
    def chosen_embedding(self) -> str:
        """The embedding, "auto" decided: ranks tell as much as pairs and cost a fraction (docs/fitting.md)."""
        if self.embedding == "auto":
            return "pairwise" if self.svd_rank == "paper" else "rank"
        return self.embedding
