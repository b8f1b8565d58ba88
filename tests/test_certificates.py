"""plmix certificates: what is written, who may read it, what is never replaced; checked by openssl."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import cli_helpers
import pytest
from cryptography import x509

from plmix_dist.engine.certificates import write_certificates
from plmix_dist.errors import SettingsError, StoreExistsError

if TYPE_CHECKING:
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
    # A member's certificate cannot sign another: it is no authority.
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
    with pytest.raises(StoreExistsError, match="is there and no folder"):
        write_certificates(tmp_path / "link", force=True)


def test_without_the_library__says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install 'plmix-dist\[tls\]'"):
        write_certificates(tmp_path / "tls")
