"""What the user asked for, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.solvers import SOLVERS
from plmix_dist.starts.sdp_start import KERNELS
from plmix_dist.starts.spectral_start import SpectralSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.engine.residency import Residency

INITS = ("spectral", "random", "kernel")


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
        if self.n_components < 1:
            raise SettingsError(f"n_components must be at least 1, but is {self.n_components}")
        if self.m_step not in ("auto", *SOLVERS):
            raise SettingsError(f"m_step must be one of auto, {', '.join(SOLVERS)}, but is {self.m_step!r}")
        if self.init not in INITS:
            raise SettingsError(f"init must be one of {', '.join(INITS)}, but is {self.init!r}")
        if self.kernel not in KERNELS:
            raise SettingsError(f"kernel must be one of {', '.join(KERNELS)}, but is {self.kernel!r}")
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
        self.spectral  # noqa: B018 - refuses what makes no sense

    @property
    def spectral(self) -> SpectralSettings:
        """What of it concerns a spectral start."""
        return SpectralSettings(self.n_components, self.embedding, self.svd_rank, self.link, self.seed)
