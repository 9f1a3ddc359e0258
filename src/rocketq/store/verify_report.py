"""What the verifier says."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field
from typing import Any


class Severity(enum.Enum):
    """An error is damage. A repair is what the next opening mends by itself, as after a crash."""

    ERROR = "error"
    REPAIR = "repair"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    where: str
    what: str


@dataclass(slots=True)
class VerifyReport:
    """What was looked at, and what is wrong with it."""

    root: str
    cleanly_stopped: bool = True
    log_start: int = 0
    log_end: int = 0
    segments: int = 0
    records: int = 0
    queues: int = 0
    queue_units: int = 0
    extension_units: int = 0
    index_files: int = 0
    index_units: int = 0
    findings: list[Finding] = field(default_factory=list)
    findings_left_out: int = 0

    @property
    def ok(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        body = asdict(self)
        body["findings"] = [{**asdict(item), "severity": item.severity.value} for item in self.findings]
        return {"ok": self.ok, **body}
