"""Consumer lag of all groups, online or not, as metrics.

Offsets and queue ends are read from tables in memory. The age of a message needs one read of the store per lagging
queue: it is kept for 5 s, and a scrape does at most 1,000 such reads; the other queues keep their last value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.stats import families
from rocketq.broker.stats.broker_metrics import truth
from rocketq.broker.topics.table import TopicTable
from rocketq.model.lag import UnknownLag, queue_lag
from rocketq.protocol.flags import MessageModel
from rocketq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic
from rocketq.remoting import Connection
from rocketq.runtime.clock import Clock
from rocketq.runtime.metrics import Snapshot
from rocketq.store import StoreReader

AGE_LIFE_MS: Final = 5_000
READS_MAX: Final = 1_000
_QUEUES_STEP: Final = 16
QueueKey = tuple[str, int]


class MessageAges:
    """Store times of messages at queue offsets, read at most `READS_MAX` times per scrape."""

    def __init__(self, store: StoreReader, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[tuple[str, str, int, str], tuple[int, int, int]] = {}
        self._reads = 0
        self._now_ms = self._monotonic_ms = 0

    def begin(self) -> None:
        """A scrape begins."""
        self._reads = 0
        self._now_ms, self._monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        if len(self._known) > 100_000:
            self._known.clear()

    def age_ms(self, group: str, topic: str, queue_id: int, queue_offset: int, what: str) -> int:
        """How old the message at this offset is; 0 when it is not known."""
        key = group, topic, queue_id, what
        known = self._known.get(key)
        if known is None or (known[0] != queue_offset and self._monotonic_ms - known[1] >= AGE_LIFE_MS):
            if self._reads >= READS_MAX and known is not None:
                return max(0, self._now_ms - known[2])
            if self._reads >= READS_MAX:
                return 0
            self._reads += 1
            store_ms = self._store.store_ms_of(topic, queue_id, queue_offset)
            known = self._known[key] = queue_offset, self._monotonic_ms, store_ms if store_ms > 0 else self._now_ms
        return max(0, self._now_ms - known[2])


@dataclass(slots=True)
class TopicLag:
    """A group's progress in a topic, added up over its queues."""

    lag: int = 0
    inflight: int = 0
    ready: int = 0
    lag_age_ms: int = 0
    ready_age_ms: int = 0


@dataclass(frozen=True, slots=True)
class LagPorts:
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerGroups[Connection]
    offsets: OffsetTable
    positions: PullPositions
    store: StoreReader
    clock: Clock


class LagCollector:
    """Lag of each group that committed an offset or has an online member, by topic and by lagging queue."""

    def __init__(self, ports: LagPorts) -> None:
        self._ports = ports
        self._ages = MessageAges(ports.store, ports.clock)

    def collect(self, snapshot: Snapshot) -> Iterator[None]:
        self._ages.begin()
        ports = self._ports
        for group in sorted({*ports.groups.names(), *ports.offsets.groups(), *ports.consumers.names()}):
            members = ports.consumers.get(group)
            subscribed = set() if members is None else members.subscriptions.keys()
            broadcasts = members is not None and members.model is MessageModel.BROADCASTING
            yield from self._dead_letters(group, snapshot)
            if members is not None:
                snapshot.add(families.MEMBERS, (group,), len(ports.consumers.members(group)))
                for topic, kinds in ports.consumers.conflicts(group).items():
                    snapshot.add(families.CONFLICTS, (group, topic), len(kinds))
            if broadcasts:
                continue  # its members keep their offsets themselves
            for topic in sorted({*ports.offsets.topics_of(group), *subscribed}):
                if topic.startswith(RETRY_PREFIX) and group != topic.removeprefix(RETRY_PREFIX):
                    continue
                yield from self._topic(group, topic, snapshot)

    def _topic(self, group: str, topic: str, snapshot: Snapshot) -> Iterator[None]:
        ports = self._ports
        config = ports.topics.get(topic)
        if config is None:
            return
        is_retry = topic.startswith(RETRY_PREFIX)
        is_system = is_system_group(group) or is_system_topic(topic)
        total, unknown = TopicLag(), dict[UnknownLag, int]()
        committed, pulled = ports.offsets.of(group, topic), ports.positions.of(group, topic)
        for queue_id, end in enumerate(ports.store.max_offsets(topic, config.read_queue_count)):
            low = max(0, ports.store.min_offset(topic, queue_id))
            offset = committed.get(queue_id, -1)
            lag = queue_lag(offset if offset >= 0 else None, low, end)
            if lag.reason is not None:
                unknown[lag.reason] = unknown.get(lag.reason, 0) + 1
            elif lag.messages:
                self._add_queue(
                    total, (group, topic, queue_id), offset, end, pulled.get(queue_id, 0), snapshot, is_system
                )
            if queue_id % _QUEUES_STEP == 0:
                yield
        if is_retry:
            snapshot.add(families.RETRY_MESSAGES, (group,), total.lag)
        labels = group, topic, truth(is_retry), truth(is_system)
        for reason, count in unknown.items():
            snapshot.add(families.UNKNOWN_QUEUES, (group, topic, reason.value), count)
        if unknown and total.lag == 0 and sum(unknown.values()) >= config.read_queue_count:
            return  # nothing is known: no number rather than 0
        snapshot.add(families.LAG_MESSAGES, labels, total.lag)
        snapshot.add(families.LAG_LATENCY, labels, total.lag_age_ms)
        snapshot.add(families.INFLIGHT, labels, total.inflight)
        snapshot.add(families.READY, labels, total.ready)
        snapshot.add(families.QUEUEING_LATENCY, labels, total.ready_age_ms)

    def _add_queue(
        self, total: TopicLag, queue: tuple[str, str, int], committed: int, end: int, pulled: int, snapshot: Snapshot,
        is_system: bool,
    ) -> None:  # fmt: skip
        group, topic, queue_id = queue
        next_pull = min(max(committed, pulled), end)
        age_ms = self._ages.age_ms(group, topic, queue_id, committed, "lag")
        total.lag += end - committed
        total.inflight += next_pull - committed
        total.ready += end - next_pull
        total.lag_age_ms = max(total.lag_age_ms, age_ms)
        if next_pull < end:
            ready_ms = (
                age_ms if next_pull == committed else self._ages.age_ms(group, topic, queue_id, next_pull, "ready")
            )
            total.ready_age_ms = max(total.ready_age_ms, ready_ms)
        if not is_system:
            labels = group, topic, str(queue_id)
            snapshot.add(families.QUEUE_LAG_MESSAGES, labels, end - committed)
            snapshot.add(families.QUEUE_LAG_SECONDS, labels, age_ms / 1000)

    def _dead_letters(self, group: str, snapshot: Snapshot) -> Iterator[None]:
        """How many dead letters are stored, and how long the oldest is kept."""
        store, topic = self._ports.store, DLQ_PREFIX + group
        config = self._ports.topics.get(topic)
        if config is None:
            return
        count, oldest_ms = 0, -1
        for queue_id, end in enumerate(store.max_offsets(topic, config.read_queue_count)):
            low = max(0, store.min_offset(topic, queue_id))
            count += end - low
            if end > low:
                oldest_ms = max(oldest_ms, self._ages.age_ms(group, topic, queue_id, low, "oldest"))
        snapshot.add(families.DLQ_MESSAGES, (group,), count)
        if oldest_ms >= 0:
            snapshot.add(families.DLQ_OLDEST, (group,), oldest_ms / 1000)
            left_s = store.config.reserved_hours * 3600 - oldest_ms / 1000
            snapshot.add(families.DLQ_EXPIRES, (group,), max(0.0, left_s))
        yield
