"""One task: a slice of a queue as Arrow batches. What it yields depends on the slice and the options alone."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from rocketq.client.blocking import BlockingClient, QueueReader, ReadOptions
from rocketq.client.blocking.queue_reader import RangeGoneError
from rocketq.client.core.subscriptions import tags_of
from rocketq.columns import COLUMN_TYPES, BatchBuilder, arrow_schema
from rocketq.errors import ProtocolError, RocketQError
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.record_columns import RecordRows
from rocketq.kernel.records import MESSAGE
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ExpressionType
from rocketq.protocol.names import SYSTEM_PROPERTIES
from rocketq.spark.errors import DataLossError, SparkError, told_of
from rocketq.spark.options import Connection, Fetching, SourceOptions
from rocketq.spark.planner import LostRange, QueueSlice, describe_ranges

BATCH_BYTES: Final = 3 << 20
"""Of records decoded at once, at least. A full answer of our broker is more and is decoded as it lies; smaller ones, as
Apache's brokers give, are joined."""

log = logging.getLogger(__name__)

_clients: dict[tuple[int, Connection], BlockingClient] = {}


def client_of(connection: Connection) -> BlockingClient:
    """Python workers are used again: their connections too, but not across a fork."""
    key = (os.getpid(), connection)
    if key not in _clients:
        _clients[key] = BlockingClient(connection.name_servers, credentials=connection.credentials, tls=connection.tls)
    return _clients[key]


def read_slice(part: QueueSlice, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of [low, high), in queue order; DataLossError or a warning when some are gone, as the options say."""
    decoder, lost = _Decoder(part, options, schema), list[LostRange]()
    for records in _gathered(_bodies(part, options, lost)):
        batch = decoder.decode(records)
        if batch.num_rows:
            yield batch
    missing = part.count - decoder.count - sum(each.count for each in lost)
    if missing > 0 and not decoder.is_filtered:  # without a filter every offset is a row
        log.warning("%s: %d messages are not readable", part, missing)
        if options.fail_on_data_loss:
            _tell_loss(_missing(part, options), options)


def _bodies(part: QueueSlice, options: SourceOptions, lost: list[LostRange]) -> Iterator[bytes]:
    """All that is there; what is gone is passed and added to what is lost, if the options say so."""
    queue = MessageQueue(topic=part.queue.topic, broker_name=part.queue.broker_name, queue_id=part.queue.queue_id)
    client, asked = client_of(options.connection), _read_options(options.fetching)
    ranges = [(part.low, part.high)]
    while ranges:
        low, high = ranges.pop()
        reader = QueueReader(client, queue, low, high, asked)
        try:
            yield from reader
        except RangeGoneError as gone:
            lost.append(LostRange(part.queue, gone.low, gone.high))
            _tell_loss(lost[-1:], options)
            ranges += [(gone.high, high)] if gone.high < high else []
            ranges += [(reader.next_offset, gone.low)] if reader.next_offset < gone.low else []
        except RocketQError as error:
            raise told_of(f"{part.queue} at offset {reader.next_offset}", error) from None


def _tell_loss(lost: list[LostRange], options: SourceOptions) -> None:
    shown = describe_ranges(lost)
    if options.fail_on_data_loss:
        raise DataLossError(f"not there any more: {shown}; option failOnDataLoss=false reads on without")
    log.warning("not there any more, read on without: %s", shown)


def _missing(part: QueueSlice, options: SourceOptions) -> list[LostRange]:
    """Which offsets a complete read did not bring: looked for only when some are missing."""
    decoder, lost, at = _Decoder(part, options, arrow_schema(["queueOffset"])), [], part.low
    for records in _gathered(_bodies(part, options, [])):
        for offset in decoder.decode(records).column(0).to_pylist():
            if offset > at:
                lost.append(LostRange(part.queue, at, offset))
            at = offset + 1
    return [*lost, LostRange(part.queue, at, part.high)] if at < part.high else lost


def _read_options(fetching: Fetching) -> ReadOptions:
    return ReadOptions(
        group=fetching.group,
        expression=fetching.expression,
        expression_type=fetching.expression_type,
        count_max=fetching.count_max,
        bytes_max=fetching.bytes_max,
        depth=fetching.depth,
        timeout_ms=fetching.timeout_ms,
        retries=fetching.retries,
        retry_ms=fetching.retry_ms,
    )


def _gathered(bodies: Iterable[bytes]) -> Iterator[bytes]:
    """Answers joined to pieces worth decoding."""
    held: list[bytes] = []
    size = 0
    for body in bodies:
        held.append(body)
        size += len(body)
        if size >= BATCH_BYTES:
            yield held[0] if len(held) == 1 else b"".join(held)
            held, size = [], 0
    if held:
        yield held[0] if len(held) == 1 else b"".join(held)


class _Decoder:
    """Records of one slice to batches; tags are compared as texts, since brokers compare hashes only."""

    def __init__(self, part: QueueSlice, options: SourceOptions, schema: pa.Schema) -> None:
        self._part = part
        self._schema = schema
        self.is_filtered = options.fetching.expression != "*"
        self._tags = _wanted_tags(options.fetching)
        wider = schema
        if self._tags is not None and "tags" not in schema.names:
            wider = schema.append(pa.field("tags", COLUMN_TYPES["tags"]))
        self._builder = BatchBuilder(wider, {"brokerName": part.queue.broker_name, "topic": part.queue.topic})
        self._rows = RecordRows()
        self._rows.in_place = False
        if options.user_properties_only:
            self._rows.hide(name.encode() for name in SYSTEM_PROPERTIES)
        self._rows.queue_offset_low, self._rows.queue_offset_high = part.low, part.high
        self.count = 0

    def decode(self, records: bytes) -> pa.RecordBatch:
        state = self._rows.collect(MappedBuffer(records, 0), 0, len(records), len(records))
        if state != MESSAGE or self._rows.at != len(records):
            raise SparkError(f"{self._part}: an answer of the broker is damaged at byte {self._rows.at}")
        try:
            batch = self._builder.build(self._rows)
        except ProtocolError as error:
            raise SparkError(f"{self._part}: a compressed body cannot be read: {error}") from None
        self.count += batch.num_rows
        if self._tags is not None:
            import pyarrow.compute as pc  # noqa: PLC0415 - dear to load, for every Python process of Spark's

            batch = batch.filter(pc.is_in(batch.column("tags"), value_set=self._tags)).select(self._schema.names)
        return batch


def _wanted_tags(fetching: Fetching) -> pa.Array | None:
    if fetching.expression_type != ExpressionType.TAG:
        return None
    tags = tags_of(fetching.expression)
    return pa.array(sorted(tags), pa.string()) if tags else None
