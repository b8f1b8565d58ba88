"""`python -m benchmarks [NAME...] [--tiny]`: run all benchmarks, or those named."""

from __future__ import annotations

import importlib
import sys

NAMES = (
    "startup",
    "first_report",
    "interrupt",
    "checkpoints",
    "dry_run",
    "codecs",
    "store",
    "ingest",
    "kernels",
    "range_check",
    "iteration",
    "scheduling",
    "start",
    "random_against_spectral",
    "prior",
    "real_data",
    "select",
    "paper_em_lsr",
    "mixle_beside_us",
    "paper_method",
    "fits",
    "race",
    "small_fits",
    "flat",
    "choice_and_prior",
    "bootstrap",
    "coverage",
    "gibbs",
    "passes",
    "growth",
    "out_of_core",
    "large_n",
    "ratings",
    "arena",
    "large_ballots",
    "ties",
    "check",
    "noise",
    "tie_rules",
    "board",
    "features",
    "features_coverage",
    "blocs",
    "elections",
    "mixed_lengths",
)

if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(f"{__doc__}\n\nAll: {', '.join(NAMES)}")
    tiny = "--tiny" in sys.argv
    chosen = [name for name in sys.argv[1:] if not name.startswith("--")] or NAMES
    for name in chosen:
        module = importlib.import_module(f"benchmarks.{name}")
        module.run(tiny)
        if hasattr(module, "memory"):
            module.memory(tiny)
