"""Logs of a failed test, copied to where the next runs do not clean up."""

from __future__ import annotations

import shutil
from pathlib import Path

LOG_BYTES_MAX = 20 << 20
_PATTERNS = ("*.log", "*.log.0", "*.conf")


def keep_logs(work: Path, target: Path, *, since: float) -> list[Path]:
    """Copy what was written below `work` since a moment; the logs of an earlier failure of the same test go."""
    shutil.rmtree(target, ignore_errors=True)
    kept: list[Path] = []
    for path in sorted(path for pattern in _PATTERNS for path in work.rglob(pattern) if path.is_file()):
        status = path.stat()
        if status.st_mtime >= since and 0 < status.st_size <= LOG_BYTES_MAX:
            copy = target / path.relative_to(work)
            copy.parent.mkdir(parents=True, exist_ok=True)
            kept.append(Path(shutil.copy(path, copy)))
    return kept
