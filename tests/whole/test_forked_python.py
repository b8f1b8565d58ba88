"""A fork of the server behaves as a new interpreter does: exit codes, signals, streams, folder, environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.forked_python import ForkedPython

if TYPE_CHECKING:
    from pathlib import Path

BOTH = pytest.mark.parametrize("kind", [subprocess.Popen, ForkedPython], ids=["new", "fork"])
PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | {"text": True}


@BOTH
@pytest.mark.parametrize(
    ("script", "code", "output", "last_error"),
    [
        ("print(__name__, *sys.argv)", 0, "__main__ -c a b\n", ""),
        ("print(sys.stdin.read(), end='')", 0, "given", ""),
        ("sys.exit(7)", 7, "", ""),
        ("sys.exit('wrong')", 1, "", "wrong"),
        ("print('before'); 1 / 0", 1, "before\n", "ZeroDivisionError: division by zero"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "", "KeyboardInterrupt"),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL, "", ""),
        ("import atexit; atexit.register(print, 'at the end')", 0, "at the end\n", ""),
    ],
)
def test_script__ends_alike(kind: Any, script: str, code: int, output: str, last_error: str) -> None:
    process = kind([sys.executable, "-c", f"import os, sys\n{script}", "a", "b"], **PIPES)
    found, errors = process.communicate("given", timeout=60)
    assert (process.returncode, found) == (code, output)
    assert (errors.splitlines() or [""])[-1] == last_error


@BOTH
def test_process__is_waited_for_and_interrupted(kind: Any) -> None:
    process = kind([sys.executable, "-c", "import time; print('now', flush=True); time.sleep(60)"], **PIPES)
    assert process.stdout.readline() == "now\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.poll() == -signal.SIGINT


@BOTH
def test_process__has_its_own_folder_environment_and_session(kind: Any, tmp_path: Path) -> None:
    script = "import os; print(os.getcwd(), os.environ.get('ONE'), os.environ.get('TWO'), os.getsid(0) == os.getpid())"
    environment = {name: value for name, value in os.environ.items() if name != "TWO"} | {"ONE": "1"}
    process = kind([sys.executable, "-c", script], cwd=tmp_path, env=environment, start_new_session=True, **PIPES)
    assert process.communicate(timeout=60) == (f"{tmp_path} 1 None True\n", "")
