"""Pulls with something to give: from a header to the records, copied from the log into the answer.

Only what is found is answered here. A pull without a grant, over a quota, at the end of a queue, of damaged records,
not mapped or not in the page cache, or with anything else to explain, is left to the slow path.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.admission import PullGrant
    from rocketq.kernel.answers import AnswerBuffer
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.pull_request import PullRequest
    from rocketq.kernel.queue_units import QueueTail
    from rocketq.kernel.reader import READ_DONE, TAKEN_MAX, LogMap, QueueRead, ReadLimits, ReadRequest
    from rocketq.kernel.request_view import RequestView

GRANTS_MAX = 20_000  # clients choose the expressions that grants are kept by
NOT_A_QUEUE = -1


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
class FastPulls:
    """Answers pulls into `out`. Its owner holds the store's lock, and sets `open`, `limits`, `gone_until` (where the
    log starts) and `generation` (of which grants must be). `missed` has the keys that had no grant and those of queues
    that were not made yet, `served` the grants with something to collect; `taken`, `given` and `given_bytes` count
    pulls, messages and bytes.

    `templates` are of a JSON answer, one with the flags of topic and group, and the same in binary form;
    `visible_to()` returns the end of what readers may see.
    """

    def __init__(self, out: AnswerBuffer, log: LogMap, visible_to, templates, flags_since, answer_bytes_max):
        self.out = out
        self.open = False
        self.gone_until = 0
        self.limits = PullLimits()
        self.flags_since = flags_since
        self.answer_bytes_max = answer_bytes_max
        self.generation = 0
        self.taken = self.given = self.given_bytes = 0
        self.missed = []
        self.served = []
        self._log = log
        self._visible_to = visible_to
        self._templates = templates
        self._grants = {}
        self._request = PullRequest()
        self._found = QueueRead()
        self._read_limits = ReadLimits(0, 0, 0, 0, 0, 0, 0, resident_only=True)
        self._read_request = ReadRequest(self._read_limits, 0, None, None, None, True)

    def add_grant(self, grant: PullGrant):
        """Execute what it admits from now on; another one for the same is replaced."""
        if len(self._grants) >= GRANTS_MAX:
            self._grants.clear()
        self._grants[grant.key] = grant

    def grant_of(self, key):
        """The grant last added under a key, of any generation; or None."""
        return self._grants.get(key)

    def clear_grants(self):
        """Topics or queues have gone: forget all that was known of them."""
        self._grants.clear()

    def forget_pages(self):
        """What was in the page cache may not be there any more."""
        self._found.pages.forget()

    def execute(self, frame, p, log_end, now_ms):
        """Answer the pull of this frame; False when it is not for us."""
        header: RequestView = frame.header
        request: PullRequest = self._request
        grant: PullGrant
        queue: QueueTail
        low: cython.longlong
        high: cython.longlong
        visible_to: cython.longlong
        if not self.open or header.flag & 2 or frame.end > header.body_at or not request.read(header, p):
            return False
        grant = self.find_grant(frame, p)
        if grant is None or request.queue_id < 0 or request.queue_id >= len(grant.queues):
            return False
        queue = grant.queues[request.queue_id]
        if queue is None:
            self.missed.append((grant.key, request.queue_id))
            return False
        if grant.limited and grant.is_over_quota(now_ms):
            return False
        low = queue.owner.min_offset
        high = max(queue.next_offset, 0)
        visible_to = self._visible_to()
        if queue.log_end > visible_to and log_end > visible_to:
            high = queue.owner.end_below(visible_to)
        if request.queue_offset < low or request.queue_offset >= high:
            return False
        if not self.read(queue, grant.tag_codes, low, high, log_end):
            return False
        self.note(grant)
        self.answer(header, grant, low, high)
        return True

    def find_grant(self, frame, p):
        request: PullRequest = self._request
        key = (frame.scope, frame.account, request.key(p))
        grant: PullGrant = self._grants.get(key)
        if grant is None or grant.generation != self.generation:
            self.missed.append((key, NOT_A_QUEUE))
            return None
        if request.sys_flag & 4 == 0 and request.version > grant.version:
            return None
        return grant

    def read(self, queue, tag_codes, low, high, log_end):
        """Find the records of the request at hand; False unless there are some and every record read is sound."""
        offset: cython.longlong = self._request.queue_offset
        units: MappedBuffer = queue.units
        wanted: ReadRequest = self._read_request
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
        wanted.gone_until = self.gone_until
        wanted.tag_codes = tag_codes
        wanted.check_crc = self.limits.check_crc
        if self._found.walk(self._log, queue, units, offset - units.base, stop - units.base, wanted) != READ_DONE:
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

    def note(self, grant):
        """Count what is given, and remember how far the group came and what it has committed."""
        request: PullRequest = self._request
        self.taken += 1
        self.given += self._found.found
        self.given_bytes += self._found.size_bytes
        grant.positions[request.queue_id] = request.queue_offset + self._found.scanned
        if request.sys_flag & 1 and request.commit_offset >= 0:
            grant.commits[request.queue_id] = request.commit_offset
        if grant.note(self._found.found, self._found.size_bytes):
            self.served.append(grant)
        return 0

    def answer(self, header, grant, low, high):
        out: AnswerBuffer = self.out
        flags: cython.bint = header.version >= self.flags_since
        which: cython.int = (2 if header.binary else 0) + (1 if flags else 0)
        out.begin(self._templates[which], self._found.size_bytes)
        out.put_field(grant.slow_broker_id if self._found.cold else grant.broker_id)
        out.put_field(self._request.queue_offset + self._found.scanned)
        out.put_field(low)
        out.put_field(high)
        if flags:
            out.put_field(grant.topic_sys_flag)
            out.put_field(grant.group_sys_flag)
        out.finish(header.opaque, self._found.size_bytes)
        self._found.copy_to(out.p, out._at)
