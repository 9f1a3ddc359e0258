"""Handles that clients return: receipt handles of POP, the texts of a pop answer, and recall handles.

pop handle     = start-offset SP pop-ms SP invisible-ms SP revive-queue SP retry SP broker SP queue SP offset
start offsets  = *( retry SP queue SP offset ";" )
message offsets= *( retry SP queue SP offset *( "," offset ) ";" )
order counts   = *( retry SP ( queue / "qo" queue "%" offset ) SP count ";" )
retry          = "0" the topic itself, "1" or "2" the group's retry topic in its older or newer name
recall handle  = base64url( "v1" SP topic SP brokerName SP slotMs SP uniqueKey )
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from rocketq.errors import RemoteProtocolError
from rocketq.model import NewMessage
from rocketq.protocol.names import TIMER_TOPIC, Property

ORDERLY_REVIVE_QUEUE_ID = 999

QueueMark = tuple[str, int]
"""The retry mark and the queue id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopHandle:
    """What a consumer gives back to acknowledge one popped message."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int

    @classmethod
    def decode(cls, text: str) -> PopHandle:
        parts = text.split(" ")
        try:
            start, pop_ms, invisible_ms, revive, retry, broker_name, queue_id, queue_offset = parts
            return cls(
                start_offset=int(start),
                pop_ms=int(pop_ms),
                invisible_ms=int(invisible_ms),
                revive_queue_id=int(revive),
                retry=retry,
                broker_name=broker_name,
                queue_id=int(queue_id),
                queue_offset=int(queue_offset),
            )
        except ValueError:
            raise RemoteProtocolError(f"not a pop handle: {text[:120]!r}") from None

    def encode(self) -> str:
        return (
            f"{self.start_offset} {self.pop_ms} {self.invisible_ms} {self.revive_queue_id} "
            f"{self.retry} {self.broker_name} {self.queue_id} {self.queue_offset}"
        )


def decode_start_offsets(text: str) -> dict[QueueMark, int]:
    return {mark: _number(value) for mark, value in _entries(text).items()}


def encode_start_offsets(offsets: dict[QueueMark, int]) -> str:
    return ";".join(f"{retry} {queue_id} {offset}" for (retry, queue_id), offset in offsets.items())


def decode_message_offsets(text: str) -> dict[QueueMark, tuple[int, ...]]:
    return {mark: tuple(_number(item) for item in value.split(",")) for mark, value in _entries(text).items()}


def encode_message_offsets(offsets: dict[QueueMark, tuple[int, ...]]) -> str:
    return ";".join(f"{retry} {queue_id} {','.join(map(str, items))}" for (retry, queue_id), items in offsets.items())


def _entries(text: str) -> dict[QueueMark, str]:
    entries: dict[QueueMark, str] = {}
    for item in filter(None, text.split(";")):
        parts = item.split(" ")
        if len(parts) != 3:
            raise RemoteProtocolError(f"not an offset entry of a pop: {item[:80]!r}")
        mark = (parts[0], _number(parts[1]))
        if mark in entries:
            raise RemoteProtocolError(f"a pop names queue {parts[1]} twice")
        entries[mark] = parts[2]
    return entries


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RemoteProtocolError(f"not a number in a pop: {text[:40]!r}") from None


@dataclass(frozen=True, slots=True)
class RecallHandle:
    topic: str
    broker_name: str
    slot_ms: int
    unique_key: str

    def encode(self) -> str:
        text = f"v1 {self.topic} {self.broker_name} {self.slot_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """RemoteProtocolError when it is none."""
        try:
            raw = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
            parts = raw.decode().split(" ")
        except (binascii.Error, ValueError):
            raise _no_handle(text, "it is not made of base64url and text") from None
        if parts[0] != "v1" or len(parts) != 5:
            raise _no_handle(text, "it does not say v1, a topic, a broker, a time and a key")
        _, topic, broker_name, slot_ms, unique_key = parts
        if not (slot_ms.isascii() and slot_ms.isdigit() and len(slot_ms) < 19):
            raise _no_handle(text, f"its time {slot_ms[:40]!r} is no number")
        return cls(topic, broker_name, int(slot_ms), unique_key)


def _no_handle(text: str, reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{text[:80]!r} is no recall handle: {reason}")


def handle_of(message: NewMessage, properties: dict[str, str], broker_name: str) -> str | None:
    """The handle of a message that waits for its time and has a unique key."""
    if message.topic != TIMER_TOPIC or Property.UNIQUE_KEY not in properties:
        return None
    slot_ms = int(properties[Property.TIMER_OUT_MS])
    return RecallHandle(properties[Property.REAL_TOPIC], broker_name, slot_ms, properties[Property.UNIQUE_KEY]).encode()
