"""Which half messages are undecided, by what brokers keep of them: halves and the op messages that settle them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocketq.client.core.stored_messages import StoredMessage
from rocketq.protocol.names import Property


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHalf:
    """A half nobody has decided on. `checks`: so often a producer of its group was asked."""

    broker_name: str
    topic: str
    queue_id: int
    group: str
    unique_key: str
    offset_message_id: str
    queue_offset: int
    born_ms: int
    checks: int
    body_bytes: int


def open_halves(halves: Iterable[StoredMessage], ops: Iterable[StoredMessage]) -> tuple[OpenHalf, ...]:
    """Of one broker, oldest first. A half that was asked about has copies: the newest counts."""
    settled = {offset for op in ops for offset in _numbers(op.body)}
    newest: dict[int, StoredMessage] = {}
    for half in halves:
        if half.queue_offset not in settled:
            root = _number(half.properties.get(Property.TRANSACTION_PREPARED_OFFSET, ""), half.queue_offset)
            newest.pop(root, None)
            newest[root] = half
    return tuple(_open_half(half) for half in newest.values())


def _open_half(half: StoredMessage) -> OpenHalf:
    properties = half.properties
    return OpenHalf(
        broker_name=half.queue.broker_name,
        topic=properties.get(Property.REAL_TOPIC, ""),
        queue_id=_number(properties.get(Property.REAL_QUEUE_ID, ""), 0),
        group=properties.get(Property.PRODUCER_GROUP, ""),
        unique_key=properties.get(Property.UNIQUE_KEY, ""),
        offset_message_id=half.offset_message_id,
        queue_offset=half.queue_offset,
        born_ms=half.born_ms,
        checks=_number(properties.get(Property.TRANSACTION_CHECK_TIMES, ""), 0),
        body_bytes=len(half.stored_body),
    )


def _numbers(body: bytes) -> list[int]:
    """`7`, or from brokers of 5.x `7,9,`."""
    return [int(part) for part in body.split(b",") if part.isdigit()]


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdigit() else otherwise
