"""The page: a template with escaping on, filled with what is known of a fit; styles and script are part of it."""

from __future__ import annotations

import base64
import hashlib
import inspect
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmix_dist import __version__
from plmix_dist.display import marks
from plmix_dist.display.labels import (
    Html,
    count,
    figure,
    label,
    percent,
    plain_label,
    seconds_in_words,
    times,
)
from plmix_dist.display.palette import component_colour, heat_colour, text_on
from plmix_dist.report import course
from plmix_dist.report.cautions import cautions_of
from plmix_dist.report.components import component_views, items_that_differ, scale_of

if TYPE_CHECKING:
    from jinja2 import Template

    from plmix_dist.report.belonging import Belonging
    from plmix_dist.report.selection_table import SelectionTable
    from plmix_dist.uncertainty.results import StandardErrors

GENERATOR = "plmix_dist report"
_HERE = Path(__file__).parent
_NUMBER_WORDS = ("no", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


def page_of(
    model: Any,
    *,
    title: str | None = None,
    errors: StandardErrors | None = None,
    belonging: Belonging | None = None,
    selection: SelectionTable | None = None,
) -> str:
    """The HTML of a report.

    Parameters
    ----------
    model
        A fitted PlackettLuceMixture.
    title
        The title; None for one that says how many components there are.
    errors, belonging, selection
        What else is known.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> model = PlackettLuceMixture(1).fit([["tea", "mate"], ["mate", "tea"]])
    >>> page_of(model, title="Drinks & more").count("Drinks &amp; more")
    2
    """
    mixture = model._mixture()
    scale = scale_of(mixture, errors)
    about = getattr(model, "about_", None) or {}
    data = about.get("data") or {}
    settings = model._plain_settings()
    script = _text("script.js")
    return _template().render(
        title=plain_label(title) if title else _title(mixture.n_components),
        generator=GENERATOR,
        version=__version__,
        style=Html(_text("style.css")),
        script=Html(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        model=model,
        names=mixture.item_names,
        n_items=mixture.n_items,
        n_components=mixture.n_components,
        shares=[float(share) for share in mixture.shares],
        scale=scale,
        views=component_views(mixture, scale, errors),
        heat=items_that_differ(scale),
        by_overall=(-scale.overall).argsort(kind="stable").tolist(),
        errors=errors,
        belonging=belonging,
        selection=selection,
        about=about,
        data=data,
        unit="person" if data.get("by_person") else "ranking",
        cautions=cautions_of(model, belonging, errors),
        search=model.init_.get("search"),
        convergence=course.convergence_of(
            model.history_, data.get("weight") or 1.0, settings.get("tol"), model.converged_
        ),
        stages=course.stages_of(model.init_.get("stages") or []),
        settings=settings,
        code=course.code_to_repeat(
            type(model).__name__, settings, _defaults(type(model)), data.get("source"), about.get("seed")
        ),
        course=course,
    )


def _title(n_components: int) -> str:
    word = _NUMBER_WORDS[n_components] if n_components < len(_NUMBER_WORDS) else count(n_components)
    if n_components == 1:
        return "One ranking of everyone's tastes"
    return f"{word} kinds of taste"


def _defaults(kind: type) -> dict[str, Any]:
    """The defaults of the settings of an estimator."""
    parameters = inspect.signature(kind).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty} | {
        "n_components": None  # worth saying always
    }


def _next_best(probabilities: Any, number: int) -> int:
    """The component that takes most of what a component does not."""
    others = probabilities.copy()
    others[number] = -1.0
    return int(others.argmax())


@cache
def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "label": label,
        "count": count,
        "figure": figure,
        "percent": percent,
        "times": times,
        "seconds": seconds_in_words,
    }
    environment.globals |= {
        "marks": marks,
        "colour": component_colour,
        "text_on": text_on,
        "heat_colour": heat_colour,
        "plain_label": plain_label,
        "range_of": range,
        "next_best": _next_best,
    }
    return environment.from_string(_text("page.html.jinja"))
