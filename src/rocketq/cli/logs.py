"""Where a server's log goes: to stderr, or to a file that is turned over before it grows too large."""

from __future__ import annotations

import logging
import logging.handlers
from pathlib import Path

from rocketq.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error")

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_FILE_BYTES_MAX = 64 << 20
_FILES_KEPT = 5


def set_up_logs(level: str, file: Path | None) -> None:
    """The file's folder is made when it is missing; ConfigError when the file cannot be written."""
    handler: logging.Handler = logging.StreamHandler()
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handler = logging.handlers.RotatingFileHandler(
                file, maxBytes=_FILE_BYTES_MAX, backupCount=_FILES_KEPT, encoding="utf-8"
            )
        except OSError as error:
            raise ConfigError(f"--log-file {file}: {error.strerror}") from None
    logging.basicConfig(level=level.upper(), format=_FORMAT, handlers=[handler], force=True)
