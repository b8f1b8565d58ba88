"""ingest(): plan, scan, write partitions in parallel, check, publish."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from plmix_dist.engine import executor_for, run_all
from plmix_dist.errors import IngestError, RankingError, SettingsError
from plmix_dist.formats import ReadOptions
from plmix_dist.formats.encoder import Encoder
from plmix_dist.formats.format import COLUMN_NAMES
from plmix_dist.ingestion.checks import check_counts, check_groups
from plmix_dist.ingestion.ingest_plan import is_array, known_names, plan_array, plan_files
from plmix_dist.ingestion.source_parts import ArrayPart, FilePart
from plmix_dist.rankings.block import concatenate
from plmix_dist.rankings.leaves import default_leaf_rows
from plmix_dist.rankings.merge import merge_equal_rows
from plmix_dist.store import (
    Location,
    RejectedRows,
    WritePlan,
    WriteSession,
    check_output,
    open_store,
    write_partition,
)
from plmix_dist.store.arrays import CHUNK_BYTES
from plmix_dist.values import one_of, shown, whole_number, yes_or_no

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.engine import Executor
    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.formats.encoder import OnError
    from plmix_dist.ingestion.source_parts import IngestPlan, LabelKind
    from plmix_dist.rankings import RankingBlock, Unranked
    from plmix_dist.store import PartitionTask, RankingStore


def ingest(
    source: Any,
    store: str | os.PathLike[str] | Location,
    *,
    format: str = "auto",  # noqa: A002 - the name users know
    unranked: Unranked | None = None,
    on_error: OnError = "raise",
    merge: bool = False,
    append: bool = False,
    overwrite: bool = False,
    item_names: Sequence[str] | None = None,
    n_items: int | None = None,
    weights: ArrayLike | None = None,
    columns: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
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
        A path, glob or URL, or several; or an integer array (rankings, places), NumPy or Dask, with items
        numbered from 0, best first, -1 after the end of a row.
    store
        Path or URL of the store to make or, with `append`, to add to.
    format
        "auto" by suffix and first lines, or "preflib", "orderings", "wide", "ranks", "long", "parquet".
    unranked
        What unlisted items mean: "below" (on offer, ranked below) or "absent" (not on offer). Needed if
        the source does not say it; PrefLib .soi and .toi default to "below".
    on_error
        "raise" stops at the first bad row; "drop" leaves bad rows out and lists them in the store;
        "quarantine" lists them with their contents.
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
        The column name of each role, such as ``{"id": "ballot", "rank": "choice"}``.
    delimiter
        The delimiter of text; by default a comma, semicolon or tab, as the first lines show.
    header
        Whether the first line of text names the columns. By default the first lines show it; if they do not, this is an
        error. Columns without names are numbered from 1.
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
    yes_or_no("merge", merge)
    yes_or_no("append", append)
    yes_or_no("overwrite", overwrite)
    if append and overwrite:
        raise SettingsError("append adds to a store, and overwrite replaces it; choose one of them")
    whole_number("chunk_bytes", chunk_bytes, at_least=1)
    if leaf_rows is not None:
        whole_number("leaf_rows", leaf_rows, at_least=1)
    if hasattr(source, "columns") or hasattr(source, "column_names"):
        raise SettingsError(
            f"a source must be a path, a URL, several of these, or an array, but is a table ({type(source).__name__}); "
            "hand it to PlackettLuceMixture.fit, or save it as CSV or Parquet first"
        )
    location = Location.of(store)
    # Before the sources are read.
    check_output(location, append=append, overwrite=overwrite, sources=_paths_of(source))
    target = open_store(location) if append else None
    options = _read_options(delimiter, columns, header)
    runner = executor_for(executor or client)
    known = known_names(item_names, target)
    if is_array(source):
        work = plan_array(source, weights, n_items, known, runner)
    elif weights is not None or n_items is not None:
        raise SettingsError("weights and n_items are for arrays; files name their own items and weights")
    else:
        work = plan_files(source, format, options, known, runner)
    rules = Rules(unranked, on_error, merge)
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
    )
    with WriteSession.begin(location, plan, append=append, overwrite=overwrite) as session:
        if session.already_done:
            return session.finalise()
        try:
            notes = _write_partitions(session, work, rules, runner, progress)
        except (IngestError, RankingError):
            session.abandon()  # the source is wrong, so no second run can continue
            raise
        return session.finalise({"paths": work.paths, "notes": notes, "read_as": work.read_as})


def _paths_of(source: Any) -> list[str]:
    """The paths and URLs of a source; none if it is an array."""
    several = source if isinstance(source, list | tuple) else [source]
    return [os.fspath(one) for one in several if isinstance(one, str | os.PathLike)]


def _check_settings(
    on_error: OnError,
    unranked: Unranked | None,
    columns: Mapping[str, str] | None,
) -> None:
    """An error for settings that are not allowed."""
    one_of("on_error", on_error, ("raise", "drop", "quarantine"))
    if unranked is not None:
        one_of("unranked", unranked, ("below", "absent"))
    if columns is not None and not (
        isinstance(columns, Mapping)
        and all(isinstance(text, str) for pair in columns.items() for text in pair)
    ):
        raise SettingsError(f"columns must give a column name for each role, but is {shown(columns)}")
    roles = [*COLUMN_NAMES, "places"]
    unknown = sorted(set(columns or {}) - set(roles))
    if unknown:
        raise SettingsError(f"there is no column role {unknown[0]!r}; choose from {', '.join(roles)}")


def _read_options(
    delimiter: str | None, columns: Mapping[str, str] | None, header: bool | None
) -> ReadOptions:
    """How to read text, after a check."""
    if delimiter == "\\t":  # as people type a tab on a command line
        delimiter = "\t"
    if delimiter is not None and (
        not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n'
    ):
        raise SettingsError(
            f"the delimiter must be one character, but is {shown(delimiter)}; quotes and line ends are no delimiters"
        )
    if header is not None:
        yes_or_no("header", header)
    return ReadOptions(delimiter, dict(columns or {}), None if header is None else bool(header))


def _write_partitions(
    session: WriteSession,
    work: IngestPlan,
    rules: Rules,
    runner: Executor,
    progress: Callable[[int, int], None] | None,
) -> list[str]:
    """Write all partitions that are missing, and check the whole; gives notes for the history."""
    pending = session.pending()
    numbers = [task.number - session.plan.first_partition for task in pending]
    tasks = [
        _IngestTask(task, work.parts[number], rules.merge, _encoder(work.parts[number], rules, work))
        for task, number in zip(pending, numbers, strict=True)
    ]
    inputs = None if work.inputs is None else [work.inputs[number] for number in numbers]
    run_all(runner, _ingest_partition, tasks, "ingest", progress, inputs)
    notes = check_counts(work, rules.on_error)
    check_groups(session.draft())
    return notes


@dataclass(frozen=True)
class Rules:
    """What the user asked for, the same for every row.

    Examples
    --------
    >>> Rules(unranked="below", on_error="drop", merge=False).on_error
    'drop'
    """

    unranked: Unranked | None
    on_error: OnError
    merge: bool


@dataclass(frozen=True)
class _IngestTask:
    """What a worker must know to read one part of a source into one partition."""

    partition: PartitionTask
    part: FilePart | ArrayPart
    merge: bool
    encoder: Encoder


def _ingest_partition(task: _IngestTask, *rows: NDArray[Any]) -> int:
    """Read, check and write one partition; gives its number of rows. `rows` is the input of an ArrayPart."""
    rejected = RejectedRows()
    blocks = (task.encoder.encode(batch, rejected) for batch in task.part.read(*rows))
    return write_partition(task.partition, _merged(blocks) if task.merge else blocks, rejected).n_rankings


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
    kinds: dict[str, LabelKind] = {}
    added: LabelKind
    for name, role, added in (("ids", "id", work.ids), ("groups", "group", work.groups)):
        there = store.label_kind(name)
        written: LabelKind = "none" if name == "ids" and merge else added
        if there != written and (there, written) != ("text", "number"):
            raise IngestError(
                f"a {role} is {_KINDS[there]} in the store and {_KINDS[written]} in the new rankings; "
                "rankings to append must have the same kind of labels"
            )
        kinds[name] = there if written != "none" else added
    return replace(work, ids=kinds["ids"], groups=kinds["groups"])


_KINDS = {"none": "given to no ranking", "number": "a number", "text": "text"}


def _encoder(part: FilePart | ArrayPart, rules: Rules, work: IngestPlan) -> Encoder:
    positions = {name: number for number, name in enumerate(work.item_names)}
    if isinstance(part, ArrayPart):
        lookup = {str(number): number for number in range(len(work.item_names))}
        return Encoder("array", work.item_names, lookup, rules.unranked, False, rules.on_error, "row")
    header = part.slice.header
    if header.item_labels is not None and header.item_names is not None:
        named = zip(header.item_labels, header.item_names, strict=True)
        positions = {label: positions[name] for label, name in named if name in positions}
    return Encoder(
        url=part.slice.file.url,
        item_names=work.item_names,
        lookup=positions,
        unranked=rules.unranked or header.unranked,
        complete=header.complete,
        on_error=rules.on_error,
        unit=part.unit,
        text_ids=work.ids == "text",
        text_groups=work.groups == "text",
    )
