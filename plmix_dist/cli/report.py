"""The verbs report, leaderboard and check: what a model found; and what `plmix info` shows of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import plmix_dist as plm
from plmix_dist.cli.model import component_lines, component_records, results_of
from plmix_dist.cli.options import MODEL, PATH, STORE, covariates_option, executor_options, option, verb
from plmix_dist.cli.output import asked_for, number, print_result, progress_bar, show, size
from plmix_dist.cluster.executor import LazyExecutor
from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from plmix_dist.store import Location


@verb(
    "plmix report model --data ballots",
    "plmix report model --data ballots --selection chosen/selection.json --out for-the-board.html",
)
@click.argument("model", metavar="DIR", type=MODEL)
@option("--data", metavar="STORE", type=PATH, help="The rankings of the fit: how certain memberships and worths are.")
@option("--out", metavar="FILE", type=PATH, help="The file to write; by default the name of the model with .html.")
@option("--title", help="The title of the page.")
@option("--names", metavar="A,B,...", help="Names for the groups, the largest first, with commas between them.")
@option(
    "--selection",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="How K was chosen: JSON, a list of records with n_components.",
)
@option(
    "--standard-errors/--no-standard-errors",
    default=None,
    help="Whether to show intervals; by default for up to 2,000 log-worths, if there is --data.",
)
@covariates_option
@executor_options
def report(
    model: str,
    *,
    data: str | None,
    out: str | None,
    names: str | None,
    selection: str | None,
    covariates: str | None,
    executor: LazyExecutor,
    **options: Any,
) -> None:
    """Write a report about the model in DIR: one HTML file that needs no network.

    A report that is there is replaced; any other file is an error.
    """
    with progress_bar("report"):
        from plmix_dist.jobs.results import saved_model
        from plmix_dist.tables.sources import covariates_named

        written = saved_model(model).report(
            Path(out) if out is not None else _beside(model),
            data,
            names=None if names is None else [name.strip() for name in names.split(",")],
            selection=None if selection is None else _read_selection(selection),
            client=executor.client_if_asked(),
            membership_covariates=covariates_named(covariates),
            **options,
        )
    n_bytes = written.stat().st_size
    lines = [("report", f"{written}, {size(n_bytes)}; open it in a browser")]
    if data is None:
        lines.append(("without", "memberships and intervals: these need --data STORE"))
    show(lines, {"report": str(written), "n_bytes": n_bytes, "with_data": data is not None})


def _beside(model: str) -> Path:
    """The file beside the model; for a URL, in the current folder."""
    name = model.rstrip("/")
    return Path(f"{name.rsplit('/', 1)[-1]}.html" if "://" in name else f"{name}.html")


def _read_selection(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingsError(f"--selection {path} is not JSON: {error}") from None


# --- ratings, and checks of fit ----------------------------------------------------------------------------


@verb("plmix leaderboard model --data ballots", "plmix leaderboard model --scale log --format markdown")
@click.argument("model", metavar="DIR", type=MODEL)
@option("--data", metavar="STORE", type=PATH, help="The rankings of the fit: intervals, votes and win rates.")
@option("--against", metavar="DIR", type=MODEL, help="Another model: how ratings have changed since.")
@option("--scale", type=click.Choice(["elo", "log"]), default="elo", help="Scale of ratings.")
@option("--interval", type=click.Choice(["sandwich", "bootstrap"]), default="sandwich", help="How intervals are made.")
@option("--anchor", metavar="ITEM", help="The item that has 1000 (or 0) in place of the average item.")
@option("--without-noise", is_flag=True, help="Leave out the component of noise.")
@option("--weigh-pairs", type=click.IntRange(1), metavar="N", help="The fit had pair_weights with this min_count.")
@option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "csv"]),
    default="table",
    help="How it is printed; --json for JSON.",
)
@executor_options
def leaderboard(
    model: str,
    *,
    data: str | None,
    against: str | None,
    weigh_pairs: int | None,
    form: str,
    executor: LazyExecutor,
    **options: Any,
) -> None:
    """Print the leaderboard of the model in DIR: of each component, and of all."""
    with progress_bar("leaderboard"):
        from plmix_dist.jobs.results import saved_model
        from plmix_dist.uncertainty.leaderboard import board_lines

        fitted = saved_model(model)
        if not hasattr(fitted, "leaderboard"):
            raise SettingsError(f"{model} holds draws of a posterior, which have no leaderboard; make a model with fit")
        weights = None if weigh_pairs is None or data is None else plm.pair_weights(data, min_count=weigh_pairs)
        board = fitted.leaderboard(
            data,
            against=None if against is None else saved_model(against),
            sample_weight=weights,
            client=executor.client_if_asked(),
            table="dict",
            **options,
        )
    if asked_for("as_json"):
        columns = {name: values.tolist() for name, values in board.items()}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        show([], {"leaderboard": [_without_nan(row) for row in rows]})
        return
    for line in board_lines(board, form):
        print_result(line)


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """A row for JSON, which has no NaN."""
    return {name: None if value != value else value for name, value in row.items()}


_NUMBERS_OF_CHECK = ["fits", "p_values", "discrepancies", "posterior_predictive", "conservative", "notes"]


@verb("plmix check model ballots", "plmix check model ballots --pair 1 2 --pair 3 5")
@click.argument("model", metavar="DIR", type=MODEL)
@click.argument("store", type=STORE)
@option(
    "--pair", "pairs", nargs=2, multiple=True, metavar="A B", help="A pair to check; by default all of up to 30 items."
)
@option("--seed", type=click.IntRange(0), default=0, help="Seed of the copy that is drawn.")
@executor_options
def check(model: str, store: str, *, pairs: tuple[Any, ...], seed: int, executor: LazyExecutor) -> None:
    """Check whether the model in DIR reproduces first places and pairs of STORE, the rankings of its fit."""
    with progress_bar("check"):
        from plmix_dist.jobs.results import saved_model

        fitted, client = saved_model(model), executor.client_if_asked()
        found = fitted.check_fit(store, pairs=pairs or None, random_state=seed, client=client)
    numbers = {name: getattr(found, name) for name in _NUMBERS_OF_CHECK}
    parts = {name: [one._asdict() for one in getattr(found, name)] for name in ("residuals", "lengths")}
    parts["residuals"] = [_without_nan(one) for one in parts["residuals"]]
    show([("check", found.verdict), *(("", line) for line in found.lines())], numbers | parts)


# --- plmix info MODEL --------------------------------------------------------------------------------------

# Settings in one line.
_SETTINGS_SHOWN = ("m_step", "em", "init", "n_init", "alpha", "ties", "tol", "max_iter")


def show_model(place: Location) -> None:
    """Print what is in the folder of a model."""
    from plmix_dist.store.mixture import load_model

    saved = load_model(place).record
    model = plm.PlackettLuceMixture.load(place)
    job = saved.get("job") or {}
    record = {
        "model": place.url,
        "format": f"{saved['format']} {saved['version']}",
        "n_components": len(model.shares_),
        "n_items": len(model.item_names_),
        **results_of(model, "item_names", "shares"),
        "components": component_records(model),
        **results_of(model, "converged", "n_iter", "log_likelihood", "gradient_norm", "m_step"),
        "n_share_coefficients": 0 if model.share_coefficients_ is None else model.share_coefficients_.shape[1],
        "settings": saved.get("settings", {}),
        "seed": job.get("seed"),
        "fitted_to": saved.get("fitted_to"),
        "plmix_version": job.get("version"),
        "events": model.events_,
    }
    show(_model_lines(record, model), record)


def _model_lines(record: dict[str, Any], model: plm.PlackettLuceMixture) -> list[tuple[str, str]]:
    version = "" if record["plmix_version"] is None else f", plmix {record['plmix_version']}"
    lines = [
        ("model", f"{record['model']} ({record['format']}{version})"),
        ("mixture", f"{record['n_components']} components of {number(record['n_items'])} items"),
    ]
    if (data := record["fitted_to"]) is not None:
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


def _fit_words(record: dict[str, Any]) -> str:
    if record["n_iter"] is None:
        return "none: these parameters were given or drawn, not fitted"
    state = "converged" if record["converged"] else "NOT converged"
    return f"{state} in {record['n_iter']} iterations, log-likelihood {record['log_likelihood']:,.2f}"
