"""What the user asked for, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.solvers import M_STEPS
from plmix_dist.starts.start_settings import StartSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.engine.residency import Residency


@dataclass(frozen=True)
class FitSettings:
    """What the user asked for; see PlackettLuceMixture."""

    n_components: int
    m_step: str = "auto"
    em: Literal["fused", "exact"] = "fused"
    n_init: int = 1
    alpha: float = 0.1
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
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        self.start  # noqa: B018 - refuses what makes no sense
        if self.m_step not in ("auto", *M_STEPS):
            raise SettingsError(f"m_step must be one of auto, {', '.join(M_STEPS)}, but is {self.m_step!r}")
        if self.em not in ("fused", "exact"):
            raise SettingsError(f"em must be fused or exact, but is {self.em!r}")
        if self.n_init < 1 or self.max_iter < 1:
            raise SettingsError("n_init and max_iter must be at least 1")
        if not (np.isfinite(self.alpha) and self.alpha >= 0):
            raise SettingsError(f"alpha must be finite and not negative, but is {self.alpha}")
        if not self.tol > 0:
            raise SettingsError(f"tol must be positive, but is {self.tol}")
        if self.shares is not None and (
            self.shares.shape != (self.n_components,)
            or not (self.shares > 0).all()
            or not np.isclose(self.shares.sum(), 1)
        ):
            raise SettingsError(f"shares must be {self.n_components} positive numbers that sum to 1")

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
        )
