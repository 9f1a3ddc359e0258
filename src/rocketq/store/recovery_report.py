"""What opening a store found and did."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from rocketq.store.commit_log import LogRange

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RecoveryReport:
    """What opening found and did."""

    log_start: int = 0
    log_end: int = 0
    walked_from: int = 0
    from_point: bool = False
    records: int = 0
    bad_bodies: int = 0
    cut_bytes: int = 0
    last_record: int = -1
    last_store_ms: int = 0
    holes: list[LogRange] = field(default_factory=list)
    missing_index: LogRange | None = None
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Something an operator should know."""
        self.notes.append(text)
        log.warning("recovery: %s", text)

    def lack_index(self, missing: LogRange) -> None:
        """Keys of this part of the log are to be indexed in the background."""
        self.missing_index = missing
        self.note(f"the index lacks the log from {missing.start} to {missing.end}: it is built in the background")
