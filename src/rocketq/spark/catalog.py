"""What brokers hold, asked from the driver: queues, their bounds, offsets by time and of groups."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from rocketq.client.blocking import BlockingClient
from rocketq.client.core.routes import broker_addr, subscribe_queues
from rocketq.errors import RocketQError
from rocketq.model import Record
from rocketq.protocol.bodies.topics import TopicList, TopicStats
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.failures import TopicNotFound
from rocketq.protocol.flags import ExpressionType, PullFlag
from rocketq.protocol.headers.offsets import (
    OffsetResponse,
    QueryOffsetRequest,
    SearchOffsetRequest,
    UpdateOffsetRequest,
)
from rocketq.protocol.headers.pull import PullRequest
from rocketq.protocol.headers.topics import TopicStatsRequest
from rocketq.protocol.messages import decode_records
from rocketq.spark.errors import SparkError
from rocketq.spark.offsets import Offsets, QueueKey
from rocketq.spark.options import Connection, Fetching, Subscription

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_PULLED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
Bounds = Mapping[QueueKey, tuple[int, int]]


class Catalog:
    """Asks again when a broker does not answer, as often as the options say."""

    def __init__(
        self,
        connection: Connection,
        fetching: Fetching,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._fetching = fetching
        self._pause = pause
        self._client = BlockingClient(connection.name_servers, credentials=connection.credentials, tls=connection.tls)

    def close(self) -> None:
        self._client.close()

    def queues(self, subscription: Subscription) -> list[QueueKey]:
        """All readable queues of what is subscribed to, sorted."""
        return self._patiently(lambda: sorted(self._queues(subscription)))

    def bounds(self, queues: Iterable[QueueKey]) -> Bounds:
        """The (min, max) of each queue; one that its broker does not know holds nothing."""
        return self._patiently(lambda: self._bounds(list(queues)))

    def reachable_bounds(self, queues: Iterable[QueueKey]) -> Bounds:
        """Those of brokers that answer; a broker that is away is told of in the log and left out."""
        wanted: dict[str, list[QueueKey]] = {}
        for queue in queues:
            wanted.setdefault(queue.broker_name, []).append(queue)
        found: dict[QueueKey, tuple[int, int]] = {}
        for broker, own in sorted(wanted.items()):
            try:
                found.update(self._bounds(own))
            except RocketQError as error:
                if not error.retriable:
                    raise
                self._client.forget_routes()
                log.warning("broker %s does not answer, its queues wait: %s", broker, error)
        return found

    def record_bytes(self, queue: QueueKey, offset: int) -> int | None:
        """The mean size of a few messages from here on, None when none can be read."""
        records = self._patiently(lambda: self._pull(queue, offset, 32))
        return sum(record.size for record in records) // len(records) if records else None

    def offset_at(self, queue: QueueKey, ms: int) -> int:
        """Of the first message stored at or after this time; the queue's end when there is none."""
        return self._patiently(lambda: self._offset_at(queue, ms))

    def committed(self, group: str, queues: Iterable[QueueKey]) -> dict[QueueKey, int]:
        """What a group has committed; queues it never read are left out."""
        return self._patiently(lambda: self._committed(group, list(queues)))

    def commit(self, group: str, offsets: Offsets) -> None:
        """Tell brokers how far a group is; they are told again with the next batch, so one that is away is passed."""
        for queue, offset in offsets.items():
            request = UpdateOffsetRequest(group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset)
            self._client.call(self._addr(queue), request)

    # One try each

    def _queues(self, subscription: Subscription) -> list[QueueKey]:
        if subscription.assigned is not None:
            assigned = subscription.assigned
            return [
                QueueKey(topic, broker, queue_id)
                for topic, brokers in assigned.items()
                for broker, queue_ids in brokers.items()
                for queue_id in queue_ids
            ]
        topics = subscription.topics if subscription.pattern is None else self._matching(subscription.pattern)
        return [queue for topic in topics for queue in self._queues_of(topic)]

    def _queues_of(self, topic: str) -> list[QueueKey]:
        try:
            route = self._client.route(topic, fresh=True)
        except TopicNotFound:
            raise SparkError(f"topic {topic} does not exist") from None
        return [
            QueueKey(each.topic, each.broker_name, each.queue_id)
            for each in subscribe_queues(topic, route)
            if broker_addr(route, each.broker_name) is not None
        ]

    def _matching(self, pattern: str) -> list[str]:
        answer = self._client.ask(code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        names = TopicList.decode(answer.body).topics
        return sorted(name for name in names if re.fullmatch(pattern, name))

    def _bounds(self, queues: list[QueueKey]) -> dict[QueueKey, tuple[int, int]]:
        found: dict[QueueKey, tuple[int, int]] = {}
        for topic, broker in sorted({(queue.topic, queue.broker_name) for queue in queues}):
            try:
                addr = self._client.broker(topic, broker)
                answer = self._client.call(addr, TopicStatsRequest(topic=topic))
            except TopicNotFound:
                continue
            for queue, spans in TopicStats.decode(answer.body).queues.items():
                found[QueueKey(topic, broker, queue.queue_id)] = (max(0, spans.min_offset), max(0, spans.max_offset))
        return {queue: found[queue] for queue in queues if queue in found}

    def _offset_at(self, queue: QueueKey, ms: int) -> int:
        request = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=ms)
        answer = self._client.call(self._addr(queue), request)
        offset = max(0, OffsetResponse.decode(answer.ext_fields).queue_offset)
        # Apache answers with the last message when all are older: what is there decides
        found = self._pull(queue, offset, 1)
        return offset + 1 if found and found[0].store_ms < ms else offset

    def _pull(self, queue: QueueKey, offset: int, count_max: int) -> list[Record]:
        """What is there from this offset on, at most so many."""
        request = PullRequest(
            group=self._fetching.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            count_max=count_max,
            sys_flag=int(PullFlag.SUBSCRIPTION),
            subscription="*",
            expression_type=ExpressionType.TAG,
        )
        answer = self._client.call(self._addr(queue), request, accept=_PULLED)
        return decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []

    def _committed(self, group: str, queues: list[QueueKey]) -> dict[QueueKey, int]:
        found = {}
        for queue in queues:
            request = QueryOffsetRequest(group=group, topic=queue.topic, queue_id=queue.queue_id, zero_if_none=False)
            accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
            answer = self._client.call(self._addr(queue), request, accept=accept)
            if answer.code == ResponseCode.SUCCESS:
                found[queue] = OffsetResponse.decode(answer.ext_fields).queue_offset
        return found

    def _addr(self, queue: QueueKey) -> str:
        return self._client.broker(queue.topic, queue.broker_name)

    def _patiently(self, ask: Callable[[], _Result]) -> _Result:
        for attempt in range(self._fetching.retries + 1):
            try:
                return ask()
            except RocketQError as error:
                if attempt == self._fetching.retries or not error.retriable:
                    raise
                self._client.forget_routes()
                self._pause(self._fetching.retry_ms / 1000)
        raise AssertionError("the last attempt returns or raises")
