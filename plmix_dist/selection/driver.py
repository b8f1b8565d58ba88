"""The driver of a selection: fits to all rows, criteria on all rows, fits to parts of them, and the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.errors import SettingsError
from plmix_dist.rankings.identifiability import identifiability, ordered_lengths
from plmix_dist.rankings.row_parts import RowPart
from plmix_dist.selection.all_rows import fit_numbers
from plmix_dist.selection.criteria import aic, bic, icl, n_parameters
from plmix_dist.selection.held_out import cross_validate, paper_protocol
from plmix_dist.selection.likelihood_passes import totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.selection.all_rows import NumberFit, Task
    from plmix_dist.selection.held_out import FoldScores

    Row = dict[str, Any]


class Selected(NamedTuple):
    """What a selection found: one row of the table and one fit per number of components, and held-out likelihoods."""

    rows: list[Row]
    fits: list[NumberFit]
    folds: FoldScores | None


def select_number(task: Task, numbers: Sequence[int], criteria: Sequence[str], n_folds: int) -> Selected:
    """Fit every number of components and compute criteria; those on held-out rows only if they are asked for."""
    fits = fit_numbers(task, numbers)
    fitted = [one for one in fits if one.fit is not None]
    if not fitted:
        raise SettingsError(
            f"no number of components could be fitted; {numbers[0]} components: {fits[0].reason}"
        )
    rows = {one.n_components: _blank_row(task, one) for one in fits}
    _add_criteria(task, fitted, rows)
    folds = None
    if "held-out" in criteria:
        folds = cross_validate(task, fitted, n_folds)
        for n_components, row in rows.items():
            row |= _fold_columns(folds, n_components)
            row["reason"] = row["reason"] or folds.failed.get(n_components)
    if "paper" in criteria:
        scores, failed = paper_protocol(task, fitted)
        for n_components, row in rows.items():
            own = scores.get(n_components)
            row |= {"validation_bic": None, "test_score": None} if own is None else own._asdict()
            row["reason"] = row["reason"] or failed.get(n_components)
    return Selected(list(rows.values()), fits, folds)


def _blank_row(task: Task, one: NumberFit) -> Row:
    """The row of a number of components before criteria are known."""
    fit, sample = one.fit, task.look.sample
    status = "unknown"  # what is known holds for one ranking per person
    if one.n_components == 1 or sample.group_starts.all():
        status = identifiability(ordered_lengths(sample), sample.n_items).status(one.n_components)
    search = {} if fit is None else fit.init.get("search", {})
    return {
        "n_components": one.n_components,
        "n_left": None if fit is None else fit.run.point.n_components,
        "n_parameters": None,
        "log_likelihood": None,
        "score": None,
        "bic": None,
        "aic": None,
        "icl": None,
        "identifiable": status,
        "converged": None if fit is None else fit.run.converged,
        "n_iter": None if fit is None else fit.run.n_iterations,
        "n_starts": search.get("n_starts", None if fit is None else 1),
        "n_best": search.get("n_best", None if fit is None else 1),
        "reason": one.reason,
    }


def _add_criteria(task: Task, fitted: Sequence[NumberFit], rows: dict[int, Row]) -> None:
    """BIC, AIC and ICL on all rows, in one pass for all numbers of components."""
    points = [one.fit.run.point for one in fitted if one.fit is not None]
    with task.stages.stage("criteria", passes=1):
        sums = totals(task.passes, [(point, RowPart(extends=task.extends)) for point in points])
    for one, point, (log_likelihood, entropy, weight) in zip(fitted, points, sums, strict=True):
        n_free = n_parameters(*point.log_worths.shape)
        value, total = float(log_likelihood), float(weight)
        rows[one.n_components] |= {
            "n_parameters": n_free,
            "log_likelihood": value,
            "score": value / total,
            "bic": bic(value, n_free, total),
            "aic": aic(value, n_free),
            "icl": icl(value, n_free, total, float(entropy)),
        }


def _fold_columns(folds: FoldScores, n_components: int) -> Row:
    """Held-out log-likelihood per unit of weight, and how sure its difference from the best is."""
    if n_components not in folds.numbers:
        return {"held_out": None, "held_out_error": None}
    own, best = folds.numbers.index(n_components), int(folds.means.argmax())
    return {"held_out": float(folds.means[own]), "held_out_error": float(folds.errors[own, best])}
