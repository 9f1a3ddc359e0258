"""What admission decided, in the form the fast path uses: grants, quotas, and the one number that invalidates them.

A grant is the cached admission of sends to a topic, or of pulls of a group from it, with everything that is needed to
execute them. It holds for one generation: every change of a table, a setting, a role, a policy or a quota bumps the
number, and grants of an older generation are asked for again.
"""

from __future__ import annotations

import cython


@cython.final
@cython.cclass
class Generation:
    """Counts the changes that admission depends on. Any thread may bump it."""

    def __init__(self):
        self.number = 1

    def bump(self, *anything):
        """Something has changed. Arguments are ignored, so that this can be anybody's listener."""
        self.number += 1


@cython.final
@cython.cclass
class TokenBucket:
    """A rate limit. Requests are admitted while there are tokens; what they take may leave a debt, which is waited for.

    `name` is what rejections call it, `unit` what it counts: messages or bytes.
    """

    def __init__(self, name, unit, rate):
        self.name = name
        self.unit = unit
        self.rate = rate
        self.tokens = rate
        self.at_ms = 0
        self.window_ms = 0
        self.taken = self.taken_before = 0

    def refill(self, now_ms: cython.longlong):
        """Bring the tokens up to date; at most one second's worth is kept."""
        passed: cython.longlong = now_ms - self.at_ms
        if passed <= 0:
            if passed < 0:  # the clock was set back
                self.at_ms = self.window_ms = now_ms
            return
        self.tokens = min(self.rate, self.tokens + self.rate * passed / 1000.0)
        self.at_ms = now_ms
        passed = now_ms - self.window_ms
        if passed >= WINDOW_MS:
            self.taken_before = self.taken if passed < 2 * WINDOW_MS else 0
            self.taken = 0
            self.window_ms = now_ms - passed % WINDOW_MS

    def has_tokens(self, now_ms: cython.longlong):
        """Whether a request may pass now."""
        self.refill(now_ms)
        return self.tokens > 0.0

    def take(self, count: cython.longlong):
        """What an admitted request has cost."""
        self.tokens -= count
        self.taken += count

    def rate_now(self, now_ms: cython.longlong):
        """Estimate of the last second, from the last two windows."""
        part: cython.double
        self.refill(now_ms)
        part = (now_ms - self.window_ms) / 1000.0
        return self.taken + self.taken_before * max(0.0, 1.0 - part)


@cython.cclass
class Grant:
    """What sends and pulls have in common. `scope` is the connection it was given to (0: any), `account` who signed
    (None: not required), `queues` are the ends of the topic's queues by id (None: not made yet).

    `count`, `size_bytes` and `times` are messages, bytes and requests since they were last collected.
    """

    def __init__(self, topic, group, scope, account, queues, generation):
        self.topic = topic
        self.group = group
        self.scope = scope
        self.account = account
        self.queues = queues
        self.generation = generation
        self.message_quotas = []
        self.byte_quotas = []
        self.limited = False
        self.count = self.size_bytes = self.times = 0
        self.noted = False

    def limit(self, buckets):
        """Requests are subject to these quotas."""
        self.message_quotas = [bucket for bucket in buckets if bucket.unit == "messages"]
        self.byte_quotas = [bucket for bucket in buckets if bucket.unit != "messages"]
        self.limited = len(buckets) > 0

    def is_over_quota(self, now_ms):
        bucket: TokenBucket
        for bucket in self.message_quotas:
            if not bucket.has_tokens(now_ms):
                return True
        for bucket in self.byte_quotas:
            if not bucket.has_tokens(now_ms):
                return True
        return False

    def charge(self, count, size_bytes):
        """An admitted request has brought, or been given, so much."""
        bucket: TokenBucket
        for bucket in self.message_quotas:
            bucket.take(count)
        for bucket in self.byte_quotas:
            bucket.take(size_bytes)

    def is_for(self, scope, account, generation):
        return self.generation == generation and self.scope == scope and self.account is account

    def note(self, count, size_bytes):
        """Count a request; whether it is the first since the counters were collected."""
        first: cython.bint = not self.noted
        self.count += count
        self.size_bytes += size_bytes
        self.times += 1
        self.noted = True
        if self.limited:
            self.charge(count, size_bytes)
        return first

    def collect(self):
        """(messages, bytes, requests) since the last call."""
        collected = self.count, self.size_bytes, self.times
        self.count = self.size_bytes = self.times = 0
        self.noted = False
        return collected


@cython.final
@cython.cclass
class SendGrant(Grant):
    """Sends of a producer group to a topic. `sys_flag` is added to each record's, `suffix` is what the broker adds to
    the properties (where it is `traced`, with region and trace switch), `templates` are of the answers.

    Messages with delay level n are stored in `delay_queues[n - 1]` (None: not made yet) and counted by `delayed`.
    `keyed_*` are those of messages with a sharding key, `sizes` requests by the average size of their messages:
    without a sharding key in the first half, with one in the second.
    """

    def __init__(self, topic, group, scope, account, queues, generation, sys_flag, suffix, traced, templates):
        Grant.__init__(self, topic, group, scope, account, queues, generation)
        self.sys_flag = sys_flag
        self.suffix = suffix
        self.suffix_len = len(suffix)
        self.traced = traced
        self.templates = templates
        self.delay_queues = []
        self.delayed = None
        self.keyed_count = self.keyed_bytes = 0
        if not cython.compiled:  # else zeroed when it was allocated
            self.sizes = [0] * 14

    def delay_by(self, queues, delayed):
        """Messages with a delay level are admitted, too."""
        self.delay_queues = queues
        self.delayed = delayed

    def note_send(self, count, size_bytes, keyed):
        """Count a send; whether it is the first since the counters were collected."""
        size: cython.longlong = size_bytes // count
        bucket: cython.int = 0
        if size > 1024:
            bucket = 1 if size <= 4096 else size_class(size)
        if keyed:
            bucket += 7
            self.keyed_count += count
            self.keyed_bytes += size_bytes
        self.sizes[bucket] += 1
        return self.note(count, size_bytes)

    def collect_sizes(self):
        """(messages with a sharding key, their bytes, requests by size) since the last call."""
        sizes: list = [0] * 14
        bucket: cython.int
        for bucket in range(14):
            sizes[bucket] = self.sizes[bucket]
            self.sizes[bucket] = 0
        collected = self.keyed_count, self.keyed_bytes, sizes
        self.keyed_count = self.keyed_bytes = 0
        return collected


def size_class(size):
    """Which of Apache's size buckets above 4,096 bytes: 512 KiB, 1, 2, 4 MiB, more."""
    bucket: cython.int = 2
    limit: cython.longlong = 524288
    while bucket < 6 and size > limit:
        bucket += 1
        limit *= 2
    return bucket


@cython.final
@cython.cclass
class PullGrant(Grant):
    """Pulls of a group from a topic: the tags it wants (None: all) as hashes, the version of that subscription, and the
    numbers an answer has. `positions` and `commits` are by queue, since they were last collected; `key` is what the
    fast path finds it by."""

    def __init__(self, key, topic, group, scope, account, queues, generation, tag_codes, version, numbers):
        Grant.__init__(self, topic, group, scope, account, queues, generation)
        self.key = key
        self.tag_codes = tag_codes
        self.version = version
        self.broker_id, self.slow_broker_id, self.topic_sys_flag, self.group_sys_flag = numbers
        self.positions = {}
        self.commits = {}
