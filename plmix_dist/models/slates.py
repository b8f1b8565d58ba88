"""Slates that nobody has named: the partition of the items under which the rankings are most probable.

All partitions have the same number of parameters, so their objectives compare; in a plain mixture every item is a slate
of its own. The search begins where items are together that the same component likes, and moves single items and joins
slates while that raises the objective.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from plmix_dist.datasets.given import rankings_of_block
from plmix_dist.errors import FitError, SettingsError, StartWarning
from plmix_dist.fitting.linear_fit import LinearEnd, fit_linear
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.overview import take_overview
from plmix_dist.kernels.utilities import LinearPoint
from plmix_dist.models.linear import Terms
from plmix_dist.passes.dask import passes_over
from plmix_dist.passes.rankings import Rankings
from plmix_dist.rankings.choice_models import Slates
from plmix_dist.rankings.columns import Floats
from plmix_dist.rankings.groups import merge_if_short, n_memberships
from plmix_dist.rankings.sampling import generator, sample_rows

if TYPE_CHECKING:
    from plmix_dist.cluster.clients import Client

# The search looks at this many persons, and does not go to the end of its fits.
_MOST_PERSONS = 2_000
_TOLERANCE = 1e-6
# Slates that are more probable than any others by less than this factor are not sure.
_SURE = 20

_Partition = tuple[int, ...]  # the slate of each item, numbered as they first appear


class _Found(NamedTuple):
    """Where a fit with a partition ended: its objective, log-probabilities of first choices, the end."""

    objective: float
    first_places: Floats
    end: LinearEnd


def find_slates(
    terms: Terms, rankings: Rankings, settings: FitSettings, client: Client | None
) -> tuple[Terms, dict[str, Any], Warning]:
    """The terms with the slates that were found, what is known of them, and that in words."""
    names, apart = terms.item_names, tuple(range(terms.n_items))
    if len(names) < 3:
        raise SettingsError("slates are found among three items or more; leave choices out")
    with passes_over(rankings, client, "store") as passes:
        sample = take_overview(passes, rankings, settings.seed).small_sample.replace(covariates=None, ids=None)
    sample = sample_rows(sample, min(1.0, _MOST_PERSONS / n_memberships(sample)), generator(settings.seed, "slates"))
    rows = replace(rankings_of_block(merge_if_short(sample)), item_names=names)
    quick = replace(settings, tol=max(settings.tol, _TOLERANCE), n_init=1)
    # One component alone likes nothing more than the others do.
    liked = _fitted(rows, replace(quick, n_components=max(2, settings.n_components), shares=None), apart).first_places
    found = {one: _fitted(rows, quick, one) for one in (apart, _numbered((liked - liked.mean(axis=0)).argmax(axis=0)))}
    best, new = apart, [apart]
    while new:
        best = max(found, key=lambda one: found[one].objective)
        new = [one for one in _neighbours(best) if one not in found]
        for one in new:
            try:
                found[one] = _fitted(rows, quick, one, found[best])
            except FitError:  # without a prior, a partition may have no estimate
                found[one] = found[best]._replace(objective=-np.inf)
    second = max((one for one in found if one != best), key=lambda one: found[one].objective)
    margin, above_plain = (found[best].objective - found[one].objective for one in (second, apart))
    chosen, other = _named(best, names), _named(second, names)
    sure = "" if margin > np.log(_SURE) else ", which is little"
    words = (
        f"the slates were found, not given: {chosen}. Of the others, {other} come nearest: a log-likelihood lower by "
        f"{margin:.3g} on {sample.row_weights.sum():,.0f} rankings{sure}; errors and intervals take the slates as given"
    )
    about = {"slates": chosen.slates, "next": other.slates, "margin": margin, "above_plain": above_plain}
    return replace(terms, choices=chosen.of_items(names)), about, StartWarning(words)


def _fitted(rows: Rankings, settings: FitSettings, partition: _Partition, near: _Found | None = None) -> _Found:
    """Where a fit with the slates of a partition ends: after a search, or begun at what is known of another."""
    choices, begin = _named(partition, rows.item_names).of_items(rows.item_names), None
    terms = Terms(choices, rows.item_names, intercepts=True)
    if near is not None:
        of_slates = [logsumexp(near.first_places[:, np.equal(partition, slate)], axis=1) for slate in {*partition}]
        worths = np.concatenate([near.first_places, np.transpose(of_slates)], axis=1)
        begin = LinearPoint(terms.design, worths @ terms.design, near.end.point.share_coefficients)
    fit = fit_linear(terms.of_rankings(rows), settings, terms.model(None, None, settings.alpha), begin, None)
    assert fit.linear is not None
    assert fit.run.objective is not None
    return _Found(fit.run.objective, terms.first_places(fit.linear), fit.linear)


def _neighbours(partition: _Partition) -> list[_Partition]:
    """Partitions in which one item is in another slate, or alone, or two slates are one; of two slates or more."""
    slates = range(max(partition) + 2)
    moved = [(*partition[:item], slate, *partition[item + 1 :]) for item in range(len(partition)) for slate in slates]
    joined = [tuple(one if slate == other else slate for slate in partition) for one, other in combinations(slates, 2)]
    return list(dict.fromkeys(_numbered(one) for one in moved + joined if len(set(one)) > 1))


def _numbered(slates: Any) -> _Partition:
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(int(slate), len(numbers)) for slate in slates)


def _named(partition: _Partition, names: tuple[str, ...]) -> Slates:
    slates = {f"slate {slate + 1}": np.flatnonzero(np.equal(partition, slate)) for slate in range(max(partition) + 1)}
    return Slates({name: [names[item] for item in items] for name, items in slates.items()})
