"""Progress as pieces of JSON: the bytes of the bodies that tools decode, whatever is in the tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.stats.progress_json import ProgressCache, ProgressJson, TopicProgress
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.stats import ConsumeStats, ConsumeStatsList, QueueProgress
from rocketq.protocol.bodies.topics import QueueRange, TopicConfig, TopicStats
from rocketq.protocol.fastjson import to_bytes
from rocketq.store import Store

BROKER = 'broker-"0"'
NAMES = st.sampled_from(["T", "U", 'odd"\\\n', "é\U0001f600", "%RETRY%g"])
COUNTS = st.integers(0, 3)
OFFSETS = st.integers(0, 2**62)


@dataclass
class FewQueues:
    """Stands in for a store: every queue has messages [low, high), stored at their offset plus a thousand."""

    ends: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    log_start: int = 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), (-1, 0))[0]

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), (-1, 0))[1]

    def max_offsets(self, topic: str, queue_count: int) -> list[int]:
        return [self.max_offset(topic, queue_id) for queue_id in range(queue_count)]

    def store_ms_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        low, high = self.ends.get((topic, queue_id), (-1, 0))
        return queue_offset + 1_000 if low <= queue_offset < high else -1


def key(topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=BROKER, queue_id=queue_id)


@dataclass
class Broker:
    """Tables with anything in them, and what each answer must be."""

    store: FewQueues
    offsets: OffsetTable
    positions: PullPositions
    newer: bool
    cache: ProgressCache = field(default_factory=dict)

    def json(self) -> ProgressJson:
        return ProgressJson(BROKER, self.offsets, self.positions, cast(Store, self.store), self.newer, self.cache)

    def progress(self, group: str, topic: TopicConfig) -> dict[MessageQueue, QueueProgress]:
        name = topic.topic
        return {key(name, number): self._progress(group, name, number) for number in range(topic.read_queue_count)}

    def _progress(self, group: str, topic: str, queue_id: int) -> QueueProgress:
        consumed = self.offsets.get(group, topic, queue_id) or 0
        pulled = self.positions.get(group, topic, queue_id) or 0
        return QueueProgress(
            broker_offset=self.store.max_offset(topic, queue_id),
            consumer_offset=consumed,
            pull_offset=max(consumed, pulled) if self.newer else None,
            last_ms=max(0, self.store.store_ms_of(topic, queue_id, consumed - 1)) if consumed else 0,
        )


@st.composite
def brokers(draw: st.DrawFn) -> Broker:
    offsets, positions, ends = OffsetTable(), PullPositions(), {}
    queues = st.tuples(NAMES, st.integers(0, 2))
    for topic, queue_id in draw(st.lists(queues, max_size=8)):
        ends[topic, queue_id] = tuple(sorted(draw(st.tuples(OFFSETS, OFFSETS))))
    for (topic, queue_id), group, offset in draw(st.lists(st.tuples(queues, NAMES, OFFSETS), max_size=12)):
        offsets.commit(group, topic, queue_id, offset)
    for (topic, queue_id), group, offset in draw(st.lists(st.tuples(queues, NAMES, OFFSETS), max_size=4)):
        positions.put(group, topic, queue_id, offset)
    return Broker(FewQueues(ends), offsets, positions, draw(st.booleans()))


TOPICS = st.builds(TopicConfig, topic=NAMES, read_queue_count=COUNTS)
TOPIC_LISTS = st.lists(TOPICS, max_size=3, unique_by=lambda each: each.topic)
RATES = st.floats(0, 1e9)


@given(broker=brokers(), topic=NAMES, count=COUNTS, rate=st.none() | RATES)
def test_topic_stats(broker: Broker, topic: str, count: int, rate: float | None) -> None:
    queues = {}
    for number in range(count):
        low, high = broker.store.min_offset(topic, number), broker.store.max_offset(topic, number)
        updated_ms = max(0, broker.store.store_ms_of(topic, number, high - 1)) if high else 0
        queues[key(topic, number)] = QueueRange(min_offset=max(0, low), max_offset=high, updated_ms=updated_ms)
    expected = TopicStats(queues=queues, put_tps=rate).encode()
    assert to_bytes("".join(broker.json().topic_stats(topic, count, rate))) == expected


@given(broker=brokers(), group=NAMES, topics=TOPIC_LISTS, rate=RATES)
def test_consume_stats_of_a_group(broker: Broker, group: str, topics: list[TopicConfig], rate: float) -> None:
    queues = {queue: one for topic in topics for queue, one in broker.progress(group, topic).items()}
    expected = ConsumeStats(queues=queues, consume_tps=rate).encode()
    assert to_bytes("".join(broker.json().consume_stats(group, topics, rate))) == expected


@given(broker=brokers(), groups=st.dictionaries(NAMES, st.lists(st.tuples(TOPICS, RATES), max_size=3), max_size=3))
def test_consume_stats_of_a_broker(broker: Broker, groups: dict[str, list[tuple[TopicConfig, float]]]) -> None:
    stats = {
        group: tuple(ConsumeStats(queues=broker.progress(group, topic), consume_tps=rate) for topic, rate in topics)
        for group, topics in groups.items()
    }
    queues = (one for each in stats.values() for part in each for one in part.queues.values())
    lag = sum(one.broker_offset - one.consumer_offset for one in queues)
    expected = ConsumeStatsList(
        groups=tuple({group: each} for group, each in stats.items()), broker_addr="127.0.0.1:1", total_lag=lag
    )
    assert all_stats(broker, groups) == expected.encode()


GROUPS = st.dictionaries(NAMES, st.lists(st.tuples(TOPICS, RATES), max_size=3, unique_by=lambda each: each[0].topic))


def all_stats(broker: Broker, groups: dict[str, list[tuple[TopicConfig, float]]]) -> bytes:
    requested = ((group, [TopicProgress(group, *each) for each in topics]) for group, topics in groups.items())
    return to_bytes("".join(broker.json().all_consume_stats(requested, "127.0.0.1:1")))


@given(broker=brokers(), groups=GROUPS, other=GROUPS, data=st.data())
def test_cached_progress_equals_fresh_progress_after_changes(
    broker: Broker,
    groups: dict[str, list[tuple[TopicConfig, float]]],
    other: dict[str, list[tuple[TopicConfig, float]]],
    data: st.DataObject,
) -> None:
    all_stats(broker, groups)
    for change in data.draw(st.lists(st.sampled_from(["commit", "pull", "append", "expire", "delete"]), max_size=4)):
        group, topic, queue_id, offset = data.draw(st.tuples(NAMES, NAMES, st.integers(0, 2), OFFSETS))
        if change == "commit":
            broker.offsets.commit(group, topic, queue_id, offset)
        elif change == "pull":
            broker.positions.put(group, topic, queue_id, offset)
        elif change == "append":
            broker.store.ends[topic, queue_id] = (0, offset)
        elif change == "expire":
            broker.store.log_start += 1
            broker.store.ends = {key: (high, high) for key, (_, high) in broker.store.ends.items()}
        else:
            broker.offsets.forget_group(group)
            broker.positions.forget_topic(topic)
    for requested in (groups, other, groups):
        cached, kept = all_stats(broker, requested), set(broker.cache)
        broker.cache.clear()
        assert cached == all_stats(broker, requested)
        assert kept == set(broker.cache) == {(g, t.topic, broker.newer) for g in requested for t, _ in requested[g]}
