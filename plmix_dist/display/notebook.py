"""What a notebook shows of stores, models, histories and selections: names, numbers, small bars; light and dark."""

from __future__ import annotations

import html
import math
from typing import Any

import numpy as np

from plmix_dist.display.marks import Html, bar, component_colour, count, curve, interval, label, percent

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


class History(list[dict[str, Any]]):
    """The records of the iterations of a fit: a list that notebooks show as a curve and a table."""

    def _repr_html_(self) -> str:
        return _history_card(self)


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
        ("items", f"{shown}{more}"),
        ("listed per ranking", f"{listed:.1f} on average"),
        ("stored as", f"partitions: {count(store.n_partitions)}, leaves: {count(store.n_leaves)}"),
        ("place", label(store.location.url)),
    ]
    head = f"<div><b>{count(store.n_rankings)}</b> rankings of <b>{count(store.n_items)}</b> items{weight}</div>"
    return card(head + _table(rows))


def model_card(model: Any) -> Html:
    """A fitted mixture: how it ended, and share and favourites of each component."""
    shares, names = model.shares_, model.item_names_
    converged: bool | None = getattr(model, "converged_", None)
    ended = "" if converged is None else ("converged" if converged else "<b>not converged</b>")
    how = f", {ended} after {count(model.n_iter_)} iterations" if ended else ""
    head = f"<div><b>{type(model).__name__}</b>: {_components(len(shares))}, {count(len(names))} items{how}</div>"
    lines = []
    for number, share in enumerate(shares):
        mark = bar(float(share), component_colour(number))
        lines.append(
            f"<tr><td>{number}</td><td class=number>{percent(float(share), 1)}</td><td>{mark}</td>"
            f"<td>{_favourites(model, number)}</td></tr>"
        )
    table = (
        "<table><thead><tr><th>component</th><th>share</th><th></th><th>favourites</th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
        f"<div class=quiet>{_FIRST_CHOICE}</div>"
    )
    return card(head + table)


def posterior_card(model: Any) -> Html:
    """A sampled mixture: whether its chains agree, and share with interval and favourites of each component."""
    n_chains, n_draws = model.draws_.log_likelihood.shape
    mixed = "the chains agree" if model.converged_ else "<b>the chains do not agree</b>"
    head = (
        f"<div><b>{type(model).__name__}</b>: {_components(len(model.shares_))}, "
        f"{count(len(model.item_names_))} items, {count(n_chains)} chains of {count(n_draws)} draws; {mixed} "
        f"(largest R-hat {model.diagnostics_.largest_r_hat:.3f})</div>"
    )
    lows, highs = model.intervals(0.95).shares
    lines = []
    for number, (share, low, high) in enumerate(zip(model.shares_, lows, highs, strict=True)):
        mark = interval(float(share), float(low), float(high), component_colour(number))
        lines.append(
            f"<tr><td>{number}</td><td class=number>{percent(float(share), 1)}</td><td class=number>"
            f"{percent(float(low), 1)} to {percent(float(high), 1)}</td><td>{mark}</td>"
            f"<td>{_favourites(model, number)}</td></tr>"
        )
    table = (
        "<table><thead><tr><th>component</th><th>share</th><th>95\xa0% interval</th><th></th><th>favourites</th></tr>"
        f"</thead><tbody>{''.join(lines)}</tbody></table>"
        f"<div class=quiet>Posterior means. A share is in its interval with probability 95\xa0%. {_FIRST_CHOICE}</div>"
    )
    return card(head + table)


def selection_card(found: Any, column: str, says: str, *, lowest: bool) -> Html:
    """A choice of the number of components: the choice in words, and a row with a bar for each number."""
    values = {row["n_components"]: row.get(column) for row in found.table_}
    known = {k: value for k, value in values.items() if value is not None and math.isfinite(value)}
    low, high = min(known.values()), max(known.values())
    worst = high if lowest else low
    digits = 1 if lowest else 4
    lines = []
    for row in found.table_:
        number = row["n_components"]
        chosen = number == found.n_components_
        shown = f"<b>{number}</b>" if chosen else str(number)
        value, mark = "", ""
        if number in known:
            good = abs(known[number] - worst) / ((high - low) or 1.0)
            value, mark = f"{known[number]:,.{digits}f}", bar(good, component_colour(0 if chosen else 6))
        seen = "" if row.get("n_best") is None else f"{count(row['n_best'])} of {count(row['n_starts'])}"
        tellable = row.get("identifiable") or ""
        notes = label(row.get("reason") or _TELLABLE.get(tellable, tellable))
        lines.append(
            f"<tr><td>{shown}</td><td class=number>{value}</td><td>{mark}</td><td>{seen}</td><td>{notes}</td></tr>"
        )
    table = (
        f"<table><thead><tr><th>components</th><th>{label(says)}</th><th></th><th>starts at the best end</th><th>"
        f"can such rankings tell?</th></tr></thead><tbody>{''.join(lines)}</tbody></table>"
        f"<div class=quiet>A longer bar is better: {'lower' if lowest else 'higher'} values are. "
        "The bars begin at the worst value and end at the best.</div>"
    )
    return card(f"<div>{html.escape(found.words_)}</div>{table}")


def _history_card(history: list[dict[str, Any]]) -> Html:
    """The iterations of a fit: a curve of the objective (or the log-likelihood), and the last records."""
    taken = [record for record in history if record.get("taken", True)]
    # With a prior, the objective is what a fit never lowers; the log-likelihood may fall by a little.
    name = "objective" if any(record.get("objective") is not None for record in taken) else "log_likelihood"
    values = [float(record[name]) for record in taken if record.get(name) is not None]
    if not values:
        return card("<div>no iterations</div>")
    says = f"{name.replace('_', '-')} from {values[0]:,.4f} to {values[-1]:,.4f}"
    lines = []
    for record in history[-_MOST_ROWS:]:
        size = record.get("gradient", record.get("largest_change"))
        size_text = "" if size is None or not math.isfinite(size) else f"{size:.1e}"
        step = f"{record.get('step', '')}{'' if record.get('taken', True) else ', not taken'}"
        lines.append(
            f"<tr><td class=number>{record['iteration']}</td><td class=number>{record['log_likelihood']:.4f}</td>"
            f"<td class=number>{size_text}</td><td>{label(step)}</td></tr>"
        )
    head = "<thead><tr><th>iteration</th><th>log-likelihood</th><th>gradient</th><th>step</th></tr></thead>"
    return card(
        f"<div><b>{count(len(history))}</b> iterations, {says}</div>{curve(values, says, height=70)}"
        f"<table>{head}<tbody>{''.join(lines)}</tbody></table>"
    )


def _components(number: int) -> str:
    return f"{count(number)} component{'s'[: number != 1]}"


def _favourites(model: Any, number: int) -> str:
    """The items that a component likes best, each with its chance of being chosen first."""
    line, names = model.log_worths_[number], model.item_names_
    worths = np.exp(line - np.logaddexp.reduce(line))
    best = np.argsort(-line, kind="stable")[:_FAVOURITES]
    return ", ".join(f"{label(names[item])} {percent(float(worths[item]))}" for item in best)


def _table(rows: list[tuple[str, str]]) -> str:
    lines = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows)
    return f"<table><tbody>{lines}</tbody></table>"


def card(inner: str) -> Html:
    """HTML with the styles of all that notebooks show."""
    return Html(f'{_STYLE}<div class="plmix">{inner}</div>')
