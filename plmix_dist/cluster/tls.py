"""TLS on the way to a cluster: what leaves this machine is encrypted; certificates, and a set for development."""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import ipaddress
import itertools
import re
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.errors import InsecureClusterWarning, SettingsError, StoreExistsError, give_warnings

if TYPE_CHECKING:
    from distributed import Security

_ADVICE = "give --tls-ca, --tls-cert and --tls-key (`plmix certificates DIR` makes a set for trials)"


class TlsFiles(NamedTuple):
    """The three files of an encrypted connection: all of them, or none."""

    ca: str | None = None  # of the authority that signed all certificates of the cluster
    cert: str | None = None  # the certificate to show
    key: str | None = None  # its key

    def __bool__(self) -> bool:
        return any(self)


NO_TLS = TlsFiles()


def _security_of(files: TlsFiles) -> Security:
    """Dask's security settings for every role, encryption required; an error unless all files are given and fit."""
    if not all(files):
        raise SettingsError("an encrypted connection needs --tls-ca, --tls-cert and --tls-key, all of them")
    from distributed import Security

    roles = itertools.product(("client", "scheduler", "worker"), ("cert", "key"))
    own = {f"tls_{role}_{part}": getattr(files, part) for role, part in roles}
    security = Security(tls_ca_file=files.ca, require_encryption=True, **own)
    try:
        security.get_connection_args("client")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        named = ", ".join(f"{name} {path}" for name, path in zip(TlsFiles._fields, files, strict=True))
        raise SettingsError(
            f"these certificates do not belong together ({named}): {error}; the certificate must have been made "
            "for this key, all as PEM files"
        ) from error
    _refuse_expired(files)
    return security


def _refuse_expired(files: TlsFiles) -> None:
    """An error if the time of a certificate is over, where the package that reads it is installed.

    Dask would report that certificates do not match, and a scheduler would start that cannot be reached.
    """
    if importlib.util.find_spec("cryptography") is None:
        return
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    for path in (str(files.ca), str(files.cert)):
        # Of several authorities one may have ended; of a chain the first is that of this machine.
        found = x509.load_pem_x509_certificates(Path(path).read_bytes())
        times = [(one.not_valid_before_utc, one.not_valid_after_utc) for one in found]
        begin, end = max(times, key=lambda each: each[1]) if path == files.ca else times[0]
        if not begin <= now <= end:
            raise SettingsError(
                f"the certificate {path} is valid from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, and it is {now:%Y-%m-%d}; "
                "make a new set (`plmix certificates DIR --force`), give it to the whole cluster and restart all of it"
            )


def security_for(address: str | None, files: TlsFiles) -> dict[str, Any]:
    """Arguments of a Dask client for an address: nothing for plain TCP."""
    scheme = "" if address is None or "://" not in address else address.partition("://")[0]
    if files and scheme not in ("", "tls"):
        raise SettingsError(
            f"certificates are given, but {address} is not encrypted; a scheduler with TLS has an address that begins "
            "with tls://"
        )
    if files or (scheme == "tls" and not _configured()):
        return {"security": _security_of(files)}
    return {}


def encrypted_address(address: str, files: TlsFiles) -> str:
    """An address with its scheme: tls where there are certificates and no scheme was given."""
    return f"tls://{address}" if files and "://" not in address else address


def warn_if_plain(address: str) -> None:
    """A warning if an address leads to another machine without encryption."""
    from distributed.comm.addressing import get_address_host

    if address.startswith(("tls://", "inproc://")) or is_loopback(str(get_address_host(address))):
        return
    words = (
        f"the connection to {address} is not encrypted: whoever can read or change what travels there can read the "
        f"data and run programs on the workers; start the scheduler with TLS, and {_ADVICE}"
    )
    give_warnings([InsecureClusterWarning(words)])


def check_exposure(what: str, host: str, *, encrypted: bool, allowed: bool, advice: str = _ADVICE) -> None:
    """An error if something would listen beyond this machine without encryption, unless that was asked for by name."""
    if encrypted or allowed or is_loopback(host):
        return
    where = host or "all interfaces"
    raise SettingsError(
        f"{what} at {where} without TLS lets everybody who reaches it run programs on this machine; {advice}, use "
        "127.0.0.1, or use --without-tls"
    )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and cannot be reached from others; names are looked up."""
    if not host:
        return False  # all interfaces
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found)


def _configured() -> bool:
    """Whether Dask's own configuration names an authority; its other files are its own matter."""
    import dask.config

    path = dask.config.get("distributed.comm.tls.ca-file", None)
    return path is not None and Path(path).exists()


# A set of certificates for development: an authority of its own, one certificate, one key.

CA, CERT, KEY = "ca.pem", "cert.pem", "key.pem"
_ORGANISATION = "plmix development"
_HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
# Certificates are valid from an hour ago, because clocks of machines differ.
_BACKDATED = datetime.timedelta(hours=1)


class _CertificateSet(NamedTuple):
    """Paths of the files that were written, and when they expire."""

    ca: Path
    cert: Path
    key: Path
    expires: datetime.datetime


def write_certificates(
    folder: str | Path, *, hosts: Sequence[str] = ("localhost", "127.0.0.1"), days: int = 365, force: bool = False
) -> _CertificateSet:
    """Write ca.pem, cert.pem and key.pem into a new folder, which appears when it is complete.

    With `force` the folder may hold an earlier set. Dask does not check `hosts`; other programs may.

    One certificate serves scheduler, workers and clients. The key of the authority is not kept, so nobody can sign
    another certificate for the same cluster: to add or to remove a member, make a new set.
    """
    from plmix_dist.store.access import write_whole  # the room loads zarr, which `plmix --help` does without

    if importlib.util.find_spec("trustme") is None:
        raise SettingsError(
            "making certificates needs the package trustme; install it with: pip install 'plmix-dist[tls]'"
        )
    target = Path(folder)
    _check_target(target, force=force)
    contents, expires = _contents(hosts, days)
    target.parent.mkdir(parents=True, exist_ok=True)
    prepared = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))  # mode 0700
    try:
        for name, text in contents.items():
            write_whole(prepared / name, text, private=True)
        if target.exists():
            for name in contents:
                (target / name).unlink(missing_ok=True)
            target.rmdir()
        prepared.rename(target)
    finally:
        shutil.rmtree(prepared, ignore_errors=True)
    return _CertificateSet(target / CA, target / CERT, target / KEY, expires)


def _check_target(target: Path, *, force: bool) -> None:
    """An error unless the folder is new, empty, or an earlier set that may be replaced."""
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir() or target.is_symlink():
        raise StoreExistsError(f"{target} exists and is not a folder; choose another")
    found = {entry.name for entry in target.iterdir()}
    if not found:
        return
    if not _is_ours(target, found):
        raise StoreExistsError(f"{target} holds other files, which are never replaced; choose a new folder")
    if not force:
        raise StoreExistsError(
            f"{target} holds certificates; --force replaces them, and then all of the cluster needs the new ones"
        )


def _is_ours(target: Path, found: set[str]) -> bool:
    """Whether a folder holds a set that was made here and nothing else."""
    import ssl  # not above: `plmix --help` would wait for it

    if found != {CA, CERT, KEY}:
        return False
    try:
        authority = ssl.PEM_cert_to_DER_cert((target / CA).read_text(encoding="ascii"))
    except (ValueError, OSError):
        return False
    return _ORGANISATION.encode() in authority  # names are plain bytes in a certificate


def _contents(hosts: Sequence[str], days: int) -> tuple[dict[str, bytes], datetime.datetime]:
    """The three files, and when the certificate expires. The authority itself is not kept."""
    import trustme

    for host in hosts:
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            continue
        if not _HOST_NAME.fullmatch(host):
            raise SettingsError(f"--host takes names and addresses of machines, but is {host!r}")
    now = datetime.datetime.now(datetime.UTC)
    expires = now + datetime.timedelta(days=days)
    authority = trustme.CA(path_length=0, organization_name=_ORGANISATION, organization_unit_name="plmix authority")
    member = authority.issue_cert(
        *hosts,
        organization_name=_ORGANISATION,
        organization_unit_name="plmix cluster",
        not_before=now - _BACKDATED,
        not_after=expires,
    )
    chain = b"".join(blob.bytes() for blob in member.cert_chain_pems)
    return {CA: authority.cert_pem.bytes(), CERT: chain, KEY: member.private_key_pem.bytes()}, expires
