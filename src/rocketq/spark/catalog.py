"""What brokers hold, asked from the driver: queues, their bounds, and how far groups are."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from rocketq.client.core.routes import subscribe_queues
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.routes import ClusterTable, TopicRoute
from rocketq.protocol.bodies.topics import TopicList, TopicStats
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.failures import BrokerError, TopicNotFoundError
from rocketq.protocol.headers.offsets import OffsetResponse, QueryOffsetRequest, UpdateOffsetRequest
from rocketq.protocol.headers.topics import TopicStatsRequest
from rocketq.spark.broker_calls import BrokerCalls
from rocketq.spark.errors import AwayError, SparkError, told_of
from rocketq.spark.offsets import Offsets, QueueKey
from rocketq.spark.options import Connection, Fetching, Subscription
from rocketq.spark.searches import Searches

log = logging.getLogger(__name__)

Bounds = Mapping[QueueKey, tuple[int, int]]
_FOUND: Final = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
_TOLD: Final = (ResponseCode.SUCCESS, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


class Catalog:
    """Retries when a broker does not answer, as often as the options allow."""

    def __init__(
        self,
        connection: Connection,
        fetching: Fetching,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._calls = BrokerCalls(connection, fetching, pause=pause)
        self.searches = Searches(self._calls)

    def close(self) -> None:
        self._calls.client.close()

    def queues(
        self, subscription: Subscription, *, known: Iterable[QueueKey] = (), missing_topics_pass: bool = False
    ) -> list[QueueKey]:
        """All readable queues of the subscribed topics, sorted. A missing topic is an error, or is skipped.

        NameServers forget a topic when the last of its brokers goes. A topic with `known` queues counts as missing
        only if one of their brokers is registered; otherwise it is unavailable and left out.
        """
        homes = _homes(known)
        return self._calls.patiently(lambda: sorted(self._queues(subscription, homes, missing_topics_pass)))

    def complete_bounds(self, subscription: Subscription, wanted: Collection[QueueKey]) -> Bounds:
        """Of all queues there are, among which those that are wanted must be: AwayError when one stays away."""

        def ask() -> Bounds:
            queues = self._queues(subscription, _homes(wanted), False)
            found = self._bounds([each for each in queues if self._has_master(each.topic, each.broker_name)])
            for queue in wanted:
                if queue not in found:
                    raise AwayError(f"{queue} is not there at present")
            return found

        return self._calls.patiently(ask)

    def bounds(self, queues: Iterable[QueueKey]) -> Bounds:
        """The (min, max) of each queue; one that its broker does not know is left out: it holds nothing."""
        wanted = list(queues)
        return self._calls.patiently(lambda: self._bounds(wanted))

    def reachable_bounds(self, queues: Iterable[QueueKey]) -> Bounds:
        """Those of masters that answer; an unavailable broker is logged and left out.

        Slaves are not used: one may lag, and a queue shorter than the committed offset counts as data loss.
        """
        wanted: dict[str, list[QueueKey]] = {}
        for queue in queues:
            wanted.setdefault(queue.broker_name, []).append(queue)
        found: dict[QueueKey, tuple[int, int]] = {}
        for broker, own in sorted(wanted.items()):
            try:
                led = {topic for topic in {queue.topic for queue in own} if self._has_master(topic, broker)}
                found.update(self._bounds([queue for queue in own if queue.topic in led]))
            except RocketQError as error:
                if not error.retriable:
                    raise
                self._calls.client.forget_routes()
                log.warning("broker %s does not answer, its queues wait: %s", broker, error)
        return found

    def offset_at(self, queue: QueueKey, ms: int, bounds: tuple[int, int]) -> int:
        return self.searches.offset_at(queue, ms, bounds)

    def committed(self, group: str, queues: Iterable[QueueKey]) -> dict[QueueKey, int]:
        """What a group has committed; queues it never read are left out."""
        wanted = list(queues)
        return self._calls.patiently(lambda: self._committed(group, wanted))

    def introduce(self, group: str, queue: QueueKey) -> None:
        """A group comes into being when it pulls, and tools list it only then; one try."""
        self._calls.pull(queue, 0, 1, group=group)

    def require_sql(self, queues: Iterable[QueueKey]) -> None:
        """SparkError when a broker of these does not filter by SQL92 conditions; others may be away."""
        for _, queue in sorted({(each.topic, each.broker_name): each for each in queues}.items()):
            self._calls.require_sql(queue)

    def commit(self, group: str, offsets: Mapping[QueueKey, int]) -> None:
        """Commit a group's offsets at each reachable broker; AwayError names the queues without a commit."""
        untold: dict[QueueKey, RocketQError] = {}
        away: dict[str, RocketQError] = {}
        for queue, offset in offsets.items():
            try:
                if queue.broker_name in away:
                    raise away[queue.broker_name]
                self._tell(group, queue, offset)
            except AwayError as error:
                self._calls.client.forget_routes()
                away[queue.broker_name] = untold[queue] = error
            except RocketQError as error:
                untold[queue] = error
        if untold:
            first = next(iter(untold))
            more = f" (and {len(untold) - 1} more queues)" if len(untold) > 1 else ""
            raise AwayError(f"group {group}: {first} was not told of offset {offsets[first]}{more}: {untold[first]}")

    # One try each

    def _queues(
        self, subscription: Subscription, homes: Mapping[str, set[str]], missing_topics_pass: bool
    ) -> list[QueueKey]:
        if subscription.assigned is not None:
            assigned = subscription.assigned
            return [
                QueueKey(topic, broker, queue_id)
                for topic, brokers in assigned.items()
                for broker, queue_ids in brokers.items()
                for queue_id in queue_ids
            ]
        is_pattern = subscription.pattern is not None
        topics = subscription.topics if subscription.pattern is None else self._matching(subscription.pattern)
        may_miss = missing_topics_pass or is_pattern
        return [queue for topic in topics for queue in self._queues_of(topic, homes.get(topic, set()), may_miss)]

    def _queues_of(self, topic: str, homes: set[str], may_miss: bool) -> list[QueueKey]:
        try:
            route = self._calls.client.route(topic, fresh=True)
        except TopicNotFoundError:
            if may_miss:
                return []
            if homes and not homes & self._registered():
                log.warning("topic %s waits for %s to come back", topic, ", ".join(sorted(homes)))
                return []
            route = self._asked_again(topic)
        except BrokerError as error:
            raise told_of(f"topic {topic}", error) from None
        return [QueueKey(each.topic, each.broker_name, each.queue_id) for each in subscribe_queues(topic, route)]

    def _asked_again(self, topic: str) -> TopicRoute:
        """A broker that was away at the first question may have come back before the one about brokers."""
        try:
            return self._calls.client.route(topic, fresh=True)
        except TopicNotFoundError:
            raise SparkError(f"topic {topic} does not exist, or no broker that has it is there") from None

    def _registered(self) -> set[str]:
        """The names of all registered brokers."""
        answer = self._calls.client.call_name_server(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        return set(ClusterTable.decode(answer.body).brokers)

    def _matching(self, pattern: str) -> list[str]:
        answer = self._calls.client.call_name_server(code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        names = TopicList.decode(answer.body).topics
        return sorted(name for name in names if re.fullmatch(pattern, name))

    def _has_master(self, topic: str, broker_name: str) -> bool:
        """Look up a fresh route if the known one fails."""
        client = self._calls.client
        try:
            if client.master(topic, broker_name) is None:
                client.route(topic, fresh=True)
            return client.master(topic, broker_name) is not None
        except TopicNotFoundError:
            return False

    def _bounds(self, queues: list[QueueKey]) -> dict[QueueKey, tuple[int, int]]:
        found: dict[QueueKey, tuple[int, int]] = {}
        for topic, broker in sorted({(queue.topic, queue.broker_name) for queue in queues}):
            for queue_id, low, high in self._spans(topic, broker):
                found[QueueKey(topic, broker, queue_id)] = (max(0, low), max(0, high))
        return {queue: found[queue] for queue in queues if queue in found}

    def _spans(self, topic: str, broker: str) -> list[tuple[int, int, int]]:
        try:
            addr = self._calls.client.broker(topic, broker)
        except RocketQError as error:
            raise told_of(f"topic {topic} on {broker}", error) from None
        try:
            answer = self._calls.client.call(addr, TopicStatsRequest(topic=topic))
        except TopicNotFoundError:  # the broker's own answer
            return []
        except RocketQError as error:
            raise told_of(f"topic {topic} on {broker}", error) from None
        spans = TopicStats.decode(answer.body).queues
        return [(queue.queue_id, span.min_offset, span.max_offset) for queue, span in spans.items()]

    def _tell(self, group: str, queue: QueueKey, offset: int) -> None:
        request = UpdateOffsetRequest(group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset)
        answer = self._calls.call(queue.topic, queue.broker_name, request, accept=_TOLD)
        if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:  # 5.x: a group comes into being when it pulls
            self._calls.pull(queue, offset, 1, group=group)
            self._calls.call(queue.topic, queue.broker_name, request)

    def _committed(self, group: str, queues: list[QueueKey]) -> dict[QueueKey, int]:
        found = {}
        for queue in queues:
            request = QueryOffsetRequest(group=group, topic=queue.topic, queue_id=queue.queue_id, zero_if_none=False)
            answer = self._calls.call(queue.topic, queue.broker_name, request, accept=_FOUND)
            if answer.code == ResponseCode.SUCCESS:
                found[queue] = OffsetResponse.decode(answer.ext_fields).queue_offset
        return found


def _homes(queues: Iterable[QueueKey]) -> dict[str, set[str]]:
    """The brokers of each topic."""
    homes: dict[str, set[str]] = {}
    for queue in queues:
        homes.setdefault(queue.topic, set()).add(queue.broker_name)
    return homes


def as_offsets(bounds: Bounds) -> Offsets:
    """The ends."""
    return Offsets.of((queue, high) for queue, (_, high) in bounds.items())
