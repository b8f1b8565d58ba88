"""Cautions in words: what a reader should know before trusting a fit, what to do about it, and what was checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from plmix_dist.display.marks import count, percent, plain_label
from plmix_dist.display.notebook import data_of
from plmix_dist.report.components import MembershipSums, group_names
from plmix_dist.report.history import ended_flat, n_independent
from plmix_dist.uncertainty.results import StandardErrors

# Groups with a smaller share rest on few rankings.
_SMALL_SHARE = 0.02
# A group that is less certain than this of what belongs to it is hard to tell from the others.
_UNCERTAIN = 0.6
# Where fewer memberships are certain, groups are tendencies.
_FEW_CERTAIN = 0.5
_MOST_NAMES = 5


class _Caution(NamedTuple):
    """A warning: a few words, and a sentence or two."""

    title: str
    text: str


def fit_data_of(model: Any) -> dict[str, Any]:
    """What is known of the rankings of a fit. How many groups they identify is known of plain models alone."""
    data = data_of(model)
    return data if model._linear is None or not data else data | {"identifiability": None, "is_linear": True}


def cautions_of(
    model: Any, memberships: MembershipSums | None, errors: StandardErrors | None, groups: Sequence[str] | None = None
) -> list[_Caution]:
    """Everything that a reader should know first; an empty list if there is nothing."""
    names = list(groups or group_names(len(model.shares_)))
    init = getattr(model, "init_", {})
    return [
        *_of_the_end(model),
        *_of_the_search(init.get("search")),
        *_of_identifiability(fit_data_of(model), len(model.shares_)),
        *_of_groups(model, names),
        *_of_memberships(memberships, names),
        *_of_failures(init.get("failed_starts") or []),
        *_of_errors(errors),
    ]


def checked(
    model: Any, memberships: MembershipSums | None, *, has_intervals: bool, compared: bool
) -> dict[str, list[str]]:
    """What a page without cautions rests on: what was looked at and is well; and what is unknown, in words."""
    n_components, search = len(model.shares_), getattr(model, "init_", {}).get("search")
    known, is_sampled = fit_data_of(model).get("identifiability"), hasattr(model, "diagnostics_")
    looks = [
        (model.converged_ is not None, "the chains agree" if is_sampled else "the fit settled", "how the fit ended"),
        (has_intervals, "intervals are shown", "how certain the numbers are"),
    ]
    if n_components > 1 and not is_sampled:
        found = "" if search is None else f"{count(n_independent(search))} starts from different places ended here"
        looks.append((search is not None, found, "whether other starts lead to a better solution"))
    if n_components > 1:
        other = "other numbers of groups were compared"
        looks.append((compared, other, f"whether there are {n_components} groups, since no {other}"))
        words = f"such rankings can tell {n_components} groups apart"
        looks.append((known is not None, words, f"whether {words}"))
        certain = "" if memberships is None else f"{percent(memberships.share_certain)} of memberships are certain"
        looks.append((memberships is not None, certain, "how certain memberships are"))
    return {
        "well": [well for yes, well, _ in looks if yes],
        "unknown": [unknown for yes, _, unknown in looks if not yes],
    }


def _of_the_end(model: Any) -> Iterator[_Caution]:
    if ended_flat(getattr(model, "history_", ())):
        yield _Caution(
            "The rankings hardly tell these groups apart",
            "The fit ended where steps of any kind hardly change how well it describes the rankings: other groups do "
            "so as well. Choose fewer groups.",
        )
    elif model.converged_ is False and hasattr(model, "diagnostics_"):
        yield _Caution(
            "The chains have not mixed",
            f"The chains do not agree: the largest R-hat is {model.diagnostics_.largest_r_hat:.3g}, where at most 1.05 "
            "is wanted. Do not rely on means and intervals below; sample again with larger n_warmup and n_draws, or "
            "with fewer groups.",
        )
    elif model.converged_ is False:
        gradient = getattr(model, "gradient_norm_", None)
        words = "" if gradient is None else f" (gradient {gradient:.1e})"
        yield _Caution(
            "Not converged",
            f"The fit stopped after {count(model.n_iter_)} iterations before it had settled{words}. The numbers below "
            "may still change; fit again with a larger max_iter, or with fewer groups.",
        )


def _of_the_search(search: Mapping[str, Any] | None) -> Iterator[_Caution]:
    if search and search["n_starts"] > 1 and n_independent(search) <= 1:
        varied = " Others that ended there were variations of it." if search["n_best"] > 1 else ""
        found = f"only one ended at the solution that is shown.{varied}"
        if not n_independent(search):
            found = "none but variations of an earlier solution ended at the one that is shown."
        yield _Caution(
            "The best solution was found only once" if n_independent(search) else "Only variations found this solution",
            f"Of {count(search['n_starts'])} starts, {found} There may be a better one: fit again with another seed or "
            "a larger n_init, or choose fewer groups.",
        )


def _of_identifiability(data: Mapping[str, Any], n_components: int) -> Iterator[_Caution]:
    known = data.get("identifiability")
    if known and n_components > known["generic"]:
        described = re.sub(r", which count like \d+ items", "", known["described"])
        yield _Caution(
            "More groups than the data can tell apart for certain",
            f"{described[0].upper()}{described[1:]}. From such rankings, at most {known['generic']} "
            f"group{'s'[: known['generic'] != 1]} can be told apart for certain, and {n_components} were fitted. "
            "Other groups may describe the data equally well, so take the portraits of single groups with care. "
            "What all of them together predict is not affected.",
        )


def _of_groups(model: Any, names: Sequence[str]) -> Iterator[_Caution]:
    events = getattr(model, "events_", [])
    if events:
        actions = {"reseed": "was started again", "drop": "was dropped"}
        happened = [actions.get(str(event.get("action")), str(event.get("action"))) for event in events]
        text = f"During the fit a group {' and one '.join(dict.fromkeys(happened))}."
        yield _Caution("A group lost all its rankings on the way", text)
    small = [names[number] for number, share in enumerate(model.shares_) if share < _SMALL_SHARE]
    if small:
        rests = f"What is said of {'it' if len(small) == 1 else 'them'} rests on few rankings."
        yield _Caution("A very small group", f"{_listed(small)}: a share below {percent(_SMALL_SHARE)}. {rests}")


def _of_memberships(memberships: MembershipSums | None, names: Sequence[str]) -> Iterator[_Caution]:
    if memberships is None or len(names) == 1:
        return
    found = []
    if memberships.share_certain < _FEW_CERTAIN:
        found.append(
            f"Only {percent(memberships.share_certain)} belong to one group with a probability of 90\xa0% or more: the "
            "groups overlap. Read them as tendencies, and do not sort people by them."
        )
    unsure = [names[number] for number in np.flatnonzero(~(memberships.certainty >= _UNCERTAIN)).tolist()]
    if unsure:
        low = f"with a mean probability below {percent(_UNCERTAIN)}"
        found.append(f"{_listed(unsure)}: what belongs there most probably does so {low}.")
    if found:
        yield _Caution("Memberships are uncertain", " ".join(found))


def _of_failures(failed: list[Any]) -> Iterator[_Caution]:
    if failed:
        reason = plain_label(failed[0].get("error", "")) if isinstance(failed[0], dict) else ""
        text = f"{count(len(failed))} of the starts ended with an error. The first: {reason}"
        yield _Caution("Some starts failed", text)


def _of_errors(errors: StandardErrors | None) -> Iterator[_Caution]:
    if errors is not None and errors.unidentified:
        names = dict.fromkeys(plain_label(name, 40) for one in errors.unidentified for name in one.items)
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        about = f"{', '.join([*names][:_MOST_NAMES])}{more}"
        text = f"The rankings say nothing, or next to nothing, about: {about}. Their numbers come from the prior."
        yield _Caution("Too little data for some items", text)


def _listed(names: Sequence[str]) -> str:
    shown = [plain_label(name, 60) for name in names]
    found = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
    return f"{found[0].upper()}{found[1:]}"
