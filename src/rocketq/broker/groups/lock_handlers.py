"""Queues locked for consumption in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocketq.broker.groups.queue_locks import QueueLocks
from rocketq.protocol.bodies.assignment import LockAnswer, LockRequest
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.remoting import Handlers, Refusal, Reply, Request
from rocketq.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class LockPorts:
    locks: QueueLocks
    clock: Clock
    may_lock: Callable[[], bool] = lambda: True
    """Not while another broker might lock the same queues."""


handlers: Handlers[LockPorts] = Handlers()


@handlers.on(RequestCode.LOCK_BATCH_MQ)
def lock(request: Request[None], ports: LockPorts) -> Reply:
    if not ports.may_lock():
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "only a master with a valid lease locks queues")
    wish = LockRequest.decode(request.body)
    granted = ports.locks.lock(wish.group, wish.client_id, wish.queues, ports.clock.monotonic_ms())
    return Reply(body=LockAnswer(queues=granted))


@handlers.on(RequestCode.UNLOCK_BATCH_MQ)
def unlock(request: Request[None], ports: LockPorts) -> Reply:
    wish = LockRequest.decode(request.body)
    ports.locks.unlock(wish.group, wish.client_id, wish.queues)
    return Reply()
