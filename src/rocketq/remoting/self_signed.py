"""A throw-away certificate, for servers that were given none."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from pathlib import Path

from rocketq.errors import TlsError

_NAME = "rocketq"
_DAYS = 3650


def write_self_signed(folder: Path) -> tuple[Path, Path]:
    """Write a new certificate and its key; made by the `cryptography` package, or by the `openssl` command."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    try:
        _by_package(cert, key)
    except ImportError:
        _by_command(cert, key)
    return cert, key


def _by_package(cert: Path, key: Path) -> None:
    from cryptography import x509  # noqa: PLC0415  only those who need a certificate pay for the import
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def _by_command(cert: Path, key: Path) -> None:
    command = shutil.which("openssl")
    if command is None:
        raise TlsError(
            "no certificate was given, and neither the cryptography package nor openssl is there to make one"
        )
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(_DAYS)]
    files = ["-subj", f"/CN={_NAME}", "-keyout", str(key), "-out", str(cert)]
    done = subprocess.run([command, "req", "-x509", *kind, *files], capture_output=True, timeout=30, check=False)
    if done.returncode != 0:
        raise TlsError(f"openssl made no certificate: {done.stderr.decode(errors='replace').strip()[-200:]}")
