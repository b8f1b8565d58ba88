"""How kernels are compiled: Python to LLVM by numba, LLVM to machine code by llvmlite."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
import numba
from numba import types

from plmix_dist.kernels.compiled.numba_internals import KernelCompiler, PartCompiler
from plmix_dist.kernels.native import MachineCode, target_machine

if TYPE_CHECKING:
    from collections.abc import Callable

# No fast-math: the same inputs must give the same bits, and NaN must stay NaN. Division by zero gives infinity, as in
# NumPy, so that a bad number is found by the check on results instead of an exception in the middle of a block.
_OPTIONS: dict[str, Any] = {"no_rewrites": True, "error_model": "numpy", "boundscheck": False}
# Functions of the C library that kernels may call.
_OF_LIBM = frozenset({"exp"})

# A call would cost as much as a short row itself, so LLVM puts parts in the place of their calls.
kernel_part = numba.njit(
    forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=PartCompiler, **_OPTIONS
)


def kernel(function: Callable[..., None]) -> Callable[..., None]:
    """Mark a function that `compile_kernel` compiles. Each argument is what `pointers` gives for a structure."""
    return function


def compile_kernel(name: str, n_arguments: int) -> MachineCode:
    """Compile the kernel of a name, which takes so many structures.

    Examples
    --------
    >>> code = compile_kernel("take_logs", 1)
    >>> "take_logs" in code.symbol, len(code.object_file) > 500
    (True, True)
    """
    function = getattr(importlib.import_module(f"plmix_dist.kernels.compiled.{name}"), name)
    fields = types.CPointer(types.int64)
    signature = types.void(*[fields] * n_arguments)
    compiled = numba.cfunc(signature, pipeline_class=KernelCompiler, **_OPTIONS)(function)
    module = llvm.parse_assembly(compiled.inspect_llvm())
    machine = target_machine()
    _remove_error_handling(module, machine)
    _check_stands_alone(name, module)
    return MachineCode(compiled.native_name, machine.emit_object(module))


def _remove_error_handling(module: Any, machine: Any) -> None:
    """Remove what would report an exception of the kernel: by now LLVM can see that there is none."""
    manager = llvm.create_new_module_pass_manager()
    manager.add_ipsccp_pass()
    manager.add_simplify_cfg_pass()
    manager.add_strip_dead_prototype_pass()
    manager.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))


def _check_stands_alone(name: str, module: Any) -> None:
    """Machine code is loaded without numba: a kernel may call nothing of numba's, as it does where it may raise."""
    declared = [function.name for function in module.functions if function.is_declaration]
    called = [called for called in declared if not called.startswith("llvm.") and called not in _OF_LIBM]
    if called:
        raise RuntimeError(
            f"the kernel {name} calls {', '.join(called)}: it may raise an exception, for example because of a range "
            "whose step is not a constant; write it so that it cannot"
        )
