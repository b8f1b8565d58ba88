"""Storage that goes away: refused connections, endpoints that accept and stay silent, leases that survive an outage."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import fsspec.config
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from plmix_dist import MixtureParams, ingest, open_store
from plmix_dist.errors import IngestError, SettingsError, StoreAccessError, StoreError, StoreLockedError
from plmix_dist.store import Location, lock
from plmix_dist.store.access import _VARIABLE, RemoteFiles, storage_seconds
from plmix_dist.store.lock import write_lock
from plmix_dist.tables.write import open_binary_target
from tests.helpers.oracle import PlainRankings, full, write_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


PLAIN = PlainRankings(3, [full(0, 1, 2), full(2, 1, 0)])


class Proxy:
    """A server between us and the storage. While it is silent it accepts connections and answers nothing."""

    def __init__(self, upstream: str) -> None:
        host, port = upstream.removeprefix("http://").split(":")
        self.upstream = host, int(port)
        self.silent = False
        self.n_bytes_left = float("inf")  # then it falls silent
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.held: list[socket.socket] = []
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def accept(self) -> None:
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(self.upstream)
            self.held += [near, far]
            for one, other in ((near, far), (far, near)):
                self.threads.append(threading.Thread(target=self.pump, args=(one, other), daemon=True))
                self.threads[-1].start()

    def pump(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self.n_bytes_left -= len(data)
                if not self.silent and self.n_bytes_left > 0:
                    other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for one in (self.listener, *self.held):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def proxy(s3_bucket: dict[str, Any]) -> Iterator[Proxy]:
    made = Proxy(s3_bucket["endpoint_url"])
    yield made
    made.close()


def place_at(endpoint: str) -> Location:
    options = {"key": "key", "secret": "secret", "endpoint_url": endpoint}
    return Location.of(f"s3://rankings/{uuid.uuid4().hex}", options)


@pytest.mark.promise(49)
def test_silent_endpoint__every_request_ends_with_the_url(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_VARIABLE, "0.5")
    place = place_at(proxy.endpoint)
    proxy.silent = True
    for request in (
        lambda: open_store(place),
        lambda: place.read_bytes("a"),
        lambda: place.write_bytes("a", b""),
        lambda: place.create_bytes("a", b""),
        lambda: place.exists("a"),
        place.listing,
        lambda: place.remove("a"),
    ):
        with pytest.raises(StoreAccessError, match=rf"{place.url}.* cannot be reached: no answer within"):
            request()


@pytest.mark.promise(49)
@pytest.mark.parametrize("name", ["a.csv", "*.csv", "a.parquet"])
def test_silent_endpoint__sources_of_an_ingest(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv(_VARIABLE, "0.5")
    options = {"key": "key", "secret": "secret", "endpoint_url": proxy.endpoint}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    proxy.silent = True
    with pytest.raises(IngestError, match=r"s3://rankings/.* cannot be found: no answer within 0 s"):
        ingest(f"s3://rankings/{name}", tmp_path / "store")


@pytest.mark.promise(49)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_silence_in_the_middle_of_a_file__ends_an_ingest(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    items = np.random.default_rng(0).permuted(np.tile(np.arange(100), (20_000, 1)), axis=1)[:, :8]
    table = pa.table({f"rank{place + 1}": column for place, column in enumerate(items.T)})
    local = tmp_path / name
    if name.endswith(".parquet"):
        pq.write_table(table, local, row_group_size=1000)
    else:
        with pa.output_stream(local, compression="gzip" if name.endswith(".gz") else None) as out:
            pa_csv.write_csv(table, out)
    url = f"s3://rankings/{uuid.uuid4().hex}/{name}"
    options = {"key": "key", "secret": "secret", "endpoint_url": f"http://{proxy.upstream[0]}:{proxy.upstream[1]}"}
    fsspec.filesystem("s3", **options).put_file(str(local), url)
    monkeypatch.setitem(fsspec.config.conf, "s3", options | {"endpoint_url": proxy.endpoint})
    assert fsspec.filesystem("s3").info(url)["size"] == local.stat().st_size  # the client is made
    proxy.n_bytes_left = local.stat().st_size // 2
    monkeypatch.setenv(_VARIABLE, "1.5")
    # On a busy machine even the first request may come to no end.
    with pytest.raises(IngestError, match=rf"{url} cannot be (read|found).*: no answer within \d s \({_VARIABLE}\)"):
        ingest(url, tmp_path / "store", unranked="absent")


@pytest.mark.promise(49)
def test_silent_endpoint__while_a_target_is_written(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_at(proxy.endpoint)
    monkeypatch.setitem(fsspec.config.conf, "s3", place.storage_options)
    monkeypatch.setenv(_VARIABLE, "3")  # half a second passes before a busy machine answers the first request
    url = f"{place.url}/a.csv"

    def write() -> None:
        with open_binary_target(url) as out:
            out.write(b"1,2\n")
            proxy.silent = True

    with pytest.raises(StoreAccessError, match=rf"{url} cannot be reached: no answer"):
        write()


@pytest.mark.promise(49)
def test_refused_connection__a_store_error_with_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_VARIABLE, "3")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(StoreError, match=r"s3://rankings/.* cannot be reached"):
        open_store(place_at(f"http://127.0.0.1:{port}"))


@pytest.mark.promise(49)
def test_chunks__storage_goes_silent_while_a_store_is_read(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_at(proxy.endpoint)
    write_store(place, [[PLAIN.block()]])
    store = open_store(place)
    store.index(0)
    monkeypatch.setenv(_VARIABLE, "0.5")
    proxy.silent = True
    with pytest.raises(StoreAccessError, match=rf"{place.url}/partitions/.* cannot be reached"):
        store.block()


class Storage:
    """Says whether requests reach the storage; while it is away they fail as those of a lost connection do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away = False
        self.refused = threading.Event()
        call = RemoteFiles.call

        def reach(files: RemoteFiles, method: str, *arguments: Any, **options: Any) -> Any:
            if self.away and threading.current_thread() is not threading.main_thread():
                self.refused.set()
                raise ConnectionResetError("connection reset by peer")
            return call(files, method, *arguments, **options)

        monkeypatch.setattr(RemoteFiles, "call", reach)


@pytest.mark.promise(17)
def test_lease__survives_an_outage_shorter_than_itself(memory_place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_RENEW_SECONDS", 0.05)
    monkeypatch.setattr(lock, "_RETRY_SECONDS", 0.05)
    storage = Storage(monkeypatch)
    with write_lock(memory_place) as held:
        storage.away = True
        assert storage.refused.wait(120)
        before = held.renewed  # type: ignore[attr-defined]
        storage.away = False
        deadline = time.monotonic() + 120
        while held.renewed == before and time.monotonic() < deadline:  # type: ignore[attr-defined]
            time.sleep(0.02)
        assert held.renewed > before  # type: ignore[attr-defined]
        held.check()
        with pytest.raises(StoreLockedError, match="is writing to"), write_lock(memory_place):
            pass
    assert memory_place.listing() == []


@pytest.mark.promise(17)
def test_lease__an_outage_longer_than_itself_loses_it(memory_place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_RENEW_SECONDS", 0.05)
    monkeypatch.setattr(lock, "_RETRY_SECONDS", 0.05)
    storage = Storage(monkeypatch)
    with write_lock(memory_place) as held:
        storage.away = True
        assert storage.refused.wait(120)
        monkeypatch.setattr(lock, "LEASE_SECONDS", 0.1)
        time.sleep(0.3)
        storage.away = False
        with pytest.raises(StoreLockedError, match="lost its lease"):
            held.check()


def test_lease__storage_that_is_away_at_the_end_does_not_hide_an_error(
    memory_place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise ConnectionResetError("connection reset by peer")

    def fail() -> None:
        with write_lock(memory_place):
            monkeypatch.setattr(RemoteFiles, "call", away)
            raise KeyError("the first error")

    with pytest.raises(KeyError, match="the first error"):
        fail()


@pytest.mark.parametrize("given", ["soon", "0", "-1", "inf", "nan"])
def test_seconds__refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_VARIABLE, given)
    with pytest.raises(SettingsError, match=f"{_VARIABLE} must be a number of seconds above 0, but is '{given}'"):
        storage_seconds()


def test_silence__what_is_cleared_away_afterwards_takes_no_minutes(
    memory_place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Storage falls silent while the arrays of a model are written.
    call, waited = RemoteFiles.call, []

    def silent(files: RemoteFiles, method: str, *arguments: Any, seconds: float | None = None, **options: Any) -> Any:
        if waited or (method == "pipe_file" and str(arguments[0]).endswith("shares.npy")):
            waited.append(seconds or storage_seconds(options.pop("n_bytes", 0)))
            raise TimeoutError("no answer")
        return call(files, method, *arguments, seconds=seconds, **options)

    monkeypatch.setattr(RemoteFiles, "call", silent)
    with pytest.raises(StoreAccessError, match="cannot be reached: no answer"):
        MixtureParams.of([[0.0, 1.0]], None, ["tea", "mate"]).save(memory_place)
    assert len(waited) > 1
    assert sum(waited) < 100
