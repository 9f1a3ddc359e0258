"""Whether a message can be taken: pure checks of the message, and the store's reasons to refuse any."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable

from rocketq.kernel.appender import PROPERTIES_BYTES_MAX
from rocketq.kernel.records import FIXED_BYTES
from rocketq.model import NewMessage
from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import QUEUE_ID_MAX
from rocketq.store.results import AppendResult, AppendStatus

log = logging.getLogger(__name__)

TOPIC_LENGTH_MAX = 127
TOPIC_PATTERN = re.compile(r"[%|a-zA-Z0-9_-]+")
IPV6_BYTES_MORE = 24  # two hosts of 20 bytes instead of 8
BLANK_BYTES = 8
_I32_MAX, _I64_MAX = (1 << 31) - 1, (1 << 63) - 1


class Health:
    """Why messages are refused right now, if they are; each reason is set and cleared by the one who knows, from any
    thread. `changed` is called after every change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.closed: str | None = "the store is not open yet"
        self.broken: str | None = None
        self.disk_full: str | None = None
        self.follows: str | None = None

    def __setattr__(self, name: str, value: str | Callable[[], None] | None) -> None:
        same = self.__dict__.get(name) == value
        object.__setattr__(self, name, value)
        if not same:
            self._changed()

    @property
    def refusal(self) -> str | None:
        return self.closed or self.broken or self.follows or self.disk_full

    @property
    def cause(self) -> str:
        """The reason as one word: `disk_full`, `slave`, `store_failed` or `not_open`."""
        if self.closed or self.broken:
            return "not_open" if self.closed else "store_failed"
        return "slave" if self.follows else "disk_full"

    def stop_writing(self, reason: str) -> None:
        """Stop all appends after a failure that must not be overwritten; reads continue."""
        if self.broken is None:
            self.broken = reason
            log.error("appends stopped: %s", reason)


def find_fault(message: NewMessage, config: StoreConfig) -> AppendResult | None:
    """What is wrong with a message, or None."""
    fault = (
        _type_fault(message) or _topic_fault(message.topic) or _place_fault(message, config) or _number_fault(message)
    )
    if fault is not None:
        return AppendResult(AppendStatus.MESSAGE_ILLEGAL, fault)
    if len(message.properties) > PROPERTIES_BYTES_MAX:
        fault = f"the properties have {len(message.properties)} bytes, more than {PROPERTIES_BYTES_MAX}"
        return AppendResult(AppendStatus.PROPERTIES_SIZE_EXCEEDED, fault)
    if b"\0" in message.properties:  # recovery recognizes torn properties by their zeros
        return AppendResult(AppendStatus.MESSAGE_ILLEGAL, "the properties hold a NUL character")
    return None


def _type_fault(message: NewMessage) -> str | None:
    if type(message.topic) is not str:
        return f"the topic must be a str, not {message.topic!r}"
    if type(message.queue_id) is not int:
        return f"the queue id must be an int, not {message.queue_id!r}"
    if type(message.body) is not bytes or type(message.properties) is not bytes:
        return "body and properties must be bytes"
    return None


@functools.lru_cache(maxsize=4096)
def _topic_fault(topic: str) -> str | None:
    if not topic:
        return "the topic is empty"
    if not TOPIC_PATTERN.fullmatch(topic):
        return f"topic {topic!r} may hold letters, digits, _ - % and | only"
    if len(topic) > TOPIC_LENGTH_MAX:
        return f"the topic has {len(topic)} characters, more than {TOPIC_LENGTH_MAX}"
    return None


def _number_fault(message: NewMessage) -> str | None:
    """Numbers come from remote clients; a record has 4 or 8 bytes for each."""
    if 0 <= message.flag | message.sys_flag | message.reconsume_times <= _I32_MAX and (
        0 <= message.born_ms | message.prepared_offset <= _I64_MAX
    ):
        return None
    for name, value, bits in (
        ("flag", message.flag, 32),
        ("sys_flag", message.sys_flag, 32),
        ("reconsume_times", message.reconsume_times, 32),
        ("born_ms", message.born_ms, 64),
        ("prepared_offset", message.prepared_offset, 64),
    ):
        if value.bit_length() >= bits and not (value < 0 and value == -(1 << bits - 1)):
            return f"{name} {value} does not fit in {bits} bits"
    return None


def _place_fault(message: NewMessage, config: StoreConfig) -> str | None:
    size = len(message.body)
    if not 0 <= message.queue_id <= QUEUE_ID_MAX:
        return f"queue id {message.queue_id} is outside 0..{QUEUE_ID_MAX}"
    if size > config.message_bytes_max:
        return f"the body has {size} bytes, more than {config.message_bytes_max}"
    overhead = FIXED_BYTES + IPV6_BYTES_MORE + BLANK_BYTES + len(message.topic) + len(message.properties)
    if size + overhead > config.segment_bytes:
        return f"a body of {size} bytes does not fit in a log file of {config.segment_bytes}"
    return None
