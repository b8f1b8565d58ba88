"""Where a fit begins if `init` is a point: log-worths, a mixture, a fitted model or the path of one."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from plmix_dist.datasets.given import first_difference
from plmix_dist.errors import SettingsError, StoreNotFoundError
from plmix_dist.fitting.point import Point
from plmix_dist.models.predictions import Predictions
from plmix_dist.passes.rankings import Rankings
from plmix_dist.settings import nearest, numbers, shown
from plmix_dist.store.mixture import Floats, MixtureParams, load_with


def given_start(init: Any, n_components: int, rankings: Rankings, words: tuple[str, ...]) -> Point:
    """The point that `init` gives; `words` name the kinds of starts, for errors."""
    ghosts = None
    if isinstance(init, np.ndarray | list | tuple):
        log_worths = numbers("init", init)
        _check_shape(log_worths, n_components, rankings)
        bad = np.argwhere(~np.isfinite(log_worths)).tolist()
        if bad:
            raise SettingsError(f"init must be finite log-worths, but init{bad[0]} is {log_worths[*bad[0]]}")
        return Point.start(log_worths, np.full(n_components, 1 / n_components))
    if isinstance(init, MixtureParams):
        mixture = init
    elif isinstance(init, Predictions):
        mixture, ghosts = init._mixture(), getattr(init, "_ghosts", None)
    else:
        mixture, ghosts = _saved_start(init, words)
    _check_shape(mixture.log_worths, n_components, rankings)
    if mixture.item_names != rankings.item_names:
        difference = first_difference(rankings.item_names, mixture.item_names)
        raise SettingsError(f"init is a model of other items: {difference}")
    return Point.start(mixture.log_worths, mixture.shares, ghosts)


def _saved_start(init: Any, words: tuple[str, ...]) -> tuple[MixtureParams, Floats | None]:
    """The mixture of the saved model that `init` is the path of, and its ghosts."""
    expected = f"init must be {', '.join(words)}, a fitted model, the path of one, or an array of log-worths"
    if not isinstance(init, str | os.PathLike):
        raise SettingsError(f"{expected}, but is {shown(init)}")
    try:
        mixture, saved = load_with(init)
    except StoreNotFoundError:
        if "/" in os.fspath(init):
            raise
        raise SettingsError(
            f"{expected}, but is {shown(init, str)}, and there is no model at this path{nearest(init, words)}"
        ) from None
    return mixture, saved.arrays.get("ghosts")


def _check_shape(log_worths: Floats, n_components: int, rankings: Rankings) -> None:
    if log_worths.shape != (n_components, rankings.n_items):
        raise SettingsError(
            f"init has shape {log_worths.shape}, but {n_components} components of {rankings.n_items} items are to be "
            "fitted"
        )
