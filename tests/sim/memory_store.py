"""A log in memory with its queues and its index, for simulations: it can crash in any append and lose its end."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from rocketq.model import Host, NewMessage, Record
from rocketq.protocol.messages import encode_record
from rocketq.protocol.properties import decode_properties
from rocketq.runtime.clock import ManualClock
from rocketq.store import AppendResult, AppendStatus, ReadResult, ReadStatus

HOST = Host.of("127.0.0.1", 10911)
FIRST_OFFSET = 1_000


class Crash(Exception):
    """The process is gone; what was appended is still there."""


@dataclass
class MemoryStore:
    clock: ManualClock
    records: list[Record] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    queues: dict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    keys: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    log_start: int = FIRST_OFFSET
    end: int = FIRST_OFFSET
    properties_bytes_max: int = 32_767
    safe_count: int = 0
    is_whole: bool = True
    full: bool = False
    crash_in: int | None = None
    """So many more halves of appends: the crash comes before an append or right after it."""

    # as a store

    def append(self, message: NewMessage, *, wait: bool = True) -> AppendResult:
        self._step()
        if self.full:
            return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, "the disk is full")
        if len(message.properties) > self.properties_bytes_max:
            return AppendResult(AppendStatus.PROPERTIES_SIZE_EXCEEDED, "too many bytes of properties")
        queue = self.queues[message.topic, message.queue_id]
        record = Record(
            size=0,
            version=1,
            body_crc=0,
            queue_id=message.queue_id,
            flag=message.flag,
            queue_offset=len(queue),
            log_offset=self.end,
            sys_flag=message.sys_flag,
            born_ms=message.born_ms,
            born_host=message.born_host,
            store_ms=self.clock.now_ms(),
            store_host=HOST,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
            body=message.body,
            topic=message.topic,
            properties=message.properties,
        )
        size = len(encode_record(record))
        self._put(record, size)
        self._step()
        return AppendResult(
            AppendStatus.OK,
            log_offset=record.log_offset,
            queue_offset=record.queue_offset,
            size=size,
            store_ms=record.store_ms,
            log_offsets=(record.log_offset,),
            store_host=HOST,
        )

    def queued_message_at(self, log_offset: int) -> Record | None:
        return self.message_at(log_offset)

    def message_at(self, log_offset: int) -> Record | None:
        at = self.places.get(log_offset)
        return None if at is None or log_offset < self.log_start else self.records[at]

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 0 if self.queues.get((topic, queue_id)) else -1

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), ()))

    def store_ms_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        queue = self.queues.get((topic, queue_id), [])
        return self.records[queue[queue_offset]].store_ms if 0 <= queue_offset < len(queue) else -1

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int) -> int:
        queue = self.queues.get((topic, queue_id), [])
        return sum(self.records[at].store_ms < time_ms for at in queue)

    def read(
        self, topic: str, queue_id: int, queue_offset: int, *, count_max: int, bytes_max: int | None
    ) -> ReadResult:
        queue = self.queues.get((topic, queue_id), [])
        found = [encode_record(self.records[at]) for at in queue[queue_offset : queue_offset + count_max]]
        return ReadResult(
            status=ReadStatus.FOUND if found else ReadStatus.OFFSET_OVERFLOW_ONE,
            next_offset=queue_offset + len(found),
            min_offset=0,
            max_offset=len(queue),
            records=b"".join(found),
            count=len(found),
        )

    # as an index

    def search(self, topic: str, key: str) -> list[int]:
        return list(self.keys.get((topic, key), ())) if self.is_whole else []

    # what happens to it

    def flush(self) -> int:
        self.safe_count = len(self.records)
        return self.end

    @property
    def safe_to(self) -> int:
        return self.records[self.safe_count].log_offset if self.safe_count < len(self.records) else self.end

    def cut_power(self, chance: random.Random) -> None:
        """Anything behind the last flush may be gone."""
        kept = self.records[: chance.randint(self.safe_count, len(self.records))]
        fresh = MemoryStore(self.clock)
        for at, record in enumerate(kept):
            following = kept[at + 1].log_offset if at + 1 < len(kept) else None
            fresh._put(record, (following or record.log_offset + len(encode_record(record))) - record.log_offset)
        self.records, self.places, self.queues, self.keys = fresh.records, fresh.places, fresh.queues, fresh.keys
        self.end, self.safe_count = fresh.end, len(fresh.records)

    def of_topic(self, topic: str) -> list[Record]:
        return [record for record in self.records if record.topic == topic]

    def _put(self, record: Record, size: int) -> None:
        self.places[record.log_offset] = len(self.records)
        self.queues[record.topic, record.queue_id].append(len(self.records))
        properties = decode_properties(record.properties)
        for key in (properties.get("UNIQ_KEY"), properties.get("KEYS")):
            if key:
                self.keys[record.topic, key].append(record.log_offset)
        self.records.append(record)
        self.end += size

    def _step(self) -> None:
        if self.crash_in is None:
            return
        self.crash_in -= 1
        if self.crash_in < 0:
            self.crash_in = None
            raise Crash
