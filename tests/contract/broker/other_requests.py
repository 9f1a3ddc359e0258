"""Requests that are no plain sends and pulls, and change what these may do: the slow path's, between those of the fast
path."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from rocketq.protocol.bodies.clients import ConsumerData, Heartbeat, Subscription
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.config_text import format_config
from tests.contract.broker.fast_requests import CLIENT, GROUP, OTHER, QUEUES, TOPIC
from tests.contract.broker.kit import letters, props, send_fields

GROUPS = (GROUP, "g", "GoldenPull")
SETTINGS: tuple[dict[str, str], ...] = (
    {"quotas": f"topic/{TOPIC}: 3000 msg/s, 2 MiB/s; group/g: 5000 msg/s"},
    {"quotas": "group/*: 4 KiB/s"},
    {"quotas": ""},
    {"quotas": "nonsense"},
    {"brokerPermission": "4"},
    {"brokerPermission": "2"},
    {"brokerPermission": "6"},
    {"brokerPermission": "6", "quotas": ""},
    {"regionId": "elsewhere"},
    {"traceOn": "false"},
    {"traceOn": "true"},
    {"maxMessageSize": "1000"},
    {"maxMessageSize": "4096"},
    {"autoCreateTopicEnable": "false"},
    {"autoCreateTopicEnable": "true"},
    {"slaveReadEnable": "true"},
    {"rejectTransactionMessage": "true"},
)
Request = tuple[int, dict[str, Any], bytes]


def other_request(chance: random.Random) -> Request:
    """A code, its fields and a body."""
    return OtherRequests(chance).one()


class OtherRequests:
    """Made by chance, the same by the same numbers."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._kinds: list[Callable[[], Request]] = [
            self._delayed, self._half, self._send_back, self._heartbeat, self._commit, self._query, self._topic,
            self._group, self._forbid, self._setting, self._delete_topic, self._delete_group, self._max_offset,
        ]  # fmt: skip

    def one(self) -> Request:
        return self._random.choice(self._kinds)()

    def _topic_name(self) -> str:
        return self._random.choice((TOPIC, TOPIC, OTHER))

    def _group_name(self) -> str:
        return self._random.choice(GROUPS)

    def _queue(self) -> int:
        return self._random.randrange(QUEUES)

    def _send(self, **properties: str) -> Request:
        fields = send_fields(self._topic_name(), self._queue(), properties=props(**properties))
        return RequestCode.SEND_MESSAGE_V2, letters(fields), self._random.randbytes(20)

    def _delayed(self) -> Request:
        return self._send(DELAY=self._random.choice(("1", "5", "99")), TAGS="TagA")

    def _half(self) -> Request:
        return self._send(TRAN_MSG="true", PGROUP="p", UNIQ_KEY="7F0000010B3A18B4AAC2123456789999")

    def _send_back(self) -> Request:
        chance = self._random
        fields = {"offset": chance.choice((0, 0, 7)), "group": self._group_name(), "originTopic": TOPIC,
                  "delayLevel": chance.choice((-1, 0, 3)), "unitMode": "false", "maxReconsumeTimes": 16}  # fmt: skip
        return RequestCode.CONSUMER_SEND_MSG_BACK, fields, b""

    def _heartbeat(self) -> Request:
        chance = self._random
        subscriptions = tuple(
            Subscription(topic=topic, expression=tag, tags=(tag,), version=chance.randrange(4, 9))
            for topic, tag in ((TOPIC, chance.choice(("TagA", "TagB"))), (OTHER, "TagA"))
        )
        group = ConsumerData(group=self._group_name(), subscriptions=subscriptions)
        return RequestCode.HEART_BEAT, {}, Heartbeat(client_id=CLIENT, consumers=(group,)).encode()

    def _position(self) -> dict[str, Any]:
        return {"consumerGroup": self._group_name(), "topic": TOPIC, "queueId": self._queue()}

    def _commit(self) -> Request:
        return RequestCode.UPDATE_CONSUMER_OFFSET, {**self._position(), "commitOffset": self._random.randrange(9)}, b""

    def _query(self) -> Request:
        return RequestCode.QUERY_CONSUMER_OFFSET, self._position(), b""

    def _max_offset(self) -> Request:
        return RequestCode.GET_MAX_OFFSET, {"topic": self._topic_name(), "queueId": self._queue()}, b""

    def _topic(self) -> Request:
        chance = self._random
        fields = {"topic": self._topic_name(), "defaultTopic": "TBW102", "readQueueNums": chance.choice((1, 3, 3, 4)),
                  "writeQueueNums": chance.choice((1, 3, 3, 4)), "perm": chance.choice((6, 6, 6, 4, 2)),
                  "order": "false", "topicFilterType": chance.choice(("SINGLE_TAG", "MULTI_TAG")),
                  "topicSysFlag": 0}  # fmt: skip
        return RequestCode.UPDATE_AND_CREATE_TOPIC, fields, b""

    def _delete_topic(self) -> Request:
        return RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": OTHER}, b""

    def _group(self) -> Request:
        config = {"groupName": self._group_name(), "consumeEnable": self._random.random() < 0.8, "brokerId": 0}
        return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(config).encode()

    def _delete_group(self) -> Request:
        fields = {"groupName": self._group_name(), "cleanOffset": self._random.choice(("true", "false"))}
        return RequestCode.DELETE_SUBSCRIPTIONGROUP, fields, b""

    def _forbid(self) -> Request:
        readable = self._random.choice(("true", "true", "false"))
        fields = {"group": self._group_name(), "topic": TOPIC, "readable": readable}
        return RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, fields, b""

    def _setting(self) -> Request:
        return RequestCode.UPDATE_BROKER_CONFIG, {}, format_config(self._random.choice(SETTINGS)).encode()
