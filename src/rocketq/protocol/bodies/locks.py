"""Locks on queues, for consumers in order."""

from __future__ import annotations

from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.bodies.queues import MessageQueue


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
