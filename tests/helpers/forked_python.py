"""Python processes without the cost of an interpreter and its imports: forks of a server that has them already.

The server is started once per process of pytest. It imports the package and what it stands on, and forks for each
command. It never starts a thread, which makes its forks safe. A fork takes over streams, folder, environment and
arguments, then runs what `python -c` or `python -m` would run. To the test it looks like any `subprocess.Popen`.
What happens before the first line of a program (imports, threads of BLAS) must be tested with a new interpreter.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import types
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
# Libraries that start threads when they are imported, unless they are told not to.
_NO_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
# In front of a request: its length. A report: first a process id, then the status that `os.waitpid` gave.
_LENGTH, _REPORT = struct.Struct("=Q"), struct.Struct("=q")


class ForkedPython(subprocess.Popen):  # type: ignore[type-arg]
    """`subprocess.Popen([sys.executable, "-c" or "-m", ...])` whose process is a fork of the server.

    The process is not a child of this one: its status comes through a pipe, not from `os.waitpid`.
    """

    def _execute_child(self, args: Any, *rest: Any) -> None:
        _, _, _, _, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *_ = rest
        words = [str(word) for word in args]
        assert words[0] == sys.executable, f"not a command of this Python: {words}"
        request = {
            "words": words[1:],
            "folder": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "new_session": rest[-2],
        }
        streams = [own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        self._reports, reports = os.pipe()
        try:
            _, server = _server()
            data = json.dumps(request).encode()
            socket.send_fds(server, [_LENGTH.pack(len(data))], [*streams, reports])
            server.sendall(data)
        finally:
            os.close(reports)
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]
        self.pid = self._report()
        self._child_created = True

    def _report(self) -> int:
        data = os.read(self._reports, _REPORT.size)
        assert len(data) == _REPORT.size, "the server of forks has ended"
        return int(_REPORT.unpack(data)[0])

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """What `os.waitpid` gives for a child: (0, 0) if the process still runs and is not to be waited for."""
        if wait_flags & os.WNOHANG and not select.select([self._reports], [], [], 0)[0]:
            return 0, 0
        status = self._report()
        os.close(self._reports)
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if self.returncode is None:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


def run_forked(command: list[str], timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run(command, capture_output=True, text=True)` does it."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with ForkedPython(command, **(streams | options)) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


@cache
def _server() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The server of this process and the connection to it. The server ends when the connection does."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.forked_python", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | _NO_THREADS | {"PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            start_new_session=True,  # a signal to the group of a test's processes must not end the server
        )
    return process, ours


# --- in the server ---------------------------------------------------------------------------------------


def main(connection: socket.socket) -> None:
    """Serve until the other side is gone; in a fork, run its command, and end as any interpreter does."""
    words = _serve(connection)
    if words is None:
        return
    kind, program, *arguments = words
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        assert kind == "-c", f"neither -c nor -m: {words}"
        exec(compile(program, "<string>", "exec"), sys.modules["__main__"].__dict__)


def _serve(connection: socket.socket) -> list[str] | None:
    """Fork for each request. Returns the words of a command in its fork, and None in the server at the end."""
    _import_everything()
    gc.freeze()  # collecting what a fork shares with the server would copy it, and take most of the fork's time
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for commands
    while True:
        head, files, _, _ = socket.recv_fds(connection, _LENGTH.size, 4)
        if not head:
            return None
        with connection.makefile("rb") as stream:
            request = json.loads(stream.read(_LENGTH.unpack(head)[0]))
        _check_single_thread()
        if os.fork() == 0:
            connection.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *streams, reports = files
            if pid := os.fork():
                _report_status_of(pid, streams, reports)
            os.close(reports)
            _take_over(request, streams)
            return list(request["words"])
        for file in files:
            os.close(file)


def _import_everything() -> None:
    import importlib
    import pkgutil

    import plmix_dist

    others = ("dask.array", "dask_ml", "distributed", "numba", "pandas", "pyarrow.parquet", "sklearn.cluster", "zarr")
    ours = [module.name for module in pkgutil.walk_packages(plmix_dist.__path__, "plmix_dist.")]
    for name in (*others, *ours):
        if not name.endswith("__main__"):
            importlib.import_module(name)


def _check_single_thread() -> None:
    threads = Path("/proc/self/task")
    assert not threads.exists() or len(list(threads.iterdir())) == 1, "a server with threads must not fork"


def _report_status_of(pid: int, streams: list[int], reports: int) -> None:
    """Report a command's process id, and its status when it has ended. Never returns."""
    for stream in (0, 1, 2, *streams):  # whoever reads from the command must see its end
        os.close(stream)
    os.write(reports, _REPORT.pack(pid))
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(reports, _REPORT.pack(status))
    os._exit(0)


def _take_over(request: dict[str, Any], streams: list[int]) -> None:
    """Streams, folder and environment of a command."""
    if request["new_session"]:
        os.setsid()
    for own, stream in enumerate(streams):
        os.dup2(stream, own)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stdout = sys.__stdout__ = _output(1, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _output(2, "backslashreplace")  # type: ignore[misc]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import dask.config

    dask.config.refresh()  # Dask reads its part of the environment when it is imported


def _output(file: int, errors: str) -> IO[str]:
    """A stream as an interpreter opens it."""
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = io.FileIO(file, "w", closefd=False)
    return io.TextIOWrapper(
        raw if at_once else io.BufferedWriter(raw),  # type: ignore[arg-type]
        errors=errors,
        line_buffering=file == 2 or raw.isatty(),
        write_through=at_once,
    )


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
