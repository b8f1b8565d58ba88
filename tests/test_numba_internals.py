"""Names of numba that it does not promise to keep: a test for each, which says what moved."""

from __future__ import annotations

import importlib

import numba
import pytest

# Where kernels/compiled/numba_internals.py finds what it uses, as module, class and name.
USED = [
    ("numba.core.codegen", "JITCodeLibrary", "finalize"),
    ("numba.core.codegen", "JITCodeLibrary", "codegen"),
    ("numba.core.codegen", "JITCodeLibrary", "get_pointer_to_function"),
    ("numba.core.codegen", "JITCodeLibrary", "_ensure_finalized"),
    ("numba.core.codegen", "JITCodeLibrary", "_get_module_for_linking"),
    ("numba.core.codegen", "JITCodeLibrary", "_optimize_final_module"),
    ("numba.core.codegen", "JITCPUCodegen", "set_env"),
    ("numba.core.compiler", "Compiler", "define_pipelines"),
]


@pytest.mark.parametrize(("module", "owner", "name"), USED)
def test_numba__still_has(module: str, owner: str, name: str) -> None:
    found = getattr(importlib.import_module(module), owner, None)
    assert found is not None, f"{module}.{owner} is gone: change kernels/compiled/numba_internals.py"
    assert hasattr(found, name), f"{owner}.{name} is gone: change kernels/compiled/numba_internals.py"


@pytest.mark.parametrize("name", ["_linking_libraries", "_final_module", "_finalized"])
def test_libraries__still_have(name: str) -> None:
    from plmix_dist.kernels.compiled.numba_internals import _PartLibrary

    library = _PartLibrary(numba.njit(lambda: 1).targetctx.codegen(), "part")
    assert hasattr(library, name), (
        f"JITCodeLibrary.{name} is gone: change kernels/compiled/numba_internals.py"
    )


def test_parts__called_by_parts() -> None:
    from plmix_dist.kernels.compiled.jit import kernel_part

    @kernel_part
    def twice(number: float) -> float:
        return 2 * number

    @kernel_part
    def twice_and_one(number: float) -> float:
        return twice(number) + 1  # type: ignore[no-any-return]

    @numba.njit
    def both(number: float) -> float:
        return twice(number) + twice_and_one(number)  # type: ignore[no-any-return]

    assert both(3.0) == 13.0
