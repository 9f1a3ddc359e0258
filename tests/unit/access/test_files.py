"""Files of access control: secrets at rest, failures of sources, fresh signatures, settings and audit records."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rocketq.access.audit import AuditLog, AuditRecord
from rocketq.access.config import AccessConfig, require_safe_address
from rocketq.access.failures import FailureLimits, FreshSignatures
from rocketq.access.plain_files import PlainFiles, parse_plain_file
from rocketq.access.policies import Policies, PolicyType, User, make_entry
from rocketq.access.sealing import KEY_VARIABLE, Sealer, load_master_key
from rocketq.access.user_file import UserFile
from rocketq.access.users import UserState
from rocketq.errors import ConfigError, DamagedStateError

KEY = bytes(range(32))


def test_sealed_secrets_are_read_with_the_same_key_only() -> None:
    sealer = Sealer(KEY)
    sealed = sealer.seal("密码 secret")
    assert sealed.startswith("enc:")
    assert sealed != sealer.seal("密码 secret"), "equal secrets do not look equal"
    assert sealer.unseal(sealed) == "密码 secret"
    for wrong in (sealed[:-4] + "AAA=", "enc:", "enc:zzz", "enc:" + base64.b64encode(bytes(40)).decode()):
        with pytest.raises(ConfigError, match="not made with"):
            sealer.unseal(wrong)
    with pytest.raises(ConfigError):
        Sealer(bytes(32)).unseal(sealed)


def test_the_master_key_comes_from_environment_command_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = tmp_path / "config/access.key", base64.b64encode(KEY).decode()
    made = load_master_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_master_key(path) == made
    assert load_master_key(path, f"echo {text}") == KEY
    with pytest.raises(ConfigError, match="accessKeyCommand"):
        load_master_key(path, "exit 3")
    monkeypatch.setenv(KEY_VARIABLE, text)
    assert load_master_key(path) == KEY
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(ConfigError, match=KEY_VARIABLE):
        load_master_key(path)


def test_users_are_kept_with_sealed_secrets(tmp_path: Path) -> None:
    entry = make_entry("Topic:T*", ["Pub", "all"], ["10.0.0.0/8"], "deny")
    users = {"root": User("root", ("a-secret", "b-secret"), is_super=True), "名": User("名", ("x" * 9,), enabled=False)}
    state = UserState(users, {"root": Policies().with_entries(PolicyType.DEFAULT, [entry])}, 7)
    file = UserFile(tmp_path / "access.json", Sealer(KEY))
    file.save(state, {"root": 5})
    loaded, seen = file.load()
    assert (loaded.users, loaded.version, seen) == (users, 7, {"root": 5})
    assert [str(each) for each in loaded.policies["root"].entries.values()] == [
        "Deny Pub,All on Topic:T* from 10.0.0.0/8"
    ]
    assert "a-secret" not in file.path.read_text()
    assert file.path.stat().st_mode & 0o777 == 0o600
    file.save(state, {})
    file.path.write_text("{")
    assert file.load()[0].users == users, "the backup is used"
    with pytest.raises(DamagedStateError):
        UserFile(tmp_path / "access.json", Sealer(bytes(32))).load()


def test_yaml_of_other_forms() -> None:
    """Goal: numbers as texts, sealed secrets, nulls, quotes and unknown members."""
    sealed = Sealer(KEY).seal("sealed-secret")
    text = f"""
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - "192.168.0.*"
accounts:
  - accessKey: 1234567890
    secretKey: 0123456789
    whiteRemoteAddress:
    admin: true
    note: ours
  - {{accessKey: 'sealed-1', secretKey: "{sealed}", topicPerms: []}}
dataVersion:
  - {{counter: 3, timestamp: 1700000000000}}
"""
    found = parse_plain_file(text, "f.yml", Sealer(KEY).unseal)
    assert [(each.access_key, each.secret_key, each.admin) for each in found.accounts] == [
        ("1234567890", "0123456789", True), ("sealed-1", "sealed-secret", False)]  # fmt: skip
    assert [pattern.text for pattern in found.white_addresses] == ["10.10.103.*", "192.168.0.*"]
    assert found.version.counter == 3
    assert parse_plain_file("", "f.yml").accounts == ()
    assert parse_plain_file("accounts:\n", "f.yml").accounts == ()


@pytest.mark.parametrize(
    "text", ["- a\n", "accounts: x\n", "accounts: [x]\n", "a: b\na: c\n", "accounts: &x [*x]\n", "\t", "{" * 2000]
)
def test_yaml_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^f\.yml"):
        parse_plain_file(text, "f.yml")


def test_a_rewritten_file_keeps_what_it_does_not_know(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "acl.yml"
    path.write_text("accounts:\n- {accessKey: account1, secretKey: 12345678, note: ours}\nother: [1]\n")
    path.chmod(0o640)
    files = PlainFiles(None, path)
    files.open()
    files.put_white_addresses(("10.0.0.1",), None, 5)
    text = path.read_text()
    assert "note: ours" in text
    assert "secretKey: '12345678'" in text
    assert "other:" in text
    assert path.stat().st_mode & 0o777 == 0o640
    assert files.reload() is None, "its own change is known"
    path.write_text("")
    reloaded = files.reload()
    assert reloaded is not None
    assert list(reloaded.rules.accounts) == ["account1"], "an emptied file changes nothing"
    path.unlink()
    gone = files.reload()
    assert gone is not None
    assert not gone.rules.accounts
    assert f"ACL file is gone, its accounts count no more file={path}" in caplog.text


def test_sources_are_blocked_after_too_many_failures() -> None:
    limits = FailureLimits(3, 10_000)
    assert [limits.failed("a", 1_000 + step) for step in range(4)] == [False, False, False, True]
    assert limits.blocked_ms("a", 2_000) > 8_000
    assert limits.blocked_ms("b", 2_000) == 0
    assert limits.blocked_ms("a", 12_000) == 0
    assert [limits.failed("a", 20_000 + 40_000 * step) for step in range(9)] == [False] * 9, "not within a minute"
    assert not any(FailureLimits(0, 1).failed("a", step) for step in range(99))


def test_fresh_signatures_are_accepted_once() -> None:
    fresh = FreshSignatures(1_000)
    assert fresh.fault("u", "5000", "n1", 5_500) is None
    assert fresh.fault("u", "5000", "n1", 5_500) == "the signature was used before"
    assert fresh.fault("v", "5000", "n1", 5_500) is None
    assert "ms old" in (fresh.fault("u", "5000", "n2", 6_001) or "")
    assert "ms old" in (fresh.fault("u", "9000", "n3", 5_000) or "")
    for signed_at, nonce in ((None, "n"), ("", "n"), ("x", "n"), ("5000", None), ("5000", "n" * 65)):
        assert fresh.fault("u", signed_at, nonce, 5_000) == "the signature carries no time and nonce"


@pytest.mark.parametrize(
    ("host", "settings", "is_safe"),
    [
        ("127.0.0.1", {}, True),
        ("localhost", {}, True),
        ("::1", {}, True),
        ("0.0.0.0", {}, False),
        ("10.0.0.1", {}, False),
        ("::", {}, False),
        ("0.0.0.0", {"allowAnonymous": "true"}, True),
        ("0.0.0.0", {"aclEnable": "true"}, True),
        ("0.0.0.0", {"authenticationEnabled": "true"}, True),
    ],
)
def test_open_servers_listen_on_loopback_only(host: str, settings: dict[str, str], is_safe: bool) -> None:
    config = AccessConfig.from_java(settings)
    if is_safe:
        require_safe_address(host, config, "a server")
    else:
        with pytest.raises(ConfigError, match="without access control"):
            require_safe_address(host, config, "a server")


def test_settings_show_no_secrets() -> None:
    pair = {"initAuthenticationUser": '{"username":"u","password":"hidden-1"}',
            "innerClientAuthenticationCredentials": '{"accessKey":"k","secretKey":"hidden-2"}'}  # fmt: skip
    config = AccessConfig.from_java(pair)
    assert config.first_user == ("u", "hidden-1")
    assert "hidden" not in repr(config) + repr(config.to_java()) + repr(config.inner_credentials)


def test_audit_records_are_json_lines(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "logs/audit.log", 400)
    given: dict[str, Any] = {"time_ms": 1_700_000_000_123, "source": "10.0.0.9", "user": "名", "code": 310}
    log.write(AuditRecord(event="deny", **given))
    log.start()
    for number in range(8):
        log.write(AuditRecord(event="deny", resource=f"Topic:{number}", action="Pub", rule="r", reason="w", **given))
    log.stop()
    lines = [json.loads(line) for path in tmp_path.glob("logs/*") for line in path.read_text().splitlines()]
    assert {line["resource"] for line in lines} == {f"Topic:{number}" for number in range(8)}
    assert lines[0]["time"] == "2023-11-14T22:13:20.123Z"
    assert len(list(tmp_path.glob("logs/*"))) > 1, "it is rotated"
