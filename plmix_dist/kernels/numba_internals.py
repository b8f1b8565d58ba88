"""The names of numba that it does not promise to keep, all of them here: where it caches, and how it compiles parts.

`tests/test_numba_internals.py` fails with the name of what is missing when a new numba moves one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba.core.caching import CacheImpl, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES = Path(__file__).parent


def keep_compiled_kernels_in(folder: Callable[[], Path], stamp: Callable[[], str]) -> None:
    """Tell numba to cache the functions of this package's folder in another folder, and with which stamp."""

    class Locator(_CacheLocator):
        def get_cache_path(self) -> str:
            return str(folder())

        def get_source_stamp(self) -> str:
            return stamp()

        def get_disambiguator(self) -> str:
            return "plmix"

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Locator | None:
            del py_func
            if Path(py_file).parent != SOURCES:
                return None
            locator = cls()
            try:
                locator.ensure_cache_path()
            except OSError:
                return None  # nowhere to write: numba goes on to its own places
            return locator

    CacheImpl._locator_classes.insert(0, Locator)


def is_cached(dispatcher: Any, argument_types: tuple[Any, ...]) -> bool:
    """Whether the cache holds a kernel, compiled for this processor and these argument types."""
    cache = dispatcher._cache
    key = cache._index_key(argument_types, dispatcher.targetctx.codegen())
    return key in cache._cache_file._load_index()


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


class _PartLibrary(JITCodeLibrary):
    """LLVM code to be linked into a kernel; it is neither optimised nor made machine code."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        del name
        self._ensure_finalized()
        return 0  # there is no machine code

    @property
    def codegen(self) -> Any:
        return _NoEnvironment


class _NoEnvironment:
    """Stands in for the code generator when numba stores the Python environment of a function: parts have none."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        del name, environment
