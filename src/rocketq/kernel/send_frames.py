"""Plain sends and batches, from a header and a body to the log and to an answer, with nothing of Python per message.

What is not plain, or not for a queue that is known and has room, is left to Python: the kernel may refuse any frame,
it never guesses.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.answers import AnswerBuffer
    from rocketq.kernel.appender import APPENDED, Appender
    from rocketq.kernel.primitives import load_i32
    from rocketq.kernel.queue_places import QueuePlaces
    from rocketq.kernel.queue_units import QueueTail
    from rocketq.kernel.send_properties import SendProperties
    from rocketq.kernel.send_request import SendRequest

    IDS_BYTES_MAX = 8 << 20  # of the ids in the answer to a batch
    RECORD_BYTES_MORE = 123  # what a record needs at most beside topic, properties and body, and the end of its file


@cython.cclass
class SendRoute:
    """A topic that plain sends may go to: its queues by id (None: not made yet), what was stored since last asked."""

    def __init__(self, topic, queues, sys_flag):
        self.topic = topic
        self.queues = queues
        self.sys_flag = sys_flag
        self.count = self.size_bytes = self.times = 0
        self.noted = False


@cython.final
@cython.cclass
class SendFrames:
    """Stores what plain sends bring. Its owner holds the store's lock while it does, and sets the public switches:
    `open` (whether sends may be taken at all), `durable` (answers wait for the disk unless a message says otherwise),
    `indexed` (the store keeps an index), `held_max` (how many answers may wait).

    Answers that may go at once are in `out`, those that wait, `held_count` of them, in `held`. `missed` has the topics
    that had no route and the (topic, queue id) that were not made yet, `grown` the routes with something to count,
    `taken` how many messages were stored. `templates` are of a JSON answer, one with a transaction id, and the same in
    binary form. `places` has the queues that were met since a route was last added or all were cleared: meanwhile a
    route's queue may come to be, but not become another.
    """

    def __init__(self, appender: Appender, templates, host_hex, cluster, transactions_since):
        self.appender = appender
        self.out = AnswerBuffer()
        self.held = AnswerBuffer()
        self.open = self.durable = False
        self.indexed = True
        self.body_bytes_max = 0
        self.held_max = self.held_count = 0
        self.transactions_since = transactions_since
        self.taken = 0
        self.missed = []
        self.grown = []
        self._routes = {}
        self._route = None
        self.places = QueuePlaces()
        self._request = None
        self._properties = SendProperties(cluster)
        self._host_hex = host_hex
        self._host_len = len(host_hex)
        self._templates = templates

    def add_route(self, route: SendRoute):
        self._routes[route.topic] = route
        self.places.clear()

    def route_of(self, topic):
        return self._routes.get(topic)

    def clear_routes(self):
        """Topics have changed: forget what was known of them."""
        self._routes.clear()
        self.places.clear()

    def set_templates(self, templates):
        """What answers say beside their numbers has changed."""
        self._templates = templates

    def take_held(self):
        """The answers that wait, and how many they are."""
        count: cython.longlong = self.held_count
        self.held_count = 0
        return self.held.take(), count

    def look(self, frame, p):
        """Read the fields of a send whose turn comes later, and begin to look for its queue; False when it is not
        plain."""
        request: SendRequest = frame.request
        frame.place = -1
        frame.plain = self.open and request.read(frame.header, p)
        if frame.plain:
            frame.hashed = self.places.hash_of(p, request.topic_at, request.topic_len, request.queue_id)
        return frame.plain

    def take(self, frame, p, born_host, now_ms):
        """Store the message or batch of this frame and answer it; False when it is not for us."""
        queue: QueueTail
        header: FrameHeader = frame.header
        request: SendRequest = frame.request
        properties: SendProperties = self._properties
        stored: cython.bint
        body_at: cython.Py_ssize_t = frame.body_at
        body_len: cython.Py_ssize_t = frame.end - frame.body_at
        if not frame.plain or body_len <= 0 or body_len > self.body_bytes_max:
            return False
        if self.indexed and self.appender.index is None:
            return False
        self._request = request
        queue = self.find_queue(frame, p)
        if queue is None or not properties.load(header, p, request.properties, request.batch):
            return False
        if body_len + properties.length + request.topic_len + RECORD_BYTES_MORE > self.appender.segment.size:
            return False
        if self.durable and properties.waits and self.held_count >= self.held_max:
            return False
        if request.batch:
            stored = self.store_batch(queue, p, body_at, body_len, born_host, now_ms)
        else:
            stored = self.store_one(queue, p, body_at, body_len, born_host, now_ms)
        if not stored:
            return False
        self.note(self._route)
        if header.flag & 2 == 0:
            self.answer(header)
        return True

    def find_queue(self, frame, p):
        """Its queue, and in `_route` its topic's route; None when one of them is not known."""
        queue: QueueTail = None
        request: SendRequest = frame.request
        if frame.place >= 0:
            queue = self.places.queue_at(frame.place, p, request.topic_at, request.topic_len, request.queue_id)
        if queue is None:
            return self.ask_routes(frame, p)
        self._route = cython.cast(SendRoute, self.places._places[frame.place].route)
        return queue

    def ask_routes(self, frame, p):
        """The same from the dictionary; the next time it is at its place."""
        topic: bytes
        queue: QueueTail
        request: SendRequest = frame.request
        route: SendRoute
        if cython.compiled:
            topic = p[request.topic_at : request.topic_at + request.topic_len]
        else:
            topic = bytes(p[request.topic_at : request.topic_at + request.topic_len])
        route = self._routes.get(topic)
        if route is None:
            self.missed.append((topic, -1))
            return None
        if request.queue_id >= len(route.queues):
            return None
        queue = route.queues[request.queue_id]
        if queue is None:
            self.missed.append((route.topic, request.queue_id))
            return None
        self._route = route
        if queue.topic == topic and queue.queue_id == request.queue_id:
            self.places.put(frame.hashed, queue, route)
        return queue

    def store_one(self, queue, p, body_at, body_len, born_host, now_ms):
        properties: SendProperties = self._properties
        if queue.next_offset >= queue.file_end:
            return False
        return (
            self.appender.put(
                queue,
                p,
                body_at,
                body_len,
                properties.p,
                0,
                properties.length,
                self._request.user_flag,
                self._request.sys_flag | self._route.sys_flag,
                self._request.born_ms,
                born_host,
                now_ms,
                0,
                0,
            )
            == APPENDED
        )

    def store_batch(self, queue, p, body_at, body_len, born_host, now_ms):
        """All messages of a batch, or none."""
        appender: Appender = self.appender
        properties: SendProperties = self._properties
        sys_flag: cython.int = self._request.sys_flag | self._route.sys_flag
        hosts: cython.int = appender.host_flags(len(born_host))
        count: cython.Py_ssize_t
        end: cython.Py_ssize_t = body_at + body_len
        count = appender.measure(
            p, body_at, end, len(queue.topic), properties.p, properties.length, hosts, self.body_bytes_max
        )
        if count <= 0 or count * (self._host_len + 17) > IDS_BYTES_MAX or queue.next_offset + count > queue.file_end:
            return False
        if appender.measured_bytes > self.body_bytes_max:
            return False
        if not appender.measured_plain:
            return False
        return (
            appender.put_batch(
                queue,
                p,
                body_at,
                end,
                properties.p,
                properties.length,
                count,
                appender.measured_bytes,
                sys_flag,
                self._request.born_ms,
                born_host,
                now_ms,
                0,
            )
            == APPENDED
        )

    def note(self, route):
        """Count what was stored."""
        self.taken += self.appender.batch_count
        route.count += self.appender.batch_count
        route.size_bytes += self.appender.size
        route.times += 1
        if not route.noted:
            route.noted = True
            self.grown.append(route)
        return 0

    def answer(self, header):
        properties: SendProperties = self._properties
        appender: Appender = self.appender
        held: cython.bint = self.durable and properties.waits
        out: AnswerBuffer = self.held if held else self.out
        unique: cython.bint = properties.unique_len > 0 and header.version >= self.transactions_since
        which: cython.int = (2 if header.binary else 0) + (1 if unique else 0)
        if held:
            self.held_count += 1
        out.begin(self._templates[which], appender.batch_count * (self._host_len + 17) + properties.unique_len)
        out.open_slot()
        self.put_ids(out)
        out.close_slot()
        out.put_piece()
        out.put_field(self._request.queue_id)
        out.put_field(appender.queue_offset)
        if unique:
            out.open_slot()
            out.put_bytes(properties.p, properties.unique_at, properties.unique_len)
            out.close_slot()
            out.put_piece()
        out.finish(header.opaque, 0)
        return 0

    def put_ids(self, out):
        """Of every message stored, with commas; where each lies is read from the records themselves."""
        appender: Appender = self.appender
        at: cython.Py_ssize_t = appender.log_offset - appender.base
        index: cython.int
        for index in range(appender.batch_count):
            if index > 0:
                out.put_bytes(b",", 0, 1)
            out.put_bytes(self._host_hex, 0, self._host_len)
            out.put_hex(appender.base + at)
            at += load_i32(appender.p, at)
