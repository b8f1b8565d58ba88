"""Names of numba that it does not promise to keep: a test for each, which says what moved; and the kernels' cache."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Where kernels/numba_internals.py finds what it uses, as module, class and name.
USED = [
    ("numba.core.caching", "_CacheLocator", "ensure_cache_path"),
    ("numba.core.caching", "_CacheLocator", "from_function"),
    ("numba.core.caching", "_CacheLocator", "get_cache_path"),
    ("numba.core.caching", "_CacheLocator", "get_disambiguator"),
    ("numba.core.caching", "_CacheLocator", "get_source_stamp"),
    ("numba.core.caching", "CacheImpl", "_locator_classes"),
    ("numba.core.caching", "Cache", "_index_key"),
    ("numba.core.caching", "IndexDataCacheFile", "_load_index"),
    ("numba.core.codegen", "JITCodeLibrary", "finalize"),
    ("numba.core.codegen", "JITCodeLibrary", "codegen"),
    ("numba.core.codegen", "JITCodeLibrary", "get_pointer_to_function"),
    ("numba.core.codegen", "JITCodeLibrary", "_ensure_finalized"),
    ("numba.core.codegen", "JITCodeLibrary", "_get_module_for_linking"),
    ("numba.core.codegen", "JITCPUCodegen", "set_env"),
    ("numba.core.compiler", "Compiler", "define_pipelines"),
    ("numba.core.dispatcher", "Dispatcher", "compile"),
    ("numba.core.dispatcher", "Dispatcher", "signatures"),
]


@pytest.mark.parametrize(("module", "owner", "name"), USED)
def test_numba__still_has(module: str, owner: str, name: str) -> None:
    found = getattr(importlib.import_module(module), owner, None)
    assert found is not None, f"{module}.{owner} is gone: change plmix_dist/kernels/numba_internals.py"
    assert hasattr(found, name), f"{owner}.{name} is gone: change plmix_dist/kernels/numba_internals.py"


def test_library_of_a_part__has_what_is_used() -> None:
    from plmix_dist.kernels.em_pass import _add_rows
    from plmix_dist.kernels.numba_internals import _PartLibrary

    library = _PartLibrary(_add_rows.targetctx.codegen(), "part")
    for name in ("_linking_libraries", "_reload_init", "_final_module", "_finalized"):
        assert hasattr(library, name), f"JITCodeLibrary.{name} is gone: change kernels/numba_internals.py"


FILL = """
import os, sys
os.environ["PLMIX_CACHE_DIR"] = sys.argv[1]
from plmix_dist.kernels import compile_kernels, kernels_are_compiled, kernels_of_fit
from plmix_dist.kernels.jit import cache_folder
print(kernels_are_compiled(with_rates=False), kernels_are_compiled(with_rates=True))
names = kernels_of_fit(with_rates=False)
print(all(one.was_cached for one in compile_kernels(names)), any(one.was_cached for one in compile_kernels(names)))
print(kernels_are_compiled(with_rates=False), kernels_are_compiled(with_rates=True))
print(len(list(cache_folder().glob("*.nbi"))) >= len(names))
"""


def test_cache__filled_once(tmp_path: Path, python_says: Callable[..., str]) -> None:
    # The second process finds what the first has compiled.
    first, second = (python_says(FILL, tmp_path).split("\n")[:4] for _ in range(2))
    assert first == ["False False", "False True", "True False", "True"]
    assert second == ["True False", "True True", "True False", "True"]


def test_cache__nowhere_to_write(tmp_path: Path, python_says: Callable[..., str]) -> None:
    (tmp_path / "file").write_text("")
    script = """
import os, sys
os.environ["PLMIX_CACHE_DIR"] = sys.argv[1]
import numpy as np
from plmix_dist.kernels import prepare, row_posteriors
from plmix_dist.rankings import RankingBlock
print(row_posteriors(RankingBlock.from_array([[1, 0]]), prepare(np.zeros((1, 2)), np.zeros(1)))[1].tolist())
"""
    assert python_says(script, tmp_path / "file").strip() == "[[1.0]]"
