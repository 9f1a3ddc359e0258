"""TLS on the same port as plain frames; the first byte of a connection decides.

A plain frame starts with 0x00, since its length is below 2^24; a TLS handshake starts with 0x16. `TlsSession` is
sans-IO: bytes of the socket in, bytes of frames and bytes for the socket out.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from rocketq.errors import TlsError
from rocketq.remoting.self_signed import write_self_signed

HANDSHAKE_BYTE: Final = 0x16
_READ_BYTES = 256 * 1024


class TlsMode(StrEnum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """A server's side. Without a certificate it makes a throw-away one at the first handshake."""

    mode: TlsMode = TlsMode.PERMISSIVE
    cert_path: Path | None = None
    key_path: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    trust_path: Path | None = None
    client_auth: ssl.VerifyMode = ssl.CERT_NONE

    @classmethod
    def from_java(cls, settings: Mapping[str, str]) -> TlsConfig:
        """From Apache's `tls.server.*` keys; an unknown mode is the permissive one."""
        mode = settings.get("tls.server.mode", "").strip().lower()
        auth = settings.get("tls.server.need.client.auth", "none").strip().lower()
        known = {"optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
        return cls(
            mode=TlsMode(mode) if mode in list(TlsMode) else TlsMode.PERMISSIVE,
            cert_path=_path(settings, "tls.server.certPath"),
            key_path=_path(settings, "tls.server.keyPath"),
            key_password=settings.get("tls.server.keyPassword") or None,
            trust_path=_path(settings, "tls.server.trustCertPath"),
            client_auth=known.get(auth, ssl.CERT_NONE),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """A client's side. Without `trust_path` any certificate is accepted, as Apache's clients do by default."""

    trust_path: Path | None = None
    cert_path: Path | None = None
    key_path: Path | None = None
    key_password: str | None = field(default=None, repr=False)

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # addresses are IPs, certificates carry other names
        context.verify_mode = ssl.CERT_NONE
        if self.trust_path is not None:
            _load_trusted(context, self.trust_path)
            context.verify_mode = ssl.CERT_REQUIRED
        if self.cert_path is not None:
            _load_own(context, self.cert_path, self.key_path, self.key_password)
        return context


def _load_trusted(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is one
        raise TlsError(f"the trusted certificates do not load: {_reason(error)} ({path})") from None


def _load_own(context: ssl.SSLContext, cert_path: Path, key_path: Path | None, password: str | None) -> None:
    """TlsError names the file. A missing password is an error: OpenSSL would prompt on the terminal and block."""
    asked = False

    def get_password() -> str:
        nonlocal asked
        asked = True
        if password is None:
            raise TlsError(f"the key is encrypted, and no password is given ({key_path or cert_path})")
        return password

    try:
        context.load_cert_chain(cert_path, key_path, get_password)
    except OSError as error:
        files = [path for path in (cert_path, key_path) if path is not None]
        named = ", ".join(map(str, [path for path in files if not path.exists()] or files))
        hint = "; is the password of the key right?" if asked else ""
        raise TlsError(f"the certificate and its key do not load: {_reason(error)} ({named}){hint}") from None


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


class ServerTls:
    """Makes sessions; certificates are read at the first one, and again when their files change."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[int, ...] = ()
        self.mode = config.mode
        if config.cert_path is not None and config.mode is not TlsMode.DISABLED:
            self._load()  # a wrong file should stop the start, not the first client

    def session(self) -> TlsSession:
        if self._context is None or self._file_stamps() != self._stamps:
            self._load()
        assert self._context is not None
        return TlsSession(self._context)

    def _load(self) -> None:
        stamps = self._file_stamps()
        try:
            self._context = self._make_context()
        except OSError as error:  # ssl.SSLError is one
            raise TlsError(f"the server's certificates do not load: {error}") from None
        self._stamps = stamps

    def _make_context(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = config.client_auth
        if config.trust_path is not None:
            context.load_verify_locations(config.trust_path)
        if config.cert_path is not None:
            _load_own(context, config.cert_path, config.key_path, config.key_password)
            return context
        with tempfile.TemporaryDirectory() as folder:
            context.load_cert_chain(*write_self_signed(Path(folder)))
        return context

    def _file_stamps(self) -> tuple[int, ...]:
        paths = (self._config.cert_path, self._config.key_path, self._config.trust_path)
        return tuple(path.stat().st_mtime_ns for path in paths if path is not None and path.exists())


class TlsSession:
    """One connection's encryption; any `ssl.SSLError` it raises is the end of the connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._established = False
        self.closed_by_peer = False

    def receive(self, data: bytes) -> bytes:
        """Decrypt bytes of the socket; call `take_outgoing` afterwards."""
        self._incoming.write(data)
        if not self._established:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            self._established = True
        return self._read()

    def send(self, data: bytes) -> bytes:
        """Encrypt bytes for the socket."""
        view = memoryview(data)
        while view:
            view = view[self._object.write(view) :]
        return self._outgoing.read()

    def take_outgoing(self) -> bytes:
        """Handshake and alert bytes to send."""
        return self._outgoing.read()

    def close(self) -> bytes:
        """The close_notify alert."""
        with contextlib.suppress(ssl.SSLError, ValueError):  # the peer need not answer, and may be disconnected
            self._object.unwrap()
        return self._outgoing.read()

    def _read(self) -> bytes:
        parts = []
        try:
            while part := self._object.read(_READ_BYTES):
                parts.append(part)
            self.closed_by_peer = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.closed_by_peer = True
        return b"".join(parts)


def _path(settings: Mapping[str, str], key: str) -> Path | None:
    text = settings.get(key, "").strip()
    return Path(text) if text else None
