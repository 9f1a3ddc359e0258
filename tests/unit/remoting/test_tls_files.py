"""Certificates and keys that do not load: told at once, with the file, and never asked for on a terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from rocketq.errors import TlsError
from rocketq.remoting.certificates import write_self_signed
from rocketq.remoting.tls import ClientTls, ServerTls, TlsConfig


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write_self_signed(tmp_path)


@pytest.fixture
def locked(files: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The same certificate with its key encrypted."""
    cert, key = files
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    path = tmp_path / "locked.pem"
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"PasswordX"),
        )
    )
    return cert, path


def told(cert: Path, key: Path | None, password: str | None = None) -> str:
    with pytest.raises(TlsError) as caught:
        ClientTls(cert_path=cert, key_path=key, key_password=password).context()
    return str(caught.value)


def test_an_encrypted_key_loads_with_its_password_alone(locked: tuple[Path, Path]) -> None:
    """Goal: OpenSSL must not ask a person for the password: nobody sits there."""
    cert, key = locked
    ClientTls(cert_path=cert, key_path=key, key_password="PasswordX").context()
    assert told(cert, key) == f"the key is encrypted, and no password is given ({key})"
    wrong = told(cert, key, "WrongX")
    assert wrong.endswith(f"({cert}, {key}); is the password of the key right?")
    assert "WrongX" not in wrong


def test_servers_do_not_ask_either(locked: tuple[Path, Path]) -> None:
    cert, key = locked
    with pytest.raises(TlsError, match="no password is given"):
        ServerTls(TlsConfig(cert_path=cert, key_path=key))


def test_the_file_that_is_missing_is_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Goal: of three files, the one to look for."""
    cert, key = files
    none = tmp_path / "none.pem"
    missing = os.strerror(2)
    assert told(none, key) == f"the certificate and its key do not load: {missing} ({none})"
    assert told(cert, none) == f"the certificate and its key do not load: {missing} ({none})"
    with pytest.raises(TlsError) as caught:
        ClientTls(trust_path=none, cert_path=cert, key_path=key).context()
    assert str(caught.value) == f"the trusted certificates do not load: {missing} ({none})"


def test_passwords_are_in_no_text() -> None:
    assert "PasswordX" not in f"{ClientTls(key_password='PasswordX')!r} {TlsConfig(key_password='PasswordX')!r}"
