"""The audit log: one JSON object per line, for denials, sampled grants, and changes of users and policies.

    {"time": "2026-01-31T12:00:00.000Z", "event": "deny", "source": "10.0.0.9", "user": "app", "code": 310,
     "resource": "Topic:t", "action": "Pub", "rule": "no policy", "reason": "..."}

No secret and no signature is ever part of a record. Lines are written by a thread of their own.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import queue
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

BACKUPS: Final = 5
_QUEUE_MAX: Final = 100_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    event: str
    """allow, deny, dry-run or change."""
    time_ms: int
    source: str
    user: str | None
    code: int
    resource: str = ""
    action: str = ""
    rule: str = ""
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Of a change: what, before and after."""

    def to_line(self) -> str:
        shown: dict[str, Any] = {
            "time": datetime.fromtimestamp(self.time_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "event": self.event,
            "source": self.source,
            "user": self.user,
            "code": self.code,
            "resource": self.resource,
            "action": self.action,
            "decision": {"allow": "Allow", "deny": "Deny", "dry-run": "Deny", "change": "Allow"}[self.event],
            "rule": self.rule,
            "reason": self.reason,
        }
        kept = {name: value for name, value in shown.items() if value not in ("", None)}
        return json.dumps(kept | dict(self.details), ensure_ascii=False)


class AuditLog:
    """A file of such lines, rotated by size. A disk that is slow or full delays no request: records are dropped."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._records: queue.Queue[Any] = queue.Queue(_QUEUE_MAX)
        self._listener: logging.handlers.QueueListener | None = None
        self.dropped = 0

    def start(self) -> None:
        """The file is made with the first record."""
        if self._listener is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            log.error("audit log is off path=%s reason=%s", self._path, error)
            return
        handler = logging.handlers.RotatingFileHandler(
            self._path, maxBytes=self._bytes_max, backupCount=BACKUPS, encoding="utf-8", delay=True
        )
        handler.setFormatter(logging.Formatter("%(message)s"))
        self._listener = logging.handlers.QueueListener(self._records, handler)
        self._listener.start()

    def stop(self) -> None:
        """What was recorded is written before."""
        if self._listener is not None:
            self._listener.stop()
            for handler in self._listener.handlers:
                handler.close()
            self._listener = None

    def write(self, record: AuditRecord) -> None:
        if self._listener is None:
            return
        entry = logging.LogRecord("rocketq.audit", logging.INFO, "", 0, record.to_line(), None, None)
        try:
            self._records.put_nowait(entry)
        except queue.Full:
            self.dropped += 1
