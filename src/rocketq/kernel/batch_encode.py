"""Messages out of Arrow columns, laid out as a batch send carries them.

    element    := size i32, 0 i32, 0 i32, 0 i32, body length i32, body, properties length i16, properties
    properties := UNIQ_KEY, TAGS, KEYS, __SHARDINGKEY, DELAY, TIMER_DELIVER_MS, SPARK_TX, those of the map, constants;
                  each is name 0x01 value 0x02, and left out where it is empty or missing

A unique key is a head that is the process's own and a sequence of 48 bits. Rows that no broker would take are left out
and listed in `faults` by their number and one of the codes.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import copy_bytes, equal_bytes, find_byte, store_i16, store_i32


@cython.cclass
class TextSource:
    """A column of texts, bytes or maps: 32-bit ends, the bytes (none for maps), a validity bitmap or None."""

    def __init__(self, ends, data, valid, offset):
        ints: cython.const[cython.int][::1]
        chars: cython.const[cython.uchar][::1]
        self._held = (ends, data, valid)
        self._offset = offset
        if cython.compiled:
            ints = memoryview(ends).cast("B").cast("i")
            self._ends = cython.address(ints[0])
            self._data = cython.NULL
            self._valid = cython.NULL
            if data is not None and len(data):
                chars = memoryview(data).cast("B")
                self._data = cython.address(chars[0])
            if valid is not None:
                chars = memoryview(valid).cast("B")
                self._valid = cython.address(chars[0])
        else:
            self._ends = memoryview(ends).cast("B").cast("i")
            self._data = memoryview(data).cast("B") if data is not None else None
            self._valid = memoryview(valid).cast("B") if valid is not None else None

    def start(self, row):
        return self._ends[self._offset + row]

    def length(self, row):
        """-1 for a null row."""
        at: cython.Py_ssize_t = self._offset + row
        if cython.compiled:
            if self._valid != cython.NULL and not self._valid[at >> 3] >> (at & 7) & 1:
                return -1
        elif self._valid is not None and not self._valid[at >> 3] >> (at & 7) & 1:
            return -1
        return self._ends[at + 1] - self._ends[at]


@cython.cclass
class NumberSource:
    """A column of 64-bit numbers."""

    def __init__(self, numbers, valid, offset):
        longs: cython.const[cython.longlong][::1]
        chars: cython.const[cython.uchar][::1]
        self._held = (numbers, valid)
        self._offset = offset
        if cython.compiled:
            longs = memoryview(numbers).cast("B").cast("q")
            self._numbers = cython.address(longs[0])
            self._valid = cython.NULL
            if valid is not None:
                chars = memoryview(valid).cast("B")
                self._valid = cython.address(chars[0])
        else:
            self._numbers = memoryview(numbers).cast("B").cast("q")
            self._valid = memoryview(valid).cast("B") if valid is not None else None

    def at(self, row, otherwise):
        at: cython.Py_ssize_t = self._offset + row
        if cython.compiled:
            if self._valid != cython.NULL and not self._valid[at >> 3] >> (at & 7) & 1:
                return otherwise
        elif self._valid is not None and not self._valid[at >> 3] >> (at & 7) & 1:
            return otherwise
        return self._numbers[at]


@cython.cclass
class BatchEncoder:
    """Set the columns, then encode() as often as it takes. `origin` is the head of SPARK_TX (empty: no such property);
    the row's ordinal follows it, from the column, or `ordinal_first` plus the row's number. `constant` are
    properties that every message has; `left_out` are names of the map that are none of its business."""

    def __init__(self, id_head, origin, constant, left_out, body_bytes_max, properties_bytes_max):
        self._id_head = id_head
        self._origin = origin
        self._constant = constant
        self._left_out = left_out
        self.body_bytes_max = body_bytes_max
        self.properties_bytes_max = properties_bytes_max
        self.sequence = 0
        self.body = None
        self.clear()
        self.make_room(0)
        self.used = self.count = 0
        self.faults = []

    def clear(self):
        """Forget the columns."""
        self.body = self.tags = self.keys = self.sharding_key = None
        self.delay_level = self.deliver_ms = self.ordinal = None
        self.ordinal_first = 0
        self._maps = self._names = self._values = None
        self.forget_names()

    def set_properties(self, maps: TextSource, names: TextSource, values: TextSource):
        self._maps, self._names, self._values = maps, names, values
        self.forget_names()

    def forget_names(self):
        position: cython.Py_ssize_t
        if not cython.compiled:
            self._known_at, self._known_len, self._known_kind = [0] * POSITIONS, [0] * POSITIONS, [0] * POSITIONS
        for position in range(POSITIONS):
            self._known_len[position] = -1

    def make_room(self, size: cython.Py_ssize_t):
        """A new buffer, so large."""
        chars: cython.uchar[::1]
        self.out = bytearray(size + 1)
        self._room = size
        if cython.compiled:
            chars = self.out
            self._out = cython.address(chars[0])
        else:
            self._out = memoryview(self.out)

    def encode(
        self, row: cython.Py_ssize_t, stop: cython.Py_ssize_t, bytes_max: cython.Py_ssize_t, extra: cython.Py_ssize_t
    ):
        """Elements of the rows from `row` on, until they would need more than `bytes_max`, each with `extra` bytes on
        top that its broker adds; at least one. Returns the next row; `out` holds `used` bytes of `count` elements,
        until the next call."""
        fault: cython.int
        size: cython.Py_ssize_t
        taken: cython.Py_ssize_t = 0
        if self.body is None:
            raise ValueError("there is no column of bodies")
        if bytes_max > self._room:
            self.make_room(bytes_max)
        self.used = self.count = 0
        self.faults = []
        while row < stop:
            fault = self.measure(row)
            if fault:
                self.faults.append((row, fault))
                row += 1
                continue
            size = 22 + self._body_len + self._properties_len
            if self.count > 0 and taken + size + extra > bytes_max:
                break
            if size > self._room - self.used:
                self.make_room(size)  # the first one, and larger than any batch
            self.write(row)
            taken += size + extra
            self.count += 1
            row += 1
        return row

    def measure(self, row):
        """Lengths of the row's body and properties; what is wrong with it, or 0."""
        count: cython.Py_ssize_t
        number: cython.longlong
        total: cython.Py_ssize_t = 9 + len(self._id_head) + 12 + 1 + len(self._constant)
        self._body_len = self.body.length(row)
        if self._body_len <= 0:
            return EMPTY_BODY if self._body_len == 0 else NO_BODY
        if self._body_len > self.body_bytes_max:
            return BODY_TOO_LARGE
        if self.tags is not None:
            count = self.tags.length(row)
            if count > 0:
                if not is_clean(self.tags, row):
                    return TAGS_SEPARATOR
                total += 6 + count
        if self.keys is not None:
            count = self.keys.length(row)
            if count > 0:
                if not is_clean(self.keys, row):
                    return KEYS_SEPARATOR
                total += 6 + count
        if self.sharding_key is not None:
            count = self.sharding_key.length(row)
            if count > 0:
                if not is_clean(self.sharding_key, row):
                    return SHARDING_SEPARATOR
                total += 15 + count
        if self.delay_level is not None:
            number = self.delay_level.at(row, 0)
            if number > 0:
                total += 7 + digits_of(number)
        if self.deliver_ms is not None:
            number = self.deliver_ms.at(row, -1)
            if number >= 0:
                total += 18 + digits_of(number)
        if len(self._origin) > 0:
            number = self.ordinal_of(row)
            total += 10 + len(self._origin) + digits_of(number)
        if self._maps is not None:
            count = self.measure_map(row)
            if count < 0:
                return PROPERTY_NAME if count == -1 else PROPERTY_SEPARATOR
            total += count
        if total > self.properties_bytes_max:
            return PROPERTIES_TOO_LONG
        self._properties_len = total
        return 0

    def ordinal_of(self, row):
        return self.ordinal_first + row if self.ordinal is None else self.ordinal.at(row, 0)

    def measure_map(self, row):
        """The bytes of what is kept of the row's map; -1 for a bad name, -2 for a bad value."""
        item: cython.Py_ssize_t
        position: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t
        at: cython.Py_ssize_t
        kind: cython.int
        total: cython.Py_ssize_t = 0
        if self._maps.length(row) <= 0:
            return 0
        for item in range(self._maps.start(row), self._maps.start(row + 1)):
            kind = self.kind_of(position, self._names.start(item), self._names.length(item))
            position += 1
            if kind == BAD_NAME:
                return -1
            count = self._values.length(item)
            if count <= 0 or not self.is_kept(kind, row):
                continue
            at = self._values.start(item)
            if find_byte(self._values._data, at, at + count, 2) < at + count:
                return -2
            total += self._names.length(item) + count + 2
        return total

    def kind_of(self, position, at, count):
        """What a name means; those of one row are mostly those of the row before."""
        kind: cython.int
        if position < POSITIONS and self._known_len[position] == count:
            if equal_bytes(self._names._data, at, self._names._data, self._known_at[position], count):
                return self._known_kind[position]
        kind = self.classify(at, count)
        if position < POSITIONS:
            self._known_at[position] = at
            self._known_len[position] = count
            self._known_kind[position] = kind
        return kind

    def classify(self, at, count):
        end: cython.Py_ssize_t = at + count
        name: bytes
        if count <= 0:
            return BAD_NAME
        if find_byte(self._names._data, at, end, 1) < end or find_byte(self._names._data, at, end, 2) < end:
            return BAD_NAME
        if cython.compiled:
            name = self._names._data[at:end]
        else:
            name = bytes(self._names._data[at:end])
        if name in self._left_out:
            return LEFT_OUT
        if name == b"TAGS":
            return TAGS_NAME
        return KEYS_NAME if name == b"KEYS" else PLAIN_NAME

    def is_kept(self, kind, row):
        """Tags and keys have columns of their own, which go first."""
        if kind == TAGS_NAME:
            return self.tags is None or self.tags.length(row) <= 0
        if kind == KEYS_NAME:
            return self.keys is None or self.keys.length(row) <= 0
        return kind == PLAIN_NAME

    def write(self, row):
        number: cython.longlong
        store_i32(self._out, self.used, 22 + self._body_len + self._properties_len)
        store_i32(self._out, self.used + 4, 0)
        store_i32(self._out, self.used + 8, 0)
        store_i32(self._out, self.used + 12, 0)
        store_i32(self._out, self.used + 16, self._body_len)
        self.used += 20
        self.put(self.body._data, self.body.start(row), self._body_len)
        store_i16(self._out, self.used, self._properties_len)
        self.used += 2
        self.put_text(b"UNIQ_KEY\x01")
        self.put_text(self._id_head)
        self.put_sequence()
        if self.tags is not None:
            self.put_item(b"TAGS\x01", self.tags, row)
        if self.keys is not None:
            self.put_item(b"KEYS\x01", self.keys, row)
        if self.sharding_key is not None:
            self.put_item(b"__SHARDINGKEY\x01", self.sharding_key, row)
        if self.delay_level is not None:
            number = self.delay_level.at(row, 0)
            if number > 0:
                self.put_number_item(b"DELAY\x01", number)
        if self.deliver_ms is not None:
            number = self.deliver_ms.at(row, -1)
            if number >= 0:
                self.put_number_item(b"TIMER_DELIVER_MS\x01", number)
        if len(self._origin) > 0:
            self.put_text(b"SPARK_TX\x01")
            self.put_text(self._origin)
            self.put_number_item(b"", self.ordinal_of(row))
        if self._maps is not None:
            self.write_map(row)
        self.put_text(self._constant)
        return 0

    def write_map(self, row):
        item: cython.Py_ssize_t
        position: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t
        kind: cython.int
        if self._maps.length(row) <= 0:
            return 0
        for item in range(self._maps.start(row), self._maps.start(row + 1)):
            kind = self.kind_of(position, self._names.start(item), self._names.length(item))
            position += 1
            count = self._values.length(item)
            if count <= 0 or not self.is_kept(kind, row):
                continue
            self.put(self._names._data, self._names.start(item), self._names.length(item))
            self._out[self.used] = 1
            self.used += 1
            self.put(self._values._data, self._values.start(item), count)
            self._out[self.used] = 2
            self.used += 1
        return 0

    def put(self, p, at, count):
        copy_bytes(self._out, self.used, p, at, count)
        self.used += count

    def put_text(self, text):
        copy_bytes(self._out, self.used, text, 0, len(text))
        self.used += len(text)

    def put_item(self, name, source, row):
        count: cython.Py_ssize_t = source.length(row)
        if count > 0:
            self.put_text(name)
            self.put(source._data, source.start(row), count)
            self._out[self.used] = 2
            self.used += 1

    def put_number_item(self, name, value):
        self.put_text(name)
        self.put_number(value)
        self._out[self.used] = 2
        self.used += 1

    def put_number(self, value):
        count: cython.Py_ssize_t = digits_of(value)
        step: cython.Py_ssize_t
        for step in range(count):
            self._out[self.used + count - 1 - step] = 48 + value % 10
            value //= 10
        self.used += count

    def put_sequence(self):
        """The last 12 digits of the unique key, and the end of the item."""
        value: cython.longlong = self.sequence
        digit: cython.int
        step: cython.int
        for step in range(12):
            digit = value & 15
            self._out[self.used + 11 - step] = digit + 48 if digit < 10 else digit + 55
            value >>= 4
        self._out[self.used + 12] = 2
        self.used += 13
        self.sequence += 1


def digits_of(value):
    """How many decimal digits a number that is not negative has."""
    count: cython.Py_ssize_t = 1
    while value >= 10:
        value //= 10
        count += 1
    return count


def is_clean(source, row):
    """Whether the row's text does not hold the byte that ends it."""
    at: cython.Py_ssize_t = source.start(row)
    end: cython.Py_ssize_t = at + source.length(row)
    return find_byte(source._data, at, end, 2) == end
