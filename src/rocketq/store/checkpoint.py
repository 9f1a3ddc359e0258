"""Three small files beside the data: the checkpoint that other brokers go by, the abort mark, the lock."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from rocketq.errors import StoreLockedError
from rocketq.store.disk import Disk

CHECKPOINT_BYTES = 4096
_FIELDS = Struct(">5q")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Store times up to which log, queues and index are known to be on disk; two positions that 5.x added.

    We write it for Apache's brokers. Our own recovery goes by the recovery point, which knows every queue.
    """

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """From the file; all zero when it is missing or short."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        return cls(*_FIELDS.unpack_from(data)) if len(data) >= _FIELDS.size else cls()

    def save(self, path: Path, disk: Disk) -> None:
        data = _FIELDS.pack(self.log_ms, self.queues_ms, self.index_ms, self.master_flushed_offset, self.confirm_offset)
        disk.replace(path, data.ljust(CHECKPOINT_BYTES, b"\0"))


class DirectoryLock:
    """One process at a time on a store directory, Apache's brokers included: a lock on the first byte of `lock`."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            os.close(self._handle)
            raise StoreLockedError(f"{path.parent} is open in another process (its lock file is held)") from None
        os.pwrite(self._handle, b"lock", 0)
        os.fsync(self._handle)

    def release(self) -> None:
        os.close(self._handle)
