"""Pulls with something to give: from a header to the records, copied from the log into the answer.

Only what is found is answered here. A pull of an unknown group or topic, at a queue's end, of records that are damaged,
not mapped or not in the page cache, or with anything else to explain, is left to Python.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.answers import AnswerBuffer
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.pull_request import PullRequest
    from rocketq.kernel.queue_units import QueueTail
    from rocketq.kernel.reader import READ_DONE, TAKEN_MAX, LogMap, QueueRead, ReadLimits
    from rocketq.kernel.records import RecordView

ROUTES_MAX = 20_000  # clients choose the expressions that routes are kept by


@cython.cclass
class PullLimits:
    """How much one pull may take: without maxMsgBytes and with it (`asked_*`). Only resident records are given."""

    def __init__(self, **given):
        self.scan_min = 800
        self.count_max = self.bytes_max = 0
        self.asked_count_max = self.asked_bytes_max = self.memory_bytes = 0
        self.check_crc = True
        for name, value in given.items():
            setattr(self, name, value)


@cython.cclass
class PullRoute:
    """A group that may pull from a topic: queues by id (None: not made yet), the tags it wants (None: all), and what
    was given since last asked. `is_current()` says whether all of that still holds, `owner` is for whoever made it."""

    def __init__(self, key, owner, queues, tag_codes, version, numbers, is_current):
        self.key = key
        self.owner = owner
        self.queues = queues
        self.tag_codes = tag_codes
        self.version = version
        self.broker_id, self.slow_broker_id, self.topic_sys_flag, self.group_sys_flag = numbers
        self._is_current = is_current
        self.positions = {}
        self.commits = {}
        self.count = self.size_bytes = self.times = 0
        self.noted = False


@cython.cclass
class PullFrames:
    """Answers pulls into `out`. Its owner holds the store's lock, and sets `open`, `limits` and `gone_until` (where the
    log begins). `missed` has the keys that had no route and the (route, queue id) that were not made yet, `served` the
    routes with something to count, `taken` how many pulls were answered.

    `templates` are of a JSON answer, one with the flags of topic and group, and the same in binary form;
    `visible_to()` says how far readers may see.
    """

    def __init__(self, out: AnswerBuffer, log: LogMap, visible_to, templates, flags_since, answer_bytes_max):
        self.out = out
        self.open = False
        self.gone_until = 0
        self.limits = PullLimits()
        self.flags_since = flags_since
        self.answer_bytes_max = answer_bytes_max
        self.taken = 0
        self.missed = []
        self.served = []
        self._log = log
        self._visible_to = visible_to
        self._templates = templates
        self._routes = {}
        self._request = PullRequest()
        self._found = QueueRead()
        self._read_limits = ReadLimits(0, 0, 0, 0, 0, 0, 0, resident_only=True)
        self._view = RecordView()

    def add_route(self, route: PullRoute):
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[route.key] = route

    def clear_routes(self):
        self._routes.clear()

    def forget_pages(self):
        """What was in the page cache may not be there any more."""
        self._found.pages.forget()

    def take(self, header, p, body_len, log_end):
        """Answer the pull of this frame; False when it is not for us."""
        request: PullRequest = self._request
        route: PullRoute
        queue: QueueTail
        low: cython.longlong
        high: cython.longlong
        visible_to: cython.longlong
        if not self.open or header.flag & 2 or body_len > 0 or not request.read(header, p):
            return False
        route = self.find_route(p)
        if route is None or request.queue_id < 0 or request.queue_id >= len(route.queues):
            return False
        queue = route.queues[request.queue_id]
        if queue is None:
            self.missed.append((route, request.queue_id))
            return False
        low = queue.owner.min_offset
        high = max(queue.next_offset, 0)
        visible_to = self._visible_to()
        if queue.log_end > visible_to and log_end > visible_to:
            high = queue.owner.end_below(visible_to)
        if request.queue_offset < low or request.queue_offset >= high:
            return False
        if not self.read(route, queue, low, high, log_end):
            return False
        self.note(route)
        self.answer(header, route, low, high)
        return True

    def find_route(self, p):
        request: PullRequest = self._request
        key: bytes = request.key(p)
        route: PullRoute = self._routes.get(key)
        if route is not None and not route._is_current():
            del self._routes[key]
            route = None
        if route is None:
            self.missed.append((key, -1))
        elif request.sys_flag & 4 == 0 and request.version > route.version:
            return None
        return route

    def read(self, route, queue, low, high, log_end):
        """Find the records of the request at hand; False unless there are some and all that was looked at is sound."""
        offset: cython.longlong = self._request.queue_offset
        units: MappedBuffer = queue.units
        stop: cython.longlong
        if units is None or offset < queue.file_first or offset >= queue.file_end:
            try:
                units = queue.owner.file_at(offset)
            except OSError:
                return False
            if units is None:
                return False
        stop = min(high, units.base + units.size // 20)
        self.set_limits(log_end)
        if (
            self._found.walk(
                self._log,
                queue,
                units,
                offset - units.base,
                stop - units.base,
                self._read_limits,
                self.gone_until,
                route.tag_codes,
                None,
                None,
                self._view,
                self.limits.check_crc,
            )
            != READ_DONE
        ):
            return False
        return self._found.found > 0 and self._found.bad == 0 and self._found.size_bytes <= self.answer_bytes_max

    def set_limits(self, log_end):
        """As the store's own reads: a byte limit in the request replaces the configured ones."""
        read: ReadLimits = self._read_limits
        given: PullLimits = self.limits
        count: cython.longlong = self._request.count_max
        size: cython.longlong
        if self._request.bytes_max > 0:
            count = min(count, given.asked_count_max)
            size = min(self._request.bytes_max, given.asked_bytes_max)
            read.count_max = count
            read.bytes_max = size
        else:
            read.count_max = min(count, given.count_max)
            read.bytes_max = given.bytes_max
        read.count_max = min(read.count_max, TAKEN_MAX)
        read.scan_max = max(given.scan_min, count)
        read.log_end = log_end
        read.memory_bytes = given.memory_bytes

    def note(self, route):
        """Count what is given, and remember how far the group came and what it has committed."""
        request: PullRequest = self._request
        self.taken += 1
        route.times += 1
        route.count += self._found.found
        route.size_bytes += self._found.size_bytes
        route.positions[request.queue_id] = request.queue_offset + self._found.scanned
        if request.sys_flag & 1 and request.commit_offset >= 0:
            route.commits[request.queue_id] = request.commit_offset
        if not route.noted:
            route.noted = True
            self.served.append(route)

    def answer(self, header, route, low, high):
        out: AnswerBuffer = self.out
        flags: cython.bint = header.version >= self.flags_since
        which: cython.int = (2 if header.binary else 0) + (1 if flags else 0)
        out.begin(self._templates[which], self._found.size_bytes)
        out.put_field(route.slow_broker_id if self._found.cold else route.broker_id)
        out.put_field(self._request.queue_offset + self._found.scanned)
        out.put_field(low)
        out.put_field(high)
        if flags:
            out.put_field(route.topic_sys_flag)
            out.put_field(route.group_sys_flag)
        out.finish(header.opaque, self._found.size_bytes)
        self._found.copy_to(out.p, out._at)
