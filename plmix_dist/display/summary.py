"""Summary: what was fitted, how it ended and how sure it is, as text and as a card for notebooks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from plmix_dist.display.marks import count, label, plain_label
from plmix_dist.display.notebook import card

_FIRST = "first: the probability that an item is chosen first from all items"
_LONGEST_NAME = 40


class Summary(str):
    """Text that prompts show as it is printed; notebooks show `html`."""

    __slots__ = ("html",)
    html: str

    def __new__(cls, text: str, html: str = "") -> Summary:
        """The text and the card that say the same."""
        found = super().__new__(cls, text)
        found.html = html
        return found

    def __repr__(self) -> str:
        """The text itself, without quotes."""
        return str(self)

    def _repr_html_(self) -> str:
        return self.html


class Sureness(NamedTuple):
    """How sure parameters are: what the errors are called, errors and ends of 95 % intervals of both kinds."""

    words: str
    errors: Any  # log_worths (n_components, n_items) and shares (n_components,)
    intervals: Any  # the same, of pairs of lower and upper ends


class _Group(NamedTuple):
    title: str
    columns: dict[str, list[str]]  # by heading, one text per item shown; the names of items first


def summary_of(model: Any, n_parameters: int, k: int, sure: Sureness | None) -> Summary:
    """The lines and tables of a fitted mixture, with the k best items of each component."""
    lines = [*_what_was_fitted(model), *_how_it_ended(model, n_parameters)]
    groups = [_group(model, number, k, sure) for number in range(len(model.shares_))]
    notes = _notes(model, k, sure)
    text = "\n".join([*lines, *(line for one in groups for line in ["", one.title, *_text_table(one)]), "", *notes])
    page = "".join(f"<div>{label(line)}</div>" for line in lines)
    page += "".join(f"<div><b>{label(one.title)}</b></div>{_html_table(one)}" for one in groups)
    return Summary(text, card(page + "".join(f"<div class=quiet>{label(line)}</div>" for line in notes)))


def _what_was_fitted(model: Any) -> list[str]:
    n_components, n_items = model.log_worths_.shape
    words = f"{type(model).__name__}: {n_components} component{'s'[: n_components != 1]}, {count(n_items)} items"
    data = _data(model)
    if not data:
        return [words]
    weight = "" if data["weight"] == data["n_rankings"] else f", {_unit(data)} {count(data['weight'])}"
    return [words, f"fitted to {count(data['n_rankings'])} rankings{weight}"]


def _unit(data: dict[str, Any]) -> str:
    return "persons" if data.get("by_person") else "total weight"


def _data(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = (getattr(model, "about_", None) or {}).get("data") or {}
    return found


def _how_it_ended(model: Any, n_parameters: int) -> list[str]:
    value, mixed = getattr(model, "log_likelihood_", None), getattr(model, "diagnostics_", None)
    if mixed is not None:
        state = "the chains agree" if model.converged_ else "THE CHAINS HAVE NOT MIXED: do not rely on these means"
        dic = "" if model.dic_ is None else f", DIC {model.dic_:,.1f}"
        return [
            f"{state} (largest R-hat {mixed.largest_r_hat:.3f}, at least {mixed.least_ess:,.0f} effective draws)",
            f"mean log-likelihood {value:,.4g}{dic}",
        ]
    if value is None:
        return []
    ended = "converged" if getattr(model, "converged_", False) else "NOT CONVERGED"
    n_iter, weight = getattr(model, "n_iter_", 0), _data(model).get("weight")
    criteria = ""
    if weight:
        bic, aic = n_parameters * math.log(weight) - 2 * value, 2 * (n_parameters - value)
        criteria = f", BIC {bic:,.1f}, AIC {aic:,.1f}"
    return [f"log-likelihood {value:,.4f}{criteria}, {ended} after {count(n_iter)} iterations"]


def _group(model: Any, number: int, k: int, sure: Sureness | None) -> _Group:
    logs = model.log_worths_[number]
    best = np.argsort(-logs, kind="stable")[:k]
    columns = {
        "item": [plain_label(model.item_names_[item], _LONGEST_NAME) for item in best],
        "log-worth": [f"{logs[item]:.3f}" for item in best],
    }
    share = f"{100 * model.shares_[number]:.1f} %"
    if sure is not None:
        low, high = (end[number] for end in sure.intervals.log_worths)
        columns[sure.words] = [_known(sure.errors.log_worths[number, item], "{:.3f}") for item in best]
        columns["95 % interval"] = [
            "not known" if math.isnan(low[item]) else f"{low[item]:.3f} to {high[item]:.3f}" for item in best
        ]
        ends = [float(end[number]) for end in sure.intervals.shares]
        if not math.isnan(ends[0]) and ends[0] < ends[1]:
            share += f" ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})"
    mixed = getattr(model, "diagnostics_", None)
    if mixed is not None:
        ess = np.minimum(mixed.bulk_ess.log_worths[number], mixed.tail_ess.log_worths[number])
        columns["R-hat"] = [_known(mixed.r_hat.log_worths[number, item], "{:.3f}") for item in best]
        columns["ESS"] = [_known(ess[item], "{:,.0f}") for item in best]
    worths = np.exp(logs - np.logaddexp.reduce(logs))
    columns["first"] = [f"{worths[item]:.2g}" for item in best]
    is_noise = getattr(model, "noise", False) and number == len(model.shares_) - 1
    return _Group(f"component {number}{', noise' if is_noise else ''}, share {share}", columns)


def _known(value: float, form: str) -> str:
    return "not known" if math.isnan(value) else form.format(value)


def _notes(model: Any, k: int, sure: Sureness | None) -> list[str]:
    n_more = len(model.item_names_) - k
    found = [_FIRST]
    if n_more > 0:
        found.append(f"{count(n_more)} more item{'s'[: n_more != 1]} in each component: worths_frame() has all")
    if sure is not None:
        found.append(f"errors and intervals hold given {len(model.shares_)} components")
    if getattr(model, "alpha", 0) and getattr(model, "objective_", None) is not None:
        found.append(
            f"values are shrunk by a prior of alpha={model.alpha:g}; log-likelihood and criteria are taken there"
        )
    return found


def _text_table(group: _Group) -> list[str]:
    cells = [[heading, *values] for heading, values in group.columns.items()]
    padded = []
    for place, column in enumerate(cells):
        width = max(map(len, column))
        padded.append([cell.rjust(width) if place else cell.ljust(width) for cell in column])
    return ["  " + "  ".join(line).rstrip() for line in zip(*padded, strict=True)]


def _html_table(group: _Group) -> str:
    head = "".join(f"<th>{label(heading)}</th>" for heading in group.columns)
    rows = [
        "<tr>"
        + "".join(f"<td{' class=number' * bool(place)}>{label(cell)}</td>" for place, cell in enumerate(line))
        + "</tr>"
        for line in zip(*group.columns.values(), strict=True)
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
