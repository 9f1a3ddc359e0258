"""Classic stream, slave side: connects to the master and appends what it receives to the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, cast

from rocketq.errors import RemoteProtocolError, RocketQError
from rocketq.remoting.address import split_addr
from rocketq.replication.classic_listener import TICK_MS_MAX
from rocketq.replication.classic_slave import ClassicSlaveSession, StreamTimes
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReplica

log = logging.getLogger(__name__)

CONNECT_MS_MAX: Final = 3_000
READ_BYTES: Final = 512 << 10


@dataclass(frozen=True, slots=True)
class FollowRules:
    times: StreamTimes = field(default_factory=StreamTimes)
    retry_ms: int = 5_000
    """Delay between a failure and the next attempt."""


class MasterFollower:
    """Follows the master that `master_addr` returns until stopped; None means that the master is unknown."""

    def __init__(
        self,
        store: StoreReplica,
        clock: Clock,
        master_addr: Callable[[], str | None],
        rules: Callable[[], FollowRules] = FollowRules,
        why_not: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        """`why_not` is called before every connection; a reason it returns prevents the connection."""
        self._store = store
        self._clock = clock
        self._master_addr = master_addr
        self._rules = rules
        self._why_not = why_not
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._failure = ""
        self.connection: FollowerConnection | None = None
        self.bytes_received = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def wake(self) -> None:
        """Check the master's address now: it may have changed."""
        if self.connection is not None and self.connection.addr != self._master_addr():
            self.connection.close("the master's address changed")
        self._wanted.set()

    async def _run(self) -> None:
        while True:
            addr = self._master_addr()
            if addr is not None:
                try:
                    self._log_failure(addr, await self._follow(addr))
                except Exception:  # the service continues after an error in one connection
                    log.exception("following %s failed", addr)
            await self._pause()

    async def _pause(self) -> None:
        self._wanted.clear()
        try:
            async with asyncio.timeout(self._rules().retry_ms / 1000):
                await self._wanted.wait()
        except TimeoutError:
            pass

    async def _follow(self, addr: str) -> str:
        """Connect and copy; the reason why the connection ended."""
        refused = None if self._why_not is None else await self._why_not()
        if refused is not None:
            return refused
        host, port = split_addr(addr)
        loop = asyncio.get_running_loop()
        connection = FollowerConnection(self._store, self._clock, addr, self._rules().times)
        try:
            async with asyncio.timeout(CONNECT_MS_MAX / 1000):
                await loop.create_connection(lambda: connection, host, port)
        except (OSError, TimeoutError) as error:
            return f"cannot be reached: {error or 'no answer'}"
        self.connection, self._failure = connection, ""
        log.info("this slave follows %s from %d on", addr, self._store.log_end)
        try:
            return await self._watch(connection)
        finally:
            connection.close("stopped")
            self.bytes_received += connection.bytes_received
            self.connection = None

    async def _watch(self, connection: FollowerConnection) -> str:
        while not connection.ended.done():
            tick_ms = min(TICK_MS_MAX, max(1, self._rules().times.heartbeat_ms // 4))
            await asyncio.wait([connection.ended], timeout=tick_ms / 1000)
            connection.tick()
        return connection.ended.result()

    def _log_failure(self, addr: str, failure: str) -> None:
        """Log a failure once per outage."""
        if failure != self._failure:
            log.error("replication from master %s stopped: %s", addr, failure)
        self._failure = failure


class FollowerConnection(asyncio.BufferedProtocol):
    """One connection to the master. Any error closes it before bytes are written at a wrong offset."""

    def __init__(self, store: StoreReplica, clock: Clock, addr: str, times: StreamTimes) -> None:
        self._store = store
        self._clock = clock
        self.addr = addr
        self.state = ClassicSlaveSession(store.log_end, store.config.segment_bytes, times, clock.monotonic_ms())
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.bytes_received = 0
        self._transport: asyncio.Transport | None = None
        self._read = bytearray(READ_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self.state.report(self._clock.monotonic_ms()))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.close(f"the connection ended{f': {error}' if error else ''}")

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._read

    def buffer_updated(self, count: int) -> None:
        if self.ended.done():
            return
        self.bytes_received += count
        failure = ""
        try:
            self.state.on_bytes(memoryview(self._read)[:count], self._clock.monotonic_ms())
        except RemoteProtocolError as error:
            failure = str(error)  # earlier bytes are valid
        try:
            self._append()
        except (RocketQError, OSError) as error:
            failure = f"the append failed: {error}"
        if failure:
            self.close(failure)

    def _append(self) -> None:
        starts_at = self.state.take_start()
        if starts_at is not None:
            self._store.start_at(starts_at)
            log.info("the master's log starts at %d: this slave's log does not contain earlier messages", starts_at)
        log_offset, data = self.state.take()
        if not data:
            return
        try:
            self._store.append_stream(log_offset, data)
        finally:  # bytes before the invalid record are in the log
            report = self.state.appended(self._store.log_end, self._clock.monotonic_ms())
            if report and self._transport is not None:
                self._transport.write(report)

    def tick(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self.state.is_silent(now_ms):
            self.close("no data for too long")
        elif self._transport is not None and (report := self.state.on_tick(now_ms)):
            self._transport.write(report)

    def close(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
        if self._transport is not None:
            self._transport.abort()
