"""Compiling kernels ahead: which ones a fit uses, whether the cache has them, and filling the cache."""

from __future__ import annotations

import time
from typing import NamedTuple

from plmix_dist.kernels import em_pass, entries, observed_information, pairwise, posteriors, surprise
from plmix_dist.kernels.jit import KERNELS, argument_types
from plmix_dist.kernels.numba_internals import is_cached

__all__ = [
    "FIRST_FIT_SECONDS",
    "CompiledKernel",
    "compile_kernels",
    "kernels_are_compiled",
    "kernels_of_fit",
]

# All kernels are defined once these modules are imported.
_MODULES = (em_pass, entries, observed_information, pairwise, posteriors, surprise)

# About how long a first fit compiles, in seconds.
FIRST_FIT_SECONDS = 3


class CompiledKernel(NamedTuple):
    """A kernel that was asked for.

    Parameters
    ----------
    name
        The name of the kernel.
    seconds
        How long compiling or loading it took; 0 if this process had it already.
    was_cached
        Whether it was there already, in this process or in the cache.
    """

    name: str
    seconds: float
    was_cached: bool


def kernels_of_fit(*, with_rates: bool) -> tuple[str, ...]:
    """The names of the kernels that a default fit uses; `with_rates` for M-steps by LSR.

    Examples
    --------
    >>> "_add_rows_and_rates" in kernels_of_fit(with_rates=False)
    False
    """
    passes = ("_add_rows_and_rates",) if with_rates else ("_add_rows",)
    return ("_fill_entries", "_count_wins", *passes, "_take_logs", "_fill_posteriors", "_add_information")


def kernels_are_compiled(*, with_rates: bool) -> bool:
    """Whether a default fit will find all its kernels compiled, in this process or in the cache.

    Examples
    --------
    >>> _ = compile_kernels(kernels_of_fit(with_rates=False))
    >>> kernels_are_compiled(with_rates=False)
    True
    """
    return all(map(_is_compiled, kernels_of_fit(with_rates=with_rates)))


def compile_kernels(names: tuple[str, ...] | None = None) -> list[CompiledKernel]:
    """Compile kernels, or load them from the cache; all of them if no names are given.

    Examples
    --------
    >>> [kernel.name for kernel in compile_kernels(("_fill_entries",))]
    ['_fill_entries']
    """
    compiled = []
    for name in names or tuple(KERNELS):
        was_cached, begun = _is_compiled(name), time.perf_counter()
        KERNELS[name].compile(argument_types(KERNELS[name]))
        compiled.append(CompiledKernel(name, time.perf_counter() - begun, was_cached))
    return compiled


def _is_compiled(name: str) -> bool:
    kernel = KERNELS[name]
    types = argument_types(kernel)
    return types in kernel.overloads or is_cached(kernel, types)
