"""Reads and lookups of a store. Arguments are checked by name and type before they reach the kernel."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from rocketq.errors import StoreClosedError
from rocketq.kernel.filter_program import FilterProgram
from rocketq.kernel.queue_units import FILLER_SIZE
from rocketq.kernel.reader import NEED_SEGMENT, READ_COLD, QueueRead, ReadLimits, ReadRequest
from rocketq.kernel.records import MESSAGE, RecordView, find_next_record
from rocketq.kernel.residency import ResidentPages
from rocketq.model import Record, decode_message_id
from rocketq.protocol.properties import decode_properties
from rocketq.store.commit_log import CommitLog
from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import ConsumeQueue, QueueTable
from rocketq.store.disk import Disk, DiskUsage
from rocketq.store.index import Index
from rocketq.store.page_loads import Loaded, PageLoads
from rocketq.store.queue_extensions import Extension, is_address
from rocketq.store.results import QueryResult, ReadResult, ReadStatus

log = logging.getLogger(__name__)


def require_place(topic: object, queue_id: object, queue_offset: object = 0, *, what: str = "queue_offset") -> None:
    """Check the types of topic, queue id and offset (or the number named `what`); TypeError names the wrong one."""
    if type(topic) is not str:
        require_text("topic", topic)
    if type(queue_id) is not int:
        require_number("queue_id", queue_id)
    if type(queue_offset) is not int:
        require_number(what, queue_offset)


def require_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {value!r:.60}")


def require_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r:.60}")


def require_count(name: str, value: object) -> None:
    """A number of things, so 0 or more."""
    require_number(name, value)
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{name} must not be negative: {value}")


SCAN_UNITS_MIN = 800
COLLISIONS_ALLOWED = 4

UnitFilter = Callable[[int], bool]
ExtensionFilter = Callable[[Extension], bool]
"""Filter of unit extensions; a unit without one passes."""
RecordFilter = Callable[[bytes], bool] | FilterProgram
"""Filter of whole records; a program reads their properties without a copy."""


class Queries:
    """Reads see nothing behind `visible_to()`."""

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: QueueTable,
        index: Index,
        visible_to: Callable[[], int],
        *,
        on_damaged_unit: Callable[[str], None],
    ) -> None:
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._visible_to = visible_to
        self._loads = PageLoads(commit_log)
        self._memory_bytes = _memory_bytes(config)
        self.bad_records = 0
        self._on_damaged_unit = on_damaged_unit

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config
        self._memory_bytes = _memory_bytes(config)

    @property
    def memory_bytes(self) -> int:
        """Distance from the log's end within which records count as resident without checking pages."""
        return self._memory_bytes

    # Reading a queue

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        count_max: int,
        bytes_max: int | None,
        tag_codes: frozenset[int] | None,
        unit_filter: UnitFilter | None,
        extension_filter: ExtensionFilter | None = None,
        record_filter: RecordFilter | None,
        correct_offset: bool,
        in_place: bool,
        resident_only: bool = False,
        loaded_to: int | None = None,
    ) -> ReadResult:
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return _nothing(ReadStatus.NO_MATCHED_QUEUE, 0 if correct_offset else queue_offset, 0, 0)
        low, high = queue.min_offset, self.max_offset_of(queue)
        wrong = _judge_offset(queue_offset, low, high)
        if wrong is not None:
            status, following = wrong
            return _nothing(status, following if correct_offset else queue_offset, low, high)
        units = queue.file_at(queue_offset)
        if units is None:
            following = (queue_offset // queue.units_per_file + 1) * queue.units_per_file
            return _nothing(ReadStatus.OFFSET_FOUND_NULL, following if correct_offset else queue_offset, low, high)
        limits = self._limits(count_max, bytes_max, resident_only)
        stop = min(high, units.base + queue.units_per_file) - units.base
        if loaded_to is not None:
            stop, limits.memory_bytes = min(stop, loaded_to - units.base), limits.log_end
        found, unit_filter = QueueRead(), _extended_filter(queue, unit_filter, extension_filter)
        found.in_place = in_place
        check_crc = self._config.check_crc_on_read
        wanted = ReadRequest(limits, self._log.start, tag_codes, unit_filter, record_filter, check_crc)
        while True:
            state = found.read(
                self._log.map,
                queue.tail,
                units,
                queue_offset - units.base,
                stop,
                wanted,
            )
            if state != NEED_SEGMENT:
                break
            self._log.segment(found.need_log_offset)
        if found.bad:
            self._count_bad(queue, queue_offset, found)
        return self._result(found, queue_offset, low, high, from_disk=found.cold or loaded_to is not None)

    def load(
        self,
        queue: ConsumeQueue,
        first: int,
        stop: int,
        *,
        count_max: int,
        bytes_max: int | None,
        tag_codes: frozenset[int] | None,
    ) -> Loaded:
        """Have what a read with these limits takes in the page cache; blocks for the disk, not for other threads."""
        limits = self._limits(count_max, bytes_max, False)
        return self._loads.load(
            queue, first, stop, count_max=limits.count_max, bytes_max=limits.bytes_max, tag_codes=tag_codes
        )

    def _limits(self, count_max: int, bytes_max: int | None, resident_only: bool) -> ReadLimits:
        config = self._config
        given = bytes_max is not None
        return ReadLimits(
            count_max if given else min(count_max, config.memory_read_count_max),
            bytes_max if bytes_max is not None else config.memory_read_bytes_max,
            count_max if given else config.disk_read_count_max,
            bytes_max if bytes_max is not None else config.disk_read_bytes_max,
            max(SCAN_UNITS_MIN, count_max),
            self._log.end,
            self._memory_bytes,
            resident_only,
        )

    def _result(self, found: QueueRead, queue_offset: int, low: int, high: int, *, from_disk: bool) -> ReadResult:
        if found.status == READ_COLD:
            status = ReadStatus.NOT_RESIDENT
        elif found.found:
            status = ReadStatus.FOUND
        elif found.missing_log_offset >= 0:
            status = ReadStatus.MESSAGE_WAS_REMOVING
        else:
            status = ReadStatus.NO_MATCHED_MESSAGE
        return ReadResult(
            status=status,
            next_offset=queue_offset + found.scanned,
            min_offset=low,
            max_offset=high,
            records=found.records,
            count=found.found,
            size_bytes=found.size_bytes,
            bad_count=found.bad,
            suggest_slave=from_disk,
        )

    def _count_bad(self, queue: ConsumeQueue, queue_offset: int, found: QueueRead) -> None:
        self.bad_records += found.bad
        if found.bad_units and not self._log.is_damaged(found.bad_log_offset):
            self._on_damaged_unit(f"queue {queue!r} points to {found.bad_log_offset}, where no message of it is")
        log.error("queue %r: %d damaged record(s) behind offset %d were skipped, the last at log offset %d",
                  queue, found.bad, queue_offset, found.bad_log_offset)  # fmt: skip

    def max_offset_of(self, queue: ConsumeQueue) -> int:
        """One past the last visible message."""
        visible_to = self._visible_to()
        return queue.end_offset if visible_to >= self._log.end else queue.end_below(visible_to)

    def max_offsets_of(self, queues: Iterable[ConsumeQueue | None]) -> list[int]:
        """`max_offset_of` each; 0 for a queue that does not exist."""
        visible_to = self._visible_to()
        if visible_to >= self._log.end:
            return [0 if queue is None else queue.end_offset for queue in queues]
        return [0 if queue is None else queue.end_below(visible_to) for queue in queues]

    # By place

    def is_far(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether a message is further behind the log's end than what counts as resident in any case."""
        return self._far_unit(queue, queue_offset) is not None

    def is_cold(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether reading a message takes the disk: it is far, and its pages are not in the page cache."""
        unit = self._far_unit(queue, queue_offset)
        if unit is None:
            return False
        segment = self._log.segment(unit[0])
        return not ResidentPages().covers(segment, unit[0] - segment.base, unit[1])

    def _far_unit(self, queue: ConsumeQueue, queue_offset: int) -> tuple[int, int, int] | None:
        if not queue.min_offset <= queue_offset < queue.end_offset:
            return None
        unit = queue.unit(queue_offset)
        return unit if unit is not None and self._log.end - unit[0] > self._memory_bytes else None

    def record_at(self, log_offset: int) -> Record | None:
        record = self._log.record_at(log_offset, check_crc=self._config.check_crc_on_read)
        return record if record is not None and log_offset + record.size <= self._visible_to() else None

    def queued_record_at(self, log_offset: int) -> Record | None:
        """The message at a log offset, if the entry of its queue points there."""
        record = self.record_at(log_offset)
        if record is None:
            return None
        queue = self._queues.get(record.topic, record.queue_id)
        if queue is None or not queue.min_offset <= record.queue_offset < queue.end_offset:
            return None
        unit = queue.unit(record.queue_offset)
        return record if unit is not None and unit[:2] == (log_offset, record.size) else None

    # By key

    def by_key(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Messages of a topic that carry a key (or unique key), stored within the times; the newest when there are more
        than `count_max`. The index knows hashes and seconds: what it finds is compared with the messages themselves."""
        count_max = min(count_max, self._config.query_count_max)
        found = self._index.search(topic, key, count_max * COLLISIONS_ALLOWED, begin_ms, end_ms)
        records: list[Record] = []
        for log_offset in sorted(set(found), reverse=True):
            record = self.record_at(log_offset)
            if record is None or record.topic != topic or not begin_ms <= record.store_ms <= end_ms:
                continue
            if len(records) < count_max and _has_key(record, key):
                records.append(record)
        return QueryResult(tuple(reversed(records)), self._index.end_ms, self._index.end_offset)

    # By time

    def store_ms_of(self, queue: ConsumeQueue, queue_offset: int) -> int | None:
        """Store time of a message; None where there is none, or only a filler."""
        if not queue.min_offset <= queue_offset < queue.end_offset:
            return None
        unit = queue.unit(queue_offset)
        return None if unit is None or unit[1] == FILLER_SIZE else self._log.store_ms_at(unit[0])

    def offset_by_time(self, queue: ConsumeQueue, time_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after a time, the end when there is none; with `upper` the last stored at or
        before it (the minimum when there is none)."""
        low, high = queue.min_offset, self.max_offset_of(queue)
        end = high
        while low < high:
            middle = (low + high) // 2
            probe, stored_ms = middle, None
            while probe < high and (stored_ms := self.store_ms_of(queue, probe)) is None:
                probe += 1
            if stored_ms is None:
                high = middle
            elif stored_ms < time_ms or (upper and stored_ms == time_ms):
                low = probe + 1
            else:
                high = middle
        if upper:
            return max(low - 1, queue.min_offset)
        return min(low, end)

    def earliest_store_ms(self) -> int:
        """Store time of the oldest message there is; -1 without any."""
        for start in self._log.files:
            segment, view = self._log.segment(start), RecordView()
            upto = min(segment.size, self._visible_to() - start)
            if upto <= 0:
                continue
            at = 0
            if view.parse_at(segment, 0, True) != MESSAGE:  # only then: a search looks through the whole file
                at = find_next_record(segment, 0, upto, view)
            if (
                at >= 0
                and view.parse_at(segment, at, False) == MESSAGE
                and start + at + view.size <= self._visible_to()
            ):
                return view.store_ms
        return -1


def _memory_bytes(config: StoreConfig) -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * config.memory_ratio_percent // 100


def _extended_filter(
    queue: ConsumeQueue, by_code: UnitFilter | None, by_extension: ExtensionFilter | None
) -> UnitFilter | None:
    """One filter of what a unit holds, be it a tags code or the address of an extension."""
    extensions = queue.extensions
    if extensions is None:
        by_extension = None
    if by_extension is None and by_code is None:
        return None

    def passes(held: int) -> bool:
        if not is_address(held):
            return by_code is None or by_code(held)
        unit = None if extensions is None else extensions.get(held)
        if unit is None:
            return True
        return (by_code is None or by_code(unit.tags_code)) and (by_extension is None or by_extension(unit))

    return passes


def _judge_offset(queue_offset: int, low: int, high: int) -> tuple[ReadStatus, int] | None:
    """Why nothing can be read at an offset and where to go instead, or None."""
    if high == 0:
        return ReadStatus.NO_MESSAGE_IN_QUEUE, 0
    if queue_offset < low:
        return ReadStatus.OFFSET_TOO_SMALL, low
    if queue_offset == high:
        return ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset
    if queue_offset > high:
        return ReadStatus.OFFSET_OVERFLOW_BADLY, high
    return None


def _nothing(status: ReadStatus, next_offset: int, low: int, high: int) -> ReadResult:
    return ReadResult(status=status, next_offset=next_offset, min_offset=low, max_offset=high)


def _has_key(record: Record, key: str) -> bool:
    properties = decode_properties(record.properties)
    return key == properties.get("UNIQ_KEY") or key in properties.get("KEYS", "").split(" ")


class Lookups:
    """The questions of a store: they check what they are given, and that the store is open. Queries answer them."""

    def __init__(self, queries: Queries, queues: QueueTable, index: Index, disk: Disk) -> None:
        self.queries = queries
        self.queues = queues
        self.index = index
        self.disk = disk
        self._closed = False

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store was closed")

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        count_max: int = 32,
        bytes_max: int | None = None,
        tag_codes: frozenset[int] | None = None,
        unit_filter: UnitFilter | None = None,
        extension_filter: ExtensionFilter | None = None,
        record_filter: RecordFilter | None = None,
        correct_offset: bool = True,
        in_place: bool = False,
        resident_only: bool = False,
        loaded_to: int | None = None,
    ) -> ReadResult:
        """Messages of a queue from an offset on. `bytes_max` given: it replaces the configured limits of count and
        bytes. `tag_codes` are hashes of wanted tags (see tag_code). With `in_place` only where they lie in the log.

        Records that are not resident are read from disk, within the limits for that. An event loop must not wait for
        the disk: with `resident_only` the read ends before them (NOT_RESIDENT when it found nothing). Then `load` them
        in another thread and read again with its `stop` as `loaded_to`.
        """
        self._require_open()
        require_place(topic, queue_id, queue_offset)
        require_count("count_max", count_max)
        if bytes_max is not None:
            require_count("bytes_max", bytes_max)
        return self.queries.read(
            topic,
            queue_id,
            queue_offset,
            count_max=count_max,
            bytes_max=bytes_max,
            tag_codes=tag_codes,
            unit_filter=unit_filter,
            extension_filter=extension_filter,
            record_filter=record_filter,
            correct_offset=correct_offset,
            in_place=in_place,
            resident_only=resident_only,
            loaded_to=loaded_to,
        )

    def load(
        self,
        topic: str,
        queue_id: int,
        first: int,
        stop: int,
        *,
        count_max: int = 32,
        bytes_max: int | None = None,
        tag_codes: frozenset[int] | None = None,
    ) -> Loaded:
        """Load what `read` with these arguments takes of the messages [first, stop) into the page cache, and request
        what comes next. Blocks for the disk, not for other threads."""
        self._require_open()
        require_place(topic, queue_id, first)
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return Loaded(stop, 0)
        return self.queries.load(queue, first, stop, count_max=count_max, bytes_max=bytes_max, tag_codes=tag_codes)

    def message_at(self, log_offset: int) -> Record | None:
        self._require_open()
        require_number("log_offset", log_offset)
        return self.queries.record_at(log_offset)

    def queued_message_at(self, log_offset: int) -> Record | None:
        """The message at a log offset that a client named, if the entry of its queue points there: the body of a
        message may have bytes that look like a record."""
        self._require_open()
        require_number("log_offset", log_offset)
        return self.queries.queued_record_at(log_offset)

    def message_by_id(self, message_id: str) -> Record | None:
        """By offset message id, checked as `queued_message_at` does; ValueError if it is invalid."""
        require_text("message_id", message_id)
        return self.queued_message_at(decode_message_id(message_id)[1])

    def query(
        self, topic: str, key: str, *, count_max: int = 32, begin_ms: int = 0, end_ms: int = 1 << 62
    ) -> QueryResult:
        """Messages of a topic by key or unique key, stored within the times."""
        self._require_open()
        require_text("topic", topic)
        require_text("key", key)
        require_count("count_max", count_max)
        require_number("begin_ms", begin_ms)
        require_number("end_ms", end_ms)
        return self.queries.by_key(topic, key, count_max, begin_ms, end_ms)

    def find_key(self, topic: str, key: str, *, count_max: int) -> list[int]:
        """Log offsets of messages that may have a key, from the index only."""
        self._require_open()
        return self.index.search(topic, key, count_max, 0, 1 << 62)

    def topics(self) -> list[str]:
        """Topics that have queues, sorted."""
        return self.queues.topics()

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that exist, sorted."""
        return [queue.queue_id for queue in self.queues.of_topic(topic)]

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after a time (`upper`: the last at or before it); 0 without such a queue."""
        self._require_open()
        require_place(topic, queue_id, time_ms, what="time_ms")
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else self.queries.offset_by_time(queue, time_ms, upper=upper)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """-1 for a queue that does not exist."""
        self._require_open()
        require_place(topic, queue_id)
        queue = self.queues.get(topic, queue_id)
        return -1 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last visible message; 0 for a queue that does not exist."""
        self._require_open()
        require_place(topic, queue_id)
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else self.queries.max_offset_of(queue)

    def max_offsets(self, topic: str, queue_count: int) -> list[int]:
        """`max_offset` of the queues [0, queue_count)."""
        self._require_open()
        require_place(topic, 0)
        return self.queries.max_offsets_of([self.queues.get(topic, queue_id) for queue_id in range(queue_count)])

    def end_offset(self, topic: str, queue_id: int) -> int:
        """One past the last message, visible or not; 0 for a queue that does not exist."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else queue.end_offset

    def queue_unit(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(log offset, size, tags code) of a queue entry; None where there is none."""
        queue = self.queues.get(topic, queue_id)
        return None if queue is None else queue.unit(queue_offset)

    def queue_extension(self, topic: str, queue_id: int, address: int) -> Extension | None:
        """What a queue entry keeps beside it, by the address in its tags code."""
        queue = self.queues.get(topic, queue_id)
        return None if queue is None or queue.extensions is None else queue.extensions.get(address)

    def store_ms_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a queue's message; -1 if it does not exist."""
        self._require_open()
        require_place(topic, queue_id, queue_offset)
        queue = self.queues.get(topic, queue_id)
        found = None if queue is None else self.queries.store_ms_of(queue, queue_offset)
        return -1 if found is None else found

    def is_cold(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether reading a message takes the disk."""
        self._require_open()
        require_place(topic, queue_id, queue_offset)
        queue = self.queues.get(topic, queue_id)
        return queue is not None and self.queries.is_cold(queue, queue_offset)

    def is_far(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is further behind the log's end than accessMessageInMemoryMaxRatio."""
        self._require_open()
        require_place(topic, queue_id, queue_offset)
        queue = self.queues.get(topic, queue_id)
        return queue is not None and self.queries.is_far(queue, queue_offset)

    def earliest_store_ms(self) -> int:
        """Store time of the oldest message; -1 without any."""
        self._require_open()
        return self.queries.earliest_store_ms()

    def disk_usage(self, path: Path) -> DiskUsage:
        return self.disk.usage(path)
