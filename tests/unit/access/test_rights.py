"""The table of rights: every request code has a row, and what requests need is what their handlers touch."""

from __future__ import annotations

from typing import Any

import pytest

from rocketq.access.rights import (
    CALLS,
    RIGHTS,
    Action,
    Field,
    Resource,
    ResourceKind,
    StoredMessage,
    call_needs,
    needs_of,
)
from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies.assignment import LockRequest
from rocketq.protocol.bodies.clients import ConsumerData, Heartbeat, ProducerData, Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.requests import HEADERS


class Stored:
    """Log offset 100 has a message of topic `secret`; nothing else is stored."""

    def at(self, log_offset: int) -> str | None:
        return "secret" if log_offset == 100 else None

    def of(self, message_id: str) -> str | None:
        return "secret" if message_id == "ID" else None


def needed(code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> list[str] | None:
    texts = {name: str(value) for name, value in (fields or {}).items()}
    found = needs_of(Command(code=code, ext_fields=texts, body=body), "C", Stored())
    return None if found is None else [f"{need.resource} {'/'.join(sorted(need.actions))}" for need in found]


def test_every_request_code_has_a_row() -> None:
    """Goal: a new code is not served before somebody decided who may send it."""
    assert set(RequestCode) == set(RIGHTS)


def test_rows_name_fields_that_exist() -> None:
    for code, row in RIGHTS.items():
        for part in row.parts:
            if isinstance(part, (Field, StoredMessage)):
                assert part.attribute in HEADERS[RequestCode(code)].__dataclass_fields__, (code, part)
            assert part.describe()


def test_a_code_without_a_row_is_for_super_users() -> None:
    assert needed(9999) is None


SEND = {"a": "g", "b": "T", "e": 0, "f": 0, "g": 0, "h": 0}


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (310, SEND, ["Topic:T Pub"]),
        (320, SEND, ["Topic:T Pub"]),
        (310, SEND | {"b": "%RETRY%other", "a": "mine"}, ["Group:other Sub"]),
        (310, SEND | {"b": "%DLQ%g"}, ["Topic:%DLQ%g Pub"]),
        (325, SEND | {"b": "C_REPLY_TOPIC"}, ["Topic:C_REPLY_TOPIC Pub"]),
        (33, {"offset": 100, "topic": "mine"}, ["Topic:secret Get/Sub"]),
        (33, {"offset": 7, "topic": "mine"}, []),
        (36, {"offset": 100, "group": "g", "delayLevel": 0}, ["Group:g Sub", "Topic:secret Sub"]),
        (37, {"producerGroup": "p", "tranStateTableOffset": 1, "commitLogOffset": 100, "commitOrRollback": 8,
              "topic": "mine"}, ["Topic:secret Pub"]),
        (309, {"consumerGroup": "g", "msgId": "ID"}, ["Group:g Sub", "Topic:secret Sub"]),
        (14, {"consumerGroup": "g", "topic": "T", "queueId": 0}, ["Group:g Get/Sub", "Topic:T Get/Sub"]),
        (15, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1},
         ["Group:g Sub/Update", "Topic:T Sub/Update"]),
        (35, {"clientID": "c", "producerGroup": "p"}, []),
        (35, {"clientID": "c", "consumerGroup": "g"}, ["Group:g Sub"]),
        (25, {}, ["Cluster:C Update"]),
        (26, {}, ["Cluster:C Get"]),
        (54, {}, ["Cluster:C Get"]),
        (50, {"accessKey": "x"}, ["Cluster:C Update"]),
        (207, {"groupName": "g"}, ["Group:g Delete"]),
        (215, {"topic": "T"}, ["Topic:T Delete"]),
        (105, {"topic": "T"}, []),
        (103, {"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "brokerId": 0}, ["Cluster:C Update"]),
        (1001, {}, None),
    ],
)  # fmt: skip
def test_what_requests_need(code: int, fields: dict[str, Any], expected: list[str] | None) -> None:
    """Goal: resources come from what the handler reads, and from the stored message where only a place is named."""
    assert needed(code, fields) == expected


@pytest.mark.parametrize("code", [11, 361])
def test_pulls_need_group_and_topic_and_a_retry_topic_its_own_group(code: int) -> None:
    fields = {"consumerGroup": "g", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 0}
    assert needed(code, fields | {"topic": "T"}) == ["Group:g Sub", "Topic:T Sub"]
    assert needed(code, fields | {"topic": "%RETRY%g"}) == ["Group:g Sub"]
    assert needed(code, fields | {"topic": "%RETRY%other"}) == ["Group:g Sub", "Group:other Sub"]


def test_a_heartbeat_needs_every_group_and_topic_of_its_consumers() -> None:
    beat = Heartbeat(
        client_id="c",
        producers=(ProducerData(group="p"),),
        consumers=(
            ConsumerData(group="g", subscriptions=tuple(Subscription(topic=topic) for topic in ("T", "%RETRY%g"))),
            ConsumerData(group="h", subscriptions=(Subscription(topic="%RETRY%g"),)),
        ),
    )
    assert needed(34, body=beat.encode()) == ["Group:g Sub", "Topic:T Sub", "Group:h Sub"]


def test_locks_need_the_group_and_each_topic_once() -> None:
    queues = tuple(MessageQueue(topic=topic, broker_name="b", queue_id=number) for topic in "TU" for number in (0, 1))
    body = LockRequest(group="g", client_id="c", queues=queues).encode()
    for code in (41, 42):
        assert needed(code, body=body) == ["Group:g Sub", "Topic:T Sub", "Topic:U Sub"]


def test_requests_that_cannot_be_read_are_the_handlers() -> None:
    for code, fields, body in ((310, {"a": "g"}, b""), (34, {}, b"no json"), (15, {"topic": "T"}, b"")):
        with pytest.raises(RemoteProtocolError):
            needed(code, fields, body)


@pytest.mark.parametrize("code", [25, 51, 104, 204, 315, 3001])
def test_rights_on_the_cluster_are_needed_whatever_the_header_lacks(code: int) -> None:
    found = needed(code)
    assert found is not None
    assert len(found) == 1
    assert found[0].startswith("Cluster:C ")


def test_grpc_calls_need_the_topics_and_groups_they_name() -> None:
    needs = call_needs("ReceiveMessageRequest", topics=["T"], groups=["g"])
    assert needs is not None
    assert [need.resource for need in needs] == [Resource(ResourceKind.GROUP, "g"), Resource(ResourceKind.TOPIC, "T")]
    assert call_needs("NothingRequest") is None
    assert all(actions <= set(Action) for row in CALLS.values() for _, actions in row)
