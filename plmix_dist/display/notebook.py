"""What a notebook shows of stores, models, histories and selections, light and dark; the summary of a model."""

from __future__ import annotations

import html
import math
from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from plmix_dist.display import marks
from plmix_dist.display.marks import Html, component_colour, count, label, percent

# Colours of the text and its background are those of the notebook; lines and tracks are a grey that is seen on both.
_STYLE = (
    "<style>.plmix{font-size:13px;line-height:1.45;max-width:60em}.plmix table{border-collapse:collapse}"
    ".plmix th,.plmix td{text-align:left;padding:2px 12px 2px 0;vertical-align:top;background:none;white-space:normal}"
    ".plmix td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".plmix bdi{overflow-wrap:anywhere}.plmix .track{fill:#8884;stroke:none}"
    ".plmix polyline{fill:none;stroke:#3b8fc4;stroke-width:2;vector-effect:non-scaling-stroke}"
    ".plmix .quiet{opacity:.75}"
    ".plmix line.track,.plmix .middle{stroke:#8884}.plmix .middle{display:none}"
    ".plmix svg.bar,.plmix svg.interval{width:90px}</style>"
)
_MOST_NAMES = 12
_MOST_ROWS = 12
_FAVOURITES = 5
_TELLABLE = {"identifiable": "yes", "generic": "almost always", "not identifiable": "no", "unknown": "not known"}
_FIRST_CHOICE = "The percentage of an item is the chance that it is chosen first from all items."
# What is to be known of log-worths that do not say all of a Plackett-Luce model (`Reading`).
_READ = {
    "slates": "log-worths compare items of one slate",
    "scale": "log-worths are a scale of what is chosen as best and as worst",
    "equal": "log-worths and first choices are those at equal features",
    "none": "items have no worths beside features; feature_coefficients_ says what choices depend on",
}


class History(list[dict[str, Any]]):
    """The records of the iterations of a fit: a list that notebooks show as a curve and a table."""

    def _repr_html_(self) -> str:
        """The iterations of a fit: a curve of the objective (or the log-likelihood), and the last records."""
        taken = [record for record in self if record.get("taken", True)]
        # With a prior, the objective is what a fit never lowers; the log-likelihood may fall by a little.
        name = "objective" if any(record.get("objective") is not None for record in taken) else "log_likelihood"
        values = [float(record[name]) for record in taken if record.get(name) is not None]
        if not values:
            return card("<div>no iterations</div>")
        caption = f"{name.replace('_', '-')} from {values[0]:,.4f} to {values[-1]:,.4f}"
        rows = []
        for record in self[-_MOST_ROWS:]:
            size = record.get("gradient", record.get("largest_change"))
            size_text = "" if size is None or not math.isfinite(size) else f"{size:.1e}"
            step = f"{record.get('step', '')}{'' if record.get('taken', True) else ', not taken'}"
            rows.append([str(record["iteration"]), f"{record['log_likelihood']:.4f}", size_text, label(step)])
        found = table(["iteration", "log-likelihood", "gradient", "step"], rows, numbers=(0, 1, 2))
        curve = marks.curve(values, caption, height=70)
        return card(f"<div><b>{count(len(self))}</b> iterations, {caption}</div>{curve}{found}")


class NotebookView:
    """The part of an estimator that notebooks show: its card once it is fitted, before that its settings."""

    def _card(self) -> str | None:
        """The card; None before the fit, and for an estimator that has none."""
        return None

    def _repr_html_(self) -> str:
        """The card; of an unfitted estimator its settings, as scikit-learn shows them."""
        card = self._card()
        if card is None:
            unfitted: Any = super()
            return str(unfitted._repr_html_())
        return card

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """The same beside the text: scikit-learn's own would come first."""
        del options
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def store_card(store: Any) -> Html:
    """A store of rankings: how much it holds, and the names of its items."""
    names = store.item_names
    shown = ", ".join(label(name) for name in names[:_MOST_NAMES])
    more = f" and {count(len(names) - _MOST_NAMES)} more" if len(names) > _MOST_NAMES else ""
    weight = "" if store.total_weight == store.n_rankings else f", total weight {count(store.total_weight)}"
    listed = store.n_entries / max(1, store.n_rankings)
    rows = [
        ["items", f"{shown}{more}"],
        ["listed per ranking", f"{listed:.1f} on average"],
        ["stored as", f"partitions: {count(store.n_partitions)}, leaves: {count(store.n_leaves)}"],
        ["place", label(store.location.url)],
    ]
    head = f"<div><b>{count(store.n_rankings)}</b> rankings of <b>{count(store.n_items)}</b> items{weight}</div>"
    return card(head + table([], rows))


def model_card(model: Any) -> Html:
    """A fitted mixture: how it ended, and share and favourites of each component."""
    converged: bool | None = getattr(model, "converged_", None)
    ended = "converged" if converged else "<b>not converged</b>"
    how = "" if converged is None else f", {ended} after {count(model.n_iter_)} iterations"
    reading = model._reading()
    remarks = [_FIRST_CHOICE] if reading.first is not None else []
    remarks += [f"{words[0].upper()}{words[1:]}." for words in [_READ.get(reading.kind)] if words]
    return _mixture_card(model, how, None, " ".join(remarks))


def posterior_card(model: Any) -> Html:
    """A sampled mixture: whether its chains agree, and share with interval and favourites of each component."""
    n_chains, n_draws = model.draws_.log_likelihood.shape
    mixed = "the chains agree" if model.converged_ else "<b>the chains do not agree</b>"
    largest = f"largest R-hat {model.diagnostics_.largest_r_hat:.3f}"
    how = f", {count(n_chains)} chains of {count(n_draws)} draws; {mixed} ({largest})"
    remarks = f"Posterior means. A share is in its interval with probability 95\xa0%. {_FIRST_CHOICE}"
    return _mixture_card(model, how, model.intervals(0.95).shares, remarks)


def _mixture_card(model: Any, how: str, intervals: Any, remarks: str) -> Html:
    """A card with a row for each component; `intervals` are ends of those of shares, or None."""
    n_components, n_items = model.log_worths_.shape
    head = f"<div><b>{type(model).__name__}</b>: {_components(n_components)}, {count(n_items)} items{how}</div>"
    rows = []
    for number, share in enumerate(model.shares_.tolist()):
        colour, ends = component_colour(number), []
        mark = marks.bar(share, colour)
        if intervals is not None:
            low, high = (float(end[number]) for end in intervals)
            mark, ends = marks.interval(share, low, high, colour), [f"{percent(low, 1)} to {percent(high, 1)}"]
        rows.append([str(number), percent(share, 1), *ends, mark, _favourites(model, number)])
    of_ends = [] if intervals is None else ["95\xa0% interval"]
    found = table(["component", "share", *of_ends, "", "favourites"], rows, numbers=range(1, 2 + len(of_ends)))
    return card(f"{head}{found}<div class=quiet>{remarks}</div>")


def selection_card(found: Any, column: str, criterion: str, *, lowest: bool) -> Html:
    """A choice of the number of components: the choice in words, and a row with a bar for each number."""
    values = {row["n_components"]: row.get(column) for row in found.table_}
    known = {k: value for k, value in values.items() if value is not None and math.isfinite(value)}
    low, high = min(known.values()), max(known.values())
    worst = high if lowest else low
    digits = 1 if lowest else 4
    rows = []
    for row in found.table_:
        number = row["n_components"]
        chosen = number == found.n_components_
        shown = f"<b>{number}</b>" if chosen else str(number)
        value, mark = "", ""
        if number in known:
            good = abs(known[number] - worst) / ((high - low) or 1.0)
            value, mark = f"{known[number]:,.{digits}f}", marks.bar(good, component_colour(0 if chosen else 6))
        seen = "" if row.get("n_best") is None else f"{count(row['n_best'])} of {count(row['n_starts'])}"
        tellable = row.get("identifiable") or ""
        notes = label(row.get("reason") or _TELLABLE.get(tellable, tellable))
        rows.append([shown, value, mark, seen, notes])
    headings = ["components", label(criterion), "", "starts at the best end", "can such rankings tell?"]
    return card(
        f"<div>{html.escape(found.words_)}</div>{table(headings, rows, numbers=(1,))}"
        f"<div class=quiet>A longer bar is better: {'lower' if lowest else 'higher'} values are. "
        "The bars begin at the worst value and end at the best.</div>"
    )


def _components(number: int) -> str:
    return f"{count(number)} component{'s'[: number != 1]}"


def _favourites(model: Any, number: int) -> str:
    """The items that a component likes best, each with its chance of being chosen first."""
    names, reading = model.item_names_, model._reading()
    best = np.argsort(-reading.by[number], kind="stable")[: _FAVOURITES if reading.kind != "none" else 0]
    if reading.first is None:
        return ", ".join(label(names[item]) for item in best)
    return ", ".join(f"{label(names[item])} {percent(float(reading.first[number, item]))}" for item in best)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[int] = ()) -> str:
    """A table of cells that are HTML already; the columns in `numbers` are set to the right."""
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    lines = (
        "".join(f"<td{' class=number' * (place in numbers)}>{cell}</td>" for place, cell in enumerate(row))
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def card(inner: str) -> Html:
    """HTML with the styles of all that notebooks show."""
    return Html(f'{_STYLE}<div class="plmix">{inner}</div>')


# Summary: what was fitted, how it ended and how sure it is, as text and as a card for notebooks.

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


# The title of a component, and its columns by heading: one text per item shown, the names of items first.
_Group = tuple[str, dict[str, list[str]]]


def summary_of(model: Any, n_parameters: int, k: int, sure: Sureness | None) -> Summary:
    """The lines and tables of a fitted mixture, with the k best items of each component."""
    errors = None if sure is None else sure.errors
    lines = [*_what_was_fitted(model), *_how_it_ended(model, n_parameters), *tie_lines(model, errors)]
    groups = [_group(model, number, k, sure) for number in range(len(model.shares_))]
    notes = _notes(model, k, sure)
    text = "\n".join(
        [*lines, *(line for title, columns in groups for line in ["", title, *_text_table(columns)]), "", *notes]
    )
    page = "".join(f"<div>{label(line)}</div>" for line in lines)
    page += "".join(f"<div><b>{label(title)}</b></div>{_html(columns)}" for title, columns in groups)
    return Summary(text, card(page + "".join(f"<div class=quiet>{label(line)}</div>" for line in notes)))


def _what_was_fitted(model: Any) -> list[str]:
    n_components, n_items = model.log_worths_.shape
    words = f"{type(model).__name__}: {_components(n_components)}, {count(n_items)} items"
    data = data_of(model)
    if not data:
        return [words]
    unit = "persons" if data.get("by_person") else "total weight"
    weight = "" if data["weight"] == data["n_rankings"] else f", {unit} {count(data['weight'])}"
    return [words, f"fitted to {count(data['n_rankings'])} rankings{weight}"]


def data_of(model: Any) -> dict[str, Any]:
    """What a model knows of the rankings of its fit; empty if nothing is known."""
    return (getattr(model, "about_", None) or {}).get("data") or {}


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
    n_iter, weight = getattr(model, "n_iter_", 0), data_of(model).get("weight")
    criteria = ""
    if weight:
        bic, aic = n_parameters * math.log(weight) - 2 * value, 2 * (n_parameters - value)
        criteria = f", BIC {bic:,.1f}, AIC {aic:,.1f}"
    return [f"log-likelihood {value:,.4f}{criteria}, {ended} after {count(n_iter)} iterations"]


def tie_lines(model: Any, errors: Any) -> list[str]:
    """The weights of ties with their errors, where ties are outcomes; one line if all components share them."""
    found, known = getattr(model, "tie_parameters_", None), getattr(errors, "log_ties", None)
    if found is None:
        return []
    lines = found[:1] if (found == found[0]).all() else found
    spread = np.full_like(lines, np.nan) if known is None else lines * known[: len(lines)]
    of_two = lines[:, 0] / (2 + lines[:, 0])
    return [
        f"ties: weight {', '.join(f'{value:.3f}' for value in own)}{f' of component {k}' if len(lines) > 1 else ''}"
        + ("" if known is None else f" (error {', '.join(f'{value:.3f}' for value in spread[k])})")
        + f"; two equal items tie with probability {of_two[k]:.3f}"
        for k, own in enumerate(lines)
    ]


def _group(model: Any, number: int, k: int, sure: Sureness | None) -> _Group:
    logs, reading = model.log_worths_[number], model._reading()
    best = np.argsort(-reading.by[number], kind="stable")[:k]
    columns = {"item": [marks.plain_label(model.item_names_[item], _LONGEST_NAME) for item in best]}
    if reading.slates is not None:
        columns["slate"] = [marks.plain_label(reading.slates[item], _LONGEST_NAME) for item in best]
    columns["log-worth"] = [f"{logs[item]:.3f}" for item in best]
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
    if reading.first is not None:
        columns["first"] = [f"{reading.first[number, item]:.2g}" for item in best]
    if reading.slates is not None:
        cohesion = zip(model._linear[0].choices.names, model.cohesion_[number].tolist(), strict=True)
        parts = [f"{marks.plain_label(name, _LONGEST_NAME)} {percent(one)}" for name, one in cohesion]
        share += f"; cohesion: {', '.join(parts)}"
    is_noise = getattr(model, "noise", False) and number == len(model.shares_) - 1
    title = f"component {number}{', noise' if is_noise else ''}, share {share}"
    return title, {} if reading.kind == "none" else columns


def _known(value: float, form: str) -> str:
    return "not known" if math.isnan(value) else form.format(value)


def _notes(model: Any, k: int, sure: Sureness | None) -> list[str]:
    n_more, reading = len(model.item_names_) - k, model._reading()
    found = [] if reading.first is None else [_FIRST]
    found += [_READ[reading.kind]] if reading.kind in _READ else []
    if n_more > 0 and reading.kind != "none":
        found.append(f"{count(n_more)} more item{'s'[: n_more != 1]} in each component: worths_frame() has all")
    if sure is not None:
        found.append(f"errors and intervals hold given {len(model.shares_)} components")
    if getattr(model, "alpha", 0) and getattr(model, "objective_", None) is not None:
        found.append(
            f"values are shrunk by a prior of alpha={model.alpha:g}; log-likelihood and criteria are taken there"
        )
    return found


def _text_table(columns: dict[str, list[str]]) -> list[str]:
    lines = marks.aligned([[*columns], *zip(*columns.values(), strict=True)], left=[0])
    return [f"  {line}" for line in lines]


def _html(columns: dict[str, list[str]]) -> str:
    rows = ([label(cell) for cell in line] for line in zip(*columns.values(), strict=True))
    return table([label(heading) for heading in columns], rows, numbers=range(1, len(columns)))
