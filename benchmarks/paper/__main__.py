"""`python -m benchmarks.paper [NAME...] [--quick | --paper | --released]`: experiments of the paper, resumable."""

from __future__ import annotations

import importlib
import sys

# To add an experiment, add a module with `run(grid)` and its name.
NAMES = ("error_against_m", "start_theory")
GRIDS = ("tiny", "quick", "paper", "released")


def main(arguments: list[str]) -> None:
    """Run experiments by name, or all of them."""
    flags = [word.removeprefix("--") for word in arguments if word.startswith("--")]
    names = [word for word in arguments if not word.startswith("--")] or list(NAMES)
    unknown = [word for word in names if word not in NAMES] + [word for word in flags if word not in GRIDS]
    if unknown or len(flags) > 1:
        sys.exit(
            f"{' '.join(unknown or flags)}: choose from {', '.join(NAMES)} and one of --{', --'.join(GRIDS)}"
        )
    for name in names:
        importlib.import_module(f"benchmarks.paper.{name}").run(flags[0] if flags else "quick")


if __name__ == "__main__":
    main(sys.argv[1:])
