"""Verbs for models: fit, score, predict."""

from __future__ import annotations

import contextlib
import time
import warnings
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from plmix_dist import __version__
from plmix_dist.cli import plmix
from plmix_dist.cli.fit_progress import fit_progress
from plmix_dist.cli.interruption import NOTHING_WRITTEN, file_written, tell_if_interrupted, written_so_far
from plmix_dist.cli.model_info import component_lines, component_records, favourites
from plmix_dist.cli.options import (
    PATH,
    Talk,
    checkpoint_options,
    computing,
    covariates_option,
    examples,
    force_option,
    seed_option,
    talking,
)
from plmix_dist.cli.output import EXIT_NOT_CONVERGED, number, progress_bar, show
from plmix_dist.errors import PlmixError, SettingsError, StoreError, StoreExistsError, StoreNotFoundError
from plmix_dist.interruption import time_limit
from plmix_dist.values import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from distributed import Client
    from numpy.typing import NDArray

    from plmix_dist.engine import LazyExecutor
    from plmix_dist.estimator import PlackettLuceMixture
    from plmix_dist.store import Location, RankingStore
    from plmix_dist.store.checkpoints import Checkpoint


def _rank_or_number(context: click.Context, option: click.Parameter, value: str) -> str | int:
    """The value of --svd-rank, as an integer if it is one. The fit checks it."""
    del context, option
    return int(value) if value.isdigit() else value


@plmix.command(
    epilog=examples(
        "plmix fit ballots --components 2 --out model",
        "plmix fit ballots --components 3 --out three --workers 2 --json",
    )
)
@click.argument("store", type=PATH)
@click.option(
    "--components", "n_components", type=click.IntRange(1), required=True, help="Number of components."
)
@click.option("--out", required=True, metavar="DIR", type=PATH, help="Folder for the model.")
@click.option(
    "--method",
    type=click.Choice(["paper"]),
    help="'paper': EM-LSR as published. It sets what is left at its default (docs/paper.md).",
)
@click.option(
    "--m-step",
    type=click.Choice(["auto", "lsr", "mm", "cml", "gmm", "stochastic-lsr"]),
    default="auto",
    show_default=True,
    help="How worths are re-estimated; only lsr and mm end at the maximum of the likelihood.",
)
@click.option("--em", type=click.Choice(["fused", "exact"]), default="fused", show_default=True)
@click.option(
    "--init",
    default="spectral",
    show_default=True,
    help="'spectral', 'kernel', 'moments' (two components), 'random', or the folder of a model.",
)
@click.option(
    "--n-init",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of starts run to convergence.",
)
@click.option(
    "--embedding",
    type=click.Choice(["auto", "pairwise", "rank"]),
    default="auto",
    show_default=True,
    help="How a spectral start turns rankings into vectors.",
)
@click.option(
    "--svd-rank",
    default="auto",
    show_default=True,
    callback=_rank_or_number,
    help="'auto', 'paper', or the number of singular vectors of a spectral start.",
)
@click.option(
    "--svd-threshold",
    type=float,
    default=1.0,
    show_default=True,
    help="Multiplies the threshold of --svd-rank=paper.",
)
@click.option(
    "--cluster-worths",
    type=click.Choice(["least-squares", "lsr"]),
    default="least-squares",
    show_default=True,
    help="How a spectral start estimates the worths of a cluster.",
)
@click.option("--link", type=click.Choice(["logit", "probit"]), default="logit", show_default=True)
@click.option(
    "--kernel",
    type=click.Choice(["kendall", "mallows"]),
    default="kendall",
    show_default=True,
    help="Similarity of rankings in a kernel start.",
)
@click.option(
    "--ties",
    type=click.Choice(["expand", "marginal", "resample"]),
    default="expand",
    show_default=True,
    help="How items that share a place are treated.",
)
@click.option(
    "--alpha", type=float, default=1.0, show_default=True, help="Strength of the prior; 0 for none."
)
@click.option(
    "--tol",
    type=float,
    default=1e-8,
    show_default=True,
    help="Bound on gradient and change, divided by total weight.",
)
@click.option("--max-iter", type=click.IntRange(1), default=500, show_default=True)
@click.option("--accelerate/--no-accelerate", default=True, show_default=True)
@click.option(
    "--residency", type=click.Choice(["auto", "memory", "store"]), default="auto", show_default=True
)
@click.option(
    "--performance-report",
    metavar="FILE",
    help="Save Dask's performance report as HTML; with --workers or --scheduler.",
)
@covariates_option
@checkpoint_options
@force_option
@seed_option
@computing
@talking
def fit(
    store: str,
    *,
    out: str,
    performance_report: str | None,
    covariates: str | None,
    checkpoint: Checkpoint | None,
    force: bool,
    seed: int,
    executor: LazyExecutor,
    talk: Talk,
    **settings: Any,
) -> int:
    """Fit a mixture to STORE and save it; exit code 4 if it did not converge.

    With --m-step stochastic-lsr the fit takes --max-iter iterations, and the exit code is 0.

    A second run with the same rankings, settings and version does nothing. With --checkpoint, one that was stopped goes
    on from its last state.
    """
    begun = time.perf_counter()
    _refuse_contradictions(settings)
    with fit_progress(talk, settings["tol"], settings["max_iter"]) as progress:
        if progress is not None:
            progress.stage({"stage": "open", "state": "begun"})
        from plmix_dist.data import weight_of_memberships
        from plmix_dist.engine.dashboard import saved_performance_report
        from plmix_dist.estimator import PlackettLuceMixture
        from plmix_dist.store import Location, check_target, open_store
        from plmix_dist.store.checkpoints import CheckpointFolder

        folder, opened = Location.of(out), open_store(store)
        tell_if_interrupted(what_is_left(folder, checkpoint))
        check_target(folder, "model", overwrite=force, sources=[opened.location.url])
        columns = _read_covariates(covariates)
        job = job_of(opened, seed, settings) | _covariates_of_job(columns)
        if not force and there_already(folder, job):
            return _show_there_already(folder, out, talk)
        folder.check_writable()  # before hours of computing
        if progress is not None:
            progress.stage({"stage": "open", "state": "ended", "weight": opened.total_weight})
        if force and checkpoint is not None:
            CheckpointFolder(Location.of(checkpoint.path)).clear()
        model = PlackettLuceMixture(random_state=seed, progress=progress, checkpoint=checkpoint, **settings)
        client = executor.client_if_asked()
        # With a checkpoint, SIGTERM saves the state and ends in order.
        with (
            contextlib.nullcontext() if checkpoint is None else time_limit(None),
            saved_performance_report(client or None, performance_report),
        ):
            _fit_without_warnings(model, opened, client, columns)
    model.save(folder, about={"job": job, "fitted_to": _fitted_to(store, opened)})
    record = _fit_record(model, out, weight_of_memberships(opened), time.perf_counter() - begun)
    lines = [*_fit_lines(model, record, _unit(opened)), *_truth_lines(model, store, record)]
    show(lines, record, **vars(talk))
    return _exit_code(model)


def _refuse_contradictions(settings: dict[str, Any]) -> None:
    """An error if an option was typed that the method sets otherwise; an estimator cannot know a typed default."""
    from plmix_dist.inference.methods import METHODS

    if settings["method"] is None:
        return
    method, context = METHODS[settings["method"]], click.get_current_context()
    for name, value in method.settings.items():
        typed = name in settings and context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if typed and name not in method.open and settings[name] != value:
            raise SettingsError(
                f"method={method.name!r} has {name}={value!r}, but {name} is {shown(settings[name])}; leave {name} "
                "out, or leave method out and set the parameters you want"
            )


def what_is_left(
    folder: Location, checkpoint: Checkpoint | None, last: str = "model.json"
) -> Callable[[], str]:
    """What to say of a fit that is interrupted before it wrote `last`: it begins again, or goes on."""
    from plmix_dist.store import Location
    from plmix_dist.store.checkpoints import CheckpointFolder

    written = written_so_far(folder, "wip/none", last)

    def words() -> str:
        said = written()
        if checkpoint is None or said != NOTHING_WRITTEN:
            return said
        saved = CheckpointFolder(Location.of(checkpoint.path)).newest()
        if saved is None:
            return said
        return f"its state is saved at {checkpoint.path}; run the same command again to continue"

    return words


def _fitted_to(store: str, opened: RankingStore) -> dict[str, Any]:
    """What people want to know of the data, for `plmix info MODEL`."""
    return {"store": store, "n_rankings": opened.n_rankings, "total_weight": opened.total_weight}


def _read_covariates(path: str | None) -> NDArray[np.float64] | None:
    """The covariates in a file, if one is given."""
    from plmix_dist.data.covariate_files import read_covariates

    return None if path is None else read_covariates(path)


def _covariates_of_job(columns: NDArray[np.float64] | None) -> dict[str, str]:
    """A digest of covariates, if there are any: another file gives another model."""
    from plmix_dist.store.manifest import sha256
    from plmix_dist.store.npy import npy_bytes

    return {} if columns is None else {"covariates": sha256(npy_bytes(columns))[:16]}


def _fit_without_warnings(
    model: PlackettLuceMixture,
    opened: RankingStore,
    client: Client | Literal[False],
    columns: NDArray[np.float64] | None,
) -> None:
    """Fit. What the result says need not be said by warnings."""
    from plmix_dist.errors import CollapsedComponentWarning, NotConvergedWarning

    with warnings.catch_warnings():
        for said_in_the_result in (NotConvergedWarning, CollapsedComponentWarning):
            warnings.simplefilter("ignore", said_in_the_result)
        model.fit(opened, client=client, membership_covariates=columns)


@plmix.command(epilog=examples("plmix score model ballots"))
@click.argument("model", type=PATH)
@click.argument("store", type=PATH)
@covariates_option
@computing
@talking
def score(model: str, store: str, *, covariates: str | None, executor: LazyExecutor, talk: Talk) -> None:
    """Mean log-likelihood of the rankings of STORE under MODEL."""
    with progress_bar("score", shown=talk.progress, as_json=talk.as_json):
        from plmix_dist.data import weight_of_memberships
        from plmix_dist.estimator import PlackettLuceMixture
        from plmix_dist.store import open_store

        _check_order(model, store)
        opened = open_store(store)
        value = PlackettLuceMixture.load(model).score(
            opened, client=executor.client_if_asked(), membership_covariates=_read_covariates(covariates)
        )
    record = {
        "score": value,
        "log_likelihood": value * weight_of_memberships(opened),
        "total_weight": opened.total_weight,
    }
    show([("score", f"{value:.10g} mean log-likelihood per {_unit(opened)}")], record, **vars(talk))


@plmix.command(
    epilog=examples(
        "plmix predict model ballots memberships", "plmix predict model ballots memberships.parquet"
    )
)
@click.argument("model", type=PATH)
@click.argument("store", type=PATH)
@click.argument("out", type=PATH)
@covariates_option
@force_option
@computing
@talking
def predict(
    model: str,
    store: str,
    out: str,
    *,
    covariates: str | None,
    force: bool,
    executor: LazyExecutor,
    talk: Talk,
) -> None:
    """Write the membership of every ranking of STORE under MODEL to OUT.

    OUT becomes a folder of Zarr arrays, or one Parquet file with the ids of the rankings if its name ends in .parquet.
    """
    as_table = out.endswith((".parquet", ".pq"))
    with progress_bar("predict", shown=talk.progress, as_json=talk.as_json) as progress:
        from plmix_dist.estimator import PlackettLuceMixture
        from plmix_dist.membership_table import write_membership_table
        from plmix_dist.mixture import MixtureParams
        from plmix_dist.prediction import write_predictions
        from plmix_dist.store import Location
        from plmix_dist.store.targets import MEMBERSHIPS_PLAN

        left = (
            file_written(out) if as_table else written_so_far(Location.of(out), MEMBERSHIPS_PLAN, "zarr.json")
        )
        tell_if_interrupted(left)
        _check_order(model, store)
        fitted = PlackettLuceMixture.load(model)
        write = write_membership_table if as_table else write_predictions
        written = write(
            MixtureParams.load(model),
            store,
            out,
            overwrite=force,
            executor=executor,
            ties=fitted.ties,
            progress=progress,
            share_coefficients=fitted.share_coefficients_,
            membership_covariates=_read_covariates(covariates),
        )
    named = {"columns": _columns_of(out)} if as_table else {"arrays": ["probabilities", "component"]}
    (parts,) = named.values()
    record = {"out": out, "n_rankings": written.n_rankings, **named, "changed": written.changed}
    lines = [("predicted", f"{number(written.n_rankings)} memberships to {out} ({', '.join(parts)})")]
    if not written.changed:
        lines = [("nothing to do", f"{out} already holds exactly these memberships")]
    show(lines, record, **vars(talk))


def _check_order(model: str, store: str) -> None:
    """An error if the user named the store first."""
    from plmix_dist.store import Location
    from plmix_dist.store.targets import kind_at

    if (kind_at(Location.of(model)), kind_at(Location.of(store))) == ("store", "model"):
        raise SettingsError(f"the model comes first, then the store: {store} {model}")


def _columns_of(path: str) -> list[str]:
    """The names of the columns of a Parquet file."""
    from plmix_dist.membership_table import columns_of

    return columns_of(path)


def job_of(opened: RankingStore, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """What determines a fitted model: the rankings, the settings, the version."""
    from plmix_dist.store import Location
    from plmix_dist.store.manifest import sha256
    from plmix_dist.store.reader import digest_of_store

    init = settings["init"]
    if init not in ("spectral", "kernel", "moments", "random"):
        with contextlib.suppress(PlmixError, OSError):  # what is wrong with it, the fit will say
            init = f"{init} {sha256(Location.of(init).read_bytes('model.json'))[:12]}"
    told = {name: value for name, value in settings.items() if name != "residency"}  # it changes no bit
    return {
        "rankings": sha256(f"{digest_of_store(opened)} {opened.item_names}".encode())[:16],
        "version": __version__,
        "seed": seed,
        **told,
        "init": init,
    }


def there_already(folder: Location, job: dict[str, Any]) -> bool:
    """Whether the model of this job is there; an error if another one is."""
    from plmix_dist.store.models import MODEL, load_model
    from plmix_dist.store.targets import HOW_TO_REPLACE, differences

    if not folder.exists(MODEL):
        return False
    there = load_model(folder).record.get("job")
    if not isinstance(there, dict):
        raise StoreExistsError(
            f"{folder.url} already holds a model, and it does not say what it was fitted to; {HOW_TO_REPLACE}"
        )
    if there == job:
        return True
    raise StoreExistsError(
        f"{folder.url} already holds another model ({differences(job, there)}); {HOW_TO_REPLACE}"
    )


def _show_there_already(folder: Location, out: str, talk: Talk) -> int:
    """Say that nothing is to be done; gives the exit code that the fit had."""
    from plmix_dist.estimator import PlackettLuceMixture

    model = PlackettLuceMixture.load(folder)
    record = {
        "model": out,
        "changed": False,
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "shares": model.shares_.tolist(),
        "item_names": list(model.item_names_),
        "components": component_records(model),
    }
    words = f"{out} already holds this model: the same rankings, settings and version"
    show([("nothing to do", words)], record, **vars(talk))
    return _exit_code(model)


def _exit_code(model: PlackettLuceMixture) -> int:
    """Whether the fit did what was asked for: converge, or take a number of random steps."""
    return 0 if model.converged_ or _is_random(model) else EXIT_NOT_CONVERGED


def _is_random(model: PlackettLuceMixture) -> bool:
    """Whether the steps of the fit were drawn, so that they never settle."""
    from plmix_dist.solvers import M_STEPS

    return model.m_step_ in M_STEPS and M_STEPS[model.m_step_].draws


def _fit_record(model: PlackettLuceMixture, out: str, total_weight: float, seconds: float) -> dict[str, Any]:
    """The result of a fit, for --json."""
    return {
        "model": out,
        "changed": True,
        "n_iter": model.n_iter_,
        "converged": model.converged_,
        "log_likelihood": model.log_likelihood_,
        "score": model.log_likelihood_ / total_weight,
        "gradient_norm": model.gradient_norm_,
        "method": model.method,
        "m_step": model.m_step_,
        "init": {name: value for name, value in model.init_.items() if not hasattr(value, "shape")},
        "shares": model.shares_.tolist(),
        "posterior_shares": model.posterior_shares_.tolist(),
        "item_names": list(model.item_names_),
        "components": component_records(model),
        "events": model.events_,
        "seconds": round(seconds, 3),
    }


def _unit(opened: RankingStore) -> str:
    """What a mean log-likelihood is taken over."""
    return "ranking" if opened.label_kind("groups") == "none" else "person"


def _fit_lines(model: PlackettLuceMixture, record: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    """The result of a fit as lines of text."""
    state = "converged in" if model.converged_ else "NOT converged in"
    state = "random steps for" if _is_random(model) else state
    return [
        ("model", record["model"]),
        ("fit", f"{state} {model.n_iter_} iterations, {record['seconds']:.2f} s (m-step {model.m_step_})"),
        ("start", _start_line(model.init_)),
        ("score", f"{record['score']:.6f} mean log-likelihood per {unit}"),
        *((event["action"], f"component {event['component']} had collapsed") for event in model.events_),
        *component_lines(model),
    ]


def _start_line(init: dict[str, Any]) -> str:
    """How the fit was started, and what the start cost."""
    before = [stage for stage in init["stages"] if stage["stage"] != "fit"]
    seconds, passes = (sum(stage[what] for stage in before) for what in ("seconds", "passes"))
    rank = f" on {init['rank']} of {len(init['singular_values'])} singular vectors" if "rank" in init else ""
    search = init.get("search")
    found = f"; best end found by {search['n_best']} of {search['n_starts']} starts" if search else ""
    return f"{init['method']}{rank}, {seconds:.2f} s, {passes:.1f} passes over the rows{found}"


def _truth_lines(model: PlackettLuceMixture, store: str, record: dict[str, Any]) -> list[tuple[str, str]]:
    """The true parameters of a simulated store, matched with the fitted components."""
    from plmix_dist.metrics import match_components, matched_distance
    from plmix_dist.mixture import MixtureParams

    try:
        truth = MixtureParams.load(f"{store.rstrip('/')}.truth")
    except StoreNotFoundError:
        return []
    except StoreError as error:  # the fit itself is saved
        return [("truth", str(error))]
    if truth.log_worths.shape != model.log_worths_.shape:
        return [("truth", f"{truth.n_components} components")]
    order = match_components(truth.log_worths, model.log_worths_)
    record["distance_to_truth"] = matched_distance(model.log_worths_, truth.log_worths)
    beside = [
        (f"truth {k}", f"{truth.shares[j]:6.1%}  {favourites(truth.log_worths[j], truth.item_names)}")
        for k, j in enumerate(order)
    ]
    return [*beside, ("distance", f"{record['distance_to_truth']:.4f} to the truth, components matched")]
