"""One task of a write: every row of its input at a broker when it returns, or an error."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rocketq.client.blocking import BlockingClient
from rocketq.client.blocking.sender import BatchSender, OutboundBatch, SendSettings
from rocketq.client.core.messages import month_start_ms
from rocketq.client.core.send_flow import Accepted
from rocketq.errors import RocketQError
from rocketq.kernel.batch_encode import BatchEncoder
from rocketq.model import SysFlag
from rocketq.protocol.failures import BrokerError, TopicNotFoundError
from rocketq.protocol.names import Property
from rocketq.protocol.properties import PROPERTIES_BYTES_MAX, encode_properties
from rocketq.spark.batch_rows import (
    HALF_PROPERTIES_BYTES_MAX,
    LEFT_OUT,
    ROWS_MIN,
    SPARK_ORIGIN,
    BadRow,
    Elements,
    Lane,
    LaneEncoder,
    Row,
    Spreader,
)
from rocketq.spark.errors import SparkError, told_of
from rocketq.spark.sink_options import BadRecords, SinkOptions

log = logging.getLogger(__name__)

REASON: Final = "SPARK_BAD_REASON"
BAD_TOPIC: Final = "SPARK_BAD_TOPIC"
BAD_BODY_BYTES: Final = "SPARK_BAD_BODY_BYTES"
DEAD_BODY_BYTES_MAX: Final = 1 << 20
"""What is kept of a body that was too large."""
REASON_CHARS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class TaskId:
    """Which part of which batch of which query a task writes; a batch job has no query."""

    partition: int
    query: str | None = None
    batch: int | None = None

    @property
    def origin(self) -> str:
        """The start of SPARK_TX: equal in all attempts, so that consumers recognize copies."""
        return f"{self.query}/{self.batch}/{self.partition}/" if self.query is not None else ""

    def __str__(self) -> str:
        return f"partition {self.partition}" + (f" of batch {self.batch}" if self.batch is not None else "")


@dataclass(slots=True)
class Written:
    """What a task did."""

    rows: int = 0
    skipped: int = 0
    dead_lettered: int = 0
    first_fault: str | None = None


class TaskWriter:
    """Sends the rows of one task. `half` are properties that make each message a half one."""

    def __init__(self, client: BlockingClient, options: SinkOptions, task: TaskId, half: bytes = b"") -> None:
        self._options = options
        self._task = task
        self._half = half
        self._ids: IdSource = id_source()
        settings = SendSettings(
            group=options.group,
            in_flight_max=options.sends_in_flight,
            timeout_ms=options.timeout_ms,
            retries=options.retries,
        )
        self.sender = BatchSender(client, settings, on_refused=self._refused, on_stored=self._stored)
        self._spreader = Spreader(options.topic, self.sender.queues)
        self._encoders: list[BatchEncoder] = []
        self.written = Written()

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Returns when brokers have acknowledged everything."""
        ordinal = 0
        try:
            for batch in batches:
                if batch.num_rows:
                    self._write(batch, ordinal)
                ordinal += batch.num_rows
            self.sender.drain()
        except BaseException as error:
            self.sender.abandon()
            if isinstance(error, RocketQError) and not isinstance(error, SparkError):
                raise self._told(error) from None
            raise
        self._tell_faults()
        return self.written

    def stored(self, answer: Accepted) -> None:
        """For those who need the answers."""

    def before(self, topic: str) -> None:
        """For those who ask something of the topic's brokers first."""

    # Rows to requests

    def _write(self, batch: pa.RecordBatch, ordinal: int) -> None:
        spread = self._spreader.spread(batch, ordinal)
        for bad in spread.bad:
            self._put_all(self._judged(bad))
        while len(self._encoders) < len(spread.lanes):
            self._encoders.append(self._encoder())
        lanes = [
            (lane, LaneEncoder(batch, numbers, ordinal, encoder))
            for (lane, numbers), encoder in zip(spread.lanes.items(), self._encoders, strict=False)
        ]
        rows_max = {lane: self._rows_max(lane, len(numbers)) for lane, numbers in spread.lanes.items()}
        while lanes:  # in turns, so that one queue does not wait for another
            for lane, encoder in lanes:
                elements, bads = self._encoded(lane, encoder, rows_max[lane])
                for bad in bads:
                    self._put_all(self._judged(bad))
                if elements is not None and elements.rows:
                    self._put_all(self._parcels(lane, elements))
            lanes = [(lane, encoder) for lane, encoder in lanes if not encoder.is_done]

    def _encoder(self) -> BatchEncoder:
        properties_max = HALF_PROPERTIES_BYTES_MAX if self._half else PROPERTIES_BYTES_MAX
        origin = self._task.origin.encode()
        return BatchEncoder(
            self._ids.head, origin, self._half, LEFT_OUT, self._options.message_bytes_max, properties_max
        )

    def _encoded(self, lane: Lane, rows: LaneEncoder, rows_max: int) -> tuple[Elements | None, list[BadRow]]:
        rows.sequence = self._ids.begin(time.time_ns() // 1_000_000)
        try:
            return rows.next(self._options.batch_bytes, rows_max, lane.topic)
        finally:
            self._ids.end(rows.sequence)

    def _rows_max(self, lane: Lane, rows: int) -> int:
        """So that all queues get their share of a batch."""
        self.before(lane.topic)
        return max(ROWS_MIN, math.ceil(rows / len(self.sender.queues(lane.topic)))) if lane.queue is None else rows

    def _parcels(self, lane: Lane, elements: Elements) -> list[OutboundBatch]:
        if lane.is_single or self._half:
            return [
                OutboundBatch(
                    topic=lane.topic,
                    body=body,
                    properties=properties,
                    is_batch=False,
                    sys_flag=SysFlag.TRANSACTION_PREPARED if self._half else 0,
                    queue=lane.queue,
                    origin=(row,),
                )
                for body, properties, row in elements.messages()
            ]
        return [OutboundBatch(topic=lane.topic, body=elements.data, is_batch=True, queue=lane.queue, origin=elements)]

    def _put_all(self, parcels: Sequence[OutboundBatch]) -> None:
        for parcel in parcels:
            self.sender.put(parcel)

    # What becomes of them

    def _stored(self, parcel: OutboundBatch, answer: Accepted) -> None:
        if isinstance(parcel.origin, Elements):
            self.written.rows += len(parcel.origin.rows)
        elif parcel.origin is not None:
            self.written.rows += 1
        self.stored(answer)

    def _refused(self, parcel: OutboundBatch, error: BrokerError) -> Sequence[OutboundBatch]:
        """Of a batch that its broker does not take, the rows it does not take are found by halving."""
        if parcel.origin is None:
            raise SparkError(f"{self._task}: a dead letter for topic {parcel.topic} was refused: {error}")
        if isinstance(parcel.origin, Elements) and len(parcel.origin.rows) > 1:
            return [
                OutboundBatch(topic=parcel.topic, body=half.data, is_batch=True, queue=parcel.queue, origin=half)
                for half in parcel.origin.halves()
            ]
        row = parcel.origin.rows[0] if isinstance(parcel.origin, Elements) else parcel.origin[0]
        return self._judged(BadRow(row, parcel.topic, f"refused by its broker: {error.remark or error}"))

    # Bad rows

    def _judged(self, bad: BadRow) -> list[OutboundBatch]:
        """The action of the option badRecords: an error, a skip, or a dead letter."""
        fault = f"row {bad.row.ordinal} of {self._task}, topic {bad.topic or '(none)'}: {bad.reason}"
        policy, written = self._options.bad_records, self.written
        if policy is BadRecords.FAIL:
            raise SparkError(f"{fault}; option badRecords=skip or deadLetter goes on without such rows")
        written.first_fault = written.first_fault or fault
        if policy is BadRecords.SKIP:
            written.skipped += 1
            return []
        written.dead_lettered += 1
        return [self._dead_letter(bad)]

    def _dead_letter(self, bad: BadRow) -> OutboundBatch:
        topic = self._options.dead_letter_topic
        assert topic is not None
        self.before(topic)
        body = _body(bad.row)
        kept = body[: min(DEAD_BODY_BYTES_MAX, self._options.message_bytes_max)] or bad.reason.encode()
        properties = {
            Property.UNIQUE_KEY: self._ids.one(),
            REASON: _clean(bad.reason)[:REASON_CHARS_MAX],
            BAD_TOPIC: _clean(bad.topic)[:200],
            BAD_BODY_BYTES: str(len(body)),
            Property.KEYS: _clean(bad.row.value("keys"))[:REASON_CHARS_MAX],
            Property.TAGS: _clean(bad.row.value("tags"))[:200],
            SPARK_ORIGIN: f"{self._task.origin}{bad.row.ordinal}" if self._task.origin else "",
        }
        return OutboundBatch(
            topic=topic,
            body=kept,
            properties=(encode_properties(properties) + self._half).decode(),
            is_batch=False,
            sys_flag=SysFlag.TRANSACTION_PREPARED if self._half else 0,
        )

    def _tell_faults(self) -> None:
        written = self.written
        if written.skipped or written.dead_lettered:
            what = f"{written.skipped} rows were skipped" if written.skipped else (
                f"{written.dead_lettered} rows went to {self._options.dead_letter_topic}"
            )  # fmt: skip
            log.warning("%s: %s; the first: %s", self._task, what, written.first_fault)

    def _told(self, error: RocketQError) -> SparkError:
        if isinstance(error, TopicNotFoundError):
            why = error.remark or "no broker has the topic"
            return SparkError(f"{self._task} was not written: {why}: there is none, or its brokers are away")
        return told_of(f"{self._task} was not written", error)


def _body(row: Row) -> bytes:
    value = row.value("body")
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]


def _clean(value: object) -> str:
    return str(value or "").replace("\x01", " ").replace("\x02", " ")


class IdSource:
    """Host, process and chance make the head, time and a count the sequence: two attempts of a task never share one."""

    def __init__(self) -> None:
        host = zlib.crc32(socket.gethostname().encode()).to_bytes(4, "big")
        process = (os.getpid() & 0xFFFF).to_bytes(2, "big")
        self.head = (host + process + os.urandom(4)).hex().upper().encode()
        self.sequence = 0

    def begin(self, now_ms: int) -> int:
        """The start of the next run of ids; pass its end to end()."""
        self.sequence = max(self.sequence, (now_ms - month_start_ms(now_ms)) << 16)
        return self.sequence

    def end(self, sequence: int) -> None:
        self.sequence = sequence

    def one(self) -> str:
        sequence = self.begin(time.time_ns() // 1_000_000)
        self.end(sequence + 1)
        return f"{self.head.decode()}{sequence:012X}"


_sources: dict[int, IdSource] = {}


def id_source() -> IdSource:
    """This process's own; workers are forked, so one that was made before a fork is the parent's."""
    if os.getpid() not in _sources:
        _sources.clear()
        _sources[os.getpid()] = IdSource()
    return _sources[os.getpid()]
