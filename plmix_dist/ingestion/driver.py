"""ingest(): files, URLs or arrays into a store - plan, scan, write partitions in parallel, check, publish."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from plmix_dist.store import Location, RejectedRows, WritePlan, WriteSession, open_store, write_partition
from plmix_dist.store.arrays import CHUNK_BYTES

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distributed import Client
    from numpy.typing import ArrayLike

    from plmix_dist.engine import Executor
    from plmix_dist.formats.encoder import OnError
    from plmix_dist.ingestion.source_parts import IngestPlan
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
    item_names: Sequence[str] | None = None,
    n_items: int | None = None,
    weights: ArrayLike | None = None,
    columns: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    leaf_rows: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    client: Client | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RankingStore:
    r"""Read rankings from files, URLs or arrays into a store.

    A second run with the same sources and settings continues what was begun, or finds it done and does
    nothing. Nothing is held whole in memory.

    Parameters
    ----------
    source
        A path, glob or URL, or several; or an integer array (rankings, places), NumPy or Dask, with items
        numbered from 0, best first, -1 where a row ends.
    store
        Path or URL of the store to make or, with `append`, to add to.
    format
        "auto" by suffix and columns, or "preflib", "orderings", "wide", "long", "parquet".
    unranked
        What items mean that a row does not list: "below" (on offer, ranked below) or "absent" (not on
        offer). Must be said where the source does not say; PrefLib .soi and .toi default to "below".
    on_error
        "raise" stops at the first bad row; "drop" leaves bad rows out and lists them in the store;
        "quarantine" lists them with their contents.
    merge
        Make equal rows of a partition one, with the sum of their weights. Ranking ids are dropped.
    append
        Add to a finished store; its items stay as they are.
    item_names
        All items in order, where the source does not name them or some never occur.
    n_items, weights
        For arrays: the number of items, and a weight for each row.
    columns
        Which column holds what, such as ``{"id": "ballot", "rank": "choice"}``.
    delimiter
        Of delimited text; by default a comma, or a tab for .tsv.
    client
        A Dask client; without one the work is done in this process.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "drinks.csv").write_text("count,ordering\n3,tea coffee\n2,coffee tea\n")
    >>> store = ingest(folder / "drinks.csv", folder / "drinks")
    >>> store.item_names, store.total_weight
    (('coffee', 'tea'), 5.0)
    """
    if on_error not in ("raise", "drop", "quarantine"):
        raise SettingsError(f"on_error must be raise, drop or quarantine, but is {on_error!r}")
    if delimiter is not None and len(delimiter) != 1:
        raise SettingsError(f"the delimiter must be one character, but is {delimiter!r}")
    if unranked not in (None, "below", "absent"):
        raise SettingsError(f"unranked must be below or absent, but is {unranked!r}")
    roles = [*COLUMN_NAMES, "places"]
    unknown = sorted(set(columns or {}) - set(roles))
    if unknown:
        raise SettingsError(f"there is no column role {unknown[0]!r}; choose from {', '.join(roles)}")
    location = Location.of(store)
    options = ReadOptions(delimiter, dict(columns or {}))
    runner = executor_for(executor or client)
    known = known_names(item_names, location if append else None)
    if is_array(source):
        work = plan_array(source, weights, n_items, known, runner)
    else:
        if weights is not None or n_items is not None:
            raise SettingsError(
                "weights and n_items go with arrays; files name their items and weights themselves"
            )
        work = plan_files(source, format, options, known, runner)
    if append:
        work = _fit_labels(work, open_store(location), merge)
    rules = Rules(unranked, on_error, merge)
    settings = {"unranked": unranked, "on_error": on_error, "merge": merge, "columns": dict(options.columns)}
    plan = WritePlan(
        "ingest",
        list(work.item_names),
        leaf_rows
        or (open_store(location).manifest.leaf_rows if append else default_leaf_rows(len(work.item_names))),
        n_partitions=len(work.parts),
        settings=settings | {"delimiter": delimiter},
        sources=work.sources,
        chunk_bytes=chunk_bytes,
    )
    with WriteSession.begin(location, plan, append=append) as session:
        if session.already_done:
            return session.finalise()
        pending = session.pending()
        tasks = [_task(task, work.parts[_place(session, task)], rules, work) for task in pending]
        try:
            inputs = None if work.inputs is None else [work.inputs[_place(session, task)] for task in pending]
            run_all(runner, ingest_partition, tasks, "ingest", progress, inputs)
            extra = {"paths": work.paths, "notes": check_counts(work, on_error)}
            check_groups(session.draft())
        except (IngestError, RankingError):
            session.abandon()  # the source itself is at fault: no second run can continue from here
            raise
        return session.finalise(extra)


@dataclass(frozen=True)
class Rules:
    """What the user asked for, the same for every row."""

    unranked: Unranked | None
    on_error: OnError
    merge: bool


@dataclass(frozen=True)
class IngestTask:
    """What a worker must know to read one part into one partition."""

    partition: PartitionTask
    part: FilePart | ArrayPart
    merge: bool
    encoder: Encoder


def ingest_partition(task: IngestTask, *rows: Any) -> int:
    """Read, check and write one partition, from a file or from the rows that are given; its number of rows."""
    rejected = RejectedRows()
    blocks = (task.encoder.encode(batch, rejected) for batch in task.part.read(*rows))
    return write_partition(task.partition, _merged(blocks) if task.merge else blocks, rejected).n_rankings


def _merged(blocks: Iterator[RankingBlock]) -> Iterator[RankingBlock]:
    """All rows of a partition with equal ones made one."""
    merged: RankingBlock | None = None
    for block in blocks:
        if block.n_rankings:
            single = merge_equal_rows(block)
            merged = single if merged is None else merge_equal_rows(concatenate([merged, single]))
    if merged is not None:
        yield merged


def _fit_labels(work: IngestPlan, store: RankingStore, merge: bool) -> IngestPlan:
    """Labels of the kind that a store has, for rows to be appended; numbers can stand beside text, as text."""
    kinds: dict[str, Any] = {}
    for name, role in (("ids", "id"), ("groups", "group")):
        there, added = store.label_kind(name), getattr(work, name)
        if name == "ids" and merge:
            added = "none"
        if there == added or (there, added) == ("text", "number"):
            kinds[name] = there if added != "none" else getattr(work, name)
            continue
        raise IngestError(
            f"a {role} is {_KINDS[there]} in the store and {_KINDS[added]} in the new rankings; "
            "rankings to append must be labelled alike"
        )
    return replace(work, **kinds)


_KINDS = {"none": "given to no ranking", "number": "a number", "text": "text"}


def _place(session: WriteSession, task: PartitionTask) -> int:
    return task.number - session.plan.first_partition


def _task(partition: PartitionTask, part: FilePart | ArrayPart, rules: Rules, work: IngestPlan) -> IngestTask:
    return IngestTask(partition, part, rules.merge, _encoder(part, rules, work))


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
