"""Messages with a timer on disk: linked into the second they are due in, found again when it comes, after any crash."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocketq.kernel.properties import hash_text
from rocketq.kernel.records import MESSAGE, RecordView
from rocketq.model import Record
from rocketq.protocol.names import TIMER_TOPIC, Property
from rocketq.protocol.properties import decode_properties
from rocketq.store.delivery_progress import WALK_BYTES_MAX, delivered_since
from rocketq.store.timer_files import (
    LOG_FILE_BYTES,
    TimerCheck,
    TimerLog,
    TimerMark,
    TimerPoint,
    TimerUnit,
    TimerWheel,
    unit_kind,
)

if TYPE_CHECKING:
    from rocketq.store.store import Store

log = logging.getLogger(__name__)

PRECISION_MS: Final = 1_000
ROLL_WINDOW_MS: Final = 2 * 86_400_000
"""Messages due later than this are stored again before retention deletes them."""
_READ_BACK_MS_MAX: Final = 7 * 86_400_000
_ALL_KNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Timer:
    """A message of the timer topic with the due time from its properties."""

    record: Record
    slot_ms: int
    due_ms: int
    key: str
    cancels: str
    """The key of the message it takes back, or nothing."""

    @classmethod
    def of(cls, record: Record) -> Timer:
        properties = decode_properties(record.properties)
        slot_ms = _number(properties.get(Property.TIMER_OUT_MS, ""))
        key = f"{properties.get(Property.REAL_TOPIC, '')}+{properties.get(Property.UNIQUE_KEY, '')}"
        cancels = properties.get(Property.TIMER_DELETES, "")
        return cls(record, slot_ms, _due_ms(record, properties, slot_ms), "" if cancels else key, cancels)


def _due_ms(record: Record, properties: dict[str, str], slot_ms: int) -> int:
    """The exact due time if the message has one within its slot's second; otherwise the end of that second."""
    if Property.TIMER_DELAY_SECONDS in properties:
        due_ms = record.store_ms + 1_000 * _number(properties[Property.TIMER_DELAY_SECONDS])
    elif Property.TIMER_DELAY_MS in properties:
        due_ms = record.store_ms + _number(properties[Property.TIMER_DELAY_MS])
    else:
        due_ms = _number(properties.get(Property.TIMER_DELIVER_MS, ""))
    return due_ms if slot_ms < due_ms <= slot_ms + PRECISION_MS else slot_ms + PRECISION_MS


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


class Timers:
    """Timers on disk. `read_ms` is the next second to open, `queue_offset` the next message of the timer topic to read;
    messages completed since the last mark are skipped when they are read again."""

    def __init__(self, store: Store, now_ms: int, *, log_file_bytes: int = LOG_FILE_BYTES) -> None:
        root = store.config.root
        self._store = store
        self._wheel = TimerWheel(root / "timerwheel", PRECISION_MS)
        self._log = TimerLog(root / "timerlog", log_file_bytes)
        self._check = TimerCheck(root / "config" / "timercheck")
        self._loaded_ms = now_ms
        self._linked: set[int] = set()
        self._delivered: set[int] = set()
        self._over = TimerPoint(0, 0)
        self._copied: set[int] = set()
        mark = self._load(now_ms)
        self.read_ms = max(mark.read_ms, now_ms - _READ_BACK_MS_MAX) // PRECISION_MS * PRECISION_MS
        self.queue_offset = mark.queue_offset
        self._marked: TimerMark | None = mark
        self._copies_from = 0 if mark.queue_offset == 0 else _ALL_KNOWN

    # Starting

    def _load(self, now_ms: int) -> TimerMark:
        mark, check, end = self._check.latest, self._check, self._store.log_end
        if mark is not None and (mark.read_ms, mark.log_end, mark.queue_offset) != (
            check.read_ms,
            check.log_end,
            check.queue_offset,
        ):
            mark = None
            if check.read_ms > 0:  # another broker has been at work here: what it did is not in the log
                mark = TimerMark(end, check.read_ms, check.log_end, check.queue_offset)
        elif mark is None and check.read_ms > 0:
            mark = TimerMark(end, check.read_ms, check.log_end, check.queue_offset)
        if mark is None or mark.store_end > end:
            return self._rebuild(now_ms)
        self._take_delivered(mark.store_end)
        for position, unit in self._log.walk(mark.log_end):
            slot = self._wheel.slot(unit.slot_ms)
            if slot is None or slot.last < position:
                self._wheel.link(unit.slot_ms, position, slot)
            place = self._store.log.place_at(unit.log_offset)
            if place is not None and place[0] == TIMER_TOPIC.encode():
                self._linked.add(place[2])
        return mark

    def _rebuild(self, now_ms: int) -> TimerMark:
        """The power went, or the files did: go back to what is safe, or to the beginning."""
        mark, store = self._check.safe, self._store
        if mark is None or mark.store_end > store.log_end:
            mark = TimerMark(store.log_start, now_ms // PRECISION_MS * PRECISION_MS, self._log.start, 0)
        if store.log_end - mark.store_end <= WALK_BYTES_MAX:
            self._take_delivered(mark.store_end)
        self._log.cut(mark.log_end)
        self._wheel.clear()
        for position, unit in self._log.walk(self._log.start, mark.log_end):
            if unit.slot_ms >= mark.read_ms:
                self._wheel.link(unit.slot_ms, position, self._wheel.slot(unit.slot_ms))
        return mark

    def take_over(self, point: TimerPoint, store_end: int) -> None:
        """Continue from the previous master's `point`. The wheel is rebuilt from the timer topic; `store_end` is the
        start of a record in the log from before the master sent `point`."""
        self._log.cut(self._log.start)
        self._wheel.clear()
        self._linked, self._delivered = set(), set()
        if 0 <= self._store.log_end - store_end <= WALK_BYTES_MAX:
            self._take_delivered(store_end)
        self._over = point
        self.read_ms = point.read_ms // PRECISION_MS * PRECISION_MS
        self.queue_offset = self._copies_from = 0
        self._copied = set()
        self._marked = None

    def look_for_copies(self, count: int) -> bool:
        """While the wheel is rebuilt from the timer topic, find messages that were stored more than once, of which the
        last one counts. Reads a bounded number; returns whether there are more."""
        queue = self._store.queues.get(TIMER_TOPIC, 0) if self._copies_from != _ALL_KNOWN else None
        if queue is None:
            return False
        first = max(self._copies_from, queue.min_offset)
        view, end = (
            RecordView(),
            queue.end_offset,
        )  # includes records that are not visible yet: they are not truncated here
        for offset in range(first, min(end, first + count)):
            unit = queue.unit(offset)
            if unit is None:
                continue
            segment = self._store.log.segment(unit[0])
            if view.parse_at(segment, unit[0] - segment.base, False) == MESSAGE and view.prepared_offset != 0:
                self._copied.add(max(view.prepared_offset, 0))
        has_more: bool = end > first + count
        self._copies_from = first + count if has_more else _ALL_KNOWN
        return has_more

    def is_over(self, timer: Timer) -> bool:
        """Whether the master this one took over from has delivered it, or put it into the log again."""
        record = timer.record
        if record.log_offset in self._copied:
            return True
        return record.queue_offset < self._over.queue_offset and timer.slot_ms < self._over.read_ms

    def _take_delivered(self, store_end: int) -> None:
        if self._store.queues.get(TIMER_TOPIC, 0) is None:
            return
        self._delivered = {offset for _, offset in delivered_since(self._store, store_end, TIMER_TOPIC.encode())}

    # Into the wheel

    def saw_message(self, queue_offset: int) -> None:
        """The message of the timer topic at this offset was processed; the next one is behind it."""
        self.queue_offset = queue_offset + 1

    def is_settled(self, queue_offset: int) -> bool:
        """Whether it was linked or delivered before the last stop; asked once for each."""
        if queue_offset in self._linked:
            self._linked.discard(queue_offset)
            return True
        return queue_offset in self._delivered

    def link(self, timer: Timer, now_ms: int) -> None:
        """Into its second, or into an earlier one that puts it on its way again; OSError when the disk is full."""
        write_ms = now_ms // PRECISION_MS * PRECISION_MS
        slot_ms = _target_ms(timer.slot_ms, write_ms)
        slot = self._wheel.slot(slot_ms)
        unit = TimerUnit(
            previous=-1 if slot is None else slot.last,
            kind=unit_kind(rolls=slot_ms != timer.slot_ms, deletes=bool(timer.cancels)),
            write_ms=write_ms,
            delay_ms=slot_ms - write_ms,
            log_offset=timer.record.log_offset,
            size=timer.record.size,
            topic_hash=hash_text(timer.key.partition("+")[0]),
        )
        self._wheel.link(slot_ms, self._log.append(unit), slot)

    # Out of it

    def count_from(self, slot_ms: int, slots: int) -> int:
        """Waiting messages that are due in this many seconds from a time on."""
        return self._wheel.count_from(slot_ms, slots)

    def open_slot(self) -> Iterator[tuple[Timer, bool]]:
        """The messages of the next second with whether each must be stored again, the last linked first."""
        slot = self._wheel.slot(self.read_ms)
        for unit in self._log.chain(slot.last) if slot is not None else ():
            if unit.slot_ms != self.read_ms:
                continue
            record = self._store.message_at(unit.log_offset)
            if record is None or record.topic != TIMER_TOPIC:
                log.error("the message at log offset %d was due at %d and is gone", unit.log_offset, unit.slot_ms)
            elif record.queue_offset not in self._delivered:
                yield Timer.of(record), unit.rolls

    def slot_opened(self) -> TimerMark:
        """On to the next second; the mark that counts once everything opened so far is settled."""
        self.read_ms += PRECISION_MS
        return self.mark()

    def mark(self) -> TimerMark:
        """True once everything opened so far is settled."""
        return TimerMark(self._store.log_end, self.read_ms, self._log.end, self.queue_offset)

    def check_point(self) -> bytes:
        return self._check.head()

    # Remembering

    def settled(self, mark: TimerMark) -> None:
        self._check.put(mark)
        self._marked = mark
        if mark.read_ms > self._loaded_ms:  # every second started by then was opened and read completely
            self._delivered = set()

    def save(self) -> None:
        """Blocks: what was settled is safe from here on."""
        mark = self._marked
        if mark is None:
            return
        self._store.flush()
        self._log.sync()
        self._wheel.sync()
        self._check.put_safe(mark)
        self._delete_old(mark)

    def _delete_old(self, mark: TimerMark) -> None:
        keep = self._log.start
        for position in range(keep + self._log.file_bytes, mark.log_end, self._log.file_bytes):
            unit = self._log.read(position)
            if unit is None or unit.write_ms + ROLL_WINDOW_MS >= mark.read_ms:
                break
            keep = position
        self._log.delete_before(keep)

    def close(self) -> None:
        self._wheel.close()
        self._log.close()
        self._check.close()


def _target_ms(slot_ms: int, write_ms: int) -> int:
    delay_ms = slot_ms - write_ms
    if delay_ms < ROLL_WINDOW_MS:
        return slot_ms
    half_way = delay_ms - ROLL_WINDOW_MS < ROLL_WINDOW_MS // 3
    return write_ms + (ROLL_WINDOW_MS // 2 if half_way else ROLL_WINDOW_MS)
