"""What the user asked for in a Bayesian fit, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.inference.gibbs import Gibbs
from plmix_dist.solvers.gamma_prior import GammaPrior
from plmix_dist.values import numbers, one_of, real_number, whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.engine.residency import Residency

# Below this, prior draws of log-worths range further than kernels can compute with.
_LEAST_SHAPE = 0.05
# Numbers of all draws that are kept: 2 GB.
_MOST_NUMBERS = 1 << 28


@dataclass(frozen=True)
class BayesSettings:
    """What the user asked for; see BayesianPlackettLuceMixture."""

    n_components: int
    n_chains: int = 4
    n_warmup: int = 500
    n_draws: int = 1000
    thin: int = 1
    worth_shape: Any = 1.0
    worth_rate: Any = 1.0
    share_concentration: float = 1.0
    residency: Residency = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings of a wrong type or out of range."""
        whole_number("n_components", self.n_components, at_least=1)
        whole_number("n_chains", self.n_chains, at_least=1)
        whole_number("n_warmup", self.n_warmup)
        whole_number("n_draws", self.n_draws, at_least=1)
        whole_number("thin", self.thin, at_least=1)
        real_number("share_concentration", self.share_concentration, at_least=1e-3, at_most=1e9)
        one_of("residency", self.residency, ("auto", "memory", "store"))
        for name in ("worth_shape", "worth_rate"):
            values = numbers(name, getattr(self, name))
            if values.ndim > 1 or not np.isfinite(values).all() or not (values > 0).all():
                raise SettingsError(
                    f"{name} must be a positive number, or one per item, but is {getattr(self, name)!r}"
                )
        if numbers("worth_shape", self.worth_shape).min() < _LEAST_SHAPE:
            raise SettingsError(
                f"worth_shape must be at least {_LEAST_SHAPE}, but its least is {np.min(self.worth_shape)}: log-worths "
                "drawn from such a prior range too far to be computed with"
            )

    def gibbs(self, n_items: int) -> Gibbs:
        """The sampler for so many items.

        Examples
        --------
        >>> BayesSettings(2, n_warmup=10, n_draws=20, thin=3).gibbs(n_items=5).n_sweeps
        70
        """
        n_kept = self.n_chains * self.n_draws * (self.n_components * (n_items + 1) + 1)
        if n_kept > _MOST_NUMBERS:
            raise SettingsError(
                f"{self.n_chains} chains of {self.n_draws} draws of {self.n_components} x {n_items} log-worths are "
                f"{8 * n_kept / 1e9:.1f} GB, more than {8 * _MOST_NUMBERS / 1e9:.1f} GB; choose a smaller n_draws and "
                "a larger thin"
            )
        return Gibbs(self.prior(n_items), self.n_warmup, self.n_draws, self.thin, self.seed)

    def prior(self, n_items: int) -> GammaPrior:
        """The prior for so many items.

        Examples
        --------
        >>> BayesSettings(2, worth_shape=2.0).prior(n_items=3).shape.tolist()
        [2.0, 2.0, 2.0]
        """
        shape, rate = (
            _per_item(name, getattr(self, name), n_items) for name in ("worth_shape", "worth_rate")
        )
        return GammaPrior(shape, rate, float(self.share_concentration))


def _per_item(name: str, given: Any, n_items: int) -> NDArray[np.float64]:
    values = numbers(name, given)
    if values.ndim == 1 and values.shape != (n_items,):
        raise SettingsError(f"{name} has {len(values)} numbers, but there are {n_items} items")
    return np.broadcast_to(values, n_items).copy()
