"""Queues that sends go to and the grants for them, found by topic, queue, group and sender: a hash leads to
the first memory access.

From a dictionary of grants to a queue it is six places, each of which must be read before the next is known. Here the
first is known from the request and names the others, so that the queues of many requests can be fetched into the
processor's cache together.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import cython

if not cython.compiled:
    from rocketq.kernel.admission import SendGrant
    from rocketq.kernel.parsed_frame import ParsedFrame
    from rocketq.kernel.primitives import equal_bytes, place_hash, prefetch, prefetch_thing
    from rocketq.kernel.queue_units import QueueTail
    from rocketq.kernel.send_request import SendRequest


@cython.final
@cython.cclass
class QueueCache:
    """A hash table that forgets everything or nothing. What finds no room is not in it: its owner has another way.

    The steps to a queue are hash_of(), fetch() and find(); between them there is time for memory to arrive. Only the
    last one makes sure that the entry is the one asked for, and that its grant is of the current generation.
    """

    def __init__(self):
        view: cython.uchar[::1]
        self._kept = []
        self._count = 0
        self.queue = None
        self.grant = None
        if cython.compiled:
            self._memory = bytearray((PLACES + STEPS_MAX) * cython.sizeof(Place))
            view = self._memory
            self._p = cython.address(view[0])
            self._places = cython.cast(cython.pointer(Place), self._p)
        else:
            self._places = _free_places()

    def __len__(self):
        """How many queues are in it."""
        return self._count

    def clear(self):
        """Forget all queues."""
        self.queue = self.grant = None
        if len(self._kept) == 0:
            return
        self._kept = []
        self._count = 0
        if cython.compiled:
            zero_bytes(self._p, 0, len(self._memory))
        else:
            self._places = _free_places()

    def hash_of(self, p, request, sender):
        """What fetch() and put() ask for; the place is fetched. `sender` is a number that senders with grants of their
        own differ in."""
        seed: cython.longlong = request.queue_id ^ sender << 17
        hashed: cython.ulonglong
        hashed = place_hash(p, request.group_at, request.group_len, seed)
        hashed = place_hash(p, request.topic_at, request.topic_len, hashed >> 1)
        if cython.compiled:
            prefetch(self._p, (hashed & (PLACES - 1)) * cython.sizeof(Place))
        return hashed

    def fetch(self, first, count):
        """For the first `count` frames, if plain sends: the slot and its content."""
        frame: ParsedFrame = first
        index: cython.int
        for index in range(count):
            if frame.plain:
                frame.place = self.place_of(frame.hashed)
            frame = frame.next
        frame = first
        for index in range(count):
            if frame.plain and frame.place >= 0:
                self.fetch_unit(frame.place)
            frame = frame.next

    def place_of(self, hashed):
        """The place, or -1; queue and grant are fetched, not read."""
        at: cython.Py_ssize_t
        first: cython.Py_ssize_t = hashed & (PLACES - 1)
        for at in range(first, first + STEPS_MAX):
            if self._places[at].queue == cython.NULL:
                return -1
            if self._places[at].hashed == hashed:
                prefetch_thing(self._places[at].queue, QUEUE_BYTES)
                prefetch_thing(self._places[at].grant, GRANT_BYTES)
                return at
        return -1

    def fetch_unit(self, at):
        """The place of the queue's next unit, and its topic: both are far from everything else."""
        queue: QueueTail = cython.cast(QueueTail, self._places[at].queue)
        prefetch(queue.p, (queue.next_offset - queue.file_first) * 20)
        prefetch_thing(cython.cast(cython.p_void, queue.topic), TOPIC_BYTES)

    def find(self, frame, p, generation):
        """Whether the frame's place has this very queue with a current grant for this sender; then `queue` and `grant`
        are set. Another one may have the same hash."""
        queue: QueueTail
        grant: SendGrant
        request: SendRequest = frame.request
        if frame.place < 0 or self._places[frame.place].queue == cython.NULL:
            return False
        queue = cython.cast(QueueTail, self._places[frame.place].queue)
        grant = cython.cast(SendGrant, self._places[frame.place].grant)
        if (
            queue.queue_id != request.queue_id
            or len(queue.topic) != request.topic_len
            or len(grant.group) != request.group_len
            or not grant.is_for(frame.scope, frame.account, generation)
            or not equal_bytes(p, request.topic_at, queue.topic, 0, request.topic_len)
            or not equal_bytes(p, request.group_at, grant.group, 0, request.group_len)
        ):
            return False
        self.queue = queue
        self.grant = grant
        return True

    def put(self, hashed, queue, grant):
        """Have it found from now on; False when there is no room. What has the same hash is replaced."""
        at: cython.Py_ssize_t
        first: cython.Py_ssize_t = hashed & (PLACES - 1)
        for at in range(first, first + STEPS_MAX):
            if self._places[at].queue == cython.NULL or self._places[at].hashed == hashed:
                if len(self._kept) >= KEPT_MAX:  # replaced ones are kept too
                    self.clear()
                self._count += self._places[at].queue == cython.NULL
                self._kept.append((queue, grant))
                self._places[at].hashed = hashed
                self._places[at].queue = cython.cast(cython.p_void, queue)
                self._places[at].grant = cython.cast(cython.p_void, grant)
                return True
        return False


def _free_places():
    """The table of the interpreted form: a place is made when it is first asked for."""
    return defaultdict(lambda: SimpleNamespace(hashed=0, queue=None, grant=None))
