"""What an open store can be asked: by place, by id, by key, by time."""

from __future__ import annotations

from pathlib import Path

from rocketq.errors import StoreClosedError
from rocketq.model import Record
from rocketq.store.arguments import require_count, require_number, require_place, require_text
from rocketq.store.consume_queue_ext import Extension
from rocketq.store.disk import Disk, DiskUsage
from rocketq.store.index import Index
from rocketq.store.page_loads import Loaded
from rocketq.store.queries import ExtensionFilter, Queries, RecordFilter, UnitFilter
from rocketq.store.queue_table import QueueTable
from rocketq.store.results import QueryResult, ReadResult


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

    def message_by_id(self, message_id: str) -> Record | None:
        """By offset message id; ValueError when the text is none."""
        self._require_open()
        require_text("message_id", message_id)
        return self.queries.record_by_id(message_id)

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
        """Log offsets of messages that may have a key, from the index alone."""
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
        """Store time of a queue's message; -1 when it is not there."""
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
        """Whether a message is further behind the log's end than accessMessageInMemoryMaxRatio says."""
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
