"""Messages before and after a broker has stored them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.errors import MessageInvalidError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.compression import Compression, compress
from rocketq.protocol.headers.send import SendResponse
from rocketq.protocol.names import DLQ_PREFIX, NOT_FOR_CLIENTS, RETRY_PREFIX, Property, topic_fault
from rocketq.protocol.properties import PROPERTIES_BYTES_MAX, encode_properties

BODY_BYTES_MAX: Final = 4 << 20
COMPRESS_FROM_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to send. `keys` find it again, a consumer subscribes to a topic or to tags of it."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0

    def all_properties(self, unique_key: str) -> dict[str, str]:
        """Ours in front; the user's own keep their order and win, so that a message may bring its own id."""
        ours = {Property.UNIQUE_KEY: unique_key, Property.WAIT: "true"}
        if self.tag:
            ours[Property.TAGS] = self.tag
        if self.keys:
            ours[Property.KEYS] = " ".join(self.keys)
        return ours | dict(self.properties)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message as its request carries it."""

    body: bytes
    sys_flag: int
    properties: str
    unique_key: str


def prepare(message: Message, unique_key: str, *, body_bytes_max: int = BODY_BYTES_MAX) -> Outgoing:
    """Checked, with its properties, and compressed when it is large; MessageInvalidError says what is wrong."""
    if (fault := _fault(message, body_bytes_max)) is not None:
        raise MessageInvalidError(fault)
    properties = message.all_properties(unique_key)
    encoded = encode_properties(properties)
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise MessageInvalidError(f"the properties have {len(encoded)} bytes, over {PROPERTIES_BYTES_MAX}")
    large = len(message.body) >= COMPRESS_FROM_BYTES
    return Outgoing(
        body=compress(message.body) if large else message.body,
        sys_flag=Compression.ZLIB.sys_flag if large else 0,
        properties=encoded.decode(),
        unique_key=properties[Property.UNIQUE_KEY],
    )


def _fault(message: Message, body_bytes_max: int) -> str | None:
    if (fault := topic_fault(message.topic)) is not None:
        return fault
    if message.topic in NOT_FOR_CLIENTS:
        return f"topic {message.topic} is the broker's own"
    if not message.body:
        return "the body is empty"
    if len(message.body) > body_bytes_max:
        return f"the body has {len(message.body)} bytes, over {body_bytes_max}"
    if any(not key or " " in key for key in message.keys):
        return "a key is empty or has a blank in it"
    return None


class SendStatus(StrEnum):
    """The message is stored in any case; all but SEND_OK say what is not sure yet."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


SEND_STATUSES: Final[Mapping[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """`message_id` is the unique key, `offset_message_id` the place in the broker's log."""

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None


def send_result(code: int, answer: SendResponse, unique_key: str, queue: MessageQueue) -> SendResult:
    """What the broker says, for the queue it really chose."""
    return SendResult(
        status=SEND_STATUSES[code],
        message_id=unique_key,
        offset_message_id=answer.message_id,
        queue=MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=answer.queue_id),
        queue_offset=answer.queue_offset,
        transaction_id=answer.transaction_id,
    )


_OF_ONE_DELIVERY: Final = frozenset(
    {
        Property.CLUSTER,
        Property.CONSUME_START_MS,
        Property.DELAY,
        Property.DLQ_ORIGIN_MESSAGE_ID,
        Property.DLQ_ORIGIN_TOPIC,
        Property.KEYS,
        Property.MAX_OFFSET,
        Property.MAX_RECONSUME_TIMES,
        Property.MIN_OFFSET,
        Property.PRODUCER_GROUP,
        Property.REAL_QUEUE_ID,
        Property.REAL_TOPIC,
        Property.RECONSUME_TIMES,
        Property.REGION,
        Property.RETRY_TOPIC,
        Property.TAGS,
        Property.TIMER_DELAY_MS,
        Property.TIMER_DELAY_SECONDS,
        Property.TIMER_DELIVER_MS,
        Property.TRACE_ON,
        Property.TRANSACTION_CHECK_TIMES,
        Property.TRANSACTION_ID,
        Property.TRANSACTION_PREPARED,
        Property.TRANSACTION_PREPARED_OFFSET,
        Property.UNIQUE_KEY,
        Property.WAIT,
    }
)
"""Said by brokers and clients about one way of a message, or told by fields of their own."""


def copy_of(message: StoredMessage, topic: str | None = None) -> Message:
    """The same message to send once more, with a new id, to the topic it was meant for at first."""
    kept = {name: text for name, text in message.properties.items() if name not in _OF_ONE_DELIVERY}
    kept.setdefault(Property.ORIGIN_MESSAGE_ID, message.message_id)
    return Message(
        topic=topic or _first_topic(message),
        body=message.body,
        tag=message.tag,
        keys=message.keys,
        properties=kept,
        flag=message.flag,
    )


def _first_topic(message: StoredMessage) -> str:
    """Of a retried or dead message that of its first delivery."""
    if not message.topic.startswith((DLQ_PREFIX, RETRY_PREFIX)):
        return message.topic
    first = message.properties.get(Property.DLQ_ORIGIN_TOPIC) or message.properties.get(Property.RETRY_TOPIC)
    return first or message.topic
