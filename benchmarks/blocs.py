"""Elections that VoteKit generates from blocs, and what a fit of slates finds again; needs votekit (extra votekit).

Twenty configurations of slate-PL, ten profiles each: two and three blocs, shares 0.5 to 0.95 of the largest, cohesion
0.6 to 0.95, full and truncated ballots. Beside the model with slates, a plain mixture of the same ballots.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np

import plmix_dist as plm
from benchmarks.common import save
from plmix_dist.errors import NotIdentifiedError

N_BALLOTS = 4_000
_WORTHS = (0.4, 0.3, 0.2, 0.1)
# Blocs, share of the largest, cohesion, places on a ballot (of four candidates in each slate).
CONFIGURATIONS = (
    *itertools.product((2,), (0.5, 0.7, 0.9, 0.95), (0.7, 0.95), (3, 8)),
    (3, 0.5, 0.6, 12), (3, 0.5, 0.85, 12), (3, 0.6, 0.85, 5), (3, 0.7, 0.85, 12),
)  # fmt: skip


def run(tiny: bool = False) -> list[dict[str, Any]]:
    try:
        import votekit.ballot_generator as bg
    except ModuleNotFoundError:
        print("votekit is not there: no elections were generated")
        return []
    rows = []
    for number, (n_blocs, share, cohesion, length) in enumerate(CONFIGURATIONS[:1] if tiny else CONFIGURATIONS):
        names = "ABC"[:n_blocs]
        slates = {name: [f"{name}{place}" for place in range(4)] for name in names}
        shares = np.array([share, *[(1 - share) / (n_blocs - 1)] * (n_blocs - 1)])
        shares += np.arange(n_blocs)[::-1] * 1e-9  # in order
        rest = (1 - cohesion) / (n_blocs - 1)
        config = bg.BlocSlateConfig(
            n_voters=N_BALLOTS,
            slate_to_candidates=slates,
            bloc_proportions=dict(zip(names, (shares / shares.sum()).tolist(), strict=True)),
            cohesion_mapping={bloc: {one: cohesion if one == bloc else rest for one in names} for bloc in names},
            preference_mapping={
                bloc: {one: dict(zip(slates[one], _turned(bloc == one), strict=True)) for one in names}
                for bloc in names
            },
            silent=True,
        )
        errors, plain, without = [], [], 0
        for profile in range(2 if tiny else 10):
            drawn = bg.slate_pl_profile_generator(config, rng_seed=1000 * number + profile)
            try:
                found, other = _fitted(_ballots(drawn, length), slates, n_blocs)
            except NotIdentifiedError:  # of short ballots by a few voters: a candidate whom all of them rank last
                without += 1
                continue
            errors.append(_errors(found, names, cohesion, rest, shares))
            plain.append(float(np.sort(other.shares_)[0]))
        z = np.concatenate([one for one, _ in errors])
        rows.append(
            {
                "blocs": n_blocs,
                "share": share,
                "cohesion": cohesion,
                "places": length,
                "within 2 errors, %": 100 * float((np.abs(z) <= 2).mean()),
                "largest error / its standard error": float(np.abs(z).max()),
                "smallest share, mean": float(np.mean([one for _, one in errors])),
                "of a plain mixture": float(np.mean(plain)),
                "without an estimate": without,
            }
        )
    return save("blocs", rows)


def _turned(own: bool) -> tuple[float, ...]:
    return _WORTHS if own else _WORTHS[::-1]


def _ballots(profile: Any, length: int) -> plm.RankingBlock:
    """The first places of all ballots; equal ones once, with their weight."""
    counts: dict[tuple[str, ...], float] = {}
    for ballot in profile.ballots:
        row = tuple(next(iter(place)) for place in ballot.ranking[:length])
        counts[row] = counts.get(row, 0.0) + float(ballot.weight)
    names = sorted({item for row in counts for item in row})
    numbers = {name: number for number, name in enumerate(names)}
    rows = [plm.Ranking(tuple((numbers[one],) for one in row), (), "below", weight) for row, weight in counts.items()]
    return plm.RankingBlock.from_rows(rows, n_items=len(names)), names


def _fitted(ballots: Any, slates: dict[str, list[str]], n_blocs: int) -> tuple[Any, Any]:
    block, names = ballots
    by_number = {slate: [str(names.index(one)) for one in items] for slate, items in slates.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = plm.PlackettLuceMixture(n_blocs, alpha=0.0, choices=plm.Slates(by_number), random_state=0)
        model.fit(block, client=False)
        plain = plm.PlackettLuceMixture(n_blocs, random_state=0).fit(block, client=False)
        return (model, model.standard_errors(block, client=False)), plain


def _errors(found: Any, names: str, cohesion: float, rest: float, shares: Any) -> tuple[Any, float]:
    """Errors divided by standard errors: of shares, of log-worths of all items but one in each slate, of cohesion."""
    model, errors = found
    n = len(names)
    # Blocs in the order of names: the permutation that is nearest in cohesion.
    truth = np.full((n, n), rest)
    np.fill_diagonal(truth, cohesion)
    order = list(min(itertools.permutations(range(n)), key=lambda p: np.abs(model.cohesion_[list(p)] - truth).sum()))
    values, spread = model.log_worths_[order], errors.log_worths
    del spread
    z = list((model.shares_[order] - shares) / np.asarray(errors.shares)[order])
    # Differences of neighbours within a slate; logits of cohesion against the first slate.
    coefficients = errors.coefficients
    design = model._linear[0].design
    d = coefficients.values.shape[1]
    wanted_worths = np.log([[_turned(bloc == slate) for slate in range(n)] for bloc in range(n)])
    for bloc, k in enumerate(order):
        covariance = coefficients.covariance[k * d : (k + 1) * d, k * d : (k + 1) * d]
        for slate in range(n):
            for place in range(3):
                contrast = design[4 * slate + place] - design[4 * slate + place + 1]
                true = wanted_worths[bloc, slate, place] - wanted_worths[bloc, slate, place + 1]
                value = values[bloc, 4 * slate + place] - values[bloc, 4 * slate + place + 1]
                z.append((value - true) / np.sqrt(contrast @ covariance @ contrast))
        for slate in range(1, n):
            contrast = design[4 * n + slate] - design[4 * n]
            value = contrast @ coefficients.values[k]
            true = np.log(truth[bloc, slate] / truth[bloc, 0])
            z.append((value - true) / np.sqrt(contrast @ covariance @ contrast))
    return np.array(z), float(np.min(model.shares_))
