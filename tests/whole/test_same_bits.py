"""The same rows, settings and seed give the same bits, whoever computes in whatever pieces."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

from plmix_dist import PlackettLuceMixture, RankingBlock
from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting import journal
from plmix_dist.passes.dask import DistributedPasses
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.prediction.memberships import write_predictions
from plmix_dist.rankings.groups import default_leaf_rows
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.store.mixture import MixtureParams
from tests.helpers.battles import battles
from tests.helpers.clusters import small_cluster
from tests.helpers.oracle import write_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from distributed import Client

    from plmix_dist.store import RankingStore

N_ROWS, N_ITEMS, N_COMPONENTS = 30_000, 10, 3
SOLVERS = pytest.mark.parametrize("m_step", ["lsr", "mm"])
# They differ from the others in their sums and in what keys their draws, not in how blocks and tasks are cut.
OTHER_SOLVERS = ["cml", "gmm", "stochastic-lsr"]

# A handful of accelerated iterations: a bit that differs in one differs in all that follow.
pytestmark = pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
MAX_ITER = 5


@pytest.fixture(scope="module")
def table() -> np.ndarray[Any, Any]:
    """Rankings that fill several leaves, the last in part."""
    rng = np.random.default_rng(1)
    truth = rng.normal(0, 1.5, (N_COMPONENTS, N_ITEMS))
    block, _ = draw_rankings(truth, np.array([0.5, 0.3, 0.2]), N_ROWS, rng)
    return block.to_array()


def stored(path: Any, table: np.ndarray[Any, Any], chunk_bytes: int, cuts: list[int]) -> RankingStore:
    """The rows in a store of usual leaves, cut into partitions after whole leaves."""
    leaf_rows = default_leaf_rows(N_ITEMS)
    bounds = [0, *(cut * leaf_rows for cut in cuts), len(table)]
    block = RankingBlock.from_array(table)
    partitions = [[block[start:stop]] for start, stop in itertools.pairwise(bounds)]
    return write_store(path, partitions, leaf_rows=leaf_rows, chunk_bytes=chunk_bytes)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, table: np.ndarray[Any, Any]) -> RankingStore:
    return stored(tmp_path_factory.mktemp("bits") / "store", table, 1 << 16, [2, 5])


@pytest.fixture(scope="module")
def single_worker() -> Iterator[Client]:
    """A cluster of one worker with two threads, in this process to save the start of another."""
    with small_cluster(1, threads_per_worker=2, processes=False) as client:
        yield client


def digest(m_step: Any, data: Any, **options: Any) -> str:
    """A hash of all that a fit finds, and of the way it took."""
    # Two starts: their random numbers and the choice between them are part of what must not change.
    model = PlackettLuceMixture(
        N_COMPONENTS,
        m_step=m_step,
        n_init=2,
        max_iter=MAX_ITER,
        random_state=5,
        residency=options.pop("residency", "auto"),
    ).fit(data, **options)
    way = np.array([(record["log_likelihood"], record.get("gradient", 0.0)) for record in model.history_])
    parts = (model.log_worths_, model.shares_, model._ghosts, way)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module")
def reference(store: RankingStore) -> dict[str, str]:
    return {m_step: digest(m_step, store) for m_step in ("lsr", "mm")}


@pytest.fixture
def passes_made_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Lets the fits of a test run on passes with settings of their own, which users cannot choose."""

    def use(make: Callable[..., Any]) -> None:
        monkeypatch.setattr(
            journal,
            "passes_over",
            lambda source, client, residency: contextlib.nullcontext(make(source, client, residency)),
        )

    return use


def test_digest__tells_fits_apart(store: RankingStore, reference: dict[str, str]) -> None:
    # Without this, one hash for all would show nothing.
    assert reference["lsr"] != reference["mm"]
    assert digest("mm", store, sample_weight=np.append(np.ones(N_ROWS - 1), 1 + 1e-12)) != reference["mm"]


@pytest.mark.promise(10)
@SOLVERS
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_same_bits__threads(
    store: RankingStore, reference: dict[str, str], m_step: str, n_threads: int, passes_made_by: Callable[..., None]
) -> None:
    passes_made_by(lambda source, _, residency: ThreadedPasses(source, residency=residency, n_threads=n_threads))
    assert digest(m_step, store) == reference[m_step]


@pytest.mark.promise(10)
@SOLVERS
@pytest.mark.parametrize("n_tasks", [1, 3, 8])
def test_same_bits__tasks_of_two_workers(
    store: RankingStore,
    reference: dict[str, str],
    m_step: str,
    n_tasks: int,
    client: Client,
    passes_made_by: Callable[..., None],
) -> None:
    passes_made_by(
        lambda source, client, residency: DistributedPasses(source, client, residency=residency, n_tasks=n_tasks)
    )
    assert digest(m_step, store, client=client) == reference[m_step]


@pytest.mark.promise(10)
@SOLVERS
@pytest.mark.parametrize("residency", ["memory", "store"])
def test_same_bits__one_worker(
    store: RankingStore, reference: dict[str, str], m_step: str, residency: str, single_worker: Client
) -> None:
    assert digest(m_step, store, client=single_worker, residency=residency) == reference[m_step]


@pytest.mark.promise(10)
@SOLVERS
@pytest.mark.parametrize("residency", ["memory", "store"])
def test_same_bits__residency_in_process(
    store: RankingStore, reference: dict[str, str], m_step: str, residency: str
) -> None:
    assert digest(m_step, store, residency=residency) == reference[m_step]


@pytest.mark.promise(11)
@SOLVERS
@pytest.mark.parametrize(("chunk_bytes", "cuts"), [(1 << 12, [2, 5]), (1 << 20, []), (5_000, [1, 2, 3])])
def test_same_bits__other_chunks_and_partitions(
    tmp_path: Any,
    table: np.ndarray[Any, Any],
    reference: dict[str, str],
    m_step: str,
    chunk_bytes: int,
    cuts: list[int],
) -> None:
    again = stored(tmp_path / "store", table, chunk_bytes, cuts)
    assert again.n_leaves == -(-N_ROWS // default_leaf_rows(N_ITEMS))
    assert digest(m_step, again) == reference[m_step]


@pytest.mark.promise(11)
@SOLVERS
def test_same_bits__array_block_and_dask_array(
    table: np.ndarray[Any, Any], reference: dict[str, str], m_step: str, client: Client
) -> None:
    lazy = da.from_array(table, chunks=(7_001, 3))
    with dask.config.set(scheduler="synchronous"):  # without a client, none is to be used
        for data in (table, RankingBlock.from_array(table), as_rankings(table), lazy):
            assert digest(m_step, data) == reference[m_step]
    for residency in ("memory", "store") if m_step == "mm" else ("memory",):
        assert digest(m_step, table, client=client, residency=residency) == reference[m_step]
        assert digest(m_step, lazy, client=client, residency=residency) == reference[m_step]


@pytest.mark.promise(10)
@pytest.mark.parametrize("m_step", OTHER_SOLVERS)
def test_same_bits__m_steps_without_a_likelihood(
    store: RankingStore, table: np.ndarray[Any, Any], m_step: str, client: Client, passes_made_by: Callable[..., None]
) -> None:
    expected = digest(m_step, store)
    assert digest(m_step, da.from_array(table, chunks=(7_001, 3)), client=client) == expected
    passes_made_by(lambda source, client, residency: DistributedPasses(source, client, residency=residency, n_tasks=3))
    assert digest(m_step, store, client=client) == expected
    passes_made_by(lambda source, _, residency: ThreadedPasses(source, residency=residency, n_threads=3))
    assert digest(m_step, store) == expected


@pytest.mark.promise(10)
def test_same_bits__score_and_predictions(
    store: RankingStore, table: np.ndarray[Any, Any], client: Client, single_worker: Client, tmp_path: Path
) -> None:
    model = PlackettLuceMixture(N_COMPONENTS, max_iter=MAX_ITER, random_state=5).fit(store)
    scores = {model.score(store, client=one) for one in (None, client, single_worker)}
    # A block has no names that could differ from the model's.
    assert scores == {model.score(RankingBlock.from_array(table))}
    expected = model.predict_proba(RankingBlock.from_array(table))
    for one in (client, single_worker):
        found = one.compute(model.predict_proba(store)).result()
        assert found.tobytes() == expected.tobytes()
    lazy = model.predict_proba(da.from_array(table, chunks=(7_001, 3)))
    assert client.compute(lazy).result().tobytes() == expected.tobytes()
    mixture = MixtureParams(model.log_worths_, model.shares_, model.item_names_)
    for number, one in enumerate((None, client)):
        write_predictions(mixture, store, tmp_path / str(number), client=one)
        written = zarr.open_group(tmp_path / str(number), mode="r")["probabilities"][:]
        assert written.tobytes() == expected.tobytes()


def test_battles__the_same_bits_on_a_cluster(tmp_path: Path, single_worker: Client) -> None:
    # Ties that count half, weights, and leaves with and without ties; then noise, votes and intervals.
    rng = np.random.default_rng(3)
    left = rng.integers(0, N_ITEMS, N_ROWS)
    result = np.where(np.arange(N_ROWS) < N_ROWS // 3, 1.0, rng.choice([0.0, 0.5, 1.0], N_ROWS))
    block = battles(left, (left + rng.integers(1, N_ITEMS, N_ROWS)) % N_ITEMS, result)
    block = block.replace(weights=rng.integers(1, 4, N_ROWS).astype(np.float64))
    leaf_rows = default_leaf_rows(N_ITEMS)
    whole = write_store(tmp_path / "store", [[block[: 2 * leaf_rows]], [block[2 * leaf_rows :]]], leaf_rows=leaf_rows)
    found = []
    for client in (False, single_worker):
        model = PlackettLuceMixture(1, noise=True, max_iter=MAX_ITER, random_state=0).fit(whole, client=client)
        board = model.leaderboard(whole, client=client, table="dict")
        check = model.check_fit(whole, client=client)
        numbers = [[*one[1:]] for one in check.residuals] + [2 * [*check.p_values.values()]]
        columns = [board[name] for name in ("lower", "upper", "votes")]
        found.append([model.log_worths_, model.shares_, np.array(numbers), *columns])
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()
