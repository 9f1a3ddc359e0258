"""Frames of a read, executed by the fast path one after the other: one call per read."""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.fast_pulls import FastPulls
    from rocketq.kernel.fast_sends import FastSends
    from rocketq.kernel.parsed_frame import OTHER, PULL, SEND, ParsedFrame, ring_of_frames
    from rocketq.kernel.primitives import load_i32
    from rocketq.kernel.request_view import RequestView
    from rocketq.kernel.signatures import Account, Accounts, SignatureCheck


@cython.final
@cython.cclass
class FastFrames:
    """Executes frames until one is for the slow path, so that requests keep their order.

    `scope` is the number of the connection whose frames these are, where grants are for one connection and code, else
    0. With `accounts`, only requests that one of them has signed are executed. After feed() `slow_at` is where the
    frame for the slow path starts (-1: there is none) and `refused` is that frame, parsed. What sends and pulls missed
    is that frame's, until the next call. `stopped` is set when there was so much to write that the rest was left for
    another call.
    """

    def __init__(self, sends: FastSends, pulls: FastPulls, frame_bytes_max, accounts: Accounts = None):
        self.accounts = accounts
        self.signatures = SignatureCheck()
        self.sends = sends
        self.pulls = pulls
        self.frame_bytes_max = frame_bytes_max
        self.scope = 0
        self.slow_at = -1
        self.refused = None
        self.stopped = False
        if not cython.compiled:  # else zeroed when it was allocated
            self.executed = [0] * 5
        self._first = ring_of_frames(AHEAD_MAX)

    def feed(self, data: bytes, at: cython.Py_ssize_t, born_host: bytes, now_ms: cython.longlong):
        """Continue at `at`; the end of the last whole frame that was parsed. One for the slow path is the last, and
        bytes that cannot be a frame are its too, to the end."""
        return self.run(data, at, born_host, now_ms)

    def run(self, data, at, born_host, now_ms):
        self.slow_at = -1
        self.refused = None
        self.stopped = False
        self.forget_missed()
        try:
            return self.execute_all(data, at, len(data), born_host, now_ms)
        finally:
            self.sends.appender.drain()

    def forget_missed(self):
        """What an earlier frame lacked must not be granted by the checks of a later one."""
        self.sends.short_of_room = False
        if len(self.sends.missed) > 0:
            self.sends.missed.clear()
        if len(self.pulls.missed) > 0:
            self.pulls.missed.clear()
        return 0

    def execute_all(self, p, at, end, born_host, now_ms):
        frame: ParsedFrame
        count: cython.int
        index: cython.int
        count_max: cython.int = AHEAD_MAX if at == 0 else 1  # behind a slow frame there are often more
        while True:
            count = self.parse_ahead(p, at, end, count_max)
            if count == 0:
                break
            frame = self._first
            for index in range(count):
                if not self.execute(frame, p, born_host, now_ms):
                    self.slow_at = frame.at
                    self.refused = frame
                    return frame.end
                self.executed[self.code_index(frame)] += 1
                at = frame.end
                if self.sends.out.length >= OUT_BYTES_MAX:
                    self.stopped = True
                    return at
                frame = frame.next
            count_max = min(2 * count_max, AHEAD_MAX)
        if self.is_no_frame(p, at, end):
            self.slow_at = at
            return end
        return at

    def code_index(self, frame):
        """Where requests of this frame's code are counted: 10, 310, 320, 11, 361."""
        code: cython.int = frame.header.code
        if frame.kind == SEND:
            return 1 if code == 310 else (0 if code == 10 else 2)
        return 3 if code == 11 else 4

    def is_no_frame(self, p, at, end):
        """Whether the length that stands there is none."""
        length: cython.longlong
        if end - at < 4:
            return False
        length = load_i32(p, at)
        return length <= 4 or length > self.frame_bytes_max - 4

    def parse_ahead(self, p, at, end, count_max):
        """How many frames are parsed now: whole ones, up to the first that is no plain send. With very many queues each
        is far from everything; so all are fetched together, instead of waiting for each in turn."""
        frame: ParsedFrame = self._first
        count: cython.int = 0
        more: cython.bint = True
        while more and count < count_max and end - at >= 4 and not self.is_no_frame(p, at, end):
            frame.at = at
            frame.end = at + 4 + load_i32(p, at)
            if frame.end > end:
                break
            frame.plain = False
            frame.scope = 0
            frame.well_formed = frame.header.parse(p, frame.at, frame.end)
            frame.kind = self.family_of(frame)
            frame.account = None
            if frame.kind != OTHER and self.accounts is not None and not self.authenticate(frame, p):
                frame.kind = OTHER
            if self.scope > 0:
                frame.scope = self.scope * CODES_MAX + frame.header.code
            more = frame.kind == SEND and self.sends.parse(frame, p)
            at = frame.end
            frame = frame.next
            count += 1
        self.sends.cache.fetch(self._first, count)
        return count

    def family_of(self, frame):
        """The family of requests a frame belongs to, if the fast path knows it."""
        header: RequestView = frame.header
        if not frame.well_formed or not header.plain or header.flag & 1 or header.remark_len > 0:
            return OTHER
        if header.code == 310 or header.code == 320 or header.code == 10:
            return SEND
        return PULL if header.code == 11 or header.code == 361 else OTHER

    def authenticate(self, frame, p):
        """Whether one of the accounts has signed the request; which one, is in `account` then."""
        account: Account = self.signatures.account_of(frame.header, p, self.accounts)
        if account is None or not self.signatures.verify(frame.header, p, account):
            return False
        frame.account = account
        return True

    def execute(self, frame, p, born_host, now_ms):
        """Do what the frame asks for; False when it is for the slow path."""
        if frame.kind == SEND:
            return self.sends.execute(frame, p, born_host, now_ms)
        if frame.kind == PULL:
            return self.pulls.execute(frame, p, self.sends.appender.end, now_ms)
        return False

    def refused_parts(self, data: bytes):
        """RequestView.command_parts() of the frame at `slow_at`; None when it must be decoded elsewhere."""
        frame: ParsedFrame = self.refused
        if frame is None or not frame.well_formed:
            return None
        return frame.header.command_parts(data)
