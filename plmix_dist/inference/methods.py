"""Methods: bundles of settings that go by one name. Each is one value; a fit knows settings alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plmix_dist.errors import SettingsError
from plmix_dist.values import one_of, shown

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Method:
    """Settings that belong together.

    Parameters
    ----------
    name
        What users type as method.
    settings
        Values that take the place of defaults: of parameters, and of settings that only a method decides.
    open
        Parameters among them that users may set all the same.

    Examples
    --------
    >>> PAPER.settings["alpha"], PAPER.settings["em"], sorted(PAPER.open)
    (0.0, 'exact', ['m_step', 'svd_rank'])
    """

    name: str
    settings: Mapping[str, Any]
    open: frozenset[str]


# Nguyen & Zhang (AAAI 2023), "Efficient and Accurate Learning of Mixtures of Plackett-Luce Models": docs/paper.md.
PAPER = Method(
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
METHODS = {method.name: method for method in (PAPER,)}


def with_method(name: str | None, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a fit: parameters as the user gave them, and where they have their defaults, the method's.

    Parameters
    ----------
    name
        A name in `METHODS`, or None.
    given
        Parameters as the estimator has them.
    defaults
        Their defaults. A parameter that has its default counts as not given.

    Examples
    --------
    >>> defaults = {"alpha": 1.0, "em": "fused", "tol": 1e-8}
    >>> settings = with_method("paper", {"alpha": 1.0, "em": "fused", "tol": 1e-4}, defaults)
    >>> settings["alpha"], settings["em"], settings["tol"]
    (0.0, 'exact', 0.0001)
    >>> with_method("paper", {"alpha": 0.1}, {"alpha": 1.0})
    Traceback (most recent call last):
    plmix_dist.errors.SettingsError: method='paper' has alpha=0.0, but alpha is 0.1 (float); leave alpha out, ...
    """
    if name is None:
        return dict(given)
    one_of("method", name, tuple(METHODS))
    method = METHODS[name]
    settings = dict(given)
    for parameter, value in method.settings.items():
        if parameter not in given or _is(given[parameter], defaults.get(parameter)):
            settings[parameter] = value
        elif parameter not in method.open and not _is(given[parameter], value):
            raise SettingsError(
                f"method={name!r} has {parameter}={value!r}, but {parameter} is {shown(given[parameter])}; leave "
                f"{parameter} out, or leave method out and set the parameters you want"
            )
    return settings


def _is(value: Any, other: Any) -> bool:
    """Whether two values of settings are the same; arrays and the like never are."""
    plain = str | int | float | bool | None
    return isinstance(value, plain) and isinstance(other, plain) and value == other
