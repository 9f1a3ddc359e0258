"""Connections that keep a number of requests in flight until they are stopped."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from rocketq.cli.load.figures import Latencies, Tally
from rocketq.cli.load.requests import count_records, frames_in, header_text, is_success
from rocketq.errors import ConnectionClosedError


@dataclass(slots=True)
class Run:
    """What all connections of a run share. Nothing counts before `counting`."""

    in_flight: int
    messages_per_request: int | None
    """None: answers bring messages, which are counted."""
    body_bytes: int = 0
    """Of a message that is sent; of those that are brought, all bytes count."""
    requests_left: int | None = None
    """How many may still be sent; None: no end."""
    tally: Tally = field(default_factory=Tally)
    latencies: Latencies = field(default_factory=Latencies)
    counting: bool = False
    tls: ssl.SSLContext | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first answer, which starts the run."""
    lost: Callable[[LoadConnection, Exception], None] = lambda connection, error: None


class LoadConnection(asyncio.Protocol):
    """Sends its requests round and round. Answers are matched with requests in their order."""

    def __init__(self, run: Run, addr: str, requests: list[bytes], answered_s: float | None = None) -> None:
        """`answered_s` is the time of the last answer of a lost connection that this one replaces."""
        self._run = run
        self.addr = addr
        self.requests = requests
        self._gap_from_s = answered_s
        self.answered_s = asyncio.get_running_loop().time() if answered_s is None else answered_s
        """When the last answer arrived; before the first one, the start."""
        self._next = 0
        self._began: deque[tuple[float, int]] = deque()
        self._unread = bytearray()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._closing = False
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send(self._run.in_flight)

    async def close(self) -> None:
        """Immediately: unsent requests are dropped."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
            await self._lost.wait()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost.set()
        if not self._closing:
            unanswered = sum(count for _, count in self._began)
            self._run.tally.unanswered += unanswered
            if self._run.requests_left is not None:
                self._run.requests_left += unanswered
            self._run.lost(self, ConnectionClosedError(self.addr, str(error or "the broker closed the connection")))

    def data_received(self, data: bytes) -> None:
        self._unread += data
        run, tally, used, answers = self._run, self._run.tally, 0, 0
        for at, stop in frames_in(self._unread):
            used, answers = stop, answers + 1
            messages = self._messages(at, stop)
            if run.counting:
                tally.messages += messages
                tally.size_bytes += messages * run.body_bytes if run.body_bytes else stop - at
        if run.counting:
            tally.requests += answers
        del self._unread[:used]
        if answers:
            run.answered.set()
            self.answered_s = self._loop.time()
            if self._gap_from_s is not None:
                tally.gap_s = max(tally.gap_s, self.answered_s - self._gap_from_s)
                self._gap_from_s = None
        self._answered(answers)
        if not self._closing:
            self._send(answers)

    def _messages(self, at: int, stop: int) -> int:
        run = self._run
        if not is_success(self._unread, at, stop):
            run.tally.refused += 1
            run.tally.refusal = run.tally.refusal or header_text(self._unread, at)
            return 0
        if run.messages_per_request is not None:
            return run.messages_per_request
        return count_records(self._unread, at, stop)

    def _answered(self, count: int) -> None:
        now = self._loop.time()
        while count > 0 and self._began:
            began, many = self._began.popleft()
            taken = min(count, many)
            if self._run.counting:
                self._run.latencies.add((now - began) * 1e6, taken)
            if many > taken:
                self._began.appendleft((began, many - taken))
            count -= taken

    def _send(self, count: int) -> None:
        run = self._run
        if run.requests_left is not None:
            count = min(count, run.requests_left)
            run.requests_left -= max(count, 0)
        if count <= 0 or self._transport is None:
            return
        first, last = self._next, self._next + count
        total = len(self.requests)
        self._next = last % total
        pieces = self.requests[first:last] if last <= total else [self.requests[n % total] for n in range(first, last)]
        self._began.append((self._loop.time(), count))
        self._transport.write(b"".join(pieces))
