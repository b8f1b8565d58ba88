"""Verbs for stores: example, ingest, export, simulate, split, verify, info."""

from __future__ import annotations

import contextlib
import csv
import tempfile
import time
from typing import Any

import click

import plmix_dist as plm
from plmix_dist.cli import options
from plmix_dist.cli.main import file_written, on_interruption, written_so_far
from plmix_dist.cli.options import PATH, SOURCES, STORE, Decorator, gathered, option, verb
from plmix_dist.cli.output import EXIT_DAMAGED, few, number, progress_bar, show, size
from plmix_dist.cli.ratings import ratings_options, refuse_ratings_options, run_ratings
from plmix_dist.cli.report import show_model
from plmix_dist.cluster.executor import Executor
from plmix_dist.errors import SettingsError, StoreError

_MOST_SOURCES = 3


def format_option(words: str, *more: str) -> Decorator:
    """The option --format, for what reads (`more`: ONLY_READ) or writes."""
    return option(
        "--format",
        "format_name",
        default="auto",
        type=click.Choice(["auto", "preflib", "wide", "ranks", "long", "orderings", "parquet", *more]),
        help=words,
    )


ONLY_READ = (
    *("scores", "battles", "best-worst", "choices", "results", "ratings"),
    *("cvr", "blt", "scottish", "votekit", "abif", "dominion", "nist", "hart", "qualtrics"),
)

# What files of elections and surveys cannot say.

_RULE = "NAME=VALUE, such as overvote=skip,"


def _choices(contest: str | None, question: str | None, rules: tuple[str, ...]) -> dict[str, str]:
    """What the user chose, by name."""
    named = {"contest": contest, "question": question}
    return {name: value for name, value in named.items() if value} | _pairs(rules, "--rule", _RULE)


choices_options = gathered(
    "choices",
    _choices,
    option("--contest", metavar="NAME", help="The contest of cast vote records."),
    option("--question", metavar="PREFIX", help="The question of a survey."),
    option("--rule", "rules", multiple=True, metavar="NAME=VALUE", help="A rule of elections, such as overvote=skip."),
)


@verb(
    "plmix ingest ballots.csv ballots --unranked below",
    "plmix ingest ballots.soi elections",
    "plmix ingest ratings.csv rated --format ratings --min-user-ratings 5",
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=SOURCES)
@click.argument("store", metavar="STORE", type=PATH)
@format_option("Format of the sources; `plmix formats` shows each.", *ONLY_READ)
@options.unranked_option
@option(
    "--on-error",
    type=click.Choice(["raise", "drop", "quarantine"]),
    default="raise",
    help="Bad rows: stop, leave them out and list them, or list them with their contents.",
)
@option(
    "--most-dropped",
    type=click.FloatRange(0, 1),
    default=0.05,
    help="The largest share of bad rows that --on-error drop leaves out.",
)
@option("--where", multiple=True, metavar="NAME=VALUE", help="Read the rows with this value in a column, or !=.")
@option("--trait", metavar="NAME", help="Of several comparisons of the same items, the one to read.")
@option("--dry-run", is_flag=True, help="Show what would be read, and write nothing that stays.")
@option("--merge", is_flag=True, help="Merge equal rows into one, with the sum of their weights.")
@option("--append", is_flag=True, help="Add to an existing store.")
@options.force_option
@option(
    "--items",
    metavar="FILE|STORE|MODEL|N",
    help="Names of all items in order, one per line, or those of a store or model; of ratings, the number of items to "
    "choose.",
)
@option("--column", "columns", multiple=True, metavar="ROLE=NAME", help="The column of a role.")
@option("--person-columns", metavar="NAME,NAME", help="Columns about the person, on which shares may depend.")
@option("--delimiter", help="Delimiter of text; default as the first lines show.")
@option(
    "--header/--no-header",
    default=None,
    help="Whether the first line names the columns; default as the first lines show.",
)
@choices_options
@ratings_options
@options.executor_options
def ingest(
    sources: tuple[str, ...],
    store: str,
    *,
    format_name: str,
    dry_run: bool,
    force: bool,
    items: str | None,
    columns: tuple[str, ...],
    person_columns: str | None,
    choices: dict[str, str],
    ratings: dict[str, Any],
    **common: Any,
) -> None:
    """Read rankings from files, globs or URLs into STORE.

    Roles of columns are id, item, rank, weight, group, ordering, items and unranked; places=NAME,NAME names the places
    of a ranking, best first, and ignore=NAME,NAME columns to leave out. Columns without a header are numbered from 1:
    --no-header --column id=1. With --format ratings, the roles are user, item, rating and time.
    """
    from plmix_dist.datasets.ingest import first_rankings

    begun = time.perf_counter()
    if dry_run and common["append"]:
        raise SettingsError("--dry-run shows a store of its own; leave out --append")
    with contextlib.ExitStack() as stack:
        if dry_run:
            store = f"{stack.enter_context(tempfile.TemporaryDirectory(prefix='plmix-dry-run-'))}/store"
        before = _generation(store)
        _set_message_of_store(store)
        of_persons = {} if person_columns is None else {"persons": person_columns}
        common |= {"overwrite": force, "columns": _pairs(columns, "--column", "ROLE=NAME,") | of_persons}
        common["progress"] = stack.enter_context(progress_bar("ingest"))
        if format_name == "ratings":
            if choices:
                raise SettingsError(f"--format ratings does not use {next(iter(choices))}; leave it out")
            made = run_ratings(list(sources), store, items=items, settings=ratings, **common)
        else:
            refuse_ratings_options(ratings)
            names = None if items is None else _item_names(items)
            made = plm.ingest(list(sources), store, format=format_name, item_names=names, choices=choices, **common)
        changed = force or made.manifest.generation != before
        rows, seconds = first_rankings(made), time.perf_counter() - begun
        words = _COUNTED_ONCE if common["append"] else _NOTHING_NEW
        _show_made(made, seconds, changed=changed, rows=rows, dry_run=dry_run, nothing=words)


@verb("plmix formats", "plmix formats battles")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def formats(names: tuple[str, ...]) -> None:
    """List the formats that ingest reads, each with two lines of a file."""
    from plmix_dist.tables.registry import FORMATS, format_named

    chosen = [format_named(name) for name in names] or list(FORMATS.values())
    lines = []
    for form in chosen:
        lines += [(form.name, form.about), *(("", f"  {line}") for line in form.example.split("\n"))]
    show(lines, {"formats": {form.name: {"about": form.about, "example": form.example.split("\n")} for form in chosen}})


@verb("plmix example drinks", "plmix example drinks people.csv")
@click.argument("name", type=click.Choice(["drinks"]))
@click.argument("target", type=PATH, required=False)
@options.force_option
def example(name: str, target: str | None, *, force: bool) -> None:
    """Write made-up rankings with names to a CSV file, to try things with.

    drinks: 600 people of two tastes name their favourites of eight drinks, best first. TARGET is drinks.csv if left
    out.
    """
    from plmix_dist.store import check_file
    from plmix_dist.tables.write import check_target, open_target

    path = target or f"{name}.csv"
    on_interruption(file_written(path))
    check_file(path, overwrite=force)
    check_target(path)
    people = plm.example(name)
    width = max(map(len, people))
    with open_target(path) as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(["id", *(f"choice{place}" for place in range(1, width + 1))])
        table.writerows([person, *row, *[""] * (width - len(row))] for person, row in enumerate(people, 1))
    record = {"target": path, "n_rankings": len(people)}
    next_one = f"plmix ingest {path} {name} --unranked below"
    show([("example", f"{number(len(people))} rankings to {path}"), ("next", next_one)], record)


@verb("plmix export ballots again.csv", "plmix export ballots again.parquet")
@click.argument("store", type=STORE)
@click.argument("target", type=PATH)
@format_option("Format of the target; auto goes by its suffix, and writes text as orderings.")
@options.force_option
def export(store: str, target: str, *, format_name: str, force: bool) -> None:
    """Write STORE to TARGET as PrefLib, delimited text or Parquet."""
    opened = plm.open_store(store)
    on_interruption(file_written(target))
    with progress_bar("export"):
        plm.export(opened, target, format=format_name, overwrite=force)
    record = {"target": target, "n_rankings": opened.n_rankings}
    show([("exported", f"{number(opened.n_rankings)} rankings to {target}")], record)


@verb(
    "plmix simulate made-up --rankings 5000 --items 8 --components 2",
    "plmix simulate top-four --rankings 5000 --items 8 --components 2 --length 4 --unranked below --seed 1",
)
@click.argument("store", type=PATH)
@option("--rankings", "n_rankings", type=click.IntRange(1), required=True, help="Number of rankings.")
@option("--items", "n_items", type=click.IntRange(2), required=True, help="Number of items.")
@option("--components", "n_components", type=click.IntRange(1), default=1)
@option(
    "--differing",
    type=click.IntRange(1),
    help="Number of items, the first, that differ between components; default all.",
)
@option("--length", type=click.IntRange(1), help="Items each ranking lists; default all.")
@options.unranked_option
@option(
    "--noise",
    type=click.Choice(["gumbel", "normal", "exponential"]),
    default="gumbel",
    help="Noise in utilities: gumbel for Plackett-Luce, normal for Thurstone's model.",
)
@options.force_option
@options.seed_option
@options.executor_options
def simulate(store: str, *, seed: int, force: bool, executor: Executor, **settings: Any) -> None:
    """Draw rankings from a random mixture into STORE, and save its parameters in STORE.truth."""
    begun, before = time.perf_counter(), _generation(store)
    _set_message_of_store(store)
    with progress_bar("simulate") as progress:
        made = plm.simulate(store, random_state=seed, overwrite=force, executor=executor, progress=progress, **settings)
    _show_made(made, time.perf_counter() - begun, changed=force or made.manifest.generation != before)


@verb("plmix split ballots train test --shares 0.8,0.2")
@click.argument("store", type=STORE)
@click.argument("outs", nargs=-1, required=True, metavar="OUT...", type=PATH)
@option("--shares", help="Share of each part, such as 0.8,0.2; default 0.8,0.2 or 0.64,0.16,0.2.")
@options.force_option
@options.seed_option
@options.executor_options
def split(store: str, outs: tuple[str, ...], *, shares: str | None, force: bool, seed: int, executor: Executor) -> None:
    """Divide the rankings of STORE at random into stores; an OUT that ends in .npy gets row weights instead."""
    portions = None if shares is None else [_share(share) for share in shares.split(",")]
    there = all(_is_finished(out) for out in outs)
    on_interruption(lambda: "parts that are finished are kept; run the same command again to continue")
    with progress_bar("split") as progress:
        parts = plm.split(
            store, outs, shares=portions, random_state=seed, overwrite=force, executor=executor, progress=progress
        )
    if there and not force:
        words = "the parts are there already, and hold exactly this"
        show([("nothing to do", words)], {"parts": list(outs), "changed": False})
        return
    lines, record = [], []
    for out, part in zip(outs, parts, strict=True):
        weight = None if isinstance(part, str) else part.total_weight
        lines.append((out, "row weights" if weight is None else f"{number(weight)} of the weight"))
        record.append({"out": out, "total_weight": weight})
    show(lines, {"parts": record, "changed": True})


@verb("plmix verify ballots")
@click.argument("store", type=STORE)
@options.executor_options
def verify(store: str, *, executor: Executor) -> int:
    """Find all damage in STORE; exit code 3 if there is any."""
    opened = plm.open_store(store)
    with progress_bar("verify") as progress:
        damage = plm.verify(opened, executor=executor, progress=progress)
    record = {"store": store, "whole": not damage, "damage": [found._asdict() for found in damage]}
    lines = [(found.kind, f"{found.key}: {found.message}") for found in damage]
    whole = f"{number(opened.n_rankings)} rankings in {opened.n_partitions} partitions: every byte is as written"
    show(lines or [("whole", whole)], record)
    return EXIT_DAMAGED if damage else 0


@verb("plmix info ballots", "plmix info ballots --no-graph --json", "plmix info model")
@click.argument("store", metavar="STORE|MODEL", type=STORE)
@click.option("--graph/--no-graph", default=True, help="Read all rows: kinds of rankings, comparison graph.")
@option("--rejected", is_flag=True, help="List the rejected rows.")
@options.executor_options
def info(store: str, *, graph: bool, rejected: bool, executor: Executor) -> None:
    """Show what is in a store, or what a model found.

    Of a store: sizes, items, where they come from, kinds of rankings, and which numbers of components they identify.
    Of a model: shares and top items of each component, what it was fitted to, and how the fit ended.
    """
    from plmix_dist.rankings.checks import without_information
    from plmix_dist.store import Location, targets

    place = Location.of(store)
    kind = targets.kind_at(place)
    if kind == "model":
        show_model(place)
        return
    if kind == "memberships":
        raise SettingsError(
            f"{store} holds memberships; open them with zarr, or write a table with `plmix predict MODEL STORE OUT.csv`"
        )
    opened = plm.open_store(store)
    with progress_bar("read") as progress:
        report = plm.info(opened, graph=graph, executor=executor, progress=progress)
    if rejected:
        report["rejected_rows"] = list(opened.rejected_rows())
    persons = report.get("person_columns", {}).items()
    lines = [
        ("store", f"{report['location']} ({report['format']}, {size(report['n_bytes'])})"),
        ("rankings", f"{number(report['n_rankings'])}, total weight {number(report['total_weight'])}"),
        ("items", f"{number(report['n_items'])}: {_few_items(report['item_names'])}"),
        *([("features", ", ".join(report["feature_names"]))] if "feature_names" in report else []),
        *((f"person {name}", _few_items(levels or ["numbers"])) for name, levels in persons),
        ("layout", f"{report['n_partitions']} partitions, {report['n_leaves']} leaves of {report['leaf_rows']} rows"),
    ]
    lines += [("from", _event_line(event)) for event in report["history"]]
    if graph:
        kinds = ", ".join(f"{number(count)} {kind}" for kind, count in report["kinds"].items() if count)
        lines.append(("kinds", kinds))
        if silent := report["n_without_information"]:
            lines.append(("no information", without_information(silent, report["n_rankings"])))
        lines += _graph_lines(report["comparison_graph"])
        lines += _identified_lines(report["identifiability"])
    lines += [("rejected", _rejected_line(row)) for row in report.get("rejected_rows", [])]
    show(lines, report)


def _item_names(path: str) -> tuple[str, ...]:
    """The names of all items: those of a store or a model, or the lines of a file."""
    from plmix_dist.store import Location, manifest, mixture
    from plmix_dist.tables.encode import read_names

    place = Location.of(path)
    if place.exists(manifest.MANIFEST):
        return plm.open_store(place).item_names
    return tuple(mixture.load_model(place).record["item_names"]) if place.exists(mixture.MODEL) else read_names(path)


def _is_finished(part: str) -> bool:
    """Whether a part of a split is there. One that is not the same is an error later."""
    from plmix_dist.tables.write import exists

    return exists(part) if part.endswith(".npy") else _generation(part) is not None


def _set_message_of_store(store: str) -> None:
    """Set the message for an interruption while a store is written."""
    from plmix_dist.store import Location, manifest

    on_interruption(written_so_far(Location.of(store), manifest.PLAN, manifest.MANIFEST))


def _generation(store: str) -> int | None:
    """The generation of an existing store; it changes if anything is written."""
    with contextlib.suppress(StoreError):
        return plm.open_store(store).manifest.generation
    return None


_NOTHING_NEW = "the store already holds exactly this"
_COUNTED_ONCE = "the store has these contents, which are counted once; if they are other rankings, join the files"


def _show_made(
    store: plm.RankingStore,
    seconds: float,
    *,
    changed: bool,
    rows: list[str] | None = None,
    nothing: str = _NOTHING_NEW,
    dry_run: bool = False,
) -> None:
    event = store.manifest.history[-1]
    rejected, read_as = sum(event["rejected"].values()), event.get("read_as", [])
    record = {
        "store": None if dry_run else store.location.url,
        "n_rankings": store.n_rankings,
        "n_items": store.n_items,
        "total_weight": store.total_weight,
        "rejected": event["rejected"],
        "notes": event.get("notes", []),
        "changed": changed,
        "seconds": round(seconds, 3),
    }
    if rows is not None:
        record |= {"first_rankings": rows, "read_as": read_as}
    lines = [
        ("dry run", "nothing was written") if dry_run else ("store", store.location.url),
        ("rankings", f"{number(store.n_rankings)} of {number(store.n_items)} items"),
        ("weight", number(store.total_weight)),
    ]
    if rejected:
        reasons = ", ".join(f"{count} {reason}" for reason, count in event["rejected"].items())
        lines.append(("rejected", f"{number(rejected)} rows: {reasons} (plmix info --rejected lists them)"))
    lines += [("read as", _read_as_line(source)) for source in read_as[:_MOST_SOURCES]]
    lines += [("first" if not place else "", row) for place, row in enumerate(rows or [])]
    lines += [("guess", guess) for guess in dict.fromkeys(guess for source in read_as for guess in source["guesses"])]
    if left_out := dict.fromkeys(name for source in read_as for name in source.get("left_out", [])):
        lines.append(("left out", f"columns {few([repr(name) for name in left_out])}"))
    lines += [("note", note) for note in (*event.get("notes", []), *_names_alike(store.item_names))]
    speed = f"{seconds:.2f} s, {number(round(store.n_rankings / max(seconds, 1e-9)))} rankings/s"
    lines.append(("time", speed) if changed else ("nothing to do", nothing))
    show(lines, record)


def _names_alike(names: tuple[str, ...]) -> list[str]:
    """A note if names of items differ in capitals or blanks alone: most often they were meant to be one."""
    by_form: dict[str, list[str]] = {}
    for name in names:
        by_form.setdefault(" ".join(name.casefold().split()), []).append(name)
    if not (alike := [found for found in by_form.values() if len(found) > 1]):
        return []
    shown = "; ".join(" and ".join(map(repr, found)) for found in alike[:_MOST_SOURCES])
    return [f"items that differ in capitals or blanks alone are different items: {shown}"]


def _read_as_line(source: dict[str, Any]) -> str:
    """How a table was understood."""
    if source["delimiter"] is None:
        lists = source["format"] == "parquet" and not source["name"].endswith((".parquet", ".pq"))
        return f"{'lists (--format parquet)' if lists else source['format']}: {source['name']}"
    sign = {"\t": "tabs", ",": "commas", ";": "semicolons", " ": "spaces"}.get(source["delimiter"], source["delimiter"])
    header = "with a header" if source["header"] else "without a header"
    return f"{source['format']} (fields divided by {sign}, {header}): {source['name']}"


def _event_line(event: dict[str, Any]) -> str:
    names = [source["name"] for source in event["sources"]]
    rejected = sum(event["rejected"].values())
    turned_away = f", {number(rejected)} rows rejected" if rejected else ""
    return f"{event['kind']}{' of ' + few(names, 3) if names else ''}, {event['finished']}{turned_away}"


def _rejected_line(row: dict[str, Any]) -> str:
    unit = "line" if "line" in row else "row"
    return f"{row['file']}, {unit} {row[unit]}: {row['message']}"


def _graph_lines(graph: dict[str, Any]) -> list[tuple[str, str]]:
    if graph["n_groups"] == 1:
        return [("comparisons", "every item is connected with every other, both above and below")]
    lines = [("comparisons", f"{graph['n_groups']} groups; the largest has {graph['largest_group']} items")]
    keys = ("never_offered", "never_above_another", "never_below_another")
    return lines + [(key.replace("_", " "), _few_items(graph[key])) for key in keys if graph[key]]


def _few_items(names: list[Any]) -> str:
    from plmix_dist.tables.encode import shown_in_list

    return few([shown_in_list(str(name)) for name in names])


def _identified_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Which numbers of components the rankings identify."""
    lines = [("identified", f"K <= {found['certain']} components, for all parameters")]
    if found["generic"] > found["certain"]:
        lines.append(("", f"K <= {number(found['generic'])} components, for almost all parameters"))
    return [*lines, ("", f"no more: {found['why_no_more']}")]


def _pairs(texts: tuple[str, ...], option: str, form: str) -> dict[str, str]:
    from plmix_dist.tables.words import LISTS_OF_COLUMNS

    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise SettingsError(f"{option} takes {form} but got {text!r}")
        # Roles that take several columns may have them one by one.
        found[name] = f"{found[name]},{value}" if name in found and name in LISTS_OF_COLUMNS else value
    return found


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingsError(f"--shares takes numbers such as 0.8,0.2, but got {text!r}") from None
