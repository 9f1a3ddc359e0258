"""Classic stream, master side, pure: the offset of each slave and what it is sent next."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from rocketq.errors import RemoteProtocolError
from rocketq.replication.classic_frames import ReportReader, encode_header
from rocketq.replication.classic_slave import StreamTimes

BATCH_MIN_BYTES: Final = 32 << 10


@dataclass(frozen=True, slots=True)
class LogExtent:
    """Offsets of a master's log: [start, end) and the start of its last file."""

    start: int
    end: int
    last_file: int


class ClassicMasterSession:
    """One slave. It sends the first report; the stream starts at the log end in that report."""

    def __init__(self, times: StreamTimes, now_ms: int, *, from_last_file: bool = False) -> None:
        self._times = times
        self._from_last_file = from_last_file
        self._reports = ReportReader()
        self._read_ms = self._written_ms = now_ms
        self.acked_to = -1
        """The last reported log end; -1 before the first report."""
        self.sent_to = -1
        """Offset of the next byte to send; -1 before the first report."""
        self._sent_all_to = -1

    # from the slave

    def on_bytes(self, chunk: bytes, log: LogExtent, now_ms: int) -> bool:
        """Whether a report arrived. RemoteProtocolError when the slave cannot follow this log: it is ahead, or needs
        deleted bytes."""
        self._read_ms = now_ms
        report = self._reports.feed(chunk)
        if report is None:
            return False
        if not 0 <= report <= log.end:
            raise RemoteProtocolError(f"it reports {report}, this log ends at {log.end}: the slave is ahead")
        if self.sent_to < 0:
            self.sent_to = self._first(report, log)
        self.acked_to = report
        return True

    def _first(self, report: int, log: LogExtent) -> int:
        """An empty slave gets the whole log (Apache's masters send only the last file)."""
        if report == 0:
            return log.last_file if self._from_last_file else log.start
        if report < log.start:
            raise RemoteProtocolError(f"its log ends at {report}, this log starts at {log.start}: copy the store again")
        return report

    def is_silent(self, now_ms: int) -> bool:
        return now_ms - self._read_ms > self._times.silence_ms_max

    # to the slave

    def waits(self, log_end: int) -> bool:
        """Whether to collect more bytes first: the slave has not reported the last frame and little data is pending.
        Fewer and larger frames cost less on both sides. Only after whole records, because a slave never reports a part
        of one."""
        return self.acked_to < self.sent_to == self._sent_all_to and log_end - self.sent_to < BATCH_MIN_BYTES

    def sent(self, size_bytes: int, now_ms: int, log_end: int = -1) -> bytes:
        """The header of the next `size_bytes`; they count as sent."""
        header = encode_header(self.sent_to, size_bytes)
        self.sent_to += size_bytes
        if self.sent_to == log_end:
            self._sent_all_to = log_end
        self._written_ms = now_ms
        return header

    def on_tick(self, now_ms: int) -> bytes:
        """A heartbeat after an idle interval."""
        if self.sent_to < 0 or now_ms - self._written_ms < self._times.heartbeat_ms:
            return b""
        return self.sent(0, now_ms)


class ReplicaAcks:
    """Acknowledgements of all slaves: the largest one counts and never decreases."""

    def __init__(self, behind_bytes_max: int) -> None:
        self._behind_bytes_max = behind_bytes_max
        self._slaves: set[Hashable] = set()
        self.reached = 0

    def on_report(self, slave: Hashable, acked_to: int) -> bool:
        """Whether the largest acknowledgement increased."""
        self._slaves.add(slave)
        moved = acked_to > self.reached
        self.reached = max(self.reached, acked_to)
        return moved

    def on_disconnected(self, slave: Hashable) -> None:
        self._slaves.discard(slave)

    def is_available(self, log_end: int) -> bool:
        """Whether waiting makes sense: a slave is connected and less than `behind_bytes_max` behind."""
        return bool(self._slaves) and log_end - self.reached < self._behind_bytes_max
