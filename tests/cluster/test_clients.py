"""Where a call computes: the active client, a client, a cluster, an address, or this process; and what is refused."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import dask.array as da
import distributed
import numpy as np
import pytest
from distributed import Client, LocalCluster

import plmix_dist as pl
from plmix_dist.cluster.clients import client_of
from plmix_dist.cluster.executor import ThreadedExecutor, executor_for, run_all
from plmix_dist.errors import ClusterError, SettingsError
from plmix_dist.prediction.memberships import write_predictions
from plmix_dist.rankings import RankingBlock
from tests.helpers.oracle import write_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS = np.array([[0, 1, 2, 3], [0, 1, 3, 2], [3, 2, 1, 0], [0, 2, 1, 3], [3, 2, 0, 1]] * 20)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster in this process, with a single thread: whoever waits in a task for another task waits for ever."""
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def no_client_is_left() -> Iterator[None]:
    """No test begins or ends with an active client."""
    assert distributed.client._get_global_client() is None
    yield
    assert distributed.client._get_global_client() is None


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The clients that were given work: all of it goes through `compute`, or `get` for Dask's own collections."""
    clients: list[Client] = []
    for name in ("compute", "get"):
        ask = getattr(Client, name)

        def noted(self: Client, *arguments: Any, _ask: Any = ask, **options: Any) -> Any:
            clients.append(self)
            return _ask(self, *arguments, **options)

        monkeypatch.setattr(Client, name, noted)
    return clients


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> pl.RankingStore:
    path = tmp_path_factory.mktemp("clients") / "store"
    return write_store(path, [[RankingBlock.from_array(ROWS)]], leaf_rows=32, item_names=list("0123"))


@pytest.fixture(scope="module")
def model() -> pl.PlackettLuceMixture:
    return pl.PlackettLuceMixture(2, random_state=0).fit(ROWS, client=False)


# Every call that takes a client, with a result that can be compared bit by bit.
CALLS: dict[str, Any] = {
    "fit": lambda where, model, store, path: (
        pl.PlackettLuceMixture(2, random_state=0).fit(store, **where).log_worths_.tobytes()
    ),
    "fit to an array": lambda where, model, store, path: (
        pl.PlackettLuceMixture(2, random_state=0).fit(ROWS, **where).log_worths_.tobytes()
    ),
    "fit to a Dask array": lambda where, model, store, path: (
        pl.PlackettLuceMixture(2, random_state=0).fit(da.from_array(ROWS, chunks=30), **where).log_worths_.tobytes()
    ),
    "fit by pairs": lambda where, model, store, path: (
        pl.PlackettLuceMixture(2, init=pl.Spectral(embedding="pairwise"), random_state=0)
        .fit(ROWS, **where)
        .log_worths_.tobytes()
    ),
    "fit_predict": lambda where, model, store, path: (
        pl.PlackettLuceMixture(2, random_state=0).fit_predict(ROWS, **where).tobytes()
    ),
    "spectral": lambda where, model, store, path: (
        pl.SpectralPlackettLuce(2, random_state=0).fit(store, **where).log_worths_.tobytes()
    ),
    "score": lambda where, model, store, path: model.score(ROWS, **where),
    "bic": lambda where, model, store, path: model.bic(ROWS, **where),
    "aic": lambda where, model, store, path: model.aic(ROWS, **where),
    "predict": lambda where, model, store, path: model.predict(ROWS, **where).tobytes(),
    "predict_proba": lambda where, model, store, path: model.predict_proba(ROWS, **where).tobytes(),
    "score_samples": lambda where, model, store, path: model.score_samples(ROWS, **where).tobytes(),
    "simulate": lambda where, model, store, path: digests(
        pl.simulate(path / "simulated", n_rankings=50, n_items=4, **where)
    ),
    "ingest": lambda where, model, store, path: digests(pl.ingest(ROWS, path / "ingested", **where)),
    "split": lambda where, model, store, path: [
        digests(part) for part in pl.split(store, [path / "a", path / "b"], **where)
    ],
    "verify": lambda where, model, store, path: pl.verify(store, **where),
    "info": lambda where, model, store, path: pl.info(store, **where)["comparison_graph"],
    "write_predictions": lambda where, model, store, path: write_predictions(
        model._mixture(), store, path / "memberships", **where
    ),
}


def digests(store: Any) -> list[str]:
    return [part.index_sha256 for part in store.manifest.partitions]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_client__one_rule_for_every_call(
    call: Any, cluster: LocalCluster, used: list[Client], model: Any, store: Any, tmp_path: Path
) -> None:
    def run(name: str, **where: Any) -> Any:
        used.clear()
        (tmp_path / name).mkdir()
        return call(where, model, store, tmp_path / name)

    here = run("nobody")
    assert not used, "there is no client, but one was used"
    with Client(cluster) as default:
        assert run("default") == here
        assert set(used) == {default}
        assert run("False", client=False) == here
        assert not used, "client=False left the process"
        with Client(cluster, set_as_default=False) as other:
            assert run("other", client=other) == here
            assert set(used) == {other}
            with other.as_current():
                assert run("current") == here
                assert set(used) == {other}
        for name, place in (("cluster", cluster), ("address", cluster.scheduler_address)):
            assert run(name, client=place) == here
            assert used
            assert default not in used
            # What was made for this call was closed after it, and the default client is what it was.
            assert {client.status for client in used} == {"closed"}
            assert distributed.default_client() is default
    assert run("closed") == here
    assert not used


def test_client__made_for_a_call_is_closed_after_an_error(cluster: LocalCluster, used: list[Client]) -> None:
    with pytest.raises(ValueError, match="row 0: item 1 is listed twice"):
        pl.PlackettLuceMixture(1).fit(da.from_array(np.array([[1, 1], [0, 1]])), client=cluster)
    assert used
    assert {client.status for client in used} == {"closed"}


def test_lazy_results__computed_where_dask_computes(
    cluster: LocalCluster, used: list[Client], model: pl.PlackettLuceMixture, store: Any
) -> None:
    here = model.predict_proba(ROWS, client=False)
    lazy = model.predict_proba(store)
    assert np.array_equal(lazy.compute(scheduler="threads"), here)
    assert not used
    with Client(cluster) as default:
        assert np.array_equal(lazy.compute(), here)
        assert set(used) == {default}


def test_dask_array__held_by_a_cluster(cluster: LocalCluster, model: pl.PlackettLuceMixture) -> None:
    with Client(cluster) as default:
        held = da.from_array(ROWS, chunks=30).persist()
        fitted = pl.PlackettLuceMixture(2, random_state=0).fit(held)
        assert fitted.log_worths_.tobytes() == model.log_worths_.tobytes()
        message = r"a cluster holds the Dask array \(it was persisted\), but this call runs in this process"
        for call in (
            lambda: pl.PlackettLuceMixture(2).fit(held, client=False),
            lambda: model.score(held, client=False),
        ):
            with pytest.raises(SettingsError, match=message):
                call()
        assert default.status == "running"


# --- inside a task ---------------------------------------------------------------------------------------


def fits_in_a_task() -> tuple[bytes, int]:
    """A fit within a task of a worker that has a client of its own; how often that client was given work."""
    n_asked = 0

    def noted(*arguments: Any, **options: Any) -> Any:
        nonlocal n_asked
        n_asked += 1
        raise AssertionError("a task waits for other tasks")

    kept = Client.compute
    Client.compute = noted
    try:
        distributed.get_client()
        found: list[bytes] = []

        def fit() -> None:
            found.append(pl.PlackettLuceMixture(2, random_state=0).fit(ROWS).log_worths_.tobytes())

        fit()
        thread = threading.Thread(target=fit)
        thread.start()
        thread.join()
        assert found[0] == found[1]
        return found[0], n_asked
    finally:
        Client.compute = kept


def test_task__computes_in_its_own_process(client: Client, model: pl.PlackettLuceMixture) -> None:
    assert client.submit(fits_in_a_task, pure=False).result(timeout=120) == (model.log_worths_.tobytes(), 0)


def fits_beside_the_scheduler() -> bytes:
    worths: bytes = pl.PlackettLuceMixture(2, random_state=0).fit(ROWS).log_worths_.tobytes()
    return worths


def test_task__in_the_process_of_an_active_client(cluster: LocalCluster, model: pl.PlackettLuceMixture) -> None:
    # The only thread of the only worker runs this fit, so a fit on the cluster would never end.
    with Client(cluster) as default:
        future = default.submit(fits_beside_the_scheduler, pure=False)
        assert future.result(timeout=120) == model.log_worths_.tobytes()


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    "given", [7, True, "", object(), [1], ThreadedExecutor], ids=lambda given: type(given).__name__
)
def test_client__refused_by_name(given: Any) -> None:
    message = "client must be a Dask client, a cluster, the address of a scheduler, False for threads of this process"
    with pytest.raises(SettingsError, match=message):
        pl.PlackettLuceMixture(1).fit(ROWS, client=given)
    with pytest.raises(SettingsError, match=message), client_of(given):
        pass
    if given is not ThreadedExecutor:
        with pytest.raises(SettingsError, match=message):
            executor_for(given)


def test_client__asynchronous(cluster: LocalCluster) -> None:
    said: list[str] = []

    async def main() -> None:
        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            for where in ({"client": client}, {}):
                try:
                    pl.PlackettLuceMixture(1).fit(ROWS, **where)
                except SettingsError as error:
                    said.append(str(error))
            assert pl.PlackettLuceMixture(1).fit(ROWS, client=False).converged_

    asyncio.run(main())
    end = (
        "is asynchronous, but this call waits for its results; make one without asynchronous=True, or use client=False "
        "to compute in this process"
    )
    assert said == [f"the client {end}", f"the active Dask client {end}"]


def test_client__closed(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as client:
        address = cluster.scheduler_address
    message = rf"the client at {address} is closed; make a new one, or use client=False to compute in this process"
    for call in (lambda: pl.PlackettLuceMixture(1).fit(ROWS, client=client), lambda: run_all(client, abs, [1], "abs")):
        with pytest.raises(ClusterError, match=message):
            call()


def test_cluster__closed() -> None:
    with LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as gone:
        pass
    with pytest.raises(ClusterError, match=r"the cluster at .* is closed; make a new one, or use client=False"):
        pl.PlackettLuceMixture(1).fit(ROWS, client=gone)


@pytest.mark.parametrize("address", ["nonsense://127.0.0.1:1", "127.0.0.1", "127.0.0.1:port"])
def test_address__wrong(address: str) -> None:
    with pytest.raises(ClusterError, match=rf"'{address}' is not the address of a Dask scheduler \(.*tcp://HOST:8786"):
        pl.PlackettLuceMixture(1).fit(ROWS, client=address)


def test_address__nobody_answers(python_says: Callable[..., str]) -> None:
    said = python_says(
        """
import dask
from plmix_dist import PlackettLuceMixture
from plmix_dist.cluster import clients
clients._CONNECT_TIMEOUT = "1s"
try:
    PlackettLuceMixture(1).fit([[0, 1], [1, 0]], client="tcp://127.0.0.1:1")
except Exception as error:
    print(type(error).__name__, error)
"""
    )
    assert said.startswith("ClusterError no Dask scheduler answers at tcp://127.0.0.1:1 (")
    assert "start one with `dask scheduler`" in said


def test_nobody__imports_distributed(python_says: Callable[..., str]) -> None:
    said = python_says(
        """
import sys
from plmix_dist import PlackettLuceMixture
model = PlackettLuceMixture(1).fit([[0, 1], [1, 0]])
model.score([[0, 1]]), model.predict([[0, 1]])
print("distributed" in sys.modules)
"""
    )
    assert said == "False\n"
