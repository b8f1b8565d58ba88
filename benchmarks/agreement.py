"""`python -m benchmarks.agreement STORE MODEL MODEL`: whether two models of one store end at the same likelihood.

`make demo` compares the default with the published method. The exit code is 1 if they differ by more than 1e-6 per
ranking.
"""

from __future__ import annotations

import sys

import plmix_dist as pl

LARGEST_DIFFERENCE = 1e-6


def compare(store: str, *models: str) -> bool:
    """Print the mean log-likelihood of each model; whether all of them agree."""
    scores = {model: pl.PlackettLuceMixture.load(model).score(store, client=False) for model in models}
    for model, score in scores.items():
        print(f"{model}: {score:.10f} mean log-likelihood per ranking")
    difference = max(scores.values()) - min(scores.values())
    agree = difference <= LARGEST_DIFFERENCE
    print(f"{'agree' if agree else 'DIFFER'}: {difference:.1e} apart, at most {LARGEST_DIFFERENCE:.0e} is allowed")
    return agree


if __name__ == "__main__":
    sys.exit(not compare(*sys.argv[1:]))
