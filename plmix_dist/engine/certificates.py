"""A set of certificates for development: an authority of its own, one certificate, one key."""

from __future__ import annotations

import datetime
import importlib.util
import ipaddress
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from plmix_dist.errors import SettingsError, StoreExistsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA, CERT, KEY = "ca.pem", "cert.pem", "key.pem"
_ORGANISATION = "plmix development"
# Clocks of machines differ.
_BACKDATED = datetime.timedelta(hours=1)


class CertificateSet(NamedTuple):
    """Paths of the files that were written, and when they expire."""

    ca: Path
    cert: Path
    key: Path
    expires: datetime.datetime


def write_certificates(
    folder: str | Path,
    *,
    hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    days: int = 365,
    force: bool = False,
) -> CertificateSet:
    """Write ca.pem, cert.pem and key.pem into a new folder, which appears when it is complete.

    One certificate serves scheduler, workers and clients. The key of the authority is not kept, so nobody can sign
    another certificate for the same cluster: to add or to remove a member, make a new set.

    Parameters
    ----------
    folder
        Where to write. It must not be there, or be empty; with `force` it may hold an earlier set, which is replaced.
    hosts
        Names and addresses in the certificate. Dask does not check them; other programs may.
    days
        How long the set is valid.

    Examples
    --------
    >>> import tempfile
    >>> made = write_certificates(tempfile.mkdtemp(), days=1)
    >>> made.key.stat().st_mode & 0o777 == 0o600
    True
    """
    _check_library()
    target = Path(folder)
    _check_target(target, force=force)
    contents, expires = _contents(hosts, days)
    target.parent.mkdir(parents=True, exist_ok=True)
    prepared = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))  # mode 0700
    try:
        for name, text in contents.items():
            _write_private(prepared / name, text)
        if target.exists():
            _remove_set(target)
        prepared.rename(target)
    finally:
        shutil.rmtree(prepared, ignore_errors=True)
    return CertificateSet(target / CA, target / CERT, target / KEY, expires)


def _check_library() -> None:
    """An error that says what to install, where it is not."""
    if importlib.util.find_spec("cryptography") is None:
        raise SettingsError(
            "making certificates needs the package cryptography; install it with: pip install 'plmix-dist[tls]'"
        )


def _check_target(target: Path, *, force: bool) -> None:
    """An error unless the folder is new, empty, or an earlier set that may be replaced."""
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir() or target.is_symlink():
        raise StoreExistsError(f"{target} is there and no folder; choose another")
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
    from cryptography import x509

    if found != {CA, CERT, KEY}:
        return False
    try:
        authority = x509.load_pem_x509_certificate((target / CA).read_bytes())
    except (ValueError, OSError):
        return False
    return _ORGANISATION in [each.value for each in authority.subject]


def _remove_set(target: Path) -> None:
    for name in (KEY, CERT, CA):
        (target / name).unlink(missing_ok=True)
    target.rmdir()


def _write_private(path: Path, text: bytes) -> None:
    """Write a file that its owner alone can read, from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _contents(hosts: Sequence[str], days: int) -> tuple[dict[str, bytes], datetime.datetime]:
    """The three files, and when they expire."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    begin = datetime.datetime.now(datetime.UTC) - _BACKDATED
    expires = begin + _BACKDATED + datetime.timedelta(days=days)
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _signed(None, authority_key, authority_key, hosts=(), times=(begin, expires))
    certificate = _signed(authority, key, authority_key, hosts=hosts, times=(begin, expires))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {CA: authority.public_bytes(pem), CERT: certificate.public_bytes(pem), KEY: private}, expires


def _signed(
    issuer: x509.Certificate | None,
    key: EllipticCurvePrivateKey,
    signing_key: EllipticCurvePrivateKey,
    *,
    hosts: Sequence[str],
    times: tuple[datetime.datetime, datetime.datetime],
) -> x509.Certificate:
    """The certificate of a key; that of an authority if there is no issuer."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509 import oid

    is_authority = issuer is None
    subject = _name("authority" if is_authority else "cluster")
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(times[0])
        .not_valid_after(times[1])
        .add_extension(
            x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True
        )
        .add_extension(_usage(signs=is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
    )
    if not is_authority:
        both = [oid.ExtendedKeyUsageOID.SERVER_AUTH, oid.ExtendedKeyUsageOID.CLIENT_AUTH]
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signing_key, hashes.SHA256())


def _name(role: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509 import oid

    return x509.Name(
        [
            x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, _ORGANISATION),
            x509.NameAttribute(oid.NameOID.COMMON_NAME, f"plmix {role}"),
        ]
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise SettingsError(f"--host takes names and addresses of machines, but is {host!r}") from error
