"""Warnings in words: what a reader should know before trusting a fit, and what to do about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.display.labels import count, percent, plain_label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plmix_dist.report.belonging import Belonging
    from plmix_dist.uncertainty.results import StandardErrors

# Components with a smaller share rest on few rankings.
_SMALL_SHARE = 0.02
# A component that is less certain than this of what belongs to it is hard to tell from the others.
_UNCERTAIN = 0.6
_MOST_NAMES = 5


class Caution(NamedTuple):
    """A warning: a few words, and a sentence or two."""

    title: str
    text: str


def cautions_of(model: Any, belonging: Belonging | None, errors: StandardErrors | None) -> list[Caution]:
    """Everything that a reader should know first; an empty list if there is nothing.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> model = PlackettLuceMixture(1).fit([[0, 1, 2], [2, 1, 0]])
    >>> cautions_of(model, None, None)
    []
    """
    found = [
        *_of_the_end(model),
        *_of_the_search(model.init_.get("search")),
        *_of_identifiability(model.about_.get("data") or {}, len(model.shares_)),
        *_of_components(model, belonging),
        *_of_failures(model.init_.get("failed_starts") or []),
    ]
    return [*found, *(_of_errors(errors) if errors is not None else [])]


def _of_the_end(model: Any) -> list[Caution]:
    if model.converged_ is False:
        gradient = "" if model.gradient_norm_ is None else f" (gradient {model.gradient_norm_:.1e})"
        text = (
            f"The fit stopped after {count(model.n_iter_)} iterations before it had settled{gradient}. The numbers "
            "below may still change; fit again with a larger max_iter."
        )
        return [Caution("Not converged", text)]
    return []


def _of_the_search(search: Mapping[str, int] | None) -> list[Caution]:
    if not search or search["n_starts"] < 2 or search["n_best"] > 1:
        return []
    text = (
        f"Of {count(search['n_starts'])} starts, only one ended at the solution that is shown. There may be a better "
        "one: fit again with another seed or a larger n_init, or choose fewer components."
    )
    return [Caution("The best solution was found only once", text)]


def _of_identifiability(data: Mapping[str, Any], n_components: int) -> list[Caution]:
    known = data.get("identifiability")
    if not known or data.get("by_person") or n_components <= known["generic"]:
        return []
    described = re.sub(r", which count like \d+ items", "", known["described"])
    text = (
        f"{described[0].upper()}{described[1:]}. From such rankings, at most {known['generic']} "
        f"component{'s'[: known['generic'] != 1]} can be told apart for certain, and {n_components} were fitted. "
        "Other components may describe the data equally well, so take the portraits of single components with care. "
        "What all of them together predict is not affected."
    )
    return [Caution("More components than the data can tell apart for certain", text)]


def _of_components(model: Any, belonging: Belonging | None) -> list[Caution]:
    found = []
    if model.events_:
        actions = {"reseed": "was started again", "drop": "was dropped"}
        told = ", ".join(
            f"component {event.get('component')} {actions.get(str(event.get('action')), str(event.get('action')))}"
            for event in model.events_
        )
        found.append(Caution("A component lost all its rankings on the way", f"During the fit: {told}."))
    small = [number for number, share in enumerate(model.shares_) if share < _SMALL_SHARE]
    if small:
        text = (
            f"Component{'s'[: len(small) != 1]} {_listed(small)}: a share below {percent(_SMALL_SHARE)}. What is "
            "said of it rests on few rankings."
        )
        found.append(Caution("A very small component", text))
    if belonging is not None and len(model.shares_) > 1:
        unsure = np.flatnonzero(~(belonging.certainty >= _UNCERTAIN)).tolist()
        if unsure:
            text = (
                f"Component{'s'[: len(unsure) != 1]} {_listed(unsure)}: the rankings that belong there most probably "
                f"do so with a mean probability below {percent(_UNCERTAIN)}. Read it as a tendency, not as a group."
            )
            found.append(Caution("Memberships are uncertain", text))
    return found


def _of_failures(failed: list[Any]) -> list[Caution]:
    if not failed:
        return []
    reason = plain_label(failed[0].get("error", "")) if isinstance(failed[0], dict) else ""
    text = f"{count(len(failed))} of the starts ended with an error. The first: {reason}"
    return [Caution("Some starts failed", text)]


def _of_errors(errors: StandardErrors) -> list[Caution]:
    if not errors.unidentified:
        return []
    names = [plain_label(name, 40) for one in errors.unidentified for name in one.items]
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - _MOST_NAMES} more" if len(distinct) > _MOST_NAMES else ""
    text = (
        f"The rankings say nothing, or next to nothing, about: {', '.join(distinct[:_MOST_NAMES])}{more}. "
        "Their numbers come from the prior."
    )
    return [Caution("Too little data for some items", text)]


def _listed(numbers: list[int]) -> str:
    return (
        " and ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])])
        if numbers[1:]
        else str(numbers[0])
    )
