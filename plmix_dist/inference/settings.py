"""What the user asked for, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.inference.stopping import STOPPINGS
from plmix_dist.rankings.ranges import LARGEST_WEIGHT
from plmix_dist.rankings.tie_treatments import TIES
from plmix_dist.solvers import M_STEPS
from plmix_dist.starts.start_settings import MOST_SPREAD, StartSettings
from plmix_dist.values import one_of, real_number, whole_number, yes_or_no

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.engine.residency import Residency

_MOST_SHOWN = 10


@dataclass(frozen=True)
class FitSettings:
    """What the user asked for; see PlackettLuceMixture. The last four are decided by a method (`methods.py`).

    Parameters
    ----------
    start_rows, most_spread
        `rows` and `most_spread` of StartSettings.
    sample_fits
        Whether a search and fits to samples come before the fit to all rows.
    stopping
        A name in `STOPPINGS`.
    """

    n_components: int
    m_step: str = "auto"
    em: Literal["fused", "exact"] = "fused"
    n_init: int = 1
    alpha: float = 1.0
    shares: NDArray[np.float64] | None = None
    tol: float = 1e-8
    max_iter: int = 500
    accelerate: bool = True
    residency: Residency = "auto"
    init: str = "spectral"
    embedding: str = "auto"
    svd_rank: Any = "auto"
    link: str = "logit"
    kernel: str = "kendall"
    ties: str = "expand"
    seed: int = 0
    svd_threshold: float = 1.0
    cluster_worths: str = "least-squares"
    start_rows: str = "sample"
    most_spread: float = MOST_SPREAD
    sample_fits: bool = True
    stopping: str = "gradient"

    def __post_init__(self) -> None:
        """Refuse settings of a wrong type or out of range."""
        self.start  # noqa: B018 - refuses what concerns the start
        one_of("m_step", self.m_step, ("auto", *M_STEPS))
        one_of("ties", self.ties, tuple(TIES))
        one_of("em", self.em, ("fused", "exact"))
        one_of("residency", self.residency, ("auto", "memory", "store"))
        whole_number("max_iter", self.max_iter, at_least=1)
        real_number("alpha", self.alpha, at_least=0, at_most=LARGEST_WEIGHT)
        real_number("tol", self.tol, above=0)
        yes_or_no("accelerate", self.accelerate)
        yes_or_no("sample_fits", self.sample_fits)
        one_of("stopping", self.stopping, tuple(STOPPINGS))
        if self.shares is not None and (
            self.shares.shape != (self.n_components,)
            or not ((self.shares > 0) & (self.shares <= 1)).all()
            or not np.isclose(self.shares.sum(), 1)
        ):
            found = self.shares.tolist() if self.shares.size <= _MOST_SHOWN else f"shape {self.shares.shape}"
            raise SettingsError(
                f"shares must be {self.n_components} positive numbers that sum to 1, one per component, but is {found}"
            )

    @property
    def start(self) -> StartSettings:
        """What of it concerns the start."""
        return StartSettings(
            self.n_components,
            self.embedding,
            self.svd_rank,
            self.link,
            self.seed,
            self.init,
            self.n_init,
            self.kernel,
            self.shares,
            self.svd_threshold,
            self.cluster_worths,
            self.start_rows,
            self.most_spread,
        )
