"""The slave's end of the stream: says what it has, finds where to go on, checks every frame first. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rocketq.errors import RemoteProtocolError
from rocketq.replication.fenced_frames import LEARNER, Frame, FrameType, ack, tables_taken
from rocketq.replication.rejoin import CannotJoin, CopyFrom, find_rejoin_point
from rocketq.replication.stream_bodies import (
    Introduction,
    Rejection,
    decode_introduction,
    decode_rejection,
    encode_introduction,
    encode_rejection,
)


@dataclass(frozen=True, slots=True)
class SeeEpoch:
    """Persist this epoch before anything that follows."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CutTo:
    """Cut the log and its epochs back; answered by `cut_done` with the boundary that was reached."""

    point: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """The log is empty and begins here; answered by `cut_done`."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """Write the epoch's entry, and sync it, before its first byte."""

    number: int
    start: int


@dataclass(frozen=True, slots=True)
class Append:
    offset: int
    body: bytes


@dataclass(frozen=True, slots=True)
class ConfirmTo:
    offset: int


@dataclass(frozen=True, slots=True)
class TakeTables:
    """Become the master's topics and groups; answered by `tables_taken` when they are on disk."""

    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Tell the master both ends now."""


@dataclass(frozen=True, slots=True)
class Reply:
    frame: Frame


@dataclass(frozen=True, slots=True)
class Leave:
    """Close. `reread`: the master may have changed; `unrelated`: the logs have nothing in common."""

    reason: str
    reread: bool = False
    unrelated: bool = False


SlaveAction = SeeEpoch | CutTo | StartAt | BeginEpoch | Append | ConfirmTo | TakeTables | Acknowledge | Reply | Leave


class _Phase(Enum):
    WELCOME = 1
    CUTTING = 2
    STREAMING = 3
    CLOSED = 4


class SlaveSession:
    """One connection. Nothing of a frame is written when any check of it fails."""

    def __init__(self, epoch: int, own: Introduction, *, learner: bool = False) -> None:
        self.epoch = epoch
        """The highest this replica has seen."""
        self._own = own
        self._learner = learner
        self._end = own.shape.end
        last = own.shape.epochs.last
        self._last_epoch = last.number if last else 0
        self._fresh = False
        self._phase = _Phase.WELCOME

    def hello(self) -> Frame:
        return Frame(
            type=FrameType.HELLO,
            master_epoch=self.epoch,
            flags=LEARNER if self._learner else 0,
            offset=self._end,
            body=encode_introduction(self._own),
        )

    def ack(self, written: int, durable: int) -> Frame:
        return ack(self.epoch, written, min(durable, written), learner=self._learner)

    def tables_taken(self, number: int) -> Frame:
        return tables_taken(self.epoch, number)

    @property
    def is_streaming(self) -> bool:
        return self._phase is _Phase.STREAMING

    def on_frame(self, frame: Frame) -> list[SlaveAction]:
        if self._phase is _Phase.CLOSED:
            return []
        if frame.master_epoch < self.epoch:
            reason = f"epoch {frame.master_epoch} of the master is over, epoch {self.epoch} has begun"
            rejection = Frame(type=FrameType.REJECT, master_epoch=self.epoch, body=encode_rejection(Rejection(reason)))
            return [Reply(rejection), *self._leave(reason, reread=True)]
        actions: list[SlaveAction] = []
        if frame.master_epoch > self.epoch:
            self.epoch = frame.master_epoch
            actions.append(SeeEpoch(frame.master_epoch))
        return actions + self._take(frame)

    def _take(self, frame: Frame) -> list[SlaveAction]:
        if frame.type is FrameType.REJECT:
            return self._leave(f"the master refused: {_reason_of(frame)}", reread=True)
        if self._phase is _Phase.WELCOME and frame.type is FrameType.WELCOME:
            return self._welcomed(frame)
        if self._phase is _Phase.STREAMING and frame.type is FrameType.DATA:
            return self._data(frame)
        if self._phase is _Phase.STREAMING and frame.type is FrameType.HEARTBEAT:
            if frame.offset != self._end:
                return self._leave(f"the master goes on at {frame.offset}, this log ends at {self._end}")
            return [ConfirmTo(min(frame.second, self._end)), Acknowledge()]
        if self._phase is _Phase.STREAMING and frame.type is FrameType.TABLES:
            return [TakeTables(frame.offset, frame.body)]
        return self._leave(f"{frame.type.name} was not expected")

    def _welcomed(self, frame: Frame) -> list[SlaveAction]:
        try:
            master = decode_introduction(frame.body)
        except RemoteProtocolError as error:
            return self._leave(str(error))
        own = self._own
        if (master.cluster, master.broker_name) != (own.cluster, own.broker_name):
            return self._leave(f"the master is of {master.cluster}/{master.broker_name}", reread=True)
        if master.segment_bytes != own.segment_bytes:
            return self._leave(f"log files have {master.segment_bytes} bytes there, {own.segment_bytes} here")
        match find_rejoin_point(own.shape, master.shape):
            case CannotJoin(reason):
                return self._leave(reason, unrelated=True)
            case CopyFrom(point, fresh=True):
                self._phase, self._fresh = _Phase.CUTTING, True
                return [StartAt(point)]
            case CopyFrom(point) if point < own.shape.end:
                self._phase = _Phase.CUTTING
                return [CutTo(point)]
        self._phase = _Phase.STREAMING
        return [Acknowledge()]

    def cut_done(self, end: int, last_epoch: int) -> list[SlaveAction]:
        """The log ends here now; the first acknowledgement tells the master where to go on."""
        self._end, self._last_epoch, self._phase = end, last_epoch, _Phase.STREAMING
        return [Acknowledge()]

    def _data(self, frame: Frame) -> list[SlaveAction]:
        if frame.offset != self._end:
            return self._leave(f"records for {frame.offset} came, this log ends at {self._end}")
        if not frame.body:
            return self._leave("records without a byte came")
        if frame.data_epoch < self._last_epoch or frame.data_epoch > frame.master_epoch:
            return self._leave(f"records of epoch {frame.data_epoch} came, this log is in epoch {self._last_epoch}")
        actions: list[SlaveAction] = []
        if frame.data_epoch > self._last_epoch:
            if frame.epoch_start != frame.offset and not self._fresh:
                return self._leave(f"epoch {frame.data_epoch} starts at {frame.epoch_start}, not at {frame.offset}")
            actions.append(BeginEpoch(frame.data_epoch, frame.epoch_start))
        actions.append(Append(frame.offset, frame.body))
        self._end, self._last_epoch, self._fresh = frame.offset + len(frame.body), frame.data_epoch, False
        return [*actions, ConfirmTo(min(frame.second, self._end)), Acknowledge()]

    def _leave(self, reason: str, *, reread: bool = False, unrelated: bool = False) -> list[SlaveAction]:
        self._phase = _Phase.CLOSED
        return [Leave(reason, reread, unrelated)]


def _reason_of(frame: Frame) -> str:
    try:
        return decode_rejection(frame.body).reason
    except RemoteProtocolError as error:
        return str(error)
