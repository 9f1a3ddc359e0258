"""Rows of an Arrow batch as messages: who goes where, and their bytes. Nothing is done row by row in the plain case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketq.client.core.batches import STORED_BYTES
from rocketq.client.core.messages import NOT_IN_COPIES
from rocketq.client.core.routes import hash_index
from rocketq.kernel import batch_encode as codes
from rocketq.kernel.batch_encode import BatchEncoder, NumberSource, TextSource
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.names import NOT_FOR_CLIENTS, RETRY_PREFIX, Property, topic_fault
from rocketq.protocol.properties import PROPERTIES_BYTES_MAX

SPARK_ORIGIN: Final = "SPARK_TX"
"""The property that identifies a message's row in a stream: query/batch/partition/row."""
LEFT_OUT: Final = frozenset(name.encode() for name in NOT_IN_COPIES | {SPARK_ORIGIN, Property.SHARDING_KEY}) - {
    Property.TAGS.encode(),
    Property.KEYS.encode(),
}
"""Names of the map that belong to one delivery of a message or have columns: they are not sent."""
HALF_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 512
"""What brokers add to a half message must still fit."""
ROWS_MIN: Final = 100
"""Fewer rows are not spread over queues."""

_FAULTS: Final = {
    codes.NO_BODY: "the body is null",
    codes.EMPTY_BODY: "the body is empty",
    codes.BODY_TOO_LARGE: "the body is too large",
    codes.PROPERTIES_TOO_LONG: "the properties are longer than a message can have",
    codes.TAGS_SEPARATOR: "the tags hold the character 0x02, which ends a property",
    codes.KEYS_SEPARATOR: "the keys hold the character 0x02, which ends a property",
    codes.SHARDING_SEPARATOR: "the shardingKey holds the character 0x02, which ends a property",
    codes.PROPERTY_NAME: "the name of a property is empty or holds the character 0x01 or 0x02",
    codes.PROPERTY_SEPARATOR: "a property holds the character 0x02, which ends it",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the task's input."""

    batch: pa.RecordBatch
    number: int
    ordinal: int
    """Among all rows of the task."""

    def value(self, column: str) -> object:
        if column not in self.batch.schema.names:
            return None
        return self.batch.column(column)[self.number].as_py()


@dataclass(frozen=True, slots=True)
class BadRow:
    row: Row
    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class Elements:
    """Encoded rows, one after the other as a batch send carries them; `rows` are theirs."""

    data: bytes
    rows: Sequence[Row]

    def halves(self) -> tuple[Elements, Elements]:
        """The same in two requests."""
        at, middle = 0, len(self.rows) // 2
        for _ in range(middle):
            at += int.from_bytes(self.data[at : at + 4], "big")
        return Elements(self.data[:at], self.rows[:middle]), Elements(self.data[at:], self.rows[middle:])

    def messages(self) -> list[tuple[bytes, str, Row]]:
        """Body and properties of each."""
        data, at, found = self.data, 0, []
        for row in self.rows:
            size = int.from_bytes(data[at : at + 4], "big")
            end = at + 20 + int.from_bytes(data[at + 16 : at + 20], "big")
            found.append((bytes(data[at + 20 : end]), data[end + 2 : at + size].decode("utf-8", "replace"), row))
            at += size
        return found


class Rows(Sequence[Row]):
    """Some rows of a batch, converted one by one on access."""

    def __init__(self, batch: pa.RecordBatch, first_ordinal: int, numbers: Sequence[int]) -> None:
        self._batch, self._first, self._numbers = batch, first_ordinal, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        if isinstance(at, slice):
            return Rows(self._batch, self._first, self._numbers[at])
        number = self._numbers[at]
        return Row(self._batch, number, self._first + number)


@dataclass(frozen=True, slots=True)
class Lane:
    """Rows that share requests: one topic, and one queue or any."""

    topic: str
    queue: MessageQueue | None = None
    is_single: bool = False
    """One message per request, because it is delayed or its topic accepts no batches."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The lanes of a batch with the numbers of their rows, and the rows that have none."""

    lanes: dict[Lane, Sequence[int]]
    bad: list[BadRow]


class Spreader:
    """Finds the lane of each row. `queues_of` returns the writable queues of a topic."""

    def __init__(self, topic: str | None, queues_of: Callable[[str], Sequence[MessageQueue]]) -> None:
        self._topic = topic
        self._queues_of = queues_of
        self._turn = 0

    def spread(self, batch: pa.RecordBatch, first_ordinal: int) -> Spread:
        names = set(batch.schema.names)
        chosen = names & {"queueId", "brokerName", "shardingKey", "delayTimeLevel", "deliverTimestamp"}
        if self._topic is not None and not chosen:
            return Spread({Lane(self._topic, None, self._topic.startswith(RETRY_PREFIX)): range(batch.num_rows)}, [])
        self._turn += 1
        lanes: dict[Lane, list[int]] = {}
        known: dict[tuple[object, ...], Lane | str] = {}
        bad: list[BadRow] = []
        for number, key in enumerate(zip(*self._keys(batch, names), strict=True)):
            lane = known.get(key)
            if lane is None:
                lane = known[key] = self._lane(*key)
            if isinstance(lane, str):
                bad.append(BadRow(Row(batch, number, first_ordinal + number), str(key[0] or ""), lane))
            else:
                lanes.setdefault(lane, []).append(number)
        return Spread(dict(lanes), bad)

    def _keys(self, batch: pa.RecordBatch, names: set[str]) -> list[list[Any]]:
        def values(name: str) -> list[Any]:
            return list(batch.column(name).to_pylist()) if name in names else [None] * batch.num_rows

        topics = values("topic") if self._topic is None else [self._topic] * batch.num_rows
        deliver = values("deliverTimestamp")
        timed = [each is not None for each in deliver]
        return [topics, values("brokerName"), values("queueId"), values("shardingKey"), values("delayTimeLevel"), timed]

    def _lane(
        self,
        topic: str | None,
        broker: str | None,
        queue_id: int | None,
        key: str | None,
        level: int | None,
        timed: bool,
    ) -> Lane | str:
        """The lane, or what is wrong."""
        if topic is None:
            return "the topic is null"
        if (fault := topic_fault(topic)) is not None:
            return fault
        if topic in NOT_FOR_CLIENTS:
            return f"topic {topic} is the broker's own"
        if level is not None and level < 0:
            return f"delayTimeLevel is {level}, less than 0"
        if level and timed:
            return "delayTimeLevel and deliverTimestamp contradict each other"
        queue = self._queue(topic, broker, queue_id, key)
        if isinstance(queue, str):
            return queue
        return Lane(topic, queue, bool(level) or timed or topic.startswith(RETRY_PREFIX))

    def _queue(
        self, topic: str, broker: str | None, queue_id: int | None, key: str | None
    ) -> MessageQueue | str | None:
        if broker is None and queue_id is None and not key:
            return None
        queues = [
            queue
            for queue in self._queues_of(topic)
            if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
        ]
        if not queues:
            where = " ".join(
                [*([f"queue {queue_id}"] if queue_id is not None else []), *([f"broker {broker}"] if broker else [])]
            )
            return f"topic {topic} has no {where} to write to"
        if key and queue_id is None:
            return queues[hash_index(key, len(queues))]
        return queues[self._turn % len(queues)]


class LaneEncoder:
    """The rows of one lane of a batch, turned into requests piece by piece."""

    def __init__(
        self, batch: pa.RecordBatch, numbers: Sequence[int], first_ordinal: int, encoder: BatchEncoder
    ) -> None:
        self._batch, self._numbers, self._first = batch, numbers, first_ordinal
        self._encoder = encoder
        self._at = 0
        whole = isinstance(numbers, range)
        taken = batch if whole else batch.take(pa.array(numbers, pa.int64()))
        set_columns(encoder, taken)
        encoder.ordinal_first = first_ordinal
        if not whole:
            encoder.ordinal = _numbers(pc.add(pa.array(numbers, pa.int64()), first_ordinal))

    def next(self, bytes_max: int, rows_max: int, topic: str) -> tuple[Elements | None, list[BadRow]]:
        """The next piece, and rows that are in none; None when there are no more."""
        encoder, first = self._encoder, self._at
        stop = min(len(self._numbers), first + rows_max)
        if first >= stop:
            return None, []
        self._at = encoder.encode(first, stop, bytes_max, STORED_BYTES + len(topic))
        numbers = self._numbers[first : self._at]
        bad = []
        if encoder.faults:
            faulty = dict(encoder.faults)
            bad = [self._bad(self._numbers[at], topic, code) for at, code in faulty.items()]
            numbers = [self._numbers[at] for at in range(first, self._at) if at not in faulty]
        data = bytes(memoryview(encoder.out)[: encoder.used])
        return Elements(data, Rows(self._batch, self._first, numbers)), bad

    def _bad(self, number: int, topic: str, code: int) -> BadRow:
        row, reason = Row(self._batch, number, self._first + number), _FAULTS[code]
        if code == codes.BODY_TOO_LARGE:
            size = pc.binary_length(self._batch.column("body")[number]).as_py()
            reason = f"{reason}: {size} bytes, option maxMessageBytes={self._encoder.body_bytes_max}"
        return BadRow(row, topic, reason)

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._numbers)

    @property
    def sequence(self) -> int:
        """Of the next message's unique key."""
        return int(self._encoder.sequence)

    @sequence.setter
    def sequence(self, value: int) -> None:
        self._encoder.sequence = value


def set_columns(encoder: BatchEncoder, batch: pa.RecordBatch) -> None:
    """Give the encoder the buffers of a batch with at least one row."""
    names = batch.schema.names
    encoder.clear()
    for name, attribute in (("body", "body"), ("tags", "tags"), ("keys", "keys"), ("shardingKey", "sharding_key")):
        if name in names:
            setattr(encoder, attribute, _text(batch.column(name)))
    if "properties" in names:
        maps = batch.column("properties")
        valid, ends, *_ = maps.buffers()
        encoder.set_properties(TextSource(ends, None, valid, maps.offset), _text(maps.keys), _text(maps.items))
    if "delayTimeLevel" in names:
        encoder.delay_level = _numbers(batch.column("delayTimeLevel").cast(pa.int64()))
    if "deliverTimestamp" in names:
        encoder.deliver_ms = _numbers(milliseconds(batch.column("deliverTimestamp")))


def milliseconds(column: pa.Array) -> pa.Array:
    """A time, or a number of milliseconds, as the latter."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.int64())


def _text(column: pa.Array) -> TextSource:
    kind = column.type
    if pa.types.is_large_binary(kind):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(kind):
        column = column.cast(pa.string())
    valid, ends, data = column.buffers()
    return TextSource(ends if ends is not None and len(ends) else bytes(4), data, valid, column.offset)


def _numbers(column: pa.Array) -> NumberSource:
    valid, numbers = column.buffers()
    return NumberSource(numbers, valid, column.offset)
