"""The body of a pull's answer, cut into messages in one go."""

from __future__ import annotations

from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.stored_messages import StoredMessage, message_of, row_of
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.messages import decode_records
from rocketq.protocol.names import RETRY_PREFIX, Property

_NO_NAMESPACE = Namespace()


def pulled_messages(
    body: bytes,
    queue: MessageQueue,
    tags: frozenset[str] | None = None,
    namespace: Namespace = _NO_NAMESPACE,
) -> tuple[StoredMessage, ...]:
    """Those of these tags, None for all, as users are to see them: without namespace, and of a retried message the
    topic of its first delivery. RemoteProtocolError when the body is not made of whole records."""
    shown = namespace.plain_queue(queue)
    found = [message_of(row_of(record), shown) for record in decode_records(body)]
    if queue.topic.startswith(RETRY_PREFIX):
        for message in found:
            message.topic = namespace.plain(message.properties.get(Property.RETRY_TOPIC) or queue.topic)
    if tags is None:
        return tuple(found)
    return tuple(message for message in found if message.tag in tags)
