"""A job file: read, and checked whole before anything starts. All that is wrong with it is told at once."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmix_dist.bayes.settings import BayesSettings
from plmix_dist.engine.cluster import bytes_of
from plmix_dist.errors import JobError, PlmixError, SettingsError
from plmix_dist.inference.settings import FitSettings
from plmix_dist.jobs.schema import BAYES_INITS, KEYS, METHODS, REQUIRED, TABLES
from plmix_dist.selection.component_numbers import component_numbers
from plmix_dist.starts.start_settings import INITS
from plmix_dist.store.checkpoints import Checkpoint
from plmix_dist.store.location import Location
from plmix_dist.values import nearest, one_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.jobs.schema import Key

# Keys whose values are paths; relative ones are below the folder of the job file.
_PATHS = (
    "data.store",
    "data.sources",
    "data.covariates",
    "outputs.folder",
    "outputs.metrics",
    "checkpoint.folder",
    "cluster.tls_ca",
    "cluster.tls_cert",
    "cluster.tls_key",
)
_FILES = ("data.covariates", "cluster.tls_ca", "cluster.tls_cert", "cluster.tls_key")
_MODEL = ("m_step", "em", "ties", "alpha", "tol", "max_iter", "accelerate", "residency")
_START = ("n_init", "embedding", "svd_rank", "link", "kernel")
# What BayesianPlackettLuceMixture calls the keys of sampling.
_BAYES = {
    "n_chains": "model.chains",
    "n_warmup": "model.warmup",
    "n_draws": "model.draws",
    "thin": "model.thin",
    "worth_shape": "model.worth_shape",
    "share_concentration": "model.share_concentration",
    "residency": "model.residency",
    "init": "start.init",
}


@dataclass(frozen=True)
class Job:
    """A checked job.

    Parameters
    ----------
    values
        The value of every key of `schema.KEYS`, with absolute paths.

    Examples
    --------
    >>> import tempfile, pathlib, plmix_dist
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = plmix_dist.simulate(folder / "ballots", n_rankings=10, n_items=3)
    >>> job = job_of({"data": {"store": "ballots"}, "model": {"components": 2}, "outputs": {"folder": "out"}}, folder)
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
    def component_numbers(self) -> tuple[int, ...]:
        """The numbers of components; several if the job selects one."""
        given = self["model.components"]
        if isinstance(given, str):
            return component_numbers(given)
        return tuple(sorted(set(given))) if isinstance(given, list) else (given,)

    def fit_settings(self) -> dict[str, Any]:
        """What PlackettLuceMixture takes, but for seed and checkpoint; of a selection, for its largest mixture."""
        given = {
            **{name: self[f"model.{name}"] for name in _MODEL},
            **{name: self[f"start.{name}"] for name in _START},
            "init": self["start.init"],
        }
        settings = {name: value for name, value in given.items() if value is not None}
        return {"n_components": max(self.component_numbers), **settings}

    def choice_settings(self) -> dict[str, Any]:
        """What MixtureSelection takes, but for the numbers of components and the estimator."""
        return {
            "criterion": self["model.criterion"],
            "also": self["model.also"] or [],
            "n_folds": self["model.folds"],
        }

    def bayes_settings(self) -> dict[str, Any]:
        """What BayesianPlackettLuceMixture takes, but for seed and checkpoint."""
        return {
            "n_components": self["model.components"],
            **{name: self[key] for name, key in _BAYES.items()},
        }

    def to_json(self) -> str:
        """The job as text, for `resume`."""
        return json.dumps(self.values, indent=1)


def read_job(path: str | os.PathLike[str], *, cluster: dict[str, Any] | None = None) -> Job:
    """Read a job file (TOML), or the `job.json` of an output folder; a JobError names all that is wrong.

    Parameters
    ----------
    path
        The file.
    cluster
        Takes the place of its table [cluster].

    Examples
    --------
    >>> read_job("/nowhere/job.toml")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.JobError: /nowhere/job.toml cannot be read: No such file or directory
    """
    file = Path(path).absolute()
    try:
        given = (
            json.loads(file.read_bytes())
            if file.suffix == ".json"
            else tomllib.loads(file.read_text("utf-8"))
        )
    except OSError as error:
        raise JobError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise JobError(f"{file} is not valid: {error}") from None
    if cluster is not None and isinstance(given, dict):
        given["cluster"] = cluster
    try:
        return job_of(given, file.parent)
    except JobError as error:
        raise JobError(f"{file}: {error}") from None


def job_of(given: Any, folder: Path) -> Job:
    """The job that tables of values describe; relative paths are below `folder`."""
    faults: list[str] = []
    flat = dict(_flat(given, faults))
    values: dict[str, Any] = {}
    method = flat.get("model.method") or KEYS["model.method"].default
    for name, key in KEYS.items():
        try:
            values[name] = _value_of(key, flat.get(name), method)
        except SettingsError as error:
            faults.append(str(error))
            values[name] = None if key.default is REQUIRED else key.default
    if method == "bayes" and flat.get("start.init") is None:
        values["start.init"] = BAYES_INITS[0]
    init_is_path = values["start.init"] not in (BAYES_INITS if method == "bayes" else INITS)
    for name in (*_PATHS, "start.init") if init_is_path else _PATHS:
        try:
            values[name] = _absolute(values[name], folder)
        except RuntimeError as error:  # there is no such user
            faults.append(f"{name} is no path: {error}")
            values[name] = None
    job = Job(values)
    faults += _faults_together(job)
    if faults:
        many = f"{len(faults)} things are wrong with this job" if len(faults) > 1 else "this job is wrong"
        raise JobError(f"{many}:\n" + "\n".join(f"  {fault}" for fault in faults))
    return job


def _value_of(key: Key, given: Any, method: Any) -> Any:
    """The checked value of a key, or its default; None if it belongs to other methods than that of the job."""
    belongs = method not in METHODS or method in key.methods
    if given is not None and belongs:
        return key.check(key.name, given)
    if given is not None:
        known = " or ".join(f'"{one}"' for one in key.methods)
        raise SettingsError(
            f'{key.name} belongs to model.method = {known}, and this is a job with "{method}"; leave it out'
        )
    if key.default is REQUIRED:
        raise SettingsError(f"{key.name} is missing: {key.help[0].lower()}{key.help[1:].rstrip('.')}")
    return key.default if belongs else None


def _flat(given: Any, faults: list[str]) -> Iterator[tuple[str, Any]]:
    """Values by their full names; names that are not known are faults."""
    top = [name for name in KEYS if "." not in name]
    if not isinstance(given, dict):
        faults.append(f"a job is a table of tables, but this is {shown(given)}")
        return
    for name, value in given.items():
        if name in KEYS:
            yield name, value
        elif name in TABLES and isinstance(value, dict):
            for key, entry in value.items():
                full = f"{name}.{key}"
                if full in KEYS:
                    yield full, entry
                else:
                    known = [one.split(".")[1] for one in KEYS if one.startswith(f"{name}.")]
                    faults.append(f"[{name}] has no key {key!r}{nearest(key, known)}")
        elif name in TABLES:
            faults.append(f"{name} must be a table, [{name}], but is {shown(value)}")
        else:
            faults.append(f"there is no table or key {name!r}{nearest(name, (*TABLES, *top))}")


def _absolute(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_absolute(one, folder) for one in value]
    if not isinstance(value, str) or "://" in value:
        return value
    return str(folder / Path(value).expanduser())


def _faults_together(job: Job) -> Iterator[str]:
    """What is wrong with values that are right one by one, and with what they refer to."""
    for name in ("outputs.folder", "outputs.metrics"):
        if job[name] is not None and "://" in job[name]:
            yield f"{name} must be a path on this machine; checkpoint.folder may be a URL"
    yield from _faults_of_places(job)
    for name in _FILES:
        if job[name] is not None and not Path(job[name]).is_file():
            yield f"{name}: there is no file {job[name]}"
    yield from _faults_of_cluster(job)
    yield from _faults_of_store(job)
    yield from _faults_of_fit(job)


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


def _faults_of_store(job: Job) -> Iterator[str]:
    if job["data.sources"] is not None or job["data.store"] is None:
        return
    try:
        found = Location.of(job["data.store"]).exists("manifest.json")
    except (PlmixError, OSError) as error:
        yield f"data.store: {error}"
    else:
        if not found:
            yield f"data.store: there is no store at {job['data.store']}; name data.sources to make it"


def _faults_of_fit(job: Job) -> Iterator[str]:
    method, init = job["model.method"], job["start.init"]
    known = BAYES_INITS if method == "bayes" else INITS
    try:
        found = init in (None, *known) or Location.of(init).exists("model.json")
    except (PlmixError, OSError) as error:
        yield f"start.init: {error}"
    else:
        if not found:
            word = Path(init).name
            expected = f"{', '.join(known)} or the folder of a model"
            yield f"start.init must be {expected}, but is {word!r}{nearest(word, known)}"
    if job["model.components"] is None:
        return
    if method != "select" and not isinstance(job["model.components"], int):
        yield (
            f'model.components must be one whole number with model.method = "{method}", but is '
            f'{shown(job["model.components"])}; several need method = "select"'
        )
        return
    try:
        _check_settings(job)
    except SettingsError as error:
        yield str(error)


def _check_settings(job: Job) -> None:
    """An error for settings that do not belong together."""
    if job["model.method"] == "bayes":
        settings = job.bayes_settings()
        del settings["init"]
        BayesSettings(**settings)
        return
    FitSettings(**(job.fit_settings() | ({} if job["start.init"] in INITS else {"init": "random"})))
    if job["model.method"] == "select":
        # Selections compare likelihoods.
        one_of("model.m_step", job["model.m_step"], ("auto", "lsr", "mm"))
        one_of("model.ties", job["model.ties"], ("expand", "marginal"))
