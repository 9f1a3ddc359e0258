"""Request and reply over messages: properties of a request, the reply's topic, futures of pending requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from rocketq.client.core.stored_messages import StoredMessage, inflated
from rocketq.client.errors import ClientClosedError, NotARequestError
from rocketq.model import Host
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.headers.send import PushReplyRequest
from rocketq.protocol.names import Property
from rocketq.protocol.properties import decode_properties

NOWHERE: Final = Host(bytes(4), 0)
REPLY_TYPE: Final = "reply"
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
_COPIED: Final = (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.TTL)


def request_properties(correlation_id: str, client_id: str, timeout_ms: int) -> dict[str, str]:
    """What makes a message one that is replied to."""
    return {
        Property.CORRELATION_ID: correlation_id,
        Property.REPLY_TO_CLIENT: client_id,
        Property.TTL: str(timeout_ms),
    }


def reply_topic(to: StoredMessage) -> str:
    """Where the reply goes; NotARequestError when the message asks for none."""
    cluster = to.properties.get(Property.CLUSTER)
    if not cluster:
        raise NotARequestError(to.message_id, Property.CLUSTER)
    return cluster + REPLY_TOPIC_SUFFIX


def reply_properties(to: Mapping[str, str], message_id: str) -> dict[str, str]:
    for name in (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT):
        if not to.get(name):
            raise NotARequestError(message_id, name)
    return {name: to[name] for name in _COPIED if to.get(name)} | {Property.MESSAGE_TYPE: REPLY_TYPE}


def pushed_reply(header: PushReplyRequest, body: bytes) -> StoredMessage:
    """The reply as a broker pushes it: it has no place in a log that we know."""
    inflated_body, fault = inflated(body, header.sys_flag)
    return StoredMessage(
        queue=MessageQueue(topic=header.topic, broker_name="", queue_id=header.queue_id),
        queue_offset=-1,
        log_offset=-1,
        offset_message_id="",
        body=inflated_body,
        body_fault=fault,
        properties=decode_properties(header.properties.encode()),
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_ms=header.born_ms,
        born_host=_host(header.born_host),
        store_ms=header.store_ms,
        store_host=_host(header.store_host),
        stored_bytes=0,
        reconsume_times=header.reconsume_times,
    )


def _host(text: str) -> Host:
    """Java's socket text, `/10.0.0.9:50123`; what is none is no host."""
    host, _, port = text.rpartition("/")[2].rpartition(":")
    try:
        return Host.of(host.strip("[]"), int(port))
    except ValueError:
        return NOWHERE


class ReplyWaiters:
    """By correlation id."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[StoredMessage]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str) -> asyncio.Future[StoredMessage]:
        reply = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        return reply

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def take(self, correlation_id: str, reply: StoredMessage) -> bool:
        """False for a reply that no request waits for."""
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(reply)
        return True

    def close(self, what: str) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ClientClosedError(what))
        self._waiting.clear()
