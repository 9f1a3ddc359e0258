"""Frames of hot requests, taken out of a stream: one call per read, whatever it brought.

frame := length:i32 form:u8 headerLength:u24 header body        form 0 is JSON, 1 binary
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.binary_header import parse_binary_header
    from rocketq.kernel.frame_ahead import COLD, PULL, SEND, FrameAhead, ring_of_frames
    from rocketq.kernel.frame_header import FrameHeader
    from rocketq.kernel.json_header import parse_json_header
    from rocketq.kernel.primitives import load_i32
    from rocketq.kernel.pull_frames import PullFrames
    from rocketq.kernel.send_frames import SendFrames

    AHEAD_MAX = 16  # frames whose queues are looked for at once
    OUT_BYTES_MAX = 256 << 10  # with so much to write, whoever writes it is asked first


@cython.final
@cython.cclass
class HotFrames:
    """Works through frames until one is not for the kernel, so that requests keep their order.

    After feed() `cold_at` is where that frame begins (-1: there is none); `stopped` says that there was so much to
    write that the rest was left for another call.
    """

    def __init__(self, sends: SendFrames, pulls: PullFrames, frame_bytes_max):
        self.sends = sends
        self.pulls = pulls
        self.frame_bytes_max = frame_bytes_max
        self.cold_at = -1
        self.stopped = False
        self._first = ring_of_frames(AHEAD_MAX)

    def feed(self, data: bytes, at: cython.Py_ssize_t, born_host: bytes, now_ms: cython.longlong):
        """Go on at `at`; the end of the last whole frame that was looked at. A cold one is the last, and bytes that
        cannot be a frame are cold to the end."""
        return self.run(data, at, born_host, now_ms)

    def run(self, data, at, born_host, now_ms):
        self.cold_at = -1
        self.stopped = False
        try:
            return self.take_all(data, at, len(data), born_host, now_ms)
        finally:
            self.sends.appender.drain()

    def take_all(self, p, at, end, born_host, now_ms):
        frame: FrameAhead
        count: cython.int
        index: cython.int
        count_max: cython.int = AHEAD_MAX if at == 0 else 1  # behind a cold frame there are often more
        while True:
            count = self.look_ahead(p, at, end, count_max)
            if count == 0:
                break
            frame = self._first
            for index in range(count):
                if not self.take(frame, p, born_host, now_ms):
                    self.cold_at = frame.at
                    return frame.end
                at = frame.end
                if self.sends.out.length >= OUT_BYTES_MAX:
                    self.stopped = True
                    return at
                frame = frame.next
            count_max = min(2 * count_max, AHEAD_MAX)
        if self.is_no_frame(p, at, end):
            self.cold_at = at
            return end
        return at

    def is_no_frame(self, p, at, end):
        """Whether the length that stands there is none."""
        length: cython.longlong
        if end - at < 4:
            return False
        length = load_i32(p, at)
        return length <= 4 or length > self.frame_bytes_max - 4

    def look_ahead(self, p, at, end, count_max):
        """How many frames are known now: whole ones, up to the first that is no plain send. With very many queues each
        is far from everything; so all are looked for together, and none is waited for alone."""
        frame: FrameAhead = self._first
        count: cython.int = 0
        more: cython.bint = True
        while more and count < count_max and end - at >= 4 and not self.is_no_frame(p, at, end):
            frame.at = at
            frame.end = at + 4 + load_i32(p, at)
            if frame.end > end:
                break
            frame.plain = False
            frame.kind = self.look(frame, p)
            more = frame.kind == SEND and self.sends.look(frame, p)
            at = frame.end
            frame = frame.next
            count += 1
        self.sends.places.fetch(self._first, count)
        return count

    def look(self, frame, p):
        """What a frame asks for, by its header. Nothing is done yet."""
        header: FrameHeader = frame.header
        mark: cython.int = load_i32(p, frame.at + 4)
        if mark < 0 or mark >> 24 > 1:
            return COLD
        frame.body_at = frame.at + 8 + (mark & 0xFFFFFF)
        if frame.body_at > frame.end:
            return COLD
        if mark >> 24 == 1:
            if not parse_binary_header(header, p, frame.at + 8, frame.body_at):
                return COLD
        elif not parse_json_header(header, p, frame.at + 8, frame.body_at):
            return COLD
        if header.flag & 1:
            return COLD
        if header.code == 310 or header.code == 320 or header.code == 10:
            return SEND
        return PULL if header.code == 11 or header.code == 361 else COLD

    def take(self, frame, p, born_host, now_ms):
        """Do what the frame asks for; False when it is not for us."""
        if frame.kind == SEND:
            return self.sends.take(frame, p, born_host, now_ms)
        if frame.kind == PULL:
            return self.pulls.take(frame.header, p, frame.end - frame.body_at, self.sends.appender.end)
        return False
