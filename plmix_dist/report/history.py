"""How a fit went, in words: convergence, the search, time, how K was chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from plmix_dist.display.marks import count, percent
from plmix_dist.display.progress import stage_in_words
from plmix_dist.errors import SettingsError
from plmix_dist.fitting.starts.settings import is_start_value
from plmix_dist.settings import shown


class _Convergence(NamedTuple):
    """The course of the iterations."""

    log_likelihoods: list[float]  # per ranking (or person), one for each iteration that was taken
    # Logarithms to base 10 of the distance from the optimum, one for each iteration that was taken.
    gradients: list[float]
    goal: float | None  # the logarithm at which the fit ends; None if there is none
    sentence: str  # what it means


class _Stage(NamedTuple):
    """A stage of the fit: words, seconds, passes over all rankings."""

    words: str
    seconds: float
    passes: float


def convergence_of(
    history: Sequence[Mapping[str, Any]], weight: float, tol: Any, converged: bool | None
) -> _Convergence:
    """Likelihoods and gradients of the iterations that were taken, and how the fit ended."""
    taken = [record for record in history if record.get("taken", True)]
    log_likelihoods = [float(value) / weight for record in taken if (value := record.get("log_likelihood")) is not None]
    sizes = [record.get("gradient", record.get("largest_change")) for record in taken]
    gradients = [math.log10(float(size)) for size in sizes if size is not None and 0 < size < math.inf]
    goal = math.log10(tol) if isinstance(tol, float) and 0 < tol < 1 else None
    ended = {
        True: "The fit settled: further steps would change nothing that matters.",
        False: "The fit was stopped before it had settled; the numbers may still change.",
        None: "Nothing is recorded of how the fit ended.",
    }[converged]
    if ended_flat(history):
        ended = "The fit ended where the likelihood is flat: other groups describe the rankings as well."
    sentence = f"{ended} It took {count(len(history))} iteration{'s'[: len(history) != 1]}." if history else ended
    return _Convergence(log_likelihoods, gradients, goal, sentence)


def ended_flat(history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a fit ended on a ridge, where steps no longer change the likelihood."""
    return bool(len(history) and history[-1].get("flat"))


def search_sentence(search: Mapping[str, Any] | None) -> str:
    """How often the best optimum was found, and what that says."""
    if not search:
        return (
            "The fit began at one given or computed point, without a search: how often other starts would end here is "
            "not known."
        )
    n_starts, n_best, n_ends = search["n_starts"], search["n_best"], search["n_ends"]
    n_elsewhere = n_independent(search)
    if n_best == n_starts == n_elsewhere:
        return (
            f"All {count(n_starts)} starts, from different places, ended at this same solution: it is very likely the "
            "best one."
        )
    ended = f"{count(n_best)} of {count(n_starts)} starts ended at the best solution found"
    found = ended if n_ends == 1 else f"{ended} (of {count(n_ends)} different ones)"
    if n_best == 1:
        return f"{found}. Found only once, it may not be the best one there is."
    if n_elsewhere < n_best:
        found += (
            f", but {count(n_best - n_elsewhere)} of these began as variations of a solution that was found before, so "
            f"{count(n_elsewhere)} came from elsewhere"
        )
    often = "often enough to trust it" if n_elsewhere >= 3 else "which is not often; another seed is worth a try"
    return f"{found}: {often}."


def other_solutions(search: Mapping[str, Any] | None, weight: float) -> list[str]:
    """What else fits nearly as well: other ends of the search, the next best first, in words."""
    found = []
    for other in (search or {}).get("others") or ():
        shares = ", ".join(percent(share, 1) for share in sorted(other["shares"], reverse=True))
        found.append(f"shares of {shares}: a log-likelihood lower by about {other['behind'] * weight:,.3g}")
    return found


def n_independent(search: Mapping[str, Any]) -> int:
    """How many starts at the best solution were not variations of an earlier one."""
    return int(search["n_best"] - search.get("n_varied", 0))


def mixing_sentence(model: Any) -> str:
    """Whether the chains of a sampled model agree."""
    n_chains, n_draws = model.draws_.log_likelihood.shape
    mixed = model.diagnostics_
    agree = "agree" if model.converged_ else "do not agree, so the numbers are not to be relied on"
    return (
        f"{count(n_chains)} chains of {count(n_draws)} draws each {agree}: the largest R-hat is "
        f"{mixed.largest_r_hat:.3f} (1 is best, above 1.05 is too large), and there are at least "
        f"{mixed.least_ess:,.0f} effective draws."
    )


def support_sentence(data: Mapping[str, Any], n_components: int) -> str:
    """Which numbers of components the rankings can tell apart."""
    known = data.get("identifiability")
    if not known:
        return "The model does not say what it was fitted to, so nothing can be said about it."
    certain, generic = known["certain"], known["generic"]
    # A few long rankings among many short ones are enough.
    words = known["described"].replace("the rankings order all", "enough rankings order all")
    described = f"{words[0].upper()}{words[1:]}."
    if n_components <= certain:
        return f"{described} That suffices to tell {_groups(n_components)} apart, whatever the worths are."
    if n_components <= generic:
        return (
            f"{described} That suffices to tell {_groups(n_components)} apart for almost all worths; the most is "
            f"{count(generic) if generic <= 1000 else 'over 1,000'}."
        )
    return (
        f"{described} That suffices for {_groups(generic)} only: more may fit and predict well, but other "
        "groups could describe the same data."
    )


def _groups(number: int) -> str:
    return f"{number} group{'s'[: number != 1]}"


def stages_of(records: Sequence[Mapping[str, Any]]) -> list[_Stage]:
    """Seconds and passes of each stage; stages of the same name are added up."""
    found: dict[str, _Stage] = {}
    for record in records:
        words = stage_in_words(str(record["stage"]))
        _, seconds, passes = found.get(words, (words, 0.0, 0.0))
        own = float(record.get("seconds") or 0.0), float(record.get("passes") or 0.0)
        found[words] = _Stage(words, seconds + own[0], passes + own[1])
    return list(found.values())


def data_sentence(data: Mapping[str, Any]) -> str:
    """What was fitted on what."""
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
    selection: Mapping[str, Any] | None = None,
) -> str:
    """Python that fits the same model again: settings that differ from the defaults, and the seed that was used.

    `selection` are the settings of the selection that chose the model.
    """
    left_out = ("random_state", "progress")
    given = {
        name: value
        for name, value in settings.items()
        if name not in left_out and (name not in defaults or defaults[name] != value)
    }
    if seed is not None:
        given["random_state"] = seed
    arguments = ", ".join(f"{name}={'plm.' * is_start_value(value)}{value!r}" for name, value in given.items())
    rankings = f"rankings = {source!r}" if source else "rankings = ...  # the rankings that were fitted"
    found = f"model = plm.{class_name}({arguments}).fit(rankings)"
    if selection is not None:
        names = sorted(selection, key=lambda name: (name != "n_components", name != "criterion", name))
        asked = ", ".join(f"{name}={selection[name]!r}" for name in names)
        found = (
            f"found = plm.MixtureSelection({asked},\n    random_state={seed!r}, "
            f"estimator=plm.{class_name}({arguments})).fit(rankings)\n"
            f"model = found.estimators_[{settings['n_components']}]"
        )
    return f"import plmix_dist as plm\n\n{rankings}\n{found}"


# How K was chosen: any table with one row per number of components, as plain records for the page and for plots.

_NUMBER = ("n_components", "K", "k", "components")
# What criteria are called; those that the table has are shown, the others are of use to programs.
_HEADINGS = {
    "bic": "BIC",
    "bic_without_prior": "BIC, no prior",
    "aic": "AIC",
    "icl": "ICL",
    "held_out": "Held-out log-likelihood",
    "held_out_error": "its error",
    "validation_bic": "BIC, validation rows",
    "test_score": "Log-likelihood, test rows",
    "score": "Log-likelihood per ranking",
}
# Of these, smaller is better; of all others, larger is.
_SMALLER_IS_BETTER = ("bic", "aic", "icl", "dic", "waic", "loss")


class _SelectionTable(NamedTuple):
    """Numbers of components, and what was computed for each."""

    n_components: list[int]  # one per row
    columns: dict[str, list[float]]  # the other columns that hold numbers, by name

    @property
    def shown(self) -> dict[str, str]:
        """The columns for people, with their headings: criteria, or all of a table that has none."""
        return {name: heading_of(name) for name in _HEADINGS if name in self.columns} or {
            name: name for name in self.columns
        }

    def best(self, name: str) -> int:
        """The number of components that is best by a column."""
        sign = -1.0 if smaller_is_better(name) else 1.0
        values = [sign * value if math.isfinite(value) else -math.inf for value in self.columns[name]]
        return self.n_components[values.index(max(values))]


def heading_of(name: str) -> str:
    """What a column is called."""
    return _HEADINGS.get(name, name)


def smaller_is_better(name: str) -> bool:
    """Whether the smallest value of a column is the best: for criteria such as BIC."""
    return any(word in name.lower() for word in _SMALLER_IS_BETTER)


def selection_table(table: Any) -> _SelectionTable:
    """Read a table: records, a dict of columns, a pandas or Polars frame, an Arrow table, or what has a `table_`."""
    records = _records(getattr(table, "table_", table))
    if not records:
        raise SettingsError("the selection has no rows; give one record per number of components")
    names = list(dict.fromkeys(name for record in records for name in record))
    number = next((name for name in _NUMBER if name in names), None)
    if number is None:
        raise SettingsError(f"the selection needs a column n_components, but has {', '.join(map(str, names))}")
    rows = sorted(records, key=lambda record: int(record[number]))
    columns = {
        str(name): [_number(record.get(name)) for record in rows]
        for name in names
        if name != number and any(math.isfinite(_number(record.get(name))) for record in rows)
    }
    return _SelectionTable([int(record[number]) for record in rows], columns)


def _number(value: Any) -> float:
    return math.nan if isinstance(value, bool) or not hasattr(value, "__float__") else float(value)


def _records(table: Any) -> list[dict[str, Any]]:
    for method, arguments in (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",))):
        if hasattr(table, method) and not isinstance(table, Mapping):
            return list(getattr(table, method)(*arguments))
    if isinstance(table, Mapping):
        if isinstance(table.get("table"), list):
            return _records(table["table"])
        return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    if isinstance(table, list | tuple) and all(isinstance(record, Mapping) for record in table):
        return [dict(record) for record in table]
    raise SettingsError(f"the selection must be a table or a list of records, but is {shown(table)}")
