"""Fenced stream, slave side, pure: handshake, rejoin point, checks of every frame before it is applied."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rocketq.errors import RemoteProtocolError
from rocketq.replication.epochs import CannotRejoin, CopyFrom, find_rejoin_point
from rocketq.replication.fenced_auth import (
    NONCE_BYTES,
    PROOF_BYTES,
    AuthRequest,
    Credentials,
    StreamIdentity,
    clip_ranges,
    encode_auth_request,
    is_proof,
    make_proof,
)
from rocketq.replication.fenced_frames import (
    LEARNER,
    Frame,
    FrameType,
    Introduction,
    ack,
    decode_introduction,
    decode_rejection,
    encode_introduction,
    tables_ack,
)


@dataclass(frozen=True, slots=True)
class CutTo:
    """Truncate log and epochs; answered by `cut_done` with the boundary that was reached."""

    point: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """The log is empty and starts here; answered by `cut_done`."""

    offset: int


@dataclass(frozen=True, slots=True)
class HashLog:
    """Compute SHA-256 digests of these ranges of the log; answered by `log_hashed`."""

    ranges: tuple[tuple[int, int], ...]


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


SlaveAction = CutTo | StartAt | HashLog | BeginEpoch | Append | ConfirmTo | ReplaceTables | Acknowledge | Reply | Leave


class _Phase(Enum):
    AUTH_CHALLENGE = 1
    WELCOME = 2
    CUTTING = 3
    HASHING = 4
    STREAMING = 5
    CLOSED = 6


class SlaveSession:
    """One connection to the master of one epoch. Nothing is written when any check of a frame fails."""

    def __init__(
        self,
        epoch: int,
        master_id: int,
        own: Introduction,
        credentials: Credentials,
        nonce: bytes,
        *,
        learner: bool = False,
    ) -> None:
        """`epoch` and `master_id` come from the control store; `nonce` is random and used for this connection only."""
        self.epoch = epoch
        self._own = own
        self._credentials = credentials
        self._nonce = nonce
        self._identity = StreamIdentity(
            own.cluster,
            own.broker_name,
            epoch,
            master_id,
            credentials.check_codes.get(master_id, ""),
            own.broker_id,
            own.check_code,
        )
        self._learner = learner
        self._end = own.shape.end
        last = own.shape.epochs.last
        self._last_epoch = last.number if last else 0
        self._fresh = False
        self._phase = _Phase.AUTH_CHALLENGE
        self._ranges: tuple[tuple[int, int], ...] = ()
        self._digests = b""

    def auth_request(self) -> Frame:
        """The first frame of the connection."""
        identity = self._identity
        request = AuthRequest(
            identity.cluster, identity.broker_name, identity.master_id, identity.slave_id, self._nonce
        )
        return Frame(type=FrameType.AUTH_REQUEST, master_epoch=self.epoch, body=encode_auth_request(request))

    def _hello(self) -> Frame:
        return Frame(
            type=FrameType.HELLO,
            master_epoch=self.epoch,
            flags=LEARNER if self._learner else 0,
            offset=self._end,
            body=encode_introduction(self._own),
        )

    def ack(self, written: int, durable: int) -> Frame:
        digests, self._digests = self._digests, b""
        return ack(self.epoch, written, min(durable, written), learner=self._learner, body=digests)

    def tables_ack(self, number: int) -> Frame:
        return tables_ack(self.epoch, number)

    @property
    def is_authenticated(self) -> bool:
        """Whether the master has proved that it knows the secret."""
        return self._phase not in (_Phase.AUTH_CHALLENGE, _Phase.CLOSED)

    @property
    def is_streaming(self) -> bool:
        return self._phase is _Phase.STREAMING

    def on_frame(self, frame: Frame) -> list[SlaveAction]:
        if self._phase is _Phase.CLOSED:
            return []
        if frame.type is FrameType.REJECT:
            return self._on_reject(frame)
        if frame.master_epoch != self.epoch:
            reason = f"the master sent a frame of epoch {frame.master_epoch}, this stream is of epoch {self.epoch}"
            return self._leave(reason, reread=True)
        if self._phase is _Phase.AUTH_CHALLENGE and frame.type is FrameType.AUTH_CHALLENGE:
            return self._on_challenge(frame)
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

    def _on_reject(self, frame: Frame) -> list[SlaveAction]:
        try:
            rejection = decode_rejection(frame.body)
        except RemoteProtocolError as error:
            return self._leave(f"the master rejected the stream: {error}", reread=True)
        unrelated = rejection.log_differs and self._phase is _Phase.STREAMING
        return self._leave(f"the master rejected the stream: {rejection.reason}", reread=True, unrelated=unrelated)

    def _on_challenge(self, frame: Frame) -> list[SlaveAction]:
        master_nonce, proof = frame.body[:NONCE_BYTES], frame.body[NONCE_BYTES:]
        if len(frame.body) != NONCE_BYTES + PROOF_BYTES or not is_proof(
            proof, self._credentials, "master", self._identity, self._nonce, master_nonce
        ):
            return self._leave("authentication failed: the peer is not the master, or the secrets differ", reread=True)
        own = make_proof(self._credentials, "slave", self._identity, self._nonce, master_nonce)
        self._phase = _Phase.WELCOME
        return [Reply(Frame(type=FrameType.AUTH_PROOF, master_epoch=self.epoch, body=own)), Reply(self._hello())]

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
        self._ranges = master.checked_ranges
        match find_rejoin_point(own.shape, master.shape):
            case CannotRejoin(reason):
                return self._leave(reason, unrelated=True)
            case CopyFrom(point, fresh=True):
                self._phase, self._fresh = _Phase.CUTTING, True
                return [StartAt(point)]
            case CopyFrom(point) if point < own.shape.end:
                self._phase = _Phase.CUTTING
                return [CutTo(point)]
        return self._hash_log()

    def cut_done(self, end: int, last_epoch: int) -> list[SlaveAction]:
        """The log ends here now; the first acknowledgement sets the master's start offset."""
        self._end, self._last_epoch = end, last_epoch
        return self._hash_log()

    def _hash_log(self) -> list[SlaveAction]:
        self._phase = _Phase.HASHING
        return [HashLog(clip_ranges(self._ranges, self._end))]

    def log_hashed(self, digests: bytes) -> list[SlaveAction]:
        """The first acknowledgement carries the digests of the ranges that the master checks."""
        self._digests, self._phase = digests, _Phase.STREAMING
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
