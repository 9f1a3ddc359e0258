"""Logs of servers: to stderr or to rotated files, as text or JSON, each line with server and role.

A line that repeats more than `REPEATS_MAX` times a second is written once more with the number of suppressed lines.
Levels change at run time through `rocketq.runtime.log_levels`.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rocketq.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
REPEATS_MAX: Final = 10

Identity = Callable[[], tuple[str, str]]
"""Returns the name and the role of the server that writes."""

_FORMAT = "%(asctime)s %(levelname)-7s %(node)s %(role)s %(name)s: %(message)s"
_FILE_BYTES_MAX = 64 << 20
_FILES_KEPT = 10
_TEMPLATES_MAX: Final = 10_000


def set_up_logs(
    level: str, file: Path | None, form: str | None = None, identity: Identity = lambda: ("-", "-")
) -> None:
    """Configure the root logger. The file's folder is created; ConfigError if the file cannot be written."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handler = logging.handlers.RotatingFileHandler(
                file, maxBytes=_FILE_BYTES_MAX, backupCount=_FILES_KEPT, encoding="utf-8"
            )
        except OSError as error:
            raise ConfigError(f"--log-file {file}: {error.strerror}") from None
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_FORMAT))
    handler.addFilter(AddIdentity(identity))
    handler.addFilter(RepeatFilter(time.monotonic))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class AddIdentity(logging.Filter):
    """Adds the server's name and role to each record. Lines of the NameServer say so, also beside a broker."""

    def __init__(self, identity: Identity) -> None:
        super().__init__()
        self._identity = identity

    def filter(self, record: logging.LogRecord) -> bool:
        record.node, record.role = self._identity()
        if record.name.startswith("rocketq.nameserver"):
            record.node, record.role = "namesrv", "namesrv"
        return True


class RepeatFilter(logging.Filter):
    """Suppresses a line, by logger and format, beyond `REPEATS_MAX` in a second. The next one that passes has the
    number of suppressed lines."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now_s
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key, now_s = (record.name, str(record.msg)), self._now_s()
        since_s, count = self._seen.get(key, (now_s, 0))
        suppressed = 0
        if now_s - since_s >= 1:
            since_s, count, suppressed = now_s, 0, max(0, count - REPEATS_MAX)
        if len(self._seen) >= _TEMPLATES_MAX:
            self._seen.clear()
        self._seen[key] = since_s, count + 1
        if count >= REPEATS_MAX:
            return False
        if suppressed:
            record.msg = f"{record.getMessage()} (suppressed: {suppressed})"
            record.args = ()
            record.suppressed = suppressed
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, broker, role, msg, and error with the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "ts": f"{at:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "broker": getattr(record, "node", "-"),
            "role": getattr(record, "role", "-"),
            "msg": record.getMessage(),
        }
        if (suppressed := getattr(record, "suppressed", 0)) > 0:
            fields["suppressed"] = suppressed
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
