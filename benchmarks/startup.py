"""Time to import the package and to answer `plmix --help`, each in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from benchmarks.common import best_of, save

COMMANDS = {
    "python, nothing imported": ["-c", "pass"],
    "import plmix_dist": ["-c", "import plmix_dist"],
    "plmix --help": ["-m", "plmix_dist", "--help"],
    "import plmix_dist.store": ["-c", "from plmix_dist import open_store"],
}


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for name, arguments in COMMANDS.items():

        def start(arguments: list[str] = arguments) -> None:
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

        shortest, longest = best_of(1 if tiny else 7, start)
        rows.append({"what": name, "seconds": shortest, "slowest": longest})
    return save("startup", rows)
