"""TLS on the same port as plain frames; the first byte of a connection decides.

A plain frame starts with 0x00, since its length is below 2^24; a TLS handshake starts with 0x16. `TlsSession` is
sans-IO: bytes of the socket in, bytes of frames and bytes for the socket out.
"""

from __future__ import annotations

import contextlib
import logging
import math
import ssl
import tempfile
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from rocketq.errors import TlsError
from rocketq.remoting.certificates import expiry_ms, write_self_signed

log = logging.getLogger(__name__)

HANDSHAKE_BYTE: Final = 0x16
EXPIRY_WARNING_DAYS: Final = 30
_READ_BYTES = 256 * 1024
_DAY_MS = 86_400_000


class TlsMode(StrEnum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """A server's side. Without a certificate it generates a temporary one at the first handshake."""

    mode: TlsMode = TlsMode.PERMISSIVE
    cert_path: Path | None = None
    key_path: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    trust_path: Path | None = None
    client_auth: ssl.VerifyMode = ssl.CERT_NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """A client's side.

    With `trust_path` the server's certificate must be signed by one of those, and its names must include the host that
    the client connects to, unless `verify_host` is false. Without `trust_path` any certificate is accepted, as by
    Apache's clients.
    """

    trust_path: Path | None = None
    cert_path: Path | None = None
    key_path: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_host: bool = True

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if self.trust_path is not None:
            _load_trusted(context, self.trust_path)
            context.verify_mode = ssl.CERT_REQUIRED
            context.check_hostname = self.verify_host
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
    """Makes sessions from the configured certificate.

    The files are checked at every handshake and by `maintain`. When they change they are loaded again; while the new
    ones do not load, such as a new certificate beside its old key, the last good pair stays in use.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[object, ...] = ()
        self._warned_ms: float = -math.inf
        self.mode = config.mode
        self.expires_at_ms: int | None = None
        """When the certificate in use expires (epoch); None for a temporary one, or before it is loaded."""
        if config.cert_path is not None and config.mode is not TlsMode.DISABLED:
            self.load()  # an unreadable file must stop the start, not the first client

    @property
    def is_ready(self) -> bool:
        return self._context is not None

    def session(self) -> TlsSession:
        self._reload_if_changed()
        if self._context is None:
            self.load()
        assert self._context is not None
        return TlsSession(self._context)

    def load(self) -> None:
        """Load the files, or generate a certificate, which takes up to a second; TlsError names the file."""
        stamps = self._file_stamps()
        self._stamps = stamps
        self._context = self._make_context()

    def days_left(self, now_ms: int) -> float | None:
        """Days until the certificate expires, for metrics; negative when it has expired."""
        return None if self.expires_at_ms is None else (self.expires_at_ms - now_ms) / _DAY_MS

    def maintain(self, now_ms: int) -> None:
        """Reload changed files and report a certificate that expires soon, once a day. Call it every few seconds."""
        if self._config.cert_path is None or self.mode is TlsMode.DISABLED:
            return
        self._reload_if_changed()
        days = self.days_left(now_ms)
        if days is None or days > EXPIRY_WARNING_DAYS or now_ms - self._warned_ms < _DAY_MS:
            return
        self._warned_ms = now_ms
        if days <= 0:
            log.error("the TLS certificate has expired: file=%s", self._config.cert_path)
        else:
            log.warning("the TLS certificate expires in %.0f days: file=%s", days, self._config.cert_path)

    def _reload_if_changed(self) -> None:
        if self._context is None or self._config.cert_path is None:
            return
        stamps = self._file_stamps()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._context = self._make_context()
        except TlsError as error:
            log.error("changed TLS files do not load, the previous ones stay in use: %s", error)
        else:
            self._warned_ms = -math.inf
            log.info("TLS certificate reloaded: file=%s", self._config.cert_path)

    def _make_context(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = config.client_auth
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if config.trust_path is not None:
            _load_trusted(context, config.trust_path)
        if config.cert_path is not None:
            _load_own(context, config.cert_path, config.key_path, config.key_password)
            self.expires_at_ms = expiry_ms(config.cert_path.read_text(encoding="ascii", errors="replace"))
            return context
        with tempfile.TemporaryDirectory() as folder:
            context.load_cert_chain(*write_self_signed(Path(folder)))
        return context

    def _file_stamps(self) -> tuple[object, ...]:
        """What changes when a file is written or replaced."""
        stamps: list[object] = []
        for path in (self._config.cert_path, self._config.key_path, self._config.trust_path):
            try:
                found = path.stat() if path is not None else None
            except OSError:
                found = None
            stamps.append(None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino))
        return tuple(stamps)


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

    def peer_name(self) -> str | None:
        """The common name of the verified client certificate; None without one."""
        if not self._established:
            return None
        certificate = self._object.getpeercert() or {}
        fields = [pair for group in certificate.get("subject", ()) for pair in group]
        return next((str(pair[1]) for pair in fields if pair[0] == "commonName"), None)

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
