"""Fenced stream, slave side, pure: handshake, rejoin point, checks of every frame before it is applied."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rocketq.errors import RemoteProtocolError
from rocketq.replication.epochs import CannotRejoin, CopyFrom, find_rejoin_point
from rocketq.replication.fenced_frames import (
    LEARNER,
    Frame,
    FrameType,
    Introduction,
    Rejection,
    ack,
    decode_introduction,
    decode_rejection,
    encode_introduction,
    encode_rejection,
    tables_ack,
)


@dataclass(frozen=True, slots=True)
class SeeEpoch:
    """Persist this epoch before anything that follows."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CutTo:
    """Truncate log and epochs; answered by `cut_done` with the boundary that was reached."""

    point: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """The log is empty and starts here; answered by `cut_done`."""

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
class ReplaceTables:
    """Replace topics and groups by the master's; answered by `tables_ack` when they are on disk."""

    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Send both log ends to the master."""


@dataclass(frozen=True, slots=True)
class Reply:
    frame: Frame


@dataclass(frozen=True, slots=True)
class Leave:
    """Close. `reread`: the master may have changed; `unrelated`: the logs have no common epoch."""

    reason: str
    reread: bool = False
    unrelated: bool = False


SlaveAction = SeeEpoch | CutTo | StartAt | BeginEpoch | Append | ConfirmTo | ReplaceTables | Acknowledge | Reply | Leave


class _Phase(Enum):
    WELCOME = 1
    CUTTING = 2
    STREAMING = 3
    CLOSED = 4


class SlaveSession:
    """One connection. Nothing is written when any check of a frame fails."""

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

    def tables_ack(self, number: int) -> Frame:
        return tables_ack(self.epoch, number)

    @property
    def is_streaming(self) -> bool:
        return self._phase is _Phase.STREAMING

    def on_frame(self, frame: Frame) -> list[SlaveAction]:
        if self._phase is _Phase.CLOSED:
            return []
        if frame.master_epoch < self.epoch:
            reason = f"the master's epoch {frame.master_epoch} is outdated, the current epoch is {self.epoch}"
            rejection = Frame(type=FrameType.REJECT, master_epoch=self.epoch, body=encode_rejection(Rejection(reason)))
            return [Reply(rejection), *self._leave(reason, reread=True)]
        actions: list[SlaveAction] = []
        if frame.master_epoch > self.epoch:
            self.epoch = frame.master_epoch
            actions.append(SeeEpoch(frame.master_epoch))
        return actions + self._on_frame(frame)

    def _on_frame(self, frame: Frame) -> list[SlaveAction]:
        if frame.type is FrameType.REJECT:
            return self._leave(f"the master rejected the stream: {_reason_of(frame)}", reread=True)
        if self._phase is _Phase.WELCOME and frame.type is FrameType.WELCOME:
            return self._on_welcome(frame)
        if self._phase is _Phase.STREAMING and frame.type is FrameType.DATA:
            return self._data(frame)
        if self._phase is _Phase.STREAMING and frame.type is FrameType.HEARTBEAT:
            if frame.offset != self._end:
                return self._leave(f"the master continues at {frame.offset}, this log ends at {self._end}")
            return [ConfirmTo(min(frame.second, self._end)), Acknowledge()]
        if self._phase is _Phase.STREAMING and frame.type is FrameType.TABLES:
            return [ReplaceTables(frame.offset, frame.body)]
        return self._leave(f"{frame.type.name} is unexpected")

    def _on_welcome(self, frame: Frame) -> list[SlaveAction]:
        try:
            master = decode_introduction(frame.body)
        except RemoteProtocolError as error:
            return self._leave(str(error))
        own = self._own
        if (master.cluster, master.broker_name) != (own.cluster, own.broker_name):
            return self._leave(f"the master is of {master.cluster}/{master.broker_name}", reread=True)
        if master.segment_bytes != own.segment_bytes:
            return self._leave(
                f"mappedFileSizeCommitLog differs: master {master.segment_bytes}, slave {own.segment_bytes}"
            )
        match find_rejoin_point(own.shape, master.shape):
            case CannotRejoin(reason):
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
        """The log ends here now; the first acknowledgement sets the master's start offset."""
        self._end, self._last_epoch, self._phase = end, last_epoch, _Phase.STREAMING
        return [Acknowledge()]

    def _data(self, frame: Frame) -> list[SlaveAction]:
        if frame.offset != self._end:
            return self._leave(f"received records at {frame.offset}, this log ends at {self._end}")
        if not frame.body:
            return self._leave("received an empty DATA frame")
        if frame.data_epoch < self._last_epoch or frame.data_epoch > frame.master_epoch:
            return self._leave(f"received records of epoch {frame.data_epoch}, this log is in epoch {self._last_epoch}")
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
