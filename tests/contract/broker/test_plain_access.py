"""ACL 1.0 over loopback: accounts in files, every kind of request, changes by file and by request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketq.errors import ConfigError
from rocketq.protocol.acl import Credentials, sign
from rocketq.protocol.bodies.assignment import LockRequest
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from tests.contract.broker.kit import (
    Peer,
    beat,
    connected,
    letters,
    over_loopback,
    pull_fields,
    running_broker,
    send_fields,
    vip_addr,
)
from tests.contract.broker.test_guards import stored

ADMIN = Credentials("rocketmq2", "12345678")
SENDER, READER = Credentials("sender1", "secret-sender"), Credentials("reader1", "secret-reader")
YAML = """
globalWhiteRemoteAddresses: []
accounts:
- accessKey: rocketmq2
  secretKey: 12345678
  admin: true
- accessKey: sender1
  secretKey: secret-sender
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [T=PUB, D=DENY]
- accessKey: reader1
  secretKey: secret-reader
  topicPerms:
  - T=SUB
  groupPerms:
  - g=SUB
"""
TOPIC = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
         "order": "false", "defaultTopic": "TBW102"}  # fmt: skip
FORMS = pytest.mark.parametrize("form", HeaderForm)


def write_files(home: Path, plain: str = YAML, **others: str) -> dict[str, str]:
    """The settings of a broker with these files."""
    for name, text in {"plain_acl.yml": plain, **others}.items():
        path = home / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
    return {"aclEnable": "true", "rocketmqHome": str(home)}


def signed(requests: list[Command], who: Credentials, form: HeaderForm = HeaderForm.JSON) -> list[Command]:
    return [sign(replace(each, form=form), who) for each in requests]


async def ask(peer: Peer, who: Credentials | None, code: int, fields: Mapping[str, Any] | None = None,
              body: bytes = b"", form: HeaderForm = HeaderForm.JSON) -> Command:  # fmt: skip
    request = replace(peer.request(code, dict(fields or {}), body), form=form)
    (answer,) = await peer.ask_together(request if who is None else sign(request, who))
    return answer


async def prepare(peer: Peer) -> None:
    for topic in ("T", "D", "U"):
        assert (await ask(peer, ADMIN, 17, TOPIC | {"topic": topic})).code == 0
    assert (await ask(peer, ADMIN, 310, letters(send_fields("U")), b"not for others")).code == 0
    assert (await ask(peer, ADMIN, 310, letters(send_fields("T")), b"body")).code == 0


def text_of(answer: Command) -> str:
    """What stands between the name of the exception and the place it comes from."""
    assert answer.code == 1
    assert answer.form is HeaderForm.JSON
    name, _, rest = (answer.remark or "").partition(": ")
    assert name == "org.apache.rocketmq.acl.common.AclException"
    text, _, thrown_at = rest.rpartition(", ")
    assert thrown_at.startswith("org.apache.rocketmq.acl.plain.PlainPermissionManager")
    return text


@FORMS
@pytest.mark.parametrize("port", ["main", "vip"])
@over_loopback
async def test_who_is_nobody_may_do_nothing(tmp_path: Path, form: HeaderForm, port: str) -> None:
    """Goal: missing, unknown, empty and wrong credentials, known and unknown codes, both ports, both header forms."""
    settings = write_files(tmp_path / "home")
    async with running_broker(tmp_path / "store", **settings) as broker:
        addr = broker.addr if port == "main" else vip_addr(broker)
        async with connected(addr) as (peer,):
            for code in (310, 11, 34, 26, 9999, 105):
                assert text_of(await ask(peer, None, code, form=form)) == "No accessKey is configured"
                other = Credentials("nobody1", "secret-nobody")
                assert text_of(await ask(peer, other, code, form=form)) == "No acl config for nobody1"
                wrong = replace(SENDER, secret_key="secret-reader")
                assert (
                    text_of(await ask(peer, wrong, code, form=form)) == "Check signature failed for accessKey=sender1"
                )
            assert (await ask(peer, SENDER, 9999, form=form)).code == 3
            assert stored(broker) == 0


@FORMS
@over_loopback
async def test_accounts_do_what_they_may_and_nothing_else(tmp_path: Path, form: HeaderForm) -> None:
    """Goal: every row of the table that Apache leaves open is closed, whatever the request names besides."""
    async with (
        running_broker(tmp_path / "store", **write_files(tmp_path / "home")) as broker,
        connected(broker.addr) as (peer,),
    ):
        await prepare(peer)
        before = stored(broker)
        secret_at = await offset_of(peer, "U")
        own_at = await offset_of(peer, "T")
        locks = {group: lock_body(group, "T") for group in ("g", "other")}
        batch = letters(send_fields("U"))
        table: list[tuple[Credentials, int, dict[str, Any], bytes, str | None]] = [
            (SENDER, 310, letters(send_fields("T")), b"b", None),
            (SENDER, 10, send_fields("T"), b"b", None),
            (SENDER, 310, letters(send_fields("D")), b"b", "No default permission for topic:D"),
            (SENDER, 10, send_fields("U"), b"b", "No default permission for topic:U"),
            (SENDER, 320, batch, b"\0" * 40, "No default permission for topic:U"),
            (READER, 320, letters(send_fields("T")), b"\0" * 40, "No default permission for topic:T"),
            (SENDER, 310, letters(send_fields("%RETRY%g")), b"b", "No default permission for group:g"),
            (SENDER, 10, send_fields("%RETRY%g"), b"b", "No default permission for group:g"),
            (SENDER, 11, pull_fields("T"), b"", "No default permission for group:g"),
            (SENDER, 361, pull_fields("T"), b"", "No default permission for group:g"),
            (READER, 11, pull_fields("T"), b"", None),
            (READER, 361, pull_fields("U"), b"", "No default permission for topic:U"),
            (READER, 34, {}, beat("c", "g", topic="T"), None),
            (READER, 34, {}, beat("c", "other", topic="T"), "No default permission for group:other"),
            (READER, 34, {}, beat("c", "g", topic="U"), "No default permission for topic:U"),
            (READER, 33, {"offset": own_at}, b"", None),
            (READER, 33, {"offset": secret_at, "topic": "T"}, b"", "No default permission for topic:U"),
            (READER, 36, {"offset": secret_at, "group": "g", "delayLevel": 0, "originTopic": "T"}, b"",
             "No default permission for topic:U"),
            (SENDER, 36, {"offset": own_at, "group": "g", "delayLevel": 0}, b"",
             "No default permission for group:g"),
            (READER, 14, {"consumerGroup": "g", "topic": "T", "queueId": 0}, b"", None),
            (READER, 14, {"consumerGroup": "other", "topic": "T", "queueId": 0}, b"",
             "No default permission for group:other"),
            (READER, 15, {"consumerGroup": "other", "topic": "T", "queueId": 0, "commitOffset": 1}, b"",
             "No default permission for group:other"),
            (READER, 30, {"topic": "T", "queueId": 0}, b"", None),
            (READER, 30, {"topic": "U", "queueId": 0}, b"", "No default permission for topic:U"),
            (READER, 41, {}, locks["g"], None),
            (READER, 41, {}, locks["other"], "No default permission for group:other"),
            (READER, 42, {}, locks["other"], "No default permission for group:other"),
            (SENDER, 12, {"topic": "T", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}, b"",
             "No default permission for topic:T"),
            *((READER, code, fields, b"", need_admin(code)) for code, fields in ADMIN_ONLY.items()),
        ]  # fmt: skip
        for who, code, fields, body, reason in table:
            answer = await ask(peer, who, code, fields, body, form)
            if reason is None:
                assert answer.code in (0, 22), (code, fields, answer)
            else:
                assert text_of(answer) == reason, (code, fields)
        assert stored(broker) - before == 2
        assert broker.parts.admission.consumers.get("other") is None


def need_admin(code: int) -> str:
    return f"Need admin permission for request code={code}, but accessKey=reader1 is not"


ADMIN_ONLY: dict[int, dict[str, Any]] = {
    17: TOPIC | {"topic": "New"},
    **{code: {} for code in (21, 25, 26, 28, 43, 45, 54, 52, 201, 306, 316, 329)},
    50: {"accessKey": "another1", "secretKey": "secret-another", "admin": "true"},
    51: {"accessKey": "sender1"},
    53: {"globalWhiteAddrs": "*"},
    207: {"groupName": "g"},
    215: {"topic": "T"},
    222: {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"},
}


def lock_body(group: str, topic: str) -> bytes:
    queue = MessageQueue(topic=topic, broker_name="b", queue_id=0)
    return LockRequest(group=group, client_id="c", queues=(queue,)).encode()


async def offset_of(peer: Peer, topic: str) -> int:
    """Where the first message of a topic begins in the log."""
    answer = await ask(peer, ADMIN, 321, {"topic": topic, "queueId": 0, "index": 0, "count": 1})
    return int(json.loads(answer.body)["queueData"][0]["physicOffset"])


@over_loopback
async def test_the_fast_path_serves_what_is_allowed_and_follows_changes_at_once(tmp_path: Path) -> None:
    """Goal: a pipelined sender is granted, and stops with the first request behind its removal by request 51."""
    async with (
        running_broker(tmp_path / "store", **write_files(tmp_path / "home")) as broker,
        connected(broker.addr) as (peer,),
    ):
        await prepare(peer)
        taken = broker.fast_paths[0].taken
        sends = [peer.request(310, letters(send_fields("T")), b"b") for _ in range(20)]
        answers = await peer.ask_together(*signed(sends, SENDER))
        assert {answer.code for answer in answers} == {0}
        assert broker.fast_paths[0].taken - taken >= 19
        denied = [peer.request(310, letters(send_fields("T")), b"b") for _ in range(3)]
        assert {answer.code for answer in await peer.ask_together(*signed(denied, READER))} == {1}
        assert (await ask(peer, ADMIN, 51, {"accessKey": "sender1"})).code == 0
        after = await ask(peer, SENDER, 310, letters(send_fields("T")), b"b")
        assert text_of(after) == "No acl config for sender1"
        assert "sender1" not in (tmp_path / "home/conf/plain_acl.yml").read_text()


@over_loopback
async def test_accounts_by_request(tmp_path: Path) -> None:
    """Goal: 50 to 54 answer as Apache's brokers, keep what is not sent, rewrite the file and never show a secret."""
    home = tmp_path / "home"
    async with running_broker(tmp_path / "store", **write_files(home)) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        new = Credentials("another1", "secret-another")
        fields = {"accessKey": new.access_key, "secretKey": new.secret_key, "topicPerms": "T=PUB,U=SUB",
                  "defaultGroupPerm": "SUB"}  # fmt: skip
        assert (await ask(peer, ADMIN, 50, fields)).code == 0
        assert (await ask(peer, new, 310, letters(send_fields("T")), b"b")).code == 0
        rotated = replace(new, secret_key="secret-rotated")
        assert (await ask(peer, ADMIN, 50, {"accessKey": "another1", "secretKey": "secret-rotated"})).code == 0
        assert (await ask(peer, rotated, 310, letters(send_fields("T")), b"b")).code == 0
        assert text_of(await ask(peer, new, 310, letters(send_fields("T")), b"b")).startswith("Check signature failed")
        for bad, remark in (
            ({"secretKey": "short"}, "cannot be null and length should longer than 6"),
            ({"secretKey": "long-enough", "topicPerms": "T"}, "Parse Resource format error for T.\n"),
            ({"secretKey": "long-enough", "topicPerms": "T=pub"}, "Parse resource permission error for T=pub.\n"),
            (
                {"secretKey": "long-enough", "whiteRemoteAddress": "10.0"},
                "Netaddress examine Exception netaddress is 10.0",
            ),
        ):
            answer = await ask(peer, ADMIN, 50, {"accessKey": "another1", **bad})
            assert (answer.code, remark in (answer.remark or "")) == (209, True), answer
            assert "short" not in (answer.remark or "")
        answer = await ask(peer, ADMIN, 51, {"accessKey": "unknown1"})
        assert (answer.code, answer.remark) == (
            210, "The accesskey[unknown1] corresponding to accessConfig has been deleted failed.")  # fmt: skip
        versions = await ask(peer, ADMIN, 52)
        assert json.loads(versions.ext_fields["version"])["counter"] == 2
        assert list(json.loads(versions.ext_fields["allAclFileVersion"])) == [str(home / "conf/plain_acl.yml")]
        shown = await ask(peer, ADMIN, 54)
        accounts = {each["accessKey"]: each for each in json.loads(shown.body)["plainAccessConfigs"]}
        assert accounts["another1"]["topicPerms"] == ["T=PUB", "U=SUB"]
        assert not any(secret in shown.body for secret in (b"secret-rotated", b"12345678", b"secret-sender"))
        assert (await ask(peer, ADMIN, 53, {"globalWhiteAddrs": "10.0.0.1,127.0.0.*"})).code == 0
        assert (await ask(peer, None, 310, letters(send_fields("U")), b"b")).code == 0
        assert (await ask(peer, None, 53, {"globalWhiteAddrs": "10.0.0.300"})).code == 211
    text = (home / "conf/plain_acl.yml").read_text()
    assert "counter: 3" in text
    async with (
        running_broker(tmp_path / "store", **write_files(home, text)) as broker,
        connected(broker.addr) as (peer,),
    ):
        assert (await ask(peer, rotated, 310, letters(send_fields("T")), b"b")).code == 0


@over_loopback
async def test_files_are_followed_all_or_nothing(tmp_path: Path) -> None:
    """Goal: new files and accounts count, a broken one changes nothing, files in conf/acl come first."""
    home = tmp_path / "home"
    async with running_broker(tmp_path / "store", **write_files(home)) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        service = broker.parts.access.service
        extra = "accounts:\n- {accessKey: sender1, secretKey: secret-sender, defaultTopicPerm: PUB}\n"
        write_files(home, **{"acl/sub/team.yaml": extra, "acl/tools.yml": "accessKey: x"})
        await service.reload()
        assert (await ask(peer, SENDER, 310, letters(send_fields("U")), b"b")).code == 0
        write_files(home, **{"acl/sub/team.yaml": "globalWhiteRemoteAddresses: ['*']\naccounts:\n- accessKey: [\n"})
        await service.reload()
        assert (await ask(peer, SENDER, 310, letters(send_fields("U")), b"b")).code == 0
        assert (await ask(peer, None, 310, letters(send_fields("U")), b"b")).code == 1
        (home / "conf/acl/sub/team.yaml").unlink()
        await service.reload()
        assert text_of(await ask(peer, SENDER, 310, letters(send_fields("U")), b"b")).endswith("topic:U")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("accounts:\n- accessKey: abcdefg\n  secretKey: short\n", "plain_acl.yml:2: The accessKey=abcdefg"),
        ("accounts:\n- accessKey: abcdefg\n  secretKey: [", "plain_acl.yml:"),
        ("accounts: {}\n", "plain_acl.yml:1: a list was expected here"),
        ("accounts:\n- {accessKey: abcdefg, secretKey: abcdefgh}\n- {accessKey: abcdefg, secretKey: abcdefgh}\n",
         "plain_acl.yml:3: accessKey abcdefg has two accounts"),
        ("globalWhiteRemoteAddresses:\n- 10.0.0.1\n- 10.0\n", "plain_acl.yml:3: Netaddress examine Exception"),
    ],
)  # fmt: skip
@over_loopback
async def test_a_broker_does_not_start_open_when_its_accounts_cannot_be_read(
    tmp_path: Path, text: str, where: str
) -> None:
    settings = write_files(tmp_path / "home", text)
    with pytest.raises(ConfigError) as error:
        async with running_broker(tmp_path / "store", **settings):
            pass
    assert where in str(error.value)


@over_loopback
async def test_without_accounts_everybody_is_denied(tmp_path: Path) -> None:
    """Goal: aclEnable=true never leaves a broker open: an empty home denies, no home at all is an error."""
    (tmp_path / "home").mkdir()
    settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path / "home")}
    async with running_broker(tmp_path / "store", **settings) as broker, connected(broker.addr) as (peer,):
        assert text_of(await ask(peer, None, 26)) == "No accessKey is configured"
        assert text_of(await ask(peer, ADMIN, 26)) == "No acl config for rocketmq2"
    for wrong in ({"rocketmqHome": ""}, {"aclFile": str(tmp_path / "missing.yml")}):
        with pytest.raises(ConfigError):
            async with running_broker(tmp_path / "other", **settings | wrong):
                pass


def test_codes_of_this_file_are_those_of_the_protocol() -> None:
    assert {RequestCode(code) for code in ADMIN_ONLY}
