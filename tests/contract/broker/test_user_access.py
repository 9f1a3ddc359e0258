"""ACL 2.0 over loopback: users, policies, requests 3001 to 3010, and what slaves get of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketq.errors import ConfigError
from rocketq.protocol.acl import Credentials, sign
from rocketq.protocol.command import Command, HeaderForm
from rocketq.remoting.signing import sign_now
from tests.contract.broker.kit import (
    Peer,
    beat,
    connected,
    letters,
    over_loopback,
    pull_fields,
    running_broker,
    send_fields,
)
from tests.contract.broker.test_guards import stored
from tests.contract.broker.test_plain_access import TOPIC, ask, lock_body

ROOT, APP, INNER = Credentials("root", "root secret"), Credentials("app", "密码 :/*"), Credentials("inner", "inner-pw")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationMetadataProvider":
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inner-pw"}),
}  # fmt: skip
FORMS = pytest.mark.parametrize("form", HeaderForm)
DONE = "not set any response code"


async def user(peer: Peer, code: int, name: str | None, who: Credentials = ROOT, **members: str) -> Command:
    return await ask(peer, who, code, {} if name is None else {"username": name}, json.dumps(members).encode())


async def allow(peer: Peer, *entries: dict[str, Any], code: int = 3006, who: Credentials = ROOT,
                subject: str = "User:app", policy_type: str = "Custom") -> Command:  # fmt: skip
    body = {"subject": subject, "policies": [{"policyType": policy_type, "entries": list(entries)}]}
    return await ask(peer, who, code, {"subject": subject}, json.dumps(body).encode())


def entry(resource: str, *actions: str, decision: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision, **more}


async def prepare(peer: Peer) -> None:
    assert (await user(peer, 3001, "app", password=APP.secret_key)).code == 0
    for topic in ("T", "U"):
        assert (await ask(peer, ROOT, 17, TOPIC | {"topic": topic})).code == 0
    assert (await ask(peer, ROOT, 310, letters(send_fields("U")), b"not for others")).code == 0


def denied(resource: str, reason: str = "no matched policies", user: str = "app") -> str:
    return f"User:{user} has no permission to access {resource} from 127.0.0.1, {reason}."


@FORMS
@over_loopback
async def test_who_is_nobody_is_told_why(tmp_path: Path, form: HeaderForm) -> None:
    async with running_broker(tmp_path, **SETTINGS) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        assert (await user(peer, 3002, "app", userStatus="disable")).code == 0
        for who, remark in (
            (None, "username cannot be null."),
            (Credentials("", "x"), "username cannot be null."),
            (Credentials("nobody", "x"), "User:nobody is not found."),
            (APP, "User:app is disabled."),
            (replace(ROOT, secret_key="wrong"), "check signature failed."),
        ):
            for code in (310, 11, 26, 9999):
                answer = await ask(peer, who, code, form=form)
                assert (answer.code, answer.remark, answer.form) == (16, remark, HeaderForm.JSON), (who, code)
        assert (await ask(peer, ROOT, 9999, form=form)).code == 3
        assert stored(broker) == 0


@FORMS
@over_loopback
async def test_policies_decide_at_once_on_open_connections(tmp_path: Path, form: HeaderForm) -> None:
    """Goal: grants of the fast path end with the policy, the user and the password they were made under."""
    async with running_broker(tmp_path, **SETTINGS) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)

        async def send(topic: str = "T", who: Credentials = APP) -> Command:
            return await ask(peer, who, 310, letters(send_fields(topic)), b"b", form)

        assert (await send()).remark == denied("Topic:T")
        assert (await allow(peer, entry("Topic:T", "Pub"))).remark == DONE
        assert [(await send()).code for _ in range(5)] == [0] * 5
        assert broker.fast_paths[0].taken > 0
        assert (await allow(peer, entry("Topic:T", "All", decision="Deny"))).code == 0
        assert (await send()).remark == denied("Topic:T", "the decision is deny")
        assert (await allow(peer, entry("Topic:T", "Pub"))).code == 0
        assert (await send()).code == 0
        rotated = replace(APP, secret_key="rotated")
        both = await ask(peer, ROOT, 3002, {"username": "app"}, b'{"password":"rotated","keepSecret":true}')
        assert both.code == 0
        assert [(await send(who=who)).code for who in (APP, rotated, APP)] == [0, 0, 0]
        assert (await ask(peer, ROOT, 3002, {"username": "app"}, b'{"keepSecret":false}')).code == 0
        assert (await send()).remark == "check signature failed."
        assert (await send(who=rotated)).code == 0
        assert (await user(peer, 3003, "app")).code == 0
        assert (await send(who=rotated)).remark == "User:app is not found."
        assert (await user(peer, 3001, "app", password="rotated")).code == 0
        assert (await send(who=rotated)).remark == denied("Topic:T"), "policies go with their user"


@over_loopback
async def test_side_doors_are_closed(tmp_path: Path) -> None:
    """Goal: every row that Apache's brokers leave open to any user needs a right."""
    async with running_broker(tmp_path, **SETTINGS) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        await allow(peer, entry("Topic:T", "All"), entry("Group:g", "All"))
        assert (await ask(peer, APP, 310, letters(send_fields("T")), b"b")).code == 0
        assert (await ask(peer, APP, 34, body=beat("c", "g", topic="T"))).code == 0
        on_cluster = denied("Cluster:DefaultCluster")
        for code, fields, body, remark in (
            *((code, {}, b"", on_cluster) for code in (21, 25, 26, 28, 43, 45, 54, 201, 306, 316, 329, 402, 907)),
            *((code, {}, b"", on_cluster) for code in (50, 51, 204, 315)),  # decided before what their headers lack
            (361, pull_fields("U"), b"", denied("Topic:U")),
            (33, {"offset": 0, "topic": "T"}, b"", denied("Topic:U")),
            (36, {"offset": 0, "group": "g", "delayLevel": 0, "originTopic": "T"}, b"", denied("Topic:U")),
            (200, {}, b'{"groupName":"new"}', denied("Group:new")),
            (400, {}, b'{"topic":"U","consumerGroup":"g","clientId":"c"}', denied("Topic:U")),
            (41, {}, lock_body("other", "T"), denied("Group:other")),
            (310, letters(send_fields("%RETRY%other")), b"b", denied("Group:other")),
            (320, letters(send_fields("U")), b"\0" * 40, denied("Topic:U")),
            (3004, {"username": "root"}, b"", on_cluster),
            (3001, {"username": "me"}, b'{"password":"x","userType":"Super"}', on_cluster),
        ):
            answer = await ask(peer, APP, code, fields, body)
            assert (answer.code, answer.remark) == (16, remark), code
        assert (await ask(peer, APP, 36, {"offset": 10_000_000, "group": "g", "delayLevel": 0})).code == 1


@over_loopback
async def test_requests_about_users_and_policies(tmp_path: Path) -> None:
    """Goal: codes, remarks and bodies of 3001 to 3010; secrets are in no answer."""
    async with running_broker(tmp_path, **SETTINGS) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        for answer, code, remark in (
            (await user(peer, 3001, None, password="p"), 29, "The username is blank"),
            (await user(peer, 3001, "app", password="p"), 16, "The user is existed"),
            (await user(peer, 3001, "new"), 16, "password can not be blank"),
            (await user(peer, 3002, "unknown", password="p"), 16, "The user is not exist"),
            (await user(peer, 3003, "unknown"), 0, DONE),
            (await user(peer, 3004, "unknown"), 0, DONE),
            (await user(peer, 3004, None), 29, "The username is blank"),
            (await allow(peer, entry("Topic:T", "Pub"), subject="User:who"), 16,
             "The subject of User:who is not exist."),
            (await allow(peer, entry("", "Pub")), 16, "The resource is null."),
            (await allow(peer, entry("Topic:T", "Nothing")), 16, "The actions is empty."),
            (await allow(peer, entry("Topic:T", "Any")), 16, "The actions can not be Any."),
            (await allow(peer, entry("Topic:T", "Pub", decision="maybe")), 16, "The decision is null or illegal."),
            (await allow(peer, entry("Topic:T", "Pub", sourceIps=["10.0"])), 16, "The source ip is invalid."),
            (await allow(peer, entry("Topic:T", "Pub"), subject="Group:x"), 1,
             "An system error occurred, please try again later."),
            (await ask(peer, ROOT, 3008, {"subject": "User:app"}), 16, "The acl is not exist."),
            (await ask(peer, ROOT, 3008, {"subject": "User:who"}), 16, "The subject is not exist."),
        ):  # fmt: skip
            assert (answer.code, answer.remark) == (code, remark)
        assert "The body of acl is null" in ((await allow(peer)).remark or "")
        assert (await ask(peer, ROOT, 3005, {"filter": "zzz"})).body == b""
        shown = json.loads((await ask(peer, ROOT, 3005)).body)
        assert [each["username"] for each in shown] == ["app", "inner", "root"]
        assert {each["password"] for each in shown} == {"******"}
        one = json.loads((await user(peer, 3004, "app")).body)
        assert (one["userType"], one["userStatus"]) == ("Normal", "enable")
        await allow(peer, entry("topic:T", "pub", "SUB", sourceIps=["10.0.0.0/8"]), entry("Group:*", "all"))
        await allow(peer, entry("Topic:*", "Sub"), policy_type="Default", code=3007)
        found = json.loads((await ask(peer, ROOT, 3009, {"subject": "User:app"})).body)
        assert found == {"subject": "User:app", "policies": [
            {"policyType": "Custom", "entries": [
                {"actions": ["Pub", "Sub"], "decision": "Allow", "resource": "Topic:T", "sourceIps": ["10.0.0.0/8"]},
                {"actions": ["All"], "decision": "Allow", "resource": "Group:*"}]},
            {"policyType": "Default", "entries": [
                {"actions": ["Sub"], "decision": "Allow", "resource": "Topic:*"}]}]}  # fmt: skip
        listed = json.loads((await ask(peer, ROOT, 3010, {"resourceFilter": "Group"})).body)
        assert [each["entries"] for each in listed[0]["policies"]] == [[entry("Group:*", "All")]]
        assert (await ask(peer, ROOT, 3008, {"subject": "User:app", "resource": "Group:*"})).code == 0
        assert (await ask(peer, ROOT, 3008, {"subject": "User:app"})).code == 0
        assert (await ask(peer, ROOT, 3009, {"subject": "User:app"})).body == b""
        for code, body in ((3003, b""), (3002, b'{"userStatus":"disable"}'), (3002, b'{"userType":"Normal"}')):
            assert (await ask(peer, ROOT, 3003, {"username": "inner"})).code == 0
            answer = await ask(peer, ROOT, code, {"username": "root"}, body)
            assert (answer.code, "last super user" in (answer.remark or "")) == (16, True)
        config = (await ask(peer, ROOT, 26)).body
        assert b"initAuthenticationUser=******" in config
        assert b"root secret" not in config
        assert b"inner-pw" not in config
    files = b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size < 1 << 20
    )
    assert not any(secret.encode() in files for secret in (ROOT.secret_key, APP.secret_key, INNER.secret_key))
    assert {(path.stat().st_mode & 0o777) for path in (tmp_path / "config").glob("access.*")} == {0o600}
    audit = (tmp_path / "logs/auth_audit.log").read_text().splitlines()
    changes = [record for record in map(json.loads, audit) if record["event"] == "change"]
    assert changes[0]["changed"] == "app"
    assert changes[0]["user"] == "root"


@over_loopback
async def test_texts_that_utf_8_does_not_have_change_nothing(tmp_path: Path) -> None:
    """Goal: a lone surrogate, which JSON can escape, is rejected; later changes are saved."""
    async with running_broker(tmp_path, **SETTINGS) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        for answer in (
            await user(peer, 3001, "new", password="p\ud800"),
            await user(peer, 3002, "app", password="p\ud800"),
            await allow(peer, entry("Topic:T\ud800", "Pub")),
        ):
            assert (answer.code, "not valid Unicode" in (answer.remark or "")) == (16, True), answer
        assert (await user(peer, 3004, "new")).body == b""
        assert (await user(peer, 3001, "later", password="p")).code == 0
        assert (await allow(peer, entry("Topic:T", "Pub"))).code == 0
        assert (await ask(peer, APP, 310, letters(send_fields("T")), b"b")).code == 0
    async with running_broker(tmp_path, **SETTINGS) as broker, connected(broker.addr) as (peer,):
        assert (await ask(peer, APP, 310, letters(send_fields("T")), b"b")).code == 0
        assert (await user(peer, 3004, "later")).body != b""


@over_loopback
async def test_users_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SETTINGS) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        await allow(peer, entry("Topic:T", "Pub"))
        assert (await user(peer, 3002, "root", password="changed")).code == 0
    root = replace(ROOT, secret_key="changed")
    async with running_broker(tmp_path, **SETTINGS) as broker, connected(broker.addr) as (peer,):
        assert (await ask(peer, APP, 310, letters(send_fields("T")), b"b")).code == 0
        assert (await ask(peer, root, 3004, {"username": "app"})).code == 0, "the setting changes no existing user"
    (tmp_path / "config/access.json").write_bytes(b"{")
    (tmp_path / "config/access.json.bak").write_bytes(b"{")
    with pytest.raises(Exception, match="Nothing was changed"):
        async with running_broker(tmp_path, **SETTINGS):
            pass


@over_loopback
async def test_sealed_users_are_for_brokers_with_the_same_inner_credentials(tmp_path: Path) -> None:
    """Goal: a slave gets users, policies and passwords; nobody else can read them."""
    async with (
        running_broker(tmp_path / "a", **SETTINGS) as master,
        running_broker(tmp_path / "b", **SETTINGS) as slave,
        connected(master.addr, slave.addr) as (peer, other),
    ):
        await prepare(peer)
        await allow(peer, entry("Topic:T", "Pub"))
        await allow(peer, entry("*", "All"), subject="User:app", policy_type="Default")
        assert (await ask(peer, APP, 3005, {"sealed": "true"})).code == 16
        sealed = await ask(peer, INNER, 3005, {"sealed": "true"})
        assert sealed.body.startswith(b"enc:")
        assert APP.secret_key.encode() not in sealed.body
        service = slave.parts.access.service
        assert service is not None
        await service.take_sealed_users(sealed.body.decode())
        assert (await ask(other, APP, 310, letters(send_fields("T")), b"b")).code in (0, 17)
        with pytest.raises(ConfigError, match="was not made with"):
            await service.take_sealed_users(sealed.body.decode()[:-8] + "AAAAAAA=")


@over_loopback
async def test_whitelists_of_codes_and_dry_run(tmp_path: Path) -> None:
    """Goal: code 10 needs no signature and no policy, code 310 does: grants of one are none of the other."""
    lists = {"authenticationWhitelist": "10", "authorizationWhitelist": "10,12"}
    async with running_broker(tmp_path / "a", **SETTINGS, **lists) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        for _ in range(3):
            assert (await ask(peer, None, 10, send_fields("T"), b"b")).code == 0
            assert (await ask(peer, Credentials("root", "wrong"), 10, send_fields("T"), b"b")).code == 0
            assert (await ask(peer, APP, 10, send_fields("T"), b"b")).code == 0
            assert (await ask(peer, APP, 310, letters(send_fields("T")), b"b")).remark == denied("Topic:T")
    unsigned = {"authenticationWhitelist": "310"}
    async with running_broker(tmp_path / "b", **SETTINGS, **unsigned) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        answer = await ask(peer, Credentials("root", "wrong"), 310, letters(send_fields("T")), b"b")
        assert answer.remark == "Authorization failed. Please verify your access rights and try again."
    dry = {"access.dryRun": "true"}
    async with running_broker(tmp_path / "c", **SETTINGS, **dry) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        for who in (None, APP, Credentials("nobody", "x")):
            assert (await ask(peer, who, 310, letters(send_fields("T")), b"b")).code == 0
        service = broker.parts.access.service
        assert service is not None
        assert service.control.counts["dry-run"] == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"authenticationEnabled": "false"},
        {"authorizationProvider": "com.example.Mine"},
        {"initAuthenticationUser": '{"username":"x"}'},
        {"initAuthenticationUser": '{"username":"x","password":"\\ud800"}'},
        {"innerClientAuthenticationCredentials": "inner:secret"},
        {"authorizationWhitelist": "10;11"},
        {"authenticationEnabled": "maybe"},
    ],
)
@over_loopback
async def test_settings_that_cannot_protect_are_errors(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as error:
        async with running_broker(tmp_path, **SETTINGS | wrong):
            pass
    assert "secret" not in str(error.value).replace("secretKey", "")


@over_loopback
async def test_accounts_of_acl_1_become_users(tmp_path: Path) -> None:
    home = tmp_path / "home/conf"
    home.mkdir(parents=True)
    (home / "plain_acl.yml").write_text(
        "accounts:\n- {accessKey: rocketmq2, secretKey: 12345678, admin: true}\n"
        "- {accessKey: sender1, secretKey: secret-sender, defaultTopicPerm: SUB, topicPerms: [T=PUB, D=DENY]}\n"
    )
    settings = {**SETTINGS, "migrateAuthFromV1Enabled": "true", "rocketmqHome": str(tmp_path / "home")}
    for _ in range(2):
        async with running_broker(tmp_path / "store", **settings) as broker, connected(broker.addr) as (peer,):
            admin, sender = Credentials("rocketmq2", "12345678"), Credentials("sender1", "secret-sender")
            assert (await ask(peer, admin, 17, TOPIC | {"topic": "T"})).code == 0
            assert (await ask(peer, sender, 310, letters(send_fields("T")), b"b")).code == 0
            answer = await ask(peer, sender, 310, letters(send_fields("D")), b"b")
            assert answer.remark == denied("Topic:D", "the decision is deny", "sender1")
            assert (await ask(peer, sender, 30, {"topic": "T", "queueId": 0})).code == 0


@over_loopback
async def test_captured_requests_are_worthless_where_signatures_must_be_fresh(tmp_path: Path) -> None:
    """Goal: a request with signed time and nonce is executed once; one without is rejected."""
    settings = SETTINGS | {"requireFreshSignature": "true"}
    async with running_broker(tmp_path, **settings) as broker, connected(broker.addr) as (peer,):
        plain = await ask(peer, ROOT, 17, TOPIC | {"topic": "T"})
        assert (plain.code, "no time and nonce" in (plain.remark or "")) == (16, True)
        request = peer.request(17, TOPIC | {"topic": "T"})
        fresh = sign_now(request, replace(ROOT, fresh=True))
        assert [(await peer.ask_together(fresh))[0].code for _ in range(2)] == [0, 16]
        old = sign(request, ROOT, signed_at_ms=5, nonce="n")
        assert (await peer.ask_together(old))[0].code == 16
        for _ in range(3):
            send = sign_now(peer.request(310, letters(send_fields("T")), b"b"), replace(ROOT, fresh=True))
            assert [(await peer.ask_together(send))[0].code for _ in range(2)] == [0, 16]
        assert stored(broker) == 3
