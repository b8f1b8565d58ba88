"""The verb report: one HTML file about a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plmix_dist.cli import plmix
from plmix_dist.cli.options import PATH, Talk, computing, covariates_option, examples, talking
from plmix_dist.cli.output import progress_bar, show, size
from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from plmix_dist.engine import LazyExecutor


@plmix.command(
    epilog=examples(
        "plmix report model --data ballots",
        "plmix report model --data ballots --selection chosen/selection.json --out for-the-board.html",
    )
)
@click.argument("model", metavar="DIR", type=PATH)
@click.option(
    "--data",
    metavar="STORE",
    type=PATH,
    help="The rankings of the fit: how certain memberships and worths are.",
)
@click.option(
    "--out", metavar="FILE", type=PATH, help="The file to write; by default the name of the model with .html."
)
@click.option("--title", help="The title of the page.")
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
@computing
@talking
def report(
    model: str,
    *,
    data: str | None,
    out: str | None,
    title: str | None,
    selection: str | None,
    standard_errors: bool | None,
    covariates: str | None,
    executor: LazyExecutor,
    talk: Talk,
) -> None:
    """Write a report about the model in DIR: one HTML file that needs no network.

    A report that is there is replaced; any other file is an error.
    """
    with progress_bar("report", shown=talk.progress, as_json=talk.as_json):
        from plmix_dist.data.covariate_files import read_covariates
        from plmix_dist.estimator import PlackettLuceMixture

        written = PlackettLuceMixture.load(model).report(
            Path(out) if out is not None else _beside(model),
            data,
            title=title,
            standard_errors=standard_errors,
            selection=None if selection is None else _read_selection(selection),
            client=executor.client_if_asked(),
            membership_covariates=None if covariates is None else read_covariates(covariates),
        )
    n_bytes = written.stat().st_size
    record = {"report": str(written), "n_bytes": n_bytes, "with_data": data is not None}
    lines = [("report", f"{written}, {size(n_bytes)}; open it in a browser")]
    if data is None:
        lines.append(("without", "memberships and intervals: these need --data STORE"))
    show(lines, record, **vars(talk))


def _beside(model: str) -> Path:
    """The file beside the model; for a URL, in the current folder."""
    name = model.rstrip("/")
    return Path(f"{name.rsplit('/', 1)[-1]}.html" if "://" in name else f"{name}.html")


def _read_selection(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingsError(f"--selection {path} is no JSON: {error}") from None
