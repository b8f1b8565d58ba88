"""ingest_ratings(): read ratings, gather them by user, filter, complete, rank, and write a store."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

from plmix_dist.cluster.clients import ClientLike
from plmix_dist.cluster.executor import Executor, executor_for, run_all
from plmix_dist.datasets.ratings import shuffle
from plmix_dist.datasets.ratings.leaf import LeafMaker, LeafSummary
from plmix_dist.datasets.ratings.selection import Leaves, RankedLeaf, select
from plmix_dist.errors import IngestError, SettingsError, StoreExistsError
from plmix_dist.rankings import default_leaf_rows
from plmix_dist.settings import RandomState, one_of, real_number, seed_of, shown, whole_number, yes_or_no
from plmix_dist.store import HOW_TO_REPLACE, Location, RankingStore, WriteSession, check_output, open_store
from plmix_dist.store.arrays import CHUNK_BYTES
from plmix_dist.store.manifest import MANIFEST
from plmix_dist.store.partition import PartitionTask, RejectedRows, WritePlan, write_partition
from plmix_dist.tables.encode import OnError, checked_names, natural_order
from plmix_dist.tables.format import ReadOptions, check_columns
from plmix_dist.tables.ratings import COLUMN_NAMES, RATINGS
from plmix_dist.tables.registry import open_table, slices_of
from plmix_dist.tables.sources import Slice, file_digest, find, find_sources

# RatingSettings: which ratings are used, and how they become rankings.

Duplicates = Literal["last", "refuse"]
_Choose = Literal["most-rated", "rank-variance"]


@dataclass(frozen=True)
class RatingSettings:
    """What the user asked for."""

    min_user_ratings: int = 1
    min_item_ratings: int = 1
    n_items: int | None = None
    choose: _Choose | None = None
    complete: int | None = None
    ridge: float = 0.1
    tol: float = 1e-4
    max_sweeps: int = 200
    duplicates: Duplicates | None = None
    on_error: OnError = "raise"
    columns: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("min_user_ratings", self.min_user_ratings, at_least=1)
        whole_number("min_item_ratings", self.min_item_ratings, at_least=1)
        if self.n_items is not None:
            whole_number("n_items", self.n_items, at_least=2)
        if self.choose is not None:
            one_of("choose", self.choose, ("most-rated", "rank-variance"))
            if self.n_items is None:
                raise SettingsError("choose says how n_items items are chosen; give n_items too")
        if self.complete is not None:
            whole_number("complete", self.complete, at_least=1)
        real_number("ridge", self.ridge, above=0)
        real_number("tol", self.tol, above=0)
        whole_number("max_sweeps", self.max_sweeps, at_least=1)
        if self.duplicates is not None:
            one_of("duplicates", self.duplicates, ("last", "refuse"))
        one_of("on_error", self.on_error, ("raise", "drop", "quarantine"))
        check_columns(self.columns, COLUMN_NAMES, " in ratings")
        if self.delimiter is not None and (not isinstance(self.delimiter, str) or not self.delimiter):
            raise SettingsError(f"the delimiter must be text, but is {shown(self.delimiter)}")

    def as_record(self) -> dict[str, Any]:
        """The settings as plain values, for the history of a store."""
        return {"format": "ratings", **asdict(self), "columns": dict(self.columns)}


class RatingPart(NamedTuple):
    """A run of lines or of row groups that one task reads: its place among all parts, that of its file, and the run."""

    number: int
    file_number: int
    slice: Slice


def _plan_parts(urls: Sequence[str], settings: RatingSettings) -> list[RatingPart]:
    """All parts of all files, in order; an error if only some files have times."""
    parts: list[RatingPart] = []
    options = ReadOptions(settings.delimiter, settings.columns)
    with_times: dict[str, bool] = {}
    for file_number, url in enumerate(urls):
        file = find(url)
        _, header = open_table(file, options, RATINGS)
        with_times[url] = "time" in header.roles
        cut = slices_of(RATINGS, file, header)
        parts += [RatingPart(len(parts) + n, file_number, one) for n, one in enumerate(cut)]
    if len(set(with_times.values())) > 1:
        without = next(url for url, timed in with_times.items() if not timed)
        raise IngestError(f"{without} has no column of times, but another source has one; give all of them times")
    return parts


def ingest_ratings(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    store: str | os.PathLike[str] | Location,
    *,
    min_user_ratings: int = 1,
    min_item_ratings: int = 1,
    n_items: int | None = None,
    choose: _Choose | None = None,
    complete: int | None = None,
    ridge: float = 0.1,
    tol: float = 1e-4,
    max_sweeps: int = 200,
    duplicates: Duplicates | None = None,
    on_error: OnError = "raise",
    columns: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    random_state: RandomState = 0,
    overwrite: bool = False,
    leaf_rows: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    client: ClientLike = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RankingStore:
    r"""Read a table of users, items and ratings into a store of rankings, one per user.

    Without `complete`, a ranking lists the items that the user rated, highest first; equal ratings are ties, and items
    without a rating were not on offer. With `complete`, the matrix of ratings is completed by non-negative factors of
    users and items, and every user has a full ranking of the chosen items by the completed ratings. The user is the id
    of the ranking. The store is the same for any number of workers and threads.

    Parameters
    ----------
    source
        A path, glob or URL, or several: delimited text or Parquet with columns for user, item, rating and, optionally,
        time. Text without a header has them in this order.
    store
        Path or URL of the store to make.
    min_user_ratings, min_item_ratings
        Users and items with fewer ratings are left out. This is repeated until all that are left have enough.
    n_items, choose
        Rank only this many items: "most-rated" takes those with most ratings, "rank-variance" those whose rank varies
        most between users. By default "rank-variance" with `complete`, and "most-rated" without.
    complete
        The rank of the completion, such as 30; None for no completion.
    ridge, tol, max_sweeps
        Of the completion: the penalty on squared factors per rating; the optimality residual at which it ends; the
        largest number of sweeps.
    duplicates
        If a user rated an item twice: "last" keeps the last rating by time or, without times, in the order of the
        source; "refuse" is an error. By default "last" with times, and "refuse" without.
    on_error
        "raise" stops at the first bad row; "drop" leaves bad rows out and lists them in the store; "quarantine" lists
        them with their contents.
    columns
        The column name of each role (user, item, rating, time), if it is not a usual one.
    delimiter
        The delimiter of text, such as "::"; by default it is found in the first line.
    random_state
        The seed of the completion's start.
    overwrite
        Replace a store that is there.
    client
        As in PlackettLuceMixture.fit: a Dask client, a cluster, or the address of a scheduler; None takes the active
        client if there is one; False stays in this process.

    Returns
    -------
    RankingStore
        Its history counts the ratings: rows = used + bad + duplicates + left out by each filter.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> table = "user,item,rating\nann,tea,5\nann,mate,3\nann,milk,3\nbob,tea,1\nbob,milk,4\n"
    >>> _ = (folder / "drinks.csv").write_text(table)
    >>> drinks = ingest_ratings(folder / "drinks.csv", folder / "drinks", client=False)
    >>> drinks.item_names, [row.ordered for block in drinks.iter_leaves() for row in block.rows()]
    (('mate', 'milk', 'tea'), [((2,), (0, 1)), ((1,), (2,))])
    """
    settings = RatingSettings(
        min_user_ratings, min_item_ratings, n_items, choose, complete, ridge, tol, max_sweeps, duplicates, on_error,
        dict(columns or {}), delimiter, seed_of(random_state),
    )  # fmt: skip
    leaf_rows = None if leaf_rows is None else whole_number("leaf_rows", leaf_rows, at_least=1)
    whole_number("chunk_bytes", chunk_bytes, at_least=1)
    location = Location.of(store)
    runner = executor_for(executor or client)
    urls = find_sources([*source] if isinstance(source, Iterable) and not isinstance(source, str) else [source])
    check_output(location, overwrite=yes_or_no("overwrite", overwrite), sources=urls)
    sources = _identities(urls, runner)
    if not overwrite and (made := _made_before(location, settings, sources)) is not None:
        return made
    scratch = shuffle.Scratch.beside(location)
    try:
        leaves = _read(runner, scratch, urls, settings, progress)
        ranked, names, report, notes = select(runner, leaves, settings, progress)
        plan = WritePlan(
            "ingest",
            list(checked_names(names, urls[0])),
            leaf_rows or default_leaf_rows(len(names)),
            n_partitions=leaves.n_leaves,
            settings=settings.as_record(),
            sources=sources,
            chunk_bytes=chunk_bytes,
        )
        with WriteSession.begin(location, plan, overwrite=overwrite) as session:
            run_all(runner, partial(_write_leaf, leaves, ranked), session.pending(), "ingest", progress)
            return session.finalise({"paths": urls, **_report(leaves, report, notes)})
    finally:
        scratch.remove()


def _identities(urls: list[str], runner: Executor) -> list[dict[str, Any]]:
    """Records that identify the contents of the source."""
    digests = run_all(runner, file_digest, urls, "hash")
    files = [find(url) for url in urls]
    return [
        {"name": file.name, "size": file.size, "format": "ratings", "metadata": {}, "sha256": digest}
        for file, digest in zip(files, digests, strict=True)
    ]


def _made_before(location: Location, settings: RatingSettings, sources: list[dict[str, Any]]) -> RankingStore | None:
    """The store, if it was made from the same ratings with the same settings; an error if there is another."""
    if not location.exists(MANIFEST):
        return None
    found = open_store(location)
    event = found.manifest.history[0]
    if event["settings"] != settings.as_record() or event["sources"] != sources:
        raise StoreExistsError(
            f"{location.url} already holds another store, of {found.n_rankings:,} rankings; {HOW_TO_REPLACE}"
        )
    return found


def _read(
    runner: Executor,
    scratch: shuffle.Scratch,
    urls: list[str],
    settings: RatingSettings,
    progress: Callable[[int, int], None] | None,
) -> Leaves:
    """Read all parts, and gather the ratings of each user in one leaf."""
    parts = _plan_parts(urls, settings)
    shuffle_part = partial(shuffle.shuffle_part, scratch, settings.on_error)
    found: list[shuffle.Shuffled] = run_all(runner, shuffle_part, parts, "read-ratings", progress)
    n_good = sum(one.n_rows for one in found)
    rejected = sum((Counter(one.rejected) for one in found), Counter[str]())
    if not n_good:
        raise IngestError(f"no rating was found in {urls[0]}; rejected rows by reason: {dict(rejected) or 'none'}")
    maker = LeafMaker(
        scratch,
        [name for one in found for name in one.files],
        shuffle.n_leaves_for(n_good),
        tuple(natural_order(set().union(*(one.items for one in found)))),
        tuple(urls),
        settings.duplicates or ("last" if "time" in parts[0].slice.header.roles else "refuse"),
    )
    summary: LeafSummary = shuffle.sum_over_leaves(runner, maker, maker.n_leaves, "gather-ratings")
    scratch.forget(*maker.files)
    return Leaves(
        scratch,
        maker.n_leaves,
        maker.item_names,
        numbers=not summary.n_text_users,
        n_rows=n_good + sum(one.n_bad for one in found),
        rejected=dict(sorted(rejected.items())),
        bad_parts=[part.number for part, one in zip(parts, found, strict=True) if one.n_bad],
        n_duplicates=summary.n_rows - summary.n_ratings,
    )


def _write_leaf(leaves: Leaves, ranked: RankedLeaf, task: PartitionTask) -> int:
    """Write the rankings of one leaf. The first also lists the bad rows."""
    rejected = RejectedRows()
    if task.number == 0:
        rejected = RejectedRows(dict(leaves.rejected), shuffle.rejected_lines(leaves.scratch, leaves.bad_parts))
    return write_partition(task, ranked.blocks(task.number), rejected).n_rankings


def _report(leaves: Leaves, report: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """What became of each row, for the history of the store."""
    left_out = {"bad": sum(leaves.rejected.values()), "duplicates": leaves.n_duplicates, **report["left_out"]}
    used = leaves.n_rows - sum(left_out.values())
    counts = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in left_out.items() if count)
    said = f"{used:,} of {leaves.n_rows:,} ratings used{f'; left out: {counts}' if counts else ''}"
    return {"notes": [said, *notes], "ratings": report | {"rows": leaves.n_rows, "used": used, "left_out": left_out}}
