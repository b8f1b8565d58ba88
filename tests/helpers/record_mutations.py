"""Records of wrong types: every entry of every kind of JSON record, replaced by what does not belong there.

    python -m tests.helpers.record_mutations KIND [FIRST] [COUNT]

prints the outcome of each mutation. Records are sealed again, as one who means harm would do. Allowed are the same
result and errors of the package.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import io
import json
import shutil
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plmix_dist as plm
from plmix_dist.cli import main
from plmix_dist.errors import PlmixError
from tests.helpers.oracle import Forger
from tests.jobs.data import write_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WRONG: tuple[Any, ...] = (None, [], {}, "text", -1, 10**30, 1e300, float("nan"), True, [1], {"a": 1})
# Where a record has many entries of one kind, the first stand for all.
MOST_ENTRIES = 2


def places_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the entries of a record are, down to the last."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from places_of(value[key], (*path, key))
    elif isinstance(value, list):
        for number in range(min(len(value), MOST_ENTRIES)):
            yield from places_of(value[number], (*path, number))


def changed(record: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of a record with another value at one place; Ellipsis removes it."""
    found = copy.deepcopy(record)
    place = found
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return found


def mutations(record: Any) -> Iterator[tuple[str, Any]]:
    """Every mutation of a record, with a name."""
    for path in places_of(record):
        if path == ("sha256",):
            continue
        for value in (..., *WRONG):
            name = ".".join(map(str, path))
            yield f"{name} = {'nothing' if value is ... else json.dumps(value)}", changed(record, path, value)


# --- kinds of records -----------------------------------------------------------------------------------------


@functools.cache
def originals() -> Path:
    """A folder with a store, models of each kind, a job that is finished, and a fit that was stopped."""
    folder = Path(tempfile.mkdtemp(prefix="originals-"))
    rows = [["tea", "mate", "milk"]] * 20 + [["milk", "mate", "tea"]] * 9 + [["mate", "tea", "milk"]] * 3
    (folder / "rows.csv").write_text("\n".join(["first,second,third", *(",".join(row) for row in rows)]) + "\n")
    plm.ingest(folder / "rows.csv", folder / "store", unranked="below")
    write_job(folder, data={"store": "store"}, outputs={"folder": "out", "report": True})
    assert quiet(["run", str(folder / "job.toml")]) == 0
    plm.BayesianPlackettLuceMixture(2, n_chains=2, n_warmup=4, n_draws=8, random_state=0).fit(
        str(folder / "store")
    ).save(folder / "bayes")
    plm.SpectralPlackettLuce(1, random_state=0).fit(str(folder / "store")).save(folder / "spectral")
    stop_a_fit(folder)
    return folder


class StoppedFitError(Exception):
    """The fit is stopped here."""


def stop_a_fit(folder: Path) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["iteration"] == 2:
            raise StoppedFitError

    model = fit_of(folder)
    with contextlib.suppress(StoppedFitError):
        model.set_params(progress=stop).fit(str(folder / "store"), client=False)


def fit_of(folder: Path) -> plm.PlackettLuceMixture:
    saved = plm.Checkpoint(folder / "checkpoints", every=0.0)
    return plm.PlackettLuceMixture(2, random_state=1, tol=1e-12, checkpoint=saved)


def quiet(arguments: list[str]) -> Any:
    """The exit code of a verb; an error if it ended with something that should not happen."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            code: Any = main([*arguments])
        except SystemExit as end:
            code = end.code
    if "should not happen" in said.getvalue() or "Traceback" in said.getvalue():
        raise AssertionError(said.getvalue())
    return code or 0


def sealed_json(path: Path) -> tuple[Any, Callable[[Any], None]]:
    return json.loads(path.read_bytes()), lambda record: path.write_bytes(Forger.sealed(record)) and None


def plain_json(path: Path) -> tuple[Any, Callable[[Any], None]]:
    return json.loads(path.read_bytes()), lambda record: path.write_text(json.dumps(record)) and None


def of_index(folder: Path) -> tuple[Any, Callable[[Any], None]]:
    forger = Forger(folder / "store")
    record = json.loads((forger.partition(0) / "index.json").read_bytes())

    def write(changed: Any) -> None:
        def replace(index: dict[str, Any]) -> None:
            index.clear()
            index.update(changed)

        forger.change_index(0, replace)

    return record, write


def of_plan(folder: Path) -> tuple[Any, Callable[[Any], None]]:
    """An append to the store, as it is while it is written."""
    from plmix_dist.store import Location
    from plmix_dist.store.partition import WritePlan

    store = plm.open_store(folder / "store")
    plan = WritePlan(
        "ingest", list(store.item_names), store.manifest.leaf_rows, 1, {}, [{"name": "x"}], first_partition=1
    )
    Location.of(folder / "store").write_bytes(WritePlan.key, plan.to_bytes())
    return sealed_json(folder / "store" / WritePlan.key)


def of_checkpoint(folder: Path) -> tuple[Any, Callable[[Any], None]]:
    for path in sorted((folder / "checkpoints").glob("checkpoint-*"))[:-1]:
        path.unlink()
    (path,) = (folder / "checkpoints").glob("checkpoint-*")
    line, _, rest = path.read_bytes().partition(b"\n")
    size = int(line.split()[-1])
    arrays = rest[size:]

    def write(record: Any) -> None:
        head = Forger.sealed(record)
        path.write_bytes(b" ".join([*line.split()[:-1], str(len(head)).encode()]) + b"\n" + head + arrays)

    return json.loads(rest[:size]), write


def of_part(folder: Path) -> tuple[Any, Callable[[Any], None]]:
    """The largest result that a checkpoint names, in a file of its own."""
    record, write = of_checkpoint(folder)
    name, part = max(record["value"]["finished"].items(), key=lambda one: one[1]["size"])
    path = folder / "checkpoints" / part["file"]
    line, _, rest = path.read_bytes().partition(b"\n")
    size = int(line.split()[-1])
    arrays = rest[size:]

    def write_part(changed: Any) -> None:
        head = Forger.sealed(changed)
        data = b" ".join([*line.split()[:-1], str(len(head)).encode()]) + b"\n" + head + arrays
        path.write_bytes(data)
        whole = copy.deepcopy(record)
        entry = {"file": part["file"], "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        whole["value"]["finished"][name] = entry
        write(whole)

    return json.loads(rest[:size]), write_part


# Every verb that reads a kind of record.


def use_store(folder: Path) -> None:
    store = str(folder / "store")
    for verb in ("verify", "info"):
        quiet([verb, store])
    quiet(["predict", str(folder / "out/model"), store, str(folder / "who")])
    quiet(["ingest", str(folder / "rows.csv"), store])
    quiet(["ingest", str(folder / "rows.csv"), store, "--append"])
    quiet(["run", str(folder / "job.toml")])
    with contextlib.suppress(PlmixError):
        opened = plm.open_store(store)
        repr(opened), opened._repr_html_(), list(opened.rejected_rows()), opened.components()
    plm.PlackettLuceMixture(2, random_state=1).fit(store, client=False)


def use_model(folder: Path, name: str = "out/model", kind: Any = plm.PlackettLuceMixture) -> None:
    model, store = str(folder / name), str(folder / "store")
    quiet(["predict", model, store, str(folder / "who"), "--force"])
    quiet(["report", model, str(folder / "page.html"), "--store", store])
    quiet(["info", model])
    quiet(["score", model, store])
    if name == "out/model":
        quiet(["run", str(folder / "job.toml")])
        quiet(["fit", store, model, "--components", "2"])
    with contextlib.suppress(PlmixError):
        plm.PlackettLuceMixture(2, init=model).fit(store, client=False)
    loaded = kind.load(model)
    repr(loaded), loaded._repr_html_(), str(loaded.summary())
    loaded.predict([["tea", "mate", "milk"]])
    loaded.save(folder / "again")
    loaded.fit(store, client=False)


def use_checkpoint(folder: Path) -> None:
    fit_of(folder).fit(str(folder / "store"), client=False)


def use_job(folder: Path) -> None:
    out = str(folder / "out")
    for arguments in (["status", out], ["run", str(folder / "job.toml")], ["resume", out]):
        quiet(arguments)


KINDS: dict[str, tuple[Callable[[Path], tuple[Any, Callable[[Any], None]]], Callable[[Path], None]]] = {
    "manifest": (lambda folder: sealed_json(folder / "store/manifest.json"), use_store),
    "index": (of_index, use_store),
    "plan": (of_plan, use_store),
    "model": (lambda folder: sealed_json(folder / "out/model/model.json"), use_model),
    "bayes": (
        lambda folder: sealed_json(folder / "bayes/model.json"),
        lambda folder: use_model(folder, "bayes", plm.BayesianPlackettLuceMixture),
    ),
    "spectral": (
        lambda folder: sealed_json(folder / "spectral/model.json"),
        lambda folder: use_model(folder, "spectral", plm.SpectralPlackettLuce),
    ),
    "checkpoint": (of_checkpoint, use_checkpoint),
    "part": (of_part, use_checkpoint),
    "job": (lambda folder: plain_json(folder / "out/job.json"), use_job),
    "summary": (lambda folder: plain_json(folder / "out/summary.json"), use_job),
}


def failures_of(kind: str, first: int = 0, count: int | None = None, step: int = 1) -> tuple[list[str], int]:
    """What went wrong with some mutations of a kind of record, and how many of them ended with an error in words."""
    failed, n_refused = [], 0
    with tempfile.TemporaryDirectory(prefix="records-") as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = originals()
        record_of, use = KINDS[kind]
        shutil.copytree(base, Path(place) / "first")
        record, _ = record_of(Path(place) / "first")
        chosen = list(mutations(record))[first : None if count is None else first + count * step : step]
        for name, mutated in chosen:
            folder = Path(place) / "copy"
            shutil.copytree(base, folder)
            job = folder / "out/job.json"
            job.write_text(job.read_text().replace(str(base), str(folder)))
            try:
                record_of(folder)[1](mutated)
                use(folder)
            except PlmixError:
                n_refused += 1
            except Exception:  # noqa: BLE001 - these are what is looked for
                failed.append(f"{kind}: {name}\n{traceback.format_exc(limit=-4)}")
                sys.stdout.write(failed[-1])
                sys.stdout.flush()
            finally:
                shutil.rmtree(folder)
    return failed, n_refused


if __name__ == "__main__":
    found, refused = failures_of(sys.argv[1], *(int(number) for number in sys.argv[2:]))
    sys.stdout.write(f"{len(found)} failed, {refused} refused\n")
