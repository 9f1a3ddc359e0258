"""Classic stream, master side: listens for slaves and writes log bytes from the mapping to their sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from rocketq.errors import RemoteProtocolError, StoreError, UnreachableError
from rocketq.remoting.address import join_addr
from rocketq.remoting.limits import ConnectionLimit
from rocketq.replication.classic_master import ClassicMasterSession, LogExtent, ReplicaAcks
from rocketq.replication.classic_slave import StreamTimes
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReplica
from rocketq.store.flush import ReplicaGate

log = logging.getLogger(__name__)

TURN_BYTES: Final = 512 << 10
"""Bytes sent to one slave before the others are served."""
TICK_MS_MAX: Final = 500
SLAVES_MAX: Final = 128
"""Connection limit. It leaves file descriptors for the store when a peer opens many connections."""
_BUFFER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ListenerRules:
    times: StreamTimes = field(default_factory=StreamTimes)
    batch_bytes: int = 32 << 10
    behind_bytes_max: int = 256 << 20
    timeout_ms: int = 3_000
    """Timeout of answers that wait for a slave."""
    from_last_file: bool = False


class ReplicaListener:
    """Belongs to one event loop; appends happen on any thread. `gate` is released by the largest acknowledgement."""

    def __init__(
        self, store: StoreReplica, clock: Clock, rules: Callable[[], ListenerRules], *, slaves_max: int = SLAVES_MAX
    ) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._woken = False
        self.acks = ReplicaAcks(rules().behind_bytes_max)
        self.gate = ReplicaGate(self.acks.is_available, lambda: rules().timeout_ms)
        self.links: set[ReplicaConnection] = set()
        self.connection_limit = ConnectionLimit(slaves_max, what="connections of slaves")
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        try:
            self._server = await self._loop.create_server(lambda: ReplicaConnection(self), host, port)
        except OSError as error:
            reason = f"cannot listen for slaves here: {error.strerror or error}"
            raise UnreachableError(join_addr(host, port), reason) from None
        self.port = self._server.sockets[0].getsockname()[1]
        self._tick()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        for link in list(self.links):
            link.close()
        self.gate.shut()

    @property
    def rules(self) -> ListenerRules:
        return self._rules()

    @property
    def extent(self) -> LogExtent:
        store = self._store
        return LogExtent(store.log_start, store.log_end, store.last_file_start)

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    @property
    def log_end(self) -> int:
        return self._store.log_end

    def read(self, log_offset: int) -> memoryview:
        return self._store.raw_range(log_offset, self.rules.batch_bytes)

    # events

    def wake(self) -> None:
        """The log may have new bytes."""
        if self._woken or not self.links:
            return
        self._woken = True
        if threading.get_ident() == self._thread_id:
            self._loop.call_soon(self._feed_all)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it all connections
                self._loop.call_soon_threadsafe(self._feed_all)

    def _feed_all(self) -> None:
        self._woken = False
        for link in list(self.links):
            link.feed()

    def on_report(self, link: ReplicaConnection, acked_to: int) -> None:
        if self.acks.on_report(link, acked_to):
            self.gate.release(acked_to)

    def on_connected(self, link: ReplicaConnection) -> None:
        """The append listener is registered only while a slave is connected."""
        if not self.links:
            self._store.add_append_listener(self.wake)
        self.links.add(link)

    def on_disconnected(self, link: ReplicaConnection) -> None:
        self.links.discard(link)
        self.acks.on_disconnected(link)
        if not self.links:
            self._store.remove_append_listener(self.wake)

    def _tick(self) -> None:
        tick_ms = min(TICK_MS_MAX, max(1, self.rules.times.heartbeat_ms // 4))
        self._timer = self._loop.call_later(tick_ms / 1000, self._tick)
        for link in list(self.links):
            link.tick()


class ReplicaConnection(asyncio.Protocol):
    """One slave's connection."""

    def __init__(self, listener: ReplicaListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._waits = False
        self._told = False
        rules = listener.rules
        self.state = ClassicMasterSession(rules.times, listener.now_ms(), from_last_file=rules.from_last_file)
        self.addr = ""
        self.bytes_sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        peer = self._transport.get_extra_info("peername") or ("", 0)
        self.addr = join_addr(str(peer[0]), int(peer[1]))
        if not self._listener.connection_limit.allows(len(self._listener.links) + 1):
            self._transport.abort()
            return
        self._listener.on_connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self not in self._listener.links:  # rejected because of the connection limit
            return
        self._listener.on_disconnected(self)
        if self._told:
            log.warning("slave %s disconnected at log offset %d", self.addr, self.state.acked_to)

    def data_received(self, data: bytes) -> None:
        listener = self._listener
        try:
            reported = self.state.on_bytes(data, listener.extent, listener.now_ms())
        except RemoteProtocolError as error:
            log.error("slave at %s cannot follow this log: %s", self.addr, error)
            self.close()
            return
        if reported:
            if not self._told:
                self._told = True
                log.info("slave %s follows from %d on", self.addr, self.state.sent_to)
            listener.on_report(self, self.state.acked_to)
            self.feed()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.feed()

    def feed(self, *, gather: bool = True) -> None:
        """Send available bytes, at most TURN_BYTES at a time; the rest follows in a later turn or after a report."""
        state, turn, end = self.state, 0, self._listener.log_end
        try:
            while not self._waits and not self._paused and self._transport is not None and state.sent_to >= 0:
                if gather and state.waits(end):
                    return
                view = self._listener.read(state.sent_to)
                if not view:
                    return
                self._transport.writelines([state.sent(len(view), self._listener.now_ms(), end), view])
                turn += len(view)
                self.bytes_sent += len(view)
                if turn >= TURN_BYTES:
                    self._waits = True
                    asyncio.get_running_loop().call_soon(self._continue_feeding)
        except StoreError as error:
            log.error("slave %s cannot be served: %s", self.addr, error)
            self.close()

    def _continue_feeding(self) -> None:
        self._waits = False
        self.feed()

    def tick(self) -> None:
        now_ms = self._listener.now_ms()
        if self.state.is_silent(now_ms):
            log.warning("slave %s sent nothing for too long", self.addr)
            self.close()
        elif self._transport is not None and not self._paused and (beat := self.state.on_tick(now_ms)):
            self._transport.write(beat)
        else:
            self.feed(gather=False)  # without waiting for its report

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
