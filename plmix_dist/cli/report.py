"""The verb report: one HTML file about a model; and what `plmix info` shows of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plmix_dist.cli.main import plmix
from plmix_dist.cli.model import component_lines, component_records, given_covariates
from plmix_dist.cli.options import MODEL, PATH, Output, covariates_option, examples, executor_options, output_options
from plmix_dist.cli.output import number, progress_bar, show, size
from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from plmix_dist.cluster.executor import LazyExecutor
    from plmix_dist.models.plackett_luce import PlackettLuceMixture
    from plmix_dist.store import Location


@plmix.command(
    epilog=examples(
        "plmix report model --data ballots",
        "plmix report model --data ballots --selection chosen/selection.json --out for-the-board.html",
    )
)
@click.argument("model", metavar="DIR", type=MODEL)
@click.option(
    "--data", metavar="STORE", type=PATH, help="The rankings of the fit: how certain memberships and worths are."
)
@click.option(
    "--out", metavar="FILE", type=PATH, help="The file to write; by default the name of the model with .html."
)
@click.option("--title", help="The title of the page.")
@click.option("--names", metavar="A,B,...", help="Names for the groups, the largest first, with commas between them.")
@click.option(
    "--selection",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="How K was chosen: JSON, a list of records with n_components.",
)
@click.option(
    "--standard-errors/--no-standard-errors",
    default=None,
    help="Whether to show intervals; by default for up to 2,000 log-worths, if there is --data.",
)
@covariates_option
@executor_options
@output_options
def report(
    model: str,
    *,
    data: str | None,
    out: str | None,
    title: str | None,
    names: str | None,
    selection: str | None,
    standard_errors: bool | None,
    covariates: str | None,
    executor: LazyExecutor,
    output: Output,
) -> None:
    """Write a report about the model in DIR: one HTML file that needs no network.

    A report that is there is replaced; any other file is an error.
    """
    with progress_bar("report", output):
        from plmix_dist.jobs.results import saved_model

        written = saved_model(model).report(
            Path(out) if out is not None else _beside(model),
            data,
            title=title,
            names=None if names is None else [name.strip() for name in names.split(",")],
            standard_errors=standard_errors,
            selection=None if selection is None else _read_selection(selection),
            client=executor.client_if_asked(),
            membership_covariates=given_covariates(covariates),
        )
    n_bytes = written.stat().st_size
    record = {"report": str(written), "n_bytes": n_bytes, "with_data": data is not None}
    lines = [("report", f"{written}, {size(n_bytes)}; open it in a browser")]
    if data is None:
        lines.append(("without", "memberships and intervals: these need --data STORE"))
    show(lines, record, output)


def _beside(model: str) -> Path:
    """The file beside the model; for a URL, in the current folder."""
    name = model.rstrip("/")
    return Path(f"{name.rsplit('/', 1)[-1]}.html" if "://" in name else f"{name}.html")


def _read_selection(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingsError(f"--selection {path} is not JSON: {error}") from None


# --- plmix info MODEL --------------------------------------------------------------------------------------

# Settings in one line.
_SETTINGS_SHOWN = ("m_step", "em", "init", "n_init", "alpha", "ties", "tol", "max_iter")


def show_model(place: Location, output: Output) -> None:
    """Print what is in the folder of a model."""
    from plmix_dist.models.plackett_luce import PlackettLuceMixture
    from plmix_dist.store.mixture import load_model

    saved = load_model(place).record
    model = PlackettLuceMixture.load(place)
    job = saved.get("job") or {}
    record = {
        "model": place.url,
        "format": f"{saved['format']} {saved['version']}",
        "n_components": len(model.shares_),
        "n_items": len(model.item_names_),
        "item_names": list(model.item_names_),
        "shares": model.shares_.tolist(),
        "components": component_records(model),
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "log_likelihood": model.log_likelihood_,
        "gradient_norm": model.gradient_norm_,
        "m_step": model.m_step_,
        "n_share_coefficients": 0 if model.share_coefficients_ is None else model.share_coefficients_.shape[1],
        "settings": saved.get("settings", {}),
        "seed": job.get("seed"),
        "fitted_to": saved.get("fitted_to"),
        "plmix_version": job.get("version"),
        "events": model.events_,
    }
    show(_model_lines(record, model), record, output)


def _model_lines(record: dict[str, Any], model: PlackettLuceMixture) -> list[tuple[str, str]]:
    lines = [
        ("model", f"{record['model']} ({record['format']}{_version(record)})"),
        ("mixture", f"{record['n_components']} components of {number(record['n_items'])} items"),
    ]
    data = record["fitted_to"]
    if data is not None:
        weight = number(data["total_weight"])
        lines.append(("fitted to", f"{data['store']}: {number(data['n_rankings'])} rankings, weight {weight}"))
    lines.append(("fit", _fit_words(record)))
    if record["settings"]:
        shown = {name: record["settings"][name] for name in _SETTINGS_SHOWN if name in record["settings"]}
        seed = "" if record["seed"] is None else f", seed {record['seed']}"
        lines.append(("settings", ", ".join(f"{name} {value}" for name, value in shown.items()) + seed))
    if record["n_share_coefficients"]:
        n_columns = record["n_share_coefficients"] - 1
        lines.append(("covariates", f"shares depend on {n_columns} columns of persons; below are their means"))
    return [*lines, *component_lines(model)]


def _version(record: dict[str, Any]) -> str:
    return "" if record["plmix_version"] is None else f", plmix {record['plmix_version']}"


def _fit_words(record: dict[str, Any]) -> str:
    if record["n_iter"] is None:
        return "none: these parameters were given or drawn, not fitted"
    state = "converged" if record["converged"] else "NOT converged"
    return f"{state} in {record['n_iter']} iterations, log-likelihood {record['log_likelihood']:,.2f}"
