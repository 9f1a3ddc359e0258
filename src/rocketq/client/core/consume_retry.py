"""What becomes of a message a listener failed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketq.client.core.stored_messages import StoredMessage
from rocketq.model import SysFlag
from rocketq.protocol.headers.pull import SendBackRequest
from rocketq.protocol.headers.send import SendRequest
from rocketq.protocol.names import Property, retry_topic
from rocketq.protocol.properties import encode_properties

RETRIES_MAX: Final = 16
WITHOUT_END: Final = 2**31 - 1
FIRST_LEVEL: Final = 3
TIMEOUT_LEVEL: Final = 3
"""Of a message whose listener took too long."""
DEAD_LEVEL: Final = -1
SUSPEND_MS_MIN: Final = 10
SUSPEND_MS_MAX: Final = 30_000
_OF_ONE_DELIVERY: Final = frozenset(
    {
        Property.CONSUME_START_MS,
        Property.DELAY,
        Property.MAX_OFFSET,
        Property.MAX_RECONSUME_TIMES,
        Property.MIN_OFFSET,
        Property.RECONSUME_TIMES,
        Property.TRANSACTION_PREPARED,
    }
)
_BODY_BITS: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK | SysFlag.MULTI_TAGS


def retries_max(configured: int) -> int:
    """How often a concurrent consumer wants a message at most; -1 leaves it at the usual number."""
    return RETRIES_MAX if configured < 0 else configured


def retry_level(reconsume_times: int, asked: int = 0) -> int:
    """The delay level brokers use for the next delivery, where the listener asked for none."""
    return asked if asked > 0 else FIRST_LEVEL + reconsume_times


def send_back_request(
    message: StoredMessage, group: str, delay_level: int, configured: int, origin_topic: str | None = None
) -> SendBackRequest:
    """To the broker that stored the message; group and topic as brokers know them."""
    return SendBackRequest(
        log_offset=message.log_offset,
        group=group,
        delay_level=delay_level,
        origin_message_id=message.message_id,
        origin_topic=origin_topic or message.topic,
        max_reconsume_times=retries_max(configured),
        broker_name=message.queue.broker_name or None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryCopy:
    """A message sent anew to the retry topic of its group, body and id as they were."""

    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int

    def request(self, queue_id: int, broker_name: str, producer_group: str, now_ms: int) -> SendRequest:
        return SendRequest(
            group=producer_group,
            topic=self.topic,
            default_queue_count=1,
            queue_id=queue_id,
            sys_flag=self.sys_flag,
            born_ms=now_ms,
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            max_reconsume_times=self.max_reconsume_times,
            broker_name=broker_name,
        )


def retry_copy(
    message: StoredMessage, group: str, delay_level: int, configured: int, origin_topic: str | None = None
) -> RetryCopy:
    """For when its broker would not take it back: comes again after a delay, or is dead beyond the limit."""
    delay = {} if delay_level < 0 else {Property.DELAY: str(retry_level(message.reconsume_times, delay_level))}
    limit = retries_max(configured)
    times = message.reconsume_times + 1 if delay_level >= 0 else max(limit, message.reconsume_times + 1)
    return _copy(message, group, origin_topic, delay, times, limit)


def dead_copy(message: StoredMessage, group: str, limit: int, origin_topic: str | None = None) -> RetryCopy:
    """Of a group that consumes in order, beyond its limit: brokers store it with the dead letters."""
    return _copy(message, group, origin_topic, {}, max(limit, message.reconsume_times), limit)


def may_be_retried(message: StoredMessage, configured: int) -> bool:
    """In order a message is retried without end unless a limit was set."""
    return configured < 0 or message.reconsume_times < configured


def suspend_ms(asked: int | None, configured: int) -> int:
    """How long a queue consumed in order waits after a failure."""
    return max(SUSPEND_MS_MIN, min(asked if asked is not None else configured, SUSPEND_MS_MAX))


def _copy(
    message: StoredMessage, group: str, origin_topic: str | None, delay: dict[str, str], times: int, limit: int
) -> RetryCopy:
    properties = {name: text for name, text in message.properties.items() if name not in _OF_ONE_DELIVERY}
    properties.setdefault(Property.RETRY_TOPIC, origin_topic or message.topic)
    properties.setdefault(Property.ORIGIN_MESSAGE_ID, message.offset_message_id)
    return RetryCopy(
        topic=retry_topic(group),
        body=message.stored_body,
        sys_flag=message.sys_flag & _BODY_BITS,
        flag=message.flag,
        properties=encode_properties(properties | delay).decode(),
        reconsume_times=times,
        max_reconsume_times=limit,
    )
