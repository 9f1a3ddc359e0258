"""A disk that remembers what was synced, so that a test can ask what a power cut would leave.

Everything goes to real files, as with `Disk`. Beside them this one keeps, in memory, each file's content at its last
sync and each directory's entries at its last sync. `cut_power` then writes a copy of the tree as a restart could find
it, by these rules and a seed:

- every sector that changed since its file's last sync is the old one or the new one, each by its own choice;
- a length that was not synced is the old one or the new one;
- an entry that was made, replaced or removed since its directory's last sync is as before or as after; a directory
  that is lost takes what is in it along.

For small stores: the contents are held in memory.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from rocketq.store.disk import Disk

SECTOR_BYTES = 512


class _Inode:
    """A file, independent of its current name; the open handle prevents reuse of its inode number."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.handle = os.open(path, os.O_RDONLY)
        self.synced = self.content() if durable else b""

    def content(self) -> bytes:
        return os.pread(self.handle, os.fstat(self.handle).st_size, 0)


Entries = dict[str, _Inode | None]  # None stands for a directory


class TearingDisk(Disk):
    """What is under `root` now counts as safe. Use it for one store, from as many threads as you like; close it."""

    def __init__(self, root: Path, *, sector_bytes: int = SECTOR_BYTES) -> None:
        self.root = root
        self.sector_bytes = sector_bytes
        self.on_step: Callable[[str, Path], None] | None = None
        self.syncs = 0
        self._lock = threading.RLock()
        self._inodes: dict[tuple[int, int], _Inode] = {}
        self._entries: dict[Path, Entries] = {}
        root.mkdir(parents=True, exist_ok=True)
        for directory in _directories(root):
            self._entries[directory] = self._list(directory, durable=True)

    def close(self) -> None:
        for inode in self._inodes.values():
            os.close(inode.handle)
        self._inodes.clear()

    def cut_power(self, target: Path, seed: int) -> None:
        """Write to `target`, a new directory, what a restart could find if the power went now."""
        with self._lock:
            self._restore(self.root, target, random.Random(seed))

    # The operations that matter

    def create(self, path: Path, size_bytes: int, *, reserve: bool, head: bytes = b"") -> None:
        self._step("create", path)
        super().create(path, size_bytes, reserve=reserve, head=head)

    def extend(self, path: Path, size_bytes: int) -> None:
        self._step("extend", path)
        with self._lock:
            self._inode(path)
            super().extend(path, size_bytes)

    def write(self, path: Path, at: int, data: bytes | memoryview) -> None:
        self._step("write", path)
        super().write(path, at, data)

    def zero_from(self, path: Path, start: int) -> int:
        self._step("zero_from", path)
        return super().zero_from(path, start)

    def sync(self, path: Path) -> None:
        self._step("sync", path)
        with self._lock:
            inode = self._inode(path)
            content = inode.content()  # taken first: what is written while the sync runs is not sure to be in it
            super().sync(path)
            inode.synced = content
            self.syncs += 1
        self._step("synced", path)

    def sync_directory(self, path: Path) -> None:
        self._step("sync_directory", path)
        with self._lock:
            entries = self._list(path, durable=False)
            super().sync_directory(path)
            self._entries[path] = entries

    def remove(self, path: Path) -> None:
        self._step("remove", path)
        with self._lock:
            self._inode(path)
            super().remove(path)

    def replace(self, path: Path, data: bytes) -> None:
        """As the real one, with both of its syncs seen."""
        self._step("replace", path)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".tmp")
        fresh.write_bytes(data)
        self.sync(fresh)
        fresh.replace(path)
        self.sync_directory(path.parent)

    # Bookkeeping

    def _step(self, name: str, path: Path) -> None:
        if self.on_step is not None:
            self.on_step(name, path)

    def _inode(self, path: Path, *, durable: bool = False) -> _Inode:
        facts = path.stat()
        key = facts.st_dev, facts.st_ino
        known = self._inodes.get(key)
        if known is None:
            known = self._inodes[key] = _Inode(path, durable=durable)
        return known

    def _list(self, directory: Path, *, durable: bool) -> Entries:
        if not directory.is_dir():
            return {}
        found: Entries = {}
        for path in sorted(directory.iterdir()):
            found[path.name] = None if path.is_dir() else self._inode(path, durable=durable)
        return found

    # The cut

    def _restore(self, directory: Path, target: Path, choice: random.Random) -> None:
        target.mkdir()
        before, after = self._entries.get(directory, {}), self._list(directory, durable=False)
        for name in sorted(before.keys() | after.keys()):
            entries = after
            if before.get(name, ...) is not after.get(name, ...):
                entries = choice.choice((before, after))
            if name not in entries:
                continue
            inode = entries[name]
            if inode is None:
                self._restore(directory / name, target / name, choice)
            else:
                (target / name).write_bytes(self._torn(inode, choice))

    def _torn(self, inode: _Inode, choice: random.Random) -> bytes:
        before, after = inode.synced, inode.content()
        if before == after:
            return after
        length = choice.choice((len(before), len(after)))
        before, after = before[:length].ljust(length, b"\0"), after[:length].ljust(length, b"\0")
        pieces = []
        for at in range(0, length, self.sector_bytes):
            old, new = before[at : at + self.sector_bytes], after[at : at + self.sector_bytes]
            pieces.append(old if old == new else choice.choice((old, new)))
        return b"".join(pieces)


def _directories(root: Path) -> Iterator[Path]:
    yield root
    for path in sorted(root.rglob("*")):
        if path.is_dir():
            yield path
