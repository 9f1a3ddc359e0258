"""Fenced stream, slave side: connects to the master and appends checked records to the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from rocketq.errors import RemoteProtocolError, RocketQError, StoreError
from rocketq.remoting.address import split_addr
from rocketq.replication import fenced_slave as does
from rocketq.replication.actions import Follow
from rocketq.replication.fenced_auth import NONCE_BYTES, Credentials
from rocketq.replication.fenced_frames import BODY_BYTES_MAX, Frame, FrameDecoder, Introduction, encode_frame
from rocketq.replication.fenced_listener import AUTH_BYTES_MAX, SILENCE_MS_MAX
from rocketq.replication.fenced_slave import SlaveAction, SlaveSession
from rocketq.replication.recovery import truncate
from rocketq.replication.replica_files import FencedStore
from rocketq.runtime.clock import Clock

log = logging.getLogger(__name__)

CONNECT_MS_MAX: Final = 2_000
RETRY_MS_MIN: Final = 50
"""A new master is often known shortly before it listens."""
RETRY_MS: Final = 500
REFUSALS: Final = 2
"""Refused connections in a row after which the process of a master that was connected counts as ended."""


class FollowerEvents(Protocol):
    """Events of the connection to the master."""

    def log_changed(self) -> None: ...

    def master_heard(self) -> None: ...

    def master_dead(self, epoch: int) -> None: ...

    def confirmed_to(self, offset: int) -> None: ...

    async def replace_tables(self, body: bytes) -> None: ...

    def left(self, leave: does.Leave) -> None: ...


class Follower:
    """Follows one master at a time and reconnects until stopped."""

    def __init__(
        self,
        replica: FencedStore,
        clock: Clock,
        introduce: Callable[[], Introduction],
        credentials: Callable[[], Credentials | None],
        events: FollowerEvents,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.replica = replica
        self.clock = clock
        self.introduce = introduce
        self._credentials = credentials
        self._tls = tls
        self.events = events
        self._task: asyncio.Task[None] | None = None
        self.failure = ""
        self.connection: MasterConnection | None = None
        self.heard_ms = clock.monotonic_ms()
        """When the master was heard last, or when following it began."""
        self.followed: Follow | None = None
        self._was_connected = False
        self._refused_count = 0

    async def follow(self, master: Follow) -> None:
        await self.stop()
        self.followed, self.heard_ms = master, self.clock.monotonic_ms()
        self._was_connected, self._refused_count = False, 0
        self._task = asyncio.get_running_loop().create_task(self._run(master))

    async def stop(self) -> None:
        """Stop; nothing is written after this returns."""
        self.followed = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self, master: Follow) -> None:
        pause_ms = RETRY_MS_MIN
        while True:
            try:
                failure = await self._once(master)
            except Exception as error:  # the follower continues after an error in one connection
                log.exception("following %s failed", master.ha_addr)
                failure = str(error)
            if failure != self.failure:
                is_new = not self._was_connected and self.clock.monotonic_ms() - self.heard_ms < RETRY_MS
                level = logging.INFO if is_new else logging.WARNING
                log.log(
                    level, "replication from master %d at %s stopped: %s", master.master_id, master.ha_addr, failure
                )
            self.failure = failure
            if self._refused_count == REFUSALS:
                self.events.master_dead(master.epoch)
            pause_ms = RETRY_MS_MIN if self._refused_count < REFUSALS else min(2 * pause_ms, RETRY_MS)
            await asyncio.sleep(pause_ms / 1000)

    async def _once(self, master: Follow) -> str:
        """Connect and copy; the reason why the connection ended."""
        host, port = split_addr(master.ha_addr)
        credentials = self._credentials()
        if credentials is None:
            return "the secret of the group is not known yet"
        own = self.introduce()
        session = SlaveSession(master.epoch, master.master_id, own, credentials, os.urandom(NONCE_BYTES))
        link = MasterConnection(self, session)
        try:
            async with asyncio.timeout(CONNECT_MS_MAX / 1000):
                await asyncio.get_running_loop().create_connection(lambda: link, host, port, ssl=self._tls)
        except (OSError, TimeoutError) as error:
            refused = isinstance(error, ConnectionRefusedError) and self._was_connected
            self._refused_count = self._refused_count + 1 if refused else 0
            return f"cannot be reached: {error or 'no answer'}"
        self._refused_count = 0
        self.connection = link
        try:
            while not link.ended.done():
                await asyncio.wait([link.ended], timeout=0.5)
                link.tick()
            return link.ended.result()
        finally:
            link.close("stopped")
            self.connection = None
            if link.on_disk is not None:
                await asyncio.wait([link.on_disk])

    def heard(self) -> None:
        """An authenticated frame arrived."""
        self.heard_ms = self.clock.monotonic_ms()
        if not self._was_connected:
            self._was_connected = True
            self.events.master_heard()

    def connected(self, master_log: str) -> None:
        self.failure = ""
        log.info("this replica %s", master_log)


async def can_connect(addr: str) -> bool:
    """Whether something listens at a replication address."""
    try:
        async with asyncio.timeout(CONNECT_MS_MAX / 1000):
            _, writer = await asyncio.open_connection(*split_addr(addr))
    except (OSError, TimeoutError, RocketQError, ValueError):
        return False
    writer.close()
    return True


def cut_back(replica: FencedStore, point: int) -> int:
    """Truncate; the number of dropped bytes."""
    before = replica.log_end
    for step in truncate(replica, point):
        log.debug("truncation: %s", step)
    return before - replica.log_end


class MasterConnection(asyncio.Protocol):
    """One connection to the master."""

    def __init__(self, follower: Follower, session: SlaveSession) -> None:
        self._follower = follower
        self._replica = follower.replica
        self._session = session
        self._decoder = FrameDecoder(AUTH_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._received_ms = follower.clock.monotonic_ms()
        self._holding = False
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self._replacing: asyncio.Task[None] | None = None
        self._todo: deque[SlaveAction] = deque()
        self._waits_for: asyncio.Future[None] | None = None
        self.on_disk: asyncio.Future[int] | asyncio.Future[bytes] | asyncio.Future[None] | None = None
        """A truncation or a new epoch entry that a worker thread is writing; the log does not change before it ends."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._write(self._session.auth_request())

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.close(f"the connection ended{f': {error}' if error else ''}")

    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        self._received_ms = self._follower.clock.monotonic_ms()
        try:
            for frame in self._decoder.feed(data):
                self._do(self._session.on_frame(frame))
                if self._session.is_authenticated:
                    self._decoder.body_bytes_max = BODY_BYTES_MAX
                if self._session.is_streaming:
                    self._follower.heard()
        except (RocketQError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        kind = "" if isinstance(error, RemoteProtocolError) else "the append failed: "
        self.close(f"{kind}{error}")

    def _do(self, actions: list[SlaveAction]) -> None:
        """Execute in order. Actions after BeginEpoch wait until its entry is on disk."""
        self._todo.extend(actions)
        while self._todo and self._waits_for is None and not self.ended.done():
            self._act(self._todo.popleft())

    def _act(self, action: SlaveAction) -> None:
        replica, events = self._replica, self._follower.events
        match action:
            case does.CutTo(point):
                self._cut(point)
            case does.StartAt(offset):
                replica.start_at(offset)
                self._cut_done(f"copies everything from log offset {offset}")
            case does.HashLog(ranges):
                self._hash_log(ranges)
            case does.BeginEpoch(number, start):
                self._begin_epoch(number, start)
            case does.Append(offset, body):
                replica.store.append_raw(offset, body, check_crc=False)  # the frame's checksum was verified
                events.log_changed()
            case does.ConfirmTo(offset):
                events.confirmed_to(offset)
            case does.ReplaceTables(number, body):
                self._replacing = self._loop.create_task(self._replace_tables(number, body))
            case does.Acknowledge():
                self.acknowledge()
            case does.Reply(frame):
                self._write(frame)
            case does.Leave():
                events.left(action)
                self.close(action.reason)

    def _hash_log(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Hash on a worker thread, because it reads from disk; nothing else happens to the log until it is done."""
        self.on_disk = hashing = self._loop.run_in_executor(None, self._replica.digest, ranges)
        hashing.add_done_callback(self._log_hashed)

    def _log_hashed(self, hashing: asyncio.Future[bytes]) -> None:
        error = hashing.exception()
        if error is not None:
            self.close(f"the log cannot be read: {error}")
        elif not self.ended.done():
            self._do(self._session.log_hashed(hashing.result()))

    def _begin_epoch(self, number: int, start: int) -> None:
        """Write the epoch entry on a worker thread; reading pauses until it is done."""
        self._replica.begin_change()
        if self._transport is not None:
            self._transport.pause_reading()
        self.on_disk = self._waits_for = self._loop.run_in_executor(None, self._replica.begin_epoch, number, start)
        self._waits_for.add_done_callback(self._epoch_begun)

    def _epoch_begun(self, writing: asyncio.Future[None]) -> None:
        self._replica.end_change()
        self._waits_for = None
        error = writing.exception()
        if self.ended.done():
            return
        self._received_ms = self._follower.clock.monotonic_ms()
        try:
            if error is not None:
                raise StoreError(f"the epoch cannot be saved: {error}")
            self._do([])
        except (RocketQError, OSError) as failure:
            self._fail(failure)
        if self._transport is not None and self._waits_for is None:
            self._transport.resume_reading()

    async def _replace_tables(self, number: int, body: bytes) -> None:
        """Store the tables; the master sends no others before the answer."""
        try:
            await self._follower.events.replace_tables(body)
        except (RocketQError, OSError) as error:
            self.close(f"the tables cannot be stored: {error}")
        else:
            self._write(self._session.tables_ack(number))

    def _cut(self, point: int) -> None:
        """Truncate on a worker thread, because it waits for the disk. The master sends nothing before the first
        acknowledgement."""
        self._replica.begin_change()
        self.on_disk = cutting = self._loop.run_in_executor(None, cut_back, self._replica, point)
        cutting.add_done_callback(self._cut_ended)

    def _cut_ended(self, cutting: asyncio.Future[int]) -> None:
        self._replica.end_change()
        error = cutting.exception()
        if error is not None:
            self.close(f"the log cannot be truncated: {error}")
        elif not self.ended.done():
            end = self._replica.log_end
            self._cut_done(f"dropped {cutting.result()} unconfirmed bytes after log offset {end}")

    def _cut_done(self, what: str) -> None:
        ends = self._replica.ends
        self._follower.connected(what)
        self._follower.events.log_changed()
        self._do(self._session.cut_done(ends.written, ends.last_epoch))

    def acknowledge(self) -> None:
        """Acknowledge both ends; again when all is on disk."""
        ends = self._replica.ends
        self._write(self._session.ack(ends.written, ends.durable))
        if ends.durable < ends.written and not self._holding:
            self._holding = True
            self._replica.store.gate.hold(ends.written, self._flushed)

    def _flushed(self, reached: bool) -> None:
        """Called on the flush thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._acknowledge_again)

    def _acknowledge_again(self) -> None:
        self._holding = False
        if not self.ended.done() and self._session.is_streaming:
            self._follower.events.log_changed()
            self.acknowledge()

    def tick(self) -> None:
        if self._waits_for is None and self._follower.clock.monotonic_ms() - self._received_ms > SILENCE_MS_MAX:
            self.close("no data for too long")

    def _write(self, frame: Frame) -> None:
        if self._transport is not None:
            self._transport.write(encode_frame(frame))

    def close(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
            if self._replacing is not None and self._replacing is not asyncio.current_task(self._loop):
                self._replacing.cancel()
        if self._transport is not None:
            self._transport.close()
