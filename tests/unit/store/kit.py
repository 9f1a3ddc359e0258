"""What the store tests share: small files, messages, a disk that can be told to fail."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

from rocketq.model import NewMessage, Record
from rocketq.protocol.messages import decode_records
from rocketq.runtime.clock import ManualClock
from rocketq.store import ReadResult, Store, StoreConfig
from rocketq.store.disk import Disk, DiskUsage

NOW_MS = 1_700_000_000_000
SEGMENT = 16_384
SMALL: dict[str, Any] = {
    "segment_bytes": SEGMENT,
    "queue_file_bytes": 800,
    "index_slots": 50,
    "index_units": 100,
    "message_bytes_max": 8_192,
}


def small_config(root: Path, **given: Any) -> StoreConfig:
    return StoreConfig(root=root, **(SMALL | given))


def open_store(root: Path, *, clock: ManualClock | None = None, disk: Disk | None = None, **given: Any) -> Store:
    """A store on small files, without threads of its own."""
    return Store.open(small_config(root, **given), clock=clock or ManualClock(NOW_MS), disk=disk, services=False)


def properties(**values: str) -> bytes:
    return b"".join(name.encode() + b"\x01" + value.encode() + b"\x02" for name, value in values.items())


def message(body: bytes = b"body", topic: str = "T", queue_id: int = 0, **given: Any) -> NewMessage:
    """A message; other names than NewMessage's are its properties."""
    fields = {name: given.pop(name) for name in list(given) if name in NewMessage.__dataclass_fields__}
    if given:
        fields["properties"] = properties(**given)
    return NewMessage(topic=topic, queue_id=queue_id, body=body, **fields)


def packed(*bodies: bytes) -> bytes:
    """A batch of plain inner messages."""
    return b"".join(pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + pack(">h", 0) for body in bodies)


def fill(store: Store, count: int, *, size: int = 1_000, **given: Any) -> list[int]:
    """Append messages; their log offsets."""
    return [store.append(message(b"%06d" % n + b"x" * (size - 6), **given)).log_offset for n in range(count)]


def records(result: ReadResult) -> list[Record]:
    return decode_records(result.records)


def bodies(result: ReadResult) -> list[bytes]:
    return [record.body for record in records(result)]


class StagedDisk(Disk):
    """The real disk with a stage direction: `on(name, path)` runs before an operation and may raise."""

    def __init__(self) -> None:
        self.on: Callable[[str, Path], None] = lambda name, path: None
        self.usage_now: DiskUsage | None = None
        self.synced: list[Path] = []

    def create(self, path: Path, size_bytes: int, *, reserve: bool, head: bytes = b"") -> None:
        self.on("create", path)
        super().create(path, size_bytes, reserve=reserve, head=head)

    def reserve(self, path: Path, start: int, count: int) -> None:
        self.on("reserve", path)
        super().reserve(path, start, count)

    def sync(self, path: Path) -> None:
        self.on("sync", path)
        self.synced.append(path)
        super().sync(path)

    def usage(self, path: Path) -> DiskUsage:
        return self.usage_now or DiskUsage(100, 10, 90)

    def fail(self, *names: str, part: str = "") -> None:
        """From now on these operations fail as on a full disk, on paths that contain `part`."""

        def refuse(name: str, path: Path) -> None:
            if name in names and part in str(path):
                raise OSError(errno.ENOSPC, "No space left on device")

        self.on = refuse

    def recover(self) -> None:
        self.on = lambda name, path: None
