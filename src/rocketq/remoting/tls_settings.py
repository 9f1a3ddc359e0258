"""Apache's TLS settings: `tls.*` keys from a configuration file, from `--set`, and from `tls.config.file`.

`tls.config.file` is a properties file. As with Apache it wins over other sources, except for `tls.server.mode` and
`tls.enable`, which it does not set.

| key | meaning |
|---|---|
| `tls.server.mode` | `disabled`, `permissive` (default: TLS and plain on one port) or `enforcing` |
| `tls.test.mode.enable` | `true`: the server generates a certificate and the client accepts any |
| `tls.server.certPath`, `keyPath`, `keyPassword` | certificate and PKCS#8 key of the server, PEM |
| `tls.server.need.client.auth` | client certificates: `none` (default), `optional` or `require` |
| `tls.server.trustCertPath` | certificates that sign client certificates |
| `tls.enable`, `useTLS` | whether the broker's own connections use TLS; default: when the mode is `enforcing` |
| `tls.client.authServer`, `tls.client.trustCertPath` | verify servers with these certificates |
| `tls.client.verifyHostname` | compare the server's names too; RocketQ only, default `true` |
| `tls.client.certPath`, `keyPath`, `keyPassword` | client certificate |
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketq.errors import ConfigError
from rocketq.protocol.config_text import parse_config
from rocketq.remoting.tls import ClientTls, TlsConfig, TlsMode

log = logging.getLogger(__name__)

CONFIG_FILE_KEY: Final = "tls.config.file"
DEFAULT_CONFIG_FILE: Final = Path("/etc/rocketmq/tls.properties")
_NOT_FROM_FILE: Final = frozenset({"tls.server.mode", "tls.enable"})
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
_FLAGS: Final = frozenset(
    {
        "tls.test.mode.enable",
        "tls.enable",
        "tls.client.authServer",
        "tls.client.verifyHostname",
        "tls.server.authClient",
        "useTLS",
    }
)
KEYS: Final = _FLAGS | {
    CONFIG_FILE_KEY,
    "tls.server.mode",
    "tls.server.need.client.auth",
    "tls.server.keyPath",
    "tls.server.keyPassword",
    "tls.server.certPath",
    "tls.server.trustCertPath",
    "tls.client.keyPath",
    "tls.client.keyPassword",
    "tls.client.certPath",
    "tls.client.trustCertPath",
}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of a server and of the connections that it opens itself."""

    server: TlsConfig
    client: ClientTls | None = None
    """None: its own connections are plain."""

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> TlsSettings:
        """From Apache's keys; ConfigError names an invalid value."""
        values = {key: text.strip() for key, text in settings.items() if key in KEYS}
        values |= _file_values(values.get(CONFIG_FILE_KEY, ""))
        for key in _FLAGS & values.keys():
            if values[key].lower() not in ("", "true", "false"):
                raise ConfigError(f"{key}={values[key]!r} is not true or false")
        server = _server(values)
        uses_tls = _flag(values, "useTLS", default=server.mode is TlsMode.ENFORCING)
        uses_tls = _flag(values, "tls.enable", default=uses_tls)
        return cls(server, _client(values) if uses_tls else None)


def _file_values(name: str) -> dict[str, str]:
    path = Path(name) if name else DEFAULT_CONFIG_FILE
    if not path.exists():
        if name:
            raise ConfigError(f"{CONFIG_FILE_KEY}: {path} does not exist")
        return {}
    try:
        values = parse_config(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{CONFIG_FILE_KEY}: {path} cannot be read: {error}") from None
    unknown = sorted(values.keys() - KEYS)
    if unknown:
        log.warning("ignoring unknown settings in %s: %s", path, ", ".join(unknown[:5]))
    return {key: text.strip() for key, text in values.items() if key in KEYS - _NOT_FROM_FILE}


def _server(values: Mapping[str, str]) -> TlsConfig:
    mode = _mode(values.get("tls.server.mode", ""))
    cert, key = _path(values, "tls.server.certPath"), _path(values, "tls.server.keyPath")
    trust = _path(values, "tls.server.trustCertPath")
    auth = values.get("tls.server.need.client.auth", "").lower() or "none"
    if auth not in _CLIENT_AUTH:
        raise ConfigError(f"tls.server.need.client.auth={auth!r} is not none, optional or require")
    test_mode = _flag(values, "tls.test.mode.enable", default=cert is None)
    if test_mode:
        cert = key = None
    elif cert is None:
        if mode is TlsMode.ENFORCING:
            raise ConfigError("tls.server.mode=enforcing with tls.test.mode.enable=false needs tls.server.certPath")
        if mode is TlsMode.PERMISSIVE:
            log.warning("TLS is disabled: tls.test.mode.enable is false and tls.server.certPath is not set")
        mode = TlsMode.DISABLED
    elif key is None:
        raise ConfigError("tls.server.certPath needs tls.server.keyPath")
    if auth != "none" and trust is None and mode is not TlsMode.DISABLED:
        raise ConfigError(f"tls.server.need.client.auth={auth} needs tls.server.trustCertPath")
    return TlsConfig(
        mode=mode,
        cert_path=cert,
        key_path=key,
        key_password=values.get("tls.server.keyPassword") or None,
        trust_path=trust,
        client_auth=_CLIENT_AUTH[auth],
    )


def _client(values: Mapping[str, str]) -> ClientTls:
    """In test mode any server is accepted. Otherwise `authServer` or a trust file turns verification on."""
    trust = _path(values, "tls.client.trustCertPath")
    verifies = _flag(values, "tls.client.authServer", default=trust is not None)
    if _flag(values, "tls.test.mode.enable", default=False):
        verifies = False
    if verifies and trust is None:
        raise ConfigError("tls.client.authServer=true needs tls.client.trustCertPath")
    return ClientTls(
        trust_path=trust if verifies else None,
        cert_path=_path(values, "tls.client.certPath"),
        key_path=_path(values, "tls.client.keyPath"),
        key_password=values.get("tls.client.keyPassword") or None,
        verify_host=_flag(values, "tls.client.verifyHostname", default=True),
    )


def _mode(text: str) -> TlsMode:
    """Apache takes an unknown mode as permissive; a misspelt `enforcing` would then accept plain connections."""
    if not text:
        return TlsMode.PERMISSIVE
    if text.lower() not in list(TlsMode):
        raise ConfigError(f"tls.server.mode={text!r} is not disabled, permissive or enforcing")
    return TlsMode(text.lower())


def _flag(values: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = values.get(key, "").lower()
    return text == "true" if text else default


def _path(values: Mapping[str, str], key: str) -> Path | None:
    text = values.get(key, "")
    return Path(text) if text else None
