"""One task: a slice of a queue as Arrow batches. The result depends only on the slice and the options."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from rocketq.client.blocking import BlockingClient, QueueReader, ReadOptions
from rocketq.client.blocking.client import ReadInto
from rocketq.client.blocking.queue_reader import LocalReadError, RangeGoneError, RecordLocations
from rocketq.client.core.subscriptions import tags_of
from rocketq.columns import COLUMN_TYPES, BatchBuilder, arrow_schema
from rocketq.errors import ProtocolError, RocketQError
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.reader import HAS_MORE, MISPLACED, copy_places
from rocketq.kernel.record_columns import RecordRows
from rocketq.kernel.records import MESSAGE, whole_records
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ExpressionType
from rocketq.protocol.names import SYSTEM_PROPERTIES
from rocketq.spark.errors import DataLossError, SparkError, told_of
from rocketq.spark.log_files import LogFiles
from rocketq.spark.options import Connection, Fetching, SourceOptions
from rocketq.spark.planner import LostRange, QueueSlice, describe_ranges

BATCH_BYTES: Final = 3 << 20
"""Of records in a batch, at least. A full answer of our broker is more; smaller ones, as Apache's brokers give, share
one."""
PIECE_BYTES: Final = 512 << 10
"""The part of an answer that is received and decoded in one step: half of a core's private cache."""
_PLACE: Final = struct.Struct(">qqi")

log = logging.getLogger(__name__)

_clients: dict[tuple[int, Connection], BlockingClient] = {}


def client_of(connection: Connection) -> BlockingClient:
    """Python workers are used again: their connections too, but not across a fork."""
    key = (os.getpid(), connection)
    if key not in _clients:
        _clients[key] = BlockingClient(connection.name_servers, credentials=connection.credentials, tls=connection.tls)
    return _clients[key]


def read_slice(part: QueueSlice, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of [low, high), in queue order; DataLossError or a warning for lost ones, depending on the options."""
    decoder, lost = _Decoder(part, options, schema), list[LostRange]()
    yield from _batches(decoder, part, options, lost)
    missing = part.count - decoder.count - sum(each.count for each in lost)
    if missing > 0 and not decoder.is_filtered:  # without a filter every offset is a row
        log.warning("%s: %d messages are not readable", part, missing)
        if options.fail_on_data_loss:
            _tell_loss(_missing(part, options), options)


def _batches(
    decoder: _Decoder, part: QueueSlice, options: SourceOptions, lost: list[LostRange]
) -> Iterator[pa.RecordBatch]:
    """All available rows; missing ones are skipped and counted as lost, if the options allow it."""
    queue = MessageQueue(topic=part.queue.topic, broker_name=part.queue.broker_name, queue_id=part.queue.queue_id)
    client, asked = client_of(options.connection), _read_options(options.fetching)
    ranges = [(part.low, part.high)]
    while ranges:
        low, high = ranges.pop()
        reader = QueueReader(client, queue, low, high, asked)
        try:
            for _ in reader.feed(decoder):
                yield from decoder.ready()
        except RangeGoneError as gone:
            lost.append(LostRange(part.queue, gone.low, gone.high))
            _tell_loss(lost[-1:], options)
            ranges += [(gone.high, high)] if gone.high < high else []
            ranges += [(reader.next_offset, gone.low)] if reader.next_offset < gone.low else []
        except SparkError:  # from the decoder, with the position
            raise
        except RocketQError as error:
            raise told_of(f"{part.queue} at offset {reader.next_offset}", error) from None
    decoder.flush()
    yield from decoder.ready()


def _tell_loss(lost: list[LostRange], options: SourceOptions) -> None:
    shown = describe_ranges(lost)
    if options.fail_on_data_loss:
        raise DataLossError(f"messages no longer exist: {shown}; option failOnDataLoss=false skips them")
    log.warning("messages no longer exist and are skipped: %s", shown)


def _missing(part: QueueSlice, options: SourceOptions) -> list[LostRange]:
    """Which offsets a complete read did not bring: looked for only when some are missing."""
    decoder, lost, at = _Decoder(part, options, arrow_schema(["queueOffset"])), [], part.low
    for batch in _batches(decoder, part, options, []):
        for offset in batch.column(0).to_pylist():
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
        in_place=fetching.in_place,
    )


class _Decoder:
    """Records of one slice to batches, while they come; tags are compared as texts, since brokers compare hashes only.

    Answers pass through one small piece of memory: what is received there is decoded while it is in the cache. Records
    that a broker has in files of this machine are copied there from where they lie.
    """

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
        self._piece = bytearray(PIECE_BYTES)
        self._log_files = LogFiles()
        self._bytes = 0
        self._ready: list[pa.RecordBatch] = []
        self.count = 0

    def ready(self) -> list[pa.RecordBatch]:
        """Batches that are whole, each handed out once."""
        ready, self._ready = self._ready, []
        return ready

    def flush(self) -> None:
        """Nothing more comes: what there is makes the last batch."""
        self._finish(int(self._rows.filled))

    def take(self, size: int, into: ReadInto, high: int) -> None:
        self._rows.queue_offset_high = min(high, self._part.high)
        with self._all_or_none(size):
            self._decode(size, into)

    def append_local(self, placed: RecordLocations) -> None:
        self._rows.queue_offset_high = self._part.high
        with self._all_or_none(placed.size_bytes):
            self._decode_placed(placed)

    @contextmanager
    def _all_or_none(self, size: int) -> Iterator[None]:
        """All records of these bytes become rows, or none of them."""
        before = int(self._rows.filled)
        try:
            yield
        except BaseException:
            self._finish(before)
            raise
        self._bytes += size
        if self._bytes >= BATCH_BYTES:
            self.flush()

    def _decode(self, size: int, into: ReadInto) -> None:
        """One answer, piece by piece: the rest of a piece is put before the next if a record spans both."""
        received = used = 0
        while received < size:
            held = received - used
            if held == len(self._piece):
                self._piece = self._piece + bytes(held)  # a record that is larger than all of it
            count = min(size - received, len(self._piece) - held)
            with memoryview(self._piece) as piece:
                into(piece[held : held + count])
            received += count
            taken = self._add(held + count, used, size)
            self._piece[: received - used - taken] = self._piece[taken : held + count]
            used += taken
        if used < size:
            raise self._damaged(used)

    def _add(self, end: int, before: int, size: int) -> int:
        """Decode the records in the piece's first `end` bytes, the last of which may be incomplete; returns their
        length. `before` of `size` bytes precede them."""
        stop = whole_records(MappedBuffer(self._piece, 0), end)
        if stop == 0:
            return 0
        state = self._rows.collect(MappedBuffer(memoryview(self._piece)[:stop], 0), 0, stop, stop)
        if state != MESSAGE or self._rows.at != stop:
            raise self._damaged(before + self._rows.at)
        self._lay_out(1 + (size - before - stop) // stop)
        return int(stop)

    def _decode_placed(self, placed: RecordLocations) -> None:
        """Copy records one by one into the piece, then decode them like received ones. Each record contains its own
        location and id."""
        queue = self._part.queue
        self._rows.topics, self._rows.queue_ids = {queue.topic.encode()}, {queue.queue_id}
        try:
            self._take_from_files(placed, min(placed.high, self._part.high))
        finally:
            self._rows.topics = self._rows.queue_ids = None

    def _take_from_files(self, placed: RecordLocations, high: int) -> None:
        places, at, low, state, file = MappedBuffer(placed.places, 0), 0, placed.low, HAS_MORE, None
        if not placed.places or len(placed.places) % _PLACE.size:
            raise LocalReadError(f"{self._part}: places of {len(placed.places)} bytes")
        while state == HAS_MORE:
            log_offset, _, size = _PLACE.unpack_from(placed.places, at * _PLACE.size)
            if file is None or not file.base <= log_offset < file.base + file.size:
                file = self._log_files.of(placed, log_offset)
            if size > len(self._piece):
                self._piece = bytearray(min(size, file.size))
            state, following, used = copy_places(file, places, at, low, high, MappedBuffer(self._piece, 0))
            if state == MISPLACED or (state == HAS_MORE and following == at):
                raise LocalReadError(f"{self._part}: what is at place {following} is not of it")
            if following > at:
                self._add_copied(following - at, used, placed.size_bytes)
                low = _PLACE.unpack_from(placed.places, (following - 1) * _PLACE.size)[1] + 1
            at = following

    def _add_copied(self, count: int, used: int, size: int) -> None:
        """This many records, which are the first bytes of the piece of an answer of `size`."""
        state = self._rows.collect(MappedBuffer(memoryview(self._piece)[:used], 0), 0, used, used)
        if state != MESSAGE or self._rows.at != used or self._rows.rows != count:
            raise LocalReadError(f"{self._part}: a record is damaged, or of another queue")
        self._lay_out(max(1, size // used))

    def _lay_out(self, times: int) -> None:
        """The rows just collected, and how many more like them are expected."""
        try:
            self._builder.add(self._rows, times=times)
        except ProtocolError as error:
            raise SparkError(f"{self._part}: a compressed body cannot be read: {error}") from None

    def _damaged(self, at: int) -> SparkError:
        return SparkError(f"{self._part}: an answer of the broker is damaged at byte {at}")

    def _finish(self, count: int) -> None:
        """A batch of the first `count` rows that were added, if there are any."""
        self._bytes = 0
        batch = self._builder.finish(self._rows)
        if count < batch.num_rows:  # an incomplete answer, which is requested again
            batch = batch.slice(0, count)
        self.count += count
        if self._tags is not None:
            import pyarrow.compute as pc  # noqa: PLC0415 - expensive to load in each Python process of Spark

            batch = batch.filter(pc.is_in(batch.column("tags"), value_set=self._tags)).select(self._schema.names)
        if batch.num_rows:
            self._ready.append(batch)


def _wanted_tags(fetching: Fetching) -> pa.Array | None:
    if fetching.expression_type != ExpressionType.TAG:
        return None
    tags = tags_of(fetching.expression)
    return pa.array(sorted(tags), pa.string()) if tags else None
