"""What becomes of a message a listener failed on."""

from __future__ import annotations

from typing import Final

from rocketq.client.core.messages import Message
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.protocol.headers.messages import SendBackRequest
from rocketq.protocol.names import Property, retry_topic

RETRIES_MAX: Final = 16
FIRST_LEVEL: Final = 3
TIMEOUT_LEVEL: Final = 3
"""Of a message whose listener took too long."""
DEAD_LEVEL: Final = -1
SUSPEND_MS_MIN: Final = 10
SUSPEND_MS_MAX: Final = 30_000
_RECEIVED_ONLY: Final = frozenset(
    {Property.TRANSACTION_PREPARED, Property.MIN_OFFSET, Property.MAX_OFFSET, Property.CONSUME_START_MS}
)


def retries_max(configured: int) -> int:
    """How often a concurrent consumer wants a message at most; -1 leaves it at the usual number."""
    return RETRIES_MAX if configured < 0 else configured


def retry_level(reconsume_times: int, asked: int = 0) -> int:
    """The delay level brokers use for the next delivery, where the listener asked for none."""
    return asked if asked > 0 else FIRST_LEVEL + reconsume_times


def send_back_request(message: StoredMessage, group: str, delay_level: int, configured: int) -> SendBackRequest:
    """To the broker that stored the message."""
    return SendBackRequest(
        log_offset=message.log_offset,
        group=group,
        delay_level=delay_level,
        origin_message_id=message.message_id,
        origin_topic=message.topic,
        max_reconsume_times=retries_max(configured),
        broker_name=message.queue.broker_name or None,
    )


def retry_copy(message: StoredMessage, group: str, delay_level: int = 0) -> Message:
    """The message for the retry topic of the group, when its broker would not take it back."""
    times = message.reconsume_times
    properties = _kept(message)
    properties[Property.RETRY_TOPIC] = message.properties.get(Property.RETRY_TOPIC) or message.topic
    properties[Property.DELAY] = str(retry_level(times, delay_level))
    properties.setdefault(Property.ORIGIN_MESSAGE_ID, message.offset_message_id)
    return Message(topic=retry_topic(group), body=message.body, properties=properties, flag=message.flag)


def dead_copy(message: StoredMessage, group: str, limit: int) -> Message:
    """The message for the dead letters of a group that consumes in order: sent as a retry beyond its limit."""
    properties = _kept(message)
    properties[Property.RETRY_TOPIC] = message.properties.get(Property.RETRY_TOPIC) or message.topic
    properties.setdefault(Property.ORIGIN_MESSAGE_ID, message.offset_message_id)
    return Message(topic=retry_topic(group), body=message.body, properties=properties, flag=message.flag)


def may_be_retried(message: StoredMessage, configured: int) -> bool:
    """In order a message is retried without end unless a limit was set."""
    return configured < 0 or message.reconsume_times < configured


def suspend_ms(asked: int | None, configured: int) -> int:
    """How long a queue consumed in order waits after a failure."""
    return max(SUSPEND_MS_MIN, min(asked if asked is not None else configured, SUSPEND_MS_MAX))


def _kept(message: StoredMessage) -> dict[str, str]:
    return {name: text for name, text in message.properties.items() if name not in _RECEIVED_ONLY | {Property.DELAY}}
