"""A battery: every file of a folder is one election; its mixtures are fitted side by side, and one table shows all."""

from __future__ import annotations

import contextlib
import contextvars
import csv
import json
import os
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.base import clone

from plmix_dist import __version__
from plmix_dist.cluster.clients import ClientLike
from plmix_dist.cluster.executor import Executor, run_all
from plmix_dist.datasets.ingest import ingest
from plmix_dist.errors import IngestError, PlmixError, SettingsError, warnings_kept
from plmix_dist.models.selection import MixtureSelection
from plmix_dist.store import Location, check_file, sealed
from plmix_dist.tables.notation import spreadsheet_safe
from plmix_dist.tables.sources import file_digest, find, find_sources
from plmix_dist.tables.write import open_binary_target, open_target

_OF_EACH = ("log_likelihood", "bic")  # of every number of components
_Row = dict[str, Any]


def fit_elections(
    folder: str | os.PathLike[str],
    table: str | os.PathLike[str],
    selection: MixtureSelection | None = None,
    *,
    overwrite: bool = False,
    client: Executor | ClientLike = None,
    progress: Callable[[int, int], None] | None = None,
    **reading: Any,
) -> list[_Row]:
    r"""Choose the number of components of every election of a folder, and write one table with a row per file.

    Every file is one task, so thousands of small fits run side by side. A file that cannot be read or fitted has the
    reason in the column `error`, and stops nothing. What is finished is kept in the folder `TABLE.parts` until the
    table is there: the same call goes on after an interruption. Equal files, settings and seeds give equal rows, but
    for the seconds.

    Parameters
    ----------
    folder
        A folder, with the folders in it, or a glob. Each file is an election of its own.
    table
        The table to write: CSV, JSON lines or Parquet, as its suffix says (.csv, .jsonl, .parquet).
    selection
        How the number of components is chosen; by default BIC chooses from 1 to 5, with the seed 0. Its checkpoint
        is not used.
    overwrite
        Whether to replace a table that is there.
    client, progress
        As in `ingest`; or what runs tasks.
    reading
        As in `ingest`: `format`, `choices`, `columns`, `on_error` and so on. `unranked` is "below" if it is left out.

    Examples
    --------
    >>> folder = tmp / "elections"
    >>> folder.mkdir()
    >>> _ = (folder / "north.csv").write_text("count,ordering\n30,a b c\n9,c b a\n")
    >>> _ = (folder / "south.csv").write_text("")
    >>> north, south = fit_elections(folder, tmp / "all.csv", MixtureSelection(range(1, 3), random_state=0))
    >>> north["ballots"], north["n_components"], north["error"], south["error"] is None
    (39.0, 2, None, False)
    """
    target, root = os.fspath(table), Location.of(folder).url
    if not target.endswith((".csv", ".jsonl", ".parquet")):
        raise SettingsError(f"the table must end in .csv, .jsonl or .parquet, but is {target!r}")
    check_file(target, overwrite=overwrite, sources=[root])
    chosen = clone(selection or MixtureSelection(range(1, 6), random_state=0))
    chosen.set_params(progress=None, checkpoint=None)
    kept, how = Location.of(f"{target}.parts"), {**reading, "unranked": reading.get("unranked") or "below"}
    files = find_sources([root])
    files = [file for file in files if not (file.endswith(".items") and file[: -len(".items")] in files)]
    # The largest first: nothing long is left for the end, when the others have no more to do.
    files.sort(key=lambda file: -find(file).size)
    above = f"{root}/".split("*")[0].rpartition("/")[0]  # the folder, of a glob too
    fit_one = partial(_fit_election, above=f"{above}/", selection=chosen, reading=how, kept=kept)
    done = run_all(client, fit_one, files, "election", progress)
    found = pa.Table.from_pylist(sorted(done, key=lambda row: str(row["file"])), _schema(chosen._numbers()))
    rows: list[_Row] = found.to_pylist()
    if all(row["n_components"] is None for row in rows):
        raise IngestError(f"no file of {folder} gave a fit; of {rows[0]['file']}: {rows[0]['error']}")
    _write(found, target)
    kept.remove("rows")
    with contextlib.suppress(OSError):  # others may have put files there
        Path(kept.url).rmdir()
    return rows


def _fit_election(file: str, above: str, selection: MixtureSelection, reading: dict[str, Any], kept: Location) -> _Row:
    """The row of one file: that which is kept, or a new one. Its key is a digest of all that decides a bit of it."""
    begun, row = time.perf_counter(), _Row(file=file.removeprefix(above))
    try:
        row["digest"] = file_digest(file)
        how = {name: repr(each) for name, each in {**selection.get_params(), **reading}.items() if name != "estimator"}
        key = f"rows/{sealed.sha256(json.dumps([__version__, row, how], sort_keys=True).encode())}.json"
        with contextlib.suppress(PlmixError, OSError):  # not there; or damaged, and then it is made anew
            return sealed.unseal(kept.read_bytes(key), key)
        row |= contextvars.copy_context().run(_fitted, file, clone(selection), reading)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other elections go on
        return row | {"error": str(error) if isinstance(error, PlmixError) else f"{type(error).__name__}: {error}"}
    row["seconds"] = round(time.perf_counter() - begun, 3)
    kept.write_bytes(key, sealed.seal(row))
    return row


def _fitted(file: str, selection: MixtureSelection, reading: dict[str, Any]) -> _Row:
    """What one election gives: its sizes, the choice, and the table of the selection."""
    notes: list[Warning] = []
    warnings_kept.set(notes)
    # In memory: of small elections, syncing a store to a disk takes longer than reading the file.
    place, key = Location.of("memory://plmix-elections"), uuid.uuid4().hex
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(place.remove, key)
        store = ingest(file, place.child(key), client=False, **reading)
        begun = time.perf_counter()
        found = selection.fit(store, client=False)
        seconds = round(time.perf_counter() - begun, 3)
    best = found.best_estimator_
    row = {"ballots": store.total_weight, "candidates": store.n_items, "n_components": found.n_components_}
    row |= {"shares": best.shares_.tolist(), "converged": bool(best.converged_), "seconds_of_fits": seconds}
    if best.cohesion_ is not None:
        row |= {"cohesion": best.cohesion_.tolist(), "slates": best._linear[0].setting}
    row |= {f"{name}_{each['n_components']}": each[name] for each in found.table_ for name in _OF_EACH}
    return row | {"notes": "; ".join(map(str, notes)) or None}


def _schema(numbers: list[int]) -> pa.Schema:
    """The columns of the table, and their types."""
    sizes = [("file", pa.string()), ("ballots", pa.float64()), ("candidates", pa.int64())]
    of_each, of_slates = pa.list_(pa.float64()), pa.list_(pa.list_(pa.float64()))
    choice = [("n_components", pa.int64()), ("shares", of_each), ("cohesion", of_slates), ("slates", pa.string())]
    choice.append(("converged", pa.bool_()))
    floats = (*(f"{name}_{k}" for name in _OF_EACH for k in numbers), "seconds", "seconds_of_fits")
    texts = [(name, pa.string()) for name in ("digest", "notes", "error")]
    return pa.schema([*sizes, *choice, *((name, pa.float64()) for name in floats), *texts])


def _write(found: pa.Table, target: str) -> None:
    """Write the table, which appears complete or not at all. CSV has blanks between shares, "; " between components."""
    if target.endswith(".parquet"):
        with open_binary_target(target) as out:
            pq.write_table(found, out, compression="zstd")
        return
    with open_target(target) as text:
        if target.endswith(".jsonl"):
            text.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in found.to_pylist())
            return
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(found.column_names)
        for row in found.to_pylist():
            cohesion = "; ".join(" ".join(map(str, own)) for own in row["cohesion"] or [])
            cells = row | {"shares": " ".join(map(str, row["shares"] or [])), "cohesion": cohesion}
            lines.writerow("" if value is None else spreadsheet_safe(str(value)) for value in cells.values())
