"""Seconds from Ctrl-C to the end of the process: every verb that computes, several moments, threads and workers.

`stage` is the last one that the verb told of. SIGINT goes to the whole group of processes, as a terminal sends it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import save

# More than enough: a process that takes longer hangs.
_HANGS = 60.0


def run(tiny: bool = False) -> list[dict[str, Any]]:
    n_rankings, n_items, n_components = (20_000, 10, 2) if tiny else (4_000_000, 40, 8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = [f"--items={n_items}", f"--components={n_components}", "--workers=0"]
        _plmix("simulate", folder / "store", f"--rankings={n_rankings}", *size)
        _plmix("export", folder / "store", folder / "votes.csv") if tiny else _write_text(folder)
        rows = [
            {"what": label, "after": moment, **_interrupted(folder, arguments, moment)}
            for label, arguments, moments in _cases(folder, n_components, tiny)[: 1 if tiny else None]
            for moment in (moments[:1] if tiny else moments)
        ]
    return save("interrupt", rows)


def _cases(folder: Path, n_components: int, tiny: bool) -> list[tuple[str, list[Any], list[float]]]:
    store, out = folder / "store", folder / "out"
    fit = ["fit", store, "--components", n_components, "--out", out, "--json", "--n-init", 4]
    model = f"{store}.truth"
    pairs = [*fit, "--embedding", "pairwise"]
    wide = 20_000 if tiny else 20_000_000
    simulate = ["simulate", out, "--rankings", wide, "--items", 100, "--json"]
    return [
        ("fit, threads", [*fit, "--workers", 0], [0.5, 2, 6, 12]),
        ("fit, nothing compiled", [*fit, "--workers", 0, "COLD"], [3, 5]),
        ("fit, pairwise SVD", [*pairs, "--workers", 0], [6]),
        ("fit, 2 workers", [*fit, "--workers", 2], [3, 12]),
        ("score, threads", ["score", model, store, "--json", "--workers", 0], [3]),
        ("predict, threads", ["predict", model, store, out, "--json", "--workers", 0], [3]),
        ("predict, 2 workers", ["predict", model, store, out, "--json", "--workers", 2], [6]),
        ("ingest, threads", ["ingest", folder / "votes.csv", out, "--json", "--workers", 0], [2]),
        ("simulate, threads", [*simulate, "--workers", 0], [3]),
        ("simulate, 2 workers", [*simulate, "--workers", 2], [6]),
    ]


def _interrupted(folder: Path, arguments: list[Any], moment: float) -> dict[str, Any]:
    """What a verb does when it is interrupted so many seconds after it began."""
    environment = dict(os.environ)
    if "COLD" in arguments:
        arguments = [argument for argument in arguments if argument != "COLD"]
        environment["PLMIX_CACHE_DIR"] = tempfile.mkdtemp(dir=folder)
    process = subprocess.Popen(
        [sys.executable, "-m", "plmix_dist", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    time.sleep(moment)
    began = time.perf_counter()
    os.killpg(process.pid, signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=_HANGS)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
    seconds = time.perf_counter() - began
    for left in (folder / "out", folder / "out.truth"):
        shutil.rmtree(left, ignore_errors=True)
    lines = errors.splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    stage = next((event.get("stage", "fit") for event in reversed(events)), "")
    said = lines[-1] if lines else ""
    words = said.partition("interrupted; ")[2].replace(str(folder), "")
    return {"stage": stage, "seconds": seconds, "code": process.returncode, "said": words or said[:60]}


def _write_text(folder: Path) -> None:
    """A file of 300,000 rankings that takes some seconds to read."""
    from plmix_dist.rankings.sampling import generator

    rng = generator(0, "text")
    with (folder / "votes.csv").open("w") as file:
        file.write("ordering\n")
        for _ in range(300_000):
            file.write(" ".join(f"item{item}" for item in rng.permutation(20)) + "\n")


def _plmix(*arguments: Any) -> None:
    subprocess.run([sys.executable, "-m", "plmix_dist", *map(str, arguments), "--quiet"], check=True)


if __name__ == "__main__":
    run("--tiny" in sys.argv)
