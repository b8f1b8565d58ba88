"""TLS on the way to a cluster: certificate files, and the rule that what leaves this machine is encrypted."""

from __future__ import annotations

import datetime
import importlib.util
import ipaddress
import socket
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from plmix_dist.errors import InsecureClusterWarning, SettingsError

if TYPE_CHECKING:
    from distributed import Security

_ADVICE = "give --tls-ca, --tls-cert and --tls-key (`plmix certificates DIR` makes a set for trials)"


class TlsFiles(NamedTuple):
    """The three files of an encrypted connection: all of them, or none.

    Attributes
    ----------
    ca
        Certificate of the authority that signed all certificates of the cluster.
    cert
        The certificate to show.
    key
        The key of that certificate.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __bool__(self) -> bool:
        return any(self)


NO_TLS = TlsFiles()


def security_of(files: TlsFiles) -> Security:
    """Dask's security settings for every role, encryption required; an error unless all files are given and readable.

    Examples
    --------
    >>> security_of(TlsFiles(ca="ca.pem"))
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: an encrypted connection needs --tls-ca, --tls-cert and --tls-key, all of them
    """
    if not all(files):
        raise SettingsError("an encrypted connection needs --tls-ca, --tls-cert and --tls-key, all of them")
    from distributed import Security

    security = Security(
        tls_ca_file=files.ca,
        tls_client_cert=files.cert,
        tls_client_key=files.key,
        tls_scheduler_cert=files.cert,
        tls_scheduler_key=files.key,
        tls_worker_cert=files.cert,
        tls_worker_key=files.key,
        require_encryption=True,
    )
    try:
        security.get_connection_args("client")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        named = ", ".join(f"{name} {path}" for name, path in zip(TlsFiles._fields, files, strict=True))
        raise SettingsError(
            f"these are no certificates that belong together ({named}): {error}; the certificate must have been made "
            "for this key, all as PEM files"
        ) from error
    _refuse_expired(files)
    return security


def _refuse_expired(files: TlsFiles) -> None:
    """An error if the time of a certificate is over, where the package that reads it is installed.

    Dask would say that certificates do not match, and a scheduler would start, and nobody could reach it.
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


def security_for(address: str | None, files: TlsFiles) -> dict[str, Security]:
    """Arguments of a Dask client for an address: nothing for plain TCP.

    Examples
    --------
    >>> security_for("tcp://127.0.0.1:8786", TlsFiles())
    {}
    >>> security_for("tcp://127.0.0.1:8786", TlsFiles("ca.pem", "cert.pem", "key.pem"))
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: certificates are given, but tcp://127.0.0.1:8786 is not encrypted; ...
    """
    scheme = "" if address is None or "://" not in address else address.partition("://")[0]
    if files and scheme not in ("", "tls"):
        raise SettingsError(
            f"certificates are given, but {address} is not encrypted; a scheduler with TLS has an address that begins "
            "with tls://"
        )
    if files or (scheme == "tls" and not _configured()):
        return {"security": security_of(files)}
    return {}


def encrypted_address(address: str, files: TlsFiles) -> str:
    """An address with its scheme: tls where there are certificates and no scheme was given.

    Examples
    --------
    >>> encrypted_address("node1:8786", TlsFiles("ca.pem", "cert.pem", "key.pem"))
    'tls://node1:8786'
    >>> encrypted_address("node1:8786", TlsFiles())
    'node1:8786'
    """
    return f"tls://{address}" if files and "://" not in address else address


def warn_if_plain(address: str) -> None:
    """A warning if an address leads to another machine without encryption.

    Examples
    --------
    >>> warn_if_plain("tcp://127.0.0.1:8786")
    >>> warn_if_plain("tls://10.0.0.1:8786")
    """
    if address.startswith(("tls://", "inproc://")) or is_loopback(_host_of(address)):
        return
    warnings.warn(
        f"the connection to {address} is not encrypted: whoever can read or change what travels there can read the "
        f"data and run programs on the workers; start the scheduler with TLS, and {_ADVICE}",
        InsecureClusterWarning,
        stacklevel=3,
    )


def check_exposure(what: str, host: str, *, encrypted: bool, allowed: bool, advice: str = _ADVICE) -> None:
    """An error if something would listen beyond this machine without encryption, unless that was asked for by name.

    Examples
    --------
    >>> check_exposure("a scheduler", "127.0.0.1", encrypted=False, allowed=False)
    >>> check_exposure("a scheduler", "10.0.0.1", encrypted=False, allowed=False)
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: a scheduler at 10.0.0.1 without TLS lets everybody who reaches it run programs ...
    """
    if encrypted or allowed or is_loopback(host):
        return
    where = host or "all interfaces"
    raise SettingsError(
        f"{what} at {where} without TLS lets everybody who reaches it run programs on this machine; {advice}, use "
        "127.0.0.1, or say --without-tls"
    )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and cannot be reached from others; names are looked up.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    if not host:
        return False  # all interfaces
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        pass
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found)


def _host_of(address: str) -> str:
    from distributed.comm.addressing import get_address_host

    return str(get_address_host(address))


def _configured() -> bool:
    """Whether Dask's own configuration names an authority; its other files are its own matter."""
    import dask.config

    path = dask.config.get("distributed.comm.tls.ca-file", None)
    return path is not None and Path(path).exists()
