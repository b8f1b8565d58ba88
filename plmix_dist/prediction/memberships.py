"""Memberships of a whole store, computed in parallel and written to Zarr, Parquet or CSV."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from plmix_dist.cluster.clients import ClientLike
from plmix_dist.cluster.executor import Executor, run_all
from plmix_dist.datasets.given import as_rankings
from plmix_dist.passes.by_row import RowFunction, RowRun, rows_of_run, run_of_rows
from plmix_dist.passes.leaves import Leaves, StoreLeaves
from plmix_dist.passes.rankings import Rankings
from plmix_dist.passes.tree import leaf_ranges
from plmix_dist.prediction.posteriors import check_columns, probabilities_of, with_own_shares
from plmix_dist.rankings.columns import joined_labels
from plmix_dist.rankings.ties import TIES
from plmix_dist.store import Location, RankingStore, check_file, check_target, memberships, open_store
from plmix_dist.store.mixture import MixtureParams
from plmix_dist.store.reader import digest_of_store
from plmix_dist.store.sealed import npy_bytes, sha256
from plmix_dist.tables.notation import spreadsheet_safe
from plmix_dist.tables.sources import open_bytes
from plmix_dist.tables.write import check_target as check_file_target
from plmix_dist.tables.write import exists, open_binary_target


class Written(NamedTuple):
    """What `write_predictions` did: the number of rows, and whether anything was written."""

    n_rankings: int
    changed: bool


def write_predictions(
    mixture: MixtureParams,
    store: RankingStore | str | os.PathLike[str],
    out: str | os.PathLike[str] | Location,
    *,
    overwrite: bool = False,
    client: ClientLike = None,
    executor: Executor | None = None,
    ties: str = "auto",
    progress: Callable[[int, int], None] | None = None,
    share_coefficients: NDArray[np.float64] | None = None,
    membership_covariates: ArrayLike | None = None,
) -> Written:
    """Write the probability of each component (`probabilities`) and the most probable one (`component`) of every row.

    `out` becomes a Zarr v3 group when all rows are written; nothing is held whole in memory. A second run with the same
    model and rankings continues the first, or does nothing if it is finished. Other memberships that are there are an
    error, unless `overwrite` is set; then they are removed first. `client` and `membership_covariates` are as in
    PlackettLuceMixture.fit; a model whose shares depend on covariates has `share_coefficients`.

    Examples
    --------
    >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=3, random_state=0)
    >>> mixture = plm.MixtureParams(np.zeros((2, 3)), np.array([0.5, 0.5]), store.item_names)
    >>> write_predictions(mixture, store, tmp / "memberships")
    Written(n_rankings=100, changed=True)
    >>> write_predictions(mixture, store, tmp / "memberships")
    Written(n_rankings=100, changed=False)
    """
    job = _membership_job(mixture, store, ties, share_coefficients, membership_covariates)
    rankings, location = job.rankings, Location.of(out)
    check_target(location, "memberships", overwrite=overwrite, sources=[job.store.location.url])
    chunk_rows = min(memberships.CHUNK_ROWS, rankings.n_rankings)
    plan = memberships.MembershipPlan(rankings.n_rankings, mixture.n_components, chunk_rows, job.of)
    with memberships.MembershipSession.begin(location, plan, overwrite=overwrite) as session:
        tasks = [(*rows, *run_of_rows(rankings, job.function, *rows)) for rows in session.pending()]
        run_all(executor or client, partial(_write_run, location, plan), tasks, "predict", progress)
        session.finalise()
        return Written(rankings.n_rankings, changed=not session.already_done)


class _MembershipJob(NamedTuple):
    """Memberships to be computed: of which rankings, by which function, and digests of what determines them."""

    store: RankingStore
    rankings: Rankings
    function: RowFunction
    of: dict[str, str]


def _membership_job(
    mixture: MixtureParams,
    store: RankingStore | str | os.PathLike[str],
    ties: str = "auto",
    share_coefficients: NDArray[np.float64] | None = None,
    membership_covariates: ArrayLike | None = None,
) -> _MembershipJob:
    """The memberships that `write_predictions` computes, from its arguments."""
    opened = store if isinstance(store, RankingStore) else open_store(store)
    known = mixture.rows.feature_names if mixture.rows else ()
    of_model: Any = {"item_names": mixture.item_names, "feature_names": known}
    rankings = as_rankings(opened, covariates=membership_covariates, **of_model)
    rankings = replace(rankings, ties=TIES[ties].for_later)
    coefficients = check_columns(share_coefficients, rankings.covariates)
    function = probabilities_of(mixture, ties)
    if coefficients is not None:
        function = with_own_shares(function, coefficients)
    arrays = [mixture.log_worths, mixture.shares, mixture.tie_parameters, *(mixture.rows.point if mixture.rows else ())]
    parameters = [npy_bytes(array) for array in arrays if array is not None]
    choices = mixture.rows.choices.name if mixture.rows and mixture.rows.choices else ""
    names = f"{mixture.item_names!r}{choices}".encode()
    of = {"model": sha256(b"".join([*parameters, names])), "rankings": digest_of_store(opened)}
    if isinstance(rankings.source, StoreLeaves) and "tied" in rankings.source.columns:
        of["ties"] = ties
    if coefficients is not None and rankings.covariates is not None:
        of["covariates"] = sha256(npy_bytes(coefficients) + npy_bytes(rankings.covariates))
    return _MembershipJob(opened, rankings, function, of)


def _write_run(location: Location, plan: memberships.MembershipPlan, task: tuple[int, int, RowRun, int]) -> None:
    """Compute and write the rows from `first` to `last`, one chunk; `skipped` rows of the run of leaves come before."""
    first, last, run, skipped = task
    memberships.write_memberships(location, plan, first, rows_of_run(run)[skipped : skipped + last - first])


# Memberships of a whole store as one table, Parquet or CSV, with the ids of rankings.

TABLE_SUFFIXES = (".parquet", ".pq", ".csv")

_MADE_FROM = b"plmix.memberships"
# Leaves of a row group of the file, and row groups that are in memory at a time.
_LEAVES_PER_GROUP = 16
_GROUPS_AT_A_TIME = 16


def write_membership_table(
    mixture: MixtureParams,
    store: RankingStore | str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    client: ClientLike = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
    **model: Any,
) -> Written:
    """Write a table with one row per ranking, and the columns of the method `memberships`.

    It is CSV if the name of the target ends in `.csv`, and Parquet otherwise.

    Columns are `id` (the number of the row, from 0, if rankings have no ids), `group` if there are any, `component`
    (the most probable one) and `probability 0` and so on. Rows come in the order of the store. A few row groups are in
    memory at a time. The file appears when it is complete. A second run with the same model and rankings does nothing
    where there is a Parquet file. CSV has no place for what it was made from: a file that is there is an error, unless
    `overwrite` is set. Text that a spreadsheet would take for a formula gets an apostrophe in CSV. All arguments are as
    in `write_predictions`.

    Examples
    --------
    >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=3, random_state=0)
    >>> mixture = plm.MixtureParams.load(tmp / "s.truth")
    >>> write_membership_table(mixture, store, tmp / "who.parquet")
    Written(n_rankings=100, changed=True)
    >>> pq.read_table(tmp / "who.parquet").column_names
    ['id', 'component', 'probability 0']
    """
    path = os.fspath(target)
    job = _membership_job(mixture, store, **model)
    made_from = json.dumps(job.of, sort_keys=True).encode()
    if not overwrite and _made_from(path) == made_from:
        return Written(job.rankings.n_rankings, changed=False)
    check_file(path, overwrite=overwrite, sources=[job.store.location.url])
    check_file_target(path)  # before all rows are read
    schema = _schema(job, mixture.n_components).with_metadata({_MADE_FROM: made_from})
    runs = _runs(job)
    with open_binary_target(path) as out, _table_writer(out, schema, path) as table:
        for first in range(0, len(runs), _GROUPS_AT_A_TIME):
            window = runs[first : first + _GROUPS_AT_A_TIME]
            for columns in run_all(executor or client, _columns_of_run, window, "predict"):
                arrays = [_array(columns[field.name], field.type, _is_text(path)) for field in schema]
                table.write_table(pa.Table.from_arrays(arrays, schema=schema))
            if progress is not None:
                progress(first + len(window), len(runs))
    return Written(job.rankings.n_rankings, changed=True)


def columns_of(path: str) -> list[str]:
    """The names of the columns of a table of memberships."""
    with open_bytes(path) as stream:
        return stream.readline().decode().strip().split(",") if _is_text(path) else list(pq.read_schema(stream).names)


def _is_text(path: str) -> bool:
    return path.endswith(".csv")


def _table_writer(out: IO[bytes], schema: pa.Schema, path: str) -> pq.ParquetWriter | arrow_csv.CSVWriter:
    """What writes the rows of a table to an open file."""
    if _is_text(path):
        out.write(f"{','.join(schema.names)}\n".encode())  # Arrow would put quotes around the names
        how = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")
        return arrow_csv.CSVWriter(out, schema, write_options=how)
    return pq.ParquetWriter(out, schema, compression="zstd")


# A run of leaves, where their labels are read as they were written, and the number of the first row.
_LabelledRun = tuple[RowRun, Leaves, int]


def _columns_of_run(task: _LabelledRun) -> dict[str, NDArray[Any] | None]:
    """The columns of the table for a run of leaves: memberships, and labels as they are read, or None."""
    run, leaves, first_row = task
    probabilities = rows_of_run(run)
    labels = [(block.ids, block.groups) for block in leaves.iter_leaves(run.start, run.stop, labels=True)]
    ids = joined_labels([one for one, _ in labels if one is not None])
    groups = joined_labels([one for _, one in labels if one is not None])
    numbers = np.arange(first_row, first_row + len(probabilities))
    columns = {"id": numbers if ids is None else ids, "group": groups, "component": probabilities.argmax(axis=1)}
    return columns | {f"probability {number}": line for number, line in enumerate(probabilities.T)}


def _runs(job: _MembershipJob) -> list[_LabelledRun]:
    rankings = job.rankings
    ranges = leaf_ranges(rankings.n_leaves, -(-rankings.n_leaves // _LEAVES_PER_GROUP))
    runs = [RowRun(job.function, rankings.only(*leaves), *leaves) for leaves in ranges]
    return [(run, rankings.source.only(run.start, run.stop), int(rankings.leaf_bounds[run.start])) for run in runs]


def _schema(job: _MembershipJob, n_components: int) -> pa.Schema:
    kinds = {"none": pa.int64(), "number": pa.int64(), "text": pa.string()}
    fields = [pa.field("id", kinds[job.store.label_kind("ids")])]
    if job.store.label_kind("groups") != "none":
        fields.append(pa.field("group", kinds[job.store.label_kind("groups")]))
    fields.append(pa.field("component", pa.int64()))
    fields += [pa.field(f"probability {number}", pa.float64()) for number in range(n_components)]
    return pa.schema(fields)


def _array(values: NDArray[Any], kind: pa.DataType, as_text: bool) -> pa.Array:
    if kind != pa.string():
        return pa.array(np.ascontiguousarray(values), kind)
    return pa.array([spreadsheet_safe(value) for value in values.tolist()] if as_text else values.tolist(), kind)


def _made_from(path: str) -> bytes | None:
    """What the file that is there was made from; None if there is none, or it is not one of ours."""
    if _is_text(path) or not exists(path):
        return None
    with contextlib.suppress(pa.ArrowException, OSError), open_bytes(path) as stream:
        return (pq.read_schema(stream).metadata or {}).get(_MADE_FROM)
    return None
