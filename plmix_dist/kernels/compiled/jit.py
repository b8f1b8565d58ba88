"""How kernels are compiled: Python to LLVM by numba, LLVM to machine code by llvmlite."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from plmix_dist.kernels.loading import MachineCode, target_machine

# The names of numba that it does not promise to keep, all of them here: how it compiles parts.


class _PartCompiler(Compiler):
    """Compiles a function that will only be called by kernels.

    Numba would optimise every such function, make machine code of it, and optimise it again in each function that calls
    it. Here it is left as it is: LLVM puts it into the kernel, and optimises that once. This takes a third of the time.
    """

    def __init__(self, typing_context: Any, target_context: Any, library: Any, *rest: Any) -> None:
        del library
        super().__init__(typing_context, target_context, _PartLibrary(target_context.codegen(), "part"), *rest)


class _KernelCompiler(Compiler):
    """Compiles a kernel to optimised LLVM code. Numba would go on and make machine code that is not used."""

    def __init__(self, typing_context: Any, target_context: Any, library: Any, *rest: Any) -> None:
        del library
        super().__init__(typing_context, target_context, _KernelLibrary(target_context.codegen(), "kernel"), *rest)


class _PartLibrary(JITCodeLibrary):
    """LLVM code to be linked into a kernel; it is neither optimised nor made machine code."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        del name
        self._ensure_finalized()
        return 0  # machine code is missing

    @property
    def codegen(self) -> Any:
        return _NoEnvironment


class _KernelLibrary(_PartLibrary):
    """LLVM code of a kernel and all its parts, optimised."""

    def finalize(self) -> None:
        super().finalize()
        self._optimize_final_module()
        self._final_module.verify()


class _NoEnvironment:
    """Stands in for the code generator when numba stores the Python environment of a function: parts have none."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        del name, environment


# No fast-math: the same inputs must give the same bits, and NaN must stay NaN. Division by zero gives infinity, as in
# NumPy, so that a bad number is found by the check on results instead of an exception in the middle of a block.
_OPTIONS: dict[str, Any] = {"no_rewrites": True, "error_model": "numpy", "boundscheck": False}
# Functions of the C library that kernels may call.
_OF_LIBM = frozenset({"exp"})

# A call would cost as much as a short row itself, so LLVM puts parts in the place of their calls.
kernel_part = numba.njit(
    forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=_PartCompiler, **_OPTIONS
)


def kernel(function: Callable[..., None]) -> Callable[..., None]:
    """Mark a function that `compile_kernel` compiles. Each argument is what `pointers` gives for a structure."""
    return function


def compile_kernel(name: str, n_arguments: int) -> MachineCode:
    """Compile the kernel of a name, which takes this many structures."""
    function = getattr(importlib.import_module("plmix_dist.kernels.compiled.kernels"), name)
    fields = types.CPointer(types.int64)
    signature = types.void(*[fields] * n_arguments)
    compiled = numba.cfunc(signature, pipeline_class=_KernelCompiler, **_OPTIONS)(function)
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
