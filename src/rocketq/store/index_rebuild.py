"""Building missing index files from the log while the store is already open."""

from __future__ import annotations

import logging
import shutil
import threading

from rocketq.kernel.index_units import IndexTail
from rocketq.kernel.records import BLANK, MESSAGE, RecordView, find_next_record
from rocketq.kernel.scanner import Scanner
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import StoreConfig
from rocketq.store.index import Index, IndexFile

log = logging.getLogger(__name__)

STEP_BYTES = 1 << 20
DIRECTORY = "index.rebuild"


class IndexRebuild:
    """Files are made beside the index and moved in when all are whole, the newest first: a rebuild that was cut off
    leaves a gap at the front, which the next opening finds."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog, index: Index, missing: LogRange) -> None:
        self._log = commit_log
        self._index = index
        self._missing = missing
        self._path = config.root / DIRECTORY
        self._files: list[IndexFile] = []
        self._scanner = Scanner(None, None, self._roll)
        self._scanner.to_queues = False
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> bool:
        """Build and move in; False, and nothing left behind, when it was stopped or failed before that."""
        shutil.rmtree(self._path, ignore_errors=True)
        try:
            if not self._build():
                return False
            for file in reversed(self._files):
                file.flush()
                self._index.take_in(file)
        except OSError as error:
            log.error(
                "index: log range [%d, %d) could not be indexed: %s", self._missing.start, self._missing.end, error
            )
            return False
        finally:
            shutil.rmtree(self._path, ignore_errors=True)
        log.info("index: log range [%d, %d) is indexed again", self._missing.start, self._missing.end)
        return True

    def _build(self) -> bool:
        position = self._missing.start
        while position < self._missing.end:
            if self._stopping.is_set():
                return False
            position = self._step(position)
        return True

    def _step(self, position: int) -> int:
        """Index one stretch of the log; where to go on."""
        segment = self._log.segment(position)
        at = position - int(segment.base)
        segment_end = position - at + self._log.config.segment_bytes
        if segment.size == 0:
            return segment_end
        stop = min(at + STEP_BYTES, segment.size, self._missing.end - segment.base)
        if self._scanner.index is None:
            self._scanner.index = self._new_file(position)
        state = self._scanner.scan(segment, at, stop)
        if state == MESSAGE:
            return position - at + int(self._scanner.at)
        if state == BLANK:
            return segment_end
        found: int = find_next_record(segment, self._scanner.at + 1, segment.size, RecordView())
        return position - at + found if found >= 0 else segment_end

    def _roll(self, _full: IndexTail) -> IndexTail:
        return self._new_file(self._scanner.view.log_offset)

    def _new_file(self, log_offset: int) -> IndexTail:
        before = self._files[-1].state() if self._files else None
        time_ms = self._log.store_ms_at(log_offset) or self._scanner.last_store_ms or 0
        file = self._index.create_in(self._path, time_ms)
        self._files.append(file)
        if before is not None:
            file.tail.preset(before.end_ms, before.end_offset)
        return file.tail
