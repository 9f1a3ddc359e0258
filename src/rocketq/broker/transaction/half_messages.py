"""The messages of a transaction in Apache's stored form.

half      = topic RMQ_SYS_TRANS_HALF_TOPIC, queue 0, transaction bits of sysFlag 0, REAL_TOPIC and REAL_QID among the
            properties
copy      = the same half once more, with TRANSACTION_CHECK_TIMES one higher and TRAN_PREPARED_QUEUE_OFFSET = the queue
            offset of the first one (Apache writes that property on some of its copies only)
committed = the real topic and queue, transaction bits = commit, preparedTransactionOffset = the half's log offset
op        = topic RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, tag d, body = queue offset of a completed half: `7`;
            brokers of 5.x write several: `7,9,12,`. With ROCKETQ_MOVED_TO: it has a newer copy
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rocketq.model import Host, NewMessage, Record, SysFlag
from rocketq.protocol.messages import encode_record
from rocketq.protocol.names import CHECK_EXHAUSTED_TOPIC, HALF_OP_TOPIC, HALF_TOPIC, Property
from rocketq.protocol.properties import PROPERTIES_BYTES_MAX, decode_properties, encode_properties

QUEUE_ID: Final = 0
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Group whose offsets are the floors of halves and ops."""
OP_TAG: Final = "d"
RESUMED: Final = "ROCKETQ_RESUMED"
"""Property of halves whose checks were restarted; their op messages have the first half's offset as a key."""
MOVED_TO: Final = "ROCKETQ_MOVED_TO"
"""Property of op messages for halves with a newer copy: the transaction is still open."""
HALF_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 192
"""Leaves room for the properties that checks add."""

_NOT_OF_CLIENTS: Final = (
    Property.DELAY,
    Property.TIMER_DELAY_SECONDS,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELIVER_MS,
    Property.TRANSACTION_CHECK_TIMES,
    Property.TRANSACTION_PREPARED_OFFSET,
    Property.REAL_TOPIC,
    Property.REAL_QUEUE_ID,
    RESUMED,
)
_HOST_BITS: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Half:
    """A stored half message with its properties read."""

    record: Record
    properties: Mapping[str, str]

    @classmethod
    def of(cls, record: Record) -> Half:
        return cls(record, decode_properties(record.properties))

    @property
    def group(self) -> str:
        return self.properties.get(Property.PRODUCER_GROUP, "")

    @property
    def topic(self) -> str:
        return self.properties.get(Property.REAL_TOPIC, "")

    @property
    def queue_id(self) -> int:
        return number(self.properties.get(Property.REAL_QUEUE_ID), 0)

    @property
    def unique_key(self) -> str:
        return self.properties.get(Property.UNIQUE_KEY, "")

    @property
    def checks(self) -> int:
        return max(0, number(self.properties.get(Property.TRANSACTION_CHECK_TIMES), 0))

    @property
    def is_copy(self) -> bool:
        return Property.TRANSACTION_CHECK_TIMES in self.properties or self.recorded_root is not None

    @property
    def recorded_root(self) -> int | None:
        """The first half's queue offset, if the properties have it."""
        told = number(self.properties.get(Property.TRANSACTION_PREPARED_OFFSET), -1)
        return told if told >= 0 else None

    @property
    def immunity_ms(self) -> int | None:
        return immunity_ms(self.properties)

    @property
    def is_resumed(self) -> bool:
        return RESUMED in self.properties

    def is_same_send(self, other: Half) -> bool:
        """Whether both are copies of the same send."""
        mine, theirs = self.record, other.record
        return (
            bool(self.unique_key)
            and (self.unique_key, self.group) == (other.unique_key, other.group)
            and (mine.born_ms, mine.born_host) == (theirs.born_ms, theirs.born_host)
        )


def immunity_ms(properties: Mapping[str, str]) -> int | None:
    """Age at which a half is first checked; None: the broker's setting."""
    seconds = number(properties.get(Property.CHECK_IMMUNITY_SECONDS), -1)
    return None if seconds == -1 else seconds * 1000


def number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else otherwise


def half_of(message: NewMessage, sent: Mapping[str, str]) -> NewMessage:
    """The half message of a send with these properties. Delay properties are removed."""
    properties = {name: text for name, text in sent.items() if name not in _NOT_OF_CLIENTS}
    properties.setdefault(Property.WAIT, "true")
    properties[Property.REAL_TOPIC] = message.topic
    properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
    return replace(
        message,
        topic=HALF_TOPIC,
        queue_id=QUEUE_ID,
        sys_flag=message.sys_flag & ~SysFlag.TRANSACTION_MASK,
        properties=packed(properties),
    )


def copy_of(half: Half, root: int, checks: int, *, resumed: bool = False) -> NewMessage:
    """A copy of the half for the end of its queue."""
    properties = {**half.properties, Property.WAIT: "false", Property.TRANSACTION_CHECK_TIMES: str(checks)}
    properties[Property.TRANSACTION_PREPARED_OFFSET] = str(root)
    if resumed:
        properties[RESUMED] = "true"
    return replace(_again(half), topic=HALF_TOPIC, queue_id=QUEUE_ID, properties=packed(properties))


def given_up(half: Half, root: int) -> NewMessage:
    """The half for the topic of transactions that reached the check limit."""
    properties = {**half.properties, Property.TRANSACTION_PREPARED_OFFSET: str(root)}
    return replace(_again(half), topic=CHECK_EXHAUSTED_TOPIC, queue_id=QUEUE_ID, properties=packed(properties))


def committed(half: Half) -> NewMessage:
    """The message for its real topic, without the properties of stored halves and checks; TRAN_MSG stays."""
    message = replace(
        _again(half), properties=packed(_without(half.properties, Property.WAIT, Property.TRANSACTION_PREPARED_OFFSET))
    )
    return replace(
        message,
        topic=half.topic,
        queue_id=half.queue_id,
        sys_flag=message.sys_flag | SysFlag.TRANSACTION_COMMIT,
        prepared_offset=half.record.log_offset,
    )


def op_for(
    half_offset: int, *, now_ms: int, host: Host, key: int | None = None, moved_to: int | None = None
) -> NewMessage:
    properties = {Property.WAIT: "true", Property.TAGS: OP_TAG}
    if key is not None:
        properties[Property.KEYS] = str(key)
    if moved_to is not None:
        properties[MOVED_TO] = str(moved_to)
    return NewMessage(
        topic=HALF_OP_TOPIC,
        queue_id=QUEUE_ID,
        body=str(half_offset).encode(),
        properties=packed(properties),
        born_ms=now_ms,
        born_host=host,
    )


@dataclass(frozen=True, slots=True)
class Op:
    """Halves that are completed, or moved to a newer copy."""

    queue_offset: int
    log_offset: int
    half_offsets: tuple[int, ...]
    moved: bool = False


def read_op(record: Record) -> Op:
    """Decode an op message of either form; invalid numbers are ignored."""
    properties = decode_properties(record.properties)
    texts = record.body.decode("utf-8", "replace").split(",") if properties.get(Property.TAGS) == OP_TAG else []
    found = (number(text.strip(), -1) for text in texts)
    offsets = tuple(offset for offset in found if offset >= 0)
    return Op(record.queue_offset, record.log_offset, offsets, MOVED_TO in properties)


def check_body(half: Half, copy: NewMessage, queue_offset: int, log_offset: int) -> bytes:
    """Body of a check: the half as a record of its real topic and queue, at the location of its copy."""
    asked = replace(
        half.record,
        topic=half.topic,
        queue_id=half.queue_id,
        properties=packed(_without(decode_properties(copy.properties), Property.TRANSACTION_PREPARED_OFFSET)),
        queue_offset=queue_offset,
        log_offset=log_offset,
    )
    return encode_record(asked)


def packed(properties: Mapping[str, str]) -> bytes:
    """Encode properties as 4.9.7 does: without the last separator."""
    return encode_properties(properties).removesuffix(b"\x02")


def _without(properties: Mapping[str, str], *hidden: str) -> dict[str, str]:
    return {name: text for name, text in properties.items() if name not in hidden}


def _again(half: Half) -> NewMessage:
    record = half.record
    return NewMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        body=record.body,
        properties=record.properties,
        flag=record.flag,
        sys_flag=record.sys_flag & ~(_HOST_BITS | SysFlag.TRANSACTION_MASK),
        born_ms=record.born_ms,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times,
    )
