"""Kernels as Python calls them: kept in a cache, loaded without numba, compiled again where the cache is no good."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numba
import pytest
from numba import types

from plmix_dist.kernels import compile_kernels, kernels_are_compiled, kernels_of_fit
from plmix_dist.kernels.compiled import jit
from plmix_dist.kernels.native import Kernel, MachineCode, _read, _write, cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILL = """
import os, sys
os.environ["PLMIX_CACHE_DIR"] = sys.argv[1]
from plmix_dist.kernels import compile_kernels, kernels_are_compiled, kernels_of_fit
names = kernels_of_fit(with_rates=False)
print(kernels_are_compiled(with_rates=False), kernels_are_compiled(with_rates=True))
print({kernel.was_kept for kernel in compile_kernels(names)}, "numba" in sys.modules)
print(kernels_are_compiled(with_rates=False), kernels_are_compiled(with_rates=True))
"""
ONE_ROW = """
import os, sys
os.environ["PLMIX_CACHE_DIR"] = sys.argv[1]
import numpy as np
from plmix_dist.kernels import prepare, row_posteriors
from plmix_dist.rankings import RankingBlock
print(row_posteriors(RankingBlock.from_array([[1, 0]]), prepare(np.zeros((1, 2)), np.zeros(1)))[1].tolist())
"""


def test_cache__a_second_process_needs_no_numba(tmp_path: Path, python_says: Callable[..., str]) -> None:
    assert python_says(FILL, tmp_path).splitlines() == ["False False", "{False} True", "True False"]
    assert python_says(FILL, tmp_path).splitlines() == ["True False", "{True} False", "True False"]
    (folder,) = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.kernel" for name in kernels_of_fit(with_rates=False)
    }


def test_cache__damaged_files_are_written_again(tmp_path: Path, python_says: Callable[..., str]) -> None:
    assert python_says(ONE_ROW, tmp_path).strip() == "[[1.0]]"
    (folder,) = tmp_path.iterdir()
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    for number, (path, content) in enumerate(whole.items()):
        path.write_bytes(content[: len(content) // 2] if number % 2 else b"")
    assert python_says(ONE_ROW, tmp_path).strip() == "[[1.0]]"
    assert all(len(path.read_bytes()) == len(content) for path, content in whole.items())


def run_python(code: str, *arguments: object, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, in an environment without a home and without folders for caches."""
    without = ("HOME", "PLMIX_CACHE_DIR", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in without} | changed
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True)


def test_cache__nowhere_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = run_python(ONE_ROW, tmp_path / "file")
    assert found.stdout.strip() == "[[1.0]]"
    assert found.stderr.count("Set PLMIX_CACHE_DIR to a folder that can be written") == 1


def test_cache__nowhere_to_write_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    for name in ("a", "b"):
        _write(tmp_path / "file" / f"{name}.kernel", MachineCode("name", b"code"))
    (record,) = caplog.records
    assert "Set PLMIX_CACHE_DIR to a folder that can be written" in record.getMessage()
    assert str(tmp_path / "file") in record.getMessage()


def test_cache__a_user_without_a_home() -> None:
    # As in a container that runs under a number that no list of users has.
    nobody = "import pwd\ndef unknown(number): raise KeyError(number)\npwd.getpwuid = unknown\n"
    found = run_python(nobody + ONE_ROW.replace('os.environ["PLMIX_CACHE_DIR"] = sys.argv[1]\n', ""))
    assert found.stdout.strip() == "[[1.0]]"
    assert found.stderr.count("there is no home folder") == 1


def test_machine_code__read_as_written(tmp_path: Path) -> None:
    code = MachineCode("name", b"object\ncode\x00")
    _write(tmp_path / "new" / "a.kernel", code)
    assert _read(tmp_path / "new" / "a.kernel") == code
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.kernel"]
    assert _read(tmp_path / "missing.kernel") is None
    # As readable for others as any new file: one user may fill the cache of an image.
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "new" / "a.kernel").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_cache_folder__from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLMIX_CACHE_DIR", str(tmp_path / "mine"))
    assert cache_folder().parent == tmp_path / "mine"
    monkeypatch.delenv("PLMIX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder().parent == tmp_path / "cache" / "plmix_dist"


def test_kernels__every_one_has_its_file() -> None:
    files = {path.stem for path in jit_folder().glob("*.py") if "\n@kernel\n" in path.read_text()}
    assert files == set(Kernel.known)
    assert set(kernels_of_fit(with_rates=True)) | set(kernels_of_fit(with_rates=False)) <= files


def jit_folder() -> Path:
    from pathlib import Path

    return Path(jit.__file__).parent


def test_compile_kernels__all_of_them() -> None:
    found = compile_kernels()
    assert {kernel.name for kernel in found} == set(Kernel.known)
    assert all(kernel.was_kept for kernel in compile_kernels())
    assert kernels_are_compiled(with_rates=True)


def test_kernels__may_not_raise() -> None:
    def steps(fields: int) -> None:
        for place in range(0, 10, fields[0]):  # type: ignore[index]
            fields[place] = 0  # type: ignore[index]

    compiled = numba.cfunc(types.void(types.CPointer(types.int64)))(steps)
    with pytest.raises(
        RuntimeError, match=r"the kernel steps calls .*numba_gil_ensure.*write it so that it cannot"
    ):
        jit._check_stands_alone("steps", jit.llvm.parse_assembly(compiled.inspect_llvm()))
