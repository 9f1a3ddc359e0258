"""Messages as brokers store them, and decoding of pull responses. See protocol/messages.py for the record layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rocketq.client.core.namespaces import Namespace
from rocketq.errors import ProtocolError, RemoteProtocolError
from rocketq.kernel.record_batch import MessageView, RecordBatch
from rocketq.model import Host, Record, encode_message_id
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.compression import decompress
from rocketq.protocol.messages import decode_records
from rocketq.protocol.names import RETRY_PREFIX, Property
from rocketq.protocol.properties import decode_properties


class StoredMessage(MessageView):
    """A message as a broker has it: a value that cannot be changed.

    It is a view of the answer it came in: body, properties and hosts are read when they are asked for. `detach()`
    copies them; a message that is kept for long without it keeps the whole answer (up to 256 KiB) in memory.

    The body is inflated; where that failed it is as stored and `body_fault` has the reason. Of a retried message
    `queue` is the retry queue it came from, and for a consumer `topic` is the topic it was first sent to.
    """

    __slots__ = ("_consume_start_ms",)

    _consume_start_ms: int
    """Not set until a listener gets the message."""

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
        self.fill(
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
            body,
            b"",
        )
        self.queue, self.topic = queue, queue.topic
        self._body, self._fault, self._id, self._properties = body, body_fault, offset_message_id, properties

    @property
    def offset_message_id(self) -> str:
        """Its location: the broker's address and the log offset."""
        if self._id is None:
            self._id = encode_message_id(self.store_host, self.log_offset)
        return self._id

    @property
    def body(self) -> bytes:
        if self._body is None:
            if self.is_compressed:
                self._body, self._fault = inflated(self.stored_body, self.sys_flag)
            else:
                self._body = self.stored_body
        return self._body

    @property
    def body_view(self) -> memoryview:
        """The body without a copy, where it is not compressed."""
        return self.stored_body_view if self._body is None and not self.is_compressed else memoryview(self.body)

    @property
    def body_fault(self) -> str | None:
        return self._fault if self.body is not None else None

    @property
    def properties(self) -> Mapping[str, str]:
        if self._properties is None:
            properties = decode_properties(self.raw_properties)
            start_ms = getattr(self, "_consume_start_ms", None)
            if start_ms is not None:
                properties[Property.CONSUME_START_MS] = str(start_ms)
            self._properties = properties
        return self._properties

    @property
    def born_host(self) -> Host:
        return Host.unpack(self.born_host_packed)

    @property
    def store_host(self) -> Host:
        return Host.unpack(self.store_host_packed)

    @property
    def unique_key(self) -> str | None:
        return self.properties.get(Property.UNIQUE_KEY)

    @property
    def message_id(self) -> str:
        """The id users know it by."""
        return self.unique_key or self.offset_message_id

    @property
    def tag(self) -> str | None:
        if self._properties is None:
            value = self.property_value(b"TAGS\x01")
            return None if value is None else value.decode("utf-8", "replace")
        return self._properties.get(Property.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(Property.KEYS, "").split())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredMessage):
            return NotImplemented
        return (self.queue, self.topic, self.body, self._sent(), self.reconsume_times, self._place()) == (
            other.queue,
            other.topic,
            other.body,
            other._sent(),
            other.reconsume_times,
            other._place(),
        )

    def __hash__(self) -> int:
        return hash((self.queue, self._place()))

    def __repr__(self) -> str:
        return (
            f"StoredMessage(topic={self.topic!r}, queue={self.queue!r}, queue_offset={self.queue_offset}, "
            f"message_id={self.message_id!r}, tag={self.tag!r}, keys={self.keys!r}, body={self.body[:64]!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (
            self.stored_bytes,
            self.queue_id,
            self.flag,
            self.queue_offset,
            self.log_offset,
            self.sys_flag,
            self.born_ms,
            self.born_host_packed,
            self.store_ms,
            self.store_host_packed,
            self.reconsume_times,
            self.stored_body,
            self.raw_properties,
        )
        properties = self.properties if hasattr(self, "_consume_start_ms") else self._properties
        return _restored, (fields, self.queue, self.topic, self._body, self._fault, self._id, properties)

    def _sent(self) -> Mapping[str, str]:
        """The properties without the start of its consumption: each delivery has another."""
        if Property.CONSUME_START_MS not in self.properties:
            return self.properties
        return {name: text for name, text in self.properties.items() if name != Property.CONSUME_START_MS}

    def _place(self) -> tuple[int, ...]:
        return (
            self.queue_offset,
            self.log_offset,
            self.stored_bytes,
            self.flag,
            self.sys_flag,
            self.born_ms,
            self.store_ms,
        )


_new = StoredMessage.__new__


def _restored(
    fields: tuple[Any, ...],
    queue: MessageQueue,
    topic: str,
    body: bytes | None,
    fault: str | None,
    offset_message_id: str | None,
    properties: Mapping[str, str] | None,
) -> StoredMessage:
    """A pickled message."""
    message = _new(StoredMessage)
    message.fill(*fields)
    message.queue, message.topic = queue, topic
    message._body, message._fault, message._id, message._properties = body, fault, offset_message_id, properties
    return message


def delivered(message: StoredMessage, *, topic: str | None = None, reconsume_times: int | None = None) -> StoredMessage:
    """The same message as a listener gets it: under its first topic, or after more attempts."""
    copy = _new(StoredMessage)
    message.copy_to(copy)
    if topic is not None:
        copy.topic = topic
    if reconsume_times is not None:
        copy.reconsume_times = reconsume_times
    return copy


def mark_consume_start(messages: Iterable[StoredMessage], now_ms: int) -> None:
    """Set the property CONSUME_START_TIME, without decoding the other properties."""
    for message in messages:
        if message._properties is None:
            message._consume_start_ms = now_ms
        else:
            message._properties = {**message._properties, Property.CONSUME_START_MS: str(now_ms)}


def stored_message(record: Record, broker_name: str) -> StoredMessage:
    message = _new(StoredMessage)
    message.fill(
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
        record.body,
        record.properties,
    )
    message.queue = MessageQueue(topic=record.topic, broker_name=broker_name, queue_id=record.queue_id)
    message.topic = record.topic
    return message


def inflated(body: bytes, sys_flag: int) -> tuple[bytes, str | None]:
    """The body as it was sent; what cannot be inflated stays as it is, with the reason."""
    try:
        return decompress(body, sys_flag), None
    except ProtocolError as error:
        return body, str(error)


_NO_NAMESPACE: Final = Namespace()


def pulled_batch(
    body: bytes,
    queue: MessageQueue,
    tags: frozenset[str] | None = None,
    namespace: Namespace = _NO_NAMESPACE,
) -> RecordBatch:
    """The messages with these tags (None: all) of a pull answer, without the namespace.

    RemoteProtocolError when the body is not made of whole records.
    """
    shown = namespace.plain_queue(queue)
    wanted = frozenset(tag.encode() for tag in tags) if tags is not None else None
    batch = RecordBatch(body, StoredMessage, shown, shown.topic, wanted)
    if batch.fault_at >= 0:
        decode_records(body[batch.fault_at :])  # raises what is wrong
        raise RemoteProtocolError(f"the record at byte {batch.fault_at} is not whole")
    return batch


def messages_of(
    batch: RecordBatch, queue: MessageQueue, namespace: Namespace = _NO_NAMESPACE
) -> tuple[StoredMessage, ...]:
    """All messages of a batch pulled from `queue`; retried ones under the topic of their first delivery."""
    found: list[StoredMessage] = batch.messages()
    if queue.topic.startswith(RETRY_PREFIX):
        for message in found:
            message.topic = namespace.plain(message.properties.get(Property.RETRY_TOPIC) or queue.topic)
    return tuple(found)


def pulled_messages(
    body: bytes,
    queue: MessageQueue,
    tags: frozenset[str] | None = None,
    namespace: Namespace = _NO_NAMESPACE,
) -> tuple[StoredMessage, ...]:
    """As `pulled_batch`, with all messages made."""
    return messages_of(pulled_batch(body, queue, tags, namespace), queue, namespace)
