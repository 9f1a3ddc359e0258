"""Passwords, sessions, pauses, limits; JSON of large numbers; addresses of webhooks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rocketq.console.accounts import (
    RateLimit,
    Sessions,
    SignInError,
    SignInPausedError,
    User,
    UsersFile,
    check_password,
    hash_password,
)
from rocketq.console.alerts import Alert
from rocketq.console.config import Role
from rocketq.console.guard import host_name
from rocketq.console.history import History
from rocketq.console.json_text import to_json
from rocketq.console.webhooks import KINDS, Webhook, WebhookError, body_of, check_url, signed_request

ANN = User(name="ann", role=Role.VIEWER)


def test_passwords_are_hashed_with_a_salt() -> None:
    first, second = hash_password("secret"), hash_password("secret")
    assert first != second
    assert check_password("secret", first)
    assert not check_password("Secret", first)
    assert not check_password("secret", "plain$secret")
    assert not check_password("secret", "")


def test_unknown_and_disabled_users_are_refused_alike(tmp_path: Path) -> None:
    file = UsersFile(tmp_path / "users.json")
    file.set_user("ann", "pw", Role.OPERATOR)
    value = json.loads((tmp_path / "users.json").read_text())
    value["users"]["ann"]["disabled"] = True
    (tmp_path / "users.json").write_text(json.dumps(value))
    for name in ("ann", "nobody"):
        with pytest.raises(SignInError, match="the name or the password is wrong"):
            file.check(name, "pw")
    assert (tmp_path / "users.json").stat().st_mode & 0o077 == 0


def test_a_token_ends(tmp_path: Path) -> None:
    file = UsersFile(tmp_path / "users.json")
    token = file.add_token("ci", Role.VIEWER, 100.0)
    found = file.by_token(token, 99.0)
    assert found is not None
    assert found.role is Role.VIEWER
    assert file.by_token(token, 101.0) is None
    assert token not in (tmp_path / "users.json").read_text()


def test_sessions_end_and_failures_pause() -> None:
    sessions = Sessions(life_s=10)
    session = sessions.open(ANN, 0)
    assert sessions.get(session.id, 9) is session
    assert sessions.get(session.id, 10) is None
    assert sessions.get("guessed", 0) is None
    for number in range(5):
        sessions.require_calm("1.2.3.4", number)
        sessions.failed("1.2.3.4", number)
    with pytest.raises(SignInPausedError):
        sessions.require_calm("1.2.3.4", 5)
    sessions.require_calm("5.6.7.8", 5)
    sessions.require_calm("1.2.3.4", 40)


def test_a_source_has_its_own_bucket() -> None:
    limit = RateLimit(per_s=2, burst=3)
    assert [limit.allows("a", 0) for _ in range(4)] == [True, True, True, False]
    assert limit.allows("b", 0)
    assert limit.allows("a", 1)


def test_numbers_that_javascript_cannot_hold_are_text() -> None:
    assert json.loads(to_json({"a": (1 << 53) - 1, "b": 1 << 53, "c": -(1 << 60)})) == {
        "a": (1 << 53) - 1,
        "b": str(1 << 53),
        "c": str(-(1 << 60)),
    }


@pytest.mark.parametrize(
    ("host", "name"),
    [("localhost:9880", "localhost"), ("[::1]:9880", "::1"), ("127.0.0.1", "127.0.0.1"), ("", ""), ("EVIL", "evil")],
)
def test_the_name_in_a_host_header(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "http://",
        "http://127.0.0.1/x",
        "http://169.254.169.254/latest",
        "http://u:p@127.0.0.1",
        "http://[::1]/",
    ],
)
def test_webhooks_go_nowhere_private(url: str) -> None:
    with pytest.raises(WebhookError):
        check_url(url, allow_private=False)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_webhook_names_rule_and_subject(kind: str) -> None:
    alert = Alert(
        rule="r", name="lag", subject="billing", metric="group.lag", severity="critical", state="firing", value=5,
        threshold=1, since_ms=1,
    )  # fmt: skip
    hook = Webhook(id="h", name="h", url="https://x.example/h?a=1", kind=kind, secret="s")
    url, data, headers = signed_request(hook, body_of(kind, "prod", alert), 1_000.0)
    assert b"billing" in data
    assert b"prod" in data
    signed = "x-rocketq-signature" in headers or "sign=" in url or b"sign" in data or b"routing_key" in data
    assert signed


def test_history_thins_out_and_forgets(tmp_path: Path) -> None:
    async def run() -> None:
        history = History(tmp_path / "h.sqlite", 1 << 20)
        await history.open()
        for at_s in range(100_000, 100_000 + 7_200, 10):
            await history.add(at_s, {"x": float(at_s)})
        fine = (await history.read(["x", "none"], 107_000, 107_199))["x"]
        assert len(fine) == 20
        day = (await history.read(["x"], 107_199 - 80_000, 107_199))["x"]
        assert 110 <= len(day) <= 130
        await history.keep("note/a", "1")
        await history.keep("note/b%", "2")
        assert await history.notes("note/") == {"note/a": "1", "note/b%": "2"}
        await history.drop("note/a")
        assert await history.note("note/a") is None
        await history.close()

    asyncio.run(run())
