"""Noise: a component with equal worths, held, whose share is estimated; the evidence that a person belongs to it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.fitting.e_step import em_request
from plmix_dist.fitting.em import Em, Progress, Run, run_reported
from plmix_dist.fitting.journal import NO_JOURNAL, Journal
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.point import Point
from plmix_dist.kernels import Prepared, memberships_at, prepare
from plmix_dist.passes import Aggregation, Passes, Request
from plmix_dist.rankings import TIES, Floats, RankingBlock, person_of_row, weights_within
from plmix_dist.solvers import M_STEPS
from plmix_dist.store import MixtureParams

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
    passes: Passes, em: Em, before: Run, ties: str, progress: Progress | None = None, journal: Journal = NO_JOURNAL
) -> Run:
    """Continue a fit without noise, which ended at `before`, with one more component: equal worths, held, the last."""
    algorithm = replace(em, noise=True)
    if not journal.stage("any-noise", partial(_has_noise, passes, em, _with_noise(before.point, _GRAIN, ties))):
        return replace(before, point=_with_noise(before.point, 0.0, ties), posterior_shares=None)
    begin = algorithm.start(_with_noise(before.point, _FIRST_SHARE, ties))
    ended = run_reported(passes, algorithm, begin, "noise", progress, journal)
    if ended.error is not None:
        raise ended.error
    run = algorithm.result(ended)
    n_before = before.n_iterations
    later = [record | {"iteration": n_before + record["iteration"]} for record in run.history]
    history, n_iterations = [*before.history, *later], n_before + run.n_iterations
    return replace(run, n_iterations=n_iterations, history=history, events=before.events)


def _with_noise(point: Point, share: float, ties: str) -> Point:
    """The point with one more component, of equal worths, which has this share."""
    log_worths = np.concatenate([point.log_worths, np.zeros((1, point.log_worths.shape[1]))])
    with np.errstate(divide="ignore"):
        log_shares = np.append(point.log_shares + np.log1p(-share), np.log(share))
    log_ties = point.log_ties
    if log_ties.size and not TIES[ties].shared:
        log_ties = np.concatenate([log_ties, log_ties.mean(axis=0, keepdims=True)])
    return Point(log_worths, np.append(point.ghosts, 0.0), log_shares, log_ties)


def _has_noise(passes: Passes, em: Em, point: Point) -> bool:
    """Whether a first grain of noise raises the likelihood; if not, its share is zero, and EM would be slow to tell."""
    (answer,) = passes.run([em_request(em.m_step, point, None, em.alpha, part=em.part)])
    summary, *_ = answer.get()
    return bool(summary.shares[-1] > _GRAIN * summary.shares.sum())


# The evidence: how much more probable a person's rankings are if each order is as probable as any other.

_Pair = tuple[Prepared, Prepared]


class Evidence(NamedTuple):
    """The log Bayes factors of noise, and how often each person's choice stood left and right.

    All (n_persons,). Ties count on neither side, nor do rows of which no side is known.
    """

    log_bayes_factors: Floats
    left: NDArray[Any]
    right: NDArray[Any]


def _prepare(mixture: MixtureParams) -> _Pair:
    own, ties = mixture.shares[:-1] / mixture.shares[:-1].sum(), mixture.log_ties
    of_noise, of_others = (None, None) if ties is None else (ties[-1:], ties[:-1])
    with np.errstate(divide="ignore"):
        others = prepare(mixture.log_worths[:-1], np.log(own), of_others)
    return prepare(mixture.log_worths[-1:], np.zeros(1), of_noise), others


def _leaf_evidence(ties: str, _number: int, block: RankingBlock, params: _Pair) -> Evidence:
    sides = np.zeros(block.n_rankings) if block.sides is None else np.where(block.n_ordered > 0, block.sides, 0)
    if block.tied is not None and sides.any():
        sides = np.where(block.tied[np.minimum(block.offsets[:-1] + 1, len(block.items) - 1)], 0, sides)
    left, right = (np.bincount(person_of_row(block), weights_within(block) * (sides == side)) for side in (1, 2))
    return Evidence(_log_bayes_factors(ties, block, params), left, right)


def _log_bayes_factors(ties: str, block: RankingBlock, params: _Pair) -> Floats:
    extended = TIES[ties].extended(block) if TIES[ties].extends and block.has_ties else None
    rows = block if extended is None else extended.block
    noise, others = (memberships_at(rows, each).log_likelihoods for each in params)
    found: Floats = noise - others
    if extended is None or block.groups is not None:
        return found
    # Orders of a ranking that do not share a membership: the mean over them.
    unit = extended.row[rows.group_starts]
    return np.bincount(unit, found) / np.bincount(unit)


def _joined(left: Evidence, right: Evidence) -> Evidence:
    return Evidence(*map(np.concatenate, zip(left, right, strict=True)))


def evidence_request(ties: str, mixture: MixtureParams) -> Request:
    """A pass for the Evidence of noise, the last component, against all others."""
    evidence = Aggregation("evidence", leaf=partial(_leaf_evidence, ties), prepare=_prepare, combine=_joined)
    return Request(evidence, mixture.unnamed())
