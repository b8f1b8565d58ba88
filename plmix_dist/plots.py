"""Plots of a fitted mixture: functions that draw on matplotlib axes and return them. Colours are colour-blind safe.

matplotlib comes with the extra `plots`. Every function takes `ax`, the axes to draw on; without it, it makes new ones.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plmix_dist.display.marks import COMPONENTS, component_colour, count, heat_colour, plain_label, text_on
from plmix_dist.errors import SettingsError
from plmix_dist.fitting.criteria import CRITERIA
from plmix_dist.kernels import pairwise_wins
from plmix_dist.metrics import match_components
from plmix_dist.prediction.choices import item_numbers
from plmix_dist.report.components import MEMBERSHIPS, items_that_differ, membership_sums, ranks_of, scale_of
from plmix_dist.report.history import heading_of, selection_table, smaller_is_better
from plmix_dist.settings import whole_number
from plmix_dist.uncertainty.results import StandardErrors

__all__ = [
    "plot_check",
    "plot_comparison_graph",
    "plot_components",
    "plot_convergence",
    "plot_leaderboard",
    "plot_membership_map",
    "plot_memberships",
    "plot_ranks",
    "plot_selection",
    "plot_two_models",
    "plot_worths",
]

_LONGEST_NAME = 40
# Maps draw at most this many points, graphs this many items.
_MOST_POINTS = 5_000
_MOST_ITEMS = 60
_TERNARY = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])


def plot_worths(
    model: Any,
    component: int = 0,
    *,
    standard_errors: StandardErrors | None = None,
    items: Any = None,
    most_items: int = 20,
    level: float = 0.95,
    ax: Any = None,
) -> Any:
    """Log-worths of one component, best item on top, with intervals.

    Parameters
    ----------
    model
        A fitted mixture.
    component
        A number from 0.
    standard_errors
        What `model.standard_errors(X)` gave; without them there are no intervals.
    items
        Item names or numbers; by default the best ones.
    most_items
        How many of the best items are drawn.
    level
        The level of the intervals.
    ax
        Axes to draw on.

    Examples
    --------
    >>> model = plm.PlackettLuceMixture(1).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
    >>> [text.get_text() for text in plot_worths(model).get_yticklabels()]
    ['tea', 'mate']
    """
    mixture, number = model._mixture(), _component(model, component)
    logs = mixture.log_worths[number]
    chosen = np.argsort(-logs, kind="stable")[: int(whole_number("most_items", most_items, at_least=1))]
    if items is not None:
        chosen = item_numbers("items", items, mixture.item_names)
        chosen = chosen[np.argsort(-logs[chosen], kind="stable")]
    axes = _axes(ax, height=0.6 + 0.28 * len(chosen))
    found = None if standard_errors is None else standard_errors.intervals(level).log_worths
    ends = None if found is None else [end[number][chosen] for end in found]
    axes.axvline(0.0, color="0.7", linewidth=1, zorder=0)
    _dots(axes, logs[chosen], ends, _names(mixture.item_names, chosen), component_colour(number))
    few = f"; {len(chosen)} of {mixture.n_items} items, {'best' if items is None else 'chosen'}"
    title = f"component {number}, share {100 * mixture.shares[number]:.1f} %"
    axes.set(
        xlabel=f"log-worth; 0 is the average item{'' if model._reading().slates is None else ' of its slate'}",
        title=title if len(chosen) == mixture.n_items else f"{title}{few}",
    )
    return axes


def plot_leaderboard(board: Any, component: int | str = 0, *, most_items: int = 30, ax: Any = None) -> Any:
    """Ratings of one component of a leaderboard, best item on top, with intervals where it has them.

    Parameters
    ----------
    board
        What `model.leaderboard(X)` gave.
    component
        A number from 0, or "all".
    most_items
        How many of the best items are drawn.
    ax
        Axes to draw on.

    Examples
    --------
    >>> battles = [["tea", "mate"]] * 3 + [["mate", "tea"]]
    >>> board = plm.PlackettLuceMixture(1).fit(battles).leaderboard(battles)
    >>> [text.get_text() for text in plot_leaderboard(board).get_yticklabels()]
    ['tea', 'mate']
    """
    keys = [str(key) for key in np.asarray(board["component"])]
    own = np.array([row for row, key in enumerate(keys) if key == str(component)], np.int64)
    if not len(own):
        raise SettingsError(f"this leaderboard has no component {component!r}, but {', '.join(dict.fromkeys(keys))}")
    shown = own[: int(whole_number("most_items", most_items, at_least=1))]
    column = {name: np.asarray(board[name])[shown] for name in dict.fromkeys(board)}
    axes = _axes(ax, height=0.6 + 0.28 * len(shown))
    ends = [column["lower"], column["upper"]] if "lower" in column else None
    names = _names(tuple(map(str, column["item"])), np.arange(len(shown)))
    _dots(axes, column["rating"], ends, names, "0.3" if component == "all" else component_colour(int(component)))
    few = "" if len(shown) == len(own) else f"; {len(shown)} of {len(own)} items"
    for end in np.flatnonzero(np.diff(column.get("tier", np.zeros(0)))):  # a line between tiers
        axes.axhline(end + 0.5, color="0.7", linestyle=":", linewidth=1)
    title = f"{'all components' if component == 'all' else f'component {component}'}{few}"
    axes.set(xlabel="rating, with 95 % intervals" if "lower" in column else "rating", title=title)
    return axes


def plot_check(check: Any, *, most_names: int = 5, ax: Any = None) -> Any:
    """Observed against expected shares of first places and pairs; those that differ most have names.

    Parameters
    ----------
    check
        What `model.check_fit(X)` gave.
    most_names
        How many of the largest residuals are named.
    ax
        Axes to draw on.

    Examples
    --------
    >>> rankings = [["tea", "mate", "milk"]] * 40 + [["milk", "mate", "tea"]] * 40
    >>> plot_check(plm.PlackettLuceMixture(1).fit(rankings).check_fit(rankings)).get_title()
    '1 component does not explain these rankings'
    """
    axes = _axes(ax, height=6.0)
    axes.axline((0, 0), slope=1, color="0.7", linewidth=1, zorder=0)
    for number, words in enumerate(("first places", "pairs")):
        some = [one for one in check.residuals if len(one.items) == number + 1 and one.out_of > 0]
        places = np.array([(100 * one.expected / one.out_of, 100 * one.observed / one.out_of) for one in some])
        if len(some):
            axes.plot(*places.T, "os"[number], color=component_colour(number), alpha=0.6, markersize=5, label=words)
    for one in check.worst(int(whole_number("most_names", most_names))):
        name = " before ".join(_names(one.items, np.arange(len(one.items))))
        axes.annotate(name, (100 * one.expected / one.out_of, 100 * one.observed / one.out_of))
    expected = "expected, in % of rankings that offer the item or decide the pair"
    axes.set(xlabel=expected, ylabel="observed, in %", title=check.verdict)
    axes.legend()
    return axes


def plot_ranks(
    model: Any,
    X: Any,  # noqa: N803
    *,
    most_items: int = 20,
    ax: Any = None,
    **how: Any,
) -> Any:
    """A heat map of items by place: observed shares of rankings minus expected ones, with both as numbers.

    Rankings count that offer all items and have no ties; up to ten places.

    Parameters
    ----------
    model
        A fitted mixture.
    X
        The rankings of the fit; `how` is as in `model.score`: weights, covariates and so on.
    most_items
        How many of the best items are drawn.
    ax
        Axes to draw on.

    Examples
    --------
    >>> rankings = [["tea", "mate", "milk"]] * 40 + [["milk", "mate", "tea"]] * 20
    >>> axes = plot_ranks(plm.PlackettLuceMixture(1, alpha=0).fit(rankings), rankings)
    >>> [text.get_text() for text in axes.get_yticklabels()], axes.texts[0].get_text()
    (['tea', 'mate', 'milk'], '67 (48)')
    """
    found = ranks_of(model, X, **how)
    items = found.shown(int(whole_number("most_items", most_items, at_least=1)))
    observed, expected = 100 * found.observed[:, items].T, 100 * found.expected[:, items].T
    axes = _axes(ax, height=0.8 + 0.28 * len(items))
    colours = importlib.import_module("matplotlib.colors").ListedColormap([heat_colour(k / 255) for k in range(256)])
    most = max(10.0, float(np.abs(observed - expected).max()))
    image = axes.imshow(observed - expected, cmap=colours, vmin=-most, vmax=most, aspect="auto")
    for (line, place), share in np.ndenumerate(observed):
        due = expected[line, place]
        colour = text_on(heat_colour(float(share - due + most) / (2 * most)))
        axes.text(place, line, f"{share:.0f} ({due:.0f})", ha="center", va="center", fontsize="x-small", color=colour)
    axes.set_xticks(np.arange(observed.shape[1]), [str(place + 1) for place in range(observed.shape[1])])
    axes.set_yticks(np.arange(len(items)), _names(model.item_names_, np.array(items)))
    axes.figure.colorbar(image, ax=axes, label="points above expectation")
    axes.set(xlabel="place", title=f"{count(round(found.weight[0]))} rankings: % observed (expected)")
    return axes


def plot_two_models(one: Any, other: Any, *, most_names: int = 5, ax: Any = None) -> Any:
    """Log-worths of two mixtures of the same items, components matched; those that differ most have names.

    Parameters
    ----------
    one, other
        Fitted mixtures with as many components, such as those of two years or of two priors.
    most_names
        How many of the largest differences are named.
    ax
        Axes to draw on.

    Examples
    --------
    >>> before = plm.PlackettLuceMixture(1).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
    >>> after = plm.PlackettLuceMixture(1).fit([["tea", "mate"], ["mate", "tea"]])
    >>> plot_two_models(before, after, most_names=1).texts[0].get_text()
    'mate'
    """
    first, second = one._comparable(), other._comparable()
    if sorted(first.item_names) != sorted(second.item_names) or first.n_components != second.n_components:
        raise SettingsError("two models are compared if they have the same items and as many components")
    places = [second.item_names.index(name) for name in first.item_names]
    theirs = second.log_worths[:, places]
    theirs = theirs[match_components(theirs, first.log_worths)]
    axes = _axes(ax, height=6.0)
    axes.axline((0, 0), slope=1, color="0.7", linewidth=1, zorder=0)
    for number, pair in enumerate(zip(first.log_worths, theirs, strict=True)):
        axes.plot(*pair, "o", color=component_colour(number), alpha=0.7, markersize=5, label=f"component {number}")
    gaps = np.abs(theirs - first.log_worths)
    for place in np.argsort(-gaps, axis=None, kind="stable")[: int(whole_number("most_names", most_names))]:
        number, item = np.unravel_index(place, gaps.shape)
        axes.annotate(
            *_names(first.item_names, np.array([item])), (first.log_worths[number, item], theirs[number, item])
        )
    title = f"largest difference {gaps.max():.2f}, root of the mean square {np.sqrt((gaps**2).mean()):.2f}"
    axes.set(xlabel="log-worth in the first model", ylabel="log-worth in the second", title=title)
    axes.legend()
    return axes


def plot_components(model: Any, *, most_items: int = 24, ax: Any = None) -> Any:
    """A heat map: the chance that an item ranks above an average item, by component.

    Parameters
    ----------
    model
        A fitted mixture.
    most_items
        With more items, those on which components differ most.
    ax
        Axes to draw on.

    Examples
    --------
    >>> model = plm.PlackettLuceMixture(1).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
    >>> plot_components(model).images[0].get_array().shape
    (2, 1)
    """
    mixture = model._comparable()
    scale = scale_of(mixture, None)
    items = items_that_differ(scale, int(whole_number("most_items", most_items, at_least=1)))
    axes = _axes(ax, height=0.8 + 0.28 * len(items))
    colours = importlib.import_module("matplotlib.colors").ListedColormap([heat_colour(k / 255) for k in range(256)])
    image = axes.imshow(100 * scale.chance[:, items].T, cmap=colours, vmin=0.0, vmax=100.0, aspect="auto")
    axes.set_xticks(np.arange(mixture.n_components), [str(k) for k in range(mixture.n_components)])
    axes.set_yticks(np.arange(len(items)), _names(mixture.item_names, np.array(items)))
    axes.figure.colorbar(image, ax=axes, label="chance to rank above an average item, in %")
    few = "" if len(items) == mixture.n_items else f"; the {len(items)} of {mixture.n_items} that differ most"
    axes.set(xlabel="component", title=f"items by component{few}")
    return axes


def plot_convergence(model: Any, *, ax: Any = None) -> Any:
    """The distance from the optimum by iteration, on a logarithmic scale, and the tolerance.

    Parameters
    ----------
    model
        A fitted mixture, or its `history_`.
    ax
        Axes to draw on.

    Examples
    --------
    >>> model = plm.PlackettLuceMixture(1).fit([[0, 1, 2]] * 3 + [[1, 0, 2]])
    >>> plot_convergence(model).get_yscale()
    'log'
    """
    history = getattr(model, "history_", model)
    axes = _axes(ax)
    taken = [record for record in history if record.get("taken", True)]
    sizes = [record.get("gradient", record.get("largest_change")) for record in taken]
    points = [(record["iteration"], size) for record, size in zip(taken, sizes, strict=True) if size and size > 0]
    axes.plot(*np.array(points).reshape(-1, 2).T, "o-", color=COMPONENTS[0], markersize=4)
    title = f"{len(taken)} iterations"
    if getattr(model, "tol", 0) > 0:
        axes.axhline(model.tol, color="0.5", linestyle="--", linewidth=1)
        title = f"{title}; the dashed line is tol"
    axes.set(yscale="log", xlabel="iteration", ylabel="gradient, divided by total weight", title=title)
    return axes


def plot_selection(table: Any, criterion: str | None = None, *, ax: Any = None) -> Any:
    """A criterion by number of components, with its errors where it has some; the chosen number is marked.

    Parameters
    ----------
    table
        A MixtureSelection; or records, or a frame, with a column `n_components`, of which the best number is marked.
    criterion
        The column to draw; by default the one that decided, else "bic" if there is one, else the first.
    ax
        Axes to draw on.

    Examples
    --------
    >>> axes = plot_selection([{"n_components": 1, "bic": 20.0}, {"n_components": 2, "bic": 10.0}])
    >>> axes.get_ylabel(), axes.get_title()
    ('BIC, smaller is better', '2 components have the best BIC')
    """
    found = selection_table(table)
    decided = CRITERIA[table.criterion].column if hasattr(table, "table_") and hasattr(table, "criterion") else "bic"
    name = criterion or (decided if decided in found.columns else next(iter(found.columns), ""))
    if name not in found.columns:
        raise SettingsError(f"the selection has no column {name!r}; it has {', '.join(found.columns) or 'none'}")
    axes = _axes(ax)
    values, words = found.columns[name], heading_of(name)
    by_choice = name == decided and hasattr(table, "n_components_")
    chosen = int(table.n_components_) if by_choice else found.best(name)
    errors = found.columns.get(f"{name}_error")
    axes.errorbar(found.n_components, values, yerr=errors, fmt="o-", color=COMPONENTS[0], capsize=3)
    axes.plot([chosen], [values[found.n_components.index(chosen)]], "o", color=COMPONENTS[5], markersize=10)
    many = f"{chosen} component{'s'[: chosen != 1]}"
    best = f"{many} {'has' if chosen == 1 else 'have'} the best {words}"
    axes.set(
        xticks=found.n_components,
        xlabel="number of components",
        ylabel=f"{words}, {'smaller' if smaller_is_better(name) else 'larger'} is better",
        title=f"{words}: {many} chosen" if by_choice else best,
    )
    return axes


def plot_memberships(memberships: Any, X: Any = None, *, sample_weight: Any = None, ax: Any = None) -> Any:  # noqa: N803
    """How certain memberships are: a histogram of the probability of the most probable component, by component.

    Parameters
    ----------
    memberships : (n_rankings, n_components)
        A fitted model, for the rankings X: they count with their weights, and a person of several rankings counts once,
        as in the report. Or probabilities, such as `model.predict_proba(X)` gives; a Dask array is computed.
    X
        The rankings, as in `fit`; with a model only.
    sample_weight : (n_rankings,)
        Weights of the rankings. Probabilities have none of their own.
    ax
        Axes to draw on.

    Examples
    --------
    >>> axes = plot_memberships([[0.9, 0.1], [0.2, 0.8]], sample_weight=[3, 1])
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['component 0: 3', 'component 1: 1']
    """
    unit = "rankings, by weight"
    if X is not None:
        rankings = memberships._rankings(X, sample_weight=sample_weight)
        sums = memberships._total(MEMBERSHIPS, rankings, memberships._ties)
        unit = "persons" if next(iter(rankings.iter_leaves(0, 1))).groups is not None else unit
    else:
        table = _probabilities(memberships)
        weights = np.ones(len(table)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        if weights.shape != (len(table),):
            raise SettingsError(f"expected {len(table)} weights, one per ranking, but got shape {weights.shape}")
        sums = membership_sums(table, weights)
    axes = _axes(ax)
    width = 1 / sums.histogram.shape[1]
    below = np.zeros(sums.histogram.shape[1])
    for number, heights in enumerate(sums.histogram):
        words = f"component {number}: {count(sums.weight[number])}"
        colour = component_colour(number)
        axes.bar(np.arange(len(heights)) * width, heights, width, below, align="edge", color=colour, label=words)
        below = below + heights
    certain = f"{100 * sums.share_certain:.0f} % of {count(sums.weight.sum())} memberships are certain (90 % or more)"
    axes.set(xlim=(0, 1), xlabel="probability of the most probable component", ylabel=unit, title=certain)
    axes.legend()
    return axes


def plot_membership_map(probabilities: Any, *, ax: Any = None, random_state: int = 0) -> Any:
    """Rankings as points: of three components in a triangle, of more in the plane of most variance (PCA).

    Parameters
    ----------
    probabilities : (n_rankings, n_components)
        What `model.predict_proba(X)` gives.
    ax
        Axes to draw on.
    random_state
        Of more than 5,000 rankings, 5,000 are drawn at random, with this seed.

    Examples
    --------
    >>> axes = plot_membership_map([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    >>> axes.collections[0].get_offsets().shape
    (2, 2)
    """
    table = _probabilities(probabilities)
    if table.shape[1] < 2:
        raise SettingsError("a map of memberships needs two components or more, but there is 1")
    n_rankings = len(table)
    if n_rankings > _MOST_POINTS:
        rng = np.random.default_rng(random_state)
        table = table[rng.choice(len(table), _MOST_POINTS, replace=False)]
    axes = _axes(ax)
    corners = np.eye(table.shape[1])
    if table.shape[1] == 3:
        places = _TERNARY
        axes.plot(*np.vstack([_TERNARY, _TERNARY[:1]]).T, color="0.7", linewidth=1)
    else:
        places = _plane(table)
    points, ends = table @ places, corners @ places
    colours = [component_colour(number) for number in table.argmax(axis=1)]
    axes.scatter(*points.T, c=colours, s=8, alpha=0.5, linewidths=0)
    for number, end in enumerate(ends):
        axes.annotate(str(number), end, weight="bold", ha="center", va="center", bbox={"fc": "white", "ec": "0.6"})
    axes.set_axis_off()
    few = f"; {_MOST_POINTS:,} of {n_rankings:,} rankings" if n_rankings > _MOST_POINTS else ""
    axes.set(aspect="equal", title=f"memberships; the numbers are the components{few}")
    return axes


def _plane(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n_components, 2): the two directions of most variance."""
    centred = table - table.mean(axis=0)
    _, _, directions = np.linalg.svd(centred.T @ centred)
    return directions[:2].T


def plot_comparison_graph(block: Any, *, item_names: Any = None, ax: Any = None) -> Any:
    """Which items rankings compare, and how often: items on a circle, joined where one was ranked above the other.

    Parameters
    ----------
    block
        A RankingBlock, or a store, which is read whole.
    item_names
        Names of the items; those of a store by default.
    ax
        Axes to draw on.

    Examples
    --------
    >>> from plmix_dist import RankingBlock
    >>> axes = plot_comparison_graph(RankingBlock.from_array([[0, 1], [1, 0]]), item_names=["tea", "mate"])
    >>> [text.get_text() for text in axes.texts]
    ['tea', 'mate']
    """
    names = item_names if item_names is not None else getattr(block, "item_names", None)
    rows = block.block() if callable(getattr(block, "block", None)) else block
    if rows.n_items > _MOST_ITEMS:
        raise SettingsError(
            f"a graph of {rows.n_items} items cannot be read; draw at most {_MOST_ITEMS}, or use `plmix info`"
        )
    (pairs,) = pairwise_wins(rows, np.ones((rows.n_rankings, 1)))
    together = pairs + pairs.T
    angles = np.pi / 2 - 2 * np.pi * np.arange(rows.n_items) / rows.n_items
    places = np.column_stack([np.cos(angles), np.sin(angles)])
    axes = _axes(ax)
    most = together.max() or 1.0
    for left, right in np.argwhere(np.triu(together) > 0):
        strength = float(together[left, right] / most)
        line = places[[left, right]].T
        axes.plot(*line, color=COMPONENTS[0], alpha=0.15 + 0.6 * strength, linewidth=0.5 + 2.5 * strength, zorder=1)
    axes.scatter(*places.T, s=60, color=COMPONENTS[1], zorder=2)
    shown = [str(number) for number in range(rows.n_items)] if names is None else list(names)
    for place, name in zip(places, shown, strict=True):
        side = "center" if abs(place[0]) < 0.2 else ("left" if place[0] > 0 else "right")
        axes.annotate(plain_label(name, _LONGEST_NAME), 1.08 * place, ha=side, va="center")
    axes.margins(0.3)
    axes.set_axis_off()
    axes.set(aspect="equal", title=f"which items are compared; the thickest line: {count(most)} times")
    return axes


def _probabilities(probabilities: Any) -> NDArray[np.float64]:
    table = np.asarray(probabilities, np.float64)
    if table.ndim != 2 or not table.size:
        raise SettingsError(f"expected probabilities (n_rankings, n_components), but got shape {table.shape}")
    return table


def _component(model: Any, component: int) -> int:
    number = int(whole_number("component", component))
    n_components = len(model.shares_)
    if number >= n_components:
        raise SettingsError(f"component must be a number from 0 to {n_components - 1}, but is {number}")
    return number


def _names(names: tuple[str, ...], items: NDArray[Any]) -> list[str]:
    # A dollar sign would begin a formula.
    return [plain_label(names[item], _LONGEST_NAME).replace("$", r"\$") for item in items]


def _dots(axes: Any, values: Any, ends: Any, names: list[str], colour: str) -> None:
    """A dot per item, the first on top, with lines between the ends of intervals."""
    places = np.arange(len(names))
    if ends is not None:
        axes.hlines(places, *ends, color=colour, alpha=0.45, linewidth=3)
    axes.plot(values, places, "o", color=colour)
    axes.set_yticks(places, names)
    axes.invert_yaxis()


def _axes(ax: Any, height: float = 4.0) -> Any:
    """The axes that were given, or new ones."""
    if ax is not None:
        return ax
    try:
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise SettingsError("plots need matplotlib: install plmix-dist[plots]") from None
    _, axes = pyplot.subplots(figsize=(7.0, max(2.0, min(14.0, height))), layout="constrained")
    return axes
