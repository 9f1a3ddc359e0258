"""The body of a pull's answer, cut into messages in one go. See protocol/messages.py for the layout of a record."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.stored_messages import StoredMessage, message_of, row_of
from rocketq.errors import RemoteProtocolError
from rocketq.model import SysFlag
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.messages import MAGIC_V1, decode_records
from rocketq.protocol.names import RETRY_PREFIX, Property

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
