"""The verb leaderboard: ratings with intervals, per component and for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from plmix_dist.cli.main import plmix
from plmix_dist.cli.options import MODEL, PATH, Output, examples, executor_options, output_options
from plmix_dist.cli.output import print_result, progress_bar, show
from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from plmix_dist.cluster.executor import LazyExecutor


@plmix.command(
    epilog=examples("plmix leaderboard model --data ballots", "plmix leaderboard model --scale log --format markdown")
)
@click.argument("model", metavar="DIR", type=MODEL)
@click.option("--data", metavar="STORE", type=PATH, help="The rankings of the fit: intervals, votes and win rates.")
@click.option("--against", metavar="DIR", type=MODEL, help="Another model: how ratings have changed since.")
@click.option("--scale", type=click.Choice(["elo", "log"]), default="elo", show_default=True, help="Scale of ratings.")
@click.option(
    "--interval",
    type=click.Choice(["sandwich", "bootstrap"]),
    default="sandwich",
    show_default=True,
    help="How intervals are made.",
)
@click.option("--anchor", metavar="ITEM", help="The item that has 1000 (or 0) in place of the average item.")
@click.option("--without-noise", is_flag=True, help="Leave out the component of noise.")
@click.option(
    "--weigh-pairs", type=click.IntRange(1), metavar="N", help="The fit had pair_weights with this min_count."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "csv"]),
    default="table",
    show_default=True,
    help="How it is printed; --json for JSON.",
)
@executor_options
@output_options
def leaderboard(
    model: str,
    *,
    data: str | None,
    against: str | None,
    scale: Any,
    interval: Any,
    anchor: str | None,
    without_noise: bool,
    weigh_pairs: int | None,
    form: str,
    executor: LazyExecutor,
    output: Output,
) -> None:
    """Print the leaderboard of the model in DIR: of each component, and of all."""
    with progress_bar("leaderboard", output):
        from plmix_dist.jobs.results import saved_model
        from plmix_dist.uncertainty.leaderboard import board_lines, pair_weights

        fitted = saved_model(model)
        if not hasattr(fitted, "leaderboard"):
            raise SettingsError(f"{model} holds draws of a posterior, which have no leaderboard; make a model with fit")
        weights = None if weigh_pairs is None or data is None else pair_weights(data, min_count=weigh_pairs)
        board = fitted.leaderboard(
            data,
            scale=scale,
            interval=interval,
            anchor=anchor,
            against=None if against is None else saved_model(against),
            without_noise=without_noise,
            sample_weight=weights,
            client=executor.client_if_asked(),
            table="dict",
        )
    if output.as_json:
        columns = {name: values.tolist() for name, values in board.items()}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        show([], {"leaderboard": [_without_nan(row) for row in rows]}, output)
        return
    for line in board_lines(board, form):
        print_result(line)


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """A row for JSON, which has no NaN."""
    return {name: None if value != value else value for name, value in row.items()}
