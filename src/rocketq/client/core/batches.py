"""Several messages in one request: split by size, encoded, and accumulated while other requests are in flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from rocketq.client.core.messages import Message, Outgoing
from rocketq.client.errors import MessageInvalidError
from rocketq.errors import ConfigError
from rocketq.protocol.names import RETRY_PREFIX, Property

BATCH_BYTES_MAX: Final = 1 << 20
STORED_BYTES: Final = 91 + 24 + 64
"""What a stored message has more than an element, at most: fixed fields, IPv6 hosts, what brokers add."""

_HEAD = Struct(">iiiii")
_PROPERTIES = Struct(">h")


def batch_fault(messages: Sequence[Message]) -> str | None:
    """Why these cannot be one batch; None when they can."""
    if not messages:
        return "a batch needs a message"
    for message in messages:
        if not isinstance(message, Message):
            return f"a Message was expected, not {type(message).__name__}"
        if message.topic != messages[0].topic:
            return f"a batch has one topic, not {messages[0].topic} and {message.topic}"
        if message.wait != messages[0].wait:
            return "messages of a batch wait alike"
        if message.is_delayed:
            return "messages of a batch cannot be delayed"
    if isinstance(messages[0].topic, str) and messages[0].topic.startswith(RETRY_PREFIX):
        return "a retry topic takes no batches"
    return None


def check_batch(messages: Sequence[Message]) -> None:
    if (fault := batch_fault(messages)) is not None:
        raise MessageInvalidError(fault)


def encode_element(outgoing: Outgoing) -> bytes:
    """One message of a batch; its properties are known to be short enough."""
    body, properties = outgoing.body, outgoing.properties.encode()
    head = _HEAD.pack(22 + len(body) + len(properties), 0, 0, outgoing.flag, len(body))
    return b"".join((head, body, _PROPERTIES.pack(len(properties)), properties))


def stored_bytes(element: bytes, topic: str) -> int:
    """Roughly the size that a broker stores and counts against its limit."""
    return len(element) + STORED_BYTES + len(topic)


def split(sizes: Iterable[int], bytes_max: int) -> Iterator[tuple[int, int]]:
    """[first, end) of consecutive elements that fit one request; one that is too large forms its own request."""
    first = at = total = 0
    for size in sizes:
        if at > first and total + size > bytes_max:
            yield first, at
            first, total = at, 0
        total += size
        at += 1
    if at > first:
        yield first, at


def batch_request(elements: Sequence[bytes], *, wait: bool) -> Outgoing:
    """The batch as one request. Brokers append its properties to each message, so it carries as few as possible."""
    properties = "" if wait else f"{Property.WAIT}\x01false\x02"
    return Outgoing(body=b"".join(elements), sys_flag=0, properties=properties, unique_key="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Concurrent sends share requests.

    A batch is sent when it has `count_max` messages or `bytes_max` bytes, or `linger_ms` after its first message. With
    `linger_ms=0` it is sent immediately while fewer than `requests_max` requests of its kind are in flight, and
    accumulates otherwise: this adds no latency for a single sender, and concurrent senders need few requests.
    """

    linger_ms: int = 0
    count_max: int = 1_000
    bytes_max: int = 256 << 10
    requests_max: int = 4

    def __post_init__(self) -> None:
        if self.linger_ms < 0 or self.count_max < 1 or self.bytes_max < 1 or self.requests_max < 1:
            raise ConfigError("linger_ms is not negative; count_max, bytes_max and requests_max are at least 1")
