"""The verb bayes: draws from the posterior of a mixture, saved as a model."""

from __future__ import annotations

import contextlib
import time
import warnings
from typing import TYPE_CHECKING, Any

import click

from plmix_dist.cli import plmix
from plmix_dist.cli.fit_progress import fit_progress
from plmix_dist.cli.interruption import tell_if_interrupted
from plmix_dist.cli.model import job_of, there_already, what_is_left
from plmix_dist.cli.model_info import component_lines
from plmix_dist.cli.options import (
    PATH,
    Talk,
    checkpoint_options,
    computing,
    examples,
    force_option,
    seed_option,
    talking,
)
from plmix_dist.cli.output import EXIT_NOT_CONVERGED, show
from plmix_dist.interruption import time_limit

if TYPE_CHECKING:
    from plmix_dist.bayes.waic import Waic
    from plmix_dist.bayesian import BayesianPlackettLuceMixture
    from plmix_dist.engine import LazyExecutor
    from plmix_dist.store import Location
    from plmix_dist.store.checkpoints import Checkpoint


@plmix.command(
    epilog=examples("plmix bayes ballots --components 2 --out draws --warmup 200 --draws 500"),
)
@click.argument("store", type=PATH)
@click.option(
    "--components", "n_components", type=click.IntRange(1), required=True, help="Number of components."
)
@click.option("--out", required=True, metavar="DIR", type=PATH, help="Folder for the model and its draws.")
@click.option("--chains", "n_chains", type=click.IntRange(1), default=4, show_default=True)
@click.option(
    "--warmup",
    "n_warmup",
    type=click.IntRange(0),
    default=500,
    show_default=True,
    help="Sweeps that are dropped.",
)
@click.option(
    "--draws", "n_draws", type=click.IntRange(1), default=1000, show_default=True, help="Draws of each chain."
)
@click.option(
    "--thin", type=click.IntRange(1), default=1, show_default=True, help="Keep one of so many sweeps."
)
@click.option(
    "--worth-shape",
    type=float,
    default=1.0,
    show_default=True,
    help="Shape of the gamma prior of worths; larger numbers pull worths together.",
)
@click.option(
    "--share-concentration",
    type=float,
    default=1.0,
    show_default=True,
    help="Of the Dirichlet prior of shares.",
)
@click.option(
    "--init",
    default="fit",
    show_default=True,
    help="Where chains begin: 'fit' (around a fit by EM), 'prior', or the folder of a model.",
)
@click.option(
    "--waic", is_flag=True, help="Compute WAIC, which takes as long as 500 passes over the rankings."
)
@click.option(
    "--residency", type=click.Choice(["auto", "memory", "store"]), default="auto", show_default=True
)
@checkpoint_options
@force_option
@seed_option
@computing
@talking
def bayes(
    store: str,
    *,
    out: str,
    waic: bool,
    checkpoint: Checkpoint | None,
    force: bool,
    seed: int,
    executor: LazyExecutor,
    talk: Talk,
    **settings: Any,
) -> int:
    """Sample from the posterior of a mixture for STORE; exit code 4 if the chains have not mixed.

    A second run with the same rankings, settings and version does nothing. With --checkpoint, one that was stopped goes
    on from its last state.
    """
    begun = time.perf_counter()
    found = None
    with fit_progress(talk, 1.0, 1) as progress:
        if progress is not None:
            progress.stage({"stage": "open", "state": "begun"})
        from plmix_dist.bayesian import BayesianPlackettLuceMixture
        from plmix_dist.errors import NotConvergedWarning
        from plmix_dist.store import Location, check_target, open_store
        from plmix_dist.store.checkpoints import CheckpointFolder

        folder, opened = Location.of(out), open_store(store)
        tell_if_interrupted(what_is_left(folder, checkpoint))
        check_target(folder, "model", overwrite=force, sources=[opened.location.url])
        job = {"verb": "bayes"} | job_of(opened, seed, settings)
        if not force and there_already(folder, job):
            return _show_there_already(folder, out, talk)
        folder.check_writable()  # before hours of computing
        if progress is not None:
            progress.stage({"stage": "open", "state": "ended", "weight": opened.total_weight})
        if force and checkpoint is not None:
            CheckpointFolder(Location.of(checkpoint.path)).clear()
        model = BayesianPlackettLuceMixture(
            random_state=seed, progress=progress, checkpoint=checkpoint, **settings
        )
        # With a checkpoint, SIGTERM saves the state and ends in order.
        ending = contextlib.nullcontext() if checkpoint is None else time_limit(None)
        with warnings.catch_warnings(), ending:
            warnings.simplefilter("ignore", NotConvergedWarning)  # the result says it
            model.fit(opened, client=executor.client_if_asked())
        if waic:
            found = model.waic(opened, client=executor.client_if_asked())
    model.save(folder, about={"job": job})
    record = _record(model, out, found, time.perf_counter() - begun)
    show(_lines(model, record, found), record, **vars(talk))
    return 0 if model.converged_ else EXIT_NOT_CONVERGED


def _show_there_already(folder: Location, out: str, talk: Talk) -> int:
    """Say that nothing is to be done; gives the exit code that the first run had."""
    from plmix_dist.bayesian import BayesianPlackettLuceMixture

    model = BayesianPlackettLuceMixture.load(folder)
    record = {"model": out, "changed": False, "converged": model.converged_}
    words = f"{out} already holds these draws: the same rankings, settings and version"
    show([("nothing to do", words)], record, **vars(talk))
    return 0 if model.converged_ else EXIT_NOT_CONVERGED


def _record(
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


def _lines(
    model: BayesianPlackettLuceMixture, record: dict[str, Any], found: Waic | None
) -> list[tuple[str, str]]:
    """The result as lines of text."""
    state = "mixed" if model.converged_ else "NOT mixed"
    n_chains, n_draws = model.draws_.log_likelihood.shape
    lines = [
        ("model", record["model"]),
        (
            "chains",
            f"{state}: {n_chains} x {n_draws} draws, {model.n_iter_} sweeps, {record['seconds']:.2f} s",
        ),
        (
            "R-hat",
            f"{record['largest_r_hat']:.3f} at most; effective draws {record['least_ess']:,.0f} at least",
        ),
    ]
    if model.dic_ is not None:
        near = "" if model.map_converged_ else ", roughly: EM has not reached the mode"
        lines.append(("DIC", f"{model.dic_:,.1f}{near}"))
    if found is not None:
        unstable = f"; {found.n_unstable:,.0f} persons unstable" if found.n_unstable else ""
        lines.append(
            ("WAIC", f"{found.waic:,.1f} (standard error {2 * found.standard_error:,.1f}){unstable}")
        )
    return [*lines, *component_lines(model)]
