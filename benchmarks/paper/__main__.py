"""`python -m benchmarks.paper [NAME...] [--quick | --released | --paper]`: all experiments, or those named."""

from __future__ import annotations

import argparse

from benchmarks.paper.experiments import EXPERIMENTS
from benchmarks.paper.frame import SETTINGS, run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXPERIMENTS))
    for setting in SETTINGS:
        parser.add_argument(f"--{setting}", dest="setting", action="store_const", const=setting, default="quick")
    given = parser.parse_args()
    if unknown := set(given.names) - set(EXPERIMENTS):
        parser.error(f"no experiment {', '.join(sorted(unknown))}; there are {', '.join(EXPERIMENTS)}")
    for name in given.names or EXPERIMENTS:
        run(EXPERIMENTS[name], given.setting)
