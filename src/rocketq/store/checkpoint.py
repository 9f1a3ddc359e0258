"""Three small files beside the data: the checkpoint that other brokers go by, the abort mark, the lock."""

from __future__ import annotations

import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from rocketq.errors import StoreLockedError
from rocketq.store.disk import Disk

CHECKPOINT_BYTES = 4096
_FIELDS = Struct(">5q")
_claims = threading.Lock()
_claimed: set[tuple[int, int]] = set()  # device and inode of the lock files held in this process


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
        self._place = self._claim(path)
        try:
            self._handle = os.open(path, os.O_RDWR)
        except OSError:
            self._give_back()
            raise
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            self.release()
            raise StoreLockedError(f"{path.parent} is open in another process (its lock file is held)") from None
        os.pwrite(self._handle, b"lock", 0)
        os.fsync(self._handle)

    def _claim(self, path: Path) -> tuple[int, int]:
        """File locks belong to the process, and closing any handle drops them: within one we keep count ourselves."""
        path.touch(0o644)
        facts = path.stat()
        with _claims:
            if (facts.st_dev, facts.st_ino) in _claimed:
                raise StoreLockedError(f"{path.parent} is open in this process already")
            _claimed.add((facts.st_dev, facts.st_ino))
        return facts.st_dev, facts.st_ino

    def release(self) -> None:
        os.close(self._handle)
        self._give_back()

    def _give_back(self) -> None:
        with _claims:
            _claimed.discard(self._place)
