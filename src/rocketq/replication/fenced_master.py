"""The master's end of one stream: greets a slave, tells what to send it next, takes its acknowledgements. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from rocketq.errors import RemoteProtocolError
from rocketq.replication.fenced_frames import LEARNER, Frame, FrameType, data_frame, heartbeat, tables
from rocketq.replication.rejoin import CannotJoin, CopyFrom, LogShape, find_rejoin_point
from rocketq.replication.stream_bodies import (
    Introduction,
    Rejection,
    decode_introduction,
    encode_introduction,
    encode_rejection,
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
class TablesTaken:
    """The slave has this state of the tables on its disk."""

    broker_id: int
    number: int


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """The slave knows a larger epoch: this master's time is over."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Close:
    reason: str


MasterAction = Send | Acked | TablesTaken | EpochSeen | Close


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
    """One connection, in one epoch. The fence it shows is always the epoch it was elected for."""

    def __init__(self, epoch: int, own: Introduction) -> None:
        self._epoch = epoch
        self._own = own
        self._phase = _Phase.HELLO
        self._point = 0
        self._learner = False
        self.slave_id = 0
        self.next_offset: int | None = None

    def on_frame(self, frame: Frame, shape: LogShape) -> list[MasterAction]:
        """What to do about a frame, given the log as it is now."""
        if self._phase is _Phase.CLOSED:
            return []
        if frame.master_epoch > self._epoch:
            return [EpochSeen(frame.master_epoch), *self._reject(f"epoch {frame.master_epoch} is newer")]
        if self._phase is _Phase.HELLO and frame.type is FrameType.HELLO:
            return self._greet(frame, shape)
        if self._phase in (_Phase.FIRST_ACK, _Phase.STREAMING) and frame.type is FrameType.ACK:
            return self._acked(frame, shape)
        if self._phase is _Phase.STREAMING and frame.type is FrameType.TABLES_TAKEN:
            return [TablesTaken(self.slave_id, frame.offset)]
        if frame.type is FrameType.REJECT:
            return self._close("the slave refused")
        return self._close(f"{frame.type.name} was not expected")

    def _greet(self, frame: Frame, shape: LogShape) -> list[MasterAction]:
        try:
            slave = decode_introduction(frame.body)
        except RemoteProtocolError as error:
            return self._close(str(error))
        own = self._own
        if (slave.cluster, slave.broker_name) != (own.cluster, own.broker_name):
            return self._reject(f"this is {own.cluster}/{own.broker_name}, not {slave.cluster}/{slave.broker_name}")
        if slave.broker_id == own.broker_id or slave.broker_id <= 0:
            return self._reject(f"{slave.broker_id} is not the id of a slave here")
        if slave.segment_bytes != own.segment_bytes:
            return self._reject(f"log files have {own.segment_bytes} bytes here, {slave.segment_bytes} there")
        self.slave_id, self._learner = slave.broker_id, bool(frame.flags & LEARNER)
        match find_rejoin_point(slave.shape, shape):
            case CopyFrom(point):
                self._point, self._phase = point, _Phase.FIRST_ACK
            case CannotJoin():  # the slave works it out by itself and says so in its log
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
            return self._close(f"the slave claims {frame.offset} (durable {frame.second}), the log ends at {shape.end}")
        if self._phase is _Phase.FIRST_ACK:
            if frame.offset > self._point:
                return self._close(f"the slave goes on at {frame.offset}, its log parts from ours at {self._point}")
            self.next_offset, self._phase = frame.offset, _Phase.STREAMING
        elif self.next_offset is not None and frame.offset > self.next_offset:
            return self._close(f"the slave claims {frame.offset}, it was sent up to {self.next_offset}")
        return [Acked(self.slave_id, frame.offset, frame.second, self._learner)]

    def next_piece(self, shape: LogShape) -> Piece | None:
        """What the slave should get now; None when it has everything, or does not stream yet."""
        at = self.next_offset
        if self._phase is not _Phase.STREAMING or at is None or at >= shape.end:
            return None
        found = shape.epochs.at(at)
        if found is None:
            return None
        entry, limit = found
        return Piece(at, limit, entry.number, entry.start)

    def data(self, piece: Piece, body: bytes, confirm_offset: int) -> Frame:
        """The frame for a piece that was read; the session goes on behind it."""
        self.next_offset = piece.offset + len(body)
        return data_frame(self._epoch, piece.epoch, piece.epoch_start, piece.offset, confirm_offset, body)

    def heartbeat(self, confirm_offset: int) -> Frame | None:
        if self._phase is not _Phase.STREAMING or self.next_offset is None:
            return None
        return heartbeat(self._epoch, self.next_offset, confirm_offset)

    def tables(self, number: int, body: bytes) -> Frame | None:
        """What topics and groups there are; None before the slave streams."""
        return tables(self._epoch, number, body) if self._phase is _Phase.STREAMING else None

    def _reject(self, reason: str) -> list[MasterAction]:
        frame = Frame(type=FrameType.REJECT, master_epoch=self._epoch, body=encode_rejection(Rejection(reason)))
        return [Send(frame), *self._close(reason)]

    def _close(self, reason: str) -> list[MasterAction]:
        self._phase = _Phase.CLOSED
        return [Close(reason)]
