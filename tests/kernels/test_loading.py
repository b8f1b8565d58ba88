"""Kernels as Python calls them: kept in a cache, loaded without numba, compiled again where the cache is damaged."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numba
import pytest
from numba import types

from plmix_dist.cli import main
from plmix_dist.kernels import compile_kernels, kernels_are_compiled, kernels_of_fit
from plmix_dist.kernels import loading as native
from plmix_dist.kernels.compiled import jit
from plmix_dist.kernels.loading import Kernel, MachineCode, _read, _write, cache_folder

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
    assert {path.name for path in folder.iterdir()} == {f"{name}.kernel" for name in kernels_of_fit(with_rates=False)}


def test_cache__damaged_files_are_written_again(tmp_path: Path, python_says: Callable[..., str]) -> None:
    assert python_says(ONE_ROW, tmp_path).strip() == "[[1.0]]"
    (folder,) = tmp_path.iterdir()
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    for number, (path, content) in enumerate(whole.items()):
        half = content[32 : len(content) // 2]
        path.write_bytes(hashlib.sha256(half).digest() + half if number % 2 else b"")
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
    assert found.stderr.count("no home folder") == 1


@pytest.fixture(scope="module")
def code() -> MachineCode:
    return Kernel.known["take_logs"]._compile()


def test_machine_code__read_as_written(tmp_path: Path, code: MachineCode) -> None:
    _write(tmp_path / "new" / "a.kernel", code)
    assert _read(tmp_path / "new" / "a.kernel") == code
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.kernel"]
    assert _read(tmp_path / "missing.kernel") is None


def test_cache__others_may_read_but_never_write(tmp_path: Path, code: MachineCode) -> None:
    before = os.umask(0)
    try:
        _write(tmp_path / "new" / "a.kernel", code)
    finally:
        os.umask(before)
    # One user may fill the cache of an image.
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "new/a.kernel").stat().st_mode) == 0o644


@pytest.mark.promise(32)
@pytest.mark.parametrize("which", ["", "a.kernel"])
@pytest.mark.parametrize("fault", ["group", "all", "owner"])
@pytest.mark.promise(52)
def test_cache__what_others_may_write_is_not_run(
    tmp_path: Path,
    code: MachineCode,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    fault: str,
) -> None:
    kept = tmp_path / "new" / "a.kernel"
    _write(kept, code)
    spoilt = tmp_path / "new" / which
    if fault == "owner" and os.getuid() == 0:
        os.chown(spoilt, 12345, -1)
    elif fault == "owner":
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    else:
        spoilt.chmod({"group": 0o775, "all": 0o757}[fault])
    assert _read(kept) is None
    before = kept.stat().st_mtime_ns
    _write(kept, code)
    assert kept.stat().st_mtime_ns == before, "nothing is written where others may write"
    (record,) = caplog.records
    words = "belongs to another user" if fault == "owner" else "others may write to"
    assert words in record.getMessage()
    assert str(spoilt) in record.getMessage()


MALFORMED: dict[str, Callable[[bytes, bytes], bytes]] = {
    "nothing": lambda symbol, code: b"",
    "no code": lambda symbol, code: symbol,
    "empty code": lambda symbol, code: symbol + b"\n",
    "text": lambda symbol, code: symbol + b"\n" + b"text" * 500,
    "a header": lambda symbol, code: symbol + b"\n" + code[:64],
    "half": lambda symbol, code: symbol + b"\n" + code[: len(code) // 2],
    "all but the end": lambda symbol, code: symbol + b"\n" + code[:-200],
    "another name": lambda symbol, code: b"other\n" + code,
    "a name that is not text": lambda symbol, code: b"\xff\xfe\n" + code,
}


@pytest.mark.skipif(sys.platform != "linux", reason="object files have another format")
@pytest.mark.parametrize("change", MALFORMED)
def test_cache__malformed_with_a_right_digest_is_not_run(tmp_path: Path, code: MachineCode, change: str) -> None:
    body = MALFORMED[change](code.symbol.encode(), code.object_file)
    (tmp_path / "a.kernel").write_bytes(hashlib.sha256(body).digest() + body)
    assert _read(tmp_path / "a.kernel") is None


def test_cache_folder__from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLMIX_CACHE_DIR", str(tmp_path / "mine"))
    assert cache_folder().parent == tmp_path / "mine"
    monkeypatch.delenv("PLMIX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder().parent == tmp_path / "cache" / "plmix_dist"


def test_kernels__every_one_is_known() -> None:
    written = set(re.findall(r"\n@kernel\ndef (\w+)", (jit_folder() / "kernels.py").read_text()))
    assert written == set(Kernel.known)
    assert set(kernels_of_fit(with_rates=True)) | set(kernels_of_fit(with_rates=False)) <= written


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
    with pytest.raises(RuntimeError, match=r"the kernel steps calls .*numba_gil_ensure.*write it so that it cannot"):
        jit._check_stands_alone("steps", jit.llvm.parse_assembly(compiled.inspect_llvm()))


@pytest.fixture
def compiled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs `plmix compile` with a cache below a folder; gives its exit code, stdout and stderr."""

    def run(folder: Path, *options: str) -> tuple[int, str, str]:
        monkeypatch.setenv("PLMIX_CACHE_DIR", str(folder))
        with pytest.raises(SystemExit) as stopped:
            main(["compile", *options])
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return run


def test_compile__fills_the_cache_once(tmp_path: Path, compiled: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = compiled(tmp_path, "--json")
    first = json.loads(out)
    assert (code, err) == (0, "")
    assert first["folder"] == str(cache_folder())
    assert {kernel["name"] for kernel in first["kernels"]} == set(Kernel.known)
    assert all(kernel["compiled"] for kernel in first["kernels"])
    written = {path.name: path.read_bytes() for path in cache_folder().iterdir()}
    assert set(written) == {f"{name}.kernel" for name in Kernel.known}
    assert first["bytes"] == sum(map(len, written.values()))

    code, out, err = compiled(tmp_path)
    lines = dict(line.split(None, 1) for line in out.splitlines())
    assert (code, err) == (0, "")
    assert lines["add_rows"] == "was there"
    assert lines["compiled"].startswith(f"0 of {len(written)} kernels, ")
    assert lines["folder"].startswith(f"{cache_folder()} (")
    assert {path.name: path.read_bytes() for path in cache_folder().iterdir()} == written
    assert compiled(tmp_path, "--quiet") == (0, "", "")


def test_compile__a_kernel_that_is_missing(
    tmp_path: Path, compiled: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kernel, "known", {"take_logs": Kernel.known["take_logs"]})
    compiled(tmp_path, "--quiet")
    (cache_folder() / "take_logs.kernel").unlink()
    assert json.loads(compiled(tmp_path, "--json")[1])["kernels"][0]["compiled"]
    assert (cache_folder() / "take_logs.kernel").exists()


def test_compile__nowhere_to_write(
    tmp_path: Path, compiled: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kernel, "known", {"take_logs": Kernel.known["take_logs"]})
    (tmp_path / "file").write_text("")
    code, out, err = compiled(tmp_path / "file")
    assert (code, out) == (1, "")
    assert err.startswith(f"plmix: error: compiled kernels cannot be written to {tmp_path / 'file'}")
    assert "set PLMIX_CACHE_DIR to a folder that can be written" in err


# Where kernels/compiled/jit.py finds what it uses, as module, class and name.
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
    assert found is not None, f"{module}.{owner} is gone: change kernels/compiled/jit.py"
    assert hasattr(found, name), f"{owner}.{name} is gone: change kernels/compiled/jit.py"


@pytest.mark.parametrize("name", ["_linking_libraries", "_final_module", "_finalized"])
def test_libraries__still_have(name: str) -> None:
    from plmix_dist.kernels.compiled.jit import _PartLibrary

    library = _PartLibrary(numba.njit(lambda: 1).targetctx.codegen(), "part")
    assert hasattr(library, name), f"JITCodeLibrary.{name} is gone: change kernels/compiled/jit.py"


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


def test_digest__covers_every_byte_of_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = sorted(path.relative_to(native._SOURCES) for path in native._SOURCES.rglob("*.py"))
    assert {"loading.py", "em_pass.py", "compiled/sums.py", "compiled/choices.py"} <= set(map(str, sources))
    for source in sources:
        (tmp_path / source).parent.mkdir(exist_ok=True)
        (tmp_path / source).write_bytes((native._SOURCES / source).read_bytes())
    monkeypatch.setattr(native, "_SOURCES", tmp_path)
    digest = native._digest.__wrapped__
    found = {digest()}
    for source in sources:
        content = (tmp_path / source).read_bytes()
        (tmp_path / source).write_bytes(content + b"\n")
        found.add(digest())
        (tmp_path / source).write_bytes(content)
    assert len(found) == len(sources) + 1
    for version, processor in [("0", native.processor()), (None, ("other", "")), (None, ("", "other"))]:
        if version is not None:
            monkeypatch.setattr("llvmlite.__version__", version)
        monkeypatch.setattr(native, "processor", lambda found=processor: found)
        found.add(digest())
    assert len(found) == len(sources) + 4
