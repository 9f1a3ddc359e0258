"""Frames of hot requests, taken out of a stream: one call per read, whatever it brought.

frame := length:i32 form:u8 headerLength:u24 header body        form 0 is JSON, 1 binary
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.binary_header import parse_binary_header
    from rocketq.kernel.frame_header import FrameHeader
    from rocketq.kernel.json_header import parse_json_header
    from rocketq.kernel.primitives import load_i32
    from rocketq.kernel.pull_frames import PullFrames
    from rocketq.kernel.send_frames import SendFrames

    OUT_BYTES_MAX = 256 << 10  # with so much to write, whoever writes it is asked first


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
        self._header = FrameHeader()

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
        length: cython.longlong
        while end - at >= 4:
            length = load_i32(p, at)
            if length <= 4 or length > self.frame_bytes_max - 4:
                self.cold_at = at
                return end
            if length > end - at - 4:
                break
            if not self.take(p, at, at + 4 + length, born_host, now_ms):
                self.cold_at = at
                return at + 4 + length
            at += 4 + length
            if self.sends.out.length >= OUT_BYTES_MAX:
                self.stopped = True
                break
        return at

    def take(self, p, at, end, born_host, now_ms):
        """Do what the frame [at, end) asks for; False when it is not for us."""
        header: FrameHeader = self._header
        mark: cython.int = load_i32(p, at + 4)
        binary: cython.bint = mark >> 24 == 1
        body_at: cython.Py_ssize_t
        if mark < 0 or mark >> 24 > 1:
            return False
        body_at = at + 8 + (mark & 0xFFFFFF)
        if body_at > end:
            return False
        if binary:
            if not parse_binary_header(header, p, at + 8, body_at):
                return False
        elif not parse_json_header(header, p, at + 8, body_at):
            return False
        if header.flag & 1:
            return False
        if header.code == 310 or header.code == 320 or header.code == 10:
            return self.sends.take(header, p, body_at, end - body_at, born_host, now_ms)
        if header.code == 11 or header.code == 361:
            return self.pulls.take(header, p, end - body_at, self.sends.appender.end)
        return False
