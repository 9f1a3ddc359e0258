"""Plain sends and batches, from a header and a body to the log and to an answer, with no Python object per message.

What is not plain, has no grant, is over a quota, or goes to a queue that has no room, is left to the slow path: the
kernel may refuse any frame, it never guesses.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.admission import SendGrant
    from rocketq.kernel.answers import AnswerBuffer
    from rocketq.kernel.appender import APPENDED, NO_QUEUE_ROOM, Appender
    from rocketq.kernel.new_record import NewRecord
    from rocketq.kernel.primitives import load_i32
    from rocketq.kernel.queue_cache import QueueCache
    from rocketq.kernel.queue_units import QueueTail
    from rocketq.kernel.request_view import RequestView
    from rocketq.kernel.send_properties import SendProperties
    from rocketq.kernel.send_request import SendRequest

NOT_A_QUEUE = -1
REVOKED = -1  # a generation that never is


@cython.final
@cython.cclass
class FastSends:
    """Stores what plain sends bring. Its owner holds the store's lock while it does, and sets the public switches:
    `open` (whether sends may be executed at all), `durable` (answers wait for the disk unless a message sets
    otherwise), `indexed` (the store keeps an index), `held_max` (how many answers may wait), `generation` (of which
    grants must be).

    Answers that may go immediately are in `out`, those that wait, `held_count` of them, in `held`. `missed` has what
    lacked a grant, as pairs of (scope, account, topic, group) and NOT_A_QUEUE, or the number of a queue that was not
    made yet; of the queue of delay level n it is NOT_A_QUEUE - n. `short_of_room`: a send was refused because its queue
    has no room. `grown` are the grants with something to collect, `taken` and `taken_bytes` count what was stored.
    """

    def __init__(self, appender: Appender, host_hex, transactions_since):
        self.appender = appender
        self.out = AnswerBuffer()
        self.held = AnswerBuffer()
        self.open = self.durable = False
        self.indexed = True
        self.body_bytes_max = 0
        self.held_max = self.held_count = 0
        self.generation = 0
        self.transactions_since = transactions_since
        self.taken = self.taken_bytes = 0
        self.short_of_room = False
        self.missed = []
        self.grown = []
        self._grants = {}
        self._grant = None
        self.cache = QueueCache()
        self._request = None
        self._properties = SendProperties()
        self._record = NewRecord()
        self._host_hex = host_hex
        self._host_len = len(host_hex)

    def add_grant(self, grant: SendGrant):
        """Execute what it admits from now on; another one for the same is replaced."""
        before: SendGrant
        key = (grant.scope, grant.account, grant.topic, grant.group)
        before = self._grants.get(key)
        if before is not None:
            before.generation = REVOKED
        elif len(self._grants) >= GRANTS_MAX:
            self.clear_grants()
        self._grants[key] = grant

    def grant_of(self, key):
        """The grant last added for (scope, account, topic, group), of any generation; or None."""
        return self._grants.get(key)

    def clear_grants(self):
        """Topics or queues have gone: forget all that was known of them."""
        self._grants.clear()
        self.cache.clear()

    def parse(self, frame, p):
        """Read the fields of a send whose turn comes later, and prefetch its queue; False when it is not
        plain."""
        request: SendRequest = frame.request
        frame.place = -1
        frame.plain = self.open and request.read(frame.header, p)
        if frame.plain:
            frame.hashed = self.cache.hash_of(p, request, frame.scope)
        return frame.plain

    def execute(self, frame, p, born_host, now_ms):
        """Store the message or batch of this frame and answer it; False when it is not for us."""
        header: RequestView = frame.header
        request: SendRequest = frame.request
        properties: SendProperties = self._properties
        record: NewRecord = self._record
        queue: QueueTail
        stored: cython.bint
        body_at: cython.Py_ssize_t = header.body_at
        body_len: cython.Py_ssize_t = frame.end - header.body_at
        if not frame.plain or body_len <= 0 or body_len > self.body_bytes_max:
            return False
        if self.indexed and self.appender.index is None:
            return False
        self._request = request
        if not self.cache.find(frame, p, self.generation) and not self.find_grant(frame, p):
            return False
        self._grant = self.cache.grant
        if not properties.load(header, p, request.properties, request.batch, self._grant):
            return False
        queue = self.cache.queue
        if properties.delay_level > 0:
            queue = self.find_delay_queue(frame, p, properties.delay_level)
            if queue is None or not properties.put_destination(p, request):
                return False
        if body_len + properties.length + len(queue.topic) + RECORD_BYTES_MORE > self.appender.segment.size:
            return False
        if self.durable and properties.waits and self.held_count >= self.held_max:
            return False
        if self._grant.limited and self._grant.is_over_quota(now_ms):
            return False
        record.set_body(p, body_at, body_len)
        record.set_properties(properties.p, 0, properties.length)
        record.set_origin(request.born_ms, born_host, now_ms, 0)
        record.flag = request.user_flag
        record.sys_flag = request.sys_flag | self._grant.sys_flag
        stored = self.store_batch(queue) if request.batch else self.store_one(queue)
        if not stored:
            return False
        self.note(self._grant, properties.delay_level > 0)
        if header.flag & 2 == 0:
            self.answer(header)
        return True

    def find_grant(self, frame, p):
        """Set the cache's `queue` and `grant` from the dictionary; the next time they are at their place. False when
        one of them is not known."""
        queue: QueueTail
        grant: SendGrant
        request: SendRequest = frame.request
        key = key_of(frame, p, request)
        grant = self._grants.get(key)
        if grant is None or grant.generation != self.generation:
            self.missed.append((key, NOT_A_QUEUE))
            return False
        if request.queue_id >= len(grant.queues):
            return False
        queue = grant.queues[request.queue_id]
        if queue is None:
            self.missed.append((key, request.queue_id))
            return False
        if queue.topic == grant.topic and queue.queue_id == request.queue_id:
            self.cache.put(frame.hashed, queue, grant)
        self.cache.queue = queue
        self.cache.grant = grant
        return True

    def find_delay_queue(self, frame, p, level):
        """The queue in which messages of this level wait, or None."""
        grant: SendGrant = self._grant
        queue: QueueTail
        if level > len(grant.delay_queues):
            return None
        queue = grant.delay_queues[level - 1]
        if queue is None:
            self.missed.append((key_of(frame, p, frame.request), NOT_A_QUEUE - level))
        return queue

    def store_one(self, queue):
        if queue.next_offset >= queue.file_end:
            self.short_of_room = True
            return False
        return self.is_appended(self.appender.put(queue, self._record))

    def store_batch(self, queue):
        """All messages of a batch, or none."""
        appender: Appender = self.appender
        record: NewRecord = self._record
        hosts: cython.int = appender.host_flags(len(record.born_host))
        count: cython.Py_ssize_t
        count = appender.measure(
            record.body,
            record.body_at,
            record.body_at + record.body_len,
            len(queue.topic),
            record.properties,
            record.properties_len,
            hosts,
            self.body_bytes_max,
        )
        if count <= 0 or count * (self._host_len + 17) > IDS_BYTES_MAX:
            return False
        if queue.next_offset + count > queue.file_end:
            self.short_of_room = True
            return False
        if appender.measured_bytes > self.body_bytes_max or not appender.measured_plain:
            return False
        return self.is_appended(appender.put_batch(queue, record, count, appender.measured_bytes))

    def is_appended(self, state):
        if state == NO_QUEUE_ROOM:
            self.short_of_room = True
        return state == APPENDED

    def note(self, grant, delayed):
        """Count what was stored; delayed messages count for the topic they wait in."""
        self.taken += self.appender.batch_count
        self.taken_bytes += self.appender.size
        if delayed:
            if grant.limited:
                grant.charge(self.appender.batch_count, self.appender.size)
            grant = grant.delayed
        if grant.note_send(self.appender.batch_count, self.appender.size, self._properties.keyed):
            self.grown.append(grant)
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
        out.begin(self._grant.templates[which], appender.batch_count * (self._host_len + 17) + properties.unique_len)
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
        """Of every message stored, with commas; the locations are read from the records themselves."""
        appender: Appender = self.appender
        at: cython.Py_ssize_t = appender.log_offset - appender.base
        index: cython.int
        for index in range(appender.batch_count):
            if index > 0:
                out.put_bytes(b",", 0, 1)
            out.put_bytes(self._host_hex, 0, self._host_len)
            out.put_hex(appender.base + at)
            at += load_i32(appender.p, at)


def key_of(frame, p, request):
    """What a grant for this request is found by."""
    return (
        frame.scope,
        frame.account,
        piece_of(p, request.topic_at, request.topic_len),
        piece_of(p, request.group_at, request.group_len),
    )


def piece_of(p, at, count):
    if cython.compiled:
        return p[at : at + count]
    else:
        return bytes(p[at : at + count])
