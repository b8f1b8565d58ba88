"""The verbs select, which chooses a number of components, and bayes, which draws from the posterior of a mixture."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import click

from plmix_dist.cli.main import plmix
from plmix_dist.cli.model import component_lines, model_is_there, run_work
from plmix_dist.cli.options import PATH, STORE, Output, Verb, examples, work_options
from plmix_dist.cli.output import EXIT_NOT_CONVERGED, json_text, show
from plmix_dist.errors import DamagedStoreError, StoreExistsError

if TYPE_CHECKING:
    from plmix_dist.cluster.executor import LazyExecutor
    from plmix_dist.models.bayesian import BayesianPlackettLuceMixture
    from plmix_dist.models.predictive_density import Waic
    from plmix_dist.models.selection import MixtureSelection
    from plmix_dist.store import Location, RankingStore

_PLOT = "plot.png"
_LARGEST_JSON = 1 << 26


@plmix.command(cls=Verb, epilog=examples("plmix select ballots --components 1:4 --out chosen"))
@click.argument("store", type=STORE)
@click.option("--out", required=True, metavar="DIR", type=PATH, help="Folder for table, plot and the chosen model.")
@work_options("select")
def select(store: str, *, out: str, output: Output, force: bool, **options: Any) -> int:
    """Fit mixtures with several numbers of components to STORE, choose one, and save it.

    DIR gets selection.json (the table), plot.png (if matplotlib is installed) and model, the chosen model. Exit code 4
    if the chosen fit did not converge. A second run with the same rankings, settings and version does nothing. With
    --checkpoint, one that was stopped goes on from its last state.
    """
    there: dict[str, Any] = {}

    def is_there(folder: Location, opened: RankingStore, made_from: dict[str, Any]) -> bool:
        from plmix_dist.jobs.results import is_same, refuse_other

        there.update(_there(folder, opened, overwrite=force) or {})
        if force or not there:
            return False
        return (
            is_same(made_from, there["job"]) or refuse_other(folder, "selection", made_from, there["job"])
        ) and folder.exists("model/model.json")

    options |= {"output": output, "force": force}
    done = run_work("select", store, out, is_there=is_there, last="model/model.json", **options)
    if done is None:
        return _show_there_already(there, out, output)
    from plmix_dist.store.targets import SELECTION, clear_target

    found: MixtureSelection = done.found
    if done.folder.exists(SELECTION):
        clear_target(done.folder, "selection")
    record = _record(found, out, done.seconds)
    # The table comes first: it marks the folder as that of a selection. The model comes last and completes it.
    done.folder.write_bytes(SELECTION, json_text(record | {"job": done.made_from}).encode())
    _write_plot(found, done.folder)
    found.best_estimator_.save(done.folder.child("model"), about={"job": done.made_from})
    show(_lines(found, record), record, output)
    return 0 if found.best_estimator_.converged_ else EXIT_NOT_CONVERGED


def _there(folder: Location, opened: RankingStore, *, overwrite: bool) -> dict[str, Any] | None:
    """The selection that the folder holds; an error if it holds anything else."""
    from plmix_dist.store.targets import SELECTION, check_target

    check_target(folder, "selection", overwrite=overwrite, sources=[opened.location.url])
    if not folder.exists(SELECTION):
        names = folder.names(folders=True)
        if names:
            raise StoreExistsError(
                f"{folder.url} holds other files, such as {names[0]}; a selection needs a folder of its own, so choose "
                "another path"
            )
        return None
    try:
        found = json.loads(folder.read_bytes(SELECTION, _LARGEST_JSON))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("job"), dict):
        if overwrite:
            return {}
        raise DamagedStoreError(f"{folder.url}/{SELECTION} cannot be read; replace it with --force")
    return found


def _show_there_already(there: dict[str, Any], out: str, output: Output) -> int:
    """Print that nothing is to be done; gives the exit code that the selection had."""
    record = {name: value for name, value in there.items() if name != "job"} | {"changed": False}
    words = f"{out} already holds this selection: the same rankings, settings and version"
    show([("nothing to do", words), ("chosen", there.get("words", ""))], record, output)
    rows = {row["n_components"]: row for row in there.get("table", [])}
    return 0 if rows.get(there.get("n_components"), {}).get("converged", True) else EXIT_NOT_CONVERGED


def _write_plot(found: MixtureSelection, folder: Location) -> None:
    """Draw the criterion into a file; nothing is drawn if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    found.plot(figure.add_subplot())
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    folder.write_bytes(_PLOT, drawn.getvalue())


def _record(found: MixtureSelection, out: str, seconds: float) -> dict[str, Any]:
    """The result, for --json and for selection.json."""
    from plmix_dist.jobs.results import choice_of

    return {
        "out": out,
        "model": f"{out.rstrip('/')}/model",
        "changed": True,
        **choice_of(found),
        "seconds": round(seconds, 3),
    }


def _lines(found: MixtureSelection, record: dict[str, Any]) -> list[tuple[str, str]]:
    """The result as lines of text."""
    return [
        ("model", record["model"]),
        *(("", line) for line in found.summary().splitlines()),
        ("seconds", f"{record['seconds']:.2f}"),
    ]


# --- bayes -------------------------------------------------------------------------------------------------


@plmix.command(cls=Verb, epilog=examples("plmix bayes ballots --components 2 --out draws --warmup 200 --draws 500"))
@click.argument("store", type=STORE)
@click.option("--out", required=True, metavar="DIR", type=PATH, help="Folder for the model and its draws.")
@click.option("--waic", is_flag=True, help="Compute WAIC, which takes as long as 500 passes over the rankings.")
@work_options("bayes")
def bayes(
    store: str, *, out: str, waic: bool, output: Output, force: bool, executor: LazyExecutor, **options: Any
) -> int:
    """Sample from the posterior of a mixture for STORE; exit code 4 if the chains have not mixed.

    A second run with the same rankings, settings and version does nothing. With --checkpoint, one that was stopped goes
    on from its last state.
    """
    there = model_is_there(force=force)
    options |= {"output": output, "force": force, "executor": executor}
    done = run_work("bayes", store, out, is_there=there, **options)
    if done is None:
        return _show_draws_there(out, output)
    model: BayesianPlackettLuceMixture = done.found
    found = model.waic(done.store, client=executor.client_if_asked()) if waic else None
    model.save(done.folder, about={"job": done.made_from})
    record = _record_of_draws(model, out, found, done.seconds)
    show(_lines_of_draws(model, record, found), record, output)
    return 0 if model.converged_ else EXIT_NOT_CONVERGED


def _show_draws_there(out: str, output: Output) -> int:
    """Print that nothing is to be done; gives the exit code that the first run had."""
    from plmix_dist.models.bayesian import BayesianPlackettLuceMixture

    model = BayesianPlackettLuceMixture.load(out)
    record = {"model": out, "changed": False, "converged": model.converged_}
    words = f"{out} already holds these draws: the same rankings, settings and version"
    show([("nothing to do", words)], record, output)
    return 0 if model.converged_ else EXIT_NOT_CONVERGED


def _record_of_draws(
    model: BayesianPlackettLuceMixture, out: str, found: Waic | None, seconds: float
) -> dict[str, Any]:
    """The result, for --json."""
    lower, upper = model.intervals(0.95).shares
    return {
        "model": out,
        "changed": True,
        "converged": model.converged_,
        "largest_r_hat": model.diagnostics_.largest_r_hat,
        "least_ess": model.diagnostics_.least_ess,
        "n_sweeps": model.n_iter_,
        "log_likelihood": model.log_likelihood_,
        "map_log_likelihood": model.map_log_likelihood_,
        "map_converged": model.map_converged_,
        "dic": model.dic_,
        "waic": None if found is None else found._asdict() | {"waic": found.waic},
        "shares": model.shares_.tolist(),
        "share_intervals": [lower.tolist(), upper.tolist()],
        "stages": model.stages_,
        "seconds": round(seconds, 3),
    }


def _lines_of_draws(
    model: BayesianPlackettLuceMixture, record: dict[str, Any], found: Waic | None
) -> list[tuple[str, str]]:
    """The result as lines of text."""
    state = "mixed" if model.converged_ else "NOT mixed"
    n_chains, n_draws = model.draws_.log_likelihood.shape
    lines = [
        ("model", record["model"]),
        ("chains", f"{state}: {n_chains} x {n_draws} draws, {model.n_iter_} sweeps, {record['seconds']:.2f} s"),
        ("R-hat", f"{record['largest_r_hat']:.3f} at most; effective draws {record['least_ess']:,.0f} at least"),
    ]
    if model.dic_ is not None:
        near = "" if model.map_converged_ else ", roughly: EM has not reached the mode"
        lines.append(("DIC", f"{model.dic_:,.1f}{near}"))
    if found is not None:
        unstable = f"; {found.n_unstable:,.0f} persons unstable" if found.n_unstable else ""
        lines.append(("WAIC", f"{found.waic:,.1f} (standard error {2 * found.standard_error:,.1f}){unstable}"))
    return [*lines, *component_lines(model)]
