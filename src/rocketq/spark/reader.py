"""One task: a slice of a queue as Arrow batches. What it yields depends on the slice and the options alone."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketq.client.blocking import BlockingClient, QueueReader, ReadOptions
from rocketq.client.blocking.queue_reader import RangeGoneError
from rocketq.client.core.subscriptions import tags_of
from rocketq.columns import COLUMN_TYPES, BatchBuilder
from rocketq.errors import ProtocolError
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.record_columns import RecordRows
from rocketq.kernel.records import MESSAGE
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ExpressionType
from rocketq.spark.errors import DataLossError, SparkError
from rocketq.spark.options import Connection, Fetching, SourceOptions
from rocketq.spark.planner import QueueSlice

BATCH_BYTES: Final = 4 << 20
"""Of records decoded at once: less costs more per row, more gains nothing."""

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
    decoder = _Decoder(part, options, schema)
    low = part.low
    while low < part.high:
        try:
            for records in _gathered(_bodies(part, low, options)):
                batch = decoder.decode(records)
                if batch.num_rows:
                    yield batch
            break
        except RangeGoneError as gone:
            if options.fail_on_data_loss:
                raise DataLossError(f"{gone}; option failOnDataLoss=false reads on without them") from None
            log.warning("%s: read on without them", gone)
            low = gone.high
    decoder.require_complete()


def _bodies(part: QueueSlice, low: int, options: SourceOptions) -> Iterable[bytes]:
    queue = MessageQueue(topic=part.queue.topic, broker_name=part.queue.broker_name, queue_id=part.queue.queue_id)
    return QueueReader(client_of(options.connection), queue, low, part.high, _read_options(options.fetching))


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
        self._fails_on_loss = options.fail_on_data_loss
        self._is_filtered = options.fetching.expression != "*"
        self._tags = _wanted_tags(options.fetching)
        wider = schema
        if self._tags is not None and "tags" not in schema.names:
            wider = schema.append(pa.field("tags", COLUMN_TYPES["tags"]))
        self._builder = BatchBuilder(wider, {"brokerName": part.queue.broker_name, "topic": part.queue.topic})
        self._rows = RecordRows()
        self._rows.in_place = False
        self._rows.queue_offset_low, self._rows.queue_offset_high = part.low, part.high
        self._count = 0

    def decode(self, records: bytes) -> pa.RecordBatch:
        state = self._rows.collect(MappedBuffer(records, 0), 0, len(records), len(records))
        if state != MESSAGE or self._rows.at != len(records):
            raise ProtocolError(f"{self._part.queue}: an answer of the broker is damaged at byte {self._rows.at}")
        try:
            batch = self._builder.build(self._rows)
        except ProtocolError as error:
            raise SparkError(f"{self._part.queue}: a compressed body cannot be read: {error}") from None
        self._count += batch.num_rows
        if self._tags is not None:
            batch = batch.filter(pc.is_in(batch.column("tags"), value_set=self._tags)).select(self._schema.names)
        return batch

    def require_complete(self) -> None:
        """Without a filter every offset is a row."""
        if self._fails_on_loss and not self._is_filtered and self._count < self._part.count:
            missing = self._part.count - self._count
            raise DataLossError(f"{self._part.queue}: {missing} of {self._part.count} messages were not readable")


def _wanted_tags(fetching: Fetching) -> pa.Array | None:
    if fetching.expression_type != ExpressionType.TAG:
        return None
    tags = tags_of(fetching.expression)
    return pa.array(sorted(tags), pa.string()) if tags else None
