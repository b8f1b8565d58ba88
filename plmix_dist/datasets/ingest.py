"""ingest(): plan, scan, write partitions in parallel, check, publish."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from numpy.typing import ArrayLike, NDArray

from plmix_dist.cluster.clients import ClientLike
from plmix_dist.cluster.executor import Executor, executor_for, run_all
from plmix_dist.datasets import plan as planning
from plmix_dist.datasets.plan import ArrayPart, FilePart, IngestPlan
from plmix_dist.errors import IngestError, RankingError, SettingsError, visible
from plmix_dist.rankings import Ranking, RankingBlock, Unranked
from plmix_dist.rankings.block import concatenate
from plmix_dist.rankings.checks import n_without_information, without_information
from plmix_dist.rankings.groups import default_leaf_rows, merge_equal_rows
from plmix_dist.settings import one_of, real_number, shown, whole_number, yes_or_no
from plmix_dist.store import Location, RankingStore, RejectedRows, open_store
from plmix_dist.store.arrays import CHUNK_BYTES
from plmix_dist.store.partition import PartitionTask, WritePlan, write_partition
from plmix_dist.store.writer import WriteSession, check_output
from plmix_dist.tables.encode import Encoder, OnError, shown_in_list
from plmix_dist.tables.format import ReadOptions, check_columns
from plmix_dist.tables.frames import Names, frame_of
from plmix_dist.tables.registry import FORMATS, column_role_names, format_named
from plmix_dist.tables.words import LISTS_OF_COLUMNS, number_text

# Checks of the whole store before it is published: counts in headers, and consecutive rows of each group.


def _check_counts(work: IngestPlan, on_error: OnError) -> list[str]:
    """Compare the counts in headers with the rows found.

    A wrong count is an error if `on_error` is "raise"; otherwise it becomes a note.
    """
    notes = []
    for part in work.parts:
        if not isinstance(part, FilePart) or part.slice.start != part.slice.header.body_offset:
            continue
        url, header = part.slice.file.url, part.slice.header
        n_rows, total_weight = work.counts[url]
        for what, promised, counted in (
            ("rows (unique orders)", header.n_rows, n_rows),
            ("voters", header.total_weight, total_weight),
        ):
            if promised is not None and promised != counted:
                notes.append(
                    f"{url}: the header says {number_text(promised)} {what}, but there are {number_text(counted)}"
                )
    if notes and on_error == "raise":
        raise IngestError(f"{notes[0]}; correct the header, or choose --on-error drop or --on-error quarantine")
    return notes


def _without_information(store: RankingStore) -> list[str]:
    """A note of how many rows say nothing. Partitions without ties have none."""
    tied = [number for number in range(store.n_partitions) if "tied" in store.index(number).columns]
    blocks = (block for number in tied for block in store.partition(number, labels=False))
    count = sum(n_without_information(block) for block in blocks)
    return [without_information(count, store.n_rankings)] if count else []


def check_groups(store: RankingStore) -> None:
    """An error if the rows of a group are not consecutive. A group is one person, and never spans two leaves."""
    if (twice := store.label_twice("groups", range(store.n_partitions))) is not None:
        raise IngestError(f"the rankings of group {visible(str(twice))} are not consecutive; sort the source by group")


def ingest(
    source: Any,
    store: str | os.PathLike[str] | Location,
    *,
    format: str = "auto",  # noqa: A002 - the name users know
    unranked: Unranked | None = None,
    on_error: OnError = "raise",
    most_dropped: float = 0.05,
    merge: bool = False,
    append: bool = False,
    overwrite: bool = False,
    item_names: Sequence[str] | None = None,
    n_items: int | None = None,
    weights: ArrayLike | None = None,
    columns: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    where: Sequence[str] = (),
    trait: str | None = None,
    choices: Mapping[str, str] | None = None,
    leaf_rows: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    client: ClientLike = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RankingStore:
    r"""Read rankings from files, URLs or arrays into a store.

    A second run with the same sources and settings continues the first, or does nothing if it is finished.
    Rows are read in batches, so memory does not grow with the source.

    Parameters
    ----------
    source
        A path, glob or URL, or several; a pandas, Polars or Arrow table, read as a file with these columns is; or an
        integer array (rankings, places), NumPy or Dask, with items numbered from 0, best first, -1 after the end of
        a row. The contents of a file are counted once, also if several files have them.
    store
        Path or URL of the store to make or, with `append`, to add to.
    format
        "auto" by suffix and first lines, or "preflib", "orderings", "wide", "ranks", "scores", "long", "parquet".
    unranked
        What unlisted items mean: "below" (on offer, ranked below) or "absent" (not on offer). Needed if
        the source does not say it; PrefLib .soi and .toi default to "below".
    on_error
        "raise" stops at the first bad row; "drop" leaves bad rows out and lists them in the store;
        "quarantine" lists them with their contents.
    most_dropped
        The largest share of bad rows that "drop" leaves out; more are an error.
    merge
        Merge equal rows of a partition into one, with the sum of their weights. Ranking ids are dropped.
    append
        Add to a finished store. Its items do not change.
    overwrite
        Whether to replace another store that is there: it is removed after the sources were scanned, before the new
        one is written. Without it another store is an error. The same ingest again does nothing.
    item_names
        All items in order, if the source does not name them or some never occur.
    n_items, weights
        For arrays: the number of items, and one weight per row.
    columns
        The column name of each role, such as ``{"id": "ballot", "rank": "choice"}``. "places" names the places of a
        wide table, best first, and "ignore" columns to leave out, each with commas between the names.
    delimiter
        The delimiter of text; by default a comma, semicolon or tab, as the first lines show.
    header
        Whether the first line of text names the columns. By default the first lines show it; if they do not, this is an
        error. Columns without names are numbered from 1.
    where
        Conditions on columns, such as ``["language=English", "winner!=both_bad"]``: rows that meet all are read.
    trait
        Of files that compare the same items in several traits (best-worst), the trait that is read.
    choices
        What the file cannot say, by name: ``{"contest": "Mayor", "overvote": "skip"}``. The page of formats lists the
        choices of each.
    client
        As in PlackettLuceMixture.fit: a Dask client, a cluster, or the address of a scheduler; None takes the active
        client if there is one; False stays in this process.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "drinks.csv").write_text("count,ordering\n3,tea coffee\n2,coffee tea\n")
    >>> store = ingest(folder / "drinks.csv", folder / "drinks")
    >>> store.item_names, store.total_weight
    (('coffee', 'tea'), 5.0)
    """
    _check_settings(on_error, unranked, columns)
    _check_choices(choices)
    for name, value in (("merge", merge), ("append", append), ("overwrite", overwrite)):
        yes_or_no(name, value)
    if append and overwrite:
        raise SettingsError("append adds to a store, and overwrite replaces it; choose one of them")
    whole_number("chunk_bytes", chunk_bytes, at_least=1)
    if leaf_rows is not None:
        whole_number("leaf_rows", leaf_rows, at_least=1)
    location = Location.of(store)
    # Before the sources are read.
    check_output(location, append=append, overwrite=overwrite, sources=_paths_of(source))
    target = open_store(location) if append else None
    options = replace(_read_options(delimiter, columns, header, where), trait=trait, choices=dict(choices or {}))
    if merge and (options.features or options.persons):
        what = "features" if options.features else "columns about persons"
        raise SettingsError(f"rankings with {what} are not merged, for equal ones may differ in these; leave merge out")
    _check_columns_of_target(target, options)
    runner = executor_for(executor or client)
    known = planning.known_names(item_names, target)
    if planning.is_array(source):
        _refuse_unused("an array", format=format, columns=columns, delimiter=delimiter, header=header, choices=choices)
        work = planning.plan_array(source, weights, n_items, known, runner)
    else:
        _refuse_unused("a file or a table, which names its own items and weights", weights=weights, n_items=n_items)
        work = _plan(source, format, options, known, runner, target)
    rules = Rules(unranked, on_error, merge)
    real_number("most_dropped", most_dropped, at_least=0.0, at_most=1.0)
    if target is not None and not work.parts:
        return target  # it has the contents of all sources already
    if target is not None:
        work = _fit_labels(work, target, merge)
        leaf_rows = leaf_rows or target.manifest.leaf_rows
    plan = WritePlan(
        "ingest",
        list(work.item_names),
        leaf_rows or default_leaf_rows(len(work.item_names)),
        n_partitions=len(work.parts),
        settings=asdict(rules) | options.as_settings(),
        sources=work.sources,
        chunk_bytes=chunk_bytes,
        feature_names=options.features,
        person_columns=[(name, []) for name in options.persons],
    )
    with WriteSession.begin(location, plan, append=append, overwrite=overwrite) as session:
        if session.already_done:
            return session.finalise()
        try:
            notes = _write_partitions(session, work, rules, runner, progress)
            notes += _share_dropped(session.draft(), work, most_dropped if on_error == "drop" else 1.0)
        except (IngestError, RankingError):
            session.abandon()  # the source is wrong, so no second run can continue
            raise
        return session.finalise({"paths": work.paths, "notes": notes, "read_as": work.read_as})


def _check_columns_of_target(target: RankingStore | None, options: ReadOptions) -> None:
    """An error if what is added to a store has other features or columns of persons than are there."""
    there = {} if target is None else {"features": list(target.feature_names), "persons": list(target.person_columns)}
    for role, names in there.items():
        if names != (added := getattr(options, role)):
            raise SettingsError(
                f"the store has the {role} {', '.join(names) or 'none'}, and what is added has "
                f"{', '.join(added) or 'none'}; name the same with --column {role}=..."
            )


def _plan(
    source: Any, form: str, options: ReadOptions, known: Names | None, runner: Executor, target: RankingStore | None
) -> IngestPlan:
    """The plan for files, or for a table in memory."""
    if (frame := frame_of(source)) is None:
        return planning.plan_files(source, form, options, known, runner, target)
    _refuse_unused("a table in memory", delimiter=options.delimiter, header=options.header)
    return planning.plan_frame(frame, form, options, known, runner)


def _refuse_unused(source: str, **given: Any) -> None:
    """An error for the first setting with a value that this kind of source does not use."""
    unused = next((name for name, value in given.items() if value is not None and not _is_default(value)), None)
    if unused is not None:
        raise SettingsError(f"{unused} is not used for {source}; leave it out")


def _is_default(value: Any) -> bool:
    return isinstance(value, str | dict) and value in ("auto", {})


def _paths_of(source: Any) -> list[str]:
    """The paths and URLs of a source; none if it is an array."""
    several = source if isinstance(source, list | tuple) else [source]
    return [os.fspath(one) for one in several if isinstance(one, str | os.PathLike)]


def _check_settings(on_error: OnError, unranked: Unranked | None, columns: Mapping[str, str] | None) -> None:
    """An error for settings that are not allowed."""
    one_of("on_error", on_error, ("raise", "drop", "quarantine"))
    if unranked is not None:
        one_of("unranked", unranked, ("below", "absent"))
    check_columns({} if columns is None else columns, [*column_role_names(), *LISTS_OF_COLUMNS])


def _check_choices(choices: Mapping[str, str] | None) -> None:
    """An error for choices, or values of them, that no format has."""
    known = {name: values for form in FORMATS.values() for name, values in form.choices.items()}
    if choices is not None and not (isinstance(choices, Mapping) and all(isinstance(v, str) for v in choices.values())):
        raise SettingsError(f"choices must give a text for each name, but is {shown(choices)}")
    if (unknown := next((name for name in choices or {} if name not in known), None)) is not None:
        raise SettingsError(f"there is nothing called {unknown!r} to choose; choose from {', '.join(known)}")
    for name, value in (choices or {}).items():
        if known[name]:
            one_of(name, value, known[name])


def _read_options(
    delimiter: str | None, columns: Mapping[str, str] | None, header: bool | None, where: Sequence[str] = ()
) -> ReadOptions:
    """How to read text, after a check."""
    if delimiter == "\\t":  # as people type a tab on a command line
        delimiter = "\t"
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n'):
        raise SettingsError(
            f"the delimiter must be one character, but is {shown(delimiter)}; quotes and line ends are not delimiters"
        )
    if header is not None:
        yes_or_no("header", header)
    if isinstance(where, str) or not all(isinstance(one, str) for one in where):
        raise SettingsError(f"where takes a list of conditions such as ['language=English'], but is {shown(where)}")
    if (wrong := next((one for one in where if "=" not in one), None)) is not None:
        raise IngestError(f"--where takes NAME=VALUE or NAME!=VALUE, but got {wrong!r}")
    return ReadOptions(delimiter, dict(columns or {}), None if header is None else bool(header), where=tuple(where))


def _write_partitions(
    session: WriteSession, work: IngestPlan, rules: Rules, runner: Executor, progress: Callable[[int, int], None] | None
) -> list[str]:
    """Write all partitions that are missing, and check the whole; gives notes for the history."""
    pending = session.pending()
    numbers = [task.number - session.plan.first_partition for task in pending]
    parts = [work.parts[number] for number in numbers]
    tasks = [(task, part, _encoder(part, rules, work)) for task, part in zip(pending, parts, strict=True)]
    inputs = None if work.inputs is None else [work.inputs[number] for number in numbers]
    run_all(runner, partial(_ingest_partition, rules.merge), tasks, "ingest", progress, inputs)
    notes = _check_counts(work, rules.on_error)
    check_groups(session.draft())
    return [*work.notes, *notes, *_without_information(session.draft())]


def _share_dropped(store: RankingStore, work: IngestPlan, most: float) -> list[str]:
    """A note of the share of bad rows that were left out, and why; an error if it is larger than allowed."""
    event = store.manifest.history[-1]
    added = range(*event["partitions"])
    if not event["rejected"]:
        return []
    rows = list(store.rejected_rows(added))
    wrong = [row for row in rows if row.get("wrong", True)]
    right = {row["reason"] for row in rows if not row.get("wrong", True)}
    times = {reason: count for reason, count in event["rejected"].items() if reason not in right}
    n_wrong = sum(times.values())
    merges = any(isinstance(part, FilePart) and format_named(part.format).merges for part in work.parts)
    indexes = [store.index(number) for number in added]
    # Where equal rows are merged, their weight counts them.
    read = sum(index.total_weight if merges else index.n_rankings for index in indexes)
    n_rows = round(read) + sum(event["rejected"].values())
    share = n_wrong / max(1, n_rows)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in times.items())
    said = f"{n_wrong:,} of {n_rows:,} rows ({share:.1%}) cannot be read: {reasons}"
    if share > most:
        first = wrong[0]
        where = f"line {first['line']}" if "line" in first else f"row {first['row']}"
        raise IngestError(
            f"{said}; the first is {where}: {first['message']}. Correct the file or its options, or allow it with "
            f"--most-dropped {math.ceil(share * 100) / 100:g} (most_dropped in Python)"
        )
    return [said] if n_wrong else []


@dataclass(frozen=True)
class Rules:
    """What the user asked for, the same for every row."""

    unranked: Unranked | None
    on_error: OnError
    merge: bool


def _ingest_partition(
    merge: bool, task: tuple[PartitionTask, FilePart | ArrayPart, Encoder], *rows: NDArray[Any]
) -> int:
    """Read, check and write one partition; gives its number of rows. `rows` is the input of an ArrayPart."""
    partition, part, encoder = task
    rejected = RejectedRows()
    blocks = (encoder.encode(batch, rejected) for batch in part.read(*rows))
    return write_partition(partition, _merged(blocks) if merge else blocks, rejected).n_rankings


def _merged(blocks: Iterator[RankingBlock]) -> Iterator[RankingBlock]:
    """One block of all rows, equal rows merged."""
    merged: RankingBlock | None = None
    for block in blocks:
        if block.n_rankings:
            single = merge_equal_rows(block)
            merged = single if merged is None else merge_equal_rows(concatenate([merged, single]))
    if merged is not None:
        yield merged


def _fit_labels(work: IngestPlan, store: RankingStore, merge: bool) -> IngestPlan:
    """The plan with labels of the kind that the store has. Numbers to append may become text."""
    kinds: dict[str, Any] = {}
    for name, role in (("ids", "id"), ("groups", "group")):
        added, there = getattr(work, name), store.label_kind(name)
        written = "none" if name == "ids" and merge else added
        if there != written and (there, written) != ("text", "number"):
            raise IngestError(
                f"a {role} is {_KINDS[there]} in the store and {_KINDS[written]} in the new rankings; "
                "rankings to append must have the same kind of labels"
            )
        kinds[name] = there if written != "none" else added
    return replace(work, **kinds)


_KINDS = {"none": "given to no ranking", "number": "a number", "text": "text"}


def _encoder(part: FilePart | ArrayPart, rules: Rules, work: IngestPlan) -> Encoder:
    positions = {name: number for number, name in enumerate(work.item_names)}
    if isinstance(part, ArrayPart):
        lookup = {str(number): number for number in range(len(work.item_names))}
        return Encoder("array", work.item_names, lookup, rules.unranked, False, rules.on_error, "row")
    header, url = part.slice.header, part.slice.file.url
    if header.unranked == "absent" and rules.unranked == "below":
        why = header.guesses[-1] if part.format == "wide" else f"{part.format} list all that was on offer in a row"
        raise IngestError(f"{url}: {why}; leave out --unranked below")
    if header.item_labels is not None and header.item_names is not None:
        named = zip(header.item_labels, header.item_names, strict=True)
        positions = {label: positions[name] for label, name in named if name in positions}
    unranked, as_text = rules.unranked or header.unranked, (work.ids == "text", work.groups == "text")
    return Encoder(url, work.item_names, positions, unranked, header.complete, rules.on_error, header.unit, *as_text)


# The first rankings of an ingest in words, so that people see what was understood.

_MOST_PLACES = 12


def first_rankings(store: RankingStore, count: int = 3) -> list[str]:
    """The first rankings that the last run added to a store, in words, with item names escaped."""
    added = range(*store.manifest.history[-1]["partitions"])
    rows = (row for number in added for block in store.partition(number, labels=False) for row in block.rows())
    return [_in_words(row, store) for row in itertools.islice(rows, count)]


def _in_words(row: Ranking, store: RankingStore) -> str:
    """`tea > {mate, milk} > (all others), weight 3`; items on offer but not ordered follow a bar."""
    names = store.item_names
    places = [[shown_in_list(names[item]) for item in place] for place in row.ordered[:_MOST_PLACES]]
    words = [place[0] if len(place) == 1 else "{" + ", ".join(place) + "}" for place in places]
    if len(row.ordered) > _MOST_PLACES:
        words.append(f"... ({len(row.ordered)} places)")
    elif row.unranked == "below":
        words.append("(all others)")
    text = " > ".join(words)
    if row.offered:
        offered = ", ".join(shown_in_list(names[item]) for item in row.offered[:_MOST_PLACES])
        text += f" | {offered}{', ...' if len(row.offered) > _MOST_PLACES else ''}"
    return text if row.weight == 1 else f"{text}, weight {number_text(row.weight)}"
