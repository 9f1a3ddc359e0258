"""Requests sent over one connection, each matched with its answer or its deadline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rocketq.errors import ConnectionClosedError, RemotingError, RequestTimeoutError, TooManyRequestsError
from rocketq.protocol.codes import request_text
from rocketq.protocol.command import Command
from rocketq.remoting.dispatch import Hook, run_after, run_before
from rocketq.remoting.pending import PendingCalls

if TYPE_CHECKING:
    from rocketq.remoting.connection import Connection

log = logging.getLogger(__name__)

_JOINED_BYTES_MAX = 256 * 1024


@dataclass(slots=True, eq=False)
class _Call:
    code: int
    timeout_ms: int
    answer: asyncio.Future[Command]

    def fail(self, error: RemotingError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Calls:
    """One timer serves all deadlines of a connection."""

    def __init__(self, connection: Connection, hooks: Sequence[Hook]) -> None:
        self._connection = connection
        self._hooks = hooks
        self._loop = asyncio.get_running_loop()
        self._pending: PendingCalls[_Call] = PendingCalls()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._posted: list[bytes] = []
        self._posted_bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    async def call(self, command: Command, timeout_ms: int) -> Command:
        if not self._hooks:
            return await self._exchange(command, timeout_ms)
        run_before(self._hooks, self._connection, command)
        response = None
        try:
            response = await self._exchange(command, timeout_ms)
        finally:
            run_after(self._hooks, self._connection, command, response)
        return response

    def start(self, code: int, timeout_ms: int, encode: Callable[[int], bytes]) -> asyncio.Future[Command]:
        """As `call`, for a frame that `encode(opaque)` returns; hooks are not called.

        Frames started in one turn of the loop are written together.
        """
        self._raise_if_closed()
        if len(self._pending) >= self._connection.limits.calls_max:
            raise TooManyRequestsError(self._connection.peer_addr, f"{len(self._pending)} requests are unanswered")
        call = _Call(code, timeout_ms, self._loop.create_future())
        opaque = self._pending.add(call, self._now_ms() + timeout_ms)
        try:
            self._post(encode(opaque))
        except BaseException:
            self._pending.take(opaque)
            raise
        self._arm()
        return call.answer

    def post(self, encode: Callable[[int], bytes]) -> None:
        """As `start`, for a oneway frame."""
        self._raise_if_closed()
        self._post(encode(self._pending.next_opaque()))

    def notify(self, command: Command) -> None:
        if self._hooks:
            run_before(self._hooks, self._connection, command)
        self._raise_if_closed()
        self._connection.send(replace(command, opaque=self._pending.next_opaque()))
        if self._hooks:
            run_after(self._hooks, self._connection, command, None)

    def complete(self, response: Command) -> None:
        """Complete the call that this response answers; drop a response without one, such as a late one."""
        call = self._pending.take(response.opaque)
        if call is None:
            log.debug("%s: response without a request, opaque=%d", self._connection.peer_addr, response.opaque)
        elif not call.answer.done():
            call.answer.set_result(response)

    def close(self, reason: str) -> None:
        """Fail all pending calls."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for call in self._pending.drain():
            call.fail(ConnectionClosedError(self._connection.peer_addr, reason))

    async def _exchange(self, command: Command, timeout_ms: int) -> Command:
        self._raise_if_closed()
        if len(self._pending) >= self._connection.limits.calls_max:
            raise TooManyRequestsError(self._connection.peer_addr, f"{len(self._pending)} requests are unanswered")
        call = _Call(command.code, timeout_ms, self._loop.create_future())
        opaque = self._pending.add(call, self._now_ms() + timeout_ms)
        try:
            self._connection.send(replace(command, opaque=opaque))
            self._arm()
            return await call.answer
        finally:
            self._pending.take(opaque)

    def _post(self, frame: bytes) -> None:
        if not self._posted:
            self._loop.call_soon(self._write_posted)
        self._posted.append(frame)
        self._posted_bytes += len(frame)
        if self._posted_bytes > _JOINED_BYTES_MAX:
            self._write_posted()

    def _write_posted(self) -> None:
        if self._posted:
            frames, self._posted, self._posted_bytes = self._posted, [], 0
            self._connection.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def _raise_if_closed(self) -> None:
        if self._connection.is_closed:
            raise ConnectionClosedError(self._connection.peer_addr, "the connection is closed")

    def _arm(self) -> None:
        deadline_ms = self._pending.next_deadline_ms
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_at(deadline_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for call in self._pending.expire(self._now_ms()):
            what = request_text(call.code)
            call.fail(RequestTimeoutError(self._connection.peer_addr, call.code, call.timeout_ms, what))
        self._arm()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
