"""Frames of the fenced stream: bytes in, values out.

frame  := header body
header := magic:i32 version:i8 type:i8 flags:i16 master_epoch:i32 data_epoch:i32 epoch_start:i64
          offset:i64 second:i64 body_length:i32 body_crc:i32 header_crc:i32          52 bytes, big-endian
offset := DATA its first byte | HEARTBEAT the next byte | ACK the written end | HELLO the log's end
          | TABLES, TABLES_ACK table version
second := DATA, HEARTBEAT the confirm offset | ACK the durable end
body   := AUTH_REQUEST, HELLO, WELCOME, REJECT, TABLES: JSON | AUTH_CHALLENGE: nonce proof | AUTH_PROOF: proof
          | first ACK: SHA-256 digests of the ranges that WELCOME names
          | DATA: whole records of one epoch and one log file | others: empty
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final
from zlib import crc32

from rocketq.errors import RemoteProtocolError, StoreError
from rocketq.replication.epochs import Epoch, EpochList, LogShape

MAGIC: Final = 0x524D4841
VERSION: Final = 2
LEARNER: Final = 1
BODY_BYTES_MAX: Final = 64 << 20
"""Limit of a frame's body. A single record may exceed a batch, but not this."""

_HEADER: Final = struct.Struct(">ibbhiiqqqiI")
_CRC: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size


class FrameType(IntEnum):
    HELLO = 1
    WELCOME = 2
    DATA = 3
    HEARTBEAT = 4
    ACK = 5
    REJECT = 6
    TABLES = 7
    TABLES_ACK = 8
    AUTH_REQUEST = 9
    AUTH_CHALLENGE = 10
    AUTH_PROOF = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    type: FrameType
    master_epoch: int
    """The highest epoch the sender knows: the fence."""
    flags: int = 0
    data_epoch: int = 0
    epoch_start: int = 0
    offset: int = 0
    second: int = 0
    body: bytes = b""


def encode_frame(frame: Frame) -> bytes:
    return encode_header(frame) + frame.body


def encode_header(frame: Frame) -> bytes:
    """Header of a frame; the caller writes the body itself."""
    head = _HEADER.pack(
        MAGIC,
        VERSION,
        frame.type,
        frame.flags,
        frame.master_epoch,
        frame.data_epoch,
        frame.epoch_start,
        frame.offset,
        frame.second,
        len(frame.body),
        crc32(frame.body),
    )
    return head + _CRC.pack(crc32(head))


class FrameDecoder:
    """Incremental decoder. RemoteProtocolError for an invalid frame; the decoder is unusable after it."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self.body_bytes_max = body_bytes_max
        """May be raised between two frames, after the peer has authenticated itself."""
        self._pending = bytearray()

    def feed(self, chunk: bytes | memoryview) -> Iterator[Frame]:
        """Frames that these bytes complete, in order. A limit raised while iterating applies to the next frame."""
        self._pending += chunk
        at = 0
        try:
            while (end := self._frame_end(at)) is not None:
                frame = _decode(self._pending, at, end)
                at = end
                yield frame
        finally:
            del self._pending[:at]

    def _frame_end(self, at: int) -> int | None:
        """End of the frame at `at` when it is complete; checks the header."""
        if len(self._pending) - at < HEADER_BYTES:
            return None
        length = _check_header(self._pending, at)
        if length > self.body_bytes_max:
            raise RemoteProtocolError(f"a frame's body of {length} bytes is larger than {self.body_bytes_max}")
        end = at + HEADER_BYTES + length
        return end if end <= len(self._pending) else None


def _check_header(data: bytearray, at: int) -> int:
    """Check a complete header; the length of the body."""
    (given,) = _CRC.unpack_from(data, at + _HEADER.size)
    magic, version, *_, length, _ = _HEADER.unpack_from(data, at)
    if magic != MAGIC:
        raise RemoteProtocolError(f"not a replication frame: magic is {magic & 0xFFFFFFFF:#010x}")
    if given != crc32(memoryview(data)[at : at + _HEADER.size]):
        raise RemoteProtocolError("a frame's header does not match its checksum")
    if version != VERSION:
        raise RemoteProtocolError(f"version {version} of the replication stream is not known, only {VERSION} is")
    if length < 0:
        raise RemoteProtocolError(f"a frame's body cannot have {length} bytes")
    return int(length)


def _decode(data: bytearray, at: int, end: int) -> Frame:
    _, _, kind, flags, master_epoch, data_epoch, epoch_start, offset, second, _, body_crc = _HEADER.unpack_from(
        data, at
    )
    with memoryview(data) as view:
        body = bytes(view[at + HEADER_BYTES : end])
    if crc32(body) != body_crc:
        raise RemoteProtocolError("a frame's body does not match its checksum")
    try:
        frame_type = FrameType(kind)
    except ValueError:
        raise RemoteProtocolError(f"type {kind} of a replication frame is not known") from None
    if min(master_epoch, data_epoch, epoch_start, offset, second) < 0:
        raise RemoteProtocolError("a frame's epochs and offsets cannot be negative")
    return Frame(
        type=frame_type,
        master_epoch=master_epoch,
        flags=flags,
        data_epoch=data_epoch,
        epoch_start=epoch_start,
        offset=offset,
        second=second,
        body=body,
    )


def data_frame(
    master_epoch: int, data_epoch: int, epoch_start: int, offset: int, confirm_offset: int, body: bytes
) -> Frame:
    return Frame(
        type=FrameType.DATA,
        master_epoch=master_epoch,
        data_epoch=data_epoch,
        epoch_start=epoch_start,
        offset=offset,
        second=confirm_offset,
        body=body,
    )


def heartbeat(master_epoch: int, offset: int, confirm_offset: int) -> Frame:
    return Frame(type=FrameType.HEARTBEAT, master_epoch=master_epoch, offset=offset, second=confirm_offset)


def ack(master_epoch: int, written_end: int, durable_end: int, *, learner: bool = False, body: bytes = b"") -> Frame:
    return Frame(
        type=FrameType.ACK,
        master_epoch=master_epoch,
        flags=LEARNER if learner else 0,
        offset=written_end,
        second=durable_end,
        body=body,
    )


def tables(master_epoch: int, number: int, body: bytes) -> Frame:
    return Frame(type=FrameType.TABLES, master_epoch=master_epoch, offset=number, body=body)


def tables_ack(master_epoch: int, number: int) -> Frame:
    return Frame(type=FrameType.TABLES_ACK, master_epoch=master_epoch, offset=number)


def encode_all(frames: Sequence[Frame]) -> bytes:
    return b"".join(map(encode_frame, frames))


@dataclass(frozen=True, slots=True)
class Introduction:
    """HELLO of a slave, WELCOME of a master."""

    cluster: str
    broker_name: str
    broker_id: int
    check_code: str
    segment_bytes: int
    shape: LogShape
    checked_ranges: tuple[tuple[int, int], ...] = ()
    """WELCOME: (offset, length) of the ranges whose digests the slave sends with its first acknowledgement."""


@dataclass(frozen=True, slots=True)
class Rejection:
    reason: str
    log_differs: bool = False
    """The slave's log is not a prefix of the master's: copying cannot continue."""


def encode_introduction(one: Introduction) -> bytes:
    return json.dumps(
        {
            "cluster": one.cluster,
            "brokerName": one.broker_name,
            "brokerId": one.broker_id,
            "checkCode": one.check_code,
            "fileSize": one.segment_bytes,
            "logMin": one.shape.start,
            "logEnd": one.shape.end,
            "epochs": [[entry.number, entry.start] for entry in one.shape.epochs],
            "check": one.checked_ranges,
        }
    ).encode()


def decode_introduction(body: bytes) -> Introduction:
    """RemoteProtocolError for an invalid body."""
    fields = _object(body)
    try:
        epochs = EpochList(Epoch(int(number), int(start)) for number, start in fields["epochs"])
        shape = LogShape(int(fields["logMin"]), int(fields["logEnd"]), epochs)
        return Introduction(
            str(fields["cluster"]),
            str(fields["brokerName"]),
            int(fields["brokerId"]),
            str(fields.get("checkCode", "")),
            int(fields["fileSize"]),
            shape,
            tuple((int(offset), int(length)) for offset, length in fields.get("check", ())),
        )
    except (KeyError, TypeError, ValueError, OverflowError, StoreError) as error:
        raise RemoteProtocolError(f"not a replica's introduction: {error!r}") from None


def encode_rejection(rejection: Rejection) -> bytes:
    return json.dumps({"reason": rejection.reason, "logDiffers": rejection.log_differs}).encode()


def decode_rejection(body: bytes) -> Rejection:
    fields = _object(body)
    return Rejection(str(fields.get("reason", "")), fields.get("logDiffers") is True)


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RemoteProtocolError("not a JSON object")
    return fields
