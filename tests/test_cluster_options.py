"""What a cluster is started or joined with, seen by stand-ins for Dask's own classes."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import distributed
import pytest

from plmix_dist.engine import ClusterOptions, LazyExecutor, ThreadedExecutor
from plmix_dist.engine.certificates import write_certificates
from plmix_dist.engine.cluster import open_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """The clusters and clients that were made, and with what."""
    noted: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def stand_in(name: str) -> None:
        @contextlib.contextmanager
        def make(*arguments: Any, **options: Any) -> Iterator[str]:
            noted.append((name, arguments, options))
            yield name
            noted.append((f"{name} closed", (), {}))

        monkeypatch.setattr(distributed, name, make)

    stand_in("LocalCluster")
    stand_in("Client")
    return noted


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (ClusterOptions(), {"n_workers": os.cpu_count(), "threads_per_worker": 1, "memory_limit": "auto"}),
        (
            ClusterOptions(workers=3, threads=2, memory_limit="2GB"),
            {"n_workers": 3, "threads_per_worker": 2, "memory_limit": "2GB"},
        ),
    ],
    ids=["default", "given"],
)
def test_local_cluster__on_loopback_with_what_was_asked_for(
    made: list[Any], options: ClusterOptions, expected: dict[str, Any]
) -> None:
    with open_client(options):
        (_, (), found), (client, (cluster,), _) = made
        assert {key: found[key] for key in expected} == expected
        assert found["host"] == "127.0.0.1"
        assert found["dashboard_address"] == "127.0.0.1:0"
        assert client == "Client"
        assert cluster is not None
    assert [name for name, *_ in made[2:]] == ["Client closed", "LocalCluster closed"]


def test_scheduler__joined_and_left(made: list[Any]) -> None:
    with open_client(ClusterOptions(scheduler="tcp://127.0.0.1:9")):
        assert made == [("Client", ("tcp://127.0.0.1:9",), {"timeout": "10s", "set_as_default": False})]
    assert [name for name, *_ in made] == ["Client", "Client closed"]


@pytest.mark.parametrize("address", ["tls://h:1", "h:1"])
def test_scheduler__with_certificates(made: list[Any], tmp_path: Path, address: str) -> None:
    files = write_certificates(tmp_path / "tls")
    ca, cert, key = (str(path) for path in files[:3])
    with open_client(ClusterOptions(scheduler=address, tls_ca=ca, tls_cert=cert, tls_key=key)):
        assert made[0][1] == ("tls://h:1",)
        security = made[0][2]["security"]
        assert security.require_encryption
        assert (security.tls_ca_file, security.tls_client_cert, security.tls_client_key) == (ca, cert, key)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (ClusterOptions(), False),
        (ClusterOptions(workers=0), False),
        (ClusterOptions(workers=1), True),
        (ClusterOptions(scheduler="tcp://127.0.0.1:9"), True),
        (ClusterOptions(threads=2, memory_limit="1GB"), False),
    ],
    ids=str,
)
def test_client_if_asked(made: list[Any], options: ClusterOptions, asked: bool) -> None:
    with LazyExecutor(options) as executor:
        first = executor.client_if_asked()
        assert (first is not False) is asked
        assert executor.client_if_asked() is first
    assert sum(name == "Client" for name, *_ in made) == int(asked)
    assert sum(name == "Client closed" for name, *_ in made) == int(asked)


def test_threads__one_per_core_unless_told() -> None:
    assert ThreadedExecutor().n_threads == os.cpu_count()
    assert ThreadedExecutor(3).n_threads == 3
