"""How full queues are and how far groups have come, as pieces of the JSON that tools read.

A broker has tens of thousands of queues that groups read: there is no value for each of them on the way, and each
piece reads its queue when its turn comes. The forms are those of `TopicStats`, `ConsumeStats` and `ConsumeStatsList`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.fastjson import write_key, write_text
from rocketq.store import StoreReader


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """What a group has consumed of a topic, and how fast."""

    group: str
    topic: TopicConfig
    tps: float


@dataclass(slots=True)
class ProgressJson:
    """Makes one answer; `newer` tools get what 5.x has added."""

    broker_name: str
    offsets: OffsetTable
    positions: PullPositions
    store: StoreReader
    newer: bool
    _lag: int = field(default=0, init=False)

    def topic_stats(self, topic: str, queue_count: int, put_tps: float | None) -> Iterator[str]:
        yield from joined('{"offsetTable":{', self._ranges(topic, queue_count), "}")
        yield "}" if put_tps is None else f',"topicPutTps":{write_text(put_tps)}}}'

    def consume_stats(self, group: str, topics: Iterable[TopicConfig], tps: float) -> Iterator[str]:
        """Of all topics together."""
        yield f'{{"consumeTps":{write_text(tps)}'
        queues = (queue for topic in topics for queue in self._queues(group, topic))
        yield from joined(',"offsetTable":{', queues, "}}")

    def all_consume_stats(self, groups: Iterable[tuple[str, Iterable[TopicProgress]]], addr: str) -> Iterator[str]:
        """Of every topic of every group, and how far all of them are behind together."""
        yield f'{{"brokerAddr":{write_key(addr)}'
        before = ',"consumeStatsList":['
        for group, topics in groups:
            yield f"{before}{{{write_key(group)}:["
            before = ""
            for each in topics:
                yield before
                yield from self.consume_stats(group, (each.topic,), each.tps)
                before = ","
            yield "]}"
            before = ","
        yield f'],"totalDiff":{self._lag}}}' if before == "," else f'{before}],"totalDiff":0}}'

    def _queues(self, group: str, topic: TopicConfig) -> Iterator[str]:
        name, store = topic.topic, self.store
        key_head, key_end = self._key(name)
        for queue_id in range(topic.read_queue_count):
            consumed = self.offsets.get(group, name, queue_id) or 0
            last_ms = max(0, store.store_ms_of(name, queue_id, consumed - 1)) if consumed > 0 else 0
            end = store.max_offset(name, queue_id)
            self._lag += end - consumed
            pulled = ""
            if self.newer:
                pulled = f',"pullOffset":{max(consumed, self.positions.get(group, name, queue_id) or 0)}'
            yield (
                f'{key_head}{queue_id}{key_end}{{"brokerOffset":{end},"consumerOffset":{consumed},'
                f'"lastTimestamp":{last_ms}{pulled}}}'
            )

    def _ranges(self, topic: str, queue_count: int) -> Iterator[str]:
        store = self.store
        key_head, key_end = self._key(topic)
        for queue_id in range(queue_count):
            low, high = max(0, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id)
            updated_ms = max(0, store.store_ms_of(topic, queue_id, high - 1)) if high > 0 else 0
            yield (
                f'{key_head}{queue_id}{key_end}{{"lastUpdateTimestamp":{updated_ms},'
                f'"maxOffset":{high},"minOffset":{low}}}'
            )

    def _key(self, topic: str) -> tuple[str, str]:
        """A queue as the key of a table: what stands before its number, and behind it."""
        return f'{{"brokerName":{write_key(self.broker_name)},"queueId":', f',"topic":{write_key(topic)}}}:'


def joined(opening: str, entries: Iterable[str], closing: str) -> Iterator[str]:
    """A list or an object of entries that are JSON."""
    before = opening
    for entry in entries:
        yield before + entry
        before = ","
    yield closing if before == "," else opening + closing
