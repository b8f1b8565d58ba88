"""Compiling kernels ahead: which ones a fit uses, whether the cache has them, and filling the cache."""

from __future__ import annotations

import time
from typing import NamedTuple

from plmix_dist.kernels import (
    em_pass,
    observed_information,
    pairwise,
    posteriors,
    row_logs,
    surprise,
    sweep_sums,
)
from plmix_dist.kernels.native import Kernel

# All kernels are known once these modules are imported.
_MODULES = (em_pass, observed_information, pairwise, posteriors, row_logs, surprise, sweep_sums)

# About how long a first fit compiles, in seconds.
FIRST_FIT_SECONDS = 3


class CompiledKernel(NamedTuple):
    """A kernel that was asked for.

    Parameters
    ----------
    name
        The name of the kernel.
    seconds
        How long compiling or loading it took.
    was_kept
        Whether the cache had it already.
    is_kept
        Whether the cache has it now; False if the folder cannot be written.
    """

    name: str
    seconds: float
    was_kept: bool
    is_kept: bool


def kernels_of_fit(*, with_rates: bool) -> tuple[str, ...]:
    """The names of the kernels that a default fit uses; `with_rates` for M-steps by LSR.

    Examples
    --------
    >>> "add_rows_and_rates" in kernels_of_fit(with_rates=False)
    False
    """
    passes = "add_rows_and_rates" if with_rates else "add_rows"
    return ("fill_entries", "count_wins", passes, "take_logs", "fill_posteriors", "add_information")


def kernels_are_compiled(*, with_rates: bool) -> bool:
    """Whether a default fit will find all its kernels compiled, in this process or in the cache.

    Examples
    --------
    >>> _ = compile_kernels(kernels_of_fit(with_rates=False))
    >>> kernels_are_compiled(with_rates=False)
    True
    """
    return all(Kernel.known[name].is_compiled for name in kernels_of_fit(with_rates=with_rates))


def compile_kernels(names: tuple[str, ...] | None = None) -> list[CompiledKernel]:
    """Fill the cache with kernels, and load them; all kernels if no names are given.

    Examples
    --------
    >>> [kernel.name for kernel in compile_kernels(("fill_entries",))]
    ['fill_entries']
    """
    compiled = []
    for name in names or tuple(Kernel.known):
        kernel = Kernel.known[name]
        was_kept, begun = kernel.is_kept, time.perf_counter()
        kernel.load(keep=True)
        compiled.append(CompiledKernel(name, time.perf_counter() - begun, was_kept, kernel.is_kept))
    return compiled
