"""Apache's tls.* keys, from settings and from the file that tls.config.file names."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from rocketq.errors import ConfigError, TlsError
from rocketq.remoting import TlsMode, TlsSettings
from rocketq.remoting.certificates import expiry_ms, write_self_signed
from rocketq.remoting.tls import ServerTls, TlsConfig

DAY_MS = 86_400_000


def test_the_config_file_wins_except_for_mode_and_enable(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        "tls.test.mode.enable=false\ntls.server.mode=disabled\ntls.enable=true\n"
        "tls.server.certPath=/a/cert.pem\ntls.server.keyPath=/a/key.pem\ntls.server.keyPassword=secretX\n"
        "tls.server.need.client.auth=require\ntls.server.trustCertPath=/a/ca.pem\n"
    )
    found = TlsSettings.read(
        {
            "tls.config.file": str(file),
            "tls.server.mode": "enforcing",
            "tls.server.certPath": "/b.pem",
            "tls.enable": "false",
        }
    )
    assert found.client is None
    assert found.server == TlsConfig(
        mode=TlsMode.ENFORCING,
        cert_path=Path("/a/cert.pem"),
        key_path=Path("/a/key.pem"),
        key_password="secretX",
        trust_path=Path("/a/ca.pem"),
        client_auth=ssl.CERT_REQUIRED,
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tls.server.mode": "enforced"}, "tls.server.mode='enforced'"),
        ({"tls.server.need.client.auth": "yes"}, "need.client.auth='yes'"),
        ({"tls.server.need.client.auth": "require"}, "needs tls.server.trustCertPath"),
        ({"tls.server.mode": "enforcing", "tls.test.mode.enable": "false"}, "needs tls.server.certPath"),
        ({"tls.server.certPath": "/a"}, "needs tls.server.keyPath"),
        ({"tls.config.file": "/nowhere/tls.properties"}, "does not exist"),
        ({"useTLS": "true", "tls.client.authServer": "true"}, "needs tls.client.trustCertPath"),
        ({"tls.enable": "ja"}, "is not true or false"),
    ],
)
def test_a_setting_that_would_protect_less_than_it_says_is_an_error(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        TlsSettings.read(settings)


@pytest.mark.parametrize(
    ("settings", "uses_tls"),
    [
        ({}, False),
        ({"useTLS": "true"}, True),
        ({"tls.enable": "true"}, True),
        ({"tls.server.mode": "enforcing"}, True),
        ({"tls.server.mode": "enforcing", "tls.enable": "false"}, False),
    ],
)
def test_own_connections_use_tls_as_apaches_do(settings: dict[str, str], uses_tls: bool) -> None:
    assert (TlsSettings.read(settings).client is not None) is uses_tls


def test_host_names_are_verified_unless_relaxed() -> None:
    settings = {"useTLS": "true", "tls.client.trustCertPath": "/ca.pem"}
    strict = TlsSettings.read(settings).client
    relaxed = TlsSettings.read(settings | {"tls.client.verifyHostname": "false"}).client
    trusting = TlsSettings.read(settings | {"tls.test.mode.enable": "true"}).client
    assert strict is not None
    assert strict.verify_host
    assert relaxed is not None
    assert not relaxed.verify_host
    assert trusting is not None
    assert trusting.trust_path is None


def test_the_last_good_pair_stays_while_only_one_file_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    (cert, key), (new_cert, new_key) = write_self_signed(old), write_self_signed(new)
    tls = ServerTls(TlsConfig(cert_path=cert, key_path=key))
    tls.session()
    cert.write_bytes(new_cert.read_bytes())
    tls.maintain(0)
    tls.session()
    key.unlink()
    tls.maintain(0)
    assert caplog.text.count("the previous ones stay in use") == 2
    key.write_bytes(new_key.read_bytes())
    tls.maintain(0)
    assert "TLS certificate reloaded" in caplog.text
    with pytest.raises(TlsError):
        ServerTls(TlsConfig(cert_path=cert, key_path=old / "none.pem"))


def test_expiry_is_read_and_reported_once_a_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cert, key = write_self_signed(tmp_path)
    found = expiry_ms(cert.read_text())
    assert found is not None
    now_ms = int(time.time() * 1000)
    assert 3640 < (found - now_ms) / DAY_MS < 3651
    tls = ServerTls(TlsConfig(cert_path=cert, key_path=key))
    tls.maintain(now_ms)
    assert caplog.text == ""
    for later_ms in (0, 3_600_000, DAY_MS):
        tls.maintain(found - 10 * DAY_MS + later_ms)
    assert caplog.text.count("expires in") == 2
    tls.maintain(found + DAY_MS)
    assert "has expired" in caplog.text
    assert expiry_ms("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----") is None
    assert expiry_ms("no certificate") is None
