"""The index file: from the hash of topic#key to log offsets, newest first.

    file   := header slots units
    header := beginMs:i64 endMs:i64 beginOffset:i64 endOffset:i64 usedSlots:i32 count:i32
    slot   := number of the newest unit of its chain:i32, 0 for none
    unit   := keyHash:i32 logOffset:i64 seconds since beginMs:i32 previous unit of the chain:i32

Units are numbered from 1; `count` is the number of the next one.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.primitives import (
        equal_bytes,
        load_i32,
        load_i64,
        prefetch,
        signed_i32,
        store_i32,
        store_i64,
        zero_bytes,
    )

HEADER_BYTES, SLOT_BYTES, UNIT_BYTES = 40, 4, 20


def key_hash(value):
    """A Java hash (unsigned form) as index files hold it: its absolute value, 0 where Java has none."""
    wide: cython.longlong = signed_i32(value)
    if wide < 0:
        wide = -wide
    return 0 if wide > 0x7FFFFFFF else wide


def seconds_since(begin_ms, store_ms):
    """A unit's time: whole seconds since the file's first time, 0 when that is not known or later."""
    seconds: cython.longlong
    if begin_ms <= 0 or store_ms <= begin_ms:
        return 0
    seconds = (store_ms - begin_ms) // 1000
    return 0x7FFFFFFF if seconds > 0x7FFFFFFF else seconds


@cython.cclass
class IndexTail:
    """One index file, open for adding; the header in the file is kept up to date with every unit.

    Slots lie all over the file, so that hardly one is in the processor's cache. A caller that adds many units can
    defer() them: their slots are prefetched during other work, and drain() adds them, before the owner's lock is let
    go.
    """

    def __init__(self, file: MappedBuffer, slots, units_max):
        if file.size < 40 + slots * 4 + units_max * 20:
            raise ValueError(f"an index of {slots} slots and {units_max} units does not fit in {file.size} bytes")
        self.file = file
        self.p = file.p
        self.slots = slots
        self.units_max = units_max
        self.pending = 0
        if not cython.compiled:
            self._hashes, self._slots_at = [0] * PENDING_MAX, [0] * PENDING_MAX
            self._offsets, self._stored_ms = [0] * PENDING_MAX, [0] * PENDING_MAX
        self.load_header()

    def load_header(self):
        """Take the counters from the file."""
        self.begin_ms = load_i64(self.p, 0)
        self.end_ms = load_i64(self.p, 8)
        self.begin_offset = load_i64(self.p, 16)
        self.end_offset = load_i64(self.p, 24)
        self.used_slots = load_i32(self.p, 32)
        self.count = max(load_i32(self.p, 36), 1)

    def preset(self, end_ms: cython.longlong, end_offset: cython.longlong):
        """A new file starts with the end of the one before it as its own first and last time, until its first unit."""
        self.begin_ms = self.end_ms = end_ms
        self.begin_offset = self.end_offset = end_offset
        store_i64(self.p, 0, end_ms)
        store_i64(self.p, 8, end_ms)
        store_i64(self.p, 16, end_offset)
        store_i64(self.p, 24, end_offset)
        store_i32(self.p, 36, 1)

    @property
    def full(self):
        return self.count >= self.units_max

    def has_room(self, count):
        """Whether this many more units can be deferred or put."""
        return self.count + self.pending + count <= self.units_max

    def defer(self, hashed, log_offset, store_ms):
        """Add a unit at the next drain(). The caller has asked has_room()."""
        slot_at: cython.Py_ssize_t = 40 + hashed % self.slots * 4
        if self.pending >= PENDING_MAX:
            self.drain()
        prefetch(self.p, slot_at)
        self._hashes[self.pending] = hashed
        self._slots_at[self.pending] = slot_at
        self._offsets[self.pending] = log_offset
        self._stored_ms[self.pending] = store_ms
        self.pending += 1

    def drain(self):
        """Add what was deferred, in its order."""
        index: cython.int
        for index in range(self.pending):
            self.put_at(self._slots_at[index], self._hashes[index], self._offsets[index], self._stored_ms[index])
        self.pending = 0

    def put(self, hashed, log_offset, store_ms):
        """Add a unit; False when the file is full."""
        self.drain()
        if self.count >= self.units_max:
            return False
        self.put_at(40 + hashed % self.slots * 4, hashed, log_offset, store_ms)
        return True

    def put_at(self, slot_at, hashed, log_offset, store_ms):
        unit_at: cython.Py_ssize_t
        newest: cython.int
        unit_at = 40 + self.slots * 4 + self.count * 20
        newest = load_i32(self.p, slot_at)
        if newest <= 0 or newest >= self.count:
            newest = 0
        store_i32(self.p, unit_at, hashed)
        store_i64(self.p, unit_at + 4, log_offset)
        store_i32(self.p, unit_at + 12, seconds_since(self.begin_ms, store_ms))
        store_i32(self.p, unit_at + 16, newest)
        store_i32(self.p, slot_at, self.count)
        if self.count <= 1:
            self.begin_offset = log_offset
            self.begin_ms = store_ms
            store_i64(self.p, 0, store_ms)
            store_i64(self.p, 16, log_offset)
        if newest == 0:
            self.used_slots += 1
            store_i32(self.p, 32, self.used_slots)
        self.end_offset = log_offset
        self.end_ms = store_ms
        store_i64(self.p, 8, store_ms)
        store_i64(self.p, 24, log_offset)
        self.count += 1
        store_i32(self.p, 36, self.count)

    def holds(self, hashed, log_offset):
        """Whether this key of this record is indexed already, looking only as far back as that record."""
        number: cython.longlong = load_i32(self.p, 40 + (hashed & 0x7FFFFFFF) % self.slots * 4)
        at: cython.Py_ssize_t
        before: cython.longlong
        while 0 < number < self.count:
            at = 40 + self.slots * 4 + number * 20
            if load_i64(self.p, at + 4) < log_offset:
                return False
            if load_i32(self.p, at) == hashed and load_i64(self.p, at + 4) == log_offset:
                return True
            before = load_i32(self.p, at + 16)
            if before >= number:
                return False
            number = before
        return False

    def search(self, hashed: cython.int, count_max: cython.int, begin_ms: cython.longlong, end_ms: cython.longlong):
        """Log offsets of a key's records stored within [begin_ms, end_ms] (to the second), newest first."""
        found: list = []
        number: cython.longlong = load_i32(self.p, 40 + (hashed & 0x7FFFFFFF) % self.slots * 4)
        at: cython.Py_ssize_t
        before: cython.longlong
        stored_ms: cython.longlong
        seconds: cython.longlong
        while 0 < number < self.count and len(found) < count_max:
            at = 40 + self.slots * 4 + number * 20
            seconds = load_i32(self.p, at + 12)
            # a later file's first unit counts from the end of the file before, but it is what defines begin_ms
            stored_ms = self.begin_ms + (seconds * 1000 if number > 1 else 0)
            if seconds < 0 or stored_ms < begin_ms - 999:
                break
            if load_i32(self.p, at) == hashed and stored_ms <= end_ms:
                found.append(load_i64(self.p, at + 4))
            before = load_i32(self.p, at + 16)
            if before >= number:
                break
            number = before
        return found

    def unit(self, number: cython.longlong):
        """(key hash, log offset, seconds, previous) of a unit."""
        at: cython.Py_ssize_t
        if number < 0 or number >= self.units_max:
            raise IndexError(f"unit {number} of {self.units_max}")
        at = 40 + self.slots * 4 + number * 20
        return load_i32(self.p, at), load_i64(self.p, at + 4), load_i32(self.p, at + 12), load_i32(self.p, at + 16)

    def check(self, log_end: cython.longlong):
        """None if the units, replayed, give the file's slots and header and stay below `log_end`; else what is off."""
        number: cython.longlong
        at: cython.Py_ssize_t = 40 + self.slots * 4
        slot: cython.Py_ssize_t
        offset: cython.longlong
        last: cython.longlong = -1
        used: cython.int = 0
        heads: cython.p_uchar
        view: cython.uchar[::1]
        if self.count > self.units_max:
            return f"count {self.count} is beyond {self.units_max}"
        replayed = bytearray(self.slots * 4)
        if cython.compiled:
            view = replayed
            heads = cython.address(view[0])
        else:
            heads = memoryview(replayed)
        for number in range(1, self.count):
            at += 20
            offset = load_i64(self.p, at + 4)
            if load_i32(self.p, at) < 0 or load_i32(self.p, at + 12) < 0:
                return f"unit {number} has a negative hash or time"
            if offset < last or offset >= log_end:
                return f"unit {number} points to log offset {offset}"
            slot = load_i32(self.p, at) % self.slots * 4
            if load_i32(self.p, at + 16) != load_i32(heads, slot):
                return f"unit {number} follows unit {load_i32(self.p, at + 16)}, not {load_i32(heads, slot)}"
            if load_i32(heads, slot) == 0:
                used += 1
            store_i32(heads, slot, number)
            last = offset
        if self.count > 1 and (last != self.end_offset or load_i64(self.p, 64 + self.slots * 4) != self.begin_offset):
            return f"header says log offsets {self.begin_offset} to {self.end_offset}, the units do not"
        if used != self.used_slots:
            return f"header says {self.used_slots} slots are used, the units say {used}"
        if not equal_bytes(heads, 0, self.p, 40, self.slots * 4):
            return "the slots do not point to the newest unit of each chain"
        return None

    @property
    def end_at(self):
        """Where in the file the next unit goes; behind it there are only zeros."""
        return 40 + self.slots * 4 + self.count * 20

    def cut_to(
        self,
        count: cython.longlong,
        begin_ms: cython.longlong,
        begin_offset: cython.longlong,
        end_ms: cython.longlong,
        end_offset: cython.longlong,
    ):
        """Go back to an earlier state: forget the units from `count` on, rebuild the slots from those that stay."""
        number: cython.longlong
        at: cython.Py_ssize_t
        used: cython.int = 0
        if count < 1 or count > self.units_max:
            raise ValueError(f"cannot cut to {count} of {self.units_max} units")
        for number in range(self.slots):
            store_i32(self.p, 40 + number * 4, 0)
        at = 40 + self.slots * 4
        for number in range(1, count):
            at += 20
            if load_i32(self.p, at + 16) == 0:
                used += 1
            store_i32(self.p, 40 + (load_i32(self.p, at) & 0x7FFFFFFF) % self.slots * 4, number)
        at = 40 + self.slots * 4 + count * 20
        zero_bytes(self.p, at, 40 + self.slots * 4 + min(self.count, self.units_max) * 20)
        store_i64(self.p, 0, begin_ms)
        store_i64(self.p, 8, end_ms)
        store_i64(self.p, 16, begin_offset)
        store_i64(self.p, 24, end_offset)
        store_i32(self.p, 32, used)
        store_i32(self.p, 36, count)
        self.load_header()
