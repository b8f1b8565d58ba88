"""Fits to a part of the rows, in this process: races between starts, and most of the way at little cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.data import as_rankings
from plmix_dist.engine.passes import ThreadedPasses
from plmix_dist.inference.curvature import Curvature
from plmix_dist.inference.lockstep import run_together
from plmix_dist.inference.newton import Newton
from plmix_dist.inference.run import run_from
from plmix_dist.rankings.merge import merge_if_short
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.sampling import thinned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.inference.curvature import Landscape
    from plmix_dist.inference.em import Em
    from plmix_dist.inference.settings import FitSettings
    from plmix_dist.inference.state import EmState
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.stages import Stages

# A race is run on this many rankings that list so many items, but on no more than a quarter of all, as long as some
# thousands are left.
_RACE_ROWS = 10_000
_RACE_LISTED = 1 << 19
_RACE_SHARE = 0.25
_FEWEST_RACE_ROWS = 2_000
_RACE_CUTS = ((10, 8), (20, 4))
_ALPHA_OF_PARTS = 0.1
# A sample tells where its optimum is to about one over its size; there is no use in going on further than that.
_SAMPLE_TOLERANCE = 1e-4
# EM alone ends sooner than this where components are well apart; where it does not, curvature pays.
NEWTON_AFTER = 10
_SMALL_SAMPLE_STEPS = 20
_NEWTON_AFTER_SMALL_SAMPLE = 2


class Start(NamedTuple):
    """Where a fit begins, what is to be known about it, and the curvature there where a sample has shown it."""

    state: EmState
    about: dict[str, Any]
    landscape: Landscape | None = None


def run_on_small_sample(
    sample: RankingBlock, starts: list[Start], settings: FitSettings, em: Em, stages: Stages
) -> list[Start]:
    """The starts taken some way on a small sample, and the best of them kept."""
    cuts = halving(len(starts), settings.n_init)
    with stages.stage("small-sample-fit") as record:
        return _run_part(record, sample, starts, settings, em, cuts, max_iter=_SMALL_SAMPLE_STEPS)


def run_on_sample(
    sample: RankingBlock, starts: list[Start], settings: FitSettings, em: Em, stages: Stages
) -> list[Start]:
    """The starts taken to their optima on a sample: most of the way, and the curvature there, at little cost."""
    with stages.stage("sample-fit") as record:
        return _run_part(record, sample, starts, settings, em, (), newton_after=_NEWTON_AFTER_SMALL_SAMPLE)


def halving(n_runs: int, n_kept: int, first: int = 8) -> list[tuple[int, int]]:
    """Cuts of a race: half of the runs after `first` passes, half of those after twice as many, down to `n_kept`.

    Examples
    --------
    >>> halving(8, 1)
    [(8, 4), (16, 2), (32, 1)]
    """
    cuts = []
    while n_runs > n_kept:
        n_runs = max(n_kept, n_runs // 2)
        cuts.append((first, n_runs))
        first *= 2
    return cuts


def newton_for(
    sample: RankingBlock, em: Em, settings: FitSettings, after: int, start: Start
) -> Newton | None:
    """Newton's steps by the curvature of a sample, where they are wanted: an exact or plain EM goes its own way."""
    if not settings.accelerate or settings.em == "exact":
        return None
    after = after if start.landscape is None else 0
    return Newton(Curvature(sample, em.alpha, em.unit, em.fixed_shares), after, start.landscape)


def race(
    starts: list[Start], sample: RankingBlock, settings: FitSettings, em: Em, stages: Stages
) -> list[Start]:
    """The few starts that lead after some passes over a part of a sample."""
    n_rankings = max(em.n_rankings, em.unit)
    short_enough = _RACE_LISTED * sample.n_rankings / max(1, len(sample.items))
    n_raced = max(min(_RACE_ROWS, short_enough, _RACE_SHARE * n_rankings), _FEWEST_RACE_ROWS)
    part = thinned(sample, n_raced, generator(settings.seed, "race"))
    cuts = [(rounds, max(n_kept, settings.n_init)) for rounds, n_kept in _RACE_CUTS]
    with stages.stage("race", n_starts=len(starts)) as record:
        return _run_part(record, part, starts, settings, em, cuts, max_iter=_RACE_CUTS[-1][0])


def _run_part(
    record: dict[str, Any],
    part: RankingBlock,
    starts: list[Start],
    settings: FitSettings,
    em: Em,
    cuts: Sequence[tuple[int, int]],
    max_iter: int | None = None,
    newton_after: int | None = None,
) -> list[Start]:
    """Runs over a part of the rows, in this process, with a prior in proportion."""
    n_rows = part.n_rankings
    part = merge_if_short(part)
    # A part of the rows may have no estimate of its own without a prior, even where all of them do.
    alpha = (em.alpha or _ALPHA_OF_PARTS) * part.total_weight / em.unit
    part_em = replace(em, alpha=alpha, unit=part.total_weight, n_rankings=part.n_rankings)
    newtons = [
        None if newton_after is None else newton_for(part, part_em, settings, newton_after, start)
        for start in starts
    ]
    fits = [
        run_from(
            part_em,
            start.state,
            settings,
            number=number,
            tol=max(_SAMPLE_TOLERANCE, settings.tol),
            max_iter=max_iter or settings.max_iter,
            newton=newton,
        )
        for number, (start, newton) in enumerate(zip(starts, newtons, strict=True))
    ]
    passes = ThreadedPasses(as_rankings(part))
    runs = run_together(passes, fits, cuts=cuts)
    passes.release()
    iterations = max(run.n_iterations for run in runs.values())
    share = n_rows / em.n_rankings
    record |= {"rows": n_rows, "iterations": iterations, "passes": passes.n_passes * share}
    return [
        Start(run.state, starts[number].about, getattr(newtons[number], "landscape", None))
        for number, run in sorted(runs.items())
    ]
