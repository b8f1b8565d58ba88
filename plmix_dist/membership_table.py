"""Memberships of a whole store as one Parquet file, with the ids of rankings."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plmix_dist.engine import run_all
from plmix_dist.engine.by_row import RowRun, rows_of_run
from plmix_dist.engine.leaf_ranges import leaf_ranges
from plmix_dist.formats.labelled import check_target, exists, open_binary_target
from plmix_dist.formats.sources import open_bytes
from plmix_dist.prediction import Written, membership_job
from plmix_dist.rankings.columns import joined_labels
from plmix_dist.store import check_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.engine import Executor
    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.engine.leaf_source import Leaves
    from plmix_dist.mixture import MixtureParams
    from plmix_dist.prediction import MembershipJob
    from plmix_dist.store import RankingStore

MADE_FROM = b"plmix.memberships"
# A row group of the file has about so many leaves; so many row groups are in memory at a time.
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
    ties: str = "expand",
    progress: Callable[[int, int], None] | None = None,
    share_coefficients: NDArray[np.float64] | None = None,
    membership_covariates: ArrayLike | None = None,
) -> Written:
    """Write a Parquet file with one row per ranking, and the columns of the method `memberships`.

    Columns are `id` (the number of the row, from 0, if rankings have no ids), `group` if there are any, `component`
    (the most probable one) and `probability 0` and so on. Rows come in the order of the store. A few row groups are in
    memory at a time. The file appears when it is complete; a second run with the same model and rankings does nothing.
    All arguments are as in `write_predictions`.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> folder = tempfile.mkdtemp()
    >>> store = plmix_dist.simulate(f"{folder}/s", n_rankings=100, n_items=3, random_state=0)
    >>> mixture = plmix_dist.MixtureParams.load(f"{folder}/s.truth")
    >>> write_membership_table(mixture, store, f"{folder}/who.parquet")
    Written(n_rankings=100, changed=True)
    >>> pq.read_table(f"{folder}/who.parquet").column_names
    ['id', 'component', 'probability 0']
    """
    path = os.fspath(target)
    job = membership_job(mixture, store, ties, share_coefficients, membership_covariates)
    made_from = json.dumps(job.of, sort_keys=True).encode()
    if not overwrite and _made_from(path) == made_from:
        return Written(job.rankings.n_rankings, changed=False)
    check_file(path, overwrite=overwrite, sources=[job.store.location.url])
    check_target(path)  # before all rows are read
    schema = _schema(job, mixture.n_components).with_metadata({MADE_FROM: made_from})
    runs = _runs(job)
    with open_binary_target(path) as out, pq.ParquetWriter(out, schema, compression="zstd") as table:
        for first in range(0, len(runs), _GROUPS_AT_A_TIME):
            window = runs[first : first + _GROUPS_AT_A_TIME]
            for rows in run_all(executor or client, labelled_rows_of_run, window, "predict"):
                table.write_table(_table(rows, schema))
            if progress is not None:
                progress(first + len(window), len(runs))
    return Written(job.rankings.n_rankings, changed=True)


def columns_of(path: str) -> list[str]:
    """The names of the columns of a Parquet file.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a.parquet"
    >>> pq.write_table(pa.table({"id": [0]}), path)
    >>> columns_of(path)
    ['id']
    """
    with open_bytes(path) as stream:
        return list(pq.read_schema(stream).names)


class LabelledRun(NamedTuple):
    """A run of leaves, where their labels are read as they were written, and the number of the first row."""

    run: RowRun
    labels: Leaves
    first_row: int


class LabelledRows(NamedTuple):
    """Rows of memberships: labels (rows,), probabilities (rows, n_components)."""

    ids: NDArray[Any]
    groups: NDArray[Any] | None
    probabilities: NDArray[np.float64]


def labelled_rows_of_run(task: LabelledRun) -> LabelledRows:
    """Compute the memberships of a run of leaves, and read their labels."""
    probabilities = rows_of_run(task.run)
    blocks = task.labels.iter_leaves(task.run.start, task.run.stop, labels=True)
    labels = [(block.ids, block.groups) for block in blocks]
    ids = joined_labels([one for one, _ in labels if one is not None])
    groups = joined_labels([one for _, one in labels if one is not None])
    numbers = np.arange(task.first_row, task.first_row + len(probabilities))
    return LabelledRows(numbers if ids is None else ids, groups, probabilities)


def _runs(job: MembershipJob) -> list[LabelledRun]:
    rankings = job.rankings
    n_runs = -(-rankings.n_leaves // _LEAVES_PER_GROUP)
    return [
        LabelledRun(
            RowRun(job.function, rankings.only(start, stop), start, stop),
            rankings.source.only(start, stop),
            int(rankings.leaf_bounds[start]),
        )
        for start, stop in leaf_ranges(rankings.n_leaves, n_runs)
    ]


def _schema(job: MembershipJob, n_components: int) -> pa.Schema:
    kinds = {"none": pa.int64(), "number": pa.int64(), "text": pa.string()}
    fields = [pa.field("id", kinds[job.store.label_kind("ids")])]
    if job.store.label_kind("groups") != "none":
        fields.append(pa.field("group", kinds[job.store.label_kind("groups")]))
    fields.append(pa.field("component", pa.int64()))
    fields += [pa.field(f"probability {number}", pa.float64()) for number in range(n_components)]
    return pa.schema(fields)


def _table(rows: LabelledRows, schema: pa.Schema) -> pa.Table:
    columns: dict[str, Any] = {"id": rows.ids, "group": rows.groups}
    columns["component"] = rows.probabilities.argmax(axis=1)
    columns |= {f"probability {number}": line for number, line in enumerate(rows.probabilities.T)}
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values.tolist() if kind == pa.string() else np.ascontiguousarray(values), kind)


def _made_from(path: str) -> bytes | None:
    """What the file that is there was made from; None if there is none, or it is not one of ours."""
    if not exists(path):
        return None
    with contextlib.suppress(pa.ArrowException, OSError), open_bytes(path) as stream:
        found: bytes | None = (pq.read_schema(stream).metadata or {}).get(MADE_FROM)
        return found
    return None
