"""write_report(): gathers what is known of a fitted mixture, and writes one HTML file."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmix_dist.engine.clients import client_of
from plmix_dist.engine.passes import make_passes
from plmix_dist.engine.request import Request
from plmix_dist.errors import NotConvergedWarning, NotIdentifiableWarning, SettingsError, StoreExistsError
from plmix_dist.posteriors import check_columns
from plmix_dist.report.belonging import BELONGING, Belonging
from plmix_dist.report.page import GENERATOR, page_of
from plmix_dist.report.selection_table import selection_table
from plmix_dist.store.access import writing_explained
from plmix_dist.uncertainty.results import StandardErrors
from plmix_dist.values import shown

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.rankings import Unranked

# Standard errors are computed unasked up to so many log-worths: beyond, they take minutes.
MOST_WORTHS = 2_000
_BEGINNING = 4096


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    X: Any = None,  # noqa: N803 - scikit-learn's name for the data
    *,
    title: str | None = None,
    standard_errors: StandardErrors | bool | None = None,
    selection: Any = None,
    unranked: Unranked | None = None,
    client: ClientLike = None,
    membership_covariates: ArrayLike | None = None,
) -> Path:
    """Write a report about a fitted PlackettLuceMixture; see its method `report`.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> model = plmix_dist.PlackettLuceMixture(1).fit([["tea", "mate"], ["mate", "tea"]])
    >>> written = write_report(model, tempfile.mkdtemp() + "/report.html")
    >>> written.read_text().startswith("<!doctype html>")
    True
    """
    if standard_errors is not None and not isinstance(standard_errors, bool | StandardErrors):
        raise SettingsError(
            "standard_errors must be what model.standard_errors(X) gave, True, False or None, but is "
            f"{shown(standard_errors)}"
        )
    if standard_errors is True and X is None:
        raise SettingsError("standard errors are computed from the rankings; hand them in as X")
    target = _checked_target(path)
    mixture = model._mixture()
    table = None if selection is None else selection_table(selection)
    belonging = None
    with client_of(client) as chosen:
        place: ClientLike = False if chosen is None else chosen
        if X is not None:
            belonging = _belonging(model, X, unranked, place, membership_covariates)
        errors = _errors(model, X, standard_errors, unranked, place)
    if errors is not None and errors.mixture.log_worths.shape != mixture.log_worths.shape:
        raise SettingsError(
            f"standard errors of {errors.mixture.log_worths.shape} log-worths do not belong to this model, which has "
            f"{mixture.log_worths.shape}"
        )
    page = page_of(model, title=title, errors=errors, belonging=belonging, selection=table)
    _write_whole(target, page)
    return target


def _belonging(
    model: Any, rows: Any, unranked: Unranked | None, client: ClientLike, covariates: ArrayLike | None
) -> Belonging:
    """Memberships of all rankings, in one pass."""
    mixture = model._mixture()
    rankings = model._rankings(rows, unranked, covariates=covariates)
    coefficients = check_columns(model._coefficients, rankings.covariates)
    with client_of(client) as chosen:
        passes = make_passes(rankings, chosen, "store")
        try:
            params = (mixture.log_worths, mixture.log_shares, model._ties, coefficients)
            (answer,) = passes.run([Request(BELONGING, params)])
        finally:
            passes.release()
    if answer.error is not None:
        raise answer.error
    (found,) = answer.results
    assert isinstance(found, Belonging)
    return found


def _errors(
    model: Any,
    rows: Any,
    given: StandardErrors | bool | None,
    unranked: Unranked | None,
    client: ClientLike,
) -> StandardErrors | None:
    """Standard errors: those given, or computed where the rankings are there and it does not take long."""
    if isinstance(given, StandardErrors):
        return given
    mixture = model._mixture()
    affordable = mixture.log_worths.size <= MOST_WORTHS and model._coefficients is None
    if given is False or rows is None or not (given or affordable):
        return None
    with warnings.catch_warnings():
        if given is None:  # the page says it in words
            warnings.simplefilter("ignore", NotIdentifiableWarning)
            warnings.simplefilter("ignore", NotConvergedWarning)
        found: StandardErrors = model.standard_errors(rows, unranked=unranked, client=client)
    return found


def _checked_target(path: str | os.PathLike[str]) -> Path:
    """An error unless a report can be written here: over nothing, or over another report."""
    target = Path(path)
    if not target.parent.is_dir():
        raise SettingsError(f"there is no folder {target.parent} to write the report to; make it first")
    if target.is_dir():
        raise StoreExistsError(f"{target} is a folder; name a file, such as {target / 'report.html'}")
    if target.exists():
        with target.open("rb") as file:
            beginning = file.read(_BEGINNING)
        if GENERATOR.encode() not in beginning:
            raise StoreExistsError(
                f"{target} is there already and is no report of plmix_dist; choose another path, or remove it"
            )
    return target


def _write_whole(target: Path, page: str) -> None:
    """Write a file that appears when it is complete."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    data = page.encode()
    with writing_explained(str(target), len(data)):
        try:
            draft.write_bytes(data)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
