"""Locks that brokers keep on queues consumed in order."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from rocketq.client.aio.scatter import outcomes
from rocketq.client.aio.session import Session
from rocketq.client.core.routes import MASTER_ID
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.assignment import LockAnswer, LockRequest
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode

LOCK_TIMEOUT_MS: Final = 1_000

log = logging.getLogger(__name__)


class QueueLocks:
    """One member of a group has a queue at a time. Brokers forget a lock that is not renewed for a minute."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def lock(self, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        """Those of them that are ours now; asking for one that is ours renews it."""
        by_addr = await self._by_master(queues)
        calls = {addr: self._lock(addr, asked) for addr, asked in by_addr.items()}
        found = await outcomes(calls)
        for addr, error in found.failures.items():
            log.warning("group %s: no locks from %s: %s", self._group, addr, error)
        return frozenset(queue for locked in found.results.values() for queue in locked)

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Given back; a broker that cannot be told forgets them by itself."""
        for addr, asked in (await self._by_master(queues)).items():
            body = LockRequest(group=self._group, client_id=self._session.client_id, queues=tuple(asked)).encode()
            try:
                await self._session.call(
                    addr, None, code=RequestCode.UNLOCK_BATCH_MQ, body=body, timeout_ms=LOCK_TIMEOUT_MS
                )
            except RocketQError as error:
                log.info("group %s: queues stay locked at %s for a while: %s", self._group, addr, error)

    async def _lock(self, addr: str, queues: Collection[MessageQueue]) -> tuple[MessageQueue, ...]:
        body = LockRequest(group=self._group, client_id=self._session.client_id, queues=tuple(queues)).encode()
        answer = await self._session.call(
            addr, None, code=RequestCode.LOCK_BATCH_MQ, body=body, timeout_ms=LOCK_TIMEOUT_MS
        )
        return LockAnswer.decode(answer.body).queues

    async def _by_master(self, queues: Collection[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            try:
                route = await self._session.routes.get(queue.topic)
            except RocketQError as error:
                log.info("group %s: %s: %s", self._group, queue, error)
                continue
            addrs = next((broker.addrs for broker in route.brokers if broker.broker_name == queue.broker_name), {})
            if MASTER_ID in addrs:
                found.setdefault(addrs[MASTER_ID], []).append(queue)
        return found
