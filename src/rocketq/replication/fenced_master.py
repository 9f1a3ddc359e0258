"""Fenced stream, master side, pure: authentication, handshake, next batch to send, checks of acknowledgements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from rocketq.errors import RemoteProtocolError
from rocketq.replication.epochs import CannotRejoin, CopyFrom, LogShape, find_rejoin_point
from rocketq.replication.fenced_auth import (
    Credentials,
    StreamIdentity,
    clip_ranges,
    decode_auth_request,
    is_proof,
    make_proof,
    sample_ranges,
)
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
class ReadControl:
    """The peer names an epoch or a replica that this master does not know: read the control store, believe nothing."""


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The slave has proved that it is this replica."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class CheckLog:
    """Compare these digests with the own log; answered by `log_checked`."""

    ranges: tuple[tuple[int, int], ...]
    digests: bytes


@dataclass(frozen=True, slots=True)
class Close:
    reason: str


MasterAction = Send | Acked | TablesStored | ReadControl | Authenticated | CheckLog | Close


class _Phase(Enum):
    AUTH_REQUEST = 1
    AUTH_PROOF = 2
    HELLO = 3
    FIRST_ACK = 4
    CHECKING = 5
    STREAMING = 6
    CLOSED = 7


@dataclass(frozen=True, slots=True)
class Piece:
    """Send whole records from `offset`, none of them beyond `limit` (None: up to the log's end)."""

    offset: int
    limit: int | None
    epoch: int
    epoch_start: int


class MasterSession:
    """One connection in one epoch. The slave learns nothing before it has proved who it is."""

    def __init__(self, epoch: int, own: Introduction, credentials: Credentials, nonce: bytes) -> None:
        """`nonce` is random and used for this connection only."""
        self._epoch = epoch
        self._own = own
        self._credentials = credentials
        self._nonce = nonce
        self._slave_nonce = b""
        self._identity: StreamIdentity | None = None
        self._phase = _Phase.AUTH_REQUEST
        self._point = 0
        self._ranges: tuple[tuple[int, int], ...] = ()
        self._first_ack: Frame | None = None
        self._learner = False
        self.slave_id = 0
        self.next_offset: int | None = None

    def on_frame(self, frame: Frame, shape: LogShape) -> list[MasterAction]:
        """Actions for a frame, given the current log."""
        if self._phase is _Phase.CLOSED:
            return []
        if self._phase is _Phase.AUTH_REQUEST and frame.type is FrameType.AUTH_REQUEST:
            return self._on_auth_request(frame)
        if self._phase is _Phase.AUTH_PROOF and frame.type is FrameType.AUTH_PROOF:
            return self._on_proof(frame)
        if frame.master_epoch != self._epoch:
            return self._close(f"the frame is of epoch {frame.master_epoch}, this stream of {self._epoch}")
        if self._phase is _Phase.HELLO and frame.type is FrameType.HELLO:
            return self._on_hello(frame, shape)
        if self._phase in (_Phase.FIRST_ACK, _Phase.CHECKING, _Phase.STREAMING) and frame.type is FrameType.ACK:
            return self._on_ack(frame, shape)
        if self._phase is _Phase.STREAMING and frame.type is FrameType.TABLES_ACK:
            return [TablesStored(self.slave_id, frame.offset)]
        return self._close(f"{frame.type.name} is unexpected")

    @property
    def is_authenticated(self) -> bool:
        return self._phase not in (_Phase.AUTH_REQUEST, _Phase.AUTH_PROOF) and self.slave_id > 0

    def _on_auth_request(self, frame: Frame) -> list[MasterAction]:
        try:
            request = decode_auth_request(frame.body)
        except RemoteProtocolError as error:
            return self._close(str(error))
        own, codes = self._own, self._credentials.check_codes
        if (request.cluster, request.broker_name, request.master_id) != (own.cluster, own.broker_name, own.broker_id):
            return self._reject("it calls another replica", anonymous=True)
        if request.slave_id == own.broker_id or request.slave_id <= 0:
            return self._reject(f"{request.slave_id} is not the id of a slave", anonymous=True)
        if frame.master_epoch != self._epoch or request.slave_id not in codes:
            newer = frame.master_epoch > self._epoch or request.slave_id not in codes
            rejected = self._reject("its epoch or id is unknown here", anonymous=True)
            return [ReadControl(), *rejected] if newer else rejected
        self._identity = StreamIdentity(
            own.cluster,
            own.broker_name,
            self._epoch,
            own.broker_id,
            own.check_code,
            request.slave_id,
            codes[request.slave_id],
        )
        self._slave_nonce, self._phase = request.nonce, _Phase.AUTH_PROOF
        proof = make_proof(self._credentials, "master", self._identity, self._slave_nonce, self._nonce)
        return [Send(Frame(type=FrameType.AUTH_CHALLENGE, master_epoch=self._epoch, body=self._nonce + proof))]

    def _on_proof(self, frame: Frame) -> list[MasterAction]:
        assert self._identity is not None
        if not is_proof(frame.body, self._credentials, "slave", self._identity, self._slave_nonce, self._nonce):
            return self._reject(f"its proof for replica {self._identity.slave_id} is wrong", anonymous=True)
        self.slave_id, self._phase = self._identity.slave_id, _Phase.HELLO
        return [Authenticated(self.slave_id)]

    def _on_hello(self, frame: Frame, shape: LogShape) -> list[MasterAction]:
        try:
            slave = decode_introduction(frame.body)
        except RemoteProtocolError as error:
            return self._close(str(error))
        own = self._own
        if (slave.cluster, slave.broker_name) != (own.cluster, own.broker_name):
            return self._reject(f"this is not a replica of {own.cluster}/{own.broker_name}")
        if slave.broker_id != self.slave_id:
            return self._reject(f"replica {self.slave_id} introduces itself as {slave.broker_id}")
        if slave.segment_bytes != own.segment_bytes:
            return self._reject(
                f"mappedFileSizeCommitLog differs: master {own.segment_bytes}, slave {slave.segment_bytes}"
            )
        self._learner = bool(frame.flags & LEARNER)
        match find_rejoin_point(slave.shape, shape):
            case CopyFrom(point):
                self._point, self._phase = point, _Phase.FIRST_ACK
                self._ranges = sample_ranges(max(slave.shape.start, shape.start), point, self._nonce)
            case CannotRejoin():  # the slave finds the same result and logs it
                self._phase = _Phase.CLOSED
        welcome = Frame(
            type=FrameType.WELCOME,
            master_epoch=self._epoch,
            offset=shape.end,
            body=encode_introduction(replace(own, shape=shape, checked_ranges=self._ranges)),
        )
        return [Send(welcome)]

    def _on_ack(self, frame: Frame, shape: LogShape) -> list[MasterAction]:
        if frame.offset > shape.end or frame.second > frame.offset:
            return self._close(f"the slave acknowledges {frame.offset}/{frame.second}, the log ends at {shape.end}")
        if self._phase is _Phase.FIRST_ACK:
            if frame.offset > self._point:
                return self._close(f"the slave continues at {frame.offset}, the logs diverge at {self._point}")
            self._first_ack, self._phase = frame, _Phase.CHECKING
            return [CheckLog(clip_ranges(self._ranges, frame.offset), frame.body)]
        if self._phase is _Phase.CHECKING:
            if self._first_ack is None or frame.offset != self._first_ack.offset:
                return self._close("the slave acknowledges records that it was not sent")
            self._first_ack = frame
            return []
        if self.next_offset is not None and frame.offset > self.next_offset:
            return self._close(f"the slave acknowledges {frame.offset}, it was sent up to {self.next_offset}")
        return [Acked(self.slave_id, frame.offset, frame.second, self._learner)]

    def log_checked(self, mismatch: str | None) -> list[MasterAction]:
        """The slave's digests were compared with the own log; its acknowledgements count only when they are equal."""
        if self._phase is not _Phase.CHECKING or self._first_ack is None:
            return []
        if mismatch is not None:
            return self._reject(mismatch, differs=True)
        first = self._first_ack
        self.next_offset, self._phase = first.offset, _Phase.STREAMING
        return [Acked(self.slave_id, first.offset, first.second, self._learner)]

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

    def _reject(self, reason: str, *, anonymous: bool = False, differs: bool = False) -> list[MasterAction]:
        """`anonymous`: the peer has not authenticated itself and learns neither reason nor epoch."""
        told = Rejection("authentication failed" if anonymous else reason, differs)
        epoch = 0 if anonymous else self._epoch
        frame = Frame(type=FrameType.REJECT, master_epoch=epoch, body=encode_rejection(told))
        return [Send(frame), *self._close(reason)]

    def _close(self, reason: str) -> list[MasterAction]:
        self._phase = _Phase.CLOSED
        return [Close(reason)]
