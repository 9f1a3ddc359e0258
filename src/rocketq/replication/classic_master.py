"""A master's end of classic connections: where each slave is, what it gets next, and whose word counts. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from rocketq.errors import RemoteProtocolError
from rocketq.replication.classic_frames import ReportReader, encode_header
from rocketq.replication.classic_slave import StreamTimes

GATHER_BYTES: Final = 32 << 10


@dataclass(frozen=True, slots=True)
class LogExtent:
    """What a master has: [start, end), and where its last file starts."""

    start: int
    end: int
    last_file: int


class Feeding:
    """One slave. It speaks first; from the end it reports it is sent the log, whatever it reports later."""

    def __init__(self, times: StreamTimes, now_ms: int, *, from_last_file: bool = False) -> None:
        self._times = times
        self._from_last_file = from_last_file
        self._reports = ReportReader()
        self._read_ms = self._written_ms = now_ms
        self.acked_to = -1
        """As far as the slave has said; -1 before its first word."""
        self.sent_to = -1
        """What it is sent next; -1 before that is known."""
        self._sent_all_to = -1

    # from the slave

    def on_bytes(self, chunk: bytes, log: LogExtent, now_ms: int) -> bool:
        """Whether it has reported anew. RemoteProtocolError when it cannot be our slave: it is ahead of us, or needs
        what is gone."""
        self._read_ms = now_ms
        report = self._reports.feed(chunk)
        if report is None:
            return False
        if not 0 <= report <= log.end:
            raise RemoteProtocolError(f"it reports {report}, our log ends at {log.end}: it has what we do not have")
        if self.sent_to < 0:
            self.sent_to = self._first(report, log)
        self.acked_to = report
        return True

    def _first(self, report: int, log: LogExtent) -> int:
        """A slave with nothing gets all there is (Apache's masters give the last file only)."""
        if report == 0:
            return log.last_file if self._from_last_file else log.start
        if report < log.start:
            raise RemoteProtocolError(f"it ends at {report}, our log starts at {log.start}: it must be seeded anew")
        return report

    def is_silent(self, now_ms: int) -> bool:
        return now_ms - self._read_ms > self._times.silence_ms_max

    # to the slave

    def waits(self, log_end: int) -> bool:
        """Whether to send nothing now: the slave has not reported what it was sent, and little more has come. It gets
        all of that at once when it has: fewer and larger pieces, for it and for us. Only behind whole records, for a
        part of one is never reported."""
        return self.acked_to < self.sent_to == self._sent_all_to and log_end - self.sent_to < GATHER_BYTES

    def sent(self, size_bytes: int, now_ms: int, log_end: int = -1) -> bytes:
        """The header of the next so many bytes, which are as good as sent."""
        header = encode_header(self.sent_to, size_bytes)
        self.sent_to += size_bytes
        if self.sent_to == log_end:
            self._sent_all_to = log_end
        self._written_ms = now_ms
        return header

    def on_tick(self, now_ms: int) -> bytes:
        """A heartbeat when nothing was sent for a while."""
        if self.sent_to < 0 or now_ms - self._written_ms < self._times.heartbeat_ms:
            return b""
        return self.sent(0, now_ms)


class ReplicaAcks:
    """All slaves together: the furthest counts, and what was reached once stays reached."""

    def __init__(self, behind_bytes_max: int) -> None:
        self._behind_bytes_max = behind_bytes_max
        self._slaves: set[Hashable] = set()
        self.reached = 0

    def on_report(self, slave: Hashable, acked_to: int) -> bool:
        """Whether more is replicated than before."""
        self._slaves.add(slave)
        moved = acked_to > self.reached
        self.reached = max(self.reached, acked_to)
        return moved

    def on_gone(self, slave: Hashable) -> None:
        self._slaves.discard(slave)

    def is_available(self, log_end: int) -> bool:
        """Whether a message that ends here may be waited for: a slave is connected and not hopelessly behind."""
        return bool(self._slaves) and log_end - self.reached < self._behind_bytes_max
