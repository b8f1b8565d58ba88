"""What happens when a job has ended: a command, a webhook, metrics. A failure is recorded and changes no result."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmix_dist.errors import PlmixError
from plmix_dist.store.location import Location
from plmix_dist.store.models import plain_json

if TYPE_CHECKING:
    from plmix_dist.jobs.job_file import Job

_MOST_SAID = 500

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
    text = json.dumps(plain_json(summary), default=str).encode()
    failures = {}
    for name, hook in (("command", _run_command), ("url", _post)):
        if job[f"hooks.{name}"] is not None:
            failure = hook(job[f"hooks.{name}"], text, timeout)
            if failure is not None:
                failures[name] = failure
    return failures


def _run_command(words: list[str], text: bytes, timeout: float) -> str | None:
    """Run a command with the summary on stdin; why it failed, or None."""
    state = str(json.loads(text).get("state"))
    try:
        done = subprocess.run(  # noqa: S603 - the command of the user's own job file
            words,
            input=text,
            timeout=timeout,
            capture_output=True,
            check=False,
            env=os.environ | {"PLMIX_STATE": state},
        )
    except subprocess.TimeoutExpired:
        return f"{words[0]} took longer than {timeout:g} s and was stopped"
    except OSError as error:
        return f"{words[0]} cannot be run: {error.strerror}"
    if done.returncode:
        return f"{words[0]} ended with code {done.returncode}: {done.stderr.decode(errors='replace')[-_MOST_SAID:]}"
    return None


def _post(url: str, text: bytes, timeout: float) -> str | None:
    """Post the summary to an address; why it failed, or None."""
    request = urllib.request.Request(url, data=text, headers={"Content-Type": "application/json"})  # noqa: S310 - checked
    try:
        with urllib.request.urlopen(request, timeout=timeout):  # noqa: S310 - checked
            return None
    except (OSError, ValueError) as error:
        return f"{url} did not take it: {error}"


def write_metrics(path: str, summary: dict[str, Any]) -> dict[str, str]:
    """Write metrics for the textfile collector of Prometheus, in one step; gives what failed, by name."""
    file = Path(path)
    try:
        Location.of(file.parent).write_bytes(file.name, metrics_text(summary).encode())
    except (OSError, PlmixError) as error:
        return {"metrics": str(error)}
    return {}


def metrics_text(summary: dict[str, Any]) -> str:
    r"""The numbers of a summary in the text format of Prometheus.

    Examples
    --------
    >>> print(metrics_text({"job": "nightly", "exit_code": 0}).splitlines()[2])
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
