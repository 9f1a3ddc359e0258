"""Everything that runs while a pull consumer is started: pulls, shares, offsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from rocketq.client.aio.lite_queues import LitePorts, LiteQueues
from rocketq.client.aio.members import Member
from rocketq.client.aio.rebalancer import Rebalancer
from rocketq.client.aio.sql_check import check_sql
from rocketq.client.core.pulled_queue import PulledQueue
from rocketq.client.core.routes import queue_order
from rocketq.client.core.running_report import running_properties
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.clients import ProcessQueue as QueueReport
from rocketq.protocol.bodies.clients import RunningConsumer
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ConsumeType, ExpressionType

log = logging.getLogger(__name__)


class PullEngine:
    """Belongs to one event loop; made when the consumer starts."""

    def __init__(self, member: Member, ports: LitePorts, began_ms: int) -> None:
        self._member = member
        self._ports = ports
        self._session = ports.session
        self._group = ports.group
        self._config = config = ports.config
        self._keeper = ports.keeper
        self._subscriptions = ports.subscriptions
        self._began_ms = began_ms
        self.queues = LiteQueues(ports)
        self.rebalancer = Rebalancer(
            ports.session,
            ports.group,
            self.queues,
            ports.subscriptions,
            model=config.model,
            strategy=config.strategy,
            broker_assigns=config.broker_assigns,
            interval_ms=config.rebalance_interval_ms,
        )
        self._wanted: Collection[MessageQueue] = ()
        self._sharing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._committed_ms = ports.session.clock.monotonic_ms()

    # life

    async def start(self, assigned: Collection[MessageQueue] | None) -> None:
        """With its share of the topics, or with the queues that were assigned by hand."""
        for subscription in self._subscriptions.all():
            if subscription.expression_type == ExpressionType.SQL92:
                await check_sql(self._session, self._group, subscription)
        await self._session.members.join(self._member)
        if assigned is None:
            await self.rebalancer.round()
            self._sharing = self._run(self.rebalancer.run())
        else:
            self._wanted = assigned
            await self._apply()
        self._run(self._save_now_and_then())

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.queues.stop()
        if self._config.auto_commit:
            self.commit_settled()
        await self._keeper.save()
        await self._session.members.leave(self._member)

    # which queues

    def assign(self, queues: Collection[MessageQueue]) -> None:
        self._wanted = queues
        self._run(self._apply())

    async def _apply(self) -> None:
        if self._sharing is not None:
            self._sharing.cancel()
        await self._session.members.refresh_routes(self._member.topics())
        wanted = self._wanted
        for queue in self.queues.owned():
            if queue not in wanted:
                await self.queues.drop(queue)
        for queue in sorted(wanted, key=queue_order):
            self.queues.add(queue)

    def announce(self, topic: str | None) -> None:
        """Subscriptions changed: brokers are told, and queues shared anew."""
        self._run(self._announce(topic))

    async def _announce(self, topic: str | None) -> None:
        subscription = self._subscriptions.get(topic) if topic is not None else None
        if subscription is not None:
            await self._session.members.refresh_routes([subscription.topic])
            if subscription.expression_type == ExpressionType.SQL92:
                try:
                    await check_sql(self._session, self._group, subscription)
                except RocketQError as error:
                    log.error("group %s: the subscription to %s is refused: %s", self._group, topic, error)
        await self._session.members.heartbeat()
        self.rebalancer.wake()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        async with self.rebalancer.lock:
            for queue, offset in offsets.items():
                if self.queues.get(queue) is not None:
                    await self.queues.seek(queue, offset)
                    await self._keeper.set(queue, offset)

    # which offsets

    def settle(self) -> None:
        """All that was handed out is dealt with."""
        for one in self.queues.all():
            one.settle()

    def commit_settled(self) -> None:
        for one in self.queues.all():
            if one.settled is not None:
                self._keeper.table.update(one.queue, one.settled)

    @property
    def commit_is_due(self) -> bool:
        waited_ms = self._session.clock.monotonic_ms() - self._committed_ms
        return self._config.auto_commit and waited_ms >= self._config.auto_commit_interval_ms

    async def auto_commit(self) -> None:
        """What is settled is saved, if that is due."""
        if self.commit_is_due:
            self._committed_ms = self._session.clock.monotonic_ms()
            self.commit_settled()
            await self._keeper.save()

    async def _save_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._config.persist_interval_ms / 1000)
            await self._keeper.save()

    # what operators ask

    def running_info(self) -> RunningConsumer:
        clock = self._session.clock
        skew_ms = clock.now_ms() - clock.monotonic_ms()
        return RunningConsumer(
            properties=running_properties(
                name_servers=self._session.name_servers.addrs,
                consume_type=ConsumeType.CONSUME_ACTIVELY,
                orderly=False,
                workers=0,
                began_ms=self._began_ms,
                settings=self._config,
            ),
            subscriptions=self._subscriptions.all(),
            queues={one.queue: self._report(one, skew_ms) for one in self.queues.all()},
            rates=self._ports.figures.rates(clock.monotonic_ms()),
        )

    def _report(self, one: PulledQueue, skew_ms: int) -> QueueReport:
        return QueueReport(
            commit_offset=self._keeper.table.get(one.queue) or 0,
            cached_min_offset=one.position or 0,
            cached_max_offset=one.pull_offset or 0,
            cached_count=one.count,
            cached_mib=one.bytes >> 20,
            last_pull_ms=one.last_pull_ms + skew_ms,
        )

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
