"""Wire format of the classic stream between master and slave, compatible with Apache 4.x.

    slave to master   report := logEnd:i64                          all up to here is in the slave's log
    master to slave   frame  := logOffset:i64 size:i32 size*byte    bytes of the log; size 0 is a heartbeat

Big-endian; no magic, no version, no checksum. A frame never crosses the end of a log file. TCP splits it anywhere.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from rocketq.errors import RemoteProtocolError

REPORT_BYTES: Final = 8
HEADER_BYTES: Final = 12
_REPORT: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">qi")


def encode_report(log_end: int) -> bytes:
    return _REPORT.pack(log_end)


def encode_header(log_offset: int, size_bytes: int) -> bytes:
    """Header of a frame; size 0 is a heartbeat."""
    return _HEADER.pack(log_offset, size_bytes)


class ReportReader:
    """Decodes a slave's reports; only the last one of a read matters."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> int | None:
        """The last report that is complete now; None when there is none."""
        data = self._rest + chunk
        whole = len(data) - len(data) % REPORT_BYTES
        self._rest = data[whole:]
        if not whole:
            return None
        (log_end,) = _REPORT.unpack_from(data, whole - REPORT_BYTES)
        return int(log_end)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a frame's body; empty for a heartbeat."""

    log_offset: int
    data: memoryview


class FrameReader:
    """Decodes a master's frames. Bodies are returned as views of the input, without buffering."""

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._header = b""
        self._offset = 0
        self._left = 0

    def feed(self, chunk: bytes | memoryview) -> list[Piece]:
        """Pieces in order. RemoteProtocolError for an invalid header; the stream cannot continue after it."""
        view, at, end, pieces = memoryview(chunk), 0, len(chunk), list[Piece]()
        while at < end:
            if self._left:
                taken = min(self._left, end - at)
                pieces.append(Piece(self._offset, view[at : at + taken]))
                self._offset += taken
                self._left -= taken
                at += taken
                continue
            missing = HEADER_BYTES - len(self._header)
            self._header += view[at : at + missing]
            at += missing
            if len(self._header) == HEADER_BYTES:
                self._begin()
                if not self._left:
                    pieces.append(Piece(self._offset, view[:0]))
        return pieces

    def _begin(self) -> None:
        self._offset, self._left = _HEADER.unpack(self._header)
        self._header = b""
        if self._offset < 0 or self._left < 0:
            raise RemoteProtocolError(f"no frame of a log: {self._left} bytes at {self._offset}")
        if self._left > self._segment_bytes - self._offset % self._segment_bytes:
            raise RemoteProtocolError(
                f"{self._left} bytes at {self._offset} would cross the end of a log file of {self._segment_bytes}: is "
                f"mappedFileSizeCommitLog the same on master and slave?"
            )
