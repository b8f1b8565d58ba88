"""What happens when a job has ended: a command, a webhook, metrics. A failure is recorded and changes no result."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from plmix_dist.jobs.file import Job
from plmix_dist.store import access, sealed

# Bytes of a command's stderr that are kept for the message.
_MOST_KEPT = 500
# How long to wait for the last output of a command that has ended.
_LAST_OUTPUT_SECONDS = 0.5

# Numbers of the summary, by the name of their metric: what they are, and where they are found.
_METRICS = {
    "exit_code": ("Exit code of the last run.", ("exit_code",)),
    "seconds": ("Duration of the last run.", ("seconds",)),
    "changed": ("Whether the last run changed anything.", ("changed",)),
    "converged": ("Whether the fit converged.", ("fit", "converged")),
    "iterations": ("Iterations of the fit.", ("fit", "n_iter")),
    "log_likelihood": ("Log-likelihood of all rankings.", ("fit", "log_likelihood")),
    "gradient_norm": ("Largest entry of the gradient, divided by total weight.", ("fit", "gradient_norm")),
    "rankings": ("Number of rankings.", ("fit", "n_rankings")),
}


def run_hooks(job: Job, summary: dict[str, Any], timeout: float) -> dict[str, str]:
    """Run the command and call the webhook of a job, for `timeout` seconds each; gives what failed, by name."""
    text = json.dumps(sealed.plain_json(summary), default=str).encode()
    failures = {}
    for name, hook in (("command", _run_command), ("url", _post)):
        if job[f"hooks.{name}"] is not None and (failure := hook(job[f"hooks.{name}"], text, timeout)) is not None:
            failures[name] = failure
    return failures


def _run_command(words: list[str], text: bytes, timeout: float) -> str | None:
    """Run a command with the summary on stdin; why it failed, or None. The end of its stderr is kept."""
    try:
        running = subprocess.Popen(  # noqa: S603 - the command of the user's own job file
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"PLMIX_STATE": str(json.loads(text).get("state"))},
            start_new_session=True,  # so that what it starts can be stopped with it
        )
    except OSError as error:
        return f"{words[0]} cannot be run: {error.strerror}"
    except ValueError as error:  # a sign that no command can hold
        return f"{words[0]!r} cannot be run: {error}"
    kept = bytearray()
    _in_thread(_feed, running.stdin, text)
    reading = _in_thread(_keep_the_end, running.stderr, kept)
    try:
        code = running.wait(timeout)
    except subprocess.TimeoutExpired:
        _stop(running)
        return f"{words[0]} took longer than {timeout:g} s and was stopped"
    except BaseException:
        _stop(running)
        raise
    reading.join(_LAST_OUTPUT_SECONDS)  # a program that it left running may hold stderr
    return f"{words[0]} ended with code {code}: {kept.decode(errors='replace')}" if code else None


def _stop(running: subprocess.Popen[bytes]) -> None:
    """Stop a command and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def _in_thread(call: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=call, args=arguments, daemon=True)
    thread.start()
    return thread


def _feed(stdin: IO[bytes], text: bytes) -> None:
    with contextlib.suppress(OSError), stdin:  # a command need not read it
        stdin.write(text)


def _keep_the_end(stderr: IO[bytes], kept: bytearray) -> None:
    """Read all of stderr, so that the command never waits; the end of it is kept."""
    with stderr:
        while some := os.read(stderr.fileno(), 1 << 16):
            kept += some
            del kept[:-_MOST_KEPT]


def _post(url: str, text: bytes, timeout: float) -> str | None:
    """Post the summary to an address; why it failed, or None. The rest of the address may be a secret."""
    failures: list[str] = []
    where = re.sub(r"^(https?://)(?:[^/?#]*@)?([^/?#]*).*$", r"\1\2", url, flags=re.DOTALL)

    def post() -> None:
        try:
            request = urllib.request.Request(url, text, {"Content-Type": "application/json"})  # noqa: S310 - checked
            with urllib.request.urlopen(request, timeout=timeout):  # noqa: S310 - checked
                pass
        except (OSError, ValueError, http.client.HTTPException) as error:
            words = "" if isinstance(error, http.client.InvalidURL | ValueError) else str(error)  # these quote it
            failures.append(f"{where} did not take it: {words or type(error).__name__}")

    # The timeout of a request is that of each byte, and the search for a name has none.
    posting = _in_thread(post)
    posting.join(timeout)
    if posting.is_alive():
        return f"{where} did not take it: no answer within {timeout:g} s"
    return failures[0] if failures else None


def write_metrics(path: str, summary: dict[str, Any]) -> dict[str, str]:
    """Write metrics for the textfile collector of Prometheus, in one step; gives what failed, by name."""
    try:
        access.write_whole(Path(path), _metrics_text(summary).encode())
    except OSError as error:
        return {"metrics": str(error)}
    return {}


def _metrics_text(summary: dict[str, Any]) -> str:
    r"""The numbers of a summary in the text format of Prometheus.

    Examples
    --------
    >>> print(_metrics_text({"job": "nightly", "exit_code": 0}).splitlines()[2])
    plmix_job_exit_code{job="nightly"} 0
    """
    escaped = str(summary.get("job")).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    lines = []
    found = {name: (words, _at(summary, path)) for name, (words, path) in _METRICS.items()}
    if "ended" in summary:
        ended = datetime.fromisoformat(summary["ended"]).timestamp()
        found["last_end_timestamp_seconds"] = ("When the last run ended.", ended)
    for name, (words, value) in found.items():
        if value is not None:
            full = f"plmix_job_{name}"
            shown = int(value) if isinstance(value, bool | int) else repr(float(value))
            lines += [f"# HELP {full} {words}", f"# TYPE {full} gauge", f'{full}{{job="{escaped}"}} {shown}']
    return "\n".join(lines) + "\n"


def _at(summary: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = summary
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
