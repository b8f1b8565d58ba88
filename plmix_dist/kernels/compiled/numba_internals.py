"""The names of numba that it does not promise to keep, all of them here: how it compiles parts.

`tests/test_numba_internals.py` fails with the name of what is missing when a new numba moves one.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class PartCompiler(Compiler):
    """Compiles a function that will only be called by kernels.

    Numba would optimise every such function, make machine code of it, and optimise it again in each function that calls
    it. Here it is left as it is: LLVM puts it into the kernel, and optimises that once. This takes a third of the time.
    """

    def __init__(self, typing_context: Any, target_context: Any, library: Any, *rest: Any) -> None:
        del library
        super().__init__(
            typing_context, target_context, _PartLibrary(target_context.codegen(), "part"), *rest
        )


class KernelCompiler(Compiler):
    """Compiles a kernel to optimised LLVM code. Numba would go on and make machine code that is not used."""

    def __init__(self, typing_context: Any, target_context: Any, library: Any, *rest: Any) -> None:
        del library
        super().__init__(
            typing_context, target_context, _KernelLibrary(target_context.codegen(), "kernel"), *rest
        )


class _PartLibrary(JITCodeLibrary):
    """LLVM code to be linked into a kernel; it is neither optimised nor made machine code."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        del name
        self._ensure_finalized()
        return 0  # there is no machine code

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
