"""Queue locks for ordered consumption: one client per group and queue, until it stops renewing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rocketq.protocol.bodies.assignment import LockAnswer, LockRequest
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.remoting import Handlers, Reply, Request, RequestRejected
from rocketq.runtime.clock import Clock

LOCK_LIFE_MS = 60_000


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int


class QueueLocks:
    """Locks by group and queue, in memory only. A lock ends by unlocking or expiry, not with its connection."""

    def __init__(self, life_ms: Callable[[], int] = lambda: LOCK_LIFE_MS) -> None:
        self._life_ms = life_ms
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> tuple[MessageQueue, ...]:
        """Lock or renew queues; returns those that the client holds."""
        locks = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or self._is_over(lock, now_ms):
                locks[queue] = _Lock(client_id, now_ms)
                granted.append(queue)
        return tuple(granted)

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues that the client holds."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def is_locked(self, group: str, now_ms: int) -> bool:
        """Whether the group holds any lock."""
        return any(not self._is_over(lock, now_ms) for lock in self._groups.get(group, {}).values())

    def expire(self, now_ms: int) -> None:
        """Remove expired locks."""
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, lock in locks.items() if self._is_over(lock, now_ms)]:
                del locks[queue]
            if not locks:
                del self._groups[group]

    def _is_over(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._life_ms()


@dataclass(frozen=True, slots=True)
class LockPorts:
    locks: QueueLocks
    clock: Clock
    may_lock: Callable[[], bool] = lambda: True
    """False while another master may grant the same locks."""


handlers: Handlers[LockPorts] = Handlers()


@handlers.on(RequestCode.LOCK_BATCH_MQ)
def lock(request: Request[None], ports: LockPorts) -> Reply:
    if not ports.may_lock():
        raise RequestRejected(
            ResponseCode.SERVICE_NOT_AVAILABLE, "the lease of this master is not valid: queues cannot be locked now"
        )
    wish = LockRequest.decode(request.body)
    granted = ports.locks.lock(wish.group, wish.client_id, wish.queues, ports.clock.monotonic_ms())
    return Reply(body=LockAnswer(queues=granted))


@handlers.on(RequestCode.UNLOCK_BATCH_MQ)
def unlock(request: Request[None], ports: LockPorts) -> Reply:
    wish = LockRequest.decode(request.body)
    ports.locks.unlock(wish.group, wish.client_id, wish.queues)
    return Reply()
