"""Fenced stream, master side, pure: handshake, next batch to send, checks of acknowledgements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from rocketq.errors import RemoteProtocolError
from rocketq.replication.epochs import CannotRejoin, CopyFrom, LogShape, find_rejoin_point
from rocketq.replication.fenced_frames import (
    LEARNER,
    Frame,
    FrameType,
    Introduction,
    Rejection,
    data_frame,
    decode_introduction,
    encode_introduction,
    encode_rejection,
    heartbeat,
    tables,
)


@dataclass(frozen=True, slots=True)
class Send:
    frame: Frame


@dataclass(frozen=True, slots=True)
class Acked:
    broker_id: int
    written: int
    durable: int
    learner: bool


@dataclass(frozen=True, slots=True)
class TablesStored:
    """The slave has stored this version of the tables."""

    broker_id: int
    number: int


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """The slave sent a larger epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Close:
    reason: str


MasterAction = Send | Acked | TablesStored | EpochSeen | Close


class _Phase(Enum):
    HELLO = 1
    FIRST_ACK = 2
    STREAMING = 3
    CLOSED = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Send whole records from `offset`, none of them beyond `limit` (None: up to the log's end)."""

    offset: int
    limit: int | None
    epoch: int
    epoch_start: int


class MasterSession:
    """One connection in one epoch. Its frames carry the epoch of the master's election."""

    def __init__(self, epoch: int, own: Introduction) -> None:
        self._epoch = epoch
        self._own = own
        self._phase = _Phase.HELLO
        self._point = 0
        self._learner = False
        self.slave_id = 0
        self.next_offset: int | None = None

    def on_frame(self, frame: Frame, shape: LogShape) -> list[MasterAction]:
        """Actions for a frame, given the current log."""
        if self._phase is _Phase.CLOSED:
            return []
        if frame.master_epoch > self._epoch:
            return [EpochSeen(frame.master_epoch), *self._reject(f"epoch {frame.master_epoch} is newer")]
        if self._phase is _Phase.HELLO and frame.type is FrameType.HELLO:
            return self._on_hello(frame, shape)
        if self._phase in (_Phase.FIRST_ACK, _Phase.STREAMING) and frame.type is FrameType.ACK:
            return self._acked(frame, shape)
        if self._phase is _Phase.STREAMING and frame.type is FrameType.TABLES_ACK:
            return [TablesStored(self.slave_id, frame.offset)]
        if frame.type is FrameType.REJECT:
            return self._close("the slave rejected the stream")
        return self._close(f"{frame.type.name} is unexpected")

    def _on_hello(self, frame: Frame, shape: LogShape) -> list[MasterAction]:
        try:
            slave = decode_introduction(frame.body)
        except RemoteProtocolError as error:
            return self._close(str(error))
        own = self._own
        if (slave.cluster, slave.broker_name) != (own.cluster, own.broker_name):
            return self._reject(f"this is not a replica of {own.cluster}/{own.broker_name}")
        if slave.broker_id == own.broker_id or slave.broker_id <= 0:
            return self._reject(f"broker id {slave.broker_id} is not the id of a slave")
        if slave.segment_bytes != own.segment_bytes:
            return self._reject(
                f"mappedFileSizeCommitLog differs: master {own.segment_bytes}, slave {slave.segment_bytes}"
            )
        self.slave_id, self._learner = slave.broker_id, bool(frame.flags & LEARNER)
        match find_rejoin_point(slave.shape, shape):
            case CopyFrom(point):
                self._point, self._phase = point, _Phase.FIRST_ACK
            case CannotRejoin():  # the slave finds the same result and logs it
                self._phase = _Phase.CLOSED
        welcome = Frame(
            type=FrameType.WELCOME,
            master_epoch=self._epoch,
            offset=shape.end,
            body=encode_introduction(replace(own, shape=shape)),
        )
        return [Send(welcome)]

    def _acked(self, frame: Frame, shape: LogShape) -> list[MasterAction]:
        if frame.offset > shape.end or frame.second > frame.offset:
            return self._close(f"the slave acknowledges {frame.offset}/{frame.second}, the log ends at {shape.end}")
        if self._phase is _Phase.FIRST_ACK:
            if frame.offset > self._point:
                return self._close(f"the slave continues at {frame.offset}, the logs diverge at {self._point}")
            self.next_offset, self._phase = frame.offset, _Phase.STREAMING
        elif self.next_offset is not None and frame.offset > self.next_offset:
            return self._close(f"the slave acknowledges {frame.offset}, it was sent up to {self.next_offset}")
        return [Acked(self.slave_id, frame.offset, frame.second, self._learner)]

    def next_piece(self, shape: LogShape) -> Piece | None:
        """The next range to send; None when the slave has everything or does not stream yet."""
        at = self.next_offset
        if self._phase is not _Phase.STREAMING or at is None or at >= shape.end:
            return None
        found = shape.epochs.at(at)
        if found is None:
            return None
        entry, limit = found
        return Piece(at, limit, entry.number, entry.start)

    def data(self, piece: Piece, body: bytes, confirm_offset: int) -> Frame:
        """The frame for a range that was read; the session continues after it."""
        self.next_offset = piece.offset + len(body)
        return data_frame(self._epoch, piece.epoch, piece.epoch_start, piece.offset, confirm_offset, body)

    def heartbeat(self, confirm_offset: int) -> Frame | None:
        if self._phase is not _Phase.STREAMING or self.next_offset is None:
            return None
        return heartbeat(self._epoch, self.next_offset, confirm_offset)

    def tables(self, number: int, body: bytes) -> Frame | None:
        """A frame with topics and groups; None before the slave streams."""
        return tables(self._epoch, number, body) if self._phase is _Phase.STREAMING else None

    def _reject(self, reason: str) -> list[MasterAction]:
        frame = Frame(type=FrameType.REJECT, master_epoch=self._epoch, body=encode_rejection(Rejection(reason)))
        return [Send(frame), *self._close(reason)]

    def _close(self, reason: str) -> list[MasterAction]:
        self._phase = _Phase.CLOSED
        return [Close(reason)]
