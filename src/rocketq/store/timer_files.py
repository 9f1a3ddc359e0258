"""The files of messages with a timer, as brokers of 5.x lay them out.

timerwheel  := 1,209,600 slots; second t of 1970 is slot t mod 1,209,600
slot        := seconds:i64 firstPosition:i64 lastPosition:i64 count:i32 magic:i32
timerlog/*  := units, none across two files; what is left of a file: rest:i32 0:i64 BLANK:i32
unit        := 52:i32 previousPosition:i64 kind:i32 writeMs:i64 delayMs:i32 logOffset:i64 size:i32 topicHash:i32 0:i64
config/timercheck := lastReadMs:i64 logEnd:i64 queueOffset:i64 masterQueueOffset:i64 stateVersion:i64 timestamp:i64
                     counter:i64, followed by three RocketQ marks, in 4096 bytes
mark        := number:i64 storeEnd:i64 lastReadMs:i64 logEnd:i64 queueOffset:i64 check:i64

The units of a slot are chained from its last one back. Files are written past any mapping, so that a full disk is an
error and not the end of the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from struct import Struct
from typing import Final

SLOT_COUNT: Final = 7 * 86_400 * 2
LOG_FILE_BYTES: Final = 100 << 20
ROLLS: Final = 2
DELETES: Final = 4
_DEFAULT_KIND: Final = 1
_SLOT = Struct(">qqqii")
_UNIT = Struct(">iqiqiqiiq")
_BLANK = Struct(">iqi")
_CHECK = Struct(">7q")
_MARK = Struct(">6q")
_BLANK_MAGIC: Final = -875286124
_CHECK_BYTES: Final = 4096
_MARKS_AT: Final = (1024, 1536, 2048)
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Slot:
    seconds: int
    first: int
    last: int
    count: int
    magic: int = 0


@dataclass(frozen=True, slots=True)
class TimerUnit:
    previous: int
    kind: int
    write_ms: int
    delay_ms: int
    log_offset: int
    size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        return self.write_ms + self.delay_ms

    @property
    def rolls(self) -> bool:
        return bool(self.kind & ROLLS)


def unit_kind(*, rolls: bool, deletes: bool) -> int:
    return _DEFAULT_KIND + (ROLLS if rolls else 0) + (DELETES if deletes else 0)


class TimerWheel:
    def __init__(self, path: Path, precision_ms: int = 1_000, slot_count: int = SLOT_COUNT) -> None:
        self._precision_ms = precision_ms
        self._slot_count = slot_count
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if os.fstat(self._file).st_size != slot_count * _SLOT.size:
            os.ftruncate(self._file, 0)
            os.ftruncate(self._file, slot_count * _SLOT.size)

    @property
    def span_ms(self) -> int:
        """How far ahead a slot may lie."""
        return self._slot_count * self._precision_ms

    def slot(self, slot_ms: int) -> Slot | None:
        """None when nothing was put there for this time."""
        found = Slot(*_SLOT.unpack(os.pread(self._file, _SLOT.size, self._at(slot_ms))))
        return found if found.count > 0 and found.seconds == slot_ms // self._precision_ms else None

    def count_from(self, slot_ms: int, slots: int) -> int:
        """Units in this many slots from a time on; those of other times are left out. Reads up to the wheel's end."""
        second = slot_ms // self._precision_ms
        slots = min(slots, self._slot_count - second % self._slot_count)
        data = os.pread(self._file, slots * _SLOT.size, self._at(slot_ms))
        found = (Slot(*fields) for fields in _SLOT.iter_unpack(data[: len(data) // _SLOT.size * _SLOT.size]))
        return sum(
            slot.count for number, slot in enumerate(found) if slot.seconds == second + number and slot.count > 0
        )

    def put(self, slot_ms: int, slot: Slot) -> None:
        os.pwrite(self._file, _SLOT.pack(*astuple(slot)), self._at(slot_ms))

    def link(self, slot_ms: int, position: int, before: Slot | None) -> None:
        """The unit at a position of the log is the slot's last one now."""
        first, count = (position, 0) if before is None else (before.first, before.count)
        self.put(slot_ms, Slot(slot_ms // self._precision_ms, first, position, count + 1))

    def clear(self) -> None:
        os.ftruncate(self._file, 0)
        os.ftruncate(self._file, self._slot_count * _SLOT.size)

    def sync(self) -> None:
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def _at(self, slot_ms: int) -> int:
        return slot_ms // self._precision_ms % self._slot_count * _SLOT.size


class TimerLog:
    """Endless; a position counts bytes from its beginning."""

    def __init__(self, folder: Path, file_bytes: int = LOG_FILE_BYTES) -> None:
        self._folder = folder
        self.file_bytes = file_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[int, int] = {}
        self.end = 0
        for path in sorted(folder.iterdir()):
            if path.name.isdigit():
                self._open(int(path.name))

    @property
    def start(self) -> int:
        return min(self._files, default=0)

    def append(self, unit: TimerUnit) -> int:
        """Where it went; OSError when the disk is full."""
        base = self.end - self.end % self.file_bytes
        if self.end + _UNIT.size + _BLANK.size > base + self.file_bytes:
            rest = base + self.file_bytes - self.end
            os.pwrite(self._open(base), _BLANK.pack(rest, 0, _BLANK_MAGIC), self.end - base)
            base = self.end = base + self.file_bytes
        position = self.end
        os.pwrite(self._open(base), _UNIT.pack(_UNIT.size, *astuple(unit), 0), position - base)
        self.end = position + _UNIT.size
        return position

    def read(self, position: int) -> TimerUnit | None:
        """The unit there, or None."""
        base = position - position % self.file_bytes if position >= 0 else _NONE
        if base not in self._files:
            return None
        data = os.pread(self._files[base], _UNIT.size, position - base)
        size, *members, _ = _UNIT.unpack(data) if len(data) == _UNIT.size else (0, 0)
        return TimerUnit(*members) if size == _UNIT.size and 0 < members[1] < 8 else None

    def chain(self, last: int) -> Iterator[TimerUnit]:
        """The units of a slot from its last one back."""
        position = last
        while (unit := self.read(position)) is not None:
            yield unit
            if unit.previous >= position:
                return
            position = unit.previous

    def walk(self, position: int, stop: int | None = None) -> Iterator[tuple[int, TimerUnit]]:
        """Units in file order, up to `stop` or the last one; `end` is then behind it."""
        position = max(position, self.start)
        while stop is None or position < stop:
            unit = self.read(position)
            if unit is not None:
                yield position, unit
                position += _UNIT.size
                continue
            following = (position // self.file_bytes + 1) * self.file_bytes
            if following not in self._files or not self._is_blank(position):
                break
            position = following
        if stop is None:
            self.end = position

    def cut(self, position: int) -> None:
        """Nothing behind a position counts any more."""
        for base, handle in sorted(self._files.items()):
            if base + self.file_bytes > position:
                os.ftruncate(handle, max(position - base, 0))
                os.ftruncate(handle, self.file_bytes)
        self.end = position

    def delete_before(self, position: int) -> None:
        """Files that end at or before a position go."""
        for base in sorted(self._files):
            if base + self.file_bytes <= position and base + self.file_bytes <= self.end:
                os.close(self._files.pop(base))
                self._path(base).unlink()

    def sync(self) -> None:
        for handle in self._files.values():
            os.fdatasync(handle)

    def close(self) -> None:
        for handle in self._files.values():
            os.close(handle)
        self._files.clear()

    def _is_blank(self, position: int) -> bool:
        base = position - position % self.file_bytes
        data = os.pread(self._files[base], _BLANK.size, position - base) if base in self._files else b""
        return len(data) == _BLANK.size and _BLANK.unpack(data)[2] == _BLANK_MAGIC

    def _open(self, base: int) -> int:
        if base not in self._files:
            handle = os.open(self._path(base), os.O_RDWR | os.O_CREAT, 0o644)
            os.ftruncate(handle, self.file_bytes)
            self._files[base] = handle
        return self._files[base]

    def _path(self, base: int) -> Path:
        return self._folder / f"{base:020d}"


@dataclass(frozen=True, slots=True)
class TimerMark:
    """True together: slots before `read_ms` are delivered, messages before `queue_offset` are in the log or delivered;
    the log of timers ended at `log_end` and the store's at `store_end`."""

    store_end: int
    read_ms: int
    log_end: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class TimerPoint:
    """Progress of a master's wheel: messages before `queue_offset` in slots before `read_ms` are delivered."""

    read_ms: int
    queue_offset: int

    @classmethod
    def decode(cls, head: bytes) -> TimerPoint | None:
        """From the head of the file timercheck; None from anything else, and from a wheel that never turned."""
        if len(head) < _CHECK.size:
            return None
        read_ms, _, queue_offset, *_ = _CHECK.unpack_from(head)
        return cls(read_ms, queue_offset) if read_ms > 0 and queue_offset >= 0 else None


class TimerCheck:
    """Two marks take turns, so that one is always whole; the third is written when everything is on disk."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        data = os.pread(self._file, _CHECK_BYTES, 0).ljust(_CHECK_BYTES, b"\0")
        os.pwrite(self._file, data[:_CHECK_BYTES], 0)
        self.read_ms, self.log_end, self.queue_offset, *_ = _CHECK.unpack_from(data)
        """What Apache's brokers go by."""
        marks = [_read_mark(data, at) for at in _MARKS_AT]
        self._number = max((number for number, _ in marks if number), default=0)
        self.latest = max(marks[:2], key=lambda numbered: numbered[0])[1]
        self.safe = marks[2][1]

    def put(self, mark: TimerMark) -> None:
        self._number += 1
        self._write(mark, _MARKS_AT[self._number % 2])
        head = _CHECK.pack(mark.read_ms, mark.log_end, mark.queue_offset, mark.queue_offset, 0, 0, self._number)
        os.pwrite(self._file, head, 0)

    def head(self) -> bytes:
        """The part that Apache's brokers know, as they send it to each other."""
        return os.pread(self._file, _CHECK.size, 0)

    def put_safe(self, mark: TimerMark) -> None:
        self._write(mark, _MARKS_AT[2])
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, mark: TimerMark, at: int) -> None:
        words = (self._number, *astuple(mark))
        os.pwrite(self._file, _MARK.pack(*words, _check_of(words)), at)


def _read_mark(data: bytes, at: int) -> tuple[int, TimerMark | None]:
    *words, check = _MARK.unpack_from(data, at)
    return (words[0], TimerMark(*words[1:])) if words[0] and check == _check_of(words) else (0, None)


def _check_of(words: tuple[int, ...] | list[int]) -> int:
    value = 17
    for word in words:
        value = (value * 31 + word) & 0x7FFF_FFFF_FFFF_FFFF
    return value
