"""Pull requests: single pulls, and the pull loop of an owned queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rocketq.client.core.config import PullWindow, PushConfig
from rocketq.client.core.consumer_stats import ConsumerStats
from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.offsets import OffsetTable
from rocketq.client.core.process_queue import OrderlyQueue, ProcessQueue
from rocketq.client.core.requests import PullTemplate
from rocketq.client.core.routes import MASTER_ID, broker_addr
from rocketq.client.core.stored_messages import StoredMessage, messages_of, pulled_batch, stored_message
from rocketq.client.core.subscriptions import ALL, SubscriptionTable, is_wanted, tags_of
from rocketq.client.errors import NoQueueError
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.kernel.record_batch import RecordBatch
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import (
    AccessDeniedError,
    BrokerError,
    FlowControlError,
    SubscriptionOutdatedError,
    SubscriptionRejectedError,
    SubscriptionUnknownError,
    failure_of,
)
from rocketq.protocol.flags import ExpressionType, MessageModel, PullFlag
from rocketq.protocol.headers.pull import PullRequest, PullResponse
from rocketq.protocol.messages import decode_records

log = logging.getLogger(__name__)

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""A group that every broker has; reading with it changes no state."""
PULL_TIMEOUT_MS: Final = 10_000
COUNT_MAX: Final = 32


class PullStatus(StrEnum):
    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MESSAGE"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


PULL_STATUSES: Final = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """The next pull starts at `next_offset`, with every status."""

    status: PullStatus
    messages: tuple[StoredMessage, ...]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """As PullResult, with messages that are not made yet; `batch` is None unless the status is FOUND."""

    status: PullStatus
    batch: RecordBatch | None
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int


class Puller:
    """Pulls in the name of `group` without joining it: it commits nothing."""

    def __init__(self, session: Session, group: str = TOOLS_GROUP) -> None:
        self._session = session
        self._group = group
        self._suggested: dict[MessageQueue, int] = {}

    async def pull(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        expression: str = ALL,
        count_max: int = COUNT_MAX,
        hold_ms: int = 0,
        timeout_ms: int = PULL_TIMEOUT_MS,
    ) -> PullResult:
        """The messages from this offset on; with `hold_ms` the broker waits up to that long for a first message."""
        route = await self._session.routes.get(queue.topic)
        addr = broker_addr(route, queue.broker_name, self._suggested.get(queue, 0))
        if addr is None:
            raise NoQueueError(queue.topic, f"broker {queue.broker_name} is not in the route")
        request = PullRequest(
            group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            count_max=count_max,
            sys_flag=int(PullFlag.SUBSCRIPTION | (PullFlag.HOLD if hold_ms else 0)),
            hold_ms=hold_ms,
            subscription=expression,
            expression_type=ExpressionType.TAG,
        )
        answer = await self._session.call(addr, request, timeout_ms=timeout_ms + hold_ms, accept=PULL_STATUSES)
        header = PullResponse.decode(answer.ext_fields)
        self._suggested[queue] = header.suggested_broker_id
        status = PULL_STATUSES[ResponseCode(answer.code)]
        return PullResult(
            status=status,
            messages=_decode(answer.body, queue, expression) if status is PullStatus.FOUND else (),
            next_offset=header.next_offset,
            min_offset=header.min_offset,
            max_offset=header.max_offset,
            suggested_broker_id=header.suggested_broker_id,
        )


def _decode(body: bytes, queue: MessageQueue, expression: str) -> tuple[StoredMessage, ...]:
    tags = tags_of(expression)
    found = (stored_message(record, queue.broker_name) for record in decode_records(body))
    return tuple(message for message in found if is_wanted(message.tag, tags))


_HOLD, _COMMIT = int(PullFlag.HOLD), int(PullFlag.COMMIT_OFFSET)
_SUBSCRIPTION, _LITE = int(PullFlag.SUBSCRIPTION), int(PullFlag.LITE)
_SUCCESS = int(ResponseCode.SUCCESS)


class GroupPulls:
    """Pulls from the broker id that the last answer suggested: a slave if the master is busy."""

    def __init__(self, session: Session, group: str, namespace: Namespace) -> None:
        self._session = session
        self._group = group
        self._namespace = namespace
        self._suggested: dict[MessageQueue, int] = {}
        self._templates: dict[MessageQueue, PullTemplate] = {}

    def forget(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)
        self._templates.pop(queue, None)

    async def pull(
        self,
        queue: MessageQueue,
        queue_offset: int,
        subscription: Subscription,
        *,
        count_max: int,
        bytes_max: int | None = None,
        hold_ms: int = 0,
        commit_offset: int | None = None,
        tags: frozenset[str] | None = None,
        with_expression: bool = False,
        lite: bool = False,
        timeout_ms: int,
    ) -> PullResult:
        """The messages; those with other tags than `tags` are removed, since brokers only compare hashes."""
        found = await self.fetch(
            queue,
            queue_offset,
            subscription,
            count_max=count_max,
            bytes_max=bytes_max,
            hold_ms=hold_ms,
            commit_offset=commit_offset,
            tags=tags,
            with_expression=with_expression,
            lite=lite,
            timeout_ms=timeout_ms,
        )
        return PullResult(
            status=found.status,
            messages=messages_of(found.batch, queue, self._namespace) if found.batch is not None else (),
            next_offset=found.next_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            suggested_broker_id=found.suggested_broker_id,
        )

    async def fetch(
        self,
        queue: MessageQueue,
        queue_offset: int,
        subscription: Subscription,
        *,
        count_max: int,
        bytes_max: int | None = None,
        hold_ms: int = 0,
        commit_offset: int | None = None,
        tags: frozenset[str] | None = None,
        with_expression: bool = False,
        lite: bool = False,
        timeout_ms: int,
    ) -> Fetched:
        """As `pull`, with the messages as a batch."""
        addr, broker_id = await self._addr(queue)
        flags = _HOLD if hold_ms else 0
        if commit_offset is not None and broker_id == MASTER_ID:
            flags |= _COMMIT
        if with_expression:
            flags |= _SUBSCRIPTION
        if lite:
            flags |= _LITE
        committed = commit_offset or 0
        if self._session.is_plain:
            template = self._template(queue, subscription, count_max, bytes_max, with_expression)
            connection = self._session.opened(addr)
            if connection is None or connection.writes_paused:
                connection, timeout_ms = await self._session.writable(addr, RequestCode.PULL_MESSAGE, timeout_ms)
            answer = await connection.start_call(
                RequestCode.PULL_MESSAGE,
                timeout_ms,
                lambda opaque: template.frame(opaque, queue_offset, flags, committed, hold_ms),
            )
            if answer.code not in PULL_STATUSES:
                raise failure_of(answer, peer=addr)
        else:
            request = PullRequest(
                group=self._group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=queue_offset,
                count_max=count_max,
                sys_flag=flags,
                commit_offset=committed,
                hold_ms=hold_ms,
                subscription=subscription.expression if with_expression else None,
                subscription_version=0 if with_expression else subscription.version,
                expression_type=subscription.expression_type,
                bytes_max=bytes_max,
            )
            answer = await self._session.call(addr, request, timeout_ms=timeout_ms, accept=PULL_STATUSES)
        return self._result(answer, queue, tags)

    def _result(self, answer: Command, queue: MessageQueue, tags: frozenset[str] | None) -> Fetched:
        header = PullResponse.decode(answer.ext_fields)
        self._suggested[queue] = header.suggested_broker_id
        found = answer.code == _SUCCESS
        return Fetched(
            status=PullStatus.FOUND if found else PULL_STATUSES[ResponseCode(answer.code)],
            batch=pulled_batch(answer.body, queue, tags, self._namespace) if found else None,
            next_offset=header.next_offset,
            min_offset=header.min_offset,
            max_offset=header.max_offset,
            suggested_broker_id=header.suggested_broker_id,
        )

    def _template(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        count_max: int,
        bytes_max: int | None,
        with_expression: bool,
    ) -> PullTemplate:
        known = self._templates.get(queue)
        if (
            known is not None
            and known.subscription is subscription
            and known.count_max == count_max
            and known.bytes_max == bytes_max
        ):
            return known
        template = PullTemplate(
            self._group,
            queue,
            subscription,
            count_max=count_max,
            bytes_max=bytes_max,
            with_expression=with_expression,
        )
        self._templates[queue] = template
        return template

    async def _addr(self, queue: MessageQueue) -> tuple[str, int]:
        route = await self._session.routes.get(queue.topic)
        wanted = self._suggested.get(queue, MASTER_ID)
        addrs = next((broker.addrs for broker in route.brokers if broker.broker_name == queue.broker_name), {})
        if wanted in addrs:
            return addrs[wanted], wanted
        addr = broker_addr(route, queue.broker_name)
        if addr is None:
            raise NoQueueError(queue.topic, f"broker {queue.broker_name} is not in the route")
        return addr, next(broker_id for broker_id, one in addrs.items() if one == addr)


BUSY_S: Final = 0.02
WINDOW_CHECK_S: Final = 1.0
LOCK_CHECK_S: Final = 0.05


@dataclass(slots=True, kw_only=True)
class PullPorts:
    """Dependencies of the pull loop of a queue."""

    session: Session
    group: str
    config: PushConfig
    pulls: GroupPulls
    subscriptions: SubscriptionTable
    offsets: OffsetTable
    commits_with_pulls: bool
    stats: ConsumerStats
    resumed: asyncio.Event
    submit: Callable[[ProcessQueue, Sequence[StoredMessage]], None]
    moved: Callable[[ProcessQueue, int], Awaitable[None]]
    """Called when the requested offset is outside of the queue, with the broker's next offset."""
    rejected: Callable[[Subscription, str, SubscriptionRejectedError], None]
    """Called when the broker of this name rejects the subscription."""
    window: PullWindow
    """Replaced when the number of owned queues changes."""


class QueuePulling:
    """The pull loop of one queue. Ends when the queue is dropped."""

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
        """The queue is dropped; a pull in flight is abandoned."""
        self.held.dropped = True
        await self.halt()

    async def halt(self) -> None:
        """Stop pulling; held messages may still be finished."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def freed(self) -> None:
        """Fewer messages are held than before."""
        if self._waits and self._ports.window.hold_reason(self.held) is None:
            self._freed.set()

    async def _run(self) -> None:
        while not self.held.dropped:
            try:
                await self._step()
            except (SubscriptionUnknownError, SubscriptionOutdatedError) as error:
                log.debug("group %s: %s", self._ports.group, error)
                await self._ports.session.members.heartbeat()  # the broker restarted, or lacks our heartbeat
                await asyncio.sleep(BUSY_S if self._refused == 0 else self._ports.config.retry_ms / 1000)
                self._refused += 1
            except FlowControlError:
                await asyncio.sleep(BUSY_S)
            except RocketQError as error:
                self._complain(error)
                if not isinstance(error, BrokerError) or error.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._ports.session.routes.expire(self.held.queue.topic)
                await asyncio.sleep(self._ports.config.retry_ms / 1000)
            except Exception:  # a user's filter failed, or a broker's answer is garbage: keep pulling
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
        start_ms = ports.session.clock.monotonic_ms()
        try:
            result = await ports.pulls.pull(
                held.queue,
                self.next_offset,
                subscription,
                count_max=config.pull_batch_max,
                bytes_max=config.pull_bytes_max,
                hold_ms=config.hold_ms,
                commit_offset=self._to_commit(),
                tags=ports.subscriptions.tags(held.queue.topic),
                with_expression=config.post_subscription,
                timeout_ms=config.pull_timeout_ms,
            )
        except SubscriptionRejectedError as error:
            ports.rejected(subscription, held.queue.broker_name, error)
            raise
        ports.subscriptions.accept(subscription, held.queue.broker_name)
        self._refused = self._failed = 0
        if not held.dropped:
            await self._take(result, start_ms)

    def _complain(self, error: RocketQError) -> None:
        """WARNING the first time only: a broker may be down for long."""
        denied = isinstance(error, AccessDeniedError)
        level = logging.DEBUG if self._failed else logging.ERROR if denied else logging.WARNING
        log.log(level, "group %s: %s: %s", self._ports.group, self.held.queue, error)
        self._failed += 1

    def _to_commit(self) -> int | None:
        if not self._ports.commits_with_pulls or self._ports.config.model is MessageModel.BROADCASTING:
            return None
        return self._ports.offsets.get(self.held.queue) or None

    async def _take(self, result: PullResult, start_ms: int) -> None:
        ports, held = self._ports, self.held
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await ports.moved(held, result.next_offset)
            return
        self.next_offset = result.next_offset
        messages: Sequence[StoredMessage] = result.messages
        if messages:
            now_ms = ports.session.clock.monotonic_ms()
            ports.stats.of(held.queue.topic, now_ms).pulled(now_ms, len(messages), now_ms - start_ms)
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
        """Wait while paused, over the flow-control limits, or (orderly) not locked."""
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
