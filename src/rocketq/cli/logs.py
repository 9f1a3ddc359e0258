"""Where a server's log goes: to stderr, or to a file that is turned over before it grows too large."""

from __future__ import annotations

import logging
import logging.handlers
from pathlib import Path

LEVELS = ("debug", "info", "warning", "error")

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_FILE_BYTES_MAX = 64 << 20
_FILES_KEPT = 5


def set_up_logs(level: str, file: Path | None) -> None:
    handler: logging.Handler = logging.StreamHandler()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            file, maxBytes=_FILE_BYTES_MAX, backupCount=_FILES_KEPT, encoding="utf-8"
        )
    logging.basicConfig(level=level.upper(), format=_FORMAT, handlers=[handler], force=True)
