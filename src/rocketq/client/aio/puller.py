"""Reading queues: single pulls, and a topic followed as it grows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rocketq.client.aio.session import Session
from rocketq.client.core.routes import broker_addr
from rocketq.client.core.stored_messages import StoredMessage, stored_message
from rocketq.client.core.subscriptions import ALL, is_wanted, tags_of
from rocketq.client.errors import NoQueueError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.flags import ExpressionType, PullFlag
from rocketq.protocol.headers.pull import PullRequest, PullResponse
from rocketq.protocol.messages import decode_records

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""A group every broker has; reading as it leaves no trace."""
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
    """Go on at `next_offset`, whatever the status is."""

    status: PullStatus
    messages: tuple[StoredMessage, ...]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int


class Puller:
    """Pulls as a member of `group` that nobody knows of: it commits nothing."""

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
        """What is there at this offset; with `hold_ms` the broker waits so long for the first message to come."""
        route = await self._session.routes.get(queue.topic)
        addr = broker_addr(route, queue.broker_name, self._suggested.get(queue, 0))
        if addr is None:
            raise NoQueueError(queue.topic, f"broker {queue.broker_name} is not there at present")
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
            messages=_messages(answer.body, queue, expression) if status is PullStatus.FOUND else (),
            next_offset=header.next_offset,
            min_offset=header.min_offset,
            max_offset=header.max_offset,
            suggested_broker_id=header.suggested_broker_id,
        )


def _messages(body: bytes, queue: MessageQueue, expression: str) -> tuple[StoredMessage, ...]:
    tags = tags_of(expression)
    found = (stored_message(record, queue.broker_name) for record in decode_records(body))
    return tuple(message for message in found if is_wanted(message.tag, tags))
