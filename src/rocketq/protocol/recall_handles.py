"""Handles by which a producer takes a message with a timer back.

handle := base64url( "v1" SP topic SP brokerName SP slotMs SP uniqueKey )
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from rocketq.errors import RemoteProtocolError
from rocketq.model import NewMessage
from rocketq.protocol.names import TIMER_TOPIC, Property


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
