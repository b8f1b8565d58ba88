"""Verbs for models: fit, score, predict; and what fit, select and bayes share."""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

import plmix_dist as plm
from plmix_dist.cli import options
from plmix_dist.cli.main import NOTHING_WRITTEN, file_written, on_interruption, written_so_far
from plmix_dist.cli.options import MODEL, PATH, STORE, option, verb
from plmix_dist.cli.output import EXIT_NOT_CONVERGED, fit_progress, number, progress_bar, show
from plmix_dist.cluster.executor import LazyExecutor
from plmix_dist.errors import SettingsError, StoreError, StoreNotFoundError
from plmix_dist.threads import time_limit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from plmix_dist.models.base import MixtureEstimator
    from plmix_dist.rankings import Unranked
    from plmix_dist.store import Location

# A line shows this many items of a component.
_ITEMS_SHOWN = 5


# --- what fit, select and bayes share ----------------------------------------------------------------------


class _Finished(NamedTuple):
    """A computation of a verb: the fitted estimator, its store and folder, and what it was made from."""

    found: Any
    store: plm.RankingStore
    folder: Location
    made_from: dict[str, Any]
    seconds: float


def _model_is_there(folder: Location, store: plm.RankingStore, made_from: dict[str, Any], *, force: bool) -> bool:
    """Whether the model is there; an error if something else is, or another model without `force`."""
    from plmix_dist.jobs import results
    from plmix_dist.store import check_target

    check_target(folder, "model", overwrite=force, sources=[store.location.url])
    return not force and results.is_there(folder, made_from)


def run_work(
    task: str,
    store: str,
    out: str,
    *,
    settings: dict[str, Any],
    checkpoint: plm.Checkpoint | None,
    force: bool,
    seed: int,
    executor: LazyExecutor,
    is_there: Callable[..., bool] = _model_is_there,
    covariates: str | None = None,
    features: str | None = None,
    intercepts: bool | None = None,
    performance_report: str | None = None,
    last: str = "model.json",
) -> _Finished | None:
    """Compute what a verb asks for; None if `is_there` finds it in the folder. `last` is the file that completes it."""
    begun = time.perf_counter()
    with fit_progress(settings.get("tol", 1.0), settings.get("max_iter", 1)) as progress:
        if progress is not None:
            progress.stage({"stage": "open", "state": "begun"})
        from plmix_dist.cluster.clients import saved_performance_report
        from plmix_dist.jobs.results import Work
        from plmix_dist.store import Location, checkpoints

        work = Work(task, settings, seed, covariates, features.split(",") if features else None, intercepts)
        work.checked(typed(settings))
        folder, opened = Location.of(out), plm.open_store(store)
        on_interruption(_what_is_left(folder, checkpoint, last))
        made_from = work.made_from(opened)
        if is_there(folder, opened, made_from, force=force):
            return None
        folder.check_writable()  # before hours of computing
        if progress is not None:
            progress.stage({"stage": "open", "state": "ended", "weight": opened.total_weight})
        if force and checkpoint is not None:
            checkpoints.CheckpointFolder(Location.of(checkpoint.path)).clear()
        client = executor.client_if_asked()
        # With a checkpoint, SIGTERM saves the state and ends in order.
        with (
            contextlib.nullcontext() if checkpoint is None else time_limit(None),
            saved_performance_report(client or None, performance_report),
        ):
            found = work.compute(opened, client=client, progress=progress, checkpoint=checkpoint)
    return _Finished(found, opened, folder, made_from, time.perf_counter() - begun)


def typed(settings: dict[str, Any]) -> list[str]:
    """The settings that the user gave to this verb."""
    source = click.get_current_context().get_parameter_source
    return [name for name in settings if source(name) is not ParameterSource.DEFAULT]


def _what_is_left(folder: Location, checkpoint: plm.Checkpoint | None, last: str) -> Callable[[], str]:
    """The message for a computation that is interrupted before it wrote `last`: it begins again, or continues."""
    from plmix_dist.store import Location, checkpoints

    written = written_so_far(folder, "wip/none", last)

    def words() -> str:
        found = written()
        if checkpoint is None or found != NOTHING_WRITTEN:
            return found
        if checkpoints.CheckpointFolder(Location.of(checkpoint.path)).newest() is None:
            return found
        return f"its state is saved at {checkpoint.path}; run the same command again to continue"

    return words


def results_of(model: MixtureEstimator, *names: str) -> dict[str, Any]:
    """Some results of a fit for --json."""
    found = {name: getattr(model, f"{name}_") for name in names}
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in found.items()}


def component_lines(model: MixtureEstimator) -> list[tuple[str, str]]:
    """A line per component: its share, and the items of the largest log-worths. Numbers begin with 0, as in Python."""
    return [
        (f"component {k}", f"{share:6.1%}  {_favourites(model.log_worths_[k], model.item_names_, by)}")
        for k, (share, by) in enumerate(zip(model.shares_, model._reading().by, strict=True))
    ]


def component_records(model: plm.PlackettLuceMixture) -> list[dict[str, Any]]:
    """The same for --json: number, share and the first items of each component."""
    return [
        {
            "component": k,
            "share": float(share),
            "top_items": [
                {"item": name, "log_worth": worth} for name, worth in _best(model.log_worths_[k], model.item_names_, by)
            ],
        }
        for k, (share, by) in enumerate(zip(model.shares_, model._reading().by, strict=True))
    ]


def _favourites(log_worths: NDArray[np.float64], names: tuple[str, ...], by: Any) -> str:
    """The best items, and their log-worths."""
    return "  ".join(f"{name} {worth:+.2f}" for name, worth in _best(log_worths, names, by))


def _best(log_worths: NDArray[np.float64], names: tuple[str, ...], by: NDArray[np.float64]) -> list[tuple[str, float]]:
    """The items of which `by` is largest (log-worths, or of slates first choices), and their log-worths."""
    return [(names[item], float(log_worths[item])) for item in by.argsort()[::-1][:_ITEMS_SHOWN]]


# --- the verbs ---------------------------------------------------------------------------------------------


@verb("plmix fit ballots --components 2 --out model", "plmix fit ballots --components 3 --out three --workers 2 --json")
@click.argument("store", metavar="STORE|FILE", type=STORE)
@option("--out", required=True, metavar="DIR", type=PATH, help="Folder for the model.")
@options.unranked_option
@options.covariates_option
@options.features_option
@options.intercepts_option
@option(
    "--performance-report",
    cls=options.AdvancedOption,
    metavar="FILE",
    help="Save Dask's performance report as HTML; with --workers or --scheduler.",
)
@options.work_options("fit")
def fit(store: str, *, out: str, unranked: Unranked | None, **options: Any) -> int:
    """Fit a mixture to STORE and save it; exit code 4 if it did not converge.

    A FILE of rankings is read as `plmix ingest` does, into a store that is removed after the fit.

    With --m-step stochastic-lsr the fit takes --max-iter iterations, and the exit code is 0.

    A second run with the same rankings, settings and version does nothing. With --checkpoint, one that was stopped goes
    on from its last state.
    """
    with _store_of(store, unranked, out) as (opened, read):
        if (done := run_work("fit", opened, out, **options)) is None:
            return _show_there_already(out)
        from plmix_dist.datasets.given import weight_of_memberships

        model: plm.PlackettLuceMixture = done.found
        # What people want to know of the data, for `plmix info MODEL`.
        of = {"store": store, "n_rankings": done.store.n_rankings, "total_weight": done.store.total_weight}
        model.save(done.folder, about={"job": done.made_from, "fitted_to": of})
        record = _fit_record(model, out, weight_of_memberships(done.store), done.seconds)
        show([*read, *_fit_lines(model, record, _unit(done.store)), *_truth_lines(model, opened, record)], record)
        return _exit_code(model)


@contextlib.contextmanager
def _store_of(source: str, unranked: Unranked | None, out: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The store to fit, and lines that say how a file was read into a temporary one."""
    from pathlib import Path

    if "://" in source or not Path(source).expanduser().is_file():
        if unranked is not None:
            raise SettingsError("a store says itself what unranked items mean; leave out --unranked")
        yield source, []
        return
    from plmix_dist.datasets.ingest import first_rankings
    from plmix_dist.store import Location, check_target

    check_target(Location.of(out), "model", overwrite=True, sources=[source])
    with tempfile.TemporaryDirectory(prefix="plmix-fit-") as folder:
        store = plm.ingest(source, f"{folder}/store", unranked=unranked)
        said = store.manifest.history[-1]["read_as"]
        kind = f" as {said[0]['format']}" if said else ""
        sizes = f"{number(store.n_rankings)} rankings of {number(store.n_items)} items"
        lines = [("read", f"{source}{kind} into a temporary store: {sizes}")]
        lines += [("first" if not place else "", row) for place, row in enumerate(first_rankings(store))]
        lines += [("guess", guess) for one in said for guess in one["guesses"]]
        yield f"{folder}/store", lines


@verb("plmix score model ballots")
@click.argument("model", type=MODEL)
@click.argument("store", type=STORE)
@options.covariates_option
@options.executor_options
def score(model: str, store: str, *, covariates: str | None, executor: LazyExecutor) -> None:
    """Mean log-likelihood of the rankings of STORE under MODEL."""
    with progress_bar("score"):
        from plmix_dist.datasets.given import weight_of_memberships
        from plmix_dist.tables.sources import covariates_named

        _check_order(model, store)
        data, fitted = plm.open_store(store), plm.PlackettLuceMixture.load(model)
        columns, client = covariates_named(covariates), executor.client_if_asked()
        value = fitted.score(data, client=client, membership_covariates=columns)
    record = {"score": value, "log_likelihood": value * weight_of_memberships(data), "total_weight": data.total_weight}
    show([("score", f"{value:.10g} mean log-likelihood per {_unit(data)}")], record)


@verb("plmix predict model ballots who.csv", "plmix predict model ballots memberships.parquet")
@click.argument("model", type=MODEL)
@click.argument("store", type=STORE)
@click.argument("out", type=PATH)
@options.covariates_option
@options.force_option
@options.executor_options
def predict(model: str, store: str, out: str, *, covariates: str | None, force: bool, executor: LazyExecutor) -> None:
    """Write the probable group of every ranking of STORE under MODEL to OUT.

    OUT is a table with the ids of the rankings if its name ends in .csv or .parquet, and a folder of Zarr arrays if it
    has no suffix or ends in .zarr.
    """
    with progress_bar("predict") as progress:
        from plmix_dist.prediction import memberships
        from plmix_dist.store import Location, targets
        from plmix_dist.tables.sources import covariates_named

        as_table = out.endswith(memberships.TABLE_SUFFIXES)
        if not as_table and (suffix := re.search(r"\.(?!zarr$)[A-Za-z]\w{1,6}$", out.rstrip("/"))):
            raise SettingsError(
                f"memberships are not written as {suffix[0]}; end OUT in {', '.join(memberships.TABLE_SUFFIXES)} for a "
                "table, or in .zarr or no suffix for a folder of arrays"
            )
        plan = targets.MEMBERSHIPS_PLAN
        on_interruption(file_written(out) if as_table else written_so_far(Location.of(out), plan, "zarr.json"))
        _check_order(model, store)
        fitted = plm.PlackettLuceMixture.load(model)
        write = memberships.write_membership_table if as_table else memberships.write_predictions
        columns = fitted._rankings(store, membership_covariates=covariates_named(covariates)).covariates
        written = write(
            fitted._mixture(),
            store,
            out,
            overwrite=force,
            executor=executor,
            ties=fitted._ties,
            progress=progress,
            share_coefficients=fitted.share_coefficients_,
            membership_covariates=columns,
        )
    named = {"columns": memberships.columns_of(out)} if as_table else {"arrays": ["probabilities", "component"]}
    (parts,) = named.values()
    lines = [("predicted", f"{number(written.n_rankings)} memberships to {out} ({', '.join(parts)})")]
    if not written.changed:
        lines = [("nothing to do", f"{out} already holds exactly these memberships")]
    show(lines, {"out": out, "n_rankings": written.n_rankings, **named, "changed": written.changed})


def _check_order(model: str, store: str) -> None:
    """An error if the user named the store first."""
    from plmix_dist.store import Location, targets

    if [targets.kind_at(Location.of(place)) for place in (model, store)] == ["store", "model"]:
        raise SettingsError(f"the model comes first, then the store: {store} {model}")


def _show_there_already(out: str) -> int:
    """Print that nothing is to be done; gives the exit code that the fit had."""
    model = plm.PlackettLuceMixture.load(out)
    results = results_of(model, "converged", "n_iter", "shares", "item_names")
    record = {"model": out, "changed": False, **results, "components": component_records(model)}
    show([("nothing to do", f"{out} already holds this model: the same rankings, settings and version")], record)
    return _exit_code(model)


def _exit_code(model: plm.PlackettLuceMixture) -> int:
    """Whether the fit did what was asked for: converge, or take a number of random steps."""
    return 0 if model.converged_ or _is_random(model) else EXIT_NOT_CONVERGED


def _is_random(model: plm.PlackettLuceMixture) -> bool:
    """Whether the steps of the fit were drawn, so that they never settle."""
    from plmix_dist.solvers import M_STEPS

    return model.m_step_ in M_STEPS and M_STEPS[model.m_step_].draws


def _fit_record(model: plm.PlackettLuceMixture, out: str, total_weight: float, seconds: float) -> dict[str, Any]:
    """The result of a fit, for --json."""
    return {
        "model": out,
        "changed": True,
        **results_of(model, "n_iter", "converged", "log_likelihood"),
        "score": model.log_likelihood_ / total_weight,
        "gradient_norm": model.gradient_norm_,
        "method": model.method,
        "m_step": model.m_step_,
        "init": {name: value for name, value in model.init_.items() if not hasattr(value, "shape")},
        **results_of(model, "shares", "posterior_shares", "item_names"),
        "components": component_records(model),
        "events": model.events_,
        "seconds": round(seconds, 3),
    }


def _unit(opened: plm.RankingStore) -> str:
    """What a mean log-likelihood is taken over."""
    return "ranking" if opened.label_kind("groups") == "none" else "person"


def _fit_lines(model: plm.PlackettLuceMixture, record: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    """The result of a fit as lines of text."""
    from plmix_dist.report.history import ended_flat

    state = "converged in" if model.converged_ else "NOT converged in"
    state = "random steps for" if _is_random(model) else state
    state = "ended where the likelihood is flat, after" if ended_flat(model.history_) else state
    to_do = f"the model is saved, but is not at its best: raise --max-iter (it was {model.max_iter})"
    return [
        ("model", record["model"]),
        ("fit", f"{state} {model.n_iter_} iterations, {record['seconds']:.2f} s (m-step {model.m_step_})"),
        *([("to do", to_do)] if _exit_code(model) else []),
        *_start_lines(model.init_),
        ("score", f"{record['score']:.6f} mean log-likelihood per {unit}"),
        *((event["action"], f"component {event['component']} had collapsed") for event in model.events_),
        *component_lines(model),
    ]


def _start_lines(init: dict[str, Any]) -> list[tuple[str, str]]:
    """How the fit was started and what that cost, and whether other starts led to the same end."""
    before = [stage for stage in init["stages"] if stage["stage"] != "fit"]
    seconds, passes = (sum(stage[what] for stage in before) for what in ("seconds", "passes"))
    rank = f", from {init['rank']} of {len(init['singular_values'])} singular vectors" if "rank" in init else ""
    lines = [("start", f"{init['method']}{rank}; it took {seconds:.2f} s and read the rankings {passes:.1f} times")]
    if search := init.get("search"):
        n_starts, n_varied = search["n_starts"], search.get("n_varied", 0)
        n_best = search["n_best"] - n_varied
        varied = f", as did {n_varied} variations of it" if n_varied else ""
        doubt = "; there may be a better fit: try another --seed" if n_best <= 1 < n_starts else ""
        found = f"{n_best} of {n_starts} starts tried led to this fit, the best one found{varied}{doubt}"
        lines.append(("search", found))
    return lines


def _truth_lines(model: plm.PlackettLuceMixture, store: str, record: dict[str, Any]) -> list[tuple[str, str]]:
    """The true parameters of a simulated store, matched with the fitted components."""
    from plmix_dist.metrics import match_components, matched_distance

    try:
        truth = plm.MixtureParams.load(f"{store.rstrip('/')}.truth")
    except StoreNotFoundError:
        return []
    except StoreError as error:  # the fit itself is saved
        return [("truth", str(error))]
    if truth.log_worths.shape != model.log_worths_.shape:
        return [("truth", f"{truth.n_components} components")]
    order = match_components(truth.log_worths, model.log_worths_)
    record["distance_to_truth"] = matched_distance(model.log_worths_, truth.log_worths)
    rows = zip(truth.shares, truth.log_worths, strict=True)
    words = [f"{share:6.1%}  {_favourites(worths, truth.item_names, worths)}" for share, worths in rows]
    distance = f"{record['distance_to_truth']:.4f} to the truth, components matched"
    return [*((f"truth {k}", words[j]) for k, j in enumerate(order)), ("distance", distance)]
