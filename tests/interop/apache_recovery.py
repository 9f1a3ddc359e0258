"""What Apache's recovery after a crash cannot do, so that only what it can do is asked of it."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

_CHECKPOINT = Struct(">3q")
_STORE_MS = Struct(">q")
_STORE_MS_AT = 56  # with an IPv4 born host
_SAFETY_MS = 3000


def indexed_from(root: Path) -> int:
    """The log offset from which on a crashed directory will be indexed again.

    It drops index files newer than the checkpoint and walks the log from the newest file whose first message is older
    than the checkpoint; keys of messages before that may be lost (they are, with its default messageIndexSafe=false).
    """
    files = sorted((root / "commitlog").iterdir())
    checkpoint = root / "checkpoint"
    log_ms, queues_ms, _ = _CHECKPOINT.unpack_from(checkpoint.read_bytes()) if checkpoint.exists() else (0, 0, 0)
    limit_ms = max(0, min(log_ms, queues_ms) - _SAFETY_MS)
    for file in reversed(files):
        with file.open("rb") as log:
            log.seek(_STORE_MS_AT)
            (first_ms,) = _STORE_MS.unpack(log.read(_STORE_MS.size))
        if 0 < first_ms <= limit_ms:
            return int(file.name)
    return int(files[0].name)


def empty_queue_files(root: Path) -> list[Path]:
    """Queue files that were made but never written to, as a kill at the wrong moment leaves them.

    Apache, all versions, takes the first unit of such a last file for a message (of log offset 0 and size 0): the queue
    then ends one too late, its next message leaves a hole, and a pull at the hole is never answered by 5.x.
    """
    return [path for path in sorted(root.glob("consumequeue/*/*/*")) if not any(path.read_bytes())]
