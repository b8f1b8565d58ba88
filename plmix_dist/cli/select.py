"""The verbs select, which chooses a number of components, elections (for many files), and bayes, which draws."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import click

import plmix_dist as plm
from plmix_dist.cli import options as shared
from plmix_dist.cli.data import ONLY_READ, choices_options, format_option
from plmix_dist.cli.main import on_interruption
from plmix_dist.cli.model import component_lines, results_of, run_work, typed
from plmix_dist.cli.options import PATH, STORE, features_option, intercepts_option, option, verb, work_options
from plmix_dist.cli.output import EXIT_NOT_CONVERGED, few, json_text, progress_bar, show
from plmix_dist.cluster.executor import LazyExecutor
from plmix_dist.errors import DamagedStoreError, StoreExistsError

if TYPE_CHECKING:
    from plmix_dist.models.predictive_density import Waic
    from plmix_dist.store import Location

_PLOT = "plot.png"
_LARGEST_JSON = 1 << 26


@verb("plmix select ballots --components 1:4 --out chosen")
@click.argument("store", type=STORE)
@option("--out", required=True, metavar="DIR", type=PATH, help="Folder for table, plot and the chosen model.")
@features_option
@intercepts_option
@work_options("select")
def select(store: str, *, out: str, **options: Any) -> int:
    """Fit mixtures with several numbers of components to STORE, choose one, and save it.

    DIR gets selection.json (the table), plot.png (if matplotlib is installed) and model, the chosen model. Exit code 4
    if the chosen fit did not converge. A second run with the same rankings, settings and version does nothing. With
    --checkpoint, one that was stopped goes on from its last state.
    """
    there: dict[str, Any] = {}

    def is_there(folder: Location, opened: plm.RankingStore, made_from: dict[str, Any], *, force: bool) -> bool:
        from plmix_dist.jobs.results import is_same, refuse_other

        there.update(_there(folder, opened, overwrite=force))
        if force or not there:
            return False
        return (
            is_same(made_from, there["job"]) or refuse_other(folder, "selection", made_from, there["job"])
        ) and folder.exists("model/model.json")

    if (done := run_work("select", store, out, is_there=is_there, last="model/model.json", **options)) is None:
        return _show_there_already(there, out)
    from plmix_dist.jobs.results import choice_of
    from plmix_dist.store.targets import SELECTION, clear_target

    found: plm.MixtureSelection = done.found
    if done.folder.exists(SELECTION):
        clear_target(done.folder, "selection")
    record = {"out": out, "model": f"{out.rstrip('/')}/model", "changed": True, **choice_of(found)}
    record |= {"seconds": round(done.seconds, 3)}
    # The table comes first: it marks the folder as that of a selection. The model comes last and completes it.
    done.folder.write_bytes(SELECTION, json_text(record | {"job": done.made_from}).encode())
    _write_plot(found, done.folder)
    found.best_estimator_.save(done.folder.child("model"), about={"job": done.made_from})
    summary = [("", line) for line in found.summary().splitlines()]
    show([("model", record["model"]), *summary, ("seconds", f"{record['seconds']:.2f}")], record)
    return 0 if found.best_estimator_.converged_ else EXIT_NOT_CONVERGED


def _there(folder: Location, opened: plm.RankingStore, *, overwrite: bool) -> dict[str, Any]:
    """The selection that the folder holds, empty if it has none; an error if it holds anything else."""
    from plmix_dist.store.targets import SELECTION, check_target

    check_target(folder, "selection", overwrite=overwrite, sources=[opened.location.url])
    if not folder.exists(SELECTION):
        if names := folder.names(folders=True):
            raise StoreExistsError(
                f"{folder.url} holds other files, such as {names[0]}; a selection needs a folder of its own, so choose "
                "another path"
            )
        return {}
    try:
        found = json.loads(folder.read_bytes(SELECTION, _LARGEST_JSON))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("job"), dict):
        if overwrite:
            return {}
        raise DamagedStoreError(f"{folder.url}/{SELECTION} cannot be read; replace it with --force")
    return found


def _show_there_already(there: dict[str, Any], out: str) -> int:
    """Print that nothing is to be done; gives the exit code that the selection had."""
    record = {name: value for name, value in there.items() if name != "job"} | {"changed": False}
    words = f"{out} already holds this selection: the same rankings, settings and version"
    show([("nothing to do", words), ("chosen", there.get("words", ""))], record)
    rows = {row["n_components"]: row for row in there.get("table", [])}
    return 0 if rows.get(there.get("n_components"), {}).get("converged", True) else EXIT_NOT_CONVERGED


def _write_plot(found: plm.MixtureSelection, folder: Location) -> None:
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


# --- elections ---------------------------------------------------------------------------------------------


@verb(
    "plmix elections council --components 1:5 --out council.csv",
    "plmix elections 'council/ward-[0-9].csv' --components 1:3 --tol 1e-3 --out council.parquet",
)
@click.argument("folder", type=PATH)
@option("--out", required=True, metavar="TABLE", type=PATH, help="Table to write: .csv, .jsonl or .parquet.")
@shared.settings_options("select")  # before what files cannot say, which is called choices too
@format_option("Format of the files; `plmix formats` shows each.", *ONLY_READ)
@shared.unranked_option
@choices_options
@shared.force_option
@shared.seed_option
@shared.executor_options
def elections(folder: str, *, out: str, settings: dict[str, Any], seed: int, **how: Any) -> None:
    """Choose a number of components for every file of FOLDER, each an election, and write one table.

    FOLDER is a folder or a glob. A file that cannot be read or fitted has the reason in the column error. Unlisted
    candidates are ranked below unless --unranked says otherwise. An interrupted run goes on with the same command.
    """
    from plmix_dist.jobs.elections import fit_elections
    from plmix_dist.jobs.results import Work

    work = Work("select", settings, seed)
    work.checked(typed(settings))
    on_interruption(lambda: f"what is finished is kept in {out}.parts; run the same command again to continue")
    how |= {"format": how.pop("format_name"), "overwrite": how.pop("force"), "client": how.pop("executor")}
    with progress_bar("elections") as progress:
        rows = fit_elections(folder, out, cast("Any", work.estimator()), progress=progress, **how)
    errors = {row["file"]: row["error"] for row in rows if row["error"] is not None}
    chosen = dict(sorted(Counter(row["n_components"] for row in rows if row["error"] is None).items()))
    lines = [("table", out), ("chosen", ", ".join(f"K = {k} in {count}" for k, count in chosen.items()))]
    lines += [("failed", few([f"{file} ({error})" for file, error in errors.items()], 3))] if errors else []
    show(lines, {"table": out, "n_files": len(rows), "chosen": chosen, "errors": errors})


# --- bayes -------------------------------------------------------------------------------------------------


@verb("plmix bayes ballots --components 2 --out draws --warmup 200 --draws 500")
@click.argument("store", type=STORE)
@option("--out", required=True, metavar="DIR", type=PATH, help="Folder for the model and its draws.")
@option("--waic", is_flag=True, help="Compute WAIC, which takes as long as 500 passes over the rankings.")
@work_options("bayes")
def bayes(store: str, *, out: str, waic: bool, executor: LazyExecutor, **options: Any) -> int:
    """Sample from the posterior of a mixture for STORE; exit code 4 if the chains have not mixed.

    A second run with the same rankings, settings and version does nothing. With --checkpoint, one that was stopped goes
    on from its last state.
    """
    if (done := run_work("bayes", store, out, executor=executor, **options)) is None:
        return _show_draws_there(out)
    model: plm.BayesianPlackettLuceMixture = done.found
    found = model.waic(done.store, client=executor.client_if_asked()) if waic else None
    model.save(done.folder, about={"job": done.made_from})
    record = _record(model, out, found, done.seconds)
    show(_lines(model, record, found), record)
    return 0 if model.converged_ else EXIT_NOT_CONVERGED


def _show_draws_there(out: str) -> int:
    """Print that nothing is to be done; gives the exit code that the first run had."""
    model = plm.BayesianPlackettLuceMixture.load(out)
    record = {"model": out, "changed": False, "converged": model.converged_}
    show([("nothing to do", f"{out} already holds these draws: the same rankings, settings and version")], record)
    return 0 if model.converged_ else EXIT_NOT_CONVERGED


def _record(model: plm.BayesianPlackettLuceMixture, out: str, found: Waic | None, seconds: float) -> dict[str, Any]:
    """The result, for --json."""
    lower, upper = model.intervals(0.95).shares
    return {
        "model": out,
        "changed": True,
        "converged": model.converged_,
        "largest_r_hat": model.diagnostics_.largest_r_hat,
        "least_ess": model.diagnostics_.least_ess,
        "n_sweeps": model.n_iter_,
        **results_of(model, "log_likelihood", "map_log_likelihood", "map_converged", "dic"),
        "waic": None if found is None else found._asdict() | {"waic": found.waic},
        "shares": model.shares_.tolist(),
        "share_intervals": [lower.tolist(), upper.tolist()],
        "stages": model.stages_,
        "seconds": round(seconds, 3),
    }


def _lines(model: plm.BayesianPlackettLuceMixture, record: dict[str, Any], found: Waic | None) -> list[tuple[str, str]]:
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
