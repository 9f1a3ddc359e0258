"""Every file operation that durability depends on, in one place that a test can stand in for."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ZEROS = bytes(1 << 20)
_FETCH_BYTES = 128 << 10  # limit of the system call
_LOAD_BYTES = 256 << 10
_OPEN_FILES = Path("/proc/self/fd")
_NO_DESCRIPTOR: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


@dataclass(frozen=True, slots=True)
class DiskUsage:
    total_bytes: int
    used_bytes: int
    usable_bytes: int

    @property
    def used_ratio(self) -> float:
        reachable = self.used_bytes + self.usable_bytes
        return self.used_bytes / reachable if reachable else 1.0


def lacks_descriptors(error: OSError) -> bool:
    """Whether the process has opened all it may: nothing was tried yet, and the next time may go well."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


class Disk:
    """The real one. `on_pressure` is called when a mapping fails for want of descriptors or address space."""

    on_pressure: Callable[[], None] = staticmethod(lambda: None)

    def relieve_with(self, drop_mappings: Callable[[], None]) -> None:
        """What to call when descriptors or address space run out."""
        self.on_pressure = drop_mappings

    def create(self, path: Path, size_bytes: int, *, reserve: bool, head: bytes = b"") -> None:
        """A new file of zeros (behind `head`) at full length; with `reserve` all its blocks are had now, so no later
        write can fail. It gets its name when it is complete: a crash or a full disk (OSError) leaves nothing behind.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, named = _open_new(path)
        try:
            os.ftruncate(handle, size_bytes)
            if reserve:
                _allocate(handle, 0, size_bytes)
            os.pwrite(handle, head, 0)
            if not named:
                _give_name(handle, path)
        except OSError as error:
            if named:
                path.unlink()
            raise OSError(error.errno, f"{os.strerror(error.errno or 0)} ({size_bytes} bytes)", str(path)) from None
        finally:
            os.close(handle)
        self.sync_directory(path.parent)

    def reserve(self, path: Path, start: int, count: int) -> None:
        """Have the blocks of a range; what they hold does not change."""
        handle = os.open(path, os.O_RDWR)
        try:
            _allocate(handle, start, count)
        finally:
            os.close(handle)

    def extend(self, path: Path, size_bytes: int) -> None:
        """Bring a file that was cut short back to its length, with zeros."""
        os.truncate(path, size_bytes)

    def map(self, path: Path, *, writable: bool) -> mmap.mmap:
        """Map a whole file. Before Python 3.13 that costs a descriptor: when they run out, idle mappings are let go."""
        try:
            return _map(path, writable)
        except OSError as error:
            if not lacks_descriptors(error) and error.errno != errno.ENOMEM:
                raise
        self.on_pressure()
        return _map(path, writable)

    def fetch(self, path: Path, start: int, count: int) -> bool:
        """Have a range in memory before it is touched, page by page, unchanged; False where this cannot be had."""
        if not hasattr(os, "posix_fadvise"):
            return False
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError:  # only a hint; a later use of the file reports its error
            return False
        try:
            for at in range(start, start + count, _FETCH_BYTES):
                os.posix_fadvise(handle, at, min(_FETCH_BYTES, start + count - at), os.POSIX_FADV_WILLNEED)
        finally:
            os.close(handle)
        return True

    def read(self, path: Path, at: int, count: int) -> bytes:
        """A piece of a file, past its mapping; less of it where the file ends."""
        handle = os.open(path, os.O_RDONLY)
        try:
            return os.pread(handle, count, at)
        finally:
            os.close(handle)

    def load(self, path: Path, start: int, count: int) -> None:
        """Read a range into the page cache. Other threads run while the disk works, and a bad sector is an OSError,
        where it would end the process that reads a mapping."""
        scratch = memoryview(bytearray(min(count, _LOAD_BYTES)))
        handle = os.open(path, os.O_RDONLY)
        try:
            at, stop = start, start + count
            while at < stop and (done := os.preadv(handle, [scratch[: stop - at]], at)):
                at += done
        finally:
            os.close(handle)

    def write(self, path: Path, at: int, data: bytes | memoryview) -> None:
        """Write with pwrite instead of through the mapping, so that a full disk raises an error."""
        handle = os.open(path, os.O_RDWR)
        try:
            view = memoryview(data)
            while view:
                done = os.pwrite(handle, view, at)
                view, at = view[done:], at + done
        finally:
            os.close(handle)

    def zero_from(self, path: Path, start: int) -> int:
        """Zero the data from `start` to the end of the file; returns how far behind `start` non-zero data reached."""
        dirty_end = start
        handle = os.open(path, os.O_RDWR)
        try:
            size = os.fstat(handle).st_size
            for low, high in _data_ranges(handle, start, size):
                for at in range(low, high, len(_ZEROS)):
                    count = min(len(_ZEROS), high - at)
                    piece = os.pread(handle, count, at)
                    if piece != _ZEROS[:count]:
                        dirty_end = at + len(piece.rstrip(b"\0"))
                        os.pwrite(handle, memoryview(_ZEROS)[:count], at)
        finally:
            os.close(handle)
        return dirty_end - start

    def data_ranges(self, path: Path, start: int) -> list[tuple[int, int]]:
        """The parts of a file behind `start` that may hold something else than zeros."""
        handle = os.open(path, os.O_RDONLY)
        try:
            return _data_ranges(handle, start, os.fstat(handle).st_size)
        finally:
            os.close(handle)

    def sync(self, path: Path) -> None:
        """What was written to this file, through a mapping or not, survives a power cut from here on."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(handle)
        finally:
            os.close(handle)

    def sync_directory(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: Path) -> None:
        path.unlink()

    def replace(self, path: Path, data: bytes) -> None:
        """Replace the file atomically: readers and restarts see the old content or the new."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".tmp")
        handle = os.open(fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.replace(fresh, path)
        self.sync_directory(path.parent)

    def usage(self, path: Path) -> DiskUsage:
        facts = os.statvfs(path)
        total = facts.f_blocks * facts.f_frsize
        return DiskUsage(total, total - facts.f_bfree * facts.f_frsize, facts.f_bavail * facts.f_frsize)


def _map(path: Path, writable: bool) -> mmap.mmap:
    handle = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
    try:
        return mmap.mmap(handle, 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ, **_NO_DESCRIPTOR)
    finally:
        os.close(handle)


def _open_new(path: Path) -> tuple[int, bool]:
    """A new file without a name yet, where the system can do that; and whether it has one."""
    if _OPEN_FILES.is_dir():
        try:
            return os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o644), False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644), True


def _give_name(handle: int, path: Path) -> None:
    """Link an open file without a name; with a directory handle the link in /proc is followed."""
    open_files = os.open(_OPEN_FILES, os.O_RDONLY)
    try:
        os.link(str(handle), path, src_dir_fd=open_files, follow_symlinks=True)
    finally:
        os.close(open_files)


def _allocate(handle: int, start: int, count: int) -> None:
    try:
        os.posix_fallocate(handle, start, count)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        _allocate_by_writing(handle, start, count)


def _allocate_by_writing(handle: int, start: int, count: int) -> None:
    """For file systems without fallocate: rewrite every block with what it holds."""
    for at in range(start, start + count, len(_ZEROS)):
        piece = os.pread(handle, min(len(_ZEROS), start + count - at), at)
        os.pwrite(handle, piece, at)


def _data_ranges(handle: int, start: int, size: int) -> list[tuple[int, int]]:
    """Ranges with data at or behind `start`; the whole rest if the file system cannot report them."""
    ranges: list[tuple[int, int]] = []
    at = start
    with contextlib.suppress(OSError):
        while at < size:
            try:
                low = os.lseek(handle, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return ranges
                raise
            high = os.lseek(handle, low, os.SEEK_HOLE)
            ranges.append((low, min(high, size)))
            at = high
        return ranges
    return [(start, size)] if start < size else []
