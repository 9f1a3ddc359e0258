"""The audit log: JSON lines, each with the hash of the one before it, so that a changed or removed line is found."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rocketq.errors import RocketQError

GENESIS: Final = "0" * 64
FILE_NAME: Final = "audit.jsonl"


class AuditError(RocketQError):
    """The audit log cannot be read, or its chain is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change, tried or done. Bodies of messages and secrets are never in it."""

    at_ms: int
    user: str
    source: str
    cluster: str
    action: str
    target: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    preview: str | None = None
    results: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    previous: str = GENESIS
    hash: str = ""


def entry_hash(fields: Mapping[str, Any]) -> str:
    """Over all fields but the hash itself."""
    kept = {name: value for name, value in fields.items() if name != "hash"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class AuditLog:
    """Appends from any thread; each line is on disk when `add` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._last = GENESIS
        path.parent.mkdir(parents=True, exist_ok=True)
        for entry in read_entries(path):
            self._last = str(entry.get("hash", ""))

    def add(self, entry: AuditEntry) -> AuditEntry:
        with self._lock:
            fields = asdict(entry) | {"previous": self._last}
            fields["hash"] = entry_hash(json.loads(json.dumps(fields)))
            line = json.dumps(fields, ensure_ascii=False) + "\n"
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._last = fields["hash"]
        return AuditEntry(**fields)

    def newest(self, count_max: int, *, text: str = "") -> list[dict[str, Any]]:
        """Entries that contain the text, newest first."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        found = []
        for line in reversed(lines):
            if text.lower() in line.lower():
                found.append(json.loads(line))
                if len(found) >= count_max:
                    break
        return found


def read_entries(path: Path) -> Iterator[dict[str, Any]]:
    """AuditError names a line that is no entry."""
    if not path.exists():
        return
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
            except ValueError:
                raise AuditError(f"{path}:{number}: the line is damaged") from None
            if not isinstance(value, dict):
                raise AuditError(f"{path}:{number}: the line is no entry")
            yield value


def verify(path: Path) -> int:
    """The number of entries of an unbroken chain; AuditError names the first line that does not fit."""
    last, count = GENESIS, 0
    for count, entry in enumerate(read_entries(path), 1):
        if entry.get("previous") != last:
            raise AuditError(
                f"{path}:{count}: the entry does not follow the one before it: a line was removed or added"
            )
        if entry.get("hash") != entry_hash(entry):
            raise AuditError(f"{path}:{count}: the entry was changed after it was written")
        last = str(entry["hash"])
    return count
