"""Queues that sends go to, found by a topic's bytes and a queue's number: arithmetic alone leads to the first memory.

From a dictionary of topics to a queue it is six places, each of which must be read before the next is known. Here the
first is known from the request, and it names the others, so that the queues of many requests can be on their way into
the processor's cache at once.
"""

from __future__ import annotations

from types import SimpleNamespace

import cython

if not cython.compiled:
    from rocketq.kernel.frame_ahead import FrameAhead
    from rocketq.kernel.primitives import equal_bytes, place_hash, prefetch, prefetch_thing
    from rocketq.kernel.queue_units import QueueTail

    PLACES = 1 << 10  # the compiled form, which gains by them, has more
    STEPS_MAX = 8  # places at which a queue may be, from the first on
    QUEUE_BYTES, ROUTE_BYTES, TOPIC_BYTES = 152, 88, 64  # how much of a thing is needed; more or less does no harm


@cython.final
@cython.cclass
class QueuePlaces:
    """A table that forgets everything or nothing. What finds no room is not in it: its owner knows another way.

    The steps to a queue are hash_of(), fetch() and queue_at(); between them there is time for memory to come. Only the
    last one makes sure that it is the queue that was asked for.
    """

    def __init__(self):
        view: cython.uchar[::1]
        self._kept = []
        if cython.compiled:
            self._memory = bytearray((PLACES + STEPS_MAX) * cython.sizeof(Place))
            view = self._memory
            self._p = cython.address(view[0])
            self._places = cython.cast(cython.pointer(Place), self._p)
        else:
            self._places = free_places()

    def __len__(self):
        """How many queues are in it."""
        return len(self._kept)

    def clear(self):
        """Forget all queues."""
        if len(self._kept) == 0:
            return
        self._kept = []
        if cython.compiled:
            zero_bytes(self._p, 0, len(self._memory))
        else:
            self._places = free_places()

    def hash_of(self, p, at, count, queue_id):
        """What fetch() and put() ask for; the place is fetched."""
        hashed: cython.ulonglong = place_hash(p, at, count, queue_id)
        if cython.compiled:
            prefetch(self._p, (hashed & (PLACES - 1)) * cython.sizeof(Place))
        return hashed

    def fetch(self, first, count):
        """For so many frames, of those that are plain sends: the place, and what it leads to."""
        frame: FrameAhead = first
        index: cython.int
        for index in range(count):
            if frame.plain:
                frame.place = self.find(frame.hashed)
            frame = frame.next
        frame = first
        for index in range(count):
            if frame.plain and frame.place >= 0:
                self.fetch_unit(frame.place)
            frame = frame.next

    def find(self, hashed):
        """The place, or -1; queue and route are fetched, not looked at."""
        at: cython.Py_ssize_t
        first: cython.Py_ssize_t = hashed & (PLACES - 1)
        for at in range(first, first + STEPS_MAX):
            if self._places[at].queue == cython.NULL:
                return -1
            if self._places[at].hashed == hashed:
                prefetch_thing(self._places[at].queue, QUEUE_BYTES)
                prefetch_thing(self._places[at].route, ROUTE_BYTES)
                return at
        return -1

    def fetch_unit(self, at):
        """The place of the queue's next unit, and its topic: both are far from everything else."""
        queue: QueueTail = cython.cast(QueueTail, self._places[at].queue)
        prefetch(queue.p, (queue.next_offset - queue.file_first) * 20)
        prefetch_thing(cython.cast(cython.p_void, queue.topic), TOPIC_BYTES)

    def queue_at(self, at, p, topic_at, topic_len, queue_id):
        """The queue, when it is this very one; else None: another one may have the same hash."""
        queue: QueueTail
        if self._places[at].queue == cython.NULL:
            return None
        queue = cython.cast(QueueTail, self._places[at].queue)
        if queue.queue_id != queue_id or len(queue.topic) != topic_len:
            return None
        return queue if equal_bytes(p, topic_at, queue.topic, 0, topic_len) else None

    def put(self, hashed, queue, route):
        """Have it found from now on; False when there is no room."""
        at: cython.Py_ssize_t
        first: cython.Py_ssize_t = hashed & (PLACES - 1)
        for at in range(first, first + STEPS_MAX):
            if self._places[at].queue == cython.NULL:
                self._kept.append((queue, route))
                self._places[at].hashed = hashed
                self._places[at].queue = cython.cast(cython.p_void, queue)
                self._places[at].route = cython.cast(cython.p_void, route)
                return True
            if self._places[at].hashed == hashed:  # of another queue, which was first
                return False
        return False


def free_places():
    """The table of the interpreted form."""
    return [SimpleNamespace(hashed=0, queue=None, route=None) for _ in range(PLACES + STEPS_MAX)]
