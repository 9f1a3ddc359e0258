"""Secrets at rest: each encrypted with AES-GCM under a master key that is not beside them in clear.

    sealed := "enc:" base64(nonce[12] || ciphertext || tag[16])      the purpose is authenticated with it

The master key comes from the environment, from a command, or from a file with mode 0600, made at the first start.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import stat
import subprocess
from pathlib import Path
from typing import Final

from rocketq.errors import ConfigError

log = logging.getLogger(__name__)

SEALED_PREFIX: Final = "enc:"
KEY_VARIABLE: Final = "ROCKETQ_MASTER_KEY"
KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_COMMAND_SECONDS_MAX: Final = 30
_PURPOSE: Final = b"rocketq secret"


class Sealer:
    """Encrypts and decrypts texts with one key."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only secured brokers need it

        if len(key) != KEY_BYTES:
            raise ConfigError(f"the master key has {len(key)} bytes, {KEY_BYTES} are needed")
        self._cipher = AESGCM(key)

    def seal(self, text: str) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        data = nonce + self._cipher.encrypt(nonce, text.encode(), _PURPOSE)
        return SEALED_PREFIX + base64.b64encode(data).decode()

    def unseal(self, sealed: str) -> str:
        """ConfigError: it was sealed with another key, or changed."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above

        try:
            data = base64.b64decode(sealed.removeprefix(SEALED_PREFIX), validate=True)
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _PURPOSE).decode()
        except (binascii.Error, InvalidTag, ValueError):
            raise ConfigError("an enc: secret was not made with the master key of this broker") from None


def derived_sealer(secret: str, purpose: str) -> Sealer:
    """For what brokers send each other: a key of their common secret."""
    return Sealer(hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).digest())


def load_master_key(path: Path, command: str = "") -> bytes:
    """From the environment, the command's output or the file, which is made where it is missing."""
    text = os.environ.get(KEY_VARIABLE, "").strip()
    if text:
        return _decode(text, KEY_VARIABLE)
    if command:
        return _decode(_output_of(command), "the output of accessKeyCommand")
    if not path.exists():
        _make(path)
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            log.warning("the master key is readable by other users of this machine file=%s: chmod 600", path)
        return _decode(path.read_text(encoding="ascii").strip(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the master key {path} cannot be read: {error}") from None


def _output_of(command: str) -> str:
    """The command is the operator's own setting; it is run by a shell, as cron would."""
    try:
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=_COMMAND_SECONDS_MAX, check=True
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise ConfigError(f"accessKeyCommand failed: {type(error).__name__}") from None
    return done.stdout.strip()


def _decode(text: str, where: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{where} is not the Base64 of {KEY_BYTES} bytes")
    return key


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(path.name + ".tmp")
        scratch.unlink(missing_ok=True)
        with open(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(base64.b64encode(os.urandom(KEY_BYTES)).decode() + "\n")
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        raise ConfigError(f"the master key {path} cannot be made: {error.strerror}") from None
    log.info("a master key for secrets was made file=%s", path)
