"""Messages as brokers store them, and decoding of pull responses. See protocol/messages.py for the record layout."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, error
from typing import Final

from rocketq.client.core.namespaces import Namespace
from rocketq.errors import ProtocolError, RemoteProtocolError
from rocketq.model import Host, Record, SysFlag, encode_message_id
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.compression import decompress
from rocketq.protocol.messages import MAGIC_V1, decode_records
from rocketq.protocol.names import RETRY_PREFIX, Property
from rocketq.protocol.properties import decode_properties

_END: Final = b"\x02"


Row = tuple[int, int, int, int, int, int, int, bytes, int, bytes, int, int, bytes, bytes, bytes]
"""The fields of a record, hosts packed; what a body of pulled messages is cut into:

size, queue id, flag, queue offset, log offset, sysFlag, born ms, born host, store ms, store host, reconsume times,
prepared offset, body, topic, properties.
"""


class StoredMessage:
    """A message as a broker has it: a value, not to be changed.

    The body is decompressed; if that failed, `body_fault` has the reason. Of a retried message `queue` is
    the queue of retries it came from, and for a consumer `topic` is the one it was sent to at first.
    """

    __slots__ = ("_body", "_fault", "_id", "_properties", "_row", "queue", "queue_offset", "reconsume_times", "topic")

    queue: MessageQueue
    topic: str
    queue_offset: int
    reconsume_times: int
    _row: Row
    _body: bytes | None
    _fault: str | None
    _id: str | None
    _properties: Mapping[str, str] | None

    def __init__(
        self,
        *,
        queue: MessageQueue,
        queue_offset: int,
        log_offset: int,
        offset_message_id: str,
        body: bytes,
        body_fault: str | None,
        properties: Mapping[str, str],
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: Host,
        store_ms: int,
        store_host: Host,
        stored_bytes: int,
        reconsume_times: int,
    ) -> None:
        self._row = (
            stored_bytes,
            queue.queue_id,
            flag,
            queue_offset,
            log_offset,
            sys_flag,
            born_ms,
            born_host.packed(),
            store_ms,
            store_host.packed(),
            reconsume_times,
            0,
            body,
            queue.topic.encode(),
            b"",
        )
        self.queue, self.topic = queue, queue.topic
        self.queue_offset, self.reconsume_times = queue_offset, reconsume_times
        self._body, self._fault, self._id, self._properties = body, body_fault, offset_message_id, properties

    @property
    def log_offset(self) -> int:
        return self._row[4]

    @property
    def offset_message_id(self) -> str:
        """The broker address and the offset in its log, encoded."""
        if self._id is None:
            self._id = encode_message_id(self.store_host, self._row[4])
        return self._id

    @property
    def body(self) -> bytes:
        if self._body is None:
            self._body, self._fault = inflated(self._row[12], self._row[5])
        return self._body

    @property
    def body_fault(self) -> str | None:
        return self._fault if self.body is not None else None

    @property
    def stored_body(self) -> bytes:
        """The body as it was sent, compressed or not."""
        return self._row[12]

    @property
    def body_bytes(self) -> int:
        """Of the body as it was sent."""
        return len(self._row[12])

    @property
    def properties(self) -> Mapping[str, str]:
        if self._properties is None:
            self._properties = decode_properties(self._row[14])
        return self._properties

    @property
    def flag(self) -> int:
        return self._row[2]

    @property
    def sys_flag(self) -> int:
        return self._row[5]

    @property
    def born_ms(self) -> int:
        return self._row[6]

    @property
    def born_host(self) -> Host:
        return Host.unpack(self._row[7])

    @property
    def store_ms(self) -> int:
        return self._row[8]

    @property
    def store_host(self) -> Host:
        return Host.unpack(self._row[9])

    @property
    def stored_bytes(self) -> int:
        return self._row[0]

    @property
    def unique_key(self) -> str | None:
        return self.properties.get(Property.UNIQUE_KEY)

    @property
    def message_id(self) -> str:
        """What users know it by."""
        return self.unique_key or self.offset_message_id

    @property
    def tag(self) -> str | None:
        if self._properties is None:
            return _one_property(self._row[14], b"TAGS\x01")
        return self._properties.get(Property.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(Property.KEYS, "").split())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredMessage):
            return NotImplemented
        return (self.queue, self.topic, self.body, self.properties, self.reconsume_times, self._place()) == (
            other.queue,
            other.topic,
            other.body,
            other.properties,
            other.reconsume_times,
            other._place(),
        )

    def __hash__(self) -> int:
        return hash((self.queue, self._place()))

    def __repr__(self) -> str:
        return (
            f"StoredMessage(topic={self.topic!r}, queue={self.queue!r}, queue_offset={self.queue_offset}, "
            f"message_id={self.message_id!r}, tag={self.tag!r}, keys={self.keys!r}, body={self.body[:40]!r})"
        )

    def _place(self) -> tuple[int, ...]:
        row = self._row
        return row[3], row[4], row[0], row[2], row[5], row[6], row[8]


_new = object.__new__


def message_of(row: Row, queue: MessageQueue, topic: str | None = None) -> StoredMessage:
    """A message pulled of this queue."""
    message = _new(StoredMessage)
    message._row = row
    message.queue = queue
    message.topic = queue.topic if topic is None else topic
    message.queue_offset = row[3]
    message.reconsume_times = row[10]
    message._body = message._fault = message._id = message._properties = None
    return message


def delivered(message: StoredMessage, *, topic: str | None = None, reconsume_times: int | None = None) -> StoredMessage:
    """The same message as a listener gets it: under its first topic, or after more attempts."""
    copy = message_of(message._row, message.queue, message.topic if topic is None else topic)
    copy.reconsume_times = message.reconsume_times if reconsume_times is None else reconsume_times
    copy._body, copy._fault = message._body, message._fault
    copy._id, copy._properties = message._id, message._properties
    return copy


def stored_message(record: Record, broker_name: str) -> StoredMessage:
    queue = MessageQueue(topic=record.topic, broker_name=broker_name, queue_id=record.queue_id)
    return message_of(row_of(record), queue)


def row_of(record: Record) -> Row:
    return (
        record.size,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.log_offset,
        record.sys_flag,
        record.born_ms,
        record.born_host.packed(),
        record.store_ms,
        record.store_host.packed(),
        record.reconsume_times,
        record.prepared_offset,
        record.body,
        record.topic.encode(),
        record.properties,
    )


def inflated(body: bytes, sys_flag: int) -> tuple[bytes, str | None]:
    """The body as it was sent; what cannot be inflated stays as it is, with the reason."""
    try:
        return decompress(body, sys_flag), None
    except ProtocolError as error:
        return body, str(error)


def _one_property(properties: bytes, start: bytes) -> str | None:
    """One value without parsing the others; of two equal names the last counts."""
    at = len(properties)
    while (at := properties.rfind(start, 0, at)) >= 0:
        if at == 0 or properties[at - 1] == 2:
            end = properties.find(_END, at)
            value = properties[at + len(start) : end if end >= 0 else len(properties)]
            if value:
                return value.decode("utf-8", "replace")
    return None


_NO_NAMESPACE: Final = Namespace()
_V6_HOSTS: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_USUAL: Final = Struct(">iiiiiqqiq8sq8siqi")
"""A record with hosts of IPv4, up to its body."""
_USUAL_BYTES: Final = _USUAL.size


def pulled_messages(
    body: bytes,
    queue: MessageQueue,
    tags: frozenset[str] | None = None,
    namespace: Namespace = _NO_NAMESPACE,
) -> tuple[StoredMessage, ...]:
    """Those of these tags, None for all, as users are to see them: without namespace, and of a retried message the
    topic of its first delivery. RemoteProtocolError when the body is not made of whole records."""
    found = _messages(body, namespace.plain_queue(queue))
    if queue.topic.startswith(RETRY_PREFIX):
        for message in found:
            message.topic = namespace.plain(message.properties.get(Property.RETRY_TOPIC) or queue.topic)
    if tags is None:
        return tuple(found)
    return tuple(message for message in found if message.tag in tags)


def _messages(data: bytes, queue: MessageQueue) -> list[StoredMessage]:
    """Usual records are taken apart here, all others where every kind is known."""
    found: list[StoredMessage] = []
    unpack, end, at = _USUAL.unpack_from, len(data), 0
    try:
        while at < end:
            (
                size,
                magic,
                _,
                queue_id,
                flag,
                queue_offset,
                log_offset,
                sys_flag,
                born_ms,
                born_host,
                store_ms,
                store_host,
                reconsume_times,
                prepared_offset,
                body_bytes,
            ) = unpack(data, at)
            body_at, next_at = at + _USUAL_BYTES, at + size
            if magic != MAGIC_V1 or sys_flag & _V6_HOSTS or body_bytes < 0 or next_at > end:
                found.extend(message_of(row_of(record), queue) for record in decode_records(data[at:]))
                return found
            topic_at = body_at + body_bytes + 1
            topic_end = topic_at + data[topic_at - 1]
            properties_at = topic_end + 2
            if properties_at + (data[topic_end] << 8 | data[topic_end + 1]) != next_at:
                raise RemoteProtocolError(f"the record at byte {at} does not fill its {size} bytes")
            row = (
                size,
                queue_id,
                flag,
                queue_offset,
                log_offset,
                sys_flag,
                born_ms,
                born_host,
                store_ms,
                store_host,
                reconsume_times,
                prepared_offset,
                data[body_at : topic_at - 1],
                data[topic_at:topic_end],
                data[properties_at:next_at],
            )
            found.append(message_of(row, queue))
            at = next_at
    except (error, IndexError) as cause:
        raise RemoteProtocolError(f"the record at byte {at} is cut off: {cause}") from None
    return found
