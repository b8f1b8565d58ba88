"""What a notebook shows of a store, a model and a history: names, numbers and small bars, on light and dark pages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from plmix_dist.display.labels import Html, count, label, percent
from plmix_dist.display.marks import bar, curve
from plmix_dist.display.palette import component_colour

# Colours of the text and its background are those of the notebook; lines and tracks are a grey that is seen on both.
_STYLE = (
    "<style>.plmix{font-size:13px;line-height:1.45;max-width:60em}.plmix table{border-collapse:collapse}"
    ".plmix th,.plmix td{text-align:left;padding:2px 12px 2px 0;vertical-align:top;background:none;white-space:normal}"
    ".plmix td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".plmix bdi{overflow-wrap:anywhere}.plmix .track{fill:#8884;stroke:none}"
    ".plmix polyline{fill:none;stroke:#3b8fc4;stroke-width:2;vector-effect:non-scaling-stroke}"
    ".plmix .quiet{opacity:.75}.plmix svg.bar{width:90px}</style>"
)
_MOST_NAMES = 12
_MOST_ROWS = 12
_FAVOURITES = 5


class History(list[dict[str, Any]]):
    """The records of the iterations of a fit: a list that notebooks show as a curve and a table.

    Examples
    --------
    >>> record = {"iteration": 1, "log_likelihood": -12.5, "gradient": 0.25, "step": "em", "taken": True}
    >>> "<svg" in History([record])._repr_html_()
    True
    """

    def _repr_html_(self) -> str:
        return history_card(self)


def store_card(store: Any) -> Html:
    """A store of rankings: how much it holds, and the names of its items.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=50, n_items=4)
    >>> "<b>50</b> rankings of <b>4</b> items" in store_card(store)
    True
    """
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
    head = (
        f"<div><b>{count(store.n_rankings)}</b> rankings of <b>{count(store.n_items)}</b> items{weight}</div>"
    )
    return _card(head + _table(rows))


def model_card(model: Any) -> Html:
    """A fitted mixture: how it ended, and share and favourites of each component.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> model = PlackettLuceMixture(1, random_state=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
    >>> "tea" in model_card(model)
    True
    """
    shares, logs, names = model.shares_, model.log_worths_, model.item_names_
    converged: bool | None = getattr(model, "converged_", None)
    ended = "" if converged is None else ("converged" if converged else "<b>not converged</b>")
    how = f", {ended} after {count(model.n_iter_)} iterations" if ended else ""
    head = (
        f"<div><b>{type(model).__name__}</b>: {count(len(shares))} component{'s'[: len(shares) != 1]}, "
        f"{count(len(names))} items{how}</div>"
    )
    lines = []
    for number, (share, line) in enumerate(zip(shares, logs, strict=True)):
        worths = np.exp(line - np.logaddexp.reduce(line))
        best = np.argsort(-line, kind="stable")[:_FAVOURITES]
        liked = ", ".join(f"{label(names[item])} {percent(float(worths[item]))}" for item in best)
        lines.append(
            f"<tr><td>{number}</td><td class=number>{percent(float(share), 1)}</td>"
            f"<td>{bar(float(share), component_colour(number))}</td><td>{liked}</td></tr>"
        )
    table = (
        "<table><thead><tr><th>component</th><th>share</th><th></th><th>favourites</th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
        "<div class=quiet>The percentage of an item is the chance that it is chosen first from all items.</div>"
    )
    return _card(head + table)


def history_card(history: list[dict[str, Any]]) -> Html:
    """The iterations of a fit: a curve of the objective (or the log-likelihood), and the last records.

    Examples
    --------
    >>> "no iterations" in history_card([])
    True
    """
    taken = [record for record in history if record.get("taken", True)]
    # With a prior, the objective is what a fit never lowers; the log-likelihood may fall by a little.
    name = "objective" if any(record.get("objective") is not None for record in taken) else "log_likelihood"
    values = [float(record[name]) for record in taken if record.get(name) is not None]
    if not values:
        return _card("<div>no iterations</div>")
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
    return _card(
        f"<div><b>{count(len(history))}</b> iterations, {says}</div>{curve(values, says, height=70)}"
        f"<table>{head}<tbody>{''.join(lines)}</tbody></table>"
    )


def _table(rows: list[tuple[str, str]]) -> str:
    lines = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows)
    return f"<table><tbody>{lines}</tbody></table>"


def _card(inner: str) -> Html:
    return Html(f'{_STYLE}<div class="plmix">{inner}</div>')
