"""Delivery progress of delay levels, kept so that a crash neither repeats nor loses a message.

config/deliveryProgress := magic:i64 logEnd:i64 *( nextOffset:i64 )     native byte order, 4096 bytes, mapped

`nextOffset` n is the next offset to deliver of queue n - 1 of the schedule topic, as of the time when the log ended at
`logEnd`. Later deliveries are found in the log: every delivered record names its source. If the log ends before
`logEnd` (a power cut), this page is ignored and delayOffset.json is used, which is never ahead of the flushed log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketq.kernel.records import BAD_CRC, BLANK, MESSAGE, RecordView

if TYPE_CHECKING:
    from rocketq.store.store import Store

log = logging.getLogger(__name__)

LEVELS_MAX: Final = 510
WALK_BYTES_MAX: Final = 256 << 20
_MAGIC: Final = 0x524F434B44454C31
_BYTES: Final = 4096
_LOG_END, _OFFSETS = 1, 1


class DeliveryProgress:
    """A page that survives the process. Offsets are written before the log's end: half an update is an old one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        path = store.config.root / "config" / "deliveryProgress"
        if not path.is_file() or path.stat().st_size != _BYTES:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            store.disk.create(path, _BYTES, reserve=True)
        self._path: Path = path
        self._map = store.disk.map(path, writable=True)
        self._words = memoryview(self._map).cast("q")

    def load(self, saved: dict[int, int]) -> dict[int, int]:
        """The next offset by level: from this page and the log, or `saved` (delayOffset.json)."""
        known = {level: self._words[_OFFSETS + level] for level in range(1, LEVELS_MAX)}
        known = {level: offset for level, offset in known.items() if offset > 0}
        log_end, store = self._words[_LOG_END], self._store
        if self._words[0] != _MAGIC or not store.log_start <= log_end <= store.log_end:
            known = {}
        elif any(known.get(level, 0) < offset for level, offset in saved.items()):
            known = {}  # another broker has been at work in this directory
        elif store.log_end - log_end > WALK_BYTES_MAX:
            log.warning("the log grew by %d bytes unnoticed: some delayed messages may be delivered again",
                        store.log_end - log_end)  # fmt: skip
        else:
            for queue_id, queue_offset in delivered_since(store, log_end, b"SCHEDULE_TOPIC_XXXX"):
                known[queue_id + 1] = max(known.get(queue_id + 1, 0), queue_offset + 1)
        offsets = {level: max(saved.get(level, 0), known.get(level, 0)) for level in {*saved, *known}}
        self._begin(offsets)
        return offsets

    def _begin(self, offsets: dict[int, int]) -> None:
        self._words[0] = 0
        for level in range(1, LEVELS_MAX):
            self._words[_OFFSETS + level] = offsets.get(level, 0)
        self._words[_LOG_END] = self._store.log_end
        self._words[0] = _MAGIC

    def put(self, level: int, next_offset: int) -> None:
        if level < LEVELS_MAX:
            self._words[_OFFSETS + level] = next_offset

    def mark(self) -> None:
        """Everything delivered so far has been put."""
        self._words[_LOG_END] = self._store.log_end

    def close(self) -> None:
        self._words.release()
        self._map.close()


def delivered_since(store: Store, log_offset: int, topic: bytes) -> Iterator[tuple[int, int]]:
    """(queue id, queue offset) of the messages of a topic that records from `log_offset` on were made from."""
    for view in walk(store, log_offset):
        if view.prepared_offset != 0:
            place = store.log.place_at(max(view.prepared_offset, 0))
            if place is not None and place[0] == topic:
                yield place[1], place[2]


def walk(store: Store, log_offset: int) -> Iterator[RecordView]:
    """Every record from a record's start on; damaged parts are stepped over as recovery did."""
    at, view = log_offset, RecordView()
    while at < store.log_end:
        segment = store.log.segment(at)
        state = view.parse_at(segment, at - segment.base, False)
        if state in (MESSAGE, BAD_CRC):
            yield view
            at += view.size
        elif state == BLANK or (hole := _hole_at(store, at)) is None:
            at = segment.base + store.config.segment_bytes
        else:
            at = hole


def _hole_at(store: Store, log_offset: int) -> int | None:
    return next((hole.end for hole in store.log.holes if log_offset in hole), None)
