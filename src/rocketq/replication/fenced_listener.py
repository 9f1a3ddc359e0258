"""Fenced stream, master side: listens for slaves and writes log records from the mapping to their sockets."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from rocketq.errors import RemoteProtocolError, StoreError, UnreachableError
from rocketq.remoting.address import join_addr
from rocketq.remoting.limits import ConnectionLimit
from rocketq.replication.classic_listener import SLAVES_MAX
from rocketq.replication.fenced_auth import DIGEST_BYTES, NONCE_BYTES, Credentials
from rocketq.replication.fenced_frames import Frame, FrameDecoder, Introduction, encode_frame, encode_header
from rocketq.replication.fenced_master import (
    Acked,
    Authenticated,
    CheckLog,
    Close,
    MasterAction,
    MasterSession,
    ReadControl,
    Send,
    TablesStored,
)
from rocketq.replication.replica_files import FencedStore
from rocketq.replication.table_sharing import TableSharing
from rocketq.runtime.clock import Clock

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 256 << 10
BATCH_MIN_BYTES: Final = 32 << 10
"""Smaller batches wait until the slave has acknowledged the previous one."""
TURN_BYTES: Final = 1 << 20
"""Bytes sent to one slave before the others are served."""
HEARTBEAT_MS: Final = 1_000
SILENCE_MS_MAX: Final = 5_000
AUTH_MS_MAX: Final = 2_000
"""A peer that has not authenticated itself by then is disconnected."""
UNAUTHENTICATED_MAX: Final = 64
"""Beyond it the oldest connection of the host with the most of them is closed."""
AUTH_BYTES_MAX: Final = 4 << 10
SLAVE_BYTES_MAX: Final = 1 << 20
"""Limit of a frame of an authenticated slave; its epoch list is the largest one."""
LOG_REJECTIONS_MS: Final = 10_000
_BUFFER_BYTES: Final = 2 << 20


class SlaveEvents(Protocol):
    """Events of the slaves' connections."""

    def slave_acked(self, ack: Acked) -> None: ...

    def slave_gone(self, broker_id: int) -> None: ...

    def control_outdated(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Mastership:
    """What the connections of one epoch share."""

    epoch: int
    own: Introduction
    confirm_offset: Callable[[], int]
    credentials: Callable[[], Credentials | None]
    """None before the secret of the group is known: no slave can connect."""


class FencedListener:
    """Listens as long as the broker runs; without a mastership it closes connections."""

    def __init__(
        self,
        replica: FencedStore,
        clock: Clock,
        events: SlaveEvents,
        *,
        encode_tables: Callable[[], bytes],
        slaves_max: int = SLAVES_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.replica = replica
        self.events = events
        self.mastership: Mastership | None = None
        self.tables = TableSharing(encode_tables)
        self.links: set[SlaveConnection] = set()
        self.unauthenticated: dict[SlaveConnection, None] = {}
        """In the order of their arrival."""
        self.connection_limit = ConnectionLimit(slaves_max, what="connections of slaves")
        self._tls = tls
        self._rejected_count = 0
        self._rejected_logged_ms: int | None = None
        self._clock = clock
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: SlaveConnection(self), host, port, ssl=self._tls)
        except OSError as error:
            reason = f"cannot listen for slaves here: {error.strerror or error}"
            raise UnreachableError(join_addr(host, port), reason) from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.end_mastership()

    def lead(self, mastership: Mastership) -> None:
        self.end_mastership()
        self.mastership = mastership

    def end_mastership(self) -> None:
        self.mastership = None
        self.tables.end("this replica is no longer master")
        for link in [*self.links, *self.unauthenticated]:
            link.close("this replica is no longer master")

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def feed(self) -> None:
        """The log has new bytes."""
        for link in list(self.links):
            link.feed()

    def tick(self) -> None:
        for link in [*self.links, *self.unauthenticated]:
            link.tick()

    def share_tables(self) -> None:
        """Send topics and groups after a change."""
        for link in list(self.links):
            link.share_tables()

    def on_connected(self, link: SlaveConnection) -> None:
        """A peer that has not authenticated itself yet."""
        self.unauthenticated[link] = None
        if len(self.unauthenticated) > UNAUTHENTICATED_MAX:
            hosts = Counter(each.host for each in self.unauthenticated)
            busiest = max(hosts, key=hosts.__getitem__)
            next(each for each in self.unauthenticated if each.host == busiest).close("too many connections")

    def on_authenticated(self, link: SlaveConnection) -> bool:
        """Whether the connection limit allows one more slave."""
        self.unauthenticated.pop(link, None)
        if not self.connection_limit.allows(len(self.links) + 1):
            return False
        self.links.add(link)
        return True

    def on_rejected(self, link: SlaveConnection, reason: str) -> None:
        """Log rejected peers, at most one line per LOG_REJECTIONS_MS."""
        self._rejected_count += 1
        now_ms = self.now_ms()
        if self._rejected_logged_ms is None or now_ms - self._rejected_logged_ms >= LOG_REJECTIONS_MS:
            count, self._rejected_count, self._rejected_logged_ms = self._rejected_count, 0, now_ms
            log.warning("replication connection rejected: peer=%s reason=%s count=%d", link.addr, reason, count)

    def close_older_connections(self, link: SlaveConnection) -> None:
        """Close older connections of the same slave."""
        self.tables.shares.disconnected(link.slave_id)
        for other in list(self.links):
            if other is not link and other.slave_id == link.slave_id:
                self.links.discard(other)
                other.close("the slave has connected again")


class SlaveConnection(asyncio.Protocol):
    """One slave's connection."""

    def __init__(self, listener: FencedListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(AUTH_BYTES_MAX)
        self._session: MasterSession | None = None
        self._paused = self._waits = False
        self._connected_ms = self._received_ms = self._sent_ms = listener.now_ms()
        self.host = self.addr = ""
        self.acked: Acked | None = None

    @property
    def slave_id(self) -> int:
        return self._session.slave_id if self._session else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        peer = self._transport.get_extra_info("peername") or ("", 0)
        self.host, self.addr = str(peer[0]), join_addr(str(peer[0]), int(peer[1]))
        mastership = self._listener.mastership
        credentials = mastership.credentials() if mastership is not None else None
        if mastership is None or credentials is None:
            self._transport.abort()
            return
        self._session = MasterSession(mastership.epoch, mastership.own, credentials, os.urandom(NONCE_BYTES))
        self._listener.on_connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._listener.unauthenticated.pop(self, None)
        if self in self._listener.links:
            self._listener.links.discard(self)
            if self.slave_id:
                self._listener.tables.shares.disconnected(self.slave_id)
                log.warning("slave %d at %s disconnected", self.slave_id, self.addr)
                self._listener.events.slave_gone(self.slave_id)

    def data_received(self, data: bytes) -> None:
        self._received_ms = self._listener.now_ms()
        try:
            for frame in self._decoder.feed(data):
                self._on_frame(frame)
                if self._transport is None:
                    return
        except RemoteProtocolError as error:
            self.close(str(error))
            return
        self.feed()

    def _on_frame(self, frame: Frame) -> None:
        session, listener = self._session, self._listener
        if session is None or self._transport is None:
            return
        self._act(session.on_frame(frame, listener.replica.shape))

    def _act(self, actions: list[MasterAction]) -> None:
        listener = self._listener
        for action in actions:
            match action:
                case Send(reply):
                    self._write(encode_frame(reply))
                case Acked():
                    self._acked(action)
                case TablesStored(slave_id, number):
                    self._tables_taken(slave_id, number)
                case Authenticated():
                    self._decoder.body_bytes_max = SLAVE_BYTES_MAX
                    if not listener.on_authenticated(self):
                        self.close("connection limit reached")
                case CheckLog(ranges, digests):
                    self._check_log(ranges, digests)
                case ReadControl():
                    listener.events.control_outdated()
                case Close(reason):
                    self.close(reason, politely=True)

    def _check_log(self, ranges: tuple[tuple[int, int], ...], digests: bytes) -> None:
        """Hash on a worker thread; the slave gets nothing before the result."""

        def hashed(reading: asyncio.Future[bytes]) -> None:
            error = reading.exception()
            if self._transport is None or self._session is None:
                return
            if error is not None:
                self.close(f"the log cannot be compared: {error}")
                return
            self._act(self._session.log_checked(find_mismatch(ranges, reading.result(), digests)))
            self.feed()

        digest = self._listener.replica.digest
        asyncio.get_running_loop().run_in_executor(None, digest, ranges).add_done_callback(hashed)

    def _acked(self, ack: Acked) -> None:
        listener = self._listener
        if self.acked is None:
            log.info("slave %d at %s follows from log offset %d", self.slave_id, self.addr, ack.written)
            listener.close_older_connections(self)
        self.acked = ack
        if listener.tables.shares.has_any(self.slave_id):
            listener.events.slave_acked(ack)
        else:
            self.share_tables()  # acknowledgements count only after the slave has stored the tables

    def _tables_taken(self, slave_id: int, number: int) -> None:
        listener = self._listener
        first = not listener.tables.shares.has_any(slave_id)
        if not listener.tables.shares.stored(slave_id, number):
            self.close(f"the slave acknowledges table version {number}, which it was not sent")
            return
        if first and self.acked is not None:
            listener.events.slave_acked(self.acked)
        listener.tables.release_waiters()
        self.share_tables()

    def share_tables(self) -> None:
        session, tables = self._session, self._listener.tables
        if session is None or self.acked is None or self._transport is None:
            return
        number = tables.shares.next_for(self.slave_id)
        frame = session.tables(number, tables.encode()) if number is not None else None
        if number is not None and frame is not None:
            tables.shares.sent(self.slave_id, number)
            self._write(encode_frame(frame))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.feed()

    def _is_batching(self, next_offset: int, log_end: int) -> bool:
        return self.acked is not None and self.acked.written < next_offset and log_end - next_offset < BATCH_MIN_BYTES

    def feed(self) -> None:
        """Send available records, at most TURN_BYTES at a time; the rest follows in a later turn."""
        session, listener, mastership = self._session, self._listener, self._listener.mastership
        turn = 0
        if session is None or mastership is None:
            return
        try:
            while not self._waits and not self._paused and self._transport is not None:
                piece = session.next_piece(listener.replica.shape)
                if piece is None or self._is_batching(piece.offset, listener.replica.log_end):
                    return
                view = listener.replica.store.whole_range(piece.offset, BATCH_BYTES)
                if piece.limit is not None:
                    view = view[: piece.limit - piece.offset]
                if not view:
                    return
                body = cast(bytes, view)  # only measured, checksummed and sent
                frame = session.data(piece, body, mastership.confirm_offset())
                self._sent_ms = listener.now_ms()
                self._transport.writelines([encode_header(frame), view])
                turn += len(view)
                if turn >= TURN_BYTES:
                    self._waits = True
                    asyncio.get_running_loop().call_soon(self._continue_feeding)
        except StoreError as error:
            log.error("slave %d at %s cannot be served: %s", self.slave_id, self.addr, error)
            self.close(str(error))

    def _continue_feeding(self) -> None:
        self._waits = False
        self.feed()

    def tick(self) -> None:
        now_ms, mastership = self._listener.now_ms(), self._listener.mastership
        if self in self._listener.unauthenticated and now_ms - self._connected_ms > AUTH_MS_MAX:
            self.close("no authentication in time")
        elif now_ms - self._received_ms > SILENCE_MS_MAX:
            self.close("no data for too long")
        elif now_ms - self._sent_ms >= HEARTBEAT_MS and mastership is not None and self._session is not None:
            beat = self._session.heartbeat(mastership.confirm_offset())
            if beat is not None and not self._paused:
                self._sent_ms = now_ms
                self._write(encode_frame(beat))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self, reason: str, *, politely: bool = False) -> None:
        """`politely`: flush what was written, such as a REJECT, before closing."""
        if self._transport is None:
            return
        if self._listener.unauthenticated.pop(self, self) is None:
            self._listener.on_rejected(self, reason)
        log.debug("stream to slave %d at %s closed: %s", self.slave_id, self.addr, reason)
        if politely:
            self._transport.close()
        else:
            self._transport.abort()


def find_mismatch(ranges: tuple[tuple[int, int], ...], own: bytes, given: bytes) -> str | None:
    """The first range whose digests differ, as a reason to reject the slave."""
    if len(given) != len(own):
        return f"the slave sent {len(given)} bytes of digests, expected {len(own)}"
    for at, (offset, length) in enumerate(ranges):
        span = slice(at * DIGEST_BYTES, (at + 1) * DIGEST_BYTES)
        if own[span] != given[span]:
            return f"the slave's log differs from the master's in [{offset}, {offset + length})"
    return None
