"""Memberships of a whole store, computed in parallel and written to Zarr."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from plmix_dist.data import as_rankings
from plmix_dist.engine import run_all
from plmix_dist.engine.by_row import rows_of_run, run_of_rows
from plmix_dist.engine.store_leaves import StoreLeaves
from plmix_dist.posteriors import check_columns, probabilities_of, with_own_shares
from plmix_dist.store import (
    Location,
    MembershipPlan,
    MembershipSession,
    RankingStore,
    check_target,
    memberships,
    open_store,
    write_memberships,
)
from plmix_dist.store.manifest import sha256
from plmix_dist.store.npy import npy_bytes
from plmix_dist.store.reader import digest_of_store

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.data import Rankings
    from plmix_dist.engine import Executor
    from plmix_dist.engine.by_row import RowFunction, RowRun
    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.mixture import MixtureParams


class Written(NamedTuple):
    """What `write_predictions` did: the number of rows, and whether anything was written."""

    n_rankings: int
    changed: bool


def write_predictions(
    mixture: MixtureParams,
    store: RankingStore | str | os.PathLike[str],
    out: str | os.PathLike[str] | Location,
    *,
    overwrite: bool = False,
    client: ClientLike = None,
    executor: Executor | None = None,
    ties: str = "expand",
    progress: Callable[[int, int], None] | None = None,
    share_coefficients: NDArray[np.float64] | None = None,
    membership_covariates: ArrayLike | None = None,
) -> Written:
    """Write the probability of each component (`probabilities`) and the most probable one (`component`) of every row.

    `out` becomes a Zarr v3 group when all rows are written; nothing is held whole in memory. A second run with the same
    model and rankings continues the first, or does nothing if it is finished. Other memberships that are there are an
    error, unless `overwrite` is set; then they are removed first. `client` and `membership_covariates` are as in
    PlackettLuceMixture.fit; a model whose shares depend on covariates has `share_coefficients`.

    Examples
    --------
    >>> import tempfile, numpy as np, plmix_dist
    >>> from plmix_dist.mixture import MixtureParams
    >>> folder = tempfile.mkdtemp()
    >>> store = plmix_dist.simulate(f"{folder}/s", n_rankings=100, n_items=3, random_state=0)
    >>> mixture = MixtureParams(np.zeros((2, 3)), np.array([0.5, 0.5]), store.item_names)
    >>> write_predictions(mixture, store, f"{folder}/memberships")
    Written(n_rankings=100, changed=True)
    >>> write_predictions(mixture, store, f"{folder}/memberships")
    Written(n_rankings=100, changed=False)
    """
    job = membership_job(mixture, store, ties, share_coefficients, membership_covariates)
    rankings, location = job.rankings, Location.of(out)
    check_target(location, "memberships", overwrite=overwrite, sources=[job.store.location.url])
    chunk_rows = min(memberships.CHUNK_ROWS, rankings.n_rankings)
    plan = MembershipPlan(rankings.n_rankings, mixture.n_components, chunk_rows, job.of)
    with MembershipSession.begin(location, plan, overwrite=overwrite) as session:
        tasks = [
            WriteTask(location, plan, first, last, *run_of_rows(rankings, job.function, first, last))
            for first, last in session.pending()
        ]
        run_all(executor or client, write_run, tasks, "predict", progress)
        session.finalise()
        return Written(rankings.n_rankings, changed=not session.already_done)


class MembershipJob(NamedTuple):
    """Memberships to be computed: of which rankings, by which function, and digests of what determines them."""

    store: RankingStore
    rankings: Rankings
    function: RowFunction
    of: dict[str, str]


def membership_job(
    mixture: MixtureParams,
    store: RankingStore | str | os.PathLike[str],
    ties: str,
    share_coefficients: NDArray[np.float64] | None,
    membership_covariates: ArrayLike | None,
) -> MembershipJob:
    """The memberships that `write_predictions` computes, from its arguments.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=3, random_state=0)
    >>> mixture = plmix_dist.MixtureParams.of([[0, 1, 2]], None, store.item_names)
    >>> sorted(membership_job(mixture, store, "expand", None, None).of)
    ['model', 'rankings']
    """
    opened = store if isinstance(store, RankingStore) else open_store(store)
    rankings = as_rankings(opened, item_names=mixture.item_names, covariates=membership_covariates)
    coefficients = check_columns(share_coefficients, rankings.covariates)
    function = probabilities_of(mixture, ties)
    if coefficients is not None:
        function = with_own_shares(function, coefficients)
    of = {
        "model": _digest_of_mixture(mixture),
        "rankings": digest_of_store(opened),
        **_treated(rankings, ties),
        **_given_covariates(coefficients, rankings.covariates),
    }
    return MembershipJob(opened, rankings, function, of)


@dataclass(frozen=True)
class WriteTask:
    """What a worker must know to write the rows from `first` to `last`, which are one chunk of memberships.

    `skipped` rows of the run of leaves come before the first.
    """

    out: Location
    plan: MembershipPlan
    first: int
    last: int
    run: RowRun
    skipped: int


def write_run(task: WriteTask) -> None:
    """Compute and write the rows of one chunk."""
    probabilities = rows_of_run(task.run)
    rows = probabilities[task.skipped : task.skipped + task.last - task.first]
    write_memberships(task.out, task.plan, task.first, rows)


def _treated(rankings: Rankings, ties: str) -> dict[str, str]:
    """How ties are treated, if there are any: a second run must have it in common with the first."""
    source = rankings.source
    return {"ties": ties} if isinstance(source, StoreLeaves) and "tied" in source.columns else {}


def _given_covariates(
    coefficients: NDArray[np.float64] | None, covariates: NDArray[np.float64] | None
) -> dict[str, str]:
    """A digest of covariates and their coefficients, if there are any."""
    if coefficients is None or covariates is None:
        return {}
    return {"covariates": sha256(npy_bytes(coefficients) + npy_bytes(covariates))}


def _digest_of_mixture(mixture: MixtureParams) -> str:
    """A digest of the parameters of a mixture."""
    parts = (npy_bytes(mixture.log_worths), npy_bytes(mixture.shares), repr(mixture.item_names).encode())
    return sha256(b"".join(parts))
