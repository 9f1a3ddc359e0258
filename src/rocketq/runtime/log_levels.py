"""Log levels of a running server, as a setting: `rocketq.store=DEBUG,rocketq=INFO`."""

from __future__ import annotations

import logging
import re
from typing import Final

from rocketq.errors import ConfigError

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
_LOGGER: Final = re.compile(r"rocketq(\.[a-z0-9_]+)*")


def parse_levels(text: str) -> dict[str, str]:
    """Levels by logger; ConfigError when a pair is malformed. A level alone is that of `rocketq`."""
    levels = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, level = part.partition("=")
        name, level = (name.strip(), level.strip().upper()) if equals else ("rocketq", name.strip().upper())
        if not _LOGGER.fullmatch(name):
            raise ConfigError(f"logLevel: logger {name!r} is unknown, names begin with rocketq")
        if level not in LEVELS:
            raise ConfigError(f"logLevel: level {level!r} is not one of {', '.join(LEVELS)}")
        levels[name] = level
    return levels


def apply_levels(before: str, after: str) -> None:
    """Set the levels of a setting; loggers that are no longer in it follow their parents again."""
    wanted = parse_levels(after)
    for name in parse_levels(before).keys() - wanted.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in wanted.items():
        logging.getLogger(name).setLevel(level)
