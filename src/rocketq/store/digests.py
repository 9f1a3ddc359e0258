"""Checksums of the log's files, so that a flipped bit is found even where no record's CRC covers it."""

from __future__ import annotations

from rocketq.store.commit_log import CommitLog

STEP_BYTES = 4 << 20

Digest = tuple[int, int, int]  # start of the file, how far it is covered (a log offset), CRC-32 of that


class LogDigests:
    """Carried on as the log grows; a file is covered from its first byte or not at all."""

    def __init__(self) -> None:
        self._covered: dict[int, tuple[int, int]] = {}
        self._next = 0

    def restore(self, digests: tuple[Digest, ...]) -> None:
        self._covered = {start: (upto, crc) for start, upto, crc in digests}

    def begin(self, commit_log: CommitLog, end: int) -> None:
        """Forget what lies at or behind `end`; a file cut inside starts over."""
        base = commit_log.files.start_of(end)
        self._covered = {start: done for start, done in self._covered.items() if done[0] <= end and start <= base}
        size = commit_log.config.segment_bytes
        self._next = min([base, *(start for start, (upto, _) in self._covered.items() if upto < start + size)])

    def extend(self, commit_log: CommitLog, end: int) -> tuple[Digest, ...]:
        """Cover the log up to `end`; the digests of the files there are."""
        base = self._next
        while base < end:
            upto, crc = self._covered.get(base, (base, 0))
            segment, stop = commit_log.segment(base), min(end, base + commit_log.config.segment_bytes)
            while upto < stop and segment.size:
                step = min(upto + STEP_BYTES, stop)
                crc = segment.crc32(upto - base, step - base, crc)
                upto = step
            self._covered[base] = (upto, crc)
            if stop < base + commit_log.config.segment_bytes:
                break
            base += commit_log.config.segment_bytes
        self._next = base
        self._covered = {start: done for start, done in self._covered.items() if start in commit_log.files}
        return tuple((start, *done) for start, done in sorted(self._covered.items()))
