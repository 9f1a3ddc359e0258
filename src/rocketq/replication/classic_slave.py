"""Classic stream, slave side, pure: what may be appended and what is reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketq.errors import RemoteProtocolError
from rocketq.replication.classic_frames import FrameReader, Piece, encode_report

_SIZE_BYTES: Final = 4
_HEAD_BYTES: Final = 8  # size and magic of a record, the minimum to check it


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """Heartbeat interval and silence timeout of a connection."""

    heartbeat_ms: int = 5_000
    silence_ms_max: int = 20_000


class ClassicSlaveSession:
    """Sends a report of the log end first: the master sends nothing before it. Then bytes must be contiguous, and the
    log end is reported whenever it changes."""

    def __init__(self, log_end: int, segment_bytes: int, times: StreamTimes, now_ms: int) -> None:
        self._frames = FrameReader(segment_bytes)
        self._segment_bytes = segment_bytes
        self._times = times
        self._log_end = log_end
        self._expected = log_end
        self._gathered = bytearray()  # reused: fresh memory for every read costs more than the copy
        self._gathered_bytes = 0
        self._needed = _HEAD_BYTES
        self._read_ms = self._written_ms = now_ms
        self.starts_at: int | None = None
        """Start offset for an empty log, from the master; set it in the store before the first append."""

    @property
    def last_read_ms(self) -> int:
        return self._read_ms

    @property
    def last_written_ms(self) -> int:
        return self._written_ms

    # to the master

    def report(self, now_ms: int) -> bytes:
        self._written_ms = now_ms
        return encode_report(self._log_end)

    def on_tick(self, now_ms: int) -> bytes:
        """A report after an idle interval."""
        return self.report(now_ms) if now_ms - self._written_ms >= self._times.heartbeat_ms else b""

    def is_silent(self, now_ms: int) -> bool:
        """Whether the master was silent for too long."""
        return now_ms - self._read_ms > self._times.silence_ms_max

    # from the master

    def on_bytes(self, chunk: bytes | memoryview, now_ms: int) -> None:
        """RemoteProtocolError when the bytes do not continue the log; earlier ones can be appended. `chunk` may be
        reused afterwards."""
        self._read_ms = now_ms
        for piece in self._frames.feed(chunk):
            self._absorb(piece)

    def _absorb(self, piece: Piece) -> None:
        if piece.log_offset != self._expected and not self._starts_with(piece):
            raise RemoteProtocolError(
                f"the master continues at {piece.log_offset}, this log at {self._expected}: nothing is written"
            )
        if piece.data:
            end = self._gathered_bytes + len(piece.data)
            if end > len(self._gathered):
                self._gathered += bytes(end - len(self._gathered))
            self._gathered[self._gathered_bytes : end] = piece.data
            self._gathered_bytes = end
            self._expected += len(piece.data)

    def _starts_with(self, piece: Piece) -> bool:
        """An empty log may start at the first byte of any log file."""
        if self._expected != 0 or self._gathered_bytes:
            return False
        if not piece.data:
            return True
        if piece.log_offset % self._segment_bytes:
            return False
        self.starts_at = self._log_end = self._expected = piece.log_offset
        return True

    def take_start(self) -> int | None:
        """Start offset of an empty log, returned once; None otherwise."""
        starts_at, self.starts_at = self.starts_at, None
        return starts_at

    def take(self) -> tuple[int, memoryview]:
        """Offset and bytes to append; empty until they can contain a whole record. The buffer is reused, so do not keep
        the view."""
        size = self._gathered_bytes if self._gathered_bytes >= self._needed else 0
        return self._log_end, memoryview(self._gathered)[:size]

    def appended(self, log_end: int, now_ms: int) -> bytes:
        """The log ends here after an append: a report when it changed. Remaining bytes are offered again."""
        taken = log_end - self._log_end
        rest = self._gathered_bytes - taken
        if taken and rest:
            self._gathered[:rest] = self._gathered[taken : self._gathered_bytes]
        self._gathered_bytes = rest
        self._needed = self._first_size()
        moved, self._log_end = log_end > self._log_end, log_end
        return self.report(now_ms) if moved else b""

    def _first_size(self) -> int:
        known = self._gathered_bytes >= _SIZE_BYTES
        size = int.from_bytes(self._gathered[:_SIZE_BYTES], "big") if known else 0
        return size if _HEAD_BYTES <= size <= self._segment_bytes else _HEAD_BYTES
