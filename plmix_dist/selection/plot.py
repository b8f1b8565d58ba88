"""A plot of a selection: the criterion that decided over the number of components."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.selection.criteria import Criterion


def plot_table(rows: Sequence[dict[str, Any]], criterion: Criterion, chosen: int, ax: Any = None) -> Any:
    """Draw a criterion over the number of components, with the choice marked. Gives matplotlib's axes.

    Parameters
    ----------
    rows
        The table.
    criterion
        What to draw; standard errors are drawn if there are any.
    chosen
        The number of components that was chosen.
    ax
        Axes to draw on; by default those of a new figure of pyplot.
    """
    if ax is None:
        ax = _new_axes()
    drawn = [row for row in rows if row.get(criterion.column) is not None]
    numbers = [row["n_components"] for row in drawn]
    values = [row[criterion.column] for row in drawn]
    if criterion.error_column is None:
        ax.plot(numbers, values, marker="o")
    else:
        ax.errorbar(
            numbers, values, yerr=[row[criterion.error_column] for row in drawn], marker="o", capsize=3
        )
    ax.axvline(chosen, linestyle=":", color="grey")
    ax.set_xticks(numbers)
    ax.set_xlabel("number of components")
    ax.set_ylabel(criterion.words)
    ax.set_title(f"{criterion.words}: {chosen} component{'s'[: chosen != 1]} chosen")
    return ax


def _new_axes() -> Any:
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ModuleNotFoundError:
        raise SettingsError("a plot needs matplotlib: pip install 'plmix-dist[plots]'") from None
    return pyplot.subplots(figsize=(6.0, 4.0), layout="constrained")[1]
