"""The queues a push consumer owns, and their locks on brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from rocketq.client.consume import ConcurrentService, OrderlyService
from rocketq.client.core.process_queue import OrderlyQueue, ProcessQueue
from rocketq.client.core.routes import MASTER_ID
from rocketq.client.fan_out import outcomes
from rocketq.client.fetcher import PullPorts, QueuePulling
from rocketq.client.offsets import ConsumerOffsets
from rocketq.client.rebalance import RebalancePlan
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.assignment import LockAnswer, LockRequest
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.flags import MessageModel

log = logging.getLogger(__name__)

LOCK_TIMEOUT_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOutcome:
    """Queues that brokers locked for this client, and those that they refused. The others' brokers did not answer."""

    locked: frozenset[MessageQueue]
    rejected: frozenset[MessageQueue]


class QueueLocks:
    """Locks queues for one member of a group. Brokers expire a lock that is not renewed for a minute."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def lock(self, queues: Collection[MessageQueue]) -> LockOutcome:
        """Lock or renew at the masters of these queues."""
        by_addr = await self._by_master(queues)
        calls = {addr: self._lock(addr, asked) for addr, asked in by_addr.items()}
        found = await outcomes(calls)
        for addr, error in found.failures.items():
            log.warning("group %s: no locks from %s: %s", self._group, addr, error)
        locked = frozenset(queue for answer in found.results.values() for queue in answer)
        answered = frozenset(queue for addr in found.results for queue in by_addr[addr])
        return LockOutcome(locked=locked, rejected=answered - locked)

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Release locks; at an unreachable broker they expire."""
        for addr, asked in (await self._by_master(queues)).items():
            body = LockRequest(group=self._group, client_id=self._session.client_id, queues=tuple(asked)).encode()
            try:
                await self._session.call(
                    addr, None, code=RequestCode.UNLOCK_BATCH_MQ, body=body, timeout_ms=LOCK_TIMEOUT_MS
                )
            except RocketQError as error:
                log.info("group %s: unlocking at %s failed, the locks expire there: %s", self._group, addr, error)

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


RELEASE_WAIT_MS: Final = 1_000
BROKER_LOCK_LIFE_MS: Final = 60_000
_POLL_S: Final = 0.005


class PushQueues:
    """The owned queues. Changed only under the rebalancer's lock, or at close."""

    def __init__(self, ports: PullPorts, group_offsets: ConsumerOffsets, locks: QueueLocks) -> None:
        self._ports = ports
        self._group_offsets = group_offsets
        self._locks = locks
        self._full_window = ports.window
        self._owned: dict[MessageQueue, QueuePulling] = {}
        self._maybe_locked: set[MessageQueue] = set()
        """Queues that brokers may have locked for this client, owned or not: a rebalance may be cancelled anywhere."""
        self.lock_lost = asyncio.Event()
        """Set when a broker rejects the lock of an owned queue, which is then to be dropped."""
        self.service: ConcurrentService | OrderlyService
        """Set after construction, because the service also refers to these queues."""
        self._orderly = ports.config.orderly
        self._locking = self._orderly and ports.config.model is MessageModel.CLUSTERING

    # state

    def owned(self) -> Collection[MessageQueue]:
        return list(self._owned)

    def held(self) -> list[ProcessQueue]:
        return [pulling.held for pulling in self._owned.values()]

    def stuck(self) -> Collection[MessageQueue]:
        now_ms = self._now_ms()
        return [queue for queue, pulling in self._owned.items() if pulling.held.pull_is_stuck(now_ms)]

    def freed(self, held: ProcessQueue) -> None:
        pulling = self._owned.get(held.queue)
        if pulling is not None and pulling.held is held:
            pulling.freed()

    # sharing

    async def apply(self, topic: str, plan: RebalancePlan) -> bool:
        changed = False
        for queue in plan.drop:
            changed |= await self.drop(queue)
        free = [queue for queue in plan.add if queue not in self._owned]
        if free:
            changed |= await self._add(free)
        if changed:
            self._ports.window = self._full_window.shared_by(len(self._owned))
        return changed

    async def drop(self, queue: MessageQueue) -> bool:
        """Save its offset before another member may start it. False if its listener still runs."""
        pulling = self._owned.get(queue)
        if pulling is None:
            return False
        if isinstance(self.service, OrderlyService) and isinstance(pulling.held, OrderlyQueue):
            pulling.held.unlock_attempts += 1
            if not await self.service.release(pulling.held, RELEASE_WAIT_MS):
                log.info("%s is kept until the next rebalance: its listener is busy", queue)
                return False
        if isinstance(self.service, ConcurrentService):
            self.service.flush_completed()
        await pulling.stop()
        self._owned.pop(queue, None)
        self._ports.pulls.forget(queue)
        if isinstance(pulling.held, OrderlyQueue) and pulling.held.lock_lost:
            self._group_offsets.table.forget(queue)  # the offsets of its new owner count
            return True
        await self._group_offsets.give_away(queue)
        await self._unlock([queue])
        return True

    async def _add(self, queues: list[MessageQueue]) -> bool:
        """A queue that is locked but cannot be started is unlocked, so that another member can start it."""
        locked = (await self._lock(queues)).locked if self._locking else frozenset(queues)
        added = False
        for queue in queues:
            if queue not in locked:
                log.info("%s is still locked by another member", queue)
                continue
            try:
                offset = await self._group_offsets.start_of(queue)
            except RocketQError as error:
                log.warning("%s is not started yet: %s", queue, error)
                continue
            except Exception:  # a user's store must not prevent other queues from starting
                log.exception("%s is not started yet: the offset store failed", queue)
                continue
            self._start_queue(queue, offset)
            added = True
        await self._unlock([queue for queue in locked if queue not in self._owned])
        return added

    def _start_queue(self, queue: MessageQueue, offset: int) -> None:
        now_ms = self._now_ms()
        held = OrderlyQueue(queue, now_ms) if self._orderly else ProcessQueue(queue, now_ms)
        if isinstance(held, OrderlyQueue):
            held.set_lock(self._locking, now_ms)
        pulling = self._owned[queue] = QueuePulling(held, offset, self._ports)
        pulling.start()

    # locks

    async def _lock(self, queues: Collection[MessageQueue]) -> LockOutcome:
        self._maybe_locked.update(queues)
        return await self._locks.lock(queues)

    async def _unlock(self, queues: Collection[MessageQueue]) -> None:
        if self._locking and queues:
            await self._locks.unlock(queues)
            self._maybe_locked.difference_update(queues)

    async def renew_locks(self) -> bool:
        """Renew the locks of all owned queues. False if one is lost: drop_unlocked() drops it, since another member may
        have it."""
        now_ms = self._now_ms()
        outcome = await self._lock(list(self._owned))
        kept = True
        for queue, pulling in list(self._owned.items()):
            held = pulling.held
            if not isinstance(held, OrderlyQueue):
                continue
            if queue in outcome.rejected:
                self._lose_lock(held)
            elif queue in outcome.locked:
                was_expired = now_ms - held.last_lock_ms > BROKER_LOCK_LIFE_MS
                held.set_lock(not held.lock_lost and not was_expired, now_ms)
                kept = kept and not was_expired
            kept = kept and not held.lock_lost
        return kept

    async def relock(self, held: OrderlyQueue) -> bool:
        """Renew an expired lock. False if it is lost, or the broker does not answer."""
        now_ms = self._now_ms()
        if held.lock_lost or now_ms - held.last_lock_ms > BROKER_LOCK_LIFE_MS:
            return False
        outcome = await self._lock([held.queue])
        if held.queue in outcome.rejected:
            self._lose_lock(held)
        held.set_lock(held.queue in outcome.locked and not held.lock_lost, now_ms)
        return held.locked

    def _lose_lock(self, held: OrderlyQueue) -> None:
        """Another member has the lock: consume nothing more, not even messages that are held."""
        if not held.lock_lost:
            log.warning("group %s: the lock of %s is held by another member", self._ports.group, held.queue)
        held.set_lock(False, self._now_ms())
        held.lock_lost = held.dropped = True
        self._maybe_locked.discard(held.queue)
        self.lock_lost.set()

    async def drop_unlocked(self) -> None:
        """Drop queues whose locks are lost; the next rebalance requests them again."""
        now_ms = self._now_ms()
        self.lock_lost.clear()
        for queue, pulling in list(self._owned.items()):
            held = pulling.held
            if isinstance(held, OrderlyQueue) and (held.lock_lost or now_ms - held.last_lock_ms > BROKER_LOCK_LIFE_MS):
                await self.drop(queue)

    # moving

    async def move(self, offsets: Mapping[MessageQueue, int], wait_ms: int) -> None:
        """Restart queues at these offsets: stop all, wait for running listeners, save the offsets."""
        mine = [self._owned[queue] for queue in offsets if queue in self._owned]
        await asyncio.gather(*(pulling.stop() for pulling in mine))
        deadline_ms = self._now_ms() + wait_ms
        while any(pulling.held.calls for pulling in mine) and self._now_ms() < deadline_ms:
            await asyncio.sleep(_POLL_S)
        for pulling in mine:
            queue = pulling.held.queue
            if isinstance(self.service, OrderlyService) and isinstance(pulling.held, OrderlyQueue):
                await self.service.release(pulling.held, RELEASE_WAIT_MS)
            pulling.held.clear()
            self._owned.pop(queue, None)
            await self._group_offsets.set(queue, offsets[queue])
            self._group_offsets.table.forget(queue)

    async def stop(self, service_wait_ms: int) -> bool:
        """Stop pulling, wait for running listeners, save offsets, release locks."""
        pullings = list(self._owned.values())
        await asyncio.gather(*(pulling.halt() for pulling in pullings))
        finished = await self.service.stop(service_wait_ms)
        for pulling in pullings:
            pulling.held.dropped = True
        await self._group_offsets.save()
        await self._unlock(self._maybe_locked)
        self._owned.clear()
        return finished

    def _now_ms(self) -> int:
        return self._ports.session.clock.monotonic_ms()
