"""FitSettings: what the user asked for, checked; and methods, which are bundles of settings."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plmix_dist.errors import SettingsError
from plmix_dist.fitting.fixed_point import STOPPINGS
from plmix_dist.fitting.starts.settings import check_start
from plmix_dist.passes import Residency
from plmix_dist.rankings import Floats
from plmix_dist.settings import default_of, one_of, shown, take_settings, yes_or_no

# Hard clusters overstate differences between items, so log-worths of clusters are shrunk to at most this standard
# deviation.
_MOST_SPREAD = 1.0


@dataclass(frozen=True)
class FitSettings:
    """What a fit needs, by flat names; see PlackettLuceMixture, Spectral and KernelStart.

    Those from `start_rows` to `stopping` are decided by a method: whether a spectral start is made from a "sample" of
    the rows, or from "all" rows on the workers; the standard deviation to which log-worths of clusters are shrunk;
    whether a search and fits to samples come before the fit to all rows; and a name in `STOPPINGS`. Names and order are
    part of fingerprints.
    """

    n_components: int
    m_step: str = default_of("m_step")
    em: Literal["fused", "exact"] = default_of("em")
    n_init: int = default_of("n_init")
    alpha: float = default_of("alpha")
    shares: Floats | None = None
    tol: float = default_of("tol")
    max_iter: int = default_of("max_iter")
    accelerate: bool = default_of("accelerate")
    residency: Residency = default_of("residency")
    init: str = default_of("init")
    embedding: str = default_of("embedding")
    svd_rank: Any = default_of("svd_rank")
    link: str = default_of("link")
    kernel: str = default_of("kernel")
    ties: str = default_of("ties")
    seed: int = 0
    svd_threshold: float = default_of("svd_threshold")
    cluster_worths: str = default_of("cluster_worths")
    start_rows: str = "sample"
    most_spread: float = _MOST_SPREAD
    sample_fits: bool = True
    stopping: str = "gradient"
    noise: bool = False

    def __post_init__(self) -> None:
        """Refuse settings of a wrong type or out of range."""
        take_settings("fit", self)
        check_start(self)
        yes_or_no("sample_fits", self.sample_fits)
        one_of("stopping", self.stopping, tuple(STOPPINGS))
        if self.shares is not None and len(self.shares) != self.n_components:
            raise SettingsError(
                f"shares must be {self.n_components} numbers, one per component, but there are {len(self.shares)}"
            )

    @property
    def from_all_rows(self) -> bool:
        """Whether the start goes through all rows."""
        return self.init == "spectral" and self.start_rows == "all"

    @property
    def chosen_embedding(self) -> str:
        """The embedding that is used. "auto" means "rank": as accurate as "pairwise", and faster (docs/fitting.md)."""
        if self.embedding == "auto":
            return "pairwise" if self.svd_rank == "paper" else "rank"
        return self.embedding


# Methods: bundles of settings that go by one name. Each is one value; a fit knows settings alone.


@dataclass(frozen=True)
class _Method:
    """Settings that belong together: values in place of defaults, by flat names; users may set those in `open`."""

    name: str
    settings: Mapping[str, Any]
    open: frozenset[str]


# Nguyen & Zhang (AAAI 2023), "Efficient and Accurate Learning of Mixtures of Plackett-Luce Models": docs/paper.md.
_PAPER = _Method(
    name="paper",
    settings={
        # The start: pairs of all rows, uncentred; the rank by the threshold T.
        "start_rows": "all",
        "embedding": "pairwise",
        "svd_rank": "paper",
        # Nothing lies between the start and EM on all rows: no shrinking, no search, no fits to samples, one start.
        "most_spread": math.inf,
        "sample_fits": False,
        "n_init": 1,
        # EM: no prior, each M-step solved to its end by weighted LSR, not accelerated.
        "alpha": 0.0,
        "em": "exact",
        "m_step": "lsr",
        "accelerate": False,
        # The end: when log-worths stop moving.
        "stopping": "log-worths",
        # Ties become linear extensions that divide the weight.
        "ties": "expand",
    },
    # Other M-steps from the same start are the paper's rivals; the released code always takes rank K.
    open=frozenset({"m_step", "svd_rank"}),
)

# To add a method, add its value here.
_METHODS = {method.name: method for method in (_PAPER,)}


def with_method(name: str | None, given: Mapping[str, Any], typed: Collection[str] = ()) -> dict[str, Any]:
    """The settings of a fit: as the user gave them, by flat names, and where they have their defaults, the method's.

    A setting that has its default counts as not given, unless it was `typed`: verbs and job files know that.

    Examples
    --------
    >>> settings = with_method("paper", {"alpha": 1.0, "em": "fused", "tol": 1e-4})
    >>> settings["alpha"], settings["em"], settings["tol"]
    (0.0, 'exact', 0.0001)
    """
    if name is None:
        return dict(given)
    one_of("method", name, tuple(_METHODS))
    method = _METHODS[name]
    settings = dict(given)
    for parameter, value in method.settings.items():
        own = given.get(parameter)
        if parameter not in given or (parameter not in typed and _is(own, default_of(parameter))):
            settings[parameter] = value
        elif parameter not in method.open and not _is(own, value):
            raise SettingsError(
                f"method={name!r} has {parameter}={value!r}, but {parameter} is {shown(own)}; leave {parameter} "
                "out, or leave method out and set the parameters you want"
            )
    return settings


def _is(value: Any, other: Any) -> bool:
    """Whether two values of settings are the same; arrays and the like never are."""
    plain = str | int | float | bool | None
    return isinstance(value, plain) and isinstance(other, plain) and value == other
