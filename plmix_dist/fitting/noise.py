"""Noise: a component with equal worths, held, whose share is estimated; the evidence that a person belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.fitting.e_step import em_request
from plmix_dist.fitting.em import Em, EmState, Run
from plmix_dist.fitting.journal import NO_JOURNAL, Journal
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.point import Point
from plmix_dist.kernels import Prepared, prepare
from plmix_dist.kernels.em_pass import memberships_at
from plmix_dist.passes.request import Aggregation, Passes, Request
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.ties import TIES
from plmix_dist.solvers import M_STEPS

# Where the share of noise begins. It stays away from 0 and 1, where EM does not move it.
_FIRST_SHARE = 0.05
_GRAIN = 1e-9


def check_noise(settings: FitSettings, *, covariates: bool) -> None:
    """An error for settings that do not go together with a component of noise."""
    if not settings.noise:
        return
    if settings.m_step in M_STEPS and M_STEPS[settings.m_step].objective is None:
        words = f'm_step="{settings.m_step}" raises no likelihood; choose m_step="lsr", "mm" or "auto"'
    elif settings.shares is not None:
        words = "shares are fixed; leave them out"
    elif TIES[settings.ties].redraws:
        words = f'ties="{settings.ties}" draws orders; choose another treatment of ties'
    elif covariates:
        words = "shares depend on membership_covariates; leave them out"
    elif settings.stopping != "gradient":
        words = "the method has no such component; leave method out"
    else:
        return
    raise SettingsError(f"noise=True estimates the share of noise by the likelihood, but {words}")


def run_with_noise(
    passes: Passes,
    em: Em,
    before: Run,
    progress: Callable[[dict[str, Any]], None] | None = None,
    journal: Journal = NO_JOURNAL,
) -> Run:
    """Continue a fit without noise, which ended at `before`, with one more component: equal worths, held, the last."""
    algorithm = replace(em, noise=True)
    if not journal.stage("any-noise", partial(_has_noise, passes, em, before.point)):
        return replace(before, point=_with_noise(before.point, 0.0), posterior_shares=None)
    begin = algorithm.start(_with_noise(before.point, _FIRST_SHARE))

    def report(state: EmState) -> None:
        if progress is not None and state.history and state.error is None:
            progress(state.history[-1])

    ended = journal.run("noise", passes, algorithm, begin, report)
    if ended.error is not None:
        raise ended.error
    run = algorithm.result(ended)
    n_before = before.n_iterations
    later = [record | {"iteration": n_before + record["iteration"]} for record in run.history]
    return replace(
        run, n_iterations=n_before + run.n_iterations, history=[*before.history, *later], events=before.events
    )


def _with_noise(point: Point, share: float) -> Point:
    """The point with one more component, of equal worths, which has this share."""
    log_worths = np.concatenate([point.log_worths, np.zeros((1, point.log_worths.shape[1]))])
    with np.errstate(divide="ignore"):
        log_shares = np.append(point.log_shares + np.log1p(-share), np.log(share))
    return Point(log_worths, np.append(point.ghosts, 0.0), log_shares)


def _has_noise(passes: Passes, em: Em, point: Point) -> bool:
    """Whether a first grain of noise raises the likelihood; if not, its share is zero, and EM would be slow to tell."""
    (answer,) = passes.run([em_request(em.m_step, _with_noise(point, _GRAIN), None, em.alpha, part=em.part)])
    summary, *_ = answer.get()
    return bool(summary.shares[-1] > _GRAIN * summary.shares.sum())


# The evidence: how much more probable a person's rankings are if each order is as probable as any other.

_Pair = tuple[Prepared, Prepared]


def _prepare(params: tuple[NDArray[np.float64], NDArray[np.float64]]) -> _Pair:
    log_worths, shares = params
    own = shares[:-1] / shares[:-1].sum()
    with np.errstate(divide="ignore"):
        return prepare(log_worths[-1:], np.zeros(1)), prepare(log_worths[:-1], np.log(own))


def _leaf_evidence(ties: str, number: int, block: RankingBlock, params: _Pair) -> NDArray[np.float64]:
    del number
    extended = TIES[ties].extended(block) if TIES[ties].extends and block.has_ties else None
    rows = block if extended is None else extended.block
    noise, others = (memberships_at(rows, each).log_likelihoods for each in params)
    found: NDArray[np.float64] = noise - others
    if extended is None or block.groups is not None:
        return found
    # Orders of a ranking that do not share a membership: the mean over them.
    unit = extended.row[rows.group_starts]
    return np.bincount(unit, found) / np.bincount(unit)


def _joined(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([left, right])


@cache
def _evidence(ties: str) -> Aggregation:
    """The aggregation of evidence of noise, person by person."""
    return Aggregation("evidence", leaf=partial(_leaf_evidence, ties), prepare=_prepare, combine=_joined)


def evidence_request(ties: str, log_worths: NDArray[np.float64], shares: NDArray[np.float64]) -> Request:
    """A pass for the log Bayes factors (n_persons,) of noise, the last component, against all others."""
    return Request(_evidence(ties), (log_worths, shares))
