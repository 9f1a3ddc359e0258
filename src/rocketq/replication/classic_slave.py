"""A slave's end of a classic connection: what is expected, what may be appended, what is reported. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketq.errors import RemoteProtocolError
from rocketq.replication.classic_frames import FrameReader, Piece, encode_report

_SIZE_BYTES: Final = 4
_HEAD_BYTES: Final = 8  # of a record: its size and magic, enough to tell whether it can be one


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """When to say that one is there, and when to give up one who does not."""

    heartbeat_ms: int = 5_000
    silence_ms_max: int = 20_000


class Following:
    """Begins with a report of the log's end: the master sends nothing before it. From then on bytes must follow each
    other without a gap, and the log's end is reported whenever it has moved."""

    def __init__(self, log_end: int, segment_bytes: int, times: StreamTimes, now_ms: int) -> None:
        self._frames = FrameReader(segment_bytes)
        self._segment_bytes = segment_bytes
        self._times = times
        self._log_end = log_end
        self._expected = log_end
        self._gathered = bytearray()  # used again and again: fresh memory for every read costs more than the copy
        self._gathered_bytes = 0
        self._needed = _HEAD_BYTES
        self._read_ms = self._written_ms = now_ms
        self.starts_at: int | None = None
        """Where an empty log begins, once its master has said so; the store must be told before bytes are appended."""

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
        """A report when nothing was said for a while."""
        return self.report(now_ms) if now_ms - self._written_ms >= self._times.heartbeat_ms else b""

    def is_silent(self, now_ms: int) -> bool:
        """Whether the master has said nothing for too long."""
        return now_ms - self._read_ms > self._times.silence_ms_max

    # from the master

    def on_bytes(self, chunk: bytes | memoryview, now_ms: int) -> None:
        """RemoteProtocolError when they do not continue our log; what came before them can still be taken. `chunk` is
        free afterwards."""
        self._read_ms = now_ms
        for piece in self._frames.feed(chunk):
            self._absorb(piece)

    def _absorb(self, piece: Piece) -> None:
        if piece.log_offset != self._expected and not self._starts_with(piece):
            raise RemoteProtocolError(
                f"the master goes on at {piece.log_offset}, our log at {self._expected}: nothing is written"
            )
        if piece.data:
            end = self._gathered_bytes + len(piece.data)
            if end > len(self._gathered):
                self._gathered += bytes(end - len(self._gathered))
            self._gathered[self._gathered_bytes : end] = piece.data
            self._gathered_bytes = end
            self._expected += len(piece.data)

    def _starts_with(self, piece: Piece) -> bool:
        """An empty log takes what it is given first, from the start of a file on."""
        if self._expected != 0 or self._gathered_bytes:
            return False
        if not piece.data:
            return True
        if piece.log_offset % self._segment_bytes:
            return False
        self.starts_at = self._log_end = self._expected = piece.log_offset
        return True

    def take_start(self) -> int | None:
        """Where the empty log of this slave has to begin, once; None where it goes on."""
        starts_at, self.starts_at = self.starts_at, None
        return starts_at

    def take(self) -> tuple[int, memoryview]:
        """Where to append, and what: everything that has come, once that can be a whole record; else nothing. Not
        to be kept: more bytes go to the same place."""
        size = self._gathered_bytes if self._gathered_bytes >= self._needed else 0
        return self._log_end, memoryview(self._gathered)[:size]

    def appended(self, log_end: int, now_ms: int) -> bytes:
        """The log ends here after what was taken: a report when it has moved. What is left comes again."""
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
