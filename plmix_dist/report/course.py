"""How a fit went: convergence, the search, what the data can support, time, and how to do it again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.display.labels import count, percent
from plmix_dist.progress import stage_in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Convergence(NamedTuple):
    """The course of the iterations.

    Parameters
    ----------
    log_likelihoods
        Per ranking (or person), one for each iteration that was taken.
    gradients
        Logarithms to base 10 of the distance from the optimum, one for each iteration that was taken.
    goal
        The logarithm at which the fit ends; None if there is none.
    sentence
        What it means.
    """

    log_likelihoods: list[float]
    gradients: list[float]
    goal: float | None
    sentence: str


class Stage(NamedTuple):
    """A stage of the fit: words, seconds, passes over all rankings."""

    words: str
    seconds: float
    passes: float


def convergence_of(
    history: Sequence[Mapping[str, Any]], weight: float, tol: Any, converged: bool | None
) -> Convergence:
    """What the history says.

    Examples
    --------
    >>> record = {"taken": True, "log_likelihood": -20.0, "gradient": 0.01}
    >>> convergence_of([record], weight=10.0, tol=1e-8, converged=True)[:3]
    ([-2.0], [-2.0], -8.0)
    """
    taken = [record for record in history if record.get("taken", True)]
    log_likelihoods = [
        float(value) / weight for record in taken if (value := record.get("log_likelihood")) is not None
    ]
    sizes = [record.get("gradient", record.get("largest_change")) for record in taken]
    gradients = [math.log10(float(size)) for size in sizes if size is not None and 0 < size < math.inf]
    goal = math.log10(tol) if isinstance(tol, float) and 0 < tol < 1 else None
    ended = {
        True: "The fit settled: further steps would change nothing that matters.",
        False: "The fit was stopped before it had settled; the numbers may still change.",
        None: "Nothing is recorded of how the fit ended.",
    }[converged]
    sentence = (
        f"{ended} It took {count(len(history))} iteration{'s'[: len(history) != 1]}." if history else ended
    )
    return Convergence(log_likelihoods, gradients, goal, sentence)


def search_sentence(search: Mapping[str, int] | None) -> str:
    """How often the best optimum was found, and what that says.

    Examples
    --------
    >>> search_sentence({"n_starts": 8, "n_best": 8, "n_ends": 1})
    'All 8 starts, from different places, ended at this same solution: it is very likely the best one.'
    """
    if not search:
        return (
            "The fit began at one given or computed point, without a search: how often other starts would end here is "
            "not known."
        )
    n_starts, n_best, n_ends = search["n_starts"], search["n_best"], search["n_ends"]
    if n_best == n_starts:
        return (
            f"All {count(n_starts)} starts, from different places, ended at this same solution: it is very likely the "
            "best one."
        )
    ended = f"{count(n_best)} of {count(n_starts)} starts ended at the best solution found"
    found = f"{ended} ({count(n_ends)} different ones)"
    if n_best == 1:
        return f"{found}. Found only once, it may not be the best one there is."
    often = "often enough to trust it" if n_best >= 3 else "which is not often; another seed is worth a try"
    return f"{found}: {often}."


def support_sentence(data: Mapping[str, Any], n_components: int) -> str:
    """Which numbers of components the rankings can tell apart.

    Examples
    --------
    >>> known = {"certain": 2, "generic": 6, "described": "the rankings order all 10 items"}
    >>> support_sentence({"identifiability": known}, 3)
    'Enough rankings order all 10 items. That suffices to tell 3 components apart for almost all worths; the most is 6.'
    """
    known = data.get("identifiability")
    if not known:
        return "The model does not say what it was fitted to, so nothing can be said about it."
    if data.get("by_person"):
        return (
            "Persons gave several rankings each, which tells more than single rankings do; the theorems about "
            "single rankings do not apply."
        )
    certain, generic = known["certain"], known["generic"]
    # A few long rankings among many short ones are enough.
    words = known["described"].replace("the rankings order all", "enough rankings order all")
    described = f"{words[0].upper()}{words[1:]}."
    if n_components <= certain:
        return (
            f"{described} That suffices to tell {_components(n_components)} apart, whatever the worths are."
        )
    if n_components <= generic:
        return (
            f"{described} That suffices to tell {_components(n_components)} apart for almost all worths; the most is "
            f"{_most(generic)}."
        )
    return (
        f"{described} That suffices for {_components(generic)} only: more may fit and predict well, but other "
        "components could describe the same data."
    )


def _components(number: int) -> str:
    return f"{number} component{'s'[: number != 1]}"


def _most(number: int) -> str:
    return count(number) if number <= 1000 else "over 1,000"


def stages_of(records: Sequence[Mapping[str, Any]]) -> list[Stage]:
    """Seconds and passes of each stage; stages of the same name are added up.

    Examples
    --------
    >>> records = [{"stage": "k-means", "seconds": 1.0, "passes": 0}, {"stage": "k-means", "seconds": 2.0, "passes": 1}]
    >>> stages_of(records)
    [Stage(words='start: k-means', seconds=3.0, passes=1.0)]
    """
    seconds: dict[str, float] = {}
    passes: dict[str, float] = {}
    for record in records:
        words = stage_in_words(str(record["stage"]))
        seconds[words] = seconds.get(words, 0.0) + float(record.get("seconds") or 0.0)
        passes[words] = passes.get(words, 0.0) + float(record.get("passes") or 0.0)
    return [Stage(words, seconds[words], passes[words]) for words in seconds]


def data_sentence(data: Mapping[str, Any]) -> str:
    """What was fitted on what.

    Examples
    --------
    >>> data_sentence({"n_rankings": 100, "weight": 250.0, "n_items": 9, "mean_listed": 4.0})
    '100 different rankings with a total weight of 250, of 9 items. A ranking lists 4 items on average.'
    """
    if not data:
        return "The model does not say what it was fitted to."
    n_rankings, weight, persons = data["n_rankings"], data["weight"], data.get("by_person")
    if persons:
        many = f"{count(n_rankings)} rankings by {count(weight)} persons"
    elif abs(weight - n_rankings) < 1e-9 * n_rankings:
        many = f"{count(n_rankings)} rankings"
    else:
        many = f"{count(n_rankings)} different rankings with a total weight of {count(weight)}"
    listed = f"{data['mean_listed']:.1f}".removesuffix(".0")
    words = f"{many}, of {count(data['n_items'])} items. A ranking lists {listed} items on average"
    if data.get("n_top_k"):
        words += f"; {percent(data['n_top_k'] / n_rankings)} give the first places only"
    if data.get("n_tied_items"):
        words += "; some have ties"
    return f"{words}."


def code_to_repeat(
    class_name: str,
    settings: Mapping[str, Any],
    defaults: Mapping[str, Any],
    source: str | None,
    seed: int | None,
) -> str:
    """Python that fits the same model again: settings that differ from the defaults, and the seed that was used.

    Examples
    --------
    >>> print(code_to_repeat("PlackettLuceMixture", {"n_components": 3, "tol": 1e-8}, {"tol": 1e-8}, None, 7))
    import plmix_dist as pl
    <BLANKLINE>
    rankings = ...  # the rankings that were fitted
    model = pl.PlackettLuceMixture(n_components=3, random_state=7).fit(rankings)
    """
    left_out = ("random_state", "progress")
    given = {
        name: value
        for name, value in settings.items()
        if name not in left_out and (name not in defaults or defaults[name] != value)
    }
    if seed is not None:
        given["random_state"] = seed
    arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
    rankings = f"rankings = {source!r}" if source else "rankings = ...  # the rankings that were fitted"
    return f"import plmix_dist as pl\n\n{rankings}\nmodel = pl.{class_name}({arguments}).fit(rankings)"
