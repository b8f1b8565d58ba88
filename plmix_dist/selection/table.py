"""The choice that a table leads to, and both in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plmix_dist.selection.criteria import Criterion

    Row = dict[str, Any]

# What is shown of a table in text: the column, its heading, and how a value is written.
_SHOWN = (
    ("n_components", "K", "{:d}"),
    ("score", "score", "{:.5f}"),
    ("bic", "BIC", "{:.1f}"),
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
    """The number of components that was chosen, and by how much.

    Parameters
    ----------
    n_components
        The choice.
    best
        The number with the best value; with a criterion that has standard errors, the choice may be a smaller one.
        Of several that ended at the same fit, because components lost all their rankings, it is the smallest.
    runner_up
        The number with the best value among those that ended at another fit; None if there is none.
    margin
        By how much the choice is better than the runner-up, in units of the criterion. It is negative if the choice is
        worse, within one standard error.
    """

    n_components: int
    best: int
    runner_up: int | None
    margin: float | None


def choose(rows: Sequence[Row], criterion: Criterion) -> Choice | None:
    """The number of components that a criterion chooses; None if no row has a value.

    Examples
    --------
    >>> from plmix_dist.selection.criteria import CRITERIA
    >>> rows = [{"n_components": 2, "bic": 110.0}, {"n_components": 3, "bic": 100.0}, {"n_components": 4, "bic": None}]
    >>> choose(rows, CRITERIA["bic"])
    Choice(n_components=3, best=3, runner_up=2, margin=10.0)
    """
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
    margin = None if runner_up is None else others[runner_up] - known[chosen]
    return Choice(chosen, best, runner_up, margin)


def _same_fits(rows: Sequence[Row], criterion: Criterion, number: int) -> list[int]:
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


def in_words(rows: Sequence[Row], criterion: Criterion, choice: Choice) -> str:
    """The choice and its margin in a few sentences, with what speaks against relying on it.

    Examples
    --------
    >>> from plmix_dist.selection.criteria import CRITERIA
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
    more = [
        number for number in _same_fits(rows, criterion, choice.n_components) if number > choice.n_components
    ]
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
    if own.get("converged") is False:
        sentences.append("The fit did not converge; raise max_iter, or tol")
    return ". ".join(sentences) + "."


def _sentence(by_number: Mapping[int, Row], criterion: Criterion, choice: Choice) -> str:
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
    """The table as lines of text.

    Examples
    --------
    >>> text_table([{"n_components": 2, "score": -3.25, "bic": 110.0, "reason": None}])
    ['K     score    BIC', '2  -3.25000  110.0']
    """
    shown = [column for column in _SHOWN if any(row.get(column[0]) is not None for row in rows)]
    cells = [[heading for _, heading, _ in shown]]
    cells += [
        ["-" if row.get(name) is None else form.format(row[name]) for name, _, form in shown] for row in rows
    ]
    widths = [max(len(line[place]) for line in cells) for place in range(len(shown))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    reasons = [f"{_components(row['n_components'])}: {row['reason']}" for row in rows if row.get("reason")]
    return [*lines, *reasons]
