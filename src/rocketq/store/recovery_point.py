"""The recovery point: what the store knew to be safe on disk at some log position, so that opening is short.

A clean stop leaves one at the log's end, a running store writes one every minute. It is believed only as far as the
files agree with it; without it the log is walked from its start, which finds everything again.
"""

from __future__ import annotations

import json
import logging
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rocketq.store.digests import Digest
from rocketq.store.disk import Disk
from rocketq.store.index import IndexState

log = logging.getLogger(__name__)

FILE_NAME = "recovery.rocketq"
VERSION = 1


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue's bounds and its last unit."""

    topic: str
    queue_id: int
    min_offset: int
    end_offset: int
    last_log_offset: int
    last_size: int
    digests: tuple[Digest, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """Everything below `log_end` was dispatched, and synced with all its queues and index files."""

    log_start: int
    log_end: int
    last_record: int
    last_record_crc: int
    segment_bytes: int
    queue_file_bytes: int
    queues: tuple[QueueState, ...]
    index: tuple[IndexState, ...]
    index_missing: tuple[int, int] | None
    holes: tuple[tuple[int, int], ...]
    index_shape: tuple[int, int]
    digests: tuple[Digest, ...] = ()

    def save(self, root: Path, disk: Disk) -> None:
        body = asdict(self)
        body["queues"] = [list(asdict(queue).values()) for queue in self.queues]
        body["index"] = [list(asdict(file).values()) for file in self.index]
        text = json.dumps({"version": VERSION, **body}, separators=(",", ":")).encode()
        disk.replace(root / FILE_NAME, text + b"\n%08x\n" % zlib.crc32(text))

    @classmethod
    def load(cls, root: Path) -> RecoveryPoint | None:
        """None when there is none, or one that cannot be read."""
        try:
            text, _, check = (root / FILE_NAME).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        try:
            if check.strip() != b"%08x" % zlib.crc32(text):
                raise ValueError("its checksum does not match")
            body: dict[str, Any] = json.loads(text)
            if body.pop("version") != VERSION:
                raise ValueError("it is of another version")
            body["queues"] = tuple(_queue_state(item) for item in body["queues"])
            body["index"] = tuple(IndexState(*item) for item in body["index"])
            body["holes"] = tuple((start, end) for start, end in body["holes"])
            body["index_shape"] = tuple(body["index_shape"])
            body["digests"] = tuple((start, upto, crc) for start, upto, crc in body["digests"])
            missing = body["index_missing"]
            body["index_missing"] = (missing[0], missing[1]) if missing else None
            return cls(**body)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the recovery point cannot be used (%s): the log is walked instead", error)
            return None


def _queue_state(item: list[Any]) -> QueueState:
    *plain, digests = item
    return replace(QueueState(*plain), digests=tuple((start, upto, crc) for start, upto, crc in digests))
