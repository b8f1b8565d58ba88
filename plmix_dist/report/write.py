"""write_report(): gathers what is known of a fitted mixture, fills the page, and writes one HTML file."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import inspect
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmix_dist import __version__
from plmix_dist.cluster.clients import client_of
from plmix_dist.display import marks
from plmix_dist.display.notebook import data_of, tie_lines
from plmix_dist.errors import NotConvergedWarning, NotIdentifiableWarning, SettingsError, StoreExistsError
from plmix_dist.fitting.fingerprint import data_fingerprint, digest_of
from plmix_dist.fitting.starts.settings import start_of
from plmix_dist.rankings import TIES
from plmix_dist.report import components, history
from plmix_dist.report.cautions import cautions_of, checked, fit_data_of
from plmix_dist.settings import shown
from plmix_dist.store.access import write_whole
from plmix_dist.uncertainty.check_results import FitCheck
from plmix_dist.uncertainty.leaderboard import board_cells
from plmix_dist.uncertainty.results import StandardErrors
from plmix_dist.uncertainty.standard_errors import is_joint

if TYPE_CHECKING:
    from jinja2 import Template


# Up to this many log-worths standard errors are computed by default: beyond, they take minutes.
_MOST_WORTHS = 2_000
_MOST_WORTHS_OF_PERSONS = 500
_BEGINNING = 4096


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    rows: Any,
    how: Mapping[str, Any],
    title: str | None = None,
    names: Sequence[str] | None = None,
    standard_errors: StandardErrors | bool | None = None,
    selection: Any = None,
) -> Path:
    """Write a report about a fitted mixture; see the method `report` of estimators.

    `rows` are the rankings of the fit, or None; `how` has weights and the like as the user gave them.
    """
    if standard_errors is not None and not isinstance(standard_errors, bool | StandardErrors):
        raise SettingsError(
            "standard_errors must be what model.standard_errors(X) gave, True, False or None, but is "
            f"{shown(standard_errors)}"
        )
    if standard_errors is True and rows is None:
        raise SettingsError("standard errors are computed from the rankings; hand them in as X")
    target = _checked_target(path)
    mixture = model._mixture()
    groups = components.group_names(mixture.n_components, names)
    if selection is None:
        selection = (getattr(model, "about_", None) or {}).get("selection", {}).get("table")
    table = None if selection is None else history.selection_table(selection)
    digests = {
        "model": digest_of(mixture.log_worths, mixture.shares, *getattr(model, "_parameters", model._arrays)().values())
    }
    found: dict[str, Any] = {"groups": groups, "selection": table, **dict.fromkeys(("memberships", "check", "ranks"))}
    found["board"] = []
    with client_of(how.get("client")) as chosen:
        how = {**how, "client": False if chosen is None else chosen}
        if rows is not None:
            found["memberships"] = memberships = model._total(components.MEMBERSHIPS, rows, model._ties, **how)
            model._check_weight(float(memberships.weight.sum()), how.get("sample_weight"))
            with model._passes_over(rows, **how) as (passes, rankings):
                digests = {"rankings": data_fingerprint(passes, rankings)["rankings"], **digests}
        errors = _errors(model, rows, how, standard_errors)
        if errors is not None and rows is not None and model._coefficients is None:
            how.pop("membership_covariates", None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # given with the standard errors, and in words on the page
                found |= {"board": _board(model, rows, how), "check": _check(model, rows, how)}
                with contextlib.suppress(SettingsError):  # where no ranking offers all items
                    found |= {"ranks": components.ranks_of(model, rows, **how)}
    if errors is not None and errors.mixture.log_worths.shape != mixture.log_worths.shape:
        raise SettingsError(
            f"standard errors of {errors.mixture.log_worths.shape} log-worths do not belong to this model, which has "
            f"{mixture.log_worths.shape}"
        )
    found["digests"] = digests
    write_whole(target, _page_of(model, title, errors, standard_errors is not False, found).encode())
    return target


def _errors(
    model: Any, rows: Any, how: Mapping[str, Any], wanted: StandardErrors | bool | None
) -> StandardErrors | None:
    """Standard errors: those given, or computed where the rankings are there and it does not take long."""
    if isinstance(wanted, StandardErrors):
        return wanted
    mixture = model._mixture()
    # With covariates they are made from contrasts of items, which takes longer, and where ties are extended.
    of_persons = model._coefficients is not None and model._linear is None
    affordable = mixture.log_worths.size <= (_MOST_WORTHS_OF_PERSONS if of_persons else _MOST_WORTHS)
    affordable &= TIES[model._ties].extends or not of_persons
    if wanted is False or rows is None or not (wanted or affordable) or not hasattr(model, "standard_errors"):
        return None
    with warnings.catch_warnings():
        if wanted is None:  # the page has it in words
            warnings.simplefilter("ignore", NotIdentifiableWarning)
            warnings.simplefilter("ignore", NotConvergedWarning)
        found: StandardErrors = model.standard_errors(rows, **how)
    return found


def _board(model: Any, rows: Any, how: Mapping[str, Any]) -> list[list[str]]:
    """The leaderboard of battles, as cells; empty for other rankings."""
    is_comparable = model._reading().kind not in ("slates", "none")
    if data_of(model).get("mean_listed") != 2 or not is_comparable or not hasattr(model, "leaderboard"):
        return []
    return board_cells(model.leaderboard(rows, table="dict", **how))


def _check(model: Any, rows: Any, how: Mapping[str, Any]) -> FitCheck | None:
    """The check of fit, where standard errors are computed."""
    if not is_joint(model._mixture()) or TIES[model._ties].order or model._linear is not None:
        return None
    found: FitCheck = model.check_fit(rows, **how)
    return found


def _checked_target(path: str | os.PathLike[str]) -> Path:
    """An error unless a report can be written here: over nothing, or over another report."""
    target = Path(path)
    if not target.parent.is_dir():
        raise SettingsError(f"no folder {target.parent} to write the report to; make it first")
    if target.is_dir():
        raise StoreExistsError(f"{target} is a folder; name a file, such as {target / 'report.html'}")
    if target.exists():
        with target.open("rb") as file:
            beginning = file.read(_BEGINNING)
        if _GENERATOR.encode() not in beginning:
            raise StoreExistsError(
                f"{target} is there already and is not a report of plmix_dist; choose another path, or remove it"
            )
    return target


# The page: a template with escaping on, filled with what is known of a fit; styles and script are part of it.

_GENERATOR = "plmix_dist report"
_HERE = Path(__file__).parent
_NUMBER_WORDS = ("no", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


def _page_of(
    model: Any, title: str | None, errors: StandardErrors | None, of_draws: bool, found: dict[str, Any]
) -> str:
    """The HTML of a report; intervals are those of the errors, or `of_draws` where there are some."""
    mixture, is_sampled = model._mixture(), hasattr(model, "diagnostics_")
    intervals = errors.intervals() if errors is not None else model.intervals() if is_sampled and of_draws else None
    n_compared = len(found["selection"].n_components) if found["selection"] else 1
    reading = model._reading()
    scale = components.scale_of(mixture, intervals, reading)
    about, data = getattr(model, "about_", None) or {}, fit_data_of(model)
    unit, weight = "person" if data.get("by_person") else "ranking", data.get("weight") or 1.0
    # The page is sent around: no folders of this machine.
    settings = {name: _last_part(value) for name, value in model._plain_settings().items()}
    source = _last_part(data.get("source"))
    init, past, tol = getattr(model, "init_", {}), getattr(model, "history_", []), settings.get("tol")
    views = components.component_views(mixture, scale, intervals)
    script, chosen_by = _text("script.js"), about.get("selection", {}).get("settings")
    kind, own = type(model), _parameters(type(model), settings)
    return _template().render(
        found,
        title=marks.plain_label(title) if title else _title(mixture.n_components, reading.kind),
        style=marks.Html(_text("style.css")),
        script=marks.Html(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        model=model,
        mixture=mixture,
        scale=scale,
        views=views,
        reading=reading,
        effects=components.effects_of(model, errors),
        sentences=[components.group_sentence(view, mixture.item_names, unit, reading.kind) for view in views],
        has_intervals=intervals is not None,
        kept=None if errors is None or errors.slopes.min() >= 1 else float(errors.slopes.min()),
        is_sampled=is_sampled,
        ties=tie_lines(model, errors),
        about=about,
        data=data,
        source=source,
        unit=unit,
        cautions=cautions_of(model, found["memberships"], errors, found["groups"]),
        checked=checked(model, found["memberships"], has_intervals=intervals is not None, compared=n_compared > 1),
        search=init.get("search"),
        others=history.other_solutions(init.get("search"), weight),
        convergence=history.convergence_of(past, weight, tol, model.converged_),
        stages=history.stages_of(init.get("stages") or getattr(model, "stages_", [])),
        settings=settings,
        code=history.code_to_repeat(kind.__name__, own, _defaults(kind), source, about.get("seed"), chosen_by),
    )


def _title(n_components: int, kind: str) -> str:
    word = _NUMBER_WORDS[n_components] if n_components < len(_NUMBER_WORDS) else marks.count(n_components)
    if n_components == 1:
        return "One ranking of everyone's tastes" if kind == "all" else "One kind of taste"
    return f"{word} kinds of taste"


def _defaults(kind: type) -> dict[str, Any]:
    """The defaults of the settings of an estimator."""
    parameters = inspect.signature(kind).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty} | {
        "n_components": None  # worth saying always
    }


def _parameters(kind: type, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as parameters of the estimator: what says how a start works becomes its value."""
    own = {name: value for name, value in settings.items() if name in _defaults(kind)}
    return own | {"init": start_of(settings, strict=False)} if len(own) < len(settings) else own


def _last_part(value: Any) -> Any:
    """The name of a file, folder or URL without what it lies in; anything else as it is."""
    return value.rstrip("/").rsplit("/", 1)[-1] if isinstance(value, str) else value


@cache
def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters = marks.label, marks.count, marks.figure, marks.percent, marks.times, marks.seconds_in_words
    environment.filters |= {function.__name__: function for function in filters}
    environment.globals |= {"marks": marks, "history": history, "components": components, "range_of": range}
    environment.globals |= {"generator": _GENERATOR, "version": __version__}
    return environment.from_string(_text("page.html.jinja"))
