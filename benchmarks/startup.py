"""Time of imports, of `plmix --help`, and of a first fit with and without compiled kernels, in fresh interpreters.

`seconds` and `slowest` are wall time of the whole process. `cpu` is CPU time of the process and of all its threads.
For first fits there is also the CPU time that the first fit took beyond a second one: imports, loading, compiling.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import plmix_dist as pl
from benchmarks.common import save

COMMANDS = {
    "python, nothing imported": ["-c", "pass"],
    "import plmix_dist": ["-c", "import plmix_dist"],
    "plmix --help": ["-m", "plmix_dist", "--help"],
    "import plmix_dist.store": ["-c", "from plmix_dist import open_store"],
    "import the estimator": ["-c", "from plmix_dist import PlackettLuceMixture"],
    "import scikit-learn's base class": ["-c", "import sklearn.base"],
    "import numpy, scipy.linalg, zarr, pyarrow": ["-c", "import numpy, scipy.linalg, zarr, pyarrow.compute"],
}
# The time of a second fit is no part of starting up.
FIT = """
import json, sys, time
import numpy as np
from plmix_dist import PlackettLuceMixture
from plmix_dist.rankings.simulate import draw_rankings

rng = np.random.default_rng(0)
block, _ = draw_rankings(rng.standard_normal((3, 10)), np.full(3, 1 / 3), 2_000, rng)
began = time.process_time()
PlackettLuceMixture(3, m_step=sys.argv[1], random_state=0).fit(block)
first = time.process_time() - began
PlackettLuceMixture(3, m_step=sys.argv[1], random_state=0).fit(block)
print(json.dumps({"beyond a second fit": 2 * first - (time.process_time() - began)}))
"""


def run(tiny: bool = False) -> list[dict[str, Any]]:
    repeats = 1 if tiny else 7
    rows = [_measure(name, arguments, repeats) for name, arguments in COMMANDS.items()]
    with tempfile.TemporaryDirectory() as folder:
        pl.simulate(f"{folder}/store", n_rankings=2_000, n_items=10, n_components=3, client=False)
        fit = ["-m", "plmix_dist", "fit", f"{folder}/store", "--components", "3", "--out", f"{folder}/model", "--force"]
        _once(fit, {})  # by now the user's cache has the kernels
        rows.append(_measure("plmix fit of 2,000 rankings", fit, repeats))
    for m_step in () if tiny else ("mm", "lsr"):
        fit = ["-c", FIT, m_step]
        rows.append(_measure(f"first {m_step.upper()} fit, nothing compiled", fit, min(repeats, 3), new_cache=True))
    # By now the user's cache has the kernels.
    _once(["-c", FIT, "mm"], {})
    rows.append(_measure("first MM fit, kernels in the cache", ["-c", FIT, "mm"], repeats))
    return save("startup", rows)


def _measure(name: str, arguments: list[str], repeats: int, *, new_cache: bool = False) -> dict[str, Any]:
    """Shortest and longest wall time, least CPU time, and what the fit itself says of its start."""
    measured = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            measured.append(_once(arguments, {"PLMIX_CACHE_DIR": folder} if new_cache else {}))
    seconds, cpu, said = zip(*measured, strict=True)
    beyond = [json.loads(each)["beyond a second fit"] for each in said if each]
    return {
        "what": name,
        "seconds": min(seconds),
        "slowest": max(seconds),
        "cpu": min(cpu),
        "cpu beyond a second fit": min(beyond, default=""),
    }


def _once(arguments: list[str], variables: dict[str, str]) -> tuple[float, float, str]:
    """Wall time, CPU time and last line of output of one fresh interpreter."""
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, env=os.environ | variables
    )
    seconds, after = time.perf_counter() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    output = done.stdout.strip().splitlines()
    return seconds, cpu, output[-1] if output and output[-1].startswith("{") else ""
