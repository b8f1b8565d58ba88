"""Criteria for a number of components, one value each: what they are called, and which value is best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

Row = dict[str, Any]


@dataclass(frozen=True)
class _Criterion:
    """A criterion. To add one, add its value to `CRITERIA`, and its column to the table."""

    name: str  # what users type as criterion
    column: str  # the column of the table that decides
    words: str  # what it is called in a sentence
    lowest: bool  # whether the lowest value is the best, not the highest
    # The column with standard errors of the difference from the best value, if there is one. The smallest number of
    # components within one standard error of the best is then chosen.
    error_column: str | None = None

    def loss(self, row: dict[str, Any]) -> float:
        """The value of a row of the table, turned so that lower is better; infinite if the row has none."""
        value = row.get(self.column)
        if value is None or math.isnan(value):
            return math.inf
        return float(value if self.lowest else -value)

    def error(self, row: dict[str, Any]) -> float | None:
        """The standard error of the difference between a row and the best one, if the criterion has one."""
        return None if self.error_column is None else row.get(self.error_column)


CRITERIA = {
    criterion.name: criterion
    for criterion in (
        _Criterion("bic", "bic", "BIC", lowest=True),
        _Criterion("aic", "aic", "AIC", lowest=True),
        _Criterion("icl", "icl", "ICL", lowest=True),
        _Criterion("held-out", "held_out", "held-out log-likelihood", lowest=False, error_column="held_out_error"),
        _Criterion("paper", "validation_bic", "BIC on validation rows", lowest=True),
    )
}


# The end of the names of columns that hold a criterion at the maximum of the likelihood.
WITHOUT_PRIOR = "_without_prior"


def n_parameters(n_components: int, n_items: int) -> int:
    """Free parameters of a mixture: log-worths up to a constant per component, and shares that sum to one."""
    return n_components * (n_items - 1) + n_components - 1


def bic(log_likelihood: float, n_free: int, weight: float) -> float:
    """Bayesian information criterion (Schwarz 1978) of rows (with groups, persons) with this total weight."""
    return n_free * math.log(weight) - 2 * log_likelihood


def aic(log_likelihood: float, n_free: int) -> float:
    """Akaike information criterion."""
    return 2 * n_free - 2 * log_likelihood


def icl(log_likelihood: float, n_free: int, weight: float, entropy: float) -> float:
    """Integrated completed likelihood (Biernacki, Celeux & Govaert 2000): BIC and twice the entropy of memberships."""
    return bic(log_likelihood, n_free, weight) + 2 * entropy


# The choice that a table leads to, and both in words.

# What is shown of a table in text: the column, its heading, and how a value is written.
_SHOWN = (
    ("n_components", "K", "{:d}"),
    ("score", "score", "{:.5f}"),
    ("bic", "BIC", "{:.1f}"),
    ("bic_without_prior", "BIC, no prior", "{:.1f}"),
    ("aic", "AIC", "{:.1f}"),
    ("icl", "ICL", "{:.1f}"),
    ("held_out", "held out", "{:.5f}"),
    ("held_out_error", "+-", "{:.5f}"),
    ("validation_bic", "BIC, validation", "{:.1f}"),
    ("test_score", "test", "{:.5f}"),
    ("n_best", "found", "{:d}"),
    ("n_starts", "of", "{:d}"),
    ("identifiable", "identifiable", "{}"),
)
# Fits with as many components left, and values that differ relatively by at most this, are the same fit.
_SAME = 1e-6


class Choice(NamedTuple):
    """The number of components that was chosen, and by how much."""

    n_components: int  # the choice
    # The number with the best value; with a criterion that has standard errors, the choice may be a smaller one. Of
    # several that ended at the same fit, because components lost all their rankings, it is the smallest.
    best: int
    # The number with the best value among those that ended at another fit; None if there is none.
    runner_up: int | None
    # By how much the choice is better than the runner-up, in units of the criterion. It is negative if the choice is
    # worse, within one standard error.
    margin: float | None


def choose(rows: Sequence[Row], criterion: _Criterion) -> Choice | None:
    """The number of components that a criterion chooses; None if no row has a value."""
    losses = {row["n_components"]: criterion.loss(row) for row in rows}
    known = {number: loss for number, loss in losses.items() if math.isfinite(loss)}
    if not known:
        return None
    best = min(_same_fits(rows, criterion, min(known, key=lambda number: (known[number], number))))
    errors = {row["n_components"]: criterion.error(row) or 0.0 for row in rows}
    chosen = min(number for number in known if known[number] <= known[best] + errors[number])
    same = _same_fits(rows, criterion, chosen)
    others = {number: loss for number, loss in known.items() if number not in same}
    runner_up = min(others, key=lambda number: (others[number], number)) if others else None
    return Choice(chosen, best, runner_up, None if runner_up is None else others[runner_up] - known[chosen])


def choice_without_prior(rows: Sequence[Row], criterion: _Criterion) -> int | None:
    """The number of components that the criterion chooses at the maximum of the likelihood; None if it is not known."""
    found = choose(rows, replace(criterion, column=criterion.column + WITHOUT_PRIOR))
    return None if found is None else found.n_components


def _same_fits(rows: Sequence[Row], criterion: _Criterion, number: int) -> list[int]:
    """The numbers of components that ended at the fit of this one, it included: components may lose all rankings."""
    own = next(row for row in rows if row["n_components"] == number)
    loss, n_left = criterion.loss(own), own.get("n_left")
    close = _SAME * max(1.0, abs(loss))
    return [
        row["n_components"]
        for row in rows
        if row is own
        or (n_left is not None and row.get("n_left") == n_left and abs(criterion.loss(row) - loss) <= close)
    ]


def in_words(rows: Sequence[Row], criterion: _Criterion, choice: Choice) -> str:
    """The choice and its margin in a few sentences, with what speaks against relying on it.

    Examples
    --------
    >>> from plmix_dist.fitting.criteria import CRITERIA
    >>> rows = [{"n_components": 2, "bic": 110.0}, {"n_components": 3, "bic": 100.0}]
    >>> print(in_words(rows, CRITERIA["bic"], choose(rows, CRITERIA["bic"])))
    3 components have the lowest BIC, 10 below 2 components. No larger number was tried; a larger one may be better.
    """
    by_number = {row["n_components"]: row for row in rows}
    own = by_number[choice.n_components]
    sentences = [_sentence(by_number, criterion, choice)]
    tried = [row["n_components"] for row in rows if math.isfinite(criterion.loss(row))]
    if choice.n_components == max(by_number) and len(tried) > 1:
        sentences.append("No larger number was tried; a larger one may be better")
    elif choice.n_components == max(tried) < max(by_number):
        sentences.append("No larger number could be fitted: the table says why")
    n_left = own.get("n_left")
    if n_left not in (None, choice.n_components):
        sentences.append(f"Of these, {n_left} {_are(n_left)} left: the others lost all their rankings")
    more = [number for number in _same_fits(rows, criterion, choice.n_components) if number > choice.n_components]
    if more:
        sentences.append(
            f"The same fit was found with {_listed(more)} components, of which {n_left} {_are(n_left)} left"
        )
    if own.get("identifiable") not in (None, "identifiable", "generic"):
        sentences.append(
            f"{_components(choice.n_components).capitalize()} may not be identifiable from these rankings: do not read "
            "much into single components"
        )
    if own.get("n_best") == 1 and own.get("n_starts", 1) > 1:
        sentences.append(
            f"One of {own['n_starts']} starts ended at the optimum that was kept, so there may be a better one"
        )
    unshrunken = choice_without_prior(rows, criterion)
    if unshrunken not in (None, choice.n_components):
        sentences.append(f"Without the prior it would be {_components(unshrunken)}: the choice hangs on alpha")
    if own.get("converged") is False:
        sentences.append("The fit did not converge; raise max_iter, or tol")
    return ". ".join(sentences) + "."


def _sentence(by_number: Mapping[int, Row], criterion: _Criterion, choice: Choice) -> str:
    """The choice, and how far the next number of components is behind."""
    chosen = _components(choice.n_components)
    have = "has" if choice.n_components == 1 else "have"
    extreme = "lowest" if criterion.lowest else "highest"
    if choice.runner_up is None or choice.margin is None:
        return f"{chosen} {have} the {extreme} {criterion.words}, and nothing else was compared"
    next_best = _components(choice.runner_up)
    error = criterion.error(by_number[choice.runner_up])
    if choice.best != choice.n_components:
        error = criterion.error(by_number[choice.n_components])
        return (
            f"{chosen} {have} a {criterion.words} within one standard error of the {extreme} one: "
            f"{-choice.margin:.5f} below {next_best}, with a standard error of {error:.5f}; of such numbers the "
            "smallest is chosen"
        )
    if criterion.lowest:
        return f"{chosen} {have} the {extreme} {criterion.words}, {choice.margin:,.4g} below {next_best}"
    return (
        f"{chosen} {have} the {extreme} {criterion.words}, {choice.margin:.5f} above {next_best}, with a standard "
        f"error of {error:.5f}"
    )


def _are(number: int | None) -> str:
    return "is" if number == 1 else "are"


def _listed(numbers: Sequence[int]) -> str:
    return " and ".join(filter(None, [", ".join(map(str, numbers[:-1])), str(numbers[-1])]))


def _components(number: int) -> str:
    return f"{number} component{'s'[: number != 1]}"


def text_table(rows: Sequence[Row]) -> list[str]:
    """The table as lines of text."""
    shown = [column for column in _SHOWN if any(row.get(column[0]) is not None for row in rows)]
    cells = [[heading for _, heading, _ in shown]]
    cells += [["-" if row.get(name) is None else form.format(row[name]) for name, _, form in shown] for row in rows]
    widths = [max(len(line[place]) for line in cells) for place in range(len(shown))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    reasons = [f"{_components(row['n_components'])}: {row['reason']}" for row in rows if row.get("reason")]
    return [*lines, *reasons]
