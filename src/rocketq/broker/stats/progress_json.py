"""Queue ranges and consume progress of groups, as pieces of the JSON that admin tools read.

A broker has tens of thousands of queues that groups consume. No object is made per queue: each
piece is read and formatted when it is sent. The forms are those of `TopicStats`, `ConsumeStats` and `ConsumeStatsList`.

Request 317 returns the progress of every group and is polled by dashboards. `ProgressCache` keeps the text of each
group and topic; it is reused while the offsets it was made from are unchanged, which costs a tenth of making it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.fastjson import write_key, write_text
from rocketq.store import StoreReader


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """A group, one of its topics and the rate at which it consumes the topic."""

    group: str
    topic: TopicConfig
    tps: float


@dataclass(frozen=True, slots=True)
class Progress:
    """Offsets by queue, read in one turn of the event loop: committed, pulled, and the queue ends."""

    committed: dict[int, int]
    pulled: dict[int, int]
    ends: list[int]


@dataclass(frozen=True, slots=True)
class EncodedProgress:
    """JSON entries of a group's queues of one topic, with the values they depend on."""

    broker_name: str
    progress: Progress
    log_start: int
    text: str
    lag: int


ProgressCache = dict[tuple[str, str, bool], EncodedProgress]
"""By group, topic and `newer`; replaced after each complete answer, which removes deleted groups and topics."""


@dataclass(slots=True)
class ProgressJson:
    """Writes one answer; `newer` adds the fields of 5.x."""

    broker_name: str
    offsets: OffsetTable
    positions: PullPositions
    store: StoreReader
    newer: bool
    cache: ProgressCache

    def topic_stats(self, topic: str, queue_count: int, put_tps: float | None) -> Iterator[str]:
        yield from joined('{"offsetTable":{', self._ranges(topic, queue_count), "}")
        yield "}" if put_tps is None else f',"topicPutTps":{write_text(put_tps)}}}'

    def consume_stats(self, group: str, topics: Iterable[TopicConfig], tps: float) -> Iterator[str]:
        """The answer for one group and all its topics."""
        yield f'{{"consumeTps":{write_text(tps)}'
        queues = (queue for topic in topics for queue in self._queues(topic.topic, self._progress(group, topic)))
        yield from joined(',"offsetTable":{', queues, "}}")

    def all_consume_stats(self, groups: Iterable[tuple[str, Iterable[TopicProgress]]], addr: str) -> Iterator[str]:
        """The answer for every group, and the total lag."""
        yield f'{{"brokerAddr":{write_key(addr)}'
        cached, total = ProgressCache(), 0
        before = ',"consumeStatsList":['
        for group, topics in groups:
            yield f"{before}{{{write_key(group)}:["
            before = ""
            for each in topics:
                encoded = yield from self._encoded(group, each.topic)
                cached[group, each.topic.topic, self.newer] = encoded
                total += encoded.lag
                yield f'{before}{{"consumeTps":{write_text(each.tps)},"offsetTable":{{{encoded.text}}}}}'
                before = ","
            yield "]}"
            before = ","
        yield f'],"totalDiff":{total}}}' if before == "," else f'{before}],"totalDiff":0}}'
        for key in [key for key in self.cache if key[2] == self.newer and key not in cached]:
            del self.cache[key]
        self.cache.update(cached)

    def _encoded(self, group: str, topic: TopicConfig) -> Generator[str, None, EncodedProgress]:
        """The cached entries if nothing they depend on has changed, else new ones, one queue per step."""
        name, log_start = topic.topic, self.store.log_start
        cached = self.cache.get((group, name, self.newer))
        if (
            cached is not None
            and cached.progress.ends == self.store.max_offsets(name, topic.read_queue_count)
            and self.offsets.equals(group, name, cached.progress.committed)
            and self.positions.equals(group, name, cached.progress.pulled)
            and cached.log_start == log_start
            and cached.broker_name == self.broker_name
        ):
            return cached
        progress, entries = self._progress(group, topic), list[str]()
        for entry in self._queues(name, progress):
            entries.append(entry)
            yield ""
        lag = sum(progress.ends) - sum(max(0, progress.committed.get(n, 0)) for n in range(len(progress.ends)))
        return EncodedProgress(self.broker_name, progress, log_start, ",".join(entries), lag)

    def _progress(self, group: str, topic: TopicConfig) -> Progress:
        name = topic.topic
        ends = self.store.max_offsets(name, topic.read_queue_count)
        return Progress(self.offsets.of(group, name), self.positions.of(group, name), ends)

    def _queues(self, topic: str, progress: Progress) -> Iterator[str]:
        store = self.store
        key_head, key_end = self._key(topic)
        for queue_id, end in enumerate(progress.ends):
            consumed = max(0, progress.committed.get(queue_id, 0))
            last_ms = max(0, store.store_ms_of(topic, queue_id, consumed - 1)) if consumed > 0 else 0
            pulled = f',"pullOffset":{max(consumed, progress.pulled.get(queue_id, 0))}' if self.newer else ""
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
        """A queue as the key of a table: the JSON before and after its number."""
        return f'{{"brokerName":{write_key(self.broker_name)},"queueId":', f',"topic":{write_key(topic)}}}:'


def joined(opening: str, entries: Iterable[str], closing: str) -> Iterator[str]:
    """Join JSON entries into a list or an object."""
    before = opening
    for entry in entries:
        yield before + entry
        before = ","
    yield closing if before == "," else opening + closing
