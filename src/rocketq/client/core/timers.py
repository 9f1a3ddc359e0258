"""Which messages of a broker's timer topic still wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocketq.client.core.stored_messages import StoredMessage
from rocketq.protocol.handles import RecallHandle
from rocketq.protocol.names import Property

SLOT_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTimer:
    """`due_ms` is the end of the second it is due in. `handle` takes it back; None where it has no unique key."""

    topic: str
    queue_id: int
    broker_name: str
    due_ms: int
    unique_key: str | None
    born_ms: int
    body_bytes: int
    handle: str | None


def waiting_timers(broker_name: str, messages: Iterable[StoredMessage], now_ms: int) -> list[WaitingTimer]:
    """In the order they were sent; one that was put on its way again counts once, one that was taken back not."""
    found: dict[object, WaitingTimer] = {}
    for message in messages:
        properties = message.properties
        if (taken_back := properties.get(Property.TIMER_DELETES)) is not None:
            found.pop(taken_back, None)
            continue
        slot_text = properties.get(Property.TIMER_OUT_MS, "")
        topic = properties.get(Property.REAL_TOPIC)
        if topic is None or not slot_text.isdigit() or int(slot_text) + SLOT_MS <= now_ms:
            continue
        key = properties.get(Property.UNIQUE_KEY)
        name: object = f"{topic}+{key}" if key else message.queue_offset
        handle = RecallHandle(topic, broker_name, int(slot_text), key).encode() if key else None
        found[name] = WaitingTimer(
            topic=topic,
            queue_id=int(properties.get(Property.REAL_QUEUE_ID, "0")),
            broker_name=broker_name,
            due_ms=int(slot_text) + SLOT_MS,
            unique_key=key,
            born_ms=message.born_ms,
            body_bytes=len(message.body),
            handle=handle,
        )
    return list(found.values())
