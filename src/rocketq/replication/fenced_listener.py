"""Fenced stream, master side: listens for slaves and writes log records from the mapping to their sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from rocketq.errors import RemoteProtocolError, StoreError, UnreachableError
from rocketq.remoting.address import join_addr
from rocketq.remoting.limits import ConnectionLimit
from rocketq.replication.classic_listener import SLAVES_MAX
from rocketq.replication.fenced_frames import Frame, FrameDecoder, Introduction, encode_frame, encode_header
from rocketq.replication.fenced_master import Acked, Close, EpochSeen, MasterSession, Send, TablesStored
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
_BUFFER_BYTES: Final = 2 << 20


class SlaveEvents(Protocol):
    """Events of the slaves' connections."""

    def slave_acked(self, ack: Acked) -> None: ...

    def slave_gone(self, broker_id: int) -> None: ...

    def epoch_seen(self, epoch: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Mastership:
    """What the connections of one epoch share."""

    epoch: int
    own: Introduction
    confirm_offset: Callable[[], int]


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
    ) -> None:
        self.replica = replica
        self.events = events
        self.mastership: Mastership | None = None
        self.tables = TableSharing(encode_tables)
        self.links: set[SlaveConnection] = set()
        self.connection_limit = ConnectionLimit(slaves_max, what="connections of slaves")
        self._clock = clock
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: SlaveConnection(self), host, port)
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
        for link in list(self.links):
            link.close("this replica is no longer master")

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def feed(self) -> None:
        """The log has new bytes."""
        for link in list(self.links):
            link.feed()

    def tick(self) -> None:
        for link in list(self.links):
            link.tick()

    def share_tables(self) -> None:
        """Send topics and groups after a change."""
        for link in list(self.links):
            link.share_tables()

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
        self._decoder = FrameDecoder()
        self._session: MasterSession | None = None
        self._paused = self._waits = False
        self._received_ms = self._sent_ms = listener.now_ms()
        self.addr = ""
        self.acked: Acked | None = None

    @property
    def slave_id(self) -> int:
        return self._session.slave_id if self._session else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        peer = self._transport.get_extra_info("peername") or ("", 0)
        self.addr = join_addr(str(peer[0]), int(peer[1]))
        mastership = self._listener.mastership
        if mastership is None or not self._listener.connection_limit.allows(len(self._listener.links) + 1):
            self._transport.abort()
            return
        self._session = MasterSession(mastership.epoch, mastership.own)
        self._listener.links.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self in self._listener.links:
            self._listener.links.discard(self)
            if self.slave_id:
                self._listener.tables.shares.disconnected(self.slave_id)
                log.warning("slave %d at %s disconnected", self.slave_id, self.addr)
                self._listener.events.slave_gone(self.slave_id)

    def data_received(self, data: bytes) -> None:
        self._received_ms = self._listener.now_ms()
        try:
            frames = self._decoder.feed(data)
        except RemoteProtocolError as error:
            self.close(str(error))
            return
        for frame in frames:
            self._on_frame(frame)
        self.feed()

    def _on_frame(self, frame: Frame) -> None:
        session, listener = self._session, self._listener
        if session is None or self._transport is None:
            return
        for action in session.on_frame(frame, listener.replica.shape):
            match action:
                case Send(reply):
                    self._write(encode_frame(reply))
                case Acked():
                    self._acked(action)
                case TablesStored(slave_id, number):
                    self._tables_taken(slave_id, number)
                case EpochSeen(epoch):
                    listener.events.epoch_seen(epoch)
                case Close(reason):
                    self.close(reason, politely=True)

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
        if now_ms - self._received_ms > SILENCE_MS_MAX:
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
        log.info("stream to slave %d at %s closed: %s", self.slave_id, self.addr, reason)
        if politely:
            self._transport.close()
        else:
            self._transport.abort()
