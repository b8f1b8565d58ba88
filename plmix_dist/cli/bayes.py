"""The verb bayes: draws from the posterior of a mixture, saved as a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from plmix_dist.cli.main import plmix
from plmix_dist.cli.model import component_lines, model_is_there, run_work
from plmix_dist.cli.options import PATH, STORE, Output, Verb, examples, work_options
from plmix_dist.cli.output import EXIT_NOT_CONVERGED, show

if TYPE_CHECKING:
    from plmix_dist.cluster.executor import LazyExecutor
    from plmix_dist.models.bayesian import BayesianPlackettLuceMixture
    from plmix_dist.models.diagnostics import Waic


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
        return _show_there_already(out, output)
    model: BayesianPlackettLuceMixture = done.found
    found = model.waic(done.store, client=executor.client_if_asked()) if waic else None
    model.save(done.folder, about={"job": done.made_from})
    record = _record(model, out, found, done.seconds)
    show(_lines(model, record, found), record, output)
    return 0 if model.converged_ else EXIT_NOT_CONVERGED


def _show_there_already(out: str, output: Output) -> int:
    """Print that nothing is to be done; gives the exit code that the first run had."""
    from plmix_dist.models.bayesian import BayesianPlackettLuceMixture

    model = BayesianPlackettLuceMixture.load(out)
    record = {"model": out, "changed": False, "converged": model.converged_}
    words = f"{out} already holds these draws: the same rankings, settings and version"
    show([("nothing to do", words)], record, output)
    return 0 if model.converged_ else EXIT_NOT_CONVERGED


def _record(model: BayesianPlackettLuceMixture, out: str, found: Waic | None, seconds: float) -> dict[str, Any]:
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


def _lines(model: BayesianPlackettLuceMixture, record: dict[str, Any], found: Waic | None) -> list[tuple[str, str]]:
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
