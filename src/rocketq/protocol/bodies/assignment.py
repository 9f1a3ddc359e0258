"""Queues assigned by the broker, and POP."""

from __future__ import annotations

import base64
import binascii

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import MessageModel, RequestMode


@body
class AssignmentRequest(Body):
    topic: str = member("topic")
    group: str = member("consumerGroup")
    client_id: str = member("clientId")
    strategy: str | None = member("strategyName", default=None)
    model: MessageModel = member("messageModel", default=MessageModel.CLUSTERING)


@body
class Assignment(Body):
    """With POP and full sharing the queue id is -1, one entry per broker."""

    queue: MessageQueue = member("messageQueue")
    mode: RequestMode = member("mode", default=RequestMode.PULL)
    attachments: dict[str, str] | None = member("attachments", default=None)


@body
class AssignmentAnswer(Body):
    """No list means "keep what you have", an empty one "you own nothing"."""

    assignments: tuple[Assignment, ...] | None = member("messageQueueAssignments", default=None)


@body
class GroupRequestMode(Body):
    topic: str = member("topic")
    group: str = member("consumerGroup")
    mode: RequestMode = member("mode", default=RequestMode.PULL)
    share_queue_count: int = member("popShareQueueNum", default=0)


@body
class RequestModes(Body):
    """By topic and group."""

    modes: dict[str, dict[str, GroupRequestMode]] = member("messageRequestModeMap", factory=dict)


@body
class BatchAck(Body):
    """Acknowledged offsets of one popped batch: bit i of `bits`, little-endian, stands for start_offset + i."""

    group: str = member("c", also="consumerGroup")
    topic: str = member("t", also="topic")
    retry: str = member("r", also="retry", default="0")
    start_offset: int = member("so", also="startOffset")
    queue_id: int = member("q", also="queueId")
    revive_queue_id: int = member("rq", also="reviveQueueId")
    pop_ms: int = member("pt", also="popTime")
    invisible_ms: int = member("it", also="invisibleTime")
    bits: str = member("b", also="bitSet", default="")

    @property
    def offsets(self) -> tuple[int, ...]:
        try:
            bits = int.from_bytes(base64.b64decode(self.bits, validate=True), "little")
        except binascii.Error:
            raise RemoteProtocolError("BatchAck.b is not base64") from None
        return tuple(self.start_offset + at for at in range(bits.bit_length()) if bits >> at & 1)


@body
class BatchAcks(Body):
    broker_name: str | None = member("brokerName", default=None)
    acks: tuple[BatchAck, ...] = member("acks", default=())


def ack_bits(start_offset: int, offsets: tuple[int, ...]) -> str:
    """The `bits` of a BatchAck for these queue offsets."""
    bits = sum(1 << offset - start_offset for offset in set(offsets))
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


@body
class LockRequest(Body):
    """Lock, and unlock."""

    group: str = member("consumerGroup")
    client_id: str = member("clientId")
    queues: tuple[MessageQueue, ...] = member("mqSet", default=())
    only_this_broker: bool | None = member("onlyThisBroker", default=None)


@body
class LockAnswer(Body):
    """The queues this client holds now."""

    queues: tuple[MessageQueue, ...] = member("lockOKMQSet", default=())
