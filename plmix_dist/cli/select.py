"""The verb select: fits several numbers of components, and chooses one."""

from __future__ import annotations

import contextlib
import io
import json
import time
import warnings
from typing import TYPE_CHECKING, Any

import click

from plmix_dist import __version__
from plmix_dist.cli import plmix
from plmix_dist.cli.fit_progress import fit_progress
from plmix_dist.cli.interruption import tell_if_interrupted
from plmix_dist.cli.model import what_is_left
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
from plmix_dist.cli.output import EXIT_NOT_CONVERGED, json_text, show
from plmix_dist.errors import DamagedStoreError, SettingsError, StoreExistsError
from plmix_dist.interruption import time_limit

if TYPE_CHECKING:
    from plmix_dist.engine import LazyExecutor
    from plmix_dist.selection import MixtureSelection
    from plmix_dist.store import Location, RankingStore
    from plmix_dist.store.checkpoints import Checkpoint

_PLOT = "plot.png"
_LARGEST_JSON = 1 << 26


def _numbers(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    """The numbers of components in text such as 2:10 or 2,3,5:8; a range includes its last number."""
    from plmix_dist.selection.component_numbers import component_numbers

    del context, option
    try:
        return component_numbers(text)
    except SettingsError as error:
        raise click.BadParameter(str(error)) from None


@plmix.command(
    epilog=examples("plmix select ballots --components 1:4 --out chosen"),
)
@click.argument("store", type=PATH)
@click.option(
    "--components",
    "n_components",
    callback=_numbers,
    default="2:10",
    show_default=True,
    metavar="RANGE",
    help="Numbers of components: 2:10 is 2 to 10; 2,3,5 is a list.",
)
@click.option(
    "--out", required=True, metavar="DIR", type=PATH, help="Folder for table, plot and the chosen model."
)
@click.option(
    "--criterion",
    type=click.Choice(["bic", "aic", "icl", "held-out", "paper"]),
    default="bic",
    show_default=True,
    help="What decides.",
)
@click.option(
    "--also",
    type=click.Choice(["held-out", "paper"]),
    multiple=True,
    help="A further criterion for the table; may be given twice.",
)
@click.option("--folds", "n_folds", type=click.IntRange(2), default=5, show_default=True)
@click.option("--m-step", type=click.Choice(["auto", "lsr", "mm"]), default="auto", show_default=True)
@click.option("--n-init", type=click.IntRange(1), default=1, show_default=True)
@click.option("--ties", type=click.Choice(["expand", "marginal"]), default="expand", show_default=True)
@click.option(
    "--alpha", type=float, default=1.0, show_default=True, help="Strength of the prior; 0 for none."
)
@click.option("--tol", type=float, default=1e-8, show_default=True)
@click.option("--max-iter", type=click.IntRange(1), default=500, show_default=True)
@click.option(
    "--residency", type=click.Choice(["auto", "memory", "store"]), default="auto", show_default=True
)
@checkpoint_options
@force_option
@seed_option
@computing
@talking
def select(
    store: str,
    *,
    n_components: tuple[int, ...],
    criterion: str,
    also: tuple[str, ...],
    n_folds: int,
    out: str,
    checkpoint: Checkpoint | None,
    force: bool,
    seed: int,
    executor: LazyExecutor,
    talk: Talk,
    **settings: Any,
) -> int:
    """Fit mixtures with several numbers of components to STORE, choose one, and save it.

    DIR gets selection.json (the table), plot.png (if matplotlib is installed) and model, the chosen model. Exit code 4
    if the chosen fit did not converge. A second run with the same rankings, settings and version does nothing. With
    --checkpoint, one that was stopped goes on from its last state.
    """
    begun = time.perf_counter()
    choice = {"n_components": n_components, "criterion": criterion, "also": also, "n_folds": n_folds}
    with fit_progress(talk, settings["tol"], settings["max_iter"]) as progress:
        from plmix_dist.estimator import PlackettLuceMixture
        from plmix_dist.selection import MixtureSelection
        from plmix_dist.store import Location, open_store
        from plmix_dist.store.checkpoints import CheckpointFolder
        from plmix_dist.store.targets import SELECTION, clear_target

        folder, opened = Location.of(out), open_store(store)
        tell_if_interrupted(what_is_left(folder, checkpoint, "model/model.json"))
        job = _job(opened, seed, choice | settings)
        there = _there(folder, opened, overwrite=force)
        if there is not None and not force and _is_done(folder, there, job):
            return _show_there_already(there, out, talk)
        folder.check_writable()  # before hours of computing
        if force and checkpoint is not None:
            CheckpointFolder(Location.of(checkpoint.path)).clear()
        template = PlackettLuceMixture(random_state=seed, **settings)
        found: Any = MixtureSelection(
            estimator=template,
            progress=progress,
            checkpoint=checkpoint,
            **choice,  # type: ignore[arg-type]
        )
        # With a checkpoint, SIGTERM saves the state and ends in order.
        with contextlib.nullcontext() if checkpoint is None else time_limit(None):
            _fit_without_warnings(found, opened, executor)
    if there is not None:
        clear_target(folder, "selection")
    record = _record(found, out, time.perf_counter() - begun)
    # The table comes first: it says that the folder is that of a selection. The model comes last and completes it.
    folder.write_bytes(SELECTION, json_text(record | {"job": job}).encode())
    _write_plot(found, folder)
    found.best_estimator_.save(folder.child("model"), about={"job": job})
    show(_lines(found, record), record, **vars(talk))
    return 0 if found.best_estimator_.converged_ else EXIT_NOT_CONVERGED


def _fit_without_warnings(found: MixtureSelection, opened: RankingStore, executor: LazyExecutor) -> None:
    """Fit. What the table says need not be said by warnings."""
    from plmix_dist.errors import NotConvergedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        found.fit(opened, client=executor.client_if_asked())


def _job(opened: RankingStore, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """What determines a selection: the rankings, the settings, the version."""
    from plmix_dist.store.manifest import sha256
    from plmix_dist.store.reader import digest_of_store

    told = {name: value for name, value in settings.items() if name != "residency"}  # it changes no bit
    return {
        "rankings": sha256(f"{digest_of_store(opened)} {opened.item_names}".encode())[:16],
        "version": __version__,
        "seed": seed,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in told.items()},
    }


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


def _is_done(folder: Location, there: dict[str, Any], job: dict[str, Any]) -> bool:
    """Whether this selection is there and complete; an error if it is another one."""
    from plmix_dist.store.targets import HOW_TO_REPLACE, differences

    if there["job"] != job:
        raise StoreExistsError(
            f"{folder.url} already holds another selection ({differences(job, there['job'])}); {HOW_TO_REPLACE}"
        )
    return folder.exists("model/model.json")


def _show_there_already(there: dict[str, Any], out: str, talk: Talk) -> int:
    """Say that nothing is to be done; gives the exit code that the selection had."""
    record = {name: value for name, value in there.items() if name != "job"} | {"changed": False}
    words = f"{out} already holds this selection: the same rankings, settings and version"
    show([("nothing to do", words), ("chosen", there.get("words", ""))], record, **vars(talk))
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
    return {
        "out": out,
        "model": f"{out.rstrip('/')}/model",
        "changed": True,
        "n_components": found.n_components_,
        "criterion": found.criterion,
        "margin": found.margin_,
        "words": found.words_,
        "table": found.table_,
        "seconds": round(seconds, 3),
    }


def _lines(found: MixtureSelection, record: dict[str, Any]) -> list[tuple[str, str]]:
    """The result as lines of text."""
    return [
        ("model", record["model"]),
        *(("", line) for line in found.summary().splitlines()),
        ("seconds", f"{record['seconds']:.2f}"),
    ]
