"""StartSettings: which kind of start a fit uses, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.starts.least_squares import LINKS
from plmix_dist.starts.ranking_similarity import SIMILARITIES
from plmix_dist.values import nearest, one_of, real_number, shown, whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

INITS = ("spectral", "random", "kernel", "moments")
EMBEDDINGS = ("auto", "pairwise", "rank")
CLUSTER_WORTHS = ("least-squares", "lsr")
START_ROWS = ("sample", "all")
# Hard clusters overstate differences between items, so log-worths of clusters are shrunk to at most this standard
# deviation.
MOST_SPREAD = 1.0


@dataclass(frozen=True)
class StartSettings:
    """How starts are made; the parameters are those of PlackettLuceMixture, and two more that a method decides.

    Parameters
    ----------
    rows
        "sample" makes a spectral start from a sample of the rows; "all" from all rows, on the workers.
    most_spread
        Log-worths of clusters are shrunk to at most this standard deviation.

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
    svd_threshold: float = 1.0
    cluster_worths: str = "least-squares"
    rows: str = "sample"
    most_spread: float = MOST_SPREAD

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
        real_number("svd_threshold", self.svd_threshold, above=0)
        if self.svd_threshold != 1.0 and self.svd_rank != "paper":
            raise SettingsError(
                f"svd_threshold multiplies the threshold of svd_rank='paper', but svd_rank is {shown(rank, str)}; "
                "choose svd_rank='paper', or leave svd_threshold out"
            )
        one_of("cluster_worths", self.cluster_worths, CLUSTER_WORTHS)
        if self.cluster_worths == "lsr" and self.link != "logit":
            raise SettingsError(
                f"cluster_worths='lsr' estimates Plackett-Luce models, to which link={self.link!r} does not belong; "
                "choose cluster_worths='least-squares', or link='logit'"
            )
        one_of("rows", self.rows, START_ROWS)

    @property
    def from_all_rows(self) -> bool:
        """Whether the start goes through all rows.

        Examples
        --------
        >>> StartSettings(3, embedding="pairwise", rows="all").from_all_rows
        True
        """
        return self.init == "spectral" and self.rows == "all"

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
