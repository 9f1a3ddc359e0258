"""Assignment of queues to the members of a group."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from rocketq.client.core.allocation import AllocationStrategy, share_of
from rocketq.client.core.routes import masters_of, queue_order, subscribe_queues
from rocketq.client.core.subscriptions import SubscriptionTable
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.assignment import AssignmentAnswer, AssignmentRequest
from rocketq.protocol.bodies.clients import ConsumerList
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.failures import BrokerError, TopicNotFoundError
from rocketq.protocol.flags import MessageModel, RequestMode
from rocketq.protocol.headers.groups import ConsumerListRequest
from rocketq.protocol.names import RETRY_PREFIX

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancePlan:
    """What to give away, then what to take (lock it first, in order); a stuck queue is in both."""

    drop: tuple[MessageQueue, ...]
    add: tuple[MessageQueue, ...]

    @property
    def changes(self) -> bool:
        return bool(self.drop or self.add)


def plan_topic(
    owned: Iterable[MessageQueue],
    target: Collection[MessageQueue],
    stuck: Collection[MessageQueue] = (),
) -> RebalancePlan:
    """For one topic. `stuck` are owned queues whose pulls have stopped: they are restarted."""
    have, want = set(owned), set(target)
    again = have & want & set(stuck)
    return RebalancePlan(
        drop=tuple(sorted((have - want) | again, key=queue_order)),
        add=tuple(sorted((want - have) | again, key=queue_order)),
    )


def unsubscribed(owned: Iterable[MessageQueue], topics: Collection[str]) -> tuple[MessageQueue, ...]:
    """Owned queues of topics that are subscribed to no more."""
    return tuple(sorted((queue for queue in owned if queue.topic not in topics), key=queue_order))


UNSETTLED_INTERVAL_MS: Final = 2_000
"""Interval while the assignment of a topic is unknown: it does not exist yet, or no broker answered. Short, so that
consumers find a topic soon after its first message created it."""

MISSING_MS: Final = 2_000
"""How long a subscribed topic may be missing before that is logged."""

LOCKED_INTERVAL_MS: Final = 1_000
"""Interval while an assigned queue could not be started: another member had it locked, or a broker was busy."""


class OwnsQueues(Protocol):
    """The consumer's queues, as the rebalancer sees them."""

    def owned(self) -> Collection[MessageQueue]: ...

    def stuck(self) -> Collection[MessageQueue]:
        """Owned queues whose pulls have stopped, which should not happen: they are restarted."""
        ...

    async def apply(self, topic: str, plan: RebalancePlan) -> bool:
        """Give queues away and take others; True when anything changed."""
        ...


class Rebalancer:
    """Runs a round when woken and every so often; rounds never overlap."""

    def __init__(
        self,
        session: Session,
        group: str,
        owner: OwnsQueues,
        subscriptions: SubscriptionTable,
        *,
        model: MessageModel,
        strategy: AllocationStrategy,
        broker_assigns: bool,
        interval_ms: int,
    ) -> None:
        self._session = session
        self._group = group
        self._owner = owner
        self._subscriptions = subscriptions
        self._model = model
        self._strategy = strategy
        self._broker_assigns = broker_assigns
        self._interval_ms = interval_ms
        self._shared_by_members: set[str] = set()
        self._answered: set[str] = set()
        self._missing: dict[str, int | None] = {}
        """Topics that do not exist, and since when; None once that was logged."""
        self._unsettled = False
        self._waits_for_queues = False
        self._woken = asyncio.Event()
        self.lock = asyncio.Lock()
        """Held during a rebalance and by everything else that moves queues."""
        self.rounds = 0

    def wake(self) -> None:
        self._woken.set()

    @property
    def pause_ms(self) -> int:
        """Until the next round, unless it is woken."""
        if self._waits_for_queues:
            return min(self._interval_ms, LOCKED_INTERVAL_MS)
        return min(self._interval_ms, UNSETTLED_INTERVAL_MS) if self._unsettled else self._interval_ms

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.pause_ms / 1000):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self.round()
            except Exception:  # rebalancing continues after any failure
                log.exception("group %s: a rebalance failed", self._group)

    async def round(self) -> None:
        async with self.lock:
            self._unsettled = self._waits_for_queues = False
            for topic in list(self._subscriptions.topics()):
                await self._topic(topic)
            for queue in unsubscribed(self._owner.owned(), self._subscriptions.topics()):
                await self._owner.apply(queue.topic, RebalancePlan(drop=(queue,), add=()))
            self.rounds += 1

    async def _topic(self, topic: str) -> None:
        try:
            target = await self._target(topic)
        except TopicNotFoundError:
            self._report_missing(topic)
            self._unsettled = True
            return
        except RocketQError as error:
            log.info("group %s: topic %s keeps its share: %s", self._group, topic, error)
            self._unsettled = True
            return
        except Exception:  # a strategy of a user's own must not keep other topics from being shared
            log.exception("group %s: the share of topic %s cannot be worked out", self._group, topic)
            return
        self._missing.pop(topic, None)
        if target is None:
            self._unsettled = True
            return
        if self._subscriptions.get(topic) is None:
            return
        mine = [queue for queue in self._owner.owned() if queue.topic == topic]
        plan = plan_topic(mine, target, self._owner.stuck())
        if not plan.changes:
            return
        self._subscriptions.touch(topic, self._session.clock.now_ms())
        await self._session.members.heartbeat()  # before the first pull, which names the new version
        if await self._owner.apply(topic, plan):
            log.info("group %s: topic %s now has %d queues here", self._group, topic, len(target))
        self._waits_for_queues |= not set(plan.add) <= set(self._owner.owned())

    def _report_missing(self, topic: str) -> None:
        """Log a topic that stays missing, once: a first message may be about to create it."""
        now_ms = self._session.clock.monotonic_ms()
        since_ms = self._missing.setdefault(topic, now_ms)
        if since_ms is not None and now_ms - since_ms >= MISSING_MS and not topic.startswith(RETRY_PREFIX):
            log.warning("group %s: topic %s does not exist; waiting for it", self._group, topic)
            self._missing[topic] = None

    async def _target(self, topic: str) -> Sequence[MessageQueue] | None:
        """The queues that are ours; None to keep what we have."""
        route = await self._session.routes.get(topic)
        queues = subscribe_queues(topic, route)
        if self._model is MessageModel.BROADCASTING:
            return queues
        addrs = list(masters_of(route).values())
        if not queues or not addrs:
            return None
        addr = random.choice(addrs)
        if self._broker_assigns and topic not in self._shared_by_members:
            found = await self._ask_broker(topic, addr)
            if topic not in self._shared_by_members:
                return found
        client_ids = await self._client_ids(addr)
        if self._session.client_id not in client_ids:
            await self._session.members.heartbeat()  # a broker that was restarted has forgotten us
            client_ids = await self._client_ids(addr)
        if not client_ids:
            return None
        return share_of(self._strategy, self._group, self._session.client_id, queues, client_ids)

    async def _client_ids(self, addr: str) -> tuple[str, ...]:
        try:
            answer = await self._session.call(addr, ConsumerListRequest(group=self._group))
        except BrokerError as error:  # it knows no member of this group
            log.debug("group %s: %s", self._group, error)
            return ()
        return ConsumerList.decode(answer.body).client_ids

    async def _ask_broker(self, topic: str, addr: str) -> Sequence[MessageQueue] | None:
        """What a broker assigns. When it refuses the first time, or has us pop, the members share for good."""
        body = AssignmentRequest(
            topic=topic,
            group=self._group,
            client_id=self._session.client_id,
            strategy=self._strategy.name,
            model=self._model,
        ).encode()
        try:
            answer = await self._session.call(addr, None, code=RequestCode.QUERY_ASSIGNMENT, body=body)
        except BrokerError as error:
            if topic not in self._answered:
                log.info("group %s: topic %s is shared by its members: %s", self._group, topic, error)
                self._shared_by_members.add(topic)
            return None
        assignments = AssignmentAnswer.decode(answer.body).assignments
        if assignments is None:
            return None
        if any(one.mode is RequestMode.POP or one.queue.queue_id < 0 for one in assignments):
            self._shared_by_members.add(topic)
            return None
        self._answered.add(topic)
        return [one.queue for one in assignments]
