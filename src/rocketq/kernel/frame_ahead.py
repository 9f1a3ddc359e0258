"""A whole frame of a read, as far as it can be known before its turn comes."""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.frame_header import FrameHeader
    from rocketq.kernel.send_request import SendRequest

    COLD, SEND, PULL = 0, 1, 2


@cython.final
@cython.cclass
class FrameAhead:
    """The bytes [at, end), of which the body begins at `body_at`; `kind` says what it asks for. Of a send, `plain` says
    whether `request` is what plain sends have; then `hashed` and `place` lead to its queue (-1: not known there).

    `next` is the frame behind it, and of the last one the first.
    """

    def __init__(self):
        self.header = FrameHeader()
        self.request = SendRequest()
        self.next = None
        self.at = self.end = self.body_at = 0
        self.kind = COLD
        self.plain = False
        self.hashed = 0
        self.place = -1


def ring_of_frames(count):
    """The first of so many."""
    first: FrameAhead = FrameAhead()
    last: FrameAhead = first
    index: cython.int
    for index in range(count - 1):
        last.next = FrameAhead()
        last = last.next
    last.next = first
    return first
