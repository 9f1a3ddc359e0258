"""A whole frame of a read, parsed before it is executed."""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.request_view import RequestView
    from rocketq.kernel.send_request import SendRequest


@cython.final
@cython.cclass
class ParsedFrame:
    """The bytes [at, end) and the fields of their header; `kind` is the family of the request. `well_formed` is false
    where rocketq.protocol must decode the header. Of a send, `plain` is set where the fast path executes `request`;
    then `hashed` and `place` lead to its queue (-1: not known there). `scope` and `account` select the grants it needs.

    `next` is the frame behind it, and of the last one the first.
    """

    def __init__(self):
        self.header = RequestView()
        self.request = SendRequest()
        self.next = None
        self.at = self.end = 0
        self.kind = OTHER
        self.well_formed = self.plain = False
        self.scope = 0
        self.account = None
        self.hashed = 0
        self.place = -1


def ring_of_frames(count):
    """The first of `count`."""
    first: ParsedFrame = ParsedFrame()
    last: ParsedFrame = first
    index: cython.int
    for index in range(count - 1):
        last.next = ParsedFrame()
        last = last.next
    last.next = first
    return first
