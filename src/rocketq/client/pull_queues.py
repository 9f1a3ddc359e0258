"""The queues a pull consumer owns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from rocketq.client.core.config import PullConfig, PullWindow
from rocketq.client.core.consumer_stats import ConsumerStats
from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.process_queue import PULL_IDLE_MS_MAX, MessageList, PulledQueue
from rocketq.client.core.stored_messages import StoredMessage, messages_of
from rocketq.client.core.subscriptions import SubscriptionTable
from rocketq.client.fetcher import GroupPulls, PullStatus
from rocketq.client.offsets import ConsumerOffsets
from rocketq.client.rebalance import RebalancePlan
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.kernel.record_batch import RecordBatch
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.failures import AccessDeniedError, BrokerError, SubscriptionRejectedError
from rocketq.protocol.names import RETRY_PREFIX

log = logging.getLogger(__name__)

CHECK_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class PullQueuePorts:
    session: Session
    group: str
    namespace: Namespace
    config: PullConfig
    pulls: GroupPulls
    subscriptions: SubscriptionTable
    group_offsets: ConsumerOffsets
    stats: ConsumerStats


class PullQueues:
    """Belongs to one event loop."""

    def __init__(self, ports: PullQueuePorts) -> None:
        self._ports = ports
        self._window: PullWindow = ports.config.window
        self._queues: dict[MessageQueue, PulledQueue] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._arrived = asyncio.Event()
        self.denial: AccessDeniedError | None = None
        """Why the broker does not let this group pull."""
        self._freed = asyncio.Event()
        self._turn = 0
        self._order: list[PulledQueue] = []

    # sharing

    def owned(self) -> Collection[MessageQueue]:
        return list(self._queues)

    def stuck(self) -> Collection[MessageQueue]:
        now_ms = self._now_ms()
        return [queue for queue, one in self._queues.items() if now_ms - one.last_pull_ms > PULL_IDLE_MS_MAX]

    async def apply(self, topic: str, plan: RebalancePlan) -> bool:
        for queue in plan.drop:
            await self.drop(queue)
        for queue in plan.add:
            self.add(queue)
        return plan.changes

    def add(self, queue: MessageQueue) -> None:
        if queue not in self._queues:
            one = self._queues[queue] = PulledQueue(queue, self._now_ms())
            self._order = []
            self._tasks[queue] = asyncio.get_running_loop().create_task(self._pull_on(one))

    async def drop(self, queue: MessageQueue) -> None:
        """What was settled of it is saved."""
        one = self._queues.pop(queue, None)
        self._order = []
        if one is None:
            return
        one.dropped = True
        await self._halt(queue)
        self._ports.pulls.forget(queue)
        if self._ports.config.auto_commit and one.consumed is not None:
            self._ports.group_offsets.table.update(queue, one.consumed)
        await self._ports.group_offsets.give_away(queue)

    async def stop(self) -> None:
        for queue in list(self._tasks):
            await self._halt(queue)

    # handing out

    def get(self, queue: MessageQueue) -> PulledQueue | None:
        return self._queues.get(queue)

    def all(self) -> list[PulledQueue]:
        return list(self._queues.values())

    def take(self, count_max: int) -> list[StoredMessage]:
        """Messages of the queues in turn; empty when none is ready."""
        taken: list[StoredMessage] = []
        for step in range(len(self._queues)):
            one = self._in_turn(step)
            if one.ready:
                taken += one.take(count_max - len(taken))
                if len(taken) >= count_max:
                    self._turn += step + 1
                    break
        if taken:
            self._freed.set()
        return taken

    def take_next(self) -> tuple[PulledQueue, StoredMessage] | None:
        """The next message of the next queue that has one; None when none has."""
        for step in range(len(self._queues)):
            one = self._in_turn(step)
            if one.ready and (taken := one.take(1)):
                self._turn += step + 1
                self._freed.set()
                return one, taken[0]
        return None

    def take_parts(self, count_max: int, count_min: int) -> tuple[PulledQueue, list[RecordBatch | MessageList]] | None:
        """The next messages of one queue that has at least `count_min`; None when no queue has."""
        for step in range(len(self._queues)):
            one = self._in_turn(step)
            if one.ready and one.count >= count_min:
                self._turn += step + 1
                self._freed.set()
                return one, one.take_parts(count_max)
        return None

    def _in_turn(self, step: int) -> PulledQueue:
        order = self._order
        if len(order) != len(self._queues):
            order = self._order = list(self._queues.values())
        return order[(self._turn + step) % len(order)]

    def put_back(self, messages: Sequence[StoredMessage]) -> None:
        by_queue: dict[MessageQueue, list[StoredMessage]] = {}
        for message in messages:
            by_queue.setdefault(self._ports.namespace.queue(message.queue), []).append(message)
        for queue, some in by_queue.items():
            if (one := self._queues.get(queue)) is not None:
                one.put_back(some)

    async def arrival(self, timeout_s: float) -> None:
        """Wait until messages may be available, at most `timeout_s`."""
        self._arrived.clear()
        if any(one.ready for one in self._queues.values()):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()

    async def next_arrival(self, timeout_s: float) -> None:
        """Return when more messages came, at the latest after the timeout."""
        self._arrived.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Cancels the pull in flight, which the broker may hold for long."""
        one = self._queues[queue]
        one.seek(offset)
        await self._halt(queue)
        if not one.dropped:
            self._tasks[queue] = asyncio.get_running_loop().create_task(self._pull_on(one))

    def pause(self, queues: Collection[MessageQueue], paused: bool) -> None:
        for queue in queues:
            if (one := self._queues.get(queue)) is not None:
                one.paused = paused
        self._arrived.set()
        self._freed.set()

    # pulling

    async def _pull_on(self, one: PulledQueue) -> None:
        config, failed = self._ports.config, 0
        while not one.dropped:
            try:
                if one.pull_offset is None:
                    one.seek(await self._ports.group_offsets.start_of(one.queue))
                await self._until_ready(one)
                await self._pull(one)
                failed = 0
                self.denial = None
            except RocketQError as error:
                if isinstance(error, AccessDeniedError):
                    self.denial = error
                    self._arrived.set()  # whoever waits is told
                log.log(
                    logging.WARNING if failed == 0 else logging.DEBUG,
                    "group %s: %s: %s",
                    self._ports.group,
                    one.queue,
                    error,
                )
                failed += 1
                if not isinstance(error, BrokerError):
                    self._ports.session.routes.expire(one.queue.topic)
                await asyncio.sleep(config.retry_ms / 1000)
            except Exception:  # a user's filter or store failed, or a broker's answer is garbage: keep pulling
                log.exception("group %s: pulling %s failed", self._ports.group, one.queue)
                await asyncio.sleep(config.retry_ms / 1000)

    async def _pull(self, one: PulledQueue) -> None:
        ports, queue = self._ports, one.queue
        if one.dropped or one.pull_offset is None:
            return
        subscription = ports.subscriptions.get(queue.topic) or Subscription(topic=queue.topic)
        seeks, start_ms = one.seeks, self._now_ms()
        try:
            result = await ports.pulls.fetch(
                queue,
                one.pull_offset,
                subscription,
                count_max=ports.config.pull_batch_max,
                bytes_max=ports.config.pull_bytes_max,
                hold_ms=ports.config.hold_ms,
                tags=ports.subscriptions.tags(queue.topic),
                with_expression=True,
                lite=True,
                timeout_ms=ports.config.pull_timeout_ms,
            )
        except SubscriptionRejectedError as error:
            self.reject(subscription, queue.broker_name, error)
            raise
        ports.subscriptions.accept(subscription, queue.broker_name)
        one.last_pull_ms = self._now_ms()
        if result.status is PullStatus.OFFSET_ILLEGAL:
            if seeks == one.seeks:
                log.warning("group %s: %s: offset out of range, next is %d", ports.group, queue, result.next_offset)
                one.seek(result.next_offset)
            return
        batch = result.batch
        found: RecordBatch | MessageList | None = batch
        if batch is not None and batch.count:
            ports.stats.of(queue.topic, one.last_pull_ms).pulled(
                one.last_pull_ms, batch.count, one.last_pull_ms - start_ms
            )
            if ports.config.filters or queue.topic.startswith(RETRY_PREFIX):
                messages: Sequence[StoredMessage] = messages_of(batch, queue, ports.namespace)
                for keeps in ports.config.filters:
                    messages = keeps.keep(ports.group, queue, messages)
                found = MessageList(messages)
        if one.put(found, result.next_offset, seeks) and found is not None and found.count:
            self._arrived.set()

    def reject(self, subscription: Subscription, broker_name: str, error: SubscriptionRejectedError) -> None:
        """A broker rejected the subscription: callers that wait for messages are woken to raise it."""
        if self._ports.subscriptions.reject(subscription, broker_name, error):
            log.error("group %s: the subscription to %s was rejected: %s", self._ports.group, subscription.topic, error)
            self._arrived.set()

    async def _until_ready(self, one: PulledQueue) -> None:
        """Wait while paused or over the flow-control limits."""
        while not one.dropped:
            one.last_pull_ms = self._now_ms()
            total = sum(other.count for other in self._queues.values())
            if not one.paused and self._window.hold_reason(one) is None and total <= self._ports.config.held_max:
                return
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._freed.wait()

    async def _halt(self, queue: MessageQueue) -> None:
        task = self._tasks.pop(queue, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _now_ms(self) -> int:
        return self._ports.session.clock.monotonic_ms()
