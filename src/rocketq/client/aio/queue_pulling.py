"""Pulling one owned queue of a push consumer, without end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from rocketq.client.aio.group_pulls import GroupPulls
from rocketq.client.aio.puller import PullResult, PullStatus
from rocketq.client.aio.session import Session
from rocketq.client.core.client_figures import ClientFigures
from rocketq.client.core.consumer_config import PushConfig
from rocketq.client.core.offset_table import OffsetTable
from rocketq.client.core.process_queue import OrderlyQueue, ProcessQueue
from rocketq.client.core.pull_window import PullWindow
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscription_table import SubscriptionTable
from rocketq.errors import RocketQError
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.failures import BrokerError, FlowControl, SubscriptionOutdated, SubscriptionUnknown
from rocketq.protocol.flags import MessageModel

BUSY_S: Final = 0.02
WINDOW_CHECK_S: Final = 1.0
LOCK_CHECK_S: Final = 0.05

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class PullPorts:
    """What the pulling of a queue needs of its consumer."""

    session: Session
    group: str
    config: PushConfig
    pulls: GroupPulls
    subscriptions: SubscriptionTable
    offsets: OffsetTable
    commits_with_pulls: bool
    figures: ClientFigures
    resumed: asyncio.Event
    submit: Callable[[ProcessQueue, Sequence[StoredMessage]], None]
    moved: Callable[[ProcessQueue, int], Awaitable[None]]
    """The broker says that our offset is not in the queue, and where to go on."""
    window: PullWindow
    """Replaced when the number of owned queues changes."""


class QueuePulling:
    """Ends when the queue is dropped."""

    def __init__(self, held: ProcessQueue, start_offset: int, ports: PullPorts) -> None:
        self.held = held
        self.next_offset = start_offset
        self._ports = ports
        self._freed = asyncio.Event()
        self._waits = False
        self._refused = self._failed = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """The queue is dropped; a pull under way is left to the broker."""
        self.held.dropped = True
        await self.halt()

    async def halt(self) -> None:
        """No more pulls; what is held may still be finished."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def freed(self) -> None:
        """Less is held than before."""
        if self._waits and self._ports.window.hold_reason(self.held) is None:
            self._freed.set()

    async def _run(self) -> None:
        while not self.held.dropped:
            try:
                await self._step()
            except (SubscriptionUnknown, SubscriptionOutdated) as error:
                log.debug("group %s: %s", self._ports.group, error)
                await self._ports.session.members.heartbeat()  # the broker was restarted, or ours is on its way
                await asyncio.sleep(BUSY_S if self._refused == 0 else self._ports.config.retry_ms / 1000)
                self._refused += 1
            except FlowControl:
                await asyncio.sleep(BUSY_S)
            except RocketQError as error:
                self._complain(error)
                if not isinstance(error, BrokerError) or error.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._ports.session.routes.forget(self.held.queue.topic)
                await asyncio.sleep(self._ports.config.retry_ms / 1000)
            except Exception:  # a filter of a user's own, or garbage of a broker: the queue must go on
                log.exception("group %s: pulling %s failed", self._ports.group, self.held.queue)
                await asyncio.sleep(self._ports.config.retry_ms / 1000)

    async def _step(self) -> None:
        await self._until_ready()
        ports, held, config = self._ports, self.held, self._ports.config
        subscription = ports.subscriptions.get(held.queue.topic)
        if held.dropped:
            return
        if subscription is None:
            await asyncio.sleep(config.retry_ms / 1000)
            return
        began_ms = ports.session.clock.monotonic_ms()
        result = await ports.pulls.pull(
            held.queue,
            self.next_offset,
            subscription,
            count_max=config.pull_batch_max,
            hold_ms=config.hold_ms,
            commit_offset=self._to_commit(),
            tags=ports.subscriptions.tags(held.queue.topic),
            timeout_ms=config.pull_timeout_ms,
        )
        self._refused = self._failed = 0
        if not held.dropped:
            await self._take(result, began_ms)

    def _complain(self, error: RocketQError) -> None:
        """Loud the first time only: a broker may be away for long."""
        level = logging.WARNING if self._failed == 0 else logging.DEBUG
        log.log(level, "group %s: %s: %s", self._ports.group, self.held.queue, error)
        self._failed += 1

    def _to_commit(self) -> int | None:
        if not self._ports.commits_with_pulls or self._ports.config.model is MessageModel.BROADCASTING:
            return None
        return self._ports.offsets.get(self.held.queue) or None

    async def _take(self, result: PullResult, began_ms: int) -> None:
        ports, held = self._ports, self.held
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await ports.moved(held, result.next_offset)
            return
        self.next_offset = result.next_offset
        messages: Sequence[StoredMessage] = result.messages
        if messages:
            now_ms = ports.session.clock.monotonic_ms()
            ports.figures.of(held.queue.topic, now_ms).pulled(now_ms, len(messages), now_ms - began_ms)
            for one in ports.config.filters:
                messages = one.keep(ports.group, held.queue, messages)
        if messages:
            fresh = held.put(messages)
            if fresh:
                ports.submit(held, fresh)
        elif held.count == 0:
            ports.offsets.update(held.queue, result.next_offset, increase_only=True)
        if ports.config.pull_interval_ms and result.status is PullStatus.FOUND:
            await asyncio.sleep(ports.config.pull_interval_ms / 1000)

    async def _until_ready(self) -> None:
        """Not paused, not too much held, and locked where order asks for it."""
        ports, held = self._ports, self.held
        while not held.dropped:
            held.last_pull_ms = ports.session.clock.monotonic_ms()
            if not ports.resumed.is_set():
                await _within(ports.resumed.wait(), WINDOW_CHECK_S)
            elif ports.window.hold_reason(held) is not None:
                await self._until_freed()
            elif self._lacks_lock():
                await asyncio.sleep(LOCK_CHECK_S)
            else:
                return

    def _lacks_lock(self) -> bool:
        clustering = self._ports.config.model is MessageModel.CLUSTERING
        return clustering and isinstance(self.held, OrderlyQueue) and not self.held.locked

    async def _until_freed(self) -> None:
        self._waits = True
        self._freed.clear()
        try:
            await _within(self._freed.wait(), WINDOW_CHECK_S)
        finally:
            self._waits = False


async def _within(wait: Awaitable[object], limit_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await wait
