"""Dead letters: which groups have some, what they are, and sending them again with a result for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from rocketq.client.admin.messages import AsyncMessages
from rocketq.client.admin.search import AsyncSearch
from rocketq.client.admin.topics import AsyncTopics
from rocketq.client.core.messages import Message
from rocketq.client.core.search import Direction, SearchQuery
from rocketq.client.core.send_flow import SendStatus
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.errors import NotFoundError, SendFailedError
from rocketq.client.fan_out import outcomes
from rocketq.client.fetcher import Puller
from rocketq.client.send import Sender
from rocketq.client.session import Session
from rocketq.errors import ConfigError, RemotingError, RocketQError, UnreachableError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.protocol.names import DLQ_PREFIX, Property, dlq_topic, retry_topic, topic_fault

REPLAY_GROUP: Final = "ROCKETQ_REPLAY"
REPLAYED_FROM: Final = "ROCKETQ_REPLAYED_FROM"
"""Property of a message that was sent again: the id of the dead letter it is a copy of."""
TO_ORIGIN: Final = "origin"
TO_RETRY: Final = "retry"
_DROPPED: Final = frozenset(
    {
        Property.UNIQUE_KEY,
        Property.WAIT,
        Property.DELAY,
        Property.RETRY_TOPIC,
        Property.RECONSUME_TIMES,
        Property.MAX_RECONSUME_TIMES,
        Property.DLQ_ORIGIN_TOPIC,
        Property.DLQ_ORIGIN_MESSAGE_ID,
        Property.ORIGIN_MESSAGE_ID,
        Property.REAL_TOPIC,
        Property.REAL_QUEUE_ID,
        Property.TIMER_OUT_MS,
        Property.KEYS,
        Property.TAGS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Dead letters of one group. None is unknown: `reason` says why."""

    group: str
    topic: str
    count: int | None
    oldest_ms: int | None = None
    newest_ms: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRef:
    """Names one dead letter of a group."""

    broker: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterEdit:
    """What to change of a dead letter before it is sent again; None leaves it as it is."""

    body: bytes | None = None
    keys: tuple[str, ...] | None = None
    tag: str | None = None
    properties: Mapping[str, str] | None = None


class ReplayStatus(StrEnum):
    WOULD_SEND = "would-send"
    SENT = "sent"
    REFUSED = "refused"
    ORIGIN_UNKNOWN = "origin-unknown"
    GONE = "gone"
    UNKNOWN = "unknown"
    NOT_ATTEMPTED = "not-attempted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What came of one dead letter. `unknown`: the connection was lost after sending, it may have been stored."""

    letter: LetterRef
    status: ReplayStatus
    target: str | None = None
    message_id: str | None = None
    origin_id: str | None = None
    queue: str | None = None
    queue_offset: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """`to` is `origin`, `retry` (only this group gets it) or the name of a topic."""

    group: str
    letters: tuple[LetterRef, ...]
    to: str = TO_ORIGIN
    edits: Mapping[LetterRef, LetterEdit] = field(default_factory=dict)
    per_second: float | None = None
    dry_run: bool = False


def retries_of(letter: StoredMessage) -> int:
    """How often a dead letter was retried. Ordered consumers write that into a property; for other groups the stored
    count is that of deliveries."""
    text = letter.properties.get("RECONSUME_TIME", "")
    return int(text) if text.isdecimal() and len(text) < 10 else max(0, letter.reconsume_times - 1)


def origin_of(letter: StoredMessage) -> str | None:
    """The topic a dead letter was sent to at first."""
    properties = letter.properties
    origin = properties.get(Property.DLQ_ORIGIN_TOPIC) or properties.get(Property.RETRY_TOPIC)
    return None if not origin or origin.startswith("%") else origin


def replay_message(letter: StoredMessage, target: str, edit: LetterEdit | None = None) -> Message:
    """A copy for the target, without what the broker wrote into the dead letter."""
    edit = edit or LetterEdit()
    given = letter.properties if edit.properties is None else edit.properties
    kept = {name: value for name, value in given.items() if name not in _DROPPED}
    kept[REPLAYED_FROM] = letter.offset_message_id
    return Message(
        topic=target,
        body=letter.body if edit.body is None else edit.body,
        tag=(letter.tag if edit.tag is None else edit.tag) or None,
        keys=letter.keys if edit.keys is None else edit.keys,
        properties=kept,
        flag=letter.flag,
    )


class AsyncDeadLetters:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._topics = AsyncTopics(session)
        self._messages = AsyncMessages(session)
        self._search = AsyncSearch(session)
        self._sender = Sender(session, REPLAY_GROUP, attempts_max=1)

    async def groups(self) -> tuple[DeadLetterGroup, ...]:
        """Groups that have a dead-letter topic, those with most dead letters first."""
        topics = [topic for topic in await self._topics.list() if topic.startswith(DLQ_PREFIX)]
        found = await outcomes({topic: self._topics.stats(topic) for topic in topics})
        groups = [
            DeadLetterGroup(
                group=topic.removeprefix(DLQ_PREFIX),
                topic=topic,
                count=sum(one.max_offset - one.min_offset for one in stats.queues.values()),
                newest_ms=max((one.updated_ms for one in stats.queues.values()), default=0) or None,
            )
            for topic, stats in found.results.items()
        ]
        groups += [
            DeadLetterGroup(group=topic.removeprefix(DLQ_PREFIX), topic=topic, count=None, reason=str(error))
            for topic, error in found.failures.items()
        ]
        return tuple(sorted(groups, key=lambda one: (-(one.count or 0), one.group)))

    async def list(
        self, group: str, *, count_max: int = 100, since_ms: int | None = None, until_ms: int | None = None
    ) -> tuple[StoredMessage, ...]:
        """The newest dead letters of a group, newest first."""
        query = SearchQuery(topic=dlq_topic(group), direction=Direction.NEWEST, since_ms=since_ms, until_ms=until_ms)
        found: list[StoredMessage] = []
        try:
            async for step in self._search.run(query):
                found += step.messages
                if len(found) >= count_max:
                    break
        except TopicNotFoundError:
            await self._require(group)
        return tuple(found[:count_max])

    async def get(self, group: str, letter: LetterRef) -> StoredMessage:
        """NotFoundError when it is gone."""
        queue = MessageQueue(topic=dlq_topic(group), broker_name=letter.broker, queue_id=letter.queue_id)
        result = await Puller(self._session).pull(queue, letter.offset, count_max=1)
        for message in result.messages:
            if message.queue_offset == letter.offset:
                return message
        raise NotFoundError("dead letter", f"{letter.broker}:{letter.queue_id}@{letter.offset} of {group}")

    async def replay(self, plan: ReplayPlan) -> AsyncIterator[ReplayResult]:
        """Send each dead letter again, in the given order, and yield its result; nothing is sent twice.

        Stop iterating to stop. The dead letters stay where they are.
        """
        if plan.to not in (TO_ORIGIN, TO_RETRY) and (fault := topic_fault(plan.to)) is not None:
            raise ConfigError(fault)
        if plan.per_second is not None and not plan.per_second > 0:
            raise ConfigError(f"the rate must be above 0 per second, not {plan.per_second}")
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, letter in enumerate(plan.letters):
            if plan.per_second is not None and not plan.dry_run:
                await asyncio.sleep(max(0.0, began + number / plan.per_second - loop.time()))
            yield await self._replay_one(plan, letter)

    async def _replay_one(self, plan: ReplayPlan, letter: LetterRef) -> ReplayResult:
        try:
            stored = await self.get(plan.group, letter)
        except (NotFoundError, TopicNotFoundError) as error:
            return ReplayResult(letter=letter, status=ReplayStatus.GONE, reason=str(error))
        except RocketQError as error:
            return ReplayResult(letter=letter, status=ReplayStatus.NOT_ATTEMPTED, reason=str(error))
        target = (
            origin_of(stored) if plan.to == TO_ORIGIN else retry_topic(plan.group) if plan.to == TO_RETRY else plan.to
        )
        origin_id = stored.properties.get(Property.DLQ_ORIGIN_MESSAGE_ID) or stored.message_id
        if target is None:
            reason = "the dead letter has no origin topic: give a topic"
            return ReplayResult(letter=letter, status=ReplayStatus.ORIGIN_UNKNOWN, origin_id=origin_id, reason=reason)
        message = replay_message(stored, target, plan.edits.get(letter))
        if plan.to == TO_RETRY and (origin := origin_of(stored)) is not None:
            message = Message(
                topic=message.topic,
                body=message.body,
                tag=message.tag,
                keys=message.keys,
                properties={**message.properties, Property.RETRY_TOPIC: origin},
                flag=message.flag,
            )
        if plan.dry_run:
            return ReplayResult(letter=letter, status=ReplayStatus.WOULD_SEND, target=target, origin_id=origin_id)
        try:
            sent = await self._sender.send(message)
        except RocketQError as error:
            status = ReplayStatus.UNKNOWN if _may_be_stored(error) else ReplayStatus.REFUSED
            return ReplayResult(letter=letter, status=status, target=target, origin_id=origin_id, reason=str(error))
        return ReplayResult(
            letter=letter,
            status=ReplayStatus.SENT,
            target=target,
            message_id=sent.message_id,
            origin_id=origin_id,
            queue=f"{sent.queue.broker_name}:{sent.queue.queue_id}",
            queue_offset=sent.queue_offset,
            reason=None if sent.status is SendStatus.SEND_OK else sent.status.value,
        )

    async def _require(self, group: str) -> None:
        if dlq_topic(group) not in await self._topics.list():
            raise NotFoundError("dead letters of group", group, "it has no dead-letter topic")


def letter_ref(message: StoredMessage) -> LetterRef:
    return LetterRef(broker=message.queue.broker_name, queue_id=message.queue.queue_id, offset=message.queue_offset)


def letter_refs(messages: Sequence[StoredMessage]) -> tuple[LetterRef, ...]:
    return tuple(letter_ref(message) for message in messages)


def _may_be_stored(error: RocketQError) -> bool:
    errors = [each for _, each in error.attempts] if isinstance(error, SendFailedError) else [error]
    return any(isinstance(each, RemotingError) and not isinstance(each, UnreachableError) for each in errors)
