"""The body of a pull's answer, cut into messages in one go."""

from __future__ import annotations

from rocketq.client.core.stored_messages import StoredMessage, message_of, row_of
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.messages import decode_records


def pulled_messages(body: bytes, queue: MessageQueue, tags: frozenset[str] | None = None) -> tuple[StoredMessage, ...]:
    """Those of these tags; None for all. RemoteProtocolError when the body is not made of whole records."""
    found = [message_of(row_of(record), queue) for record in decode_records(body)]
    if tags is None:
        return tuple(found)
    return tuple(message for message in found if message.tag in tags)
