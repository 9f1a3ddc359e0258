"""Columns out of records: rows are found and chosen in one pass, and laid out as Arrow wants them in a second.

    numbers := one native number per row
    texts   := see text_column.py
    maps    := rows + 1 ends into two texts, names and values

Times are microseconds. A row is a record of the log (see records.py); what cannot be done here without Python, that is
compressed bodies and IPv6 hosts, is only reported, and the owner passes the bytes.

Columns grow buffer by buffer until finish(): records that are still in the processor's cache when they are laid out
cost half of what they cost later, and an answer of several megabytes is not.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.primitives import cut_item, equal_bytes, find_byte, load_i64, wrap_i64
    from rocketq.kernel.properties import PropertySpans
    from rocketq.kernel.records import END, MESSAGE, RecordView
    from rocketq.kernel.text_column import TextColumn, longer

BATCH_BYTES_MAX = 1 << 30
ID_BYTES_MAX = 56
HOST_BYTES_MAX = 24


@cython.final
@cython.cclass
class RecordRows:
    """Rows of records, buffer by buffer: collect() chooses those of one, fill() adds them to the columns.

    `topics` and `queue_ids` choose among them (None: all), as do the half-open ranges of queue offsets and store times.
    With `in_place` off records need not be at the log offset in their header: so it is in answers of brokers. `hide`
    names properties that maps leave out.
    """

    def __init__(self):
        self.topics = None
        self.queue_ids = None
        self.queue_offset_low = self.store_ms_low = -0x7FFFFFFF_FFFFFFFF
        self.queue_offset_high = self.store_ms_high = 0x7FFFFFFF_FFFFFFFF
        self.check_crc = True
        self.in_place = True
        self.view = RecordView()
        self._spans = PropertySpans()
        self._last_topic = None
        self._last_chosen = False
        self.topic, self.message_id, self.tags, self.keys = TextColumn(), TextColumn(), TextColumn(), TextColumn()
        self.body, self.born_host, self.store_host = TextColumn(), TextColumn(), TextColumn()
        self.names, self.values = TextColumn(), TextColumn()
        self._items_held = bytearray(4 * 3 * ITEMS_MAX)
        self.hide(())
        self._buffer = None
        self.make_room(1024)
        self.clear()
        self.begin()

    def hide(self, names):
        """Properties of these names are in no map from now on."""
        ints: cython.int[::1]
        known = sorted({bytes(name) for name in names}, key=len)
        if any(not 0 < len(name) < HIDDEN_BYTES_MAX for name in known):
            raise ValueError(f"a name has 1 to {HIDDEN_BYTES_MAX - 1} bytes")
        ends = [sum(len(name) for name in known if len(name) < size) for size in range(HIDDEN_BYTES_MAX + 1)]
        self._hidden = b"".join(known) + b"\0"
        self._hidden_starts = sum({1 << (name[0] & 63) for name in known})
        self._hidden_ends_held = bytearray(4 * (HIDDEN_BYTES_MAX + 1))
        numbers = memoryview(self._hidden_ends_held).cast("i")
        for size, end in enumerate(ends):
            numbers[size] = end
        if cython.compiled:
            ints = numbers
            self._hidden_ends = cython.address(ints[0])
            self._hidden_names = self._hidden
            ints = memoryview(self._items_held).cast("i")
            self._items = cython.address(ints[0])
        else:
            self._hidden_ends = numbers
            self._hidden_names = self._hidden
            self._items = memoryview(self._items_held).cast("i")

    def clear(self):
        """Forget the rows of the last buffer."""
        self.rows = self.seen = 0
        self.at = 0
        self.compressed = []
        self.compressed_bytes = 0
        self.has_ipv6 = False
        self.body_bytes = self.topic_bytes = self.properties_bytes = self.properties_count = 0
        self.first_store_ms = self.last_store_ms = -1

    def make_room(self, rows: cython.Py_ssize_t):
        """The table of where rows start, at least so long; what is in it stays."""
        longs: cython.longlong[::1]
        table = bytearray(8 * rows)
        if self._buffer is not None:
            table[: len(self._starts_held)] = self._starts_held
        self._starts_held = table
        self.room = rows
        if cython.compiled:
            longs = memoryview(table).cast("q")
            self._starts = cython.address(longs[0])
        else:
            self._starts = memoryview(table).cast("q")

    def collect(self, buffer: MappedBuffer, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, bytes_max: cython.longlong):
        """Choose rows among the records that start in [at, stop), until those have `bytes_max` bytes.

        MESSAGE when it ended there or has enough, else what stopped it (END, BLANK or damage) at `at`. A
        record with a bad body (BAD_CRC) is not passed: its owner decides.
        """
        state: cython.int
        expected: cython.longlong
        taken: cython.longlong = 0
        if at < 0 or stop > buffer.size:
            raise IndexError(f"{at}..{stop} of a buffer of {buffer.size}")
        self.clear()
        self._buffer = buffer
        bytes_max = min(bytes_max, BATCH_BYTES_MAX)
        while at < stop and taken < bytes_max:
            if buffer.size - at < 36:
                self.at = at
                return (
                    END if buffer.size - at < 8 else self.view.parse(buffer.p, at, buffer.size, buffer.base + at, False)
                )
            expected = buffer.base + at if self.in_place else load_i64(buffer.p, at + 28)
            state = self.view.parse(buffer.p, at, buffer.size, expected, self.check_crc)
            if state != MESSAGE:
                self.at = at
                return state
            self.seen += 1
            if self.first_store_ms < 0:
                self.first_store_ms = self.view.store_ms
            self.last_store_ms = self.view.store_ms
            if self.is_chosen(buffer.p):
                if self.rows == self.room:
                    self.make_room(2 * self.room)
                self._starts[self.rows] = at
                self.note()
                self.rows += 1
                taken += self.view.size
            at += self.view.size
        self.at = at
        return MESSAGE

    def is_chosen(self, p):
        topic: bytes
        view: RecordView = self.view
        if view.queue_offset < self.queue_offset_low or view.queue_offset >= self.queue_offset_high:
            return False
        if view.store_ms < self.store_ms_low or view.store_ms >= self.store_ms_high:
            return False
        if self.topics is not None:
            topic = self._last_topic
            if (
                topic is None
                or len(topic) != view.topic_len
                or not equal_bytes(p, view.topic_at, topic, 0, view.topic_len)
            ):
                if cython.compiled:
                    topic = p[view.topic_at : view.topic_at + view.topic_len]
                else:
                    topic = bytes(p[view.topic_at : view.topic_at + view.topic_len])
                self._last_topic = topic
                self._last_chosen = topic in self.topics
            if not self._last_chosen:
                return False
        return self.queue_ids is None or view.queue_id in self.queue_ids

    def note(self):
        """What the columns will need of the row at hand."""
        view: RecordView = self.view
        if view.sys_flag & 1:
            self.compressed.append(self.rows)
            self.compressed_bytes += view.body_len
        if view.sys_flag & 0x30:
            self.has_ipv6 = True
        self.body_bytes += view.body_len
        self.topic_bytes += view.topic_len
        self.properties_bytes += view.properties_len

    def row(self, number: cython.Py_ssize_t):
        """(body, sysFlag, packed born host, packed store host) of one row, for what Python has to do itself."""
        buffer: MappedBuffer = self._buffer
        view: RecordView = self.view
        if number < 0 or number >= self.rows:
            raise IndexError(f"row {number} of {self.rows}")
        self.parse_row(number)
        return (
            buffer.bytes_at(view.body_at, view.body_len),
            view.sys_flag,
            buffer.bytes_at(view.born_host_at, view.born_host_len),
            buffer.bytes_at(view.store_host_at, view.store_host_len),
        )

    def parse_row(self, number):
        buffer: MappedBuffer = self._buffer
        at: cython.Py_ssize_t = self._starts[number]
        self.view.parse(buffer.p, at, buffer.size, load_i64(buffer.p, at + 28), False)

    def begin(self):
        """Forget what the columns have."""
        self.filled = self._number_room = self._map_room = 0
        self.ints, self.longs, self.map_ends = bytearray(4), bytearray(8), bytearray(4)
        for column in (self.topic, self.message_id, self.tags, self.keys, self.body, self.born_host, self.store_host):
            column.begin()
        self.names.begin()
        self.values.begin()
        self.point()

    def fill(self, wanted: cython.int, bodies: list, hosts: tuple, times: cython.Py_ssize_t):
        """Add the rows to the wanted columns. `bodies` are those of the compressed rows, in order, inflated; `hosts`,
        where IPv6 is among them, are those of all rows as texts, born and stored ones. Where room is made it is made
        for `times` as much: the number of buffers of this size per batch."""
        buffer: MappedBuffer = self._buffer
        view: RecordView = self.view
        row: cython.Py_ssize_t
        next_body: cython.Py_ssize_t = 0
        body: bytes
        host: bytes
        self.reserve(wanted, bodies, hosts, times)
        for row in range(self.rows):
            self.parse_row(row)
            if wanted & NUMBERS:
                self.put_numbers(self.filled + row)
            if wanted & TOPIC:
                self.topic.put(buffer.p, view.topic_at, view.topic_len)
            if wanted & BODY:
                if view.sys_flag & 1:
                    body = bodies[next_body]
                    next_body += 1
                    self.body.put(body, 0, len(body))
                else:
                    self.body.put(buffer.p, view.body_at, view.body_len)
            if wanted & PROPERTIES:
                self.put_properties(buffer.p, self.filled + row)
            elif wanted & (MESSAGE_ID | TAGS | KEYS):
                self._spans.scan(buffer.p, view.properties_at, view.properties_at + view.properties_len)
            if wanted & (MESSAGE_ID | TAGS | KEYS):
                self.put_spans(buffer.p, wanted)
            if wanted & (BORN_HOST | STORE_HOST):
                if self.has_ipv6:
                    if wanted & BORN_HOST:
                        host = hosts[0][row]
                        self.born_host.put(host, 0, len(host))
                    if wanted & STORE_HOST:
                        host = hosts[1][row]
                        self.store_host.put(host, 0, len(host))
                else:
                    if wanted & BORN_HOST:
                        self.born_host.put_host(buffer.p, view.born_host_at)
                    if wanted & STORE_HOST:
                        self.store_host.put_host(buffer.p, view.store_host_at)
        self.filled += self.rows

    def finish(self):
        """The columns now belong to Arrow: no more rows until begin()."""
        for column in (self.topic, self.message_id, self.tags, self.keys, self.body, self.born_host, self.store_host):
            column.finish()
        self.names.finish()
        self.values.finish()

    def reserve(self, wanted, bodies, hosts, times):
        rows: cython.Py_ssize_t = self.rows
        items: cython.Py_ssize_t
        inflated = sum(map(len, bodies)) if bodies else 0
        if wanted & NUMBERS:
            self.reserve_numbers(rows, times)
        if wanted & TOPIC:
            self.topic.reserve(rows, self.topic_bytes, times)
        if wanted & BODY:
            if len(bodies or ()) != len(self.compressed):
                raise ValueError(f"{len(self.compressed)} rows are compressed, {len(bodies or ())} bodies are given")
            self.body.reserve(rows, self.body_bytes - self.compressed_bytes + inflated, times)
        if wanted & MESSAGE_ID:
            self.message_id.reserve(rows, self.properties_bytes + ID_BYTES_MAX * rows, times)
        if wanted & TAGS:
            self.tags.reserve(rows, self.properties_bytes, times)
        if wanted & KEYS:
            self.keys.reserve(rows, self.properties_bytes, times)
        if wanted & BORN_HOST:
            self.born_host.reserve(rows, sum(map(len, hosts[0])) if self.has_ipv6 else HOST_BYTES_MAX * rows, times)
        if wanted & STORE_HOST:
            self.store_host.reserve(rows, sum(map(len, hosts[1])) if self.has_ipv6 else HOST_BYTES_MAX * rows, times)
        if wanted & PROPERTIES:
            items = self.properties_bytes // 2 + rows + 1  # an item has two bytes at least: its 0x01 and its 0x02
            self.names.reserve(items, self.properties_bytes, times)
            self.values.reserve(items, self.properties_bytes, times)
            if self.filled + rows > self._map_room:
                self._map_room = max(self.filled + rows * times + (rows >> 3), 2 * self._map_room)
                self.map_ends = longer(self.map_ends, 4 * (self.filled + 1), 4 * (self._map_room + 1))
        self.point()

    def reserve_numbers(self, rows, times):
        """Four columns of ints and four of longs, each with room for as many rows as all the others."""
        column: cython.Py_ssize_t
        before: cython.Py_ssize_t = self._number_room
        if self.filled + rows <= before:
            return 0
        self._number_room = max(self.filled + rows * times + (rows >> 3), 2 * before)
        ints, longs = bytearray(16 * self._number_room), bytearray(32 * self._number_room)
        for column in range(4):
            start, at = column * before, column * self._number_room
            ints[4 * at : 4 * (at + self.filled)] = memoryview(self.ints)[4 * start : 4 * (start + self.filled)]
            longs[8 * at : 8 * (at + self.filled)] = memoryview(self.longs)[8 * start : 8 * (start + self.filled)]
        self.ints, self.longs = ints, longs
        return 0

    def point(self):
        ints: cython.int[::1]
        longs: cython.longlong[::1]
        if cython.compiled:
            ints = memoryview(self.map_ends).cast("i")
            self._map_ends = cython.address(ints[0])
            ints = memoryview(self.ints).cast("i")
            self._ints = cython.address(ints[0])
            longs = memoryview(self.longs).cast("q")
            self._longs = cython.address(longs[0])
        else:
            self._map_ends = memoryview(self.map_ends).cast("i")
            self._ints = memoryview(self.ints).cast("i")
            self._longs = memoryview(self.longs).cast("q")

    @property
    def number_room(self):
        """Numbers that lie between the beginnings of two columns of them."""
        return self._number_room

    def put_numbers(self, row):
        """One row of what reserve_numbers() has made room for."""
        rows: cython.Py_ssize_t = self._number_room
        view: RecordView = self.view
        self._ints[row] = view.queue_id
        self._ints[rows + row] = view.reconsume_times
        self._ints[2 * rows + row] = view.sys_flag
        self._ints[3 * rows + row] = view.flag
        self._longs[row] = view.queue_offset
        self._longs[rows + row] = view.log_offset
        if cython.compiled:
            self._longs[2 * rows + row] = view.born_ms * 1000
            self._longs[3 * rows + row] = view.store_ms * 1000
        else:  # a damaged time may be any number: C wraps it
            self._longs[2 * rows + row] = wrap_i64(view.born_ms * 1000)
            self._longs[3 * rows + row] = wrap_i64(view.store_ms * 1000)

    def put_spans(self, p, wanted):
        """What the properties were just searched for."""
        spans: PropertySpans = self._spans
        view: RecordView = self.view
        if wanted & MESSAGE_ID:
            if spans.unique_at >= 0:
                self.message_id.put(p, spans.unique_at, spans.unique_end - spans.unique_at)
            else:
                self.message_id.put_id(p, view.store_host_at, view.store_host_len, view.log_offset)
        if wanted & TAGS:
            if spans.tags_at >= 0:
                self.tags.put(p, spans.tags_at, spans.tags_end - spans.tags_at)
            else:
                self.tags.put_nothing()
        if wanted & KEYS:
            if spans.keys_at >= 0:
                self.keys.put(p, spans.keys_at, spans.keys_end - spans.keys_at)
            else:
                self.keys.put_nothing()

    def put_properties(self, p, row):
        """Items are found first and written then: a repeated name is searched among names, not bytes.
        What other columns want of them is noted on the way."""
        spans: PropertySpans = self._spans
        base: cython.Py_ssize_t = self.view.properties_at
        at: cython.Py_ssize_t = base
        end: cython.Py_ssize_t = at + self.view.properties_len
        item_end: cython.Py_ssize_t
        name_end: cython.Py_ssize_t
        cut: cython.longlong
        count: cython.int
        item: cython.int
        spans.clear()
        while at < end:
            count = 0
            while at < end and count < ITEMS_MAX:
                cut = cut_item(p, at, end)
                item_end = at + (cut >> 31)
                name_end = at + (cut & 0x7FFFFFFF)
                if at < name_end and name_end + 1 < item_end:
                    spans.note(p, at, name_end, item_end)
                    if not self.is_hidden(p, at, name_end - at):
                        self._items[3 * count] = at - base
                        self._items[3 * count + 1] = name_end - base
                        self._items[3 * count + 2] = item_end - base
                        count += 1
                at = item_end + 1
            for item in range(count):
                if not self.is_item_again(p, base, item, count, at, end):
                    item_end = base + self._items[3 * item + 2]
                    name_end = base + self._items[3 * item + 1]
                    self.names.put(p, base + self._items[3 * item], name_end - base - self._items[3 * item])
                    self.values.put(p, name_end + 1, item_end - name_end - 1)
        self._map_ends[row + 1] = self.names.rows

    def is_hidden(self, p, at, name_len):
        place: cython.Py_ssize_t
        if name_len >= HIDDEN_BYTES_MAX or not self._hidden_starts >> (p[at] & 63) & 1:
            return False
        place = self._hidden_ends[name_len]
        while place < self._hidden_ends[name_len + 1]:
            if equal_bytes(p, at, self._hidden_names, place, name_len):
                return True
            place += name_len
        return False

    def is_item_again(self, p, base, item, count, at, end):
        """Whether a later item has this one's name, among those found or in [at, end): the last one wins."""
        name_at: cython.Py_ssize_t = base + self._items[3 * item]
        name_len: cython.Py_ssize_t = base + self._items[3 * item + 1] - name_at
        other: cython.int
        for other in range(item + 1, count):
            if self._items[3 * other + 1] - self._items[3 * other] == name_len and equal_bytes(
                p, base + self._items[3 * other], p, name_at, name_len
            ):
                return True
        return at < end and is_said_again(p, name_at, name_len, at, end)


def is_said_again(p, name_at, name_len, at, end):
    """Whether a later item of the properties has this name."""
    item_end: cython.Py_ssize_t
    while at < end:
        item_end = find_byte(p, at, end, 2)
        if item_end - at > name_len + 1 and p[at + name_len] == 1 and equal_bytes(p, at, p, name_at, name_len):
            return True
        at = item_end + 1
    return False
