"""TLS: certificates for development; who is refused, what is warned of, with real schedulers on loopback."""

from __future__ import annotations

import asyncio
import datetime
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
import trustme
from cryptography import x509
from distributed import Scheduler, Security

import plmix_dist as pl
from plmix_dist.cluster.executor import ClusterOptions, open_client
from plmix_dist.cluster.tls import (
    TlsFiles,
    _CertificateSet,
    _security_of,
    is_loopback,
    security_for,
    warn_if_plain,
    write_certificates,
)
from plmix_dist.errors import ClusterError, InsecureClusterWarning, SettingsError, StoreExistsError
from tests.helpers import cli_helpers, plmix_processes
from tests.helpers.plmix_processes import PLMIX, Started

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


shell = cli_helpers.shell  # the fixture that runs a verb in a folder of its own


def test_set__files_and_modes(shell: Any, tmp_path: Path) -> None:
    said = shell("certificates", "tls")
    assert said.line("use") == "--tls-ca tls/ca.pem --tls-cert tls/cert.pem --tls-key tls/key.pem"
    folder = tmp_path / "tls"
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "ca.pem": 0o600,
        "cert.pem": 0o600,
        "key.pem": 0o600,
    }
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in tmp_path.iterdir()] == ["tls"]


def test_set__expires_and_names(tmp_path: Path) -> None:
    made = write_certificates(tmp_path / "tls", hosts=["node1.example", "10.0.0.7"], days=3)
    certificate = x509.load_pem_x509_certificate(made.cert.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node1.example"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=2, hours=23) < left <= datetime.timedelta(days=3)
    with pytest.raises(SettingsError, match="--host takes names and addresses of machines, but is"):
        write_certificates(tmp_path / "other", hosts=["nöde"])
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_set__openssl_agrees(tmp_path: Path) -> None:
    made, other = (write_certificates(tmp_path / name) for name in ("one", "two"))

    def verifies(*options: object) -> bool:
        command = ["openssl", "verify", "-x509_strict", *map(str, options)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    for purpose in ("sslserver", "sslclient"):
        assert verifies("-purpose", purpose, "-CAfile", made.ca, made.cert)
    assert not verifies("-CAfile", other.ca, made.cert)
    # A member's certificate cannot sign another: it is not an authority.
    assert not verifies("-CAfile", made.cert, other.cert)


def test_existing_set__replaced_by_force_alone(shell: Any, tmp_path: Path) -> None:
    shell("certificates", "tls")
    before = (tmp_path / "tls/key.pem").read_bytes()
    said = shell("certificates", "tls", code=1)
    assert "tls holds certificates; --force replaces them" in said.err
    assert (tmp_path / "tls/key.pem").read_bytes() == before
    shell("certificates", "tls", "--force")
    assert (tmp_path / "tls/key.pem").read_bytes() != before


def test_other_files__never_replaced(tmp_path: Path) -> None:
    made = write_certificates(tmp_path / "tls")
    (tmp_path / "tls/notes.txt").write_text("mine")
    with pytest.raises(StoreExistsError, match="holds other files, which are never replaced"):
        write_certificates(tmp_path / "tls", force=True)
    assert made.key.exists()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (theirs / name).write_text("somebody else's")
    with pytest.raises(StoreExistsError, match="holds other files"):
        write_certificates(theirs, force=True)
    (tmp_path / "link").symlink_to(tmp_path / "tls")
    with pytest.raises(StoreExistsError, match="exists and is not a folder"):
        write_certificates(tmp_path / "link", force=True)


def test_without_the_library__says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install 'plmix-dist\[tls\]'"):
        write_certificates(tmp_path / "tls")


start = plmix_processes.start  # the fixture that starts processes


ELSEWHERE = "192.0.2.1"  # reserved for documentation: nobody has it


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> _CertificateSet:
    return write_certificates(tmp_path_factory.mktemp("tls") / "ours")


def tls_options(made: _CertificateSet) -> list[str]:
    return ["--tls-ca", str(made.ca), "--tls-cert", str(made.cert), "--tls-key", str(made.key)]


def foreign(folder: Path) -> TlsFiles:
    """A certificate of another authority, made by another library."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return TlsFiles(*(str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem")))


@pytest.mark.parametrize(("begin", "end"), [(-30, -1), (1, 30)], ids=["ended", "not begun"])
def test_certificate__whose_time_is_not_now_is_named(begin: int, end: int, tmp_path: Path) -> None:
    """Otherwise a scheduler starts that nobody reaches, and all say that certificates do not match."""
    files = foreign(tmp_path)
    assert _security_of(files).require_encryption
    now = datetime.datetime.now(datetime.UTC)
    times = {name: now + datetime.timedelta(days) for name, days in (("not_before", begin), ("not_after", end))}
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", **times)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    with pytest.raises(SettingsError, match=rf"cert\.pem is valid from .* to {times['not_after']:%Y-%m-%d}, and it is"):
        _security_of(files)


class Served:
    """A scheduler of Dask's own with given certificates, in a thread of this process."""

    def __init__(self, files: TlsFiles) -> None:
        self.address = ""
        self.ready, self.done = threading.Event(), threading.Event()
        names = ("tls_ca_file", "tls_scheduler_cert", "tls_scheduler_key")
        self.security = Security(**dict(zip(names, files, strict=True)), require_encryption=True)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.serve()))

    async def serve(self) -> None:
        options: dict[str, Any] = {"security": self.security, "port": 0, "dashboard_address": "127.0.0.1:0"}
        async with Scheduler(host="tls://127.0.0.1", **options) as scheduler:
            self.address = scheduler.address
            self.ready.set()
            while not self.done.is_set():
                await asyncio.sleep(0.02)

    def __enter__(self) -> str:
        self.thread.start()
        assert self.ready.wait(60)
        return self.address

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.thread.join()


def set_of(authority: trustme.CA, folder: Path, **times: datetime.datetime) -> TlsFiles:
    """Certificates of an authority, perhaps of another time."""
    folder.mkdir()
    certificate = authority.issue_cert("localhost", "127.0.0.1", **times)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return TlsFiles(*(str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem")))


@pytest.mark.promise(31)
@pytest.mark.parametrize("case", ["scheduler ended", "scheduler of others", "client of others"])
def test_certificates__that_are_not_accepted_are_named(case: str, tmp_path: Path) -> None:
    now, ours, others = datetime.datetime.now(datetime.UTC), trustme.CA(), trustme.CA()
    ended = {"not_before": now - datetime.timedelta(9), "not_after": now - datetime.timedelta(1)}
    scheduler = set_of(
        others if case == "scheduler of others" else ours,
        tmp_path / "scheduler",
        **(ended if case == "scheduler ended" else {}),
    )
    client = set_of(others if case == "client of others" else ours, tmp_path / "client")
    with (
        Served(scheduler) as address,
        pytest.raises(ClusterError, match=rf"the scheduler at {address} and this client do not accept each other's"),
        open_client(ClusterOptions(scheduler=address, tls=client)),
    ):
        pass


def read_all(context: ssl.SSLContext, host: str, port: int) -> None:
    """Read until the other side refuses. TLS 1.3 tells of a missing certificate at the first read only."""
    with socket.create_connection((host, port)) as raw, context.wrap_socket(raw) as wrapped:
        wrapped.settimeout(60)
        while wrapped.recv(4096):
            pass
        raise ConnectionError("closed by the scheduler")


# Dask's own client, with nothing of ours in between. Connections that were refused are left to the end of the process.
CONNECTS = """
import asyncio, json, sys
from distributed import Client, Security

async def let_in(address, files, timeout):
    names = ("tls_ca_file", "tls_client_cert", "tls_client_key")
    security = Security(**dict(zip(names, files)), require_encryption=True) if files else None
    try:
        async with Client(address, security=security, asynchronous=True, timeout=timeout) as client:
            return bool(await client.scheduler.identity())
    except (OSError, TimeoutError, ValueError, RuntimeError):
        return False

print([asyncio.run(let_in(*each)) for each in json.loads(sys.argv[1])])
"""


@pytest.mark.promise(31)
def test_tls__a_fit_works_and_everybody_without_our_certificate_is_refused(
    ours: _CertificateSet, start: Callable[..., Started], shell: Any, tmp_path: Path
) -> None:
    options = tls_options(ours)
    scheduler = start(*PLMIX, "scheduler", "--port", 0, "--no-dashboard", *options)
    address = scheduler.says("scheduler")
    assert address.startswith("tls://127.0.0.1:")
    plain = address.replace("tls://", "tcp://")
    workers = start(*PLMIX, "worker", address, "--workers", 2, "--memory-limit", "1GB", *options)
    assert workers.says("workers").count("tls://127.0.0.1:") == 2
    assert scheduler.listens_at() == workers.listens_at() == {"127.0.0.1"}

    shell("simulate", "store", "--rankings", "2000", "--items", "5", "--components", "1", "--workers", "0")
    shell("fit", "store", "--components", "1", "--out", "here", "--workers", "0")
    shell("fit", "store", "--components", "1", "--out", "there", "--scheduler", address, *options)
    here, there = (pl.PlackettLuceMixture.load(tmp_path / name) for name in ("here", "there"))
    np.testing.assert_array_equal(here.log_worths_, there.log_worths_)

    without = ssl.create_default_context(cafile=str(ours.ca))
    without.check_hostname = False
    host, port = address.removeprefix("tls://").split(":")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        read_all(without, host, int(port))
    other = tmp_path / "foreign"
    other.mkdir()
    cases = [
        (address, [str(path) for path in ours[:3]], "60s"),
        (plain, None, "3s"),
        (address, list(foreign(other)), "3s"),
    ]
    asked = start(sys.executable, "-c", CONNECTS, json.dumps(cases))
    refused = start(*PLMIX, "fit", tmp_path / "store", "--components", 1, "--out", "no", "--scheduler", plain)
    assert asked.says("[True,") == "False, False]"
    assert refused.ends() == 1
    assert f"no Dask scheduler answers at {plain}" in "".join(refused.errors)
    said = shell("fit", "store", "--components", "1", "--out", "no", "--scheduler", address, code=1)
    assert "needs --tls-ca, --tls-cert and --tls-key" in said.err

    scheduler.told(signal.SIGTERM)
    assert scheduler.ends() == 0
    assert workers.ends() == 1
    assert f"the scheduler at {address} is gone" in "".join(workers.errors)


def test_worker__of_a_foreign_authority_is_refused_in_words(
    ours: _CertificateSet, start: Callable[..., Started], tmp_path: Path
) -> None:
    scheduler = start(*PLMIX, "scheduler", "--port", 0, "--no-dashboard", *tls_options(ours))
    address = scheduler.says("scheduler")
    files = foreign(tmp_path)
    options = ["--tls-ca", files.ca, "--tls-cert", files.cert, "--tls-key", files.key]
    worker = start(*PLMIX, "worker", address, "--wait", 4, *options)
    assert worker.ends() == 1
    assert f"no scheduler at {address} took these workers within 4 s" in "".join(worker.errors)
    scheduler.told(signal.SIGINT)
    assert scheduler.ends() == 130
    assert "interrupted; the scheduler has ended" in "".join(scheduler.errors)


@pytest.mark.promise(31)
@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["scheduler", "--host", ELSEWHERE], f"a scheduler at {ELSEWHERE}"),
        (["scheduler", "--host", "0.0.0.0"], "a scheduler at 0.0.0.0"),
        (["scheduler", "--all-interfaces"], "a scheduler at all interfaces"),
        (["scheduler", "--dashboard", "0.0.0.0:8787"], "a dashboard at 0.0.0.0"),
        (["scheduler", "--dashboard", ":8787"], "a dashboard at all interfaces"),
        (["worker", f"tcp://{ELSEWHERE}:8786"], f"a worker for the scheduler at {ELSEWHERE}"),
        (["worker", "tcp://127.0.0.1:8786", "--host", "0.0.0.0"], "a worker at 0.0.0.0"),
    ],
)
def test_beyond_this_machine__refused_without_tls(shell: Any, arguments: list[str], what: str) -> None:
    said = shell(*arguments, code=1)
    assert f"{what} without TLS lets everybody who reaches it run programs on this machine" in said.err
    assert "or use --without-tls" in said.err


@pytest.mark.promise(31)
def test_dashboard__is_refused_also_where_the_cluster_is_encrypted(shell: Any, ours: _CertificateSet) -> None:
    said = shell("scheduler", "--dashboard", "0.0.0.0:0", *tls_options(ours), code=1)
    assert "a dashboard at 0.0.0.0 without TLS" in said.err
    assert "plain HTTP also with certificates" in said.err
    assert "--tls-ca" not in said.err  # they are given, and do not help


@pytest.mark.promise(31)
def test_beyond_this_machine__allowed_by_name(start: Callable[..., Started]) -> None:
    scheduler = start(
        *PLMIX, "scheduler", "--host", "0.0.0.0", "--port", 0, "--dashboard", "127.0.0.1:0", "--without-tls"
    )
    assert scheduler.says("scheduler").startswith("tcp://")
    health = urllib.request.urlopen(scheduler.says("dashboard") + "/health", timeout=60)
    assert health.read() == b"ok"
    assert scheduler.listens_at() == {"0.0.0.0", "127.0.0.1"}
    scheduler.told(signal.SIGTERM)
    assert scheduler.ends() == 0


def listening(processes: list[psutil.Process]) -> set[tuple[str, int]]:
    """Addresses and ports at which processes listen."""
    return {
        (connection.laddr.ip, connection.laddr.port)
        for process in processes
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }


@pytest.mark.promise(31)
def test_local_cluster__listens_on_loopback_alone_its_dashboards_too() -> None:
    here = psutil.Process()
    children = set(here.children(recursive=True))
    before = listening([here])
    with open_client(ClusterOptions(workers=1, memory_limit="1GB")) as client:
        client.wait_for_workers(1, timeout=240)
        opened = listening([here]) - before
        workers = listening([each for each in here.children(recursive=True) if each not in children])
        info = client.scheduler_info()
        ports = {port for _, port in opened | workers}
        assert int(info["address"].rpartition(":")[2]) in ports
        assert info["services"]["dashboard"] in ports
        assert {int(address.rpartition(":")[2]) for address in info["workers"]} <= ports
        assert {host for host, _ in opened | workers} == {"127.0.0.1"}


def test_plain_connection__to_another_machine_warns() -> None:
    for address in (f"tcp://{ELSEWHERE}:8786", f"{ELSEWHERE}:8786"):
        with pytest.warns(InsecureClusterWarning, match=rf"the connection to {address} is not encrypted"):
            warn_if_plain(address)
    for address in ("tcp://127.0.0.1:8786", "tcp://localhost:8786", "tls://192.0.2.1:8786", "tcp://[::1]:8786"):
        warn_if_plain(address)  # warnings are errors in tests


def test_plain_connection__warns_in_python_and_on_the_command_line(python_says: Callable[..., str]) -> None:
    said = python_says(
        """
import sys, warnings
from plmix_dist import PlackettLuceMixture
from plmix_dist.cluster.executor import ClusterOptions
from plmix_dist.cluster import clients
from plmix_dist.cluster.executor import open_client
clients._CONNECT_TIMEOUT = "100ms"
address = sys.argv[1]
for call in (
    lambda: PlackettLuceMixture(1).fit([[0, 1], [1, 0]], client=address),
    lambda: open_client(ClusterOptions(scheduler=address)).__enter__(),
):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as error:
            print(type(error).__name__, [each.category.__name__ for each in warned][:1])
""",
        f"tcp://{ELSEWHERE}:1",
    )
    assert said == "ClusterError ['InsecureClusterWarning']\n" * 2


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        (ELSEWHERE, False),
        ("no-such-host.invalid", False),
        ("a" * 100, False),
    ],
)
def test_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_certificates__that_do_not_belong_together(ours: _CertificateSet, tmp_path: Path) -> None:
    other = foreign(tmp_path)
    with pytest.raises(SettingsError, match=r"certificates do not belong together \(ca .*KEY_VALUES_MISMATCH"):
        _security_of(TlsFiles(str(ours.ca), str(ours.cert), other.key))
    (tmp_path / "text.pem").write_text("no certificate")
    with pytest.raises(SettingsError, match="certificates do not belong together"):
        _security_of(TlsFiles(str(tmp_path / "text.pem"), str(ours.cert), str(ours.key)))
    with pytest.raises(SettingsError, match="all of them"):
        _security_of(TlsFiles(ca=str(ours.ca)))


def test_certificates__with_a_plain_address(shell: Any, ours: _CertificateSet) -> None:
    with pytest.raises(SettingsError, match=r"tcp://127\.0\.0\.1:1 is not encrypted"):
        security_for("tcp://127.0.0.1:1", TlsFiles("a", "b", "c"))
    said = shell("worker", "tcp://127.0.0.1:1", *tls_options(ours), code=1)
    assert "tcp://127.0.0.1:1 is not encrypted" in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["worker", "nonsense"], "SCHEDULER takes an address such as tls://node1:8786, but is 'nonsense'"),
        (["scheduler", "--dashboard", "8787"], "--dashboard takes HOST:PORT, such as 127.0.0.1:8787, but is"),
        (["worker", "tcp://127.0.0.1:1", "--memory-limit", "x"], "--memory-limit takes an amount of memory"),
    ],
)
def test_wrong_options__in_words(shell: Any, arguments: list[str], message: str) -> None:
    assert message in shell(*arguments, code=1).err


def test_scheduler__port_in_use(start: Callable[..., Started]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        scheduler = start(*PLMIX, "scheduler", "--port", port, "--no-dashboard")
        assert scheduler.ends() == 1
    assert f"no scheduler can listen at 127.0.0.1, port {port}" in "".join(scheduler.errors)


def test_worker__without_a_scheduler_gives_up_or_ends_when_told(start: Callable[..., Started]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    tired = start(*PLMIX, "worker", nobody, "--wait", 3)
    patient = start(*PLMIX, "worker", nobody, "--wait", 600)
    assert tired.ends() == 1
    assert f"no scheduler at {nobody} took these workers within 3 s" in "".join(tired.errors)
    patient.told(signal.SIGTERM)
    assert patient.ends() == 0
