"""Messages to send: fields, checks, unique ids, and encoding for a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.errors import MessageInvalidError, RecallHandleError
from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.kernel.send_batch import MessageFields, UniqueIdSource
from rocketq.protocol.compression import Compression, compress
from rocketq.protocol.handles import RecallHandle
from rocketq.protocol.names import DLQ_PREFIX, NOT_FOR_CLIENTS, RETRY_PREFIX, Property, topic_fault
from rocketq.protocol.properties import PROPERTIES_BYTES_MAX, encode_properties

_IPV6_CHARS: Final = 56
_IPV4_CHARS: Final = 32


class UniqueIds:
    """Ids of one process. Two of one millisecond differ in the counter."""

    def __init__(self, ip: bytes, process_id: int, salt: int) -> None:
        head = ip + (process_id & 0xFFFF).to_bytes(2, "big") + (salt & 0xFFFFFFFF).to_bytes(4, "big")
        self._source = UniqueIdSource(head.hex().upper().encode())

    def next(self, now_ms: int) -> str:
        return self.source(now_ms).next_id(now_ms).decode()

    def source(self, now_ms: int) -> UniqueIdSource:
        """The same ids for the kernel, ready for this time."""
        source = self._source
        if not source.start_ms <= now_ms < source.end_ms:
            source.start_ms = month_start_ms(now_ms)
            source.end_ms = _next_month_ms(source.start_ms)
        return source


def born_ms_of(unique_key: str, now_ms: int) -> int | None:
    """About when an id was made, in this month or the last; None when it is no such id."""
    if len(unique_key) not in (_IPV4_CHARS, _IPV6_CHARS):
        return None
    try:
        span_ms = int(unique_key[-12:-4], 16)
    except ValueError:
        return None
    start_ms = month_start_ms(now_ms)
    return start_ms + span_ms if start_ms + span_ms <= now_ms else month_start_ms(start_ms - 1) + span_ms


def month_start_ms(now_ms: int) -> int:
    """Midnight of the month's first day, local time."""
    first = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return round(first.timestamp() * 1000)


def _next_month_ms(month_ms: int) -> int:
    inside_next = datetime.fromtimestamp(month_ms / 1000) + timedelta(days=32)
    return month_start_ms(round(inside_next.timestamp() * 1000))


BODY_BYTES_MAX: Final = 4 << 20
COMPRESS_FROM_BYTES: Final = 4096
_NAME_END: Final = "\x01"
_VALUE_END: Final = "\x02"


@dataclass(frozen=True, kw_only=True)
class _MessageSpec:
    """The fields of a Message for `dataclasses.replace`, `fields` and `asdict`."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    wait: bool = True


class Message(MessageFields):
    """A message to send; it cannot be changed, `dataclasses.replace` makes another one.

        Message("Orders", b"...", tag="new", keys="order-1")

    `keys` find it again, a consumer subscribes to a topic or to tags of it. At most one of `delay_level` (1 to 18 with
    the broker's usual table), `delay_ms` and `deliver_at_ms` (5.x brokers and ours) delays the delivery. With
    `wait=False` the answer does not wait for disk and replicas.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]] = _MessageSpec.__dataclass_fields__

    if TYPE_CHECKING:

        def __init__(
            self,
            topic: str,
            body: bytes,
            *,
            tag: str | None = None,
            keys: str | tuple[str, ...] = (),
            properties: Mapping[str, str] | None = None,
            flag: int = 0,
            delay_level: int = 0,
            delay_ms: int | timedelta | None = None,
            deliver_at_ms: int | datetime | None = None,
            wait: bool = True,
        ) -> None: ...

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        body = self.body
        if isinstance(body, bytes) and len(body) > _BODY_SHOWN_BYTES:
            shown = f"{body[:_BODY_SHOWN_BYTES]!r}... ({len(body)} bytes)"
        else:
            shown = repr(body)
        values = zip(_MESSAGE_FIELDS, _values(self), strict=True)
        inside = ", ".join(f"{name}={shown if name == 'body' else repr(value)}" for name, value in values)
        return f"{type(self).__name__}({inside})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), _values(self))

    def all_properties(self, unique_key: str) -> dict[str, str]:
        """Ours in front; the user's own keep their order and win, so that a message may bring its own id."""
        ours = {Property.UNIQUE_KEY: unique_key, Property.WAIT: "true" if self.wait else "false"}
        if self.tag:
            ours[Property.TAGS] = self.tag
        if self.keys:
            ours[Property.KEYS] = " ".join(self.keys)
        if self.delay_level:
            ours[Property.DELAY] = str(self.delay_level)
        if self.delay_ms is not None:
            ours[Property.TIMER_DELAY_MS] = str(self.delay_ms)
        if self.deliver_at_ms is not None:
            ours[Property.TIMER_DELIVER_MS] = str(self.deliver_at_ms)
        return ours | dict(self.properties)


_MESSAGE_FIELDS: Final = tuple(_MessageSpec.__dataclass_fields__)
_BODY_SHOWN_BYTES: Final = 64
_values: Final[Callable[[Any], tuple[Any, ...]]] = attrgetter(*_MESSAGE_FIELDS)


def _restored(kind: type[Message], values: tuple[Any, ...]) -> Message:
    return kind(**dict(zip(_MESSAGE_FIELDS, values, strict=True)))


@dataclass(slots=True)
class Outgoing:
    """A message as its request carries it."""

    body: bytes
    sys_flag: int
    properties: str
    unique_key: str
    flag: int = 0
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOptions:
    """How large a message may be, and how bodies are compressed."""

    body_bytes_max: int = BODY_BYTES_MAX
    compress_from_bytes: int = COMPRESS_FROM_BYTES
    compression: Compression = Compression.ZLIB
    compress_level: int = 5


USUAL_PACKING: Final = EncodeOptions()


def prepare(
    message: Message,
    unique_key: str,
    encode_options: EncodeOptions = USUAL_PACKING,
    *,
    extra: Mapping[str, str] | None = None,
    body_bytes_max: int | None = None,
) -> Outgoing:
    """Checked and encoded, compressed if that is smaller; MessageInvalidError if it is invalid.

    `extra` are properties that only a client itself may set.
    """
    outgoing = check_and_encode(message, unique_key, encode_options, extra=extra, body_bytes_max=body_bytes_max)
    if len(message.body) >= encode_options.compress_from_bytes:
        smaller = compress(message.body, encode_options.compression, level=encode_options.compress_level)
        if len(smaller) < len(message.body):
            outgoing.body = smaller
            outgoing.sys_flag |= encode_options.compression.sys_flag
    return outgoing


def check_and_encode(
    message: Message,
    unique_key: str,
    encode_options: EncodeOptions = USUAL_PACKING,
    *,
    extra: Mapping[str, str] | None = None,
    body_bytes_max: int | None = None,
) -> Outgoing:
    """As `prepare`, with the body as it is."""
    check(message, encode_options.body_bytes_max if body_bytes_max is None else body_bytes_max)
    tag, keys = message.tag, message.keys
    if not message.properties and not extra and not message.is_delayed and message.wait and _is_plain(tag, keys):
        text = f"{Property.UNIQUE_KEY}{_NAME_END}{unique_key}{_VALUE_END}{Property.WAIT}{_NAME_END}true{_VALUE_END}"
        if tag:
            text += f"{Property.TAGS}{_NAME_END}{tag}{_VALUE_END}"
        if keys:
            text += f"{Property.KEYS}{_NAME_END}{' '.join(keys)}{_VALUE_END}"
        if len(text) <= PROPERTIES_BYTES_MAX >> 2:  # so short that no encoding of it is too long
            return Outgoing(message.body, 0, text, unique_key, message.flag)
    return _encode_all(message, unique_key, extra or {})


def _encode_all(message: Message, unique_key: str, extra: Mapping[str, str]) -> Outgoing:
    properties = message.all_properties(unique_key) | dict(extra)
    times = _number(properties, Property.RECONSUME_TIMES)
    times_max = _number(properties, Property.MAX_RECONSUME_TIMES)
    try:
        encoded = encode_properties(properties)
    except LocalProtocolError as error:
        raise MessageInvalidError(str(error)) from None
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise MessageInvalidError(f"the properties have {len(encoded)} bytes, over {PROPERTIES_BYTES_MAX}")
    return Outgoing(
        body=message.body,
        sys_flag=0,
        properties=encoded.decode(),
        unique_key=properties[Property.UNIQUE_KEY],
        flag=message.flag,
        reconsume_times=times or 0,
        max_reconsume_times=times_max,
    )


def _number(properties: dict[str, str], name: str) -> int | None:
    """A property that a request carries as a field of its header instead."""
    text = properties.pop(name, None)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise MessageInvalidError(f"property {name} is no number: {text[:40]!r}") from None


def _is_plain(tag: str | None, keys: tuple[str, ...]) -> bool:
    """Whether nothing in them could be taken for a separator."""
    return not (tag and not tag.isprintable()) and (not keys or all(map(str.isprintable, keys)))


def check(message: Message, body_bytes_max: int = BODY_BYTES_MAX) -> None:
    """MessageInvalidError when no broker would take it."""
    if (fault := _fault(message, body_bytes_max)) is not None:
        raise MessageInvalidError(fault)


_legal_topics: dict[str, None] = {}
_LEGAL_TOPICS_MAX: Final = 10_000


def _fault(message: Message, body_bytes_max: int) -> str | None:
    if not isinstance(message, Message):
        return f"a Message was expected, not {type(message).__name__}"
    if message.topic not in _legal_topics and (fault := _topic_fault(message.topic)) is not None:
        return fault
    body = message.body
    if not isinstance(body, bytes):
        return f"the body is bytes, not {type(body).__name__}"
    if not body:
        return "the body is empty"
    if len(body) > body_bytes_max:
        return f"the body has {len(body)} bytes, over {body_bytes_max}"
    if message.keys and (fault := _keys_fault(message.keys)) is not None:
        return fault
    if message.tag is not None and not isinstance(message.tag, str):
        return f"the tag is text, not {type(message.tag).__name__}"
    return _delay_fault(message) if message.is_delayed else None


def _topic_fault(topic: str) -> str | None:
    if not isinstance(topic, str):
        return f"the topic is text, not {type(topic).__name__}"
    if (fault := topic_fault(topic)) is not None:
        return fault
    if topic in NOT_FOR_CLIENTS:
        return f"topic {topic} is the broker's own"
    if len(_legal_topics) < _LEGAL_TOPICS_MAX:
        _legal_topics[topic] = None  # most messages go to few topics
    return None


def _keys_fault(keys: tuple[str, ...]) -> str | None:
    if isinstance(keys, str):
        return f'keys are several: write keys=("{keys[:40]}",)'
    for key in keys:
        if not isinstance(key, str):
            return f"a key is text, not {type(key).__name__}"
        if not key or " " in key:
            return "a key is empty or has a blank in it"
    return None


def _delay_fault(message: Message) -> str | None:
    given = [bool(message.delay_level), message.delay_ms is not None, message.deliver_at_ms is not None]
    if sum(given) > 1:
        return "only one of delay_level, delay_ms and deliver_at_ms can say when it is delivered"
    for name, value in (
        ("delay_level", message.delay_level),
        ("delay_ms", message.delay_ms),
        ("deliver_at_ms", message.deliver_at_ms),
    ):
        if value is not None and (type(value) is not int or value < 0):
            return f"{name} is a whole number from 0 on, not {value!r}"
    return None


_NOT_FOR_USERS: Final = frozenset(
    {
        Property.CLUSTER,
        Property.CORRELATION_ID,
        Property.DELAY,
        Property.INSTANCE_ID,
        Property.KEYS,
        Property.MAX_OFFSET,
        Property.MAX_RECONSUME_TIMES,
        Property.MESSAGE_TYPE,
        Property.MIN_OFFSET,
        Property.POP_HANDLE,
        Property.PRODUCER_GROUP,
        Property.REAL_QUEUE_ID,
        Property.REAL_TOPIC,
        Property.RECONSUME_TIMES,
        Property.REPLY_TO_CLIENT,
        Property.RETRY_TOPIC,
        Property.TAGS,
        Property.TIMER_DELAY_MS,
        Property.TIMER_DELAY_SECONDS,
        Property.TIMER_DELIVER_MS,
        Property.TRANSACTION_CHECK_TIMES,
        Property.TRANSACTION_ID,
        Property.TRANSACTION_PREPARED,
        Property.TRANSACTION_PREPARED_OFFSET,
        Property.TTL,
        Property.WAIT,
    }
)
"""A message that carried one of these would be taken for something else, or there is a field for it."""


def check_properties(properties: Mapping[str, str]) -> None:
    """MessageInvalidError for properties that users must not set."""
    if not isinstance(properties, Mapping):
        raise MessageInvalidError(f"properties are a mapping of texts, not {type(properties).__name__}")
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise MessageInvalidError(f"names and values of properties are text: {name!r}={value!r}")
        if not name.strip() or not value.strip():
            raise MessageInvalidError(f"a property needs a name and a value: {name!r}={value[:40]!r}")
        if name in _NOT_FOR_USERS:
            raise MessageInvalidError(f"property {name} is set by clients and brokers only")


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
"""Set by brokers and clients for one delivery, or stored in separate fields."""

NOT_IN_COPIES: Final = _NOT_FOR_USERS | _OF_ONE_DELIVERY
"""Properties of a stored message that a new message must not have."""

NOT_COPIED: Final = _NOT_FOR_USERS | _OF_ONE_DELIVERY
"""Properties that no copy of a message may have."""


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


def decode_recall_handle(handle: object) -> RecallHandle:
    """Where the message of a handle waits; RecallHandleError when it is none."""
    if handle is None:
        raise RecallHandleError("the message has no recall handle: only one with a timer has, not of every broker")
    if not isinstance(handle, str):
        raise RecallHandleError(f"a recall handle is a text, not {type(handle).__name__}")
    try:
        return RecallHandle.decode(handle)
    except RemoteProtocolError as error:
        raise RecallHandleError(str(error)) from None


def half_properties(group: str) -> dict[str, str]:
    return {Property.TRANSACTION_PREPARED: "true", Property.PRODUCER_GROUP: group}
