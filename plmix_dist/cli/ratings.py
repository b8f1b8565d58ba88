"""Options of `plmix ingest --format ratings`."""

from __future__ import annotations

import warnings
from typing import Any

import click

import plmix_dist as plm
from plmix_dist.cli.options import gathered, option
from plmix_dist.errors import NotConvergedWarning, SettingsError

# Options of the other formats that mean nothing for ratings, and what they are without a value.
_OTHERS = {
    "unranked": None, "merge": False, "append": False, "header": None, "where": (), "trait": None, "most_dropped": 0.05
}  # fmt: skip

ratings_options = gathered(
    "ratings",
    dict,
    option("--complete", type=click.IntRange(1), metavar="RANK", help="Ratings: complete them at this rank."),
    option("--min-user-ratings", type=click.IntRange(1), metavar="N", help="Ratings: leave out users with fewer."),
    option("--min-item-ratings", type=click.IntRange(1), metavar="N", help="Ratings: leave out items with fewer."),
    option(
        "--choose",
        type=click.Choice(["most-rated", "rank-variance"]),
        help="Ratings: how --items N items are chosen; default rank-variance with --complete, else most-rated.",
    ),
    option(
        "--duplicates",
        type=click.Choice(["last", "refuse"]),
        help="Ratings of one item twice by one user; default last with times, else refuse.",
    ),
    option("--ridge", type=float, help="Penalty of the completion; default 0.1."),
    option("--max-sweeps", type=click.IntRange(1), help="Most sweeps of the completion; default 200."),
    option("--completion-tol", "tol", type=float, help="Residual where it ends; default 1e-4."),
    option("--seed", type=click.IntRange(0), help="Ratings: seed of the completion; default 0."),
)


def refuse_ratings_options(settings: dict[str, Any]) -> None:
    """An error if an option of ratings is given with another format."""
    if (given := next((name for name, value in settings.items() if value is not None), None)) is not None:
        flag = "completion-tol" if given == "tol" else given.replace("_", "-")
        raise SettingsError(f"--{flag} is for ratings; add --format ratings")


def run_ratings(
    sources: list[str], store: str, *, items: str | None, settings: dict[str, Any], **common: Any
) -> plm.RankingStore:
    """Ingest ratings. Whatever of `settings` is None takes its default."""
    for name, unset in _OTHERS.items():
        if common.pop(name) != unset:
            raise SettingsError(f"--{name.replace('_', '-')} is not for ratings; leave it out")
    given = {name: value for name, value in settings.items() if value is not None}
    seed = given.pop("seed", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # it is among the notes, which are shown
        return plm.ingest_ratings(sources, store, n_items=_number(items), random_state=seed, **given, **common)


def _number(items: str | None) -> int | None:
    if items is not None and not items.isdecimal():
        raise SettingsError(f"with --format ratings, --items is the number of items to choose, but is {items!r}")
    return None if items is None else int(items)
