"""Plain sends, from the bytes of a socket to the log and back: one call per read, nothing of Python per message.

    frame  := length:i32 form:u8 headerLength:u24 header body        form 0 is JSON, the only one taken here
    header := {"code":310,"extFields":{"a":..,"b":topic,..,"i":properties,..},"flag":..,"opaque":..,"version":..,..}

What is not a plain send of a known topic, written the way clients write it, is left to Python: the kernel may refuse
any frame, it never guesses.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.appender import APPENDED, Appender
    from rocketq.kernel.primitives import copy_bytes, equal_bytes, find_byte, load_i32, store_i32
    from rocketq.kernel.queue_units import QueueTail

SEND_MESSAGE_V2 = 310
TEXT_BYTES_MAX = 65_536  # of the properties as JSON has them
ANSWER_BYTES_MAX = 1_024


@cython.cclass
class SendRoute:
    """A topic that plain sends may go to: its queues by id (None: not made yet), what was stored since last asked."""

    def __init__(self, topic, queues, sys_flag):
        self.topic = topic
        self.queues = queues
        self.sys_flag = sys_flag
        self.count = self.size_bytes = 0


@cython.cclass
class SendFrames:
    """Takes plain sends out of a stream of frames. Its owner holds the store's lock while it does.

    After feed() `cold` has the (start, end) of every frame left to Python, `missed` the topics that had no route or no
    such queue, and take_answers() gives the answers. `taken` counts the messages stored. `pieces` are the texts of an
    answer around its numbers.
    """

    def __init__(self, appender: Appender, pieces, cluster, body_bytes_max, frame_bytes_max, transactions_since):
        view: cython.uchar[::1]
        self.appender = appender
        self._host_hex, self._before_id, self._before_queue, self._before_offset = pieces[:4]
        self._before_transaction, self._before_opaque, self._tail = pieces[4:]
        self._cluster = b"CLUSTER\x01" + cluster
        self.body_bytes_max = body_bytes_max
        self.frame_bytes_max = frame_bytes_max
        self.transactions_since = transactions_since
        self._routes = {}
        self._last = None
        self.cold = []
        self.missed = []
        self._out_len = 0
        self.taken = 0
        self._out = bytearray(1 << 16)
        self._properties = bytearray(TEXT_BYTES_MAX + 1_024)
        if cython.compiled:
            view = self._out
            self._out_p = cython.address(view[0])
            view = self._properties
            self._properties_p = cython.address(view[0])
        else:
            self._out_p = memoryview(self._out)
            self._properties_p = memoryview(self._properties)

    def add_route(self, route: SendRoute):
        self._routes[route.topic] = route
        self._last = None

    def clear_routes(self):
        """Topics have changed: forget what was known of them."""
        self._routes.clear()
        self._last = None

    def routes(self):
        return list(self._routes.values())

    def take_answers(self):
        """The answers since the last call, ready to be written."""
        taken = bytes(self._out[: self._out_len])
        self._out_len = 0
        return taken

    def feed(self, data: bytes, born_host: bytes, now_ms: cython.longlong):
        """Work through the whole frames of one read; how many bytes they were."""
        p: cython.p_uchar = data
        at: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = len(data)
        length: cython.longlong
        header_end: cython.Py_ssize_t
        mark: cython.int
        self.cold = []
        self.missed = []
        while end - at >= 8:
            length = load_i32(p, at)
            if length < 4 or length > self.frame_bytes_max:
                self.cold.append((at, end))
                return end
            if length > end - at - 4:
                break
            mark = load_i32(p, at + 4)
            header_end = at + 8 + mark
            if (
                0 < mark <= 0xFFFFFF
                and mark <= length - 4
                and self.parse_header(p, at + 8, header_end)
                and self.send(p, header_end, at + 4 + length - header_end, born_host, now_ms)
            ):
                if not self._flag & 2:
                    self.answer()
            else:
                self.cold.append((at, at + 4 + length))
            at += 4 + length
        return at

    # The header

    def parse_header(self, p, at, end):
        """Whether this is the header of a plain send, every field where it is expected."""
        key: cython.Py_ssize_t
        key_end: cython.Py_ssize_t
        value_end: cython.Py_ssize_t
        self._code = self._opaque = self._flag = self._version = 0
        self._seen = 0
        if at >= end or p[at] != 123:
            return False
        at += 1
        while True:
            if at >= end or p[at] != 34:
                return False
            key = at + 1
            key_end = end_of_text(p, key, end)
            if key_end < 0 or key_end + 2 >= end or p[key_end + 1] != 58:
                return False
            at = key_end + 2
            if p[at] == 34:
                value_end = end_of_text(p, at + 1, end)
                if value_end < 0:
                    return False
                at = value_end + 1
            elif p[at] == 123:
                if key_end - key != 9 or not equal_bytes(p, key, b"extFields", 0, 9):
                    return False
                at = self.parse_fields(p, at + 1, end)
                if at < 0:
                    return False
            else:
                value_end = end_of_number(p, at, end)
                if value_end < 0 or not self.take_member(p, key, key_end - key, number_at(p, at, value_end)):
                    return False
                at = value_end
            if at >= end:
                return False
            if p[at] == 125:
                return at == end - 1 and self._code == 310 and self._flag & 1 == 0 and self._seen == 0x1F3
            if p[at] != 44:
                return False
            at += 1

    def take_member(self, p, at, count, value):
        """A number of the header itself; one that is not known, or no Java int, is not plain."""
        if value > 0x7FFFFFFF or value < -0x7FFFFFFF:
            return False
        if count == 4 and equal_bytes(p, at, b"code", 0, 4):
            self._code = value
        elif count == 4 and equal_bytes(p, at, b"flag", 0, 4):
            self._flag = value
        elif count == 6 and equal_bytes(p, at, b"opaque", 0, 6):
            self._opaque = value
        elif count == 7 and equal_bytes(p, at, b"version", 0, 7):
            self._version = value
        else:
            return False
        return True

    def parse_fields(self, p, at, end):
        """Behind the closing brace of the extFields, or -1."""
        letter: cython.int
        value: cython.Py_ssize_t
        value_end: cython.Py_ssize_t
        while True:
            if end - at < 7 or p[at] != 34 or p[at + 2] != 34 or p[at + 3] != 58 or p[at + 4] != 34:
                return -1
            letter = p[at + 1]
            value = at + 5
            value_end = end_of_text(p, value, end)
            if value_end < 0 or value_end + 1 >= end or not self.take_field(p, letter, value, value_end - value):
                return -1
            at = value_end + 2
            if p[at - 1] == 125:
                return at
            if p[at - 1] != 44:
                return -1

    def take_field(self, p, letter, at, count):
        """One field by its letter: bit (letter - a) of `seen` marks those that must be there, once."""
        if letter < 97 or letter > 110:
            return False
        if letter == 105:
            self._text_at, self._text_len = at, count
        elif find_byte(p, at, at + count, 92) < at + count:
            return False
        elif letter == 98:
            self._topic_at, self._topic_len = at, count
        elif letter == 109:
            return count == 5 and equal_bytes(p, at, b"false", 0, 5)
        elif letter == 106:
            return count == 1 and p[at] == 48
        elif letter in (101, 102, 103, 104):
            if not is_plain_number(p, at, count):
                return False
            if letter == 101:
                self._queue_id = number_at(p, at, at + count)
            elif letter == 102:
                self._sys_flag = number_at(p, at, at + count)
            elif letter == 103:
                self._born_ms = number_at(p, at, at + count)
            else:
                self._user_flag = number_at(p, at, at + count)
        elif letter != 97:
            return True
        if self._seen & (1 << (letter - 97)):
            return False
        self._seen |= 1 << (letter - 97)
        return True

    # Properties

    def unescape(self, p):
        """The properties out of their JSON text; -1 for anything but ASCII."""
        at: cython.Py_ssize_t = self._text_at
        end: cython.Py_ssize_t = self._text_at + self._text_len
        out: cython.Py_ssize_t = 0
        char: cython.int
        step: cython.int
        if self._text_len > 65_536:
            return -1
        while at < end:
            char = p[at]
            at += 1
            if char == 92:
                char = p[at]
                at += 1
                if char == 117:
                    if end - at < 4:
                        return -1
                    char = 0
                    for step in range(4):
                        char = char * 16 + hex_digit(p[at + step])
                    at += 4
                elif char == 110:
                    char = 10
                elif char == 116:
                    char = 9
                elif char == 114:
                    char = 13
                elif char != 34 and char != 92 and char != 47:
                    return -1
            elif char < 32:
                return -1
            if char <= 0 or char > 127:
                return -1
            self._properties_p[out] = char
            out += 1
        return out

    def edit_properties(self, count):
        """What is stored of them: without WAIT and empty values, with CLUSTER at the end; -1 when Python must look."""
        q: cython.p_uchar = self._properties_p
        at: cython.Py_ssize_t = 0
        out: cython.Py_ssize_t = 0
        item_end: cython.Py_ssize_t
        name_end: cython.Py_ssize_t
        size: cython.Py_ssize_t
        step: cython.Py_ssize_t
        self._unique_at = self._unique_end = 0
        while at < count:
            item_end = find_byte(q, at, count, 2)
            name_end = find_byte(q, at, item_end, 1)
            size = name_end - at
            if name_end + 1 < item_end and size > 0:
                if is_cold_name(q, at, size) or self.has_name_before(out, at, size):
                    return -1
                if size != 4 or not equal_bytes(q, at, b"WAIT", 0, 4):
                    if out > 0:
                        q[out] = 2
                        out += 1
                    if size == 8 and equal_bytes(q, at, b"UNIQ_KEY", 0, 8):
                        if not is_plain_text(q, name_end + 1, item_end):
                            return -1
                        self._unique_at = out + 9
                        self._unique_end = out + item_end - at
                    if out != at:
                        for step in range(item_end - at):
                            q[out + step] = q[at + step]
                    out += item_end - at
            at = item_end + 1
        if out > 0:
            q[out] = 2
            out += 1
        copy_bytes(q, out, self._cluster, 0, len(self._cluster))
        return out + len(self._cluster)

    def has_name_before(self, until, at, count):
        """Whether a property of this name was kept already."""
        q: cython.p_uchar = self._properties_p
        item: cython.Py_ssize_t = 0
        item_end: cython.Py_ssize_t
        while item < until:
            item_end = find_byte(q, item, until, 2)
            if item_end - item > count and q[item + count] == 1 and equal_bytes(q, item, q, at, count):
                return True
            item = item_end + 1
        return False

    # Storing and answering

    def find_queue(self, p):
        topic: bytes
        route: SendRoute = self._last
        if (
            route is None
            or len(route.topic) != self._topic_len
            or not equal_bytes(p, self._topic_at, route.topic, 0, self._topic_len)
        ):
            if cython.compiled:
                topic = p[self._topic_at : self._topic_at + self._topic_len]
            else:
                topic = bytes(p[self._topic_at : self._topic_at + self._topic_len])
            route = self._routes.get(topic)
            if route is None:
                self.missed.append(topic)
                return None
            self._last = route
        if self._queue_id >= len(route.queues):
            return None
        if route.queues[self._queue_id] is None:
            self.missed.append(route.topic)
            return None
        return route.queues[self._queue_id]

    def send(self, p, body_at, body_len, born_host, now_ms):
        """Store the message of the header at hand; False when it is not for us."""
        queue: QueueTail
        count: cython.Py_ssize_t
        if body_len <= 0 or body_len > self.body_bytes_max or self._sys_flag & 0xC:
            return False
        if self._sys_flag > 0x7FFFFFFF or self._user_flag > 0x7FFFFFFF or self.appender.index is None:
            return False
        queue = self.find_queue(p)
        if queue is None:
            return False
        count = self.unescape(p)
        if count >= 0:
            count = self.edit_properties(count)
        if count < 0 or count > 32_767:
            return False
        if (
            self.appender.put(
                queue,
                p,
                body_at,
                body_len,
                self._properties_p,
                0,
                count,
                self._user_flag,
                self._sys_flag | self._last.sys_flag,
                self._born_ms,
                born_host,
                now_ms,
                0,
                0,
            )
            != APPENDED
        ):
            return False
        self.taken += 1
        self._last.count += 1
        self._last.size_bytes += self.appender.size
        return True

    def answer(self):
        at: cython.Py_ssize_t
        start: cython.Py_ssize_t = self._out_len
        unique: cython.Py_ssize_t = self._unique_end - self._unique_at
        view: cython.uchar[::1]
        if start + ANSWER_BYTES_MAX + unique > len(self._out):
            self._out = self._out + bytes(len(self._out))
            if cython.compiled:
                view = self._out
                self._out_p = cython.address(view[0])
            else:
                self._out_p = memoryview(self._out)
        at = self.put_text(start + 8, self._before_id)
        at = self.put_text(at, self._host_hex)
        at = self.put_hex(at, self.appender.log_offset)
        at = self.put_text(at, self._before_queue)
        at = self.put_number(at, self._queue_id)
        at = self.put_text(at, self._before_offset)
        at = self.put_number(at, self.appender.queue_offset)
        if unique > 0 and self._version >= self.transactions_since:
            at = self.put_text(at, self._before_transaction)
            copy_bytes(self._out_p, at, self._properties_p, self._unique_at, unique)
            at += unique
        at = self.put_text(at, self._before_opaque)
        at = self.put_number(at, self._opaque)
        at = self.put_text(at, self._tail)
        store_i32(self._out_p, start, at - start - 4)
        store_i32(self._out_p, start + 4, at - start - 8)
        self._out_len = at

    def put_text(self, at, text):
        copy_bytes(self._out_p, at, text, 0, len(text))
        return at + len(text)

    def put_number(self, at, value):
        digits: cython.int = 1
        rest: cython.longlong
        step: cython.int
        if value < 0:
            self._out_p[at] = 45
            at += 1
            value = -value
        rest = value // 10
        while rest > 0:
            digits += 1
            rest //= 10
        for step in range(digits):
            self._out_p[at + digits - 1 - step] = 48 + value % 10
            value //= 10
        return at + digits

    def put_hex(self, at, value):
        step: cython.int
        digit: cython.int
        for step in range(16):
            digit = value & 15
            self._out_p[at + 15 - step] = digit + 48 if digit < 10 else digit + 55
            value >>= 4
        return at + 16


def end_of_text(p, at, end):
    """Where the quote that ends a JSON text is, or -1."""
    while at < end:
        if p[at] == 34:
            return at
        at += 2 if p[at] == 92 else 1
    return -1


def end_of_number(p, at, end):
    """Behind the last digit of an integer of at most 10 digits, or -1."""
    first: cython.Py_ssize_t
    if at < end and p[at] == 45:
        at += 1
    first = at
    while at < end and 48 <= p[at] <= 57:
        at += 1
    return at if 0 < at - first <= 10 else -1


def number_at(p, at, end):
    value: cython.longlong = 0
    negative: cython.bint = p[at] == 45
    if negative:
        at += 1
    while at < end:
        value = value * 10 + (p[at] - 48)
        at += 1
    return -value if negative else value


def is_plain_number(p, at, count):
    """Digits only, few enough for 64 bits."""
    step: cython.Py_ssize_t
    if count < 1 or count > 18:
        return False
    for step in range(count):
        if p[at + step] < 48 or p[at + step] > 57:
            return False
    return True


def is_plain_text(p, at, end):
    """Nothing that JSON would have to escape."""
    while at < end:
        if p[at] < 32 or p[at] == 34 or p[at] == 92 or p[at] > 126:
            return False
        at += 1
    return True


def is_cold_name(p, at, count):
    """Properties that make a message more than plain."""
    if p[at] == 84:
        return count >= 8 and (equal_bytes(p, at, b"TRAN_MSG", 0, 8) or equal_bytes(p, at, b"TIMER_", 0, 6))
    if p[at] == 68:
        return count == 5 and equal_bytes(p, at, b"DELAY", 0, 5)
    return p[at] == 67 and count == 7 and equal_bytes(p, at, b"CLUSTER", 0, 7)


def hex_digit(char):
    """The value of a hex digit; a number too large for a character when it is none."""
    if 48 <= char <= 57:
        return char - 48
    if 97 <= char <= 102:
        return char - 87
    if 65 <= char <= 70:
        return char - 55
    return 1 << 16
