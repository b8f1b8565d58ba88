"""plmix compile: what it writes, what it says, and what it says where it cannot write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plmix_dist.cli import main
from plmix_dist.kernels.native import Kernel, cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
