"""A job file: its keys, how it is read, and all its checks, which are made before anything starts.

Everything that is wrong with a file is reported at once. Keys of models are made from the table of settings.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from plmix_dist.cluster.executor import bytes_of
from plmix_dist.errors import JobError, PlmixError, SettingsError
from plmix_dist.jobs.results import Work
from plmix_dist.settings import BAYES_INITS, INITS, SETTINGS, TASKS, nearest, settings_of, shown
from plmix_dist.settings.table import Kind, Setting, flag, real, whole, word
from plmix_dist.store import Location
from plmix_dist.store.checkpoints import DEFAULT_KEPT, DEFAULT_SECONDS, Checkpoint

# --- keys --------------------------------------------------------------------------------------------------

# Seconds of the longest wait; the clocks of the system take no number that is much larger.
_LONGEST = 1e9


def _key(key: str, kind: Kind, default: Any, words: str, tasks: tuple[str, ...] = TASKS, **how: Any) -> Setting:
    """A key of a job file, by its full name, such as "data.store"."""
    table, _, name = key.rpartition(".")
    return Setting(name, kind, default, words, tasks, table=table, **how)


def _check_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SettingsError(f"{name} must be text, but is {shown(value, str)}")
    return value


def _check_texts(name: str, value: Any) -> list[str]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed or not all(isinstance(one, str) and one for one in listed):
        raise SettingsError(f"{name} must be text or a list of texts, but is {shown(value)}")
    return listed


def _check_path_or_names(name: str, value: Any) -> str | list[str]:
    return _check_texts(name, value) if isinstance(value, list) else _check_text(name, value)


def _check_table(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise SettingsError(f"{name} must be a table of texts, but is {shown(value)}")
    return value


def _check_address(name: str, value: Any) -> str:
    if not _check_text(name, value).startswith(("http://", "https://")):
        raise SettingsError(f"{name} must begin with http:// or https://, but is {shown(value, str)}")
    return str(value)


def _text(words: str = "text") -> Kind:
    return Kind(words, _check_text)


def _seconds(**bounds: float) -> Kind:
    return real(**bounds)._replace(words="seconds")


_FIRST = (
    _key("name", _text(), "plmix", "Name of the job, in logs and metrics."),
    _key("task", word(*TASKS), "fit", "What is computed."),
    _key("data.store", _text("path or URL"), None, "The store of rankings.", required=True),
    _key("data.sources", Kind("list of paths", _check_texts), None, "Files, globs or URLs that are read into the store "
        "first; those it has already are left out. Without it the store must be there."),
    _key("data.format", _text(), "auto", "Format of the sources, as in `plmix ingest`."),
    _key("data.unranked", word("below", "absent"), None, "What unlisted items mean in the sources."),
    _key("data.on_error", word("raise", "drop", "quarantine"), "raise", "What becomes of bad rows."),
    _key("data.most_dropped", real(at_least=0, at_most=1), 0.05, "Largest share of bad rows that `drop` leaves out."),
    _key("data.merge", flag, False, "Whether equal rows become one."),
    _key("data.columns", Kind("table", _check_table), None, "The column of each role, such as `{id = \"ballot\"}`."),
    _key("data.choices", Kind("table", _check_table), None, "What a file cannot say, such as `{contest = \"Mayor\"}`."),
    _key("data.delimiter", _text(), None, "Delimiter of text."),
    _key("data.covariates", Kind("path or list of names", _check_path_or_names), None, "What shares depend on: a file "
        "with columns about persons (.npy or CSV), or a list of names of such columns that the store has.", ("fit",)),
    _key("data.features", Kind("list of names", _check_texts), None, "Columns of the store that explain worths.",
        ("fit", "select")),
    _key("data.intercepts", flag, None, "Whether items have worths of their own beside features.", ("fit", "select")),
    _key("model.seed", whole(0), 0, "Random seed."),
)  # fmt: skip
_LAST = (
    _key("start.warm", flag, True, "Whether to begin at the last model if rankings were added.", ("fit", "bayes")),
    _key("cluster.scheduler", _text("address"), None, "A Dask scheduler. Without it and workers: one process."),
    _key("cluster.workers", whole(1), None, "Worker processes of a cluster on this machine."),
    _key("cluster.threads", whole(1), None, "Threads per worker."),
    _key("cluster.memory", _text(), None, "Memory per worker, such as \"2GB\"."),
    _key("cluster.tls_ca", _text("path"), None, "Certificate authority of the scheduler."),
    _key("cluster.tls_cert", _text("path"), None, "Certificate to show to the scheduler."),
    _key("cluster.tls_key", _text("path"), None, "Key of that certificate."),
    _key("outputs.folder", _text("path"), None, "Folder for everything the job writes.", required=True),
    _key("outputs.memberships", flag, False, "Whether to write the membership of every ranking."),
    _key("outputs.report", flag, False, "Whether to write a report.", page="report"),
    _key("outputs.metrics", _text("path"), None, "File of metrics for the textfile collector of Prometheus."),
    _key("checkpoint.folder", _text("path or URL"), None, "Where the state is saved; else in `outputs.folder`."),
    _key("checkpoint.every", _seconds(at_least=0), DEFAULT_SECONDS, "Fewest seconds between two saves; 0 for every "
        "pass."),
    _key("checkpoint.keep", whole(1), DEFAULT_KEPT, "How many checkpoints are kept."),
    _key("limits.seconds", _seconds(above=0, at_most=_LONGEST), None, "The job saves its state and stops after this "
        "time."),
    _key("hooks.command", Kind("list of words", _check_texts), None, "A command that is run at the end, with the "
        "summary on stdin."),
    _key("hooks.url", Kind("URL", _check_address), None, "An address that the summary is posted to at the end, as "
        "JSON."),
    _key("hooks.timeout", _seconds(above=0, at_most=_LONGEST), 30.0, "How long a hook may take."),
)  # fmt: skip
_OF_SETTINGS = tuple(
    setting._replace(
        # The folder of a model is text here; whether it is there is checked with the other places.
        kind=setting.kind if setting.name != "init" else setting.kind._replace(check=_check_text),
        default=list(setting.default) if isinstance(setting.default, range | tuple) else setting.default,
    )
    for setting in sorted(SETTINGS, key=lambda setting: setting.table)
    if setting.text is not None
)
KEYS = (*_FIRST, *_OF_SETTINGS, *_LAST)
_BY_NAME = {key.key: key for key in KEYS}
_TABLES = tuple(dict.fromkeys(name.split(".")[0] for name in _BY_NAME if "." in name))
# Keys whose values are paths; relative ones are below the folder of the job file.
_FILES = ("cluster.tls_ca", "cluster.tls_cert", "cluster.tls_key")
_PATHS = (*_FILES, "data.store", "data.sources", "outputs.folder", "outputs.metrics", "checkpoint.folder")


@cache
def _keys_of(task: str) -> dict[str, Setting]:
    """The keys of a task by name; a key may have another kind of value or default for another task."""
    return {key.key: key for key in KEYS if task in key.tasks}


# --- jobs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A checked job: the value of every key, with absolute paths; None for keys of other tasks.

    Examples
    --------
    >>> from plmix_dist.jobs.file import _job_of
    >>> _ = plm.simulate(tmp / "ballots", n_rankings=10, n_items=3)
    >>> job = _job_of({"data": {"store": "ballots"}, "model": {"components": 2}, "outputs": {"folder": "out"}}, tmp)
    >>> job["model.components"], job["checkpoint.every"]
    (2, 30.0)
    """

    values: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def folder(self) -> Path:
        """The folder for everything the job writes."""
        return Path(self["outputs.folder"])

    @property
    def checkpoint(self) -> Checkpoint:
        """Where and how often the state is saved."""
        place = self["checkpoint.folder"] or str(self.folder / "checkpoints")
        return Checkpoint(place, self["checkpoint.every"], self["checkpoint.keep"])

    @property
    def work(self) -> Work:
        """What is computed: the same as a verb computes with these settings."""
        settings = {name: self[one.key] for name, one in settings_of(self["task"]).items() if one.text is not None}
        named = [self[f"data.{name}"] for name in ("covariates", "features", "intercepts")]
        return Work(self["task"], settings, self["model.seed"], *named)


def read_job(path: str | os.PathLike[str], *, cluster: dict[str, Any] | None = None) -> Job:
    """Read a job file (TOML), or the `job.json` of an output folder; a JobError names everything that is wrong.

    `cluster` replaces its table [cluster].
    """
    file = Path(path).absolute()
    written = file.suffix == ".json"
    try:
        given = json.loads(file.read_bytes()) if written else tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise JobError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise JobError(f"{file} is not valid: {error}") from None
    if cluster is not None and isinstance(given, dict):
        given["cluster"] = cluster
    try:
        return _job_of(given, file.parent, typed=not written)
    except JobError as error:
        raise JobError(f"{file}: {error}") from None


def _job_of(given: Any, folder: Path, *, typed: bool = True) -> Job:
    """The job that tables of values describe; relative paths are below `folder`.

    `typed`: people wrote the values, so one that is there was meant, even if it is a default.
    """
    faults: list[str] = []
    flat = dict(_flat(given, faults))
    if flat.get("model.method") in TASKS:
        task = flat.pop("model.method")
        faults.append(
            f'the kind of work is a key of its own now: write task = "{task}" above all tables, and leave method out '
            "of [model]"
        )
        flat.setdefault("task", task)
    task = flat.get("task")
    keys = _keys_of(task) if task in TASKS else _keys_of(TASKS[0])
    values: dict[str, Any] = {}
    for name in _BY_NAME:
        try:
            values[name] = _value_of(name, keys, flat.get(name), task)
        except SettingsError as error:
            faults.append(str(error))
            values[name] = keys[name].default if name in keys else None
    also = ["start.init"] if _begins_at_model(values) else []
    also += ["data.covariates"] if isinstance(values["data.covariates"], str) else []
    also += ["model.choices"] if str(values["model.choices"]).endswith(".json") else []
    for name in (*_PATHS, *also):
        try:
            values[name] = _absolute(values[name], folder)
        except RuntimeError as error:  # of an unknown user
            faults.append(f"{name} is not a path: {error}")
            values[name] = None
    job = Job(values)
    faults += _faults_together(job, [name for name in flat if typed])
    if faults:
        many = f"{len(faults)} things are wrong with this job" if len(faults) > 1 else "this job is wrong"
        raise JobError(f"{many}:\n" + "\n".join(f"  {fault}" for fault in faults))
    return job


def _value_of(name: str, keys: dict[str, Setting], given: Any, task: Any) -> Any:
    """The checked value of a key, or its default; None if it belongs to other tasks than that of the job."""
    if (key := keys.get(name)) is None:
        if given is not None and task in (None, *TASKS):
            owners = " or ".join(f'"{one}"' for one in TASKS if name in _keys_of(one))
            raise SettingsError(
                f'{name} belongs to task = {owners}, and this is a job with "{task or TASKS[0]}"; leave it out'
            )
        return None
    if given is not None:
        return key.kind.check(name, given)
    if key.required:
        raise SettingsError(f"{name} is missing: {key.help[0].lower()}{key.help[1:].rstrip('.')}")
    return key.default


def _flat(given: Any, faults: list[str]) -> Iterator[tuple[str, Any]]:
    """Values by their full names; names that are not known are faults."""
    top = [name for name in _BY_NAME if "." not in name]
    if not isinstance(given, dict):
        faults.append(f"a job is a table of tables, but this is {shown(given)}")
        return
    for name, value in given.items():
        if name in _BY_NAME:
            yield name, value
        elif name in _TABLES and isinstance(value, dict):
            for key, entry in value.items():
                full = f"{name}.{key}"
                if full in _BY_NAME:
                    yield full, entry
                else:
                    known = [one.split(".")[1] for one in _BY_NAME if one.startswith(f"{name}.")]
                    faults.append(f"[{name}] has no key {key!r}{nearest(key, known)}")
        elif name in _TABLES:
            faults.append(f"{name} must be a table, [{name}], but is {shown(value)}")
        else:
            faults.append(f"unknown table or key {name!r}{nearest(name, (*_TABLES, *top))}")


def _absolute(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_absolute(one, folder) for one in value]
    return value if not isinstance(value, str) or "://" in value else str(folder / Path(value).expanduser())


def _inits(values: dict[str, Any]) -> tuple[str, ...]:
    return BAYES_INITS if values["task"] == "bayes" else INITS


def _begins_at_model(values: dict[str, Any]) -> bool:
    """Whether start.init is the folder of a model."""
    return values["start.init"] not in (None, *_inits(values))


# --- faults of values that are right one by one ------------------------------------------------------------


def _faults_together(job: Job, typed: list[str]) -> Iterator[str]:
    """What is wrong with values together, and with what they refer to."""
    for name in ("outputs.folder", "outputs.metrics"):
        if job[name] is not None and "://" in job[name]:
            yield f"{name} must be a path on this machine; checkpoint.folder may be a URL"
    yield from _faults_of_places(job)
    for name in (*_FILES, *(["data.covariates"] if isinstance(job["data.covariates"], str) else [])):
        if job[name] is not None and not Path(job[name]).is_file():
            yield f"{name}: no file {job[name]}"
    yield from _faults_of_cluster(job)
    yield from _faults_of_results(job)
    if job["model.components"] is not None:
        try:
            job.work.checked([name for name, setting in settings_of(job["task"]).items() if setting.key in typed])
        except SettingsError as error:
            yield str(error)


def _faults_of_places(job: Job) -> Iterator[str]:
    """Places that are written to, and lie in each other's way."""
    folder, store, saved = (
        None if job[name] is None else os.path.realpath(job[name]) if "://" not in job[name] else job[name]
        for name in ("outputs.folder", "data.store", "checkpoint.folder")
    )
    init = job["start.init"]
    if folder is not None and init is not None and os.path.realpath(init) == f"{folder}/model":
        yield "start.init must not be the model that this job writes; start.warm begins there if rankings were added"
    if folder is not None and store is not None and f"{folder}/".startswith(f"{store}/"):
        yield f"outputs.folder must not be in the store, {store}; choose a folder beside it"
    if saved is not None and saved in (folder, store):
        yield f"checkpoint.folder must be a folder of its own, but others are written to {saved}"


def _faults_of_cluster(job: Job) -> Iterator[str]:
    if job["cluster.scheduler"] is not None and job["cluster.workers"] is not None:
        yield "cluster.scheduler and cluster.workers exclude each other"
    tls = [job[f"cluster.tls_{part}"] for part in ("ca", "cert", "key")]
    if any(tls) and not (all(tls) and job["cluster.scheduler"]):
        yield "cluster.tls_ca, tls_cert and tls_key belong together, and to cluster.scheduler"
    if job["cluster.memory"] is not None:
        try:
            bytes_of(job["cluster.memory"])
        except SettingsError as error:
            yield f"cluster.memory: {error}"


def _faults_of_results(job: Job) -> Iterator[str]:
    """A store and a model that are not there."""
    if job["data.sources"] is None and job["data.store"] is not None:
        missing = f"data.store: no store at {job['data.store']}; name data.sources to make it"
        yield from _fault_unless(job, "data.store", "manifest.json", missing)
    if _begins_at_model(job.values):
        given, known = Path(job["start.init"]).name, _inits(job.values)
        missing = f"{', '.join(known)} or the folder of a model, but is {given!r}{nearest(given, known)}"
        yield from _fault_unless(job, "start.init", "model.json", f"start.init must be {missing}")


def _fault_unless(job: Job, key: str, file: str, missing: str) -> Iterator[str]:
    """What is wrong if the folder of a key does not hold a file."""
    try:
        if not Location.of(job[key]).exists(file):
            yield missing
    except (PlmixError, OSError) as error:
        yield f"{key}: {error}"
